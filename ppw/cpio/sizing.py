"""`size_servers`: servers, energy, money and carbon to go through a data set once in a given time.

Each application is sized by itself, as if the whole data set were swept by it; what they have in
common is then the mean over the applications of servers and energy, which is a mean of reciprocal
rates and not the reciprocal of a mean rate.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES, mean_power, servers_to_sweep
from fitting.regression.lines import FloatArray
from ppw.cpio import result as io, scenarios as sc
from ppw.errors import PpwError
from ppw.results import axes, result as rs
from ppw.results.axes import Axes
from ppw.results.result import PrintedTable
from ppw.results.text import as_frequency, as_positive, as_share, shown

# Scenario of figures that no run measured.
TYPED = "typed"
_J_PER_KWH = 3.6e6


class DataSweep(NamedTuple):
    """A data set swept once, and the site that does it; NaN where a figure is not known."""

    data_bytes: float
    seconds: float
    server_w: float
    idle_share: float
    pue: float
    price_per_kwh: float
    carbon_kg_per_kwh: float
    device_bytes_s: float
    port_bytes_s: float
    level: float

    @classmethod
    def of(
        cls, *, idle_share: float, pue: float, level: float, **numbers: float | None
    ) -> DataSweep:
        """Check the figures. Raises `PpwError` for those that cannot be."""
        if not 0 <= idle_share <= 1:
            raise PpwError(f"idle share {idle_share!r} is not a share of the power, 0 to 1")
        if not pue >= 1:
            raise PpwError(
                f"pue {pue!r} is below 1: give the power of the site divided by that of its servers"
            )
        as_share("level", level)
        known = {n: np.nan if x is None else as_positive(n, x) for n, x in numbers.items()}
        return cls(idle_share=float(idle_share), pue=float(pue), level=float(level), **known)

    def servers(self, rate: FloatArray) -> FloatArray:
        """Compute the servers for a rate per server (I/Os per second), not rounded."""
        return servers_to_sweep(self.data_bytes, self.seconds, rate)

    def kwh(self, servers: FloatArray, utilisation: FloatArray) -> FloatArray:
        """Compute the energy of the site (kWh)."""
        # All servers work for the whole time, at the utilisation that their rate is for.
        watts = mean_power(self.server_w, utilisation, self.idle_share)
        return np.asarray(servers * watts * self.seconds * self.pue / _J_PER_KWH)

    def caveat(self) -> str:
        """Say what was taken for granted."""
        return (
            f"power is stated by the user, not measured: {self.server_w:g} W busy, "
            f"{self.idle_share:.0%} of that idle, PUE {self.pue:g}; power of storage and network "
            "is not included"
        )


class SweepScenarios(NamedTuple):
    """The scenarios of a server, and the sweep that is asked of it."""

    found: sc.Scenarios
    sweep: DataSweep

    def names(self) -> list[tuple[str, str]]:
        """List the pairs of a utilisation and a cycles per I/O."""
        return [*itertools.product(self.found.utilisation, self.found.cpio)]

    def draws(self, utilisation: str, cpio: str) -> tuple[FloatArray, FloatArray]:
        """Compute draws of servers and kWh: (applications, draws)."""
        servers = self.sweep.servers(self.found.rate_draws(utilisation, cpio))
        return servers, self.sweep.kwh(servers, self.found.utilisation_draws[utilisation])

    def frame(self, utilisation: str, cpio: str) -> pd.DataFrame:
        """Tabulate the sweep in one scenario: one row an application."""
        found, sweep = self
        table, busy = found.frame(utilisation, cpio, sweep.level), found.utilisation[utilisation]
        servers = sweep.servers(found.rate(utilisation, cpio))
        kwh = sweep.kwh(servers, busy)
        (lower, upper), (kwh_lower, kwh_upper) = (
            sc.interval_of(draws, sweep.level) for draws in self.draws(utilisation, cpio)
        )
        return table.assign(
            servers=servers,
            lower=lower,
            upper=upper,
            watts=mean_power(sweep.server_w, busy, sweep.idle_share),
            kwh=kwh,
            kwh_lower=kwh_lower,
            kwh_upper=kwh_upper,
            cost=kwh * sweep.price_per_kwh,
            carbon_kg=kwh * sweep.carbon_kg_per_kwh,
            j_per_io=kwh * _J_PER_KWH / (sweep.data_bytes / IO_BYTES),
            devices=np.ceil(table["storage_bytes_s"] / sweep.device_bytes_s),
            network_ports=np.ceil(table["network_bytes_s"] / sweep.port_bytes_s),
        )

    def means(self) -> pd.DataFrame:
        """Tabulate means over the applications, of servers and energy and all else, by scenario."""
        rows: list[dict[str, Any]] = []
        for names in self.names():
            scenario = dict(zip(("utilisation_scenario", "cpio_scenario"), names, strict=True))
            # A mean over applications one of which is not known is not known.
            part = self.frame(*names).drop(columns=[*self.found.by, *scenario])
            means = {str(k): v for k, v in part.mean(skipna=False).items()}
            for prefix, draws in zip(("", "kwh_"), self.draws(*names), strict=True):
                ends = sc.interval_of(draws.mean(axis=0)[None, :], self.sweep.level)
                means |= {f"{prefix}lower": ends[0][0], f"{prefix}upper": ends[1][0]}
            rows.append(scenario | means)
        return pd.DataFrame(rows)

    def total(self, utilisation: str, cpio: str) -> tuple[float, float, FloatArray]:
        """Compute mean servers and kWh over the applications, and draws (draws,) of the kWh."""
        servers = self.sweep.servers(self.found.rate(utilisation, cpio))
        kwh = self.sweep.kwh(servers, self.found.utilisation[utilisation])
        _, drawn = self.draws(utilisation, cpio)
        return float(servers.mean()), float(kwh.mean()), drawn.mean(axis=0)

    def levers(self, base: tuple[str, str], less_w: float | None) -> pd.DataFrame:
        """Tabulate what each change to a scenario saves, alone, and all of them together."""
        rows = []
        _, start_kwh, start_draws = self.total(*base)
        for lever, scenario, changed in self._changes(base, less_w):
            servers, kwh, draws = self._replace(sweep=changed).total(*scenario)
            saved, drawn = 1.0 - kwh / start_kwh, 1.0 - draws / start_draws
            lower, upper = (float(e[0]) for e in sc.interval_of(drawn[None, :], self.sweep.level))
            if not np.ptp(drawn) > 1e-9:
                # A lever that saves one share whatever the runs are is as sure as the model.
                lower = upper = np.nan
            rows.append((lever, servers, kwh, saved, lower, upper))
        return pd.DataFrame(rows, columns=ServerSizing.tables[1].names)

    def _changes(
        self, base: tuple[str, str], less_w: float | None
    ) -> Iterator[tuple[str, tuple[str, str], DataSweep]]:
        """Yield each lever with its scenario and sweep; the first changes nothing."""
        (utilisation, cpio), sweep, names = base, self.sweep, [*self.found.cpio]
        without_idle = best = sweep._replace(idle_share=0.0)
        same = f"as {cpio}" if utilisation == cpio else f"as {utilisation} and {cpio}"
        yield same, base, sweep
        for better in names[: names.index(cpio)][::-1]:
            yield f"cycles per I/O as {better}", (utilisation, better), sweep
        yield "idle power to zero", base, without_idle
        if utilisation != "full":
            yield "utilisation to 100 %", ("full", cpio), sweep
        if less_w is not None:
            less = as_positive("other power (W)", less_w)
            yield f"{less_w:g} W a server", base, sweep._replace(server_w=less)
            best = without_idle._replace(server_w=less)
        yield "all of these", ("full", names[0]), best


def typed_scenarios(
    spec: sc.ServerSpec,
    cpio: float | None,
    utilisation: float | None,
    network_share: float | None,
    draws: int,
) -> sc.Scenarios:
    """Make scenarios of typed figures: one application, and nothing tells how sure they are."""
    if cpio is None or spec.freq_hz is None:
        raise PpwError("without runs, cpio and freq are needed: give both, or runs")
    share = 1.0 if utilisation is None else as_positive("utilisation", utilisation)
    if share > 1:
        raise PpwError(f"utilisation {utilisation!r} is a share of the time, above 0 and up to 1")
    # One application whose figures are exact: draws that nobody made are missing.
    one = np.ones(1)
    cost, busy = as_positive("cpio", cpio) * one, share * one
    unknown = np.full((1, draws), np.nan)
    said = [
        "cycles per I/O and utilisation are stated by the user, not measured, so there are no "
        "intervals"
    ]
    if network_share is None:
        said.append("each byte read or written is assumed to cross the network once")
    return sc.Scenarios(
        by=[],
        keys=pd.DataFrame(index=range(1)),
        runs=pd.DataFrame(),
        codes=np.zeros(0, dtype=np.int64),
        cores=spec.cores,
        freq_hz=spec.freq_hz,
        floor=share,
        utilisation={TYPED: busy, "full": one},
        cpio={TYPED: cost},
        utilisation_draws={TYPED: unknown, "full": np.ones((1, draws))},
        cpio_draws={TYPED: unknown},
        today_iops=np.full(1, np.nan),
        network=np.full(1, 1.0 if network_share is None else float(network_share)),
        memory=np.full(1, np.nan),
        caveats=said,
    )


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerSizing(io.IoResult):
    """Servers and energy of a sweep through a data set.

    Attributes
    ----------
    applications : pandas.DataFrame
        One row an application (columns ``by``) and scenario; ``lower`` and ``upper`` are the
        interval of ``servers``, ``kwh_lower`` and ``kwh_upper`` that of ``kwh``. NaN where not
        known.
    total : pandas.DataFrame
        The same means over the applications by scenario.
    levers : pandas.DataFrame
        What each change to the base scenario would save.
    data_bytes, seconds : float
        The data set (B) and the time (s).
    cores, freq_hz, server_w, idle_share, pue : float
        Figures of a server; ``server_w`` is its power when busy (W).
    by : tuple of str
    level : float
    currency : str
    """

    kind = "server_sizing"
    tables = (
        rs.Table(
            "applications",
            """
            utilisation_scenario | text | utilisation | "measured", "projected", "full", "typed"
            cpio_scenario | text     | cpio is           | "desired", "today", "projected", "typed"
            servers       | 1 [lower, upper] | servers   | number of servers, not rounded
            kwh           | 1 [kwh_lower, kwh_upper] | kWh | energy of the sweep with PUE (kWh)
            j_per_io      | 1        | J per I/O         | energy of one I/O (J)
            cost          | 1 if any | cost ({currency}) | price of the energy
            carbon_kg     | 1 if any | kg CO2e           | carbon of the energy (kg CO2e)
            devices       | 1 if any | devices per server | storage devices of a server
            network_ports | 1 if any | ports per server  | network ports of a server
            utilisation   | 1        |                   | busy share of the CPU time
            cpio          | 1        |                   | cycles per I/O of 512 B
            iops          | 1        |                   | 512-byte I/Os per second of a server
            watts         | W        |                   | mean power of one server without PUE
            """,
            title="Energy",
            most=io.EVERY_ROW,
            show={
                "servers": lambda row: count(row["servers"]),
                "lower": lambda row: _count_interval(row),
            },
        ),
        rs.Table(
            "levers",
            """
            lever   | text      | lever   | name of the change
            servers | 1         | servers | number of servers, not rounded
            kwh     | 1         | kWh     | energy of the sweep with PUE (kWh)
            saved   | share .1% | saved   | share of the energy of the base scenario
            lower   | share     | {level:.0%} interval | lower end of its interval
            upper   | share     |         | upper end of its interval
            """,
            title="What would save",
            most=io.EVERY_ROW,
            show={
                "servers": lambda row: count(row["servers"]),
                "lower": lambda row: _interval_text(row),
            },
        ),
    )

    # One row an application and scenario, and their means by scenario.
    applications: pd.DataFrame
    total: pd.DataFrame
    levers: pd.DataFrame
    data_bytes: float
    seconds: float
    cores: float
    freq_hz: float
    server_w: float
    idle_share: float
    pue: float
    by: tuple[str, ...]
    level: float
    currency: str

    def verdict(self) -> list[str]:
        """Say the base scenario and what would save most."""
        base = self.levers.iloc[0]
        said = [
            f"{amount(self.data_bytes, 'B')} once in {span(self.seconds)}: "
            f"{count(base['servers'])} servers of {shown(self.cores)} cores and "
            f"{shown(base['kwh'])} kWh, with utilisation and cycles per I/O {base['lever']}"
        ]
        # The last lever is all of them.
        rest = self.levers.iloc[1:-1]
        rest = rest[rest["saved"] > 0].sort_values("saved", ascending=False, kind="stable")
        said += [f"{row['lever']} would save {row['saved']:.0%}" for row in rs.rows_of(rest)[:1]]
        return said

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return applications, then their means, and the levers, as they print."""
        table, levers = self.tables
        rows = self.applications
        if self.by and len(self.total) < len(rows):
            blank = dict.fromkeys(self.by, "")
            means = self.total.assign(**{**blank, self.by[0]: "mean"})
            rows = pd.concat([rows.astype(dict.fromkeys(self.by, object)), means])
        first = table.print_rows(self, table.most if most is None else most, rows)
        return [first, levers.print_rows(self)]

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the energy of a sweep by scenario, the mean over the applications."""
        ax, table, place = axes.new_axes(ax), self.total, np.arange(len(self.total))
        colours = [io.COLOURS.get(name, axes.CURVE) for name in table["utilisation_scenario"]]
        ax.barh(place, table["kwh"], color=colours, height=0.65)
        upper = table["kwh_upper"].where(np.isfinite(table["kwh_upper"]))
        ax.hlines(place, table["kwh_lower"], upper, color=axes.MEASURED, lw=1.5)
        io.logarithmic(ax, "x", from_decade=True)
        names = (table["utilisation_scenario"] + ", " + table["cpio_scenario"]).tolist()
        io.label_rows(ax, names, "utilisation, cycles per I/O")
        ax.set_xlabel("energy of one sweep (kWh)")
        return ax


def _interval_text(row: Mapping[Any, Any]) -> str:
    return "–" if row["lower"] != row["lower"] else f"{row['lower']:.1%} … {row['upper']:.1%}"


def size_servers(
    runs: pd.DataFrame | None = None,
    *,
    data_bytes: float,
    time_s: float,
    cores: float,
    freq: float | str | None = None,
    power_per_core_w: float | None = None,
    server_power_w: float | None = None,
    idle_share: float = 0.0,
    pue: float = 1.0,
    electricity: float | None = None,
    carbon_kg_per_kwh: float | None = None,
    other_power_w: float | None = None,
    device_bandwidth_bytes_s: float | None = None,
    port_bandwidth_bytes_s: float | None = None,
    network_share: float | None = None,
    base: tuple[str, str] = ("projected", "projected"),
    cpio: float | None = None,
    utilisation: float | None = None,
    by: Sequence[str] | None = None,
    floor: float = 0.01,
    level: float = 0.90,
    draws: int = 4000,
    seed: int = 0,
    currency: str = "currency",
) -> ServerSizing:
    """Size servers for sweeping a data set once in a time.

    Parameters
    ----------
    runs : pandas.DataFrame, optional
        As for `ppw.project_cpio`. Without it ``cpio`` and ``utilisation`` are typed.
    data_bytes, time_s : float
        The data set, and the time it is swept in.
    cores : float
    freq : float or str, optional
        Clock (Hz); by default that of the runs.
    power_per_core_w, server_power_w : float, optional
        Power of a busy server, one of the two (W).
    idle_share : float
        Idle power as a share of the busy one, 0 to 1.
    pue : float
        Energy of the site over that of servers, 1 or more.
    electricity, carbon_kg_per_kwh : float, optional
        Price, and kg CO2e, of a kWh.
    other_power_w : float, optional
        Watts of another server, as a lever.
    device_bandwidth_bytes_s, port_bandwidth_bytes_s : float, optional
        What one storage device and one network port move (B/s).
    network_share : float, optional
        Bytes that cross the network for each byte read or written.
    base : tuple of two str
        Scenario that levers are applied to: utilisation and cycles per I/O, as of
        `ppw.project_cpio`.
    cpio, utilisation : float, optional
        Typed instead of runs.
    by, floor, level, draws, seed
        As for `ppw.project_cpio`.
    currency : str

    Returns
    -------
    ServerSizing

    Raises
    ------
    MeasurementError, PpwError
        For runs that tell no cycles per I/O, and settings that cannot be.
    """
    sweep = DataSweep.of(
        data_bytes=data_bytes,
        seconds=time_s,
        server_w=_server_power_w(cores, power_per_core_w, server_power_w),
        idle_share=idle_share,
        pue=pue,
        price_per_kwh=electricity,
        carbon_kg_per_kwh=carbon_kg_per_kwh,
        device_bytes_s=device_bandwidth_bytes_s,
        port_bytes_s=port_bandwidth_bytes_s,
        level=level,
    )
    spec = sc.ServerSpec(as_positive("cores", cores), None if freq is None else as_frequency(freq))
    if base[0] not in sc.UTILISATION or base[1] not in sc.CPIO:
        raise PpwError(f"no scenario {base!r}: take one of {sc.UTILISATION} and one of {sc.CPIO}")
    if runs is None:
        found = typed_scenarios(spec, cpio, utilisation, network_share, draws)
        base = (TYPED, TYPED)
    elif cpio is not None or utilisation is not None:
        raise PpwError(
            "the runs already have cpio and utilisation: leave out --cpio and --utilisation"
        )
    else:
        found = sc.project_scenarios(
            runs, spec, by=by, floor=floor, network_share=network_share, draws=draws, seed=seed
        )
    remarks = [*found.caveats, sweep.caveat()]
    if not np.isfinite(found.rate(*base)).all():
        remarks.append(
            "nothing is projected to the cores asked for: the savings start from the cycles per "
            "I/O of today"
        )
        base = ("measured", "today")
    rs.warn_caveats(remarks)
    asked = (*sweep[:-1], found.cores, found.freq_hz)
    # Without runs the answer rests on the typed figures alone, and so does its digest.
    typed = rs.numbers_digest(asked, found.cpio, found.utilisation) if runs is None else None
    scenarios = SweepScenarios(found, sweep)
    return ServerSizing(
        applications=sc.by_group([scenarios.frame(*names) for names in scenarios.names()]),
        total=scenarios.means(),
        levers=scenarios.levers(base, other_power_w),
        # Of the site the answer keeps what its text says; prices and ports are in its tables.
        **{name: getattr(sweep, name) for name in (*DataSweep._fields[:5], "level")},
        cores=found.cores,
        freq_hz=found.freq_hz,
        by=tuple(found.by),
        currency=currency,
        caveats=tuple(remarks),
        input_digest=typed if runs is None else rs.frame_digest(runs),
    )


def count(servers: float) -> str:
    """Write a number of servers for people: whole ones, as far as they can be told.

    >>> count(3.2)
    '4'
    """
    return shown(float(np.ceil(servers)))


def _count_interval(row: Mapping[Any, Any]) -> str:
    """Write the interval of a number of servers in whole ones, as the number itself."""
    lower, upper = row["lower"], row["upper"]
    return "–" if lower != lower else f"{count(lower)} … {count(upper)}"


def amount(data_bytes: float, unit: str) -> str:
    """Write a large amount for people.

    >>> amount(35e21, "B")
    '35 ZB'
    """
    for prefix, size in (("Z", 1e21), ("E", 1e18), ("P", 1e15), ("T", 1e12)):
        if data_bytes >= size:
            return f"{data_bytes / size:.4g} {prefix}{unit}"
    return shown(data_bytes, unit)


def span(seconds: float) -> str:
    """Write a time for people.

    >>> span(2 * 86400.0)
    '2 days'
    """
    for name, size in (("year", 365.0 * 86400), ("day", 86400.0)):
        if seconds >= size:
            return f"{seconds / size:.4g} {name}{'s' * (seconds != size)}"
    return f"{seconds / 3600:.4g} h" if seconds >= 3600.0 else shown(seconds, "s")


def _server_power_w(cores: float, watts_per_core: float | None, server_w: float | None) -> float:
    if (watts_per_core is None) == (server_w is None):
        raise PpwError("power of a server: give --power-per-core or --server-power, one of the two")
    if server_w is not None:
        return as_positive("server power (W)", server_w)
    return as_positive("power per core (W)", watts_per_core) * as_positive("cores", cores)
