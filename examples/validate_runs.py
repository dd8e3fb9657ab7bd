"""How far can a projection be trusted? Learn at low frequencies, be held against the highest.

    python validate_runs.py [RUNS [TRAIN[,TRAIN…] TEST]]

Without arguments: the simulated runs beside this file, learnt at 0.8 and 1.6 GHz, tested at 3.0.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import ppw

SIMULATED = Path(__file__).with_name("simulated_runs.csv")


def main(arguments: list[str]) -> None:
    """Validate the runs and print errors, coverage and the naive baselines."""
    warnings.simplefilter("ignore", ppw.CaveatWarning)  # they are in the summary
    runs = ppw.read_runs(arguments[0] if arguments else SIMULATED)
    train, test = arguments[1:3] if len(arguments) > 2 else ("0.8GHz,1.6GHz", "3.0GHz")
    result = ppw.validate(runs, train=train.split(","), test=test.split(","))
    print(result.summary())
    worst = result.groups.loc[result.groups["error_pct"].abs().idxmax()]
    print(f"worst: {worst['workload']} {worst['metric']} {worst['error_pct']:+.1f} %")


if __name__ == "__main__":
    main(sys.argv[1:])
