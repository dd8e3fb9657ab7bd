"""Option types for names, one or several; a wrong one is answered with the nearest."""

from __future__ import annotations

import csv
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem

from measurements.headers import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

# What tells groups apart where nobody says.
_IDENTITY = ("host", "family", "workload", "cores", "threads", "data_bytes")
METRIC_NAMES = (
    "time",
    "cpi",
    "throughput",
    "power",
    "energy",
    "perf_per_watt",
    "perf_per_dollar",
)


def not_one_of(name: str, choices: Sequence[str]) -> str:
    """Say that a name is unknown, which is near, and which there are."""
    return f"{name!r}{nearest(name, choices)} is not one of {', '.join(choices)}"


class OneOf(click.Choice[str]):
    """One of a few names."""

    def get_invalid_choice_message(self, value: Any, ctx: click.Context | None) -> str:
        """Suggest the nearest."""
        return not_one_of(str(value), self.choices)


class Names(click.ParamType[list[str]]):
    """Names, comma separated; from a fixed choice where there is one."""

    name = "NAME[,…]"

    def __init__(self, choices: tuple[str, ...] | None = None) -> None:
        self.choices = choices

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> list[str]:
        """List of the names."""
        names = [part.strip() for part in str(value).split(",") if part.strip()]
        if not names:
            self.fail("no name is given", param, ctx)
        for name in names:
            if self.choices and name not in self.choices:
                self.fail(not_one_of(name, self.choices), param, ctx)
        return names

    def known(self, ctx: click.Context) -> Sequence[str]:
        """Names to complete with."""
        return self.choices or ()

    def shell_complete(
        self, ctx: click.Context, param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        """Complete the last of the names with those that are not there yet."""
        done, comma, last = incomplete.rpartition(",")
        rest = [name for name in self.known(ctx) if name not in done.split(",")]
        return [CompletionItem(done + comma + name) for name in rest if name.startswith(last)]


class Columns(Names):
    """Columns of the runs table, comma separated; completed from the header of a CSV."""

    name = "COLUMN[,…]"

    def known(self, ctx: click.Context) -> Sequence[str]:
        """Header of the first of RUNS, or the columns that tell groups apart."""
        return header_of(ctx) or _IDENTITY


def header_of(ctx: click.Context) -> list[str]:
    """Header of the CSV that is the first of RUNS; nothing where there is none to be read."""
    # An option whose value is not typed yet leaves the arguments unread.
    paths = [*(ctx.params.get("runs") or ()), *ctx.args]
    if not paths or not paths[0].lower().endswith(".csv"):
        return []
    try:
        with Path(paths[0]).open(encoding="utf-8", newline="") as file:
            return next(csv.reader(file), [])
    except (OSError, UnicodeDecodeError, csv.Error):
        return []


def complete_column(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete one column of the runs table."""
    return [name for name in header_of(ctx) if name.startswith(incomplete)]


def complete_selection(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete the column of the last of several COLUMN=VALUE."""
    done, comma, last = incomplete.rpartition(",")
    return [f"{done}{comma}{name}=" for name in header_of(ctx) if name.startswith(last)]


def complete_host(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a host of the catalogue."""
    from ppw.hosts import load_hosts

    return [name for name in load_hosts() if name.lower().startswith(incomplete.lower())]


def complete_dataset(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[str]:
    """Complete a public data set."""
    from ppw.datasets.registry import known_datasets

    return [name for name in known_datasets() if name.startswith(incomplete)]
