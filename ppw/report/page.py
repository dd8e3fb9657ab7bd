"""The page itself: what a report consists of, and how it becomes one HTML file."""

from __future__ import annotations

import io
import re
from dataclasses import dataclass
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from ppw.result import package_version

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from matplotlib.axes import Axes


class Figure(NamedTuple):
    """A drawing as SVG, with what it shows."""

    svg: str
    caption: str


class Table(NamedTuple):
    """Cells as they are printed; the first ``keys`` columns are names, the others numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int
    note: str = ""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A report.

    Attributes
    ----------
    title, subtitle : str
    verdict : sequence of str
        The answer, in sentences.
    figures, tables, caveats : sequences
    document : str
        The JSON of the result, embedded in the page.
    """

    title: str
    subtitle: str
    verdict: Sequence[str]
    figures: Sequence[Figure]
    tables: Sequence[Table]
    caveats: Sequence[str]
    document: str

    def render(self) -> str:
        """Return the HTML: everything inside, no request leaves the page."""
        from jinja2 import Environment

        folder = resources.files("ppw.report")
        template = (folder / "page.html").read_text(encoding="utf-8")
        style = (folder / "style.css").read_text(encoding="utf-8")
        environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
        return environment.from_string(template).render(
            page=self,
            style=style,
            version=package_version(),
            # Inside a script element "</script" would end it, and "<!--" would hide its end.
            document=self.document.replace("<", "\\u003c"),
        )


def draw(plot: Callable[[Axes], object], *, width: float = 4.6, height: float = 3.2) -> str:
    """Draw on new axes and return the SVG; the same input gives the same bytes."""
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
    with mpl.rc_context(style):
        canvas = Canvas(figsize=(width, height), layout="constrained")
        plot(canvas.add_subplot())
        sink = io.StringIO()
        canvas.savefig(sink, format="svg", metadata={"Date": None, "Creator": None})
    # The XML prologue names an address; inside HTML it is neither needed nor allowed.
    return re.sub(r"\s*<metadata>.*?</metadata>", "", _element(sink.getvalue()), flags=re.S)


def _element(svg: str) -> str:
    return svg[svg.index("<svg") :]
