"""Every reader, and the command line: inputs come to a result or an error of one line.

Inputs that once did not are kept in ``findings/TARGET``.
"""

import json
import os
import subprocess
import sys
import tempfile
import warnings
from pathlib import Path

import numpy as np
import pytest
from hypothesis import settings
from scipy import stats
from targets import SCRATCH, TARGETS, be_strict

from fitting.regression.lines import student_quantile

FOLDER = Path(__file__).parent
FINDINGS = sorted(FOLDER.glob("findings/*/*"))
# PPW_FUZZ_INPUTS=200000 looks longer, or not as long.
MANY = int(os.environ.get("PPW_FUZZ_INPUTS", "1000000"))


@pytest.fixture
def strict():
    with warnings.catch_warnings():
        be_strict()
        yield


@pytest.mark.parametrize("path", FINDINGS, ids=lambda p: f"{p.parent.name}/{p.name}")
def test_what_was_found_once(path, strict):
    TARGETS[path.parent.name].judge(path.read_bytes())


def test_there_are_findings():
    assert FINDINGS


def test_a_count_of_runs_costs_no_memory():
    # A saved calibration of half a kilobyte once took gigabytes.
    many = np.array([3, 2**40])
    expected = stats.t.ppf(0.95, many)
    np.testing.assert_allclose(student_quantile(many, 0.9), expected, rtol=1e-12)


@pytest.mark.parametrize("name", TARGETS)
def test_seeds_and_what_a_few_mutations_make_of_them(name, strict):
    target = TARGETS[name]
    assert target.judge(target.seeds()[0]) is None
    # Fewer where a reader is slow.
    count = settings.default.max_examples * min(400, target.often) // 400
    for data in target.mutants(max(1, count)):
        target.judge(data)


@pytest.fixture(scope="module")
def fuzz():
    """Fuzz a target in a process that has all modules already; what it printed, where it failed."""
    # What fuzzes ends without a chance to tidy up.
    scratch = tempfile.TemporaryDirectory(prefix="ppw-fuzz-", dir=SCRATCH)
    with (
        scratch,
        subprocess.Popen(
            [sys.executable, FOLDER / "run.py", "--serve"],
            env={**os.environ, "TMPDIR": scratch.name},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        ) as process,
    ):

        def fuzz(name, runs, folder):
            log = folder / "log"
            order = [name, str(log), f"-runs={runs}", f"-findings={folder}"]
            print(json.dumps(order), file=process.stdin, flush=True)
            code, _ = json.loads(process.stdout.readline())
            lines = log.read_text(errors="replace").splitlines()
            assert code == 0, "\n".join([f"{name} ended with {code}", *lines[-30:]])
            assert f"stat::number_of_executed_units: {runs}" in lines

        yield fuzz
        process.stdin.close()


@pytest.mark.peer("fuzz")
@pytest.mark.parametrize("name", TARGETS)
def test_inputs_that_coverage_guides(name, fuzz, tmp_path):
    fuzz(name, TARGETS[name].often, tmp_path)


@pytest.mark.slow
@pytest.mark.peer("fuzz")
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_inputs(name, fuzz, tmp_path):
    fuzz(name, MANY, tmp_path)
