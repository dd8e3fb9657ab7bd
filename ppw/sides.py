"""The two sides of a comparison: which groups are A and B, who is whose like, whose watts match."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measurements import identity_columns
from ppw.errors import PpwError
from ppw.estimate import shown
from ppw.selection import rows_where
from ppw.table_caveats import is_known_source

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from ppw.grouping import Groups
    from ppw.prepare import Prepared

    Mask = NDArray[np.bool_]

# What a sensor sees, by how its name begins; the first that fits.
_SCOPES = (
    ("rapl:dram", "memory"),
    ("rapl:core", "cores"),
    ("rapl:pp0", "cores"),
    ("rapl:psys", "platform"),
    ("rapl", "package"),
    ("nvml", "graphics card"),
    ("meter", "wall"),
    ("wall", "wall"),
    ("pdu", "wall"),
    ("ipmi", "wall"),
    ("redfish", "wall"),
)


class Pair(NamedTuple):
    """Groups of A and B that are each other's like."""

    a: int
    b: int


class Matched(NamedTuple):
    """Pairs, the columns that they agree in, and what else tells the sides apart."""

    pairs: list[Pair]
    by: list[str]
    caveats: list[str]


def columns_to_group(
    runs: pd.DataFrame, by: Sequence[str] | None, *sides: Mapping[str, Any]
) -> list[str]:
    """Columns that tell groups apart: ``by`` or the identity columns, and those that sides name."""
    columns = list(identity_columns(runs) if by is None else by)
    named = dict.fromkeys(c for side in sides for c in side)
    if not named:
        raise PpwError("nothing tells A from B: name a column of each, such as a={'host': 'atom'}")
    return columns + [c for c in named if c not in columns]


def match(groups: Groups, a: Mapping[str, Any], b: Mapping[str, Any]) -> Matched:
    """Pair the groups of A with those of B by the columns that neither names.

    A column that has one value on either side, and another on each, describes the sides and does
    not count: an Atom has two cores and a Xeon six.
    """
    sides = [np.flatnonzero(rows_where(groups.keys, side)) for side in (a, b)]
    rest = [c for c in groups.by if c not in a and c not in b]
    described = [c for c in rest if _describes(groups.keys[c], *sides)]
    by = [c for c in rest if c not in described]
    of_a, of_b = ({_key(groups, by, g): int(g) for g in side} for side in sides)
    for side, found, which in zip(sides, (of_a, of_b), "AB", strict=True):
        if len(found) < len(side):
            raise PpwError(_several(groups, side, which, by))
    pairs = [Pair(of_a[key], of_b[key]) for key in of_a if key in of_b]
    if not pairs:
        raise PpwError(_unlike(groups, by, *sides))
    return Matched(pairs, by, _said(groups, described, by, sides, len(pairs)))


def _describes(column: pd.Series[Any], a: Any, b: Any) -> bool:
    of_a, of_b = (set(map(str, column.iloc[side])) for side in (a, b))
    return len(of_a) == len(of_b) == 1 and of_a != of_b


def _key(groups: Groups, by: Sequence[str], group: Any) -> tuple[str, ...]:
    return tuple(str(groups.keys[c].iloc[group]) for c in by)


def _several(groups: Groups, side: Any, which: str, by: Sequence[str]) -> str:
    keys = groups.keys.iloc[side]
    varying = [c for c in groups.by if c not in by and len(set(map(str, keys[c]))) > 1]
    return (
        f"{which} is several groups of the same {', '.join(by) or 'kind'}, which differ in "
        f"{', '.join(varying)}: name one of them for {which} as well"
    )


def _unlike(groups: Groups, by: Sequence[str], a: Any, b: Any) -> str:
    differ = []
    for column in by:
        of_a, of_b = ([*dict.fromkeys(map(str, groups.keys[column].iloc[s]))] for s in (a, b))
        if not set(of_a) & set(of_b):
            differ.append(f"{column} is {', '.join(of_a[:4])} in A and {', '.join(of_b[:4])} in B")
    why = "; ".join(differ) or f"no combination of {', '.join(by)} is in both"
    return f"no group of A has its like in B: {why}: name the groups, or leave columns out with by"


def _said(
    groups: Groups, described: Sequence[str], by: Sequence[str], sides: Sequence[Any], pairs: int
) -> list[str]:
    caveats = []
    for column in described:
        of_a, of_b = (groups.keys[column].iloc[side[0]] for side in sides)
        if column != "family":
            caveats.append(
                f"A and B also differ in {column}: {_value(of_a)} against {_value(of_b)}"
            )
    alone = [f"{len(s) - pairs} of {w}" for s, w in zip(sides, "AB", strict=True) if len(s) > pairs]
    if alone:
        caveats.append(f"groups without their like left out: {', '.join(alone)}")
    return caveats


def _value(value: object) -> str:
    return shown(float(value)) if isinstance(value, (int, float)) else str(value)


def scope_of(source: object) -> str | None:
    """What a power source sees, such as "package" or "wall"; None where that is not known."""
    if not is_known_source(source):
        return None
    # Calibrated watts are of what they were calibrated to: "rapl:package→meter:wt310e".
    name = str(source).rpartition("→")[2].strip().lower()
    return next((scope for begins, scope in _SCOPES if name.startswith(begins)), None)


def check_scopes(prepared: Prepared, pairs: Sequence[Pair], mixed: bool) -> list[str]:
    """Refuse watts of different scope, or say so in a caveat where ``mixed`` was asked for."""
    if "power_source" not in prepared.runs:
        return []
    sides = [_sources(prepared, [pair[i] for pair in pairs]) for i in (0, 1)]
    scopes = [{scope_of(s) for s in side} - {None} for side in sides]
    if len(scopes[0] | scopes[1]) < 2:
        return []
    a, b = (
        f"{' and '.join(sorted(map(str, scope)))} ({', '.join(sorted(source))})"
        for scope, source in zip(scopes, sides, strict=True)
    )
    if mixed:
        return [f"mixed scope, as asked for: the watts of A are of {a}, those of B of {b}"]
    raise PpwError(
        f"the watts of A are of {a}, those of B of {b}: not comparable; measure both alike, leave "
        "watts out with --metric time or throughput, or ask for --mixed-scope"
    )


def _sources(prepared: Prepared, groups: Sequence[int]) -> set[str]:
    rows = np.isin(prepared.groups.codes, groups)
    return set(prepared.runs["power_source"][rows].dropna().astype(str))
