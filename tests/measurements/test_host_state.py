"""The state of the host: of made-up hosts file by file, and of this one against other readers."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from hypothesis import given, strategies as st
from peers.sysfs_host import CPU, arm_board, bare_machine, xeon

from measurements import tidy_runs
from measurements.host import activity, conditions
from measurements.host.frequency_control import current_frequencies
from measurements.host.processor import container, hypervisor, is_virtual_machine

EACH_ON = {"cpufreq/policy0/boost": 1, "cpufreq/policy1/boost": 1}


@pytest.fixture
def bare(tmp_path):
    return bare_machine(tmp_path / "bare")


@pytest.fixture
def server(tmp_path):
    return xeon(tmp_path / "server")


def state_of(host):
    return conditions.read_state(host.sysfs, host.procfs, root=host.root)


def test_a_server_tells_all_that_bends_its_line(server):
    state = state_of(server)
    assert state == {
        "cpu_vendor": "GenuineIntel", "cpu_model": "Intel(R) Xeon(R) Gold 6334 CPU @ 3.60GHz",
        "cpu_family": "6", "cpu_model_number": "106", "cpu_stepping": "6", "microcode": "0xd0003d1",
        "cpus_online": 16, "cores_online": 8, "sockets_online": 2, "smt": True,
        "scaling_driver": "intel_pstate", "scaling_governor": "powersave",
        "scaling_min_freq_hz": 0.8e9, "scaling_max_freq_hz": 3.5e9, "turbo": True,
        "energy_performance_preference": "balance_performance", "energy_performance_bias": "6",
        "pstate_mode": "active", "pstate_min_share": pytest.approx(0.22), "pstate_max_share": 1.0,
        "hwp_dynamic_boost": False,
        "uncore_freq_hz": 2.2e9, "uncore_min_freq_hz": 0.8e9, "uncore_max_freq_hz": 2.4e9,
        "idle_driver": "intel_idle", "idle_governor": "menu",
        "idle_states_on": "POLL, C1, C1E", "idle_states_off": "C6",
        "idle_exit_latency_s": pytest.approx(10e-6),
        "power_cap_long_w": 165.0, "power_cap_short_w": 222.0, "temperature_c": 61.0,
        # Eight cores of two threads that count alike, two packages.
        "core_throttles": 16.0, "core_throttled_s": pytest.approx(0.24),
        "package_throttles": 10.0, "package_throttled_s": pytest.approx(0.14),
        "cpus_allowed": "0-3,8-11", "mems_allowed": "0", "cores_allowed": 4,
        "numa_nodes": 2, "numa_nodes_of_cpus": "0", "numa_balancing": True,
        "kernel": "6.1.0-35-amd64", "virtual_machine": False, "container": "none",
        "transparent_hugepages": "always", "clocksource": "tsc", "nmi_watchdog": True,
        "memory_bytes": 263856140 * 1024.0, "load_average_1min": 0.52,
        "mitigated": "spectre_v1, spectre_v2", "vulnerable": "mds",
    }  # fmt: skip
    # Reading the runs table changes nothing of it.
    assert tidy_runs(pd.DataFrame([state])).iloc[0].to_dict() == state


def test_a_host_that_tells_nothing_has_no_columns(bare, tmp_path):
    assert state_of(bare) == {}
    assert conditions.read_state(tmp_path / "no", tmp_path / "where", root=tmp_path / "else") == {}
    nothing = activity.Snapshot.take(tmp_path / "no", tmp_path / "where")
    assert nothing.until(nothing) == {}


def test_this_machine_answers_whatever_it_has_of_the_process_asked_for():
    one = min(os.sched_getaffinity(0))
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            os.sched_setaffinity(sleeper.pid, {one})
            state = conditions.read_state(pid=sleeper.pid)
        finally:
            sleeper.kill()
    assert (state["cpus_allowed"], state["cores_allowed"]) == (str(one), 1)
    assert state["cpus_online"] == os.sysconf("SC_NPROCESSORS_ONLN")
    if "cores_online" in state:
        assert state["cores_online"] == psutil.cpu_count(logical=False)
    assert state["kernel"] == os.uname().release
    assert state["memory_bytes"] == psutil.virtual_memory().total
    assert set(current_frequencies(Path("/sys"))) <= set(range(os.cpu_count()))


@pytest.mark.cases(
    "files, turbo",
    ({"intel_pstate/no_turbo": 0}, True),
    ({"intel_pstate/no_turbo": 1}, False),
    *(({"cpufreq/boost": on}, bool(on)) for on in (0, 1)),
    ({"cpufreq/policy0/boost": 0, "cpufreq/policy1/boost": 0}, False),
    ({"cpufreq/policy0/boost": 1, "cpufreq/policy1/boost": 0}, True),
    ({"cpufreq/boost": 1, "cpufreq/policy0/boost": 0, "cpufreq/policy1/boost": 0}, False),
    *(({"cpufreq/boost": on, **EACH_ON}, bool(on)) for on in (0, 1)),
)
def test_turbo_is_told_by_any_driver(bare, files, turbo):
    bare.put_all(CPU, files)
    assert state_of(bare) == {"turbo": turbo}


def test_cores_of_two_kinds_show_both_and_the_widest_limits(tmp_path):
    host = arm_board(tmp_path)
    host.put_all(CPU, {"cpufreq/policy4/scaling_governor": "performance", "smt/active": 0})
    state = state_of(host)
    assert state["scaling_governor"] == "performance, schedutil"
    assert (state["scaling_min_freq_hz"], state["scaling_max_freq_hz"]) == (0.408e9, 1.8e9)
    assert (state["smt"], state["cpu_vendor"]) == (False, "0x41")
    clocks = current_frequencies(host.sysfs)
    assert list(clocks.items()) == [*((n, 0.6e9) for n in range(4)), (4, 1.8e9), (5, 1.8e9)]
    # A clock that the driver does not know is left out.
    policies = "cpufreq/policy{}/scaling_cur_freq"
    host.put_all(CPU, {policies.format(3): "<unknown>", policies.format(4): 0})
    assert list(current_frequencies(host.sysfs)) == [0, 1, 2, 5]


def test_an_idle_state_that_is_on_for_one_cpu_is_on(server):
    server.put(f"{CPU}/cpu5/cpuidle/state3/disable", 0)
    state = state_of(server)
    assert state["idle_states_on"] == "POLL, C1, C1E, C6"
    assert "idle_states_off" not in state
    assert state["idle_exit_latency_s"] == pytest.approx(133e-6)


def test_limits_that_are_off_unset_or_higher_elsewhere_do_not_hold(bare):
    bare.power_cap("intel-rapl:0", "package-0", {"long_term": 28, "short_term": 0})
    bare.power_cap("intel-rapl-mmio:0", "package-0", {"long_term": 15})
    bare.power_cap("intel-rapl:1", "package-1", {"long_term": 5}, enabled=0)
    bare.power_cap("intel-rapl:2", "psys", {"long_term": 1})
    assert state_of(bare) == {"power_cap_long_w": 15.0}


def test_the_temperature_is_that_of_the_die_by_its_driver_or_else_by_a_zone(tmp_path, bare):
    host = bare_machine(tmp_path / "amd")
    # Tctl has an offset for the fans.
    dies = {"temp3": ("Tccd1", 47_250), "temp4": ("Tccd2", 48_500)}
    for more, told in (({"temp1": ("Tctl", 75_000)}, 48.5), ({"temp2": ("Tdie", 49_000)}, 49.0)):
        host.hwmon(3, "k10temp", dies | more)
        assert conditions.package_temperature_c(host.sysfs) == told
    board = arm_board(tmp_path / "arm")
    assert conditions.package_temperature_c(board.sysfs) == pytest.approx(52.777)
    # A sensor that sleeps is no temperature.
    for broken in ("-128000", "255000", "-273150", "", "N/A"):
        bare.hwmon(0, "coretemp", {"temp1": ("Package id 0", broken)})
        assert "temperature_c" not in state_of(bare)


def test_throttling_during_a_run_is_the_growth_of_its_counts(server):
    before = state_of(server)
    assert conditions.throttled_between(before, before)["throttled"] is False
    # Both threads of core 1 see the event, and all CPUs of package 0.
    server.throttling(dict.fromkeys((1, 9), (3, 45, 6, 90)))
    server.throttling(dict.fromkeys((0, 2, 3, 8, 10, 11), (2, 30, 6, 90)))
    assert conditions.throttled_between(before, state_of(server)) == {
        "core_throttles": 1.0, "core_throttled_s": pytest.approx(0.015),
        "package_throttles": 1.0, "package_throttled_s": pytest.approx(0.02),
        "throttled": True,
    }  # fmt: skip
    # Counts that fell or were never kept say nothing.
    after = state_of(server)
    server.put(f"{CPU}/online", "0-3,8-11")
    assert conditions.throttle_counts(server.sysfs)["package_throttles"] == 6.0
    assert conditions.throttled_between(after, state_of(server)) == {}
    assert conditions.throttled_between({}, before) == {}


def version_1(quota_us):
    return {"app/cpu.cfs_quota_us": quota_us, "app/cpu.cfs_period_us": 100000}


@pytest.mark.cases(
    "mount, group, files, quota",
    ("", "0::/app", {"app/cpu.max": "150000 100000"}, 1.5),
    ("", "0::/a/b", {"a/cpu.max": "50000 100000", "a/b/cpu.max": "200000 100000"}, 0.5),
    ("unified", "3:memory:/x\n0::/app", {"app/cpu.max": "max 100000"}, None),
    ("cpu,cpuacct", "4:cpu,cpuacct:/app", version_1(200000), 2.0),
    ("cpu", "1:cpu:/app", version_1(-1), None),
    # In a container: the group has its outer name and is mounted at the top.
    ("", "0::/docker/4f2a", {"cpu.max": "300000 100000"}, 3.0),
)
def test_the_tightest_quota_of_all_groups_holds(bare, mount, group, files, quota):
    bare.process(cgroup=group)
    mounted = Path("sys/fs/cgroup", mount)
    for name, value in files.items():
        bare.put(str(mounted / name), value)
        bare.put(str((mounted / name).parent / "cpu.stat"), "nr_periods 4\nnr_throttled 0")
    expected = {} if quota is None else {"cpu_quota_cpus": quota}
    assert activity.group_state(bare.sysfs, bare.procfs) == expected


def test_waiting_for_a_quota_is_throttling(bare):
    bare.process(cgroup="0::/app/inner")
    bare.put("sys/fs/cgroup/app/inner/cpu.stat", "usage_usec 9\nthrottled_usec 0")
    bare.put("sys/fs/cgroup/app/cpu.stat", "usage_usec 9\nthrottled_usec 1000000")
    before = state_of(bare)
    bare.put("sys/fs/cgroup/app/cpu.stat", "usage_usec 9\nthrottled_usec 3500000")
    grown = conditions.throttled_between(before, state_of(bare))
    assert grown == {"quota_throttled_s": 2.5, "throttled": True}


DMI, BARE_CPU = "sys/class/dmi/id", {"proc/cpuinfo": "flags\t: fpu"}


@pytest.mark.cases(
    "files, virtual, name",
    ({"proc/cpuinfo": "flags\t: fpu hypervisor"}, True, None),
    (BARE_CPU, False, None),
    ({f"{DMI}/sys_vendor": "QEMU"}, True, "qemu"),
    ({f"{DMI}/product_name": "VMware7,1"}, True, "vmware"),
    ({"sys/hypervisor/type": "xen"}, True, "xen"),
    ({"sys/hypervisor/type": "xen", "proc/xen/capabilities": "control_d", **BARE_CPU}, False, None),
    ({"proc/device-tree/hypervisor/compatible": "linux,kvm"}, True, "kvm"),
    ({f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m7g.metal"}, False, None),
    ({f"{DMI}/sys_vendor": "Amazon EC2", f"{DMI}/product_name": "m7g.large"}, True, "amazon"),
    ({}, None, None),
)
def test_hypervisors_are_known_by_their_marks(bare, files, virtual, name):
    for path, text in files.items():
        bare.put(path, text)
    assert is_virtual_machine(bare.sysfs, bare.procfs) is virtual
    assert hypervisor(bare.sysfs, bare.procfs) == name


@pytest.mark.cases(
    "path, text, name",
    (".dockerenv", "", "docker"),
    ("run/.containerenv", "", "podman"),
    ("run/systemd/container", "systemd-nspawn", "systemd-nspawn"),
    ("proc/1/environ", "HOME=/\0container=lxc\0", "lxc"),
    ("proc/1/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/x", "kubernetes"),
    ("proc/self/cgroup", "4:cpu:/docker/4f2a", "docker"),
    ("proc/1/cgroup", "0::/user.slice/user-1000.slice", "none"),
    ("proc/version", "Linux", None),
)
def test_containers_are_known_by_their_marks(bare, path, text, name):
    bare.put(path, text)
    assert container(bare.root, bare.procfs) == name


def test_a_laptop_says_whether_it_is_on_its_battery(bare):
    supplies = "sys/class/power_supply"
    bare.put_all(f"{supplies}/BAT0", {"type": "Battery", "online": 0})
    assert "on_battery" not in state_of(bare)
    for online in (0, 1):
        bare.put_all(f"{supplies}/AC", {"type": "Mains", "online": online})
        assert state_of(bare)["on_battery"] is not bool(online)


def test_cpu_time_is_in_seconds_by_column_and_guests_are_counted_once(bare):
    bare.put("proc/stat", "cpu  1000 200 300 40000 50 6 7 8 900 90\ncpu0 1 1 1 1 1 1 1 1 0 0")
    assert activity.host_cpu_s(bare.procfs) == {
        "user_s": 10.0, "nice_s": 2.0, "system_s": 3.0, "idle_s": 400.0,
        "iowait_s": 0.5, "irq_s": 0.06, "softirq_s": 0.07, "steal_s": 0.08,
    }  # fmt: skip
    bare.put("proc/stat", "cpu  1000 200 300 40000")
    assert list(activity.host_cpu_s(bare.procfs)) == ["user_s", "nice_s", "system_s", "idle_s"]
    for text in ("", "cpu", "cpu x y", "intr 5", "cpu0 1 2 3 4"):
        bare.put("proc/stat", text)
        assert activity.host_cpu_s(bare.procfs) == {}, text


@pytest.mark.parametrize(
    ("host", "own_s", "said"),
    [
        # One CPU of two is another's, by the scheduler where it counts, else by ticks.
        ({"scheduled_s": 6.0, "user_s": 0.1}, 3.0, (3.0, 0.5)),
        ({"user_s": 5.0, "nice_s": 0.5, "system_s": 0.5, "idle_s": 9.0}, 3.0, (3.0, 0.5)),
        # A command that sleeps: the little that others do is not all there is.
        ({"scheduled_s": 0.03}, 0.0, (0.03, 0.01)),
        ({"scheduled_s": 3.0, "steal_s": 1.0}, 3.0, (0.0, 0.25)),
        ({"scheduled_s": 2.9}, 3.0, (0.0, 0.0)),
    ],
)
def test_what_ran_beside_a_command_is_its_share_of_the_cpu_time(host, own_s, said):
    found = activity.other_work(host, own_s, 3.0)
    assert (found["other_cpu_s"], found["other_cpu_share"]) == pytest.approx(said)
    assert activity.other_work({"steal_s": 1.0}, own_s, 3.0) == {}


def test_the_scheduler_is_asked_where_it_keeps_the_time(bare):
    assert activity.scheduled_s(bare.procfs, bare.sysfs) is None
    cpus = "cpu0 0 0 0 0 0 0 1500000000 5 6\ndomain0 3 1 2\ncpu1 0 0 0 0 0 0 500000000 5 6"
    bare.put("proc/schedstat", f"version 15\ntimestamp 4\n{cpus}")
    assert activity.scheduled_s(bare.procfs, bare.sysfs) == pytest.approx(2.0)
    bare.put("proc/schedstat", f"version 10\ntimestamp 4\n{cpus}")
    assert activity.scheduled_s(bare.procfs, bare.sysfs) is None
    group = "sys/fs/cgroup/cpuacct"
    bare.put(f"{group}/cpuacct.usage", 7_250_000_000)
    assert activity.scheduled_s(bare.procfs, bare.sysfs) is None, "a container's own group"
    bare.put(f"{group}/release_agent", "")
    assert activity.scheduled_s(bare.procfs, bare.sysfs) == pytest.approx(7.25)


@pytest.fixture
def disks(bare):
    """A host with disks and interfaces that stand for others of its own."""
    bare.disk("sda", "pci0000:00/ata1/block")
    bare.disk("cciss/c0d0", "pci0000:00/cciss0/block")
    bare.disk("nvme0c0n1", "pci0000:00/nvme/nvme0")
    bare.disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0")
    for name in ("dm-0", "md0", "loop0", "zram0"):
        bare.disk(name, "virtual/block")
    for name in ("eth0", "eth1", "docker0", "lo"):
        bare.interface(name, physical=name.startswith("eth"))
    bare.interface("bond0", over="eth0")
    return bare


def move(host, sectors, received):
    """Set what all disks and interfaces have moved; returns a snapshot."""
    names = ("sda", "sda1", "cciss/c0d0", "nvme0n1", "nvme0c0n1", "dm-0", "md0", "loop0", "zram0")
    host.diskstats(dict.fromkeys(names, (sectors, 2 * sectors)))
    faces = ("lo", "eth0", "eth1", "bond0", "docker0")
    host.net_dev(dict.fromkeys(faces, (received, 3 * received)))
    return activity.Snapshot.take(host.procfs, host.sysfs)


def test_whole_physical_devices_are_counted_once(disks, tmp_path):
    before = move(disks, 1000, 50_000_000_000)
    found = activity.disk_sectors(disks.procfs, disks.sysfs)
    assert sorted(found) == ["cciss/c0d0", "nvme0c0n1", "sda"]
    moved = activity.interface_bytes(disks.procfs, disks.sysfs)
    assert moved == dict.fromkeys(("eth0", "eth1"), (50_000_000_000, 150_000_000_000))
    grown = {"sectors_read": 300.0, "sectors_written": 600.0}
    grown |= {"network_rx_bytes": 1400.0, "network_tx_bytes": 4200.0}
    assert before.until(move(disks, 1100, 50_000_000_700)) == grown
    # In a container the interfaces that it has are counted.
    inside = bare_machine(tmp_path / "container")
    for name, over in (("lo", None), ("eth0", None), ("vlan5", "eth0")):
        inside.interface(name, over=over)
    inside.net_dev({"lo": (9, 9), "eth0": (5, 6), "vlan5": (3, 3)})
    assert activity.interface_bytes(inside.procfs, inside.sysfs) == {"eth0": (5, 6)}


def test_what_a_lost_device_did_is_not_known_and_a_new_one_did_all_of_it(disks):
    before = move(disks, 1000, 1000)
    disks.diskstats({"sda": (5000, 5000)})
    disks.net_dev({"eth0": (2000, 500), "eth1": (1000, 9000)})
    after = activity.Snapshot.take(disks.procfs, disks.sysfs)
    # Received grew on both; eth0 began anew with what it sent.
    assert before.until(after) == {"network_rx_bytes": 1000.0}
    disks.diskstats({"sda": (5000, 5050), "cciss/c0d0": (8, 16)})
    columns = after.until(activity.Snapshot.take(disks.procfs, disks.sysfs))
    assert (columns["sectors_read"], columns["sectors_written"]) == (8.0, 66.0)


SECONDS = st.floats(0, 1e9, allow_nan=False)
COUNTS = st.integers(0, 2**64)
PAIRS = st.dictionaries(st.sampled_from(["a", "b", "c"]), st.tuples(COUNTS, COUNTS))
SNAPSHOTS = st.builds(
    activity.Snapshot,
    at_s=SECONDS,
    cpu_s=st.dictionaries(st.sampled_from(["user_s", "idle_s", "iowait_s"]), SECONDS),
    scheduled_s=st.none() | SECONDS,
    sectors=PAIRS,
    bytes_moved=PAIRS,
)


@given(SNAPSHOTS, SNAPSHOTS)
def test_no_difference_is_ever_negative_and_no_time_between_is_no_work(before, after):
    assert all(value >= 0 for value in before.until(after).values())
    columns = before.until(before)
    assert set(columns.values()) <= {0.0}
    assert set(before.cpu_s) <= set(columns)


def test_counts_of_this_host_are_those_of_psutil():
    def others():
        disks = psutil.disk_io_counters(perdisk=True) or {}
        return psutil.cpu_times(), psutil.net_io_counters(pernic=True), disks

    before, ours, after = others(), activity.Snapshot.take(), others()
    for name in ("user", "nice", "system", "irq", "softirq", "steal"):
        at_least, at_most = (getattr(times, name) for times in (before[0], after[0]))
        assert at_least - 0.011 <= ours.cpu_s[f"{name}_s"] <= at_most + 0.011
    for moved, unit, theirs, names in (
        (ours.bytes_moved, 1, 1, ("bytes_recv", "bytes_sent")),
        (ours.sectors, 512, 2, ("read_bytes", "write_bytes")),
    ):
        for device, counts in moved.items():
            for name, count in zip(names, counts, strict=True):
                at_least, at_most = (getattr(w[theirs][device], name) for w in (before, after))
                assert at_least <= unit * count <= at_most


def test_cpu_time_of_a_run_agrees_between_its_readers():
    loop = "import time\nwhile time.process_time() < 0.15: pass"
    before = activity.Snapshot.take()
    start_s = time.monotonic()
    child = subprocess.Popen([sys.executable, "-S", "-c", loop])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s = time.monotonic() - start_s
    columns = before.until(activity.Snapshot.take())
    spent_s = usage.ru_utime + usage.ru_stime
    assert 0.15 <= spent_s <= elapsed_s + 0.05
    # The whole host's time has the child's in it, and no more than all CPUs can give.
    if "scheduled_s" in columns:
        assert 0.95 * spent_s <= columns["scheduled_s"]
        assert columns["scheduled_s"] <= 1.1 * os.cpu_count() * (elapsed_s + 0.1)
    assert columns["user_s"] + columns["nice_s"] + columns["system_s"] > 0
    assert child.returncode == 0
