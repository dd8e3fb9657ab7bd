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
# What perf names in the place of a command where it counted all that CPUs did.
_WHOLE_MACHINE = re.compile(r"system wide|CPU\(s\) [\d,-]+")
# With --per-socket and the like, a part of the machine and its number of CPUs come first. Some
# locales part thousands by a space; older versions write the unit behind the event.
_COUNT = re.compile(
    r"\s*(?:(?P<part>[SDNC]\d\S*|CPU\d+)\s+(?:\d+\s+)?)?"
    r"(?P<value>\d{1,3}(?: \d{3})+(?:[.,]\d+)?|\d[\d.,'\u202f\u00a0]*|<not \w+>)\s+"
    r"(?:(?P<unit>msec|ns|Joules|MiB|C)\s+)?(?P<event>[A-Za-z][^\s#]*)(?: \((?P<behind>msec)\))?"
)
# Share of the time on a counter, at the end of a line whose event had to share it.
_RUNNING = re.compile(r"\((\d+[.,]\d+)%\)$")
_ELAPSED = re.compile(r"\s*(\d+[.,]\d+)(?: \+- +[\d.,]+)? seconds time elapsed")
_PACKAGE = re.compile(r"(?:power/)?energy-pkg/?")


def read_perf(text: str) -> Iterator[dict[str, Any]]:
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
    command = heading["command"] if heading else None
    is_whole = command is not None and bool(_WHOLE_MACHINE.fullmatch(command))
    known: dict[str, Any] = {"workload": command} if command and not is_whole else {}
    for line in lines[1:]:
        if elapsed := _ELAPSED.match(line):
            known["time_s"] = float(elapsed[1].replace(",", "."))
        elif (count := _COUNT.match(line)) and not count["event"].startswith("seconds"):
            unit = count["unit"] or count["behind"] or ""
            value = _number(count["value"], unit)
            absent: figures.Missing | None = "not counted" if value is None else None
            share = _RUNNING.search(line.rstrip())
            running = float(share[1].replace(",", ".")) / 100 if share else None
            of_part = (None, running, count["part"] or "")
            counts.append(figures.Count(count["event"], value, absent, unit, *of_part))
    output = figures.PerfOutput(tuple(counts), ())
    yield from _runs(figures.summarize(output, whole_machine=is_whole), known)


def _number(text: str, unit: str) -> float | None:
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
