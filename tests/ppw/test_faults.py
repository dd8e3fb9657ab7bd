"""Every n-th open, rename, sync and start of a process fails: old or new files, and one line.

Every n in the slow run, some where a command is slow in that of each day.
"""

import contextlib
import errno
import io
import os
import resource
import shutil
import signal
import subprocess
from pathlib import Path
from unittest import mock

import pytest
from processes import ppw_inside, worked
from seeds import saved

import ppw
from measurements import MeasurementError, read_runs
from measurements.power.rapl import not_permitted
from measurements.sweep.measure import HostSensor
from measurements.sweep.session import Session, ended_before_plan
from measurements.table.writing import replace_whole
from ppw.cli.measuring import _sensors_text

RUNS = "host,workload,freq_ghz,time_s,power_w\n" + "".join(
    f"h,w,{freq},{30 / freq + k / 100},{40 * freq}\n" for freq in (1.2, 1.8, 2.4) for k in (0, 1)
)
FULL = os.strerror(errno.ENOSPC)
PROJECT = ("project", "runs.csv", "--freq", "3GHz", "-o")
TRACE = "".join(f"{10**17 + k * 50_000},h,1,Read,{k * 4096},4096,90\n" for k in range(9))
COMMANDS = {
    "document": (*PROJECT, "out.json", "--format", "json"),
    "fit": ("trace", "fit", "t.csv", "--format", "json", "-o", "out.model.json"),
    "convert": ("trace", "convert", "t.csv", "-o", "out.parquet"),
    "update": ("fleet", "update", "s.state", "more.csv"),
    "generate": ("trace", "generate", "m.json", "--duration", "1s", "-o", "out.csv"),
    "report": (*PROJECT, "out.csv"),
    "count": ("run", "count", "-o", "out.csv", "--", "true"),
    "sample": ("sample", "--every", "0.05s", "-o", "out.csv", "--", "true"),
    "sample-parquet": ("sample", "--every", "0.05s", "-o", "out.parquet", "--", "true"),
    "measure": (
        *("measure", "--as-found", "--metric", "time", "--power", "none", "--idle", "0"),
        *("--settle", "0", "--repeats", "2", "-o", "out.csv", "--", "true"),
    ),
}
# These write their rows as they come.
ROWS = ("sample", "sample-parquet")
# Steps from one n to the next, where all take long.
STEPS = {"measure": 13, "count": 4, "update": 4}
# Instructions are counted by a program that not every machine has.
MARKS = {"count": [pytest.mark.peer("instructions")]}
EACH = [
    *(pytest.param(n, STEPS.get(n, 1), marks=MARKS.get(n, ())) for n in COMMANDS),
    *(pytest.param(n, 1, marks=[pytest.mark.slow, *MARKS.get(n, ())]) for n in STEPS),
]


@contextlib.contextmanager
def failing(number, folder):
    """Let the n-th call that changes something in a folder fail, as on a full disk.

    Yields the names of the calls that came.
    """
    calls = []

    def watch(owner, name, changes):
        real = getattr(owner, name)

        def call(*args, **options):
            if changes(*args, **options):
                calls.append(name)
                if len(calls) == number:
                    raise OSError(errno.ENOSPC, FULL)
            return real(*args, **options)

        return mock.patch.object(owner, name, call)

    def inside(path, *_, dir_fd=None, **__):
        base = Path.cwd() if dir_fd is None else Path(f"/proc/self/fd/{dir_fd}").readlink()
        return not isinstance(path, int) and (base / path).is_relative_to(folder)

    def writes(path, mode="r", *_, **__):
        return not isinstance(mode, str) or (bool(set(mode) & set("wax+")) and inside(path))

    def opens(path, flags, *_, dir_fd=None, **__):
        return bool(flags & (os.O_WRONLY | os.O_RDWR)) and inside(path, dir_fd=dir_fd)

    with contextlib.ExitStack() as stack:
        for name in ("mkdir", "rename", "replace", "truncate"):
            stack.enter_context(watch(os, name, inside))
        for name in ("fsync", "ftruncate", "fork"):
            stack.enter_context(watch(os, name, lambda *_: True))
        stack.enter_context(watch(os, "open", opens))
        stack.enter_context(watch(io, "open", writes))
        stack.enter_context(watch(subprocess.Popen, "__init__", lambda *_, **__: True))
        yield calls


@contextlib.contextmanager
def files_of_at_most(size):
    """Let every write beyond so many bytes of a file fail, also those of compiled libraries."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, handler)


def outputs(folder):
    """Contents of what commands write; of a state what it says of itself."""
    found = {path.name: path.read_bytes() for path in folder.glob("out.*") if path.is_file()}
    manifest = folder / "s.state" / "manifest.json"
    return found | ({"state": manifest.read_bytes()} if manifest.exists() else {})


@pytest.fixture
def folder(tmp_path):
    (tmp_path / "runs.csv").write_text(RUNS)
    (tmp_path / "more.csv").write_text(RUNS.replace("h,", "g,"))
    (tmp_path / "t.csv").write_text(TRACE)
    (tmp_path / "m.json").write_bytes(saved("trace_model")[0])
    return tmp_path


@pytest.mark.parametrize(("name", "every"), EACH)
def test_each_step_may_fail(name, every, folder):
    if name == "update":
        worked(ppw_inside("fleet", "update", "base", "runs.csv", cwd=folder))
    for number in range(1, 60, every):
        for left in folder.glob("out.*"):
            shutil.rmtree(left) if left.is_dir() else left.unlink()
        if name == "update":
            shutil.rmtree(folder / "s.state", ignore_errors=True)
            shutil.copytree(folder / "base", folder / "s.state")
        before = outputs(folder)
        with failing(number, folder) as calls:
            done = ppw_inside(*COMMANDS[name], cwd=folder)
        if len(calls) < number:
            break
        # What is tidied after all is written may fail in silence.
        if done.returncode or outputs(folder) == before:
            assert done.returncode == 1, calls
            said = done.stderr.splitlines()[-1]
            assert said.startswith("ppw: error: "), said
            assert FULL in said, calls
        assert "Traceback" not in done.stderr
        assert not [*folder.glob(".part-*")]
        if name == "measure" and done.returncode:
            # The next one goes on, or begins anew where nothing was measured.
            if "--resume" in (again := ppw_inside(*COMMANDS[name], cwd=folder)).stderr:
                again = ppw_inside("measure", "--resume", *COMMANDS[name][1:], cwd=folder)
            worked(again)
            assert len(read_runs(folder / "out.csv")["repeat"].unique()) == 2
    assert number > 2
    assert done.returncode == 0


# Under the limit valgrind, which counts, writes nothing.
@pytest.mark.parametrize("name", [name for name in COMMANDS if name != "count"])
def test_a_full_disk_leaves_what_was_there(name, folder):
    if name == "update":
        worked(ppw_inside("fleet", "update", "s.state", "runs.csv", cwd=folder))
    (folder / "out.json").write_text("{}")
    before = outputs(folder)
    with files_of_at_most(60):
        done = ppw_inside(*COMMANDS[name], cwd=folder)
    assert done.returncode == 1
    assert os.strerror(errno.EFBIG) in done.stderr.splitlines()[-1]
    written = [word for word in COMMANDS[name] if word.startswith(("out.", "s.state"))]
    assert any(word in done.stderr.splitlines()[-1] for word in written)
    if name in ROWS:
        (rows,) = folder.glob("out.*[vl]")
        assert rows.stat().st_size == 60
    else:
        assert outputs(folder) == before
    assert not [*folder.glob(".part-*")]


def test_a_session_keeps_whole_runs_whichever_step_fails(tmp_path):
    for number in range(1, 30):
        home, kept = tmp_path / str(number), 0
        with failing(number, home) as calls, contextlib.suppress(MeasurementError):
            session = Session.create(home, {})
            for run in range(2):
                session.append({"run": run})
                kept += 1
        if len(calls) < number:
            break
        if (home / "runs.jsonl").exists():
            # One that was written and not confirmed may be there.
            assert len(Session.open(home).records()) in (kept, kept + 1)
        else:
            assert kept == 0
    assert number > 3


def test_a_sweep_that_was_killed_before_its_plan_begins_anew(tmp_path):
    Session.create(tmp_path / "s", {})
    assert not ended_before_plan(tmp_path / "s")
    for left in ("", '{"schema_ver'):
        (tmp_path / "s" / "plan.json").write_text(left)
        assert ended_before_plan(tmp_path / "s")


def test_scratch_of_killed_processes_is_swept(tmp_path):
    child = subprocess.Popen(["true"])
    child.wait()
    own, other = os.uname().nodename, ".part-elsewhere-12-x"
    for name in (f".part-{own}-{child.pid}-x", f".part-{own}-{os.getpid()}-x", other):
        (tmp_path / name).mkdir()
    with replace_whole(tmp_path / "table.csv") as scratch:
        scratch.write_text("new")
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(
        ["table.csv", f".part-{own}-{os.getpid()}-x", other]
    )


def test_a_signal_that_a_library_takes_for_an_error_of_its_own_ends_ppw(monkeypatch, capsys):
    def busy(**_):
        # As DuckDB does while it runs a query.
        with contextlib.suppress(KeyboardInterrupt):
            os.kill(os.getpid(), signal.SIGINT)
        raise RuntimeError("Query interrupted")

    monkeypatch.setattr(ppw.cli, "main", busy)
    with pytest.raises(SystemExit) as ended:
        ppw.cli.console()
    signal.signal(signal.SIGINT, signal.default_int_handler)
    assert ended.value.code == 130
    assert capsys.readouterr().err == ""


def test_sensors_print_the_rule_by_which_power_is_read_without_root():
    away = HostSensor("rapl", False, not_permitted(Path("/sys/a/energy_uj"), Path("/sys")))
    assert "/etc/udev/rules.d/60-ppw.rules" in _sensors_text([away])
    assert "udev" not in _sensors_text([HostSensor("rapl", False, "no such folder")])
