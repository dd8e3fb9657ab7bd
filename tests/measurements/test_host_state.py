"""The state of the host: of made-up hosts file by file, and of this one against other readers."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import psutil
import pytest
from hypothesis import given
from hypothesis import strategies as st
from peers.sysfs_host import FakeHost, arm_board, bare_machine, epyc, xeon

from measurements import tidy_runs
from measurements.host.control_groups import group_state
from measurements.host.cpu_time import host_cpu_s, scheduled_s, tick_caveat, tree_columns
from measurements.host.disks import disk_sectors
from measurements.host.heat import package_temperature_c, throttle_counts
from measurements.host.network import interface_bytes
from measurements.host.snapshot import Snapshot
from measurements.host.virtual import container, hypervisor, is_virtual_machine
from measurements.host_state import current_frequencies, read_state, throttled_between

SYSFS, PROCFS = Path("/sys"), Path("/proc")


def state_of(host: FakeHost) -> dict[str, float | str | bool]:
    return read_state(host.sysfs, host.procfs, root=host.root)


def test_a_server_tells_all_that_bends_its_line(tmp_path: Path) -> None:
    assert state_of(xeon(tmp_path)) == {
        "cpu_vendor": "GenuineIntel",
        "cpu_model": "Intel(R) Xeon(R) Gold 6334 CPU @ 3.60GHz",
        "cpu_family": "6",
        "cpu_model_number": "106",
        "cpu_stepping": "6",
        "microcode": "0xd0003d1",
        "cpus_online": 16,
        "cores_online": 8,
        "sockets_online": 2,
        "smt": True,
        "scaling_driver": "intel_pstate",
        "scaling_governor": "powersave",
        "energy_performance_preference": "balance_performance",
        "energy_performance_bias": "6",
        "scaling_min_freq_hz": 0.8e9,
        "scaling_max_freq_hz": 3.5e9,
        "turbo": True,
        "pstate_mode": "active",
        "pstate_min_share": pytest.approx(0.22),
        "pstate_max_share": 1.0,
        "hwp_dynamic_boost": False,
        "uncore_freq_hz": 2.2e9,
        "uncore_min_freq_hz": 0.8e9,
        "uncore_max_freq_hz": 2.4e9,
        "idle_driver": "intel_idle",
        "idle_governor": "menu",
        "idle_states_on": "POLL, C1, C1E",
        "idle_states_off": "C6",
        "idle_exit_latency_s": pytest.approx(10e-6),
        "power_cap_long_w": 165.0,
        "power_cap_short_w": 222.0,
        "temperature_c": 61.0,
        # Eight cores of two threads that count alike, two packages.
        "core_throttles": 16.0,
        "core_throttled_s": pytest.approx(0.24),
        "package_throttles": 10.0,
        "package_throttled_s": pytest.approx(0.14),
        "cpus_allowed": "0-3,8-11",
        "mems_allowed": "0",
        "cores_allowed": 4,
        "numa_nodes": 2,
        "numa_nodes_of_cpus": "0",
        "numa_balancing": True,
        "kernel": "6.1.0-35-amd64",
        "virtual_machine": False,
        "container": "none",
        "transparent_hugepages": "always",
        "clocksource": "tsc",
        "nmi_watchdog": True,
        "memory_bytes": 263856140 * 1024.0,
        "load_average_1min": 0.52,
        "mitigated": "spectre_v1, spectre_v2",
        "vulnerable": "mds",
    }


def test_a_host_that_tells_nothing_has_no_columns(tmp_path: Path) -> None:
    assert state_of(bare_machine(tmp_path)) == {}
    assert read_state(tmp_path / "no", tmp_path / "where", root=tmp_path / "else") == {}


def test_reading_the_runs_table_changes_nothing_of_the_state(tmp_path: Path) -> None:
    state = state_of(xeon(tmp_path))
    table = tidy_runs(pd.DataFrame([state]))
    assert table.iloc[0].to_dict() == state


def test_this_machine_answers_whatever_it_has() -> None:
    state = read_state()
    assert state["cpus_online"] == os.sysconf("SC_NPROCESSORS_ONLN")
    assert state["cores_online"] == psutil.cpu_count(logical=False)
    assert state["kernel"] == os.uname().release
    assert state["memory_bytes"] == psutil.virtual_memory().total
    assert set(current_frequencies(SYSFS)) <= set(range(os.cpu_count() or 1))


def test_the_placement_is_that_of_the_process_asked_for() -> None:
    one = min(os.sched_getaffinity(0))
    with subprocess.Popen(["sleep", "60"]) as sleeper:
        try:
            os.sched_setaffinity(sleeper.pid, {one})
            state = read_state(pid=sleeper.pid)
            assert (state["cpus_allowed"], state["cores_allowed"]) == (str(one), 1)
        finally:
            sleeper.kill()


# Clocks


def test_turbo_is_told_by_either_driver(tmp_path: Path) -> None:
    intel, amd = xeon(tmp_path / "intel"), epyc(tmp_path / "amd")
    assert state_of(intel)["turbo"] is True
    intel.put("sys/devices/system/cpu/intel_pstate/no_turbo", 1)
    assert state_of(intel)["turbo"] is False
    assert state_of(amd)["turbo"] is False
    amd.put("sys/devices/system/cpu/cpufreq/boost", 1)
    assert state_of(amd)["turbo"] is True


@pytest.mark.parametrize(
    ("host", "policies", "turbo"),
    [
        (None, (0, 0), False),
        (None, (1, 0), True),
        (1, (0, 0), False),
        (1, (1, 1), True),
        (0, (1, 1), False),
    ],
)
def test_turbo_of_single_policies(
    tmp_path: Path, host: int | None, policies: tuple[int, int], turbo: bool
) -> None:
    fake = bare_machine(tmp_path)
    cpu = "sys/devices/system/cpu/cpufreq"
    for number, flag in enumerate(policies):
        fake.put(f"{cpu}/policy{number}/boost", flag)
    if host is not None:
        fake.put(f"{cpu}/boost", host)
    assert state_of(fake)["turbo"] is turbo


def test_cores_of_two_kinds_show_both_and_the_widest_limits(tmp_path: Path) -> None:
    host = arm_board(tmp_path)
    host.put("sys/devices/system/cpu/cpufreq/policy4/scaling_governor", "performance")
    state = state_of(host)
    assert state["scaling_governor"] == "performance, schedutil"
    assert (state["scaling_min_freq_hz"], state["scaling_max_freq_hz"]) == (0.408e9, 1.8e9)
    assert state["smt"] is False
    assert state["cpu_vendor"] == "0x41"
    clocks = current_frequencies(host.sysfs)
    assert list(clocks) == [0, 1, 2, 3, 4, 5]
    assert (clocks[0], clocks[5]) == (0.6e9, 1.8e9)


def test_a_clock_that_the_driver_does_not_know_is_left_out(tmp_path: Path) -> None:
    host = epyc(tmp_path)
    host.put("sys/devices/system/cpu/cpufreq/policy3/scaling_cur_freq", "<unknown>")
    host.put("sys/devices/system/cpu/cpufreq/policy4/scaling_cur_freq", 0)
    assert list(current_frequencies(host.sysfs)) == [0, 1, 2, 5, 6, 7]


# Idle states, power caps, heat


def test_an_idle_state_that_is_on_for_one_cpu_is_on(tmp_path: Path) -> None:
    host = xeon(tmp_path)
    host.put(f"{host.cpu(5)}/cpuidle/state3/disable", 0)
    state = state_of(host)
    assert state["idle_states_on"] == "POLL, C1, C1E, C6"
    assert "idle_states_off" not in state
    assert state["idle_exit_latency_s"] == pytest.approx(133e-6)


def test_limits_that_are_off_unset_or_higher_elsewhere_do_not_hold(tmp_path: Path) -> None:
    host = bare_machine(tmp_path)
    host.power_cap("intel-rapl:0", "package-0", {"long_term": 28_000_000, "short_term": 0})
    host.power_cap("intel-rapl-mmio:0", "package-0", {"long_term": 15_000_000})
    host.power_cap("intel-rapl:1", "package-1", {"long_term": 5_000_000}, enabled=0)
    host.power_cap("intel-rapl:2", "psys", {"long_term": 1_000_000})
    assert state_of(host) == {"power_cap_long_w": 15.0}


def test_the_die_is_read_and_not_the_offset_of_the_fan_control(tmp_path: Path) -> None:
    host = epyc(tmp_path)
    assert package_temperature_c(host.sysfs) == 48.5
    host.put("sys/class/hwmon/hwmon3/temp2_input", 49_000)
    host.put("sys/class/hwmon/hwmon3/temp2_label", "Tdie")
    assert package_temperature_c(host.sysfs) == 49.0


@pytest.mark.parametrize("broken", ["-128000", "255000", "-273150", "", "N/A"])
def test_a_sensor_that_sleeps_is_no_temperature(tmp_path: Path, broken: str) -> None:
    host = bare_machine(tmp_path)
    host.hwmon(0, "coretemp", {"temp1": ("Package id 0", 0)})
    host.put("sys/class/hwmon/hwmon0/temp1_input", broken)
    assert "temperature_c" not in state_of(host)


def test_thermal_zones_serve_where_no_driver_does(tmp_path: Path) -> None:
    assert package_temperature_c(arm_board(tmp_path).sysfs) == pytest.approx(52.777)


def test_throttling_during_a_run_is_the_growth_of_its_counts(tmp_path: Path) -> None:
    host = xeon(tmp_path)
    before = state_of(host)
    assert throttled_between(before, before)["throttled"] is False
    # Both threads of core 1 see the event, and all CPUs of package 0.
    host.throttling(dict.fromkeys((1, 9), (3, 45, 6, 90)))
    host.throttling(dict.fromkeys((0, 2, 3, 8, 10, 11), (2, 30, 6, 90)))
    assert throttled_between(before, state_of(host)) == {
        "core_throttles": 1.0,
        "core_throttled_s": pytest.approx(0.015),
        "package_throttles": 1.0,
        "package_throttled_s": pytest.approx(0.02),
        "throttled": True,
    }


def test_counts_that_fell_or_were_never_kept_say_nothing(tmp_path: Path) -> None:
    host = xeon(tmp_path)
    before = state_of(host)
    host.put("sys/devices/system/cpu/online", "0-3,8-11")
    after = state_of(host)
    assert throttle_counts(host.sysfs)["package_throttles"] == 5.0
    assert throttled_between(before, after) == {}
    assert throttled_between({}, before) == {}


# Placement and quotas


@pytest.mark.parametrize(
    ("mount", "group", "files", "expected"),
    [
        ("", "0::/app", {"app/cpu.max": "150000 100000"}, {"cpu_quota_cpus": 1.5}),
        ("", "0::/app/inner", {"app/cpu.max": "50000 100000", "app/inner/cpu.max": "200000 100000"},
         {"cpu_quota_cpus": 0.5}),
        ("unified", "3:memory:/x\n0::/app", {"app/cpu.max": "max 100000"}, {}),
        ("cpu,cpuacct", "4:cpu,cpuacct:/app",
         {"app/cpu.cfs_quota_us": "200000", "app/cpu.cfs_period_us": "100000"},
         {"cpu_quota_cpus": 2.0}),
        ("cpu", "1:cpu:/app",
         {"app/cpu.cfs_quota_us": "-1", "app/cpu.cfs_period_us": "100000"}, {}),
        # In a container: the group has its outer name and is mounted at the top.
        ("", "0::/docker/4f2a", {"cpu.max": "300000 100000"}, {"cpu_quota_cpus": 3.0}),
    ],
)  # fmt: skip
def test_the_tightest_quota_of_all_groups_holds(
    tmp_path: Path, mount: str, group: str, files: dict[str, str], expected: dict[str, float]
) -> None:
    host = bare_machine(tmp_path)
    host.process(cpus="0", mems="0", cgroup=group)
    for name, value in files.items():
        folder = Path("sys/fs/cgroup", mount, name).parent
        host.put(f"{folder}/{Path(name).name}", value)
        host.put(f"{folder}/cpu.stat", "nr_periods 4\nnr_throttled 0")
    assert group_state(host.sysfs, host.procfs) == expected


def test_waiting_for_a_quota_is_throttling(tmp_path: Path) -> None:
    host = bare_machine(tmp_path)
    host.process(cpus="0", mems="0", cgroup="0::/app/inner")
    host.put("sys/fs/cgroup/app/inner/cpu.stat", "usage_usec 9\nthrottled_usec 0")
    host.put("sys/fs/cgroup/app/cpu.stat", "usage_usec 9\nthrottled_usec 1000000")
    before = state_of(host)
    host.put("sys/fs/cgroup/app/cpu.stat", "usage_usec 9\nthrottled_usec 3500000")
    assert throttled_between(before, state_of(host)) == {
        "quota_throttled_s": 2.5,
        "throttled": True,
    }


# Virtual machines and containers


@pytest.mark.parametrize(
    ("files", "virtual", "name"),
    [
        ({"proc/cpuinfo": "flags\t: fpu hypervisor"}, True, None),
        ({"proc/cpuinfo": "flags\t: fpu"}, False, None),
        ({"sys/class/dmi/id/sys_vendor": "QEMU"}, True, "qemu"),
        ({"sys/class/dmi/id/product_name": "VMware7,1"}, True, "vmware"),
        ({"sys/hypervisor/type": "xen"}, True, "xen"),
        ({"sys/hypervisor/type": "xen", "proc/xen/capabilities": "control_d",
          "proc/cpuinfo": "flags\t: fpu"}, False, None),
        ({"proc/device-tree/hypervisor/compatible": "linux,kvm"}, True, "kvm"),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2",
          "sys/class/dmi/id/product_name": "m7g.metal"}, False, None),
        ({"sys/class/dmi/id/sys_vendor": "Amazon EC2",
          "sys/class/dmi/id/product_name": "m7g.large"}, True, "amazon"),
        ({}, None, None),
    ],
)  # fmt: skip
def test_hypervisors_are_known_by_their_marks(
    tmp_path: Path, files: dict[str, str], virtual: bool | None, name: str | None
) -> None:
    host = bare_machine(tmp_path)
    for path, text in files.items():
        host.put(path, text)
    assert is_virtual_machine(host.sysfs, host.procfs) is virtual
    assert hypervisor(host.sysfs, host.procfs) == name


@pytest.mark.parametrize(
    ("path", "text", "name"),
    [
        (".dockerenv", "", "docker"),
        ("run/.containerenv", "", "podman"),
        ("run/systemd/container", "systemd-nspawn", "systemd-nspawn"),
        ("proc/1/environ", "HOME=/\0container=lxc\0", "lxc"),
        ("proc/1/cgroup", "0::/kubepods.slice/kubepods-burstable.slice/x", "kubernetes"),
        ("proc/self/cgroup", "4:cpu:/docker/4f2a", "docker"),
        ("proc/1/cgroup", "0::/user.slice/user-1000.slice", "none"),
        ("proc/version", "Linux", None),
    ],
)
def test_containers_are_known_by_their_marks(
    tmp_path: Path, path: str, text: str, name: str | None
) -> None:
    host = bare_machine(tmp_path)
    host.put(path, text)
    assert container(host.root, host.procfs) == name


def test_a_laptop_says_whether_it_is_on_its_battery(tmp_path: Path) -> None:
    host = bare_machine(tmp_path)
    supplies = "sys/class/power_supply"
    host.put_all(f"{supplies}/BAT0", {"type": "Battery", "online": 0})
    assert "on_battery" not in state_of(host)
    host.put_all(f"{supplies}/AC", {"type": "Mains", "online": 0})
    assert state_of(host)["on_battery"] is True
    host.put(f"{supplies}/AC/online", 1)
    assert state_of(host)["on_battery"] is False


# What the CPUs, disks and network did


def test_cpu_time_is_in_seconds_by_column_and_guests_are_counted_once(tmp_path: Path) -> None:
    host = bare_machine(tmp_path)
    host.put("proc/stat", "cpu  1000 200 300 40000 50 6 7 8 900 90\ncpu0 1 1 1 1 1 1 1 1 0 0")
    assert host_cpu_s(host.procfs, 100) == {
        "user_s": 10.0, "nice_s": 2.0, "system_s": 3.0, "idle_s": 400.0,
        "iowait_s": 0.5, "irq_s": 0.06, "softirq_s": 0.07, "steal_s": 0.08,
    }  # fmt: skip
    host.put("proc/stat", "cpu  1000 200 300 40000")
    assert list(host_cpu_s(host.procfs, 100)) == ["user_s", "nice_s", "system_s", "idle_s"]


@pytest.mark.parametrize("text", ["", "cpu", "cpu x y", "intr 5", "cpu0 1 2 3 4"])
def test_a_stat_file_without_cpu_time_has_no_columns(tmp_path: Path, text: str) -> None:
    host = bare_machine(tmp_path)
    host.put("proc/stat", text)
    assert host_cpu_s(host.procfs) == {}


def test_the_scheduler_is_asked_where_it_keeps_the_time(tmp_path: Path) -> None:
    host = bare_machine(tmp_path)
    assert scheduled_s(host.procfs, host.sysfs) is None
    cpus = "cpu0 0 0 0 0 0 0 1500000000 5 6\ndomain0 3 1 2\ncpu1 0 0 0 0 0 0 500000000 5 6"
    host.put("proc/schedstat", f"version 15\ntimestamp 4\n{cpus}")
    assert scheduled_s(host.procfs, host.sysfs) == pytest.approx(2.0)
    host.put("proc/schedstat", f"version 10\ntimestamp 4\n{cpus}")
    assert scheduled_s(host.procfs, host.sysfs) is None
    group = "sys/fs/cgroup/cpuacct"
    host.put(f"{group}/cpuacct.usage", 7_250_000_000)
    assert scheduled_s(host.procfs, host.sysfs) is None, "a container's own group"
    host.put(f"{group}/release_agent", "")
    assert scheduled_s(host.procfs, host.sysfs) == pytest.approx(7.25)


def disks_of(root: Path) -> FakeHost:
    host = bare_machine(root)
    host.disk("sda", "pci0000:00/ata1/block")
    host.disk("cciss/c0d0", "pci0000:00/cciss0/block")
    host.disk("nvme0c0n1", "pci0000:00/nvme/nvme0")
    host.disk("nvme0n1", "virtual/nvme-subsystem/nvme-subsys0")
    for name in ("dm-0", "md0", "loop0", "zram0"):
        host.disk(name, "virtual/block")
    host.interface("eth0", physical=True)
    host.interface("eth1", physical=True)
    host.interface("bond0", over="eth0")
    host.interface("docker0")
    host.interface("lo")
    return host


def move(host: FakeHost, sectors: int, received: int) -> None:
    names = ("sda", "sda1", "cciss/c0d0", "nvme0n1", "nvme0c0n1", "dm-0", "md0", "loop0", "zram0")
    host.diskstats(dict.fromkeys(names, (sectors, 2 * sectors)))
    faces = ("lo", "eth0", "eth1", "bond0", "docker0")
    host.net_dev(dict.fromkeys(faces, (received, 3 * received)))


def test_whole_physical_devices_are_counted_once(tmp_path: Path) -> None:
    host = disks_of(tmp_path)
    move(host, 1000, 50_000_000_000)
    assert sorted(disk_sectors(host.procfs, host.sysfs)) == ["cciss/c0d0", "nvme0c0n1", "sda"]
    assert interface_bytes(host.procfs, host.sysfs) == dict.fromkeys(
        ("eth0", "eth1"), (50_000_000_000, 150_000_000_000)
    )
    before = Snapshot.take(host.procfs, host.sysfs)
    move(host, 1100, 50_000_000_700)
    columns = before.until(Snapshot.take(host.procfs, host.sysfs))
    assert columns == {
        "sectors_read": 300.0,
        "sectors_written": 600.0,
        "network_rx_bytes": 1400.0,
        "network_tx_bytes": 4200.0,
    }


def test_in_a_container_the_interfaces_that_it_has_are_counted(tmp_path: Path) -> None:
    host = bare_machine(tmp_path)
    host.interface("lo")
    host.interface("eth0")
    host.interface("vlan5", over="eth0")
    host.net_dev({"lo": (9, 9), "eth0": (5, 6), "vlan5": (3, 3)})
    assert interface_bytes(host.procfs, host.sysfs) == {"eth0": (5, 6)}


def test_what_a_lost_device_did_is_not_known(tmp_path: Path) -> None:
    host = disks_of(tmp_path)
    move(host, 1000, 1000)
    before = Snapshot.take(host.procfs, host.sysfs)
    host.diskstats({"sda": (5000, 5000)})
    host.net_dev({"eth0": (2000, 500), "eth1": (1000, 9000)})
    columns = before.until(Snapshot.take(host.procfs, host.sysfs))
    assert "sectors_read" not in columns
    assert "sectors_written" not in columns
    # Received grew on both; eth0 began anew with what it sent.
    assert columns["network_rx_bytes"] == 1000.0
    assert "network_tx_bytes" not in columns


def test_a_new_disk_did_all_of_it_since_the_first_snapshot(tmp_path: Path) -> None:
    host = disks_of(tmp_path)
    host.diskstats({"sda": (100, 100)})
    before = Snapshot.take(host.procfs, host.sysfs)
    host.diskstats({"sda": (100, 150), "cciss/c0d0": (8, 16)})
    after = Snapshot.take(host.procfs, host.sysfs)
    assert before.until(after) == {"sectors_read": 8.0, "sectors_written": 66.0}


def test_nothing_known_is_no_column_and_never_zero(tmp_path: Path) -> None:
    nothing = Snapshot.take(tmp_path / "no", tmp_path / "where")
    assert nothing.until(nothing) == {}


SECONDS = st.floats(0, 1e9, allow_nan=False)
PAIRS = st.dictionaries(
    st.sampled_from(["a", "b", "c"]),
    st.tuples(st.integers(0, 2**64), st.integers(0, 2**64)),
)
SNAPSHOTS = st.builds(
    Snapshot,
    at_s=SECONDS,
    cpu_s=st.dictionaries(st.sampled_from(["user_s", "idle_s", "iowait_s"]), SECONDS),
    scheduled_s=st.none() | SECONDS,
    sectors=PAIRS,
    bytes_moved=PAIRS,
)


@given(SNAPSHOTS, SNAPSHOTS)
def test_no_difference_is_ever_negative(before: Snapshot, after: Snapshot) -> None:
    assert all(value >= 0 for value in before.until(after).values())


@given(SNAPSHOTS)
def test_no_time_between_is_no_work(snapshot: Snapshot) -> None:
    columns = snapshot.until(snapshot)
    assert set(columns.values()) <= {0.0}
    assert set(snapshot.cpu_s) <= set(columns)


def test_counts_of_this_host_are_those_of_psutil() -> None:
    before = psutil.cpu_times(), psutil.net_io_counters(pernic=True)
    ours = Snapshot.take()
    after = psutil.cpu_times(), psutil.net_io_counters(pernic=True)
    for name in ("user", "nice", "system", "irq", "softirq", "steal"):
        at_least, at_most = (getattr(times, name) for times in (before[0], after[0]))
        assert at_least - 0.011 <= ours.cpu_s[f"{name}_s"] <= at_most + 0.011
    assert ours.bytes_moved
    for name, (received, sent) in ours.bytes_moved.items():
        assert before[1][name].bytes_recv <= received <= after[1][name].bytes_recv
        assert before[1][name].bytes_sent <= sent <= after[1][name].bytes_sent


def test_sectors_of_this_host_are_those_of_psutil() -> None:
    before = psutil.disk_io_counters(perdisk=True)
    ours = disk_sectors(PROCFS, SYSFS)
    after = psutil.disk_io_counters(perdisk=True)
    for name, (read, written) in ours.items():
        assert before[name].read_bytes <= 512 * read <= after[name].read_bytes
        assert before[name].write_bytes <= 512 * written <= after[name].write_bytes


def test_cpu_time_of_a_run_agrees_between_its_readers() -> None:
    loop = "import time\nwhile time.process_time() < 0.4: pass"
    before = Snapshot.take()
    start_s = time.monotonic()
    child = subprocess.Popen([sys.executable, "-S", "-c", loop])
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    elapsed_s = time.monotonic() - start_s
    columns = before.until(Snapshot.take())
    tree = tree_columns(usage)
    spent_s = tree["tree_user_s"] + tree["tree_system_s"]
    assert 0.4 <= spent_s <= elapsed_s + 0.05
    # The whole host's time has the child's in it, and no more than all CPUs can give.
    if "scheduled_s" in columns:
        assert 0.95 * spent_s <= columns["scheduled_s"]
        assert columns["scheduled_s"] <= 1.1 * (os.cpu_count() or 1) * (elapsed_s + 0.1)
    assert columns["user_s"] + columns["nice_s"] + columns["system_s"] > 0
    assert tree["tree_peak_rss_bytes"] > 1e6
    assert child.returncode == 0


def test_columns_of_a_tree_are_those_of_its_rusage() -> None:
    usage = resource.struct_rusage((1.5, 0.25, 2048, 0, 0, 0, 7, 3, 0, 0, 0, 0, 0, 0, 11, 13))
    assert tree_columns(usage) == {
        "tree_user_s": 1.5,
        "tree_system_s": 0.25,
        "tree_peak_rss_bytes": 2048 * 1024,
        "tree_major_faults": 3.0,
        "tree_voluntary_switches": 11.0,
        "tree_involuntary_switches": 13.0,
    }


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"user_s": 5.0, "nice_s": 0.0, "system_s": 2.0, "scheduled_s": 10.0}, "70%"),
        ({"user_s": 5.0, "nice_s": 0.0, "system_s": 1.0, "tree_user_s": 8.0}, "75%"),
        ({"user_s": 9.0, "nice_s": 0.0, "system_s": 1.0, "scheduled_s": 10.0}, None),
        ({"user_s": 0.0, "nice_s": 0.0, "system_s": 0.0, "scheduled_s": 0.5}, None),
        ({"scheduled_s": 10.0}, None),
        ({}, None),
    ],
)
def test_ticks_that_miss_time_are_told(columns: dict[str, float], said: str | None) -> None:
    caveat = tick_caveat(columns)
    assert caveat is None if said is None else said in (caveat or "")


def test_no_reader_brings_in_the_table_libraries() -> None:
    loaded = "import sys, measurements.host_state, measurements.host.snapshot; "
    loaded += "print([m for m in ('pandas', 'numpy', 'scipy') if m in sys.modules])"
    done = subprocess.run(
        [sys.executable, "-c", loaded], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == "[]"
