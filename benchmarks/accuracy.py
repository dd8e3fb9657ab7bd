"""How well projections and their intervals hold on what others measured: one table of everything.

``python benchmarks/accuracy.py [--data DIR] [--write FOLDER]`` runs every task on public sets (see
``tests/conftest.py`` for where they are) and prints a line each, or writes the table and the plots
of the worst cases into FOLDER, as the site shows them. The tasks are in ``accuracy_clocks.py``
(another clock, by `ppw.validate`), ``accuracy_core_count.py`` (other core counts),
``accuracy_cores.py`` (the laws of cores and machines), ``accuracy_data_size.py`` (more data) and
``accuracy_power_load.py`` (another load).

The same data give the same table: nothing is drawn but the workloads that are resampled for the
range of the coverage, with a fixed seed.
"""

from __future__ import annotations

import argparse
import os
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import accuracy_clocks
import accuracy_core_count
import accuracy_cores
import accuracy_data_size
import accuracy_power_load
from accuracy_worst import draw_one, worst_cases
from outcomes import HEADER, error_pct, inside, row_of

import ppw

if TYPE_CHECKING:
    from collections.abc import Sequence

    from accuracy_worst import WorstCase
    from outcomes import Outcome

ROOT = Path(__file__).resolve().parent.parent
# Characters of a cell that is not broken into lines.
_SHORT = 46
TASKS = (
    *(accuracy_clocks, accuracy_core_count, accuracy_cores, accuracy_data_size),
    accuracy_power_load,
)


def data_folder() -> Path:
    """Folder of the measured sets."""
    return Path(os.environ.get("PPW_DATA_DIR", ROOT.parent / "shared" / "data"))


def all_outcomes(folder: Path) -> list[Outcome]:
    """What every task comes to."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ppw.CaveatWarning)
        return [outcome for tasks in TASKS for outcome in tasks.outcomes(folder)]


def markdown_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Markdown of one table; short cells stay on one line."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join(f"| {' | '.join(map(_together, line))} |" for line in lines)


def _together(cell: str) -> str:
    return cell if len(cell) > _SHORT else cell.replace(" ", "\N{NO-BREAK SPACE}")


class Published(NamedTuple):
    """A figure of the literature, and the tasks that come nearest to it."""

    who: str
    figure: str
    of: str
    tasks: tuple[tuple[str, str], ...]
    differs: str


PUBLISHED = (
    Published(
        "[LL-MAB](https://www.computermachines.org/joe/publications/usenix2014_ll-mab.html), "
        "Su et al., USENIX ATC 2014",
        "2.7 %",
        "time over a 2.2-fold change of clock, AMD Opteron 4386, no training",
        (("nornir", "time: 1.2, 1.8 → 2.4"), ("xu3", "time: 1.0, 1.5 → 2.0")),
        "it reads hardware counters at one clock; ppw is told the time at two, and goes 1.33 "
        "times beyond the nearer one and 2 times beyond the other",
    ),
    Published(
        "[PPEP](https://doi.org/10.1109/MICRO.2014.17), Su et al., MICRO 2014",
        "4.2 %",
        "power of the chip from one voltage-frequency state to others, AMD CPUs, 152 combinations "
        "of programs, 5 states; standard deviation 3.6 %",
        (
            ("xu3", "power: 1.0, 1.5 → 2.0, V known"),
            ("nornir", "power: 1.2, 1.8 → 2.4"),
            ("xu3", "power: 1.0, 1.5 → 2.0"),
            ("freqbench", "power: lowest, middle → highest"),
        ),
        "it reads hardware counters at one state, with a model of that chip; ppw is told the watts "
        "at two or three clocks, and only in the first task the voltages",
    ),
)


def published_table(outcomes: Sequence[Outcome]) -> str:
    """Markdown of the means beside those that others published."""
    found = {(o.data, o.task): o.cases for o in outcomes}
    header = ["published", "mean error", "of", "nearest tasks here: mean error", "what differs"]
    rows = []
    for paper in PUBLISHED:
        tasks = []
        for key in paper.tasks:
            projected, measured = (found[key][c].to_numpy() for c in ("projected", "measured"))
            tasks.append(f"{' '.join(key)}: {error_pct(projected, measured).mean():.1f} %")
        rows.append([paper.who, paper.figure, paper.of, "<br>".join(tasks), paper.differs])
    return markdown_table(header, rows)


def worst_table(cases: Sequence[WorstCase]) -> str:
    """Markdown of the worst cases, with what ppw says of each."""
    header = ["data", "task", "case", "projected", "measured", "error %", "90 % interval", "said"]
    rows = []
    for worst in cases:
        case = worst.case
        held = "" if inside(case.to_frame().T)[0] else ", missed"
        rows.append(
            [
                worst.outcome.data,
                worst.outcome.task,
                worst.case["name"],
                *(f"{case[c]:.4g}" for c in ("projected", "measured")),
                f"{worst.error_pct:+.1f}",
                f"{case['lower']:.4g} … {case['upper']:.4g}{held}".replace("inf", "∞"),
                worst.sweep.said or "nothing",
            ]
        )
    return markdown_table(header, rows)


def markdown(outcomes: Sequence[Outcome], cases: Sequence[WorstCase]) -> str:
    """The page's table, and its worst cases with their plots."""
    plots = "\n".join(f"![{w.title}](figures/worst/{w.stem}.svg)" for w in cases)
    return (
        f"{markdown_table(HEADER, [row_of(o) for o in outcomes])}\n\n"
        f"## Beside published figures\n\n{published_table(outcomes)}\n\n"
        f"## The worst case of each kind\n\n{worst_table(cases)}\n\n{plots}\n"
    )


def write(folder: Path, outcomes: Sequence[Outcome], cases: Sequence[WorstCase]) -> None:
    """Write the table and its plots."""
    (folder / "accuracy.md").write_text(markdown(outcomes, cases), encoding="utf-8")
    for old in folder.glob("worst_*.svg"):
        old.unlink()
    for worst in cases:
        (folder / f"worst_{worst.stem}.svg").write_text(draw_one(worst) + "\n", encoding="utf-8")


def main() -> int:
    """Print the table, or write it."""
    from ppw.results.text import text_table

    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=data_folder())
    parser.add_argument("--write", type=Path, metavar="FOLDER", help="written instead of printed")
    given = parser.parse_args()
    if not given.data.is_dir():
        print(f"accuracy: no folder {given.data}: give --data or set PPW_DATA_DIR", file=sys.stderr)
        return 1
    outcomes = all_outcomes(given.data)
    print(text_table(HEADER, [row_of(outcome) for outcome in outcomes]))
    if given.write is not None:
        given.write.mkdir(parents=True, exist_ok=True)
        write(given.write, outcomes, worst_cases(outcomes, given.data))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
