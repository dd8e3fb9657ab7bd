"""Accounting of EAR (``eacct -c``, ``-l`` too): a run for each job step, or each of its nodes."""

import csv
import io
from collections.abc import Iterator
from typing import Any

_TEXTS = {"NODENAME": "host", "JOBNAME": "workload"}
# Column and factor; EAR writes 0 for what it did not measure.
_NUMBERS = {
    "TIME_SEC": ("time_s", 1.0),
    "AVG_CPUFREQ_KHZ": ("freq_achieved_hz", 1e3),
    "DEF_FREQ_KHZ": ("freq_hz", 1e3),
    "DC_NODE_POWER_W": ("power_w", 1.0),
    "PCK_POWER_W": ("package_power_w", 1.0),
    "DRAM_POWER_W": ("ram_power_w", 1.0),
    "CPI": ("cpi", 1.0),
    "CYCLES": ("cycles", 1.0),
    "INSTRUCTIONS": ("instructions", 1.0),
}
# Under all other policies EAR itself changes the frequency.
_FIXED = {"MO", "MONITORING", "MONITORING_ONLY"}


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each line with a time; the power is that of the node, by its DC sensor."""
    for line in csv.DictReader(io.StringIO(text.strip()), delimiter=";"):
        run: dict[str, Any] = {c: line[n] for n, c in _TEXTS.items() if line.get(n)}
        for name, (column, factor) in _NUMBERS.items():
            if number := float(line.get(name) or 0):
                run[column] = number * factor
        if (line.get("POLICY") or "").upper() not in _FIXED:
            run.pop("freq_hz", None)
        if "power_w" in run and "time_s" in run:
            run |= {"energy_j": run["power_w"] * run["time_s"], "power_source": "ear:node"}
        if "time_s" in run:
            yield run
