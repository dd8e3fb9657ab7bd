"""`ppw demo`: the published study again, and projections checked on simulated cores."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from typing import TYPE_CHECKING

from fitting import AmdahlRegression, LogPathLength, OutOfRangeError, ReciprocalRegression
from ppw import published as pub
from ppw.efficiency import break_even_price_ratio, per_watt_ratio
from ppw.errors import CaveatWarning
from ppw.estimate import shown
from ppw.projection import project
from ppw.result import numbers_digest, records, write_document
from ppw.simulated_demo import CAVEATS as SIMULATED_CAVEATS
from ppw.simulated_demo import SOURCE as SIMULATOR
from ppw.simulated_demo import SimulatedDemo, simulated_demo
from ppw.tables import text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.axes import Axes

    from ppw.published import CpiCurve
    from ppw.report.page import Page

PUBLISHED, DERIVED = "published", "derived"
_TOP_HZ = 3.0e9
_REFUSED_CORES = (10, 12, 16)
_BOTH = f"{pub.WESTMERE.machine} : {pub.ATOM.machine}"


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
        """Look one figure up."""
        return next(x.value for x in self.lines if (x.subject, x.quantity) == (subject, quantity))

    def to_frame(self) -> pd.DataFrame:
        """One row a figure."""
        import pandas as pd

        return pd.DataFrame([vars(line) for line in self.lines])

    def to_json(self) -> str:
        """JSON document with ``schema_version``."""
        body = {
            "source": pub.CITATION,
            "verdict": self.verdict(),
            "figures": records(self.to_frame().drop(columns="decimals")),
            "refusals": self.refusals,
            "caveats": self.caveats,
            "simulated": {**self.simulated.to_dict(), "caveats": SIMULATED_CAVEATS},
        }
        return write_document("demo", numbers_digest(pub.ATOM, pub.WESTMERE), body)

    def summary(self) -> str:
        """Show all figures with their labels, what is refused and the caveats; then the check."""
        rows = [[x.subject, x.quantity, _printed(x), x.label] for x in self.lines]
        table = text_table(["of", "quantity", "value", "label"], rows)
        said = [f"refused: {r}" for r in self.refusals] + [f"caveat: {c}" for c in self.caveats]
        study = [f"Figures of {pub.CITATION}", "", *self.verdict(), "", table, *said]
        checked = [self.simulated.summary(), *(f"caveat: {c}" for c in SIMULATED_CAVEATS)]
        return "\n".join([*study, "", *checked])

    def verdict(self) -> list[str]:
        """Say in sentences what the figures come to."""
        atom, top = pub.ATOM.machine, f"CPI at {_TOP_HZ / 1e9:.2f} GHz"
        ratio = self.value(_BOTH, "throughput ratio n·f/CPI")
        per_watt = self.value(_BOTH, "perf/W ratio")
        bounded = self.value(atom, f"{top}, bounded form")
        return [
            f"For Memcached the Westmere does {pub.THROUGHPUT_RATIO} times the Atom's work on "
            f"{pub.POWER_RATIO} times its power: {per_watt:.2f} times the performance per watt. "
            f"It is worth up to {pub.THROUGHPUT_RATIO} times the Atom's price.",
            f"The CPI curves alone give a throughput ratio of {ratio:.2f} against "
            f"{pub.THROUGHPUT_RATIO} measured.",
            f"At 3 GHz the published curve would have the Atom at a CPI of "
            f"{self.value(atom, top):.2f}, faster than 1/f; what a core alone can do is about "
            f"{bounded:.1f}.",
        ]


def demo() -> Demo:
    """Compute the demo."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CaveatWarning)
        lines = [*_curve_lines(pub.ATOM), *_curve_lines(pub.WESTMERE)]
        lines += [*_bounded_lines(pub.ATOM), *_comparison_lines(), *_path_length_lines()]
    return Demo(tuple(lines), tuple(_refusals()), _CAVEATS, simulated_demo())


_CAVEATS = (
    "the published CPI curves fall as frequency rises, so performance grows faster than 1/f: "
    "1.67 times the clock (Atom, 1.8 to 3.0 GHz) would give 2.23 times the speed, which a core "
    "alone cannot; the bounded form, a constant CPI, is shown beside them",
    "1/CPI = c − k/f is read with f in MHz, which the paper does not say; it prints the Atom's "
    "bound 1/0.304 as 3.28",
    "the throughput ratio from the curves, n·f/CPI, assumes equal path length, efficiency and "
    "utilisation on both machines",
    "performance per watt and the break-even price ratio hold at the measured frequencies only: "
    "neither a power slope nor a price was published, and none is invented",
    "the path length is printed without a unit and is shown relative to one core; beyond 9 cores "
    "it falls below zero and is no answer",
)


def curve_of(machine: CpiCurve) -> ReciprocalRegression:
    """Published CPI curve of a machine."""
    return ReciprocalRegression.from_coefficients(c=machine.c, k_hz=machine.k_hz)


def path_length() -> LogPathLength:
    """Published path length of Wordcount."""
    return LogPathLength.from_coefficients(
        a=pub.WORDCOUNT_A, b=pub.WORDCOUNT_B, cores=pub.WORDCOUNT_CORES, workload="wordcount"
    )


def cpi_at(machine: CpiCurve, frequency_hz: float) -> float:
    """Published curve at a frequency (Hz)."""
    return float(curve_of(machine).predict([frequency_hz])[0])


def measured_points(machine: CpiCurve) -> list[tuple[float, float]]:
    """Published curve read at the frequencies of the machine."""
    return [(f, cpi_at(machine, f)) for f in machine.measured_hz]


def _curve_lines(machine: CpiCurve) -> list[Line]:
    curve = curve_of(machine)
    at = (*machine.measured_hz, _TOP_HZ)
    name = machine.machine
    return [
        Line(name, "c of 1/CPI = c − k/f", machine.c, "1", PUBLISHED, 3),
        Line(name, "k of 1/CPI = c − k/f", machine.k_hz, "Hz", PUBLISHED),
        Line(name, "CPI bound 1/c", curve.limit_, "1", DERIVED),
        Line(name, "pole k/c", curve.pole_hz_, "Hz", DERIVED),
        *(Line(name, f"CPI at {f / 1e9:.2f} GHz", cpi_at(machine, f), "1", DERIVED, 3) for f in at),
    ]


def _bounded_lines(machine: CpiCurve) -> list[Line]:
    """Physical form through the curve at the machine's own frequencies."""
    answer = project(measured_points(machine), freq=_TOP_HZ, interval="t")
    quantity = f"CPI at {_TOP_HZ / 1e9:.2f} GHz, bounded form"
    return [Line(machine.machine, quantity, float(answer.cpi), "1", DERIVED, 3)]


def _comparison_lines() -> list[Line]:
    rates = [
        m.cores * f / cpi_at(m, f)
        for m, f in (
            (pub.WESTMERE, pub.WESTMERE.measured_hz[-1]),
            (pub.ATOM, pub.ATOM.measured_hz[-1]),
        )
    ]
    measured, power = pub.THROUGHPUT_RATIO, pub.POWER_RATIO
    return [
        Line(_BOTH, "throughput ratio measured", measured, "1", PUBLISHED),
        Line(_BOTH, "throughput ratio n·f/CPI", rates[0] / rates[1], "1", DERIVED),
        Line(_BOTH, "power ratio measured", power, "1", PUBLISHED),
        Line(_BOTH, "perf/W ratio", per_watt_ratio(measured, power), "1", DERIVED),
        Line(_BOTH, "break-even price ratio", break_even_price_ratio(measured), "1", DERIVED),
    ]


def _path_length_lines() -> list[Line]:
    curve, name = path_length(), "Wordcount"
    one = curve.at(1)
    low, high = pub.WORDCOUNT_CORES
    return [
        Line(name, "a of a·ln(n) + b", pub.WORDCOUNT_A, "1", PUBLISHED, 0),
        Line(name, "b of a·ln(n) + b", pub.WORDCOUNT_B, "1", PUBLISHED, 0),
        *(
            Line(
                name,
                f"path length at {n} core{'s' if n > 1 else ''} to 1 core",
                curve.at(n) / one,
                "1",
                DERIVED,
                3,
            )
            for n in range(low, high + 1)
        ),
    ]


def _refusals() -> list[str]:
    said = []
    for cores in _REFUSED_CORES:
        try:
            path_length().at(cores)
        except OutOfRangeError as refused:
            said.append(f"{cores} cores: {refused}")
    return said


def demo_page(result: Demo) -> Page:
    """Report of the demo."""
    from ppw.report.page import Figure, Page, Table, draw

    rows = [[x.subject, x.quantity, x.label, _printed(x)] for x in result.lines]
    return Page(
        title="Memcached and Wordcount on Atom and Westmere, the published study again",
        subtitle=f"{pub.CITATION}; and six programs on simulated cores, by {SIMULATOR}",
        verdict=[*result.verdict(), *result.simulated.verdict()],
        figures=[
            Figure(
                draw(_plot_curves),
                "Published CPI curves (solid) up to 3 GHz, their bounds "
                "1/c (dotted), and the bounded form for the Atom (dashed).",
            ),
            Figure(
                draw(_plot_path_length),
                "Wordcount's path length relative to one core. From "
                "10 cores on there is no answer.",
            ),
            *result.simulated.page_figures(),
        ],
        tables=[
            Table(
                "Every figure, published or derived", ["of", "quantity", "label", "value"], rows, 3
            ),
            result.simulated.page_table(),
        ],
        caveats=[
            *(f"Refused: {r}" for r in result.refusals),
            *result.caveats,
            *SIMULATED_CAVEATS,
        ],
        document=result.to_json(),
    )


def _plot_curves(ax: Axes) -> None:
    import numpy as np

    from ppw.plots import CURVE, MEASURED, PROJECTED

    for machine, colour in ((pub.ATOM, PROJECTED), (pub.WESTMERE, CURVE)):
        curve = curve_of(machine)
        at = np.linspace(1.4e9, _TOP_HZ, 200)
        ax.plot(at / 1e9, curve.predict(at), color=colour, label=machine.machine)
        ax.axhline(curve.limit_, color=colour, ls=":", lw=1)
        points = np.array(measured_points(machine))
        ax.plot(points[:, 0] / 1e9, points[:, 1], "o", color=colour, ms=4)
    points = np.array(measured_points(pub.ATOM))
    bounded = AmdahlRegression(metric="cpi").fit(points[:, 0], points[:, 1])
    at = np.array([points[0, 0], _TOP_HZ])
    ax.plot(at / 1e9, bounded.predict(at), "--", color=MEASURED, lw=1, label="Atom, bounded form")
    ax.set(xlabel="core frequency (GHz)", ylabel="cycles per instruction", ylim=(0, None))
    ax.legend(frameon=False)


def _plot_path_length(ax: Axes) -> None:
    from ppw.plots import CURVE

    low, high = pub.WORDCOUNT_CORES
    cores = range(low, high + 1)
    curve = path_length()
    ax.bar(cores, [curve.at(n) / curve.at(1) for n in cores], color=CURVE)
    ax.set_xticks(cores)
    ax.set(xlabel="cores", ylabel="path length to that of one core")


def _printed(line: Line) -> str:
    return shown(line.value, "Hz") if line.unit == "Hz" else f"{line.value:.{line.decimals}f}"
