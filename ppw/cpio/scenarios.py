"""The scenarios behind projection and sizing: lines fitted once, drawn together, asked by name."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.laws import cycles_per_io as io_laws
from fitting.laws.cycles_per_io_scaling import IoScaling, fit_scaling, student_draws
from fitting.regression.lines import FloatArray
from ppw.cpio import caveats as cav, cycles, io_runs, result as io
from ppw.errors import PpwError
from ppw.results import axes
from ppw.results.axes import Axes
from ppw.results.result import Table, frame_digest, rows_of, warn_caveats
from ppw.results.text import as_frequency, as_positive, as_share, key_texts, shown
from ppw.runs.groups import Groups, group_runs

UTILISATION = ("measured", "projected", "full")
CPIO = ("desired", "today", "projected")

# Criteria nearer than this do not tell two laws apart (K. P. Burnham and D. R. Anderson, "Model
# Selection and Multimodel Inference", 2002): the error at the most cores decides.
_CLEAR = 2.0


class ServerSpec(NamedTuple):
    """The server asked for: its cores and clock (Hz); None is the clock of the runs."""

    cores: float
    freq_hz: float | None


@dataclass(frozen=True, eq=False)
class Scenarios:
    """All that projection and sizing ask of the runs."""

    by: list[str]
    keys: pd.DataFrame  # one row an application
    runs: pd.DataFrame
    codes: np.ndarray[Any, np.dtype[np.int64]]  # application of each run
    cores: float
    freq_hz: float
    floor: float
    # Values (applications,) by scenario.
    utilisation: dict[str, FloatArray]
    cpio: dict[str, FloatArray]
    # Draws (applications, draws) by scenario; NaN where nothing tells how sure a value is.
    utilisation_draws: dict[str, FloatArray]
    cpio_draws: dict[str, FloatArray]
    today_iops: FloatArray  # I/Os per second measured on most cores
    # Bytes that cross network and memory for each byte stored or fetched.
    network: FloatArray
    memory: FloatArray
    caveats: list[str]

    def rate(self, utilisation: str, cpio: str) -> FloatArray:
        """Compute the I/Os per second of each application in a scenario."""
        busy, cost = self.utilisation[utilisation], self.cpio[cpio]
        return io_laws.io_rate(busy, self.cores, self.freq_hz, cost)

    def rate_draws(self, utilisation: str, cpio: str) -> FloatArray:
        """Compute draws of `rate`: (applications, draws)."""
        busy, cost = self.utilisation_draws[utilisation], self.cpio_draws[cpio]
        return io_laws.io_rate(busy, self.cores, self.freq_hz, cost)

    def frame(self, utilisation: str, cpio: str, level: float) -> pd.DataFrame:
        """Tabulate one scenario, a row an application."""
        rate = self.rate(utilisation, cpio)
        lower, upper = interval_of(self.rate_draws(utilisation, cpio), level)
        storage = rate * io_laws.IO_BYTES
        return self.keys.reset_index(drop=True).assign(
            utilisation_scenario=utilisation,
            cpio_scenario=cpio,
            utilisation=self.utilisation[utilisation],
            cpio=self.cpio[cpio],
            iops=rate,
            lower=lower,
            upper=upper,
            storage_bytes_s=storage,
            network_bytes_s=storage * self.network,
            memory_bytes_s=storage * self.memory,
        )

    def laws(self, level: float) -> pd.DataFrame:
        """Tabulate laws of the I/O rate by application, with the reason to prefer one."""
        rows = [row for group in range(len(self.keys)) for row in self._laws_of(group, level)]
        names = ["law", "parameters", "aicc", "weight", "held_out", "iops", "lower", "upper"]
        return pd.DataFrame(rows, columns=[*self.by, *names, "preferred", "why"])

    def _laws_of(self, group: int, level: float) -> Iterator[tuple[Any, ...]]:
        chosen = self.runs[self.codes == group]
        columns = ("cpus_used", "iops", "cpio", "utilisation", "clock_hz")
        runs = io_laws.IoRuns._make(chosen[name].to_numpy(np.float64) for name in columns)
        fitted = io_laws.fit_laws(runs, floor=self.floor, frequency=self.freq_hz)
        if not fitted:
            return
        scores = io_laws.score_laws(runs, fitted, floor=self.floor)
        best, why = preferred_law(scores)
        key = self.keys.iloc[group].tolist() if self.by else []
        for name in (law for law in io_laws.LAWS if law in fitted):
            lower, upper = fitted[name].interval(self.cores, level)
            if name == io_laws.LINEAR_CPIO:
                # This law is the projected scenario, so it has the interval of its draws.
                draws = self.rate_draws("projected", "projected")[group : group + 1]
                lower, upper = (float(end[0]) for end in interval_of(draws, level))
            rate = float(fitted[name].rate(np.array([self.cores]))[0])
            reason = (True, why) if name == best else (False, "")
            yield (*key, name, *scores[name], rate, lower, upper, *reason)


def project_scenarios(
    runs: pd.DataFrame,
    spec: ServerSpec,
    *,
    by: Sequence[str] | None,
    floor: float,
    network_share: float | None,
    draws: int,
    seed: int,
) -> Scenarios:
    """Fit the lines of every application to runs that did I/O, and draw its scenarios."""
    every, clocks = io_runs.with_cpio(runs, freq=spec.freq_hz)
    keys = cycles.group_columns(every, by)
    table = _usable_runs(every, keys, str(runs.attrs.get("source", "runs")))
    groups = group_runs(table, keys)
    codes, count = groups.codes, len(groups)
    names = ("cpus_used", "cpio", "utilisation")
    measured, cpio, busy = (table[name].to_numpy(np.float64) for name in names)
    scaling = fit_scaling(codes, measured, cpio, busy, count)
    freq_hz = spec.freq_hz or float(table["clock_hz"].median())
    values = _scenario_values(scaling, spec.cores, floor, draws, seed)
    at_most = measured == scaling.most[codes]
    network, assumed = _network_bytes(table, groups, network_share)
    ways = ("memory_read_bytes_s", "memory_write_bytes_s")
    reads, writes = (io_runs.column(table, name) for name in ways)
    in_memory = (reads + writes) * table["time_s"]
    remarks = [
        *(str(c) for c in runs.attrs.get("caveats", ())),
        *(*clocks, *cav.run_caveats(every), *assumed),
        *_scaling_caveats(scaling, groups, spec.cores, values["utilisation"]["projected"], floor),
    ]
    return Scenarios(
        by=groups.by,
        keys=groups.keys,
        runs=table,
        codes=codes,
        cores=spec.cores,
        freq_hz=freq_hz,
        floor=floor,
        **values,
        today_iops=_group_means(table["iops"].where(at_most), groups),
        network=network,
        memory=_group_means(in_memory / table["storage_bytes"], groups),
        caveats=remarks,
    )


def interval_of(draws: FloatArray, level: float) -> tuple[FloatArray, FloatArray]:
    """Compute the central interval of each row of draws; NaN where they are."""
    ends = [0.5 - level / 2, 0.5 + level / 2]
    # Between two draws without bound there is no mean to take.
    lower, upper = np.quantile(draws, ends, axis=1, method="inverted_cdf")
    return lower, upper


def preferred_law(scores: dict[str, io_laws.LawScore]) -> tuple[str, str]:
    """Choose the law to prefer, with the reason in words."""
    known = {n: s for n, s in scores.items() if np.isfinite(s.aicc)}
    by_error = sorted((s.held_out, n) for n, s in scores.items() if np.isfinite(s.held_out))
    if known:
        ranked = sorted((s.aicc, n) for n, s in known.items())
        ahead = ranked[1][0] - ranked[0][0] if len(ranked) > 1 else np.inf
        if ahead >= _CLEAR or not by_error:
            lead = f"AICc {shown(ahead)} below the next" if ahead < np.inf else "it alone has AICc"
            return ranked[0][1], lead
    if by_error:
        error, name = by_error[0]
        reason = "AICc does not tell them apart" if known else "the runs are too few for AICc"
        return name, f"{reason}; {error:.1%} off at the most cores when fitted to the others"
    name = min(scores, key=lambda n: scores[n].parameters)
    return name, "the runs are too few to tell; it has the fewest parameters"


def _usable_runs(table: pd.DataFrame, keys: Sequence[str], source: str) -> pd.DataFrame:
    """Keep runs that did I/O with one hardware thread a core and all their memory bandwidth."""
    bandwidth = io_runs.column(table, "bandwidth_per_core_bytes_s")
    cpus = io_runs.column(table, "hardware_threads").fillna(table["cores"])
    same = [table[name] for name in (*keys, "cores")]
    # Runs whose memory bandwidth was taken, and cores shared by threads, scale by other lines.
    most = bandwidth.groupby(same, dropna=False).transform("max")
    kept = (bandwidth.isna() | (bandwidth >= most)) & (cpus == table["cores"])
    kept &= table["cpio"].gt(0) & table["utilisation"].gt(0)
    if not kept.any():
        raise PpwError(
            f"{source}: no run with one hardware thread per core has I/O, which a projection "
            "needs: measure some"
        )
    used = table[kept].assign(cpus_used=cpus[kept], utilisation=table["utilisation"].clip(upper=1))
    return used.reset_index(drop=True)


def _scenario_values(
    scaling: IoScaling, cores: float, floor: float, draws: int, seed: int
) -> dict[str, dict[str, FloatArray]]:
    """Compute values and draws of utilisation and cycles per I/O by scenario."""
    groups = len(scaling.most)
    cost_normals, busy_normals = scaling.normals(draws, seed)
    busy, cost = scaling.utilisation_centres(cores), scaling.cpio_centres(cores)
    utilisation = {n: np.clip(c.value, floor, 1.0) for n, c in busy.items()}
    busy_draws = {n: np.clip(student_draws(c, busy_normals), floor, 1.0) for n, c in busy.items()}
    return {
        "utilisation": {**utilisation, "full": np.ones(groups)},
        "cpio": {n: c.value for n, c in cost.items()},
        "utilisation_draws": {**busy_draws, "full": np.ones((groups, draws))},
        "cpio_draws": {n: student_draws(c, cost_normals) for n, c in cost.items()},
    }


def _network_bytes(
    table: pd.DataFrame, groups: Groups, share: float | None
) -> tuple[FloatArray, list[str]]:
    """Find the bytes that cross the network for each byte stored, and say what is assumed."""
    if share is not None:
        return np.full(len(groups), float(share)), []
    moved = io_runs.column(table, "network_rx_bytes") + io_runs.column(table, "network_tx_bytes")
    measured = _group_means(moved / table["storage_bytes"], groups)
    if np.isfinite(measured).all():
        return measured, []
    assumed = (
        "no run counted network bytes: ppw assumes that each byte read or written crosses the "
        "network once"
    )
    return np.where(np.isfinite(measured), measured, 1.0), [assumed]


def _group_means(values: pd.Series[Any], groups: Groups) -> FloatArray:
    """Compute the mean of each group over the runs that have a value; NaN where none has."""
    known = np.isfinite(values.to_numpy())
    codes, count = groups.codes[known], len(groups)
    with np.errstate(invalid="ignore"):
        return np.bincount(codes, values[known], count) / np.bincount(codes, minlength=count)


def _scaling_caveats(
    scaling: IoScaling, groups: Groups, cores: float, projected: FloatArray, floor: float
) -> Iterator[str]:
    """Say which applications their lines tell little of; ``projected`` is the utilisation."""
    names = [", ".join(key_texts(groups.by, row)) or "all runs" for row in rows_of(groups.keys)]
    fewest, most = scaling.fewest, scaling.most
    far, freedom = cores > 4 * most, scaling.cpio.degrees_of_freedom
    least = shown(float(most[far].min())) if far.any() else ""
    one_core = "not measured on one core: desired cycles per I/O are those at the fewest cores"
    floor_text = f"projected utilisation falls to the floor of {floor:g} and stays there"
    findings = {
        "measured on one core count, so nothing can be projected to another": fewest == most,
        one_core: fewest > 1,
        "cycles per I/O fall with cores: ppw uses a constant, because their line would reach "
        "zero": scaling.falls,
        floor_text: projected <= floor,
        "projected utilisation reaches 1 and stays there": projected >= 1.0,
        f"{shown(cores)} cores are over four times the most measured ({least}): the intervals "
        "hold only if the lines hold so far": far,
        "too few runs for an interval: measure three or more": freedom < 1,
    }
    for text, chosen in findings.items():
        if chosen.any():
            yield f"{'; '.join(np.array(names, dtype=object)[chosen])}: {text}"


# `project_cpio`: the I/O rate of a server with more cores, scenario by scenario, and what it asks.
#
# A scenario is a utilisation and a cycles per I/O. Utilisation is low, as *measured* on most cores
# or as *projected* by its line, or *full*; cycles per I/O are as *desired* (those of one core), as
# *today* (on most cores measured) or as *projected* by their line. The names of the published
# scenarios are s(l,d), s(l,t), s(l,p), s(h,d), s(h,t) and s(h,p), with l measured or projected.
@dataclass(frozen=True, kw_only=True, eq=False)
class CpioProjection(io.IoResult):
    """I/O rates of a server that was not measured.

    Attributes
    ----------
    scenarios : pandas.DataFrame
        One row an application (columns ``by``) and scenario; ``lower`` and ``upper`` are the
        prediction interval of ``iops``. NaN where not known.
    laws : pandas.DataFrame
        One row an application and law of the I/O rate against cores.
    growth : pandas.DataFrame
        What a market would ask: one row a rate of growth.
    cores, freq_hz : float
        Cores and core frequency of the server that is projected to.
    by : tuple of str
    level, floor : float
        Level of the intervals; lowest utilisation that a projection may fall to.
    """

    kind = "cpio_projection"
    tables = (
        Table(
            "scenarios",
            """
            utilisation_scenario | text | utilisation | "measured", "projected" or "full"
            cpio_scenario   | text | cpio is      | "desired", "today" or "projected"
            utilisation     | 1    | µ            | busy share of the CPU time
            cpio            | 1    | cpio         | cycles per I/O of 512 B
            iops            | 1 [lower, upper] | 512 B IOPS | 512-byte I/Os per second
            storage_bytes_s | B/s  | storage GB/s | bytes read and written
            network_bytes_s | B/s  | network GB/s | bytes that cross the network
            memory_bytes_s  | B/s  | memory GB/s  | bytes that cross the memory bus
            """,
            title="Scenarios",
            most=io.EVERY_ROW,
            show={
                # Rates (B/s) in GB/s, as their titles say.
                name: lambda row, name=name: shown(row[name] / 1e9)  # type: ignore[misc]
                for name in ("storage_bytes_s", "network_bytes_s", "memory_bytes_s")
            },
        ),
        Table(
            "laws",
            """
            law        | text      | law        | name of the law
            parameters | 1         | parameters | number of its parameters
            aicc       | 1         | AICc       | Akaike's criterion, corrected for few runs
            weight     | 1         | weight     | Akaike's weight
            held_out   | share .1% | held out   | error at most cores when fitted to the others
            iops       | 1 [lower, upper] | 512 B IOPS | 512-byte I/Os per second
            preferred  | flag      | use        | whether to prefer it
            why        | text      |            | reason to prefer it
            """,
            title="Laws",
            most=io.EVERY_ROW,
        ),
        Table(
            "growth",
            """
            base_iops       | 1     | I/Os per s now     | 512-byte I/Os per second now
            growth_per_year | share | growth per year    | growth of the demand per year
            years           | 1     | years              | how long they do
            iops            | 1     | I/Os per s then    | 512-byte I/Os per second then
            """,
            title="Growth of the market",
            most=io.EVERY_ROW,
        ),
    )

    scenarios: pd.DataFrame
    laws: pd.DataFrame
    growth: pd.DataFrame
    cores: float
    freq_hz: float
    by: tuple[str, ...]
    level: float
    floor: float

    applications = io.IoResult._groups

    def value(self, utilisation: str, cpio: str, **key: Any) -> float:
        """Return the 512-byte I/Os per second of one application and scenario.

        Raises `PpwError` when there is none, or several.
        """
        table = self.scenarios
        chosen = (table["utilisation_scenario"] == utilisation) & (table["cpio_scenario"] == cpio)
        for name, wanted in key.items():
            chosen &= table[name] == wanted
        if chosen.sum() != 1:
            raise PpwError(f"{int(chosen.sum())} rows of {utilisation}, {cpio}, {key}: name one")
        return float(table.loc[chosen, "iops"].iloc[0])

    def verdict(self) -> list[str]:
        """Say the range of the scenarios, and the law to prefer, by application."""
        laws = {self.label(row): row for row in rows_of(self.laws) if row["preferred"]}
        said = []
        for name, part in self.applications():
            low, high = part["iops"].min(), part["iops"].max()
            sentence = (
                f"{name}: {shown(low)} to {shown(high)} I/Os per second (512 B) on "
                f"{shown(self.cores)} cores of {shown(self.freq_hz, 'Hz')}, by scenario"
            )
            if name in laws:
                sentence += f"; {laws[name]['law']} is to be preferred: {laws[name]['why']}"
            said.append(sentence)
        return said

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the I/O rate of each application in every scenario, with intervals."""
        ax, parts = axes.new_axes(ax), self.applications()[: io.MOST_DRAWN]
        for row, (_, part) in enumerate(parts):
            _draw_scenarios(ax, row, part)
        io.logarithmic(ax, "x")
        io.label_rows(ax, [name for name, _ in parts])
        ax.set_xlabel(f"I/Os per second (512 B) on {self.cores:g} cores")
        for what, colour in io.COLOURS.items():
            ax.plot([], [], "o", color=colour, label=f"µ {what}")
        for what, mark in _CPIO_MARKS.items():
            ax.plot([], [], mark, color=axes.MEASURED, label=f"cpio {what}")
        ax.legend(frameon=False, ncols=2, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        return ax


def project_cpio(
    runs: pd.DataFrame,
    *,
    cores: float,
    freq: float | str | None = None,
    by: Sequence[str] | None = None,
    floor: float = 0.01,
    growth: Sequence[float] = (),
    years: float = 0.0,
    base_iops: float | None = None,
    network_share: float | None = None,
    level: float = 0.90,
    draws: int = 4000,
    seed: int = 0,
) -> CpioProjection:
    """Project the I/O rate of each application to a server with more cores.

    Parameters
    ----------
    runs : pandas.DataFrame
        As for `ppw.cycles_per_io`, on two core counts or more for what is projected.
    cores : float
        Of the server asked for.
    freq : float or str, optional
        Its clock (Hz, or "2GHz"); by default that of the runs. Cycles per I/O are taken not to
        change with the clock.
    by : sequence of str, optional
        As for `ppw.cycles_per_io`.
    floor : float
        Lowest utilisation that a projection may fall to, above 0 and at most 1.
    growth : sequence of float
        Shares by which a market grows each year: 0.7 is 70 %.
    years : float
        How long it does.
    base_iops : float, optional
        What it asks now (512-byte I/Os per s); by default the mean of what the applications did
        on most cores.
    network_share : float, optional
        Bytes that cross the network for each byte read or written. By default what the runs
        measured (network_rx_bytes, network_tx_bytes), else 1, which is said.
    level : float
        Of the prediction intervals for the mean of one new run.
    draws, seed : int
        Of the lines that the intervals come from.

    Returns
    -------
    CpioProjection

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.cycles_per_io`; and for settings that cannot be.
    """
    spec = ServerSpec(as_positive("cores", cores), None if freq is None else as_frequency(freq))
    as_share("level", level)
    if not 0 < floor <= 1:
        raise PpwError(f"floor {floor!r} is not a utilisation above 0 and at most 1; try 0.01")
    if bad := [g for g in growth if not (np.isfinite(g) and g > -1)]:
        raise PpwError(f"growth {bad[0]!r} is not a share above -1: 0.7 is 70 % per year")
    if draws < 100:
        raise PpwError(f"draws {draws!r}: give 100 or more")
    found = project_scenarios(
        runs, spec, by=by, floor=floor, network_share=network_share, draws=draws, seed=seed
    )
    warn_caveats(found.caveats)
    base = float(np.mean(found.today_iops)) if base_iops is None else float(base_iops)
    rates = np.asarray([*growth], dtype=np.float64)
    table = pd.DataFrame({"base_iops": base, "growth_per_year": rates, "years": float(years)})
    return CpioProjection(
        scenarios=by_group([found.frame(u, c, level) for u in UTILISATION for c in CPIO]),
        laws=found.laws(level),
        growth=table.assign(iops=io_laws.grow(base, rates, years)),
        cores=spec.cores,
        freq_hz=found.freq_hz,
        by=tuple(found.by),
        level=float(level),
        floor=float(floor),
        caveats=tuple(found.caveats),
        input_digest=frame_digest(runs),
    )


def by_group(scenarios: list[pd.DataFrame]) -> pd.DataFrame:
    """Put tables of one row a group together, group by group."""
    table = pd.concat(scenarios, keys=range(len(scenarios)), names=["scenario", "group"])
    return table.sort_index(level=["group", "scenario"], kind="stable").reset_index(drop=True)


_CPIO_MARKS = {"desired": "^", "today": "o", "projected": "s"}


def _draw_scenarios(ax: Axes, row: int, part: pd.DataFrame) -> None:
    """Draw the scenarios of one application beside each other in its row."""
    for number, scenario in enumerate(rows_of(part)):
        y = row + (number - (len(part) - 1) / 2) * 0.08
        colour = io.COLOURS[scenario["utilisation_scenario"]]
        if np.isfinite(scenario["upper"]):
            ax.hlines(y, scenario["lower"], scenario["upper"], color=colour, lw=1.5)
        ax.plot(scenario["iops"], y, _CPIO_MARKS[scenario["cpio_scenario"]], color=colour, ms=5)
