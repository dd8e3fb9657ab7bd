"""Speed of intervals from a posterior, beside a loop over statsmodels' prediction intervals.

``python benchmarks/bench_intervals.py [--groups 100000]`` measures on one core, in one process,
`ppw.project` on a DataFrame of sweeps of three frequencies (ten core counts a workload, rows
shuffled): time alone, then time and power, with pooling and the check of the rows. The peer,
`statsmodels.api.OLS` with one fit and one prediction interval a curve, runs on a sample.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
import warnings

# One core, for the linear algebra too: before numpy starts its threads.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd
from figures import Figure, in_turns, rate

import ppw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

SEED = 20120101
MEASURED_GHZ = np.array([1.2, 1.6, 2.0])
ASKED_HZ = 2.4e9
CORES = 10
TARGET_S = {"time": 8.0, "time and power": 20.0}
METRICS = {"time": ["time"], "time and power": ["time", "power"]}


def simulated(groups: int) -> pd.DataFrame:
    """Sweeps of workloads at ten core counts: Amdahl's law, f·V² power, 1 % noise; shuffled."""
    rng = np.random.default_rng(SEED)
    workload, cores = np.divmod(np.arange(groups), CORES)
    cores = cores + 1.0
    stalled = rng.beta(0.5, 2.0, workload[-1] + 1)[workload]
    clock = MEASURED_GHZ / MEASURED_GHZ[0]
    seconds = 100 / cores[:, None] * (stalled[:, None] + (1 - stalled[:, None]) / clock)
    watts = 20 + 4 * cores[:, None] * MEASURED_GHZ * (0.6 + 0.2 * MEASURED_GHZ) ** 2
    noise = np.exp(0.01 * rng.standard_normal((2, groups, len(clock))))
    frame = pd.DataFrame(
        {
            "workload": np.repeat([f"w{w}" for w in workload], len(clock)),
            "cores": np.repeat(cores, len(clock)),
            "freq_ghz": np.tile(MEASURED_GHZ, groups),
            "time_s": (seconds * noise[0]).ravel(),
            "power_w": (watts * noise[1]).ravel(),
        }
    )
    return frame.sample(frac=1.0, random_state=SEED, ignore_index=True)


def seconds_of(function: Callable[[], object]) -> float:
    """Elapsed time of one call."""
    start = time.perf_counter()
    function()
    return time.perf_counter() - start


def statsmodels_loop(runs: pd.DataFrame, curves: int) -> Callable[[], None]:
    """OLS with a prediction interval, in 1/f, a curve at a time."""
    from statsmodels.api import OLS

    sample = runs.sort_values(["workload", "cores", "freq_ghz"]).head(3 * curves)
    times = sample["time_s"].to_numpy().reshape(-1, 3)
    design = np.column_stack([np.ones(3), 1 / MEASURED_GHZ])
    asked = [[1.0, 1e9 / ASKED_HZ]]

    def loop() -> None:
        for y in times:
            OLS(y, design).fit().get_prediction(asked).summary_frame(alpha=0.1)

    return loop


def figures(scale: float = 1.0) -> Iterator[Figure]:
    """Lines of the table of speed; see ``speed.py``."""
    warnings.simplefilter("ignore", ppw.CaveatWarning)
    groups, curves = int(20_000 * scale), 300
    runs = simulated(groups)
    ppw.project(simulated(100), freq=ASKED_HZ)  # imports
    loop = statsmodels_loop(runs, curves)
    for title, metrics in METRICS.items():
        ours, theirs = in_turns(
            3, lambda m=metrics: ppw.project(runs, freq=ASKED_HZ, metric=m), loop
        )
        yield rate(
            f"project {title}, with pooled posterior intervals",
            "curves/s",
            groups * len(metrics),
            ours,
            peer="statsmodels' OLS, a fit and an interval a curve",
            peer_seconds=theirs,
            peer_amount=curves,
        )


def main() -> int:
    """Measure and print; 1 when a target is missed."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--groups", type=int, default=100_000)
    parser.add_argument("--peer", type=int, default=1000, help="curves the peer is measured on")
    options = parser.parse_args()
    warnings.simplefilter("ignore", ppw.CaveatWarning)
    runs = simulated(options.groups)
    ppw.project(simulated(100), freq=ASKED_HZ)  # imports
    peer = options.peer / seconds_of(statsmodels_loop(runs, options.peer))
    print(f"statsmodels loop: {peer:.0f} curves/s with a prediction interval (no pooling)")
    missed = False
    for title, metrics in METRICS.items():
        spent = seconds_of(lambda m=metrics: ppw.project(runs, freq=ASKED_HZ, metric=m))
        curves = options.groups * len(metrics)
        limit = TARGET_S[title] * options.groups / 100_000
        missed |= spent > limit
        print(
            f"{title}: {options.groups} groups in {spent:.2f} s (wanted: {limit:.0f} s), "
            f"{curves / spent:.0f} curves/s, {curves / spent / peer:.1f} times the loop"
        )
    return int(missed)


if __name__ == "__main__":
    sys.exit(main())
