"""Results of codecarbon (emissions.csv): a run for each tracker, with its energy."""

import csv
import io
from collections.abc import Iterator
from typing import Any

_J_PER_KWH = 3.6e6


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each tracker; power is the energy over the duration, of what it tracks."""
    # A tracker may write several lines, each with all that it has seen since its start.
    lines = enumerate(csv.DictReader(io.StringIO(text)))
    for line in {line.get("run_id") or number: line for number, line in lines}.values():
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
