"""How far an engine is, asked from a thread of its own while it works."""

from __future__ import annotations

import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from ppw.fleet.connection import is_spark

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from ibis.backends import BaseBackend

_EVERY_S = 0.5


@contextmanager
def watched(connection: BaseBackend, report: Callable[[float], None] | None) -> Iterator[None]:
    """Call ``report`` with the share that is done, 0 to 1, twice a second; None for nothing."""
    if report is None:
        yield
        return
    done = threading.Event()
    ask = _of_spark if is_spark(connection) else _of_duckdb

    def watch() -> None:
        while not done.wait(_EVERY_S):
            report(ask(connection))

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    report(1.0)


def _of_duckdb(connection: Any) -> float:
    percent = connection.con.query_progress()
    return min(max(float(percent), 0.0) / 100, 1.0)


def _of_spark(connection: Any) -> float:
    tracker = connection._session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    known = [s for s in stages if s is not None and s.numTasks]
    if not known:
        return 0.0
    return float(sum(s.numCompletedTasks for s in known) / sum(s.numTasks for s in known))
