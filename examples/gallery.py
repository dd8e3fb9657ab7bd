"""What do the answers look like? One result of each kind, from the data beside this file.

    python gallery.py [FOLDER]

prints what each example found and, given a folder, draws each into it as NAME.svg.
"""

from __future__ import annotations

import io
import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING, Any

import matplotlib as mpl
from matplotlib.figure import Figure

import ppw
from measurements.timeseries import read_time_series
from ppw.catalogue.datasets import simulated_sweep

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

HERE = Path(__file__).parent
# Texts stay texts, and the same picture is the same file.
STYLE: dict[Any, Any] = {
    "svg.hashsalt": "ppw",
    "svg.fonttype": "none",
    "font.family": "sans-serif",
    "font.size": 9,
    "axes.spines.top": False,
    "axes.spines.right": False,
}
DISK = {"disk_bandwidth_bytes_s": 500e6}


def cpi_against_clock() -> Any:
    """Cycles per instruction at a clock that was not run."""
    return ppw.project(ppw.read_runs(HERE / "simulated_runs.csv"), freq=3.6e9, metric="cpi")


def projected_and_measured() -> Any:
    """Projections held against runs that took no part."""
    runs = simulated_sweep()
    return ppw.validate(runs, train=["1.2GHz", "2GHz"], test=["3.2GHz", "4GHz"])


def hosts_side_by_side() -> Any:
    """Speed-up of one host over another, program by program."""
    return ppw.characterise(simulated_sweep(), by=["workload"])


def instructions_against_data() -> Any:
    """Path length of two programs."""
    return ppw.path_lengths(ppw.read_runs(HERE / "instruction_counts.csv"))


def cost_of_candidates() -> Any:
    """Three candidate servers for one demand."""
    return ppw.procure(HERE / "procurement.toml")


def knee_of_object_size() -> Any:
    """Where larger objects stop being cheap for a cache."""
    runs = ppw.read_runs(HERE / "memcached_sizes.csv")
    return ppw.find_knees(runs, over="object-size", of="throughput")


def cycles_of_an_io() -> Any:
    """Cycles per I/O with the disk and without it, by cores."""
    return ppw.cycles_per_io(ppw.read_runs(HERE / "fio_study.csv"))


def recordings(*names: str) -> Any:
    """Time series of the recordings."""
    return {name: read_time_series(HERE / "recordings" / f"{name}.csv") for name in names}


def pressure_of_three() -> Any:
    """What three workloads lean on."""
    return ppw.pressure_matrix(recordings("cache", "batch", "scan"), capacity=DISK)


def who_can_share() -> Any:
    """Which two of them fit on one host."""
    (idle,) = recordings("idle").values()
    return ppw.pair_workloads(
        recordings("cache", "batch", "scan"), capacity=DISK, align="any", idle=idle
    )


def state_diagram() -> Any:
    """A block trace as a state diagram."""
    return ppw.fit_trace(HERE / "disk_trace.csv.gz")


def caches_for_a_trace() -> Any:
    """What cache drives would do for it."""
    return ppw.trace_what_if(HERE / "disk_trace.csv.gz", cache_bytes=16 * 2**20)


EXAMPLES: tuple[Callable[[], Any], ...] = (
    *(cpi_against_clock, projected_and_measured, hosts_side_by_side, instructions_against_data),
    *(cost_of_candidates, knee_of_object_size, cycles_of_an_io, pressure_of_three, who_can_share),
    *(state_diagram, caches_for_a_trace),
)


def figures() -> Iterator[tuple[str, str, str]]:
    """Name, summary and SVG of every example."""
    warnings.simplefilter("ignore", ppw.CaveatWarning)  # they are in the summary
    for example in EXAMPLES:
        result = example()
        yield example.__name__, result.summary(), draw(result)


def draw(result: Any) -> str:
    """Draw a result as SVG."""
    with mpl.rc_context(STYLE):
        canvas = Figure(figsize=(7, 3.8), layout="constrained")
        result.plot(canvas.add_subplot())
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    return sink.getvalue()


def main(arguments: list[str]) -> None:
    """Print every summary, and draw where a folder is given."""
    for name, summary, svg in figures():
        print(f"{name}\n{summary}\n")
        for folder in map(Path, arguments):
            folder.mkdir(parents=True, exist_ok=True)
            (folder / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1:])
