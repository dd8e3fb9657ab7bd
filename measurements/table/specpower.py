"""Published results of SPECpower_ssj2008: watts and throughput at ten loads and at active idle.

Three forms are read, told apart by their content: the result page (.html) and the result text
(.txt) of one result, and tables (.csv) with one result a row, as the site's search of results
writes them ("Average watts @ 50% of target load") or as re-published ("watts_50"). The fields are
those of SPEC, "SPECpower_ssj2008 Result File Fields",
https://www.spec.org/power/docs/SPECpower_ssj2008-Result_File_Fields.html. SPEC's fair-use rules
ask to cite www.spec.org/power_ssj2008 with every number.
"""

import csv
import io
import itertools
import math
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from html.parser import HTMLParser
from pathlib import Path
from typing import Any, NamedTuple

from measurements.errors import MeasurementError

# The three forms in which SPECpower_ssj2008 results are published, taken apart.
#
# Numbers are as written: "2,721,413", "1.74E+07", "99.7%". A zero where watts or a score should be
# stands for "not there", as "NC", "--" and empty cells do.


@dataclass
class ParsedResult:
    """What a result says, level by level (percent; 0 is active idle)."""

    source: str
    watts: dict[int, float] = field(default_factory=dict)
    ops_s: dict[int, float] = field(default_factory=dict)
    actual: dict[int, float] = field(default_factory=dict)
    overall: float | None = None
    compliant: bool | None = None
    facts: dict[str, str] = field(default_factory=dict)
    counts: dict[str, float] = field(default_factory=dict)
    dates: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)

    def put_number(self, target: int, column: str, cell: str) -> None:
        """Take one number of a level, if it is one."""
        value = number(cell)
        if value is None:
            return
        if column == "actual":
            self.actual[target] = value / 100
        elif value > 0:
            (self.watts if column == "watts" else self.ops_s)[target] = value
        elif column == "watts":
            self.notes.append(f"{value:g} W at a level is no reading and is left out")

    def put_overall(self, cell: str) -> None:
        """Take the score; "NC" and 0 say that there is none."""
        self.overall = number(cell) or None
        self.compliant = self.overall is not None

    def put_field(self, name: str, value: str) -> None:
        """Take one named field of the description, if it is one that is kept."""
        key, value = tidy(name).rstrip(":"), " ".join(value.split())
        if not value or value == "--":
            return
        if key in _FACT_OF:
            self.facts.setdefault(_FACT_OF[key], value)
        if key in _COUNT_OF and (amount := number(value.split()[0])) is not None:
            self.counts.setdefault(_COUNT_OF[key], amount)
        if key in _ENABLED:
            for count, pattern in _IN_ENABLED.items():
                if match := pattern.search(value):
                    self.counts.setdefault(count, float(match.group(1)))
        if key in _METHOD and value.lower().startswith("single"):
            self.counts.setdefault("nodes", 1.0)
        if key in _DATES:
            self.dates.append(value)

    def put_fields(self, pairs: Iterable[tuple[str, str]]) -> None:
        """Take named fields, those of the preferred date first."""
        rank = {key: place for place, key in enumerate(_DATES)}
        for name, value in sorted(pairs, key=lambda pair: rank.get(pair[0].rstrip(":"), -1)):
            self.put_field(name, value)


# Names of fields in lower case, in any of the three forms.
_FACTS = {
    "system": ("system", "model", "hw_model", "system enclosure (if applicable)"),
    "vendor": (
        *("hardware vendor", "hw_vendor", "hardware vendor test sponsor", "test sponsor"),
        "vendor",
    ),
    "processor": ("processor", "cpu name", "hw_cpuname", "cpu description"),
}
_COUNTS = {
    "nodes": ("nodes", "# of nodes", "# of identical nodes"),
    "chips": ("chips", "# chips", "# of chips"),
    "cores": ("cores", "# cores", "# of cores"),
    "threads": ("total threads", "# of threads", "hw_hardwarethreads"),
    "memory_gb": (
        *("memory (gb)", "total memory (gb)", "total ram (gb)", "memory amount (gb)"),
        "hw_memamountgb",
    ),
}
_FACT_OF = {name: fact for fact, names in _FACTS.items() for name in names}
_COUNT_OF = {name: count for count, names in _COUNTS.items() for name in names}
_METHOD = ("test method", "test_method")
_ENABLED = ("cpu(s) enabled", "hw_cpusenabled")
_IN_ENABLED = {
    "cores": re.compile(r"(\d{1,9})\s*cores?\b", re.IGNORECASE),
    "chips": re.compile(r"(\d{1,9})\s*chips?\b", re.IGNORECASE),
}
# In the order in which one is preferred.
_DATES = (
    *("test date", "test_date", "publication", "published", "hardware availability"),
    *("hw avail", "hardware_availability"),
)
# "NC" alone is also where some of the tests were made: North Carolina.
_NOT_COMPLIANT = re.compile(r"[Nn]on-compliant|\bINVALID\b")
_HEADER = re.compile(r"=\s*([\d,.]+|NC)\s*overall ssj_ops/watt", re.IGNORECASE)
_TARGET = re.compile(r"(\d{1,3})\s*%", re.ASCII)
_NUMBER = re.compile(r"[+-]?(?:\d[\d,]*(?:\.\d*)?|\.\d+)(?:[eE][+-]?\d+)?")

_LEVEL_COLUMNS = (
    ("ops", re.compile(r"ssj_ops\s*(?:@\s*|_)(\d{1,3})\s*(?:%.*)?")),
    ("watts", re.compile(r"(?:average |avg\. ?)?watts\s*(?:@\s*|_)(\d{1,3})\s*(?:%.*)?")),
    ("actual", re.compile(r"(?:actual )?load\s*(?:@\s*|_)?(\d{1,3})\s*(?:%.*)?")),
)
_IDLE_COLUMN = re.compile(r"(?:average |avg\. ?)?watts\s*(?:@\s*active |_)idle")
_SCORE_COLUMN = re.compile(r"result(?: \(overall ssj_ops/watt\))?|overall ssj_ops/watt")


def number(cell: str) -> float | None:
    """Read a number with thousands separators, an exponent or a percent sign; else None."""
    text = cell.strip().rstrip("%").strip()
    value = float(text.replace(",", "")) if _NUMBER.fullmatch(text) else math.inf
    return value if math.isfinite(value) else None


def tidy(header: str) -> str:
    """Lower case with single spaces."""
    return " ".join(header.lower().split())


def csv_results(text: str, name: str) -> list[ParsedResult]:
    """Results of a table, one a row; empty when it has no column with the watts of a load."""
    rows = csv.reader(io.StringIO(text, newline=""))
    try:
        headers = [tidy(cell) for cell in next(rows, [])]
        columns = [_match_level_column(header) for header in headers]
        if sum(column is not None and column[1] == "watts" for column in columns) < 2:
            return []
        return [
            _parse_row(f"{name}, row {at}", headers, cells)
            for at, cells in enumerate(rows, start=1)
            if any(cell.strip() for cell in cells)
        ]
    except csv.Error:
        return []


def _match_level_column(header: str) -> tuple[int, str] | None:
    """Find the target load (%) and the quantity of a column; None for other headers."""
    if _IDLE_COLUMN.fullmatch(header):
        return 0, "watts"
    for column, pattern in _LEVEL_COLUMNS:
        if match := pattern.fullmatch(header):
            return int(match.group(1)), column
    return None


def _parse_row(source: str, headers: Sequence[str], cells: Sequence[str]) -> ParsedResult:
    found = ParsedResult(source)
    columns = map(_match_level_column, headers)
    for header, column, cell in zip(headers, columns, cells, strict=False):
        if column is not None:
            found.put_number(*column, cell)
        elif _SCORE_COLUMN.fullmatch(header):
            found.put_overall(cell)
    found.put_fields(zip(headers, cells, strict=False))
    return found


def text_result(text: str, name: str) -> list[ParsedResult]:
    """The result of a .txt report."""
    found = ParsedResult(name)
    lines = text.splitlines()
    rows = [[cell.strip() for cell in line.split("|")] for line in lines if "|" in line]
    _put_rows(found, rows, text)
    # Fields stand one a line or several apart by wide gaps.
    pairs = (
        (part.partition(":")[0].strip(), part.partition(":")[2])
        for line in lines
        if "|" not in line
        for part in re.split(r"(?<!\s)\s{3,}(?=\S[^:]{0,60}:)", line)
        if ":" in part
    )
    found.put_fields((tidy(key), value) for key, value in pairs)
    return [found]


def html_result(text: str, name: str) -> list[ParsedResult]:
    """The result of a .html page."""
    parser = _Tables()
    parser.feed(text)
    found = ParsedResult(name)
    _put_rows(found, parser.rows, parser.text())
    found.put_fields(
        (tidy(key), value)
        for row in parser.rows
        for key, value in itertools.pairwise(row)
        if key.rstrip().endswith(":") or len(row) == 2
    )
    return [found] if found.watts or found.compliant is False else []


def _put_rows(found: ParsedResult, rows: Sequence[Sequence[str]], text: str) -> None:
    """Take what stands in tables, the score of the headline, and the counts of all nodes."""
    for row in rows:
        _put_line(found, row)
    headline = _HEADER.search(text)
    if found.overall is None and headline:
        found.put_overall(headline.group(1))
    if _NOT_COMPLIANT.search(text.partition("System Under Test")[0]):
        found.compliant = False
    for names, values in itertools.pairwise(rows):
        keys = [tidy(cell) for cell in names]
        if "# of nodes" in keys and "# of cores" in keys:
            for key, value in zip(keys, values, strict=False):
                found.put_field(key, value)


def _put_line(found: ParsedResult, cells: Sequence[str]) -> None:
    """Take a line of the table of levels: its five cells, active idle or the score."""
    first = cells[0].strip() if cells else ""
    rest = [cell for cell in cells[1:] if cell.strip()]
    if (match := _TARGET.fullmatch(first)) and len(rest) == 4:
        target = int(match[1])
        for column, cell in zip(("actual", "ops", "watts"), rest, strict=False):
            found.put_number(target, column, cell)
    elif tidy(first).startswith("active idle") and len(rest) >= 2:
        # ssj_ops, watts, their ratio.
        found.put_number(0, "watts", rest[1])
    elif re.search(r"ssj_ops\s*/\s*(∑|sum of )\s*power", " ".join(cells)):
        found.put_overall(cells[-1])


class _Tables(HTMLParser):
    """Rows of all tables of a page, as lists of cells, and its text."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.rows: list[list[str]] = []
        self._said: list[str] = []
        self._in_cell = False
        self._silent = 0

    def handle_starttag(self, tag: str, attrs: Sequence[tuple[str, str | None]]) -> None:
        """Begin a row or a cell."""
        if tag in ("script", "style"):
            self._silent += 1
        elif tag == "tr":
            self.rows.append([])
            self._in_cell = False
        elif tag in ("td", "th"):
            if not self.rows:
                self.rows.append([])
            self.rows[-1].append("")
            self._in_cell = True
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        """End a cell."""
        if tag in ("script", "style"):
            self._silent = max(self._silent - 1, 0)
        elif tag in ("td", "th", "table"):
            self._in_cell = False

    def handle_data(self, data: str) -> None:
        """Text of a cell, or beside all cells."""
        if self._silent:
            return
        self._said.append(data)
        if self._in_cell:
            self.rows[-1][-1] += data

    def text(self) -> str:
        """All text, cells included."""
        return " ".join("".join(self._said).split())


TARGETS = tuple(range(100, 0, -10))

# Published scores are rounded to a whole number, and older ones to three digits.
_SCORE_OFF = 0.01
_TARGET_OFF = 0.02
_YEAR = re.compile(r"(?:19|20)\d\d")


class LoadLevel(NamedTuple):
    """One target load of a result; None where it is not published."""

    target: float  # share of the calibrated throughput that was asked for; 0 is active idle
    actual: float | None  # share that was reached
    ops_s: float | None  # ssj_ops, operations per second; 0 at active idle
    watts: float | None  # mean power at the wall (W)


@dataclass(frozen=True)
class SpecPowerResult:
    """One published result."""

    # As published; "" where not said.
    system: str
    vendor: str
    processor: str
    # As published, else the date of publication or availability.
    test_date: str
    year: int | None
    # In all.
    nodes: int | None
    chips: int | None
    cores: int | None
    threads: int | None
    memory_gb: float | None
    levels: tuple[LoadLevel, ...]  # from 100 % down to active idle, those that are published
    # ssj_ops/watt as published; None where it is not, as for one that is not compliant.
    overall: float | None
    # False where SPEC marks it non-compliant (NC) or invalid; None where the file has no score.
    compliant: bool | None
    findings: tuple[str, ...]  # what is missing, or does not agree with the rest
    source: str  # file, and row of a table

    @property
    def computed_overall(self) -> float | None:
        """Overall ssj_ops/watt from the levels: Σ ssj_ops / Σ W, active idle among the watts.

        None unless all eleven levels are there. Source: SPEC, *SPECpower_ssj2008 Run and Reporting
        Rules*, section 3.1.
        """
        ops, watts = [x.ops_s for x in self.levels], [x.watts for x in self.levels]
        if len(self.levels) != len(TARGETS) + 1 or None in ops or None in watts:
            return None
        return sum(x for x in ops if x is not None) / sum(x for x in watts if x is not None)


def read_specpower(source: str | Path | Sequence[str | Path]) -> list[SpecPowerResult]:
    """Read published results, from one file or several, each of any of the three forms.

    Raises
    ------
    MeasurementError
        When a file cannot be read, is none of the forms, or has no result with the watts of two
        levels.
    """
    sources = [source] if isinstance(source, (str, Path)) else list(source)
    results = [made for each in sources for made in _read_results(Path(each))]
    if not results:
        raise MeasurementError("no file of SPECpower results was named")
    return results


def is_specpower(path: str | Path) -> bool:
    """Tell whether a file looks like results of SPECpower_ssj2008; False for what is not text."""
    try:
        return bool(_parse_by_form(_read_page_text(Path(path)), Path(path).name))
    except MeasurementError:
        return False


_WHOLE = ("nodes", "chips", "cores", "threads")


def _read_results(path: Path) -> list[SpecPowerResult]:
    made = [_make_result(found) for found in _parse_by_form(_read_page_text(path), path.name)]
    if not made:
        raise MeasurementError(
            f"{path.name}: is no SPECpower_ssj2008 result: give the .html or .txt of a result, or "
            "a CSV with the power at each target load"
        )
    known = [r for r in made if sum(level.watts is not None for level in r.levels) > 1]
    if not known:
        said = "; ".join(made[0].findings)
        raise MeasurementError(f"{path.name}: no result has the power at two load levels: {said}")
    return known


def _read_page_text(path: Path) -> str:
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MeasurementError(
            f"{path}: cannot be read: {error.strerror or error}: name a file of results"
        ) from error
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError:
        # Pages of the first years are in Latin-1.
        return content.decode("latin-1")


def _parse_by_form(text: str, name: str) -> list[ParsedResult]:
    if re.search(r"<(html|table)\b", text, re.IGNORECASE):
        return html_result(text, name)
    if re.search(r"Benchmark Results Summary", text):
        return text_result(text, name)
    return csv_results(text, name)


def _make_result(found: ParsedResult) -> SpecPowerResult:
    levels = tuple(
        LoadLevel(
            target / 100,
            found.actual.get(target),
            0.0 if target == 0 else found.ops_s.get(target),
            found.watts.get(target),
        )
        for target in (*TARGETS, 0)
        if target in found.watts or target in found.ops_s
    )
    date = found.dates[0] if found.dates else ""
    year = _YEAR.search(date)
    facts: dict[str, Any] = {name: found.facts.get(name, "") for name in _FACTS}
    for name in _WHOLE:
        count = found.counts.get(name)
        facts[name] = None if count is None else round(count)
    made = SpecPowerResult(
        **facts,
        test_date=date,
        year=int(year.group()) if year else None,
        memory_gb=found.counts.get("memory_gb"),
        levels=levels,
        overall=found.overall if found.compliant else None,
        compliant=found.compliant,
        findings=(),
        source=found.source,
    )
    return replace(made, findings=(*found.notes, *_findings(made)))


def _findings(result: SpecPowerResult) -> Iterable[str]:
    """What is missing from a result, or does not agree."""
    known = {round(level.target * 100) for level in result.levels if level.watts is not None}
    lacking = [_load_text(t) for t in (*TARGETS, 0) if t not in known]
    if lacking:
        yield f"no power at {', '.join(lacking)}"
    if result.compliant is False:
        yield "not compliant: SPEC publishes no score for it"
    for level in result.levels:
        if level.actual is not None and abs(level.actual - level.target) > _TARGET_OFF:
            yield f"the load reached at {_load_text(level.target * 100)} is {level.actual:.1%}"
    for name, values in (
        ("ssj_ops do not fall", [x.ops_s for x in result.levels if x.ops_s is not None]),
        ("power does not fall", [x.watts for x in result.levels if x.watts is not None]),
    ):
        if any(low >= high for high, low in itertools.pairwise(values)):
            yield f"{name} with the target load throughout"
    computed = result.computed_overall
    if computed and result.overall and abs(computed / result.overall - 1) > _SCORE_OFF:
        yield (
            f"the published overall score is {result.overall:g} ssj_ops/W, but its levels give "
            f"{computed:.4g}"
        )


def _load_text(target: float) -> str:
    return "active idle" if target == 0 else f"{target:.0f} %"
