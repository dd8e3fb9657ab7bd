"""Hosts with frequency control that are not there: their files, and a kernel behind the files.

`CpufreqTree` lays the files down as they are at first. `EmulatedKernel` mounts them with what the
kernel's cpufreq does behind them: limits that refuse to cross (before Linux 5.4) or are clamped
(since), governors, steps, turbo, firmware limits, heat. It notes each write and who wrote.
"""

from __future__ import annotations

import errno
import json
import os
import subprocess
import sys
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, NamedTuple

from peers.virtual_files import File, VirtualFiles

CPU = Path("devices/system/cpu")


@dataclass
class PolicySpec:
    """One policy at first; frequencies in kHz, an empty table for a driver that takes any."""

    cpus: list[int]
    lowest: int
    highest: int
    driver: str = "acpi-cpufreq"
    steps: list[int] = field(default_factory=list)
    boosted: int = 0
    governors: list[str] = field(default_factory=lambda: ["performance", "powersave"])
    governor: str = "powersave"
    lower: int = 0
    upper: int = 0
    bios_limit: int = 0


@dataclass
class HostSpec:
    """A host: ``turbo`` is the kind of its switch: no_turbo, boost, each (per policy) or ""."""

    policies: list[PolicySpec]
    turbo: str = ""
    turbo_on: bool = True
    turbo_locked: bool = False
    # Linux before 5.4 refuses limits that cross, and forgets a limit when turbo is switched.
    old: bool = False
    # Policies below each CPU, as before Linux 4.3.
    below_cpus: bool = False
    status: str = ""


WESTMERE_STEPS = [1596000, 1729000, 1862000, 1995000, 2128000, 2261000, 2394000]
OLD_GOVERNORS = ["conservative", "ondemand", "userspace", "powersave", "performance"]


def westmere(**changes: Any) -> HostSpec:
    """Two cores with steps of 133 MHz, the userspace governor, and turbo as a last step."""
    policies = [
        PolicySpec(
            [cpu],
            1596000,
            2395000,
            steps=[*WESTMERE_STEPS, 2395000],
            governors=OLD_GOVERNORS,
            governor="ondemand",
        )
        for cpu in (0, 1)
    ]
    return HostSpec(policies, **{"old": True, **changes})


def skylake(**changes: Any) -> HostSpec:
    """Two cores under intel_pstate in active mode: a range, no table, no_turbo."""
    policies = [
        PolicySpec([cpu], 1000000, 2100000, "intel_pstate", boosted=3700000) for cpu in (0, 1)
    ]
    return HostSpec(policies, **{"turbo": "no_turbo", "status": "active", **changes})


def alder_lake(**changes: Any) -> HostSpec:
    """One fast core of two threads, two slow ones: policies of two ranges."""
    fast = [PolicySpec([cpu], 800000, 2400000, "intel_pstate", boosted=5100000) for cpu in (0, 1)]
    slow = [PolicySpec([cpu], 800000, 1800000, "intel_pstate", boosted=3800000) for cpu in (2, 3)]
    return HostSpec(fast + slow, **{"turbo": "no_turbo", "status": "active", **changes})


def zen(**changes: Any) -> HostSpec:
    """Two cores with a table of three steps and boost above it."""
    policies = [
        PolicySpec(
            [cpu],
            1500000,
            2200000,
            steps=[1500000, 1800000, 2200000],
            boosted=3300000,
            governors=[*OLD_GOVERNORS, "schedutil"],
            governor="schedutil",
        )
        for cpu in (0, 1)
    ]
    return HostSpec(policies, **{"turbo": "boost", **changes})


def refuse(number: int) -> OSError:
    """An error as the kernel gives it."""
    return OSError(number, os.strerror(number))


class Policy:
    """What the kernel keeps of a policy, and its files."""

    def __init__(self, spec: PolicySpec, host: Host) -> None:
        self.spec, self.host = spec, host
        self.boost = host.spec.turbo_on
        self.governor = spec.governor
        self.lower, self.upper = spec.lower or spec.lowest, spec.upper or self.highest
        self.speed = spec.steps[0] if spec.steps else spec.lowest
        self.heat = 0
        self.offline = False

    @property
    def highest(self) -> int:
        return (self.boost and self.spec.boosted) or self.spec.highest

    @property
    def limits(self) -> tuple[int, int]:
        """What holds: requests within what the processor, the firmware and heat allow."""
        caps = [cap for cap in (self.highest, self.spec.bios_limit, self.heat) if cap]
        upper = max(self.spec.lowest, min(self.upper, *caps))
        lower = max(self.lower, self.spec.lowest)
        if steps := self.spec.steps:
            upper = max((s for s in steps if s <= upper), default=steps[0])
            upper = self.highest if self.boost and self.upper >= self.highest > upper else upper
            lower = min((s for s in steps if s >= lower), default=upper)
        return min(lower, upper), upper

    @property
    def current(self) -> int:
        lower, upper = self.limits
        if self.governor == "userspace":
            return min(max(self.speed, lower), upper)
        return lower if self.governor == "powersave" else upper

    def files(self) -> dict[str, File]:
        spec = self.spec
        cpus = " ".join(map(str, spec.cpus))
        found = {
            "affected_cpus": File(lambda: "" if self.offline else cpus),
            "related_cpus": File(lambda: cpus),
            "scaling_driver": File(lambda: spec.driver),
            "cpuinfo_min_freq": File(lambda: str(spec.lowest)),
            "cpuinfo_max_freq": File(lambda: str(self.highest)),
            "cpuinfo_transition_latency": File(lambda: "10000"),
            "cpuinfo_cur_freq": File(lambda: str(self.current)),
            "scaling_cur_freq": File(lambda: str(self.current)),
            "scaling_available_governors": File(lambda: " ".join(spec.governors)),
            "scaling_governor": File(lambda: self.governor, self.set_governor),
            "scaling_min_freq": File(lambda: str(self.limits[0]), self.set_lower),
            "scaling_max_freq": File(lambda: str(self.limits[1]), self.set_upper),
            "scaling_setspeed": File(self.show_speed, self.set_speed),
        }
        if spec.steps:
            steps = " ".join(map(str, reversed(spec.steps)))
            found["scaling_available_frequencies"] = File(lambda: steps)
        if spec.bios_limit:
            found["bios_limit"] = File(lambda: str(spec.bios_limit))
        if self.host.spec.turbo == "each":
            found["boost"] = File(lambda: str(int(self.boost)), self.set_boost)
        return {name: self._online(file) for name, file in found.items()}

    def _online(self, file: File) -> File:
        def show() -> str:
            return f"{file.show()}\n"

        def store(text: str) -> None:
            if self.offline:
                raise refuse(errno.EBUSY)
            assert file.store
            file.store(text.strip())

        return File(show, store if file.store else None)

    def set_governor(self, text: str) -> None:
        if text not in self.spec.governors:
            raise refuse(errno.EINVAL)
        self.governor, self.speed = text, self.current

    def set_lower(self, text: str) -> None:
        if not text.isdecimal() or (self.host.spec.old and int(text) > self.upper):
            raise refuse(errno.EINVAL)
        self.lower = int(text)

    def set_upper(self, text: str) -> None:
        if not text.isdecimal() or (self.host.spec.old and int(text) < self.lower):
            raise refuse(errno.EINVAL)
        self.upper = int(text)

    def show_speed(self) -> str:
        return str(self.current) if self.governor == "userspace" else "<unsupported>"

    def set_speed(self, text: str) -> None:
        if self.governor != "userspace" or not text.isdecimal():
            raise refuse(errno.EINVAL)
        self.speed = int(text)

    def set_boost(self, text: str) -> None:
        if text not in ("0", "1"):
            raise refuse(errno.EINVAL)
        self.boost = text == "1"
        if self.host.spec.old:
            self.upper = self.highest


class Host:
    """What the kernel keeps of the host, and all files."""

    def __init__(self, spec: HostSpec) -> None:
        self.spec = spec
        self.policies = [Policy(policy, self) for policy in spec.policies]
        self.turbo = spec.turbo_on
        self.shares = {"min_perf_pct": 40, "max_perf_pct": 100}

    def files(self) -> dict[str, File]:
        cpus = [cpu for policy in self.spec.policies for cpu in policy.cpus]
        listed = f"{min(cpus)}-{max(cpus)}\n"
        found = {name: File(lambda: listed) for name in ("online", "possible", "present")}
        for number, policy in enumerate(self.policies):
            folder = self._folder(number)
            found |= {f"{folder}/{name}": file for name, file in policy.files().items()}
        for cpu in cpus:
            found[f"cpu{cpu}/topology/core_id"] = File(lambda cpu=cpu: f"{cpu}\n")
            found[f"cpu{cpu}/topology/physical_package_id"] = File(lambda: "0\n")
        if self.spec.turbo == "boost":
            found["cpufreq/boost"] = File(lambda: f"{int(self.turbo)}\n", self.set_turbo)
        if self.spec.turbo == "no_turbo":
            found["intel_pstate/no_turbo"] = File(lambda: f"{int(not self.turbo)}\n", self.inverse)
        if self.spec.status:
            found["intel_pstate/status"] = File(lambda: f"{self.spec.status}\n")
            for name in self.shares:
                found[f"intel_pstate/{name}"] = File(
                    lambda name=name: f"{self.shares[name]}\n",
                    lambda text, name=name: self.shares.update({name: int(text)}),
                )
        return found

    def links(self) -> dict[str, str]:
        if self.spec.below_cpus:
            return {
                f"cpu{cpu}/cpufreq": f"../cpu{policy.cpus[0]}/cpufreq"
                for policy in self.spec.policies
                for cpu in policy.cpus[1:]
            }
        return {
            f"cpu{cpu}/cpufreq": f"../{self._folder(number)}"
            for number, policy in enumerate(self.spec.policies)
            for cpu in policy.cpus
        }

    def _folder(self, number: int) -> str:
        first = self.spec.policies[number].cpus[0]
        return f"cpu{first}/cpufreq" if self.spec.below_cpus else f"cpufreq/policy{first}"

    def inverse(self, text: str) -> None:
        self.set_turbo({"0": "1", "1": "0"}.get(text.strip(), ""))
        if not self.turbo:
            # The driver keeps the lower share within what is left, and does not undo it.
            self.shares["min_perf_pct"] = min(self.shares["min_perf_pct"], 30)

    def set_turbo(self, text: str) -> None:
        if self.spec.turbo_locked:
            raise refuse(errno.EPERM)
        for policy in self.policies:
            policy.set_boost(text.strip())
        self.turbo = text.strip() == "1"

    def order(self, order: dict[str, Any]) -> None:
        """Carry out a test's order: heat (kHz or 0) or offline, of a policy by its number."""
        policy = self.policies[order["policy"]]
        policy.heat = order.get("heat", policy.heat)
        policy.offline = order.get("offline", policy.offline)


class CpufreqTree:
    """The files of a host below ``root``, plain and at rest: nothing is behind them."""

    def __init__(self, root: Path, spec: HostSpec) -> None:
        self.root = root
        self.cpu = root / CPU
        host = Host(spec)
        for path, file in host.files().items():
            target = self.cpu / path
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_text(file.show())
            target.chmod(0o644 if file.store else 0o444)
        for path, to in host.links().items():
            (self.cpu / path).parent.mkdir(parents=True, exist_ok=True)
            (self.cpu / path).symlink_to(to)


class Write(NamedTuple):
    """A write that the emulated kernel got, and the limits (kHz) asked for after it."""

    pid: int
    path: str
    text: str
    error: int
    limits: list[list[int]]


class EmulatedKernel:
    """The files of a host below ``root``, with the kernel's behaviour, while the context lasts."""

    def __init__(self, root: Path, spec: HostSpec, *, log: Path | None = None) -> None:
        self.root = root
        self.cpu = root / CPU
        self.cpu.mkdir(parents=True, exist_ok=True)
        self.log = log or root / "writes.jsonl"
        self.process = subprocess.Popen(
            [sys.executable, "-m", "peers.cpufreq", str(self.cpu), str(self.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        self._say(asdict(spec), "ready")
        self._settings = [path for path, file in Host(spec).files().items() if file.store]

    def order(self, policy: int, **changes: Any) -> None:
        """Have something happen to a policy, by its number: ``heat`` in kHz, ``offline``."""
        self._say({"policy": policy, **changes}, "done")

    def writes(self) -> list[Write]:
        """All writes so far."""
        return [Write(**json.loads(line)) for line in self.log.read_text().splitlines()]

    def state(self) -> dict[str, str]:
        """Every setting as it is now, by its path."""
        return {path: (self.cpu / path).read_text().strip() for path in self._settings}

    def _say(self, what: dict[str, Any], answer: str) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.write(json.dumps(what) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline().strip() == answer, "the emulated kernel is gone"

    def __enter__(self) -> EmulatedKernel:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin
        assert self.process.stdout
        self.process.stdin.close()
        self.process.stdout.close()
        self.process.wait(10)


def main() -> None:
    """Be the kernel: a host's description on standard input, then orders."""
    mountpoint, log = sys.argv[1:]
    said = json.loads(sys.stdin.readline())
    policies = [PolicySpec(**policy) for policy in said.pop("policies")]
    host = Host(HostSpec(policies, **said))
    with Path(log).open("w", buffering=1) as file:

        def watch(pid: int, path: str, text: str, error: int) -> None:
            limits = [[policy.lower, policy.upper] for policy in host.policies]
            print(json.dumps(Write(pid, path, text, error, limits)._asdict()), file=file)

        VirtualFiles(mountpoint, host.files(), host.links(), watch).serve(host.order)


if __name__ == "__main__":
    main()
