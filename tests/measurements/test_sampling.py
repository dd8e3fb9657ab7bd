"""The sampling process: what it writes, how often it reads, what it does when a source fails."""

import json
import signal
import subprocess
import sys
import threading
import time
from itertools import pairwise
from pathlib import Path

import pytest
from peers.powercap import Counters, CounterWriter, PowercapTree
from peers.waiting import FakeTime, is_running, wait_for

from measurements.errors import MeasurementError
from measurements.power import power_log, rapl, sampler as sm
from measurements.power.energy import channel_energy, streams, total_energy, totals
from measurements.power.source import Channel, Login, SensorError, Spec, parse_spec, parse_specs

HEADER = "label,at_s,value,source_at_s\n"


@pytest.fixture
def tree(tmp_path):
    return PowercapTree(tmp_path / "sys")


def test_sources_with_options_and_a_file_with_commas_in_its_name_and_what_is_no_source():
    text = r"rapl,ipmi@bmc-7,interface=lan,meter@TCPIP0::10.0.0.5::INSTR,log@w\,r=1.csv,column=W"
    assert parse_specs(text) == [
        *(Spec("rapl", None, {}), Spec("ipmi", "bmc-7", {"interface": "lan"})),
        *(Spec("meter", "TCPIP0::10.0.0.5::INSTR", {}), Spec("log", "w,r=1.csv", {"column": "W"})),
    ]
    for text, said in {
        "raple": "no power source is called 'raple' .did you mean 'rapl'.*: the kinds are",
        "redfish": "redfish needs an address",
        "ipmi@": "ipmi needs an address",
        "": "no power source is called ''",
        "ipmi@bmc,lan": "'lan' is no OPTION=VALUE",
    }.items():
        with pytest.raises(SensorError, match=said):
            (parse_spec if "," in text else parse_specs)(text)


class Run:
    """A sampler in this process, and runs of counters by a made-up clock."""

    def __init__(self, tree, tmp_path, monkeypatch):
        self.tree, self.time, self.folder = tree, FakeTime(), tmp_path
        monkeypatch.setattr(rapl, "time", self.time)
        monkeypatch.setattr(power_log, "time", self.time)
        monkeypatch.setattr(sm, "time", self.time)
        monkeypatch.setattr(sm, "_wait", self.time.wait)

    def open(self, watts, specs="rapl", mirrors=None, interval_s=0.1):
        counters = Counters(watts, mirrors, self.time.monotonic)
        self.time.followers.append(counters.update)
        self.sampler = sm.Sampler()
        answer = self.sampler.open(order(self.tree, specs, interval_s=interval_s))
        self.time.readers = len(parse_specs(specs))
        self.channels = [sm.channel_from_json(values) for values in answer["channels"]]
        return answer

    def run(self, seconds, act=lambda: None):
        """Let a run take so long, and something happen in the middle; its start and end."""
        file = self.folder / "run.csv"
        assert self.sampler.start({"file": str(file)}) == {"failures": {}}
        start = self.time.now
        self.time.sleep(seconds / 2)
        act()
        self.time.sleep(seconds / 2)
        end = self.time.now
        self.stopped = self.sampler.stop({})
        self.samples = sm.read_samples(file)
        return start, end

    def drawn(self, label, start, end):
        channels = {c.label: c for c in self.channels}
        parts = totals(self.channels)[label]
        return total_energy(parts, channels, streams(self.samples), start, end)


def order(tree, specs="rapl", **known):
    sources = [list(spec) for spec in parse_specs(specs)]
    paces = {"interval_s": 0.1, "timeout_s": 60.0, **known}
    return {"do": "open", "sources": sources, "sysfs": str(tree.root), "procfs": "/proc", **paces}


@pytest.fixture
def made(tree, tmp_path, monkeypatch):
    made = Run(tree, tmp_path, monkeypatch)
    yield made
    made.sampler.end()


def test_energy_of_each_run_is_what_was_drawn(made):
    package = made.tree.package()
    watts = {package: 40.0, made.tree.dram(package): 4.0}
    made.open(watts)
    for _ in range(3):
        start, end = made.run(1.0)
        at = sorted({r.at_s for r in made.samples})
        # At the start and at the end, and every 0.1 s between.
        assert at == pytest.approx([start + n / 10 for n in range(11)])
        for label, drawn_w in (("rapl:package", 40.0), ("rapl:dram", 4.0)):
            drawn = made.drawn(label, start, end)
            assert drawn.power_w == pytest.approx(drawn_w, rel=0.01)
            assert drawn.energy_j == pytest.approx(drawn.power_w)
            assert (drawn.reason, drawn.readings) == ("", 11)
        made.time.sleep(5.0)  # in which nothing is written


@pytest.mark.parametrize("wraps", [1, 5])
def test_no_wrap_is_lost(made, wraps):
    package = made.tree.package(range_uj=75_000_000 // (wraps + 1), limits_w=(100.0,))
    made.open({package: 50.0}, interval_s=0.5)
    start, end = made.run(1.6)
    assert made.drawn("rapl:package", start, end).power_w == pytest.approx(50.0, rel=0.01)
    assert sum(b.value < a.value for a, b in pairwise(made.samples)) >= wraps


def test_mirrored_dies_count_once_and_a_zone_that_goes_away_is_no_figure(made):
    one, mirror = (made.tree.package(0, die) for die in (0, 1))
    other = made.tree.package(1)
    made.open({one: 30.0, other: 30.0}, mirrors={mirror: one})
    drawn = made.drawn("rapl:package", *made.run(1.0))
    assert drawn.power_w == pytest.approx(60.0, rel=0.01)
    assert "mirrors rapl:package-0" in made.channels[1].note
    start, end = made.run(1.0, lambda: made.tree.remove(other))
    found = streams(made.samples)
    first, _, second = (channel_energy(c, found[c.label], start, end) for c in made.channels)
    assert first.power_w == pytest.approx(30.0, rel=0.01)
    assert second.power_w != second.power_w
    assert "not read at both ends" in second.reason


def test_a_log_beside_counters(made, tmp_path):
    log = tmp_path / "meter.csv"
    log.write_text(f"time,power_w\n{made.time.time() - 5:.3f},70\n")

    def follow():
        with log.open("a") as lines:
            lines.write(f"{made.time.time():.3f},90\n")

    answer = made.open({made.tree.package(): 40.0}, f"rapl,log@{log}")
    assert (answer["slowest_s"], answer["channels"][0]["window_s"]) == (0.001, 0.0)
    made.time.followers.append(follow)
    start, end = made.run(2.0)
    assert {r.label for r in made.samples} == {c.label for c in made.channels}
    assert made.drawn("log:meter", start, end).power_w == 90.0
    assert made.drawn("rapl:package", start, end).power_w == pytest.approx(40.0, rel=0.01)
    rows = [r for r in made.samples if r.label == "log:meter"]
    assert all(r.source_at_s == pytest.approx(r.at_s + 1.7e9, abs=0.01) for r in rows)


def test_a_source_that_fails_in_a_run_is_told_and_asked_again_after_a_second(made):
    package = made.tree.package()
    made.open({package: 40.0})
    asked = []
    source = made.sampler._readers[0]._source
    read = source.read
    source.read = lambda: asked.append(made.time.now) or read()
    start, _ = made.run(3.1, lambda: made.tree.remove(package))
    assert "none of its 1 energy counters can be read" in made.stopped["failures"]["rapl"]
    assert [round(at - start, 3) for at in asked[16:]] == [1.6, 2.6, 3.1]
    made.tree.restore(package)
    made.run(1.0)
    assert made.stopped["failures"] == {}
    with pytest.raises(FileNotFoundError):
        made.sampler.start({"file": "/nowhere/run.csv"})


class Source:
    period_s = 0.0

    def __init__(self, *channels, read=list):
        self.channels, self.read, self.closed = channels, read, 0

    def close(self):
        self.closed += 1


def test_a_source_that_does_not_answer_is_told(tmp_path, monkeypatch):
    let_go = threading.Event()
    source = Source(read=lambda: let_go.wait() and [])
    monkeypatch.setattr(sm.sources, "open_sources", lambda *_: [source])
    sampler = sm.Sampler()
    tree = PowercapTree(tmp_path / "sys")
    assert sampler.open(order(tree, timeout_s=0.01)) == {"channels": [], "slowest_s": 0.0}
    answer = sampler.start({"file": str(tmp_path / "run.csv")})
    assert answer == {"failures": {"rapl": "rapl did not answer within 0.02 s"}}
    let_go.set()
    sampler.end()
    assert source.closed == 1
    assert (tmp_path / "run.csv").read_text() == HEADER


def test_late_readings_do_not_bunch_up(monkeypatch):
    clock, asked, takes = FakeTime(), [], iter([0.0, 0.3, 2.5, 0.0, 0.0])

    def read():
        asked.append(clock.now - 1000.0)
        clock.now += next(takes)
        reader._ending = len(asked) == 5
        return []

    def wait(wake, seconds):
        clock.now += seconds

    monkeypatch.setattr(sm, "time", clock)
    monkeypatch.setattr(sm, "_wait", wait)
    reader = sm.SourceReader("r", Source(read=read), 1.0, sm.SampleWriter())
    reader.read_now(running=True)
    reader.run()
    assert asked == [0.0, 1.0, 2.0, 5.5, 6.5]


def test_the_pace_is_as_asked_not_in_vain_and_before_a_counter_can_wrap():
    slow = Source()
    slow.period_s = 2.0
    for source, asked_s, pace_s in ((Source(), 0.5, 0.5), (Source(), 0.0, 0.001), (slow, 0.5, 2.0)):
        assert sm.reading_interval(source, asked_s) == pace_s
    counters = [Channel("a", "energy", "package", range_j=600.0, most_w=100.0)]
    assert sm.reading_interval(Source(*counters), 5.0) == 2.0
    counters.append(Channel("b", "energy", "package", range_j=600.0))
    assert sm.reading_interval(Source(*counters), 5.0) == pytest.approx(0.2)


def test_logins_come_with_the_order_or_are_looked_for(tree, monkeypatch):
    asked = []

    def open_sources(specs, settings):
        asked.extend(settings.login("ipmi", host) for host in ("bmc-7", "bmc-8"))
        return [Source()]

    monkeypatch.setattr(sm.sources, "open_sources", open_sources)
    monkeypatch.setattr("measurements.power.credentials.find_login", lambda *who: who)
    sampler = sm.Sampler()
    sampler.open({**order(tree), "logins": [["ipmi", "bmc-7", "ppw", "secret"]]})
    sampler.end()
    assert asked == [Login("ppw", "secret"), ("ipmi", "bmc-8")]


@pytest.fixture
def sampling(tree):
    sampling = sm.Sampling.open(parse_specs("rapl"), sysfs=tree.root) if tree.package() else None
    yield sampling
    sampling.close()
    sampling.close()


def test_the_process_samples_in_files_and_says_what_fails(sampling, tmp_path):
    assert [channel.label for channel in sampling.channels] == ["rapl:package-0"]
    assert sampling.slowest_s == 0.001
    with pytest.raises(MeasurementError, match="No such file"):
        sampling.start(Path("/nowhere/run.csv"))
    before = time.monotonic()
    sampling.start(tmp_path / "run.csv")
    sampling.stop()
    assert sampling.failures == {}
    at = [reading.at_s for reading in sm.read_samples(tmp_path / "run.csv")]
    assert before <= at[0] < at[-1] <= time.monotonic()
    sampling.process.kill()
    sampling.process.wait()
    with pytest.raises(MeasurementError, match=r"ended .exit code -9.*--resume"):
        sampling.start(tmp_path / "run.csv")


def test_a_process_that_hangs_is_killed(sampling, monkeypatch):
    sampling.process.send_signal(signal.SIGSTOP)
    real, limits = sampling.process.wait, []

    def wait(timeout=None):
        limits.append(timeout)
        return real(timeout and 0.01)

    monkeypatch.setattr(sampling.process, "wait", wait)
    sampling.close()
    assert sampling.process.returncode == -signal.SIGKILL
    assert limits == [5, None]


def test_one_that_cannot_be_opened_is_an_error_with_its_remedy_and_orders_are_lines(tree):
    with pytest.raises(SensorError, match="powercap"):
        sm.Sampling.open(parse_specs("rapl"), sysfs=tree.root)
    tree.package()
    # The process can be driven by hand, as its documentation says.
    known = {"input": f"{json.dumps(order(tree))}\n", "text": True, "timeout": 120}
    command = [sys.executable, "-m", "measurements.power.sampler"]
    done = subprocess.run(command, capture_output=True, check=True, **known)
    assert json.loads(done.stdout)["channels"][0]["label"] == "rapl:package-0"
    assert done.stderr == ""


def test_neither_it_nor_a_source_nor_a_hosts_state_loads_a_library_before_it_is_needed():
    heavy = {"numpy", "pandas", "scipy", "matplotlib", "requests", "pyvisa", "pyghmi", "pyRAPL"}
    sources = [f"power.{name}" for name in ("ipmi", "rapl", "meter", "power_log", "redfish")]
    sources += ["power.sampler", "host.conditions", "host.activity"]
    names = ", ".join(f"measurements.{name}" for name in sources)
    code = f"import sys, {names}; print({heavy!r} & set(sys.modules))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "set()"


@pytest.mark.peer("kill")
def test_it_ends_with_whoever_started_it(tree, tmp_path):
    tree.package()
    script = (
        "import sys, time; from pathlib import Path\n"
        "from measurements.power.sampler import Sampling\n"
        "from measurements.power.source import parse_specs\n"
        f"s = Sampling.open(parse_specs('rapl'), sysfs=Path({str(tree.root)!r}))\n"
        f"s.start(Path({str(tmp_path / 'run.csv')!r}))\n"
        "print(s.process.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    for _ in range(3):
        command = [sys.executable, "-c", script]
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as parent:
            pid = int(parent.stdout.readline())
            parent.kill()
        wait_for(lambda pid=pid: not is_running(pid))
        assert len(sm.read_samples(tmp_path / "run.csv")) > 0


@pytest.mark.peer("rapl")
def test_the_process_is_small_and_costs_little_of_a_core(tree, sampling, tmp_path):
    def cpu_s():
        tasks = (folder / "task").iterdir()
        return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9

    folder = Path(f"/proc/{sampling.process.pid}")
    with CounterWriter({tree.package(): 20.0}):
        sampling.start(tmp_path / "run.csv")
        before, started = cpu_s(), time.monotonic()
        time.sleep(6)
        share = (cpu_s() - before) / (time.monotonic() - started)
        status = (folder / "status").read_text()
        sampling.stop()
    assert int(status.partition("VmHWM:")[2].split()[0]) < 60_000
    # A target of 0.5 %; twice that, because a busy machine's clock ticks are coarse.
    assert share < 0.01


def test_an_unfinished_last_line_is_passed_over_and_what_is_no_such_file_refused(tmp_path):
    file = tmp_path / "run.csv"
    for text, said in (
        (None, "cannot be read"),
        ("", "no file of raw readings"),
        ("a,b\n", "no file of raw readings"),
        (f"{HEADER}a,x,2.0,\na,2.0,3.0,\n", "line 2 is no reading"),
    ):
        if text is not None:
            file.write_text(text)
        with pytest.raises(MeasurementError, match=said):
            sm.read_samples(file)
    file.write_text(f"{HEADER}a,1.0,2.0,\na,2.0,3.0,7\na,3.")
    assert [(r.at_s, r.source_at_s) for r in sm.read_samples(file)] == [(1.0, None), (2.0, 7.0)]
