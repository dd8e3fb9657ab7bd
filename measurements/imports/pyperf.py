"""Results of pyperf: a run for each value of a benchmark, without warm-ups and calibrations."""

import json
from collections.abc import Iterator
from typing import Any

_COLUMNS = {"hostname": "host", "date": "started_at", "name": "workload"}


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each value in seconds; metadata of the file hold where runs say nothing."""
    document = json.loads(text)
    for benchmark in document["benchmarks"]:
        shared = {**document.get("metadata", {}), **benchmark.get("metadata", {})}
        for run in benchmark["runs"]:
            metadata = {**shared, **run.get("metadata", {})}
            if metadata.get("unit", "second") != "second":
                continue
            known = {column: metadata[n] for n, column in _COLUMNS.items() if n in metadata}
            yield from ({**known, "time_s": float(value)} for value in run.get("values", ()))
