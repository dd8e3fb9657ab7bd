"""What a load generator is asked to do: one kind of request, over and over."""

from __future__ import annotations

import stat
from dataclasses import dataclass
from pathlib import Path

from measurements.errors import MeasurementError


@dataclass(frozen=True)
class Zone:
    """Part of the space: bytes from a start to an end, and the share of requests that go there."""

    first_byte: int
    end_byte: int
    share: float


@dataclass(frozen=True)
class Job:
    """A generator thread.

    Parameters
    ----------
    name : str
    rate : float
        Requests a second.
    share : float
        Of the requests of all jobs.
    read_share, random_share : float
        Of the requests of this job, 0 to 1.
    sizes : tuple of (int, float)
        Request sizes (bytes) and their shares.
    zones : tuple of Zone
        Where random requests go, in ascending order, with no overlap.
    alignment_bytes : int
        Requests start at multiples of it.
    arrivals : {"constant", "poisson"}
        Gaps between requests: equal, or exponential.
    """

    name: str
    rate: float
    share: float
    read_share: float
    random_share: float
    sizes: tuple[tuple[int, float], ...]
    zones: tuple[Zone, ...]
    alignment_bytes: int = 512
    arrivals: str = "constant"

    @property
    def mean_size(self) -> float:
        """Mean size of a request (bytes)."""
        return sum(size * share for size, share in self.sizes)

    @property
    def space(self) -> tuple[int, int]:
        """First byte, and the one after the last."""
        return self.zones[0].first_byte, self.zones[-1].end_byte


def checked_target(target: str, allow_device: bool) -> str:
    """Return a path that load may be put on.

    Raises
    ------
    MeasurementError
        For a device, unless allowed: writes go to it.
    """
    named_device = target.startswith(("/dev/", "\\\\.\\", "#")) or target.isdigit()
    path = Path(target)
    if named_device or (path.exists() and stat.S_ISBLK(path.stat().st_mode)):
        if not allow_device:
            raise MeasurementError(
                f"{target}: is a device, and a load writes over what is on it: name a scratch "
                "file, or allow the device (--allow-device)"
            )
    elif not target or any(c in target for c in "\n\r"):
        raise MeasurementError(f"target {target!r}: give the path of a scratch file")
    return target


def whole_percents(shares: list[float]) -> list[int]:
    """Shares as whole percents that sum to 100, the largest remainders rounded up."""
    total = sum(shares)
    exact = [100 * share / total for share in shares]
    whole = [int(x) for x in exact]
    by_rest = sorted(range(len(exact)), key=lambda k: (whole[k] - exact[k], k))
    for k in by_rest[: 100 - sum(whole)]:
        whole[k] += 1
    return whole


def percent_loss(shares: list[float], whole: list[int]) -> float:
    """Share of the requests that rounding to whole percents moves elsewhere."""
    total = sum(shares)
    off = [abs(s / total - w / 100) for s, w in zip(shares, whole, strict=True)]
    return sum(off) / 2


def write_whole(path: str | Path, text: str) -> None:
    """Write a file, whole or not at all."""
    target = Path(path)
    scratch = target.with_name(f".{target.name}.part")
    try:
        scratch.write_text(text, encoding="utf-8")
        scratch.replace(target)
    except OSError as error:
        scratch.unlink(missing_ok=True)
        raise MeasurementError(f"{target}: cannot be written: {error.strerror or error}") from error
