"""Sums of counts: of one event over CPUs and intervals, and over the kinds of a host's cores."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from measurements.perf.events import TOOL_EVENTS, Mode, parse_event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping, Sequence

    from measurements.perf.output import Count, Missing

Place = tuple[str, str, float | None, int]


class Total(NamedTuple):
    """One event over all of a run.

    Attributes
    ----------
    value : float or None
        In the event's unit; None where it is not known.
    unit : str
        Of the value; "" for a plain count.
    missing : str or None
        Why there is no value.
    running : float or None
        Share of the time that the event was on a counter, from 0 to 1; the value is scaled up
        from it. Of several CPUs or intervals the mean.
    runtime_s : float or None
        Time on a counter, summed over CPUs.
    """

    value: float | None
    unit: str = ""
    missing: Missing | None = None
    running: float | None = None
    runtime_s: float | None = None


class Quantity(NamedTuple):
    """One quantity over all kinds of cores.

    Attributes
    ----------
    value : float or None
        The sum.
    by_pmu : mapping of str to float
        What each kind of core adds to it; empty where there is one kind.
    uncounted : tuple of str
        Kinds of cores that worked without this being counted.
    running : float or None
        Share of the time that it was on a counter, from 0 to 1.
    """

    value: float | None = None
    by_pmu: Mapping[str, float] = {}
    uncounted: tuple[str, ...] = ()
    running: float | None = None


def total_events(counts: Iterable[Count]) -> dict[str, Total]:
    """Sum every event over the parts of the machine, the intervals and the runs.

    A part in which no event was counted took no part in the run: a thread or an interval that
    slept. An event that alone was not counted in a part makes its total unknown.
    """
    by_event: dict[str, list[Count]] = {}
    for count in _first_of_each(counts):
        by_event.setdefault(count.event, []).append(count)
    at_work = {_place(c) for cs in by_event.values() for c in cs if _shows_work(c)}
    return {event: _total(event, cs, at_work) for event, cs in by_event.items()}


def add_cores(
    totals: Mapping[str, Total], terms: Collection[str], mode: Mode, *, whole_machine: bool
) -> Quantity:
    """Add a quantity over the kinds of cores of a hybrid processor.

    Parameters
    ----------
    totals : mapping of event to Total
        Everything that was counted.
    terms : collection of str
        Names of the quantity.
    mode : {"both", "user", "kernel"}
        In which it was counted.
    whole_machine : bool
        Every CPU was counted, each by its own unit, and the figures add up. A program's events
        run only while it is on their kind of core, and perf scales each as if it had been there
        all the time: the mean, weighted by the time on each kind, is their true sum.
    """
    named = {event: parse_event(event) for event in totals}
    found = {
        name.pmu: totals[event]
        for event, name in named.items()
        if name.term in terms and name.mode == mode
    }
    if "" in found and found[""].value is not None:
        # Counted on whatever core there was; a kind of core by name is part of it.
        found = {"": found[""]}
    counted = {pmu: total for pmu, total in found.items() if total.value is not None}
    if len(found) < 2 or not counted:
        total = next(iter(found.values()), Total(None))
        return Quantity(total.value, running=total.running)
    times = _times_on_cores(totals, counted)
    working = {named[event].pmu for event, total in totals.items() if total.value is not None}
    uncounted = tuple(pmu for pmu in found if pmu in working and pmu not in counted)
    whole = sum(times.values()) or 1.0
    shares = {pmu: 1.0 if whole_machine else time / whole for pmu, time in times.items()}
    by_pmu = {pmu: (total.value or 0.0) * shares[pmu] for pmu, total in counted.items()}
    on_counter = sum(_time(total) for total in counted.values()) / whole
    return Quantity(
        None if uncounted else sum(by_pmu.values()),
        by_pmu,
        uncounted,
        _least_running(counted.values()) if whole_machine else min(on_counter, 1.0),
    )


def _times_on_cores(totals: Mapping[str, Total], pmus: Collection[str]) -> dict[str, float]:
    """Time on each kind of core: that of its event that was longest on a counter."""
    times = dict.fromkeys(pmus, 0.0)
    for event, total in totals.items():
        pmu = parse_event(event).pmu
        if pmu in times and total.value is not None:
            times[pmu] = max(times[pmu], _time(total))
    return times


def _time(total: Total) -> float:
    """Time on a counter, or what stands for it. Some versions print whole percents only."""
    if total.runtime_s is not None:
        return total.runtime_s
    return 1.0 if total.running is None else total.running


def _least_running(totals: Iterable[Total]) -> float | None:
    return min((t.running for t in totals if t.running is not None), default=None)


def _place(count: Count) -> Place:
    return parse_event(count.event).pmu, count.part, count.interval_s, count.run


def _shows_work(count: Count) -> bool:
    return count.value is not None and count.event not in TOOL_EVENTS


def _first_of_each(counts: Iterable[Count]) -> Iterable[Count]:
    """Leave out the second line of an event that was asked for twice."""
    lines: dict[Place, Count] = {}
    for count in counts:
        lines.setdefault((count.event, *count[-3:]), count)
    return lines.values()


def _total(event: str, counts: Sequence[Count], at_work: Collection[Place]) -> Total:
    unit = next((c.unit for c in counts if c.unit), "")
    counted = [c for c in counts if c.value is not None]
    lost = [c for c in counts if c.value is None and _place(c) in at_work]
    if event in TOOL_EVENTS and counted:
        return Total(_once(counted), unit)
    if lost or not counted:
        return Total(None, unit, (lost or counts)[0].missing)
    value = sum(c.value for c in counted if c.value is not None)
    return Total(value, unit, None, _mean_running(counted), _sum_runtime(counted))


def _once(counted: Sequence[Count]) -> float:
    """Add what perf keeps once for the machine: the same in every part, anew in each interval."""
    most: dict[tuple[float | None, int], float] = {}
    for count in counted:
        when = count.interval_s, count.run
        most[when] = max(count.value or 0.0, most.get(when, 0.0))
    return sum(most.values())


def _sum_runtime(counts: Sequence[Count]) -> float | None:
    times = [c.runtime_s for c in counts if c.runtime_s is not None]
    return sum(times) if len(times) == len(counts) else None


def _mean_running(counts: Sequence[Count]) -> float | None:
    shares = [c.running for c in counts if c.running is not None]
    return sum(shares) / len(shares) if shares else None
