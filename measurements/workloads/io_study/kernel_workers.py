"""The kernel's unbound workers kept on the cores of a run: they do part of the I/O.

Loop devices, file systems and encryption hand work to kernel threads that run wherever a CPU is
free, so that a workload on one core has the help of others. The kernel lets no user place these
threads, but it has one mask for all of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Self

from measurements.errors import MeasurementError
from measurements.guard import Guard, not_restored
from measurements.host.files import read_text

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path


class KernelWorkers:
    """Confines them to some CPUs until left; then, or when ppw dies, all is as it was.

    Raises
    ------
    MeasurementError
        Where the kernel has no such mask, or another ppw has changed it.
    """

    def __init__(self, sysfs: Path) -> None:
        self._mask = sysfs / "devices/virtual/workqueue/cpumask"
        was = read_text(self._mask)
        if was is None:
            raise MeasurementError(
                f"{self._mask}: cannot be read: this kernel's workers cannot be kept on some "
                "cores: leave --confine-kernel out"
            )
        self._guard = Guard(lock=self._mask.parent)
        self._guard.learn([(self._mask, was)])

    def confine(self, cpus: Collection[int]) -> None:
        """Keep them on these CPUs from now on. Raises `MeasurementError` where it is refused."""
        self._guard.change(self._mask, cpu_mask(cpus))

    def close(self) -> None:
        """Put the mask back. Raises `MeasurementError` where it could not be."""
        if unrestored := self._guard.release():
            raise MeasurementError(not_restored(unrestored))

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def cpu_mask(cpus: Collection[int]) -> str:
    """Write CPUs as the kernel's masks are: groups of 32 bits, the highest first.

    >>> cpu_mask([0, 1, 33])
    '2,00000003'
    """
    bits = sum(1 << cpu for cpu in set(cpus))
    groups: list[str] = []
    while bits or not groups:
        groups.append(f"{bits & 0xFFFFFFFF:08x}")
        bits >>= 32
    groups[-1] = groups[-1].lstrip("0") or "0"
    return ",".join(reversed(groups))
