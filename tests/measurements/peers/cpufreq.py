"""Hosts with frequency control that are not there: their files, and a kernel behind the files.

`CpufreqTree` has plain files and does what the kernel's cpufreq does for writes of this process:
limits that refuse to cross (before Linux 5.4) or are clamped (since), governors, steps, turbo,
firmware limits, heat. `EmulatedKernel` mounts the files, for writes of any process.
"""

import errno
import json
import os
import subprocess
import sys
from collections import namedtuple
from dataclasses import asdict, dataclass, field
from pathlib import Path

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


def westmere(**changes):
    """Two cores with steps of 133 MHz, the userspace governor, and turbo as a last step."""
    steps = [*WESTMERE_STEPS, 2395000]
    more = {"steps": steps, "governors": OLD_GOVERNORS, "governor": "ondemand"}
    policies = [PolicySpec([cpu], steps[0], steps[-1], **more) for cpu in (0, 1)]
    return HostSpec(policies, **{"old": True, **changes})


def _intel(cpus, *frequencies):
    lowest, highest, boosted = frequencies
    return [PolicySpec([n], lowest, highest, "intel_pstate", boosted=boosted) for n in cpus]


def skylake(**changes):
    """Two cores under intel_pstate in active mode: a range, no table, no_turbo."""
    policies = _intel([0, 1], 1000000, 2100000, 3700000)
    return HostSpec(policies, **{"turbo": "no_turbo", "status": "active", **changes})


def alder_lake(**changes):
    """One fast core of two threads, two slow ones: policies of two ranges."""
    fast, slow = _intel([0, 1], 800000, 2400000, 5100000), _intel([2, 3], 800000, 1800000, 3800000)
    return HostSpec(fast + slow, **{"turbo": "no_turbo", "status": "active", **changes})


def zen(**changes):
    """Two cores with a table of three steps and boost above it."""
    steps = [1500000, 1800000, 2200000]
    more = {"governors": [*OLD_GOVERNORS, "schedutil"], "governor": "schedutil"}
    more |= {"steps": steps, "boosted": 3300000}
    policies = [PolicySpec([cpu], steps[0], steps[-1], **more) for cpu in (0, 1)]
    return HostSpec(policies, **{"turbo": "boost", **changes})


def refuse_unless(accepted, number=errno.EINVAL):
    """Refuse as the kernel does."""
    if not accepted:
        raise OSError(number, os.strerror(number))


class Policy:
    """What the kernel keeps of a policy, and its files."""

    def __init__(self, spec, host):
        self.spec, self.host = spec, host
        self.boost = host.spec.turbo_on
        self.governor = spec.governor
        self.lower, self.upper = spec.lower or spec.lowest, spec.upper or self.highest
        self.speed = spec.steps[0] if spec.steps else spec.lowest
        self.heat = 0
        self.offline = False

    @property
    def highest(self):
        return (self.boost and self.spec.boosted) or self.spec.highest

    @property
    def limits(self):
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
    def current(self):
        lower, upper = self.limits
        if self.governor == "userspace":
            return min(max(self.speed, lower), upper)
        return lower if self.governor == "powersave" else upper

    def files(self):
        spec = self.spec
        cpus = " ".join(map(str, spec.cpus))
        fixed = {
            "related_cpus": cpus,
            "scaling_driver": spec.driver,
            "cpuinfo_min_freq": spec.lowest,
            "scaling_available_governors": " ".join(spec.governors),
            "scaling_available_frequencies": " ".join(map(str, reversed(spec.steps))),
            "bios_limit": spec.bios_limit,
        }
        found = {name: File(lambda v=value: v) for name, value in fixed.items() if value}
        found |= {
            "affected_cpus": File(lambda: "" if self.offline else cpus),
            "cpuinfo_max_freq": File(lambda: self.highest),
            "cpuinfo_cur_freq": File(lambda: self.current),
            "scaling_cur_freq": File(lambda: self.current),
            "scaling_governor": File(lambda: self.governor, self.set_governor),
            "scaling_min_freq": File(lambda: self.limits[0], self.set_lower),
            "scaling_max_freq": File(lambda: self.limits[1], self.set_upper),
            "scaling_setspeed": File(self.show_speed, self.set_speed),
        }
        if self.host.spec.turbo == "each":
            found["boost"] = File(lambda: int(self.boost), self.set_boost)
        return {name: self._online(file) for name, file in found.items()}

    def _online(self, file):
        def store(text):
            refuse_unless(not self.offline, errno.EBUSY)
            file.store(text.strip())

        return File(lambda: f"{file.show()}\n", store if file.store else None)

    def set_governor(self, text):
        refuse_unless(text in self.spec.governors)
        self.governor, self.speed = text, self.current

    def set_lower(self, text):
        refuse_unless(text.isdecimal() and not (self.host.spec.old and int(text) > self.upper))
        self.lower = int(text)

    def set_upper(self, text):
        refuse_unless(text.isdecimal() and not (self.host.spec.old and int(text) < self.lower))
        self.upper = int(text)

    def show_speed(self):
        return str(self.current) if self.governor == "userspace" else "<unsupported>"

    def set_speed(self, text):
        refuse_unless(self.governor == "userspace" and text.isdecimal())
        self.speed = int(text)

    def set_boost(self, text):
        refuse_unless(text in ("0", "1"))
        self.boost = text == "1"
        if self.host.spec.old:
            self.upper = self.highest


class Host:
    """What the kernel keeps of the host, and all files."""

    def __init__(self, spec):
        self.spec = spec
        self.policies = [Policy(policy, self) for policy in spec.policies]
        self.turbo = spec.turbo_on
        self.shares = {"min_perf_pct": 40, "max_perf_pct": 100}

    def files(self):
        cpus = [cpu for policy in self.spec.policies for cpu in policy.cpus]
        listed = f"{min(cpus)}-{max(cpus)}\n"
        found = {name: File(lambda: listed) for name in ("online", "possible", "present")}
        for number, policy in enumerate(self.policies):
            folder = self._folder(number)
            found |= {f"{folder}/{name}": file for name, file in policy.files().items()}
        for cpu in cpus:
            found[f"cpu{cpu}/topology/core_id"] = File(lambda cpu=cpu: f"{cpu}\n")
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

    def links(self):
        return {
            f"cpu{cpu}/cpufreq": f"../{self._folder(number)}"
            for number, policy in enumerate(self.spec.policies)
            for cpu in policy.cpus[int(self.spec.below_cpus) :]
        }

    def _folder(self, number):
        first = self.spec.policies[number].cpus[0]
        return f"cpu{first}/cpufreq" if self.spec.below_cpus else f"cpufreq/policy{first}"

    def inverse(self, text):
        self.set_turbo({"0": "1", "1": "0"}.get(text.strip(), ""))
        if not self.turbo:
            # The driver keeps the lower share within what is left, and does not undo it.
            self.shares["min_perf_pct"] = min(self.shares["min_perf_pct"], 30)

    def set_turbo(self, text):
        refuse_unless(not self.spec.turbo_locked, errno.EPERM)
        for policy in self.policies:
            policy.set_boost(text.strip())
        self.turbo = text.strip() == "1"

    def limits(self):
        """Limits (kHz) that each policy was asked for."""
        return [[policy.lower, policy.upper] for policy in self.policies]

    def order(self, order):
        """Carry out a test's order: heat (kHz or 0) or offline, of a policy by its number."""
        policy = self.policies[order["policy"]]
        policy.heat = order.get("heat", policy.heat)
        policy.offline = order.get("offline", policy.offline)


# A write that the emulated kernel got, and the limits (kHz) asked for after it.
Write = namedtuple("Write", "path text error limits")


class CpufreqTree:
    """Plain files of a host below ``root``; `write` does what the kernel would do behind them."""

    def __init__(self, root, spec):
        self.root = root
        self.cpu = root / CPU
        self.host = Host(spec)
        self._files = self.host.files()
        self._writes = []
        self._shown = {}
        self._show()
        for path, to in self.host.links().items():
            (self.cpu / path).parent.mkdir(parents=True, exist_ok=True)
            (self.cpu / path).symlink_to(to)

    def _show(self):
        for path, file in self._files.items():
            target, text = self.cpu / path, file.show()
            if self._shown.get(path) != text:
                target.parent.mkdir(parents=True, exist_ok=True)
                target.unlink(missing_ok=True)
                target.write_text(text)
                target.chmod(0o644 if file.store else 0o444)
                self._shown[path] = text

    def write(self, path, text):
        """Write a setting as `settings_guard.write_setting` does, or refuse."""
        name = str(path.relative_to(self.cpu))
        file, error = self._files[name], 0
        try:
            assert file.store, f"{path} is read-only"
            file.store(text)
        except OSError as refusal:
            error = refusal.errno or errno.EIO
            raise
        finally:
            self._writes.append(Write(name, text, error, self.host.limits()))
        self._show()

    def order(self, policy, **changes):
        """Have something happen to a policy, by its number: ``heat`` in kHz, ``offline``."""
        self.host.order({"policy": policy, **changes})
        self._show()

    def writes(self):
        return self._writes

    def state(self):
        settings = [path for path, file in self._files.items() if file.store]
        return {path: (self.cpu / path).read_text().strip() for path in settings}


class EmulatedKernel(CpufreqTree):
    """The files of a host, mounted while the context lasts: any process may write them."""

    def __init__(self, root, spec, *, log=None):
        self.root = root
        self.cpu = root / CPU
        self.cpu.mkdir(parents=True, exist_ok=True)
        self.log = log or root / "writes.jsonl"
        self._files = Host(spec).files()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "peers.cpufreq", str(self.cpu), str(self.log)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            cwd=Path(__file__).parents[1],
        )
        self._say(asdict(spec), "ready")

    def write(self, path, text):
        path.write_text(text)

    def order(self, policy, **changes):
        self._say({"policy": policy, **changes}, "done")

    def writes(self):
        return [Write(**json.loads(line)) for line in self.log.read_text().splitlines()]

    def _say(self, what, answer):
        print(json.dumps(what), file=self.process.stdin, flush=True)
        assert self.process.stdout.readline().strip() == answer, "the emulated kernel is gone"

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.process.communicate(timeout=60)


def main():
    """Be the kernel: a host's description on standard input, then orders."""
    mountpoint, log = sys.argv[1:]
    said = json.loads(sys.stdin.readline())
    policies = [PolicySpec(**policy) for policy in said.pop("policies")]
    host = Host(HostSpec(policies, **said))
    with Path(log).open("w", buffering=1) as file:

        def watch(_, path, text, error):
            print(json.dumps(Write(path, text, error, host.limits())._asdict()), file=file)

        VirtualFiles(mountpoint, host.files(), host.links(), watch).serve(host.order)


if __name__ == "__main__":
    main()
