"""Clocks are set as the kernel takes them and always put back.

The peers: an emulated kernel behind mounted files (`peers.cpufreq`), which refuses and clamps as
the real one does, and cpupower, which reads and writes the same files.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import textwrap
import time
from pathlib import Path
from random import Random

import pytest
from peers.cpufreq import (
    WESTMERE_STEPS,
    CpufreqTree,
    EmulatedKernel,
    HostSpec,
    PolicySpec,
    alder_lake,
    skylake,
    westmere,
    zen,
)

from measurements.cpufreq import current_hz, read_policies
from measurements.errors import MeasurementError
from measurements.frequency import FrequencyControl
from measurements.guard import restore_leftovers
from measurements.guard_journal import Process

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parents[1]
GHZ = 1e9
DEADLINE_S = 10.0
CAPPED = {"lower": 1500000, "upper": 1800000}


@pytest.fixture
def tree(tmp_path):
    """Plain files of a host; call with its description."""
    return lambda spec: CpufreqTree(tmp_path / "sys", spec)


@pytest.fixture
def kernel(tmp_path):
    """Files of a host with the kernel's behaviour; call with its description."""
    running = []

    def start(spec):
        running.append(EmulatedKernel(tmp_path / "sys", spec))
        return running[-1]

    yield start
    for one in running:
        one.__exit__(None, None, None)


@pytest.fixture
def opened(tmp_path):
    """Open a control of the files in ``sys``."""
    state = tmp_path / "state"
    state.mkdir(mode=0o700)
    return lambda **options: FrequencyControl.open(
        **{"sysfs": tmp_path / "sys", "state": state, **options}
    )


def limits(kernel, policy=0):
    folder = kernel.cpu / f"cpufreq/policy{policy}"
    return tuple(
        int((folder / name).read_text()) for name in ("scaling_min_freq", "scaling_max_freq")
    )


def eventually(condition):
    """Wait until a condition holds, and fail when it does not."""
    until = time.monotonic() + DEADLINE_S
    while not condition():
        assert time.monotonic() < until, "it did not come to be in time"
        time.sleep(0.002)


def written(kernel):
    return [(write.path.removeprefix("cpufreq/"), write.text) for write in kernel.writes()]


class TestDiscovery:
    def test_a_table_of_steps(self, tree):
        policy = read_policies(tree(westmere()).root)[1]
        assert policy.name == "policy1"
        assert policy.cpus == (1,)
        assert policy.driver == "acpi-cpufreq"
        assert policy.steps_hz[0] == 1.596 * GHZ
        assert len(policy.steps_hz) == len(WESTMERE_STEPS)
        assert policy.turbo_mark_hz == 2.395 * GHZ
        assert "userspace" in policy.governors

    def test_a_range_without_a_table(self, tree):
        policy = read_policies(tree(skylake()).root)[0]
        assert policy.steps_hz == ()
        assert (policy.lowest_hz, policy.highest_hz) == (1.0 * GHZ, 3.7 * GHZ)

    def test_files_below_each_cpu_as_old_kernels_have_them(self, tree):
        spec = westmere(below_cpus=True)
        spec.policies[0].cpus, spec.policies[1].cpus = [0, 2], [1, 3]
        policies = read_policies(tree(spec).root)
        assert [(policy.name, policy.cpus) for policy in policies] == [
            ("cpu0", (0, 2)),
            ("cpu1", (1, 3)),
        ]

    def test_policies_of_offline_cpus_are_passed_over(self, tree):
        host = tree(westmere())
        (host.cpu / "cpufreq/policy1/affected_cpus").write_text("\n")
        assert [policy.cpus for policy in read_policies(host.root)] == [(0,)]
        with pytest.raises(MeasurementError, match=r"CPUs 1,7 .* offline or not there"):
            read_policies(host.root, [0, 1, 7])

    @pytest.mark.parametrize(("turned_on", "highest"), [(True, 3.3), (False, 2.2)])
    def test_steps_of_boost_count_while_it_is_on(self, tree, turned_on, highest):
        host = tree(zen(turbo_on=turned_on))
        for folder in host.cpu.glob("cpufreq/policy*"):
            (folder / "scaling_boost_frequencies").write_text("3300000\n")
        steps = FrequencyControl.open(sysfs=host.root, dry_run=True).steps()
        assert steps.steps_hz[-1] == steps.highest_hz == highest * GHZ

    def test_without_control_the_message_says_what_to_do(self, tmp_path):
        (tmp_path / "sys/devices/system/cpu/cpu0").mkdir(parents=True)
        (tmp_path / "proc").mkdir()
        (tmp_path / "proc/cpuinfo").write_text("processor : 0\nflags\t\t: fpu lm\n")
        where = {"sysfs": tmp_path / "sys", "procfs": tmp_path / "proc"}
        with pytest.raises(MeasurementError, match=r"Atom D510.*--as-found measures"):
            FrequencyControl.open(**where)
        (tmp_path / "proc/cpuinfo").write_text("processor : 0\nflags\t\t: fpu lm hypervisor\n")
        with pytest.raises(MeasurementError, match=r"virtual machine.*--as-found measures"):
            FrequencyControl.open(**where)
        with pytest.raises(MeasurementError, match="no such folder"):
            FrequencyControl.open(sysfs=tmp_path / "none")

    def test_the_clock_now_is_the_median_over_the_cpus_used(self, tree):
        host = tree(alder_lake())
        for cpu, khz in enumerate(("3000000", "4000000", "<unknown>", "1000000")):
            (host.cpu / f"cpufreq/policy{cpu}/scaling_cur_freq").write_text(khz)
        policies = read_policies(host.root)
        assert current_hz(policies) == 3.0 * GHZ
        assert current_hz(policies, [0, 1]) == 3.5 * GHZ
        assert current_hz(policies, [2]) is None
        assert current_hz(policies, []) is None


class TestRefusals:
    """Nothing is rounded to a step, and nothing written when a policy cannot take it."""

    @pytest.mark.parametrize(
        ("asked", "text"),
        [
            (1.9 * GHZ, "1.9 GHz is no step; those around it are 1.862 GHz and 1.995 GHz"),
            (1.5 * GHZ, "1.5 GHz is below the lowest step, 1.596 GHz"),
            (3.0 * GHZ, "3 GHz is above the highest step, 2.394 GHz"),
            (2.395 * GHZ, "2.395 GHz stands for turbo, whose clock is not fixed"),
            (2.4, "is it in GHz or MHz"),
            (float("nan"), "is no number"),
        ],
    )
    def test_no_step(self, kernel, opened, asked, text):
        host = kernel(westmere())
        with opened() as control, pytest.raises(MeasurementError, match=text):
            control.fix(asked)
        assert host.writes() == []

    @pytest.mark.parametrize("asked", [0.9 * GHZ, 3.8 * GHZ])
    def test_outside_a_range(self, tree, opened, asked):
        tree(skylake())
        with opened(dry_run=True) as control:
            text = r"policy0, policy1 \(CPUs 0-1\): .* range from 1 GHz to 3.7 GHz"
            with pytest.raises(MeasurementError, match=text):
                control.fix(asked)
            assert control.writes == []

    def test_a_hybrid_processor_names_who_can(self, tree, opened):
        tree(alder_lake())
        with opened(dry_run=True) as control:
            assert control.steps().highest_hz == 3.8 * GHZ
            text = r"policy2, policy3 \(CPUs 2-3\): 4.5 GHz .*policy0, policy1 \(CPUs 0-1\) can be"
            with pytest.raises(MeasurementError, match=text):
                control.fix(4.5 * GHZ)
        with opened(dry_run=True, cpus=[0, 1]) as control:
            control.fix(4.5 * GHZ)
            assert {write.path.parent.name for write in control.writes} == {"policy0", "policy1"}

    def test_many_policies_are_not_all_listed(self, tree, opened):
        tree(HostSpec([PolicySpec([cpu], 800000, 2400000) for cpu in range(16)]))
        text = r"policy0, …, policy15 \(CPUs 0-15\)"
        with opened(dry_run=True) as control, pytest.raises(MeasurementError, match=text):
            control.fix(3 * GHZ)

    def test_policies_with_nothing_in_common(self, tree, opened):
        policies = [PolicySpec([0], 800000, 1200000), PolicySpec([1], 1500000, 2400000)]
        tree(HostSpec(policies))
        with opened(dry_run=True) as control:
            assert str(control.steps()) == "Clocks(lowest_hz=nan, highest_hz=nan, steps_hz=())"

    @pytest.mark.parametrize(
        ("share", "value", "asked"), [("max_perf_pct", "50", 3.0), ("min_perf_pct", "60", 1.0)]
    )
    def test_shares_of_intel_pstate_that_would_hold_the_clock(
        self, tree, opened, share, value, asked
    ):
        host = tree(skylake())
        (host.cpu / "intel_pstate" / share).write_text(value)
        text = rf"{share}: write \d+ there"
        with opened(dry_run=True) as control, pytest.raises(MeasurementError, match=text):
            control.fix(asked * GHZ)
        (host.cpu / "intel_pstate/status").write_text("passive")
        with opened(dry_run=True) as control:
            control.fix(asked * GHZ)

    def test_while_heat_lowers_the_limits(self, tree, opened):
        host = tree(skylake())
        device = host.root / "class/thermal/cooling_device0"
        device.mkdir(parents=True)
        (device / "type").write_text("Processor\n")
        (device / "cur_state").write_text("3\n")
        opened().close()
        (host.cpu / "cpufreq/policy0/scaling_max_freq").write_text("1500000\n")
        with pytest.raises(MeasurementError, match=r"heat now \(cooling_device0\).* cool down"):
            opened()
        (device / "cur_state").write_text("0\n")
        opened().close()

    def test_heat_does_not_keep_what_a_killed_one_left(self, tree, opened, tmp_path):
        host = tree(skylake())
        device = host.root / "class/thermal/cooling_device0"
        device.mkdir(parents=True)
        (device / "type").write_text("Processor\n")
        (device / "cur_state").write_text("0\n")
        child = os.fork()
        if not child:
            control = opened()
            control.fix(1.5 * GHZ)
            os.kill(control._guard.pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        os.waitpid(child, 0)
        upper = host.cpu / "cpufreq/policy0/scaling_max_freq"
        assert upper.read_text() == "1500000\n"
        (device / "cur_state").write_text("3\n")
        opened().close()
        assert upper.read_text() == "3700000\n"


class TestLimits:
    @pytest.mark.parametrize("old", [True, False])
    def test_they_never_cross_on_any_way_through_the_steps(self, kernel, opened, old):
        host = kernel(westmere(old=old))
        before = host.state()
        way = [step * 1000.0 for step in WESTMERE_STEPS]
        Random(5).shuffle(way)
        with opened() as control:
            for asked in (*way, *reversed(way)):
                control.fix(asked)
                assert limits(host) == limits(host, 1) == (asked / 1000, asked / 1000)
                assert control.achieved_hz() == asked
                control.check()
        assert host.state() == before
        writes = host.writes()
        assert len(writes) > 4 * len(way)
        assert not any(write.error for write in writes)
        assert all(lower <= upper for write in writes for lower, upper in write.limits)

    def test_only_the_policies_of_chosen_cpus(self, kernel, opened):
        host = kernel(skylake())
        with opened(cpus=[1]) as control:
            control.fix(2 * GHZ)
            assert limits(host, 0) == (1000000, 3700000)
            assert limits(host, 1) == (2000000, 2000000)

    @pytest.mark.parametrize(
        ("policy", "orders", "asked", "text"),
        [
            ({"bios_limit": 1800000}, {}, 2.0, r"no more than 1.8 GHz \(bios_limit\)"),
            ({}, {"heat": 1500000}, 2.0, "heat or a power limit holds it"),
        ],
    )
    def test_what_is_asked_for_is_not_what_is_set(
        self, kernel, opened, policy, orders, asked, text
    ):
        spec = skylake()
        for one in spec.policies:
            vars(one).update(policy)
        host = kernel(spec)
        before = host.state()
        with opened() as control:
            for number in range(len(spec.policies)):
                host.order(number, **orders)
            with pytest.raises(MeasurementError, match=text):
                control.fix(asked * GHZ)
            for number in range(len(spec.policies)):
                host.order(number, heat=0)
        assert host.state() == before

    def test_something_else_that_changes_them_is_noticed(self, kernel, opened):
        host = kernel(skylake())
        with opened() as control:
            control.fix(2 * GHZ)
            (host.cpu / "cpufreq/policy1/scaling_max_freq").write_text("3000000")
            with pytest.raises(MeasurementError, match=r"is 3000000, by something else: stop"):
                control.check()

    def test_a_cpu_that_went_offline_is_told(self, kernel, opened):
        host = kernel(skylake())
        control = opened()
        control.fix(2 * GHZ)
        host.order(1, offline=True)
        unrestored = control.close()
        assert [(left.path.parent.name, left.reason) for left in unrestored] == [
            ("policy1", "it is '2000000', and refuses: Device or resource busy")
        ] * len(unrestored)
        assert {left.path.name for left in unrestored} >= {"scaling_min_freq", "scaling_max_freq"}
        assert limits(host) == (1000000, 3700000)


class TestUserspace:
    def test_the_governor_and_its_speed(self, kernel, opened):
        host = kernel(westmere())
        before = host.state()
        with opened() as control:
            control.fix(1.862 * GHZ, method="userspace")
            control.fix(2.128 * GHZ, method="userspace")
            control.check()
            assert control.achieved_hz() == 2.128 * GHZ
            assert limits(host) == (1596000, 2395000)
        assert written(host)[:2] == [
            ("policy0/scaling_governor", "userspace"),
            ("policy0/scaling_setspeed", "1862000"),
        ]
        assert host.state() == before

    def test_limits_make_way_for_the_speed(self, kernel, opened):
        spec = zen()
        vars(spec.policies[0]).update(lower=1800000, upper=1800000)
        host = kernel(spec)
        with opened(cpus=[0]) as control:
            for asked in (1.5, 2.2):
                control.fix(asked * GHZ, method="userspace")
                assert control.achieved_hz() == asked * GHZ
        assert limits(host) == (1800000, 1800000)

    @pytest.mark.parametrize("method", ["auto", "limits"])
    def test_where_it_is_in_charge_its_speed_comes_back(self, kernel, opened, method):
        spec = westmere()
        for policy in spec.policies:
            policy.governor = "userspace"
        host = kernel(spec)
        for folder in (host.cpu / "cpufreq").iterdir():
            (folder / "scaling_setspeed").write_text("1995000")
        with opened() as control:
            control.fix(2.261 * GHZ, method=method)
            assert control.achieved_hz() == 2.261 * GHZ
            names = {write.path.name for write in control.writes}
            assert names == (
                {"scaling_setspeed"}
                if method == "auto"
                else {"scaling_min_freq", "scaling_max_freq"}
            )
        for folder in (host.cpu / "cpufreq").iterdir():
            assert (folder / "scaling_setspeed").read_text() == "1995000\n"

    def test_where_there_is_none(self, tree, opened):
        tree(skylake())
        text = "modprobe cpufreq_userspace"
        with opened(dry_run=True) as control, pytest.raises(MeasurementError, match=text):
            control.fix(2 * GHZ, method="userspace")


class TestTurbo:
    @pytest.mark.parametrize("old", [True, False])
    @pytest.mark.parametrize("turned_on", [True, False])
    @pytest.mark.parametrize("host", [skylake, zen])
    def test_it_and_the_limits_that_move_with_it_are_put_back(
        self, kernel, opened, host, turned_on, old
    ):
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

    def test_frequencies_of_turbo_go_with_it(self, kernel, opened):
        kernel(skylake())
        with opened() as control:
            control.fix(3 * GHZ)
            control.turn_turbo(False)
            assert control.steps().highest_hz == 2.1 * GHZ
            with pytest.raises(MeasurementError, match=r"range from 1 GHz to 2.1 GHz"):
                control.fix(3 * GHZ)

    def test_as_it_is_already_nothing_is_written(self, kernel, opened):
        host = kernel(zen(turbo_on=False, turbo_locked=True))
        with opened() as control:
            control.turn_turbo(False)
        assert host.writes() == []

    def test_off_in_the_firmware(self, kernel, opened):
        kernel(skylake(turbo_on=False, turbo_locked=True))
        text = r"no_turbo takes no 0: .* firmware"
        with opened() as control, pytest.raises(MeasurementError, match=text):
            control.turn_turbo(True)

    def test_no_switch(self, tree, opened):
        tree(westmere())
        with opened(dry_run=True) as control:
            assert control.turbo is None
            with pytest.raises(MeasurementError, match="no switch for turbo"):
                control.turn_turbo(False)

    def test_of_each_policy(self, kernel, opened):
        host = kernel(zen(turbo="each"))
        first, second = (host.cpu / f"cpufreq/policy{cpu}/boost" for cpu in (0, 1))
        with opened(cpus=[1]) as control:
            control.turn_turbo(False)
            assert control.turbo is False
            assert (first.read_text(), second.read_text()) == ("1\n", "0\n")
        with opened() as control:
            first.write_text("0")
            assert control.turbo is None
            control.turn_turbo(False)
            assert (first.read_text(), second.read_text()) == ("0\n", "0\n")
        assert (first.read_text(), second.read_text()) == ("1\n", "1\n")


class TestDryRun:
    @pytest.mark.parametrize("host", [westmere, skylake, zen])
    def test_it_tells_just_what_would_be_written(self, kernel, opened, host):
        running = kernel(host())

        def sweep(control):
            with control:
                if control.turbo is not None:
                    control.turn_turbo(False)
                for asked in (1.596, 2.128) if host is westmere else (1.5, 1.8):
                    control.fix(asked * GHZ)
                control.check()
            return control.writes, control.to_restore

        before = running.state()
        imagined = sweep(opened(dry_run=True))
        assert running.writes() == []
        assert imagined == sweep(opened())
        assert running.state() == before
        kept = {str(s.path.relative_to(running.cpu)): s.value for s in imagined[1]}
        assert kept.items() <= before.items()


class TestLeaving:
    def test_opening_writes_nothing(self, kernel, opened):
        host = kernel(zen())
        with opened():
            pass
        assert host.writes() == []

    def test_two_at_once(self, kernel, opened):
        kernel(zen())
        with opened(), pytest.raises(MeasurementError, match=rf"process {os.getpid()}\)"):
            opened()

    @pytest.mark.parametrize("kills", [30, pytest.param(100, marks=pytest.mark.slow)])
    def test_killed_at_random_moments_all_is_always_put_back(self, kernel, tmp_path, kills):
        spec = zen(old=True)
        for policy in spec.policies:
            vars(policy).update(CAPPED)
        host = kernel(spec)
        before = host.state()
        state = tmp_path / "state"
        state.mkdir(mode=0o700)
        chance = Random(20120413)
        caught = 0
        for _ in range(kills):
            ppw = _sweeping(host, state)
            try:
                time.sleep(chance.uniform(0, 0.3))
                caught += host.state() != before
                how = _kill(ppw, state, chance)
            finally:
                ppw.kill()
                ppw.wait(DEADLINE_S)
            eventually(lambda: not any(map(_has_guard, state.iterdir())))
            if how == "both":
                restore_leftovers(lock=host.cpu, state=state)
            # A guard that was only starting may write its journal after its ppw is gone.
            eventually(lambda: host.state() == before and not list(state.iterdir()))
        # Neither before the first change nor after the last were nearly all; how many were depends
        # on how quickly a process starts.
        assert kills / 10 <= caught < kills
        writes = host.writes()
        assert not any(write.error for write in writes)
        assert all(lower <= upper for write in writes for lower, upper in write.limits)


SWEEPS = """
import sys
sys.path.append(sys.argv[1])
from pathlib import Path
from measurements.frequency import FrequencyControl

sysfs, state = map(Path, sys.argv[2:])
print("started", flush=True)
while True:
    with FrequencyControl.open(sysfs=sysfs, state=state) as control:
        control.turn_turbo(False)
        for asked in (1.8e9, 2.2e9, 1.5e9) * 10:
            control.fix(asked)
            control.fix(asked, method="userspace")
"""


def _sweeping(host, state):
    process = subprocess.Popen(
        [sys.executable, "-I", "-S", "-c", SWEEPS, str(ROOT), str(host.root), str(state)],
        stdout=subprocess.PIPE,
        start_new_session=True,
    )
    with process.stdout:
        assert process.stdout.readline() == b"started\n"
    return process


def _kill(ppw, state, chance):
    """Kill ppw, its whole group, or ppw and its guard together; returns which."""
    how = chance.choice(["ppw", "group", "both"])
    if how == "both":
        for journal in filter(_has_guard, state.iterdir()):
            os.kill(_guard_of(journal), signal.SIGKILL)
    (os.killpg if how == "group" else os.kill)(ppw.pid, signal.SIGKILL)
    return how


def _guard_of(journal):
    return int(journal.name.split("-")[1])


def _has_guard(journal):
    return Process.of(_guard_of(journal)) is not None


IN_NAMESPACE = """
import json, os, subprocess, sys
from pathlib import Path
sys.path[:0] = {paths!r}
from peers.cpufreq import EmulatedKernel, skylake, westmere, zen
from measurements.errors import MeasurementError
from measurements.frequency import FrequencyControl

scratch = Path(sys.argv[1])
said = {{}}
def cpupower(*arguments):
    command = ["cpupower", "-c", "all", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout
def refusal():
    try:
        FrequencyControl.open(state=scratch).close()
    except MeasurementError as error:
        return str(error)
with EmulatedKernel(Path("/sys"), {host}(), log=scratch / "writes.jsonl") as kernel:
{body}
print(json.dumps(said))
"""


def in_namespace(tmp_path, host, body):
    """Run code where /sys/devices/system/cpu is that of an emulated host; returns ``said``."""
    code = IN_NAMESPACE.format(
        paths=[str(TESTS), str(ROOT)],
        host=host,
        body=textwrap.indent(textwrap.dedent(body), "    "),
    )
    done = subprocess.run(
        ["unshare", "-m", sys.executable, "-c", code, str(tmp_path)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def _policies(told):
    """Limits and governor of each CPU, from what cpupower prints."""
    pattern = r"within (.* GHz) and (.* GHz)\.\s+The governor \"(\w+)\""
    return re.findall(pattern, told)


class TestWhereTheFilesReallyAre:
    def test_cpupower_reads_what_was_set_and_what_was_put_back(self, tmp_path):
        said = in_namespace(
            tmp_path,
            "westmere",
            """
            said["before"] = cpupower("frequency-info", "-p")
            with FrequencyControl.open(state=scratch) as control:
                control.fix(1.862e9)
                said["fixed"] = cpupower("frequency-info", "-p")
                control.fix(2.128e9, method="userspace")
                said["speed"] = cpupower("frequency-info", "-p")
                said["clock"] = cpupower("frequency-info", "-f")
                said["steps"] = control.steps().steps_hz
                said["listed"] = cpupower("frequency-info")
            said["after"] = cpupower("frequency-info", "-p")
            """,
        )
        assert _policies(said["before"]) == [("1.60 GHz", "2.40 GHz", "ondemand")] * 2
        assert _policies(said["fixed"]) == [("1.86 GHz", "1.86 GHz", "ondemand")] * 2
        assert [policy[2] for policy in _policies(said["speed"])] == ["userspace"] * 2
        assert re.findall(r"frequency: (\d+) ", said["clock"]) == ["2128000"] * 2
        assert said["after"] == said["before"]
        listed = re.findall(r"frequency steps:\s+(.*)", said["listed"])
        steps = ", ".join(f"{step / GHZ:.2f} GHz" for step in reversed(said["steps"]))
        # It lists the mark of turbo too.
        assert listed == [f"2.40 GHz, {steps}"] * 2
        assert said["listed"].count("driver: acpi-cpufreq") == 2

    def test_a_change_by_cpupower_is_noticed(self, tmp_path):
        said = in_namespace(
            tmp_path,
            "skylake",
            """
            with FrequencyControl.open(state=scratch) as control:
                control.fix(2e9)
                control.check()
                cpupower("frequency-set", "-u", "2500000")
                try:
                    control.check()
                except MeasurementError as error:
                    said["error"] = str(error)
            said["after"] = kernel.state()
            """,
        )
        assert "was set to 2000000 and is 2500000, by something else" in said["error"]
        assert said["after"]["cpufreq/policy0/scaling_max_freq"] == "3700000"

    def test_read_only_as_in_a_container(self, tmp_path):
        said = in_namespace(
            tmp_path,
            "zen",
            """
            cpu = "/sys/devices/system/cpu"
            subprocess.run(["mount", "--bind", cpu, cpu], check=True)
            subprocess.run(["mount", "-o", "remount,ro,bind", cpu], check=True)
            said["error"] = refusal()
            with FrequencyControl.open(dry_run=True) as control:
                control.fix(1.8e9)
                said["writes"] = len(control.writes)
            subprocess.run(["umount", cpu], check=True)
            """,
        )
        assert "is mounted read-only, as in a container: run ppw on the host" in said["error"]
        assert said["writes"] == 4

    def test_without_the_right_to_it(self, tmp_path):
        said = in_namespace(
            tmp_path,
            "zen",
            """
            back, way = os.pipe()
            child = os.fork()
            if not child:
                os.setresuid(65534, 65534, 65534)
                os.write(way, refusal().encode())
                os._exit(0)
            os.waitpid(child, 0)
            said["error"] = os.read(back, 4096).decode()
            """,
        )
        assert "no right to set clocks" in said["error"]
        assert "run as root (sudo)" in said["error"]
