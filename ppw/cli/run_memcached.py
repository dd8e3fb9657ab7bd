"""`ppw run memcached`."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.choices import Names, OneOf
from ppw.cli.numbers import Counts, Positive, Shares, Whole
from ppw.cli.quantities import Bytes, Sizes
from ppw.cli.run_options import (
    CpuList,
    run_options,
    running_on,
    service_options,
    show_progress,
)

if TYPE_CHECKING:
    import pandas as pd

    from measurements.workloads.memcached.options import MemcachedOptions

_EPILOG = (
    "Example: ppw run memcached --threads 1,2,4 --object-size 64,1KiB,16KiB --load 25%,50%,75% "
    "-o runs.csv"
)


@click.command(
    name="memcached",
    short_help="Throughput, latency and limits of memcached.",
    epilog=_EPILOG,
)
@click.option(
    "--server",
    "servers",
    type=Names(),
    metavar="HOST:PORT[,…]",
    help="Drive these servers as they are. Default: private ones on loopback.",
)
@click.option(
    "--threads", type=Counts(), default="1", show_default=True, help="Worker threads of a server."
)
@click.option(
    "--partitions",
    type=Counts(),
    default="1",
    show_default=True,
    help="Servers that share the load.",
)
@click.option(
    "--object-size", type=Sizes(), default="64", show_default=True, help="Sizes of a value."
)
@click.option(
    "--connections",
    type=Counts(),
    default="16",
    show_default=True,
    help="Of all clients together; a run with twice as many checks them.",
)
@click.option(
    "--keys-per-request",
    type=Counts(),
    default="1",
    show_default=True,
    help="Objects that one get asks for.",
)
@click.option(
    "--gets", type=Shares(), default="100%", show_default=True, help="Share of the requests."
)
@click.option("--key-size", type=Bytes(), default="30", show_default=True, help="Of a key.")
@click.option(
    "--objects",
    type=Whole(1),
    default=10_000,
    show_default=True,
    help="That are asked for; memcaslap rounds it to 1024 a connection.",
)
@click.option("--memory", type=Bytes(), help="Of private servers. Default: what objects need.")
@click.option(
    "--client",
    type=OneOf(["memcaslap", "memtier", "paced"]),
    help="Load generator; paced is ppw's own. Default: memcaslap, else memtier.",
)
@click.option(
    "--client-threads", type=Whole(1), help="Threads of the load generator. Default: one a CPU."
)
@click.option(
    "--server-cpus",
    type=CpuList(),
    help="CPUs of servers, 0-3,8. Default: the first half of the cores.",
)
@click.option(
    "--client-cpus", type=CpuList(), help="CPUs of the load generator. Default: the other cores."
)
@click.option(
    "--load",
    "loads",
    type=Shares(),
    help="Measure at these shares of the full throughput too, at a fixed rate: 10%,50%.",
)
@click.option("--rate", "rates", type=Counts(), help="The same as operations a second.")
@click.option(
    "--line-rate",
    type=Positive(),
    metavar="BITS/S",
    help="Of the network to --server. Default: what the interface says.",
)
@run_options
def command(**given: Any) -> int:
    """Load memcached at several set-ups: throughput, latency, hit rate, CPU, watts, and the limit.

    Throughput is what the server counts in a window of steady load. Each set-up ends with a run
    with more client: where that raises the throughput, its rows say client_limited.
    """
    from measurements.workloads.memcached.experiment import find_programs, open_runs, table
    from measurements.workloads.memcached.link import link_to
    from measurements.workloads.memcached.protocol import Address
    from ppw.measuring import this_host

    options = _options(given)
    options.check()
    # Before the sensors have their say.
    find_programs(options)
    named = [Address.parse(text) for text in options.servers]
    is_local = all(link_to(address).is_loopback for address in named)
    service = service_options(given, host=this_host() if is_local else str(named[0].host))
    workload = {"memcached": asdict(options)}
    with running_on(given, service, workload, is_local=is_local) as opened:
        found = opened.take(open_runs(options, opened.runs), table, show_progress)
    click.echo(summary(found))
    return 0


def _options(given: dict[str, Any]) -> MemcachedOptions:
    from measurements.workloads.memcached.options import MemcachedOptions

    if len(given["gets"]) != 1:
        raise click.UsageError("--gets takes one share, such as 90%")
    return MemcachedOptions(
        servers=tuple(given["servers"] or ()),
        threads=tuple(given["threads"]),
        partitions=tuple(given["partitions"]),
        object_bytes=tuple(given["object_size"]),
        connections=tuple(given["connections"]),
        keys_per_request=tuple(given["keys_per_request"]),
        get_share=given["gets"][0],
        key_bytes=round(given["key_size"]),
        objects=given["objects"],
        memory_bytes=given["memory"],
        client=given["client"],
        client_threads=given["client_threads"],
        server_cpus=given["server_cpus"] or (),
        client_cpus=given["client_cpus"] or (),
        loads=given["loads"] or (),
        rates=tuple(float(rate) for rate in given["rates"] or ()),
        line_rate_bits_s=given["line_rate"],
    )


def summary(table: pd.DataFrame) -> str:
    """Medians by set-up as text, and what limits each."""
    from ppw.estimate import shown
    from ppw.tables import text_table

    keys = ["workload", "threads", "data_bytes", "connections", "asked_ops_s"]
    known = table.reindex(columns=[*dict.fromkeys([*table.columns, *keys])])
    asked = known["asked_ops_s"].round(3)
    columns = {name: part for name, part in _COLUMNS.items() if name in table}
    rows = []
    for _, part in known.groupby([*keys[:4], asked], dropna=False, sort=True):
        first = part.iloc[0]
        cells = [str(first["workload"]), *(_whole(first[name]) for name in keys[1:4])]
        cells.append(shown(part["load"].median() if "load" in part else float("nan")))
        cells += [shown(part[name].median() * k, unit) for name, (_, unit, k) in columns.items()]
        rows.append([*cells, "/".join(dict.fromkeys(part["limited_by"].astype(str)))])
    header = ["workload", "threads", "object", "connections", "load"]
    header += [title for title, _, _ in columns.values()]
    return text_table([*header, "limited by"], rows)


# Title, unit, and the factor to it.
_COLUMNS = {
    "throughput_ops_s": ("ops/s", "1", 1.0),
    "latency_p50_s": ("p50 (µs)", "1", 1e6),
    "latency_p99_s": ("p99 (µs)", "1", 1e6),
    "hit_rate": ("hits", "1", 1.0),
    "server_cpu_share": ("server CPU", "1", 1.0),
    "client_cpu_share": ("client CPU", "1", 1.0),
    "power_w": ("power", "W", 1.0),
}


def _whole(value: float) -> str:
    return "–" if value != value else f"{value:.0f}"
