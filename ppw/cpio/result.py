"""What the four answers about I/O share: names of groups, tables as texts, and parts of plots."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from ppw.results import axes as drawing, result as rs, text as tx
from ppw.results.axes import Axes

if TYPE_CHECKING:
    import pandas as pd

# Summaries print every row of these tables.
EVERY_ROW = 10**9
MOST_DRAWN = 20
COLOURS = {"measured": drawing.CURVE, "projected": drawing.PROJECTED, "full": drawing.BEST}
MARKS = "osD^vP*X"
# Characters of a line beside a bar.
_LABEL = 26


class IoResult(rs.Result):
    """Answer about the I/O of groups of runs, which the columns ``by`` of its tables tell apart."""

    by: tuple[str, ...]

    def label(self, row: dict[Any, Any]) -> str:
        """Name a group by what tells the groups apart."""
        table = self.to_frame()
        telling = [n for n in self.by if len(table[n].drop_duplicates()) > 1]
        return ", ".join(tx.key_texts(telling or self.by, row)) or "all runs"

    def _groups(self) -> list[tuple[str, pd.DataFrame]]:
        """Split the first table into groups, each with its name."""
        if not self.by:
            return [("all runs", self.to_frame())]
        parts = self.to_frame().groupby([*self.by], sort=False, dropna=False)
        return [(self.label(part.iloc[0].to_dict()), part) for _, part in parts]

    def header(self) -> list[str]:
        """Name the columns of `cells`."""
        return [*self.printed_tables()[0].header]

    def cells(self, most: int | None = None) -> list[list[str]]:
        """Return rows of the first table as they print, all or the first ``most``."""
        table = self.printed_tables(EVERY_ROW if most is None else most)[0]
        return [*map(list, table.rows)]


def logarithmic(axes: Axes, which: str, *, from_decade: bool = False) -> None:
    """Scale an axis by decades with plain ticks (10k); bars begin at the decade below the least."""
    from matplotlib.ticker import EngFormatter, LogLocator, NullFormatter

    getattr(axes, f"set_{which}scale")("log")
    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axis.get_view_interval()
    if from_decade:
        low = 10.0 ** np.floor(np.log10(low))
        axes.set_xlim(left=low)
    narrow = high < 30 * low
    axis.set_major_locator(LogLocator(subs=(1.0, 2.0, 5.0) if narrow else (1.0,), numticks=8))
    axis.set_major_formatter(EngFormatter(sep=""))
    axis.set_minor_formatter(NullFormatter())


def label_rows(axes: Axes, names: list[str], what: str = "application") -> None:
    """Write a name beside each row of bars, the first on top."""
    axes.set_yticks(range(len(names)), [drawing.label_lines(name, _LABEL) for name in names])
    axes.invert_yaxis()
    axes.set_ylabel(what)
