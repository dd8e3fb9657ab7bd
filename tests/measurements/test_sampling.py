"""The sampling process: what it writes, what it costs, and what it does when a source fails."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from itertools import pairwise
from pathlib import Path

import pytest
from peers.powercap import CounterProcess, CounterWriter, PowercapTree

from measurements.errors import MeasurementError
from measurements.power.energy import drawn_between, streams, summed, totals
from measurements.power.protocol import SensorError
from measurements.power.registry import parse_spec, parse_specs
from measurements.sampling import Sampling, read_samples

LOG_HEADER = "time,power_w\n"


@pytest.fixture
def tree(tmp_path):
    return PowercapTree(tmp_path / "sys")


@pytest.fixture
def opened(tmp_path):
    """Open sampling processes that are ended after the test."""
    running = []

    def open_(specs="rapl", **options):
        options = {"sysfs": tmp_path / "sys", "procfs": tmp_path / "proc", **options}
        running.append(Sampling.open(parse_specs(specs), **options))
        return running[-1]

    yield open_
    for sampling in running:
        sampling.close()


def run(sampling, file, seconds):
    """One run of so many seconds; its start and end."""
    sampling.start(file)
    start = time.monotonic()
    time.sleep(seconds)
    end = time.monotonic()
    sampling.stop()
    return start, end


def energy_of(sampling, file, label, start, end):
    channels = {c.label: c for c in sampling.channels}
    parts = totals(sampling.channels)[label]
    return summed(parts, channels, streams(read_samples(file)), start, end)


class TestSpecs:
    def test_several_with_options(self):
        made = parse_specs("rapl,ipmi@bmc-7,interface=lan,meter@TCPIP0::10.0.0.5::INSTR,log@a.csv")
        assert [(s.kind, s.where) for s in made] == [
            ("rapl", None),
            ("ipmi", "bmc-7"),
            ("meter", "TCPIP0::10.0.0.5::INSTR"),
            ("log", "a.csv"),
        ]
        assert made[1].options == {"interface": "lan"}

    def test_a_file_with_a_comma_in_its_name(self):
        made = parse_specs(r"log@watts\,rack=1.csv,column=W,rapl")
        assert [(s.kind, s.where, s.options) for s in made] == [
            ("log", "watts,rack=1.csv", {"column": "W"}),
            ("rapl", None, {}),
        ]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            (
                "raple",
                "no power source is called 'raple' .did you mean 'rapl'.*: the kinds are",
            ),
            ("redfish", "redfish needs an address"),
            ("ipmi@", "ipmi needs an address"),
            ("", "no power source is called ''"),
        ],
    )
    def test_what_is_no_source(self, text, said):
        with pytest.raises(SensorError, match=said):
            parse_specs(text)

    def test_an_option_without_a_value(self):
        with pytest.raises(SensorError, match="'lan' is no OPTION=VALUE"):
            parse_spec("ipmi@bmc,lan")


class TestCounters:
    def test_energy_of_a_run_is_what_was_drawn(self, tree, opened, tmp_path):
        package = tree.package()
        dram = tree.dram(package)
        file = tmp_path / "run.csv"
        with CounterWriter({package: 40.0, dram: 4.0}):
            sampling = opened()
            start, end = run(sampling, file, 1.0)
        for label, watts in (("rapl:package", 40.0), ("rapl:dram", 4.0)):
            drawn = energy_of(sampling, file, label, start, end)
            assert drawn.power_w == pytest.approx(watts, rel=0.03)
            assert drawn.energy_j == pytest.approx(drawn.power_w * (end - start))
            assert drawn.reason == ""
            assert drawn.readings > 5

    @pytest.mark.parametrize("wraps", [1, 5])
    def test_no_wrap_is_lost(self, tree, opened, tmp_path, wraps):
        watts, seconds = 50.0, 1.5
        range_uj = int(watts * seconds / (wraps + 0.4) * 1e6)
        package = tree.package(range_uj=range_uj, limits_w=(100.0,))
        file = tmp_path / "run.csv"
        with CounterWriter({package: watts}):
            sampling = opened(interval_s=0.5)
            start, end = run(sampling, file, seconds)
        drawn = energy_of(sampling, file, "rapl:package", start, end)
        assert drawn.power_w == pytest.approx(watts, rel=0.03)
        steps = [r.value for r in read_samples(file)]
        assert sum(b < a for a, b in pairwise(steps)) >= wraps

    def test_mirrored_dies_count_once(self, tree, opened, tmp_path):
        one, other = (tree.package(0, die) for die in (0, 1))
        file = tmp_path / "run.csv"
        with CounterWriter({one: 30.0}, mirrors={other: one}):
            sampling = opened(interval_s=0.05)
            start, end = run(sampling, file, 1.0)
        drawn = energy_of(sampling, file, "rapl:package", start, end)
        assert drawn.power_w == pytest.approx(30.0, rel=0.03)
        assert "mirrors rapl:package-0" in sampling.channels[1].note

    def test_runs_have_files_of_their_own(self, tree, opened, tmp_path):
        files = [tmp_path / f"{n}.csv" for n in range(3)]
        with CounterWriter({tree.package(): 20.0}):
            sampling = opened()
            spans = [run(sampling, file, 0.6) for file in files]
        for file, (start, end) in zip(files, spans, strict=True):
            drawn = energy_of(sampling, file, "rapl:package", start, end)
            assert drawn.power_w == pytest.approx(20.0, rel=0.1)
            at = [r.at_s for r in read_samples(file)]
            assert start - 1 < min(at) <= start
            assert end <= max(at) < end + 1

    def test_a_zone_that_goes_away_is_no_figure_and_the_rest_is(self, tree, opened, tmp_path):
        one, other = tree.package(0), tree.package(1)
        file = tmp_path / "run.csv"
        with CounterWriter({one: 30.0, other: 30.0}):
            sampling = opened()
            sampling.start(file)
            start = time.monotonic()
            time.sleep(0.3)
            tree.remove(other)
            time.sleep(0.5)
            end = time.monotonic()
            sampling.stop()
        found = streams(read_samples(file))
        first, second = (drawn_between(c, found[c.label], start, end) for c in sampling.channels)
        assert first.power_w == pytest.approx(30.0, rel=0.05)
        assert second.power_w != second.power_w
        assert "not read at both ends" in second.reason


class TestSources:
    def test_one_that_cannot_be_opened_is_an_error_with_its_remedy(self, opened, tmp_path):
        (tmp_path / "sys").mkdir()
        with pytest.raises(SensorError, match="powercap"):
            opened()

    def test_a_log_beside_counters(self, tree, opened, tmp_path):
        log = tmp_path / "meter.csv"
        log.write_text(LOG_HEADER + f"{time.time() - 5},70\n")
        file = tmp_path / "run.csv"
        with CounterWriter({tree.package(): 40.0}):
            sampling = opened(f"rapl,log@{log}")
            sampling.start(file)
            start = time.monotonic()
            for _ in range(10):
                with log.open("a") as lines:
                    lines.write(f"{time.time()},90\n")
                time.sleep(0.1)
            end = time.monotonic()
            sampling.stop()
        labels = {r.label for r in read_samples(file)}
        assert labels == {c.label for c in sampling.channels}
        wall = next(label for label in totals(sampling.channels) if label.startswith("log:"))
        assert energy_of(sampling, file, wall, start, end).power_w == pytest.approx(90.0, rel=0.05)
        package = energy_of(sampling, file, "rapl:package", start, end)
        assert package.power_w == pytest.approx(40.0, rel=0.05)

    def test_a_source_that_fails_in_a_run_is_told(self, tree, opened, tmp_path):
        package = tree.package()
        with CounterWriter({package: 40.0}):
            sampling = opened()
            sampling.start(tmp_path / "run.csv")
            tree.remove(package)
            time.sleep(0.3)
            sampling.stop()
        assert "rapl" in sampling.failures
        assert sampling.failures["rapl"]


class TestProcess:
    def test_it_is_small_and_loads_no_tables(self, tree, opened, tmp_path):
        package = tree.package()
        for _ in range(2):
            tree.core(package)
            tree.dram(package)
        zones = dict.fromkeys(tree.zones, 20.0)
        with CounterProcess(zones):
            sampling = opened()
            sampling.start(tmp_path / "run.csv")
            pid = sampling.process.pid
            before = cpu_s(pid)
            started = time.monotonic()
            time.sleep(6)
            share = (cpu_s(pid) - before) / (time.monotonic() - started)
            status = Path(f"/proc/{pid}/status").read_text()
            maps = Path(f"/proc/{pid}/maps").read_text()
            sampling.stop()
        resident_kb = int(status.partition("VmHWM:")[2].split()[0])
        assert resident_kb < 60_000
        assert "pandas" not in maps
        # A target of 0.5 %; twice that, because a busy machine's clock ticks are coarse.
        assert share < 0.01

    def test_it_ends_with_whoever_started_it(self, tree, tmp_path):
        tree.package()
        script = (
            "import sys, time; from pathlib import Path\n"
            "from measurements.sampling import Sampling\n"
            "from measurements.power.registry import parse_specs\n"
            f"s = Sampling.open(parse_specs('rapl'), sysfs=Path({str(tree.root)!r}))\n"
            f"s.start(Path({str(tmp_path / 'run.csv')!r}))\n"
            "print(s.process.pid, flush=True)\n"
            "time.sleep(60)\n"
        )
        parent = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
        with parent:
            pid = int(parent.stdout.readline())
            time.sleep(0.3)
            parent.kill()
        until = time.monotonic() + 10
        while alive(pid) and time.monotonic() < until:
            time.sleep(0.05)
        assert not alive(pid)
        assert len(read_samples(tmp_path / "run.csv")) > 0

    def test_its_death_is_an_error_that_says_what_to_do(self, tree, opened, tmp_path):
        tree.package()
        sampling = opened()
        os.kill(sampling.process.pid, signal.SIGKILL)
        sampling.process.wait()
        with pytest.raises(MeasurementError, match=r"sampling process has ended.*--resume"):
            sampling.start(tmp_path / "run.csv")

    def test_a_full_disk_is_an_error(self, tree, opened):
        tree.package()
        sampling = opened()
        with pytest.raises(MeasurementError, match="No such file"):
            sampling.start(Path("/nowhere/run.csv"))


def cpu_s(pid):
    fields = Path(f"/proc/{pid}/schedstat").read_text().split()
    total = int(fields[0])
    for task in Path(f"/proc/{pid}/task").iterdir():
        if task.name != str(pid):
            total += int((task / "schedstat").read_text().split()[0])
    return total / 1e9


def alive(pid):
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


class TestFiles:
    def test_an_unfinished_last_line_is_passed_over(self, tmp_path):
        file = tmp_path / "run.csv"
        file.write_text("label,at_s,value,source_at_s\na,1.0,2.0,\na,2.0,3.0,7\na,3.")
        assert [(r.at_s, r.source_at_s) for r in read_samples(file)] == [(1.0, None), (2.0, 7.0)]

    @pytest.mark.parametrize(
        ("text", "said"),
        [
            ("", "no file of raw readings"),
            ("a,b\n", "no file of raw readings"),
            ("label,at_s,value,source_at_s\na,x,2.0,\na,2.0,3.0,\n", "line 2 is no reading"),
        ],
    )
    def test_what_is_no_such_file(self, tmp_path, text, said):
        file = tmp_path / "run.csv"
        file.write_text(text)
        with pytest.raises(MeasurementError, match=said):
            read_samples(file)

    def test_one_that_is_not_there(self, tmp_path):
        with pytest.raises(MeasurementError, match="cannot be read"):
            read_samples(tmp_path / "none.csv")


def test_orders_are_lines(tree):
    """The process can be driven by hand, as its documentation says."""
    tree.package()
    order = {
        "do": "open",
        "sources": [["rapl", None, {}]],
        "interval_s": 0.1,
        "sysfs": str(tree.root),
        "procfs": "/proc",
        "timeout_s": 10,
    }
    done = subprocess.run(
        [sys.executable, "-m", "measurements.sampler"],
        input=json.dumps(order) + "\n",
        capture_output=True,
        text=True,
        timeout=30,
        check=True,
    )
    assert json.loads(done.stdout)["channels"][0]["label"] == "rapl:package-0"
    assert done.stderr == ""
