"""A host that is not there: clocks that can be set, counters that follow them, known laws.

While the context lasts, ``root`` has a sysfs with cpufreq (`peers.cpufreq.EmulatedKernel`) and
powercap. A command made by `workload` takes t_fixed + w/f seconds at the clock that is set, and
the package draws P0 + s·f watts while one runs and ``idle_w`` while none does. Everything is real
but the physics: files are read and written, time passes, processes run.
"""

import os
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from peers.cpufreq import EmulatedKernel, zen
from peers.powercap import CounterWriter, PowercapTree

# Sleeps as the law says; says that it runs by a file of its own, as many may at once. A shell,
# because it starts in a few milliseconds, which are no part of the law.
_WORKLOAD = """
root=$1; busy=$root/busy/$$
: > "$busy"
read clock < "$root/sys/devices/system/cpu/cpu0/cpufreq/scaling_cur_freq"
sleep "$(awk "BEGIN { print $2 + $3 / ($clock * 1e3) }")"
rm "$busy"
printf x >> "$root/done"
"""


@dataclass(frozen=True)
class Laws:
    """Seconds and watts by the clock f (Hz)."""

    t_fixed: float = 0.1
    work: float = 0.5e9
    p0: float = 12.0
    slope: float = 15e-9
    idle_w: float = 8.0

    def time_s(self, freq_hz):
        return self.t_fixed + self.work / freq_hz

    def power_w(self, freq_hz):
        return self.p0 + self.slope * freq_hz


class SyntheticHost:
    def __init__(self, root, *, laws=None, spec=None):
        self.root, self.laws = root, laws or Laws()
        self.sysfs = root / "sys"
        (root / "busy").mkdir(parents=True)
        self.done = root / "done"
        self.done.touch()
        self.kernel = EmulatedKernel(self.sysfs, spec or zen(), log=root / "writes.jsonl")
        self.tree = PowercapTree(self.sysfs)
        self._writer = CounterWriter({self.tree.package(): lambda _: self.watts()}, period_s=0.02)
        # A kernel does not wait for its turn.
        with suppress(PermissionError):
            os.setpriority(os.PRIO_PROCESS, self.kernel.process.pid, -20)

    def clock_hz(self):
        file = self.kernel.cpu / "cpu0" / "cpufreq" / "scaling_cur_freq"
        return float(file.read_text()) * 1e3

    def watts(self):
        return self.laws.power_w(self.clock_hz()) if self.busy() else self.laws.idle_w

    def busy(self):
        """Whether a command runs; one that was killed leaves its file behind."""
        return any(Path("/proc", file.name).exists() for file in (self.root / "busy").iterdir())

    def workload(self):
        """Command whose time follows the law."""
        numbers = [str(self.laws.t_fixed), str(self.laws.work)]
        return ["sh", "-c", _WORKLOAD, "workload", str(self.root), *numbers]

    def finished(self):
        return len(self.done.read_text())

    def __enter__(self):
        self.kernel.__enter__()
        self._writer.__enter__()
        return self

    def __exit__(self, *error):
        self._writer.__exit__(*error)
        self.kernel.__exit__(*error)
