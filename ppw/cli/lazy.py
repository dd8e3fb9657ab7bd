"""Groups of commands that are modules, imported when they are used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, ClassVar

import click

from measurements.headers import nearest

if TYPE_CHECKING:
    from collections.abc import Mapping


class LazyGroup(click.Group):
    """Group of the commands in modules ``<prefix><name>``, so that `--help` stays quick.

    A subclass names its commands with the line that its `--help` shows for each; with empty lines
    the commands' own are shown, which imports them.
    """

    prefix: ClassVar[str]
    members: ClassVar[Mapping[str, str]]
    kind: ClassVar[str] = "command"
    otherwise: ClassVar[str] = ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return list(self.members)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for one that does not exist."""
        if cmd_name not in self.members:
            return None
        command = importlib.import_module(f"{self.prefix}{cmd_name}").command
        return command if isinstance(command, click.Command) else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command; an unknown one is answered with the nearest."""
        name = args[0] if args else ""
        if name not in self.members and not name.startswith("-"):
            names = list(self.members)
            raise click.UsageError(
                f"no {self.kind} {name!r}{nearest(name, names)}; the {self.kind}s are "
                f"{', '.join(names)}{self.otherwise}",
                ctx,
            )
        found = super().resolve_command(ctx, args)
        _refuse_repeated(found[1], found[2], ctx)
        return found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands, without importing them where their lines are at hand."""
        if not all(self.members.values()):
            super().format_commands(ctx, formatter)
            return
        with formatter.section(f"{self.kind.capitalize()}s"):
            formatter.write_dl(list(self.members.items()))


def _refuse_repeated(command: click.Command | None, args: list[str], ctx: click.Context) -> None:
    """Refuse an option with a list of values that is given twice: the first list would be lost."""
    if command is None or isinstance(command, click.Group) or not command.allow_interspersed_args:
        return
    typed = [a.partition("=")[0] for a in args[: args.index("--") if "--" in args else None]]
    for option in command.params:
        if (
            not isinstance(option, click.Option)
            or option.multiple
            or option.is_flag
            or option.count
        ):
            continue
        if sum(typed.count(spelling) for spelling in option.opts) > 1:
            name = option.opts[0]
            raise click.UsageError(
                f"{name} is given more than once: give it once, several values as {name} A,B", ctx
            )
