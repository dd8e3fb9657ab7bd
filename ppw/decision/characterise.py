"""`characterise`: the tables by which two or more hosts are compared over the workloads they ran.

After Tables 2 to 6 of Issa & Figueira (2012), https://doi.org/10.1186/2192-113X-1-10: what was
measured, host by host; speed-up, power and cost ratios to one of them; performance per watt and per
price; and what the processor and its memory did.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.steps import SAME_STEP
from measurements import check_runs, identity_columns
from measurements.counters.memory_traffic import llc_misses_per_byte
from measurements.table.headers import nearest
from ppw.decision.compare import scope_of
from ppw.decision.objectives import per_dollar_ratio, per_watt_ratio
from ppw.errors import PpwError
from ppw.results import caveats as cv
from ppw.results.arguments import as_frequency, as_positive
from ppw.results.axes import BEST, CURVE, MEASURED, PROJECTED, new_axes
from ppw.results.result import PrintedTable, Result, Table, frame_digest
from ppw.results.text import key_texts, plot_label, shown, shown_name
from ppw.runs.caveats import UNKNOWN_WATTS, sources_known
from ppw.runs.groups import canonical
from ppw.runs.prepare import at_full_load

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from matplotlib.axes import Axes
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray

    Mask = NDArray[np.bool_]

    # Hosts by workload.
    _ByKey = dict[tuple[str, ...], dict[str, "Measured"]]


# What one host did in one workload: the measures of a characterisation, from its runs.


class Measure(NamedTuple):
    """One measure: its name, unit and printed table."""

    name: str
    unit: str
    table: str


class Measured(NamedTuple):
    """One host in one workload.

    Attributes
    ----------
    key : tuple of str
        The workload, to be looked up by.
    keys : tuple
        The same as values of the table.
    host : str
    freq_hz : float
        NaN where not known.
    runs : int
    measures : mapping of str to float
        Mean of each measure over the runs; NaN where not measured.
    price : float
    scope : str
        Of its watts; empty where not known.
    """

    key: tuple[str, ...]
    keys: tuple[Any, ...]
    host: str
    freq_hz: float
    runs: int
    measures: Mapping[str, float]
    price: float
    scope: str


class _Columns(dict[str, "FloatArray"]):
    """Columns of some runs as numbers; one that the table lacks is NaN."""

    def __init__(self, rows: pd.DataFrame) -> None:
        super().__init__()
        self._rows = rows

    def __missing__(self, column: str) -> FloatArray:
        if column not in self._rows:
            return np.full(len(self._rows), np.nan)
        return self._rows[column].to_numpy(dtype=np.float64)


def _column(name: str) -> Callable[[Mapping[str, FloatArray]], FloatArray]:
    return lambda runs: runs[name]


def _first(*found: FloatArray) -> FloatArray:
    """Take the first of several ways that gives a value, run by run."""
    made = found[0]
    for other in found[1:]:
        made = np.where(np.isnan(made), other, made)
    return made


def _performance(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["throughput_ops_s"], 1 / runs["time_s"])


def _power(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["power_w"], runs["energy_j"] / runs["time_s"])


def _energy(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["energy_j"], runs["power_w"] * runs["time_s"])


def _cpi(runs: Mapping[str, FloatArray]) -> FloatArray:
    return _first(runs["cpi"], runs["cycles"] / runs["instructions"])


def _misses_per_byte(runs: Mapping[str, FloatArray]) -> FloatArray:
    pairs = zip(runs["llc_misses"], runs["data_bytes"], strict=True)
    return np.array([llc_misses_per_byte(float(m), float(b)) for m, b in pairs])


_MEASURED, RATIOS = "Time, throughput and power", "Ratios to the reference"
_WORTH, _INSIDE = "Performance per watt and per price", "Processor and memory"
_LATENCY = "Latency"
# Printed tables in their order; that of the ratios has no measure of its own.
TABLES = (_MEASURED, RATIOS, _WORTH, _INSIDE, _LATENCY)

_OF_RUNS: dict[Measure, Callable[[Mapping[str, FloatArray]], FloatArray]] = {
    Measure("time", "s", _MEASURED): _column("time_s"),
    Measure("throughput", "1/s", _MEASURED): _column("throughput_ops_s"),
    Measure("power", "W", _MEASURED): _power,
    Measure("energy", "J/run", _MEASURED): _energy,
    Measure("perf/W", "1/J", _WORTH): lambda runs: _performance(runs) / _power(runs),
    Measure("perf/$", "1/s per price", _WORTH): lambda runs: _performance(runs) / runs["price"],
    Measure("CPI", "1", _INSIDE): _cpi,
    Measure("memory bandwidth", "B/s", _INSIDE): _column("memory_bandwidth_bytes_s"),
    Measure("memory latency", "s", _INSIDE): _column("memory_latency_s"),
    Measure("cache misses per byte", "1/B", _INSIDE): _misses_per_byte,
    Measure("median latency", "s", _LATENCY): _column("latency_p50_s"),
    Measure("99th percentile latency", "s", _LATENCY): _column("latency_p99_s"),
}
MEASURES = tuple(_OF_RUNS)


def measure_rows(
    runs: pd.DataFrame, keys: Sequence[str], prices: Mapping[str, float], freq: float | None
) -> list[Measured]:
    """Measure every host in every workload.

    Parameters
    ----------
    runs : pandas.DataFrame
        Checked, in canonical columns.
    keys : sequence of str
        Columns that tell workloads apart.
    prices : mapping of str to float
        By host, in place of the column ``price``.
    freq : float or None
        Hz; None takes the highest of each host and workload.
    """
    made = []
    grouped = runs.groupby([*keys, "host"], sort=True, dropna=False)
    for key, rows in grouped:
        values = key if isinstance(key, tuple) else (key,)
        chosen, at = _at_frequency(rows, freq)
        if len(chosen):
            made.append(_measured(values[:-1], str(values[-1]), chosen, at, prices))
    if not made:
        raise PpwError(f"no host was measured at {shown(freq, 'Hz')}: leave freq out, or measure")
    return made


def _at_frequency(rows: pd.DataFrame, freq: float | None) -> tuple[pd.DataFrame, float]:
    """Runs of one frequency, at full load."""
    rows = rows[at_full_load(rows)]
    if "freq_hz" not in rows or rows["freq_hz"].isna().all():
        return rows, float("nan")
    at = float(rows["freq_hz"].max()) if freq is None else freq
    return rows[(rows["freq_hz"] / at - 1).abs() <= SAME_STEP], at


def _measured(
    keys: tuple[Any, ...],
    host: str,
    rows: pd.DataFrame,
    at: float,
    prices: Mapping[str, float],
) -> Measured:
    columns = _Columns(rows)
    if host in prices:
        columns["price"] = np.full(len(rows), prices[host])
    with np.errstate(divide="ignore", invalid="ignore"):
        measures = {m.name: _mean(of_runs(columns)) for m, of_runs in _OF_RUNS.items()}
    return Measured(
        key=tuple(map(str, keys)),
        keys=keys,
        host=host,
        freq_hz=at,
        runs=len(rows),
        measures=measures,
        price=_mean(columns["price"]),
        scope=_scope(rows),
    )


def speed_up(one: Measured, other: Measured) -> float:
    """Speed-up of one host over another, of what both were measured in; NaN for neither."""
    rates = one.measures["throughput"] / other.measures["throughput"]
    times = other.measures["time"] / one.measures["time"]
    return times if np.isnan(rates) else rates


def _mean(values: FloatArray) -> float:
    """Mean of the runs that have it; NaN where none has, or what has none cannot be."""
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else float("nan")


def _scope(rows: pd.DataFrame) -> str:
    if "power_source" not in rows:
        return ""
    scopes = {scope_of(source) for source in rows["power_source"].dropna().unique()}
    return " and ".join(sorted(scope for scope in scopes if scope))


_OF_WATTS = ("power ratio", "perf/W ratio")
_RATIO = {
    name: Measure(name, "1", RATIOS)
    for name in ("speed-up", "power ratio", "cost ratio", "perf/W ratio", "perf/$ ratio")
}
_EPSILON = 1e-6


@dataclass(frozen=True, kw_only=True, eq=False)
class Characterisation(Result):
    """Hosts side by side.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a workload, measure and host, without those that were not measured.
    by : tuple of str
        Columns that tell the workloads apart.
    hosts : tuple of str
        The reference first.
    reference : str
        Host that ratios are to.
    caveats : tuple of str
    """

    kind = "characterisation"
    tables = (
        Table(
            "table",
            """
            table   | text  | | title of the printed table that shows the row
            measure | text  | | what was measured
            unit    | text  | | unit of `value`
            host    | text  | | host
            value   | unit  | | mean of the runs at `freq_hz`, or ratio to the reference host
            freq_hz | Hz    | | frequency, NaN where it is not known
            runs    | count | | number of runs
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
        """Look one cell up; NaN where it is empty.

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
            lines = [self._line(key, group, hosts) for key, group in cells]
            header = [*self.by, "measure", "unit", *hosts]
            made.append(PrintedTable(str(title), header, lines, len(self.by) + 2))
        return made

    def _line(self, key: Any, group: pd.DataFrame, hosts: Sequence[str]) -> list[str]:
        keys = dict(zip([*self.by, "measure", "unit"], key, strict=True))
        by_host = {row["host"]: row for row in group.to_dict(orient="records")}
        several = len({row["scope"] for row in by_host.values()}) > 1
        cells = []
        for host in hosts:
            row = by_host.get(host)
            scope = f" {row['scope'] or 'of unknown scope'}" if row and several else ""
            cells.append(f"{shown(row['value'])}{scope}" if row else "")
        unit = "" if keys["unit"] == "1" else keys["unit"]
        return [*key_texts(self.by, keys), keys["measure"], unit, *cells]

    def text_parts(self) -> list[str]:
        """Return the sentences and all tables."""
        tables = self.printed_tables()
        return [*self.verdict(), *(part for t in tables for part in ("", t.title, *t.lines()))]

    def verdict(self) -> list[str]:
        """Say for each pair of host and reference who is better per watt and per price."""
        said = [f"Ratios are to {self.reference}."]
        for host in self.hosts[1:]:
            rows = self.table[self.table["host"] == host]
            parts = [
                f"{measure} {_range(rows.loc[rows['measure'] == measure, 'value'])}"
                for measure in _RATIO
                if (rows["measure"] == measure).any()
            ]
            said.append(f"{host}: {', '.join(parts) or 'nothing to set against it'}.")
        return said

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the ratios of every host and workload to the reference, on a logarithmic axis."""
        return plot_ratios(self, ax)


def characterise(
    runs: pd.DataFrame,
    *,
    reference: str | None = None,
    prices: Mapping[str, float] | None = None,
    freq: float | str | None = None,
    by: Sequence[str] | None = None,
    mixed_scope: bool = False,
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

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    tidy = check_runs(canonical(runs), needed=["host"])
    hosts = list(dict.fromkeys(tidy["host"].astype(str)))
    if len(hosts) < 2:
        raise PpwError(
            f"{runs.attrs.get('source', 'runs')}: the runs are of one host, {hosts[0]!r}: tables "
            "side by side take two"
        )
    for host in [*([] if reference is None else [reference]), *(prices or {})]:
        if host not in hosts:
            raise PpwError(f"no host {host!r}{nearest(host, hosts)}; there are {', '.join(hosts)}")
    known = {h: as_positive(f"price of {h}", p) for h, p in (prices or {}).items()}
    keys = _keys(tidy) if by is None else list(by)
    by_key: _ByKey = {}
    for cell in measure_rows(tidy, keys, known, None if freq is None else as_frequency(freq)):
        by_key.setdefault(cell.key, {})[cell.host] = cell
    first = reference or _slowest(by_key, hosts)
    ordered = [first, *(h for h in hosts if h != first)]
    rows, caveats = _rows(by_key, keys, ordered, mixed_scope)
    caveats = [*_table_caveats(tidy), *caveats]
    cv.warn(caveats)
    return Characterisation(
        table=pd.DataFrame(rows),
        by=tuple(keys),
        hosts=tuple(ordered),
        reference=first,
        caveats=tuple(caveats),
        input_digest=frame_digest(tidy),
    )


def _keys(runs: pd.DataFrame) -> list[str]:
    """Identity columns that tell workloads apart, and do not merely describe a host."""
    columns = [c for c in identity_columns(runs) if c not in ("host", "family")]
    return [c for c in columns if c == "workload" or not _describes(runs, c)]


def _describes(runs: pd.DataFrame, column: str) -> bool:
    values = [set(map(str, rows)) for _, rows in runs.groupby("host")[column]]
    return all(len(v) == 1 for v in values) and len(set.union(*values)) > 1


def _slowest(by_key: _ByKey, hosts: Sequence[str]) -> str:
    """Host that is slower than the first in the geometric mean of the workloads of all, or it."""
    common = [found for found in by_key.values() if set(found) == set(hosts)]

    def faster(host: str) -> float:
        ratios = np.log([speed_up(found[host], found[hosts[0]]) for found in common])
        return float(np.mean(ratios)) if len(ratios) and not np.isnan(ratios).any() else 0.0

    return min(hosts, key=faster)


def _rows(
    by_key: _ByKey, keys: Sequence[str], hosts: Sequence[str], mixed: bool
) -> tuple[list[dict[str, Any]], list[str]]:
    """Rows of the table by printed table, workload, measure and host, and caveats of scope."""
    rows: list[dict[str, Any]] = []
    unlike: list[str] = []
    for table in TABLES:
        for found in by_key.values():
            if table == RATIOS:
                rows += _ratio_rows(found, keys, hosts, mixed, unlike)
                continue
            rows += [
                _row(found[host], keys, measure, found[host].measures[measure.name])
                for measure in MEASURES
                for host in hosts
                if measure.table == table and host in found
            ]
    known = [row for row in rows if not np.isnan(row["value"])]
    return known, _scope_caveats(unlike, mixed)


def _ratio_rows(
    found: Mapping[str, Measured],
    keys: Sequence[str],
    hosts: Sequence[str],
    mixed: bool,
    unlike: list[str],
) -> list[dict[str, Any]]:
    base = found.get(hosts[0])
    if base is None:
        return []
    rows = []
    for host in (h for h in hosts[1:] if h in found):
        other = found[host]
        alike = not (other.scope and base.scope) or other.scope == base.scope
        if not alike:
            unlike.append(f"{host} {other.scope}, {hosts[0]} {base.scope}")
        for measure, value in _ratios(other, base).items():
            refused = measure in _OF_WATTS and not alike and not mixed
            rows.append(_row(other, keys, _RATIO[measure], np.nan if refused else value))
    return rows


def _ratios(other: Measured, base: Measured) -> dict[str, float]:
    """Ratios of a host to the reference; NaN where something of them was not measured."""
    faster = speed_up(other, base)
    power = other.measures["power"] / base.measures["power"]
    cost = other.price / base.price
    return {
        "speed-up": faster,
        "power ratio": power,
        "cost ratio": cost,
        "perf/W ratio": np.nan if np.isnan(power) else per_watt_ratio(faster, power),
        "perf/$ ratio": np.nan if np.isnan(cost) else per_dollar_ratio(faster, cost),
    }


def _row(cell: Measured, keys: Sequence[str], measure: Measure, value: float) -> dict[str, Any]:
    watts = measure.unit in ("W", "J/run", "1/J") or measure.name in _OF_WATTS
    return {
        **dict(zip(keys, cell.keys, strict=True)),
        "table": measure.table,
        "measure": measure.name,
        "unit": measure.unit,
        "host": cell.host,
        "value": float(value),
        "freq_hz": cell.freq_hz,
        "runs": float(cell.runs),
        "scope": cell.scope if watts else "",
    }


def _scope_caveats(unlike: Sequence[str], mixed: bool) -> list[str]:
    if not unlike:
        return []
    said = "; ".join(dict.fromkeys(unlike))
    if mixed:
        return [f"mixed scope, as asked for: watts of {said} are set against each other"]
    return [
        f"watts of different scope ({said}) are not set against each other, and their ratios stay "
        "empty: measure alike, or ask for --mixed-scope"
    ]


def _table_caveats(runs: pd.DataFrame) -> list[str]:
    watts = "power_w" in runs or "energy_j" in runs
    caveats = [UNKNOWN_WATTS] if watts and not sources_known(runs) else []
    if (
        "family" in runs
        and "freq_hz" in runs
        and runs.groupby("host")["freq_hz"].nunique().gt(1).any()
    ):
        caveats.append(
            "runs of one host are at several frequencies: it is shown at the highest, or at the "
            "one asked for"
        )
    return caveats


def _range(values: pd.Series[Any]) -> str:
    low, high = float(values.min()), float(values.max())
    if high <= low * (1 + _EPSILON):
        return shown(low)
    return f"{shown(low)} to {shown(high)}"


def plot_ratios(result: Characterisation, ax: Axes | None = None) -> Axes:
    """Draw speed-up, perf/W and perf/$ to the reference by host and workload, the first thirty."""
    from matplotlib.ticker import LogLocator, MaxNLocator, NullLocator

    axes, lines = new_axes(ax), _lines(result)[:_MOST_DRAWN]
    place = {line: i for i, line in enumerate(lines)}
    drawn = []
    for measure, colour, mark in zip(_DRAWN, (CURVE, BEST, PROJECTED), "osD", strict=True):
        rows = result.table[result.table["measure"] == measure].to_dict(orient="records")
        points = [(row["value"], place.get(_label(result, row), -1)) for row in rows]
        points = [point for point in points if point[1] >= 0]
        if points:
            drawn += [value for value, _ in points]
            axes.plot(*zip(*points, strict=True), mark, color=colour, ms=5, label=measure)
    axes.axvline(1.0, color=MEASURED, lw=0.8)
    axes.set_yticks(range(len(lines)), [plot_label(line) for line in lines])
    axes.invert_yaxis()
    axes.set_xscale("log")
    ends = np.array([*drawn, 1.0])
    narrow = ends.max() < 10 * ends.min()
    axes.xaxis.set_major_locator(MaxNLocator(6) if narrow else LogLocator(subs=(1.0, 2.0, 5.0)))
    axes.xaxis.set_major_formatter("{x:g}")
    axes.xaxis.set_minor_locator(NullLocator())
    axes.set_xlabel(f"ratio to {plot_label(result.reference)}")
    axes.set_ylabel("host and workload")
    if drawn:
        axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return axes


_DRAWN = ("speed-up", "perf/W ratio", "perf/$ ratio")
_MOST_DRAWN = 30


def _lines(result: Characterisation) -> list[str]:
    rows = result.table[result.table["measure"].isin(_DRAWN)].to_dict(orient="records")
    return list(dict.fromkeys(_label(result, row) for row in rows))


def _label(result: Characterisation, row: Mapping[Any, Any]) -> str:
    return ", ".join([shown_name(row["host"]), *key_texts(result.by, row)])
