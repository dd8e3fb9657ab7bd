"""The command line: `ppw COMMAND …`."""

from __future__ import annotations

import importlib
import io
import logging
import os
import sys
from typing import ClassVar

import click

from measurements.table.headers import nearest
from ppw.cli import output as out
from ppw.results.text import package_version, printable_lines


class NamedCommands(click.Group):
    """Group of commands that answers an unknown name with the nearest one."""

    kind: ClassVar[str] = "command"
    otherwise: ClassVar[str] = ""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands, as they were added."""
        return list(self.commands)

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command. Raises `click.UsageError` with the nearest name."""
        name = args[0] if args else ""
        names = self.list_commands(ctx)
        if name not in names and not name.startswith("-"):
            raise click.UsageError(
                f"no {self.kind} {name!r}{nearest(name, names)}; the {self.kind}s are "
                f"{', '.join(names)}{self.otherwise}",
                ctx,
            )
        found = super().resolve_command(ctx, args)
        _refuse_repeated(found[1], found[2], ctx)
        return found


def _refuse_repeated(command: click.Command | None, args: list[str], ctx: click.Context) -> None:
    """Refuse an option with a list of values that is given twice: the first list would be lost."""
    if command is None or isinstance(command, click.Group) or not command.allow_interspersed_args:
        return
    # click takes the last of two values; behind -- words are those of another command.
    typed = [a.partition("=")[0] for a in args[: args.index("--") if "--" in args else None]]
    for option in command.params:
        if not isinstance(option, click.Option) or option.multiple or option.is_flag:
            continue
        if sum(typed.count(spelling) for spelling in option.opts) > 1:
            name = option.opts[0]
            raise click.UsageError(
                f"{name} is given more than once: give it once, several values as {name} A,B", ctx
            )


# Each command with the module of `ppw.cli` that has it.
COMMANDS = {
    "best": "runs_tables",
    "calibrate": "runs_tables",
    "characterise": "runs_tables",
    "check": "runs_tables",
    "colocate": "pressure",
    "compare": "runs_tables",
    "cpio": "cpio",
    "datasets": "catalogue",
    "demo": "catalogue",
    "fit": "runs_tables",
    "fleet": "fleet",
    "hosts": "catalogue",
    "knee": "pressure",
    "measure": "measuring",
    "pathlength": "runs_tables",
    "plan": "runs_tables",
    "powerload": "runs_tables",
    "pressure": "pressure",
    "project": "runs_tables",
    "rightsize": "pressure",
    "run": "run",
    "sample": "measuring",
    "sensors": "measuring",
    "size": "cpio",
    "trace": "trace",
    "validate": "runs_tables",
}


class Commands(NamedCommands):
    """The commands of `ppw`, each imported when it is used."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the commands."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import a command; None for one that does not exist."""
        if cmd_name not in COMMANDS:
            return None
        # A module of commands imports no library of numbers, so --help can list all of them.
        module = importlib.import_module(f"ppw.cli.{COMMANDS[cmd_name]}")
        command = getattr(module, f"{cmd_name}_command")
        return command if isinstance(command, click.Command) else None


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: ppw demo --runs runs.csv; ppw project runs.csv --freq 3.0GHz",
)
@click.version_option(package_version(), prog_name="ppw")
@out.completion_option
def main() -> None:
    """From a few measured runs to the time, watts and dollars at another frequency.

    A runs table (CSV, Parquet or JSON lines; - is standard input) has one row a run, with columns
    such as host, workload, freq_ghz, time_s, power_w.
    """


def console() -> None:
    """Run the command line and exit: 0 done, 1 bad data, 2 wrong usage, 3 a check failed."""
    out.open_closed_streams()
    out.answer_shells()
    # It tells where it keeps its cache on a machine whose home cannot be written to.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        # What a terminal's encoding lacks is spelt out: no result is lost to a dash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    out.say_why_it_waits()
    try:
        with out.closing_first():
            # click's own handling would end the process before what is open is closed.
            code = main(prog_name="ppw", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        shown = io.StringIO()
        error.show(shown)
        click.echo(printable_lines(shown.getvalue()), err=True, nl=False)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader has gone, as `head` does: nobody is left to tell.
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        if not out.report_error(error):
            raise
        _drop_unwritten()
        sys.exit(1)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_unwritten() -> None:
    """Close a standard output that takes nothing more, so that the interpreter need not try."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
