"""The kernels by name: small C programs in the spirit of the workloads that servers run."""

from __future__ import annotations

from typing import NamedTuple

from measurements.errors import MeasurementError
from measurements.headers import nearest

_KIB = 1024


class Kernel(NamedTuple):
    """A kernel.

    Attributes
    ----------
    name : str
        That of its source file, and of the workload in the runs table.
    data_bytes : int
        Data that it works on.
    """

    name: str
    data_bytes: int


KERNELS = {
    kernel.name: kernel
    for kernel in (
        Kernel("word_count", 128 * _KIB),
        Kernel("sort", 192 * _KIB),
        Kernel("hash_table_get", 34816 * _KIB),
        Kernel("kmeans", 96_000),
        Kernel("inverted_index", 1808 * _KIB),
        Kernel("pointer_chase", 8192 * _KIB),
        Kernel("stream", 3072 * _KIB),
    )
}

# Bound by stores, which one curve in 1/f does not describe: it is there to be found out.
CONTROL = "stream"


def kernel_named(name: str) -> Kernel:
    """Kernel of that name.

    Raises
    ------
    MeasurementError
        When there is none.
    """
    if name not in KERNELS:
        raise MeasurementError(
            f"kernel {name!r}: not one of {', '.join(KERNELS)}{nearest(name, list(KERNELS))}"
        )
    return KERNELS[name]
