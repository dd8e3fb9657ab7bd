"""The subcommands by name; each is imported when it is used or listed."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import click

from measurements.headers import nearest

if TYPE_CHECKING:
    from collections.abc import Sequence

COMMANDS = (
    *(
        "best",
        "calibrate",
        "characterise",
        "check",
        "colocate",
        "compare",
        "cpio",
        "demo",
        "fit",
        "hosts",
        "knee",
    ),
    *("measure", "pathlength", "plan", "powerload", "pressure", "project", "rightsize", "run"),
    *("sample", "sensors", "size", "validate"),
)


class LazyGroup(click.Group):
    """Group whose commands live in ``ppw.cli.<name>``, so that `--help` stays quick."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for one that does not exist."""
        if cmd_name not in COMMANDS:
            return None
        command = importlib.import_module(f"ppw.cli.{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest."""
        name = args[0] if args else ""
        if name not in COMMANDS and not name.startswith("-"):
            hint = nearest(name, _listed(COMMANDS))
            raise click.UsageError(
                f"no command {name!r}{hint}; the commands are {', '.join(COMMANDS)}", ctx
            )
        return super().resolve_command(ctx, args)


def _listed(names: Sequence[str]) -> list[str]:
    return list(names)
