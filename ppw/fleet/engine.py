"""Engines that do the work on rows: DuckDB in this process, Spark, or a connection of the user's.

They are reached through ibis, so that each statistic is written once.
"""

from __future__ import annotations

import os
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from measurements.errors import LateModule, naming_extra
from measurements.table.units import parse_quantity
from ppw.errors import PpwError
from ppw.results.text import check_choice

if TYPE_CHECKING:
    import ibis as ibis
    from ibis.backends import BaseBackend as BaseBackend
else:
    # Engines come with an extra; what stands in this room can be named and described without it.
    ibis = LateModule("ibis")
    BaseBackend = Any


ENGINES = ("duckdb", "spark")


def connect(
    engine: str | BaseBackend = "duckdb",
    *,
    memory_limit: str | None = None,
    temporary: str | Path | None = None,
    threads: int | None = None,
) -> BaseBackend:
    """Connect to an engine.

    Parameters
    ----------
    engine : {"duckdb", "spark"} or ibis connection
        Spark takes the session that is active, as under spark-submit, or starts a local one.
    memory_limit : str, optional
        What the engine may use, such as "4GiB"; Spark's driver where one is started.
    temporary : path, optional
        Folder for what does not fit in memory.
    threads : int, optional
        Of this machine; by default all.

    Raises
    ------
    PpwError
        For an engine of another name, or options that a given connection cannot take.
    ModuleNotFoundError
        For an engine that is not installed.
    """
    if not isinstance(engine, str):
        if (memory_limit, temporary, threads) != (None, None, None):
            raise PpwError(
                "a connection has its own memory limit, temporary folder and threads: set them "
                "where you make it, or name an engine"
            )
        return engine
    check_choice("engine", engine, ENGINES)
    size = None if memory_limit is None else int(parse_quantity(memory_limit, "bytes"))
    if size is not None and size < 1 << 20:
        raise PpwError(
            f"memory limit {memory_limit!r} is less than 1 MiB: write it with a unit, as 4GiB"
        )
    folder = None if temporary is None else str(temporary)
    if folder is not None and not Path(folder).is_dir():
        raise PpwError(f"temporary folder {folder}: is no folder: make it first")
    with naming_extra(f"engine {engine}"):
        return (_connect_duckdb if engine == "duckdb" else _connect_spark)(size, folder, threads)


def is_spark(connection: BaseBackend) -> bool:
    """Tell whether a connection is to Spark."""
    return str(connection.name) == "pyspark"


def _connect_duckdb(size: int | None, folder: str | None, threads: int | None) -> BaseBackend:
    options = {
        "preserve_insertion_order": False,
        # It plans a column of text anew for each use of it: five times the time of all the rest.
        "disabled_optimizers": "in_clause",
        "memory_limit": None if size is None else f"{size}B",
        "temp_directory": folder,
        "threads": threads,
    }
    return ibis.duckdb.connect(**{k: v for k, v in options.items() if v is not None})


def _connect_spark(size: int | None, folder: str | None, threads: int | None) -> BaseBackend:
    from pyspark.sql import SparkSession

    session = SparkSession.getActiveSession()
    if session is None:
        session = _local_session(SparkSession.builder, size, folder, threads)
    return ibis.pyspark.connect(session)


def _local_session(builder: Any, size: int | None, folder: str | None, threads: int | None) -> Any:
    """Start Spark in this process, or under spark-submit as that was told."""
    local = "PYSPARK_GATEWAY_PORT" not in os.environ
    settings: dict[str, object] = {
        "spark.ui.enabled": False,
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": 2 * (threads or os.cpu_count() or 1),
        # pandas writes nanoseconds, which Spark has no type for.
        "spark.sql.legacy.parquet.nanosAsLong": True,
    }
    if local:
        builder = builder.master(f"local[{threads or '*'}]")
        # Otherwise python3 of the PATH, which need not have numpy.
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        settings |= {"spark.driver.bindAddress": "127.0.0.1", "spark.driver.host": "127.0.0.1"}
    if size is not None:
        settings["spark.driver.memory"] = f"{size >> 20}m"
    if folder is not None:
        settings["spark.local.dir"] = folder
    for name, value in settings.items():
        builder = builder.config(name, value)
    session = builder.appName("ppw").getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    return session


# Progress of an engine, read from a thread of its own while it works.
_EVERY_S = 0.5


@contextmanager
def report_progress(
    connection: BaseBackend, report: Callable[[float], None] | None
) -> Iterator[None]:
    """Call ``report`` with the share done (0 to 1) twice a second inside the block, unless None."""
    if report is None:
        yield
        return
    done = threading.Event()

    def report_until_done() -> None:
        while not done.wait(_EVERY_S):
            report(_share_done(connection))

    thread = threading.Thread(target=report_until_done, daemon=True)
    thread.start()
    try:
        yield
    finally:
        done.set()
        thread.join()
    report(1.0)


def _share_done(connection: Any) -> float:
    if not is_spark(connection):
        return min(max(float(connection.con.query_progress()), 0.0) / 100, 1.0)
    tracker = connection._session.sparkContext.statusTracker()
    stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
    running = [s for s in stages if s is not None and s.numTasks]
    tasks = sum(s.numTasks for s in running)
    return float(sum(s.numCompletedTasks for s in running) / tasks) if tasks else 0.0


# What could not be used of a fleet's files: named, while the rest is done.
class Fault(NamedTuple):
    """One thing that could not be used: the file it is in, and what is wrong with it."""

    file: str
    what: str

    def __str__(self) -> str:
        """Line for people."""
        return f"{self.file}: {self.what}"


class UnusableFilesError(PpwError):
    """No file of a fleet can be used; ``faults`` say why, file by file."""

    def __init__(self, name: str, faults: Sequence[Fault]) -> None:
        super().__init__(
            f"{name}: none of {len(faults)} files can be used; the first: {faults[0]}"
            if len(faults) > 1
            else str(faults[0])
        )
        self.faults = tuple(faults)


def engine_errors(connection: BaseBackend) -> tuple[type[Exception], ...]:
    """List the exceptions that an engine raises when it fails."""
    if is_spark(connection):
        from py4j.protocol import Py4JError
        from pyspark.errors import PySparkException

        return (PySparkException, Py4JError)
    import duckdb

    return (duckdb.Error,)


def first_line(error: Exception) -> str:
    """First printable line of an engine's message, to 300 characters, without its full stop."""
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    text = "".join(c if c.isprintable() else "?" for c in lines[0]) if lines else ""
    return text[:300].rstrip(".: ") or type(error).__name__
