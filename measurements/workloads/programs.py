"""Programs that a workload needs, and what to install where one is missing."""

from __future__ import annotations

import shutil

from measurements.errors import MeasurementError

# Packages by program, where Debian's name and those of others differ both.
PACKAGES = {
    "memcached": "memcached",
    "memcaslap": "libmemcached-tools",
    "memaslap": "libmemcached-tools",
    "memtier_benchmark": "memtier-benchmark",
    "fio": "fio",
    "valgrind": "valgrind",
}


def find_program(name: str) -> str:
    """Path of a program. Raises `MeasurementError` with what to install where it is missing."""
    path = shutil.which(name)
    if path is None:
        raise MeasurementError(
            f"the program {name} is not there: apt install {PACKAGES.get(name, name)}, or its like"
        )
    return path


def find_first(names: tuple[str, ...]) -> str | None:
    """Path of the first of several names of one program; None where none is there."""
    return next((path for name in names if (path := shutil.which(name))), None)
