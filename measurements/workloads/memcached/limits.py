"""What limits each run of memcached, from the evidence of all of them.

A host that is busy with something else says nothing of memcached, and a run that one step more of
client takes further says nothing of the server. Then come CPU, network, and a lock, which shows as
throughput that stays where it is with CPU to spare until the same threads are split between
several servers.
"""

from __future__ import annotations

import math
from statistics import mean, stdev
from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Row = Mapping[str, Any]

# Shares of CPU time and line rate from which they count as used up.
FULL_CPU = 0.90
FULL_LINE = 0.90
# A client whose CPUs are as busy as this has nothing left to give.
FULL_CLIENT = 0.95
# Where a host is as good as full and others take this share of it, they are in the way.
FULL_HOST = 0.90
OTHERS = 0.10
# A rise counts from so many standard errors on, and not below so much of the throughput.
_ERRORS = 2.0
LEAST_RISE = 0.03
# A rate counts as reached within this.
_REACHED = 0.98

_CPU_TIMES = (
    *("user_s", "nice_s", "system_s", "irq_s"),
    *("softirq_s", "steal_s", "idle_s", "iowait_s"),
)
_OWN = ("server_user_s", "server_system_s", "client_user_s", "client_system_s")
_SETUP = ("host", "freq_hz", "data_bytes", "get_share", "keys_per_request", "threads", "partitions")


class Level(NamedTuple):
    """Mean throughput of equal runs, and its standard error (1/s)."""

    rate: float
    error: float
    cpu: float

    def exceeds(self, other: Level) -> bool:
        """Whether it is higher by more than noise."""
        rise = self.rate - other.rate
        noise = _ERRORS * math.hypot(self.error, other.error)
        return rise > max(noise, LEAST_RISE * other.rate)


class Verdict(NamedTuple):
    """What limits a run, and why that is said."""

    client_limited: bool | None
    limited_by: str
    evidence: str


def judged(rows: Sequence[Row], client_steps: Sequence[Row] = ()) -> list[dict[str, Any]]:
    """Add to each row what limits it.

    Parameters
    ----------
    rows : sequence of mappings
        Runs at full load and at a rate.
    client_steps : sequence of mappings
        The run with more client that ends each load run.

    Returns
    -------
    list of dict
        The rows with ``client_limited`` (left out where it cannot be told), ``limited_by``
        ("others", "client", "cpu", "network", "lock", "rate" or "unknown"), ``limit_evidence``,
        ``load`` (the share of the set-up's highest throughput) and the throughput of the run with
        more client, ``client_step_ops_s``.
    """
    full = [row for row in rows if "asked_ops_s" not in row]
    by_setup = _grouped(full, _SETUP)
    steps = _grouped(client_steps, _SETUP)
    levels = {
        key: {c: _level(part) for (c,), part in _grouped(group, ("connections",)).items()}
        for key, group in by_setup.items()
    }
    found = []
    for row in rows:
        key = _key(row, _SETUP)
        here, more = levels.get(key, {}), _levels(steps.get(key, []))
        verdict = (
            _at_a_rate(row) if "asked_ops_s" in row else _at_full_load(row, here, more, levels)
        )
        found.append(_with(row, verdict, _load(row, here), more))
    return found


def _at_a_rate(row: Row) -> Verdict:
    asked, reached = row["asked_ops_s"], row.get("throughput_ops_s", 0.0)
    if reached >= _REACHED * asked:
        return Verdict(False, "rate", f"{reached / asked:.1%} of the rate that was asked for")
    share = row.get("server_cpu_share")
    said = f"only {reached / asked:.0%} of the rate was reached"
    if share is not None and share >= FULL_CPU:
        return Verdict(False, "cpu", f"{said}, with {share:.0%} of the servers' CPUs")
    busy = row.get("client_cpu_share")
    with_cpu = "" if busy is None else f", with {busy:.0%} of the clients' CPUs"
    return Verdict(True, "client", said + with_cpu)


def _at_full_load(
    row: Row,
    here: Mapping[int, Level],
    more: Mapping[int, Level],
    levels: Mapping[tuple[Any, ...], Mapping[int, Level]],
) -> Verdict:
    connections = row.get("connections", 0)
    this = here[connections]
    client = _client_limits(row, this, connections, {**here, **more})
    if (others := _others(row)) is not None:
        return Verdict(None if client is None else client.client_limited, "others", others)
    if client is not None:
        return client
    beyond = [level for c, level in {**here, **more}.items() if c > connections]
    told = False if beyond else None
    flat = _flat(this, beyond)
    share = this.cpu
    if share >= FULL_CPU:
        return Verdict(told, "cpu", f"the servers took {share:.0%} of their CPUs{flat}")
    line = row.get("line_share")
    if line is not None and line >= FULL_LINE:
        return Verdict(told, "network", f"{line:.0%} of the line rate was used{flat}")
    spare = f"{1 - share:.0%} of the servers' CPUs to spare" if share == share else "CPU not known"
    if (split := _split(row, levels)) is not None and split.exceeds(this) and told is False:
        return Verdict(
            told,
            "lock",
            f"{spare}{flat}, and the same threads split between more servers reached "
            f"{split.rate / this.rate - 1:+.0%}",
        )
    return Verdict(told, "unknown", f"{spare}{flat}, and nothing else was seen to be used up")


def _client_limits(
    row: Row, this: Level, connections: int, known: Mapping[int, Level]
) -> Verdict | None:
    for count, level in sorted(known.items()):
        if count > connections and level.exceeds(this):
            rise = level.rate / this.rate - 1
            said = f"{count} connections in place of {connections} reached {rise:+.0%}"
            return Verdict(True, "client", said)
    busy = row.get("client_cpu_share")
    # Where the server is busy too, more client has shown to take it no further.
    if busy is not None and busy >= FULL_CLIENT and not this.cpu >= FULL_CPU:
        said = f"the clients took {busy:.0%} of their CPUs, the servers {this.cpu:.0%} of theirs"
        return Verdict(True, "client", said)
    return None


def _others(row: Row) -> str | None:
    """Say that other programs took the CPU time that was not to be had."""
    seconds = row.get("window_s")
    if not seconds or not all(name in row for name in (*_CPU_TIMES, *_OWN)):
        return None
    cpus = sum(row[name] for name in _CPU_TIMES) / seconds
    idle = row["idle_s"] + row["iowait_s"]
    others = (cpus * seconds - idle - sum(row[name] for name in _OWN)) / seconds
    if cpus * seconds <= 0 or idle > (1 - FULL_HOST) * cpus * seconds or others < OTHERS * cpus:
        return None
    return f"other programs took {others:.2g} of the host's {cpus:.2g} CPUs: stop them"


def _flat(this: Level, beyond: Sequence[Level]) -> str:
    if not beyond:
        return ""
    rise = max(level.rate for level in beyond) / this.rate - 1
    return f", more client changed the throughput by {rise:+.1%}"


def _split(row: Row, levels: Mapping[tuple[Any, ...], Mapping[int, Level]]) -> Level | None:
    """Best level of the same threads on more servers."""
    place = _SETUP.index("partitions")
    own = _key(row, _SETUP)
    others = [
        level
        for key, group in levels.items()
        if key[:place] == own[:place] and (key[place] or 1) > (own[place] or 1)
        for level in group.values()
    ]
    return max(others, key=lambda level: level.rate, default=None)


def _load(row: Row, here: Mapping[int, Level]) -> float | None:
    """Share of the highest throughput of the set-up; 1 for the runs that make it."""
    if not here or "throughput_ops_s" not in row:
        return None
    highest = max(here.values(), key=lambda level: level.rate)
    if "asked_ops_s" in row:
        return float(row["throughput_ops_s"] / highest.rate)
    return 1.0 if here.get(row.get("connections", 0)) == highest else None


def _with(
    row: Row, verdict: Verdict, load: float | None, more: Mapping[int, Level]
) -> dict[str, Any]:
    step = max(more.items(), default=None)
    added = {
        "load": load,
        "client_limited": verdict.client_limited,
        "limited_by": verdict.limited_by,
        "limit_evidence": verdict.evidence,
    }
    if step is not None and "asked_ops_s" not in row:
        added |= {"client_step_connections": step[0], "client_step_ops_s": step[1].rate}
    return {**row, **{name: value for name, value in added.items() if value is not None}}


def _levels(rows: Sequence[Row]) -> dict[int, Level]:
    return {c: _level(part) for (c,), part in _grouped(rows, ("connections",)).items()}


def _level(rows: Sequence[Row]) -> Level:
    rates = [row["throughput_ops_s"] for row in rows if "throughput_ops_s" in row] or [0.0]
    # Within a window the throughput wavers less than from run to run.
    within = mean(row.get("throughput_noise", 0.0) for row in rows) * mean(rates)
    between = stdev(rates) if len(rates) > 1 else 0.0
    error = max(within, between) / math.sqrt(len(rates))
    shares = [row["server_cpu_share"] for row in rows if "server_cpu_share" in row]
    return Level(mean(rates), error, mean(shares) if shares else math.nan)


def _grouped(rows: Sequence[Row], by: Sequence[str]) -> dict[tuple[Any, ...], list[Row]]:
    found: dict[tuple[Any, ...], list[Row]] = {}
    for row in rows:
        found.setdefault(_key(row, by), []).append(row)
    return found


def _key(row: Row, by: Sequence[str]) -> tuple[Any, ...]:
    return tuple(row.get(name) for name in by)
