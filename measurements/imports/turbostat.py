"""Output of turbostat, on the screen or by ``--out``: a run for each interval or command."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

_SECONDS = re.compile(r"(\d+(?:\.\d+)?) sec")
# By part of the machine its column of power: W, or J where turbostat ran with --Joules.
_POWER = {
    "power_w": ("PkgWatt", "Pkg_J"),
    "core_power_w": ("CorWatt", "Cor_J"),
    "ram_power_w": ("RAMWatt", "RAM_J"),
}


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of the line of the whole machine below each header."""
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
            yield _run(dict(zip(header, cells, strict=True)), time_s)


def _run(cells: Mapping[str, str], time_s: float | None) -> dict[str, Any]:
    run: dict[str, Any] = {"freq_achieved_hz": float(cells["Bzy_MHz"]) * 1e6}
    if time_s:
        run["time_s"] = time_s
    for column, (watt, joule) in _POWER.items():
        if watt in cells:
            run[column] = float(cells[watt])
        elif joule in cells and time_s:
            run[column] = float(cells[joule]) / time_s
    return run | ({"power_source": "rapl:package"} if "power_w" in run else {})
