"""Which processor this is, and which of its cores are there."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

from measurements.host.files import read_cpus, read_flag, read_lines, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.host.files import Value


# Keys of /proc/cpuinfo on x86 and, behind them, on Arm, POWER, RISC-V and s390.
_IDENTITY = {
    "cpu_vendor": ("vendor_id", "CPU implementer"),
    "cpu_model": ("model name", "cpu", "uarch", "Model", "Hardware"),
    "cpu_family": ("cpu family", "CPU architecture"),
    "cpu_model_number": ("model", "CPU part"),
    "cpu_stepping": ("stepping", "CPU revision", "revision"),
    "microcode": ("microcode",),
}


class Core(NamedTuple):
    """A physical core: its package, and the logical CPUs on it that are online."""

    package: str
    cpus: frozenset[int]


def processor_state(sysfs: Path, procfs: Path) -> dict[str, Value]:
    """Model, microcode, and what is online: sockets, physical cores, logical CPUs, SMT."""
    folder = sysfs / "devices/system/cpu"
    online = read_cpus(folder / "online")
    cores = online_cores(sysfs)
    state: dict[str, Value] = dict(_identity(procfs))
    if online:
        state["cpus_online"] = len(online)
    if cores:
        state["cores_online"] = len(cores)
        state["sockets_online"] = len({core.package for core in cores})
    smt = read_flag(folder / "smt/active")
    if smt is None and cores:
        smt = any(len(core.cpus) > 1 for core in cores)
    if smt is not None:
        state["smt"] = smt
    if isolated := read_text(folder / "isolated"):
        state["cpus_isolated"] = isolated
    return state


def online_cores(sysfs: Path) -> frozenset[Core]:
    """Physical cores with a CPU that is online; none where the kernel does not tell."""
    folder = sysfs / "devices/system/cpu"
    cores = set()
    for cpu in read_cpus(folder / "online"):
        topology = folder / f"cpu{cpu}/topology"
        siblings = read_cpus(topology / "thread_siblings_list")
        if siblings:
            package = read_text(topology / "physical_package_id") or "0"
            cores.add(Core(package, siblings))
    return frozenset(cores)


def _identity(procfs: Path) -> dict[str, str]:
    said: dict[str, str] = {}
    for line in read_lines(procfs / "cpuinfo"):
        key, _, value = (part.strip() for part in line.partition(":"))
        said.setdefault(key, value)
    found = {
        column: next((said[key] for key in keys if said.get(key)), None)
        for column, keys in _IDENTITY.items()
    }
    return {column: value for column, value in found.items() if value is not None}


# Whether this is a virtual machine, and a container.


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
    "Parallels": "parallels",
    "Bochs": "bochs",
    "BHYVE": "bhyve",
    "OpenStack": "openstack",
    "Firecracker": "firecracker",
}
# Clouds rent whole machines too, under the same vendor.
_WHOLE_MACHINE = re.compile(r"\.metal\b|-metal\b|baremetal", re.IGNORECASE)
_GROUPS = {
    "docker": "docker",
    "libpod": "podman",
    "kubepods": "kubernetes",
    "crio": "crio",
    "containerd": "containerd",
    "lxc": "lxc",
    "garden": "garden",
}
_MARKS = {".dockerenv": "docker", "run/.containerenv": "podman"}


def is_virtual_machine(sysfs: Path, procfs: Path) -> bool | None:
    """Whether the kernel runs on a hypervisor; None where nothing tells."""
    flags = _processor_flags(procfs)
    if hypervisor(sysfs, procfs) is not None or "hypervisor" in flags:
        return True
    told = flags or read_text(sysfs / "class/dmi/id/sys_vendor")
    return False if told or (procfs / "device-tree").exists() else None


def hypervisor(sysfs: Path, procfs: Path) -> str | None:
    """Name of the hypervisor, where it gives it."""
    # The first domain of Xen has the machine to itself.
    if "control_d" in (read_text(procfs / "xen/capabilities") or ""):
        return None
    if kind := read_text(sysfs / "hypervisor/type"):
        return kind
    if compatible := read_text(procfs / "device-tree/hypervisor/compatible"):
        return compatible.split("\0")[0].removeprefix("linux,")
    return _by_firmware(sysfs)


def container(root: Path, procfs: Path) -> str | None:
    """Name of the kind of container that this process is in, "none", or None: not known."""
    named = (
        read_text(root / "run/systemd/container")
        or _of_first_process(procfs)
        or next((kind for mark, kind in _MARKS.items() if (root / mark).exists()), None)
    )
    if named:
        return named
    groups = " ".join([*read_lines(procfs / "1/cgroup"), *read_lines(procfs / "self/cgroup")])
    words = set(re.split(r"[^a-z]+", groups.lower()))
    found = next((kind for word, kind in _GROUPS.items() if word in words), None)
    return found or ("none" if groups else None)


def _by_firmware(sysfs: Path) -> str | None:
    folder = sysfs / "class/dmi/id"
    texts = [read_text(folder / name) for name in ("sys_vendor", "product_name", "bios_vendor")]
    said = " ".join(text for text in texts if text)
    if _WHOLE_MACHINE.search(said):
        return None
    return next((name for word, name in _FIRMWARE.items() if word in said), None)


def _processor_flags(procfs: Path) -> list[str]:
    for line in read_lines(procfs / "cpuinfo"):
        key, _, value = line.partition(":")
        if key.strip() == "flags":
            return value.split()
    return []


def _of_first_process(procfs: Path) -> str | None:
    for setting in (read_text(procfs / "1/environ") or "").split("\0"):
        name, _, value = setting.partition("=")
        if name == "container" and value:
            return value
    return None
