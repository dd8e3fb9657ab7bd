"""Trees that look like the sysfs, procfs and root folder of hosts of several kinds.

A `FakeHost` writes the files that the kernel would have, in the kernel's units and spelling, under
a folder of the test; `xeon`, `epyc`, `arm_board` and `bare_machine` build whole hosts, which a test
then changes file by file.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path


@dataclass(frozen=True)
class FakeHost:
    """A host under ``root``; ``sys/…`` and ``proc/…`` are its kernel's trees."""

    root: Path

    @property
    def sysfs(self) -> Path:
        return self.root / "sys"

    @property
    def procfs(self) -> Path:
        return self.root / "proc"

    def put(self, path: str, value: object) -> Path:
        """Write one file, with the newline that the kernel ends most of them with."""
        file = self.root / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(f"{value}\n")
        return file

    def put_all(self, folder: str, files: Mapping[str, object]) -> None:
        for name, value in files.items():
            self.put(f"{folder}/{name}", value)

    def remove(self, path: str) -> None:
        (self.root / path).unlink()

    def cpu(self, number: int) -> str:
        return f"sys/devices/system/cpu/cpu{number}"

    def topology(self, sockets: int, cores: int, threads: int = 1) -> None:
        """Number CPUs as Linux on x86 does: a thread of every core, then the second threads."""
        physical = sockets * cores
        total = physical * threads
        self.put_all(
            "sys/devices/system/cpu",
            {"online": f"0-{total - 1}", "smt/active": int(threads > 1), "isolated": ""},
        )
        self.put("sys/devices/system/node/online", f"0-{sockets - 1}" if sockets > 1 else 0)
        for socket in range(sockets):
            first = socket * cores
            lists = [
                f"{first + t * physical}-{first + t * physical + cores - 1}" for t in range(threads)
            ]
            self.put(f"sys/devices/system/node/node{socket}/cpulist", ",".join(lists))
        for number in range(total):
            core = number % physical
            siblings = ",".join(str(core + t * physical) for t in range(threads))
            self.put_all(
                f"{self.cpu(number)}/topology",
                {
                    "physical_package_id": core // cores,
                    "core_id": core % cores,
                    "thread_siblings_list": siblings,
                },
            )

    def cpufreq(
        self,
        cpus: Iterable[int],
        *,
        driver: str,
        governor: str,
        min_khz: int,
        max_khz: int,
        cur_khz: int,
        preference: str | None = None,
    ) -> None:
        """One policy a CPU, to which the CPU's own folder is a link, as in the kernel."""
        for number in cpus:
            policy = f"sys/devices/system/cpu/cpufreq/policy{number}"
            self.put_all(
                policy,
                {
                    "affected_cpus": number,
                    "scaling_driver": driver,
                    "scaling_governor": governor,
                    "scaling_min_freq": min_khz,
                    "scaling_max_freq": max_khz,
                    "scaling_cur_freq": cur_khz,
                    "cpuinfo_min_freq": min_khz,
                    "cpuinfo_max_freq": max_khz,
                },
            )
            if preference is not None:
                self.put(f"{policy}/energy_performance_preference", preference)
            folder = self.root / self.cpu(number)
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "cpufreq").symlink_to(f"../cpufreq/policy{number}")

    def idle_states(self, cpus: Iterable[int], states: Sequence[tuple[str, int, int]]) -> None:
        """Idle states as (name, exit latency in µs, disabled)."""
        for number in cpus:
            for index, (name, latency, disable) in enumerate(states):
                self.put_all(
                    f"{self.cpu(number)}/cpuidle/state{index}",
                    {"name": name, "latency": latency, "disable": disable},
                )

    def throttling(self, counts: Mapping[int, tuple[int, int, int, int]]) -> None:
        """Count of the core, its time (ms), count of the package, its time (ms), by CPU."""
        names = ("core_throttle_count", "core_throttle_total_time_ms")
        names += ("package_throttle_count", "package_throttle_total_time_ms")
        for number, figures in counts.items():
            self.put_all(
                f"{self.cpu(number)}/thermal_throttle", dict(zip(names, figures, strict=True))
            )

    def hwmon(self, number: int, name: str, sensors: Mapping[str, tuple[str | None, int]]) -> None:
        """Sensors of one driver, as "temp1": (label, millidegrees)."""
        folder = f"sys/class/hwmon/hwmon{number}"
        self.put(f"{folder}/name", name)
        for sensor, (label, value) in sensors.items():
            self.put(f"{folder}/{sensor}_input", value)
            if label is not None:
                self.put(f"{folder}/{sensor}_label", label)

    def power_cap(
        self, zone: str, name: str, limits_uw: Mapping[str, int], enabled: int = 1
    ) -> None:
        folder = f"sys/class/powercap/{zone}"
        self.put_all(folder, {"name": name, "enabled": enabled})
        for index, (constraint, limit) in enumerate(limits_uw.items()):
            self.put(f"{folder}/constraint_{index}_name", constraint)
            self.put(f"{folder}/constraint_{index}_power_limit_uw", limit)

    def uncore(self, die: str, *, cur_khz: int, min_khz: int, max_khz: int) -> None:
        self.put_all(
            f"sys/devices/system/cpu/intel_uncore_frequency/{die}",
            {
                "current_freq_khz": cur_khz,
                "min_freq_khz": min_khz,
                "max_freq_khz": max_khz,
                "initial_max_freq_khz": max_khz,
            },
        )

    def cpuinfo(self, cpus: int, fields: Mapping[str, str]) -> None:
        blocks = (
            "\n".join([f"processor\t: {n}", *(f"{k}\t: {v}" for k, v in fields.items())])
            for n in range(cpus)
        )
        self.put("proc/cpuinfo", "\n\n".join(blocks))

    def process(self, *, cpus: str, mems: str, pid: str = "self", cgroup: str = "0::/") -> None:
        self.put(
            f"proc/{pid}/status",
            f"Name:\tppw\nCapEff:\t0000000000000000\nSeccomp:\t0\n"
            f"Cpus_allowed_list:\t{cpus}\nMems_allowed_list:\t{mems}",
        )
        self.put(f"proc/{pid}/cgroup", cgroup)

    def disk(self, name: str, folder: str) -> None:
        """A block device whose place in the tree of devices is ``folder``."""
        device = self.root / f"sys/devices/{folder}/{name.replace('/', '!')}"
        device.mkdir(parents=True)
        block = self.sysfs / "block"
        block.mkdir(parents=True, exist_ok=True)
        (block / device.name).symlink_to(device)

    def diskstats(self, sectors: Mapping[str, tuple[int, int]]) -> None:
        lines = (
            f" 259 {i} {name} 11 2 {read} 4 15 6 {written} 8 0 10 11 0 0 0 0 0 0"
            for i, (name, (read, written)) in enumerate(sectors.items())
        )
        self.put("proc/diskstats", "\n".join(lines))

    def interface(self, name: str, *, physical: bool = False, over: str | None = None) -> None:
        folder = self.sysfs / "class/net" / name
        folder.mkdir(parents=True)
        if physical:
            (folder / "device").mkdir()
        if over is not None:
            (folder / f"lower_{over}").symlink_to(f"../{over}")

    def net_dev(self, moved: Mapping[str, tuple[int, int]]) -> None:
        head = (
            "Inter-|   Receive                                                |  Transmit\n"
            " face |bytes    packets errs drop fifo frame compressed multicast|"
            "bytes    packets errs drop fifo colls carrier compressed\n"
        )
        # Large figures touch the colon.
        rows = (
            f"{name:>6}:{received} 7 0 0 0 0 0 0 {sent} 8 0 0 0 0 0 0"
            for name, (received, sent) in moved.items()
        )
        self.put("proc/net/dev", head + "\n".join(rows))


def xeon(root: Path) -> FakeHost:
    """Two sockets of four cores with two threads each, tuned in part, on the machine itself."""
    host = FakeHost(root)
    cpus = range(16)
    host.topology(sockets=2, cores=4, threads=2)
    host.cpufreq(
        cpus,
        driver="intel_pstate",
        governor="powersave",
        min_khz=800_000,
        max_khz=3_500_000,
        cur_khz=2_100_000,
        preference="balance_performance",
    )
    host.put_all(
        "sys/devices/system/cpu/intel_pstate",
        {
            "status": "active",
            "no_turbo": 0,
            "min_perf_pct": 22,
            "max_perf_pct": 100,
            "hwp_dynamic_boost": 0,
        },
    )
    for number in cpus:
        host.put(f"{host.cpu(number)}/power/energy_perf_bias", 6)
    host.put_all(
        "sys/devices/system/cpu/cpuidle",
        {"current_driver": "intel_idle", "current_governor": "menu"},
    )
    host.idle_states(cpus, [("POLL", 0, 0), ("C1", 2, 0), ("C1E", 10, 0), ("C6", 133, 1)])
    host.throttling(dict.fromkeys(cpus, (2, 30, 5, 70)))
    host.hwmon(0, "nvme", {"temp1": ("Composite", 81_000)})
    host.hwmon(1, "coretemp", {"temp1": ("Package id 0", 61_000), "temp2": ("Core 0", 66_000)})
    host.hwmon(2, "coretemp", {"temp1": ("Package id 1", 58_000), "temp2": ("Core 0", 59_000)})
    watt = 1_000_000
    for package in (0, 1):
        limits = {"long_term": (185 - 20 * package) * watt, "short_term": 222 * watt}
        host.power_cap(f"intel-rapl:{package}", f"package-{package}", limits)
        host.power_cap(f"intel-rapl:{package}:0", "dram", {"long_term": 40 * watt})
    for die, cur_khz in (("package_00_die_00", 1_800_000), ("package_01_die_00", 2_200_000)):
        host.uncore(die, cur_khz=cur_khz, min_khz=800_000, max_khz=2_400_000)
    host.cpuinfo(
        16,
        {
            "vendor_id": "GenuineIntel",
            "cpu family": "6",
            "model": "106",
            "model name": "Intel(R) Xeon(R) Gold 6334 CPU @ 3.60GHz",
            "stepping": "6",
            "microcode": "0xd0003d1",
            "flags": "fpu vme msr aperfmperf",
        },
    )
    host.process(cpus="0-3,8-11", mems="0")
    host.put_all(
        "proc",
        {
            "loadavg": "0.52 0.58 0.59 2/345 6789",
            "meminfo": "MemTotal:       263856140 kB\nMemFree:        1000 kB",
            "sys/kernel/osrelease": "6.1.0-35-amd64",
            "sys/kernel/numa_balancing": 1,
            "sys/kernel/nmi_watchdog": 1,
            "1/cgroup": "0::/init.scope",
        },
    )
    host.put("sys/kernel/mm/transparent_hugepage/enabled", "[always] madvise never")
    host.put("sys/devices/system/clocksource/clocksource0/current_clocksource", "tsc")
    host.put_all(
        "sys/devices/system/cpu/vulnerabilities",
        {
            "l1tf": "Not affected",
            "mds": "Vulnerable: Clear CPU buffers attempted, no microcode",
            "spectre_v1": "Mitigation: usercopy/swapgs barriers",
            "spectre_v2": "Mitigation: Enhanced IBRS",
        },
    )
    return host


def epyc(root: Path) -> FakeHost:
    """One socket of eight cores without a second thread, boost off, sensors of AMD."""
    host = FakeHost(root)
    host.topology(sockets=1, cores=8)
    host.cpufreq(
        range(8),
        driver="acpi-cpufreq",
        governor="performance",
        min_khz=1_500_000,
        max_khz=2_450_000,
        cur_khz=2_450_000,
    )
    host.put("sys/devices/system/cpu/cpufreq/boost", 0)
    host.hwmon(
        3,
        "k10temp",
        {"temp1": ("Tctl", 75_000), "temp3": ("Tccd1", 47_250), "temp4": ("Tccd2", 48_500)},
    )
    host.cpuinfo(8, {"vendor_id": "AuthenticAMD", "model name": "AMD EPYC 7543", "flags": "fpu"})
    return host


def arm_board(root: Path) -> FakeHost:
    """Four small cores and two large ones, each kind with limits of its own."""
    host = FakeHost(root)
    host.topology(sockets=1, cores=6)
    host.remove("sys/devices/system/cpu/smt/active")
    common = {"driver": "cpufreq-dt", "governor": "schedutil", "min_khz": 408_000}
    host.cpufreq(range(4), **common, max_khz=1_416_000, cur_khz=600_000)
    host.cpufreq(range(4, 6), **common, max_khz=1_800_000, cur_khz=1_800_000)
    host.put_all("sys/class/thermal/thermal_zone0", {"type": "gpu-thermal", "temp": 71_000})
    host.put_all("sys/class/thermal/thermal_zone1", {"type": "cpu-thermal", "temp": 52_777})
    host.cpuinfo(6, {"BogoMIPS": "48.00", "CPU implementer": "0x41", "CPU part": "0xd03"})
    (host.procfs / "device-tree").mkdir()
    return host


def bare_machine(root: Path) -> FakeHost:
    """A host whose kernel tells nothing at all."""
    host = FakeHost(root)
    host.sysfs.mkdir(parents=True)
    host.procfs.mkdir()
    return host
