"""Every reader, and the command line, with inputs that coverage guides."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest
from targets import SCRATCH, TARGETS

FUZZER = Path(__file__).parent / "run.py"
# PPW_FUZZ_INPUTS=200000 looks longer, or not as long.
MANY = int(os.environ.get("PPW_FUZZ_INPUTS", "1000000"))


@pytest.fixture(scope="module")
def fuzz():
    """Fuzz a target in a process that has all modules already; what it printed, where it failed."""
    # What fuzzes ends without a chance to tidy up.
    scratch = tempfile.TemporaryDirectory(prefix="ppw-fuzz-", dir=SCRATCH)
    with (
        scratch,
        subprocess.Popen(
            [sys.executable, FUZZER, "--serve"],
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


@pytest.mark.parametrize("name", TARGETS)
def test_only_results_and_errors_of_one_line(name, fuzz, tmp_path):
    fuzz(name, TARGETS[name].often, tmp_path)


@pytest.mark.slow
@pytest.mark.timeout(6 * 3600)
@pytest.mark.parametrize("name", TARGETS)
def test_a_million_inputs(name, fuzz, tmp_path):
    fuzz(name, MANY, tmp_path)
