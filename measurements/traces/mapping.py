"""Which columns of a foreign table are time, place, size and operation of a request."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from measurements.errors import MeasurementError
from measurements.header_units import mapped_factor, unit_in_words
from measurements.headers import nearest, shown
from measurements.quantities import Unit, split_unit
from measurements.traces.requests import BLOCK_BYTES, OPERATIONS, Array

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

# What a column may stand for, and the unit it is in where its header says none.
TARGETS = {
    "time_s": "s",
    "stream": "",
    "device": "",
    "lbn": "block",
    "offset_bytes": "bytes",
    "size_bytes": "bytes",
    "blocks": "block",
    "op": "",
    "latency_s": "s",
    "file": "",
}
# What the world calls them; those with a unit need one in the header, as "ts_us", "Length (KB)".
_SYNONYMS = {
    **dict.fromkeys(("operation", "rw", "r/w"), "op"),
    **dict.fromkeys(("lba", "sector", "offset_sectors", "offset_blocks"), "lbn"),
    **dict.fromkeys(("size_sectors", "size_blocks"), "blocks"),
}
_BASE_SYNONYMS = {
    **dict.fromkeys(("ts", "timestamp", "at"), "time"),
    **dict.fromkeys(("length", "len", "request size"), "size"),
    **dict.fromkeys(("address", "position"), "offset"),
    "response time": "latency",
}
_IN_SECTORS = re.compile(r".*(^|[\W_])sectors?[\W_]*", re.IGNORECASE)
_NEEDED = (("time_s",), ("lbn", "offset_bytes"), ("size_bytes", "blocks"), ("op",))
_WORDS = {
    0: ("r", "read", "rd", "diskread"),
    1: ("w", "write", "wr", "diskwrite"),
    2: ("d", "discard", "trim", "unmap"),
    3: ("f", "flush", "sync"),
}
OPERATION_WORDS = {word: code for code, words in _WORDS.items() for word in words}


class Column(NamedTuple):
    """A column of the file: its header, and the factor to the target's unit."""

    header: str
    target: str
    factor: float


class Columns(NamedTuple):
    """The columns that make a trace, by target, and the codes that stand for operations."""

    by_target: dict[str, Column]
    operations: dict[str, int]


def choose(
    headers: Sequence[str], mapping: Mapping[str, str], source: str, *, own: bool = False
) -> Columns:
    """Choose the columns of a trace.

    Parameters
    ----------
    headers : sequence of str
        Of the file.
    mapping : mapping of str to str
        Target (a key of `TARGETS`) to header. ``op`` may say which codes are a read and a write:
        ``Type:1/0``.
    source : str
        File, for messages.
    own : bool
        Whether the file is this project's own, where op is a number as in its columns.

    Raises
    ------
    MeasurementError
    """
    operations = dict(OPERATION_WORDS)
    if own:
        operations |= {str(code): code for code in range(len(OPERATIONS))}
    found: dict[str, Column] = {}
    for named, header in mapping.items():
        target = _target(named, header, source)
        if target in found:
            raise MeasurementError(f"{source}: --map names two columns for {target}: choose one")
        if target == "op":
            header, codes = _codes(header, headers, source)
            operations |= codes
        if header not in headers:
            raise MeasurementError(
                f"{source}: --map names column {header!r}, which is not there"
                f"{nearest(header, headers)}; the columns are {shown(headers)}"
            )
        found[target] = _mapped(named, header, target, source)
    # A column by its own name comes before one that is often called so.
    for header in sorted(headers, key=lambda h: h.strip().lower() not in TARGETS):
        known = _by_name(header)
        if known and not _taken(known, found):
            found[known] = Column(header, known, _factor(header, known) or 1.0)
    _refuse_lacking(found, headers, source)
    return Columns(found, operations)


def _refuse_lacking(found: Mapping[str, Column], headers: Sequence[str], source: str) -> None:
    lacking = [names for names in _NEEDED if not any(target in found for target in names)]
    if lacking:
        wanted = ", ".join(" or ".join(names) for names in lacking)
        named = " ".join(f"--map {names[0]}=COLUMN" for names in lacking)
        raise MeasurementError(
            f"{source}: no column is {wanted}: name {'it' if len(lacking) == 1 else 'them'} with "
            f"{named}; the columns are {shown(headers)}"
        )


def _codes(given: str, headers: Sequence[str], source: str) -> tuple[str, dict[str, int]]:
    header, colon, codes = given.rpartition(":")
    if not colon or given in headers:
        return given, {}
    read, slash, write = codes.partition("/")
    if not slash or not read or not write or read == write:
        raise MeasurementError(
            f"{source}: --map op={given}: give the codes of a read and a write, as in "
            f"op={header}:0/1"
        )
    return header, {read.strip().lower(): 0, write.strip().lower(): 1}


def _taken(target: str, found: Mapping[str, Column]) -> bool:
    return any(target in group and set(group) & set(found) for group in _NEEDED) or target in found


def _by_name(header: str) -> str | None:
    name = header.strip().lower()
    if name in TARGETS or name in _SYNONYMS:
        return _SYNONYMS.get(name, name)
    base, unit = split_unit(header.strip())
    plain = base.strip().lower().replace("_", " ")
    target = f"{_BASE_SYNONYMS.get(plain, plain)}_{unit.si}" if unit else ""
    return target if target in TARGETS else None


def _target(named: str, header: str, source: str) -> str:
    """Column that --map names, in whatever unit: time_ms is time_s."""
    target = _by_name(named)
    if target is None:
        hint = nearest(named, list(TARGETS)) or f": choose among {', '.join(TARGETS)}"
        raise MeasurementError(f"{source}: --map {named}={header}: no column {named!r}{hint}")
    return target


def _mapped(named: str, header: str, target: str, source: str) -> Column:
    wanted, plain = TARGETS[target], split_unit(header.strip())[1]
    own = _factor(header, target, mapped=True)
    if own is None and plain and wanted and header.rstrip().endswith((")", "]")):
        raise MeasurementError(
            f"{source}: --map {named}={header}: the column is not in {wanted}, by its header"
        )
    asked = _factor(named, target) or 1.0
    return Column(header, target, mapped_factor(named, header, asked, own, target, source))


def _factor(header: str, target: str, *, mapped: bool = False) -> float | None:
    """Factor from the unit in a header to the target's own; None where it has none of the kind."""
    wanted = TARGETS[target]
    if not wanted:
        return None
    si = "bytes" if wanted == "block" else wanted
    unit = split_unit(header.strip())[1]
    if mapped and (unit is None or unit.si != si):
        sectors = si == "bytes" and _IN_SECTORS.fullmatch(header)
        unit = Unit(si, BLOCK_BYTES) if sectors else unit_in_words(header, si)
    if unit is None or unit.si != si:
        return None
    return unit.factor / BLOCK_BYTES if wanted == "block" else unit.factor


def ticks_per_s(column: Column) -> int:
    """How finely a time column counts: 1000 a second for milliseconds; 1 where it is in s."""
    return round(1 / column.factor) if column.factor < 1 else 1


def bytes_of(values: Array, column: Column) -> Array:
    """Values of a column of places or sizes in bytes; refuses nothing."""
    factor = column.factor * (BLOCK_BYTES if TARGETS[column.target] == "block" else 1)
    if values.dtype.kind == "f" or not float(factor).is_integer():
        scaled = np.rint(values * factor)
        return np.where(np.abs(scaled) < 2**63, scaled, -1).astype(np.int64)
    whole = int(factor)
    if values.max(initial=0) <= (most := (2**63 - 1) // whole):
        within: Array = values * np.int64(whole) if whole != 1 else values
        return within
    far = values > most
    result: Array = np.where(far, np.int64(-1), values * np.int64(whole))
    return result
