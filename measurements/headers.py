"""Foreign headers to canonical columns: units, synonyms and the user's own mapping."""

from __future__ import annotations

import difflib
from collections import Counter
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError
from measurements.quantities import UNITS, Unit, split_unit
from measurements.schema import COLUMNS, SYNONYMS, UNIT_IN_NAME

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

MOST_COLUMNS = 4096


class Renaming(NamedTuple):
    """What one foreign column becomes.

    ``factor`` converts its numbers to the canonical unit. ``unit_in_cells`` marks a column whose
    header has no unit, so that each cell must carry one ("2.10GHz").
    """

    canonical: str
    factor: float = 1.0
    unit_in_cells: bool = False


def rename_headers(
    headers: Sequence[str], mapping: Mapping[str, str], source: str
) -> dict[str, Renaming]:
    """Decide for every header that is known, or mapped, which column it becomes.

    Parameters
    ----------
    headers : sequence of str
        As read, left to right.
    mapping : mapping of str to str
        The user's own: target column (a canonical name, possibly with another unit suffix, or a
        name of the user's) to header.
    source : str
        File, for messages.

    Raises
    ------
    MeasurementError
        A header twice, a canonical column given twice, a mapped header that is not there, or far
        more columns than a runs table has.
    """
    _refuse_bad_headers(headers, source)
    mapped = {_find(header, headers, source): target for target, header in mapping.items()}
    renamings = {h: _mapped(target, h, source) for h, target in mapped.items()}
    direct = {h: r for h in headers if h not in mapped and (r := _by_name(h))}
    renamings |= direct
    taken = {r.canonical for r in renamings.values()}
    for header in headers:
        synonym = _by_synonym(header) if header not in renamings else None
        # A synonym beside the real thing is a column of the user's own.
        if synonym and synonym.canonical not in taken:
            renamings[header] = synonym
    _refuse_twice(renamings, source)
    return renamings


def nearest(name: str, known: Sequence[str]) -> str:
    """Suggest what may have been meant: " (did you mean 'host'?)", or nothing."""
    lowered = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f" (did you mean {lowered[close[0]]!r}?)" if close else ""


def shown(names: Sequence[str], most: int = 12) -> str:
    """List names for a message, the first ``most`` of them."""
    listed = ", ".join(name if len(name) <= 40 else f"{name[:37]}…" for name in names[:most])
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _refuse_bad_headers(headers: Sequence[str], source: str) -> None:
    if len(headers) > MOST_COLUMNS:
        raise MeasurementError(
            f"{source}: the header has {len(headers)} columns, a runs table has fewer than "
            f"{MOST_COLUMNS}: is this one row a run, with a header line?"
        )
    twice = [h for h, n in Counter(headers).items() if n > 1 and h]
    if twice:
        raise MeasurementError(
            f"{source}: the header names {shown(twice)} more than once: rename one of them"
        )


def _find(header: str, headers: Sequence[str], source: str) -> str:
    if header in headers:
        return header
    raise MeasurementError(
        f"{source}: --map names column {header!r}, which is not there"
        f"{nearest(header, headers)}; the columns are {shown(headers)}"
    )


def _mapped(target: str, header: str, source: str) -> Renaming:
    asked = _by_name(target)
    if asked is None:
        if hint := nearest(target, list(COLUMNS)):
            raise MeasurementError(f"{source}: --map {target}={header}: no column {target!r}{hint}")
        return Renaming(target)
    own = split_unit(header)[1]
    if own is None or own.si != UNITS.get(_unit_of(asked.canonical), own).si:
        return asked
    if asked.factor not in (1.0, own.factor):
        raise MeasurementError(
            f"{source}: --map {target}={header}: the two names carry different units; "
            f"write {asked.canonical}={header} to take the header's"
        )
    return Renaming(asked.canonical, own.factor)


def _by_name(header: str) -> Renaming | None:
    """Canonical name, or the same base with another unit: freq_mhz, "Power_W", time_ms."""
    name = header.strip().lower()
    if name in COLUMNS:
        return Renaming(name)
    base, unit = split_unit(name)
    return _with_unit(base, unit) if unit else None


def _by_synonym(header: str) -> Renaming | None:
    base, unit = split_unit(header.strip())
    name = "".join(c for c in base.lower() if c not in " -_.#")
    canonical = SYNONYMS.get(name) or (name if name in _BASES else None)
    canonical = _BASES.get(canonical or "", canonical)
    if canonical is None:
        return None
    needs = _unit_of(canonical)
    if not needs or name in UNIT_IN_NAME:
        return Renaming(canonical)
    if unit is None:
        return Renaming(canonical, unit_in_cells=True)
    return Renaming(canonical, unit.factor) if unit.si == needs else None


def _with_unit(base: str, unit: Unit) -> Renaming | None:
    canonical = f"{base.strip()}_{unit.si}"
    return Renaming(canonical, unit.factor) if canonical in COLUMNS else None


def _unit_of(canonical: str) -> str:
    suffix = canonical.rpartition("_")[2]
    return suffix if canonical in COLUMNS and COLUMNS[canonical].unit in _UNITS_SPELT else ""


_UNITS_SPELT = {"Hz", "s", "W", "B", "J", "V", "°C"}
_BASES = {name.rpartition("_")[0]: name for name in COLUMNS if _unit_of(name)}


def _refuse_twice(renamings: Mapping[str, Renaming], source: str) -> None:
    count = Counter(r.canonical for r in renamings.values())
    for canonical in (c for c, n in count.items() if n > 1):
        both = [h for h, r in renamings.items() if r.canonical == canonical]
        raise MeasurementError(
            f"{source}: columns {shown(both)} would all be {canonical}: "
            f"drop all but one, or choose with --map {canonical}=COLUMN"
        )
