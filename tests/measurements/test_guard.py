"""The guard puts back what it knows on every way out; the oracle is what the files hold then."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
import sys
import time
from contextlib import contextmanager
from pathlib import Path

import pytest

from measurements import guard as guard_module
from measurements.companion import Companion
from measurements.errors import MeasurementError
from measurements.guard import Guard, restore_leftovers, state_folder
from measurements.guard_journal import Process, boot_id
from measurements.restoring import Setting, limits_in_order, restore

ROOT = Path(__file__).resolve().parents[2]
DEADLINE_S = 10.0
# The guard of a kernel before Linux 5.3.
WITHOUT_PROCESS_DESCRIPTORS = """
from measurements import companion
companion._START = (
    "import os\\ndef none(pid): raise OSError\\nos.pidfd_open = none\\n" + companion._START
)
"""
# What "within a second or so" may take on a busy machine.
SOON_S = 3.0

# A process that changes two settings and then does what it is told.
CHANGES = """
import os, signal, subprocess, sys, time
from pathlib import Path
from measurements.guard import Guard
# Whatever this was started from may ignore hangups.
signal.signal(signal.SIGHUP, signal.SIG_DFL)

folder = Path(sys.argv[1])
{first}
with Guard(lock=folder, state=folder / "state") as guard:
    guard.change(folder / "one", "changed", was="1")
    guard.change(folder / "two", "changed", was="2")
    def ready():
        print(guard.pid, flush=True)
    {then}
"""


def eventually(condition, within_s=DEADLINE_S):
    """Wait until a condition holds, and fail when it does not."""
    until = time.monotonic() + within_s
    while not condition():
        assert time.monotonic() < until, "it did not come to be in time"
        time.sleep(0.005)


class Host:
    """A folder with two settings, and processes that change them."""

    def __init__(self, folder):
        self.folder, self.state = folder, folder / "state"
        self.state.mkdir(mode=0o700)
        (folder / "one").write_text("1\n")
        (folder / "two").write_text("2\n")

    @property
    def values(self):
        return tuple((self.folder / name).read_text().strip() for name in ("one", "two"))

    @property
    def journals(self):
        return list(self.state.iterdir())

    def restored(self):
        return self.values == ("1", "2") and not self.journals

    def guard(self):
        return Guard(lock=self.folder, state=self.state)

    @contextmanager
    def changed(self, then="ready(); time.sleep(60)", first="", **options):
        """Run a process that has changed the settings; yields it and its guard's number."""
        process = subprocess.Popen(
            [sys.executable, "-c", CHANGES.format(then=then, first=first), str(self.folder)],
            stdout=subprocess.PIPE,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            **options,
        )
        try:
            guard = int(process.stdout.readline())
            yield process, guard
        finally:
            process.kill()
            process.stdout.close()
            process.wait()


@pytest.fixture
def host(tmp_path):
    return Host(tmp_path)


class TestEveryWayOut:
    @pytest.mark.parametrize(
        ("then", "code"),
        [
            ("ready()", 0),
            ("ready(); raise ValueError('wrong')", 1),
            ("ready(); sys.exit(3)", 3),
            ("ready(); os._exit(4)", 4),
            ("ready(); os.abort()", -signal.SIGABRT),
            ("ready(); os.kill(os.getpid(), signal.SIGINT); time.sleep(60)", -signal.SIGINT),
        ],
    )
    def test_of_its_own(self, host, then, code):
        with host.changed(then, stderr=subprocess.DEVNULL) as (process, _):
            assert process.wait(DEADLINE_S) == code
            eventually(host.restored)

    @pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
    def test_by_a_signal(self, host, number):
        with host.changed() as (process, _):
            assert host.values == ("changed", "changed")
            process.send_signal(number)
            assert process.wait(DEADLINE_S) == -number
            eventually(host.restored, SOON_S)

    def test_by_a_signal_to_the_process_group(self, host):
        with host.changed(start_new_session=True) as (process, _):
            os.killpg(process.pid, signal.SIGKILL)
            process.wait(DEADLINE_S)
            eventually(host.restored, SOON_S)

    @pytest.mark.parametrize(
        "child",
        [
            # A workload that lives on, with every inheritable descriptor.
            "subprocess.Popen(['sleep', '60'], close_fds=False)",
            # A copy of the process, which holds the connection too.
            "os.fork() or time.sleep(60)",
        ],
    )
    @pytest.mark.parametrize("first", ["", WITHOUT_PROCESS_DESCRIPTORS], ids=["new", "old"])
    def test_while_a_child_lives_on(self, host, child, first):
        then = f"child = {child}\n    ready(); time.sleep(60)"
        with host.changed(then, first, start_new_session=True) as (process, guard):
            children = _children(process.pid) - {guard}
            process.kill()
            process.wait(DEADLINE_S)
            try:
                eventually(host.restored, SOON_S)
                assert len(children) == 1
                assert all(Process.of(child) for child in children)
            finally:
                os.killpg(process.pid, signal.SIGKILL)

    def test_the_keyboard_stops_ppw_and_not_the_guard(self, host):
        with _terminal() as (master, terminal):
            then = "signal.signal(signal.SIGINT, lambda *_: ready()); ready(); time.sleep(60)"
            with host.changed(then, stdin=terminal, **_leading(terminal)) as (process, guard):
                os.write(master, b"\x03")
                # The interrupt came through, and the guard is where it was.
                assert int(process.stdout.readline()) == guard
                assert Process.of(guard)
                assert host.values == ("changed", "changed")
                process.kill()
                process.wait(DEADLINE_S)
                eventually(host.restored, SOON_S)

    def test_the_terminal_is_closed(self, host):
        with (
            _terminal() as (master, terminal),
            host.changed(stdin=terminal, **_leading(terminal)) as (process, _),
        ):
            os.close(master)
            assert process.wait(DEADLINE_S) == -signal.SIGHUP
            eventually(host.restored, SOON_S)

    def test_a_forked_copy_that_leaves_the_block_restores_nothing(self, host):
        with host.guard() as guard:
            guard.change(host.folder / "one", "changed", was="1")
            child = os.fork()
            if not child:
                os._exit(len(guard.release()))
            assert os.waitpid(child, 0) == (child, 0)
            assert host.values == ("changed", "2")
            guard.check()
        assert host.restored()


class TestGuardItself:
    def test_it_is_small_and_stands_apart(self, host):
        with host.changed() as (process, guard):
            proc = Path(f"/proc/{guard}")
            assert os.getsid(guard) == guard
            assert os.getsid(process.pid) != guard
            # No pipe or terminal of ppw's is held open by it.
            assert {(proc / "fd" / str(n)).readlink() for n in range(3)} == {Path("/dev/null")}
            assert "numpy" not in (proc / "maps").read_text()
            resident = int((proc / "statm").read_text().split()[1]) * os.sysconf("SC_PAGESIZE")
            assert resident < 32 * 2**20
            last = "-1000" if _may_outlive_others() else _oom_score(process.pid)
            assert _oom_score(guard) == last

    def test_signals_of_a_service_manager_leave_it_on_duty(self, host):
        with host.changed() as (process, guard):
            for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT):
                os.kill(guard, number)
            process.kill()
            process.wait(DEADLINE_S)
            eventually(host.restored, SOON_S)

    def test_what_it_guards_is_on_disk_before_it_is_changed(self, host):
        with host.guard() as guard:
            guard.learn([(host.folder / "one", "1"), (host.folder / "one", "never")])
            guard.learn([(host.folder / "one", "later")])
            lines = [json.loads(line) for line in guard.journal.read_text().splitlines()]
            assert lines[0]["parent"] == list(Process.of(os.getpid()))
            assert lines[1:] == [{"path": str(host.folder / "one"), "value": "1"}]
            assert guard.journal.stat().st_mode & 0o777 == 0o600
            assert guard.settings == (Setting(host.folder / "one", "1"),)

    def test_what_it_does_not_know_is_not_changed(self, host):
        with host.guard() as guard, pytest.raises(MeasurementError, match="nobody to put it back"):
            guard.change(host.folder / "one", "changed")
        assert host.values == ("1", "2")

    def test_killed_everything_is_put_back_at_once_and_nothing_goes_on(self, host):
        with host.guard() as guard:
            guard.change(host.folder / "one", "changed", was="1")
            os.kill(guard.pid, signal.SIGKILL)
            eventually(lambda: Process.of(guard.pid) is None)
            with pytest.raises(MeasurementError, match="is lost"):
                guard.check()
            assert host.restored()
            with pytest.raises(MeasurementError, match="put back already"):
                guard.change(host.folder / "one", "changed", was="1")

    def test_killed_as_it_is_spoken_to(self, host):
        with host.guard() as guard:
            guard.change(host.folder / "one", "changed", was="1")
            os.kill(guard.pid, signal.SIGKILL)
            with pytest.raises(MeasurementError, match=r"is lost.*all settings are put back"):
                guard.learn([(host.folder / "two", "2")])
            assert host.restored()

    def test_killed_before_the_end(self, host):
        with host.guard() as guard:
            guard.change(host.folder / "one", "changed", was="1")
            os.kill(guard.pid, signal.SIGKILL)
        assert host.restored()

    @pytest.mark.parametrize("action", ["learn", "release"])
    def test_after_an_interrupt_in_between_nothing_goes_on(self, host, monkeypatch, action):
        def interrupted(self, timeout_s):
            raise KeyboardInterrupt

        with host.guard() as guard:
            guard.change(host.folder / "one", "changed", was="1")
            actions = {"learn": lambda: guard.learn([(host.folder / "two", "2")])}
            with monkeypatch.context() as patch:
                patch.setattr(Companion, "answer", interrupted)
                with pytest.raises(KeyboardInterrupt):
                    actions.get(action, guard.release)()
            # It does not wait for the end of the process.
            eventually(host.restored)
            with pytest.raises(MeasurementError, match=r"is lost|put back already"):
                guard.learn([(host.folder / "two", "2")])
            guard._companion.process.wait(DEADLINE_S)

    def test_one_that_hangs_is_given_up(self, host, monkeypatch):
        monkeypatch.setattr(guard_module, "_ANSWER_S", 0.3)
        with host.guard() as guard:
            guard.change(host.folder / "one", "changed", was="1")
            os.kill(guard.pid, signal.SIGSTOP)
            with pytest.raises(MeasurementError, match="is lost"):
                guard.learn([(host.folder / "two", "2")])
            assert host.restored()

    def test_what_cannot_be_put_back_is_told_with_the_remedy(self, host):
        guard = host.guard()
        guard.learn([(Path("/proc/version"), "x"), (host.folder / "one", "1")])
        guard.change(host.folder / "one", "changed")
        with pytest.raises(MeasurementError, match=r"not put back: /proc/version should be 'x'"):
            guard.__exit__(None, None, None)
        # It is kept for the next start, which does not let it pass either.
        assert "unrestored" in host.journals[0].read_text()
        assert host.values == ("1", "2")
        with pytest.raises(MeasurementError, match=r"killed ppw has left.*then remove .*guard-"):
            host.guard()
        host.journals[0].unlink()
        host.guard().release()

    def test_a_full_disk_is_told_and_nothing_changed(self, host):
        with _tiny_disk(host.state), host.guard() as guard:
            (host.state / "filler").write_bytes(bytes(8192))
            long = [(host.folder / f"{n:0200}", "1") for n in range(100)]
            with pytest.raises(MeasurementError, match=r"nothing is changed.*No space left"):
                guard.learn([*long, (host.folder / "one", "1")])
            (host.state / "filler").unlink()
            guard.change(host.folder / "one", "changed", was="1")
            assert guard.settings == (Setting(host.folder / "one", "1"),)
            # What was half written is gone again.
            assert all(json.loads(line) for line in guard.journal.read_text().splitlines())
        assert host.restored()


class TestOneAtATime:
    def test_the_second_is_refused_with_the_number_of_the_first(self, host):
        with host.changed() as (process, _):
            with pytest.raises(MeasurementError, match=rf"\(process {process.pid}\): wait"):
                host.guard()
            assert host.values == ("changed", "changed")

    def test_also_when_the_first_has_lost_its_guard(self, host):
        with host.changed() as (process, guard):
            os.kill(guard, signal.SIGKILL)
            eventually(lambda: Process.of(guard) is None)
            with pytest.raises(MeasurementError, match=rf"\(process {process.pid}\)"):
                host.guard()

    def test_also_when_its_journal_is_elsewhere(self, host, tmp_path_factory):
        with host.changed(), pytest.raises(MeasurementError, match="another process"):
            Guard(lock=host.folder, state=tmp_path_factory.mktemp("elsewhere"))

    def test_the_next_waits_for_what_the_killed_one_restores(self, host):
        with host.changed() as (process, guard):
            os.kill(guard, signal.SIGSTOP)
            process.kill()
            process.wait(DEADLINE_S)
            waiting = subprocess.Popen(["sh", "-c", f"sleep 0.5; kill -CONT {guard}"])
            with host.guard() as own:
                assert host.values == ("1", "2")
                assert own.restored == ()
            assert waiting.wait(DEADLINE_S) == 0

    def test_other_folders_are_no_concern(self, host, tmp_path_factory):
        with host.changed(), Guard(lock=tmp_path_factory.mktemp("other"), state=host.state):
            pass


class TestLeftovers:
    @pytest.fixture
    def left(self, host):
        """A host with settings that a killed ppw and its killed guard have left."""
        with host.changed() as (process, guard):
            os.kill(guard, signal.SIGSTOP)
            process.kill()
            process.wait(DEADLINE_S)
            os.kill(guard, signal.SIGKILL)
            eventually(lambda: Process.of(guard) is None)
        assert host.values == ("changed", "changed")
        (journal,) = host.journals
        host.journal = journal
        return host

    def test_the_next_start_puts_them_back_and_says_so(self, left):
        put_back = restore_leftovers(lock=left.folder, state=left.state)
        assert put_back == (Setting(left.folder / "one", "1"), Setting(left.folder / "two", "2"))
        assert left.restored()
        assert restore_leftovers(lock=left.folder, state=left.state) == ()

    def test_a_line_that_was_cut_was_never_acted_on(self, left):
        with left.journal.open("a") as file:
            file.write(f'{{"path": "{left.folder}/one", "value": "torn')
        with left.guard():
            assert left.values == ("1", "2")

    def test_those_of_an_earlier_boot_are_gone_with_it(self, left):
        left.journal.write_text(left.journal.read_text().replace(boot_id(), "an-earlier-boot"))
        assert restore_leftovers(lock=left.folder, state=left.state) == ()
        assert left.values == ("changed", "changed")
        assert not left.journals

    def test_a_number_that_another_process_has_now_is_not_its_owner(self, left):
        first, *rest = left.journal.read_text().splitlines()
        said = json.loads(first)
        said["parent"][0] = os.getpid()
        left.journal.write_text("\n".join([json.dumps(said), *rest, ""]))
        restore_leftovers(lock=left.folder, state=left.state)
        assert left.restored()

    def test_a_setting_whose_file_is_gone_is_passed_over(self, left):
        (left.folder / "two").unlink()
        put_back = restore_leftovers(lock=left.folder, state=left.state)
        assert put_back == (Setting(left.folder / "one", "1"),)
        assert not left.journals

    @pytest.mark.parametrize("begun", ["", '{"boot": "'])
    def test_a_journal_that_a_killed_guard_had_only_begun_is_deleted(self, left, begun):
        first = left.state / "guard-1-1.jsonl"
        first.write_text(begun)
        restore_leftovers(lock=left.folder, state=left.state)
        assert not first.exists()
        assert left.restored()

    def test_a_journal_that_a_living_guard_has_begun_stays(self, left):
        pid, started = Process.of(os.getpid())
        first = left.state / f"guard-{pid}-{started}.jsonl"
        first.touch()
        restore_leftovers(lock=left.folder, state=left.state)
        assert first.exists()

    @pytest.mark.parametrize("harm", ["writable", "link", "garbage", "foreign"])
    def test_a_journal_that_others_could_have_written_is_not_believed(self, left, harm):
        if harm == "writable":
            left.journal.chmod(0o666)
        elif harm == "link":
            left.journal.symlink_to(left.journal.rename(left.folder / "moved"))
        elif harm == "garbage":
            left.journal.write_text("[1, 2]\n")
        else:
            os.chown(left.journal, 65534, 65534)
        assert restore_leftovers(lock=left.folder, state=left.state) == ()
        assert left.values == ("changed", "changed")


class TestStateFolder:
    @pytest.fixture
    def as_user(self, monkeypatch, tmp_path):
        """No root: only the variables decide."""
        monkeypatch.setattr(guard_module.tempfile, "gettempdir", lambda: str(tmp_path / "temp"))
        real = os.geteuid()
        monkeypatch.setattr(guard_module.os, "access", lambda path, how: path != "/run")
        return real

    def test_of_root_is_the_hosts(self, monkeypatch):
        monkeypatch.setattr(guard_module, "_own", lambda folder: folder)
        monkeypatch.setattr(guard_module.os, "geteuid", lambda: 0)
        monkeypatch.setattr(guard_module.os, "access", lambda path, how: path == "/run")
        assert state_folder() == Path("/run/ppw")

    def test_of_a_user_is_the_sessions(self, as_user, monkeypatch, tmp_path):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        assert state_folder() == tmp_path / "ppw"
        assert (tmp_path / "ppw").stat().st_mode & 0o777 == 0o700

    def test_without_a_session_it_is_among_the_temporary_files(
        self, as_user, monkeypatch, tmp_path
    ):
        monkeypatch.delenv("XDG_RUNTIME_DIR", raising=False)
        assert state_folder() == tmp_path / "temp" / f"ppw-{as_user}"

    @pytest.mark.parametrize("harm", ["link", "open", "foreign", "file"])
    def test_somebody_elses_is_refused(self, as_user, monkeypatch, tmp_path, harm):
        monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
        folder = tmp_path / "ppw"
        if harm == "link":
            folder.symlink_to(tmp_path)
        elif harm == "file":
            folder.touch()
        else:
            folder.mkdir()
            folder.chmod(0o777) if harm == "open" else os.chown(folder, 65534, 65534)
        with pytest.raises(MeasurementError, match=str(folder)):
            state_folder()


class TestOrder:
    @pytest.mark.parametrize(
        ("lower", "upper", "upper_now", "first"),
        [
            ("20", "30", "10", "scaling_max_freq"),
            ("5", "30", "10", "scaling_min_freq"),
            ("10", "10", "10", "scaling_min_freq"),
            ("5", "6", None, "scaling_min_freq"),
            ("5", "6", "<unknown>", "scaling_min_freq"),
        ],
    )
    def test_limits_never_cross(self, lower, upper, upper_now, first):
        order = limits_in_order(Path("policy0"), lower, upper, upper_now)
        assert order[0].path.name == first
        assert {setting.value for setting in order} == {lower, upper}

    def test_turbo_governor_limits_speed(self, tmp_path, monkeypatch):
        names = [
            "policy0/scaling_setspeed",
            "policy0/scaling_min_freq",
            "policy0/scaling_max_freq",
            "policy0/scaling_governor",
            "intel_pstate/min_perf_pct",
            "policy0/boost",
            "cpufreq/boost",
        ]
        for name in names:
            (tmp_path / name).parent.mkdir(exist_ok=True)
            (tmp_path / name).write_text("7")
        written = []
        monkeypatch.setattr(
            "measurements.restoring.write_setting",
            lambda path, value: written.append(path) or path.write_text(value),
        )
        assert restore([Setting(tmp_path / name, "8") for name in names]) == []
        assert [str(path.relative_to(tmp_path)) for path in written] == [
            "cpufreq/boost",
            "policy0/boost",
            "intel_pstate/min_perf_pct",
            "policy0/scaling_governor",
            "policy0/scaling_max_freq",
            "policy0/scaling_min_freq",
            "policy0/scaling_setspeed",
        ]

    def test_only_what_differs_is_written_but_limits_always(self, tmp_path, monkeypatch):
        names = ("no_turbo", "scaling_governor", "scaling_min_freq", "scaling_max_freq")
        for name in names:
            (tmp_path / name).write_text("7")
        written = []
        monkeypatch.setattr(
            "measurements.restoring.write_setting", lambda path, value: written.append(path.name)
        )
        restore([Setting(tmp_path / name, "7") for name in names])
        assert written == ["scaling_min_freq", "scaling_max_freq"]


def _children(pid):
    return {int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()}


def _oom_score(pid):
    return Path(f"/proc/{pid}/oom_score_adj").read_text().strip()


def _may_outlive_others():
    (held,) = [
        line.split()[1]
        for line in Path("/proc/self/status").read_text().splitlines()
        if line.startswith("CapEff")
    ]
    return bool(int(held, 16) >> 24 & 1)  # CAP_SYS_RESOURCE


@contextmanager
def _terminal():
    master, terminal = pty.openpty()
    try:
        yield master, terminal
    finally:
        for descriptor in (master, terminal):
            try:
                os.close(descriptor)
            except OSError:
                continue


def _leading(terminal):
    """Options of a process that leads the session of a terminal, as a shell's jobs do."""
    import fcntl
    import termios

    def lead():
        fcntl.ioctl(terminal, termios.TIOCSCTTY, 0)

    return {"start_new_session": True, "preexec_fn": lead}


@contextmanager
def _tiny_disk(folder):
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=16k,mode=700", "tmpfs", folder], check=True)
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)
