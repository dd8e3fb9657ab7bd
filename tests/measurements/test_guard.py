"""Two processes beside ppw: the guard puts settings back, the other cleans up, however ppw ends."""

import fcntl
import itertools
import json
import os
import pty
import resource
import signal
import subprocess
import sys
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import pytest
from peers.waiting import FakeClock, is_running, wait_for

from measurements.errors import MeasurementError
from measurements.processes import cleanup_process, settings_guard as sg
from measurements.processes.cleanup_process import CleanupProcess
from measurements.processes.helper_process import HelperProcess

ENVIRONMENT = {**os.environ, "PYTHONPATH": str(Path(__file__).resolve().parents[2])}
DEADLINE_S, US = 60.0, os.geteuid()
KILL = pytest.mark.peer("kill")
# The guard of a kernel before Linux 5.3.
WITHOUT_PROCESS_DESCRIPTORS = """
from measurements.processes import helper_process
helper_process._START = (
    "import os\\ndef none(pid): raise OSError\\nos.pidfd_open = none\\n" + helper_process._START
)
"""

# A process that changes two settings and then does what it is told.
CHANGES = """
import os, signal, subprocess, sys, time
from pathlib import Path
from measurements.processes.settings_guard import Guard
# Whatever this was started from may ignore hangups.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

folder = Path(sys.argv[1])
{first}
with Guard(lock=folder, state=folder / "state") as guard:
    guard.change(folder / "one", "changed", was="1")
    guard.change(folder / "two", "changed", was="2")
    def ready(*more):
        os.write(1, (" ".join(map(str, (guard.pid, *more))) + "\\n").encode())
    {then}
"""


class Host:
    """A folder with two settings, and processes that change them."""

    def __init__(self, folder):
        self.folder, self.state = folder, folder / "state"
        self.one, self.two = folder / "one", folder / "two"
        self.state.mkdir(mode=0o700)
        self.one.write_text("1\n")
        self.two.write_text("2\n")

    @property
    def values(self):
        return self.one.read_text().strip(), self.two.read_text().strip()

    @property
    def journals(self):
        return list(self.state.iterdir())

    def restored(self):
        return self.values == ("1", "2") and not self.journals

    def guard(self):
        return sg.Guard(lock=self.folder, state=self.state)

    def restore_leftovers(self):
        with self.guard() as guard:
            return guard.restored

    @contextmanager
    def changed(self, then="ready(); time.sleep(600)", first="", **options):
        """Run a process that has changed the settings; yields it and the numbers that it tells."""
        script = CHANGES.format(then=then, first=first)
        known = {"stdout": subprocess.PIPE, "env": ENVIRONMENT, "start_new_session": True}
        command = [sys.executable, "-c", script, str(self.folder)]
        with subprocess.Popen(command, **known | options) as process:
            try:
                yield process, *map(int, process.stdout.readline().split())
            finally:
                process.kill()


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


def kill(pid):
    os.kill(pid, signal.SIGKILL)
    wait_for(lambda: sg.Process.of(pid) is None)


# Ways to end, and the status that each gives.
WAYS = {
    "raise ValueError('wrong')": 1,
    "os.kill(os.getpid(), signal.SIGKILL)": -signal.SIGKILL,
    "pass": 0,
    "sys.exit(3)": 3,
    "os._exit(4)": 4,
    "os.abort()": -signal.SIGABRT,
    "os.kill(os.getpid(), 2); time.sleep(60)": -signal.SIGINT,
    "os.kill(os.getpid(), signal.SIGTERM)": -signal.SIGTERM,
    "os.kill(os.getpid(), signal.SIGHUP)": -signal.SIGHUP,
    "os.killpg(0, signal.SIGKILL)": -signal.SIGKILL,
}


class TestEveryWayOut:
    @pytest.mark.parametrize(
        "then", [pytest.param(way, marks=KILL if n > 1 else ()) for n, way in enumerate(WAYS)]
    )
    def test_restores(self, host, then):
        code, then = WAYS[then], f"ready(); sys.stdin.read(); {then}"
        with host.changed(then, stdin=subprocess.PIPE, stderr=subprocess.DEVNULL) as (process, _):
            assert host.values == ("changed", "changed")
            process.stdin.close()
            assert process.wait(DEADLINE_S) == code
            wait_for(host.restored)

    @pytest.mark.cases(
        "child",
        # A workload that lives on, with every inheritable descriptor.
        "subprocess.Popen(['sleep', '600'], close_fds=False).pid",
        # A copy of the process, which holds the connection too.
        "os.fork() or time.sleep(600)",
    )
    @pytest.mark.parametrize("first", ["", WITHOUT_PROCESS_DESCRIPTORS], ids=["new", "old"])
    def test_while_a_child_lives_on(self, host, child, first):
        then = f"child = {child}\n    ready(child); time.sleep(600)"
        with host.changed(then, first) as (process, _, child):
            process.kill()
            process.wait(DEADLINE_S)
            try:
                wait_for(host.restored)
                assert is_running(child)
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def test_the_keyboard_stops_ppw_and_not_the_guard(self, host):
        master, terminal = pty.openpty()
        # It leads the terminal's session, as a shell's jobs do.
        leads = "import fcntl, termios; fcntl.ioctl(0, termios.TIOCSCTTY, 0)"
        # Waited for, and not handled: a handler could be called before the sleep begins.
        then = "interrupt = {signal.SIGINT}; signal.pthread_sigmask(signal.SIG_BLOCK, interrupt); "
        then += "ready(); signal.sigwait(interrupt); ready(); time.sleep(600)"
        with host.changed(then, leads, stdin=terminal) as (process, guard):
            os.close(terminal)
            os.write(master, b"\x03")
            # The interrupt came through, and the guard is where it was.
            assert int(process.stdout.readline()) == guard
            assert is_running(guard)
            assert host.values == ("changed", "changed")
            os.close(master)
            # The terminal is closed.
            assert process.wait(DEADLINE_S) == -signal.SIGHUP
            wait_for(host.restored)

    def test_a_forked_copy_that_leaves_the_block_restores_nothing(self, host):
        then = "child = os.fork() or os._exit(len(guard.release()))"
        then += "; ready(os.waitpid(child, 0)[1]); sys.stdin.read()"
        with host.changed(then, stdin=subprocess.PIPE) as (process, _, code):
            assert (code, host.values) == (0, ("changed", "changed"))
            process.stdin.close()
            assert process.wait(DEADLINE_S) == 0
            assert host.restored()


class TestGuardItself:
    def test_it_is_small_stands_apart_and_stays_on_duty(self, host):
        with host.changed() as (process, guard):
            proc = Path(f"/proc/{guard}")
            assert os.getsid(guard) == guard != os.getsid(process.pid)
            # No pipe or terminal of ppw's is held open by it.
            assert {(proc / "fd" / str(n)).readlink() for n in range(3)} == {Path("/dev/null")}
            assert "numpy" not in (proc / "maps").read_text()
            resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
            assert resident < 32 * 2**20
            # As much as any process of this user may outlive others.
            may = "echo -1000 >/proc/$$/oom_score_adj; cat /proc/$$/oom_score_adj"
            told = subprocess.run(["sh", "-c", may], capture_output=True, text=True, check=True)
            assert (proc / "oom_score_adj").read_text() == told.stdout
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                os.kill(guard, number)
            process.kill()
            process.wait(DEADLINE_S)
            wait_for(host.restored)

    def test_what_it_guards_is_on_disk_before_it_is_changed(self, host):
        with host.guard() as guard:
            guard.learn([(host.one, "1"), (host.one, "never")])
            guard.learn([(host.one, "later")])
            lines = [json.loads(line) for line in guard.journal.read_text().splitlines()]
            assert lines[0]["parent"] == list(sg.Process.of(os.getpid()))
            assert lines[1:] == [{"path": str(host.one), "value": "1"}]
            assert guard.journal.stat().st_mode & 0o777 == 0o600
            assert guard._settings == {host.one: sg.HostSetting(host.one, "1")}
            with pytest.raises(MeasurementError, match="no process would restore it"):
                guard.change(host.two, "changed")
        assert host.restored()

    @pytest.mark.parametrize("then", ["checked", "spoken to", "left", "hanging"])
    def test_killed_all_is_put_back_at_once_and_nothing_goes_on(self, host, monkeypatch, then):
        with host.guard() as guard:
            guard.change(host.one, "changed", was="1")
            if then == "hanging":
                os.kill(guard.pid, signal.SIGSTOP)
                monkeypatch.setattr(sg, "_ANSWER_S", 0.05)
            else:
                kill(guard.pid)
            if then != "left":
                with pytest.raises(MeasurementError, match=r"ended \(.*all settings are put back"):
                    guard.check() if then == "checked" else guard.learn([(host.two, "2")])
                assert host.restored()
                with pytest.raises(MeasurementError, match="already restored"):
                    guard.change(host.one, "changed", was="1")
        assert host.restored()

    @pytest.mark.parametrize("action", ["learn", "release"])
    def test_after_an_interrupt_in_between_nothing_goes_on(self, host, monkeypatch, action):
        with host.guard() as guard:
            guard.change(host.one, "changed", was="1")
            arguments = {"learn": [[(host.two, "2")]], "release": []}[action]
            with monkeypatch.context() as patch:
                patch.setattr(HelperProcess, "answer", mock.Mock(side_effect=KeyboardInterrupt))
                with pytest.raises(KeyboardInterrupt):
                    getattr(guard, action)(*arguments)
            # It does not wait for the end of the process.
            wait_for(host.restored)
            with pytest.raises(MeasurementError, match=r"ended \(|already restored"):
                guard.learn([(host.two, "2")])
            guard._helper.process.wait(DEADLINE_S)

    def test_what_cannot_be_put_back_is_told_with_the_remedy(self, host):
        guard = host.guard()
        guard.learn([(Path("/proc/version"), "x"), (host.one, "1")])
        guard.change(host.one, "changed")
        with pytest.raises(MeasurementError, match=r"not put back: /proc/version should be 'x'"):
            guard.__exit__(None, None, None)
        # It is kept for the next start, which does not let it pass either.
        assert "unrestored" in host.journals[0].read_text()
        assert host.values == ("1", "2")
        with pytest.raises(MeasurementError, match=r"killed ppw has left.*then remove .*guard-"):
            host.guard()
        host.journals[0].unlink()
        host.guard().release()

    def test_a_line_that_is_not_on_the_disk_is_taken_back(self, host, monkeypatch):
        me = sg.Process.of(os.getpid())
        journal = sg.Journal(host.state, sg.Owners(sg.boot_id(), me, me, host.folder))
        before = journal.path.read_text()
        monkeypatch.setattr(os, "fsync", mock.Mock(side_effect=OSError(28, "No space left")))
        with pytest.raises(OSError, match="No space"):
            journal.add([sg.HostSetting(host.one, "1")])
        assert journal.path.read_text() == before

    def test_a_full_disk_is_told_and_nothing_changed(self, host):
        with host.guard() as guard:
            size = guard.journal.stat().st_size
            # It ends amid the first line that the guard would write.
            resource.prlimit(guard.pid, resource.RLIMIT_FSIZE, (size + 9, size + 999))
            with pytest.raises(MeasurementError, match=r"changes nothing.*File too large"):
                guard.learn([(host.one, "1")])
            # What was half written is gone again.
            assert guard.journal.stat().st_size == size
            resource.prlimit(guard.pid, resource.RLIMIT_FSIZE, (size + 999, size + 999))
            guard.change(host.one, "changed", was="1")
            assert guard._settings == {host.one: sg.HostSetting(host.one, "1")}
        assert host.restored()


class TestOneAtATime:
    def test_the_second_is_refused_with_the_number_of_the_first(self, host, tmp_path_factory):
        with host.changed() as (process, guard):
            with sg.Guard(lock=tmp_path_factory.mktemp("other"), state=host.state):
                pass
            # Also when the first has lost its guard.
            for end in (lambda pid: None, kill):
                end(guard)
                with pytest.raises(MeasurementError, match=rf"\(process {process.pid}\): wait"):
                    host.guard()
            assert host.values == ("changed", "changed")

    def test_it_waits_three_seconds_for_the_lock(self, host, monkeypatch):
        clock = FakeClock()
        clock.stand_in(monkeypatch, sg)
        me = sg.Process.of(os.getpid())
        held = os.open(host.folder, os.O_RDONLY)
        fcntl.flock(held, fcntl.LOCK_EX)
        with pytest.raises(sg.RefusalError) as refused:
            sg.take(host.folder, host.state, me)
        with pytest.raises(MeasurementError, match=r"already changing .*\(another process"):
            sg._raise_refusal(refused.value.answer, host.folder)
        assert clock.now_s == pytest.approx(1003, abs=0.03)

        def release(seconds):
            fcntl.flock(held, fcntl.LOCK_UN)

        clock.stand_in(monkeypatch, sg, wait=release)
        os.close(sg.take(host.folder, host.state, me))
        os.close(held)


class TestLeftovers:
    @pytest.fixture
    def left(self, host):
        """A host with settings that a killed ppw and its killed guard have left."""
        with subprocess.Popen(["sleep", "60"]) as dead:
            started = sg.Process.of(dead.pid)
            dead.kill()
        journal = sg.Journal(host.state, sg.Owners(sg.boot_id(), started, started, host.folder))
        journal.add([sg.HostSetting(host.one, "1"), sg.HostSetting(host.two, "2")])
        host.one.write_text("changed")
        host.two.write_text("changed")
        host.journal = journal.path
        return host

    def test_the_next_start_puts_them_back_and_says_so(self, left):
        with left.journal.open("a") as file:
            # A line without its end was never acted on.
            file.write(json.dumps({"path": str(left.one), "value": "cut"}))
        before = (left.one, "1"), (left.two, "2")
        assert left.restore_leftovers() == tuple(sg.HostSetting(*of) for of in before)
        assert left.restored()
        assert left.restore_leftovers() == ()

    def test_those_of_an_earlier_boot_are_gone_with_it(self, left):
        left.journal.write_text(left.journal.read_text().replace(sg.boot_id(), "an-earlier-boot"))
        assert left.restore_leftovers() == ()
        assert (left.values, left.journals) == (("changed", "changed"), [])

    def test_those_of_a_host_that_is_gone_go(self, left):
        left.journal.write_text(left.journal.read_text().replace(str(left.folder), "/nowhere"))
        assert left.restore_leftovers() == ()
        assert (left.values, left.journals) == (("changed", "changed"), [])

    @pytest.mark.parametrize("begun", ["", '{"boot": "'])
    def test_what_is_dead_gone_or_only_begun_does_not_keep_the_rest(self, left, begun):
        first, *rest = left.journal.read_text().splitlines()
        said = json.loads(first)
        # A number that another process has now is not its owner.
        said["parent"][0] = os.getpid()
        left.journal.write_text("\n".join([json.dumps(said), *rest, ""]))
        left.two.unlink()
        (left.state / "guard-1-1.jsonl").write_text(begun)
        pid, started = sg.Process.of(os.getpid())
        mine = left.state / f"guard-{pid}-{started}.jsonl"
        mine.touch()
        assert left.restore_leftovers() == (sg.HostSetting(left.one, "1"),)
        # A journal that a living guard has begun stays.
        assert left.journals == [mine]

    def test_a_journal_that_others_could_have_written_is_not_believed(self, left, monkeypatch):
        def foreign():
            monkeypatch.setattr(os, "geteuid", lambda: US + 1)

        def link():
            left.journal.symlink_to(left.journal.rename(left.folder / "moved"))

        def garbage():
            left.journal.write_text("[1, 2]\n")

        believed = left.journal.read_text()
        for harm in (lambda: left.journal.chmod(0o666), link, garbage, foreign):
            assert len(list(sg.journals(left.state))) == 1
            harm()
            assert list(sg.journals(left.state)) == []
            left.journal.unlink()
            left.journal.touch(mode=0o600)
            left.journal.write_text(believed)


class TestStateFolder:
    @pytest.fixture(autouse=True)
    def as_user(self, monkeypatch, tmp_path):
        """No root: only the variables decide."""
        monkeypatch.setattr(sg.tempfile, "gettempdir", lambda: str(tmp_path / "temp"))
        monkeypatch.setattr(sg.os, "access", lambda path, how: path != "/run")
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))

    def test_is_the_hosts_or_of_a_user_the_sessions_or_temporary(self, monkeypatch, tmp_path):
        assert sg.state_folder() == tmp_path / "ppw"
        assert (tmp_path / "ppw").stat().st_mode & 0o777 == 0o700
        monkeypatch.delenv("XDG_RUNTIME_DIR")
        assert sg.state_folder() == tmp_path / "temp" / f"ppw-{os.geteuid()}"
        monkeypatch.setattr(sg, "_make_private_folder", lambda folder: folder)
        monkeypatch.setattr(sg.os, "geteuid", lambda: 0)
        monkeypatch.setattr(sg.os, "access", lambda path, how: path == "/run")
        assert sg.state_folder() == Path("/run/ppw")

    @pytest.mark.parametrize("harm", ["link", "open", "foreign", "file"])
    def test_somebody_elses_is_refused(self, monkeypatch, tmp_path, harm):
        folder = tmp_path / "ppw"
        if harm == "link":
            folder.symlink_to(tmp_path)
        elif harm == "file":
            folder.touch()
        else:
            folder.mkdir()
            folder.chmod(0o777 if harm == "open" else 0o700)
        if harm == "foreign":
            monkeypatch.setattr(os, "geteuid", lambda: US + 1)
        with pytest.raises(MeasurementError, match=str(folder)):
            sg.state_folder()


class TestRestoring:
    def test_limits_never_cross(self):
        for lower, upper, upper_now, first in (
            ("20", "30", "10", "scaling_max_freq"),
            ("5", "30", "10", "scaling_min_freq"),
            ("10", "10", "10", "scaling_min_freq"),
            ("5", "6", None, "scaling_min_freq"),
            ("5", "6", "<unknown>", "scaling_min_freq"),
        ):
            order = sg.limits_in_order(Path("policy0"), lower, upper, upper_now)
            assert order[0].path.name == first
            assert {setting.value for setting in order} == {lower, upper}

    def test_turbo_governor_limits_speed(self, tmp_path, monkeypatch):
        def write(path, value):
            written.append(path)
            path.write_text(value)

        written = []
        monkeypatch.setattr("measurements.processes.settings_guard.write_setting", write)
        names = ("governor", "max_freq", "min_freq", "setspeed")
        in_order = ["cpufreq/boost", "policy0/boost", "intel_pstate/min_perf_pct"]
        in_order += [f"policy0/scaling_{name}" for name in names]
        for name in in_order:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("7")
        wanted = [sg.HostSetting(tmp_path / name, "8") for name in in_order]
        assert sg.restore(wanted[::-1]) == []
        assert [str(path.relative_to(tmp_path)) for path in written] == in_order
        # Only what differs is written, but limits and speed always.
        written.clear()
        assert sg.restore(wanted) == []
        assert {path.name for path in written} == {Path(name).name for name in in_order[-3:]}

    def test_what_does_not_stay_is_tried_three_times(self, tmp_path, monkeypatch):
        file = tmp_path / "no_turbo"
        file.write_text("7")
        clock = FakeClock()
        monkeypatch.setattr(sg, "write_setting", lambda path, value: None)
        clock.stand_in(monkeypatch, sg)
        (left,) = sg.restore([sg.HostSetting(file, "8")])
        assert str(left) == f"{file} should be '8': it is '7'"
        assert len(clock.waits_s) == 2
        clock.stand_in(monkeypatch, sg, wait=lambda seconds: file.write_text("9"))
        assert sg.restore([sg.HostSetting(file, "9")]) == []


# Starts two generations of processes and a folder, says which, and waits.
OWNER = """
import os, subprocess, sys
from measurements.processes.cleanup_process import CleanupProcess
reaper = CleanupProcess()
folder = reaper.folder()
(folder / "data").write_text("x")
child = subprocess.Popen(
    ["sh", "-c", "sleep 1000 & echo $!; exec sleep 1000"],
    env=reaper.environment(), stdout=subprocess.PIPE, text=True, start_new_session=True,
)
print(child.pid, child.stdout.readline().strip(), folder, flush=True)
sys.stdin.read()
number = int(sys.argv[1])
os.kill(os.getpid(), number) if number else sys.exit(3)
"""


class TestCleanup:
    @pytest.mark.parametrize("number", [0, signal.SIGKILL])
    def test_whatever_ends_the_owner_its_processes_end_and_its_folders_go(self, number):
        with subprocess.Popen(
            [sys.executable, "-c", OWNER, str(int(number))],
            env=ENVIRONMENT,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            start_new_session=True,
        ) as owner:
            *children, folder = owner.stdout.readline().split()
            assert all(map(is_running, children))
            assert (Path(folder) / "data").exists()
            owner.stdin.close()
            assert owner.wait(DEADLINE_S) == (-number or 3)
        wait_for(lambda: not (any(map(is_running, children)) or Path(folder).exists()))

    def test_closed_it_has_ended_its_own_alone_and_does_nothing_twice(self, tmp_path):
        with CleanupProcess() as reaper, CleanupProcess() as other:
            folder = reaper.folder(tmp_path)
            environments = reaper.environment(), other.environment(), None
            started = [subprocess.Popen(["sleep", "1000"], env=of) for of in environments]
            try:
                with pytest.raises(MeasurementError, match="none: no folder can be made in it: No"):
                    reaper.folder(tmp_path / "none")
                reaper.close()
                assert started[0].wait(DEADLINE_S) == -signal.SIGKILL
                assert [process.poll() for process in started[1:]] == [None, None]
                assert not folder.exists()
                reaper.close()
                other.close()
                assert started[1].wait(DEADLINE_S) == -signal.SIGKILL
            finally:
                started[2].kill()
                started[2].wait()

    def test_killed_itself_what_it_would_have_done_is_done_by_its_owner(self, tmp_path):
        reaper = CleanupProcess()
        folder = reaper.folder(tmp_path)
        process = subprocess.Popen(["sleep", "1000"], env=reaper.environment())
        reaper._helper.process.kill()
        reaper._helper.process.wait()
        with pytest.raises(MeasurementError, match="cleanup process has ended"):
            reaper.folder(tmp_path)
        reaper.close()
        assert process.wait(DEADLINE_S) == -signal.SIGKILL
        assert not folder.exists()

    def test_it_looks_until_all_is_quiet_but_not_for_ever(self, monkeypatch):
        for seen, left, took_s in (
            # Nothing is left for 0.2 s; the third look finds one that was just being started.
            ([[], [], [7], []], [], 0.24),
            ([[7]], [7], 10.0),
        ):
            clock, killed = FakeClock(), mock.Mock()
            find = mock.Mock(side_effect=itertools.chain(seen, itertools.repeat(seen[-1])))
            monkeypatch.setattr(cleanup_process, "_find_marked_processes", find)
            monkeypatch.setattr(cleanup_process.os, "kill", killed)
            clock.stand_in(monkeypatch, cleanup_process)
            assert cleanup_process.reap(b"mark", []) == left
            assert clock.now_s - 1000 == pytest.approx(took_s, abs=0.03)
            assert {call.args for call in killed.call_args_list} == {(7, signal.SIGKILL)}

    def test_what_was_made_last_goes_first(self, monkeypatch):
        gone = []
        FakeClock().stand_in(monkeypatch, cleanup_process)
        monkeypatch.setattr(cleanup_process, "_unmount", gone.append)
        monkeypatch.setattr(cleanup_process.shutil, "rmtree", lambda path, **_: gone.append(path))
        made = [("folder", "a"), ("mount", "a/b"), ("folder", "c")]
        cleanup_process.reap(b"mark=none", made)
        assert gone == ["c", "a/b", "a"]

    def test_a_control_group_goes_when_its_last_process_is_off(self, monkeypatch, tmp_path):
        group = tmp_path / "group"
        (group / "process").mkdir(parents=True)
        made, clock = [("group", str(group))], FakeClock()
        clock.stand_in(monkeypatch, cleanup_process)
        cleanup_process.reap(b"mark=none", made)
        assert group.exists()
        assert clock.now_s - 1000 == pytest.approx(10.2, abs=0.1)

        def wait(seconds):
            clock.wait(seconds)
            if (group / "process").exists():
                (group / "process").rmdir()

        clock.stand_in(monkeypatch, cleanup_process, wait=wait)
        cleanup_process.reap(b"mark=none", made)
        assert not group.exists()
