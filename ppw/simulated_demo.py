"""The second part of `ppw demo`: projections held against what a simulator measured above them."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

from ppw.errors import CaveatWarning
from ppw.estimate import shown
from ppw.result import records
from ppw.runs_projection import project_runs
from ppw.samples import simulated_sweep
from ppw.tables import text_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pandas as pd
    from matplotlib.axes import Axes

    from ppw.report.page import Figure, Table

SOURCE = "rvsim 2.1.0, https://pypi.org/project/rvsim/2.1.0/"
WIMPY, BRAWNY = "simulated-inorder", "simulated-o3"
CONTROL = "stream"
LEARNT_HZ, TESTED_HZ = (1.2e9, 2.0e9), (3.2e9, 4.0e9)
# Two points are always on a line: a third one shows a bend.
THREE_HZ = (0.8e9, 1.6e9, 2.4e9)

CAVEATS = (
    "the two cores are simulated, not hardware: rvsim's authors find compute- and branch-bound "
    "programs within a few percent of gem5's out-of-order core and memory-bound ones 10 to 60 % "
    "apart; the size of a simulated figure says little, how it changes with the clock is what is "
    "tested here",
    "the simulated cores have no watts, and none are invented: who is better per watt they do not "
    "say",
)
_CORES = {WIMPY: "wimpy", BRAWNY: "brawny"}
_KEYS = ["workload", "host"]
_BENDS = ("gains_less", "gains_more")
# A CPI that changes by no more does not depend on the clock.
_CONSTANT = 0.01


@dataclass(frozen=True)
class SimulatedDemo:
    """Projections of the simulated programs, held against their runs at the clocks not learnt.

    Attributes
    ----------
    table : pandas.DataFrame
        One row a program, core and tested clock: ``workload``, ``host``, ``freq_hz``, ``metric``
        ("cpi" or "time"), ``projected``, ``lower``, ``upper``, ``simulated``, ``error_pct``.
    learnt : pandas.DataFrame
        The runs that the projections know.
    flagged : tuple of (str, str)
        Program and host of those whose three lower clocks do not lie on one curve, which the
        projection says itself.
    """

    table: pd.DataFrame
    learnt: pd.DataFrame
    flagged: tuple[tuple[str, str], ...]

    def speed_ratios(self, column: str) -> pd.Series[float]:
        """Brawny core's speed over the wimpy one's at the highest clock, by program."""
        at = self._at_top("time").pivot_table(index="workload", columns="host", values=column)
        return (at[WIMPY] / at[BRAWNY]).sort_values()

    def waiting(self) -> pd.DataFrame:
        """Rows of ``table`` of the programs whose CPI grows between the learnt clocks."""
        cpi = self.learnt.pivot_table(index=_KEYS, columns="freq_hz", values="cpi")
        grows = cpi[max(LEARNT_HZ)] / cpi[min(LEARNT_HZ)] > 1 + _CONSTANT
        return self.table.join(grows.rename("grows"), on=_KEYS).query("grows").drop(columns="grows")

    def verdict(self) -> list[str]:
        """Say in sentences what the figures come to."""
        error, of_waiting = (t["error_pct"].abs() for t in (self.table, self.waiting()))
        pairs, waiting = (len(t[_KEYS].drop_duplicates()) for t in (self.table, self.waiting()))
        ratio = self.speed_ratios("projected")
        known, asked, three = (_clocks(f) for f in (LEARNT_HZ, TESTED_HZ, THREE_HZ))
        said = [f"{program} on {_CORES[host]}" for program, host in self.flagged]
        return [
            "On a wimpy (in-order) and a brawny (out-of-order) core, both simulated, the CPI and "
            f"time of six programs, known at {known}, are projected to {asked}: off by "
            f"{error.median():.2f} % at the median and {error.max():.2f} % at worst. {waiting} of "
            f"{pairs} wait for memory, so that their CPI grows with the clock: those are off by "
            f"{of_waiting.median():.2f} % at the median.",
            f"At {shown(TESTED_HZ[-1], 'Hz')} the brawny core is projected to do "
            f"{ratio.iloc[0]:.2g} ({ratio.index[0]}) to {ratio.iloc[-1]:.2g} "
            f"({ratio.index[-1]}) times the wimpy one's work.",
            f"From {three} the projection says itself where its law does not hold: "
            f"{' and '.join(said) or 'nowhere'}.",
        ]

    def header_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """CPI of each program and core: known, projected and simulated at the highest clock."""
        top = shown(TESTED_HZ[-1], "Hz")
        header = ["program", "core", *(f"CPI {shown(f, 'Hz')}" for f in LEARNT_HZ)]
        header += [f"projected {top}", "90% interval", f"simulated {top}", "error %"]
        known = self.learnt.pivot_table(index=_KEYS, columns="freq_hz", values="cpi")
        rows = []
        for row in self._at_top("cpi").to_dict(orient="records"):
            points = known.loc[(row["workload"], row["host"])]
            learnt = (f"{points[f]:.4g}" for f in LEARNT_HZ)
            interval = f"{row['lower']:.4g} … {row['upper']:.4g}"
            checked = f"{row['simulated']:.4g}", f"{row['error_pct']:+.2f}"
            name = str(row["workload"]), _CORES[row["host"]]
            rows.append([*name, *learnt, f"{row['projected']:.4g}", interval, *checked])
        return header, rows

    def summary(self) -> str:
        """Show the verdict and the table."""
        title = f"Six programs on a wimpy and a brawny core, simulated by {SOURCE}"
        return "\n".join([title, "", *self.verdict(), "", text_table(*self.header_and_rows())])

    def to_dict(self) -> dict[str, Any]:
        """Body of the JSON document's part."""
        return {
            "source": SOURCE,
            "verdict": self.verdict(),
            "learnt_at_hz": LEARNT_HZ,
            "projections": records(self.table),
            "flagged_from_hz": THREE_HZ,
            "flagged": [dict(zip(_KEYS, pair, strict=True)) for pair in self.flagged],
        }

    def page_table(self) -> Table:
        """Table of a report page."""
        from ppw.report.page import Table

        header, rows = self.header_and_rows()
        note = (
            "Error: the projected CPI over the simulated one. The interval is of the projection, "
            "which knows the first two columns of CPI alone."
        )
        return Table("Simulated programs, projected and checked", header, rows, 2, note)

    def page_figures(self) -> list[Figure]:
        """Speed against clock, a figure a core."""
        from ppw.report.page import Figure, draw

        return [
            Figure(
                draw(partial(self.plot, host=host)),
                f"The {_CORES[host]} core, simulated: speed over that at "
                f"{shown(LEARNT_HZ[0], 'Hz')}. The curves know the filled points alone; the open "
                "ones check them. Programs that do not wait for memory lie on one line.",
            )
            for host in (WIMPY, BRAWNY)
        ]

    def plot(self, ax: Axes, host: str) -> Axes:
        """Draw speed over that at the lowest learnt clock, projected and simulated."""
        import numpy as np

        runs = _programs(simulated_sweep())
        runs = runs[runs["host"] == host]
        clocks = np.linspace(min(runs["freq_hz"]), max(runs["freq_hz"]), 9)
        curves = _projected(self.learnt[self.learnt["host"] == host], clocks.tolist(), ["time"])
        for program, own in runs.groupby("workload", sort=False):
            known = own["freq_hz"].isin(LEARNT_HZ)
            first = own.loc[own["freq_hz"] == LEARNT_HZ[0], "time_s"].item()
            curve = curves[curves["workload"] == program]
            (line,) = ax.plot(
                curve["freq_hz"] / 1e9, first / curve["projected"], lw=1, label=program
            )
            for points, style in ((own[known], "full"), (own[~known], "none")):
                x, y = points["freq_hz"] / 1e9, first / points["time_s"]
                ax.plot(x, y, "o", ms=4, fillstyle=style, color=line.get_color())
        ax.set(xlabel="core frequency (GHz)", ylabel="speed", ylim=(0, None))
        ax.legend(frameon=False)
        return ax

    def _at_top(self, metric: str) -> pd.DataFrame:
        table = self.table
        return table[(table["freq_hz"] == TESTED_HZ[-1]) & (table["metric"] == metric)]


def simulated_demo() -> SimulatedDemo:
    """Project the simulated programs and hold the answers against their runs."""
    runs = simulated_sweep()
    programs = _programs(runs)
    learnt = _at(programs, LEARNT_HZ)
    table = _projected(learnt, TESTED_HZ, ["cpi", "time"])
    return SimulatedDemo(_checked(table, programs), learnt, _bent(_at(runs, THREE_HZ)))


def _programs(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["workload"] != CONTROL]


def _at(runs: pd.DataFrame, clocks: Sequence[float]) -> pd.DataFrame:
    return runs[runs["freq_hz"].isin(clocks)]


def _projected(runs: pd.DataFrame, clocks: Sequence[float], metrics: Sequence[str]) -> pd.DataFrame:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        return project_runs(runs, freq=clocks, by=_KEYS, metric=metrics).table


def _checked(table: pd.DataFrame, runs: pd.DataFrame) -> pd.DataFrame:
    """Join what was simulated at the clocks asked for, and the error of what was projected."""
    measured = runs.rename(columns={"time_s": "time"}).melt(
        [*_KEYS, "freq_hz"], ["cpi", "time"], "metric", "simulated"
    )
    columns = [*_KEYS, "freq_hz", "metric", "projected", "lower", "upper"]
    joined = table[columns].merge(measured, on=[*_KEYS, "freq_hz", "metric"], how="left")
    return joined.assign(error_pct=100 * (joined["projected"] / joined["simulated"] - 1))


def _bent(runs: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    table = _projected(runs, TESTED_HZ[-1:], ["time"])
    if "caveats" not in table:
        return ()
    named = table["caveats"].astype(str).str.contains("|".join(_BENDS))
    return tuple(table.loc[named, _KEYS].itertuples(index=False, name=None))


def _clocks(clocks: Sequence[float]) -> str:
    *most, last = (f"{hertz / 1e9:.1f}" for hertz in clocks)
    return f"{', '.join(most)} and {last} GHz"
