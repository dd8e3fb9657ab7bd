"""What logs of any format leave open, in the same words."""

from __future__ import annotations

from measurements.timeseries.series import Finding

CPUS_UNKNOWN = (
    "CPU time is left out, as the log does not say how many CPUs its shares are of: give their "
    "number (--cpus)"
)
CPUS_TAKEN = "the log does not say how many CPUs its shares are of"
LOCAL_TIMES = "times are read as UTC, as the log does not say its time zone: give it (--timezone)"
INTERRUPTS_IN_SYSTEM = (
    "system_s has the interrupts in it, as sadf was run without -u ALL: irq_s and softirq_s are "
    "not known"
)


def cpus_taken(cpus: float | None) -> str:
    """Say that shares were taken to be of as many CPUs as the caller named."""
    return f"{CPUS_TAKEN}: they are taken to be of the {cpus:g} that were given (--cpus)"


def left_out(skipped: int, cut: bool) -> list[Finding]:
    """Findings of lines that could not be read, and of a log that breaks off."""
    found = []
    if skipped:
        found.append(Finding("", 0, f"{skipped} lines are no rows of the log and are left out"))
    if cut:
        found.append(Finding("", 0, "the log breaks off, and what was not finished is left out"))
    return found
