"""Progress of a sweep: a bar with the last runs on a terminal; elsewhere only what it says."""

from __future__ import annotations

import sys
import time
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import click

from measurements.quantities import frequency_text
from ppw.estimate import shown
from ppw.names import printable

if TYPE_CHECKING:
    from rich.live import Live

_ROWS = 8
_SHOWN = {"time_s": "s", "power_w": "W", "cpi": "1", "temperature_c": "°C"}


class Progress:
    """Live table of the last runs and the time that is left, on standard error."""

    def __init__(self) -> None:
        self._live: Live | None = None
        self._rows: list[dict[str, Any]] = []
        self._started = 0.0
        self._done = self._all = 0

    def __enter__(self) -> Progress:
        """Begin; without a terminal nothing is drawn."""
        if sys.stderr.isatty():
            from rich.console import Console
            from rich.live import Live

            self._live = Live(console=Console(stderr=True), refresh_per_second=4, transient=True)
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Leave the terminal as it was."""
        if self._live is not None:
            self._live.stop()

    def tell(self, text: str) -> None:
        """Say a line that stays."""
        line = f"ppw: {printable(' '.join(text.split()))}"
        if self._live is not None:
            self._live.console.print(line, markup=False, highlight=False)
        else:
            click.echo(line, err=True)

    def expect(self, runs: int) -> None:
        """Learn how much there is to do."""
        self._started, self._all = time.monotonic(), runs

    def show(self, row: dict[str, Any]) -> None:
        """Add a run that has ended."""
        self._done += 1
        self._rows = [*self._rows[-_ROWS + 1 :], row]
        if self._live is not None:
            self._live.update(self._picture())

    def _picture(self) -> Any:
        from rich.console import Group
        from rich.progress_bar import ProgressBar
        from rich.table import Table

        table = Table(box=None, pad_edge=False)
        columns = [c for c in _SHOWN if any(c in row for row in self._rows)]
        for name in ("clock", "cores", "repeat", *(c.rpartition("_")[0] or c for c in columns)):
            table.add_column(name, justify="right")
        for row in self._rows:
            cells = [frequency_text(row["freq_hz"]), str(row.get("cores", "–")), str(row["repeat"])]
            table.add_row(*cells, *(shown(row.get(c), _SHOWN[c]) for c in columns))
        each = (time.monotonic() - self._started) / max(self._done, 1)
        left = timedelta(seconds=round(each * (self._all - self._done)))
        said = f" {self._done} of {self._all} runs, {left} left"
        return Group(table, ProgressBar(total=self._all, completed=self._done, width=40), said)
