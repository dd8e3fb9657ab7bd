"""The published study of Atom and Westmere again, and projections checked by a simulator."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

import ppw
from fitting.laws.execution_time import LogCores, path_length_refusal, positive_up_to
from fitting.laws.frequency import AmdahlCpi, ReciprocalCpi
from fitting.regression import lines
from ppw.catalogue.datasets import simulated_sweep
from ppw.cli.output import caveats_in_result
from ppw.decision.objectives import break_even_price_ratio, per_watt_ratio
from ppw.results import page as pages, result as results
from ppw.results.axes import CURVE, MEASURED, PROJECTED, Axes
from ppw.results.text import join_words, shown, text_table

# The second part of `ppw demo`: projections compared with what a simulator measured there.
SOURCE = "rvsim 2.1.0, https://pypi.org/project/rvsim/2.1.0/"
WIMPY, BRAWNY = "simulated-inorder", "simulated-o3"
CONTROL = "stream"
LEARNT_HZ, TESTED_HZ = (1.2e9, 2.0e9), (3.2e9, 4.0e9)
# Two points are always on a line: a third one shows a bend.
THREE_HZ = (0.8e9, 1.6e9, 2.4e9)

CAVEATS = (
    "the two cores are simulated, not hardware: rvsim's authors find compute- and branch-bound "
    "programs within a few percent of gem5's out-of-order core, but memory-bound ones 10 to 60 % "
    "off. The test here is how a figure changes with the frequency, not its size",
    "power is not simulated, so the simulated cores do not show which one does more work per joule",
)
_CORES = {WIMPY: "wimpy", BRAWNY: "brawny"}
_KEYS = ["workload", "host"]
_BENDS = ("gains_less", "gains_more")
# A CPI that changes by no more does not depend on the clock.
_CONSTANT = 0.01


@dataclass(frozen=True)
class SimulatedDemo:
    """Projections of the simulated programs, and their runs at frequencies not learnt."""

    # One row a program, core and tested frequency: ``workload``, ``host``, ``freq_hz``, ``metric``
    # ("cpi" or "time"), ``projected``, ``lower``, ``upper``, ``simulated``, ``error_pct``.
    table: pd.DataFrame
    learnt: pd.DataFrame  # the runs that the projections know
    # Program and host of those whose three lower frequencies do not lie on one curve, which the
    # projection says itself.
    flagged: tuple[tuple[str, str], ...]

    def speed_ratios(self, column: str) -> pd.Series[float]:
        """Speed of the brawny core over the wimpy one's at the highest frequency, by program."""
        at = self._at_highest("time").pivot_table(index="workload", columns="host", values=column)
        return (at[WIMPY] / at[BRAWNY]).sort_values()

    def waiting(self) -> pd.DataFrame:
        """Rows of ``table`` of programs that wait for memory: their CPI grows with frequency."""
        cpi = self.learnt.pivot_table(index=_KEYS, columns="freq_hz", values="cpi")
        grows = cpi[max(LEARNT_HZ)] / cpi[min(LEARNT_HZ)] > 1 + _CONSTANT
        return self.table.join(grows.rename("grows"), on=_KEYS).query("grows").drop(columns="grows")

    def verdict(self) -> list[str]:
        """Say the projections' errors, the speed ratios, and the programs flagged for a bend."""
        error, of_waiting = (t["error_pct"].abs() for t in (self.table, self.waiting()))
        pairs, waiting = (len(t[_KEYS].drop_duplicates()) for t in (self.table, self.waiting()))
        ratio = self.speed_ratios("projected")
        known, asked, three = (_frequencies_text(f) for f in (LEARNT_HZ, TESTED_HZ, THREE_HZ))
        said = [f"{program} on {_CORES[host]}" for program, host in self.flagged]
        return [
            "On a wimpy (in-order) and a brawny (out-of-order) core, both simulated, the CPI and "
            f"time of six programs, known at {known}, are projected to {asked}. The errors are "
            f"{error.median():.2f} % at the median and {error.max():.2f} % at most. {waiting} of "
            f"{pairs} wait for memory, so their CPI grows with the frequency. Their error is "
            f"{of_waiting.median():.2f} % at the median.",
            f"At {shown(TESTED_HZ[-1], 'Hz')} the brawny core is projected to do "
            f"{ratio.iloc[0]:.2g} ({ratio.index[0]}) to {ratio.iloc[-1]:.2g} "
            f"({ratio.index[-1]}) times the work of the wimpy core.",
            f"Fitted at {three}, the projection itself reports that its law does not hold for: "
            f"{' and '.join(said) or 'nowhere'}.",
        ]

    def header_and_rows(self) -> tuple[list[str], list[list[str]]]:
        """CPI of each program and core: known, projected and simulated at the highest clock."""
        top = shown(TESTED_HZ[-1], "Hz")
        header = ["program", "core", *(f"CPI {shown(f, 'Hz')}" for f in LEARNT_HZ)]
        header += [f"projected {top}", "90% interval", f"simulated {top}", "error %"]
        known = self.learnt.pivot_table(index=_KEYS, columns="freq_hz", values="cpi")
        rows = []
        for row in self._at_highest("cpi").to_dict(orient="records"):
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
            "projections": results.records(self.table),
            "flagged_from_hz": THREE_HZ,
            "flagged": [dict(zip(_KEYS, pair, strict=True)) for pair in self.flagged],
        }

    def page_table(self) -> pages.Table:
        """Table of a report page."""
        header, rows = self.header_and_rows()
        note = (
            "Error: projected CPI compared with the simulated one. The interval is that of the "
            "projection, which is fitted to the first two columns of CPI only."
        )
        return pages.Table("Simulated programs, projected and checked", header, rows, 2, note)

    def page_figures(self) -> list[pages.Figure]:
        """Speed against clock, a figure a core."""
        return [
            pages.Figure(
                pages.draw(partial(self.plot, host=host)),
                f"The {_CORES[host]} core, simulated: speed over that at "
                f"{shown(LEARNT_HZ[0], 'Hz')}. The curves are fitted to the filled points only; "
                "the open points check them. Programs that do not wait for memory lie on one line.",
            )
            for host in (WIMPY, BRAWNY)
        ]

    def plot(self, ax: Axes, host: str) -> Axes:
        """Draw speed over that at the lowest learnt frequency, projected and simulated."""
        runs = _without_control_program(simulated_sweep())
        runs = runs[runs["host"] == host]
        steps = np.linspace(min(runs["freq_hz"]), max(runs["freq_hz"]), 9)
        curves = _projected_times(self.learnt[self.learnt["host"] == host], steps.tolist())
        for program, own in runs.groupby("workload", sort=False):
            known = own["freq_hz"].isin(LEARNT_HZ)
            first = own.loc[own["freq_hz"] == LEARNT_HZ[0], "time_s"].item()
            curve = curves[curves["workload"] == program]
            speed = first / curve["projected"]
            (line,) = ax.plot(curve["freq_hz"] / 1e9, speed, lw=1, label=program)
            for points, style in ((own[known], "full"), (own[~known], "none")):
                x, y = points["freq_hz"] / 1e9, first / points["time_s"]
                ax.plot(x, y, "o", ms=4, fillstyle=style, color=line.get_color())
        ax.set(xlabel="core frequency (GHz)", ylabel="speed", ylim=(0, None))
        ax.legend(frameon=False)
        return ax

    def _at_highest(self, metric: str) -> pd.DataFrame:
        table = self.table
        return table[(table["freq_hz"] == TESTED_HZ[-1]) & (table["metric"] == metric)]


def simulated_demo() -> SimulatedDemo:
    """Project the simulated programs, and compare the projections with their runs."""
    runs = simulated_sweep()
    programs, metrics = _without_control_program(runs), ["cpi", "time"]
    with caveats_in_result():
        checked = ppw.validate(programs, train=LEARNT_HZ, test=TESTED_HZ, by=_KEYS, metric=metrics)
    keys = ["metric", "freq_hz"]
    found = checked.to_frame().sort_values(keys, kind="stable", ignore_index=True)
    columns = [*_KEYS, "freq_hz", "metric", "projected", "lower", "upper", "simulated", "error_pct"]
    table, learnt = found.rename(columns={"measured": "simulated"}), _rows_at(programs, LEARNT_HZ)
    return SimulatedDemo(table[columns], learnt, _bend_keys(_rows_at(runs, THREE_HZ)))


def _without_control_program(runs: pd.DataFrame) -> pd.DataFrame:
    return runs[runs["workload"] != CONTROL]


def _rows_at(runs: pd.DataFrame, frequencies: Sequence[float]) -> pd.DataFrame:
    return runs[runs["freq_hz"].isin(frequencies)]


def _projected_times(runs: pd.DataFrame, frequencies: Sequence[float]) -> pd.DataFrame:
    with caveats_in_result():
        return ppw.project(runs, freq=frequencies, by=_KEYS, metric=["time"]).table


def _bend_keys(runs: pd.DataFrame) -> tuple[tuple[str, str], ...]:
    table = _projected_times(runs, TESTED_HZ[-1:])
    if "caveats" not in table:
        return ()
    named = table["caveats"].astype(str).str.contains("|".join(_BENDS))
    return tuple(table.loc[named, _KEYS].itertuples(index=False, name=None))


def _frequencies_text(frequencies: Sequence[float]) -> str:
    return f"{join_words([f'{hertz / 1e9:.1f}' for hertz in frequencies])} GHz"


# Figures published in Issa & Figueira (2012), each typed from the paper; nothing is filled in.
#
# J. Issa, S. Figueira: Hadoop and memcached: Performance and power characterization and analysis.
# Journal of Cloud Computing 1:10 (2012), https://doi.org/10.1186/2192-113X-1-10.
CITATION = (
    "Issa & Figueira 2012, Journal of Cloud Computing 1:10, https://doi.org/10.1186/2192-113X-1-10"
)


class CpiCurve(NamedTuple):
    """Memcached on one machine: 1/CPI = c − k/f, with the cores and frequencies it was measured at.

    The paper prints k for an x that is read as 1/f with f in MHz, which it does not say.
    """

    machine: str
    cores: int
    c: float
    k_hz: float
    measured_hz: tuple[float, ...]


ATOM = CpiCurve("Atom D525", 2, 0.304, 250e6, (1.66e9, 1.80e9))
WESTMERE = CpiCurve("Westmere L5640", 12, 0.505, 402e6, (2.27e9,))

# Memcached, Westmere L5640 (two sockets, 12 cores, 2.27 GHz) to Atom D525 (2 cores, 1.8 GHz).
THROUGHPUT_RATIO = 14.79
POWER_RATIO = 5.9

# Wordcount on Hadoop, PL(n) = a·ln(n) + b against cores; printed without a unit.
WORDCOUNT_A = -31500.0
WORDCOUNT_B = 70702.0
WORDCOUNT_CORES = (1, 9)

# `ppw demo`: the published study again, and projections checked on simulated cores.
PUBLISHED, DERIVED = "published", "derived"
_TOP_HZ = 3.0e9
_REFUSED_CORES = (10, 12, 16)
_BOTH = f"{WESTMERE.machine} : {ATOM.machine}"


@dataclass(frozen=True)
class Line:
    """One figure: what it is of, its value and unit, and whether it was published or derived."""

    subject: str
    quantity: str
    value: float
    unit: str
    label: str
    decimals: int = 2


@dataclass(frozen=True)
class Demo:
    """The figures of the study, the answers it refuses, its caveats, and the simulated programs."""

    lines: tuple[Line, ...]
    refusals: tuple[str, ...]
    caveats: tuple[str, ...]
    simulated: SimulatedDemo

    def value(self, subject: str, quantity: str) -> float:
        """Return the value of one figure. Raises StopIteration where there is none."""
        return next(x.value for x in self.lines if (x.subject, x.quantity) == (subject, quantity))

    def to_frame(self) -> pd.DataFrame:
        """One row a figure."""
        return pd.DataFrame([vars(line) for line in self.lines])

    def to_json(self) -> str:
        """JSON document with ``schema_version``."""
        body = {
            "source": CITATION,
            "verdict": self.verdict(),
            "figures": results.records(self.to_frame().drop(columns="decimals")),
            "refusals": self.refusals,
            "caveats": self.caveats,
            "simulated": {**self.simulated.to_dict(), "caveats": CAVEATS},
        }
        return results.write_document("demo", results.numbers_digest(ATOM, WESTMERE), body)

    def summary(self) -> str:
        """Show all figures with their labels, what is refused and the caveats; then the check."""
        rows = [[x.subject, x.quantity, _line_value_text(x), x.label] for x in self.lines]
        table = text_table(["of", "quantity", "value", "label"], rows)
        said = [f"refused: {r}" for r in self.refusals] + [f"caveat: {c}" for c in self.caveats]
        study = [f"Figures of {CITATION}", "", *self.verdict(), "", table, *said]
        checked = [self.simulated.summary(), *(f"caveat: {c}" for c in CAVEATS)]
        return "\n".join([*study, "", *checked])

    def to_html(self) -> str:
        """Report page."""
        return demo_page(self).render()

    def verdict(self) -> list[str]:
        """Say the ratios of the two machines, and what their CPI curves lead to."""
        atom, top = ATOM.machine, f"CPI at {_TOP_HZ / 1e9:.2f} GHz"
        ratio = self.value(_BOTH, "throughput ratio n·f/CPI")
        per_watt = self.value(_BOTH, "perf/W ratio")
        bounded = self.value(atom, f"{top}, bounded form")
        return [
            f"For Memcached the Westmere does {THROUGHPUT_RATIO} times the Atom's work on "
            f"{POWER_RATIO} times its power: {per_watt:.2f} times the performance per watt. "
            f"It is worth up to {THROUGHPUT_RATIO} times the Atom's price.",
            f"The CPI curves alone give a throughput ratio of {ratio:.2f} against "
            f"{THROUGHPUT_RATIO} measured.",
            f"At 3 GHz the published curve gives the Atom a CPI of {self.value(atom, top):.2f}, "
            f"faster than 1/f. A core alone can reach about {bounded:.1f}.",
        ]


def demo() -> Demo:
    """Compute the demo."""
    with caveats_in_result():
        lines = [*_cpi_curve_lines(ATOM), *_cpi_curve_lines(WESTMERE)]
        bounded = ppw.project(measured_points(ATOM), freq=_TOP_HZ, interval="t").cpi
        quantity = f"CPI at {_TOP_HZ / 1e9:.2f} GHz, bounded form"
        lines += [Line(ATOM.machine, quantity, float(bounded), "1", DERIVED, 3)]
        lines += [*_machine_comparison_lines(), *_path_length_lines()]
    end = positive_up_to(WORDCOUNT_A, WORDCOUNT_B)
    refused = [f"{n} cores: {path_length_refusal(n, end)}" for n in _REFUSED_CORES if n >= end]
    return Demo(tuple(lines), tuple(refused), _CAVEATS, simulated_demo())


_CAVEATS = (
    "the published CPI curves fall as frequency rises, so performance grows faster than 1/f: "
    "1.67 times the frequency (Atom, 1.8 to 3.0 GHz) would give 2.23 times the speed, which is "
    "impossible for a core alone; the bounded form, a constant CPI, is shown beside them",
    "1/CPI = c − k/f is read with f in MHz, which the paper does not say; it prints the Atom's "
    "bound 1/0.304 as 3.28",
    "the throughput ratio from the curves, n·f/CPI, assumes equal path length, efficiency and "
    "utilisation on both machines",
    "performance per watt and the break-even price ratio hold at the measured frequencies only: "
    "neither a power slope nor a price was published",
    "the path length is printed without a unit and is shown relative to one core; beyond 9 cores "
    "the published curve is below zero, so ppw gives no answer",
)


# The laws themselves: their estimators need scikit-learn, which the demo does without.
def curve_of(machine: CpiCurve) -> lines.ModelFit:
    """Published CPI curve of a machine."""
    return lines.published_line(ReciprocalCpi(), intercept=machine.c, slope=-machine.k_hz)


def relative_path_lengths() -> dict[int, float]:
    """Published path length of Wordcount at each core count, relative to one core."""
    low, high = WORDCOUNT_CORES
    curve = lines.published_line(LogCores(), intercept=WORDCOUNT_B, slope=WORDCOUNT_A)
    lengths = {n: float(curve.predict(float(n))[0]) for n in range(low, high + 1)}
    return {n: length / lengths[1] for n, length in lengths.items()}


def cpi_at(machine: CpiCurve, frequency_hz: float) -> float:
    """CPI that the published curve of a machine has at a frequency (Hz)."""
    return float(curve_of(machine).predict(frequency_hz)[0])


def measured_points(machine: CpiCurve) -> list[tuple[float, float]]:
    """Points (Hz, CPI) of the published curve at the frequencies of the machine."""
    return [(f, cpi_at(machine, f)) for f in machine.measured_hz]


def _cpi_curve_lines(machine: CpiCurve) -> list[Line]:
    curve = curve_of(machine)
    at = (*machine.measured_hz, _TOP_HZ)
    name = machine.machine
    return [
        Line(name, "c of 1/CPI = c − k/f", machine.c, "1", PUBLISHED, 3),
        Line(name, "k of 1/CPI = c − k/f", machine.k_hz, "Hz", PUBLISHED),
        Line(name, "CPI bound 1/c", float(curve.limit()[0]), "1", DERIVED),
        Line(name, "pole k/c", machine.k_hz / machine.c, "Hz", DERIVED),
        *(Line(name, f"CPI at {f / 1e9:.2f} GHz", cpi_at(machine, f), "1", DERIVED, 3) for f in at),
    ]


def _machine_comparison_lines() -> list[Line]:
    highest = {machine: machine.measured_hz[-1] for machine in (WESTMERE, ATOM)}
    rates = [machine.cores * f / cpi_at(machine, f) for machine, f in highest.items()]
    measured, power = THROUGHPUT_RATIO, POWER_RATIO
    return [
        Line(_BOTH, "throughput ratio measured", measured, "1", PUBLISHED),
        Line(_BOTH, "throughput ratio n·f/CPI", rates[0] / rates[1], "1", DERIVED),
        Line(_BOTH, "power ratio measured", power, "1", PUBLISHED),
        Line(_BOTH, "perf/W ratio", per_watt_ratio(measured, power), "1", DERIVED),
        Line(_BOTH, "break-even price ratio", break_even_price_ratio(measured), "1", DERIVED),
    ]


def _path_length_lines() -> list[Line]:
    name, path = "Wordcount", "path length"
    return [
        Line(name, "a of a·ln(n) + b", WORDCOUNT_A, "1", PUBLISHED, 0),
        Line(name, "b of a·ln(n) + b", WORDCOUNT_B, "1", PUBLISHED, 0),
        *(
            Line(name, f"{path} at {n} core{'s' * (n > 1)} to 1 core", length, "1", DERIVED, 3)
            for n, length in relative_path_lengths().items()
        ),
    ]


def demo_page(result: Demo) -> pages.Page:
    """Report of the demo."""
    rows = [[x.subject, x.quantity, x.label, _line_value_text(x)] for x in result.lines]
    header = ["of", "quantity", "label", "value"]
    curves = (
        "Published CPI curves (solid) up to 3 GHz, their bounds 1/c (dotted), and the bounded form "
        "for the Atom (dashed)."
    )
    lengths = "Wordcount's path length relative to one core. From 10 cores on there is no answer."
    figures = [(_plot_cpi_curves, curves), (_plot_relative_path_length, lengths)]
    return pages.Page(
        title="Memcached and Wordcount on Atom and Westmere, the published study again",
        subtitle=f"{CITATION}; and six programs on simulated cores, by {SOURCE}",
        verdict=[*result.verdict(), *result.simulated.verdict()],
        figures=[
            *(pages.Figure(pages.draw(plot), caption) for plot, caption in figures),
            *result.simulated.page_figures(),
        ],
        tables=[
            pages.Table("Every figure, published or derived", header, rows, 3),
            result.simulated.page_table(),
        ],
        caveats=[*(f"Refused: {r}" for r in result.refusals), *result.caveats, *CAVEATS],
        document=result.to_json(),
    )


def _plot_cpi_curves(ax: Axes) -> None:
    for machine, colour in ((ATOM, PROJECTED), (WESTMERE, CURVE)):
        curve = curve_of(machine)
        at = np.linspace(1.4e9, _TOP_HZ, 200)
        ax.plot(at / 1e9, curve.predict(at), color=colour, label=machine.machine)
        ax.axhline(float(curve.limit()[0]), color=colour, ls=":", lw=1)
        points = np.array(measured_points(machine))
        ax.plot(points[:, 0] / 1e9, points[:, 1], "o", color=colour, ms=4)
    points = np.array(measured_points(ATOM))
    bounded = lines.fit_table(AmdahlCpi(), points[:, 0], points[None, :, 1])
    at = np.array([points[0, 0], _TOP_HZ])
    ax.plot(at / 1e9, bounded.predict(at), "--", color=MEASURED, lw=1, label="Atom, bounded form")
    ax.set(xlabel="core frequency (GHz)", ylabel="cycles per instruction", ylim=(0, None))
    ax.legend(frameon=False)


def _plot_relative_path_length(ax: Axes) -> None:
    lengths = relative_path_lengths()
    ax.bar(list(lengths), list(lengths.values()), color=CURVE)
    ax.set_xticks(list(lengths))
    ax.set(xlabel="cores", ylabel="path length to that of one core")


def _line_value_text(line: Line) -> str:
    return shown(line.value, "Hz") if line.unit == "Hz" else f"{line.value:.{line.decimals}f}"
