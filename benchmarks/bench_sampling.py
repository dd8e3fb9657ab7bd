"""Cost and exactness of reading energy counters, beside codecarbon and pyJoules.

``python benchmarks/bench_sampling.py [--seconds 10]`` lays a powercap tree with packages, cores and
memory, whose counters run at known watts and wrap soon, over /sys of a private mount namespace
(as root), and lets each program read it there ten times a second: ppw's sampling process,
codecarbon's tracker and pyJoules' meter, one after the other. It prints processor time as a share
of one core, the highest resident memory, and the energy that each missed. The exit code is 1 when
ppw misses its targets.
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from figures import Figure, cost

if TYPE_CHECKING:
    from collections.abc import Iterator

ROOT = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT), str(ROOT / "tests" / "measurements")]

from peers.powercap import CounterWriter, PowercapTree, in_private_sys  # noqa: E402

WATTS = 60.0
# The counter wraps every two to three seconds.
RANGE_UJ = 150_000_000
SHARE, RESIDENT_MB, MISSED = 0.005, 60.0, 0.01

COMMON = """
import json, sys, time
seconds = float(sys.argv[1])
def cpu_s(pid=0):
    # The kernel's processor-time clock of a process, threads that have ended included.
    return time.clock_gettime((~pid << 3) | 2)
def resident_mb(pid="self"):
    status = open(f"/proc/{pid}/status").read()
    return int(status.partition("VmHWM:")[2].split()[0]) / 1e3
"""
OURS = """
import tempfile
from pathlib import Path
from measurements.power.energy import streams, total_energy, totals
from measurements.power.source import parse_specs
from measurements.power.sampler import Sampling, read_samples
sampling = Sampling.open(parse_specs("rapl"), interval_s=0.1)
file = Path(tempfile.mkdtemp()) / "run.csv"
sampling.start(file)
pid, before, start = sampling.process.pid, cpu_s(sampling.process.pid), time.monotonic()
time.sleep(seconds)
end = time.monotonic()
used, most = cpu_s(pid) - before, resident_mb(pid)
sampling.stop()
channels = {c.label: c for c in sampling.channels}
parts = totals(sampling.channels)["rapl:package"]
drawn = total_energy(parts, channels, streams(read_samples(file)), start, end)
sampling.close()
joules = drawn.energy_j
"""
CODECARBON = """
import logging
from codecarbon import OfflineEmissionsTracker
tracker = OfflineEmissionsTracker(
    country_iso_code="USA", measure_power_secs=0.1, save_to_file=False, log_level="critical",
    allow_multiple_runs=True,
)
tracker.start()
time.sleep(0.3)
before, start, first = cpu_s(), time.monotonic(), tracker._total_cpu_energy.kWh
time.sleep(seconds)
used, most, end = cpu_s() - before, resident_mb(), time.monotonic()
joules = (tracker._total_cpu_energy.kWh - first) * 3.6e6
tracker.stop()
"""
PYJOULES = """
import warnings
warnings.simplefilter("ignore")
from pyJoules.device.rapl_device import RaplPackageDomain, RaplCoreDomain, RaplDramDomain
from pyJoules.energy_meter import EnergyMeter
from pyJoules.device import DeviceFactory
domains = [RaplPackageDomain(0), RaplCoreDomain(0), RaplDramDomain(0)]
meter = EnergyMeter(DeviceFactory.create_devices(domains))
before, start = cpu_s(), time.monotonic()
meter.start()
while time.monotonic() < start + seconds:
    time.sleep(0.1)
    meter.record()
meter.stop()
end = time.monotonic()
used, most = cpu_s() - before, resident_mb()
joules = sum(s.energy["package_0"] for s in meter.get_trace()) / 1e6
"""
REPORT = """
print(json.dumps({"share": used / (end - start), "mb": most, "watts": joules / (end - start)}))
"""
PROGRAMS = {"ppw": OURS, "codecarbon": CODECARBON, "pyJoules": PYJOULES}


def measured(tree: PowercapTree, script: str, seconds: float) -> dict[str, float]:
    """What one program used and saw, in a namespace of its own."""
    command = [sys.executable, "-c", COMMON + script + REPORT, str(seconds)]
    printed = in_private_sys(tree.root, *command)
    result: dict[str, float] = json.loads(printed.splitlines()[-1])
    return result


def measured_programs(seconds: float) -> dict[str, dict[str, float]]:
    """What each program used and saw, one after the other; by its name."""
    with tempfile.TemporaryDirectory() as folder:
        tree = PowercapTree(Path(folder) / "sys")
        package = tree.package(range_uj=RANGE_UJ, limits_w=(125.0, 250.0))
        zones = {package: WATTS, tree.core(package): WATTS / 2, tree.dram(package): 4.0}
        with CounterWriter(zones):
            return {name: measured(tree, s, seconds) for name, s in PROGRAMS.items()}


def figures(scale: float = 1.0) -> Iterator[Figure]:
    """Lines of the table of speed; see ``speed.py``."""
    turns = [measured_programs(5.0 * scale) for _ in range(3)]
    used, mb, missed = (
        {name: [pick(turn[name]) for turn in turns] for name in PROGRAMS}
        for pick in (
            lambda r: 100 * r["share"],
            lambda r: r["mb"],
            lambda r: 100 * abs(1 - r["watts"] / WATTS),
        )
    )
    for title, unit, values in (
        ("read 3 counters of energy 10 times a second", "% of a core", used),
        ("resident memory while reading them", "MB", mb),
        ("energy missed while they wrap every 2.5 s", "%", missed),
    ):
        for peer in ("codecarbon", "pyJoules"):
            # Of what is next to nothing a ratio says nothing.
            compared = {} if values is missed else {"peer": peer, "peers": values[peer]}
            if values is not missed or peer == "codecarbon":
                yield cost(title, unit, values["ppw"], **compared)
    for peer in ("codecarbon", "pyJoules"):
        yield cost(f"energy missed by {peer}", "%", missed[peer])


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--seconds", type=float, default=10.0)
    seconds = parser.parse_args().seconds
    results = measured_programs(seconds)
    ours = results["ppw"]
    print(f"3 zones, 10 readings a second, {WATTS:g} W, {seconds:g} s")
    print(f"{'':12} {'% of a core':>12} {'× ppw':>7} {'resident MB':>12} {'energy missed':>14}")
    for name, r in results.items():
        missed = 1 - r["watts"] / WATTS
        ratio = r["share"] / ours["share"]
        print(f"{name:12} {r['share']:>12.3%} {ratio:>7.1f} {r['mb']:>12.1f} {missed:>14.1%}")
    missed = abs(1 - ours["watts"] / WATTS)
    return int(ours["share"] > SHARE or ours["mb"] > RESIDENT_MB or missed > MISSED)


if __name__ == "__main__":
    raise SystemExit(main())
