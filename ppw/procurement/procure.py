"""`procure`: which of several candidates to buy for a demand, what it costs, and how surely."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from ppw.decision.ratios import UNDECIDED
from ppw.errors import PpwError
from ppw.procurement import decision
from ppw.procurement.candidates import Candidates, gather
from ppw.procurement.cost_model import FIGURES, PARTS, Basis, Model
from ppw.procurement.result import Procurement
from ppw.procurement.scenario import read_scenario, scenario_of
from ppw.projection.answers import FEWEST_DRAWS
from ppw.results import caveats as cv
from ppw.results.arguments import as_share
from ppw.results.result import numbers_digest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray
    from ppw.procurement.cost_model import CandidateOutcome
    from ppw.procurement.inputs import CaseValues, Input, Inputs

    Mask = NDArray[np.bool_]


# The tables of the answer: parts that add up, and figures with their interval and probability.
#
# Money is rounded to the cent, energy and carbon to a tenth of a kWh and of a kg, part by part; a
# total is the sum of the rounded parts, so that every printed column adds up.


ENERGY_PARTS = ("servers_kwh", "network_kwh", "facility_kwh")
CARBON_PARTS = ("use_kg", "embodied_kg")
_DECIMALS = {"tco": 2, "total_kwh": 1, "total_kg": 1}
_TOTALS = {"tco": "tco", "energy": "total_kwh", "carbon": "total_kg"}


@dataclass(frozen=True, eq=False)
class Evaluation:
    """All candidates at the values of all figures, and in joint draws of them."""

    model: Model
    central: Sequence[CandidateOutcome]
    draws: Sequence[CandidateOutcome]
    level: float

    @property
    def names(self) -> list[str]:
        """Names of the candidates."""
        return [server.name for server in self.model.servers]

    def fits(self) -> Mask:
        """Mark the candidates that fit the site, at the values: (candidates,)."""
        return np.array([outcome.racks.fits[0] > 0 for outcome in self.central])

    def cheapest(self) -> list[int]:
        """Sort candidates by their cost at the values: those that fit the site first."""
        costs = [outcome.tco()[0] for outcome in self.central]
        fits = self.fits()
        return sorted(range(len(costs)), key=lambda i: (not fits[i], costs[i]))

    def costs(self) -> pd.DataFrame:
        """Tabulate the present value of every part of the cost, and ``tco``."""
        parts = [{p: o.money[p][0] for p in PARTS} for o in self.central]
        return self._adding_up(parts, "tco")

    def energy(self) -> pd.DataFrame:
        """Tabulate the kWh of servers, network and the rest of the site, and ``total_kwh``."""
        parts = [
            dict(zip(ENERGY_PARTS, (part.sum() for part in o.energy), strict=True))
            for o in self.central
        ]
        return self._adding_up(parts, "total_kwh")

    def carbon(self) -> pd.DataFrame:
        """Tabulate the kg CO2e of use and of making, and ``total_kg``; NaN where not known."""
        parts = [
            dict(zip(CARBON_PARTS, (o.carbon.use.sum(), o.carbon.embodied[0]), strict=True))
            for o in self.central
        ]
        return self._adding_up(parts, "total_kg")

    def _adding_up(self, rows: Sequence[Mapping[str, float]], total: str) -> pd.DataFrame:
        parts = pd.DataFrame(rows).astype(float).round(_DECIMALS[total])
        # What is 0 less a share of nothing is 0.
        parts = parts + 0.0
        sums = parts.sum(axis=1, skipna=False).round(_DECIMALS[total])
        table = parts.assign(**{total: sums})
        table.insert(0, "candidate", self.names)
        return table

    def figures(self, units: Mapping[str, str]) -> pd.DataFrame:
        """Tabulate one row a candidate and figure, as `ppw.procurement.result` declares it."""
        totals = {
            figure: table[column].to_numpy()
            for (figure, column), table in zip(
                _TOTALS.items(), (self.costs(), self.energy(), self.carbon()), strict=True
            )
        }
        fits = self._fits_by_draw()
        central, drawn = ([o.figures() for o in some] for some in (self.central, self.draws))
        rows = []
        for figure, more in FIGURES.items():
            draws = np.stack([d[figure] for d in drawn])
            if np.isnan(draws).all():
                continue
            shares = decision.share_best(draws, fits, more)
            for i, name in enumerate(self.names):
                value = totals[figure][i] if figure in totals else central[i][figure][0]
                lower, upper = self._interval(draws[i])
                rows.append((name, figure, units[figure], value, lower, upper, shares[i]))
        columns = ["candidate", "figure", "unit", "value", "lower", "upper", "p_best"]
        return pd.DataFrame(rows, columns=columns)

    def candidates(self) -> pd.DataFrame:
        """Tabulate servers, racks and power: one row a candidate."""
        front = self._front().mean(axis=1)
        rows = [self._candidate(i) | {"p_on_front": share} for i, share in enumerate(front)]
        return pd.DataFrame(rows)

    def _candidate(self, i: int) -> dict[str, Any]:
        one, many = self.central[i], self.draws[i]
        servers, racks = self._ends(many.servers), self._ends(many.racks.racks)
        of_pools = ("by_rate", "by_memory", "spare")
        return {
            "candidate": self.names[i],
            "servers": one.servers[0],
            "servers_lower": servers[0],
            "servers_upper": servers[1],
            **{name: sum(getattr(pool, name)[0] for pool in one.pools) for name in of_pools},
            "racks": one.racks.racks[0],
            "racks_lower": racks[0],
            "racks_upper": racks[1],
            "per_rack": one.racks.per_rack[0],
            "peak_power_w": one.racks.peak_power[0],
            "mean_load": one.mean_load()[0],
            "at_start": round(float(one.at_start[0]), 2),
            "fits": bool(one.racks.fits[0]),
            "p_fits": float(many.racks.fits.mean()),
            "why_not": one.racks.reason,
        }

    def _front(self) -> Mask:
        """Mark who is beaten by nobody in cost and carbon, or energy where carbon is not known."""
        second = "carbon" if self.has_carbon() else "energy"
        drawn = [o.figures() for o in self.draws]
        costs = np.stack([[d[figure] for d in drawn] for figure in ("tco", second)])
        return decision.on_front(costs, self._fits_by_draw())

    def has_carbon(self) -> bool:
        """Tell whether the carbon of every candidate is known."""
        return bool(self.carbon()["total_kg"].notna().all())

    def _fits_by_draw(self) -> Mask:
        return np.stack([o.racks.fits for o in self.draws]) > 0

    def _interval(self, draws: FloatArray) -> tuple[float, float]:
        """Find the interval of a figure; none where nothing in it is uncertain."""
        return self._ends(draws) if np.ptp(draws) > 0 else (np.nan, np.nan)

    def _ends(self, draws: FloatArray) -> tuple[float, float]:
        lower, upper = np.quantile(draws, [0.5 - self.level / 2, 0.5 + self.level / 2])
        return float(lower), float(upper)


def inputs_table(inputs: Inputs, level: float) -> pd.DataFrame:
    """Tabulate every figure: who says so, and between what it is drawn."""
    return pd.DataFrame([_input_row(figure, *decision.ends_of(figure, level)) for figure in inputs])


def _input_row(figure: Input, low: float, high: float, kind: str) -> dict[str, Any]:
    has_range = kind in ("drawn", "given")
    return {
        "key": figure.key,
        "what": figure.words,
        "unit": figure.unit,
        "value": figure.value,
        "low": low if has_range else np.nan,
        "high": high if has_range else np.nan,
        "label": figure.label,
        "source": figure.source,
    }


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
    if isinstance(scenario, Mapping):
        asked = scenario_of(scenario, source="scenario", folder=Path())
    else:
        asked = read_scenario(scenario)
    candidates = gather(asked, draws=draws, seed=seed)
    model = Model(asked, candidates.servers)
    drawn = candidates.inputs.draw(draws, seed)
    central = model.outcomes(candidates.inputs.central())
    evaluated = Evaluation(model, central, model.outcomes(drawn), level)
    figures = evaluated.figures(_units(model))
    first, *others = evaluated.cheapest()
    fits = evaluated.fits()
    allowed = fits if fits.any() else np.ones_like(fits)
    rivals = [i for i in others if allowed[i]]
    runner_up = rivals[0] if rivals else None
    moves = decision.sensitivity_rows(model, candidates.inputs, allowed, level, first, runner_up)
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
        runner_up=None if runner_up is None else evaluated.names[runner_up],
        any_fits=bool(fits.any()),
        figures=figures,
        candidates=evaluated.candidates(),
        costs=evaluated.costs(),
        energy=evaluated.energy(),
        carbon=evaluated.carbon(),
        sensitivities=pd.DataFrame(moves),
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


def _units(model: Model) -> dict[str, str]:
    """Name the unit of each figure."""
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
    evaluated: Evaluation,
    candidates: Candidates,
    drawn: CaseValues,
    first: int,
    rivals: list[int],
) -> pd.DataFrame:
    servers = candidates.servers
    rows = []
    for rival in rivals:
        pair = Model(evaluated.model.scenario, [servers[first], servers[rival]])
        rows += decision.Crossovers(pair, candidates.inputs, drawn, evaluated.level).rows()
    columns = ["rival", "criterion", "key", "what", "unit", "now"]
    columns += ["value", "lower", "upper", "p_tie", "beyond"]
    return pd.DataFrame(rows, columns=columns)


def _learn(
    evaluated: Evaluation,
    figures: pd.DataFrame,
    candidates: Candidates,
    first: int,
    rivals: list[int],
    draws: int,
    seed: int,
) -> tuple[str, ...]:
    """Name the figures that would tell most about who is cheapest, where that is undecided."""
    if not rivals or not _is_undecided(figures, evaluated.names[first]):
        return ()
    pair = first, rivals[0]
    found = decision.learn_next(evaluated.model, candidates.inputs, *pair, draws=draws, seed=seed)
    return tuple(f"{words} ({share:.0%} of the variance)" for words, share in found[:_NAMED])


def _is_undecided(figures: pd.DataFrame, name: str) -> bool:
    row = figures[(figures["candidate"] == name) & (figures["figure"] == "tco")].iloc[0]
    return bool(row["p_best"] < UNDECIDED[1])


def _caveats(evaluated: Evaluation, figures: pd.DataFrame, first: int) -> list[str]:
    said = []
    for name, outcome in zip(evaluated.names, evaluated.central, strict=True):
        if outcome.racks.reason:
            said.append(f"{name} does not fit the site: {outcome.racks.reason}")
    if _is_undecided(figures, evaluated.names[first]) and len(evaluated.names) > 1:
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
