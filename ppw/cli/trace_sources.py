"""Options of the commands that read block traces: format, columns, device models."""

from __future__ import annotations

from json import JSONDecodeError
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from ppw.cli.options import all_of, map_option
from ppw.errors import PpwError

if TYPE_CHECKING:
    from measurements.traces import Trace
    from ppw.traces.model import TraceModel

_FIT = "make one with: ppw trace fit TRACE --format json -o MODEL"


class DeviceModel(click.ParamType[str]):
    """A device model: disk, or ssd,units=16,read=70us."""

    name = "DEVICE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> str:
        """Return the text, which has been read once."""
        from ppw.traces.devices import parse_device

        try:
            parse_device(str(value))
        except PpwError as error:
            self.fail(str(error), param, ctx)
        return str(value)


trace_options = all_of(
    click.option(
        "--trace-format", metavar="FORMAT", help="Of the trace, where the guess is wrong."
    ),
    map_option("Read a header of a CSV or Parquet as a column of ppw's", "time_ms=t"),
)


def read(path: str, trace_format: str | None, mapping: dict[str, str]) -> Trace:
    """Open a trace named on the command line."""
    from measurements.traces import read_trace

    if trace_format is None and is_model(path):
        raise PpwError(
            f"{path}: is a model, no trace: make one of it with ppw trace generate {path} -o TRACE"
        )
    return read_trace(path, format=trace_format, mapping=mapping or None)


def is_model(path: str) -> bool:
    """Whether a file holds a fitted model, not a trace."""
    if not Path(path).is_file():
        # blktrace's files go by a base name that is no file.
        return False
    with Path(path).open("rb") as file:
        return file.read(4096).lstrip().startswith(b"{")


def model_of(path: str) -> TraceModel:
    """Read a fitted model. Raises `PpwError` where there is none, with how to make one."""
    from ppw.traces.model import TraceModel

    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise PpwError(f"{path}: {error.strerror or error}: {_FIT}") from error
    except UnicodeDecodeError as error:
        raise PpwError(f"{path} is no model: {_FIT}") from error
    if not text.lstrip().startswith("{"):
        raise PpwError(f"{path} is no model: {_FIT}")
    try:
        return TraceModel.from_json(text)
    except PpwError as error:
        reason = error.__cause__ if isinstance(error.__cause__, JSONDecodeError) else error
        raise PpwError(f"{path} is no model: {reason}; {_FIT}") from error
