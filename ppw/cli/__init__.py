"""The command line: `ppw COMMAND …`."""

from __future__ import annotations

import io
import logging
import os
import sys

import click

from ppw.cli.commands import Commands
from ppw.cli.completion import answer_shells, completion_option
from ppw.cli.output import open_closed_streams, report_error, say_why_it_waits
from ppw.cli.termination import closing_first
from ppw.names import printable_lines
from ppw.result import package_version


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: ppw demo --runs runs.csv; ppw project runs.csv --freq 3.0GHz",
)
@click.version_option(package_version(), prog_name="ppw")
@completion_option
def main() -> None:
    """From a few measured runs to the time, watts and dollars at another frequency.

    A runs table (CSV, Parquet or JSON lines; - is standard input) has one row a run, with columns
    such as host, workload, freq_ghz, time_s, power_w.
    """


def console() -> None:
    """Run the command line and exit: 0 done, 1 bad data, 2 wrong usage, 3 a check failed."""
    open_closed_streams()
    answer_shells()
    # It tells where it keeps its cache on a machine whose home cannot be written to.
    logging.getLogger("matplotlib").setLevel(logging.ERROR)
    for stream in (sys.stdout, sys.stderr):
        # What a terminal's encoding lacks is spelt out: no result is lost to a dash.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    say_why_it_waits()
    try:
        with closing_first():
            code = main(prog_name="ppw", standalone_mode=False)
    except click.exceptions.Abort:
        sys.exit(130)
    except click.ClickException as error:
        said = io.StringIO()
        error.show(said)
        click.echo(printable_lines(said.getvalue()), err=True, nl=False)
        sys.exit(error.exit_code)
    except BrokenPipeError:
        # The reader has gone, as `head` does: nobody is left to tell.
        sys.stderr.close()
        sys.exit(1)
    except Exception as error:
        if not report_error(error):
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
