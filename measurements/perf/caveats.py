"""What the reader of a run's counts must know: what is missing, scaled, added up or not meant."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.perf import events as names

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from measurements.perf.output import PerfOutput
    from measurements.perf.totals import Quantity, Total

# Below these shares of the time on a counter a figure is an estimate, and a poor one.
_WHOLE = 0.99
_HALF = 0.5
_MOST_STRANGE = 3
GENERIC_MISSES = (
    "cache-misses stands for last-level misses: so it is on Intel, but AMD counts misses of L2 "
    "and Arm misses of L1 under that name"
)
USER_ONLY = (
    "only user mode was counted, so cycles over CPU time would not be the clock: ask for events "
    "without :u, for which root sets sysctl kernel.perf_event_paranoid=1"
)
NO_CLOCK = (
    "cycles over time are not the clock of CPUs that idle at times: where the machine has "
    "msr/tsc/, msr/aperf/ and msr/mperf/, count these too"
)


def count_caveats(totals: Mapping[str, Total], output: PerfOutput) -> Iterator[str]:
    """Say which events have no figure, and which lines of perf are none."""
    yield from _missing(totals)
    for line in output.strange[:_MOST_STRANGE]:
        yield f"perf wrote a line that is no count: {line[:120]!r}"
    if len(output.strange) > _MOST_STRANGE:
        yield f"and {len(output.strange) - _MOST_STRANGE} more such lines"


def quantity_caveats(used: Mapping[str, Quantity]) -> Iterator[str]:
    """Say which figures are scaled up, lack a kind of core, or are sums over several."""
    for name, quantity in used.items():
        share = quantity.running
        if quantity.value is not None and share is not None and share < _WHOLE:
            advice = "; too little to trust, ask for fewer events at once" if share < _HALF else ""
            yield f"{name}: on a counter {share:.0%} of the time and scaled up{advice}"
        if quantity.uncounted:
            yield f"{name}: not counted on {', '.join(quantity.uncounted)}, so there is no total"
    shares = used["cycles"].by_pmu or used["instructions"].by_pmu
    if whole := sum(shares.values()):
        kinds = ", ".join(f"{pmu} {share / whole:.0%}" for pmu, share in shares.items())
        yield f"several kinds of cores added up ({kinds}): CPI and clock are means over them"


def _missing(totals: Mapping[str, Total]) -> Iterator[str]:
    because = {
        "not supported": "the processor or its virtual machine does not count them",
        "not counted": "too many events for too short a time, no time on that kind of core, or "
        "on a part of the machine only",
        "empty": "perf left the figure out",
    }
    for missing, why in because.items():
        events = [event for event, total in totals.items() if total.missing == missing]
        if events:
            yield f"{missing}: {', '.join(events)} ({why})"
    zero = {e: names.parse_event(e) for e, total in totals.items() if total.value == 0.0}
    still = [e for e, n in zero.items() if n.term in names.NEVER_ZERO and n.mode != "kernel"]
    if still:
        yield f"counted 0, so not counted: {', '.join(still)} (counters that stand still)"
