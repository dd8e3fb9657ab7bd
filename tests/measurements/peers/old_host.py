"""A host as they were: no energy counters, one clock, watts from a BMC, counts from a perf.

`OldHost` is real but for the silicon: ppw talks to OpenIPMI's BMC and starts a program named perf.
That perf is ours: it writes the counts that the laws give for a command, in perf's format. The
command takes as long as the laws say, on as many cores as it may use.
"""

import json
import math
import sys
import threading
from dataclasses import asdict, dataclass

from peers.ipmi_bmc import IpmiBmc

_PERF = """#!{python} -IS
import json, math, os, subprocess, sys, time
laws = json.load(open({laws!r}))
arguments = sys.argv[1:]
if arguments[:2] == ["stat", "-h"]:
    print("Usage: perf stat [<options>] [<command>]")
    print("    -j, --json-output     print counts in JSON format")
    sys.exit(129)
into = arguments[arguments.index("-o") + 1]
command = arguments[arguments.index("--") + 1:]
start = time.monotonic()
done = subprocess.run(command)
elapsed = time.monotonic() - start
cores = len(os.sched_getaffinity(0))
instructions = laws["data_bytes"] * (laws["a"] * math.log(cores) + laws["b"])
cycles = instructions * (laws["cpi_core"] + laws["stalled_s"] * laws["clock_hz"])
counts = {{
    "instructions": (instructions, ""),
    "cycles": (cycles, ""),
    "task-clock": (1e3 * cycles / laws["clock_hz"], "msec"),
    "duration_time": (elapsed * 1e9, "ns"),
}}
with open(into, "w") as file:
    for event in arguments[arguments.index("-e") + 1].split(","):
        value, unit = counts.get(event, ("<not supported>", ""))
        value = value if isinstance(value, str) else "%f" % value
        record = {{"counter-value": value, "unit": unit, "event": event}}
        file.write(json.dumps(record | {{"event-runtime": 10**9, "pcnt-running": 100.0}}) + "\\n")
sys.exit(done.returncode if done.returncode >= 0 else 128 - done.returncode)
"""

_WORKLOAD = """
root=$1; : > "$root/busy"
sleep "$(echo "$2" | cut -d, -f"$(nproc)")"
rm "$root/busy"
"""


@dataclass(frozen=True)
class OldLaws:
    """One microarchitecture and workload: CPI, instructions a byte, watts; f in Hz, n cores."""

    cpi_core: float = 1.2
    stalled_s: float = 0.35e-9
    a: float = -2.0
    b: float = 9.0
    data_bytes: float = 4e8
    p0: float = 18.0
    watts_a_ghz: float = 9.0
    watts_a_core: float = 3.0
    idle_w: float = 16.0

    def cpi(self, clock_hz):
        return self.cpi_core + self.stalled_s * clock_hz

    def instructions(self, cores):
        return self.data_bytes * (self.a * math.log(cores) + self.b)

    def time_s(self, clock_hz, cores):
        return self.cpi(clock_hz) * self.instructions(cores) / (clock_hz * cores)

    def power_w(self, clock_hz, cores):
        return self.p0 + self.watts_a_ghz * clock_hz / 1e9 + self.watts_a_core * cores


class OldHost:
    def __init__(self, root, clock_hz, laws, *, cores=2):
        self.root, self.clock_hz, self.laws = root, clock_hz, laws
        self._counts = range(1, cores + 1)
        (root / "bin").mkdir(parents=True)
        (root / "bmc").mkdir()
        known = root / "laws.json"
        known.write_text(json.dumps({**asdict(laws), "clock_hz": clock_hz}))
        perf = root / "bin" / "perf"
        perf.write_text(_PERF.format(python=sys.executable, laws=str(known)))
        perf.chmod(0o755)
        self.bmc = IpmiBmc(root / "bmc", watts=laws.idle_w)
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._drive, daemon=True)
        # Cores that the command of a run uses, for the test to say.
        self.cores = cores

    def workload(self):
        """Command whose time follows the laws on the cores that it may use."""
        times = ",".join(f"{self.laws.time_s(self.clock_hz, n):.6f}" for n in self._counts)
        return ["sh", "-c", _WORKLOAD, "workload", str(self.root), times]

    def _drive(self):
        last = None
        while not self._stop.wait(0.02):
            busy = (self.root / "busy").exists()
            watts = self.laws.power_w(self.clock_hz, self.cores) if busy else self.laws.idle_w
            if watts != last:
                self.bmc.set_watts(watts)
                last = watts

    def __enter__(self):
        self.bmc.start()
        self._thread.start()
        return self

    def __exit__(self, *error):
        self._stop.set()
        self._thread.join()
        self.bmc.__exit__(*error)
