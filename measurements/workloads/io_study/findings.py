"""What the accounts of CPU time in a study's table say of each other."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd

# Ticks may miss, accounts differ and others take so much before it matters.
_MISSED, _APART, _OTHERS = 0.05, 0.02, 0.05
# Shorter than this, what starting a program costs tells in the comparison (s).
_ENOUGH_S = 0.2
# As long as a hundred ticks of the usual length (s).
_TICKS_TELL_S = 1.0


class Shortfall(NamedTuple):
    """Share of the scheduler's CPU time that the clock tick missed: of all runs, and at most.

    The most is that of runs long enough for ticks to tell; NaN where there is none.
    """

    all_runs: float
    worst: float


def tick_shortfall(table: pd.DataFrame) -> Shortfall | None:
    """Compare the two accounts of the host's CPU time; None where they were not both kept."""
    if not {"scheduled_s", "tick_busy_s"} <= set(table.columns):
        return None
    both = table[["scheduled_s", "tick_busy_s"]].dropna()
    ran = float(both["scheduled_s"].sum())
    if not ran > 0:
        return None
    long = both[both["scheduled_s"] >= _TICKS_TELL_S]
    worst = float((1.0 - long["tick_busy_s"] / long["scheduled_s"]).max())
    return Shortfall(1.0 - float(both["tick_busy_s"].sum()) / ran, worst)


def accounts_apart(table: pd.DataFrame) -> float | None:
    """Largest difference of the programs' control group from what `os.wait4` told, as a share."""
    if not {"group_s", "rusage_s"} <= set(table.columns):
        return None
    both = table[["group_s", "rusage_s"]].dropna()
    both = both[both["rusage_s"] > _ENOUGH_S]
    return float((both["group_s"] / both["rusage_s"] - 1.0).abs().max()) if len(both) else None


def findings(table: pd.DataFrame) -> Iterator[str]:
    """Say how CPU time was counted, and warn where an account is not to be trusted."""
    missed = tick_shortfall(table)
    if missed is None:
        yield (
            "warning: CPU time is by clock ticks: this kernel keeps no scheduler time of the host"
        )
    else:
        warns = "warning: " if missed.all_runs > _MISSED or missed.worst > _MISSED else ""
        worst = f", {missed.worst:.0%} in one run" if missed.worst > missed.all_runs else ""
        yield (
            f"{warns}the clock tick missed {missed.all_runs:.1%} of the scheduler's CPU time{worst}"
        )
    apart = accounts_apart(table)
    if apart is not None:
        warns = "warning: " if apart > _APART else ""
        yield f"{warns}control group and rusage of the programs agree within {apart:.1%}"
    if "other_programs_s" in table and "host" in set(table["scope"]):
        share = float((table["other_programs_s"] / table["scheduled_s"]).max())
        if share > _OTHERS:
            yield (
                f"warning: other programs took up to {share:.0%} of the host's CPU time, which is "
                "counted to the I/Os: leave the host to the study, or count with --scope own"
            )
    yield from _io_of_others(table)


def _io_of_others(table: pd.DataFrame) -> Iterator[str]:
    if "process_sectors" not in table or "direct" not in table:
        return
    of_host = table[(table["scope"] == "host") & table["direct"].eq(True)]
    ios = of_host["sectors_read"] + of_host["sectors_written"]
    share = float((1.0 - of_host["process_sectors"] / ios.where(ios > 0)).max())
    if share > _OTHERS:
        yield (
            f"warning: up to {share:.0%} of the sectors were not fio's: other programs use the "
            "disks; leave them to the study, or count with --scope own"
        )
