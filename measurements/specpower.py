"""Published results of SPECpower_ssj2008: watts and throughput at ten loads and at active idle.

Three forms are read, told apart by their content: the result page (.html) and the result text
(.txt) of one result, and tables (.csv) with one result a row, as the site's search of results
writes them ("Average watts @ 50% of target load") or as re-published ("watts_50"). The fields are
those of SPEC, "SPECpower_ssj2008 Result File Fields",
https://www.spec.org/power/docs/SPECpower_ssj2008-Result_File_Fields.html. SPEC's fair-use rules
ask to cite www.spec.org/power_ssj2008 with every number.
"""

from __future__ import annotations

import itertools
import re
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.specpower_forms import Found, csv_results, html_result, text_result

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    import pandas as pd

TARGETS = tuple(range(100, 0, -10))

# Published scores are rounded to a whole number, and older ones to three digits.
_SCORE_OFF = 0.01
_TARGET_OFF = 0.02
_YEAR = re.compile(r"(?:19|20)\d\d")
_MISSING_WATTS = "no watts at {}"


class Level(NamedTuple):
    """One target load of a result; None where it is not published.

    Attributes
    ----------
    target : float
        Share of the calibrated throughput that was asked for; 0 is active idle.
    actual : float or None
        Share of the calibrated throughput that was reached.
    ops_s : float or None
        ssj_ops, operations a second; 0 at active idle.
    watts : float or None
        Mean power at the wall (W).
    """

    target: float
    actual: float | None
    ops_s: float | None
    watts: float | None


@dataclass(frozen=True)
class SpecPowerResult:
    """One published result.

    Attributes
    ----------
    system, vendor, processor : str
        As published; "" where not said.
    test_date : str
        As published, else the date of publication or availability.
    year : int or None
        Of ``test_date``.
    nodes, chips, cores, threads : int or None
        In all.
    memory_gb : float or None
        GB in all.
    levels : tuple of Level
        From 100 % down to active idle, those that are published.
    overall : float or None
        Overall ssj_ops/watt as published; None where it is not, as for one that is not compliant.
    compliant : bool or None
        False where SPEC marks it non-compliant (NC) or invalid; None where the file has no score.
    findings : tuple of str
        What is missing, or does not agree with the rest.
    source : str
        File, and row of a table.
    """

    system: str
    vendor: str
    processor: str
    test_date: str
    year: int | None
    nodes: int | None
    chips: int | None
    cores: int | None
    threads: int | None
    memory_gb: float | None
    levels: tuple[Level, ...]
    overall: float | None
    compliant: bool | None
    findings: tuple[str, ...]
    source: str

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
    results = [made for each in sources for made in _read_one(Path(each))]
    if not results:
        raise MeasurementError("no file of SPECpower results was named")
    return results


def is_specpower(path: str | Path) -> bool:
    """Tell whether a file looks like results of SPECpower_ssj2008; False for what is not text."""
    try:
        return bool(_found(_text(Path(path)), Path(path).name))
    except MeasurementError:
        return False


def specpower_table(results: Iterable[SpecPowerResult]) -> pd.DataFrame:
    """Tidy table with one row a result and level.

    Columns: ``host`` (the system), ``vendor``, ``processor``, ``year``, ``nodes``, ``chips``,
    ``cores``, ``threads``, ``memory_gb``, ``target_load``, ``load`` (the actual one),
    ``throughput_ops_s``, ``power_w``, ``power_source`` ("published:wall"),
    ``overall_ops_per_watt``, ``compliant``, ``source``. Missing values are NaN, never 0.
    """
    import pandas as pd

    rows = [
        {
            "host": r.system,
            "vendor": r.vendor,
            "processor": r.processor,
            **{name: getattr(r, name) for name in _COUNTED},
            "target_load": level.target,
            "load": level.actual,
            "throughput_ops_s": level.ops_s,
            "power_w": level.watts,
            "power_source": "published:wall",
            "overall_ops_per_watt": r.overall,
            "compliant": r.compliant,
            "source": r.source,
        }
        for r in results
        for level in r.levels
    ]
    table = pd.DataFrame(rows, columns=_COLUMNS)
    return table.astype(dict.fromkeys(_NUMBERS, "float64"))


_COUNTED = ("year", "nodes", "chips", "cores", "threads", "memory_gb")
_NUMBERS = (
    *_COUNTED,
    *("target_load", "load", "throughput_ops_s", "power_w", "overall_ops_per_watt"),
)
_COLUMNS = [
    *("host", "vendor", "processor", *_COUNTED, "target_load", "load", "throughput_ops_s"),
    *("power_w", "power_source", "overall_ops_per_watt", "compliant", "source"),
]


def _read_one(path: Path) -> list[SpecPowerResult]:
    made = [_result(found) for found in _found(_text(path), path.name)]
    if not made:
        raise MeasurementError(
            f"{path.name}: is no SPECpower_ssj2008 result: give the .html or .txt of a result, or "
            "a CSV with the watts of each target load"
        )
    known = [r for r in made if sum(level.watts is not None for level in r.levels) > 1]
    if not known:
        said = "; ".join(made[0].findings)
        raise MeasurementError(f"{path.name}: no result has the watts of two levels: {said}")
    return known


def _text(path: Path) -> str:
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


def _found(text: str, name: str) -> list[Found]:
    if re.search(r"<(html|table)\b", text, re.IGNORECASE):
        return html_result(text, name)
    if re.search(r"Benchmark Results Summary", text):
        return text_result(text, name)
    return csv_results(text, name)


def _result(found: Found) -> SpecPowerResult:
    levels = tuple(
        Level(
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
    made = SpecPowerResult(
        system=found.facts.get("system", ""),
        vendor=found.facts.get("vendor", ""),
        processor=found.facts.get("processor", ""),
        test_date=date,
        year=int(year.group()) if year else None,
        nodes=_whole(found, "nodes"),
        chips=_whole(found, "chips"),
        cores=_whole(found, "cores"),
        threads=_whole(found, "threads"),
        memory_gb=found.counts.get("memory_gb"),
        levels=levels,
        overall=found.overall if found.compliant else None,
        compliant=found.compliant,
        findings=(),
        source=found.source,
    )
    return replace(made, findings=(*found.notes, *_checked(made)))


def _whole(found: Found, name: str) -> int | None:
    value = found.counts.get(name)
    return None if value is None else round(value)


def _checked(result: SpecPowerResult) -> Iterable[str]:
    """What is missing from a result, or does not agree."""
    known = {round(level.target * 100) for level in result.levels if level.watts is not None}
    lacking = [_named(t) for t in (*TARGETS, 0) if t not in known]
    if lacking:
        yield _MISSING_WATTS.format(", ".join(lacking))
    if result.compliant is False:
        yield "not compliant: SPEC publishes no score for it"
    for level in result.levels:
        if level.actual is not None and abs(level.actual - level.target) > _TARGET_OFF:
            yield f"the load reached at {_named(level.target * 100)} is {level.actual:.1%}"
    for name, values in (
        ("ssj_ops do not fall", [x.ops_s for x in result.levels if x.ops_s is not None]),
        ("watts do not fall", [x.watts for x in result.levels if x.watts is not None]),
    ):
        if any(low >= high for high, low in itertools.pairwise(values)):
            yield f"{name} with the target load throughout"
    computed = result.computed_overall
    if computed and result.overall and abs(computed / result.overall - 1) > _SCORE_OFF:
        yield f"overall {result.overall:g} ssj_ops/W is published, its levels give {computed:.4g}"


def _named(target: float) -> str:
    return "active idle" if target == 0 else f"{target:.0f} %"
