"""`ppw trace validate`, `whatif`, `replay` and `convert` as users meet them.

The golden texts are in ``golden/``. After a change of the output that is meant:

    PPW_WRITE_GOLDEN=1 python -m pytest tests/ppw/test_trace_answers_cli.py -k golden
"""

from __future__ import annotations

import importlib
import json
import os
import subprocess
from pathlib import Path

import pytest
from click.testing import CliRunner
from made_traces import busy, fragmented

from measurements.traces import write_trace
from ppw.cli.output import caveats_in_result, report_error

GOLDEN = Path(__file__).with_name("golden")


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command in an empty folder with some traces in it."""
    monkeypatch.chdir(tmp_path)
    write_trace(busy(n=3000, seed=1).batches(), "disk.parquet")
    write_trace(busy(n=3000, seed=2).batches(), "made.parquet")
    write_trace(fragmented().batches(), "files.csv")

    def run(name, *arguments):
        command = importlib.import_module(f"ppw.cli.trace_{name}").command
        return CliRunner().invoke(command, list(map(str, arguments)), standalone_mode=False)

    return run


GOLDEN_RUNS = {
    "trace-validate": ("validate", "disk.parquet", "disk.parquet", "--no-locality"),
    "trace-whatif": (
        *("whatif", "disk.parquet", "--cache", "1MiB", "--caches", "1,2", "--policy", "lru,clock"),
        *("--cache-price", "90", "--cache-power", "6W", "--repeats", "3"),
    ),
    "trace-whatif-files": (
        "whatif",
        "files.csv",
        "--defragment",
        "--caches",
        "1",
        "--repeats",
        "2",
    ),
}


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_golden(name, run):
    arguments = GOLDEN_RUNS[name]
    done = run(*arguments)
    text = f"$ ppw trace {' '.join(arguments)}\n{done.stdout}"
    golden = GOLDEN / f"{name}.txt"
    if "PPW_WRITE_GOLDEN" in os.environ:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert done.stderr == ""
    assert not done.return_value


def test_validate_exits_with_3_where_a_figure_is_off(run):
    done = run("validate", "disk.parquet", "files.csv")
    assert done.return_value == 3
    assert done.stderr.startswith("ppw: check failed: The synthetic trace fails:")
    assert done.stderr.count("\n") == 1


def test_tolerances_are_percents(run):
    strict = run("validate", "disk.parquet", "made.parquet", "--hit-ratio-tolerance", "0.0001")
    assert strict.return_value == 3
    assert "LRU hits" in strict.stderr


@pytest.mark.parametrize("name", ["validate", "whatif"])
@pytest.mark.parametrize("form", ["json", "csv", "html"])
def test_every_format(name, form, run):
    more = ["disk.parquet"] if name == "validate" else []
    done = run(name, "disk.parquet", *more, "-o", f"out.{form}")
    assert done.exception is None
    text = Path(f"out.{form}").read_text(encoding="utf-8")
    if form == "json":
        assert json.loads(text)["schema_version"] == 1
    elif form == "csv":
        assert done.stderr.startswith("ppw: caveat: ")
    else:
        assert text.startswith("<!")
        assert "://" not in text.replace("http://www.w3.org", "")


def model_file():
    from ppw.traces.fit import fit_trace

    with caveats_in_result():
        Path("m.json").write_text(fit_trace("disk.parquet").to_json(), encoding="utf-8")


def test_a_model_is_asked_with_a_seed_a_run(run):
    model_file()
    done = run("whatif", "m.json", "--caches", "1", "--repeats", "2", "--format", "json")
    assert done.exception is None
    (_, cached) = json.loads(done.stdout)["table"]
    assert cached["spread"] > 0
    assert cached["hit_ratio"] > 0.03
    uniform = run(
        "whatif", "m.json", "--caches", "1", "--runs", "1", "--format", "json", "--no-locality"
    )
    assert json.loads(uniform.stdout)["table"][1]["hit_ratio"] < cached["hit_ratio"] / 2


class TestConvert:
    @pytest.mark.parametrize("by", ["stream", "transition"])
    @pytest.mark.parametrize("closed", [False, True])
    def test_a_model_becomes_jobs_that_fio_reads(self, run, by, closed):
        model_file()
        more = ["--outstanding", "4"] if closed else []
        done = run("convert", "m.json", "-o", "l.fio", "--target", "f", "--jobs", by, *more)
        assert done.exception is None
        assert done.stderr.startswith("ppw: caveat: ")
        subprocess.run(["fio", "--parse-only", "l.fio"], check=True, capture_output=True)

    def test_jobs_keep_shares_and_rate(self, run):
        from ppw.traces.jobs import jobs_of
        from ppw.traces.model import TraceModel

        model_file()
        model = TraceModel.from_json(Path("m.json").read_text(encoding="utf-8"))
        for by in ("stream", "transition"):
            jobs, _ = jobs_of(model, by=by)
            assert sum(job.share for job in jobs) == pytest.approx(1)
            assert sum(job.rate for job in jobs) == pytest.approx(model.rate)
            reads = sum(job.share * job.read_share for job in jobs)
            assert reads == pytest.approx(model.read_share())
            random = sum(job.share * job.random_share for job in jobs)
            assert random == pytest.approx(model.random_share())
            for job in jobs:
                assert sum(zone.share for zone in job.zones) == pytest.approx(1)
                ends = [end for zone in job.zones for end in (zone.first_byte, zone.end_byte)]
                assert ends == sorted(ends)

    def test_a_space_is_shrunk(self, run):
        model_file()
        done = run("convert", "m.json", "-o", "p.xml", "--target", "f", "--size", "16MiB")
        assert "times smaller than the trace's" in done.stderr
        assert "<FileSize>16777216</FileSize>" in Path("p.xml").read_text(encoding="utf-8")

    def test_a_trace_becomes_an_iolog_parquet_and_csv(self, run):
        from measurements.traces import read_trace

        wanted = read_trace("files.csv").to_table()["lbn"].to_pylist()
        for name in ("t.iolog", "t.parquet", "t.csv"):
            done = run("convert", "files.csv", "-o", name, "--target", "/x/f")
            assert done.exception is None
            assert read_trace(name).to_table()["lbn"].to_pylist() == wanted
        assert (
            done.stderr == f"ppw: {len(wanted)} requests in {len(wanted) - 1} s written to t.csv\n"
        )

    def test_places_beyond_the_target_are_told(self, run):
        more = ("-o", "t.iolog", "--target", "/x/f", "--size", "1MiB")
        done = run("convert", "files.csv", *more)
        assert done.exception is None
        # 256 of the 600 pages fit.
        assert "57.3% of the requests lay beyond the target" in done.stderr
        assert "has to be 1048576 bytes long" in done.stderr

    @pytest.mark.parametrize(
        ("arguments", "said"),
        [
            (("disk.parquet", "-o", "x.fio", "--target", "f"), "is written from a model"),
            (("nowhere.json", "-o", "x.fio", "--target", "f"), "no such file"),
            (("disk.parquet", "-o", "x.iolog"), "Missing option '--target'"),
            (("disk.parquet", "-o", "x.iolog", "--target", "/dev/null"), "is a device"),
            (("disk.parquet", "-o", "x"), "its ending says no format"),
            (("disk.parquet", "--to", "csv", "-o", "x.parquet"), "end the name in .csv"),
        ],
    )
    def test_what_cannot_be_is_refused(self, run, arguments, said):
        done = run("convert", *arguments)
        assert said in str(
            done.exception.format_message()
            if hasattr(done.exception, "format_message")
            else done.exception
        )


class TestReplay:
    def test_a_scratch_file_is_played_on(self, run, tmp_path):
        done = run(
            "replay",
            "made.parquet",
            "--target",
            tmp_path / "f",
            "--size",
            "8MiB",
            "--count",
            "60",
            "--original",
            "disk.parquet",
            "--device",
            "ssd",
            "--format",
            "json",
        )
        assert done.exception is None, done.exception
        stages = {row["stage"].partition(":")[0]: row for row in json.loads(done.stdout)["table"]}
        assert list(stages) == ["original", "trace", "calibration", "replay", "model"]
        for stage in ("trace", "calibration", "replay", "model"):
            assert stages[stage]["requests"] == 60
        assert stages["trace"]["duration_s"] == pytest.approx(stages["replay"]["duration_s"], 0.9)
        assert (tmp_path / "f").stat().st_size == 8 << 20

    def test_a_device_needs_its_word(self, run):
        done = run("replay", "made.parquet", "--target", "/dev/null", "--count", "5")
        assert "is a device" in str(done.exception)
        assert report_error(done.exception)
