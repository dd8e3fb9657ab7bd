"""CSV of Intel PCM (``pcm -csv``): one run, the sum over its intervals."""

import csv
import io
from collections.abc import Iterator, Sequence
from datetime import datetime
from itertools import zip_longest
from typing import Any

_ENERGIES = {"energy_j": "Proc Energy (Joules)", "dram_energy_j": "DRAM Energy (Joules)"}


def read(text: str) -> Iterator[dict[str, Any]]:
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
    for column, name in _ENERGIES.items():
        if places := _places(name, groups, header):
            run[column] = sum(float(row[place]) for row in rows for place in places)
    if "energy_j" in run and "time_s" in run:
        run |= {"power_w": run["energy_j"] / run["time_s"], "power_source": "rapl:package"}
    if run:
        yield run


def _places(name: str, groups: Sequence[str], header: Sequence[str]) -> list[int]:
    """Find the columns of each socket below a title, or else the one of the whole system."""
    columns = [*enumerate(zip(groups, header, strict=False))]
    sockets = [place for place, (group, title) in columns if group == name and title.strip()]
    return sockets or [place for place, (_, title) in columns if title.strip() == name][:1]
