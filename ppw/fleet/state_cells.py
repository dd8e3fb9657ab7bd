"""The moments of a saved state, as the answers over a fleet take what they read of its runs."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pandas as pd

from ppw.errors import PpwError
from ppw.fleet.cells import cells_frame
from ppw.fleet.reading import Cells
from ppw.fleet.source import FleetRuns
from ppw.metrics import known_metrics

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from ibis.backends import BaseBackend

    from ppw.fleet.layout import Layout
    from ppw.fleet.state import FleetState


def state_cells(
    state: FleetState,
    connection: BaseBackend,
    *,
    by: Sequence[str] | None = None,
    metric: str | Iterable[str] | None = None,
) -> Cells:
    """Read the moments of a state: what `ppw.fleet.reading.read_cells` makes of all its runs.

    Parameters
    ----------
    state : FleetState
    connection : ibis connection
    by : sequence of str, optional
        Columns that tell groups apart, among those that the state keeps; by default the state's.
    metric : str or several, optional
        By default all that the runs can answer.

    Raises
    ------
    PpwError
        For a state without runs, and for columns and metrics that it does not keep.
    """
    layout = _of_metrics(state, state.layout_by(by), metric)
    table = state.cells(connection).select(*layout.columns)
    name = str(state.folder)
    frame = cells_frame(connection.to_pyarrow(table), layout, name)
    known = pd.DataFrame([{column: 1.0 for column in layout.keys if frame[column].notna().any()}])
    known.attrs["source"] = name
    files = tuple(state.file_table()["name"].to_pylist())
    return Cells(frame, layout, FleetRuns(connection, table, name, files, (), {}), known)


def _of_metrics(state: FleetState, layout: Layout, metric: str | Iterable[str] | None) -> Layout:
    if metric is None:
        return layout
    names = tuple(m.name for m in known_metrics(metric))
    missing = [name for name in names if name not in layout.metrics]
    if missing:
        raise PpwError(
            f"{state.folder}: its runs do not tell {', '.join(missing)}, only "
            f"{', '.join(layout.metrics)}"
        )
    return replace(layout, metrics=names)
