"""The command line as users meet it: standard output, standard error and exit code."""

import csv
import functools
import gzip
import io
import json
import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
import warnings
from concurrent.futures import ProcessPoolExecutor

import click
import pandas as pd
import processes
import pytest
from click.testing import CliRunner
from golden_runs import golden
from made_traces import busy
from made_up import WORK, answered, sweep
from processes import ROOT, ppw_inside, ppw_process, worked
from walked_commands import COMMANDS, GROUPS, examples

import ppw
import ppw.cli
from measurements.traces import write_trace
from ppw.cli import main, report_error
from ppw.cli.options import output_options
from ppw.cli.output import refuse_input_as_output

EXAMPLES = ROOT / "examples"


@pytest.fixture
def run(tmp_path):
    """Run a command inside this process, in an empty folder: its output, messages and code."""

    def run(*words, **more):
        done = ppw_inside(*words, cwd=tmp_path, **more)
        return done.stdout, done.stderr, done.returncode

    return run


@pytest.fixture
def printed(tmp_path):
    """Run a command that has nothing to say but its answer."""
    return lambda *words: processes.printed(ppw_inside(*words, cwd=tmp_path))


@pytest.fixture
def refused(tmp_path):
    """Run a command that fails for its data: one line of ours, and no result."""

    def refused(words, *said):
        done = ppw_inside(*words, cwd=tmp_path)
        processes.refused(done, *said)
        assert done.stderr.count("\n") == 1
        return done.stderr

    return refused


@pytest.fixture
def table(tmp_path):
    """Write runs to a file; by default three workloads at four frequencies."""

    def write(content=None, name="runs.csv"):
        path = tmp_path / name
        if content is None:
            content = sweep(noise=0.02).round({"time_s": 4, "power_w": 2, "cycles": -6})
        if isinstance(content, pd.DataFrame):
            content = content.to_csv(index=False)
        path.write_bytes(content.encode() if isinstance(content, str) else content)
        return path

    return write


GOLDEN_RUNS = (
    *("demo --report -", "fit runs.csv --metric time,power", "hosts"),
    "plan runs.csv --freq 2.6GHz --steps 1.2GHz:2.4GHz:0.4GHz",
    "project runs.csv --freq 3.0GHz",
    "validate runs.csv --train 1.2GHz,1.6GHz --test 2.4GHz",
)


@pytest.mark.parametrize("words", GOLDEN_RUNS)
def test_golden(words, table, tmp_path):
    table()
    golden(words, tmp_path)


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("shop")
    steps = (1.2, 1.8, 2.4)
    runs = pd.concat([sweep(host=h, seed=i, steps=steps) for i, h in enumerate(("atom", "xeon"))])
    runs.to_csv(folder / "runs.csv", index=False)
    for name in ("base.csv", "new.csv"):
        runs[runs["host"] == "atom"].to_csv(folder / name, index=False)
    copies = {
        "study.csv": "fio_study.csv",
        "counts.csv": "instruction_counts.csv",
        "scenario.toml": "procurement.toml",
        "simulated_runs.csv": "simulated_runs.csv",
        "c1.csv": "recordings/cache.csv",
    }
    for name, copy in copies.items():
        shutil.copy(EXAMPLES / copy, folder / name)
    batch = (EXAMPLES / "recordings" / "batch.csv").read_bytes()
    for name in ("b3.tab.gz", "db7.tab.gz"):
        (folder / name).write_bytes(gzip.compress(batch))
    trace = gzip.decompress((EXAMPLES / "disk_trace.csv.gz").read_bytes())
    (folder / "disk.csv").write_bytes(trace)
    return folder


# Commands whose examples run as they are; others take hardware, a network, an engine, or minutes.
RUN = (
    *("best", "characterise", "check", "colocate", "compare", "cpio project", "fit", "hosts"),
    *("pathlength", "plan", "project", "rightsize", "sensors", "size", "validate"),
)
GROUPS_RUN = (("ppw",), ("ppw", "cpio"))
FURTHER = [w for name in RUN for w in examples(COMMANDS["ppw", *name.split()])[1:]]
FURTHER += [w for words in GROUPS_RUN for w in examples(COMMANDS[words])]


@pytest.fixture(scope="module")
def fresh():
    """Run a command where none of ours is imported yet, and any warning is an error."""
    context = multiprocessing.get_context("forkserver")
    context.set_forkserver_preload(["numba", "pandas", "sklearn.base"])
    strict = {"initializer": warnings.simplefilter, "initargs": ("error",)}
    with ProcessPoolExecutor(1, mp_context=context, max_tasks_per_child=1, **strict) as pool:
        yield lambda *words, cwd: pool.submit(ppw_inside, *words, cwd=cwd).result()


@pytest.mark.parametrize("words", [w for w in COMMANDS if w not in GROUPS], ids=" ".join)
def test_every_command_runs_by_itself(words, shop, fresh, tmp_path):
    runs = " ".join(words[1:]) in RUN
    asked = examples(COMMANDS[words])[0] if runs else [*words[1:], "-h"]
    done = fresh(*asked, cwd=shutil.copytree(shop, tmp_path / "shop"))
    assert done.returncode in ((0, 3) if {"--strict", "--max-error"} & set(asked) else (0,))
    assert [x for x in done.stderr.splitlines() if not x.startswith("ppw: ")] == []
    assert ("Example: ppw" in done.stdout) != runs


@pytest.mark.parametrize("words", FURTHER, ids=" ".join)
def test_further_examples_of_help_run(words, shop, tmp_path):
    worked(ppw_inside(*words, cwd=shutil.copytree(shop, tmp_path / "shop")))


def test_a_process_does_what_the_tests_below_see_from_inside(run, table, tmp_path):
    table()
    words = "validate", "runs.csv", "--max-error", "0.001"
    done = ppw_process(*words, cwd=tmp_path)
    assert (done.stdout, done.stderr, done.returncode) == run(*words)
    assert done.returncode == 3


def test_help_names_twenty_commands_in_sections_and_the_version_is_told(printed):
    text, listed = printed("--help"), [n for names in ppw.cli.SECTIONS.values() for n in names]
    missing = [n for n in listed if n in ppw.cli.COMMANDS and f"\n  {n} " not in text]
    assert missing == []
    assert len(set(listed)) == len(listed) <= 20
    assert printed("--version").startswith("ppw, version ")


def test_the_list_of_commands_loads_no_library_of_numbers(tmp_path):
    code = "import sys\nfrom ppw.cli import main\nmain(['--help'], standalone_mode=False)\n"
    code += "print([m for m in ('numpy', 'pandas', 'scipy', 'numba') if m in sys.modules])"
    words = [sys.executable, "-W", "error", "-c", code]
    how = {"capture_output": True, "text": True, "env": processes.environment()}
    done = subprocess.run(words, cwd=tmp_path, **how)
    assert done.stdout.splitlines()[-1] == "[]", done.stderr


class TestFormats:
    ANSWERS = {  # noqa: RUF012
        "project": (functools.partial(ppw.project, freq=3e9), ("--freq", "3.0GHz")),
        "validate": (ppw.validate, ()),
        "fit": (ppw.fit, ()),
    }

    @pytest.mark.parametrize("command", ANSWERS)
    def test_json_is_the_results_own_csv_has_its_caveats_beside_it_html_is_a_page(
        self, command, run, printed, table
    ):
        function, options = self.ANSWERS[command]
        path = table(sweep(repeats=1).drop(columns=["power_source", "cycles", "price"]))
        result = answered(function, ppw.read_runs(path))
        assert printed(command, path, *options, "--format", "json") == result.to_json() + "\n"
        out, err, code = run(command, path, *options, "--format", "csv")
        assert {row["workload"] for row in csv.DictReader(io.StringIO(out))} == set(WORK)
        assert err.splitlines() == [f"ppw: caveat: {caveat}" for caveat in result.caveats]
        assert "power of unknown source" in err
        assert code == 0
        page = printed(command, path, *options, "--format", "html", "--metric", "time")
        assert page.startswith("<!DOCTYPE html>")
        assert page.rstrip().endswith("</html>")

    def test_demo_writes_its_report(self, run, tmp_path):
        out, err, _ = run("demo", "--format", "json")
        assert err == "ppw: report written to ppw-demo.html\n"
        assert json.loads(out)["kind"] == "demo"
        assert "<!DOCTYPE html>" in (tmp_path / "ppw-demo.html").read_text(encoding="utf-8")

    @pytest.mark.parametrize("format_", ["json", "csv", "text"])
    def test_hosts(self, format_, printed):
        for words in ((), ("Xeon L5640",)):
            assert "Xeon L5640" in printed("hosts", *words, "--format", format_)

    @pytest.mark.cases(
        "words, form",
        *(("", "text"), ("-o -", "text"), ("-o x.json", "json"), ("-o x.CSV", "csv")),
        *(("--output there/x.model.json", "json"), ("-o x.html", "html"), ("-o x.txt", "text")),
        *(("-o x.csv.gz", "text"), ("-o json", "text"), ("-o x.html --format json", "json")),
        ("--format text -o x.html", "text"),
    )
    def test_the_ending_of_a_file_says_the_format_unless_one_is_given(self, words, form):
        found = []
        command = click.command()(output_options(lambda format_, output: found.append(format_)))
        CliRunner().invoke(command, words.split(), catch_exceptions=False)
        assert found == [form]


class TestInputs:
    def test_standard_input(self, run, table):
        path = table()
        piped = run("project", "-", "--freq", "3.0GHz", stdin=path.read_bytes())
        assert piped == run("project", path, "--freq", "3.0GHz")

    def test_several_files(self, printed, table):
        paths = [table(sweep(host=h, seed=i), f"{h}.csv") for i, h in enumerate(("a", "b"))]
        out = printed("project", *paths, "--freq", "3.0GHz", "--metric", "time")
        assert [line.split()[0] for line in out.splitlines()[2:]] == ["a"] * 3 + ["b"] * 3

    def test_foreign_headers(self, printed, table):
        foreign = sweep().rename(columns={"freq_ghz": "Clock", "time_s": "Real (ms)"})
        foreign["Clock"] *= 1e6
        foreign["Real (ms)"] *= 1e3
        columns = ["host", "family", "workload", "cores", "Clock", "Real (ms)"]
        path = table(foreign[columns], "foreign.csv")
        names = "--map", "freq_khz=Clock", "--map", "time_s=Real (ms)"
        asked = "--freq", "3GHz", "--metric", "time"
        plain = printed("project", table(sweep()), *asked)
        assert printed("project", path, *asked, *names) == plain


class TestOptions:
    """Options reach the library, which is tested elsewhere."""

    @pytest.fixture
    def document(self, printed):
        def document(path, *options, command="project"):
            freq = ("--freq", "2.4GHz") * (command == "project" and "--freq" not in options)
            return json.loads(printed(command, path, *freq, *options, "--format", "json"))

        return document

    def test_of_the_fit(self, document, table):
        path = table(sweep(noise=0, workloads=("sort",)))
        options = "--metric", "perf_per_watt", "--via", "ratio", "--level", "0.8", "--by", "host"
        found = document(path, *options)
        assert (found["via"], found["level"], found["by"]) == ("ratio", 0.8, ["host"])
        found = document(
            *(path, "--freq", "3.0GHz,2.8GHz", "--metric", "power", "--power-form", "cmos"),
            *("--exponent", "2", "--form", "unbounded"),
        )
        assert (found["power_form"], found["form"]) == ("cmos", "unbounded")
        assert [g["freq_hz"] for g in found["groups"]] == [3.0e9, 2.8e9]

    def test_of_a_check(self, run, table):
        path = table()
        out, err, code = run("validate", path, "--max-error", "50")
        assert (err, code) == ("", 0)
        again, err, code = run("validate", path, "--max-error", "0.001")
        assert (again, code) == (out, 3)
        assert err.startswith("ppw: check failed: largest error ")
        assert err.endswith(" %, but --max-error is 0.001 %\n")

    def test_of_hosts_and_schemes(self, printed, table):
        path = table(pd.concat([sweep(host=h, seed=i) for i, h in enumerate("ab")]))
        hosts = "--train-host", "a", "--test-host", "b"
        out = printed("validate", path, *hosts, "--metric", "time")
        assert out.startswith("Projected against measured, learnt on a, tested on b")
        out = printed("validate", path, "--scheme", "frequency", "--metric", "time")
        assert "each frequency left out in turn" in out

    @pytest.mark.parametrize("command", ["project", "validate"])
    @pytest.mark.parametrize("interval", ["bayes", "conformal", "t", "none"])
    def test_every_interval(self, command, interval, document, table):
        hosts = [sweep(host=f"node{i}", seed=i, noise=0.02) for i in range(4)]
        options = "--interval", interval, "--metric", "time"
        found = document(table(pd.concat(hosts)), *options, command=command)
        assert found["interval"] == interval
        assert [g["lower"] is None for g in found["groups"]] == [interval == "none"] * 12

    @pytest.mark.parametrize("command", ["project", "validate"])
    def test_bayes_and_pooling_are_the_default(self, command, document, table):
        path = table()
        found = document(path, command=command)
        assert (found["interval"], found["pool"]) == ("bayes", True)
        assert document(path, "--interval", "bayes", "--pool", command=command) == found
        alone = document(path, "--no-pool", command=command)
        assert alone["pool"] is False
        if command == "project":
            assert max(abs(g["pulled_pct"]) for g in alone["groups"]) < 1e-6

    def test_keep_all(self, document, run, printed, refused, table):
        # 1.6 GHz is a copy of 1.2 GHz, and what was learnt from there is left out.
        runs = sweep(repeats=1).drop(columns=["cycles", "instructions"])
        runs.loc[1, ["time_s", "power_w"]] = runs.loc[0, ["time_s", "power_w"]]
        path, time = table(runs), ("--metric", "time")
        cut = document(path, *time)
        assert [r["position"] for r in cut["left_out"]] == [0, 1]
        assert "2 rows left out (frequency not applied)" in " ".join(cut["caveats"])
        assert [g["points"] for g in cut["groups"]] == [2, 4, 4]
        kept = document(path, *time, "--keep-all")
        assert kept["left_out"] == []
        assert [g["points"] for g in kept["groups"]] == [4, 4, 4]
        _, said, _ = run("project", path, "--freq", "2.4GHz", "--format", "csv")
        assert "ppw: caveat: 2 rows left out" in said
        assert "caveat: 2 of 12 rows left out" in printed("validate", path, *time)
        assert "rows left out" not in printed("validate", path, *time, "--keep-all")
        runs.loc[3, "power_w"] = -0.5
        path = table(runs)
        assert run("project", path, "--freq", "3GHz")[2] == 0
        said = "line 5, column power_w: -0.5 must be greater than 0"
        refused(["project", path, "--freq", "3GHz", "--keep-all"], said)

    @pytest.mark.parametrize("command", ["project", "validate"])
    def test_a_voltage_table(self, command, document, table):
        runs = sweep(noise=0.005).assign(
            voltage_v=lambda r: 0.6 + 0.2 * r["freq_ghz"],
            power_w=lambda r: 10 + 20 * r["freq_ghz"] * (r["freq_ghz"] / 2) ** 3,
        )
        path, flat = table(runs), table("freq_ghz,voltage_v\n1.0,1\n4.0,1\n", "vf.csv")
        bare = table(runs.drop(columns="voltage_v"), "bare.csv")
        own, given, none, without = (
            [g["projected"] for g in document(*o, "--metric", "power", command=command)["groups"]]
            for o in ((path,), (path, "--vf", flat), (path, "--vf", "none"), (bare,))
        )
        assert min(given) < min(own)
        assert own != none
        assert without == pytest.approx(none, rel=1e-9)

    def test_a_voltage_table_by_host_and_of_a_fit(self, document, printed, table):
        path = table(pd.concat([sweep(host=h, seed=i) for i, h in enumerate("ab")]))
        rows = "a,1.0,0.8\na,4.0,1.4\nb,1.0,1.0\nb,4.0,1.0\n"
        by_host = table("host,freq_ghz,voltage_v\n" + rows, "vf.csv")
        options = "--metric", "power", "--vf"
        own, none = (document(path, *options, vf, "--no-pool") for vf in (by_host, "none"))
        assert {g["host"] for g in own["groups"]} == {"a", "b"}
        for a, b in zip(own["groups"], none["groups"], strict=True):
            assert a["projected"] != b["projected"]
        one = table("freq_ghz,voltage_v\n1.0,0.8\n4.0,1.4\n", "one.csv")
        assert "P(f) = P0 + c·(f/GHz)·V(f)²" in printed("fit", path, *options, one)

    @pytest.mark.cases(
        "content, said",
        ("freq_ghz,volt\n1.2,1.0\n", "vf.csv: no column voltage_v"),
        ("voltage_v\n1.0\n", "vf.csv: no column freq_hz"),
        ("freq_ghz,voltage_v\n1.2,1.0\n2.4,-1\n", "vf.csv: line 3, column voltage_v: -1"),
        ("freq_ghz,voltage_v\n1.2,\n", "vf.csv: line 2, column voltage_v: missing"),
        ("", "vf.csv: is empty"),
    )
    def test_what_is_no_voltage_table(self, content, said, refused, table):
        path, vf = table(), table(content, "vf.csv")
        refused(["project", path, "--freq", "3GHz", "--vf", vf], said)


USAGE = {
    "": "Usage: ppw",
    "fit r.csv --metric tiem": "'tiem' (did you mean 'time'?) is not one of time, cpi",
    "project r.csv": "give one of --freq, --cores or --data",
    "project r.csv --freq 3.0": "is it in GHz or MHz?",
    "fit r.csv --exponent 9": "range 1<=x<=5",
    "fit r.csv --map freq_hz": "'freq_hz' is not COLUMN=HEADER",
    "fit r.csv --map cpi=a --map cpi=b": "column cpi is given twice",
    "fit r.csv --by ,": "no name is given",
    "validate r.csv --max-error -1": "range x>=0",
    "validate r.csv --scheme host --test 2GHz": "give a scheme, or the frequencies or hosts to "
    "train and test on, not both",
    "validate r.csv --train-host a": "both the train host and the test",
}


@pytest.mark.parametrize(("words", "said"), USAGE.items())
def test_wrong_usage_is_told_apart_from_bad_data(words, said, run):
    out, err, code = run(*words.split())
    assert (out, code) == ("", 2)
    assert err.startswith("Usage: ppw")
    assert said in " ".join(err.split())


HEADER = "workload,freq_ghz,time_s\n"
BAD = {
    "one frequency": (HEADER + "sort,1.2,5\n" * 50, "group by fewer columns with --by"),
    "negative": (HEADER + "sort,1.2,5\nsort,1.6,-4\n", "line 3, column time_s: -4 must be greater"),
    "GHz as Hz": ("freq_hz,time_s\n1.2,5\n1.6,4\n", "is it in GHz or MHz?"),
    "no frequency": ("workload,time_s\nsort,5\n", "no column freq_hz"),
    "nothing measured": ("workload,freq_ghz\nsort,1.2\n", "nothing to project"),
    "wide": (",".join(f"c{i}" for i in range(100_000)) + "\n", "the header has 100000 columns"),
    "ragged": (HEADER + "sort,1.2,5,6,7\n", "bad.csv"),
    "broken json": ('{"freq_ghz": 1.2,\n', "line 1"),
}


@pytest.mark.parametrize(("content", "said"), BAD.values(), ids=BAD)
def test_bad_data_are_refused_and_nothing_is_written(content, said, refused, table, tmp_path):
    path = table(content, "bad.csv")
    refused(["project", path, "--freq", "3GHz", "--output", "out.txt"], said)
    assert [p.name for p in tmp_path.iterdir()] == ["bad.csv"]


def test_every_bad_value_is_said_at_once(refused, table):
    path = table(HEADER + "sort,1.2,-5\nsort,1.6,x\nsort,-2,4\n")
    rows = "line 2, column time_s", "line 3, column time_s", "line 4, column freq_ghz"
    refused(["project", path, "--freq", "3GHz"], *rows, "(3 bad values)")


ABSENT = {
    "fit nowhere.csv": "nowhere.csv: cannot be read: No such file",
    "fit .": "cannot be read: Is a directory",
    "fit -": "standard input: is empty",
    "project runs.csv --freq 3GHz --vf no.csv": "no.csv: cannot be read: No such file",
    "validate runs.csv --test 3GHz": "no run at 3 GHz; the nearest is at",
    "fit runs.csv --metric throughput": "no column throughput_ops_s",
    "fit runs.csv --map cpi=CPI": "--map names column 'CPI'",
    "fit runs.csv -o folder": "folder: cannot be written: Is a directory",
    "fit runs.csv -o no/where": "no/where: cannot be written: No such",
    # It takes groups of other workloads at the target, measured or not.
    "project runs.csv --freq 2.4GHz --interval conformal": "takes 9 groups of other workloads",
    "project runs.csv --freq 3.0GHz --interval conformal": "takes 9 groups of other workloads",
}


@pytest.mark.parametrize(("words", "said"), ABSENT.items())
def test_what_is_not_there_or_cannot_be_written_to(words, said, refused, table, tmp_path):
    table()
    (tmp_path / "folder").mkdir()
    refused(words.split(), said)
    assert list((tmp_path / "folder").iterdir()) == []


class TestOutput:
    def test_file_has_what_would_have_been_printed(self, printed, table, tmp_path):
        asked = "project", table(), "--freq", "3GHz"
        assert printed(*asked, "--output", "out.txt") == ""
        assert (tmp_path / "out.txt").read_text(encoding="utf-8") == printed(*asked)
        assert {p.name for p in tmp_path.iterdir()} == {"runs.csv", "out.txt"}
        mask = os.umask(0)
        os.umask(mask)
        assert (tmp_path / "out.txt").stat().st_mode & 0o777 == 0o666 & ~mask

    def test_an_old_file_stays_until_the_new_one_is_whole(self, refused, printed, table, tmp_path):
        (tmp_path / "out.txt").write_text("before")
        refused(["fit", table(BAD["negative"][0]), "--output", "out.txt"])
        assert (tmp_path / "out.txt").read_text() == "before"
        # A link stays a link.
        (tmp_path / "link").symlink_to("out.txt")
        printed("fit", table(), "--output", "link")
        assert (tmp_path / "link").is_symlink()
        assert "t_fixed_s" in (tmp_path / "out.txt").read_text(encoding="utf-8")

    def test_a_pipe_stays_a_pipe(self, printed, table, tmp_path):
        os.mkfifo(tmp_path / "pipe")
        reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
        try:
            assert printed("fit", table(), "--metric", "time", "--output", "pipe") == ""
            assert "t_fixed_s" in os.read(reader, 1 << 16).decode()
        finally:
            os.close(reader)
        assert (tmp_path / "pipe").is_fifo()

    def test_a_reader_that_has_gone_is_no_error(self, table, tmp_path):
        # More than a pipe holds.
        path = table(pd.concat([sweep(host=f"node{i}", seed=i) for i in range(60)]))
        process = subprocess.Popen(
            [sys.executable, "-m", "ppw", "fit", str(path), "--format", "json"],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=processes.environment(),
            cwd=tmp_path,
        )
        process.stdout.close()
        assert process.stderr.read() == b""
        process.stderr.close()
        assert process.wait() == 1

    def test_a_terminal_without_dashes_gets_them_spelt_out(self, tmp_path):
        ascii_ = {"PYTHONUTF8": "0", "PYTHONIOENCODING": "ascii"}
        done = ppw_process("hosts", cwd=tmp_path, **ascii_)
        assert (done.stderr, done.returncode) == ("", 0)
        assert "\\u2013" in done.stdout


class TestOutputIsInput:
    """A command does not replace what it reads: every way in which an input may be named."""

    @pytest.fixture
    def folder(self, tmp_path, table):
        table()
        (tmp_path / "link.csv").symlink_to("runs.csv")
        write_trace(busy(200), tmp_path / "trace.csv")
        return tmp_path

    @pytest.mark.cases(
        "words",
        "project runs.csv --freq 3GHz -o runs.csv",
        "project runs.csv --freq 3GHz -o ./runs.csv --format json",
        "project link.csv --freq 3GHz -o runs.csv",
        "project runs.csv --freq 3GHz -o link.csv",
        "trace fit trace.csv -o trace.csv",
        "trace validate trace.csv trace.csv -o trace.csv",
    )
    def test_it_is_refused_and_left_as_it_is(self, words, folder, run):
        before = {path.name: path.read_bytes() for path in folder.iterdir()}
        out, err, code = run(*words.split())
        assert (out, code) == ("", 2)
        assert "is an input, and would be replaced: write to another file" in " ".join(err.split())
        assert {path.name: path.read_bytes() for path in folder.iterdir()} == before

    def test_logs_behind_a_label_are_inputs(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        with click.Context(main) as context:
            context.params = {"output": "runs.csv", "logs": (("db=other.csv,runs.csv",),)}
            with pytest.raises(click.UsageError, match=r"runs\.csv is an input"):
                refuse_input_as_output("runs.csv")
            context.params = {"output": "runs.csv", "logs": ("db=other.csv",), "level": 0.9}
            refuse_input_as_output("runs.csv")
            # A page is written again.
            context.params = {"output": "-", "report": "runs.csv", "runs": None}
            refuse_input_as_output("runs.csv")


@pytest.mark.thirdparty
def test_coremark_at_every_step_of_phone_cores_through_its_authors_headers(data_dir):
    headers = (
        *("--map", "freq_khz=Frequency (kHz)", "--map", "power_mw=Power (mW)"),
        *("--map", "time_s=Time (s)", "--map", "throughput_ops_s=CoreMarks (iter/s)"),
        *("--map", "workload=CPU"),
    )
    tables = sorted((data_dir / "freqbench" / "raw").glob("*/*/results.csv"))
    # Power of this one had the idle power taken off, and the noise of the rest is below zero.
    whole = [t for t in tables if "exynos7904/main" not in str(t)]
    assert (len(tables), len(whole)) == (30, 29)
    asked = *whole, *headers, "--format", "json"
    done = ppw_inside("project", *asked, "--freq", "3.0GHz", cwd=data_dir)
    assert done.stderr == 'ppw: ignored "CoreMarks/MHz", "ULPMark-CM (iter/mJ)"\n'
    document = json.loads(done.stdout)
    assert document["by"] == ["source_file", "workload"]
    assert {g["source_file"] for g in document["groups"]} == set(map(str, whole))
    metrics = {"time", "throughput", "power", "energy", "perf_per_watt"}
    assert {g["metric"] for g in document["groups"]} == metrics
    straight = "--interval", "t", "--keep-all"
    done = ppw_inside("validate", *asked, *straight, cwd=data_dir)
    summary = json.loads(done.stdout)["summary"]
    # The core alone makes CoreMark's speed.
    assert summary["time"]["median_ape"] < 1
    assert summary["throughput"]["median_ape"] < 1


@pytest.mark.cases(
    "error, said",
    (OSError(28, "No space left on device", "x.csv"), "x.csv: No space left on device"),
    (OSError("the kernel says no"), "the kernel says no"),
    (ppw.PpwError("no runs"), "no runs"),
)
def test_faults_of_the_world_are_one_line(error, said, capsys):
    assert report_error(error)
    assert capsys.readouterr().err == f"ppw: error: {said}\n"


def test_a_fault_of_ppw_is_one_line_that_names_its_report(monkeypatch, tmp_path, capsys):

    def broken(*_, **__):
        raise ZeroDivisionError("nothing there")

    monkeypatch.setattr(ppw.cli, "main", broken)
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    with warnings.catch_warnings(), pytest.raises(SystemExit) as ended:
        ppw.cli.console()
    assert ended.value.code == 70
    (report,) = tmp_path.iterdir()
    said = "a fault of ppw itself (ZeroDivisionError: nothing there)"
    assert capsys.readouterr().err == f"ppw: error: {said}: send {report} to the authors\n"
    assert "in broken" in report.read_text()


def test_there_is_one_tree_of_errors():
    assert issubclass(ppw.MeasurementError, ppw.PpwError)
    assert issubclass(ppw.FittingError, ppw.PpwError)
    for error in (ppw.MeasurementError, ppw.FittingError):
        assert issubclass(error, ValueError)
