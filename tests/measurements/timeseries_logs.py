"""Small logs for the tests of time series, written as collectl and sadf write them."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path

COMMENTS = """\
################################################################################
# Collectl:   V4.3.1-1  HiRes: 1  Options: -scd -P
# Host:       db7  DaemonOpts:
# Date:       20250615-150639  Secs: 1749999999 TZ: +0000
# SubSys:     cd Options:  Interval: 1 NumCPUs: 4  NumBud: 0 Flags: i
# HZ:         100  Arch: x86_64-linux-gnu-thread-multi PageSize: 4096
# NumNets:    2 NetNames: lo:?? eth0:1000
################################################################################
"""
CPU_NAMES = ("User%", "Nice%", "Sys%", "Wait%", "Irq%", "Soft%", "Steal%", "Idle%")
CPU_HEADER = " ".join(f"[CPU]{name}" for name in CPU_NAMES)
# 2025-06-15 15:06:40 UTC.
START_S = 1_750_000_000


def plot_log(rows, header=CPU_HEADER, comments=COMMENTS):
    """A log of collectl: rows are the time and the fields behind it."""
    lines = [f"20250615 {time} {fields}\n" for time, fields in rows]
    return f"{comments}#Date Time {header}\n{''.join(lines)}"


def plain_log(seconds=3):
    """One CPU row a second from 15:06:40 on, 50 % user and 50 % idle."""
    return plot_log([(f"15:06:{40 + n:02}", "50 0 0 0 0 0 0 50") for n in range(seconds)])


def sadf_document(statistics, **host):
    """What ``sadf -j`` prints, with tabs and lines as it has them."""
    about = {"nodename": "db7", "machine": "x86_64", "number-of-cpus": 4, "timezone": "UTC"}
    about |= {**host, "statistics": statistics, "restarts": [], "comments": []}
    return json.dumps({"sysstat": {"hosts": [about]}}, indent="\t")


def sample(second, interval=1, **activities):
    """One sample at 15:06:40 and so many seconds."""
    time = f"15:{6 + (40 + second) // 60:02}:{(40 + second) % 60:02}"
    stamp = {"date": "2025-06-15", "time": time, "utc": 1, "interval": interval}
    return {"timestamp": stamp, **{k.replace("_", "-"): v for k, v in activities.items()}}


def cpu_row(cpu="all", **shares):
    names = ("usr", "nice", "sys", "iowait", "steal", "irq", "soft", "guest", "gnice", "idle")
    return {"cpu": cpu, **{name: shares.get(name, 0.0) for name in names}}


def written(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path
