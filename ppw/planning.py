"""`plan`: which frequency to measure next, and how often, to be as sure as wanted."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from fitting.bayes.next_measurement import known_groups
from fitting.bayes.posterior import Target
from ppw import caveats as cv
from ppw.advice import CANDIDATE_COLUMNS, GROUP_COLUMNS, Asked, GroupPlan, percent, times
from ppw.arguments import as_frequency, as_positive, as_share, as_whole
from ppw.curves import FitOptions
from ppw.errors import PpwError, UnknownHostError
from ppw.estimate import key_texts, shown
from ppw.hosts import find_host, host_steps
from ppw.posteriors import Posteriors
from ppw.prepare import Prepared, prepare
from ppw.result import frame_digest, read_document, reads_document, records, write_document
from ppw.step_choice import as_steps
from ppw.tables import summary_text, text_table
from ppw.voltage import VoltageTable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fitting.bayes.next_measurement import Known
    from fitting.bayes.pooling import Curve
    from fitting.regression.lines import FloatArray

    Mask = NDArray[np.bool_]

_MOST_ROWS, _MOST_CANDIDATES = 40, 8
_ASKED = (
    "metric",
    "freq_hz",
    "within_pct",
    "level",
    "target_runs",
    "run_time_minutes",
    "budget_minutes",
    "seed",
)
_TEXTS = {"advice", "status", "recommended", "at_target"}


@dataclass(frozen=True, kw_only=True, eq=False)
class Plan:
    """What to measure next in each group, and what it is expected to bring.

    Half widths are half the interval of the logarithm, given as what it makes in percent.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a group and candidate, best first: key columns, ``rank``, ``freq_hz``, ``runs``,
        ``minutes`` (NaN where a run's are not known), ``half_width_pct`` expected after it,
        ``chance`` that it reaches the goal, ``at_target``, ``recommended``.
    groups : pandas.DataFrame
        One row a group: key columns, ``status`` ("there", "reach", "cannot", "budget" or "far"),
        ``half_width_pct`` at present, ``next_freq_hz``, ``next_runs``, ``next_minutes``,
        ``next_half_width_pct``, ``runs_to_goal``, ``minutes_to_goal``,
        ``attainable_half_width_pct`` with the most repeats at every step, ``form_pct`` and
        ``noise_pct`` (what model error and noise alone would leave of it), ``advice`` in words.
    by : tuple of str
        Key columns.
    metric : str
    freq_hz, within_pct, level : float
        What is asked: the frequency, the half width wanted there, and of which interval.
    target_runs : int
        Runs whose mean is asked for.
    run_time_minutes, budget_minutes : float or None
    seed : int
    caveats : tuple of str
    """

    table: pd.DataFrame
    groups: pd.DataFrame
    by: tuple[str, ...]
    metric: str
    freq_hz: float
    within_pct: float
    level: float
    target_runs: int
    run_time_minutes: float | None
    budget_minutes: float | None
    seed: int
    caveats: tuple[str, ...]
    input_digest: str | None = field(repr=False, compare=False)

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of ``table``."""
        return self.table.copy()

    def question(self) -> str:
        """Say what is asked."""
        runs = "" if self.target_runs == 1 else f", mean of {self.target_runs} runs"
        return (
            f"{self.metric} at {shown(self.freq_hz, 'Hz')} within ±{self.within_pct:g} % "
            f"({self.level:.0%} interval{runs})"
        )

    def summary(self) -> str:
        """Say what is asked, the next measurement of each group, and why; then the caveats."""
        rows = self.groups.head(_MOST_ROWS).to_dict(orient="records")
        lines = [self.question(), text_table(self.header(), [self.cells(r) for r in rows])]
        if len(self.groups) > _MOST_ROWS:
            more = len(self.groups) - _MOST_ROWS
            lines.append(f"… {more} more groups: use --format json or .groups")
        lines += [self._sentence(row) for row in rows]
        if len(self.groups) == 1 and len(self.table):
            best = self.table.head(_MOST_CANDIDATES).to_dict(orient="records")
            header = self.candidate_header()
            lines += ["", text_table(header, [self.candidate_cells(r) for r in best])]
        return summary_text(lines, self.caveats)

    def name(self, row: Mapping[Any, Any]) -> str:
        """Name the group of a row by its keys; nothing where there is one group only."""
        return ", ".join(key_texts(self.by, row))

    def _sentence(self, row: Mapping[Any, Any]) -> str:
        name = self.name(row)
        return f"{name}: {row['advice']}" if name else str(row["advice"])

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [*self.by, "now", "measure next", "then", "runs to go", "time to go"]

    def cells(self, row: Mapping[Any, Any]) -> list[str]:
        """Row of ``groups`` as it is printed."""
        go = "many" if row["status"] == "far" else shown(row["runs_to_goal"])
        return [
            *key_texts(self.by, row),
            percent(row["half_width_pct"]),
            times(row["next_runs"], row["next_freq_hz"]),
            percent(row["next_half_width_pct"]),
            go,
            shown(row["minutes_to_goal"], "min"),
        ]

    def candidate_header(self) -> list[str]:
        """Name the columns of `candidate_cells`."""
        return [*self.by, "measure", "takes", "then", "chance of the goal"]

    def candidate_cells(self, row: Mapping[Any, Any]) -> list[str]:
        """Row of ``table`` as it is printed."""
        return [
            *key_texts(self.by, row),
            times(row["runs"], row["freq_hz"]) + (" *" if row["recommended"] else ""),
            shown(row["minutes"], "min"),
            percent(row["half_width_pct"]),
            f"{row['chance']:.0%}",
        ]

    def to_json(self) -> str:
        """JSON document with ``schema_version``; ``groups`` and their ``candidates``."""
        body = {
            **{name: getattr(self, name) for name in _ASKED},
            "by": self.by,
            "groups": records(self.groups),
            "candidates": records(self.table),
            "caveats": self.caveats,
        }
        return write_document("plan", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Plan:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "plan")
        by = tuple(d["by"])
        return cls(
            **{name: d[name] for name in _ASKED},
            by=by,
            groups=_table(d["groups"], by, GROUP_COLUMNS),
            table=_table(d["candidates"], by, CANDIDATE_COLUMNS),
            caveats=tuple(d["caveats"]),
            input_digest=d["input_digest"],
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the half width to expect against the frequency of the next measurement."""
        from ppw.report.plan_page import plot_plan

        return plot_plan(self, ax)


def plan(
    runs: pd.DataFrame,
    *,
    metric: str = "perf_per_watt",
    freq: float | str = "3.0GHz",
    within: float = 3.0,
    steps: str | Iterable[float | str] | None = None,
    at_target: bool = True,
    run_time_minutes: float | None = None,
    by: Sequence[str] | None = None,
    repeats: Sequence[int] = (1, 2, 3, 5),
    target_runs: int = 1,
    level: float = 0.90,
    budget_minutes: float | None = None,
    seed: int = 0,
    voltages: Mapping[float, float] | pd.DataFrame | None = None,
    pool: bool = True,
    keep_all: bool = False,
) -> Plan:
    """Say for every group which frequency to run next, and how many times.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`): what was measured so far.
    metric, freq
        What is asked: one metric, at one frequency (Hz, or text with a unit).
    within : float
        Half width of the interval that is wanted, in percent.
    steps : several frequencies, or text "1.2GHz:2.4GHz:0.2GHz", optional
        Frequencies that the host offers; by default those of each group's host in the catalogue.
    at_target : bool
        Whether ``freq`` itself, where it is a step, may be measured; False for a machine that
        stands for one you do not have.
    run_time_minutes : float, optional
        What a run takes, setting up included; without it cost is counted in runs.
    by : sequence of str, optional
        Columns that tell groups apart; by default all identity columns present.
    repeats : sequence of int
        Numbers of runs to choose from.
    target_runs : int
        Runs whose mean is asked for: a single run scatters more than the mean of several.
    level : float
        Of the interval, inside (0, 1).
    budget_minutes : float, optional
        Do not go beyond; takes ``run_time_minutes``.
    seed : int
        Of the hypothetical outcomes.
    voltages, pool, keep_all
        As for `ppw.project_runs`.

    Returns
    -------
    Plan
        What to measure next in each group, and what it is expected to bring.

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For arguments that cannot be, a host whose steps are not known, or when no group has runs.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    asked = Asked(
        as_frequency(freq),
        as_positive("within", within),
        as_share("interval level", level),
        as_whole("target runs", target_runs),
        None if run_time_minutes is None else as_positive("run time (min)", run_time_minutes),
        None if budget_minutes is None else as_positive("budget (min)", budget_minutes),
        as_whole("seed", seed, least=0),
        sorted({as_whole("a number of repeats", r) for r in repeats}),
        at_target,
    )
    asked.check()
    prepared = prepare(runs, by=by, metric=[metric], keep_all=keep_all)
    known, single = _known(prepared, asked, FitOptions(voltages=voltages, pool=pool))
    if not known:
        raise PpwError(_nothing_known(prepared))
    offered = _offered(prepared, steps, list(known))
    made = [GroupPlan.of(g, known[g], asked.candidates(offered[g]), asked) for g in sorted(known)]
    caveats = prepared.caveats() + _left_out(prepared, len(known), single)
    cv.warn(caveats)
    keys = prepared.groups.keys
    return Plan(
        table=_joined(keys, [(m.group, row) for m in made for row in m.rows()], CANDIDATE_COLUMNS),
        groups=_joined(keys, [(m.group, m.row()) for m in made], GROUP_COLUMNS),
        by=tuple(prepared.groups.by),
        metric=prepared.metrics[0].name,
        freq_hz=asked.freq_hz,
        within_pct=asked.within_pct,
        level=asked.level,
        target_runs=asked.target_runs,
        run_time_minutes=asked.run_time_minutes,
        budget_minutes=asked.budget_minutes,
        seed=asked.seed,
        caveats=tuple(caveats),
        input_digest=frame_digest(prepared.runs),
    )


def _known(
    prepared: Prepared, asked: Asked, options: FitOptions
) -> tuple[dict[int, list[Known]], int]:
    """What is known of each group's quantities, and how many groups have one step only."""
    (metric,) = prepared.metrics
    runs, groups = prepared.runs, prepared.groups
    voltage = VoltageTable.of(runs, groups, options.voltages)
    posteriors = Posteriors.of(runs, groups, [metric], options, voltage)
    names = list(options.fitted(metric))
    count = np.minimum.reduce([posteriors.steps[name].count for name in names])
    size = len(groups)
    target = Target(np.full(size, asked.freq_hz), np.full(size, float(asked.target_runs)))
    made: dict[int, list[Known]] = {g: [] for g in np.flatnonzero(count > 0).tolist()}
    for name in names:
        for curve, mask in _curves(posteriors, name, target.frequency):
            # As in a projection, groups with one step tell the others nothing.
            for some in (np.flatnonzero(mask & (count == 1)), np.flatnonzero(mask & (count > 1))):
                for group, known in known_groups(
                    curve, posteriors.steps[name], target, posteriors.neighbours, some
                ):
                    made[group].append(known)
    return made, int((count == 1).sum())


def _curves(posteriors: Posteriors, name: str, frequency: FloatArray) -> list[tuple[Curve, Mask]]:
    """Curves of a quantity, each with its groups: a V-f table holds for some only."""
    everyone = np.ones(len(frequency), dtype=bool)
    if name != "power":
        return [(posteriors.time, everyone)]
    covered = posteriors.voltage.covers(posteriors.steps[name], frequency)
    with_table = replace(posteriors.power, voltage=posteriors.voltage.at)
    return [(with_table, covered), (posteriors.power, ~covered)]


def _offered(
    prepared: Prepared, steps: str | Iterable[float | str] | None, groups: list[int]
) -> dict[int, list[float]]:
    """Frequencies (Hz) that each group's host offers."""
    if steps is not None:
        return dict.fromkeys(groups, as_steps(steps, fewest=1).tolist())
    if "host" not in prepared.runs.columns:
        raise PpwError("the runs name no host, so its steps are not known: give them with --steps")
    hosts = prepared.runs["host"].astype(str).groupby(prepared.groups.codes).unique()
    known = {name: _catalogue_steps(name) for g in groups for name in hosts[g]}
    return {g: sorted({f for name in hosts[g] for f in known[name]}) for g in groups}


def _catalogue_steps(name: str) -> list[float]:
    try:
        steps = host_steps(find_host(name))
    except UnknownHostError as error:
        raise PpwError(f"give the frequencies it offers with --steps: {error}") from error
    if not steps:
        raise PpwError(f"the catalogue has no frequency steps for host {name!r}: give --steps")
    return list(steps)


def _nothing_known(prepared: Prepared) -> str:
    source = prepared.runs.attrs.get("source", "runs")
    name = prepared.metrics[0].name
    return f"{source}: no group has a run that tells {name}: measure one, at any frequency"


def _left_out(prepared: Prepared, known: int, single: int) -> list[str]:
    total, texts = len(prepared.groups), []
    if known < total:
        texts.append(
            f"{total - known} of {total} groups left out: {prepared.metrics[0].name} was not "
            "measured there"
        )
    if single:
        texts.append(
            f"{single} of {total} groups have one frequency only: what is known of their curves is "
            "the prior's, and a projection takes two frequencies"
        )
    return texts


def _joined(
    keys: pd.DataFrame, rows: list[tuple[int, dict[str, Any]]], columns: Sequence[str]
) -> pd.DataFrame:
    """Key columns of each row's group beside its answers."""
    answers = pd.DataFrame([row for _, row in rows], columns=list(columns))
    named = keys.iloc[[group for group, _ in rows]].reset_index(drop=True)
    return pd.concat([named, answers], axis=1)


def _table(rows: list[dict[str, Any]], by: Sequence[str], columns: Sequence[str]) -> pd.DataFrame:
    table = pd.DataFrame(rows, columns=[*by, *columns])
    counts = {"rank": np.int64, "runs": np.int64}
    return table.astype({c: counts.get(c, np.float64) for c in columns if c not in _TEXTS})
