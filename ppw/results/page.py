"""The page itself: what a report consists of, and how it becomes one HTML file."""

from __future__ import annotations

import base64
import hashlib
import io
import math
import re
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from importlib import resources
from typing import Any, NamedTuple

from measurements.errors import naming_extra
from ppw.results import result as rs, text as tx
from ppw.results.axes import Axes

# Rows of a table that a page shows; its JSON has all.
MOST_ROWS = 500
# Of the digest, as much as tells inputs apart: all of it is too wide for a telephone.
_DIGEST = len("sha256:") + 12


class Figure(NamedTuple):
    """A drawing as SVG, with what it shows."""

    svg: str
    caption: str


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
    """A report: the answer in sentences, figures, tables, and the result's JSON embedded."""

    title: str
    subtitle: str
    verdict: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[rs.PrintedTable]
    caveats: Sequence[str]
    document: str  # the JSON of the result
    sliders: Sliders | None = None

    @classmethod
    def of(
        cls,
        result: rs.Result,
        *,
        title: str,
        subtitle: str = "",
        verdict: Sequence[str] | None = None,
        figures: Sequence[Figure] = (),
        tables: Sequence[rs.PrintedTable] | None = None,
        sliders: Sliders | None = None,
    ) -> Page:
        """Report a result: its sentences, tables, caveats and document, with figures."""
        input_ = f"input {(result.input_digest or '')[:_DIGEST]}"
        return cls(
            title=title,
            subtitle=" · ".join(part for part in (subtitle, input_) if part),
            verdict=result.sentences() if verdict is None else verdict,
            figures=figures,
            tables=result.printed_tables(MOST_ROWS) if tables is None else tables,
            caveats=result.caveats,
            document=result.to_json(),
            sliders=sliders,
        )

    def render(self) -> str:
        """Return the HTML: everything inside, no request leaves the page."""
        from jinja2 import Environment

        environment = Environment(
            autoescape=True, trim_blocks=True, lstrip_blocks=True, finalize=_printable_cell
        )
        script = "" if self.sliders is None else _asset("sliders.js") + _asset(self.sliders.script)
        return environment.from_string(_asset("page.html")).render(
            page=self,
            style=_asset("style.css"),
            version=tx.package_version(),
            document=_escape_for_script(self.document),
            data="" if self.sliders is None else _escape_for_script(self.sliders.data),
            script=script,
            policy=_content_policy(script),
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


def _content_policy(script: str) -> str:
    """Content security policy that allows this one script, styles and embedded images."""
    digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
    allowed = f"'sha256-{digest}'" if script else "'none'"
    return (
        f"default-src 'none'; script-src {allowed}; style-src 'unsafe-inline'; img-src data:; "
        "base-uri 'none'; form-action 'none'"
    )


def draw(plot: Callable[[Axes], object], *, width: float = 4.6, height: float = 3.2) -> str:
    """Draw on new axes and return the SVG; the same input gives the same bytes."""
    with naming_extra("a page with charts"):
        import matplotlib as mpl
        from matplotlib.figure import Figure as Canvas

    style: dict[Any, Any] = {
        "svg.hashsalt": "ppw",
        "svg.fonttype": "none",
        "font.family": "sans-serif",
        "font.size": 9,
        "axes.spines.top": False,
        "axes.spines.right": False,
        "axes.titlesize": 10,
        "axes.titlelocation": "left",
        "legend.fontsize": 8,
    }
    with mpl.rc_context(style), warnings.catch_warnings():
        # Names in scripts that this font lacks: the reader's browser has another.
        warnings.filterwarnings("ignore", "Glyph .* missing from font")
        canvas = Canvas(figsize=(width, height), layout="constrained")
        plot(canvas.add_subplot())
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    # The XML prologue names an address; inside HTML it is neither needed nor allowed.
    svg = sink.getvalue()
    return re.sub(r"(?<!\s)\s*<metadata>.*?</metadata>", "", svg[svg.index("<svg") :], flags=re.S)


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
