"""Questions without an answer and slips of typing: one line says what to do instead."""

import functools
import json

import click
import numpy as np
import pandas as pd
import processes
import pytest
from cpio_studies import run, study
from made_traces import busy, trace
from made_up import answered, sweep
from processes import ppw_inside, worked
from procurement_scenarios import asked, scenario, server
from recordings import recording

import ppw
from measurements.traces import write_trace
from ppw.cli.options import kind
from ppw.storage.generate import jobs_of

POINTS = [(1.6e9, 6.5), (1.8e9, 6.0)]
WATTS = [(1.6e9, 9.0), (1.8e9, 10.0)]
RUNS = sweep(noise=0.02)
BY_THREADS = pd.DataFrame({"threads": [1, 2, 4, 8], "throughput_ops_s": np.nan})
PAIRED = RUNS.assign(meter_power_w=30 + 1.1 * RUNS["power_w"])
LOADS = pd.DataFrame({"load": [0.5, 1.0], "power_w": [80.0, 120.0], "throughput_ops_s": [50, 100]})
# Runs of a program on two hosts, of 4 and 8 cores.
APART = pd.concat(sweep(workloads=("grep",), host=f"rack{n}").assign(cores=4 * n) for n in (1, 2))
PAIR = {"a": recording(cores=1.0, seconds=0, name="empty.csv"), "b": recording(cores=1.0)}
SLOW = server("slow", latency={"rate": [20.0, 100.0], "p99": ["2ms", "5ms"]})
TOO_SLOW = scenario(SLOW, workload={"latency_p99": "1ms"})
AXES, FORM = {"over": "threads", "of": "throughput"}, {"power_form": "linear", "exponent": 2.0}
CPIO = {"data_bytes": 1e15, "time_s": 86400.0, "cores": 16, "server_power_w": 300.0}
IDLE = pd.DataFrame([run(cores=n) for n in (1, 2)]).assign(sectors_read=0.0, sectors_written=0.0)
A, B = {"host": "rack1"}, {"host": "rack2"}
BARE = APART.drop(columns=["time_s", "power_w", "power_source", "price"])
IO = functools.partial(answered, ppw.project_cpio, study(noise=0.02))
SENSORS = {"sensor": "rapl:package", "reference": "meter"}
HALVES = LOADS.assign(power_w=[np.nan, 80.0], load=[1.0, np.nan])
ASK = functools.partial


def refused(message, ask):
    with pytest.raises(ppw.PpwError) as error:
        ask()
    assert message in str(error.value)
    assert "\n" not in str(error.value)


@pytest.mark.cases(
    "ask",
    ASK(ppw.cycles_per_io, study()),
    ASK(ppw.size_servers, study(), **CPIO),
    ASK(ppw.project_points, POINTS, freq=2e9),
    ASK(ppw.project_points, POINTS, freq=2e9, power_pts=WATTS, power_source="meter"),
    ASK(ppw.PowerLoadCurve.of_levels([0, 0.5, 1], [60, 80, 120]).forecast, [0.7]),
    ASK(ppw.power_loads, LOADS),
    ids=["cpio", "servers", "project", "energy", "curve", "power loads"],
)
@pytest.mark.parametrize("level", [0.0, 1.0, 95])
def test_the_level_of_an_interval_is_a_share(ask, level):
    refused("is not a share between 0 and 1; try 0.90", ASK(ask, level=level))


@pytest.mark.cases(
    "said, ask",
    # Columns of answers, and levels of a calibration, are no keys.
    ("rename the column", ASK(ppw.project, RUNS.assign(caveats=""), freq=3e9, by=["caveats"])),
    ("cannot tell levels apart by 'runs'", ASK(ppw.calibrate, PAIRED, **SENSORS, by=["runs"])),
    # No run has both.
    ("no run has both its load and power_w", ASK(ppw.power_loads, HALVES)),
    ("both threads above 0 and throughput", ASK(ppw.find_knees, BY_THREADS, **AXES)),
    ("an exponent works only with --power-form cmos", ASK(ppw.project, RUNS, freq=3e9, **FORM)),
    # Each value is there but not together; nothing is left to compare.
    ("no run has all of host=rack1, cores=8", ASK(ppw.compare, APART, A | {"cores": 8}, B)),
    ("no time_s, throughput_ops_s or power_w in the runs", ASK(ppw.compare, BARE, A, B)),
    ("no candidate can serve the demand: slow is left out", ASK(asked, TOO_SLOW)),
    ("empty.csv: no interval was recorded", ASK(ppw.co_locate, PAIR)),
    ("rows of full, today", lambda: IO(cores=16).value("full", "today", workload="no such")),
    ("has I/O, which a projection needs: measure some", ASK(ppw.project_cpio, IDLE, cores=16)),
    ("no trace was given", ASK(ppw.trace_what_if, [], cache_bytes=2**20)),
    ("no model can be fitted", ASK(ppw.fit_trace, trace(lbn=[0, 8], stream=[0, 1]))),
    ("give 2 or more", ASK(ppw.choose_level, busy(200), levels=1)),
    ("down to one level", lambda: answered(ppw.fit_trace, busy(200), levels=1).coarser()),
    ("needs two requests or more", ASK(ppw.replay_trace, busy(50), "scratch", count=1)),
    (
        "is too short for requests of 8192 B",
        lambda: jobs_of(answered(ppw.fit_trace, busy(200), levels=2), space_bytes=4096.0),
    ),
)
def test_what_has_no_answer(said, ask, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(said, ask)


@pytest.mark.cases(
    "spelling, text, said",
    ("SIZE[,…]", "4KiB,0", "has a size of 0"),
    ("N[,…]", "1,two", "is not whole numbers of at least 1: write 1,2,5"),
    ("N[,…]", "0", "is not whole numbers of at least 1: write 1,2,5"),
    ("SHARE", "inf", "is not a share: write 0.7 or 70%"),
    ("0<=SHARE<=1", "120%", "1.2 is not in the range"),
    ("SHARE[,…]<=1", "50%,-1", "-1.0 is not in the range"),
    ("POWER", "-3W", "is negative"),
    ("TIME>0", "0s", "must be more than 0"),
    ("RATE", "10Gb", "may be bits or bytes: write 10Gbit/s or 10GB/s"),
)
def test_an_option_that_cannot_be(spelling, text, said):
    with pytest.raises(click.BadParameter) as error:
        kind(spelling).convert(text, None, None)
    assert said in error.value.message


COLLECTL = (
    "#Date Time [CPU]User% [CPU]Nice% [CPU]Sys% [CPU]Wait% [CPU]Irq% [CPU]Soft% [CPU]Steal% "
    "[CPU]Idle% [MEM]Tot [MEM]Free [MEM]Buf [MEM]Cached [NET]RxKBTot [NET]TxKBTot [DSK]ReadTot "
    "[DSK]WriteTot [DSK]ReadKBTot [DSK]WriteKBTot\n"
)
ROW = "30 0 10 5 0 0 0 55 16000000 8000000 0 4000000 800 900 1000 500 8000 8000\n"


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Runs, a log of collectl -P on a terminal (a header, nothing of the host), and a model."""
    folder = tmp_path_factory.mktemp("typed")
    RUNS.to_csv(folder / "runs.csv", index=False)
    PAIRED.to_csv(folder / "paired.csv", index=False)
    rows = "".join(f"20250615 15:06:{n:02} {ROW}" for n in range(20))
    (folder / "log.tab").write_text(COLLECTL + rows, encoding="utf-8")
    write_trace(busy(n=400).batches(), str(folder / "disk.parquet"))
    worked(ppw_inside("trace", "fit", "disk.parquet", "-o", "disk.json", cwd=folder))
    return folder


COMPARE = "compare runs.csv --a host=rack1 --b host=rack2"
CALIBRATE = "calibrate paired.csv --sensor rapl:package --reference meter"
PROJECT = "project runs.csv --freq 3GHz"
NOT_WRITTEN = "is not written: end it in"


class TestTyped:
    @pytest.fixture
    def typed(self, folder):
        def typed(words):
            return worked(ppw_inside(*words.split(), cwd=folder)).stdout

        return typed

    def refused(self, folder, words, said, code):
        before = sorted(folder.iterdir())
        done = ppw_inside(*words.split(), cwd=folder, PPW_CONFIG_DIR="config")
        processes.refused(done, said, code=code)
        assert sorted(folder.iterdir()) == before

    @pytest.mark.cases(
        "words, said",
        ("cpio runs.csv --cpus 8", "--window and --cpus are for --logs"),
        ("pressure log.tab=db", "write the name first, db=log.tab"),
        ("pressure log.tab --network 1", "'1' has no unit: write one, as in 500MB/s or 10G"),
        ("pressure log.tab --memory 16", "'16' has no unit: write one, as in 256GiB"),
        ("project runs.csv --freq 3GHz --level 95", "write 95% or 0.95"),
        ("best runs.csv --objective perf_per_dollar --price 2.500,00", "is not a price: write"),
        ("best runs.csv --objective speed", "'speed' is not one of"),
        ("best runs.csv --steps 1GHz:2GHz", "are not LOWEST:HIGHEST:STEP"),
        ("best runs.csv --idle-power 40GHz", "is not a quantity in W"),
        (f"{COMPARE} --freq 2", "is under 10 MHz"),
        (f"{COMPARE} --electricity -1", "is not in the range"),
        ("calibrate paired.csv --sensor rapl", "give --sensor and --reference, or --stored"),
        ("calibrate paired.csv --stored --save", "--save and --stored"),
        (f"{CALIBRATE} --apply -", "both go to standard output"),
        (f"{CALIBRATE} --sensor-resolution 1s", "is not a quantity in W"),
        ("characterise runs.csv --price wsm", "is not HOST=PRICE, like atom=450"),
        ("characterise runs.csv --price =3", "is not HOST=PRICE"),
        ("characterise runs.csv --price wsm=-3", "-3.0 is not in the range x>0"),
        ("characterise runs.csv --price wsm=dear", "'dear' is not a price: write a number"),
        ("characterise runs.csv --price wsm=inf", "'inf' is not a finite number"),
        ("powerload runs.csv --at 5", "5"),
        ("powerload runs.csv --by host", "--by"),
        ("trace generate disk.json -o a.csv --count 9 --duration 1s", "both set the length"),
        (f"{PROJECT} -o a.pdf", f".pdf {NOT_WRITTEN} .json, .csv or .html, or say"),
        ("datasets -o a.HTM", f".htm {NOT_WRITTEN} .json or .csv, or say"),
        ("sensors -o a.csv", f".csv {NOT_WRITTEN} .json, or say"),
    )
    def test_a_slip_is_refused_with_what_to_type_instead(self, folder, words, said):
        self.refused(folder, words, said, code=2)

    @pytest.mark.cases(
        "words, said",
        ("cpio log.tab --clock 2.4GHz", "give their number (--cpus)"),
        ("trace fit disk.json", "is a model, not a trace: make a trace with ppw trace generate"),
        ("project runs.csv --freq 3GHz --where workload=sort,grep", "=sort,workload=grep"),
        ("trace convert disk.json --target /dev/sdz -o a.fio", "device (--allow-device)"),
        ("best runs.csv --idle-power 1kW", "idle power 1 kW is not below"),
        (COMPARE.replace("rack1", "x"), "no run has host 'x'"),
        (CALIBRATE.replace("paired", "nowhere"), "nowhere.csv: cannot be read"),
        ("calibrate paired.csv --stored", "no calibration of host 'rack1' was saved"),
        (f"{CALIBRATE} --by workload,rapl", "cannot group by 'rapl'"),
        (f"{CALIBRATE} --by host", "1 level that the sensor tells apart"),
        (f"{CALIBRATE} --apply no/where.csv", "no/where.csv: cannot be written"),
    )
    def test_files_without_an_answer_are_refused(self, folder, words, said):
        self.refused(folder, words, said, code=1)

    def test_cycles_per_io_of_a_log_of_the_terminal(self, typed):
        asked = "cpio log.tab --clock 2.4GHz --cpus 8"
        (point,) = json.loads(typed(f"{asked} --format json"))["points"]
        # 40 % of 8 CPUs at 2.4 GHz; 16,000 kB a second are 32,000 sectors of 512 B.
        assert point["cpio"] == pytest.approx(0.4 * 8 * 2.4e9 / (16_000 * 2))
        assert typed(f"{asked} --format csv").startswith("host,cores,")

    def test_what_would_be_asked_next_is_named(self, typed):
        text = typed("pressure log.tab --cpus 8")
        assert "network no capacity: line rate not known (--network)\n" in text
        text = typed("rightsize log.tab --cpus 8")
        assert "capacity not known: give --disk-bandwidth, --disk-iops, --network\n" in text
        # Sizes of requests are in the units of storage.
        text = typed("trace show disk.json")
        assert "KiB" in text
        assert "4.096 kB" not in text
