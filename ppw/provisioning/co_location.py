"""`co_locate`: what breaks first when recorded workloads share a host, and how often."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from fitting.demand.co_location import agreement, load_of
from ppw import caveats as cv
from ppw.errors import PpwError
from ppw.pressure.capacity import capacity_of
from ppw.pressure.demand import as_recordings, as_series
from ppw.pressure.thresholds import DEFAULTS
from ppw.provisioning.alignment import align_recordings
from ppw.provisioning.co_location_result import (
    BREAKS,
    FITS,
    PART_COLUMNS,
    SHARED_COLUMNS,
    TIGHT,
    TIMELINE_COLUMNS,
    CoLocation,
)
from ppw.provisioning.resources import (
    NAMES,
    NO_CAPACITY,
    NOT_MEASURED,
    RESOURCES,
    about_cpus,
    capacities,
    capacity_for,
    own_capacity,
    within,
)
from ppw.provisioning.right_sizing import FULL
from ppw.result import frame_digest, numbers_digest

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from measurements.timeseries.series import TimeSeries
    from ppw.host import Host
    from ppw.pressure.capacity import Capacity
    from ppw.provisioning.alignment import Aligned

    FloatArray = np.ndarray[tuple[int, ...], np.dtype[np.float64]]

# From this share of its ceiling on a resource is tight.
_TIGHT = 0.8
# A workload uses a resource when it takes this share of it.
_USED = 0.01
# Waiting for memory does not grow with its use; it is there or it is not.
_WITHOUT_QUEUE = ("memory",)
_BINS = 120


def co_locate(
    recordings: Mapping[str, TimeSeries],
    *,
    capacity: Capacity | Mapping[str, float] | None = None,
    host: Host | None = None,
    latency_critical: Sequence[str] = (),
    align: str = "start",
    idle: TimeSeries | None = None,
    ceiling: float = 1.0,
    latency_ceiling: float = 0.70,
    quantile: float = 0.95,
    disks: Sequence[str] | None = None,
    seed: int = 0,
) -> CoLocation:
    """Add the demands of workloads and hold the sum against a host.

    Parameters
    ----------
    recordings : mapping of str to TimeSeries
        Each workload on a host of its own.
    capacity : Capacity or mapping of str to float, optional
        The host to share; a mapping adds to what the first recording says of its own.
    host : Host, optional
        Entry of the catalogue to share, for its cores and memory bandwidth.
    latency_critical : sequence of str
        Workloads whose answers must not wait: what they use is held to ``latency_ceiling``.
    align : {"start", "clock", "day", "any"}
        See `ppw.provisioning.alignment.align_recordings`.
    idle : TimeSeries, optional
        The host without a workload: its demand is in every recording, and is counted once.
    ceiling : float
        Share of a capacity that may be used.
    latency_ceiling : float
        The same where a latency-critical workload queues: at 70 % one server in M/M/1 lets a
        request wait 2.3 service times on average, at 90 % nine.
    quantile : float
        Share of the time for which a resource must suffice.
    disks : sequence of str, optional
    seed : int
        Of the moments drawn for ``align="any"``, and of the resamples.

    Returns
    -------
    CoLocation
        What breaks first when workloads share a host.

    Raises
    ------
    PpwError
        For fewer than two workloads, what is no time series, names that are none, or shares that
        cannot be.

    Warns
    -----
    CaveatWarning
        For each entry of ``caveats``.
    """
    _check(recordings, latency_critical)
    if idle is not None:
        as_series(idle, "idle")
    for name, share in (
        ("ceiling", ceiling),
        ("latency_ceiling", latency_ceiling),
        ("quantile", quantile),
    ):
        within(name, share)
    first = next(iter(recordings.values()))
    limits = capacity_for(first, capacity, host)
    aligned = align_recordings(recordings, align, idle=idle, disks=disks, seed=seed)
    ceilings = _ceilings(aligned, capacities(limits), latency_critical, ceiling, latency_ceiling)
    caveats = _caveats(recordings, aligned, limits, idle, align)
    result = CoLocation(
        resources=_resources(aligned, limits, ceilings, ceiling, quantile, seed),
        parts=_parts(aligned, quantile, latency_critical),
        timeline=_timeline(aligned, capacities(limits)),
        align=align,
        seconds=aligned.demand.shape[1] * aligned.step_s if aligned.in_order else 0.0,
        quantile=float(quantile),
        caveats=tuple(caveats),
        input_digest=numbers_digest(
            *[frame_digest(series.frame) for series in recordings.values()]
        ),
    )
    cv.warn(caveats)
    return result


def _check(recordings: Mapping[str, TimeSeries], latency_critical: Sequence[str]) -> None:
    if len(as_recordings(recordings)) < 2:
        raise PpwError(f"{len(recordings)} workload was given: two or more share a host")
    for name, series in recordings.items():
        as_series(series, name)
    unknown = [name for name in latency_critical if name not in recordings]
    if unknown:
        raise PpwError(f"no workload is called {unknown[0]!r}: one of {', '.join(recordings)}")


def _ceilings(
    aligned: Aligned,
    capacity: FloatArray,
    latency_critical: Sequence[str],
    ceiling: float,
    latency_ceiling: float,
) -> FloatArray:
    """Ceiling of each resource: lower where a latency-critical workload queues for it."""
    found = np.full(len(NAMES), ceiling)
    for place, name in enumerate(aligned.names):
        if name in latency_critical:
            used = load_of(aligned.demand[place] / capacity).mean > _USED
            queues = np.array([resource not in _WITHOUT_QUEUE for resource in NAMES])
            found = np.where(used & queues, np.minimum(found, latency_ceiling), found)
    return found


def _resources(
    aligned: Aligned,
    limits: Capacity,
    ceilings: FloatArray,
    ceiling: float,
    quantile: float,
    seed: int,
) -> pd.DataFrame:
    total = aligned.demand.sum(axis=0)
    capacity = capacities(limits)
    held = total / (capacity * ceilings)
    amount, load = load_of(total, quantile), load_of(held, quantile)
    table = pd.DataFrame(
        {
            "resource": NAMES,
            "finding": [_finding(*both) for both in zip(amount.high, load.high, strict=True)],
            "value": amount.high,
            "unit": [resource.unit for resource in RESOURCES],
            "mean": amount.mean,
            "peak": amount.peak,
            "capacity": capacity,
            "capacity_source": [limits.source(resource.capacity) for resource in RESOURCES],
            "share": amount.high / capacity,
            "threshold": np.where(np.isnan(load.high), np.nan, ceilings),
            "protected": ceilings < ceiling,
            "excess": np.where(load.peak > 1, amount.peak - capacity * ceilings, np.nan),
            "over": load.over,
            "longest_s": load.longest * aligned.step_s if aligned.in_order else np.nan,
            "breaks_at": _breaks_at(load.high),
            "column": [resource.log for resource in RESOURCES],
            "confidence": [
                agreement(cells, 1.0, quantile, seed) for cells in held[: aligned.recorded].T
            ],
            "not_measured": _not_measured(aligned, capacity),
        }
    )
    return table[list(SHARED_COLUMNS)]


def _breaks_at(share: FloatArray) -> FloatArray:
    """How many times the demand the capacity is; infinite for demands near the smallest number."""
    with np.errstate(over="ignore"):
        return 1 / np.where(share > 0, share, np.nan)


def _finding(amount: float, load: float) -> str:
    if np.isnan(amount):
        return NOT_MEASURED
    if np.isnan(load):
        return NO_CAPACITY
    if load > 1:
        return BREAKS
    return TIGHT if load > _TIGHT else FITS


def _not_measured(aligned: Aligned, capacity: FloatArray) -> list[str]:
    missing = np.asarray(np.isnan(aligned.demand).all(axis=1))
    said = []
    for place, none in enumerate(missing.T):
        of = [name for name, lost in zip(aligned.names, none, strict=True) if lost]
        lacks = [f"demand of {', '.join(of)}"] if of else []
        said.append("; ".join([*lacks, *(["capacity"] if np.isnan(capacity[place]) else [])]))
    return said


def _parts(aligned: Aligned, quantile: float, latency_critical: Sequence[str]) -> pd.DataFrame:
    loads = [load_of(demand, quantile) for demand in aligned.demand]
    means = np.stack([load.mean for load in loads])
    with np.errstate(divide="ignore", invalid="ignore"):
        shares = means / means.sum(axis=0)
    rows = [
        (NAMES[r], name, loads[w].high[r], means[w, r], shares[w, r], name in latency_critical)
        for r in range(len(NAMES))
        for w, name in enumerate(aligned.names)
        if not np.isnan(means[w, r])
    ]
    return pd.DataFrame(rows, columns=list(PART_COLUMNS))


def _timeline(aligned: Aligned, capacity: FloatArray) -> pd.DataFrame:
    """Highest share in each of some stretches of time, for drawing."""
    if not aligned.in_order:
        return pd.DataFrame([], columns=list(TIMELINE_COLUMNS))
    share = aligned.demand.sum(axis=0) / capacity
    bins = min(len(share), _BINS)
    edges = np.linspace(0, len(share), bins + 1).astype(int)
    ends = aligned.step_s * edges[1:]
    # Each stretch begins where the one before ends, so that none is empty.
    highest = np.fmax.reduceat(share, edges[:-1], axis=0)
    known = [place for place in range(len(NAMES)) if np.isfinite(highest[:, place]).any()]
    rows = [
        (NAMES[place], end, value)
        for place in known
        for end, value in zip(ends, highest[:, place], strict=True)
    ]
    return pd.DataFrame(rows, columns=list(TIMELINE_COLUMNS))


def _caveats(
    recordings: Mapping[str, TimeSeries],
    aligned: Aligned,
    limits: Capacity,
    idle: TimeSeries | None,
    align: str,
) -> list[str]:
    said = []
    if idle is None:
        said.append(
            f"the host's own demand is in each recording and is counted {len(recordings)} times: "
            "give a recording of the idle host"
        )
    cores = {name: capacity_of(series).cores for name, series in recordings.items()}
    known = {value for value in cores.values() if value == value}
    if len(known) > 1:
        said.append(
            "recorded on unlike hosts: a core of one need not do what a core of another does"
        )
    for place, (name, series) in enumerate(recordings.items()):
        said += about_cpus(series)
        own = capacities(own_capacity(series, limits))
        share = load_of(aligned.demand[place] / own).high
        full = [NAMES[r] for r in np.flatnonzero(share >= FULL)]
        if full:
            said.append(
                f"{name} filled {', '.join(full)} when recorded: it may want more of that, and "
                "takes less of the rest when it gets less"
            )
        medium = np.array([DEFAULTS[resource.measure].medium for resource in RESOURCES])
        if np.isfinite(share).any() and not (share >= medium).any():
            said.append(f"{name} does not stress its host: no resource passes its medium threshold")
    spans = [series.seconds for series in recordings.values()]
    if align == "start" and max(spans) > 1.5 * min(spans):
        said.append(
            f"only the first {min(spans):.6g} s are judged, in which all were recorded: "
            "--align any lets any moment of one meet any of the other"
        )
    return said
