"""Results of codecarbon (emissions.csv): a run for each line, with its energy."""

import csv
import io
from collections.abc import Iterator
from typing import Any

_J_PER_KWH = 3.6e6


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each line; power is the energy over the duration, of what codecarbon tracks."""
    for line in csv.DictReader(io.StringIO(text)):
        time_s = float(line["duration"])
        energy_j = float(line["energy_consumed"]) * _J_PER_KWH
        # The parts are measured or modelled, which the file does not say.
        scope = line.get("tracking_mode") or "unknown"
        yield {
            "workload": line["project_name"],
            "time_s": time_s,
            "energy_j": energy_j,
            "power_w": energy_j / time_s,
            "power_source": f"codecarbon:{scope}",
            "started_at": line["timestamp"],
        }
