"""Opening what the runs of a service need: session, sensors, counters, and who cleans up."""

from __future__ import annotations

import json
import shutil
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

from measurements.machine import Machine
from measurements.session import Session
from measurements.workloads.reaper import Reaper
from measurements.workloads.service_run import ServiceRuns
from ppw.errors import PpwError
from ppw.measuring import (
    HostOptions,
    folder_and_session,
    open_sampling,
    refuse_or_note,
    sampled_channels,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import pandas as pd

    from measurements.sampling import Sampling
    from measurements.workloads.service_run import ServiceOptions

_ELSEWHERE = "the service runs on another host"
_REMOTE_POWER = f"power: {_ELSEWHERE}: name a source that reads it, as in --power ipmi@bmc-7"


class Rows(Protocol):
    """A sweep whose runs come one by one."""

    def run(self) -> Iterator[dict[str, Any]]:
        """Measure; one row a run."""

    @property
    def runs_in_table(self) -> int:
        """Rows that there will be."""


@dataclass(frozen=True)
class Running:
    """Runs that are set up, and where their table goes."""

    runs: ServiceRuns
    output: Path

    def write(self, table: pd.DataFrame) -> None:
        """Write the table, whole or not at all."""
        from measurements import write_runs

        write_runs(table, self.output)

    def take(
        self,
        sweep: Rows,
        table: Callable[[Session], pd.DataFrame],
        show_progress: Callable[[int, int, str], None],
    ) -> pd.DataFrame:
        """Run a sweep to its end, with the table written anew after every run.

        Parameters
        ----------
        sweep : Rows
        table : callable
            Makes the table of the session's records.
        show_progress : callable
            Takes the number of runs done, that of all, and the workload.

        Returns
        -------
        pandas.DataFrame
            The table that was written.
        """
        for done, row in enumerate(sweep.run(), start=1):
            self.write(table(self.runs.session))
            show_progress(done, sweep.runs_in_table, str(row["workload"]))
        found = table(self.runs.session)
        self.write(found)
        return found


@contextmanager
def running(
    options: ServiceOptions,
    host: HostOptions,
    output: Path,
    *,
    workload: dict[str, Any],
    is_local: bool = True,
    resume: bool = False,
    counters: bool = True,
    tell: Callable[[str], None] = print,
) -> Iterator[Running]:
    """Open session, machine and sensors; all is closed and cleaned up when left.

    Parameters
    ----------
    options : ServiceOptions
    host : HostOptions
        Only what its ``metrics`` name must be measurable.
    output : Path
        Of the runs table; its raw readings go beside it.
    workload : dict
        What is asked of the workload, kept in the session's plan; a sweep that goes on must ask
        the same.
    is_local : bool
        Whether the service is on this host; if not, no sensor of this one is tried.
    resume, counters : bool
    tell : callable
        Takes one line of text for the user.

    Raises
    ------
    MeasurementError, SensorError
        When what was asked for cannot be measured, set or written.
    PpwError
        When the table is there already, or a sweep that goes on is another one.
    """
    folder, session = folder_and_session(output, resume=resume)
    if session is not None and session.plan.get("asked") != _plain(workload):
        raise PpwError(f"{folder}: another workload was asked for: give the same, or another -o")
    missing: list[str] = []
    machine = Machine.open(
        frequencies=options.frequencies,
        turbo=host.turbo,
        counters=counters and is_local,
        sysfs=Path(host.sysfs),
        procfs=Path(host.procfs),
    )
    try:
        if machine.no_counters is not None:
            reason = machine.no_counters if is_local else f"{_ELSEWHERE}: count there"
            refuse_or_note("cpi", reason, host, missing)
        sampling = _sampling(host, is_local, missing)
        try:
            session = session or Session.create(folder, _plan(options, host, sampling, workload))
            for text in missing:
                tell(f"not measured here: {text}")
            with Reaper() as reaper:
                runs = ServiceRuns(options, session, machine, sampling, reaper, tell)
                yield Running(runs, output)
        except BaseException:
            # Where nothing was measured, nothing is in the way of another try.
            if session is not None and not session.records():
                shutil.rmtree(session.folder, ignore_errors=True)
            raise
        finally:
            sampling.close()
    finally:
        machine.close()


def _sampling(host: HostOptions, is_local: bool, missing: list[str]) -> Sampling:
    if not is_local and host.power is None:
        missing.append(_REMOTE_POWER)
        return open_sampling(replace(host, power="none"), [])
    return open_sampling(host, missing)


def _plan(
    options: ServiceOptions, host: HostOptions, sampling: Sampling, workload: dict[str, Any]
) -> dict[str, Any]:
    return {
        "host": options.host,
        "family": options.family,
        "workload": None,
        "data_bytes": None,
        "price": options.price,
        "options": asdict(options),
        "host_options": asdict(host),
        "asked": _plain(workload),
        "channels": sampled_channels(sampling),
    }


def _plain(workload: dict[str, Any]) -> dict[str, Any]:
    """As JSON gives it back."""
    plain: dict[str, Any] = json.loads(json.dumps(workload))
    return plain
