"""What limits each run of memcached, from the evidence of all runs.

Other programs on the host come first, then a client that a step more of client takes further: such
runs say nothing of the server. Then come CPU, network, and a lock, which shows as constant
throughput with CPU to spare until the same threads are split between several servers.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from statistics import mean, stdev
from typing import Any, NamedTuple

from measurements.host import activity

Row = Mapping[str, Any]
Key = tuple[Any, ...]
# Levels of a set-up by number of connections, and those of each set-up.
Levels = Mapping[int, "ThroughputLevel"]
SetupLevels = Mapping[Key, Levels]

# Shares of CPU time and line rate from which they count as used up.
FULL_CPU = 0.90
FULL_LINE = 0.90
FULL_CLIENT = 0.95
# Other programs disturb a run when the host is this busy and they take this share of it.
FULL_HOST = 0.90
OTHERS = 0.10
# A rise counts above so many standard errors and above this share of the throughput.
_ERRORS = 2.0
LEAST_RISE = 0.03
# A rate counts as reached within this.
_REACHED = 0.98

_OWN = ("server_user_s", "server_system_s", "client_user_s", "client_system_s")
_SETUP = ("host", "freq_hz", "data_bytes", "get_share", "keys_per_request", "threads", "partitions")


class ThroughputLevel(NamedTuple):
    """Mean throughput of equal runs, its standard error (1/s), and the servers' CPU share."""

    rate: float
    error: float
    cpu: float

    def exceeds(self, other: ThroughputLevel) -> bool:
        """Whether it is higher by more than noise."""
        rise = self.rate - other.rate
        noise = _ERRORS * math.hypot(self.error, other.error)
        return rise > max(noise, LEAST_RISE * other.rate)


class Verdict(NamedTuple):
    """What limits a run, and the evidence."""

    client_limited: bool | None
    limited_by: str
    limit_evidence: str


def judge_runs(rows: Sequence[Row], client_steps: Sequence[Row] = ()) -> list[dict[str, Any]]:
    """Add to each row what limits it.

    ``client_steps`` are the runs with more client that end the runs at full load. The result has
    ``client_limited`` (left out where not known), ``limited_by`` ("others", "client", "cpu",
    "network", "lock", "rate" or "unknown"), ``limit_evidence``, ``load`` (share of the set-up's
    highest throughput), ``client_step_connections`` and ``client_step_ops_s``.
    """
    levels = _levels_by_setup([row for row in rows if "asked_ops_s" not in row])
    steps = _levels_by_setup(client_steps)
    return [_add_verdict(row, levels, steps.get(_values_of(row, _SETUP), {})) for row in rows]


def _add_verdict(row: Row, levels: SetupLevels, more: Levels) -> dict[str, Any]:
    """Add to a row its load and what limits it; ``more`` are the levels of the client step."""
    at_a_rate = "asked_ops_s" in row
    here = levels.get(_values_of(row, _SETUP), {})
    verdict = _judge_rate(row) if at_a_rate else _judge_full_load(row, {**here, **more}, levels)
    added = {"load": _load_share(row, here), **verdict._asdict()}
    if more and not at_a_rate:
        connections, step = max(more.items())
        added |= {"client_step_connections": connections, "client_step_ops_s": step.rate}
    return {**row, **{name: value for name, value in added.items() if value is not None}}


def _judge_rate(row: Row) -> Verdict:
    """Judge whether a run at a rate is limited by the rate, the servers' CPU or the client."""
    asked, reached = row["asked_ops_s"], row.get("throughput_ops_s", 0.0)
    if reached >= _REACHED * asked:
        return Verdict(False, "rate", f"{reached / asked:.1%} of the rate that was set")
    share = row.get("server_cpu_share")
    said = f"only {reached / asked:.0%} of the rate was reached"
    if share is not None and share >= FULL_CPU:
        return Verdict(False, "cpu", f"{said}, with {share:.0%} of the servers' CPUs")
    busy = row.get("client_cpu_share")
    with_cpu = "" if busy is None else f", with {busy:.0%} of the clients' CPUs"
    return Verdict(True, "client", said + with_cpu)


def _judge_full_load(row: Row, known: Levels, levels: SetupLevels) -> Verdict:
    """Judge a run at full load; ``known`` are the levels of its set-up by connections."""
    connections = row.get("connections", 0)
    this = levels[_values_of(row, _SETUP)][connections]
    beyond = {count: level for count, level in sorted(known.items()) if count > connections}
    client = _client_limit(row, this, connections, beyond)
    if (others := _other_programs_evidence(row)) is not None:
        return Verdict(None if client is None else True, "others", others)
    if client is not None:
        return Verdict(True, "client", client)
    limited = False if beyond else None
    flat = ""
    if beyond:
        rise = max(level.rate for level in beyond.values()) / this.rate - 1
        flat = f", more client changed the throughput by {rise:+.1%}"
    if this.cpu >= FULL_CPU:
        return Verdict(limited, "cpu", f"the servers took {this.cpu:.0%} of their CPUs{flat}")
    line = row.get("line_share")
    if line is not None and line >= FULL_LINE:
        return Verdict(limited, "network", f"{line:.0%} of the line rate was used{flat}")
    spare = "CPU not known"
    if not math.isnan(this.cpu):
        spare = f"{1 - this.cpu:.0%} of the servers' CPUs to spare"
    split = _best_split(row, levels)
    if beyond and split is not None and split.exceeds(this):
        rise = split.rate / this.rate - 1
        reached = f"and the same threads split between more servers reached {rise:+.0%}"
        return Verdict(limited, "lock", f"{spare}{flat}, {reached}")
    return Verdict(limited, "unknown", f"{spare}{flat}, and no other resource was found full")


def _client_limit(row: Row, this: ThroughputLevel, connections: int, beyond: Levels) -> str | None:
    """Evidence that the client is the limit; None where it is not."""
    for count, level in beyond.items():
        if level.exceeds(this):
            rise = level.rate / this.rate - 1
            return f"{count} connections instead of {connections} reached {rise:+.0%}"
    busy = row.get("client_cpu_share")
    # Where the server is busy too, more client has shown to take it no further.
    if busy is not None and busy >= FULL_CLIENT and not this.cpu >= FULL_CPU:
        return f"the clients took {busy:.0%} of their CPUs, the servers {this.cpu:.0%} of theirs"
    return None


def _other_programs_evidence(row: Row) -> str | None:
    """Evidence that other programs took the rest of the CPU time; None where they did not."""
    seconds = row.get("window_s")
    if not seconds or not all(name in row for name in (*activity.COLUMNS, *_OWN)):
        return None
    # All CPU times of the host add up to its number of CPUs; what is neither idle nor of servers
    # and clients was of other programs.
    cpus = sum(row[name] for name in activity.COLUMNS) / seconds
    idle = row["idle_s"] + row["iowait_s"]
    others = (cpus * seconds - idle - sum(row[name] for name in _OWN)) / seconds
    if cpus * seconds <= 0 or idle > (1 - FULL_HOST) * cpus * seconds or others < OTHERS * cpus:
        return None
    return f"other programs took {others:.2g} of the host's {cpus:.2g} CPUs: stop them"


def _best_split(row: Row, levels: SetupLevels) -> ThroughputLevel | None:
    """Best level of the same threads on more servers; None where none was measured."""
    *same, partitions = _values_of(row, _SETUP)
    others = [
        level
        for (*setup, count), group in levels.items()
        if setup == same and (count or 1) > (partitions or 1)
        for level in group.values()
    ]
    return max(others, key=lambda level: level.rate, default=None)


def _load_share(row: Row, here: Levels) -> float | None:
    """Share of the set-up's highest throughput; at full load 1 for the best level, else None."""
    if not here or "throughput_ops_s" not in row:
        return None
    highest = max(here.values(), key=lambda level: level.rate)
    if "asked_ops_s" in row:
        return float(row["throughput_ops_s"] / highest.rate)
    return 1.0 if here.get(row.get("connections", 0)) == highest else None


def _levels_by_setup(rows: Sequence[Row]) -> dict[Key, dict[int, ThroughputLevel]]:
    """Levels of each set-up by number of connections."""
    groups: dict[Key, list[Row]] = defaultdict(list)
    for row in rows:
        groups[_values_of(row, (*_SETUP, "connections"))].append(row)
    levels: dict[Key, dict[int, ThroughputLevel]] = defaultdict(dict)
    for (*setup, connections), group in groups.items():
        rates = [row["throughput_ops_s"] for row in group if "throughput_ops_s" in row] or [0.0]
        # Within a window the throughput wavers less than from run to run.
        within = mean(row.get("throughput_noise", 0.0) for row in group) * mean(rates)
        between = stdev(rates) if len(rates) > 1 else 0.0
        error = max(within, between) / math.sqrt(len(rates))
        shares = [row["server_cpu_share"] for row in group if "server_cpu_share" in row]
        levels[tuple(setup)][connections] = ThroughputLevel(
            mean(rates), error, mean(shares) if shares else math.nan
        )
    return levels


def _values_of(row: Row, by: Sequence[str]) -> Key:
    return tuple(row.get(name) for name in by)
