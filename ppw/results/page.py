"""The page itself: what a report consists of, and how it becomes one HTML file."""

from __future__ import annotations

import base64
import gzip
import hashlib
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import naming_extra
from ppw.results import result as rs, text as tx
from ppw.results.axes import Axes

if TYPE_CHECKING:
    from ppw.results.charts import Chart

# Rows of a table that a page shows; its JSON has all. A longer table than this is folded.
MOST_ROWS, _MOST_OPEN = 500, 30
# Caveats above the evidence, and findings that are not folded.
_MOST_CAVEATS, _MOST_FINDINGS = 4, 8
_PIXELS_PER_INCH = 84
# Characters of a document that a page holds as it is; a longer one is compressed.
_MOST_PLAIN = 1_000_000


class Figure(NamedTuple):
    """A chart, with what it shows."""

    chart: Chart
    caption: str


class KeyFigure(NamedTuple):
    """A number of the answer that stands on top of a page, with its interval."""

    label: str
    text: str
    interval: str = ""

    @classmethod
    def of(cls, label: str, value: float, lower: float, upper: float, unit: str) -> KeyFigure:
        """Write a number in three digits, unless its interval is narrower than they show."""
        if not upper - lower < 0.01 * abs(value):
            value, lower, upper = (float(f"{x:.3g}") for x in (value, lower, upper))
        ends = tx.shown_interval(value, lower, upper, unit)
        return cls(label, tx.shown(value, unit), ends.strip("–"))


class Sliders(NamedTuple):
    """Sliders, and the figures that follow them; the page shows them where scripts run."""

    title: str
    note: str
    header: Sequence[str]  # of the table of figures
    script: str  # file of this folder that computes the figures, after ``sliders.js``
    data: str  # JSON that it computes them from


Table = rs.PrintedTable


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report: the answer in a sentence, caveats, charts, tables, and the result's JSON."""

    title: str
    subtitle: str = ""
    verdict: Sequence[str]  # the answer first, then what else was found
    figures: Sequence[Figure] = ()
    tables: Sequence[rs.PrintedTable]
    caveats: Sequence[str]
    document: str  # the JSON of the result
    digest: str = ""  # of the input
    key_figures: Sequence[KeyFigure] = ()  # three at most
    sliders: Sliders | None = None

    @classmethod
    def of(cls, result: rs.Result, **parts: Any) -> Page:
        """Report a result: its sentences, tables, caveats and document, with figures.

        ``parts`` are the other fields of the page, or take the place of sentences and tables.
        """
        if "verdict" not in parts:
            parts["verdict"] = result.sentences()
        if "tables" not in parts:
            parts["tables"] = result.printed_tables(MOST_ROWS)
        document, digest = result.to_json(), result.input_digest or ""
        return cls(caveats=result.caveats, document=document, digest=digest, **parts)

    @classmethod
    def with_plot(
        cls, result: Any, title: str, caption: str, *, height: float = 3.2, **parts: Any
    ) -> Page:
        """Report a result as `of`, with its plot in a height (inches)."""
        figures = [Figure(draw(result.plot, height=height), caption)]
        return cls.of(result, title=title, figures=figures, **parts)

    def render(self) -> str:
        """Return the HTML: everything inside, no request leaves the page."""
        from jinja2 import Environment

        environment = Environment(
            autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable_cell
        )
        names = [] if self.sliders is None else ["sliders.js", self.sliders.script]
        scripts = ["\n".join(map(_asset, ["charts.js", *names]))]
        if self.figures or self.sliders:
            scripts.insert(0, _chart_library())
        specs = [{**figure.chart.spec, "description": figure.caption} for figure in self.figures]
        return environment.from_string(_asset("page.html")).render(
            page=self,
            style=_asset("style.css"),
            version=tx.package_version(),
            document=_escape_for_script(self.document),
            packed=_pack(self.document) if len(self.document) > _MOST_PLAIN else "",
            charts=_escape_for_script(json.dumps(specs, separators=(",", ":"))),
            data="" if self.sliders is None else _escape_for_script(self.sliders.data),
            scripts=scripts,
            policy=_content_policy(scripts),
            most_open=_MOST_OPEN,
            most_caveats=_MOST_CAVEATS,
            most_findings=_MOST_FINDINGS,
        )


def _printable_cell(value: object) -> object:
    """Make a text safe to print; HTML and other values stay as they are."""
    return tx.printable(value) if type(value) is str else value


def _asset(name: str) -> str:
    """Read a file of the folder assets: a template, style or script."""
    return (resources.files("ppw.results") / "assets" / name).read_text(encoding="utf-8")


def _escape_for_script(document: str) -> str:
    """Escape "<" in JSON, so that it cannot end the page's script element."""
    return document.replace("<", "\\u003c")


def _pack(document: str) -> str:
    """Compress a long document, and write it in base64; the same document gives the same text."""
    return base64.b64encode(gzip.compress(document.encode(), mtime=0)).decode()


def _content_policy(scripts: Sequence[str]) -> str:
    """Content security policy that allows these scripts, styles and embedded images."""
    digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
    allowed = " ".join(f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests)
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def draw(plot: Callable[[Axes], object], *, height: float = 3.2) -> Chart:
    """Draw on new axes and make the chart of them; the same input gives the same chart."""
    with naming_extra("a page with charts"):
        from matplotlib.figure import Figure as Canvas

        from ppw.results import charts

    plot(axes := Canvas(figsize=(4.6, height)).add_subplot())
    return charts.chart_of(axes, _PIXELS_PER_INCH * height)


@cache
def _chart_library() -> str:
    """Vega, Vega-Lite and Vega-Embed as one script; it is made once, which takes seconds."""
    with naming_extra("a page with charts"):
        import vl_convert

    # In a function of its own, because its names would meet those of the page.
    return f"(() => {{{vl_convert.javascript_bundle('window.vegaEmbed = vegaEmbed;')}}})();"


# Where a slider stops: round numbers along its way, and the values that must be met exactly.
def stops(low: float, high: float, exact: Iterable[float] = (), *, most: int = 120) -> list[float]:
    """Stops of a slider, rising: both ends, the ``exact`` ones, and ``most`` round ones between.

    Round ones are multiples of 1, 2 or 5 times a power of ten.
    """
    step = _round_step((high - low) / most) if high > low else 1.0
    first, last = math.ceil(low / step), math.floor(high / step)
    # Multiplied out, 3 · 0.1 is not the 0.3 that people mean.
    round_ones = (float(f"{n * step:.12g}") for n in range(first, last + 1))
    return sorted({low, high, *(x for x in (*round_ones, *exact) if low <= x <= high)})


def _round_step(least: float) -> float:
    """Smallest of 1, 2 or 5 times a power of ten that is at least ``least``."""
    size = 10.0 ** math.floor(math.log10(least))
    return float(next(m * size for m in (1, 2, 5, 10) if m * size >= least * (1 - 1e-9)))


def nearest(values: list[float], wanted: float) -> int:
    """Position of the value nearest to a wanted one."""
    return min(range(len(values)), key=lambda place: abs(values[place] - wanted))
