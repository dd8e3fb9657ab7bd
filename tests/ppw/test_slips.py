"""What is easily typed wrong, in the commands: each slip is refused with what to type instead."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from made_traces import busy
from made_up import sweep

import ppw.cli
from measurements.traces import write_trace

COLLECTL = (
    "#Date Time [CPU]User% [CPU]Nice% [CPU]Sys% [CPU]Wait% [CPU]Irq% [CPU]Soft% [CPU]Steal% "
    "[CPU]Idle% [MEM]Tot [MEM]Free [MEM]Buf [MEM]Cached [NET]RxKBTot [NET]TxKBTot [DSK]ReadTot "
    "[DSK]WriteTot [DSK]ReadKBTot [DSK]WriteKBTot\n"
)
ROW = "30 0 10 5 0 0 0 55 16000000 8000000 0 4000000 800 900 1000 500 8000 8000\n"


def typed(*words):
    return CliRunner().invoke(ppw.cli.main, list(map(str, words)), prog_name="ppw")


def refused(*words):
    done = typed(*words)
    assert done.exit_code, done.output
    said = done.stderr if done.stderr else str(done.exception)
    return " ".join(said.split())


@pytest.fixture
def runs(tmp_path):
    path = tmp_path / "runs.csv"
    sweep().to_csv(path, index=False)
    return path


@pytest.fixture
def log(tmp_path):
    """What collectl -P prints on a terminal: a header, and nothing of the host."""
    path = tmp_path / "db7.tab"
    rows = "".join(f"20250615 15:06:{n:02} {ROW}" for n in range(20))
    path.write_text(COLLECTL + rows, encoding="utf-8")
    return path


def test_cycles_per_io_of_a_log_of_the_terminal(log, tmp_path):
    assert "give their number (--cpus)" in refused("cpio", log, "--clock", "2.4GHz")
    done = typed("cpio", log, "--clock", "2.4GHz", "--cpus", 8, "--format", "json")
    (point,) = json.loads(done.stdout)["points"]
    # 40 % of 8 CPUs at 2.4 GHz; 16,000 kB a second are 32,000 sectors of 512 B.
    assert point["cpio"] == pytest.approx(0.4 * 8 * 2.4e9 / (16_000 * 2))
    table = tmp_path / "study.csv"
    assert typed("cpio", log, "--clock", "2.4GHz", "--cpus", 8, "-o", table).exit_code == 0
    assert table.read_text(encoding="utf-8").startswith("host,cores,")


def test_cpus_of_what_is_no_log(runs):
    assert "--window and --cpus are for --logs" in refused("cpio", runs, "--cpus", 8)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (("--network", "1"), "'1' has no unit: write one, such as 500MB/s or 10Gbit/s"),
        (("--disk-bandwidth", "500"), "'500' has no unit"),
        (("--memory", "16"), "'16' has no unit: write one, such as 256GiB"),
    ],
)
def test_a_capacity_without_a_unit(log, given, said):
    assert said in refused("pressure", log, *given)


def test_the_option_that_tells_a_capacity_is_named(log):
    text = typed("pressure", log, "--cpus", 8).stdout
    assert "network no capacity: line rate not known (--network)\n" in text
    text = typed("rightsize", log, "--cpus", 8).stdout
    assert "capacity not known: give --disk-bandwidth, --disk-iops, --network\n" in text


def test_a_log_and_its_name_the_wrong_way_round(log):
    assert f"the name comes first, db={log}" in refused("pressure", f"{log}=db")


@pytest.mark.parametrize("ending", ["pdf", "xlsx", "parquet"])
def test_an_output_that_would_not_be_what_its_ending_says(runs, tmp_path, ending):
    output = tmp_path / f"report.{ending}"
    said = refused("project", runs, "--freq", "3GHz", "-o", output)
    assert f".{ending} is not written: end it in .json, .csv or .html, or say --format" in said
    assert not output.exists()


@pytest.mark.parametrize(
    ("command", "ending", "there_are"),
    [
        ("hosts", "html", ".json or .csv"),
        ("datasets", "html", ".json or .csv"),
        ("datasets", "HTM", ".json or .csv"),
        ("sensors", "csv", ".json"),
        ("sensors", "html", ".json"),
    ],
)
def test_a_format_that_a_command_has_not(tmp_path, command, ending, there_are):
    output = tmp_path / f"out.{ending}"
    assert typed(command, "-o", output).exit_code == 2
    said = refused(command, "-o", output)
    assert f".{ending.lower()} is not written: end it in {there_are}, or say --format" in said
    assert not output.exists()


def test_the_metric_that_a_plan_takes_by_default_is_in_its_help():
    said = " ".join(typed("plan", "--help").stdout.split())
    assert "Default: perf_per_watt, and one at a time." in said
    assert "all that the columns allow" not in said


def test_a_share_in_percent_without_the_sign(runs):
    said = refused("project", runs, "--freq", "3GHz", "--level", "95")
    assert "write 95% or 0.95" in said


@pytest.mark.parametrize("price", ["$2500", "2500EUR", "2.500,00"])
def test_a_price_with_its_currency(runs, price):
    said = refused("best", runs, "--objective", "perf_per_dollar", "--price", price)
    assert "is not a price: write a number alone, all prices in one currency" in said


def test_several_values_of_one_column(runs):
    said = refused("project", runs, "--freq", "3GHz", "--where", "workload=sort,grep")
    assert "name workload again for another value: workload=sort,workload=grep" in said


def test_limits_of_a_step_are_options(runs):
    done = typed("best", runs, "--deadline", "40s", "--power-cap", "70W", "--format", "json")
    found = json.loads(done.stdout)
    assert (found["deadline_s"], found["power_cap_w"]) == (40.0, 70.0)


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    trace = folder / "disk.parquet"
    write_trace(busy(n=400).batches(), str(trace))
    assert typed("trace", "fit", trace, "-o", folder / "disk.json").exit_code == 0
    return folder / "disk.json"


def test_a_model_where_a_trace_is_asked_for(model):
    for words in (("fit", model), ("validate", model, model)):
        assert "is a model, no trace: make one of it with ppw trace generate" in refused(
            "trace", *words
        )


def test_two_lengths_of_a_trace(model, tmp_path):
    output = tmp_path / "made.csv"
    asked = ("trace", "generate", model, "-o", output, "--count", 9, "--duration", "1s")
    assert "--count and --duration both say how long" in refused(*asked)
    assert not output.exists()


def test_a_device_that_is_written_over(model, tmp_path):
    asked = ("trace", "convert", model, "--target", "/dev/sdz", "-o", tmp_path / "load.fio")
    assert "allow the device (--allow-device)" in refused(*asked)


def test_sizes_of_requests_are_in_the_units_of_storage(model):
    text = typed("trace", "show", model).stdout
    assert "KiB" in text
    assert "4.096 kB" not in text
