"""JSON schema of a scenario, and a line for each thing that it does not allow."""

from __future__ import annotations

import json
import math
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, cast

from measurements.errors import MeasurementError
from measurements.table.headers import nearest
from measurements.table.units import parse_quantity
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from jsonschema.exceptions import ValidationError


FILE = "scenario.schema.json"
_MOST_SHOWN = 5
# The highest end that the schema has for a share or a rate of change.
_MOST_OF_SHARES = 5


@cache
def schema_text() -> str:
    """Return the text of the schema, as it is published."""
    return (resources.files("ppw.procurement") / FILE).read_text(encoding="utf-8")


@cache
def _schema() -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads(schema_text())
    return loaded


def resolve_node(node: Mapping[str, Any]) -> dict[str, Any]:
    """Resolve the reference of a node of the schema; its own words go first."""
    if "$ref" not in node:
        return dict(node)
    target = _schema()["$defs"][node["$ref"].rpartition("/")[2]]
    return {**resolve_node(target), **{k: v for k, v in node.items() if k != "$ref"}}


def node_at(path: Sequence[str | int]) -> dict[str, Any]:
    """Find the node that describes a path of a scenario, such as ("site", "pue")."""
    node = resolve_node(_schema())
    for step in path:
        node = _below(node, step)
    return node


def _below(node: Mapping[str, Any], step: str | int) -> dict[str, Any]:
    if isinstance(step, int):
        return resolve_node(node.get("items", {}))
    known = node.get("properties", {})
    if step in known:
        return resolve_node(known[step])
    others = node.get("additionalProperties")
    return resolve_node(others) if isinstance(others, dict) else {}


def check(table: Mapping[str, Any], source: str) -> None:
    """Check a scenario against the schema.

    Raises
    ------
    PpwError
        With all that is wrong (the first five), each with its key and what to do.
    """
    from jsonschema import Draft202012Validator

    wrong = [_sentence(where, "is not a finite number") for where in _not_finite(table, ())]
    errors = sorted(
        Draft202012Validator(_schema()).iter_errors(table), key=lambda e: list(map(str, e.path))
    )
    wrong += [text for error in errors for text in _texts(error)]
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
    """Read the shares that are texts ("20%") of a scenario, or of what stands at a path of it."""
    if isinstance(value, dict):
        return {key: with_shares(below, (*path, key)) for key, below in value.items()}
    if isinstance(value, list):
        return [with_shares(below, (*path, place)) for place, below in enumerate(value)]
    if not isinstance(value, str) or node_at(path).get("x-si") != "share":
        return value
    try:
        share = WrittenShare(parse_quantity(value, "share"))
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


def _not_finite(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, float) and not math.isfinite(value):
        yield path
    if isinstance(value, list):
        value = dict(enumerate(value))
    for step, below in value.items() if isinstance(value, dict) else ():
        yield from _not_finite(below, (*path, step))


def _texts(error: ValidationError) -> list[str]:
    """Say one violation, or several unknown or missing keys."""
    path = list(error.absolute_path)
    rule, here = str(error.validator), cast("Any", error.instance)
    schema: Any = error.schema
    wanted: Any = error.validator_value
    if rule == "additionalProperties":
        known = list(schema["properties"])
        return [_unknown(path, key, known) for key in here if key not in known]
    if rule == "required":
        missing = [key for key in wanted if key not in here]
        # jsonschema reports each missing key by itself.
        return [_missing(path, key) for key in missing if repr(key) in error.message]
    return [_sentence(path, _WRONG[rule](wanted, here))]


def _unknown(path: Sequence[str | int], key: str, known: Sequence[str]) -> str:
    hint = nearest(key, known) or f" (the keys here are {', '.join(known)})"
    return f"{key_text([*path, key])}: unknown key{hint}"


def _missing(path: Sequence[str | int], key: str) -> str:
    meaning = node_at([*path, key]).get("description", "")
    return f"{key_text([*path, key])} is missing: give {meaning or 'it'}"


def _sentence(path: Sequence[str | int], wrong: str) -> str:
    meaning = node_at(path).get("description")
    return f"{key_text(path) or 'the file'} {wrong}{f' ({meaning})' if meaning else ''}"


def _types(names: Any, value: Any) -> str:
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
    "type": _types,
    "minimum": lambda least, value: f"= {value!r} must be {least:g} or more",
    "exclusiveMinimum": lambda least, value: f"= {value!r} must be more than {least:g}",
    "maximum": lambda most, value: f"= {value!r} must be at most {most:g}{_percent(most, value)}",
    "pattern": lambda _, value: f"= {value!r} is no share: write 20% or 0.2",
    "enum": lambda known, value: (
        f"= {value!r} must be one of {', '.join(map(repr, known))}{_near(value, known)}"
    ),
    "minLength": lambda least, value: "must not be empty",
    "minItems": lambda least, value: f"must have {least} or more",
    "minProperties": lambda least, value: "must not be empty",
}


def _percent(most: float, value: float) -> str:
    """Give a hint for a share that is typed as percent: no other figure ends so low."""
    if most > _MOST_OF_SHARES or value > 100 or isinstance(value, WrittenShare):
        return ""
    return f": write {value:g}% or {value / 100:g}"


def _near(value: Any, known: Sequence[str]) -> str:
    return nearest(value, known) if isinstance(value, str) else ""
