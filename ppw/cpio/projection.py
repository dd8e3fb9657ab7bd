"""`project_cpio`: the I/O rate of a server with more cores, scenario by scenario, and what it asks.

A scenario is a utilisation and a cycles per I/O. Utilisation is low, as *measured* on most cores or
as *projected* by its line, or *full*; cycles per I/O are as *desired* (those of one core), as
*today* (on most cores measured) or as *projected* by their line. The names of the published
scenarios are s(l,d), s(l,t), s(l,p), s(h,d), s(h,t) and s(h,p), with l measured or projected.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np
import pandas as pd

from fitting.laws.cycles_per_io import grown
from ppw import caveats as cv
from ppw.arguments import as_frequency, as_positive, as_share
from ppw.cpio.scenarios import CPIO, UTILISATION, Scenarios, ServerSpec, project_scenarios
from ppw.errors import PpwError
from ppw.estimate import key_texts, shown, shown_interval
from ppw.result import frame_digest
from ppw.tabled_result import TabledResult, rows_of
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from matplotlib.axes import Axes


@dataclass(frozen=True, kw_only=True, eq=False)
class CpioProjection(TabledResult):
    """I/O rates of a server that was not measured.

    Attributes
    ----------
    scenarios : pandas.DataFrame
        One row an application (columns ``by``) and scenario (``utilisation_scenario`` measured,
        projected or full; ``cpio_scenario`` desired, today or projected): ``utilisation`` and
        ``cpio``; ``iops`` (512-byte I/Os a second) with its prediction interval ``lower``,
        ``upper``; and what goes with it: ``storage_bytes_s``, ``network_bytes_s`` and
        ``memory_bytes_s``, NaN where not known.
    laws : pandas.DataFrame
        One row an application and law of the I/O rate against cores: ``parameters``, ``aicc``,
        ``weight`` (Akaike's), ``held_out`` (error at the most cores when fitted to the others, as
        a share), ``iops`` with interval, ``preferred`` and ``why``.
    growth : pandas.DataFrame
        What a market would ask: ``base_iops``, ``growth_per_year``, ``years``, ``iops``.
    cores, freq_hz : float
        Of the server that is projected to.
    by : tuple of str
    level, floor : float
        Of the intervals; lowest utilisation that a projection may fall to.
    """

    kind: ClassVar[str] = "cpio_projection"

    scenarios: pd.DataFrame
    laws: pd.DataFrame
    growth: pd.DataFrame
    cores: float
    freq_hz: float
    by: tuple[str, ...]
    level: float
    floor: float

    def to_frame(self) -> pd.DataFrame:
        """The scenarios."""
        return self.scenarios

    def value(self, utilisation: str, cpio: str, **key: Any) -> float:
        """512-byte I/Os a second of one application and scenario.

        Raises
        ------
        PpwError
            When there is none, or several.
        """
        table = self.scenarios
        chosen = (table["utilisation_scenario"] == utilisation) & (table["cpio_scenario"] == cpio)
        for name, wanted in key.items():
            chosen &= table[name] == wanted
        if chosen.sum() != 1:
            raise PpwError(f"{int(chosen.sum())} rows of {utilisation}, {cpio}, {key}: name one")
        return float(table.loc[chosen, "iops"].iloc[0])

    def applications(self) -> list[tuple[str, pd.DataFrame]]:
        """Scenarios of each application, with its name."""
        if not self.by:
            return [("all runs", self.scenarios)]
        parts = self.scenarios.groupby([*self.by], sort=False, dropna=False)
        return [(self.label(part.iloc[0].to_dict()), part) for _, part in parts]

    def label(self, row: dict[Any, Any]) -> str:
        """Name an application."""
        telling = [n for n in self.by if len(self.scenarios[n].drop_duplicates()) > 1]
        return ", ".join(key_texts(telling or self.by, row)) or "all runs"

    def verdict(self) -> list[str]:
        """Say the range of the scenarios, and the law to prefer, by application."""
        laws = {self.label(row): row for row in rows_of(self.laws) if row["preferred"]}
        said = []
        for name, part in self.applications():
            low, high = part["iops"].min(), part["iops"].max()
            sentence = (
                f"{name}: {shown(low)} to {shown(high)} I/Os a second (512 B) on "
                f"{shown(self.cores)} cores of {shown(self.freq_hz, 'Hz')}, by scenario"
            )
            if name in laws:
                sentence += f"; {laws[name]['law']} is to be preferred: {laws[name]['why']}"
            said.append(sentence)
        return said

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        interval = f"{self.level:.0%} interval"
        rates = ["storage GB/s", "network GB/s", "memory GB/s"]
        return [*self.by, "utilisation", "cpio is", "µ", "cpio", "512 B IOPS", interval, *rates]

    def cells(self) -> list[list[str]]:
        """The scenarios as they are printed."""
        rates = ("storage_bytes_s", "network_bytes_s", "memory_bytes_s")
        return [
            [
                *key_texts(self.by, row),
                str(row["utilisation_scenario"]),
                str(row["cpio_scenario"]),
                shown(row["utilisation"]),
                shown(row["cpio"]),
                shown(row["iops"]),
                shown_interval(row["iops"], row["lower"], row["upper"], "1"),
                *(shown(row[name] / 1e9) for name in rates),
            ]
            for row in rows_of(self.scenarios)
        ]

    def law_header(self) -> list[str]:
        """Name the columns of `law_cells`."""
        interval = f"{self.level:.0%} interval"
        return [
            *self.by,
            "law",
            "parameters",
            "AICc",
            "weight",
            "held out",
            "512 B IOPS",
            interval,
            "use",
        ]

    def law_cells(self) -> list[list[str]]:
        """The laws as they are printed."""
        return [
            [
                *key_texts(self.by, row),
                str(row["law"]),
                shown(row["parameters"]),
                shown(row["aicc"]),
                shown(row["weight"]),
                "–" if row["held_out"] != row["held_out"] else f"{row['held_out']:.1%}",
                shown(row["iops"]),
                shown_interval(row["iops"], row["lower"], row["upper"], "1"),
                "yes" if row["preferred"] else "no",
            ]
            for row in rows_of(self.laws)
        ]

    def growth_cells(self) -> list[list[str]]:
        """What the market asks, as it is printed."""
        return [
            [
                shown(row["base_iops"]),
                f"{row['growth_per_year']:.0%}",
                shown(row["years"]),
                shown(row["iops"]),
            ]
            for row in rows_of(self.growth)
        ]

    def summary(self) -> str:
        """Text: verdict, scenarios, laws, growth and caveats."""
        tables = [text_table(self.header(), self.cells())]
        if len(self.laws):
            tables.append(text_table(self.law_header(), self.law_cells()))
        if len(self.growth):
            tables.append(text_table(GROWTH_HEADER, self.growth_cells()))
        return summary_text([*self.verdict(), *tables], self.caveats)

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the I/O rate of each scenario by application."""
        from ppw.report.cpio_figures import plot_scenarios

        return plot_scenarios(self, ax)


GROWTH_HEADER = ["I/Os a second now", "growth a year", "years", "I/Os a second then"]


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
        What it asks now (512-byte I/Os a second); by default the mean of what the applications did
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
        I/O rates of a server that was not measured.

    Raises
    ------
    MeasurementError, PpwError
        As `ppw.cycles_per_io`; and for settings that cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    spec = ServerSpec(
        cores=as_positive("cores", cores), freq_hz=None if freq is None else as_frequency(freq)
    )
    _refuse_bad(level, floor, growth, draws)
    found = project_scenarios(
        runs,
        spec,
        by=by,
        floor=floor,
        network_share=network_share,
        draws=draws,
        seed=seed,
    )
    cv.warn(found.caveats)
    return CpioProjection(
        scenarios=_scenario_table(found, level),
        laws=found.laws(level),
        growth=_growth(found, growth, years, base_iops),
        cores=spec.cores,
        freq_hz=found.freq_hz,
        by=tuple(found.by),
        level=float(level),
        floor=float(floor),
        caveats=tuple(found.caveats),
        input_digest=frame_digest(runs),
    )


def _refuse_bad(level: float, floor: float, growth: Sequence[float], draws: int) -> None:
    as_share("level", level)
    if not 0 < floor <= 1:
        raise PpwError(f"floor {floor!r} is not a utilisation above 0 and at most 1; try 0.01")
    if bad := [g for g in growth if not (np.isfinite(g) and g > -1)]:
        raise PpwError(f"growth {bad[0]!r} is not a share above -1: 0.7 is 70 % a year")
    if draws < 100:
        raise PpwError(f"draws {draws!r}: take 100 or more")


def _scenario_table(found: Scenarios, level: float) -> pd.DataFrame:
    parts = [found.frame(utilisation, cpio, level) for utilisation in UTILISATION for cpio in CPIO]
    table = pd.concat(parts, keys=range(len(parts)), names=["scenario", "group"])
    return table.sort_index(level=["group", "scenario"], kind="stable").reset_index(drop=True)


def _growth(
    found: Scenarios, growth: Sequence[float], years: float, base_iops: float | None
) -> pd.DataFrame:
    base = float(np.mean(found.today_iops)) if base_iops is None else base_iops
    rates = np.asarray([*growth], dtype=np.float64)
    return pd.DataFrame(
        {
            "base_iops": np.full(len(rates), float(base)),
            "growth_per_year": rates,
            "years": np.full(len(rates), float(years)),
            "iops": grown(base, rates, years),
        }
    )
