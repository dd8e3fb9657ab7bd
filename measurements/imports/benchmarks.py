"""Results of programs that time others: hyperfine and pyperf (JSON), codecarbon (emissions.csv)."""

import csv
import io
import json
import re
from collections.abc import Iterator
from typing import Any

_PYPERF_COLUMNS = {"hostname": "host", "date": "started_at", "name": "workload"}
_J_PER_KWH = 3.6e6


def read_hyperfine(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each time that did not fail; parameters are columns, marked in the command."""
    for result in json.loads(text)["results"]:
        # A parameter that stands in the command would make each of its values a workload.
        command, parameters = result["command"], result.get("parameters") or {}
        for name, value in parameters.items():
            command = re.sub(rf"(?<!\w){re.escape(str(value))}(?!\w)", f"{{{name}}}", command)
        times = result.get("times") or [result["mean"]]
        codes = result.get("exit_codes") or [0] * len(times)
        for repeat, (time_s, code) in enumerate(zip(times, codes, strict=True), start=1):
            if code == 0:
                yield {"workload": command, "repeat": repeat, "time_s": float(time_s), **parameters}


def read_pyperf(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each value in seconds, without warm-ups and calibrations.

    Metadata of the file hold where runs say nothing.
    """
    document = json.loads(text)
    for benchmark in document["benchmarks"]:
        shared = {**document.get("metadata", {}), **benchmark.get("metadata", {})}
        for run in benchmark["runs"]:
            metadata = {**shared, **run.get("metadata", {})}
            if metadata.get("unit", "second") != "second":
                continue
            known = {c: metadata[n] for n, c in _PYPERF_COLUMNS.items() if n in metadata}
            yield from ({**known, "time_s": float(value)} for value in run.get("values", ()))


def read_codecarbon(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each tracker; power is the energy over the duration, of what it tracks."""
    # A tracker may write several lines, each with all that it has seen since its start.
    lines = enumerate(csv.DictReader(io.StringIO(text)))
    for line in {line.get("run_id") or number: line for number, line in lines}.values():
        time_s = float(line["duration"])
        energy_j = float(line["energy_consumed"]) * _J_PER_KWH
        yield {
            "workload": line["project_name"],
            "time_s": time_s,
            "energy_j": energy_j,
            "power_w": energy_j / time_s,
            # The parts are measured or modelled, which the file does not say.
            "power_source": f"codecarbon:{line.get('tracking_mode') or 'unknown'}",
            "started_at": line["timestamp"],
        }
