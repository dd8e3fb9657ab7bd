"""The command line as users meet it: standard output, standard error and exit code of a process.

The golden texts are in ``golden/``. After a change of the output that is meant, write them anew
and read the difference:

    PPW_WRITE_GOLDEN=1 python -m pytest tests/ppw/test_cli.py -k golden
"""

from __future__ import annotations

import csv
import io
import json
import os
import subprocess
import sys
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path
from typing import NamedTuple

import pandas as pd
import pytest
from made_up import answered, sweep

import ppw
import ppw.cli
from ppw.cli.commands import COMMANDS
from ppw.cli.output import report_error

ROOT = Path(__file__).resolve().parents[2]
GOLDEN = Path(__file__).with_name("golden")


class Done(NamedTuple):
    out: str
    err: str
    code: int


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Run a command inside this process, in an empty folder; much quicker than `process`."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PPW_HOSTS_DIR", raising=False)

    def run(*arguments, stdin=b""):
        files = [io.TextIOWrapper(io.BytesIO(b), encoding="utf-8") for b in (stdin, b"", b"")]
        monkeypatch.setattr(sys, "argv", ["ppw", *map(str, arguments)])
        monkeypatch.setattr(sys, "stdin", files[0])
        with redirect_stdout(files[1]), redirect_stderr(files[2]), pytest.raises(SystemExit) as end:
            ppw.cli.console()
        out, err = (f.detach().getvalue().decode() for f in files[1:])
        return Done(out, err, end.value.code)

    return run


@pytest.fixture
def process(tmp_path):
    """Run a command as users do, in an empty folder, with any warning an error."""

    def process(*arguments, env=None):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "ppw", *map(str, arguments)],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            cwd=tmp_path,
            env=_environment(env or {}),
            check=False,
        )
        return Done(done.stdout.decode(), done.stderr.decode(), done.returncode)

    return process


def _environment(more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PPW_", "PYTHONIO"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "COLUMNS": "100", **more}


@pytest.fixture
def table(tmp_path):
    """Write runs to a file; by default three workloads at four frequencies."""

    def write(content=None, name="runs.csv"):
        path = tmp_path / name
        if content is None:
            # Four digits, so that the golden texts do not depend on the last bit.
            content = sweep(noise=0.02).round({"time_s": 4, "power_w": 2, "cycles": -6})
        if isinstance(content, pd.DataFrame):
            content = content.to_csv(index=False)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


def refused(done, *said):
    """Check that a command failed for its data: one line of ours, and no result."""
    assert done.code == 1
    assert done.out == ""
    assert done.err.startswith("ppw: error: ")
    assert done.err.count("\n") == 1
    assert "Traceback" not in done.err
    for text in said:
        assert text in done.err


GOLDEN_RUNS = {
    "best": ["best", "runs.csv", "--objective", "edp", "--steps", "1.2GHz:3.0GHz:0.3GHz"],
    "compare": ["compare", "runs.csv", "--a", "workload=grep", "--b", "workload=sort"],
    "demo": ["demo", "--report", "-"],
    "fit": ["fit", "runs.csv", "--metric", "time,power"],
    "hosts": ["hosts"],
    "plan": ["plan", "runs.csv", "--freq", "2.6GHz", "--steps", "1.2GHz:2.4GHz:0.4GHz"],
    "project": ["project", "runs.csv", "--freq", "3.0GHz"],
    "validate": ["validate", "runs.csv", "--train", "1.2GHz,1.6GHz", "--test", "2.4GHz"],
}


@pytest.mark.parametrize("name", GOLDEN_RUNS)
def test_golden(name, process, table):
    table()
    done = process(*GOLDEN_RUNS[name])
    text = f"$ ppw {' '.join(GOLDEN_RUNS[name])}\n{done.out}"
    golden = GOLDEN / f"{name}.txt"
    if "PPW_WRITE_GOLDEN" in os.environ:
        golden.write_text(text, encoding="utf-8")
    assert text == golden.read_text(encoding="utf-8")
    assert (done.err, done.code) == ("", 0)


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["fit", "nowhere.csv"], 1),
        (["fit", "runs.csv", "--metric", "tiem"], 2),
        (["validate", "runs.csv", "--max-error", "0.001"], 3),
        (["project", "runs.csv", "--freq", "3GHz", "--format", "json"], 0),
    ],
)
def test_a_process_does_what_the_tests_below_see_from_inside(arguments, code, run, process, table):
    table()
    assert process(*arguments) == run(*arguments)
    assert run(*arguments).code == code


class TestFormats:
    COMMANDS = (
        ("project", "--freq", "3.0GHz"),
        ("validate",),
        ("fit",),
    )

    @pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
    def test_json_is_the_results_own(self, command, run, table):
        path = table()
        done = run(command[0], path, *command[1:], "--format", "json")
        assert (done.err, done.code) == ("", 0)
        runs = ppw.read_runs(path)
        result = {
            "project": lambda: answered(ppw.project_runs, runs, freq=3e9),
            "validate": lambda: answered(ppw.validate, runs),
            "fit": lambda: answered(ppw.fit_runs, runs),
        }[command[0]]()
        assert done.out == result.to_json() + "\n"

    @pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
    def test_csv_has_a_row_a_group_and_caveats_beside_it(self, command, run, table):
        path = table(sweep(repeats=1).drop(columns="power_source"))
        done = run(command[0], path, *command[1:], "--format", "csv")
        assert done.code == 0
        rows = list(csv.DictReader(io.StringIO(done.out)))
        assert {row["workload"] for row in rows} == {"grep", "sort", "wc"}
        assert all(line.startswith("ppw: caveat: ") for line in done.err.splitlines())
        assert "watts of unknown source" in done.err

    @pytest.mark.parametrize("command", COMMANDS, ids=lambda c: c[0])
    def test_html_is_a_page(self, command, run, table):
        done = run(command[0], table(), *command[1:], "--format", "html", "--metric", "time")
        assert (done.err, done.code) == ("", 0)
        assert done.out.startswith("<!DOCTYPE html>")
        assert done.out.rstrip().endswith("</html>")

    def test_demo_writes_its_report(self, run, tmp_path):
        done = run("demo", "--format", "json")
        assert done.err == "ppw: report written to ppw-demo.html\n"
        assert json.loads(done.out)["kind"] == "demo"
        assert "<!DOCTYPE html>" in (tmp_path / "ppw-demo.html").read_text(encoding="utf-8")

    @pytest.mark.parametrize("format_", ["json", "csv", "text"])
    def test_hosts(self, format_, run):
        listing = run("hosts", "--format", format_)
        assert (listing.err, listing.code) == ("", 0)
        assert "Xeon L5640" in listing.out
        one = run("hosts", "Xeon L5640", "--format", format_)
        assert (one.err, one.code) == ("", 0)
        assert "Xeon L5640" in one.out


class TestInputs:
    def test_standard_input(self, run, table):
        path = table()
        piped = run("project", "-", "--freq", "3.0GHz", stdin=path.read_bytes())
        assert piped == run("project", path, "--freq", "3.0GHz")

    def test_several_files(self, run, table):
        paths = [table(sweep(host=h, seed=i), f"{h}.csv") for i, h in enumerate(("a", "b"))]
        done = run("project", *paths, "--freq", "3.0GHz", "--metric", "time")
        assert done.code == 0
        assert [line.split()[0] for line in done.out.splitlines()[2:]] == ["a"] * 3 + ["b"] * 3

    def test_foreign_headers(self, run, table):
        foreign = sweep().rename(columns={"freq_ghz": "Clock", "time_s": "Real (ms)"})
        foreign["Clock"] *= 1e6
        foreign["Real (ms)"] *= 1e3
        columns = ["host", "family", "workload", "cores", "Clock", "Real (ms)"]
        path = table(foreign[columns], "foreign.csv")
        mapped = run(
            *("project", path, "--freq", "3GHz", "--metric", "time"),
            *("--map", "freq_khz=Clock", "--map", "time_s=Real (ms)"),
        )
        plain = run("project", table(sweep()), "--freq", "3GHz", "--metric", "time")
        assert mapped == plain
        assert mapped.code == 0

    def test_options_reach_the_fit(self, run, table):
        path = table(sweep(noise=0, workloads=("sort",)))
        options = "--metric", "perf_per_watt", "--via", "ratio", "--level", "0.8", "--by", "host"
        done = run("project", path, "--freq", "3.0GHz", *options, "--format", "json")
        document = json.loads(done.out)
        assert (document["via"], document["level"], document["by"]) == ("ratio", 0.8, ["host"])
        done = run(
            *("project", path, "--freq", "3.0GHz,2.8GHz", "--metric", "power", "--power-form"),
            *("cmos", "--exponent", "2", "--form", "unbounded", "--format", "json"),
        )
        document = json.loads(done.out)
        assert (document["power_form"], document["form"]) == ("cmos", "unbounded")
        assert [g["freq_hz"] for g in document["groups"]] == [3.0e9, 2.8e9]


class TestConfounded:
    def test_two_atoms_of_one_clock_each(self, run, table):
        atoms = "host,family,workload,cores,freq_ghz,cpi\n"
        atoms += "D510,Bonnell,memcached,2,1.66,6.519\nD525,Bonnell,memcached,2,1.80,6.057\n"
        path = table(atoms)
        straight = "--by", "family,workload,cores", "--interval", "t"
        done = run("project", path, "--freq", "3.0GHz", *straight)
        assert (done.err, done.code) == ("", 0)
        assert "6.288" in done.out
        assert "caveat: host and frequency are confounded" in done.out
        refused(run("project", path, "--freq", "3.0GHz"), "only one distinct frequency", "--by")


class TestChecks:
    def test_max_error(self, run, table):
        path = table()
        loose = run("validate", path, "--max-error", "50")
        tight = run("validate", path, "--max-error", "0.001")
        assert (loose.err, loose.code) == ("", 0)
        assert tight.code == 3
        assert tight.out == loose.out
        assert tight.err.startswith("ppw: check failed: largest error ")
        assert tight.err.endswith(" %, asked for at most 0.001 %\n")

    def test_hosts_and_schemes(self, run, table):
        path = table(pd.concat([sweep(host=h, seed=i) for i, h in enumerate("ab")]))
        done = run("validate", path, "--train-host", "a", "--test-host", "b", "--metric", "time")
        assert done.out.startswith("Projected against measured, learnt on a, tested on b")
        done = run("validate", path, "--scheme", "frequency", "--metric", "time")
        assert "each frequency left out in turn" in done.out


class TestIntervals:
    """--interval, --no-pool, --keep-all and --vf reach the library, which is tested elsewhere."""

    @staticmethod
    def asked(run, path, *options, command="project"):
        freq = ("--freq", "2.4GHz") if command == "project" else ()
        done = run(command, path, *freq, *options, "--format", "json")
        assert (done.err, done.code) == ("", 0)
        return json.loads(done.out)

    @pytest.mark.parametrize("command", ["project", "validate"])
    @pytest.mark.parametrize("interval", ["bayes", "conformal", "t", "none"])
    def test_every_interval(self, command, interval, run, table):
        hosts = [sweep(host=f"node{i}", seed=i, noise=0.02) for i in range(4)]
        options = "--interval", interval, "--metric", "time"
        document = self.asked(run, table(pd.concat(hosts)), *options, command=command)
        assert document["interval"] == interval
        lower = [g["lower"] for g in document["groups"]]
        assert [x is None for x in lower] == [interval == "none"] * 12

    @pytest.mark.parametrize("command", ["project", "validate"])
    def test_bayes_and_pooling_are_the_default(self, command, run, table):
        document = self.asked(run, table(), command=command)
        assert (document["interval"], document["pool"]) == ("bayes", True)
        named = self.asked(run, table(), "--interval", "bayes", "--pool", command=command)
        assert named == document

    @pytest.mark.parametrize("command", ["project", "validate"])
    def test_no_pool(self, command, run, table):
        document = self.asked(run, table(), "--no-pool", command=command)
        assert document["pool"] is False
        if command == "project":
            pulled = [g["pulled_pct"] for g in document["groups"]]
            assert max(map(abs, pulled)) < 1e-6

    def test_keep_all(self, run, table):
        # 1.6 GHz is a copy of 1.2 GHz, and what was learnt from there is left out.
        runs = sweep(repeats=1).drop(columns=["cycles", "instructions"])
        runs.loc[1, ["time_s", "power_w"]] = runs.loc[0, ["time_s", "power_w"]]
        path = table(runs)
        cut = self.asked(run, path, "--metric", "time")
        assert [r["position"] for r in cut["left_out"]] == [0, 1]
        assert "2 rows left out (frequency not applied)" in " ".join(cut["caveats"])
        assert [g["points"] for g in cut["groups"]] == [2, 4, 4]
        kept = self.asked(run, path, "--metric", "time", "--keep-all")
        assert kept["left_out"] == []
        assert [g["points"] for g in kept["groups"]] == [4, 4, 4]
        told = run("project", path, "--freq", "2.4GHz", "--format", "csv")
        assert "ppw: caveat: 2 rows left out" in told.err
        validated = run("validate", path, "--metric", "time")
        assert "caveat: 2 of 12 rows left out" in validated.out
        assert "rows left out" not in run("validate", path, "--metric", "time", "--keep-all").out

    def test_watts_below_nothing_take_keep_all_to_be_refused(self, run, table):
        runs = sweep()
        runs.loc[3, "power_w"] = -0.5
        path = table(runs)
        assert run("project", path, "--freq", "3GHz").code == 0
        done = run("project", path, "--freq", "3GHz", "--keep-all")
        refused(done, "row 4, column power_w: -0.5 must be greater than 0")

    @pytest.mark.parametrize("command", ["project", "validate"])
    def test_a_voltage_table(self, command, run, table):
        runs = sweep(noise=0.005).assign(
            voltage_v=lambda r: 0.6 + 0.2 * r["freq_ghz"],
            power_w=lambda r: 10 + 20 * r["freq_ghz"] * (r["freq_ghz"] / 2) ** 3,
        )
        path, flat = table(runs), table("freq_ghz,voltage_v\n1.0,1\n4.0,1\n", "vf.csv")
        metric = "--metric", "power"
        own, given, none = (
            [g["projected"] for g in self.asked(run, path, *metric, *o, command=command)["groups"]]
            for o in ((), ("--vf", flat), ("--vf", "none"))
        )
        assert min(given) < min(own)
        assert own != none
        bare = table(runs.drop(columns="voltage_v"), "bare.csv")
        without = self.asked(run, bare, *metric, command=command)
        assert [g["projected"] for g in without["groups"]] == pytest.approx(none, rel=1e-9)

    def test_a_voltage_table_by_host(self, run, table):
        path = table(pd.concat([sweep(host=h, seed=i) for i, h in enumerate("ab")]))
        rows = "a,1.0,0.8\na,4.0,1.4\nb,1.0,1.0\nb,4.0,1.0\n"
        by_host = table("host,freq_ghz,voltage_v\n" + rows, "vf.csv")
        options = "--metric", "power", "--no-pool"
        own, none = (
            self.asked(run, path, *options, "--vf", vf)["groups"] for vf in (by_host, "none")
        )
        assert {g["host"] for g in own} == {"a", "b"}
        assert all(a["projected"] != b["projected"] for a, b in zip(own, none, strict=True))

    def test_a_fit_takes_it_too(self, run, table):
        vf = table("freq_ghz,voltage_v\n1.0,0.8\n4.0,1.4\n", "vf.csv")
        done = run("fit", table(), "--metric", "power", "--vf", vf)
        assert (done.err, done.code) == ("", 0)
        assert "P(f) = P0 + c·(f/GHz)·V(f)²" in done.out

    @pytest.mark.parametrize(
        ("content", "said"),
        [
            ("freq_ghz,volt\n1.2,1.0\n", "vf.csv: no column voltage_v"),
            ("voltage_v\n1.0\n", "vf.csv: no column freq_hz"),
            ("freq_ghz,voltage_v\n1.2,1.0\n2.4,-1\n", "vf.csv: row 2, column voltage_v: -1"),
            ("freq_ghz,voltage_v\n1.2,\n", "vf.csv: row 1, column voltage_v: missing"),
            ("", "vf.csv: is empty"),
        ],
    )
    def test_what_is_no_voltage_table(self, content, said, run, table):
        path, vf = table(), table(content, "vf.csv")
        refused(run("project", path, "--freq", "3GHz", "--vf", vf), said)
        refused(run("validate", path, "--vf", vf), said)

    def test_no_such_voltage_table(self, run, table):
        done = run("project", table(), "--freq", "3GHz", "--vf", "nowhere.csv")
        refused(done, "nowhere.csv: cannot be read: No such file")

    @pytest.mark.parametrize("freq", ["2.4GHz", "3.0GHz"])
    def test_too_few_groups_to_calibrate_by(self, freq, run, table):
        done = run("project", table(), "--freq", freq, "--interval", "conformal")
        refused(done, "takes 9 groups of other workloads measured at the target frequency")

    def test_help_names_them(self, run):
        for command in ("project", "validate"):
            text = run(command, "--help").out
            assert "[bayes|conformal|t|none]" in " ".join(text.split())
            for option in ("--pool / --no-pool", "--keep-all", "--vf FILE"):
                assert option in text


USAGE = {
    "no command": ([], "Usage: ppw"),
    "misspelt command": (["projct"], "no command 'projct' (did you mean 'project'?)"),
    "misspelt option": (["project", "r.csv", "--frq", "3GHz"], "--freq"),
    "misspelt metric": (
        ["fit", "r.csv", "--metric", "tiem"],
        "'tiem' (did you mean 'time'?) is not one of time, cpi",
    ),
    "no frequency": (["project", "r.csv"], "Give --freq, --cores or --data"),
    "no runs": (["project", "--freq", "3GHz"], "Missing argument 'RUNS...'"),
    "frequency in GHz": (["project", "r.csv", "--freq", "3.0"], "is it in GHz or MHz?"),
    "frequency in watts": (["project", "r.csv", "--freq", "3W"], "'3W' is not a quantity in Hz"),
    "form": (
        ["fit", "r.csv", "--form", "cubic"],
        "'cubic' is not one of amdahl, unbounded, reciprocal",
    ),
    "exponent": (["fit", "r.csv", "--exponent", "9"], "range 1<=x<=5"),
    "level": (
        ["project", "r.csv", "--freq", "3GHz", "--level", "90"],
        "is more than the whole: write 90% or 0.9",
    ),
    "interval": (
        ["project", "r.csv", "--freq", "3GHz", "--interval", "beyes"],
        "'beyes' (did you mean 'bayes'?) is not one of bayes, conformal, t, none",
    ),
    "interval of a fit": (["fit", "r.csv", "--interval", "t"], "No such option '--interval'"),
    "map": (["fit", "r.csv", "--map", "freq_hz"], "'freq_hz' is not COLUMN=HEADER"),
    "map twice": (
        ["fit", "r.csv", "--map", "cpi=a", "--map", "cpi=b"],
        "column cpi is given twice",
    ),
    "no name": (["fit", "r.csv", "--by", ","], "no name is given"),
    "max error": (["validate", "r.csv", "--max-error", "-1"], "range x>=0"),
    "scheme and test": (
        ["validate", "r.csv", "--scheme", "host", "--test", "2GHz"],
        "give a scheme, or the frequencies or hosts to train and test on, not both",
    ),
    "one host": (["validate", "r.csv", "--train-host", "a"], "both the train host and the test"),
    "format": (["fit", "r.csv", "--format", "xml"], "'xml' is not one of text, json, csv, html"),
}


@pytest.mark.parametrize(("arguments", "said"), USAGE.values(), ids=USAGE)
def test_wrong_usage_is_told_apart_from_bad_data(arguments, said, run):
    done = run(*arguments)
    assert (done.out, done.code) == ("", 2)
    assert done.err.startswith("Usage: ppw")
    assert said in " ".join(done.err.split())


HEADER = "workload,freq_ghz,time_s\n"
BAD = {
    "empty": ("", "is empty"),
    "header only": (HEADER, "holds no runs, only a header"),
    "one frequency": (HEADER + "sort,1.2,5\n" * 50, "only one distinct frequency in every group"),
    "not a number": (HEADER + "sort,1.2,NaN\nsort,1.6,4\n", "row 1, column time_s: missing"),
    "infinite": (HEADER + "sort,1.2,inf\nsort,1.6,4\n", "inf is not finite"),
    "negative": (HEADER + "sort,1.2,5\nsort,1.6,-4\n", "row 2, column time_s: -4 must be greater"),
    "zero": (HEADER + "sort,1.2,5\nsort,1.6,0\n", "row 2, column time_s: 0 must be greater"),
    "text": (HEADER + "sort,1.2,5\nsort,1.6,fast\n", "row 2, column time_s: 'fast' is not a numb"),
    "MHz as GHz": (HEADER + "sort,1200,5\nsort,1600,4\n", "is over 20 GHz"),
    "GHz as Hz": ("freq_hz,time_s\n1.2,5\n1.6,4\n", "is it in GHz or MHz?"),
    "no unit": ("freq,time_s\n1200,5\n1600,4\n", "column 'freq' has no unit"),
    "no frequency": ("workload,time_s\nsort,5\n", "no column freq_hz"),
    "nothing measured": ("workload,freq_ghz\nsort,1.2\n", "nothing to project"),
    "wide": (",".join(f"c{i}" for i in range(100_000)) + "\n", "the header has 100000 columns"),
    "ragged": (HEADER + "sort,1.2,5,6,7\n", "bad.csv"),
    "binary": (bytes(range(256)) * 16, "bad.csv"),
    "binary without zeros": (bytes(range(255, 0, -1)) * 16, "not text in UTF-8"),
    "broken gzip": (b"\x1f\x8b\x08\x00 this is none", "bad.csv"),
    "broken parquet": (b"PAR1" + bytes(100), "broken Parquet"),
    "broken json": ('{"freq_ghz": 1.2,\n', "line 1"),
}


class TestBadData:
    @pytest.mark.parametrize(("content", "said"), BAD.values(), ids=BAD)
    def test_one_line_and_nothing_written(self, content, said, run, table, tmp_path):
        path = table(content, "bad.csv")
        refused(run("project", path, "--freq", "3GHz", "--output", "out.txt"), said)
        assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]

    @pytest.mark.parametrize("command", ["fit", "validate"])
    def test_other_commands_too(self, command, run, table):
        refused(run(command, table(BAD["negative"][0])), BAD["negative"][1])

    def test_every_bad_value_at_once(self, run, table):
        path = table(HEADER + "sort,1.2,-5\nsort,1.6,x\nsort,-2,4\n")
        done = run("project", path, "--freq", "3GHz")
        refused(done, "row 1, column time_s", "row 2, column time_s", "row 3, column freq_ghz")
        assert "(3 bad values; " in done.err

    def test_no_such_file_and_a_folder(self, run, tmp_path):
        refused(run("fit", "nowhere.csv"), "nowhere.csv: cannot be read: No such file")
        refused(run("fit", tmp_path), "cannot be read: Is a directory")
        refused(run("fit", "-"), "standard input: is empty")

    def test_a_frequency_that_was_not_measured(self, run, table):
        refused(run("validate", table(), "--test", "3GHz"), "no run at 3 GHz; the nearest is at")

    def test_a_column_that_is_not_there(self, run, table):
        refused(run("fit", table(), "--by", "hots"), "'hots' (did you mean 'host'?)")
        refused(run("fit", table(), "--metric", "throughput"), "no column throughput_ops_s")
        refused(run("fit", table(), "--map", "cpi=CPI"), "--map names column 'CPI'")

    def test_no_such_host(self, run):
        refused(run("hosts", "Xeon L5641"), "Xeon L5640")


class TestOutput:
    def test_file_has_what_would_have_been_printed(self, run, table, tmp_path):
        path = table()
        printed = run("project", path, "--freq", "3GHz")
        done = run("project", path, "--freq", "3GHz", "--output", "out.txt")
        assert done == Done("", "", 0)
        assert (tmp_path / "out.txt").read_text(encoding="utf-8") == printed.out
        assert {p.name for p in tmp_path.iterdir()} == {"runs.csv", "out.txt"}

    def test_an_old_file_stays_until_the_new_one_is_whole(self, run, table, tmp_path):
        (tmp_path / "out.txt").write_text("before")
        refused(run("fit", table(BAD["zero"][0]), "--output", "out.txt"))
        assert (tmp_path / "out.txt").read_text() == "before"
        assert run("fit", table(), "--output", "out.txt").code == 0
        assert "t_fixed_s" in (tmp_path / "out.txt").read_text(encoding="utf-8")

    def test_permissions_are_the_users_own(self, run, table, tmp_path):
        run("fit", table(), "--output", "out.txt")
        mask = os.umask(0)
        os.umask(mask)
        assert (tmp_path / "out.txt").stat().st_mode & 0o777 == 0o666 & ~mask

    def test_what_cannot_be_written_to(self, run, table, tmp_path):
        (tmp_path / "folder").mkdir()
        path = table()
        refused(run("fit", path, "--output", "folder"), "folder: cannot be written: Is a directory")
        refused(run("fit", path, "--output", "no/where"), "no/where: cannot be written: No such")
        refused(run("fit", path, "--output", "runs.csv/out"), "runs.csv/out: cannot be written")
        assert list((tmp_path / "folder").iterdir()) == []

    def test_a_link_stays_a_link(self, run, table, tmp_path):
        (tmp_path / "link").symlink_to("target")
        assert run("fit", table(), "--output", "link").code == 0
        assert (tmp_path / "link").is_symlink()
        assert "t_fixed_s" in (tmp_path / "target").read_text(encoding="utf-8")

    def test_a_pipe_stays_a_pipe(self, run, table, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            done = run("fit", table(), "--metric", "time", "--output", "pipe")
            assert done == Done("", "", 0)
            assert "t_fixed_s" in os.read(reader, 1 << 16).decode()
        finally:
            os.close(reader)
        assert (tmp_path / "pipe").is_fifo()

    def test_a_reader_that_has_gone_is_no_error(self, table, tmp_path):
        path = table(pd.concat([sweep(host=f"node{i}", seed=i) for i in range(60)]))
        process = subprocess.Popen(
            [sys.executable, "-m", "ppw", "fit", str(path), "--format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=_environment({}),
            cwd=tmp_path,
        )
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 1

    def test_a_terminal_without_dashes_gets_them_spelt_out(self, process, table):
        done = process(
            *("project", table(), "--freq", "3GHz"),
            env={"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"},
        )
        assert (done.err, done.code) == ("", 0)
        assert "\\u2026" in done.out


def test_help_and_version(run, process):
    done = run("--help")
    assert (done.err, done.code) == ("", 0)
    for command in COMMANDS:
        assert f"  {command} " in done.out
        # A command that was run by itself in this process knows no -h: click keeps its options.
        one = process(command, "-h")
        assert (one.err, one.code) == ("", 0)
        assert "Example: ppw" in one.out
    assert run("--version").out.startswith("ppw, version ")


@pytest.mark.thirdparty
class TestMeasuredElsewhere:
    """CoreMark at every step of phone cores, as its authors' files are."""

    HEADERS = (
        *("--map", "freq_khz=Frequency (kHz)", "--map", "power_mw=Power (mW)"),
        *("--map", "time_s=Time (s)", "--map", "throughput_ops_s=CoreMarks (iter/s)"),
        *("--map", "workload=CPU"),
    )
    # Its power had the idle power taken off, and the noise of the rest is below zero.
    NEGATIVE = "exynos7904/main"

    def test_every_table_through_its_own_headers(self, run, data_dir):
        tables = sorted((data_dir / "freqbench" / "raw").glob("*/*/results.csv"))
        assert len(tables) == 30
        whole = [t for t in tables if self.NEGATIVE not in str(t)]
        assert len(whole) == 29
        done = run("project", *whole, *self.HEADERS, "--freq", "3.0GHz", "--format", "json")
        assert (done.err, done.code) == ("", 0)
        document = json.loads(done.out)
        assert document["by"] == ["source_file", "workload"]
        assert {g["source_file"] for g in document["groups"]} == set(map(str, whole))
        metrics = {"time", "throughput", "power", "energy", "perf_per_watt"}
        assert {g["metric"] for g in document["groups"]} == metrics
        straight = "--interval", "t", "--keep-all", "--format", "json"
        validated = run("validate", *whole, *self.HEADERS, *straight)
        summary = json.loads(validated.out)["summary"]
        # The core alone makes CoreMark's speed.
        assert summary["time"]["median_ape"] < 1
        assert summary["throughput"]["median_ape"] < 1

    def test_one_whose_power_is_negative(self, run, data_dir):
        path = data_dir / "freqbench" / "raw" / self.NEGATIVE / "results.csv"
        refused(
            run("project", path, *self.HEADERS, "--freq", "3.0GHz", "--keep-all"),
            *("row 1, column Power (mW)", "row 1, column Energy (J)", "must be greater than 0"),
        )
        left_out = run("project", path, *self.HEADERS, "--freq", "3.0GHz")
        assert (left_out.err, left_out.code) == ("", 0)
        assert "left out (power at or below idle), such as row 1: power of " in left_out.out
        speed = run(
            *("project", path, *self.HEADERS, "--freq", "3.0GHz"),
            *("--metric", "time,throughput"),
        )
        assert (speed.err, speed.code) == ("", 0)

    def test_the_page_of_a_whole_server_table(self, run, data_dir, tmp_path):
        table = data_dir / "nornir-repara" / "tidy.csv"
        split = "--train", "1.2GHz,1.8GHz", "--test", "2.4GHz", "--metric", "time,power"
        straight = "--interval", "t", "--keep-all"
        done = run("validate", table, *split, *straight, "--format", "html", "-o", "page.html")
        assert done == Done("", "", 0)
        page = (tmp_path / "page.html").read_text(encoding="utf-8")
        assert "half of 178 projections" in page


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (OSError(28, "No space left on device", "x.csv"), "x.csv: No space left on device"),
        (OSError("the kernel says no"), "the kernel says no"),
        (ppw.PpwError("no runs"), "no runs"),
    ],
)
def test_faults_of_the_world_are_one_line(error, said, capsys):
    assert report_error(error)
    assert capsys.readouterr().err == f"ppw: error: {said}\n"


def test_a_defect_of_ppw_is_not_hidden(monkeypatch):
    """Its traceback is what a report of it needs; so is one where output is taken elsewhere."""

    def broken(*_, **__):
        raise ZeroDivisionError

    monkeypatch.setattr(ppw.cli, "main", broken)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with pytest.raises(ZeroDivisionError):
        ppw.cli.console()
