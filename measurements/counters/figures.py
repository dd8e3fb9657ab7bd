"""Lines that ``perf stat`` prints, and the figures of a run from them.

perf prints JSON (``-j``) or separated fields (``-x ";"``), and its versions differ: counts are text
or numbers, metrics come in lines of their own, units may be "(null)", the locale may write 0,5 for
0.5 even in JSON. One reader takes all of them, line by line, and hands back what it did not
understand. The figures are CPI, achieved core frequency, cache misses, and caveats.
"""

import json
import math
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from measurements.table.units import HIGHEST_FREQUENCY_HZ, LOWEST_FREQUENCY_HZ

Missing = Literal["not counted", "not supported", "empty"]

_ABSENT: dict[str, Missing] = {
    "<not counted>": "not counted",
    "<not supported>": "not supported",
    "": "empty",
}
# Behind which key perf says whose count a line is, but for the CPU, which is a bare number.
_PARTS = ("core", "cluster", "cache", "die", "socket", "node", "thread", "cgroup")
_SEPARATOR = ";"
_DECIMAL_COMMA = re.compile(r'(: "?-?\d+),(\d+)(?="?[,}\s])')
_NO_NUMBER = re.compile(r": (?:-?nan|-?inf)(?=[,}\s])")
_NUMBER = re.compile(r"-?\d+(?:[.,]\d+)?(?:[eE][-+]?\d+)?")


class Count(NamedTuple):
    """One line: one event, on one part of the machine, in one interval."""

    event: str  # as perf names it: cpu_core/cycles/
    value: float | None  # scaled by perf where the event shared its counter
    missing: Missing | None  # why there is no value
    unit: str  # "" for a plain count
    runtime_s: float | None  # time on a counter, summed over CPUs
    running: float | None  # share (0 to 1) of the time that it should have been on one
    part: str = ""  # CPU0, S0-D0-C1, a thread or a cgroup; "" for the whole
    interval_s: float | None = None  # end of the interval since the start; None for a whole run
    run: int = 0  # tells apart several outputs that are read as one


class PerfOutput(NamedTuple):
    """What perf printed: the counts, and the lines that are none."""

    counts: tuple[Count, ...]
    strange: tuple[str, ...]


def parse_output(text: str) -> PerfOutput:
    """Read everything that ``perf stat`` printed, of either form.

    Comments, empty lines and lines of metrics alone are passed over; what is neither those nor a
    count is handed back in ``strange``. With ``-I`` and ``--summary`` only the summary is kept.
    """
    counts: list[Count] = []
    strange: list[str] = []
    for line in map(str.strip, text.splitlines()):
        if line and not line.startswith("#"):
            try:
                counts += _json_counts(line) if line.startswith("{") else _separated_counts(line)
            except (ValueError, RecursionError):
                strange.append(line)
    whole = [count for count in counts if count.interval_s is None]
    summary = [count._replace(part="") for count in whole if count.part == "summary"]
    return PerfOutput(tuple(summary or whole or counts), tuple(strange))


def parse_number(text: str) -> float | None:
    """Read a finite number with a decimal point or, as in some locales, a comma; else None."""
    if not _NUMBER.fullmatch(text.strip()):
        return None
    number = float(text.replace(",", "."))
    return number if math.isfinite(number) else None


def _json_counts(line: str) -> list[Count]:
    """Read the records of one line; some versions print a count and its metrics on one."""
    text = _NO_NUMBER.sub(": null", _DECIMAL_COMMA.sub(r"\1.\2", line))
    counts = []
    while text:
        record, end = json.JSONDecoder().raw_decode(text)
        text = text[end:].lstrip()
        if not isinstance(record, dict):
            raise ValueError(line)
        if "counter-value" in record:
            counts.append(_count(record))
    return counts


def _separated_counts(line: str) -> list[Count]:
    """Read ``[interval;][part;[cpus;]]value;unit;event[;cgroup][;±%];runtime;percent;…``."""
    fields = [field.strip() for field in line.split(_SEPARATOR)]
    at = _value_position(fields)
    if at is None:
        # A further metric of the line above has neither count nor event.
        is_metric = line.startswith(_SEPARATOR) or _SEPARATOR * 4 in line
        if is_metric and len(fields) > 4:
            return []
        raise ValueError(line)
    before, after = fields[:at], fields[at + 3 :]
    record = dict(zip(("counter-value", "unit", "event"), fields[at:], strict=False))
    if before and parse_number(before[0]) is not None:
        record["interval"] = before.pop(0)
    record["thread"] = " ".join(part for part in before if part and parse_number(part) is None)
    if after and not _NUMBER.match(after[0]):
        record["cgroup"] = after.pop(0)
    if after and after[0].endswith("%"):
        after.pop(0)
    record |= dict(zip(("event-runtime", "pcnt-running"), after, strict=False))
    return [_count(record)]


def _value_position(fields: Sequence[str]) -> int | None:
    """Find the first field that is a value with a unit and an event behind it."""

    def is_value(field: str) -> bool:
        return field.startswith("<not ") or parse_number(field) is not None

    for at in range(len(fields) - 2):
        value, unit, event = fields[at : at + 3]
        if is_value(value) and event and not is_value(unit) and not is_value(event):
            return at
    return None


def _count(record: Mapping[str, Any]) -> Count:
    """Make a count of a record with perf's keys; ValueError where it makes no sense."""
    event, value = record.get("event"), record["counter-value"]
    if not isinstance(event, str) or not event:
        raise ValueError(event)
    missing = _ABSENT.get("" if value is None else str(value))
    number = None if missing else parse_number(str(value))
    if not missing and (number is None or number < 0):
        raise ValueError(value)
    runtime_ns, percent, interval_s = (
        parse_number(str(record.get(key, "")))
        for key in ("event-runtime", "pcnt-running", "interval")
    )
    unit = str(record.get("unit") or "")
    named = [f"CPU{record['cpu']}"] if "cpu" in record else []
    named += [str(record[key]) for key in _PARTS if key in record]
    return Count(
        event,
        number,
        missing,
        "" if unit == "(null)" else unit,
        # What never ran is printed as running all the time.
        None if missing or runtime_ns is None else runtime_ns * 1e-9,
        None if missing or percent is None else percent / 100.0,
        " ".join(filter(None, named)),
        interval_s,
    )


# Names of events as perf writes them, and which of them measure the same thing.
Mode = Literal["both", "user", "kernel"]

INSTRUCTIONS = frozenset({"instructions", "inst_retired", "inst_retired.any"})
CYCLES = frozenset({"cycles", "cpu-cycles", "cpu_cycles", "cpu_clk_unhalted.thread"})
# A core that ran at all retired instructions in cycles.
NEVER_ZERO = INSTRUCTIONS | CYCLES
TASK_CLOCK = ("task-clock", "cpu-clock")
DURATION = ("duration_time",)
# Last-level cache misses, best first. The generic event means another level on other vendors.
LLC_LOAD_MISSES = frozenset({"llc-load-misses", "ll_cache_miss_rd"})
LLC_STORE_MISSES = frozenset({"llc-store-misses"})
LLC_MISSES = frozenset({"llc-misses"})
GENERIC_MISS_EVENTS = frozenset({"cache-misses"})
# Kept by perf itself, once and not on every CPU.
TOOL_EVENTS = frozenset({"duration_time", "user_time", "system_time"})

# Some versions write the modifiers before the last slash.
_ON_PMU = re.compile(
    r"^(?P<pmu>[^/:]+)/(?P<term>[^/:]*)(?::(?P<inside>[a-zA-Z]+))?/:?(?P<modifiers>[a-zA-Z]*)$"
)
_PLAIN = re.compile(r"^(?P<term>.+?)(?::(?P<modifiers>[a-zA-Z]+))?$")


class EventName(NamedTuple):
    """``cpu_core/cycles/u`` taken apart; ``pmu`` is "" where perf chooses the unit that counts."""

    pmu: str
    term: str
    mode: Mode


def parse_event(name: str) -> EventName:
    """Split an event's name into its unit ("" where perf chooses), term and mode."""
    match = _ON_PMU.match(name) or _PLAIN.match(name)
    if match is None:
        return EventName("", name.lower(), "both")
    parts = match.groupdict()
    modifiers = (parts["modifiers"] or "") + (parts.get("inside") or "")
    user, kernel = "u" in modifiers, "k" in modifiers
    mode: Mode = "both" if user == kernel else "user" if user else "kernel"
    return EventName(parts.get("pmu") or "", parts["term"].lower(), mode)


Modes = Literal["user+kernel", "user", "kernel"]

_MODES: dict[Modes, Mode] = {"user+kernel": "both", "user": "user", "kernel": "kernel"}
_UNITS_S = {"nsec": 1e-9, "ns": 1e-9, "usec": 1e-6, "msec": 1e-3, "ms": 1e-3, "sec": 1.0}
# Below these shares of the time on a counter a figure is an estimate, and a poor one.
_WHOLE, _HALF = 0.99, 0.5
_MOST_STRANGE = 3
# Figures that are columns of the runs table, in their order; three have other names there.
_COLUMNS = (
    *("instructions", "cycles", "cpi", "freq_achieved_hz", "task_clock_s"),
    *("llc_misses", "llc_event", "llc_mpki", "modes", "running"),
    *("instructions_user", "instructions_kernel", "cycles_user", "cycles_kernel"),
)
_TABLE = {"llc_event": "llc_misses_event", "modes": "counted_modes", "running": "counters_running"}
GENERIC_MISSES = (
    "cache-misses is taken as last-level cache misses, which is right on Intel; AMD counts "
    "misses of L2 under that name, and Arm misses of L1"
)
USER_ONLY = (
    "only user mode was counted, so cycles per CPU time would not be the core frequency: count "
    "events without :u, after sysctl kernel.perf_event_paranoid=1 as root"
)
NO_CLOCK = (
    "cycles per second are not the core frequency where CPUs idle at times: count msr/tsc/, "
    "msr/aperf/ and msr/mperf/ too if the machine has them"
)


class Total(NamedTuple):
    """One event over all of a run."""

    value: float | None  # scaled up from the share ``running``
    unit: str = ""  # "" for a plain count
    missing: Missing | None = None  # why there is no value
    running: float | None = None  # mean share of the time (0 to 1) on a counter
    runtime_s: float | None = None  # summed over CPUs


@dataclass(frozen=True, slots=True)
class Counters:
    """What was counted in one run. None is "not known", never 0."""

    instructions: float | None = None  # retired
    cycles: float | None = None  # of the cores
    modes: Modes | None = None  # of the processor, for instructions and cycles
    llc_misses: float | None = None
    llc_event: str | None = None  # loads, loads and stores, or the processor's own idea
    task_clock_s: float | None = None  # CPU time of the command; of whole CPUs with idle time
    elapsed_s: float | None = None  # without perf's own start
    freq_achieved_hz: float | None = None  # mean of the cores while they ran
    instructions_user: float | None = None
    instructions_kernel: float | None = None
    cycles_user: float | None = None
    cycles_kernel: float | None = None
    # Instructions and cycles of each kind of core, which add up to the totals.
    by_core_type: Mapping[str, Mapping[str, float]] = field(default_factory=dict)
    running: float | None = None  # least share of the time (0 to 1) on a counter
    events: Mapping[str, Total] = field(default_factory=dict)  # all, by perf's own name
    caveats: tuple[str, ...] = ()

    @property
    def cpi(self) -> float | None:
        """Cycles per retired instruction; None where either was not counted."""
        return _ratio_or_none(self.cycles, self.instructions)

    @property
    def llc_mpki(self) -> float | None:
        """Misses of the last-level cache per thousand instructions."""
        per_instruction = _ratio_or_none(self.llc_misses, self.instructions)
        return None if per_instruction is None else 1000.0 * per_instruction

    def columns(self) -> dict[str, float | str]:
        """Make columns of the runs table, without those that are not known."""
        row: dict[str, float | str | None] = {
            _TABLE.get(name, name): getattr(self, name) for name in _COLUMNS
        }
        for core_type, figures in self.by_core_type.items():
            row |= {f"{name}_{core_type}": value for name, value in figures.items()}
        return {name: value for name, value in row.items() if value is not None}


def summarize(output: PerfOutput, *, whole_machine: bool = False) -> Counters:
    """Compute a run's figures; the task clock of a whole machine (-a, -C) has idle time in it."""
    totals = total_events(output.counts)
    instructions = _drop_stuck_counters(_by_mode(totals, INSTRUCTIONS, whole_machine))
    cycles = _drop_stuck_counters(_by_mode(totals, CYCLES, whole_machine))
    modes = _common_modes(instructions, cycles)
    llc_event, llc = _llc_misses(totals, modes, whole_machine)
    used = {
        "instructions": instructions[modes] if modes else Quantity(),
        "cycles": cycles[modes] if modes else Quantity(),
        "cache misses": llc,
    }
    task_clock_s = _seconds(totals, TASK_CLOCK)
    # CPUs that idle count no cycles: only a command's own CPU time gives their frequency.
    by_cycles_hz = None
    if modes == "user+kernel" and not whole_machine:
        by_cycles_hz = _ratio_or_none(used["cycles"].value, task_clock_s)
    candidates = (by_cycles_hz, _unhalted_frequency(totals, task_clock_s))
    usable = [hz for hz in candidates if hz and LOWEST_FREQUENCY_HZ <= hz <= HIGHEST_FREQUENCY_HZ]
    frequency_hz = usable[0] if usable else None
    by_core_type: dict[str, dict[str, float]] = {}
    for name in ("instructions", "cycles"):
        for pmu, value in used[name].by_pmu.items():
            by_core_type.setdefault(pmu, {})[name] = value
    caveats = [*_count_caveats(totals, output.strange), *_quantity_caveats(used)]
    caveats += [GENERIC_MISSES] if llc_event in GENERIC_MISS_EVENTS else []
    caveats += [USER_ONLY] if modes == "user" else []
    caveats += [NO_CLOCK] if modes and whole_machine and frequency_hz is None else []
    return Counters(
        instructions=used["instructions"].value,
        cycles=used["cycles"].value,
        modes=modes,
        llc_misses=llc.value,
        llc_event=llc_event,
        task_clock_s=task_clock_s,
        elapsed_s=_seconds(totals, DURATION),
        freq_achieved_hz=frequency_hz,
        instructions_user=instructions["user"].value,
        instructions_kernel=instructions["kernel"].value,
        cycles_user=cycles["user"].value,
        cycles_kernel=cycles["kernel"].value,
        by_core_type=by_core_type,
        running=_least_share(q.running for q in used.values() if q.value is not None),
        events=totals,
        caveats=tuple(caveats),
    )


def total_events(counts: Iterable[Count]) -> dict[str, Total]:
    """Sum every event over the parts of the machine, the intervals and the runs."""
    first: dict[tuple[object, ...], Count] = {}
    by_event: dict[str, list[Count]] = {}
    for count in counts:
        # An event that was asked for twice has a second line.
        line = count.event, count.part, count.interval_s, count.run
        if line not in first:
            first[line] = count
            by_event.setdefault(count.event, []).append(count)
    at_work = {
        _place_of(count)
        for count in first.values()
        if count.value is not None and count.event not in TOOL_EVENTS
    }
    return {event: _total(event, found, at_work) for event, found in by_event.items()}


def _place_of(count: Count) -> tuple[object, ...]:
    """Return the unit, part, interval and run that a count belongs to."""
    return parse_event(count.event).pmu, count.part, count.interval_s, count.run


def _total(event: str, counts: Sequence[Count], at_work: Collection[object]) -> Total:
    """Sum one event over all counts; unknown where a part at work lacks it."""
    unit = next((c.unit for c in counts if c.unit), "")
    values = [(c, c.value) for c in counts if c.value is not None]
    if event in TOOL_EVENTS and values:
        # perf keeps it once for the machine: the same in every part, anew in each interval.
        most: dict[object, float] = {}
        for count, value in values:
            when = count.interval_s, count.run
            most[when] = max(value, most.get(when, 0.0))
        return Total(sum(most.values()), unit)
    # A value is lost only where the rest of that unit was counted, not where it slept.
    lost = [c for c in counts if c.value is None and _place_of(c) in at_work]
    if lost or not values:
        return Total(None, unit, (lost or counts)[0].missing)
    shares = [c.running for c, _ in values if c.running is not None]
    times = [c.runtime_s for c, _ in values if c.runtime_s is not None]
    return Total(
        sum(value for _, value in values),
        unit,
        running=sum(shares) / len(shares) if shares else None,
        runtime_s=sum(times) if len(times) == len(values) else None,
    )


class Quantity(NamedTuple):
    """One quantity over all kinds of cores."""

    value: float | None = None
    by_pmu: Mapping[str, float] = {}  # by kind of core; empty where there is one kind
    uncounted: tuple[str, ...] = ()  # kinds of cores that worked without this being counted
    running: float | None = None  # share of the time (0 to 1) that it was on a counter


def add_cores(
    totals: Mapping[str, Total], terms: Collection[str], mode: Mode, whole_machine: bool
) -> Quantity:
    """Add a quantity over the kinds of cores of a hybrid processor.

    Where every CPU was counted, each by its own unit, the figures add up. A program's events run
    only while it is on their kind of core, and perf scales each as if it had been there all the
    time: the mean, weighted by the time on each kind, is their true sum.
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
    # Time on each kind of core: that of its event that was longest on a counter.
    times = dict.fromkeys(counted, 0.0)
    # A kind of core without any count did not run the program.
    working = {named[event].pmu for event, total in totals.items() if total.value is not None}
    for event, total in totals.items():
        if named[event].pmu in times and total.value is not None:
            times[named[event].pmu] = max(times[named[event].pmu], _time_or_share(total))
    uncounted = tuple(pmu for pmu in found if pmu in working and pmu not in counted)
    whole = sum(times.values()) or 1.0
    shares = {pmu: 1.0 if whole_machine else time / whole for pmu, time in times.items()}
    by_pmu = {pmu: (total.value or 0.0) * shares[pmu] for pmu, total in counted.items()}
    on_counter = sum(map(_time_or_share, counted.values())) / whole
    return Quantity(
        None if uncounted else sum(by_pmu.values()),
        by_pmu,
        uncounted,
        _least_share(t.running for t in counted.values())
        if whole_machine
        else min(on_counter, 1.0),
    )


def _time_or_share(total: Total) -> float:
    """Return the time on a counter, or the share of time where perf printed no time."""
    if total.runtime_s is not None:
        return total.runtime_s
    return 1.0 if total.running is None else total.running


def _least_share(shares: Iterable[float | None]) -> float | None:
    return min((share for share in shares if share is not None), default=None)


def _by_mode(
    totals: Mapping[str, Total], terms: Collection[str], whole_machine: bool
) -> dict[Modes, Quantity]:
    """Add up a quantity for each mode; both modes may be the sum of user and kernel."""
    found = {modes: add_cores(totals, terms, mode, whole_machine) for modes, mode in _MODES.items()}
    user, kernel = found["user"], found["kernel"]
    if found["user+kernel"].value is None and None not in (user.value, kernel.value):
        found["user+kernel"] = _add_up(user, kernel)
    return found


def _add_up(one: Quantity, other: Quantity) -> Quantity:
    """Add two quantities of one kind, as of user and kernel mode."""
    pmus = {**one.by_pmu, **other.by_pmu}
    return Quantity(
        (one.value or 0.0) + (other.value or 0.0),
        {pmu: one.by_pmu.get(pmu, 0.0) + other.by_pmu.get(pmu, 0.0) for pmu in pmus},
        running=_least_share((one.running, other.running)),
    )


def _drop_stuck_counters(quantities: Mapping[Modes, Quantity]) -> dict[Modes, Quantity]:
    """Take 0 for "not counted": some virtual machines have counters that stand still."""
    # 0 in kernel mode is a count, where the program counted in user mode.
    kernel_alone = bool(quantities["user"].value)
    return {
        mode: q if q.value or (mode == "kernel" and kernel_alone) else q._replace(value=None)
        for mode, q in quantities.items()
    }


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

    loads, stores = read(LLC_LOAD_MISSES), read(LLC_STORE_MISSES)
    if loads.value is not None and stores.value is not None:
        return "LLC-load-misses+LLC-store-misses", _add_up(loads, stores)
    choices = {
        "LLC-misses": read(LLC_MISSES),
        "LLC-load-misses": loads,
        "cache-misses": read(GENERIC_MISS_EVENTS),
    }
    known = ((event, q) for event, q in choices.items() if q.value is not None)
    return next(known, (None, loads))


def _unhalted_frequency(totals: Mapping[str, Total], task_clock_s: float | None) -> float | None:
    """Compute the mean frequency while not halted (Hz): TSC rate times APERF/MPERF."""
    tsc, aperf, mperf = (
        totals.get(f"msr/{term}/", Total(None)).value for term in ("tsc", "aperf", "mperf")
    )
    rate, speed = _ratio_or_none(tsc, task_clock_s), _ratio_or_none(aperf, mperf)
    return None if rate is None or speed is None else rate * speed


def _seconds(totals: Mapping[str, Total], terms: Sequence[str]) -> float | None:
    """Read the time by the first of these events that has one (s)."""
    for term in terms:
        for event, total in totals.items():
            unit = _UNITS_S.get(total.unit)
            if parse_event(event).term == term and total.value is not None and unit:
                return total.value * unit
    return None


def _ratio_or_none(above: float | None, below: float | None) -> float | None:
    return None if above is None or not below else above / below


_BECAUSE = {
    "not supported": "the processor or its virtual machine does not count them",
    "not counted": "too many events for a short run, or no such counter on a part of the cores",
    "empty": "perf gave no value",
}


def _count_caveats(totals: Mapping[str, Total], strange: Sequence[str]) -> Iterator[str]:
    """Say which events have no figure, and which lines of perf are none."""
    for missing, why in _BECAUSE.items():
        events = [event for event, total in totals.items() if total.missing == missing]
        if events:
            yield f"{missing}: {', '.join(events)} ({why})"
    zero = {event: parse_event(event) for event, total in totals.items() if total.value == 0.0}
    still = [e for e, n in zero.items() if n.term in NEVER_ZERO and n.mode != "kernel"]
    if still:
        yield f"these counters stayed at 0, so they are taken as not counted: {', '.join(still)}"
    for line in strange[:_MOST_STRANGE]:
        yield f"perf wrote a line that is not a count: {line[:120]!r}"
    if len(strange) > _MOST_STRANGE:
        yield f"and {len(strange) - _MOST_STRANGE} more such lines"


def _quantity_caveats(used: Mapping[str, Quantity]) -> Iterator[str]:
    """Say which figures are scaled up, lack a kind of core, or are sums over several."""
    for name, quantity in used.items():
        share = quantity.running
        if quantity.value is not None and share is not None and share < _WHOLE:
            advice = (
                ", which is too little to trust: count fewer events at once"
                if share < _HALF
                else ""
            )
            yield f"{name}: counted {share:.0%} of the time and scaled up to the run{advice}"
        if quantity.uncounted:
            yield f"{name}: not counted on {', '.join(quantity.uncounted)}, so there is no total"
    shares = used["cycles"].by_pmu or used["instructions"].by_pmu
    if whole := sum(shares.values()):
        kinds = ", ".join(f"{pmu} {share / whole:.0%}" for pmu, share in shares.items())
        yield (
            f"several kinds of cores were added up ({kinds}): CPI and frequency are means over them"
        )
