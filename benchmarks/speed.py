"""How fast ppw is, beside peers in the same process: every ``bench_*.py`` in one table.

``python benchmarks/speed.py [--scale 1] [--only NAME,NAME] [--write FOLDER]`` runs the ``figures``
of each in a process of its own, one after the other, and prints a line a figure, or writes the
table into FOLDER as the site shows it. ``--scale`` makes the inputs larger or smaller. A few
minutes in all on a quiet machine; a busy one shows in the ranges. The exit code is 1 where one of
them could not be measured.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import subprocess
import sys
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import NamedTuple

from figures import Figure

HERE = Path(__file__).resolve().parent
# What is compared with, or does the work.
PACKAGES = (
    *("numpy", "pandas", "pyarrow", "scikit-learn", "statsmodels", "numba", "duckdb"),
    *("codecarbon", "pyJoules"),
)
HEADER = ["what", "value", "range", "unit", "beside", "times better", "range"]


class Measured(NamedTuple):
    """Figures of one benchmark, or why there are none."""

    name: str
    summary: str
    figures: list[Figure]
    failure: str = ""


def names() -> list[str]:
    """Benchmarks beside this file."""
    return sorted(path.stem for path in HERE.glob("bench_*.py"))


def measure(name: str, scale: float) -> Measured:
    """Run one benchmark in a process of its own."""
    command = [sys.executable, str(Path(__file__).resolve()), "--one", name, "--scale", str(scale)]
    # The checkout first, whether ppw is installed or not.
    path = os.pathsep.join(filter(None, [str(HERE.parent), os.environ.get("PYTHONPATH")]))
    done = subprocess.run(
        command, capture_output=True, text=True, check=False, env=os.environ | {"PYTHONPATH": path}
    )
    if done.returncode:
        last = [*done.stderr.strip().splitlines(), "no message"][-1 if done.stderr.strip() else 0]
        return Measured(name, "", [], last)
    document = json.loads(done.stdout.splitlines()[-1])
    return Measured(name, document["summary"], [Figure(**f) for f in document["figures"]])


def measure_here(name: str, scale: float) -> str:
    """JSON of one benchmark's figures."""
    module = importlib.import_module(name)
    summary = (module.__doc__ or "").splitlines()[0]
    figures = [figure._asdict() for figure in module.figures(scale)]
    return json.dumps({"summary": summary, "figures": figures})


def machine() -> str:
    """Processor, cores, Python and packages, in a sentence."""
    model = platform.processor() or platform.machine()
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
        model = next(x.partition(":")[2].strip() for x in lines if x.startswith("model name"))
    except (OSError, StopIteration):
        pass
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    packages = ", ".join(f"{name} {found}" for name in PACKAGES if (found := installed(name)))
    return f"{model}, {cores} cores; Python {platform.python_version()}, {packages}."


def installed(package: str) -> str:
    """Its version; empty where it is not installed."""
    try:
        return version(package)
    except PackageNotFoundError:
        return ""


def row_of(figure: Figure) -> list[str]:
    """One line of the table."""
    return [
        figure.name,
        number(figure.value),
        span(figure.low, figure.high),
        figure.unit,
        figure.peer or "–",
        number(figure.ratio),
        span(figure.ratio_low, figure.ratio_high),
    ]


def number(value: float) -> str:
    """Three digits."""
    if value != value:
        return "–"
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.3g}"


def span(low: float, high: float) -> str:
    """Smallest and largest of the repeats."""
    return "–" if low != low else f"{number(low)} … {number(high)}"


def markdown(measured: list[Measured]) -> str:
    """The page's tables."""
    parts = [f"{machine()}\n"]
    for one in measured:
        parts.append(f"## {title_of(one)}\n")
        if one.failure:
            parts.append(f"Not measured: {one.failure}\n")
            continue
        lines = [HEADER, ["---"] * len(HEADER), *map(row_of, one.figures)]
        parts.append("\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n")
    return "\n".join(parts)


def title_of(one: Measured) -> str:
    """What it measures, up to what it is beside."""
    said = one.summary.partition(",")[0].rstrip(".")
    return said or one.name


def main() -> int:
    """Measure and print."""
    from ppw.results.text import text_table

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--scale", type=float, default=1.0, help="of the inputs")
    parser.add_argument("--only", metavar="NAME,NAME", default=",".join(names()))
    parser.add_argument("--write", type=Path, metavar="FOLDER")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.one:
        print(measure_here(given.one, given.scale))
        return 0
    if given.write is not None:
        # Not after minutes of work.
        given.write.mkdir(parents=True, exist_ok=True)
    measured = []
    for name in given.only.split(","):
        one = measure(name, given.scale)
        measured.append(one)
        print(f"\n{name}: {one.failure or one.summary}", flush=True)
        if one.figures:
            print(text_table(HEADER, list(map(row_of, one.figures))), flush=True)
    if given.write is not None:
        (given.write / "speed.md").write_text(markdown(measured), encoding="utf-8")
    return int(any(one.failure for one in measured))


if __name__ == "__main__":
    sys.path.insert(0, str(HERE.parent))
    raise SystemExit(main())
