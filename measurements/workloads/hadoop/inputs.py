"""Inputs of the examples, made before anything is measured."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.workloads.hadoop.text import copy_beginning, write_text

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from pathlib import Path

    from measurements.workloads.hadoop.jobs import Setting

# A job's spills, merges and output, beside its input.
_TIMES_THE_LARGEST = 4


def text_sizes(settings: Iterable[Setting]) -> list[int]:
    """Sizes of the texts that workloads read, the largest first."""
    return _sizes(settings, ("wordcount", "sort"))


def row_sizes(settings: Iterable[Setting]) -> list[int]:
    """Sizes of the rows that workloads read, the largest first."""
    return _sizes(settings, ("terasort",))


def room_needed(settings: Sequence[Setting], *, copies: int = 1) -> float:
    """Bytes on disk that the inputs and the largest job take.

    Parameters
    ----------
    settings : sequence of Setting
    copies : int
        How often an input is there, as it is while it is brought into another file system.
    """
    largest = max((s.data_bytes or 0 for s in settings), default=0)
    inputs = sum(text_sizes(settings)) + sum(row_sizes(settings))
    return float(copies * inputs + _TIMES_THE_LARGEST * largest)


def make_texts(folder: Path, sizes: Sequence[int], *, seed: int) -> dict[int, Path]:
    """Write a text of each size; the shorter ones are the beginning of the longest."""
    paths = {size: folder / f"text-{size}" for size in sizes}
    if sizes:
        write_text(paths[sizes[0]], sizes[0], seed=seed)
    for size in sizes[1:]:
        copy_beginning(paths[sizes[0]], paths[size], size)
    return paths


def _sizes(settings: Iterable[Setting], workloads: tuple[str, ...]) -> list[int]:
    found = {s.data_bytes for s in settings if s.workload in workloads and s.data_bytes}
    return sorted(found, reverse=True)
