"""Every example runs, and answers what its own text promises."""

import runpy
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
ANSWERS = {
    "atom_vs_westmere.py": ["15.03 from n·f/CPI", "perf/W ratio 2.51", "price ratio 14.79"],
    "gallery.py": ["knee at 8.695 kB", "batch and scan go together best", "7039 requests"],
    "project_cpi.py": ["limit 6.288", "4.533", "faster than 1/f"],
    "validate_runs.py": ["learnt at 800 MHz, 1.6 GHz, tested at 3 GHz", "worst: "],
}


@pytest.fixture
def run(monkeypatch, capsys):
    def run(script, *arguments):
        monkeypatch.setattr(sys, "argv", [script, *map(str, arguments)])
        runpy.run_path(str(EXAMPLES / script), run_name="__main__")
        printed, said = capsys.readouterr()
        assert said == ""
        return printed

    return run


def errors(printed, metric, groups):
    """Median and 90th percentile of the errors of a metric, in percent."""
    (row,) = (line.split() for line in printed.splitlines() if line.startswith(f"{metric} "))
    assert row[1] == str(groups)
    return float(row[2]), float(row[3])


@pytest.mark.parametrize("script", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_example_prints_its_answer(script, run):
    printed = run(script)
    for answer in ANSWERS[script]:
        assert answer in printed
    if script == "validate_runs.py":
        median, worst = errors(printed, "time", 3)
        assert median < 3
        assert worst < 8


@pytest.mark.thirdparty
def test_validate_runs_takes_a_table_of_the_users(data_dir, run):
    table = data_dir / "xu3-cbench" / "tidy_runs.csv"
    median, worst = errors(run("validate_runs.py", table, "1.0GHz,1.5GHz", "2.0GHz"), "cpi", 30)
    assert median < 1
    assert worst < 4
