"""What is asked of a study of cycles per I/O."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.workloads.fio import Pattern

if TYPE_CHECKING:
    from collections.abc import Sequence

PATTERNS = tuple(
    Pattern.parse(text) for text in ("randread", "randwrite", "read:128KiB", "write:128KiB")
)


@dataclass(frozen=True, kw_only=True)
class StudyOptions:
    """What is run, on how much of the host, and where its I/O goes.

    Attributes
    ----------
    folder : str
        Existing folder on the disk.
    cores, threads_per_core, instances : tuple of int
        Physical cores, logical CPUs of each, and equal programs at once: all combinations.
    without_device : bool
        Whether each run is repeated with the device taken away: on a file system in memory.
    confine_kernel : bool
        Whether the kernel's unbound workers are kept on the cores of each run.
    own : bool
        Whether CPU time is that of the programs and the kernel's threads, and I/O that of fio,
        and not all of the host.
    taken : tuple of float
        Memory bandwidth that is taken from the workload, as shares of what the cores beside it
        can take; (0,) for none.
    size_bytes : int
        Of each of fio's files; with ``without_device``, also what a command may write.
    patterns : tuple of Pattern
        Of fio; empty where ``command`` is run.
    depth : int
        fio's requests in flight of each job.
    command : tuple of str
        ``{folder}``, ``{threads}`` and ``{instance}`` in it stand for a fresh folder of each run,
        the logical CPUs that it may use, and the number of the instance from 0.
    prepare : str or None
        Shell command that fills the fresh folder, its working directory, before a run.
    workload : str or None
        Name of ``command``.
    data_bytes : int or None
        Input size of ``command``.
    """

    folder: str
    cores: tuple[int, ...]
    threads_per_core: tuple[int, ...] = (1,)
    instances: tuple[int, ...] = (1,)
    without_device: bool = False
    confine_kernel: bool = False
    own: bool = False
    taken: tuple[float, ...] = (0.0,)
    size_bytes: int = 1 << 30
    patterns: tuple[Pattern, ...] = PATTERNS
    depth: int = 16
    command: tuple[str, ...] = ()
    prepare: str | None = None
    workload: str | None = None
    data_bytes: int | None = None

    def check(self) -> None:
        """Raise `MeasurementError` for what cannot be measured."""
        if not Path(self.folder).is_dir():
            raise MeasurementError(f"{self.folder}: is no folder: name one on the disk to measure")
        if bool(self.command) == bool(self.patterns):
            raise MeasurementError("a study is either of a command or of patterns of fio")
        if any(not 0 <= share <= 1 for share in self.taken):
            raise MeasurementError(
                "memory bandwidth is taken in shares of what the cores beside can take: 0 to 100%"
            )
        if not self.patterns:
            return
        most = max(self.cores) * max(self.threads_per_core)
        largest = max(pattern.block_bytes for pattern in self.patterns)
        if self.size_bytes < most * largest:
            raise MeasurementError(
                f"a file of {self.size_bytes} B has no part of {largest} B for each of {most} jobs"
            )

    def name(self, pattern: Pattern | None) -> str:
        """Name of the workload."""
        if pattern is None:
            return self.workload or Path(self.command[0]).name
        return pattern.name

    def command_in(self, folder: Path, threads: int, instance: int) -> list[str]:
        """Write the command of one instance."""
        meant = (
            ("{folder}", str(folder)),
            ("{threads}", str(threads)),
            ("{instance}", str(instance)),
        )
        return [_replaced(word, meant) for word in self.command]


def _replaced(word: str, meant: Sequence[tuple[str, str]]) -> str:
    for name, text in meant:
        word = word.replace(name, text)
    return word
