"""Requests that cannot be, found column by column."""

from __future__ import annotations

import numpy as np

from measurements.traces.requests import BLOCK_BYTES, FLUSH, Array, BadRequestError, Requests

# Where offsets, in bytes, end for every system that uses off_t.
LARGEST = 2**63
_LAST_BLOCK = LARGEST // BLOCK_BYTES


def check(requests: Requests) -> Requests:
    """Refuse the first request that cannot be; returns them with ``lbn`` as int64.

    Raises
    ------
    BadRequestError
    """
    if requests.rows() and not _can_all_be(requests):
        _refuse(requests)
    if requests.lbn.dtype != np.int64:
        return requests._replace(lbn=requests.lbn.astype(np.int64))
    return requests


def _can_all_be(requests: Requests) -> bool:
    """Whether extremes of the columns show already that nothing is wrong: several times as fast."""
    time, lbn, size = requests.time, requests.lbn, requests.size_bytes
    largest = int(size.max())
    return bool(
        size.min() > 0
        and lbn.min() >= 0
        and int(lbn.max()) <= _LAST_BLOCK - largest // BLOCK_BYTES
        and time.min() >= 0
        and time.max() < np.inf
        and requests.op.max() <= FLUSH
        and not (requests.latency_s < 0).any()
    )


def _refuse(requests: Requests) -> None:
    found = [
        (int(np.argmax(bad)), reason)
        for bad, reason in _complaints(requests)
        if bad is not None and bad.any()
    ]
    if found:
        at, reason = min(found, key=lambda one: one[0])
        raise BadRequestError(int(requests.row[at]), reason.format(**_shown(requests, at)))


def _complaints(requests: Requests) -> list[tuple[Array | None, str]]:
    time, lbn, size = requests.time, requests.lbn, requests.size_bytes
    empty = size <= 0
    if empty.any():
        # A flush moves nothing.
        empty = empty & ((requests.op != FLUSH) | (size < 0))
    # The end of the request in blocks, without adding what may overflow.
    far = lbn > _LAST_BLOCK - size // BLOCK_BYTES
    return [
        (empty, "a {op} of {size} bytes: every request moves at least one; remove it"),
        (far, "lbn {lbn} with {size} bytes ends beyond 2^63 bytes: no device reaches that far"),
        (lbn < 0 if lbn.dtype.kind == "i" else None, "lbn {lbn} is negative"),
        (None if time.dtype.kind == "i" else ~np.isfinite(time), "its time is no number"),
        (time < 0, "its time {time} is negative"),
        (requests.latency_s < 0, "its latency {latency} s is negative"),
        (requests.op > FLUSH, "operation {code} is none of 0 (read) to 3 (flush)"),
    ]


def _shown(requests: Requests, at: int) -> dict[str, object]:
    from measurements.traces.requests import OPERATIONS

    code = int(requests.op[at])
    return {
        "op": OPERATIONS[code] if code < len(OPERATIONS) else f"operation {code}",
        "code": code,
        "size": int(requests.size_bytes[at]),
        "lbn": int(requests.lbn[at]),
        "time": requests.time[at],
        "latency": requests.latency_s[at],
    }
