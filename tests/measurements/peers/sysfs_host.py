"""Trees that look like the sysfs, procfs and root folder of hosts of several kinds.

A `FakeHost` writes the files that the kernel would have, in the kernel's units and spelling, under
a folder of the test; `xeon`, `arm_board` and `bare_machine` build whole hosts, which a test then
changes file by file. A `TopologyTree` has the files of a topology alone, which lscpu reads too.
"""

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from peers.powercap import write

CPU = "sys/devices/system/cpu"
NET_DEV = """
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop
""".lstrip()


class Cpu(NamedTuple):
    """A logical CPU: its number, and those of its core, socket and NUMA node."""

    number: int
    core: int
    socket: int = 0
    node: int = 0


@dataclass
class TopologyTree:
    """The files of a host's topology below ``root``; CPUs that are not online have none."""

    root: Path
    cpus: list[Cpu]
    online: list[int] | None = None

    def __post_init__(self):
        numbers = [cpu.number for cpu in self.cpus]
        self.alive = [c for c in self.cpus if self.online is None or c.number in self.online]
        folder = self.root / "sys/devices/system"
        write(folder / "cpu", online=_listed(c.number for c in self.alive), kernel_max="8191")
        write(folder / "cpu", possible=_listed(numbers), present=_listed(numbers))
        for cpu in self.alive:
            package = [c.number for c in self.alive if c.socket == cpu.socket]
            threads = [c.number for c in self.alive if (c.core, c.socket) == (cpu.core, cpu.socket)]
            ids = {"physical_package_id": cpu.socket, "core_id": cpu.core}
            for name, cpus in (("thread", threads), ("core", package)):
                ids |= {f"{name}_siblings_list": _listed(cpus), f"{name}_siblings": _mask(cpus)}
            write(folder / f"cpu/cpu{cpu.number}/topology", **ids)
        for node in {cpu.node for cpu in self.cpus}:
            there = [c.number for c in self.alive if c.node == node]
            write(folder / f"node/node{node}", cpulist=_listed(there), cpumap=_mask(there))

    def described(self):
        """Core, socket and node of each CPU online; cores are numbered over all sockets."""
        return {c.number: (c.core + 64 * c.socket, c.socket, c.node) for c in self.alive}

    def lscpu(self):
        """Core, socket and node of each CPU online, as lscpu numbers them."""
        (self.root / "proc").mkdir()
        shutil.copy("/proc/cpuinfo", self.root / "proc")
        command = ["lscpu", "--sysroot", self.root, "--parse=CPU,CORE,SOCKET,NODE"]
        told = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        rows = [line.split(",") for line in told.splitlines() if not line.startswith("#")]
        # Nodes are empty where there is but one.
        return {int(c): (int(core), int(s), int(n or 0)) for c, core, s, n in rows}


def _listed(cpus):
    return ",".join(map(str, sorted(cpus)))


def _mask(cpus):
    """Mask of CPUs below 32, as the kernel writes it."""
    return f"{sum(1 << cpu for cpu in cpus):08x}"


@dataclass(frozen=True)
class FakeHost:
    """A host under ``root``; ``sys/…`` and ``proc/…`` are its kernel's trees."""

    root: Path

    @property
    def sysfs(self):
        return self.root / "sys"

    @property
    def procfs(self):
        return self.root / "proc"

    def put(self, path, value):
        """Write one file, with the newline that the kernel ends most of them with."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")

    def put_all(self, folder, files):
        for name, value in files.items():
            self.put(f"{folder}/{name}", value)

    def topology(self, sockets, cores, threads=1):
        """Number CPUs as Linux on x86 does: a thread of every core, then the second threads."""
        places = [(n % cores, n // cores % sockets) for n in range(sockets * cores * threads)]
        TopologyTree(self.root, [Cpu(n, c, s, s) for n, (c, s) in enumerate(places)])
        self.put(f"{CPU}/isolated", "")
        self.put("sys/devices/system/node/online", f"0-{sockets - 1}" if sockets > 1 else 0)

    def cpufreq(self, cpus, driver, governor, khz):
        """One policy a CPU, to which its folder is a link; lowest, highest and current clock."""
        names = ("scaling_min_freq", "scaling_max_freq", "scaling_cur_freq")
        names += ("cpuinfo_min_freq", "cpuinfo_max_freq")
        files = dict(zip(names, khz + khz[:2], strict=True))
        files |= {"scaling_driver": driver, "scaling_governor": governor}
        for number in cpus:
            self.put_all(f"{CPU}/cpufreq/policy{number}", {**files, "affected_cpus": number})
            folder = self.root / CPU / f"cpu{number}"
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cpufreq").symlink_to(f"../cpufreq/policy{number}")

    def idle_states(self, cpus, states):
        """Idle states as (name, exit latency in µs, disabled)."""
        for number in cpus:
            for index, state in enumerate(states):
                files = dict(zip(("name", "latency", "disable"), state, strict=True))
                self.put_all(f"{CPU}/cpu{number}/cpuidle/state{index}", files)

    def throttling(self, counts):
        """Count of the core, its time (ms), count of the package, its time (ms), by CPU."""
        names = ("core_throttle_count", "core_throttle_total_time_ms")
        names += ("package_throttle_count", "package_throttle_total_time_ms")
        for number, figures in counts.items():
            files = dict(zip(names, figures, strict=True))
            self.put_all(f"{CPU}/cpu{number}/thermal_throttle", files)

    def hwmon(self, number, name, sensors):
        """Sensors of one driver, as "temp1": (label, millidegrees)."""
        files = {"name": name}
        for sensor, (label, value) in sensors.items():
            files |= {f"{sensor}_input": value, f"{sensor}_label": label}
        self.put_all(f"sys/class/hwmon/hwmon{number}", files)

    def power_cap(self, zone, name, limits_w, enabled=1):
        files = {"name": name, "enabled": enabled}
        for index, (constraint, limit) in enumerate(limits_w.items()):
            files[f"constraint_{index}_name"] = constraint
            files[f"constraint_{index}_power_limit_uw"] = limit * 1_000_000
        self.put_all(f"sys/class/powercap/{zone}", files)

    def cpuinfo(self, cpus, fields):
        lines = "\n".join(f"{key}\t: {value}" for key, value in fields.items())
        self.put("proc/cpuinfo", "\n\n".join(f"processor\t: {n}\n{lines}" for n in range(cpus)))

    def process(self, *, cpus="0", mems="0", cgroup="0::/"):
        status = "Name:\tppw\nCapEff:\t0000000000000000\nSeccomp:\t0\n"
        status += f"Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}"
        self.put_all("proc/self", {"status": status, "cgroup": cgroup})

    def disk(self, name, folder):
        """A block device whose place in the tree of devices is ``folder``."""
        device = self.root / f"sys/devices/{folder}/{name.replace('/', '!')}"
        device.mkdir(parents=True)
        block = self.sysfs / "block"
        block.mkdir(parents=True, exist_ok=True)
        (block / device.name).symlink_to(device)

    def diskstats(self, sectors):
        lines = (
            f" 259 {i} {name} 11 2 {read} 4 15 6 {written} 8 0 10 11 0 0 0 0 0 0"
            for i, (name, (read, written)) in enumerate(sectors.items())
        )
        self.put("proc/diskstats", "\n".join(lines))

    def interface(self, name, *, physical=False, over=None):
        folder = self.sysfs / "class/net" / name
        folder.mkdir(parents=True)
        if physical:
            (folder / "device").mkdir()
        if over is not None:
            (folder / f"lower_{over}").symlink_to(f"../{over}")

    def net_dev(self, moved):
        # Large figures touch the colon.
        rows = (
            f"{name:>6}:{received} 7 0 0 0 0 0 0 {sent} 8 0 0 0 0 0 0"
            for name, (received, sent) in moved.items()
        )
        self.put("proc/net/dev", NET_DEV + "\n".join(rows))


def xeon(root):
    """Two sockets of four cores with two threads each, tuned in part, on the machine itself."""
    host = FakeHost(root)
    cpus = range(16)
    host.topology(sockets=2, cores=4, threads=2)
    host.cpufreq(cpus, "intel_pstate", "powersave", (800_000, 3_500_000, 2_100_000))
    for number in cpus:
        preference = f"cpufreq/policy{number}/energy_performance_preference"
        files = {preference: "balance_performance", f"cpu{number}/power/energy_perf_bias": 6}
        host.put_all(CPU, files)
    shares = {"min_perf_pct": 22, "max_perf_pct": 100}
    driver = {"status": "active", "no_turbo": 0, "hwp_dynamic_boost": 0, **shares}
    host.put_all(f"{CPU}/intel_pstate", driver)
    host.put_all(f"{CPU}/cpuidle", {"current_driver": "intel_idle", "current_governor": "menu"})
    host.idle_states(cpus, [("POLL", 0, 0), ("C1", 2, 0), ("C1E", 10, 0), ("C6", 133, 1)])
    host.throttling(dict.fromkeys(cpus, (2, 30, 5, 70)))
    host.hwmon(0, "nvme", {"temp1": ("Composite", 81_000)})
    host.hwmon(1, "coretemp", {"temp1": ("Package id 0", 61_000), "temp2": ("Core 0", 66_000)})
    host.hwmon(2, "coretemp", {"temp1": ("Package id 1", 58_000), "temp2": ("Core 0", 59_000)})
    for package, watts in enumerate((185, 165)):
        limits = {"long_term": watts, "short_term": 222}
        host.power_cap(f"intel-rapl:{package}", f"package-{package}", limits)
        host.power_cap(f"intel-rapl:{package}:0", "dram", {"long_term": 40})
        uncore = {"current_freq_khz": (1_800_000, 2_200_000)[package], "min_freq_khz": 800_000}
        uncore |= {"max_freq_khz": 2_400_000, "initial_max_freq_khz": 2_400_000}
        host.put_all(f"{CPU}/intel_uncore_frequency/package_0{package}_die_00", uncore)
    name = "Intel(R) Xeon(R) Gold 6334 CPU @ 3.60GHz"
    model = {"vendor_id": "GenuineIntel", "cpu family": "6", "model": "106", "model name": name}
    revision = {"stepping": "6", "microcode": "0xd0003d1", "flags": "fpu vme msr aperfmperf"}
    host.cpuinfo(16, model | revision)
    host.process(cpus="0-3,8-11")
    files = {
        "proc/loadavg": "0.52 0.58 0.59 2/345 6789",
        "proc/meminfo": "MemTotal:       263856140 kB\nMemFree:        1000 kB",
        "proc/sys/kernel/osrelease": "6.1.0-35-amd64",
        "proc/sys/kernel/numa_balancing": 1,
        "proc/sys/kernel/nmi_watchdog": 1,
        "proc/1/cgroup": "0::/init.scope",
        "sys/kernel/mm/transparent_hugepage/enabled": "[always] madvise never",
        "sys/devices/system/clocksource/clocksource0/current_clocksource": "tsc",
        f"{CPU}/smt/active": 1,
        f"{CPU}/vulnerabilities/l1tf": "Not affected",
        f"{CPU}/vulnerabilities/mds": "Vulnerable: Clear CPU buffers attempted, no microcode",
        f"{CPU}/vulnerabilities/spectre_v1": "Mitigation: usercopy/swapgs barriers",
        f"{CPU}/vulnerabilities/spectre_v2": "Mitigation: Enhanced IBRS",
    }
    for path, value in files.items():
        host.put(path, value)
    return host


def arm_board(root):
    """Four small cores and two large ones, each kind with limits of its own."""
    host = FakeHost(root)
    host.topology(sockets=1, cores=6)
    host.cpufreq(range(4), "cpufreq-dt", "schedutil", (408_000, 1_416_000, 600_000))
    host.cpufreq(range(4, 6), "cpufreq-dt", "schedutil", (408_000, 1_800_000, 1_800_000))
    host.put_all("sys/class/thermal/thermal_zone0", {"type": "gpu-thermal", "temp": 71_000})
    host.put_all("sys/class/thermal/thermal_zone1", {"type": "cpu-thermal", "temp": 52_777})
    host.cpuinfo(6, {"BogoMIPS": "48.00", "CPU implementer": "0x41", "CPU part": "0xd03"})
    (host.procfs / "device-tree").mkdir()
    return host


def bare_machine(root):
    host = FakeHost(root)
    host.sysfs.mkdir(parents=True)
    host.procfs.mkdir()
    return host
