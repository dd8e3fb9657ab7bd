"""Jobs in one process, by Hadoop's local runner: no cluster, no network, one JVM a job."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

from measurements.workloads.hadoop.configuration import (
    java_options,
    local_properties,
    write_configuration,
)
from measurements.workloads.hadoop.engine import check_room, do, within
from measurements.workloads.hadoop.inputs import make_texts, room_needed, row_sizes, text_sizes
from measurements.workloads.hadoop.jobs import Setting, example_arguments, job_properties
from measurements.workloads.hadoop.local_log import read_local_log

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from measurements.workloads.hadoop.engine import OwnHadoop
    from measurements.workloads.hadoop.history import Job

EXAMPLES = "org.apache.hadoop.examples.ExampleDriver"
_MIB = 2**20
_DEFAULT_TASK_BYTES = 1024 * _MIB
# Share of a task's memory that is its heap, as Hadoop takes it on a cluster.
_HEAP_SHARE = 0.8
# For what the process has beside its tasks.
_OWN_BYTES = 256 * _MIB


class Local:
    """An engine of one process a job; a task slot is a thread of it.

    Parameters
    ----------
    own : OwnHadoop
    """

    mode = "local"

    def __init__(self, own: OwnHadoop) -> None:
        self._own = own
        self._conf = own.scratch / "conf"
        self._work = own.scratch / "work"
        self._target = own.scratch / "output"
        self._sources: dict[tuple[str, int | None], Path] = {}
        self._work.mkdir()
        write_configuration(self._conf, local_properties(own.scratch))

    def prepare(self, settings: Sequence[Setting]) -> None:
        """Make the inputs of all settings."""
        own = self._own
        check_room(own.scratch, room_needed(settings))
        texts = make_texts(own.scratch, text_sizes(settings), seed=own.seed)
        for size, path in texts.items():
            self._sources |= {("wordcount", size): path, ("sort", size): path}
        for size in row_sizes(settings):
            path = own.scratch / f"rows-{size}"
            setting = Setting("teragen", size, 1, None, None, None)
            do(
                self._run(setting, "", str(path)),
                log=own.scratch / "teragen.log",
                environment=own.environment(),
                what=f"making {size / 1e6:g} MB of rows with teragen",
            )
            self._sources["terasort", size] = path

    def command(self, setting: Setting) -> list[str]:
        """What runs one job."""
        shutil.rmtree(self._target, ignore_errors=True)
        for folder in ("local", "staging", "tmp"):
            shutil.rmtree(self._own.scratch / folder, ignore_errors=True)
        source = self._sources.get((setting.workload, setting.data_bytes), "")
        return self._run(setting, str(source), str(self._target))

    def environment(self) -> dict[str, str]:
        """Environment of the commands."""
        return self._own.environment()

    def starts(self, output: Path) -> None:
        """Nothing needs to be known of it."""

    def job(self, setting: Setting, output: Path) -> Job:
        """What the last job did, from its log."""
        return read_local_log(output, slots=max(setting.map_slots or 1, setting.reduce_slots or 1))

    def close(self) -> None:
        """Its files are the reaper's to remove."""

    def _run(self, setting: Setting, source: str, target: str) -> list[str]:
        own = self._own
        properties = job_properties(setting, local=True, reduces=own.reduces, more=own.properties)
        arguments = example_arguments(setting, properties, source, target, reduces=own.reduces)
        command = [
            *(own.java.program, *java_options(self._conf), f"-Xmx{_heap_mb(setting)}m"),
            # The native part of snappy is unpacked there.
            f"-Djava.io.tmpdir={self._work}",
            *("-cp", f"{self._conf}:{own.jars}/*", EXAMPLES, *arguments),
        ]
        return within(self._work, command)


def _heap_mb(setting: Setting) -> int:
    slots = max(setting.map_slots or 1, setting.reduce_slots or 1)
    task = setting.task_memory_bytes or _DEFAULT_TASK_BYTES
    return int(_HEAP_SHARE * task * slots + _OWN_BYTES) // _MIB
