"""What the counts of a run say: CPI, achieved clock, cache misses, and what to doubt of them."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Literal

from measurements.perf import events as names
from measurements.perf.caveats import (
    GENERIC_MISSES,
    NO_CLOCK,
    USER_ONLY,
    count_caveats,
    quantity_caveats,
)
from measurements.perf.totals import Quantity, Total, add_cores, total_events
from measurements.quantities import HIGHEST_FREQUENCY_HZ, LOWEST_FREQUENCY_HZ

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from measurements.perf.output import PerfOutput

Modes = Literal["user+kernel", "user", "kernel"]

_MODES: tuple[Modes, ...] = ("user+kernel", "user", "kernel")
_UNITS_S = {"nsec": 1e-9, "ns": 1e-9, "usec": 1e-6, "msec": 1e-3, "ms": 1e-3, "sec": 1.0}


@dataclass(frozen=True, slots=True)
class Counters:
    """What was counted in one run. None is "not known", never 0.

    Attributes
    ----------
    instructions, cycles : float or None
        Retired instructions and core cycles, in the modes that ``modes`` says.
    modes : {"user+kernel", "user", "kernel"} or None
        The modes of the processor that both cover.
    llc_misses : float or None
        Misses of the last-level cache, as ``llc_event`` counts them.
    llc_event : str or None
        The event behind ``llc_misses``: loads, loads and stores, or the processor's own idea of a
        cache miss.
    task_clock_s : float or None
        CPU time of the command; of whole CPUs, their time, idle or not.
    elapsed_s : float or None
        Time for which perf counted, without its own start.
    freq_achieved_hz : float or None
        Mean clock of the cores while they ran.
    instructions_user, instructions_kernel, cycles_user, cycles_kernel : float or None
        By mode, where asked for.
    by_core_type : mapping of str to mapping of str to float
        On hybrid processors ``instructions`` and ``cycles`` of each kind of core, which add up to
        the totals.
    running : float or None
        Least share of the time, from 0 to 1, that instructions, cycles or cache misses were on a
        counter.
    events : mapping of str to Total
        Every event, under perf's own name.
    parts : mapping of str to mapping of str to float
        Where perf told CPUs, cores, sockets, threads or cgroups apart: the events of each.
    caveats : tuple of str
        What the reader of these figures must know.
    """

    instructions: float | None = None
    cycles: float | None = None
    modes: Modes | None = None
    llc_misses: float | None = None
    llc_event: str | None = None
    task_clock_s: float | None = None
    elapsed_s: float | None = None
    freq_achieved_hz: float | None = None
    instructions_user: float | None = None
    instructions_kernel: float | None = None
    cycles_user: float | None = None
    cycles_kernel: float | None = None
    by_core_type: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    running: float | None = None
    events: Mapping[str, Total] = field(default_factory=dict)
    parts: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    caveats: tuple[str, ...] = ()

    @property
    def cpi(self) -> float | None:
        """Cycles per retired instruction."""
        return _ratio(self.cycles, self.instructions)

    @property
    def llc_mpki(self) -> float | None:
        """Misses of the last-level cache per thousand instructions."""
        per_instruction = _ratio(self.llc_misses, self.instructions)
        return None if per_instruction is None else 1000.0 * per_instruction

    def columns(self) -> dict[str, float | str]:
        """Columns of the runs table, without those that are not known."""
        row: dict[str, float | str | None] = {
            "instructions": self.instructions,
            "cycles": self.cycles,
            "cpi": self.cpi,
            "freq_achieved_hz": self.freq_achieved_hz,
            "task_clock_s": self.task_clock_s,
            "llc_misses": self.llc_misses,
            "llc_misses_event": self.llc_event,
            "llc_mpki": self.llc_mpki,
            "counted_modes": self.modes,
            "counters_running": self.running,
            "instructions_user": self.instructions_user,
            "instructions_kernel": self.instructions_kernel,
            "cycles_user": self.cycles_user,
            "cycles_kernel": self.cycles_kernel,
        }
        for core_type, figures in self.by_core_type.items():
            row |= {f"{name}_{core_type}": value for name, value in figures.items()}
        return {name: value for name, value in row.items() if value is not None}


def summarize(output: PerfOutput, *, whole_machine: bool = False) -> Counters:
    """Compute the figures of a run from the counts of perf.

    Parameters
    ----------
    output : PerfOutput
        Of `measurements.perf.output.parse_output`.
    whole_machine : bool
        It was counted with ``-a`` or ``-C``: the task clock has idle time in it.
    """
    totals = total_events(output.counts)
    instructions = _without_standstill(_by_mode(totals, names.INSTRUCTIONS, whole_machine))
    cycles = _without_standstill(_by_mode(totals, names.CYCLES, whole_machine))
    modes = _common_modes(instructions, cycles)
    retired, clocked = (q[modes] if modes else Quantity() for q in (instructions, cycles))
    llc_event, llc = _llc_misses(totals, modes, whole_machine)
    used = {"instructions": retired, "cycles": clocked, "cache misses": llc}
    shares = [q.running for q in used.values() if q.running is not None and q.value is not None]
    task_clock_s = _seconds(totals, names.TASK_CLOCK)
    frequency_hz = None
    if modes == "user+kernel" and not whole_machine:
        frequency_hz = _plausible(_ratio(clocked.value, task_clock_s))
    if frequency_hz is None:
        frequency_hz = _plausible(_unhalted_frequency(totals, task_clock_s))
    return Counters(
        instructions=retired.value,
        cycles=clocked.value,
        modes=modes,
        llc_misses=llc.value,
        llc_event=llc_event,
        task_clock_s=task_clock_s,
        elapsed_s=_seconds(totals, names.DURATION),
        freq_achieved_hz=frequency_hz,
        instructions_user=instructions["user"].value,
        instructions_kernel=instructions["kernel"].value,
        cycles_user=cycles["user"].value,
        cycles_kernel=cycles["kernel"].value,
        by_core_type=_by_core_type(retired, clocked),
        running=min(shares, default=None),
        events=totals,
        parts=_parts(output),
        caveats=(
            *count_caveats(totals, output),
            *quantity_caveats(used),
            *([GENERIC_MISSES] if llc_event in names.GENERIC_MISSES else []),
            *([USER_ONLY] if modes == "user" else []),
            *([NO_CLOCK] if modes and whole_machine and frequency_hz is None else []),
        ),
    )


def _by_mode(
    totals: Mapping[str, Total], terms: Collection[str], whole_machine: bool
) -> dict[Modes, Quantity]:
    """Read a quantity in every mode."""

    def add(mode: names.Mode) -> Quantity:
        return add_cores(totals, terms, mode, whole_machine=whole_machine)

    both, user, kernel = add("both"), add("user"), add("kernel")
    if both.value is None and user.value is not None and kernel.value is not None:
        both = _sum_of(user, kernel)
    return {"user+kernel": both, "user": user, "kernel": kernel}


def _without_standstill(quantities: Mapping[Modes, Quantity]) -> dict[Modes, Quantity]:
    """Take 0 for "not counted": some virtual machines have counters that stand still."""
    kernel_alone = bool(quantities["user"].value)
    return {
        mode: q if q.value or (mode == "kernel" and kernel_alone) else q._replace(value=None)
        for mode, q in quantities.items()
    }


def _sum_of(one: Quantity, other: Quantity) -> Quantity:
    shares = [q.running for q in (one, other) if q.running is not None]
    pmus = {**one.by_pmu, **other.by_pmu}
    return Quantity(
        (one.value or 0.0) + (other.value or 0.0),
        {pmu: one.by_pmu.get(pmu, 0.0) + other.by_pmu.get(pmu, 0.0) for pmu in pmus},
        running=min(shares, default=None),
    )


def _common_modes(*quantities: Mapping[Modes, Quantity]) -> Modes | None:
    """Choose modes in which all are known, since CPI needs both; else those of any."""
    for enough in (all, any):
        for mode in _MODES:
            if enough(q[mode].value is not None for q in quantities):
                return mode
    return None


def _llc_misses(
    totals: Mapping[str, Total], modes: Modes | None, whole_machine: bool
) -> tuple[str | None, Quantity]:
    """Choose the event that comes nearest to last-level misses, in the modes of the rest."""

    def read(terms: Collection[str]) -> Quantity:
        found = _by_mode(totals, terms, whole_machine)
        mode = modes or _common_modes(found)
        return found[mode] if mode else Quantity()

    loads, stores = read(names.LLC_LOAD_MISSES), read(names.LLC_STORE_MISSES)
    if loads.value is not None and stores.value is not None:
        return "LLC-load-misses+LLC-store-misses", _sum_of(loads, stores)
    choices = {
        "LLC-misses": read(names.LLC_MISSES),
        "LLC-load-misses": loads,
        "cache-misses": read(names.GENERIC_MISSES),
    }
    known = ((event, q) for event, q in choices.items() if q.value is not None)
    return next(known, (None, loads))


def _plausible(frequency_hz: float | None) -> float | None:
    if frequency_hz is None or not LOWEST_FREQUENCY_HZ <= frequency_hz <= HIGHEST_FREQUENCY_HZ:
        return None
    return frequency_hz


def _unhalted_frequency(totals: Mapping[str, Total], task_clock_s: float | None) -> float | None:
    """Compute the clock while not halted: APERF/MPERF times the rate of the time stamp counter."""
    tsc, aperf, mperf = (
        totals.get(f"msr/{term}/", Total(None)).value for term in ("tsc", "aperf", "mperf")
    )
    rate, speed = _ratio(tsc, task_clock_s), _ratio(aperf, mperf)
    return None if rate is None or speed is None else rate * speed


def _seconds(totals: Mapping[str, Total], terms: Sequence[str]) -> float | None:
    for term in terms:
        for event, total in totals.items():
            unit = _UNITS_S.get(total.unit)
            if names.parse_event(event).term == term and total.value is not None and unit:
                return total.value * unit
    return None


def _ratio(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


def _by_core_type(retired: Quantity, clocked: Quantity) -> dict[str, dict[str, float]]:
    figures: dict[str, dict[str, float]] = {}
    for name, quantity in (("instructions", retired), ("cycles", clocked)):
        for pmu, value in quantity.by_pmu.items():
            figures.setdefault(pmu, {})[name] = value
    return figures


def _parts(output: PerfOutput) -> dict[str, dict[str, float]]:
    parts: dict[str, dict[str, float]] = {}
    for count in output.counts:
        if count.part and count.value is not None:
            of_part = parts.setdefault(count.part, {})
            of_part[count.event] = of_part.get(count.event, 0.0) + count.value
    return parts
