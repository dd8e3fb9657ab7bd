"""Requests to a file of ppw's own: of a trace that was read, or one that is generated."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.cli.output import refuse_an_input, say
from ppw.estimate import shown

if TYPE_CHECKING:
    from measurements.traces.writing import NamedRequests


def write_requests(trace: NamedRequests, output: str) -> None:
    """Write requests as Parquet or CSV, by the output's ending, and say how many there were."""
    from measurements.traces import write_trace

    refuse_an_input(output)
    requests, last_s = write_trace(trace, output)
    # In a closed loop they have no times of their own.
    within = f" in {shown(last_s, 's')}" if last_s == last_s else ""
    say(f"{requests} requests{within} written to {output}")
