"""Report of GEOPM (YAML): a run for each host, from the totals of the application."""

import re
from collections.abc import Iterator
from typing import Any

_HOST = re.compile(r"Host: (\S+)|  (\S[^:]*):")
_NUMBER = re.compile(r"([a-z-]+ \([A-Za-z]+\)): (\d\S*)")
# Version 1.1 and before wrote units in full.
_COLUMNS = {
    "runtime (s)": "time_s",
    "runtime (sec)": "time_s",
    "package-energy (J)": "energy_j",
    "package-energy (joules)": "energy_j",
    "dram-energy (J)": "dram_energy_j",
    "dram-energy (joules)": "dram_energy_j",
    "power (W)": "power_w",
    "power (watts)": "power_w",
    "frequency (Hz)": "freq_achieved_hz",
}


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each host's totals; regions are parts of them."""
    workload, host, in_totals = "", "", False
    totals: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        if line.startswith("Profile: "):
            workload = line[9:].strip().strip("\"'")
        elif name := _HOST.fullmatch(line.rstrip()):
            host, in_totals = name[1] or name[2], False
        elif line.rstrip().endswith("Totals:"):
            in_totals = line.strip() == "Application Totals:"
        elif in_totals and (number := _NUMBER.match(line.strip())) and number[1] in _COLUMNS:
            totals.setdefault(host, {})[_COLUMNS[number[1]]] = float(number[2])
    for host, run in totals.items():
        if "time_s" in run and "energy_j" in run:
            run["power_source"] = "geopm:package"
            run.setdefault("power_w", run["energy_j"] / run["time_s"])
        yield {"host": host, **({"workload": workload} if workload else {}), **run}
