"""What a cluster keeps of its jobs: accounting of Slurm and of EAR, and reports of GEOPM."""

import csv
import io
import re
from collections.abc import Iterator, Mapping
from typing import Any

_SACCT_TEXTS = {
    "JobName": "workload",
    "NodeList": "host",
    "Start": "started_at",
    "AllocCPUS": "threads",
    "NCPUS": "threads",
}
_SUFFIXES = {"K": 1e3, "M": 1e6, "G": 1e9, "T": 1e12}


def read_sacct(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each completed job; some versions write the energy at its steps alone."""
    lines = csv.DictReader(io.StringIO(text.strip()), delimiter="|", quoting=csv.QUOTE_NONE)
    jobs: dict[str, list[dict[str, str]]] = {}
    for line in lines:
        job = line.get("JobID") or line["JobIDRaw"]
        jobs.setdefault(job.partition(".")[0], []).append(line)
    for job, *steps in jobs.values():
        time_s = _elapsed_s(job)
        if time_s and job.get("State", "COMPLETED") == "COMPLETED":
            run = {"time_s": time_s, **_texts(job, _SACCT_TEXTS)}
            # The step of the whole allocation has what all others used.
            if energy_j := _energy_j(job) or max(map(_energy_j, steps), default=0.0):
                run |= {"energy_j": energy_j, "power_w": energy_j / time_s}
            yield run


def _texts(line: Mapping[str, str], columns: Mapping[str, str]) -> dict[str, Any]:
    return {column: line[name] for name, column in columns.items() if line.get(name)}


def _elapsed_s(line: Mapping[str, str]) -> float:
    """Elapsed time (s) of a job, from seconds or [days-]hours:minutes:seconds."""
    if raw := line.get("ElapsedRaw"):
        return float(raw)
    days, _, clock = line["Elapsed"].rpartition("-")
    seconds = 0.0
    for part in clock.split(":"):
        seconds = 60 * seconds + float(part)
    return seconds + 86400 * float(days or 0)


def _energy_j(line: Mapping[str, str]) -> float:
    """Energy of a job or step (J); 0 is what Slurm writes where no plug-in measures."""
    text = line.get("ConsumedEnergyRaw") or line.get("ConsumedEnergy") or "0"
    return float(text.rstrip("KMGTkmgt")) * _SUFFIXES.get(text[-1].upper(), 1.0)


_EAR_TEXTS = {"NODENAME": "host", "JOBNAME": "workload"}
# Column and factor; EAR writes 0 for what it did not measure.
_EAR_NUMBERS = {
    "TIME_SEC": ("time_s", 1.0),
    "AVG_CPUFREQ_KHZ": ("freq_achieved_hz", 1e3),
    "DEF_FREQ_KHZ": ("freq_hz", 1e3),
    "DC_NODE_POWER_W": ("power_w", 1.0),
    "PCK_POWER_W": ("package_power_w", 1.0),
    "DRAM_POWER_W": ("ram_power_w", 1.0),
    "CPI": ("cpi", 1.0),
    "CYCLES": ("cycles", 1.0),
    "INSTRUCTIONS": ("instructions", 1.0),
}
# Under all other policies EAR itself changes the frequency.
_FIXED = {"MO", "MONITORING", "MONITORING_ONLY"}


def read_ear(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each line of ``eacct -c`` with a time: a job step, or one of its nodes (-l).

    The power is that of the node, by its DC sensor.
    """
    for line in csv.DictReader(io.StringIO(text.strip()), delimiter=";"):
        run = _texts(line, _EAR_TEXTS)
        for name, (column, factor) in _EAR_NUMBERS.items():
            if number := float(line.get(name) or 0):
                run[column] = number * factor
        if (line.get("POLICY") or "").upper() not in _FIXED:
            run.pop("freq_hz", None)
        if "power_w" in run and "time_s" in run:
            run |= {"energy_j": run["power_w"] * run["time_s"], "power_source": "ear:node"}
        if "time_s" in run:
            yield run


_HOST = re.compile(r"Host: (\S+)|  (\S[^:]*):")
_NUMBER = re.compile(r"(?<![a-z-])([a-z-]+) \(([A-Za-z]+)\): (\d\S*)")
# By name and units; version 1.1 and before wrote units in full.
_GEOPM_COLUMNS = {
    "runtime": (("s", "sec"), "time_s"),
    "package-energy": (("J", "joules"), "energy_j"),
    "dram-energy": (("J", "joules"), "dram_energy_j"),
    "power": (("W", "watts"), "power_w"),
    "frequency": (("Hz",), "freq_achieved_hz"),
}


def read_geopm(text: str) -> Iterator[dict[str, Any]]:
    """Make a run of each host's totals of the application; regions are parts of them."""
    workload, host, in_totals = "", "", False
    totals: dict[str, dict[str, Any]] = {}
    for line in text.splitlines():
        if line.startswith("Profile: "):
            workload = line[9:].strip().strip("\"'")
        elif name := _HOST.fullmatch(line.rstrip()):
            host, in_totals = name[1] or name[2], False
        elif line.rstrip().endswith("Totals:"):
            in_totals = line.strip() == "Application Totals:"
        elif in_totals and (number := _NUMBER.match(line.strip())):
            units, column = _GEOPM_COLUMNS.get(number[1], ((), ""))
            if number[2] in units:
                totals.setdefault(host, {})[column] = float(number[3])
    for host, run in totals.items():
        if "time_s" in run and "energy_j" in run:
            run["power_source"] = "geopm:package"
            run.setdefault("power_w", run["energy_j"] / run["time_s"])
        yield {"host": host, **({"workload": workload} if workload else {}), **run}
