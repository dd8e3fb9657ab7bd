"""Columns of a series out of the nested tables that JSON of sadf becomes."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.timeseries.sadf_fields import CPU, KIB, Field
from measurements.timeseries.schema import of_device

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pyarrow as pa
    from numpy.typing import NDArray

    Numbers = NDArray[np.float64]

# Rounding of a percentage in a log.
_ROUNDING = 0.006


def plain(table: pa.Table, column: str) -> dict[str, pa.Array]:
    """Fields of a column of structs, each as long as the table."""
    whole = table.column(column).combine_chunks()
    return {field.name: part for field, part in zip(whole.type, whole.flatten(), strict=True)}


def host_cpu(table: pa.Table, cpus: float | None) -> tuple[dict[str, Numbers], bool]:
    """CPU seconds a second of the host, and whether interrupts are counted as system.

    From the row of all CPUs together; where a sample has none, from the CPUs one by one.
    """
    rows, name, shares = _entries(table.column("cpu-load"))
    size = table.num_rows
    together = name["cpu"] == "all"
    has_all = np.zeros(size, bool)
    has_all[rows[together]] = True
    single = ~together & ~has_all[rows]
    found: dict[str, Numbers] = {}
    # A row of all CPUs is a mean share; single CPUs are one each.
    for chosen, weight in ((together, cpus or np.nan), (single, 1.0)):
        if chosen.any():
            for field, numbers in shares.items():
                _add(found, CPU[field], numbers[chosen] * weight, rows[chosen], size)
    _add_guests(found, shares)
    for column in [column for column, numbers in found.items() if np.isnan(numbers).all()]:
        del found[column]
    return found, not np.isnan(shares["system"]).all()


def _add_guests(found: dict[str, Numbers], shares: Mapping[str, Numbers]) -> None:
    """Count guests as user too, as the kernel does, where the log kept them apart."""
    guests = found.get("guest_s")
    if guests is not None and "user_s" in found and not np.isnan(shares["usr"]).all():
        # Guests at low priority belong to nice; together they are what runs tasks.
        found["user_s"] += np.nan_to_num(guests)


def _add(
    found: dict[str, Numbers], field: Field, numbers: Numbers, rows: NDArray[np.int64], size: int
) -> None:
    known = ~np.isnan(numbers)
    if not known.any():
        return
    summed = np.bincount(rows[known], numbers[known], size) * field.factor
    there = np.bincount(rows[known], minlength=size) > 0
    column = found.setdefault(field.column, np.full(size, np.nan))
    column[there] = np.nan_to_num(column[there]) + summed[there]


def device_columns(
    lists: pa.Array | pa.ChunkedArray, key: str, known: Mapping[str, Field]
) -> dict[str, Numbers]:
    """Columns by device of a list of devices in each row."""
    rows, name, numbers = _entries(lists)
    size = len(lists)
    found: dict[str, Numbers] = {}
    labels, codes = np.unique(name[key].astype(str), return_inverse=True)
    for code, device in enumerate(labels):
        chosen = codes == code
        for field, made in known.items():
            part = numbers[field][chosen] * made.factor
            if device in ("", "None") or np.isnan(part).all():
                continue
            column = found.setdefault(of_device(made.column, device), np.full(size, np.nan))
            at = rows[chosen]
            column[at] = np.where(np.isnan(column[at]), part, column[at] + part)
    return found


def memory_total(memory: Mapping[str, pa.Array]) -> dict[str, Numbers]:
    """Memory of the host, which sadf does not write, from the parts that add up to it.

    Used memory is all but the free in sysstat 11, and all but free, buffers, cached and slab in
    sysstat 12; the share that is written beside it tells which.
    """
    part = {name: np.array(column, dtype=float) for name, column in memory.items()}
    used, share = part["memused"], part["memused-percent"] / 100
    before = part["memfree"] + used
    for total in (before, before + part["buffers"] + part["cached"] + part["slab"]):
        known = ~np.isnan(total)
        off = np.abs(used - share * total)
        if known.any() and (off[known] <= _ROUNDING / 100 * total[known] + 1).all():
            return {"memory_total_bytes": total * KIB}
    return {}


def _entries(
    lists: pa.Array | pa.ChunkedArray,
) -> tuple[NDArray[np.int64], dict[str, NDArray[np.object_]], dict[str, Numbers]]:
    """Entries of all lists below each other: their rows, texts and numbers."""
    import pyarrow as pa
    import pyarrow.compute as pc

    whole = lists.combine_chunks() if isinstance(lists, pa.ChunkedArray) else lists
    rows = np.asarray(pc.list_parent_indices(whole), dtype=np.int64)
    flat = pc.list_flatten(whole)
    texts, numbers = {}, {}
    for field, part in zip(flat.type, flat.flatten(), strict=True):
        if pa.types.is_string(field.type):
            coded = part.dictionary_encode()
            words = np.array([*coded.dictionary.to_pylist(), ""], dtype=object)
            codes = np.array(coded.indices.fill_null(len(words) - 1), dtype=np.int64)
            texts[field.name] = words[codes]
        else:
            numbers[field.name] = np.array(part.to_numpy(zero_copy_only=False), dtype=float)
    return rows, texts, numbers
