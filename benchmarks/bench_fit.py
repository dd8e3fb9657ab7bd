"""Speed and memory of many small fits, beside a loop over scikit-learn and over statsmodels.

``python benchmarks/bench_fit.py [--groups 1000000]`` measures on one core, in one process, the
best of several repeats of

* `ppw.project` by least squares on a DataFrame with two text key columns, rows shuffled and
  rows sorted; finding the groups, checking the table, fitting, intervals and the table of answers
  included;
* `fitting.regression.lines.fit_table` and its prediction with interval on ``(groups, points)``
  arrays;
* `sklearn.linear_model.LinearRegression`, one fit and one prediction a group, no interval;
* `statsmodels.api.OLS`, one fit and one prediction with its interval a group.

The peers run on a sample of the groups; their rate is per group, so more groups would take them
proportionally longer. Nothing is printed before all of them gave the same numbers. The exit code
is 1 when they did not and 0 otherwise, targets missed or not.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import pandas as pd
from figures import Figure, cost, in_turns, rate
from whole_processes import (
    best_of,
    environment,
    help_command,
    one_core,
    resident,
    start_up,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    FloatArray = NDArray[np.float64]

SEED = 20120101
LEVEL = 0.90
MEASURED_HZ = np.array([1.2e9, 1.6e9, 2.0e9])
ASKED_HZ = 2.4e9
TOLERANCE = 1e-9

FRAME_RATE, ARRAY_RATE = 1e6, 5e6  # groups a second
MEMORY = 6.0  # times the input
IMPORT_S, HELP_S = 0.3, 0.5


class Runs(NamedTuple):
    """The same runs as ``(groups, points)`` arrays and as tables."""

    frequency: FloatArray
    time: FloatArray
    shuffled: pd.DataFrame
    ordered: pd.DataFrame


class Answers(NamedTuple):
    """Projected time and its interval, one a group."""

    value: FloatArray
    lower: FloatArray
    upper: FloatArray


def make_runs(groups: int) -> Runs:
    """Simulate hosts × workloads by Amdahl's law with 1 % noise."""
    rng = np.random.default_rng(SEED)
    fixed = rng.uniform(0, 60, groups)
    work = rng.uniform(30, 120, groups) * 1e9
    clean = fixed[:, None] + work[:, None] / MEASURED_HZ
    frequency = np.broadcast_to(MEASURED_HZ, clean.shape).copy()
    elapsed = clean * (1 + 0.01 * rng.standard_normal(clean.shape))
    side = int(np.ceil(np.sqrt(groups)))
    pair = np.repeat(np.arange(groups), len(MEASURED_HZ))
    hosts = pd.Series([f"host-{i:06d}" for i in range(side)])
    workloads = pd.Series([f"workload-{i:06d}" for i in range(side)])
    ordered = pd.DataFrame(
        {
            "host": hosts.take(pair // side).reset_index(drop=True),
            "workload": workloads.take(pair % side).reset_index(drop=True),
            "freq_hz": frequency.ravel(),
            "time_s": elapsed.ravel(),
        }
    )
    shuffled = ordered.take(rng.permutation(len(ordered))).reset_index(drop=True)
    return Runs(frequency, elapsed, shuffled, ordered)


def project(frame: pd.DataFrame) -> Answers:
    import ppw

    # The peers fit least squares to every row as it is; posteriors are in bench_intervals.py.
    options = {"metric": "time", "level": LEVEL, "interval": "t", "keep_all": True}
    table = ppw.project(frame, freq=ASKED_HZ, **options).table
    return Answers(*(table[c].to_numpy() for c in ("projected", "lower", "upper")))


def fit_arrays(frequency: FloatArray, elapsed: FloatArray) -> Answers:
    from fitting.laws.frequency import AmdahlTime
    from fitting.regression.lines import fit_table

    fitted = fit_table(AmdahlTime(), frequency, elapsed)
    return Answers(fitted.predict(ASKED_HZ), *fitted.interval(ASKED_HZ, level=LEVEL))


def loop_sklearn(frequency: FloatArray, elapsed: FloatArray) -> FloatArray:
    from sklearn.linear_model import LinearRegression

    periods, at = 1e9 / frequency[:, :, None], [[1e9 / ASKED_HZ]]
    return np.array(
        [LinearRegression().fit(x, y).predict(at)[0] for x, y in zip(periods, elapsed, strict=True)]
    )


def loop_statsmodels(frequency: FloatArray, elapsed: FloatArray) -> Answers:
    import statsmodels.api as sm

    # In nanoseconds: a column of 1e-10 beside the constant costs OLS the digits compared here.
    periods, at = 1e9 / frequency, [[1.0, 1e9 / ASKED_HZ]]
    rows = []
    for x, y in zip(periods, elapsed, strict=True):
        prediction = sm.OLS(y, np.column_stack([np.ones_like(x), x])).fit().get_prediction(at)
        lower, upper = prediction.conf_int(obs=True, alpha=1 - LEVEL)[0]
        rows.append((prediction.predicted_mean[0], lower, upper))
    return Answers(*np.array(rows).T)


def unbound(frequency: FloatArray, elapsed: FloatArray) -> NDArray[np.bool_]:
    """Tell the groups whose least-squares line meets the bounds by itself, as the peers' does."""
    from fitting.laws.frequency import AmdahlTime
    from fitting.regression.lines import FREE, fit_table

    bound: NDArray[np.int8] = fit_table(AmdahlTime(), frequency, elapsed).line.bound
    return bound == FREE


def largest_difference(ours: Answers, theirs: Answers) -> float:
    """Largest relative difference; inf where a number is on one side only."""
    worst = 0.0
    for a, b in zip(ours, theirs, strict=True):
        if not np.array_equal(np.isnan(a), np.isnan(b)):
            return float("inf")
        difference = np.abs(a - b) / np.maximum(np.abs(b), np.finfo(float).tiny)
        worst = max(worst, float(np.nanmax(np.where(a == b, 0.0, difference))))
    return worst


def check_same_numbers(runs: Runs, sample: NDArray[np.int64]) -> list[str]:
    """Compare all four; exit with 1 where they disagree."""
    arrays = fit_arrays(runs.frequency, runs.time)
    sampled = Answers(*(part[sample] for part in arrays))
    frequency, elapsed = runs.frequency[sample], runs.time[sample]
    learned = loop_sklearn(frequency, elapsed)
    differences = {
        "project_runs, shuffled": largest_difference(project(runs.shuffled), arrays),
        "project_runs, sorted": largest_difference(project(runs.ordered), arrays),
        "scikit-learn": largest_difference(sampled._replace(value=learned), sampled),
        "statsmodels": largest_difference(loop_statsmodels(frequency, elapsed), sampled),
    }
    wrong = {name: d for name, d in differences.items() if not d <= TOLERANCE}
    if wrong:
        found = ", ".join(f"{name} by {d:.1e}" for name, d in wrong.items())
        sys.exit(f"numbers differ from fit_table: {found} (tolerance {TOLERANCE:g}); nothing timed")
    return [f"{name} {d:.0e}" for name, d in differences.items()]


def peak_memory(frame: pd.DataFrame) -> float | None:
    """Peak of `project_runs` above its input, as a multiple of the input; None if not known.

    A child process reads the frame from a file and warms up on a few rows, so that neither
    building the input nor imports count; see `report_peak` for the measurement.
    """
    if not Path("/proc/self/clear_refs").exists():
        return None
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "runs.parquet"
        frame.to_parquet(file)
        child = [sys.executable, str(Path(__file__).resolve()), "--report-peak", str(file)]
        done = subprocess.run(child, capture_output=True, text=True, check=True, env=environment())
    return float(done.stdout)


def report_peak(file: str) -> None:
    """Print (peak resident memory during the call - resident memory before it) / input."""
    import ctypes
    import gc

    import pyarrow as pa

    one_core()
    frame = pd.read_parquet(file)
    project(frame.head(3000))
    # Memory that reading freed but the allocators keep would serve the call unseen.
    gc.collect()
    pa.default_memory_pool().release_unused()
    ctypes.CDLL(None).malloc_trim(0)
    Path("/proc/self/clear_refs").write_text("5")  # sets the peak back to the present
    before = resident("VmRSS")
    result = project(frame)
    peak = resident("VmHWM")
    del result
    print((peak - before) / frame.memory_usage(deep=True).sum())


def mark(met: bool | None, target: str) -> str:
    return f"{'not measured' if met is None else 'PASS' if met else 'MISS'}  {target}"


def print_rates(rates: dict[str, float], targets: dict[str, float]) -> None:
    learn, stats = rates["LinearRegression loop"], rates["statsmodels OLS loop"]
    print(f"{'':24}{'groups/s':>12}{'× sklearn':>12}{'× statsmodels':>15}")
    for name, found in rates.items():
        line = f"{name:24}{found:12,.0f}{found / learn:12,.1f}{found / stats:15,.1f}"
        target = targets.get(name)
        print(line if target is None else f"{line}  {mark(found >= target, f'≥ {target:,.0f}')}")


def print_limit(name: str, value: float | None, limit: float, unit: str) -> None:
    shown = "–" if value is None else f"{value:.2f}{unit}"
    met = None if value is None else value < limit
    print(f"{name:36}{shown:>12}  {mark(met, f'< {limit:g}{unit}')}")


def measure_rates(runs: Runs, sample: NDArray[np.int64], repeats: int) -> dict[str, float]:
    groups, few = len(runs.time), len(sample)
    frequency, elapsed = runs.frequency[sample], runs.time[sample]
    return {
        "project_runs, shuffled": groups / best_of(repeats, lambda: project(runs.shuffled)),
        "project_runs, sorted": groups / best_of(repeats, lambda: project(runs.ordered)),
        "fit_table + prediction": groups
        / best_of(2 * repeats, lambda: fit_arrays(runs.frequency, runs.time)),
        "LinearRegression loop": few / best_of(repeats, lambda: loop_sklearn(frequency, elapsed)),
        "statsmodels OLS loop": few
        / best_of(repeats, lambda: loop_statsmodels(frequency, elapsed)),
    }


def figures(scale: float = 1.0) -> Iterator[Figure]:
    """Lines of the table of speed; see ``speed.py``."""
    import warnings

    from threadpoolctl import threadpool_limits

    import ppw

    # Start-up first: a large parent makes its children start later.
    ours, pandas, helped = in_turns(
        5,
        lambda: start_up(sys.executable, "-c", "import ppw", repeats=1),
        lambda: start_up(sys.executable, "-c", "import pandas", repeats=1),
        lambda: start_up(*help_command(), "--help", repeats=1),
    )
    yield cost(
        "import ppw, which imports the rest when needed",
        "s",
        ours,
        peer="import pandas",
        peers=pandas,
    )
    yield cost("ppw --help, whole process", "s", helped)
    one_core()
    warnings.simplefilter("ignore", ppw.CaveatWarning)
    runs = make_runs(int(500_000 * scale))
    free = np.flatnonzero(unbound(runs.frequency, runs.time))
    sample = np.random.default_rng(SEED).permutation(free)[:1000]
    with threadpool_limits(1):
        check_same_numbers(runs, sample)
        yield from rate_figures(runs, sample)


def rate_figures(runs: Runs, sample: NDArray[np.int64]) -> Iterator[Figure]:
    """Curves a second of each way, in turns."""
    frequency, elapsed = runs.frequency[sample], runs.time[sample]
    shuffled, arrays, learn, stats = in_turns(
        3,
        lambda: project(runs.shuffled),
        lambda: fit_arrays(runs.frequency, runs.time),
        lambda: loop_sklearn(frequency, elapsed),
        lambda: loop_statsmodels(frequency, elapsed),
    )
    count = len(runs.time)
    for name, seconds in (
        ("project a shuffled table of runs, with intervals", shuffled),
        ("fit arrays and project, with intervals", arrays),
    ):
        for peer, theirs in (
            ("scikit-learn's LinearRegression, a fit and no interval a curve", learn),
            ("statsmodels' OLS, a fit and an interval a curve", stats),
        ):
            yield rate(
                name,
                "curves/s",
                count,
                seconds,
                peer=peer,
                peer_seconds=theirs,
                peer_amount=len(sample),
            )


def benchmark(groups: int, sampled: int, repeats: int) -> None:
    import warnings

    from threadpoolctl import threadpool_limits

    import ppw

    # Start-up first: a large parent makes its children start later.
    loaded = start_up(sys.executable, "-c", "import ppw")
    helped = start_up(*help_command(), "--help")
    where = one_core()
    warnings.simplefilter("ignore", ppw.CaveatWarning)
    runs = make_runs(groups)
    free = np.flatnonzero(unbound(runs.frequency, runs.time))
    sample = np.random.default_rng(SEED).permutation(free)[:sampled]
    with threadpool_limits(1):
        same = check_same_numbers(runs, sample)
        rates = measure_rates(runs, sample, repeats)
    memory = {n: peak_memory(f) for n, f in zip(("shuffled", "sorted"), runs[2:], strict=True)}

    size = runs.shuffled.memory_usage(deep=True).sum() / 1e6
    print(f"{groups:,} groups of {len(MEASURED_HZ)} points, table of {size:.0f} MB; {where}")
    print(f"Python {sys.version.split()[0]}, numpy {np.__version__}, pandas {pd.__version__}")
    print(
        f"best of {repeats}; peers on {len(sample):,} of the {len(free) / groups:.1%} of groups "
        "whose line meets our bounds by itself"
    )
    print("largest relative difference from fit_table: " + ", ".join(same) + "\n")
    targets = {"project_runs, shuffled": FRAME_RATE, "project_runs, sorted": FRAME_RATE}
    print_rates(rates, targets | {"fit_table + prediction": ARRAY_RATE})
    print()
    for name, value in memory.items():
        print_limit(f"project_runs, {name}: peak memory", value, MEMORY, " × input")
    print_limit("import ppw, whole process", loaded, IMPORT_S, " s")
    print_limit("ppw --help, whole process", helped, HELP_S, " s")
    print(
        "\npeak memory: highest resident memory during the call less that just before it, in a"
        "\nprocess of its own that had read the table and warmed up; the answers are part of it"
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).split("\n")[0])
    parser.add_argument("--groups", type=int, default=1_000_000)
    parser.add_argument("--sample", type=int, default=2_000, help="groups that the peers fit")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--report-peak", metavar="FILE", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.report_peak:
        report_peak(options.report_peak)
    else:
        benchmark(options.groups, options.sample, options.repeats)


if __name__ == "__main__":
    main()
