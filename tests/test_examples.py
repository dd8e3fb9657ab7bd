"""Every example runs, and answers what its own text promises."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = sorted((ROOT / "examples").glob("*.py"))

ANSWERS = {
    "atom_vs_westmere.py": ["15.03 from n·f/CPI", "perf/W ratio 2.51", "price ratio 14.79"],
    "gallery.py": ["knee at 8.695 kB", "batch and scan go together best", "7039 requests"],
    "project_cpi.py": ["limit 6.288", "4.533", "faster than 1/f"],
    "validate_runs.py": ["learnt at 800 MHz, 1.6 GHz, tested at 3 GHz", "worst: "],
}


def run(script: Path, *arguments: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"}
    done = subprocess.run(
        [sys.executable, "-W", "error", str(script), *arguments],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env=environment,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_every_example_has_its_answers_here():
    assert {script.name for script in EXAMPLES} == set(ANSWERS)


@pytest.mark.parametrize("script", EXAMPLES, ids=lambda s: s.name)
def test_example_prints_its_answer(script: Path):
    printed = run(script)
    for answer in ANSWERS[script.name]:
        assert answer in printed


def median_and_worst(printed: str, metric: str, groups: int) -> list[float]:
    """Median and 90th percentile of the errors of a metric, in percent."""
    (row,) = (line.split() for line in printed.splitlines() if line.startswith(f"{metric} "))
    assert row[1] == str(groups)
    return [float(row[2]), float(row[3])]


def test_simulated_runs_are_projected_within_a_few_percent():
    median, worst = median_and_worst(run(ROOT / "examples" / "validate_runs.py"), "time", 3)
    assert median < 3
    assert worst < 8


@pytest.mark.thirdparty
def test_validate_runs_takes_a_table_of_the_users(data_dir: Path):
    table = data_dir / "xu3-cbench" / "tidy_runs.csv"
    printed = run(ROOT / "examples" / "validate_runs.py", str(table), "1.0GHz,1.5GHz", "2.0GHz")
    median, worst = median_and_worst(printed, "cpi", 30)
    assert median < 1
    assert worst < 4


def test_readme_example_is_what_the_command_prints():
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    command = "ppw project examples/simulated_runs.csv --freq 3.6GHz --metric time"
    block = readme.split(f"$ {command}\n")[1].split("```")[0]
    done = subprocess.run(
        [sys.executable, "-m", *command.split()],
        capture_output=True,
        text=True,
        encoding="utf-8",
        env={**os.environ, "PYTHONPATH": str(ROOT), "PYTHONIOENCODING": "utf-8"},
        cwd=ROOT,
        check=True,
    )
    assert done.stdout == block
