"""Samples from files, and joined runs to one."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING, Any

from ppw.errors import PpwError
from ppw.fleet.connection import is_spark
from ppw.fleet.faults import Fault, first_line
from ppw.fleet.files import by_kind, find_files, scan
from ppw.fleet.reading import engine_errors
from ppw.fleet.telemetry import seconds

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    import ibis
    from ibis.backends import BaseBackend

    from ppw.fleet.files import Kind

_NEEDED = ("host", "at", "value")
_COLUMNS = (*_NEEDED, "label", "own")


def open_samples(
    source: str | Path, connection: BaseBackend, columns: Mapping[str, str] | None = None
) -> tuple[ibis.Table, list[Fault]]:
    """Open samples in Parquet, CSV or JSON-lines files, or a folder of them.

    Parameters
    ----------
    source : path
    connection : ibis connection
    columns : mapping of str to str, optional
        Of ``host``, ``at``, ``value``, ``label`` and ``own``, the header that each has there.

    Returns
    -------
    ibis.Table
        Those columns, times in seconds since 1970.
    list of Fault
        Files that cannot be read, or lack a column.

    Raises
    ------
    PpwError
        Where no file is left, or ``columns`` names something else.
    """
    names = {name: name for name in _COLUMNS} | dict(columns or {})
    if unknown := sorted(set(names) - set(_COLUMNS)):
        raise PpwError(f"samples have no column {unknown[0]}: map {', '.join(_COLUMNS)}")
    kinds, faults = _usable(str(source), names)
    if not kinds:
        raise PpwError(f"{source}: none of its files can be used, such as {faults[0]}")
    label = any(names["label"] in dict(kind.columns or ()) for kind in kinds)
    own = any(names["own"] in dict(kind.columns or ()) for kind in kinds)
    wanted = [*_NEEDED, *(["label"] if label else []), *(["own"] if own else [])]
    parts = [_plain(scan(connection, kind, files), wanted, names) for kind, files in kinds.items()]
    table = parts[0]
    for part in parts[1:]:
        table = table.union(part)
    return table, faults


def _usable(source: str, names: Mapping[str, str]) -> tuple[dict[Kind, list[str]], list[Fault]]:
    """Files by their format and columns; and those that are of no use."""
    kinds, faults = by_kind(find_files(source))
    for kind in [kind for kind in kinds if kind.columns]:
        there = list(dict(kind.columns or ()))
        if missing := [names[name] for name in _NEEDED if names[name] not in there]:
            what = f"no column {', '.join(missing)}; the columns are {', '.join(there)}"
            faults += [Fault(file, f"{what}: map those that mean it") for file in kinds.pop(kind)]
    return kinds, sorted(faults)


def _plain(table: ibis.Table, wanted: Sequence[str], names: Mapping[str, str]) -> ibis.Table:
    """Columns of samples, of one type whatever the file's."""
    import ibis

    def column(name: str) -> Any:
        if names[name] not in table.columns:
            return ibis.null("string" if name == "label" else "float64")
        found = table[names[name]]
        if name in ("at", "own"):
            return seconds(found)
        return found.cast("string") if name in ("host", "label") else found.try_cast("float64")

    return table.select(**{name: column(name) for name in wanted})


def write_runs(runs: ibis.Table, path: Path) -> str:
    """Write runs as Parquet, whole or not at all; say how many have watts.

    Spark makes a folder of files, as it does, and so does not replace what is there.
    """
    import pyarrow.parquet as pq

    if path.suffix != ".parquet":
        raise PpwError(f"{path}: is written as Parquet: give a name that ends in .parquet")
    engine = runs.get_backend()
    if is_spark(engine) and path.exists():
        raise PpwError(f"{path}: is there already: Spark writes a folder: give another name")
    # Spark's own folder is where it was started.
    beside = path.absolute().with_name(f".{path.name}.part")
    try:
        runs.to_parquet(beside)
        watts = pq.read_table(beside, columns=["power_w"])["power_w"]
        beside.replace(path)
    except OSError as error:
        raise PpwError(f"{path}: cannot be written: {error.strerror or error}") from error
    except engine_errors(engine) as error:
        raise PpwError(f"{path}: the engine failed: {first_line(error)}") from error
    finally:
        _remove(beside)
    return f"{path}: {len(watts) - watts.null_count} of {len(watts)} runs have watts"


def _remove(path: Path) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)
