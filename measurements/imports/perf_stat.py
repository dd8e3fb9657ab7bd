"""Output of ``perf stat``: text, separated fields (``-x``) or JSON lines (``-j``); one run each."""

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from measurements.counters import figures
from measurements.table import schema

_RUN = re.compile(
    r"Performance counter stats for (?:'(?P<command>.*)'|.*?)(?: \((?P<n>\d+) runs\))?:$"
)
_COUNT = re.compile(
    r"\s*(?P<value>\d[\d.,'\u202f\u00a0]*|<not \w+>)\s+(?:(?P<unit>msec|ns|Joules|MiB|C)\s+)?"
    r"(?P<event>[A-Za-z][^\s#]*)"
)
_ELAPSED = re.compile(r"\s*(\d+[.,]\d+)(?: \+- +[\d.,]+)? seconds time elapsed")
_PACKAGE = re.compile(r"(?:power/)?energy-pkg/?")


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each heading of the text, or of all lines of the other two forms."""
    lines = text.splitlines()
    heads = [at for at, line in enumerate(lines) if _RUN.search(line)]
    if not heads:
        output = figures.parse_output("\n".join(map(_plain_line, lines)))
        yield from _runs(figures.summarize(output), {})
    for start, end in pairwise([*heads, len(lines)]):
        yield from _read_text(lines[start:end])


def _plain_line(line: str) -> str:
    """Bring a line to semicolons, or to JSON without the commas that perf leaves before an end."""
    line = line.strip()
    if line.startswith("{"):
        return re.sub(r",\s*(?=[}\]]|$)", "", line)
    if line in "[]":
        return ""
    # Commas between slashes belong to the name of an event.
    return re.sub(r"/[^/]*/|,", lambda m: ";" if m[0] == "," else m[0], line)


def _read_text(lines: list[str]) -> Iterator[dict[str, Any]]:
    heading, counts = _RUN.search(lines[0]), []
    known: dict[str, Any] = {}
    if heading and heading["command"]:
        known["workload"] = heading["command"]
    for line in lines[1:]:
        if elapsed := _ELAPSED.match(line):
            known["time_s"] = float(elapsed[1].replace(",", "."))
        elif (count := _COUNT.match(line)) and not count["event"].startswith("seconds"):
            value, unit = _number(count["value"], count["unit"]), count["unit"] or ""
            absent: figures.Missing | None = "not counted" if value is None else None
            counts.append(figures.Count(count["event"], value, absent, unit, None, None))
    yield from _runs(figures.summarize(figures.PerfOutput(tuple(counts), ())), known)


def _number(text: str, unit: str | None) -> float | None:
    """Read a count, which is whole, or a quantity, whose last sign is the decimal one."""
    if text.startswith("<"):
        return None
    place = max(text.rfind("."), text.rfind(",")) if unit else -1
    whole, rest = (text[:place], text[place + 1 :]) if place >= 0 else (text, "0")
    return float(re.sub(r"\D", "", whole) + "." + rest)


def _runs(counters: figures.Counters, known: dict[str, Any]) -> Iterator[dict[str, Any]]:
    # CPU time is no elapsed time, which a header of it would be taken for.
    counted = {name: value for name, value in counters.columns().items() if name in schema.COLUMNS}
    run = {**counted, **known}
    if counters.elapsed_s:
        run.setdefault("time_s", counters.elapsed_s)
    package = [t.value for name, t in counters.events.items() if _PACKAGE.fullmatch(name)]
    if package and package[0]:
        run |= {"energy_j": package[0], "power_source": "rapl:package"}
        if run.get("time_s"):
            run["power_w"] = package[0] / run["time_s"]
    if run.keys() - {"workload"}:
        yield run
