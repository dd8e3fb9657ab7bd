"""`ppw fleet …`: output, faults on standard error, and the exit codes."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from fleet_peers import OTHERS_WARNINGS, assert_same, quiet, sockets_closed  # noqa: F401

import ppw
from ppw.cli.fleet import command
from ppw.fleet import FleetAnswer

pytestmark = OTHERS_WARNINGS
ROOT = Path(__file__).resolve().parents[2]


def runs(host):
    random = np.random.default_rng(3)
    ghz = np.repeat([1.2, 1.8, 2.4], 4)
    time = (3 + 10 / ghz) * np.exp(random.normal(0, 0.01, 12))
    return pd.DataFrame({"host": host, "freq_ghz": ghz, "time_s": time})


@pytest.fixture
def folder(tmp_path):
    for host in ("rack1", "rack2"):
        runs(host).to_parquet(tmp_path / f"{host}.parquet")
    return tmp_path


def ask(*arguments):
    return CliRunner().invoke(command, [str(a) for a in arguments], standalone_mode=False)


class TestAnswers:
    def test_projection_in_words(self, folder):
        done = ask("project", folder, "--freq", "3GHz", "--metric", "time")
        assert (done.return_value, done.stderr) == (0, "")
        whole = ppw.read_runs(sorted(folder.iterdir()))
        in_memory = quiet(ppw.project_runs, whole, freq="3GHz", metric="time")
        assert done.stdout.startswith(in_memory.summary().split("\ncaveat")[0])
        assert "From 24 runs in 2 files, condensed to 6 cells by duckdb." in done.stdout

    def test_json_is_read_back(self, folder):
        done = ask("fit", folder, "--format", "json")
        answer = FleetAnswer.from_json(done.stdout)
        assert json.loads(answer.to_json()) == json.loads(done.stdout)
        assert answer.origin.engine == "duckdb"

    def test_parquet_by_the_ending_of_output(self, folder):
        assert ask("validate", folder, "-o", folder / "out.parquet").return_value == 0
        whole = ppw.read_runs([folder / "rack1.parquet", folder / "rack2.parquet"])
        written = pd.read_parquet(folder / "out.parquet")
        in_memory = quiet(ppw.validate, whole).to_frame()
        assert_same(written.astype({"covered": object}), in_memory)

    def test_caveats_that_parquet_has_no_place_for_are_told(self, folder):
        done = ask("project", folder, "--freq", "9GHz", "-o", folder / "out.parquet")
        assert done.return_value == 0
        assert done.stderr.startswith("ppw: caveat: ")
        assert len(pd.read_parquet(folder / "out.parquet")) == 2

    @pytest.mark.parametrize("form", ["html", "csv"])
    def test_other_formats(self, folder, form):
        done = ask("project", folder, "--freq", "3GHz", "--format", form)
        assert done.return_value == 0
        assert "rack2" in done.stdout

    def test_check_names_what_cannot_be_right(self, folder):
        odd = runs("rack3")
        odd.loc[odd["freq_ghz"] == 2.4, "time_s"] *= 3
        odd.to_parquet(folder / "rack3.parquet")
        done = ask("check", folder, "--strict")
        assert done.return_value == 3
        assert "4 of 36 rows are suspect" in done.stdout
        assert "slower at the faster clock" in done.stdout


class TestExitCodes:
    def test_a_fault_is_named_and_the_rest_is_done(self, folder):
        broken = folder / "rack3.parquet"
        broken.write_bytes(b"PAR1")
        done = ask("fit", folder)
        assert done.return_value == 1
        assert "rack2" in done.stdout
        assert done.stderr.startswith(f"ppw: fault: {broken}: broken Parquet")
        assert "1 faults: the answer is of the rest; --keep-going accepts that" in done.stderr
        kept = ask("fit", folder, "--keep-going")
        assert (kept.return_value, kept.stdout) == (0, done.stdout)

    def test_a_fault_comes_before_a_check(self, folder):
        (folder / "rack3.parquet").write_bytes(b"PAR1")
        done = ask("check", folder, "--strict")
        assert done.return_value == 1
        assert "check failed" not in done.stderr

    def test_a_check_asked_for(self, folder):
        done = ask("validate", folder, "--max-error", "0.001")
        assert done.return_value == 3
        assert "ppw: check failed: largest error" in done.stderr


def blocks(page):
    """Fenced blocks of a page, by the language they are in."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    found = {}
    for language, block in re.findall(r"^```(\w+)\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
        found.setdefault(language, []).append(block)
    return found


@pytest.mark.slow
class TestSparkSubmit:
    def test_the_walk_of_the_guide(self, folder):
        """Its job and its first command, word for word but for where the runs are."""
        import pyspark

        written = blocks("fleet.md")
        (job,) = (block for block in written["python"] if block.startswith("# job.py"))
        (walk,) = (block for block in written["sh"] if block.startswith("spark-submit"))
        where = folder / "cluster"
        where.mkdir()
        job = job.replace("hdfs:///runs/*.parquet", f"{folder}/rack*.parquet")
        (where / "job.py").write_text(job, encoding="utf-8")
        done = subprocess.run(
            shlex.split(walk.splitlines()[0], comments=True),
            cwd=where,
            env={
                **os.environ,
                "PATH": f"{Path(pyspark.__file__).parent / 'bin'}{os.pathsep}{os.environ['PATH']}",
                "PYTHONPATH": str(ROOT),
                "PYSPARK_PYTHON": sys.executable,
            },
            capture_output=True,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-2000:]
        assert "From 24 runs in 2 files, condensed to 6 cells by pyspark." in done.stdout
        whole = ppw.read_runs([folder / "rack1.parquet", folder / "rack2.parquet"])
        in_memory = quiet(ppw.project_runs, whole, freq="3GHz", metric="time").to_frame()
        assert_same(pd.read_parquet(where / "projected.parquet"), in_memory)
        # No spark-warehouse, no metastore_db.
        assert sorted(p.name for p in where.iterdir()) == ["job.py", "projected.parquet"]
