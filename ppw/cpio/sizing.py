"""`size_servers`: servers, energy, money and carbon to go through a data set once in a given time.

Each application is sized by itself, as if the whole data set were swept by it; what they have in
common is then the mean over the applications of servers and energy, which is a mean of reciprocal
rates and not the reciprocal of a mean rate.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from ppw import caveats as cv
from ppw.arguments import as_frequency, as_positive
from ppw.cpio.energy import TYPED, Sweep, energy_table, lever_table, mean_table, typed_scenarios
from ppw.cpio.scenarios import CPIO, UTILISATION, Scenarios, ServerSpec, project_scenarios
from ppw.errors import PpwError
from ppw.estimate import key_texts, shown, shown_interval
from ppw.result import frame_digest, numbers_digest
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True, eq=False)
class ServerSizing(TabledResult):
    """Servers and energy of a sweep through a data set.

    Attributes
    ----------
    applications : pandas.DataFrame
        One row an application (columns ``by``) and scenario: ``utilisation``, ``cpio``, ``iops``
        of a server; ``servers`` (not rounded) with its interval ``lower``, ``upper``; ``watts``
        (mean of one server, without PUE), ``kwh`` (with PUE) with ``kwh_lower`` and ``kwh_upper``,
        ``cost``, ``carbon_kg``, ``j_per_io``; ``devices`` and ``network_ports`` of a server. NaN
        where not known.
    total : pandas.DataFrame
        The same means over the applications by scenario.
    levers : pandas.DataFrame
        What each change to the base scenario would save: ``lever``, ``servers``, ``kwh``,
        ``saved`` (share of the base's energy, with ``lower`` and ``upper``).
    data_bytes, seconds : float
        The data set and the time.
    cores, freq_hz, server_w, idle_share, pue : float
        Of a server; ``server_w`` busy, in W.
    by : tuple of str
    level : float
    currency : str
    """

    kind: ClassVar[str] = "server_sizing"

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

    def to_frame(self) -> pd.DataFrame:
        """Applications and scenarios."""
        return self.applications

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
        said += [f"{row['lever']} would save {row['saved']:.0%}" for row in rows_of(rest)[:1]]
        return said

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        interval = f"{self.level:.0%} interval"
        money = [f"cost ({self.currency})"] if self.priced() else []
        carbon = ["kg CO2e"] if self.has_carbon() else []
        names = ["utilisation", "cpio is", "servers", interval, "kWh", interval, "J an I/O"]
        return [*self.by, *names, *money, *carbon, *self._part_names()]

    def cells(self) -> list[list[str]]:
        """Applications and then the means, as they are printed."""
        found = [(key_texts(self.by, row), row) for row in rows_of(self.applications)]
        if self.by and len(self.total) < len(self.applications):
            blank = [""] * (len(self.by) - 1)
            found += [(["mean", *blank], row) for row in rows_of(self.total)]
        return [[*key, *self._numbers(row)] for key, row in found]

    def lever_cells(self) -> list[list[str]]:
        """The levers as they are printed."""
        return [
            [
                str(row["lever"]),
                count(row["servers"]),
                shown(row["kwh"]),
                f"{row['saved']:.1%}",
                "–" if row["lower"] != row["lower"] else f"{row['lower']:.1%} … {row['upper']:.1%}",
            ]
            for row in rows_of(self.levers)
        ]

    def lever_header(self) -> list[str]:
        """Name the columns of `lever_cells`."""
        return ["lever", "servers", "kWh", "saved", f"{self.level:.0%} interval"]

    def summary(self) -> str:
        """Text: verdict, energy table, levers and caveats."""
        tables = [
            text_table(self.header(), self.cells()),
            text_table(self.lever_header(), self.lever_cells()),
        ]
        return summary_text([*self.verdict(), *tables], self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the energy of each scenario."""
        from ppw.report.cpio_figures import plot_energy

        return plot_energy(self, ax)

    def priced(self) -> bool:
        """Tell whether a price of energy was given."""
        return bool(self.total["cost"].notna().any())

    def has_carbon(self) -> bool:
        """Tell whether a carbon intensity was given."""
        return bool(self.total["carbon_kg"].notna().any())

    def _part_names(self) -> list[str]:
        known = {"devices": "devices a server", "network_ports": "ports a server"}
        return [words for name, words in known.items() if self.total[name].notna().any()]

    def _numbers(self, row: dict[str, Any]) -> list[str]:
        parts = [n for n in ("devices", "network_ports") if self.total[n].notna().any()]
        return [
            str(row["utilisation_scenario"]),
            str(row["cpio_scenario"]),
            count(row["servers"]),
            shown_interval(row["servers"], row["lower"], row["upper"], "1"),
            shown(row["kwh"]),
            shown_interval(row["kwh"], row["kwh_lower"], row["kwh_upper"], "1"),
            shown(row["j_per_io"]),
            *([shown(row["cost"])] if self.priced() else []),
            *([shown(row["carbon_kg"])] if self.has_carbon() else []),
            *(shown(row[n]) for n in parts),
        ]


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
        Servers and energy of a sweep through a data set.

    Raises
    ------
    MeasurementError, PpwError
        For runs that tell no cycles per I/O, and settings that cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    sweep = Sweep.of(
        data_bytes=data_bytes,
        seconds=time_s,
        server_w=_server_w(cores, power_per_core_w, server_power_w),
        idle_share=idle_share,
        pue=pue,
        price_per_kwh=electricity,
        carbon_kg_per_kwh=carbon_kg_per_kwh,
        device_bytes_s=device_bandwidth_bytes_s,
        port_bytes_s=port_bandwidth_bytes_s,
        level=level,
    )
    spec = ServerSpec(as_positive("cores", cores), None if freq is None else as_frequency(freq))
    if base[0] not in UTILISATION or base[1] not in CPIO:
        raise PpwError(f"no scenario {base!r}: take one of {UTILISATION} and one of {CPIO}")
    if runs is None:
        found = typed_scenarios(spec, cpio, utilisation, network_share, draws)
        base = (TYPED, TYPED)
    elif cpio is not None or utilisation is not None:
        raise PpwError("cpio and utilisation are measured by the runs: type them without runs")
    else:
        found = project_scenarios(
            runs, spec, by=by, floor=floor, network_share=network_share, draws=draws, seed=seed
        )
    caveats = [*found.caveats, *sweep.caveats()]
    if not np.isfinite(found.rate(*base)).all():
        caveats.append("nothing is projected to the cores asked for: levers start from today's")
        base = ("measured", "today")
    cv.warn(caveats)
    return _result(found, sweep, base, other_power_w, caveats, runs, currency)


def _result(
    found: Scenarios,
    sweep: Sweep,
    base: tuple[str, str],
    less_w: float | None,
    caveats: list[str],
    runs: pd.DataFrame | None,
    currency: str,
) -> ServerSizing:
    asked = (*sweep[:-1], found.cores, found.freq_hz)
    digest = numbers_digest(asked, found.cpio, found.utilisation) if runs is None else None
    return ServerSizing(
        applications=energy_table(found, sweep),
        total=mean_table(found, sweep),
        levers=lever_table(found, sweep, base, less_w),
        data_bytes=sweep.data_bytes,
        seconds=sweep.seconds,
        cores=found.cores,
        freq_hz=found.freq_hz,
        server_w=sweep.server_w,
        idle_share=sweep.idle_share,
        pue=sweep.pue,
        by=tuple(found.by),
        level=sweep.level,
        currency=currency,
        caveats=tuple(caveats),
        input_digest=digest or frame_digest(runs if runs is not None else pd.DataFrame()),
    )


def count(servers: float) -> str:
    """Write a number of servers for people: whole ones, as far as they can be told.

    >>> count(3.2)
    '4'
    """
    import math

    return shown(float(math.ceil(servers))) if math.isfinite(servers) else shown(servers)


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
    if seconds >= 3600.0:
        return f"{seconds / 3600:.4g} h"
    return shown(seconds, "s")


def _server_w(cores: float, watts_per_core: float | None, server_w: float | None) -> float:
    if (watts_per_core is None) == (server_w is None):
        raise PpwError("watts of a server: give --power-per-core or --server-power, one of the two")
    if server_w is not None:
        return as_positive("server power (W)", server_w)
    return as_positive("power per core (W)", watts_per_core) * as_positive("cores", cores)
