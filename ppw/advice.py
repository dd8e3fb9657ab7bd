"""What a plan says of one group: the measurement to make next, where it leads, and in words why."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.bayes.next_measurement import (
    Candidate,
    Chances,
    Outlook,
    attainable,
    look_ahead,
    outlook,
    present,
)
from fitting.bayes.steps import SAME_STEP
from ppw.errors import PpwError
from ppw.estimate import shown

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.bayes.next_measurement import Known

# Outcomes drawn for a candidate, for each later measurement of a plan, and for all steps together,
# where candidates share no random numbers that would make differences of their noise.
_DRAWS, _DRAWS_AHEAD, _DRAWS_IN_ALL = 32, 12, 128
# A plan that looks further ahead than this many runs says no more than "many".
_MOST_AHEAD = 10
# A goal that fewer of the outcomes reach, with the most repeats at every step, is out of reach.
_HOPE = 0.1

GROUP_COLUMNS = (
    "status",
    "half_width_pct",
    "next_freq_hz",
    "next_runs",
    "next_minutes",
    "next_half_width_pct",
    "runs_to_goal",
    "minutes_to_goal",
    "attainable_half_width_pct",
    "form_pct",
    "noise_pct",
    "advice",
)
CANDIDATE_COLUMNS = (
    "rank",
    "freq_hz",
    "runs",
    "minutes",
    "half_width_pct",
    "chance",
    "at_target",
    "recommended",
)


class Asked(NamedTuple):
    """Arguments of `plan`, read."""

    freq_hz: float
    within_pct: float
    level: float
    target_runs: int
    run_time_minutes: float | None
    budget_minutes: float | None
    seed: int
    repeats: list[int]
    at_target: bool

    def check(self) -> None:
        """Refuse a budget that nothing can be made of. Raises `PpwError`."""
        if not self.repeats:
            raise PpwError("no number of repeats was given; the default is 1, 2, 3, 5")
        if self.budget_minutes is None:
            return
        if self.run_time_minutes is None:
            raise PpwError("a budget needs what a run takes: give it with --run-time")
        if self.run_time_minutes > self.budget_minutes:
            raise PpwError(
                f"a run of {self.run_time_minutes:g} min does not fit into the budget of "
                f"{self.budget_minutes:g} min: give more, or take a shorter run"
            )

    @property
    def goal(self) -> float:
        """Half width wanted, of the logarithm."""
        return math.log1p(self.within_pct / 100)

    @property
    def most_runs(self) -> float:
        """Runs that the budget allows."""
        if self.budget_minutes is None or self.run_time_minutes is None:
            return math.inf
        return math.floor(self.budget_minutes / self.run_time_minutes + 1e-9)

    def is_target(self, frequency: float) -> bool:
        """Tell whether a frequency (Hz) is the one asked for."""
        return abs(frequency / self.freq_hz - 1) < SAME_STEP

    def candidates(self, steps: Sequence[float]) -> list[Candidate]:
        """Measurements to choose from at these steps (Hz), within the budget."""
        allowed = [f for f in steps if self.at_target or not self.is_target(f)]
        if not allowed:
            raise PpwError(
                f"the only step is the frequency asked for, {shown(self.freq_hz, 'Hz')}: name "
                "others in steps (--steps), or allow to measure there"
            )
        return [Candidate(f, r) for f in allowed for r in self.repeats if r <= self.most_runs]

    def minutes(self, runs: float) -> float:
        """What runs take (min); NaN where it is not known."""
        return math.nan if self.run_time_minutes is None else runs * self.run_time_minutes

    def chances(self, draws: int, quantities: int) -> list[Chances]:
        """Random numbers for the outcomes of each quantity."""
        return [Chances.of(draws, (self.seed, i)) for i in range(quantities)]


@dataclass(frozen=True)
class GroupPlan:
    """Plan of one group; half widths are of the logarithm."""

    group: int
    asked: Asked
    now: float
    outlook: Outlook
    best: int
    stages: Sequence[tuple[Candidate, float]]
    floor: tuple[float, float, float]
    status: str

    @classmethod
    def of(
        cls, group: int, known: Sequence[Known], candidates: list[Candidate], asked: Asked
    ) -> GroupPlan:
        """Judge the candidates of one group and look ahead; at least one candidate is given."""
        now = float(present(known, asked.level)[0])
        first = outlook(known, candidates, asked.level, asked.chances(_DRAWS, len(known)))
        fewest, most = (end(c.runs for c in candidates) for end in (min, max))
        in_all = asked.chances(_DRAWS_IN_ALL, len(known))
        everywhere = [c for c in candidates if c.runs == most]
        least, form, noise = attainable(known, everywhere, asked.level, in_all)
        hopeless = (least <= asked.goal).mean() < _HOPE and first.expected.min() > asked.goal
        stages = look_ahead(
            known,
            first,
            [c for c in candidates if c.runs in (fewest, most)],
            asked.goal,
            asked.level,
            asked.chances(_DRAWS_AHEAD, len(known)),
            asked.most_runs,
            # One stage says what to measure next, wherever the goal is.
            1 if hopeless else _MOST_AHEAD,
        )
        best = first.candidates.index(stages[0].candidate) if stages else -1
        # More measurements leave no more than the best of them; what says else is chance.
        floor = (float(min(least.mean(), first.expected.min())), form, noise)
        made = cls(group, asked, now, first, best, stages, floor, "")
        return replace(made, status=made._status(hopeless))

    def _status(self, hopeless: bool) -> str:
        if self.now <= self.asked.goal:
            return "there"
        if self.stages[-1][1] <= self.asked.goal:
            return "reach"
        if hopeless:
            return "cannot"
        return "budget" if len(self.stages) < _MOST_AHEAD else "far"

    def runs(self) -> int:
        """Runs of the whole plan."""
        return sum(candidate.runs for candidate, _ in self.stages)

    def row(self) -> dict[str, Any]:
        """Row of ``Plan.groups``."""
        reached = self.status in ("there", "reach")
        step, after = self.stages[0] if self.stages else (Candidate(math.nan, 0), math.nan)
        runs = float(step.runs) if self.stages else math.nan
        total = float(self.runs()) if reached else math.nan
        values = (
            self.status,
            pct(self.now),
            step.frequency,
            runs,
            self.asked.minutes(runs),
            pct(after),
            total,
            self.asked.minutes(total),
            pct(self.floor[0]),
            *self._parts(),
            self.advice(),
        )
        return dict(zip(GROUP_COLUMNS, values, strict=True))

    def rows(self) -> list[dict[str, Any]]:
        """Rows of ``Plan.table``: the recommended first, then by what is expected."""
        expected = self.outlook.expected
        order = np.lexsort((expected, np.arange(len(expected)) != self.best))
        chance = (self.outlook.half_width <= self.asked.goal).mean(axis=1)
        rows = []
        for rank, i in enumerate(order.tolist()):
            candidate = self.outlook.candidates[i]
            values = (
                rank + 1,
                candidate.frequency,
                candidate.runs,
                self.asked.minutes(candidate.runs),
                pct(expected[i]),
                float(chance[i]),
                self.asked.is_target(candidate.frequency),
                i == self.best,
            )
            rows.append(dict(zip(CANDIDATE_COLUMNS, values, strict=True)))
        return rows

    def _parts(self) -> tuple[float, float]:
        """What model error and noise alone would leave of the least half width (%)."""
        least, form, noise = self.floor
        return pct(least * math.sqrt(form)), pct(least * math.sqrt(noise))

    def advice(self) -> str:
        """Say what to do, and why."""
        goal = f"±{self.asked.within_pct:g} %"
        if self.status == "there":
            return f"already there: {percent(pct(self.now))} now, {goal} wanted."
        return f"{self._next()}; {getattr(self, f'_{self.status}')(goal)}."

    def _next(self) -> str:
        candidate, after = self.stages[0]
        words = f"measure {times(candidate.runs, candidate.frequency)}"
        if self.asked.is_target(candidate.frequency):
            done = ": measure it and be done" if self.status == "reach" else ""
            words += f", which is what you ask for{done}"
        return f"{words} ({percent(pct(self.now))} now, about {percent(pct(after))} then)"

    def _reach(self, goal: str) -> str:
        minutes = self.asked.minutes(self.runs())
        takes = "" if math.isnan(minutes) else f" ({shown(minutes, 'min')})"
        return f"about {_runs(self.runs())}{takes} in all should reach {goal}"

    def _budget(self, goal: str) -> str:
        left = percent(pct(self.stages[-1][1]))
        return f"the budget ends at about {left} after {_runs(self.runs())}, short of {goal}"

    def _far(self, goal: str) -> str:
        left = percent(pct(self.stages[-1][1]))
        return f"{goal} takes more than {_runs(self.runs())}, which leave about {left}"

    def _cannot(self, goal: str) -> str:
        """Say what stands in the way, and what could be done about it."""
        top = max(c.frequency for c in self.outlook.candidates)
        most = max(c.runs for c in self.outlook.candidates)
        least = percent(pct(self.floor[0]))
        form, noise = self._parts()
        at = shown(self.asked.freq_hz, "Hz")
        words = (
            f"{goal} cannot be reached by steps up to {shown(top, 'Hz')}: {_runs(most)} at each "
            f"leave{'s' * (most == 1)} about {least}; "
        )
        if noise >= form:
            return words + (
                f"noise alone is {percent(noise)}: ask for the mean of more runs there "
                f"(--target-runs), steady the host, or accept {least}"
            )
        far = "beyond" if self.asked.freq_hz > top else "between steps"
        return words + (
            f"the model error {far} is {percent(form)}: measure nearer to {at}, or accept {least}"
        )


def pct(half: float) -> float:
    """Half width of a logarithm as percent of the value."""
    return 100 * math.expm1(half)


def percent(value: float) -> str:
    """Write a half width (%)."""
    return "–" if math.isnan(value) else f"±{value:.3g} %"


def _runs(count: int) -> str:
    return f"{count} run{'s' * (count > 1)}"


def times(runs: float, frequency: float) -> str:
    """Write so many runs at a frequency (Hz)."""
    return "–" if math.isnan(runs) else f"{runs:.0f} × {shown(frequency, 'Hz')}"
