"""Model and cores of the processor, and whether a hypervisor or a container is around."""

import re
from pathlib import Path
from typing import NamedTuple

from measurements.host import files

# Keys of /proc/cpuinfo on x86 and, behind them, on Arm, POWER, RISC-V and s390.
_IDENTITY = {
    "cpu_vendor": ("vendor_id", "CPU implementer"),
    "cpu_model": ("model name", "cpu", "uarch", "Model", "Hardware"),
    "cpu_family": ("cpu family", "CPU architecture"),
    "cpu_model_number": ("model", "CPU part"),
    "cpu_stepping": ("stepping", "CPU revision", "revision"),
    "microcode": ("microcode",),
}
# What firmware calls itself under a hypervisor: words of its vendor and product.
_FIRMWARE = {
    "QEMU": "qemu",
    "KVM": "kvm",
    "VMware": "vmware",
    "innotek": "virtualbox",
    "VirtualBox": "virtualbox",
    "Xen": "xen",
    "HVM domU": "xen",
    "Virtual Machine": "microsoft",
    "Google Compute Engine": "google",
    "Amazon EC2": "amazon",
    **{name: name.lower() for name in ("Parallels", "Bochs", "BHYVE", "OpenStack", "Firecracker")},
}
# Clouds rent whole machines too, under the same vendor.
_WHOLE_MACHINE = re.compile(r"\.metal\b|-metal\b|baremetal", re.IGNORECASE)
# Words in the names of control groups, and files, that container runtimes leave.
_GROUPS = {
    "docker": "docker",
    "libpod": "podman",
    "kubepods": "kubernetes",
    **{name: name for name in ("crio", "containerd", "lxc", "garden")},
}
_MARKS = {".dockerenv": "docker", "run/.containerenv": "podman"}


class OnlineCore(NamedTuple):
    """A physical core: its package, and the logical CPUs on it that are online."""

    package: str
    cpus: frozenset[int]


def processor_state(sysfs: Path, procfs: Path) -> dict[str, files.Value]:
    """Read model, microcode, and what is online: sockets, physical cores, logical CPUs, SMT."""
    folder = sysfs / "devices/system/cpu"
    cores = online_cores(sysfs)
    smt = files.read_flag(folder / "smt/active")
    if smt is None and cores:
        smt = any(len(core.cpus) > 1 for core in cores)
    # The first processor's values hold.
    info = files.first_pairs(procfs / "cpuinfo")
    state: dict[str, files.Value | None] = {
        column: next((info[key] for key in keys if info.get(key)), None)
        for column, keys in _IDENTITY.items()
    }
    state |= {
        "cpus_online": len(files.read_cpus(folder / "online")) or None,
        "cores_online": len(cores) or None,
        "sockets_online": len({core.package for core in cores}) or None,
        "smt": smt,
        "cpus_isolated": files.read_text(folder / "isolated"),
    }
    return files.without_missing(state)


def online_cores(sysfs: Path) -> frozenset[OnlineCore]:
    """Read the physical cores with a CPU that is online; none where the kernel does not tell."""
    folder = sysfs / "devices/system/cpu"
    cores = set()
    for cpu in files.read_cpus(folder / "online"):
        topology = folder / f"cpu{cpu}/topology"
        if siblings := files.read_cpus(topology / "thread_siblings_list"):
            package = files.read_text(topology / "physical_package_id") or "0"
            cores.add(OnlineCore(package, siblings))
    return frozenset(cores)


def is_virtual_machine(sysfs: Path, procfs: Path) -> bool | None:
    """Tell whether the kernel runs on a hypervisor; None where nothing says so."""
    flags = cpu_flags(procfs)
    if hypervisor(sysfs, procfs) is not None or "hypervisor" in flags:
        return True
    known = flags or files.read_text(sysfs / "class/dmi/id/sys_vendor")
    return False if known or (procfs / "device-tree").exists() else None


def cpu_flags(procfs: Path) -> list[str]:
    """Read the flags of the first CPU."""
    return files.first_pairs(procfs / "cpuinfo").get("flags", "").split()


def hypervisor(sysfs: Path, procfs: Path) -> str | None:
    """Name the hypervisor, where it gives its name."""
    # The first domain of Xen has the machine to itself.
    if "control_d" in files.read_field(procfs / "xen/capabilities"):
        return None
    if kind := files.read_text(sysfs / "hypervisor/type"):
        return kind
    if compatible := files.read_text(procfs / "device-tree/hypervisor/compatible"):
        return compatible.split("\0")[0].removeprefix("linux,")
    names = ("sys_vendor", "product_name", "bios_vendor")
    firmware = " ".join(files.read_field(sysfs / "class/dmi/id" / name) for name in names)
    if _WHOLE_MACHINE.search(firmware):
        return None
    return next((name for word, name in _FIRMWARE.items() if word in firmware), None)


def container(root: Path, procfs: Path) -> str | None:
    """Name the kind of container of this process; "none", or None where it is not known."""
    settings = (s.partition("=") for s in files.read_field(procfs / "1/environ").split("\0"))
    named = (
        files.read_text(root / "run/systemd/container")
        or next((value for name, _, value in settings if name == "container" and value), None)
        or next((kind for mark, kind in _MARKS.items() if (root / mark).exists()), None)
    )
    if named:
        return named
    groups = " ".join(files.read_field(procfs / name) for name in ("1/cgroup", "self/cgroup"))
    words = set(re.split(r"[^a-z]+", groups.lower()))
    found = next((kind for word, kind in _GROUPS.items() if word in words), None)
    return found or ("none" if groups.strip() else None)
