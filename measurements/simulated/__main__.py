"""``python -m measurements.simulated -o runs.csv``: simulate all kernels, cores and clocks."""

from __future__ import annotations

import argparse
import sys
import time

import pandas as pd

from measurements.errors import MeasurementError
from measurements.quantities import frequency_text, parse_frequency
from measurements.simulated.cores import CORES
from measurements.simulated.kernels import KERNELS
from measurements.workloads.simulated import FREQUENCIES_HZ, simulate_sweep
from measurements.writing_runs import write_runs


def main(arguments: list[str] | None = None) -> int:
    """Simulate a sweep, write its runs table and say how long it took."""
    asked = _parser().parse_args(arguments)
    start = time.monotonic()
    try:
        frequencies = [parse_frequency(text) for text in _listed(asked.freqs)]
        kernels, cores = _listed(asked.kernels), _listed(asked.cores)
        count = len(kernels) * len(cores) * len(frequencies)
        rows = []
        for cell, row in simulate_sweep(kernels, cores, frequencies, processes=asked.processes):
            rows.append(row)
            _say(
                f"{len(rows)} of {count}, {time.monotonic() - start:.0f} s: {cell.program} on "
                f"{cell.core} at {frequency_text(cell.freq_hz)}: CPI {row['cpi']:.4g}"
            )
        write_runs(pd.DataFrame(rows), asked.output)
    except MeasurementError as error:
        _say(str(error))
        return 1
    return 0


def _parser() -> argparse.ArgumentParser:
    clocks = ",".join(f"{hertz / 1e9:g}GHz" for hertz in FREQUENCIES_HZ)
    parser = argparse.ArgumentParser(prog="python -m measurements.simulated", description=__doc__)
    parser.add_argument("-o", "--output", required=True, metavar="FILE", help="runs table to write")
    parser.add_argument("--kernels", default=",".join(KERNELS), help="default: %(default)s")
    parser.add_argument("--cores", default=",".join(CORES), help="default: %(default)s")
    parser.add_argument("--freqs", default=clocks, help="default: %(default)s")
    parser.add_argument("--processes", type=int, default=2, help="default: %(default)s")
    return parser


def _listed(text: str) -> list[str]:
    return [word.strip() for word in text.split(",")]


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


if __name__ == "__main__":
    sys.exit(main())
