"""`procure`: which of several candidates to buy for a demand, what it costs, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ppw import caveats as cv
from ppw.arguments import as_share
from ppw.curve_draws import FEWEST_DRAWS
from ppw.duels import UNDECIDED
from ppw.errors import PpwError
from ppw.procurement.candidates import gather
from ppw.procurement.crossovers import Crossovers
from ppw.procurement.model import Basis, Model
from ppw.procurement.result import Procurement
from ppw.procurement.scenario import Scenario, read_scenario, scenario_of
from ppw.procurement.sensitivities import Sensitivities, learn_next
from ppw.procurement.tables import Evaluated, inputs_table
from ppw.result import numbers_digest

if TYPE_CHECKING:
    from ppw.procurement.candidates import Candidates
    from ppw.procurement.inputs import Numbers

_NAMED = 2


def procure(
    scenario: str | Path | Mapping[str, Any],
    *,
    level: float = 0.90,
    draws: int = 2000,
    seed: int = 0,
) -> Procurement:
    """Answer a procurement scenario.

    All that is uncertain is drawn together: rates and watts of measured and projected candidates
    from the posteriors of their curves, given ranges as triangular distributions. Every candidate
    meets the same draw, so that what is common to them (electricity, the demand) makes none better.

    Parameters
    ----------
    scenario : path or mapping
        TOML file (docs/procurement.md), or a table with the same keys, whose files are looked for
        in the working directory.
    level : float
        Of the intervals.
    draws, seed : int
        Joint draws, 100 or more, and where chance starts.

    Returns
    -------
    Procurement
        The answer to a procurement scenario.

    Raises
    ------
    MeasurementError
        For runs that cannot be read.
    PpwError
        For a scenario that says what the schema does not allow, figures that are missing, or watts
        of different scope.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    as_share("interval level", level)
    if draws < FEWEST_DRAWS:
        raise PpwError(f"{draws} draws are too few to count: ask for {FEWEST_DRAWS} or more")
    asked = _read(scenario)
    candidates = gather(asked, draws=draws, seed=seed)
    model = Model(asked, candidates.servers)
    drawn = candidates.inputs.drawn(draws, seed)
    central = model.outcomes(candidates.inputs.central())
    evaluated = Evaluated(model, central, model.outcomes(drawn), level)
    figures = evaluated.figures(_units(model))
    first, *others = evaluated.cheapest()
    fits = evaluated.fits()
    allowed = fits if fits.any() else np.ones_like(fits)
    rivals = [i for i in others if allowed[i]]
    moved = Sensitivities(model, candidates.inputs, allowed, level)
    learn = _learn(evaluated, figures, candidates, first, rivals, draws, seed)
    caveats = [*candidates.caveats, *_caveats(evaluated, figures, first)]
    if not any(figure.uncertain for figure in candidates.inputs):
        caveats.append(
            "nothing is uncertain here: every figure is one number, so that the probabilities say "
            "nothing; give ranges as { value = …, low = …, high = … }, or runs"
        )
    cv.warn(caveats)
    return Procurement(
        title=asked.title,
        currency=asked.currency,
        years=asked.years,
        cheapest=evaluated.names[first],
        runner_up=evaluated.names[rivals[0]] if rivals else None,
        any_fits=bool(fits.any()),
        figures=figures,
        candidates=evaluated.candidates(),
        costs=evaluated.costs(),
        energy=evaluated.energy(),
        carbon=evaluated.carbon(),
        sensitivities=pd.DataFrame(moved.rows(first, rivals[0] if rivals else None)),
        crossovers=_crossovers(evaluated, candidates, drawn, first, rivals),
        inputs=inputs_table(candidates.inputs, level),
        learn_next=learn,
        level=level,
        draws=draws,
        seed=seed,
        caveats=tuple(caveats),
        input_digest=numbers_digest(asked.raw, candidates.digests),
        basis=Basis(model, candidates.inputs),
    )


def _read(scenario: str | Path | Mapping[str, Any]) -> Scenario:
    if isinstance(scenario, Mapping):
        return scenario_of(scenario, source="scenario", folder=Path())
    return read_scenario(scenario)


def _units(model: Model) -> dict[str, str]:
    """Unit of each figure."""
    money, unit = model.scenario.currency, model.one_unit
    rate, work = (f"{unit}/s", unit) if unit else ("of the demand", "years of the demand")
    return {
        "tco": money,
        "energy": "kWh",
        "carbon": "kg CO2e",
        "perf_per_watt": f"{unit}/J" if unit else "of the demand per W",
        "perf_per_dollar": f"{rate} per {money}",
        "work_per_cost": f"{work} per {money}",
    }


def _crossovers(
    evaluated: Evaluated,
    candidates: Candidates,
    drawn: Numbers,
    first: int,
    rivals: list[int],
) -> pd.DataFrame:
    servers = candidates.servers
    rows = []
    for rival in rivals:
        pair = Model(evaluated.model.scenario, [servers[first], servers[rival]])
        rows += Crossovers(pair, candidates.inputs, drawn, evaluated.level).rows()
    columns = ["rival", "criterion", "key", "what", "unit", "now"]
    columns += ["value", "lower", "upper", "p_tie", "beyond"]
    return pd.DataFrame(rows, columns=columns)


def _learn(
    evaluated: Evaluated,
    figures: pd.DataFrame,
    candidates: Candidates,
    first: int,
    rivals: list[int],
    draws: int,
    seed: int,
) -> tuple[str, ...]:
    """Figures that would tell most about who is cheapest, where that is undecided."""
    if not rivals or not _undecided(figures, evaluated.names[first]):
        return ()
    found = learn_next(evaluated.model, candidates.inputs, first, rivals[0], draws=draws, seed=seed)
    return tuple(f"{words} ({share:.0%} of the variance)" for words, share in found[:_NAMED])


def _undecided(figures: pd.DataFrame, name: str) -> bool:
    row = figures[(figures["candidate"] == name) & (figures["figure"] == "tco")].iloc[0]
    return bool(row["p_best"] < UNDECIDED[1])


def _caveats(evaluated: Evaluated, figures: pd.DataFrame, first: int) -> list[str]:
    said = []
    for name, outcome in zip(evaluated.names, evaluated.central, strict=True):
        if outcome.racks.reason:
            said.append(f"{name} does not fit the site: {outcome.racks.reason}")
    if _undecided(figures, evaluated.names[first]) and len(evaluated.names) > 1:
        said.append(
            "undecided: no candidate costs least with 95 % probability; the verdict says "
            "what to learn next"
        )
    totals = evaluated.carbon()
    if totals["use_kg"].notna().any() and totals["total_kg"].isna().any():
        unknown = ", ".join(totals.loc[totals["embodied_kg"].isna(), "candidate"])
        said.append(
            f"the embodied carbon of {unknown} is not known: its carbon has no total, and none is "
            "the best by carbon"
        )
    return said
