"""Clocks are set as the kernel takes them and always put back.

The peers: an emulated kernel (`peers.cpufreq`), which refuses and clamps as the real one does, in
this process and behind mounted files; and cpupower, which reads and writes the same files.
"""

import errno
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path
from random import Random
from types import SimpleNamespace

import pytest
from peers import cpufreq as hosts
from peers.powercap import in_private_sys
from peers.waiting import wait_for

from measurements.errors import MeasurementError
from measurements.host import frequency_control as fc
from measurements.processes import settings_guard
from measurements.processes.settings_guard import Guard, Journal, Owners, Process, boot_id

ROOT = Path(__file__).resolve().parents[2]
GHZ = 1e9
CAPPED = {"lower": 1500000, "upper": 1800000}


@pytest.fixture
def tree(tmp_path):
    """Plain files of a host; call with its description."""
    return lambda spec: hosts.CpufreqTree(tmp_path / "sys", spec)


class GuardInside:
    """Answers as the guard's process does, inside this one."""

    def __init__(self, module, called, state, lock):
        self.settings = {}
        self.process = SimpleNamespace(pid=0, poll=lambda: None)
        self.answer = lambda timeout_s: {"journal": f"{state}/journal", "restored": []}
        self.end = lambda timeout_s: None

    def ask(self, timeout_s, *, learn=(), release=False):
        self.settings.update((setting.path, setting) for setting in learn)
        known = self.settings.values() if release else ()
        return {"released": settings_guard.restore(known)}


mounted = pytest.param("mounted", marks=pytest.mark.peer("frequency"))
in_both_ways = pytest.mark.parametrize("kernel", ["inside", mounted], indirect=True)


@pytest.fixture
def kernel(request, tmp_path, monkeypatch):
    """Files of a host with the kernel's behaviour, mounted or not; call with its description."""
    with ExitStack() as running:

        def start(spec):
            if getattr(request, "param", "inside") == "mounted":
                return running.enter_context(hosts.EmulatedKernel(tmp_path / "sys", spec))
            host = hosts.CpufreqTree(tmp_path / "sys", spec)
            monkeypatch.setattr(settings_guard, "HelperProcess", GuardInside)
            monkeypatch.setattr(settings_guard, "write_setting", host.write)
            return host

        yield start


@pytest.fixture
def opened(tmp_path):
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    known = {"sysfs": tmp_path / "sys", "state": state}
    return lambda **options: fc.FrequencyControl.open(**known | options)


def achieved_hz(control):
    return {fc.read_hz(policy.folder / "scaling_cur_freq") for policy in control.policies}


def limits(host, policy=0):
    folder = host.cpu / f"cpufreq/policy{policy}"
    names = ("scaling_min_freq", "scaling_max_freq")
    return tuple(int((folder / name).read_text()) for name in names)


def test_policies_are_read_with_their_steps_or_their_range(tree, tmp_path):
    policy = fc.read_policies(tree(hosts.westmere()).root)[1]
    assert (policy.name, policy.cpus, policy.driver) == ("policy1", (1,), "acpi-cpufreq")
    assert policy.steps_hz == tuple(1e3 * step for step in hosts.WESTMERE_STEPS)
    assert policy.turbo_mark_hz == 2.395 * GHZ
    assert "userspace" in policy.governors
    policy = fc.read_policies(hosts.CpufreqTree(tmp_path / "other", hosts.skylake()).root)[0]
    assert (policy.steps_hz, policy.lowest_hz, policy.highest_hz) == ((), 1.0 * GHZ, 3.7 * GHZ)


def test_files_below_each_cpu_as_old_kernels_have_them_and_policies_that_are_offline(tree):
    spec = hosts.westmere(below_cpus=True)
    spec.policies[0].cpus, spec.policies[1].cpus = [0, 2], [1, 3]
    host = tree(spec)
    found = [(policy.name, policy.cpus) for policy in fc.read_policies(host.root)]
    assert found == [("cpu0", (0, 2)), ("cpu1", (1, 3))]
    host.order(1, offline=True)
    assert [policy.cpus for policy in fc.read_policies(host.root)] == [(0, 2)]


@pytest.mark.parametrize(("turned_on", "highest"), [(True, 3.3), (False, 2.2)])
def test_steps_of_boost_count_while_it_is_on(tree, opened, turned_on, highest):
    for folder in tree(hosts.zen(turbo_on=turned_on)).cpu.glob("cpufreq/policy*"):
        (folder / "scaling_boost_frequencies").write_text("3300000\n")
    control = opened(dry_run=True)
    for steps in (control.steps(), *control.policies):
        assert steps.steps_hz[-1] == steps.highest_hz == highest * GHZ


def test_without_control_the_message_says_what_to_do(tmp_path):
    (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
    for flags, said in (("fpu", r"Atom D510.*"), ("fpu hypervisor", "virtual machine.*")):
        (tmp_path / "cpuinfo").write_text(f"processor : 0\nflags\t\t: {flags}\n")
        with pytest.raises(MeasurementError, match=rf"{said}--as-found measures"):
            fc.FrequencyControl.open(sysfs=tmp_path / "sys", procfs=tmp_path)
    with pytest.raises(MeasurementError, match="no such folder"):
        fc.FrequencyControl.open(sysfs=tmp_path / "none")


def sixteen():
    return hosts.HostSpec([hosts.PolicySpec([cpu], 800000, 2400000) for cpu in range(16)])


@pytest.mark.cases(
    "host, asked, text",
    (sixteen, 3.0, r"policy0, …, policy15 \(CPUs 0-15\)"),
    (hosts.westmere, 1.9, "is not a frequency step; the nearest are 1.862 GHz and 1.995 GHz"),
    (hosts.westmere, 1.5, "1.5 GHz is below the lowest step, 1.596 GHz"),
    (hosts.westmere, 3.0, "3 GHz is above the highest step, 2.394 GHz"),
    (hosts.westmere, 2.395, "2.395 GHz stands for turbo, whose frequency varies"),
    (hosts.westmere, 2.4e-9, "is it in GHz or MHz"),
    (hosts.westmere, float("nan"), "is no number"),
    (hosts.skylake, 0.9, r"policy0, policy1 \(CPUs 0-1\): .* range from 1 GHz to 3.7 GHz"),
    (hosts.skylake, 3.8, r"policy0, policy1 \(CPUs 0-1\): .* range from 1 GHz to 3.7 GHz"),
)
def test_no_step(tree, opened, host, asked, text):
    tree(host())
    control = opened(dry_run=True)
    with pytest.raises(MeasurementError, match=text):
        control.fix(asked * GHZ)
    assert control.writes == []


def test_a_hybrid_processor_names_who_cannot(tree, opened):
    tree(hosts.alder_lake())
    control = opened(dry_run=True)
    assert control.steps().highest_hz == 3.8 * GHZ
    with pytest.raises(MeasurementError, match=r"^policy2, policy3 \(CPUs 2-3\): 4.5 GHz is out"):
        control.fix(4.5 * GHZ)
    assert control.writes == []


@pytest.mark.parametrize("share", ["max_perf_pct", "min_perf_pct"])
def test_shares_of_intel_pstate_that_would_hold_the_clock(tree, opened, share):
    value, asked = ("50", 3.0) if share == "max_perf_pct" else ("60", 1.0)
    host = tree(hosts.skylake())
    (host.cpu / "intel_pstate" / share).write_text(value)
    with pytest.raises(MeasurementError, match=rf"{share} limits it: write \d+ there"):
        opened(dry_run=True).fix(asked * GHZ)
    host.host.spec.status = "passive"
    host.order(0)
    opened(dry_run=True).fix(asked * GHZ)


def test_heat_that_lowers_the_limits_keeps_no_leftover_but_the_start(tree, opened, tmp_path):
    host = tree(hosts.skylake())
    with subprocess.Popen(["sleep", "60"]) as dead:
        killed = Process.of(dead.pid)
        dead.kill()
    device = host.root / "class/thermal/cooling_device0"
    device.mkdir(parents=True)
    (device / "type").write_text("Processor\n")
    state, upper = device / "cur_state", host.cpu / "cpufreq/policy0/scaling_max_freq"
    left = Journal(tmp_path / "state", Owners(boot_id(), killed, killed, host.cpu))
    left.add([settings_guard.HostSetting(upper, "3700000")])
    upper.write_text("1500000\n")
    state.write_text("3\n")
    # What a killed one left is put back all the same, and then no limit is lowered.
    with opened() as control:
        assert upper.read_text() == "3700000\n"
        assert control.restored
    upper.write_text("1500000\n")
    with pytest.raises(MeasurementError, match=r"heat now \(cooling_device0\).* cool down"):
        opened()
    state.write_text("0\n")
    opened().close()


def test_a_refused_write_names_the_remedy(tree, opened, monkeypatch):
    for number, name, text in (
        (errno.EROFS, "scaling_min_freq", r"mounted read-only.*--privileged.*--as-found"),
        (errno.EACCES, "scaling_min_freq", r"no right to write.*as root \(sudo\)"),
        (errno.EPERM, "no_turbo", r"no_turbo takes no 7: turbo is off in the firmware"),
        (errno.EPERM, "scaling_min_freq", "no right to write"),
        (errno.EINVAL, "scaling_min_freq", "scaling_min_freq takes no '7': Invalid argument"),
    ):
        refusal = fc.refused_write(Path(name), "7", OSError(number, os.strerror(number)))
        assert re.search(text, refusal)
    tree(hosts.zen())
    monkeypatch.setattr("measurements.host.frequency_control.os.access", lambda path, how: False)
    with pytest.raises(MeasurementError, match="no right to write"):
        opened()
    read_only = SimpleNamespace(f_flag=os.ST_RDONLY)
    monkeypatch.setattr("measurements.host.frequency_control.os.statvfs", lambda path: read_only)
    with pytest.raises(MeasurementError, match="is mounted read-only, as in a container: run ppw"):
        opened()
    control = opened(dry_run=True)
    control.fix(1.8 * GHZ)
    assert len(control.writes) == 4


@in_both_ways
@pytest.mark.parametrize("old", [True, False])
def test_limits_never_cross_on_any_way_through_the_steps(kernel, opened, old):
    host = kernel(hosts.westmere(old=old))
    before = host.state()
    way = [step * 1000.0 for step in hosts.WESTMERE_STEPS]
    Random(5).shuffle(way)
    with opened() as control:
        for asked in (*way, *reversed(way)):
            control.fix(asked)
            assert limits(host) == limits(host, 1) == (asked / 1000, asked / 1000)
            assert achieved_hz(control) == {asked}
            control.check()
    assert host.state() == before
    writes = host.writes()
    assert len(writes) > 4 * len(way)
    assert not any(write.error for write in writes)
    assert all(lower <= upper for write in writes for lower, upper in write.limits)


@pytest.mark.cases(
    "bios_limit, heat, turbo_on, text",
    (1800000, 0, True, r"no more than 1.8 GHz \(bios_limit\)"),
    (0, 1500000, True, "heat or a power limit holds it, or a daemon"),
    (0, 1500000, False, "turbo is off, or heat or a power limit holds it"),
)
def test_what_is_asked_for_is_not_what_is_set(kernel, opened, bios_limit, heat, turbo_on, text):
    spec = hosts.skylake(turbo_on=turbo_on)
    for policy in spec.policies:
        policy.bios_limit = bios_limit
    host = kernel(spec)
    before = host.state()
    with opened() as control:
        host.order(0, heat=heat)
        host.order(1, heat=heat)
        with pytest.raises(MeasurementError, match=text):
            control.fix(2 * GHZ)
        host.order(0, heat=0)
        host.order(1, heat=0)
    assert host.state() == before


@in_both_ways
def test_something_else_that_changes_them_and_a_cpu_that_went_offline_are_told(kernel, opened):
    host = kernel(hosts.skylake())
    control = opened()
    control.fix(2 * GHZ)
    host.write(host.cpu / "cpufreq/policy1/scaling_max_freq", "3000000")
    with pytest.raises(MeasurementError, match=r"changed it to 3000000: stop"):
        control.check()
    host.write(host.cpu / "cpufreq/policy1/scaling_max_freq", "2000000")
    host.order(1, offline=True)
    unrestored = control.close()
    assert {(left.path.parent.name, left.reason) for left in unrestored} == {
        ("policy1", "it is '2000000', and refuses: Device or resource busy")
    }
    assert {left.path.name for left in unrestored} >= {"scaling_min_freq", "scaling_max_freq"}
    assert limits(host) == (1000000, 3700000)


@in_both_ways
def test_the_governor_and_its_speed(kernel, opened):
    host = kernel(hosts.westmere())
    before = host.state()
    with opened() as control:
        control.fix(1.862 * GHZ, method="userspace")
        control.fix(2.128 * GHZ, method="userspace")
        control.check()
        assert achieved_hz(control) == {2.128 * GHZ}
        assert limits(host) == (1596000, 2395000)
    written = [(write.path, write.text) for write in host.writes()[:2]]
    wanted = {"governor": "userspace", "setspeed": "1862000"}
    assert written == [(f"cpufreq/policy0/scaling_{n}", text) for n, text in wanted.items()]
    assert host.state() == before


def test_limits_make_way_for_the_speed(kernel, opened):
    spec = hosts.zen()
    spec.policies[0].lower = spec.policies[0].upper = 1800000
    host = kernel(spec)
    with opened() as control:
        for asked in (1.5, 2.2):
            control.fix(asked * GHZ, method="userspace")
            assert achieved_hz(control) == {asked * GHZ}
    assert limits(host) == (1800000, 1800000)


@in_both_ways
@pytest.mark.parametrize("method", ["auto", "limits"])
def test_where_it_is_in_charge_its_speed_comes_back(kernel, opened, method):
    names = {"auto": {"scaling_setspeed"}, "limits": {"scaling_min_freq", "scaling_max_freq"}}
    spec = hosts.westmere()
    for policy in spec.policies:
        policy.governor = "userspace"
    host = kernel(spec)
    speeds = sorted(host.cpu.glob("cpufreq/policy*/scaling_setspeed"))
    for speed in speeds:
        host.write(speed, "1995000")
    with opened() as control:
        control.fix(2.261 * GHZ, method=method)
        assert achieved_hz(control) == {2.261 * GHZ}
        assert {write.path.name for write in control.writes} == names[method]
    assert [speed.read_text() for speed in speeds] == ["1995000\n"] * 2


@pytest.mark.parametrize("old", [True, False])
@pytest.mark.parametrize("turned_on", [True, False])
@pytest.mark.parametrize("host", [hosts.skylake, hosts.zen])
def test_turbo_and_the_limits_that_move_with_it_are_put_back(kernel, opened, host, turned_on, old):
    spec = host(old=old, turbo_on=turned_on)
    vars(spec.policies[0]).update(CAPPED)
    running = kernel(spec)
    before = running.state()
    with opened() as control:
        assert control.turbo is turned_on
        control.turn_turbo(not turned_on)
        assert control.turbo is not turned_on
        assert control.steps().highest_hz >= 2.1 * GHZ
        control.fix(1.8 * GHZ)
        control.check()
        control.turn_turbo(turned_on)
        control.fix(1.8 * GHZ)
    assert running.state() == before


def test_frequencies_of_turbo_go_with_it(kernel, opened):
    kernel(hosts.skylake())
    with opened() as control:
        with pytest.raises(MeasurementError, match="modprobe cpufreq_userspace"):
            control.fix(3 * GHZ, method="userspace")
        control.fix(3 * GHZ)
        control.turn_turbo(False)
        assert control.steps().highest_hz == 2.1 * GHZ
        with pytest.raises(MeasurementError, match=r"range from 1 GHz to 2.1 GHz"):
            control.fix(3 * GHZ)


@in_both_ways
def test_turbo_that_is_off_in_the_firmware_can_be_left_off(kernel, opened):
    host = kernel(hosts.zen(turbo_on=False, turbo_locked=True))
    with opened() as control:
        control.turn_turbo(False)
    assert host.writes() == []
    text = r"boost takes no 1: .* firmware"
    with opened() as control, pytest.raises(MeasurementError, match=text):
        control.turn_turbo(True)


def test_policies_with_nothing_in_common_and_no_switch_for_turbo(tree, opened):
    ranges = ([0], 800000, 1200000), ([1], 1500000, 2400000)
    tree(hosts.HostSpec([hosts.PolicySpec(*of) for of in ranges]))
    control = opened(dry_run=True)
    assert str(control.steps()) == "FrequencyRange(lowest_hz=nan, highest_hz=nan, steps_hz=())"
    with pytest.raises(MeasurementError, match="no switch for turbo"):
        control.turn_turbo(False)
    assert control.turbo is None


def test_turbo_of_each_policy(kernel, opened):
    host = kernel(hosts.zen(turbo="each"))
    switches = [host.cpu / f"cpufreq/policy{cpu}/boost" for cpu in (0, 1)]

    def shown():
        return "".join(switch.read_text().strip() for switch in switches)

    with opened() as control:
        host.write(switches[0], "0")
        assert control.turbo is None
        control.turn_turbo(False)
        assert shown() == "00"
    assert shown() == "11"


@in_both_ways
@pytest.mark.parametrize("host", [hosts.westmere, hosts.skylake, hosts.zen])
def test_a_dry_run_tells_just_what_would_be_written(kernel, opened, host):
    running = kernel(host())

    def sweep(control):
        with control:
            if control.turbo is not None:
                control.turn_turbo(False)
            for asked in (1.596, 2.128) if host is hosts.westmere else (1.5, 1.8):
                control.fix(asked * GHZ)
            control.check()
        return control.writes

    before = running.state()
    imagined = sweep(opened(dry_run=True))
    assert running.writes() == []
    assert imagined == sweep(opened())
    assert running.state() == before


SWEEPS = """
import sys
sys.path.append(sys.argv[1])
from pathlib import Path
from measurements.host.frequency_control import FrequencyControl

sysfs, state = map(Path, sys.argv[2:])
while True:
    with FrequencyControl.open(sysfs=sysfs, state=state) as control:
        control.turn_turbo(False)
        for asked in (1.8e9, 2.2e9, 1.5e9) * 10:
            control.fix(asked)
            control.fix(asked, method="userspace")
"""


@pytest.mark.peer("kill")
@pytest.mark.parametrize("kills", [10, pytest.param(100, marks=pytest.mark.slow)])
def test_killed_after_any_write_all_is_always_put_back(tmp_path, kills):
    spec = hosts.zen(old=True)
    for policy in spec.policies:
        vars(policy).update(CAPPED)
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    chance = Random(20120413)
    caught = 0
    with hosts.EmulatedKernel(tmp_path / "sys", spec) as host:
        before = host.state()
        command = [sys.executable, "-I", "-S", "-c", SWEEPS, ROOT, host.root, state]
        for _ in range(kills):
            # After up to thirty writes, or while it still starts.
            due = host.log.stat().st_size + chance.randrange(3000)
            ppw = subprocess.Popen(list(map(str, command)), start_new_session=True)
            try:
                wait_for(lambda due=due: host.log.stat().st_size >= due)
                time.sleep(chance.uniform(0, 0.02))
                caught += host.state() != before
                how = chance.choice(["ppw", "group", "both"])
                for guard_too in _guards(state) if how == "both" else ():
                    os.kill(guard_too, signal.SIGKILL)
                (os.killpg if how == "group" else os.kill)(ppw.pid, signal.SIGKILL)
            finally:
                ppw.kill()
                ppw.wait(60)
            wait_for(lambda: not _guards(state))
            if how == "both":
                Guard(lock=host.cpu, state=state).release()
            # A guard that was only starting may write its journal after its ppw is gone.
            wait_for(lambda: host.state() == before and not list(state.iterdir()))
        writes = host.writes()
    assert kills / 2 <= caught <= kills
    assert not any(write.error for write in writes)
    assert all(lower <= upper for write in writes for lower, upper in write.limits)


def _guards(state):
    numbers = [int(journal.name.split("-")[1]) for journal in state.iterdir()]
    return [number for number in numbers if Process.of(number)]


@pytest.mark.peer("frequency")
def test_cpupower_reads_what_was_set_and_put_back_and_is_noticed(tmp_path, opened):
    def cpupower(*arguments):
        """What it prints, and the limits (GHz) and governor of each CPU in it."""
        said = in_private_sys(host.root, "cpupower", "-c", "all", *arguments)
        return said, re.findall(r"within (.*) GHz and (.*) GHz\.\s+The governor \"(\w+)\"", said)

    with hosts.EmulatedKernel(tmp_path / "sys", hosts.westmere(), log=tmp_path / "log") as host:
        with opened() as control:
            control.fix(1.862 * GHZ)
            _, policies = cpupower("frequency-info", "-p")
            assert policies == [("1.86", "1.86", "ondemand")] * 2
            control.fix(2.128 * GHZ, method="userspace")
            said, policies = cpupower("frequency-info")
            assert policies == [("1.86", "2.13", "userspace")] * 2
            # It lists the mark of turbo too.
            steps = ", ".join(f"{f / 1e6:.2f} GHz" for f in (2395000, *hosts.WESTMERE_STEPS[::-1]))
            assert re.findall(r"frequency steps:\s+(.*)", said) == [steps] * 2
            assert said.count("driver: acpi-cpufreq") == 2
            said, _ = cpupower("frequency-info", "-f")
            assert re.findall(r"frequency: (\d+) ", said) == ["2128000"] * 2
            control.fix(1.862 * GHZ, method="limits")
            cpupower("frequency-set", "-u", "2261000")
            with pytest.raises(MeasurementError, match="to 1862000, but someth"):
                control.check()
        _, policies = cpupower("frequency-info", "-p")
        assert policies == [("1.60", "2.40", "ondemand")] * 2
