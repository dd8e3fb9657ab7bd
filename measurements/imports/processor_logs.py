"""What tools read from a processor: turbostat, and CSV of likwid-perfctr and of Intel PCM."""

import csv
import io
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

_SECONDS = re.compile(r"(\d+(?:\.\d+)?) sec")
# By part of the machine its column of power: W, or J where turbostat ran with --Joules.
_POWER = {
    "power_w": ("PkgWatt", "Pkg_J"),
    "core_power_w": ("CorWatt", "Cor_J"),
    "ram_power_w": ("RAMWatt", "RAM_J"),
}


def read_turbostat(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of the line of the whole machine below each header: an interval or command."""
    time_s: float | None = None
    header: list[str] = []
    is_whole = False
    for line in text.splitlines():
        cells = line.split()
        if seconds := _SECONDS.fullmatch(line.strip()):
            time_s = float(seconds[1])
        elif "Bzy_MHz" in cells:
            header, is_whole = cells, True
        # The line of the whole stands first, marked by dashes; a machine with one CPU has one line,
        # and a summary alone has no column of CPUs.
        elif header and len(cells) == len(header) and (cells[0] == "-" or is_whole):
            is_whole = "CPU" not in header
            yield _turbostat_run(dict(zip(header, cells, strict=True)), time_s)


def _turbostat_run(cells: Mapping[str, str], time_s: float | None) -> dict[str, Any]:
    run: dict[str, Any] = {"freq_achieved_hz": float(cells["Bzy_MHz"]) * 1e6}
    if time_s:
        run["time_s"] = time_s
    for column, (watt, joule) in _POWER.items():
        if watt in cells:
            run[column] = float(cells[watt])
        elif joule in cells and time_s:
            run[column] = float(cells[joule]) / time_s
    return run | ({"power_source": "rapl:package"} if "power_w" in run else {})


# By name of the row, on Intel and then on AMD and Arm: its column, and how the hardware threads
# make one number. A socket's energy stands at one of its threads, the others have 0.
_LIKWID_ROWS: dict[str, tuple[str, Callable[[Sequence[float]], float]]] = {
    "Runtime (RDTSC) [s]": ("time_s", max),
    **dict.fromkeys(("Energy [J]", "Energy PKG [J]"), ("energy_j", sum)),
    "Energy DRAM [J]": ("dram_energy_j", sum),
    **dict.fromkeys(
        ("INSTR_RETIRED_ANY", "RETIRED_INSTRUCTIONS", "INST_RETIRED"), ("instructions", sum)
    ),
    **dict.fromkeys(
        ("CPU_CLK_UNHALTED_CORE", "CPU_CLOCKS_UNHALTED", "CPU_CYCLES"), ("cycles", sum)
    ),
}


def read_likwid(text: str) -> Iterator[dict[str, Any]]:
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
        if run := _likwid_run(found):
            yield run | ({"workload": region} if region else {})


def _numbers(cells: Sequence[str]) -> Iterator[float]:
    for cell in cells:
        if re.fullmatch(r"\d+(\.\d+)?([eE][+-]?\d+)?", cell.strip()):
            yield float(cell)


def _likwid_run(rows: Mapping[str, Sequence[float]]) -> dict[str, Any]:
    run: dict[str, Any] = {c: add(rows[n]) for n, (c, add) in _LIKWID_ROWS.items() if rows.get(n)}
    if frequencies := [mhz for mhz in rows.get("Clock [MHz]", ()) if mhz]:
        run["freq_achieved_hz"] = sum(frequencies) / len(frequencies) * 1e6
    return run | _package_power(run)


def _package_power(run: Mapping[str, Any]) -> dict[str, Any]:
    if "energy_j" not in run or not run.get("time_s"):
        return {}
    return {"power_w": run["energy_j"] / run["time_s"], "power_source": "rapl:package"}


_PCM_ENERGIES = {"energy_j": "Proc Energy (Joules)", "dram_energy_j": "DRAM Energy (Joules)"}


def read_pcm(text: str) -> Iterator[dict[str, Any]]:
    """Make one run: time, and energy of the packages and of memory; a line covers an interval."""
    lines = text.splitlines()
    starts = [n for n, line in enumerate(lines) if line.startswith(("Date;Time", "Date,Time"))]
    if not starts:
        raise ValueError("no line begins with Date and Time")
    at = starts[0]
    rows = [*csv.reader(io.StringIO("\n".join(lines[max(0, at - 1) :])), delimiter=lines[at][4])]
    titles, header, *rows = rows if at else [[], *rows]
    groups: list[str] = []
    for title, _ in zip_longest(titles, header, fillvalue=""):
        # Versions before 2021 name a group above its first column only.
        groups.append(title.strip() or (groups[-1] if groups else ""))
    rows = [row for row in rows if len(row) >= len(header) and row[0][:1].isdigit()]
    times = [datetime.fromisoformat(f"{row[0].strip()} {row[1].strip()}") for row in rows]
    run: dict[str, Any] = {}
    if len({*times}) > 1:
        between_s = (times[-1] - times[0]).total_seconds()
        run["time_s"] = between_s * len(times) / (len(times) - 1)
    for column, name in _PCM_ENERGIES.items():
        if places := _pcm_places(name, groups, header):
            run[column] = sum(float(row[place]) for row in rows for place in places)
    if run:
        yield run | _package_power(run)


def _pcm_places(name: str, groups: Sequence[str], header: Sequence[str]) -> list[int]:
    """Find the columns of each socket below a title, or else the one of the whole system."""
    columns = [*enumerate(zip(groups, header, strict=False))]
    sockets = [place for place, (group, title) in columns if group == name and title.strip()]
    return sockets or [place for place, (_, title) in columns if title.strip() == name][:1]
