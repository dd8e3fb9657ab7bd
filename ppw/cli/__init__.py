"""The command line: `ppw COMMAND …`."""

from __future__ import annotations

import importlib
import io
import logging
import os
import signal
import sys
import tempfile
import threading
import traceback
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import FrameType
from typing import ClassVar

import click
from click import shell_completion as shells

from measurements.table import memory_budget
from measurements.table.headers import nearest
from ppw.cli import options as opt, output as out
from ppw.errors import CaveatWarning, PpwError
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
        """Find the command of the arguments. Raises `click.UsageError` with the nearest name."""
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
        spellings = {*option.opts, getattr(option, "former", "")}
        if sum(map(typed.count, spellings)) > 1:
            name = option.opts[0]
            raise click.UsageError(
                f"{name} is given more than once: give it once, several values as {name} A,B", ctx
            )


# The commands by the module of `ppw.cli` that has them.
_MODULES = {
    "catalogue": ("datasets", "demo", "hosts"),
    "fleet": ("fleet",),
    "measuring": ("measure", "sample", "sensors"),
    "pressure": ("colocate", "cpio", "knee", "pressure", "rightsize", "size"),
    "run": ("run",),
    "runs_tables": (
        *("best", "calibrate", "characterise", "check", "compare", "fit", "import", "pathlength"),
        *("plan", "powerload", "procure", "project", "validate"),
    ),
    "trace": ("trace",),
}
COMMANDS = dict(sorted((name, module) for module, names in _MODULES.items() for name in names))
# What `ppw --help` lists, by section. The other commands are spellings of before.
SECTIONS = {
    "Ask": ("project", "best", "compare", "plan", "validate", "check", "fit"),
    "Buy": ("procure", "hosts"),
    "Measure": ("measure", "sample", "run", "import", "calibrate"),
    "Logs": ("pressure", "cpio"),
    "Storage": ("trace",),
    "Data": ("fleet", "datasets", "demo"),
}
# Commands that answer for an option of another one, by its value; "" is any other value, and a
# name alone stands for a flag.
_ANSWER_FOR: dict[tuple[str, str], str | dict[str, str]] = {
    ("fit", "--over"): {"load": "powerload", "data": "pathlength", "": "knee"},
    ("pressure", "--for"): {"sharing": "colocate", "sizing": "rightsize"},
    ("compare", "--details"): "characterise",
    ("measure", "--list-sensors"): "sensors",
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

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Find the command of the arguments, which may be that of an option in them."""
        title, answers, rest = choose_answer(args)
        found = super().resolve_command(ctx, [answers, *rest] if answers else args)
        return (title, *found[1:]) if answers else found

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands by section."""
        for title, names in SECTIONS.items():
            found = ((name, self.get_command(ctx, name)) for name in names)
            listed = [(name, command.get_short_help_str(70)) for name, command in found if command]
            with formatter.section(title):
                formatter.write_dl(listed)


def choose_answer(args: list[str]) -> tuple[str, str, list[str]]:
    """Find an option that another command answers for: usage, that command, and its arguments."""
    typed = args[: args.index("--")] if "--" in args else args
    for (name, option), answers in _ANSWER_FOR.items():
        places = [i for i, word in enumerate(typed) if word.partition("=")[0] == option]
        if typed[:1] != [name] or not places:
            continue
        at = places[0]
        if isinstance(answers, str):
            return f"{name} {option}", answers, [*args[1:at], *args[at + 1 :]]
        _, equals, value = typed[at].partition("=")
        end = at + 1 if equals else at + 2
        value = value if equals else "".join(typed[at + 1 : at + 2])
        if value and value in answers:
            return f"{name} {option} {value}", answers[value], [*args[1:at], *args[end:]]
        return name, answers.get("", ""), args[1:]
    return "", "", args


# Tab completion: the scripts that shells load, and file names where ppw knows nothing better.
VARIABLE = "_PPW_COMPLETE"


class _OrFiles(shells.ShellComplete):
    def get_completions(self, args: list[str], incomplete: str) -> list[shells.CompletionItem[str]]:
        """Complete as click does; where that finds nothing after a command, complete file names."""
        found = super().get_completions(args, incomplete)
        if found or not args or incomplete.startswith("-"):
            return found
        return [shells.CompletionItem(incomplete, type="file")]


SHELLS: dict[str, type[shells.ShellComplete]] = {
    shell.name: type(shell.__name__, (_OrFiles, shell), {})
    for shell in (shells.BashComplete, shells.ZshComplete, shells.FishComplete)
}


def _print_completion_script(ctx: click.Context, param: click.Parameter, shell: str | None) -> None:
    if shell is None or ctx.resilient_parsing:
        return
    click.echo(SHELLS[shell](ctx.command, {}, "ppw", VARIABLE).source())
    ctx.exit()


# Option that prints the script of a shell and does nothing else.
completion_option = click.option(
    "--completion",
    type=opt.OneOf(list(SHELLS)),
    expose_value=False,
    is_eager=True,
    callback=_print_completion_script,
    help='Print tab completion for a shell; in its start-up file: eval "$(ppw --completion '
    'bash)", or zsh; for fish: ppw --completion fish | source.',
)


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: ppw demo --runs runs.csv; ppw project runs.csv --freq 3.0GHz",
)
@click.version_option(package_version(), prog_name="ppw")
@completion_option
@click.option(
    "--max-memory",
    type=opt.SiQuantity("bytes", positive=True),
    metavar="SIZE",
    help="Memory that reading one file may take: 8GiB. Default: half of the machine's.",
)
def main(max_memory: float | None) -> None:
    """Predict time, power and cost at another core frequency from a few measured runs.

    A runs table (CSV, Parquet or JSON lines; - is standard input) has one row per run, with columns
    like host, workload, freq_ghz, time_s, power_w.
    """
    memory_budget.set_budget(max_memory)


def console() -> None:
    """Run the command line and exit: 0 done, 1 bad data, 2 wrong usage, 3 a check failed.

    A fault of ppw itself is 70, as in sysexits.h; the file that tells of it is named.
    """
    open_closed_streams()
    for name, shell in SHELLS.items():
        shells.add_completion_class(shell, name)
    # It tells where it keeps its cache on a machine whose home cannot be written to.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        # What a terminal's encoding lacks is spelt out: no result is lost to a dash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    announce_compilation()
    if not sys.warnoptions:
        # What libraries warn of is ours to handle; caveats are printed with the results.
        warnings.simplefilter("ignore")
        warnings.simplefilter("default", CaveatWarning)
    try:
        with closing_first():
            # click's own handling would end the process before what is open is closed.
            code = main(prog_name="ppw", standalone_mode=False)
    except (click.exceptions.Abort, KeyboardInterrupt):
        # A second Ctrl-C has nothing left to end but Python's own way out.
        signal.signal(signal.SIGINT, signal.SIG_IGN)
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
        code = 1 if report_error(error) else _report_fault(error)
        _drop_unwritable_output()
        sys.exit(code)
    sys.exit(code if isinstance(code, int) else 0)


def _drop_unwritable_output() -> None:
    """Flush standard output; where that fails, send the rest of it to the null device."""
    try:
        sys.stdout.flush()
    except OSError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def announce_compilation() -> None:
    """Print on a terminal that loops are being compiled, which delays the first start."""
    compiling = logging.getLogger("fitting.compiled.loops")
    if sys.stderr.isatty() and not compiling.handlers:
        handler = logging.StreamHandler()
        handler.setFormatter(logging.Formatter("ppw: %(message)s"))
        compiling.addHandler(handler)
        compiling.setLevel(logging.INFO)


def open_closed_streams() -> None:
    """Open the null device for each standard stream that was closed at the start.

    Python has none for them, and the next file that is opened would get their number.
    """
    for name, flags, mode in (
        ("stdin", os.O_RDONLY, "r"),
        # What is written to a stream without an end is an error, as with `>&-` in a shell.
        ("stdout", os.O_RDONLY, "w"),
        ("stderr", os.O_WRONLY, "w"),
    ):
        if getattr(sys, name) is None:
            number = os.open(os.devnull, flags)
            stream = open(number, mode, encoding="utf-8", closefd=False)  # noqa: SIM115
            setattr(sys, name, stream)


def report_error(error: Exception) -> bool:
    """Print an expected error in one line and return True; return False for any other error."""
    if not isinstance(error, (PpwError, OSError, MemoryError)):
        return False
    reason = str(error)
    if isinstance(error, MemoryError):
        reason = f"not enough memory: {reason or 'give less data at once'}"
    if isinstance(error, OSError):
        named = f"{error.filename}: " if error.filename else ""
        reason = f"{named}{error.strerror or error}"
    out.say(f"error: {reason}")
    return True


def _report_fault(error: Exception) -> int:
    """Print a fault of ppw in one line, write its traceback to a file and return 70."""
    details = "".join(traceback.format_exception(error))
    where = "no folder takes a report"
    with suppress(OSError):
        handle, path = tempfile.mkstemp(prefix="ppw-report-", suffix=".txt")
        with os.fdopen(handle, "w", encoding="utf-8", errors="backslashreplace") as file:
            file.write(f"ppw {package_version()}, Python {sys.version}\n{sys.argv}\n{details}")
        where = f"send {path} to the authors"
    out.say(f"error: a fault of ppw itself ({type(error).__name__}: {str(error)[:200]}): {where}")
    return os.EX_SOFTWARE


# SIGTERM and SIGHUP as ways out on which everything is closed, and only then the process ends.
#
# By default either ends Python at once: a command that is being measured would run on by itself.
_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class TerminationSignal(BaseException):
    """A signal to end has come; no `Exception`, so that nothing but closing stands in its way."""


@contextmanager
def closing_first() -> Iterator[None]:
    """Raise inside the block at the first signal to end, then end the process by that signal.

    A signal that is ignored, as under nohup, stays so. A second one changes nothing: what is being
    put back is put back. A copy of this process ends at once, as ever.
    """
    # Elsewhere Python takes no handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, came = os.getpid(), list[int]()

    def interrupt(number: int, frame: FrameType | None) -> None:
        came.append(number)
        raise KeyboardInterrupt

    def raise_at_first_signal(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            _kill_self_by_signal(number)
        came.append(number)
        if len(came) == 1:
            raise TerminationSignal

    taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, raise_at_first_signal)
    is_default = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    if is_default:
        signal.signal(signal.SIGINT, interrupt)
    try:
        yield
    except TerminationSignal:
        _kill_self_by_signal(came[0])
    except Exception as error:
        # A library may make an error of its own of a signal, as DuckDB does.
        ended = set(came) - {signal.SIGINT}
        if not came or (not ended and isinstance(error, (PpwError, OSError, click.ClickException))):
            raise
        if not ended:
            raise KeyboardInterrupt from error
        _kill_self_by_signal(ended.pop())
    finally:
        if is_default:
            signal.signal(signal.SIGINT, signal.default_int_handler)
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _kill_self_by_signal(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
