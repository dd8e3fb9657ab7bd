"""Output of likwid-perfctr as CSV (``-O`` or ``-o FILE.csv``): a run for each region and group."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# By name of the row, on Intel and then on AMD and Arm: its column, and how the hardware threads
# make one number. A socket's energy stands at one of its threads, the others have 0.
_ROWS: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "Runtime (RDTSC) [s]": ("time_s", max),
    "Energy [J]": ("energy_j", sum),
    "Energy PKG [J]": ("energy_j", sum),
    "Energy DRAM [J]": ("dram_energy_j", sum),
    "INSTR_RETIRED_ANY": ("instructions", sum),
    "RETIRED_INSTRUCTIONS": ("instructions", sum),
    "INST_RETIRED": ("instructions", sum),
    "CPU_CLK_UNHALTED_CORE": ("cycles", sum),
    "CPU_CLOCKS_UNHALTED": ("cycles", sum),
    "CPU_CYCLES": ("cycles", sum),
}


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of the tables of one region and group; tables of statistics repeat the others."""
    runs: dict[tuple[str, str], dict[str, list[float]]] = {}
    rows: dict[str, list[float]] = {}
    first = 1
    for cells in csv.reader(io.StringIO(text)):
        if cells[:1] == ["TABLE"]:
            region = next((c[7:] for c in cells if c.startswith("Region ")), "")
            group = next((c for c in cells if c.startswith("Group ")), "")
            rows = {}
            if not any("STAT" in cell.split() for cell in cells):
                rows = runs.setdefault((region, " ".join(group.split()[:2])), rows)
        elif cells[:1] in (["Event"], ["Metric"]):
            first = 2 if cells[1:2] == ["Counter"] else 1
        elif cells:
            rows.setdefault(cells[0], [*_numbers(cells[first:])])
    for (region, _), found in runs.items():
        if run := _run(found):
            yield run | ({"workload": region} if region else {})


def _numbers(cells: Sequence[str]) -> Iterator[float]:
    for cell in cells:
        if re.fullmatch(r"\d+(\.\d+)?([eE][+-]?\d+)?", cell.strip()):
            yield float(cell)


def _run(rows: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    run: dict[str, Any] = {c: add(rows[n]) for n, (c, add) in _ROWS.items() if rows.get(n)}
    if clocks := [mhz for mhz in rows.get("Clock [MHz]", ()) if mhz]:
        run["freq_achieved_hz"] = sum(clocks) / len(clocks) * 1e6
    if "energy_j" in run and run.get("time_s"):
        run |= {"power_w": run["energy_j"] / run["time_s"], "power_source": "rapl:package"}
    return run
