"""`ppw measure --simulate` and `ppw demo --runs` as users run them."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest
from peers.riscv import WORK, build, marked

from measurements.runs import read_runs
from ppw.samples import simulated_sweep

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def run(tmp_path):
    def run(*arguments, **env):
        done = subprocess.run(
            [sys.executable, "-W", "error", "-m", "ppw", *arguments],
            cwd=tmp_path,
            env={**os.environ, "PYTHONPATH": str(ROOT), **env},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
        )
        return done.stdout, done.stderr, done.returncode

    return run


def test_programs_of_a_user(run, tmp_path):
    build(tmp_path / "mine.elf", marked())
    build(tmp_path / "plain.elf", f"{WORK} return 0;")
    what = ("mine.elf", "plain.elf")
    asked = ("--simulate", "inorder,o3", "--freq", "1GHz,2GHz", "--data", "32KiB")
    out, err, code = run("measure", *asked, "-o", "runs.csv", *what)
    assert code == 0, err
    table = pd.read_csv(tmp_path / "runs.csv")
    assert len(table) == 8
    assert set(table["power_source"]) == {"simulated"}
    assert set(table["data_bytes"]) == {32768}
    assert set(zip(table["workload"], table["region"], strict=True)) == {
        ("mine", "marked"),
        ("plain", "whole program"),
    }
    assert "ppw: 8 of 8: plain on o3, 2 GHz" in err
    assert "ppw: caveat: simulated, not hardware" in err
    assert "ppw: caveat: plain: without marks" in err
    assert len(out.splitlines()) == 10


def test_a_cell_of_the_shipped_sweep_made_anew_is_the_same_to_the_last_cycle(run, tmp_path):
    asked = ("--simulate", "inorder", "--freq", "1.2GHz,2.4GHz", "-o", "runs.csv")
    out, err, code = run("measure", *asked, "pointer_chase")
    assert code == 0, err
    assert "pointer_chase" in out
    sweep = simulated_sweep()
    same = (sweep["workload"] == "pointer_chase") & (sweep["host"] == "simulated-inorder")
    shipped = sweep[same & sweep["freq_hz"].isin([1.2e9, 2.4e9])]
    anew = read_runs(tmp_path / "runs.csv")
    assert len(anew) == 2
    assert anew.to_dict("records") == shipped.to_dict("records")


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (("--simulate", "o4", "--freq", "1GHz", "kmeans"), 2, "'o4' is not one of inorder, o3"),
        (("--simulate", "o3", "--freq", "1GHz"), 2, "which program? One of word_count, sort,"),
        (("--simulate", "o3", "kmeans"), 2, "say which clocks"),
        (("--simulate", "o3", "--freq", "1GHz", "kmeans"), 2, "no -o FILE"),
        (("--simulate", "o3", "--repeats", "3", "kmeans"), 2, "--repeats says nothing to a sim"),
        (("--simulate", "o3", "--freq", "1GHz", "-o", "r.csv", "kmens"), 1, "mean 'kmeans'?"),
        (("--simulate", "o3", "--freq", "20GHz", "-o", "r.csv", "sort"), 1, "from 100 MHz to 10"),
    ],
)
def test_wrong_use(run, tmp_path, arguments, code, said):
    out, err, ended = run("measure", *arguments)
    assert (out, ended) == ("", code)
    assert said in err
    assert "Traceback" not in err
    assert not (tmp_path / "r.csv").exists()


def test_without_a_compiler_one_line_says_what_to_install(run, tmp_path):
    asked = ("--simulate", "o3", "--freq", "1GHz", "-o", "r.csv", "kmeans")
    out, err, code = run("measure", *asked, PATH=str(tmp_path))
    assert (out, code, err.count("\n")) == ("", 1, 1)
    assert "apt install gcc-riscv64-unknown-elf" in err


def test_without_rvsim_one_line_says_what_to_install(run, tmp_path):
    (tmp_path / "missing" / "rvsim").mkdir(parents=True)
    (tmp_path / "missing" / "rvsim" / "__init__.py").write_text("raise ImportError('not here')\n")
    path = os.pathsep.join([str(tmp_path / "missing"), str(ROOT)])
    asked = ("--simulate", "o3", "--freq", "1GHz", "-o", "r.csv", "kmeans")
    out, err, code = run("measure", *asked, PYTHONPATH=path)
    assert (out, code, err.count("\n")) == ("", 1, 1)
    assert "pip install 'perf-per-watt[simulate]'" in err


def test_a_newcomer_compares_the_two_simulated_hosts(run, tmp_path):
    out, err, code = run("demo", "--runs", "runs.csv")
    assert (out, code) == ("", 0)
    assert err.startswith("ppw: caveat: simulated, not hardware")
    sides = ("--a", "host=simulated-o3", "--b", "host=simulated-inorder", "--freq", "3.2GHz")
    _, err, code = run("compare", "runs.csv", *sides, "--format", "html", "-o", "report.html")
    assert (err, code) == ("", 0)
    page = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "all runs are simulated, not hardware" in page
