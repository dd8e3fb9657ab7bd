"""The figures that an answer rests on: each with its unit, who says so, and how far it may be off.

All figures of a scenario are one flat table by key ("site.pue", "candidate.Atom.price"), so that
any of them can be drawn, moved or solved for without a word of its own in the model.
"""

from __future__ import annotations

import json
import math
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import NDArray

from measurements.errors import MeasurementError
from measurements.table import headers, units
from ppw.errors import PpwError

if TYPE_CHECKING:
    from jsonschema.exceptions import ValidationError

FloatArray = NDArray[np.float64]
# Who says so.
GIVEN, DEFAULT, CATALOGUE = "given", "default", "catalogue"
MEASURED, PROJECTED = "measured", "projected"
SECONDS_PER = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}


def figure_key(candidate: str, figure: str, workload: str | None = None) -> str:
    """Make the key of a candidate's figure: "candidate.NAME[.workload.W].FIGURE"."""
    middle = f"{candidate}.workload.{workload}" if workload else candidate
    return f"candidate.{middle}.{figure}"


@dataclass(frozen=True, eq=False)
class Input:
    """One figure: its value, its unit, who says so, and how far it may be off."""

    # Its place in the scenario, and what it is for people.
    key: str
    words: str
    unit: str
    value: float  # as given, or the median of ``draws``
    # "given", "default", "measured", "projected" or "catalogue", and where it was read.
    label: str
    source: str = ""
    # Ends of a given range; NaN without one.
    low: float = np.nan
    high: float = np.nan
    draws: FloatArray | None = None  # draws (n,) of a figure that was measured or projected
    # Range of other people, over which a figure that is not given is moved.
    usual: tuple[float, float] | None = None
    # What it could be at all.
    least: float = 0.0
    most: float = np.inf

    @property
    def uncertain(self) -> bool:
        """Tell whether the figure has draws or a range."""
        return self.draws is not None or self.low < self.high

    def draw(self, draws: int, seed: int) -> FloatArray:
        """Draws of the figure: its own, triangular in its range, or its value throughout."""
        if self.draws is not None:
            return self.draws
        if not self.uncertain:
            return np.full(draws, self.value)
        # By its own name, so that what else is in the scenario does not change its draws.
        rng = np.random.default_rng((seed, zlib.crc32(self.key.encode())))
        return rng.triangular(self.low, self.value, self.high, draws)


class CaseValues(dict[str, FloatArray]):
    """Values (n,) of all figures in n cases: central ones, draws, or steps of one figure."""

    def __init__(self, arrays: Mapping[str, FloatArray], n: int) -> None:
        super().__init__(arrays)
        self.n = n

    def values_or(self, key: str, default: float) -> FloatArray:
        """Return the values of a figure, or a number for all cases where there is none."""
        return self[key] if key in self else np.full(self.n, default)

    def with_values(self, values: Mapping[str, FloatArray | float]) -> CaseValues:
        """Put other values in the place of some."""
        arrays = {k: np.broadcast_to(np.asarray(v, dtype=float), self.n) for k, v in values.items()}
        return CaseValues({**self, **arrays}, self.n)

    def repeat(self, n: int) -> CaseValues:
        """Repeat a single case ``n`` times, as views."""
        return CaseValues({k: np.broadcast_to(v, n) for k, v in self.items()}, n)


class Inputs(dict[str, Input]):
    """All figures of a scenario by key."""

    def central(self) -> CaseValues:
        """Take every figure at its value: one case."""
        return CaseValues({i.key: np.array([i.value]) for i in self.values()}, 1)

    def draw(self, draws: int, seed: int, only: str | None = None) -> CaseValues:
        """Draw all figures jointly, or ``only`` one with the others at their values."""
        arrays = {
            i.key: i.draw(draws, seed) if only in (None, i.key) else np.full(draws, i.value)
            for i in self.values()
        }
        return CaseValues(arrays, draws)


def read_figures(
    table: Mapping[str, Any],
    path: Sequence[str | int],
    prefix: str,
    *,
    of: str = "",
    currency: str,
    source: str,
) -> list[Input]:
    """Read all figures of one table of a scenario: those typed in, and defaults for the others.

    ``path`` is where the table stands in the scenario, ``prefix`` what keys begin with ("site",
    "candidate.Atom"), ``of`` whose figures they are, for people ("Atom").
    """
    made = []
    for name in node_at(path)["properties"]:
        node = node_at([*path, name])
        # A figure has a unit; what is neither typed in nor has a default is no figure here.
        if "x-unit" not in node or (name not in table and "default" not in node):
            continue
        raw = table.get(name, node.get("default"))
        # A rate may be typed in per minute, hour or day.
        per_second = 1 / SECONDS_PER[table.get("per", "s")] if name == "rate" else 1.0
        value, low, high = (n * per_second for n in _read_range(raw, [*path, name], node, source))
        top = float(np.nanmax([value, high]))
        # Where two units are usual, a number far above the range of one is of the other.
        if top > node.get("x-most", np.inf) and currency in node.get("x-of", [currency]):
            raise PpwError(f"{source}: {key_text([*path, name])} = {top:g}: {node['x-doubt']}")
        words = f"{node['title']} of {of}" if of else node["title"]
        unit = node["x-unit"].replace("{currency}", currency)
        is_given = name in table
        label, said = (GIVEN, source) if is_given else (DEFAULT, str(node.get("x-source", "")))
        figure = Input(f"{prefix}.{name}", words, unit, value, label, said, low, high)
        if "x-usual" in node and not is_given:
            figure = replace(figure, usual=tuple(node["x-usual"]))
        least = float(node.get("minimum", node.get("exclusiveMinimum", 0.0)))
        made.append(replace(figure, least=least, most=float(node.get("maximum", np.inf))))
    return made


def _read_range(
    raw: Any, path: Sequence[str | int], node: Mapping[str, Any], source: str
) -> tuple[float, float, float]:
    """Read value, low and high in SI units; low and high are NaN for a single figure."""
    if not isinstance(raw, dict):
        return in_si(raw, path, node, source), np.nan, np.nan
    ends = ("value", "low", "high")
    value, low, high = (in_si(raw[end], [*path, end], node, source) for end in ends)
    if not low <= value <= high:
        raise PpwError(
            f"{source}: {key_text(path)}: value {value:g} is not between low {low:g} and high "
            f"{high:g}: give the range around it"
        )
    return value, low, high


def in_si(raw: Any, path: Sequence[str | int], node: Mapping[str, Any], source: str) -> float:
    """Read a number as it is, and a text with a unit in SI. Raises `PpwError` with the key."""
    if not isinstance(raw, str):
        return float(raw)
    try:
        number = units.parse_quantity(raw, node["x-si"])
    except MeasurementError as error:
        raise PpwError(f"{source}: {key_text(path)}: {error}") from error
    # The schema has seen to plain numbers, but cannot read a text.
    if number < 0 or (number == 0 and "exclusiveMinimum" in node):
        least = "more than 0" if "exclusiveMinimum" in node else "0 or more"
        raise PpwError(f"{source}: {key_text(path)} = {raw!r} must be {least}")
    return number


# JSON schema of a scenario, and a line for each thing that it does not allow.
FILE = "scenario.schema.json"
_MOST_SHOWN = 5
# The highest end that the schema has for a share or a rate of change.
_MOST_OF_SHARES = 5


@cache
def published_text(name: str = FILE) -> str:
    """Return the text of a file beside this one: the schema, or the template of a scenario."""
    return (resources.files("ppw.procurement") / name).read_text(encoding="utf-8")


@cache
def _schema() -> dict[str, Any]:
    return json.loads(published_text())


def resolve_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve a schema node's $ref; the node's own entries go before those of its target."""
    if "$ref" not in node:
        return dict(node)
    target = _schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return {**resolve_node(target), **{k: v for k, v in node.items() if k != "$ref"}}


def node_at(path: Sequence[str | int]) -> dict[str, Any]:
    """Find the schema node that describes a path of a scenario, as ("site", "pue")."""
    node = resolve_node(_schema())
    for step in path:
        node = _child_node(node, step)
    return node


def _child_node(node: Mapping[str, Any], step: str | int) -> dict[str, Any]:
    if isinstance(step, int):
        return resolve_node(node.get("items", {}))
    known = node.get("properties", {})
    if step in known:
        return resolve_node(known[step])
    others = node.get("additionalProperties")
    return resolve_node(others) if isinstance(others, dict) else {}


def check(table: Mapping[str, Any], source: str) -> None:
    """Check a scenario against the schema.

    Raises `PpwError` with all that is wrong (the first five), each with its key and what to do.
    """
    from jsonschema import Draft202012Validator

    wrong = [_violation(where, "is not a finite number") for where in _non_finite_paths(table, ())]
    found = Draft202012Validator(_schema()).iter_errors(table)
    errors = sorted(found, key=lambda error: list(map(str, error.path)))
    wrong += [text for error in errors for text in _violation_texts(error)]
    if not wrong:
        return
    more = f"; and {len(wrong) - _MOST_SHOWN} more" if len(wrong) > _MOST_SHOWN else ""
    raise PpwError(f"{source}: {'; '.join(wrong[:_MOST_SHOWN])}{more}")


class WrittenShare(float):
    """A share that was written as a text, which messages give back."""

    text: str

    def __repr__(self) -> str:
        """Say it as it was written."""
        return repr(self.text)


def with_shares(value: Any, path: tuple[str | int, ...] = ()) -> Any:
    """Read share texts ("20%") of a scenario as numbers, wherever the schema has a share."""
    if isinstance(value, dict):
        return {key: with_shares(below, (*path, key)) for key, below in value.items()}
    if isinstance(value, list):
        return [with_shares(below, (*path, place)) for place, below in enumerate(value)]
    if not isinstance(value, str) or node_at(path).get("x-si") != "share":
        return value
    try:
        share = WrittenShare(units.parse_quantity(value, "share"))
    except MeasurementError:
        return value
    share.text = value
    return share


def key_text(path: Sequence[str | int]) -> str:
    """Spell a key as it is written in TOML: site.pue, candidate 2: price.

    >>> key_text(("candidate", 1, "workload", "sort", "rate"))
    'candidate 2: workload.sort.rate'
    """
    if len(path) > 1 and isinstance(path[1], int):
        return f"{path[0]} {path[1] + 1}" + (f": {key_text(path[2:])}" if path[2:] else "")
    return ".".join(str(p + 1) if isinstance(p, int) else p for p in path)


def _non_finite_paths(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    if isinstance(value, list):
        value = dict(enumerate(value))
    for step, below in value.items() if isinstance(value, dict) else ():
        yield from _non_finite_paths(below, (*path, step))


def _violation_texts(error: ValidationError) -> list[str]:
    """Texts on one violation of the schema: one for each unknown or missing key."""
    path = list(error.absolute_path)
    rule, here = str(error.validator), cast("Any", error.instance)
    schema: Any = error.schema
    wanted: Any = error.validator_value
    if rule == "additionalProperties":
        known = list(schema["properties"])
        every = f" (the keys here are {', '.join(known)})"
        return [
            f"{key_text([*path, key])}: unknown key{headers.nearest(key, known) or every}"
            for key in here
            if key not in known
        ]
    if rule == "required":
        # jsonschema reports each missing key by itself.
        missing = [key for key in wanted if key not in here and repr(key) in error.message]
        meanings = [node_at([*path, key]).get("description") or "it" for key in missing]
        both = zip(missing, meanings, strict=True)
        return [f"{key_text([*path, key])} is missing: give {meaning}" for key, meaning in both]
    return [_violation(path, _WRONG[rule](wanted, here))]


def _violation(path: Sequence[str | int], wrong: str) -> str:
    """Say what is wrong at a key of the scenario, with the meaning that the schema gives it."""
    meaning = node_at(path).get("description")
    return f"{key_text(path) or 'the file'} {wrong}{f' ({meaning})' if meaning else ''}"


def _wrong_type_text(names: Any, value: Any) -> str:
    listed = [names] if isinstance(names, str) else names
    words = " or ".join(_TYPES[name] for name in listed)
    return f"= {value!r} must be {words}"


_TYPES = {
    "number": "a number",
    "integer": "a whole number",
    "string": "a text",
    "object": "a table",
    "array": "a list",
    "boolean": "true or false",
}
_WRONG: dict[str, Callable[[Any, Any], str]] = {
    "type": _wrong_type_text,
    "minimum": lambda least, value: f"= {value!r} must be {least:g} or more",
    "exclusiveMinimum": lambda least, value: f"= {value!r} must be more than {least:g}",
    "maximum": lambda most, value: f"= {value!r} must be at most {most:g}{_percent(most, value)}",
    "pattern": lambda _, value: f"= {value!r} is no share: write 20% or 0.2",
    "enum": lambda known, value: (
        f"= {value!r} must be one of {', '.join(map(repr, known))}"
        f"{headers.nearest(value, known) if isinstance(value, str) else ''}"
    ),
    "minLength": lambda least, value: "must not be empty",
    "minItems": lambda least, value: f"must have {least} or more",
    "minProperties": lambda least, value: "must not be empty",
}


def _percent(most: float, value: float) -> str:
    """Hint to write 20% or 0.2 where a share looks typed as percent; "" for other figures."""
    if most > _MOST_OF_SHARES or value > 100 or isinstance(value, WrittenShare):
        return ""
    return f": write {value:g}% or {value / 100:g}"
