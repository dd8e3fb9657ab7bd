"""Accounting of Slurm (``sacct --parsable2``): a run for each job that completed."""

import csv
import io
from collections.abc import Iterator, Mapping
from typing import Any

_COLUMNS = {
    "JobName": "workload",
    "NodeList": "host",
    "Start": "started_at",
    "AllocCPUS": "threads",
    "NCPUS": "threads",
}
_SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def read(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each completed job; some versions write the energy at its steps alone."""
    lines = csv.DictReader(io.StringIO(text.strip()), delimiter="|", quoting=csv.QUOTE_NONE)
    jobs: dict[str, list[dict[str, str]]] = {}
    for line in lines:
        job = line.get("JobID") or line["JobIDRaw"]
        jobs.setdefault(job.partition(".")[0], []).append(line)
    for job, *steps in jobs.values():
        time_s = _time_s(job)
        if time_s and job.get("State", "COMPLETED") == "COMPLETED":
            run = {"time_s": time_s, **_texts(job)}
            # The step of the whole allocation has what all others used.
            if energy_j := _energy_j(job) or max(map(_energy_j, steps), default=0.0):
                run |= {"energy_j": energy_j, "power_w": energy_j / time_s}
            yield run


def _time_s(line: Mapping[str, str]) -> float:
    """Elapsed time (s) of a job, from seconds or [days-]hours:minutes:seconds."""
    if raw := line.get("ElapsedRaw"):
        return float(raw)
    days, _, clock = line["Elapsed"].rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds + 86400 * float(days or 0)


def _texts(line: Mapping[str, str]) -> dict[str, Any]:
    return {column: line[name] for name, column in _COLUMNS.items() if line.get(name)}


def _energy_j(line: Mapping[str, str]) -> float:
    """Energy of a job or step (J); 0 is what Slurm writes where no plug-in measures."""
    text = line.get("ConsumedEnergyRaw") or line.get("ConsumedEnergy") or "0"
    return float(text.rstrip("KMGTkmgt")) * _SUFFIXES.get(text[-1].upper(), 1.0)
