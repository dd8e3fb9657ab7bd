"""Figures of candidates from runs tables: rates and watts drawn from the curves of their groups."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.bayes.posterior import SAME_STEP
from measurements import identity_columns, read_runs
from measurements.table.headers import nearest
from ppw.decision.compare import scope_of
from ppw.errors import PpwError
from ppw.projection.answers import POWER, Answers, CurveDraws, TargetCells
from ppw.projection.options import FitOptions
from ppw.results import caveats as cv
from ppw.results.result import frame_digest
from ppw.results.text import shown
from ppw.runs.groups import canonical, group_runs, rows_where
from ppw.runs.metrics import METRICS, columns_for
from ppw.runs.prepare import FULL_LOAD, Prepared, at_full_load, prepare

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray

    Mask = NDArray[np.bool_]


# What runs of one candidate and workload say beside their curves: idle, loads, latency, doubts.


# Loads are put together to the nearest percent: repeats never reach quite the same one.
_DIGITS = 2
# At one clock, runs of one set-up are nearer to each other than this.
_SPREAD = 1.25
LATENCY_COLUMNS = {"latency_p50": "latency_p50_s", "latency_p99": "latency_p99_s"}


def mean_of(rows: pd.DataFrame, column: str) -> float:
    """Average a column over the rows that have it above 0; NaN where none has."""
    if column not in rows:
        return float("nan")
    values = rows[column].to_numpy(dtype=np.float64)
    values = values[values > 0]
    return float(values.mean()) if values.size else float("nan")


def levels_of(rows: pd.DataFrame) -> tuple[FloatArray, FloatArray] | None:
    """Average power at each load below and at the full one, where any was below."""
    if not {"load", "power_w"} <= set(rows.columns):
        return None
    means = _by_load(rows, ["load", "power_w"])
    if len(means) < 2 or means["load"].iloc[-1] < FULL_LOAD:
        return None
    load, watts = (means[name].to_numpy(dtype=np.float64) for name in ("load", "power_w"))
    # Full load is the mean of the runs that are.
    return np.minimum(load / load[-1], 1.0), watts


def _by_load(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Average the rows of each load, rising."""
    known = rows[columns].dropna()
    load = known["load"].round(_DIGITS) if "load" in known else known[columns[0]]
    return known.groupby(load.rename("level"), sort=True).mean()


def latencies_of(rows: pd.DataFrame) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Tabulate latency against the share of the full rate, where both were measured."""
    made: dict[str, tuple[FloatArray, FloatArray]] = {}
    if "throughput_ops_s" not in rows:
        return made
    full = float(rows["throughput_ops_s"][at_full_load(rows)].mean())
    loads = ["load"] if "load" in rows and rows["load"].notna().any() else []
    for name, column in LATENCY_COLUMNS.items():
        if column in rows:
            means = _by_load(rows, ["throughput_ops_s", column, *loads])
            if len(means):
                share = means["throughput_ops_s"].to_numpy(dtype=np.float64) / full
                made[name] = share, means[column].to_numpy(dtype=np.float64)
    return made


def doubts_of(rows: pd.DataFrame, time: str) -> list[str]:
    """Say what speaks against taking full-load runs at one frequency for one set-up's best."""
    full, doubts = rows[at_full_load(rows)], []
    column = "time_s" if time == "time" or "throughput_ops_s" not in full else "throughput_ops_s"
    rates = full[column].dropna()
    if len(rates) and rates.max() > _SPREAD * rates.min():
        doubts.append(
            f"runs at one clock are up to {rates.max() / rates.min():.3g} times apart, as of "
            "several set-ups: name one of them in where"
        )
    limited = full["client_limited"] if "client_limited" in full else full["freq_hz"].isna()
    if limited.astype(str).str.lower().isin(["true", "1", "1.0"]).any():
        doubts.append("the client limited the rate, so the server can do more: add clients")
    return doubts


def scopes_of(rows: pd.DataFrame) -> frozenset[str]:
    """Find what the watts are of: "wall" or "package"; empty where not known."""
    if "power_source" not in rows:
        return frozenset()
    found = {scope_of(source) for source in rows["power_source"].dropna().unique()}
    return frozenset(str(scope) for scope in found if scope is not None)


class Request(NamedTuple):
    """Runs of one candidate and workload: which files, which rows, at which frequency (Hz)."""

    candidate: str
    workload: str
    paths: tuple[str, ...]
    mapping: tuple[tuple[str, str], ...]
    where: Mapping[str, Any]
    freq: float | None


class RunFigures(NamedTuple):
    """What runs say of one candidate and workload; NaN and empty where they do not."""

    # Rate (1/s) and power (W) at full load: (draws,) each.
    rate: FloatArray
    power: FloatArray | None
    idle_w: float
    price: float
    # Loads and power of runs below full load.
    levels: tuple[FloatArray, FloatArray] | None
    # Shares of the full rate and seconds, by "latency_p50" and "latency_p99".
    latency: Mapping[str, tuple[FloatArray, FloatArray]]
    scopes: frozenset[str]
    doubts: list[str]
    # Whether the frequency was not measured.
    projected: bool
    source: str


@dataclass
class MeasuredFigures:
    """All that runs tables say, by candidate and workload."""

    found: dict[tuple[str, str], RunFigures] = field(default_factory=dict)
    caveats: list[str] = field(default_factory=list)
    digests: list[str] = field(default_factory=list)


def measure(requests: Sequence[Request], *, draws: int, seed: int) -> MeasuredFigures:
    """Answer all requests.

    Candidates of one table and workload are fitted together, so that its groups inform each other,
    and those of one group are drawn as one curve.
    """
    made = MeasuredFigures()
    tables: dict[tuple[Any, ...], list[Request]] = {}
    for request in requests:
        tables.setdefault((request.paths, request.mapping, request.workload), []).append(request)
    read: dict[tuple[Any, ...], pd.DataFrame] = {}
    for number, ((paths, mapping, workload), asked) in enumerate(tables.items()):
        if (paths, mapping) not in read:
            runs = canonical(read_runs(list(paths), columns=dict(mapping), check=False))
            read[paths, mapping] = runs
            made.digests.append(frame_digest(runs))
        # Streams of their own: two tables are two measurements.
        own = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
        table = _Table.of(read[paths, mapping], workload, asked, draws, own)
        for request in asked:
            made.found[request.candidate, workload] = table.answer(request)
        made.caveats += [c for c in table.caveats() if c not in made.caveats]
    return made


@dataclass(frozen=True)
class _Table:
    """Runs of one workload, fitted and ready to be drawn."""

    rows: pd.DataFrame
    prepared: Prepared
    answers: Answers
    curves: CurveDraws
    group: Mapping[str, int]
    frequency: Mapping[str, float]

    @classmethod
    def of(
        cls,
        runs: pd.DataFrame,
        workload: str,
        asked: Sequence[Request],
        draws: int,
        seed: int,
    ) -> _Table:
        rows = _rows_of(runs, workload)
        columns = [*identity_columns(rows)]
        columns += [c for r in asked for c in r.where if c not in columns]
        by = list(dict.fromkeys(columns))
        _refuse_unknown(rows, by, asked)
        full = rows[_at_full_load(rows, by)]
        full.attrs = dict(rows.attrs)
        prepared = prepare(full, by=by, metric=_metric(full))
        group = {r.candidate: _group(prepared, r) for r in asked}
        answers = Answers.of(prepared, FitOptions())
        measured = prepared.runs["freq_hz"].groupby(prepared.groups.codes)
        low, high = (np.array(ends) for ends in (measured.min(), measured.max()))
        frequency = {r.candidate: r.freq or float(high[group[r.candidate]]) for r in asked}
        for name, at in frequency.items():
            low[group[name]] = min(low[group[name]], at)
            high[group[name]] = max(high[group[name]], at)
        curves = CurveDraws.of(answers, low, high, draws=draws, seed=seed)
        return cls(rows, prepared, answers, curves, group, frequency)

    @property
    def _time(self) -> str:
        """Name of what stands for time: a throughput, or the time of a run."""
        return next(name for name in self.curves.known if name != POWER)

    def answer(self, request: Request) -> RunFigures:
        """Draw one candidate's rate and watts, and collect the rest."""
        group = self.group[request.candidate]
        frequency = self.frequency[request.candidate]
        # All that share the group are drawn at once: their difference is of one curve.
        alike = [name for name, g in self.group.items() if g == group]
        at = np.array([self.frequency[name] for name in alike])
        column = alike.index(request.candidate)
        for name in self.curves.known:
            if not self.curves.has(name, group):
                raise PpwError(
                    f"candidate {request.candidate!r}: {_source_text(request)}: no {name}"
                )
        try:
            rate = np.exp(-self.curves.log_time(self._time, group, at)[:, column])
            power = None
            if POWER in self.curves.known:
                power = np.exp(self.curves.log_power(group, at)[:, column])
        except PpwError as error:
            raise PpwError(f"candidate {request.candidate!r}: {error}") from error
        steps = self.curves.steps(self._time, group)
        rows = self.rows[self._of_group(group)]
        near = float(steps[np.argmin(np.abs(np.log(steps / frequency)))])
        at_step = rows[(rows["freq_hz"] / near - 1).abs() <= SAME_STEP]
        return RunFigures(
            rate=rate,
            power=power,
            idle_w=mean_of(rows, "idle_power_w"),
            price=mean_of(rows, "price"),
            levels=levels_of(at_step),
            latency=latencies_of(at_step),
            scopes=scopes_of(rows),
            doubts=doubts_of(at_step, self._time),
            projected=bool(abs(near / frequency - 1) > SAME_STEP),
            source=f"{_source_text(request)} at {shown(frequency, 'Hz')}",
        )

    def _of_group(self, group: int) -> Mask:
        keys = self.prepared.groups.keys.iloc[group]
        same = [
            (self.rows[c] == keys[c]) | (self.rows[c].isna() & (keys[c] != keys[c]))
            for c in self.prepared.groups.by
        ]
        mask = np.ones(len(self.rows), dtype=bool)
        for column in same:
            mask &= column.to_numpy(dtype=bool)
        return mask

    def caveats(self) -> list[str]:
        """List what could mislead in the table, or in the curves that were asked for."""
        curved = [
            (self.group[name], at)
            for name, at in self.frequency.items()
            if all(self.curves.is_curve(what, self.group[name]) for what in self.curves.known)
        ]
        found = self.prepared.caveats()
        if curved:
            group, at = (np.array(part) for part in zip(*curved, strict=True))
            for metric in self.prepared.metrics:
                asked = self.answers.at(metric, TargetCells(group, at, np.ones(len(at))), 0.9)
                found += cv.tally(self.answers.findings(asked), "candidates")
        return found


def _rows_of(runs: pd.DataFrame, workload: str) -> pd.DataFrame:
    if "workload" not in runs:
        return runs
    names = runs["workload"].astype(str)
    rows = runs[(names == workload).to_numpy()]
    if rows.empty:
        known = list(dict.fromkeys(names))
        raise PpwError(
            f"{runs.attrs.get('source', 'runs')}: no run of workload {workload!r}"
            f"{nearest(workload, known)}; there are {', '.join(known[:10])}"
        )
    rows.attrs = dict(runs.attrs)
    return rows


def _at_full_load(rows: pd.DataFrame, by: list[str]) -> Mask:
    """Mark the runs at full load, group by group."""
    full = at_full_load(rows, group_runs(rows, by).codes if by else None)
    if not full.any():
        raise PpwError(
            f"{rows.attrs.get('source', 'runs')}: every run is below full load: add runs at load 1"
        )
    return full


def _metric(runs: pd.DataFrame) -> str:
    if columns_for(METRICS["perf_per_watt"], runs) is not None:
        return "perf_per_watt"
    return "throughput" if columns_for(METRICS["throughput"], runs) else "time"


def _refuse_unknown(rows: pd.DataFrame, columns: Sequence[str], asked: Sequence[Request]) -> None:
    for column in columns:
        if column not in rows:
            name = next(r.candidate for r in asked if column in r.where)
            raise PpwError(
                f"candidate {name!r}: {rows.attrs.get('source', 'runs')} has no column {column!r}"
                f"{nearest(column, list(rows.columns))} for where"
            )


def _group(prepared: Prepared, request: Request) -> int:
    groups = prepared.groups
    try:
        chosen = np.flatnonzero(rows_where(groups.keys, request.where))
    except PpwError as error:
        raise PpwError(f"candidate {request.candidate!r}: {error}") from error
    if len(chosen) > 1:
        keys = groups.keys.iloc[chosen]
        varying = [c for c in groups.by if len(set(map(str, keys[c]))) > 1]
        raise PpwError(
            f"candidate {request.candidate!r}: its runs of {request.workload} are "
            f"{len(chosen)} groups, which differ in {', '.join(varying)}: name one of them in where"
        )
    return int(chosen[0])


def _source_text(request: Request) -> str:
    names = ", ".join(path.rpartition("/")[2] for path in request.paths)
    rows = ", ".join(f"{column} {value}" for column, value in request.where.items())
    return f"{names}: {', '.join(part for part in (rows, request.workload) if part)}"
