"""Hosts of the catalogue that have what a workload needs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ppw.host import Host

CANDIDATE_COLUMNS = (
    *("host", "fits", "cores", "cores_share", "memory_bandwidth_bytes_s"),
    *("memory_bandwidth_share", "tdp_w", "launch_price_usd", "not_stated"),
)


def fitting_hosts(resources: pd.DataFrame, hosts: Mapping[str, Host] | None) -> pd.DataFrame:
    """Hold the cores and memory bandwidth that are needed against hosts, smallest first.

    Parameters
    ----------
    resources : pandas.DataFrame
        ``resource`` and ``needed``, as in `RightSizing.resources`.
    hosts : mapping of str to Host, optional
        By default the whole catalogue.

    Returns
    -------
    pandas.DataFrame
        `CANDIDATE_COLUMNS`: ``fits`` by what both sides know, shares of need by what the host
        states, and what it does not state. Physical cores are counted: a second hardware thread
        is less than a core.
    """
    from ppw.hosts import load_hosts

    needed = dict(zip(resources["resource"], resources["needed"], strict=True))
    known = load_hosts() if hosts is None else hosts
    rows = [_row(host, needed["CPU"], needed["memory bandwidth"]) for host in known.values()]
    table = pd.DataFrame(rows, columns=list(CANDIDATE_COLUMNS))
    order = ["fits", "cores", "tdp_w", "host"]
    return table.sort_values(order, ascending=[False, True, True, True], ignore_index=True)


def _row(host: Host, cores: float, bandwidth: float) -> dict[str, Any]:
    has_cores, has_bandwidth = _number(host.cores), _number(host.memory_bandwidth_bytes_s)
    shares = cores / has_cores, bandwidth / has_bandwidth
    # What is not known on either side rules nothing out; the table says that it is not known.
    missing = [
        name
        for name, need, has in (
            ("cores", cores, has_cores),
            ("memory bandwidth", bandwidth, has_bandwidth),
        )
        if np.isnan(has) and not np.isnan(need)
    ]
    return {
        "host": host.name,
        "fits": bool(not missing and not any(share > 1 for share in shares)),
        "cores": has_cores,
        "cores_share": shares[0],
        "memory_bandwidth_bytes_s": has_bandwidth,
        "memory_bandwidth_share": shares[1],
        "tdp_w": _number(host.tdp_w),
        "launch_price_usd": _number(host.launch_price_usd),
        "not_stated": ", ".join(missing),
    }


def _number(value: float | None) -> float:
    return np.nan if value is None else float(value)
