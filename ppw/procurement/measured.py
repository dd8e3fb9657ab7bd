"""Figures of candidates from runs tables: rates and watts drawn from the curves of their groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from fitting.bayes.posterior import SAME_STEP
from measurements import identity_columns, read_runs
from measurements.table.headers import nearest
from ppw.decision.compare import scopes_of
from ppw.errors import PpwError
from ppw.projection import answers as an, caveats as cv
from ppw.results import result as rs, text as tx
from ppw.runs import groups as gr, metrics as mt, prepare as pr

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray, IntArray

    Mask = NDArray[np.bool_]


# What runs of one candidate and workload say beside their curves: idle, loads, latency, doubts.


# Loads are put together to the nearest percent: repeats never reach quite the same one.
_DIGITS = 2
# At one clock, runs of one set-up are nearer to each other than this.
_SPREAD = 1.25
LATENCY_COLUMNS = {"latency_p50": "latency_p50_s", "latency_p99": "latency_p99_s"}


def mean_of(rows: pd.DataFrame, column: str) -> float:
    """Mean of a column's positive values; NaN where there is none, or no such column."""
    if column not in rows:
        return float("nan")
    values = rows[column].to_numpy(dtype=np.float64)
    values = values[values > 0]
    return float(values.mean()) if values.size else float("nan")


def levels_of(rows: pd.DataFrame) -> tuple[FloatArray, FloatArray] | None:
    """Load (share) and mean power (W) at each load; None without part loads and full load."""
    if not {"load", "power_w"} <= set(rows.columns):
        return None
    means = _mean_by_load(rows, ["load", "power_w"])
    if len(means) < 2 or means["load"].iloc[-1] < pr.FULL_LOAD:
        return None
    load, watts = (means[name].to_numpy(dtype=np.float64) for name in ("load", "power_w"))
    # Full load is the mean of the runs that are.
    return np.minimum(load / load[-1], 1.0), watts


def _mean_by_load(rows: pd.DataFrame, columns: list[str]) -> pd.DataFrame:
    """Mean of some columns at each load, or at each rate without loads, rising."""
    known = rows[columns].dropna()
    load = known["load"].round(_DIGITS) if "load" in known else known[columns[0]]
    return known.groupby(load.rename("level"), sort=True).mean()


def latencies_of(rows: pd.DataFrame) -> dict[str, tuple[FloatArray, FloatArray]]:
    """Share of the full rate and mean latency (s) at each load, by latency name."""
    made: dict[str, tuple[FloatArray, FloatArray]] = {}
    if "throughput_ops_s" not in rows:
        return made
    full = float(rows["throughput_ops_s"][pr.at_full_load(rows)].mean())
    loads = ["load"] if "load" in rows and rows["load"].notna().any() else []
    for name, column in LATENCY_COLUMNS.items():
        if column in rows:
            means = _mean_by_load(rows, ["throughput_ops_s", column, *loads])
            if len(means):
                share = means["throughput_ops_s"].to_numpy(dtype=np.float64) / full
                made[name] = share, means[column].to_numpy(dtype=np.float64)
    return made


def doubts_of(rows: pd.DataFrame, time: str) -> list[str]:
    """Doubts about full-load runs at one frequency: rates far apart, or limited by the client."""
    full, doubts = rows[pr.at_full_load(rows)], []
    column = "time_s" if time == "time" or "throughput_ops_s" not in full else "throughput_ops_s"
    rates = full[column].dropna()
    if len(rates) and rates.max() > _SPREAD * rates.min():
        doubts.append(
            f"runs at one frequency are up to {rates.max() / rates.min():.3g} times apart, so "
            "they are probably of several set-ups: name one of them in where"
        )
    limited = full["client_limited"] if "client_limited" in full else full["freq_hz"].isna()
    if limited.astype(str).str.lower().isin(["true", "1", "1.0"]).any():
        doubts.append(
            "the client limited the rate, so the server can probably do more: measure with more "
            "clients"
        )
    return doubts


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
    levels: tuple[FloatArray, FloatArray] | None  # loads and power of runs below full load
    # Shares of the full rate and seconds, by "latency_p50" and "latency_p99".
    latency: Mapping[str, tuple[FloatArray, FloatArray]]
    scopes: frozenset[str]
    doubts: list[str]
    projected: bool  # whether the frequency was not measured
    source: str


def measure_requests(
    requests: Sequence[Request], *, draws: int, seed: int
) -> tuple[dict[tuple[str, str], RunFigures], list[str], list[str]]:
    """Read and fit runs: figures by candidate and workload, caveats, and digests of the tables.

    Candidates of one table and workload are fitted together, so that its groups inform each other,
    and those of one group are drawn as one curve.
    """
    found: dict[tuple[str, str], RunFigures] = {}
    every, digests = list[str](), list[str]()
    tables: dict[tuple[Any, ...], list[Request]] = {}
    for request in requests:
        tables.setdefault((request.paths, request.mapping, request.workload), []).append(request)
    read: dict[tuple[Any, ...], pd.DataFrame] = {}
    for number, ((paths, mapping, workload), asked) in enumerate(tables.items()):
        if (paths, mapping) not in read:
            runs = gr.canonical(read_runs(list(paths), columns=dict(mapping), check=False))
            read[paths, mapping] = runs
            digests.append(rs.frame_digest(runs))
        # Streams of their own: two tables are two measurements.
        own = int(np.random.SeedSequence((seed, number)).generate_state(1)[0])
        figures, caveats = _fit_requests(read[paths, mapping], asked, draws, own)
        found |= {(r.candidate, workload): f for r, f in zip(asked, figures, strict=True)}
        every += caveats
    return found, list(dict.fromkeys(every)), digests


class _FittedTable(NamedTuple):
    """Runs of one workload with their curves, and group and frequency (Hz) of each request."""

    rows: pd.DataFrame
    prepared: pr.PreparedRuns
    curves: an.CurveDraws
    groups: IntArray
    frequency: FloatArray


def _fit_requests(
    runs: pd.DataFrame, requests: Sequence[Request], draws: int, seed: int
) -> tuple[list[RunFigures], list[str]]:
    """Fit the runs of one workload together: figures of each request, and caveats."""
    rows = _rows_of_workload(runs, requests[0].workload)
    by = list(dict.fromkeys([*identity_columns(rows), *(c for r in requests for c in r.where)]))
    _refuse_unknown(rows, by, requests)
    full = rows[_full_load_mask(rows, by)]
    full.attrs = dict(rows.attrs)
    prepared = pr.prepare(full, by=by, metric=_choose_metric(full))
    groups = np.array([_find_single_group(prepared, r) for r in requests])
    answers = an.Answers.of(prepared, an.FitOptions())
    measured = prepared.runs["freq_hz"].groupby(prepared.groups.codes)
    low, high = (np.array(ends) for ends in (measured.min(), measured.max()))
    frequency = np.array([r.freq or high[g] for r, g in zip(requests, groups, strict=True)])
    np.minimum.at(low, groups, frequency)
    np.maximum.at(high, groups, frequency)
    curves = an.CurveDraws.of(answers, low, high, draws=draws, seed=seed)
    table = _FittedTable(rows, prepared, curves, groups, frequency)
    figures = [_run_figures(table, place, request) for place, request in enumerate(requests)]
    return figures, [*prepared.caveats(), *_curve_caveats(table, answers)]


def _run_figures(table: _FittedTable, place: int, request: Request) -> RunFigures:
    """Collect a request's figures from its runs: draws of rate and power, idle power and others."""
    group, frequency = int(table.groups[place]), float(table.frequency[place])
    time = next(name for name in table.curves.known if name != an.POWER)
    rate, power = _draw_rate_and_power(table, place, request, time)
    steps = table.curves.steps(time, group)
    near = float(steps[np.argmin(np.abs(np.log(steps / frequency)))])
    rows = table.rows[_rows_of_group(table, group)]
    at_step = rows[(rows["freq_hz"] / near - 1).abs() <= SAME_STEP]
    return RunFigures(
        rate=rate,
        power=power,
        idle_w=mean_of(rows, "idle_power_w"),
        price=mean_of(rows, "price"),
        levels=levels_of(at_step),
        latency=latencies_of(at_step),
        scopes=scopes_of(rows),
        doubts=doubts_of(at_step, time),
        projected=bool(abs(near / frequency - 1) > SAME_STEP),
        source=f"{_source_text(request)} at {tx.shown(frequency, 'Hz')}",
    )


def _draw_rate_and_power(
    table: _FittedTable, place: int, request: Request, time: str
) -> tuple[FloatArray, FloatArray | None]:
    """Draw the rate (1/s) and power (W) of one request; None for power without any."""
    curves, group, who = table.curves, int(table.groups[place]), f"candidate {request.candidate!r}"
    for name in curves.known:
        if not curves.has(name, group):
            raise PpwError(f"{who}: {_source_text(request)}: no {name}")
    # All that share the group are drawn at once: their difference is of one curve.
    alike = np.flatnonzero(table.groups == group)
    at, column = table.frequency[alike], alike.tolist().index(place)
    try:
        rate = np.exp(-curves.log_time(time, group, at)[:, column])
        has_power = an.POWER in curves.known
        return rate, np.exp(curves.log_power(group, at)[:, column]) if has_power else None
    except PpwError as error:
        raise PpwError(f"{who}: {error}") from error


def _rows_of_group(table: _FittedTable, group: int) -> Mask:
    """Mark the rows of a group, at any load; missing keys match each other."""
    keys, mask = table.prepared.groups.keys.iloc[group], np.ones(len(table.rows), dtype=bool)
    for name in table.prepared.groups.by:
        column = table.rows[name]
        same = (column == keys[name]) | (column.isna() & (keys[name] != keys[name]))
        mask &= same.to_numpy(dtype=bool)
    return mask


def _curve_caveats(table: _FittedTable, answers: an.Answers) -> list[str]:
    """Caveats of the curves at the requests' frequencies; none without curves."""
    known, caveats = table.curves.known, list[str]()
    able = np.array([all(table.curves.is_curve(n, int(g)) for n in known) for g in table.groups])
    if able.any():
        targets = an.TargetCells(table.groups[able], table.frequency[able], np.ones(able.sum()))
        for metric in table.prepared.metrics:
            findings = answers.findings(answers.at(metric, targets, 0.9))
            caveats += cv.tally(findings, "candidates")
    return caveats


def _rows_of_workload(runs: pd.DataFrame, workload: str) -> pd.DataFrame:
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


def _full_load_mask(rows: pd.DataFrame, by: list[str]) -> Mask:
    """Mark the full-load runs of each group. Raises `PpwError` where none is."""
    full = pr.at_full_load(rows, gr.group_runs(rows, by).codes if by else None)
    if not full.any():
        raise PpwError(
            f"{rows.attrs.get('source', 'runs')}: every run is below full load: add runs at load 1"
        )
    return full


def _choose_metric(runs: pd.DataFrame) -> str:
    """Choose perf_per_watt, else throughput, else time, by the columns that are there."""
    if mt.columns_for(mt.METRICS["perf_per_watt"], runs) is not None:
        return "perf_per_watt"
    return "throughput" if mt.columns_for(mt.METRICS["throughput"], runs) else "time"


def _refuse_unknown(rows: pd.DataFrame, columns: Sequence[str], asked: Sequence[Request]) -> None:
    for column in columns:
        if column not in rows:
            name = next(r.candidate for r in asked if column in r.where)
            raise PpwError(
                f"candidate {name!r}: {rows.attrs.get('source', 'runs')} has no column {column!r}"
                f"{nearest(column, list(rows.columns))} for where"
            )


def _find_single_group(prepared: pr.PreparedRuns, request: Request) -> int:
    groups = prepared.groups
    try:
        chosen = np.flatnonzero(gr.rows_where(groups.keys, request.where))
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
