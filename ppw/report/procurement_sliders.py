"""Sliders of a procurement report: every figure that its script needs to cost the candidates anew.

The script is the model of `ppw.procurement.model` again, draw by draw. A figure that is moved is
taken as known, as `ppw.procurement.inputs.Numbers.replaced` does; all others keep their draws.
"""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from ppw.names import printable, shown_name
from ppw.procurement.scenario import SCALE
from ppw.procurement.sensitivities import YEARS, YEARS_WORDS, ends_of
from ppw.report.page import Sliders
from ppw.report.stops import nearest, stops

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fitting.regression.lines import FloatArray
    from ppw.procurement.inputs import Input, Inputs
    from ppw.procurement.model import Basis, Model
    from ppw.procurement.result import Procurement
    from ppw.procurement.server import Server

MOST_PRICES = 6
MOST_YEARS = 10
# Drawn numbers that a page carries, of all figures together: about a megabyte.
_MOST_NUMBERS = 100_000
_FEWEST_DRAWS = 200


class _Way(NamedTuple):
    """How far a figure is moved: shares of its value, inside its own bounds and these."""

    low: float
    high: float
    least: float = 0.0
    most: float = np.inf


_WAYS = {
    "site.electricity": _Way(0.0, 3.0),
    "site.pue": _Way(0.0, 2.0, 1.0),
    "demand.max_utilisation": _Way(0.0, np.inf, 0.05, 1.0),
    SCALE.key: _Way(0.25, 4.0),
}
_PRICE = _Way(0.2, 3.0)


def procurement_sliders(result: Procurement) -> Sliders | None:
    """Sliders of a report; None where the answer was read from JSON, without its model."""
    if result.basis is None:
        return None
    kept = _kept_draws(result.basis.inputs, result.draws)
    data = {
        "level": result.level,
        "currency": result.currency,
        "years": result.years,
        "draws": kept,
        **_scenario(result.basis.model),
        "servers": [_server(server, result.basis.model) for server in result.basis.model.servers],
        "figures": _figures(result.basis.inputs, result.draws, result.seed, kept),
        "sliders": [*_sliders(result.basis, result.level), _years(result.years)],
    }
    return Sliders(
        title="Other prices and sites",
        note=_note(result, kept),
        header=[
            *("candidate", "servers", "racks", "energy (kWh)", f"total cost ({result.currency})"),
            *(f"{result.level:.0%} interval", "P(least cost)"),
        ],
        script="procurement.js",
        data=json.dumps(data, separators=(",", ":"), allow_nan=False),
    )


def _kept_draws(inputs: Inputs, draws: int) -> int:
    uncertain = sum(figure.uncertain for figure in inputs)
    return min(draws, max(_FEWEST_DRAWS, _MOST_NUMBERS // max(uncertain, 1)))


def _note(result: Procurement, kept: int) -> str:
    said = (
        "A figure that is moved is taken as known; the others keep their draws, and all else on "
        "this page stays as the scenario has it."
    )
    if kept < result.draws:
        said += f" Intervals are here of the first {kept} draws of {result.draws}."
    prices = len(result.candidates)
    if prices > MOST_PRICES:
        said += f" The prices of the first {MOST_PRICES} of {prices} candidates have sliders."
    return said


def _scenario(model: Model) -> dict[str, Any]:
    scenario = model.scenario
    return {
        "workloads": [{"name": w.name, "profile": w.profile.tolist()} for w in scenario.workloads],
        "separate_pools": scenario.separate_pools,
        "spare_servers": scenario.spare_servers,
        "rack_units": scenario.rack_units,
        "max_racks": scenario.max_racks,
    }


def _server(server: Server, model: Model) -> dict[str, Any]:
    within = server.share_within_limit
    return {
        "key": server.name,
        "name": shown_name(server.name),
        "height": server.height,
        "ports": server.ports,
        "cores": server.cores or 0,
        "curve": _pieces(server),
        "share_within_limit": [within.get(w.name, 1.0) for w in model.scenario.workloads],
    }


def _pieces(server: Server) -> list[list[float]]:
    """Shape of the watts against load, 0 to 1: where each cubic piece begins, and its powers."""
    from scipy.interpolate import PchipInterpolator

    from ppw.power_load import PowerLoadCurve

    curve = server.curve
    if not isinstance(curve, PowerLoadCurve):
        return [[0.0, 0.0, 0.0, 1.0, 0.0]]
    idle, full = curve.watts(np.array([0.0, 1.0]))
    # The curve's own interpolation, of its shape in place of its watts.
    pieces = PchipInterpolator(curve.load, (curve.power - idle) / (full - idle))
    return [
        [float(start), *map(float, powers)]
        for start, powers in zip(pieces.x[:-1], pieces.c.T, strict=True)
    ]


def _figures(inputs: Inputs, draws: int, seed: int, kept: int) -> list[list[Any]]:
    """Key, value and the draws of every figure: those as base64 of little-endian doubles."""
    return [
        [f.key, f.value, _packed(f.drawn(draws, seed)[:kept]) if f.uncertain else None]
        for f in inputs
    ]


def _packed(draws: FloatArray) -> str:
    return base64.b64encode(draws.astype("<f8").tobytes()).decode()


def _sliders(basis: Basis, level: float) -> Iterator[dict[str, Any]]:
    servers = basis.model.servers[:MOST_PRICES]
    ways = _WAYS | {server.key("price"): _PRICE for server in servers}
    for key, way in ways.items():
        figure = basis.inputs[key]
        low, high = _ends(figure, way)
        at = stops(low, high, [figure.value])
        given = ends_of(figure, level)[:2] if figure.uncertain else None
        yield _slider(key, figure.words, figure.unit, at, figure.value, given)


def _ends(figure: Input, way: _Way) -> tuple[float, float]:
    """Ends of a slider; they hold the value whatever it is."""
    low = max(figure.value * way.low, way.least, figure.least)
    high = min(figure.value * way.high if figure.value else 1.0, way.most, figure.most)
    return min(low, figure.value), max(high, figure.value)


def _years(years: int) -> dict[str, Any]:
    at = [float(year) for year in range(1, max(MOST_YEARS, years) + 1)]
    return _slider(YEARS, YEARS_WORDS, "1", at, float(years), None)


def _slider(
    key: str, label: str, unit: str, at: list[float], start: float, given: Any
) -> dict[str, Any]:
    named = label if unit == "1" else f"{label} ({unit})"
    return {
        "key": key,
        "label": printable(named),
        "stops": at,
        "start": nearest(at, start),
        "range": given,
    }
