"""`ppw run`: workloads that ppw starts, loads and reads by itself."""

from __future__ import annotations

import importlib

import click

from measurements.headers import nearest

# By name, with the line that `ppw run --help` shows, so that listing them imports none.
WORKLOADS = {
    "count": "Instructions of a command: counted, emulated or estimated, and labelled so.",
    "cpio": "CPU time and I/Os of fio or a command by cores, with and without the device.",
    "fio": "IOPS, bandwidth and latency of a disk by queue depth, and IOPS per watt.",
    "hadoop": "MapReduce jobs, on a cluster of yours or on one machine.",
    "memcached": "Throughput, latency and limits of memcached by threads, size and load.",
}


class Workloads(click.Group):
    """Group whose commands live in ``ppw.cli.run_<name>``."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the workloads."""
        return list(WORKLOADS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a workload's command; None for one that does not exist."""
        if cmd_name not in WORKLOADS:
            return None
        command = importlib.import_module(f"ppw.cli.run_{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the workload; an unknown one is answered with the nearest."""
        name = args[0] if args else ""
        if name not in WORKLOADS and not name.startswith("-"):
            raise click.UsageError(
                f"no workload {name!r}{nearest(name, list(WORKLOADS))}; the workloads are "
                f"{', '.join(WORKLOADS)}; any command can be measured with ppw measure",
                ctx,
            )
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the workloads without importing them."""
        with formatter.section("Workloads"):
            formatter.write_dl(list(WORKLOADS.items()))


@click.group(
    name="run",
    cls=Workloads,
    short_help="Run memcached, Hadoop or fio and measure it.",
    epilog="Example: ppw run memcached --threads 1,2 --object-size 64,1KiB -o memcached.csv",
)
def command() -> None:
    """Run a workload and measure its throughput, watts, counters and CPU time.

    What is started is ended on every way out, and nothing of it is left on disk.
    """
