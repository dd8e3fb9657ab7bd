"""Range query of Prometheus, saved or asked by HTTP: a run for each host over its window."""

import http.client
import json
import math
import re
import time
import urllib.error
import urllib.request
from collections import defaultdict
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from itertools import pairwise
from typing import Any
from urllib.parse import urlencode

from measurements.errors import MeasurementError, first_line
from measurements.table import memory_budget

_QUERY = (
    '{__name__=~"node_cpu_seconds_total|node_uname_info|node_rapl_(.+_)?joules_total'
    '|kepler_node_.+_joules_total"}'
)
# A server that streams one answer for longer has hung.
_TIMEOUT_S, _WHOLE_S = 10.0, 120.0
_MODES = ("user", "nice", "system", "irq", "softirq", "steal", "idle", "iowait")
# The zone stands in the name, or in a label. Active and idle energy are parts of the whole.
_ENERGY = re.compile(
    r"(?:node_(?P<by>rapl)|(?P<kepler>kepler)_node)(?!\w*_(?:active|idle)_)"
    r"(?:_(?P<zone>[a-z]+)\w*)?_joules_total"
)


def read_prometheus(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each host: time, CPU time by mode, energy and power by scope."""
    document = json.loads(text)
    if document["status"] != "success":
        raise ValueError(document.get("error"))
    found = document["data"]["result"]
    names = {
        _instance(s["metric"]): s["metric"]["nodename"]
        for s in found
        if s["metric"].get("__name__") == "node_uname_info"
    }
    rates: dict[str, dict[str, float]] = defaultdict(lambda: defaultdict(float))
    times: dict[str, list[float]] = defaultdict(list)
    for series in found:
        if column := _column(series["metric"]):
            host = _instance(series["metric"])
            host = names.get(host, host)
            rate, ends = _rate_and_ends(series["values"])
            rates[host][column] += rate
            times[host] += ends
    for host, columns in rates.items():
        yield _run(host, columns, min(times[host]), max(times[host]))


def _instance(labels: Mapping[str, str]) -> str:
    """Name the host of a series; exporters of one host differ in their ports."""
    name = labels.get("node_name") or labels.get("node") or labels.get("instance") or ""
    return name.rpartition(":")[0] or name


def _column(labels: Mapping[str, str]) -> str:
    """Name the CPU time of a series, or the scope of its energy (``rapl:package``), or ""."""
    name = labels.get("__name__", "")
    if name == "node_cpu_seconds_total":
        return f"{labels['mode']}_s" if labels["mode"] in _MODES else ""
    energy = _ENERGY.fullmatch(name)
    if energy is None:
        return ""
    zone = labels.get("zone") or labels.get("rapl_zone") or energy["zone"]
    return f"{energy['by'] or energy['kepler']}:{zone}" if zone else ""


def _rate_and_ends(values: list[list[Any]]) -> tuple[float, list[float]]:
    """Compute the growth of a counter per second, without the steps in which it was set back."""
    samples = [(float(at), float(number)) for at, number in values]
    samples = [sample for sample in samples if all(map(math.isfinite, sample))]
    steps = [(b - a, end - start) for (start, a), (end, b) in pairwise(samples) if b >= a]
    seconds = sum(step for _, step in steps)
    rate = sum(growth for growth, _ in steps) / seconds if seconds > 0 else 0.0
    return rate, [at for at, _ in samples]


def _run(host: str, rates: Mapping[str, float], start_s: float, end_s: float) -> dict[str, Any]:
    time_s = end_s - start_s
    started = datetime.fromtimestamp(start_s, UTC)
    run: dict[str, Any] = {"host": host, "time_s": time_s, "started_at": started.isoformat()}
    scopes = [column for column in rates if ":" in column]
    # The package is what other sources of power measure too; a counter goes before an estimate.
    main = min(scopes, default="", key=lambda s: (not s.endswith(":package"), s[0] == "k"))
    for column, rate in rates.items():
        if column == main:
            run |= {"energy_j": rate * time_s, "power_w": rate, "power_source": column}
        elif column in scopes:
            run[f"{column.replace(':', '_')}_power_w"] = rate
        else:
            run[column] = rate * time_s
    return run


def range_url(server: str, start: str, end: str | None, step: str) -> str:
    """Write the address of a range query for the metrics that are read; ``end`` may be now."""
    asked = {"query": _QUERY, "start": start, "end": end or f"{time.time():.0f}", "step": step}
    return f"{server.rstrip('/')}/api/v1/query_range?{urlencode(asked)}"


def fetch(url: str) -> str:
    """Read an answer of a server; refuse one that is late or larger than the memory budget."""
    server = url.partition("?")[0]
    until_s = time.monotonic() + _WHOLE_S
    body, most = bytearray(), memory_budget.most_bytes()
    try:
        with urllib.request.urlopen(url, timeout=_TIMEOUT_S) as answer:
            while part := answer.read1(1 << 16):
                body += part
                memory_budget.check_size(len(body), most, server)
                if time.monotonic() > until_s:
                    raise TimeoutError(f"no whole answer within {_WHOLE_S:g} s")
    except urllib.error.HTTPError as error:
        with error:
            said = error.read(1 << 12).decode(errors="replace")
        reason = re.search(r'"error"\s*:\s*"((?:[^"\\]|\\.)*)', said)
        raise MeasurementError(
            f"{server}: answers {error.code}: {reason[1] if reason else error.reason}"
        ) from error
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise MeasurementError(f"{server}: cannot be read: {first_line(error)}") from error
    return body.decode("utf-8-sig", errors="replace")
