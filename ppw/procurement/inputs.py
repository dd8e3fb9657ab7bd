"""The figures that an answer rests on: each with its unit, who says so, and how far it may be off.

All figures of a scenario are one flat table by key ("site.pue", "candidate.Atom.price"), so that
any of them can be drawn, moved or solved for without a word of its own in the model.
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from measurements.errors import MeasurementError
from measurements.table.units import parse_quantity
from ppw.errors import PpwError
from ppw.procurement.scenario_schema import key_text, node_at

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from fitting.regression.lines import FloatArray

# Who says so.
GIVEN, DEFAULT, MEASURED, PROJECTED, CATALOGUE = (
    *("given", "default", "measured", "projected", "catalogue"),
)
SECONDS_PER = {"s": 1.0, "min": 60.0, "h": 3600.0, "day": 86400.0}


def figure_key(candidate: str, figure: str, workload: str | None = None) -> str:
    """Spell the key of a candidate's figure."""
    middle = f"{candidate}.workload.{workload}" if workload else candidate
    return f"candidate.{middle}.{figure}"


@dataclass(frozen=True, eq=False)
class Input:
    """One figure: its value, its unit, who says so, and how far it may be off."""

    # Its place in the scenario, and what it is for people.
    key: str
    words: str
    unit: str
    # As given, or the median of ``draws``.
    value: float
    # "given", "default", "measured", "projected" or "catalogue", and where it was read.
    label: str
    source: str = ""
    # Ends of a given range; NaN without one.
    low: float = np.nan
    high: float = np.nan
    # Draws (n,) of a figure that was measured or projected.
    draws: FloatArray | None = None
    # What it could be at all.
    least: float = 0.0
    most: float = np.inf

    @property
    def uncertain(self) -> bool:
        """Tell whether draws of it differ."""
        return self.draws is not None or self.low < self.high

    def draw(self, draws: int, seed: int) -> FloatArray:
        """Draw it: (draws,). A given range is triangular, most likely at ``value``."""
        if self.draws is not None:
            return self.draws
        if not self.uncertain:
            return np.full(draws, self.value)
        # By its own name, so that what else is in the scenario does not change its draws.
        rng = np.random.default_rng((seed, zlib.crc32(self.key.encode())))
        return rng.triangular(self.low, self.value, self.high, draws)

    def scaled(self, factor: float) -> Input:
        """Multiply by an exact positive number."""
        draws = None if self.draws is None else self.draws * factor
        ends = self.low * factor, self.high * factor
        return replace(self, value=self.value * factor, low=ends[0], high=ends[1], draws=draws)


class CaseValues:
    """Values of all figures in some number of cases: central ones, draws, or steps of one figure.

    ``numbers[key]`` is a (n,) array.
    """

    def __init__(self, arrays: Mapping[str, FloatArray], n: int) -> None:
        self._arrays, self.n = dict(arrays), n

    def __getitem__(self, key: str) -> FloatArray:
        return self._arrays[key]

    def __contains__(self, key: str) -> bool:
        return key in self._arrays

    def get(self, key: str, default: float) -> FloatArray:
        """Return the values of a figure, or a number for all cases where there is none."""
        return self._arrays[key] if key in self._arrays else np.full(self.n, default)

    def first(self, *keys: str) -> FloatArray:
        """Return the values of the first of these keys that there is."""
        return self[next(key for key in keys if key in self)]

    def with_values(self, values: Mapping[str, FloatArray | float]) -> CaseValues:
        """Put other values in the place of some."""
        arrays = {k: np.broadcast_to(np.asarray(v, dtype=float), self.n) for k, v in values.items()}
        return CaseValues({**self._arrays, **arrays}, self.n)

    def repeat(self, n: int) -> CaseValues:
        """Repeat a single case ``n`` times."""
        return CaseValues({k: np.broadcast_to(v, n) for k, v in self._arrays.items()}, n)


class Inputs:
    """All figures of a scenario by key."""

    def __init__(self, inputs: Iterable[Input]) -> None:
        self._by_key = {i.key: i for i in inputs}

    def __getitem__(self, key: str) -> Input:
        return self._by_key[key]

    def __contains__(self, key: str) -> bool:
        return key in self._by_key

    def __iter__(self) -> Iterator[Input]:
        return iter(self._by_key.values())

    def with_(self, more: Iterable[Input]) -> Inputs:
        """Add figures; a later one of the same key replaces an earlier."""
        return Inputs([*self, *more])

    def central(self) -> CaseValues:
        """Take every figure at its value: one case."""
        return CaseValues({i.key: np.array([i.value]) for i in self}, 1)

    def draw(self, draws: int, seed: int, only: str | None = None) -> CaseValues:
        """Draw all figures jointly, or ``only`` one with the others at their values."""
        arrays = {
            i.key: i.draw(draws, seed) if only in (None, i.key) else np.full(draws, i.value)
            for i in self
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

    Parameters
    ----------
    table : mapping
    path : sequence of str and int
        Where it stands in the scenario.
    prefix : str
        What keys begin with: "site", "candidate.Atom".
    of : str
        Whose figures they are, for people: "Atom".
    currency, source : str
    """
    made = []
    for name, node in _figures_at(path).items():
        if name not in table and "default" not in node:
            continue
        at = [*path, name]
        value, low, high = _numbers(table.get(name, node.get("default")), at, node, source)
        words = f"{node['title']} of {of}" if of else node["title"]
        unit = node["x-unit"].replace("{currency}", currency)
        label = GIVEN if name in table else DEFAULT
        least = node.get("minimum", node.get("exclusiveMinimum", 0.0))
        most = node.get("maximum", np.inf)
        said = source if label == GIVEN else ""
        figure = Input(f"{prefix}.{name}", words, unit, value, label, said, low, high)
        figure = replace(figure, least=float(least), most=float(most))
        if name == "rate":
            figure = figure.scaled(1 / SECONDS_PER[table.get("per", "s")])
        made.append(figure)
    return made


def _figures_at(path: Sequence[str | int]) -> dict[str, dict[str, Any]]:
    nodes = {name: node_at([*path, name]) for name in node_at(path)["properties"]}
    return {name: node for name, node in nodes.items() if "x-unit" in node}


def _numbers(
    raw: Any, path: Sequence[str | int], node: Mapping[str, Any], source: str
) -> tuple[float, float, float]:
    if not isinstance(raw, dict):
        return in_si(raw, path, node, source), np.nan, np.nan
    value, low, high = (
        in_si(raw[end], [*path, end], node, source) for end in ("value", "low", "high")
    )
    if not low <= value <= high:
        raise PpwError(
            f"{source}: {key_text(path)}: value {value:g} is not between low {low:g} and high "
            f"{high:g}: give the range around it"
        )
    return value, low, high


def in_si(raw: Any, path: Sequence[str | int], node: Mapping[str, Any], source: str) -> float:
    """Read one figure in its SI unit; texts carry a unit. Raises `PpwError` with the key."""
    if not isinstance(raw, str):
        return float(raw)
    try:
        number = parse_quantity(raw, node["x-si"])
    except MeasurementError as error:
        raise PpwError(f"{source}: {key_text(path)}: {error}") from error
    # The schema has seen to plain numbers, but cannot read a text.
    if number < 0 or (number == 0 and "exclusiveMinimum" in node):
        least = "more than 0" if "exclusiveMinimum" in node else "0 or more"
        raise PpwError(f"{source}: {key_text(path)} = {raw!r} must be {least}")
    return number
