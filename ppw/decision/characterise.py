"""`characterise`: the tables by which two or more hosts are compared over the workloads they ran.

After Tables 2 to 6 of Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10: what was
measured, host by host; speed-up, power and cost ratios to one of them; performance per watt and per
price; and what the processor and its memory did.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from measurements import check_runs, identity_columns
from measurements.counters.memory_traffic import llc_misses_per_byte
from measurements.table.headers import nearest
from ppw.decision import compare, objectives as obj
from ppw.errors import PpwError
from ppw.projection import answers
from ppw.results import axes as drawing, result as rs, text as tx
from ppw.results.axes import Axes
from ppw.results.result import PrintedTable
from ppw.runs import groups as gr, metrics as mt, prepare

# Hosts by workload.
_ByKey = dict[tuple[Any, ...], dict[str, "HostFigures"]]


class HostMeasure(NamedTuple):
    """One measure of a host: its name, unit and printed table."""

    name: str
    unit: str
    table: str


_MEASURED, RATIOS = "Time, throughput and power", "Ratios to the reference"
_WORTH, _INSIDE = "Performance per watt and per price", "Processor and memory"
_LATENCY = "Latency"
# Printed tables in their order; that of the ratios has no measure of its own.
TABLES = (_MEASURED, RATIOS, _WORTH, _INSIDE, _LATENCY)
MEASURES = (
    HostMeasure("time", "s", _MEASURED),
    HostMeasure("throughput", "1/s", _MEASURED),
    HostMeasure("power", "W", _MEASURED),
    HostMeasure("energy", "J/run", _MEASURED),
    HostMeasure("perf/W", "1/J", _WORTH),
    HostMeasure("perf/$", "1/s per price", _WORTH),
    HostMeasure("CPI", "1", _INSIDE),
    HostMeasure("memory bandwidth", "B/s", _INSIDE),
    HostMeasure("memory latency", "s", _INSIDE),
    HostMeasure("cache misses per byte", "1/B", _INSIDE),
    HostMeasure("median latency", "s", _LATENCY),
    HostMeasure("99th percentile latency", "s", _LATENCY),
)
_OF_POWER = ("power ratio", "perf/W ratio")
# Metrics that are projected where all rows of a frequency are left out, and their columns.
_PROJECTED = {"time": "time_s", "throughput": "throughput_ops_s", "power": "power_w"}
_RATIO = {
    name: HostMeasure(name, "1", RATIOS)
    for name in ("speed-up", "power ratio", "cost ratio", "perf/W ratio", "perf/$ ratio")
}
_DRAWN = ("speed-up", "perf/W ratio", "perf/$ ratio")
_MOST_DRAWN = 30
_EPSILON = 1e-6


class HostFigures(NamedTuple):
    """What one host did in one workload."""

    # The workload, as values of the table.
    keys: tuple[Any, ...]
    host: str
    freq_hz: float  # NaN where not known
    runs: int
    # Mean of each measure and of the price over the runs; NaN where not measured.
    means: Mapping[str, float]
    scope: str  # what the power is of; empty where not known


@dataclass(frozen=True, kw_only=True, eq=False)
class Characterisation(rs.Result):
    """Hosts side by side.

    Attributes
    ----------
    table : pandas.DataFrame
        One row per workload, measure and host, without those that were not measured.
    by : tuple of str
        Columns that tell the workloads apart.
    hosts : tuple of str
        The reference first.
    reference : str
        Host that ratios are to.
    """

    kind = "characterisation"
    tables = (
        rs.Table(
            "table",
            """
            table   | text  | | title of the printed table that shows the row
            measure | text  | | what was measured
            unit    | text  | | unit of `value`
            host    | text  | | host
            value   | unit  | | mean of the runs at `freq_hz`, or ratio to the reference host
            freq_hz | Hz    | | frequency, NaN where it is not known
            runs    | count | | number of runs; 0 where the value is projected
            scope   | text  | | scope of power ("wall", "package", …), empty where not known
            """,
            key="cells",
        ),
    )

    table: pd.DataFrame
    by: tuple[str, ...]
    hosts: tuple[str, ...]
    reference: str

    def value(self, measure: str, host: str, **keys: Any) -> float:
        """Return the value of a measure for a host; NaN where the table has none.

        >>> result.value("speed-up", "westmere", workload="memcached")  # doctest: +SKIP
        14.79
        """
        rows = self.table[(self.table["measure"] == measure) & (self.table["host"] == host)]
        for column, key in keys.items():
            rows = rows[rows[column] == key]
        return float(rows["value"].iloc[0]) if len(rows) else float("nan")

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the tables as they print: a row a workload and measure, a column a host."""
        made = []
        for title, rows in self.table.groupby("table", sort=False):
            # To itself the reference has no ratio.
            hosts = self.hosts[1:] if title == RATIOS else self.hosts
            cells = rows.groupby([*self.by, "measure", "unit"], sort=False, dropna=False)
            lines = [self._measure_row_cells(key, group, hosts) for key, group in cells]
            header = [*self.by, "measure", "unit", *hosts]
            made.append(PrintedTable(str(title), header, lines, len(self.by) + 2))
        return made

    def _measure_row_cells(self, key: Any, group: pd.DataFrame, hosts: Sequence[str]) -> list[str]:
        keys = dict(zip([*self.by, "measure", "unit"], key, strict=True))
        by_host = {row["host"]: row for row in rs.rows_of(group)}
        several = len(set(group["scope"])) > 1
        cells = []
        for host in hosts:
            row = by_host.get(host)
            scope = f" {row['scope'] or 'of unknown scope'}" if row and several else ""
            cells.append(f"{tx.shown(row['value'])}{scope}" if row else "")
        unit = "" if keys["unit"] == "1" else keys["unit"]
        return [*tx.key_texts(self.by, keys), keys["measure"], unit, *cells]

    def text_parts(self) -> list[str]:
        """Return the sentences and all tables."""
        tables = self.printed_tables()
        return [*self.verdict(), *(part for t in tables for part in ("", t.title, *t.lines()))]

    def verdict(self) -> list[str]:
        """Say for each pair of host and reference who is better per watt and per price."""
        sentences = [f"Ratios are to {self.reference}."]
        for host in self.hosts[1:]:
            values = self.table[self.table["host"] == host].groupby("measure")["value"]
            there = [name for name in _RATIO if name in values.groups]
            parts = [f"{name} {_lowest_to_highest_text(values.get_group(name))}" for name in there]
            sentences.append(f"{host}: {', '.join(parts) or 'nothing to set against it'}.")
        return sentences

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw speed-up, perf/W and perf/$ to the reference by host and workload, to thirty."""
        axes, lines = drawing.new_axes(ax), plot_lines(self)
        place = {line: i for i, line in enumerate(lines)}
        ratios = [1.0]
        colours = (drawing.CURVE, drawing.BEST, drawing.PROJECTED)
        for measure, colour, mark in zip(_DRAWN, colours, "osD", strict=True):
            rows = rs.rows_of(self.table[self.table["measure"] == measure])
            labels = [_host_and_workload_label(self, row) for row in rows]
            both = zip(rows, labels, strict=True)
            points = [(row["value"], place[label]) for row, label in both if label in place]
            if points:
                ratios += [value for value, _ in points]
                axes.plot(*zip(*points, strict=True), mark, color=colour, ms=5, label=measure)
        compare.draw_ratio_axes(axes, [tx.plot_label(line) for line in lines], np.array(ratios))
        axes.set_xlabel(f"ratio to {tx.plot_label(self.reference)}")
        axes.set_ylabel("host and workload")
        if len(ratios) > 1:
            axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        return axes


def plot_lines(result: Characterisation) -> list[str]:
    """Labels of the rows that the plot draws: host and workload, up to thirty."""
    rows = rs.rows_of(result.table[result.table["measure"].isin(_DRAWN)])
    return list(dict.fromkeys(_host_and_workload_label(result, row) for row in rows))[:_MOST_DRAWN]


def _host_and_workload_label(result: Characterisation, row: Mapping[Any, Any]) -> str:
    return ", ".join([tx.shown_name(row["host"]), *tx.key_texts(result.by, row)])


def characterise(
    runs: pd.DataFrame,
    *,
    reference: str | None = None,
    prices: Mapping[str, float] | None = None,
    freq: float | str | None = None,
    by: Sequence[str] | None = None,
    mixed_scope: bool = False,
    keep_all: bool = False,
) -> Characterisation:
    """Set two or more hosts side by side over the workloads that they ran.

    Parameters
    ----------
    runs : pandas.DataFrame
        A runs table (`ppw.read_runs`) with a column ``host``.
    reference : str, optional
        Host that ratios are to; by default the slowest over the workloads, as published.
    prices : mapping of str to float, optional
        Price of a host; by default the mean of the column ``price``.
    freq : float or str, optional
        Frequency of all hosts, in Hz or with a unit; by default each one's highest measured.
    by : sequence of str, optional
        Columns that tell workloads apart; by default the identity columns but host, family and
        those that describe a host, as its cores do where it was measured with one number of them.
    mixed_scope : bool
        Set watts of different scope, such as processor and wall, against each other; a caveat says
        so. Otherwise these ratios stay empty.
    keep_all : bool
        As for `ppw.project`. Where all rows of a host's frequency are left out, its time,
        throughput and power there are projected, and ``runs`` is 0.

    Returns
    -------
    Characterisation
        Hosts side by side.

    Raises
    ------
    MeasurementError
        For values that cannot be, all of them at once.
    PpwError
        For fewer than two hosts, or a host that is not there.
    """
    tidy = check_runs(gr.canonical(runs), needed=["host"])
    hosts = list(dict.fromkeys(tidy["host"].astype(str)))
    if len(hosts) < 2:
        raise PpwError(
            f"{runs.attrs.get('source', 'runs')}: the runs are of one host, {hosts[0]!r}: a "
            "comparison needs two"
        )
    for host in [*([] if reference is None else [reference]), *(prices or {})]:
        if host not in hosts:
            raise PpwError(f"no host {host!r}{nearest(host, hosts)}; there are {', '.join(hosts)}")
    known = {h: tx.as_positive(f"price of {h}", p) for h, p in (prices or {}).items()}
    keys = _workload_columns(tidy) if by is None else list(by)
    at = None if freq is None else tx.as_frequency(freq)
    by_key: _ByKey = {}
    accepted, left_out = _accept_rows(tidy, keys, keep_all)
    for cell in _measure_hosts(accepted, keys, known, at):
        by_key.setdefault(tuple(map(str, cell.keys)), {})[cell.host] = cell
    if not by_key:
        raise PpwError(
            f"no host was measured at {tx.shown(at, 'Hz')}: leave --freq out, or measure there"
        )
    first = reference or _slowest(by_key, hosts)
    ordered = [first, *(h for h in hosts if h != first)]
    rows, unlike = _table_rows(by_key, keys, ordered, mixed_scope)
    caveats = [*left_out, *_source_and_frequency_caveats(tidy)]
    caveats += _scope_caveats(unlike, mixed_scope)
    rs.warn_caveats(caveats)
    return Characterisation(
        table=pd.DataFrame(rows),
        by=tuple(keys),
        hosts=tuple(ordered),
        reference=first,
        caveats=tuple(caveats),
        input_digest=rs.frame_digest(tidy),
    )


def _workload_columns(runs: pd.DataFrame) -> list[str]:
    """Identity columns that tell workloads apart, and do not merely describe a host."""

    def differs_by_host_alone(column: str) -> bool:
        values = [set(map(str, rows)) for _, rows in runs.groupby("host")[column]]
        return all(len(v) == 1 for v in values) and len(set.union(*values)) > 1

    columns = [c for c in identity_columns(runs) if c not in ("host", "family")]
    return [c for c in columns if c == "workload" or not differs_by_host_alone(c)]


def _accept_rows(
    runs: pd.DataFrame, keys: Sequence[str], keep_all: bool
) -> tuple[pd.DataFrame, list[str]]:
    """Leave flagged rows out, and project frequencies without a row: runs, and texts on both."""
    # Rows of several kinds of work are told apart by what they lack: no curve takes them all.
    names = [
        name
        for name in (*_PROJECTED, "energy")
        if (columns := mt.columns_for(mt.METRICS[name], runs))
        and runs.reindex(columns=["freq_hz", *columns]).notna().all(axis=None)
    ]
    runs = runs.assign(projected=False)
    if keep_all or not names:
        return runs, []
    prepared = prepare.prepare(runs, by=[*keys, "host"], metric=names, keep_all=False)
    if prepared.left_out.empty:
        return runs, []
    cells = [(group, hz) for group, steps in prepared.projected_steps.items() for hz in steps]
    if not cells:
        return prepared.runs, prepared.left_out_texts()
    group, frequency = np.array(cells).reshape(-1, 2).T
    # What identifies a group, its price and its sensor hold for its projected rows too.
    first = np.unique(prepared.groups.codes, return_index=True)[1][group.astype(int)]
    kept = {*keys, "host", "family", "price", "power_source"} & {*runs}
    rows = prepared.runs[[*kept]].iloc[first].assign(freq_hz=frequency, load=1.0, projected=True)
    fitted = answers.Answers.of(prepared, answers.FitOptions())
    at = answers.TargetCells(group.astype(int), frequency, np.ones(len(group)))
    for metric in prepared.metrics:
        if column := _PROJECTED.get(metric.name):
            found = fitted.at(metric, at, 0.9)
            rows[column] = np.where(found.has_curves(), found.prediction.value, np.nan)
    rows = rows if "load" in runs else rows.drop(columns="load")
    return pd.concat([prepared.runs, rows]), prepared.left_out_texts()


def _measure_hosts(
    runs: pd.DataFrame, keys: Sequence[str], prices: Mapping[str, float], freq: float | None
) -> Iterator[HostFigures]:
    """Yield the figures of each host and workload, at a frequency (Hz) or the highest one."""
    runs = runs.reset_index(drop=True)
    measures = _measure_runs(runs, prices)
    for key, rows in runs.groupby([*keys, "host"], sort=True, dropna=False):
        rows, at = _full_load_at_frequency(rows, freq)
        if len(rows):
            values = measures.loc[rows.index].replace([np.inf, -np.inf], np.nan)
            means = {str(name): float(mean) for name, mean in values.mean().items()}
            scope = " and ".join(sorted(compare.scopes_of(rows)))
            measured = int((~rows["projected"]).sum())
            yield HostFigures(key[:-1], str(key[-1]), at, measured, means, scope)


def _measure_runs(runs: pd.DataFrame, prices: Mapping[str, float]) -> pd.DataFrame:
    """Measures of every run, and its price, by name; what was not measured is NaN."""
    columns = [
        *("throughput_ops_s", "time_s", "power_w", "energy_j", "price", "cpi", "cycles"),
        *("instructions", "llc_misses", "data_bytes", "memory_bandwidth_bytes_s"),
        *("memory_latency_s", "latency_p50_s", "latency_p99_s"),
    ]
    have = runs.reindex(columns=columns).astype(np.float64)
    # Prices that were given by host win over the column.
    price = runs["host"].astype(str).map(prices).astype(np.float64).fillna(have["price"])
    # Work per second: operations where they were counted, else one job in its time.
    performance = have["throughput_ops_s"].fillna(1 / have["time_s"])
    power = have["power_w"].fillna(have["energy_j"] / have["time_s"])
    both = zip(have["llc_misses"], have["data_bytes"], strict=True)
    measures = (
        have["time_s"],
        have["throughput_ops_s"],
        power,
        have["energy_j"].fillna(have["power_w"] * have["time_s"]),
        performance / power,
        performance / price,
        have["cpi"].fillna(have["cycles"] / have["instructions"]),
        have["memory_bandwidth_bytes_s"],
        have["memory_latency_s"],
        [llc_misses_per_byte(misses, size) for misses, size in both],
        have["latency_p50_s"],
        have["latency_p99_s"],
    )
    by_name = dict(zip([measure.name for measure in MEASURES], measures, strict=True))
    return pd.DataFrame({**by_name, "price": price})


def _full_load_at_frequency(rows: pd.DataFrame, freq: float | None) -> tuple[pd.DataFrame, float]:
    """Full-load runs at a frequency (Hz), or at the highest for None, and that frequency."""
    rows = rows[prepare.at_full_load(rows)]
    if "freq_hz" not in rows or rows["freq_hz"].isna().all():
        return rows, float("nan")
    at = float(rows["freq_hz"].max()) if freq is None else freq
    return rows[(rows["freq_hz"] / at - 1).abs() <= SAME_STEP], at


def _slowest(by_key: _ByKey, hosts: Sequence[str]) -> str:
    """Choose the slowest host, by geometric mean over common workloads; else the first one."""
    # Over the same workloads only: a host that ran the short ones alone would look fast.
    common = [found for found in by_key.values() if set(found) == set(hosts)]

    def mean_log_speed_up(host: str) -> float:
        ratios = np.log([_speed_up(found[host], found[hosts[0]]) for found in common])
        return float(np.mean(ratios)) if len(ratios) and not np.isnan(ratios).any() else 0.0

    return min(hosts, key=mean_log_speed_up)


def _speed_up(one: HostFigures, other: HostFigures) -> float:
    """Speed-up of one host over another by throughput, else by time; NaN where neither has both."""
    rates = one.means["throughput"] / other.means["throughput"]
    return other.means["time"] / one.means["time"] if np.isnan(rates) else rates


def _table_rows(
    by_key: _ByKey, keys: Sequence[str], hosts: Sequence[str], mixed: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of the table, without NaN values, and texts on hosts of unlike power scope."""
    rows: list[dict[str, Any]] = []
    unlike: list[str] = []
    for table in TABLES:
        for found in by_key.values():
            there = [found[host] for host in hosts if host in found]
            measures = [measure for measure in MEASURES if measure.table == table]
            rows += [_table_row(one, keys, m, one.means[m.name]) for m in measures for one in there]
            if table != RATIOS or hosts[0] not in found:
                continue
            base = there[0]
            for other in there[1:]:
                # Power of a package and power at the wall have no ratio, unless one asks for it.
                alike = not (other.scope and base.scope) or other.scope == base.scope
                if not alike:
                    unlike.append(f"{other.host} {other.scope}, {base.host} {base.scope}")
                for name, value in _ratios_to_reference(other, base).items():
                    refused = name in _OF_POWER and not alike and not mixed
                    rows.append(_table_row(other, keys, _RATIO[name], np.nan if refused else value))
    return [row for row in rows if not np.isnan(row["value"])], unlike


def _ratios_to_reference(other: HostFigures, base: HostFigures) -> dict[str, float]:
    """Speed-up, power, cost, perf/W and perf/$ ratios to the reference; NaN where not measured."""
    faster = _speed_up(other, base)
    power, cost = (other.means[name] / base.means[name] for name in ("power", "price"))
    return {
        "speed-up": faster,
        "power ratio": power,
        "cost ratio": cost,
        "perf/W ratio": np.nan if np.isnan(power) else obj.per_watt_ratio(faster, power),
        "perf/$ ratio": np.nan if np.isnan(cost) else obj.per_dollar_ratio(faster, cost),
    }


def _table_row(
    cell: HostFigures, keys: Sequence[str], measure: HostMeasure, value: float
) -> dict[str, Any]:
    of_power = measure.unit in ("W", "J/run", "1/J") or measure.name in _OF_POWER
    return {
        **dict(zip(keys, cell.keys, strict=True)),
        "table": measure.table,
        "measure": measure.name,
        "unit": measure.unit,
        "host": cell.host,
        "value": float(value),
        "freq_hz": cell.freq_hz,
        "runs": float(cell.runs),
        "scope": cell.scope if of_power else "",
    }


def _scope_caveats(unlike: Sequence[str], mixed: bool) -> list[str]:
    if not unlike:
        return []
    hosts = "; ".join(dict.fromkeys(unlike))
    if mixed:
        return [
            "power of different scope is compared, because --mixed-scope was given: power of "
            f"{hosts}"
        ]
    return [
        f"power of different scope ({hosts}) is not compared, and its ratios stay "
        "empty: measure all hosts with one kind of sensor, or give --mixed-scope"
    ]


def _source_and_frequency_caveats(runs: pd.DataFrame) -> list[str]:
    watts = "power_w" in runs or "energy_j" in runs
    caveats = [prepare.UNKNOWN_WATTS] if watts and not prepare.all_sources_named(runs) else []
    known = {"family", "freq_hz"} <= set(runs)
    if known and runs.groupby("host")["freq_hz"].nunique().gt(1).any():
        caveats.append(
            "a host was measured at several frequencies: its figures are those at --freq, or "
            "else at the highest"
        )
    return caveats


def _lowest_to_highest_text(values: pd.Series[Any]) -> str:
    low, high = float(values.min()), float(values.max())
    return tx.shown(low) + (f" to {tx.shown(high)}" if high > low * (1 + _EPSILON) else "")
