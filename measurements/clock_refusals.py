"""What keeps this process from setting clocks, and the remedy for each."""

from __future__ import annotations

import errno
import os
from typing import TYPE_CHECKING

from measurements.cpufreq import held_by_heat
from measurements.errors import MeasurementError
from measurements.restoring import LOWER_LIMIT

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from measurements.cpufreq import Policy


def refuse_unwritable(policies: Iterable[Policy]) -> None:
    """Refuse policies whose clock this process may not set."""
    for policy in policies:
        path = policy.folder / LOWER_LIMIT
        if os.access(path, os.W_OK):
            continue
        if os.statvfs(path).f_flag & os.ST_RDONLY:
            raise MeasurementError(refused_write(path, "", OSError(errno.EROFS, "")))
        raise MeasurementError(refused_write(path, "", OSError(errno.EACCES, "")))


def refuse_hot(sysfs: Path, policies: Iterable[Policy]) -> None:
    """Refuse while heat lowers the limits: the kernel shows its own, and hides what was asked."""
    if devices := held_by_heat(sysfs, policies):
        raise MeasurementError(
            f"the clocks are lowered for heat now ({', '.join(devices)}), so what the limits were "
            "cannot be told and could not be put back: let the host cool down first"
        )


def refused_write(path: Path, value: str, error: OSError) -> str:
    """Say why a write was refused, and the remedy."""
    if error.errno == errno.EROFS:
        return (
            f"{path} is mounted read-only, as in a container: run ppw on the host, give the "
            "container the right to it (--privileged), or measure with --as-found"
        )
    if error.errno == errno.EPERM and path.name in ("no_turbo", "boost", "cpb"):
        return f"{path} takes no {value}: turbo is off in the firmware, or the processor has none"
    if error.errno in (errno.EACCES, errno.EPERM):
        return f"no right to set clocks in {path}: run as root (sudo), or measure with --as-found"
    return f"{path} takes no {value!r}: {error.strerror}"
