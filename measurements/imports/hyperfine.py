"""Results of hyperfine (``--export-json``): a run for each time that a command took."""

import json
import re
from collections.abc import Iterator
from typing import Any


def read(text: str) -> Iterator[dict[str, Any]]:
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
