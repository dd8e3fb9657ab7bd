"""The state of a host that bends its time and power without showing in the core clock.

Recorded with every run: turbo, governors and limits, idle states, uncore clock, power caps,
temperature and throttling, placement, quotas, kernel and mitigations.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from measurements.host.clocks import clock_state, current_frequencies
from measurements.host.control_groups import group_state
from measurements.host.heat import heat_state
from measurements.host.idle_states import idle_state
from measurements.host.placement import placement_state
from measurements.host.power_caps import power_cap_state
from measurements.host.processor import processor_state
from measurements.host.system import system_state

if TYPE_CHECKING:
    from collections.abc import Mapping

    from measurements.host.value import Value

__all__ = ["current_frequencies", "read_state", "throttled_between"]

# Columns that only grow while something holds the processor or the process back.
_THROTTLING = (
    *("core_throttles", "core_throttled_s"),
    *("package_throttles", "package_throttled_s"),
    "quota_throttled_s",
)


def read_state(
    sysfs: Path = Path("/sys"),
    procfs: Path = Path("/proc"),
    *,
    root: Path = Path("/"),
    pid: int | None = None,
) -> dict[str, Value]:
    """Read everything that this host tells of its state, as columns of the runs table.

    Parameters
    ----------
    sysfs, procfs, root : Path
        Where the kernel's trees and the root folder are; other folders for tests.
    pid : int, optional
        Process whose placement is read; by default this one.

    Returns
    -------
    dict of column to float, str or bool
        Names carry their units. What the host does not tell is not there. The counts of
        throttling are since the host's start: `throttled_between` makes a run's of them.
    """
    return {
        **processor_state(sysfs, procfs),
        **clock_state(sysfs),
        **idle_state(sysfs),
        **power_cap_state(sysfs),
        **heat_state(sysfs),
        **placement_state(sysfs, procfs, pid),
        **group_state(sysfs, procfs, pid),
        **system_state(sysfs, procfs, root),
    }


def throttled_between(
    before: Mapping[str, Value], after: Mapping[str, Value]
) -> dict[str, float | bool]:
    """How much heat, current or a quota held a run back.

    Parameters
    ----------
    before, after : mapping of column to value
        States at both ends of the run, of `read_state`.

    Returns
    -------
    dict of column to float or bool
        The growth of each count, and ``throttled``: whether any grew. Empty where the host keeps
        no such counts.
    """
    grown: dict[str, float | bool] = {}
    for column in _THROTTLING:
        if column in before and column in after:
            growth = float(after[column]) - float(before[column])
            # A CPU that went offline takes its count along.
            if growth >= 0:
                grown[column] = growth
    return {**grown, "throttled": any(grown.values())} if grown else {}
