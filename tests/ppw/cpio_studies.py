"""Made-up studies of cycles per I/O whose every figure is known."""

import numpy as np
import pandas as pd

CLOCK = 2e9
# Cycles per I/O at one core and more of them for each other core; utilisation and its change.
APPLICATIONS = {"store": (20e3, 2e3, 0.90, -0.010), "oltp": (10e3, 0.2e3, 0.95, -0.005)}


def run(
    cpio=10e3, *, cores=1, utilisation=0.8, time_s=60.0, user=0.6, waiting=0.3, clock=CLOCK, **more
):
    """One run: of its busy time 60 % is user, 30 % system, 10 % soft interrupts."""
    busy = utilisation * cores * time_s
    unused = cores * time_s - busy
    ios = busy * clock / cpio
    return {
        "workload": "oltp",
        "cores": cores,
        "time_s": time_s,
        "freq_hz": clock,
        "user_s": user * busy,
        "system_s": (0.9 - user) * busy,
        "softirq_s": 0.1 * busy,
        "idle_s": (1 - waiting) * unused,
        "iowait_s": waiting * unused,
        "sectors_read": 0.75 * ios,
        "sectors_written": 0.25 * ios,
        **more,
    }


def study(*, noise=0.0, cores=(1, 2, 4, 8), repeats=2, seed=3, applications=None, **more):
    """Runs of applications over core counts, with errors in proportion."""
    rng = np.random.default_rng(seed)
    rows = []
    for name, (cost, rise, busy, change) in (applications or APPLICATIONS).items():
        for n in cores:
            for _ in range(repeats):
                first, second = rng.standard_normal(2)
                cpio = (cost + rise * (n - 1)) * (1 + noise * first)
                utilisation = min((busy + change * (n - 1)) * (1 + noise / 3 * second), 1.0)
                rows.append(run(cpio, cores=n, utilisation=utilisation, workload=name, **more))
    return pd.DataFrame(rows)
