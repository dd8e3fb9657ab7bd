"""Power limits of the processor packages."""

from __future__ import annotations

from typing import TYPE_CHECKING

from measurements.host.files import read_flag, read_number, read_text

if TYPE_CHECKING:
    from pathlib import Path

    from measurements.host.value import Value

_COLUMNS = {
    "long_term": "power_cap_long_w",
    "short_term": "power_cap_short_w",
    "peak_power": "power_cap_peak_w",
}


def power_cap_state(sysfs: Path) -> dict[str, Value]:
    """Lowest limit of any package (W), for long, short and peak loads.

    A package may have its limits twice, in its registers and in memory: the lower one holds.
    """
    state: dict[str, Value] = {}
    for zone in (sysfs / "class/powercap").glob("*:*"):
        of_package = (read_text(zone / "name") or "").startswith("package")
        if not of_package or read_flag(zone / "enabled") is False:
            continue
        for name in zone.glob("constraint_*_name"):
            column = _COLUMNS.get(read_text(name) or "")
            number = name.name.split("_")[1]
            watts = read_number(zone / f"constraint_{number}_power_limit_uw", 1e-6)
            # 0 is a limit that is not set.
            if column and watts:
                state[column] = min(watts, float(state.get(column, watts)))
    return state
