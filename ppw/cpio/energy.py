"""Energy, money and carbon of a sweep by scenario, its mean over applications, and the levers."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import IO_BYTES, mean_watts, servers_to_sweep
from ppw.arguments import as_positive, as_share
from ppw.cpio.scenarios import Scenarios, ServerSpec, interval_of
from ppw.errors import PpwError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fitting.regression.lines import FloatArray

# Scenario of figures that no run measured.
TYPED = "typed"
_J_PER_KWH = 3.6e6


class Sweep(NamedTuple):
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
    def of(cls, *, idle_share: float, pue: float, level: float, **numbers: float | None) -> Sweep:
        """Check the figures. Raises `PpwError` for those that cannot be."""
        if not 0 <= idle_share <= 1:
            raise PpwError(f"idle share {idle_share!r} is not a share of the power, 0 to 1")
        if not pue >= 1:
            raise PpwError(f"pue {pue!r} is under 1: it is energy of the site over that of servers")
        as_share("level", level)
        known = {
            name: np.nan if value is None else as_positive(name, value)
            for name, value in numbers.items()
        }
        return cls(idle_share=float(idle_share), pue=float(pue), level=float(level), **known)

    def servers(self, rate: FloatArray) -> FloatArray:
        """Servers of a rate (I/Os a second), not rounded."""
        return servers_to_sweep(self.data_bytes, self.seconds, rate)

    def kwh(self, servers: FloatArray, utilisation: FloatArray) -> FloatArray:
        """KWh of the site."""
        watts = mean_watts(self.server_w, utilisation, self.idle_share)
        energy: FloatArray = servers * watts * self.seconds * self.pue / _J_PER_KWH
        return energy

    def caveats(self) -> Iterator[str]:
        """Say what was taken for granted."""
        yield (
            f"watts are typed, not measured: {self.server_w:g} W busy, {self.idle_share:.0%} of "
            f"that idle, PUE {self.pue:g}; storage and network draw nothing beside"
        )


def energy_table(found: Scenarios, sweep: Sweep) -> pd.DataFrame:
    """One row an application and scenario."""
    parts = [_frame(found, sweep, u, c) for u, c in _scenarios(found)]
    table = pd.concat(parts, keys=range(len(parts)), names=["scenario", "group"])
    return table.sort_index(level=["group", "scenario"], kind="stable").reset_index(drop=True)


def mean_table(found: Scenarios, sweep: Sweep) -> pd.DataFrame:
    """One row a scenario: means over the applications, of servers and energy and all else."""
    rows: list[dict[str, Any]] = []
    for utilisation, cpio in _scenarios(found):
        scenario = {"utilisation_scenario": utilisation, "cpio_scenario": cpio}
        part = _frame(found, sweep, utilisation, cpio)
        # A mean over applications one of which is not known is not known.
        means = part.drop(columns=[*found.by, *scenario]).mean(skipna=False)
        servers, kwh = _draws(found, sweep, utilisation, cpio)
        for name, draws in (("", servers), ("kwh_", kwh)):
            lower, upper = interval_of(draws.mean(axis=0)[None, :], sweep.level)
            means[f"{name}lower"], means[f"{name}upper"] = lower[0], upper[0]
        rows.append({**scenario, **{str(k): v for k, v in means.items()}})
    return pd.DataFrame(rows)


def lever_table(
    found: Scenarios, sweep: Sweep, base: tuple[str, str], less_w: float | None
) -> pd.DataFrame:
    """What each change to a scenario saves, alone, and all of them together."""
    rows = []
    start = _total(found, sweep, base)
    for lever, scenario, changed in _levers(found, sweep, base, less_w):
        servers, kwh, draws = _total(found, changed, scenario)
        saved, drawn = 1.0 - kwh / start[1], 1.0 - draws / start[2]
        lower, upper = (float(e[0]) for e in interval_of(drawn[None, :], sweep.level))
        if not np.ptp(drawn) > 1e-9:
            # A lever that saves one share whatever the runs are is as sure as the model.
            lower = upper = np.nan
        rows.append((lever, servers, kwh, saved, lower, upper))
    names = ["lever", "servers", "kwh", "saved", "lower", "upper"]
    return pd.DataFrame(rows, columns=names)


def typed_scenarios(
    spec: ServerSpec,
    cpio: float | None,
    utilisation: float | None,
    network_share: float | None,
    draws: int,
) -> Scenarios:
    """Scenarios of typed figures: one application, and nothing that tells how sure they are."""
    if cpio is None or spec.freq_hz is None:
        raise PpwError("without runs, cpio and freq are needed: give both, or runs")
    share = 1.0 if utilisation is None else as_positive("utilisation", utilisation)
    if share > 1:
        raise PpwError(f"utilisation {utilisation!r} is a share of the time, above 0 and up to 1")
    one = np.ones(1)
    cost, busy = as_positive("cpio", cpio) * one, share * one
    unknown = np.full((1, draws), np.nan)
    said = ["cycles per I/O and utilisation are typed, not measured: no intervals"]
    if network_share is None:
        said.append("each byte read or written is assumed to cross the network once")
    return Scenarios(
        by=[],
        keys=pd.DataFrame(index=range(1)),
        runs=pd.DataFrame(),
        codes=np.zeros(0, dtype=np.int64),
        scaling=None,
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


def _scenarios(found: Scenarios) -> list[tuple[str, str]]:
    return [*itertools.product(found.utilisation, found.cpio)]


def _frame(found: Scenarios, sweep: Sweep, utilisation: str, cpio: str) -> pd.DataFrame:
    table = found.frame(utilisation, cpio, sweep.level)
    busy, rate = found.utilisation[utilisation], found.rate(utilisation, cpio)
    servers = sweep.servers(rate)
    kwh = sweep.kwh(servers, busy)
    drawn_servers, drawn_kwh = _draws(found, sweep, utilisation, cpio)
    lower, upper = interval_of(drawn_servers, sweep.level)
    kwh_lower, kwh_upper = interval_of(drawn_kwh, sweep.level)
    return table.assign(
        servers=servers,
        lower=lower,
        upper=upper,
        watts=mean_watts(sweep.server_w, busy, sweep.idle_share),
        kwh=kwh,
        kwh_lower=kwh_lower,
        kwh_upper=kwh_upper,
        cost=kwh * sweep.price_per_kwh,
        carbon_kg=kwh * sweep.carbon_kg_per_kwh,
        j_per_io=kwh * _J_PER_KWH / (sweep.data_bytes / IO_BYTES),
        devices=np.ceil(table["storage_bytes_s"] / sweep.device_bytes_s),
        network_ports=np.ceil(table["network_bytes_s"] / sweep.port_bytes_s),
    )


def _draws(
    found: Scenarios, sweep: Sweep, utilisation: str, cpio: str
) -> tuple[FloatArray, FloatArray]:
    """Draws of servers and kWh: (applications, draws)."""
    servers = sweep.servers(found.rate_draws(utilisation, cpio))
    return servers, sweep.kwh(servers, found.utilisation_draws[utilisation])


def _total(
    found: Scenarios, sweep: Sweep, scenario: tuple[str, str]
) -> tuple[float, float, FloatArray]:
    """Mean servers and kWh over the applications, and draws (draws,) of the kWh."""
    utilisation, cpio = scenario
    servers = sweep.servers(found.rate(utilisation, cpio))
    kwh = sweep.kwh(servers, found.utilisation[utilisation])
    drawn = _draws(found, sweep, utilisation, cpio)[1]
    return float(servers.mean()), float(kwh.mean()), drawn.mean(axis=0)


def _levers(
    found: Scenarios, sweep: Sweep, base: tuple[str, str], less_w: float | None
) -> Iterator[tuple[str, tuple[str, str], Sweep]]:
    utilisation, cpio = base
    without_idle = sweep._replace(idle_share=0.0)
    same = f"as {cpio}" if utilisation == cpio else f"as {utilisation} and {cpio}"
    yield same, base, sweep
    names = [*found.cpio]
    for better in names[: names.index(cpio)][::-1]:
        yield f"cycles per I/O as {better}", (utilisation, better), sweep
    yield "idle power to zero", base, without_idle
    if utilisation != "full":
        yield "utilisation to 100 %", ("full", cpio), sweep
    best: Any = without_idle
    if less_w is not None:
        less = as_positive("other power (W)", less_w)
        yield f"{less_w:g} W a server", base, sweep._replace(server_w=less)
        best = without_idle._replace(server_w=float(less_w))
    yield "all of these", ("full", names[0]), best
