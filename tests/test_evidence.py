"""Tables of accuracy and speed: statistics by hand, and what is committed against the data."""

import ast
import importlib
import math
import re
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

ROOT = Path(__file__).resolve().parents[1]
BENCHMARKS = ROOT / "benchmarks"
GENERATED = ROOT / "docs" / "generated"


@pytest.fixture(scope="module")
def benchmark():
    """Import a module of the benchmarks, which run as scripts from their folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(BENCHMARKS)
        yield importlib.import_module


@pytest.fixture(scope="module")
def outcomes(benchmark):
    return benchmark("outcomes")


def outcome(module, **changed):
    """Four cases of two programs: 100 measured each, intervals from 90 to 110 and one miss."""
    cases = pd.DataFrame(
        {
            "name": list("abcd"),
            "cluster": ["x", "x", "y", "z"],
            "projected": [101.0, 98.0, 104.0, 112.0],
            "measured": 100.0,
            "lower": [90.0, 90.0, 90.0, 102.0],
            "upper": [110.0, 110.0, 110.0, 122.0],
        }
    )
    naive = np.array([110.0, 110.0, 130.0, 90.0])
    fields = {"line": np.array([100.0, 100.0, 100.0, 120.0]), "naive": naive} | changed
    return module.Outcome("made", "time: a → b", module.UNSEEN, cases, **fields)


class TestStatistics:
    @pytest.fixture
    def row(self, outcomes):
        """Line of the table of an outcome, by column."""
        return lambda made: dict(zip(outcomes.HEADER, outcomes.row_of(made), strict=True))

    def test_of_a_line_of_the_table_by_hand(self, outcomes, row):
        found = row(outcome(outcomes))
        # Errors of 1, 2, 4 and 12 %: the 90th percentile is 0.7 of the way from 4 to 12.
        assert (found["median"], found["p90"], found["mean"]) == ("3.00", "9.60", "4.75")
        # Three intervals are 20 wide; the fourth too, and misses by 2, which counts twentyfold.
        assert found["score"] == "30.0"
        # 90 to 110 for three, 108 to 132 for the fourth: (3·20 + 24 + 20·8)/4.
        assert (found["line"], found["line ±10 %"]) == ("0.00 / 14.00, nearer", "61.0")
        assert found["naive"] == "10.00 / 24.00"
        assert found["covered"].startswith("75% (")
        assert (found["score / t"], found["priors"]) == ("–", "unseen")

    def test_beside_a_textbook_over_the_cases_that_have_both(self, outcomes, row):
        lower = np.array([80.0, 80.0, np.nan, np.nan])
        assert row(outcome(outcomes, textbook=(lower, 120 + 0 * lower)))["score / t"] == "0.50"

    def test_no_finite_score_no_interval_and_no_answer_are_said(self, outcomes, row):
        made = outcome(outcomes, line=np.full(4, np.nan))
        made.cases.loc[0, "upper"] = np.inf
        assert row(made)["score"] == "∞"
        made.cases[["lower", "upper"]] = np.nan
        found = [row(made)[name] for name in ("covered", "score", "line")]
        assert found == ["no interval", "–", "no answer"]


def numbers(text):
    """Its numbers, and the text without them."""
    return [float(x) for x in re.findall(r"\d+\.?\d*", text)], re.sub(r"\d+\.?\d*", "#", text)


def assert_same_table(made, committed):
    """The same but for the last digit, which other processors may round the other way."""
    assert len(made) == len(committed)
    for ours, theirs in zip(made, committed, strict=True):
        assert numbers(ours)[1] == numbers(theirs)[1]
        assert numbers(ours)[0] == pytest.approx(numbers(theirs)[0], rel=0.01, abs=0.011)


def committed_lines():
    return (GENERATED / "accuracy.md").read_text(encoding="utf-8").splitlines()


@pytest.mark.thirdparty
@pytest.mark.filterwarnings("ignore::ppw.CaveatWarning")
class TestAccuracy:
    def test_a_part_of_the_committed_table_comes_out_again(self, benchmark, outcomes, data_dir):
        table, clocks = benchmark("accuracy"), benchmark("accuracy_clocks")
        sets = clocks.read_sets(data_dir)
        found = [clocks.outcome_of(s, sets) for s in clocks.SPLITS if s.data == "xu3"]
        found += benchmark("accuracy_data_size").outcomes(data_dir)
        found += benchmark("accuracy_power_load").outcomes(data_dir)
        made = table.markdown_table(outcomes.HEADER, [outcomes.row_of(o) for o in found])
        kept = [x for x in committed_lines() if re.match(r"\| (xu3|SPECpower|c3o) ", x)]
        kept = [x for x in kept if "12 machines" not in x.replace("\N{NO-BREAK SPACE}", " ")]
        assert_same_table(made.splitlines()[2:], kept[: len(found)])

    @pytest.mark.slow
    def test_all_of_it_comes_out_again(self, benchmark, data_dir):
        table = benchmark("accuracy")
        outcomes = table.all_outcomes(data_dir)
        cases = benchmark("accuracy_worst").worst_cases(outcomes, data_dir)
        assert_same_table(table.markdown(outcomes, cases).splitlines(), committed_lines())
        drawn = {path.stem for path in GENERATED.glob("worst_*.svg")}
        assert drawn == {f"worst_{case.stem}" for case in cases}
        for case in cases:
            assert case.case["name"] in benchmark("accuracy_worst").draw_one(case)

    def test_its_command_says_what_is_missing(self, benchmark, monkeypatch, capsys, tmp_path):
        monkeypatch.setattr(sys, "argv", ["accuracy.py", "--data", str(tmp_path / "none")])
        assert benchmark("accuracy").main() == 1
        assert "give --data or set PPW_DATA_DIR" in capsys.readouterr().err


class TestFigures:
    def test_of_rates_and_costs_by_hand(self, benchmark):
        figures = benchmark("figures")
        peer = {"peer": "it", "peer_seconds": [4.0] * 3}
        made = figures.rate("read", "lines/s", 100, [1.0, 2.0, 4.0], **peer)
        assert made == ("read", 50.0, 25.0, 100.0, "lines/s", "it", 2.0, 1.0, 4.0)
        fewer = figures.rate("read", "1/s", 100, [4.0] * 3, **peer, peer_amount=10)
        assert fewer.ratio == 10
        cost = figures.cost("memory", "MB", [10, 30, 20], peer="it", peers=[5, 15, 10])
        assert (cost.value, cost.low, cost.high, cost.ratio) == (20, 10, 30, 0.5)
        assert math.isnan(figures.cost("alone", "s", [1.0]).ratio)

    def test_works_take_turns_after_one_that_does_not_count(self, benchmark):
        done, clock = [], iter(range(100))
        works = [lambda: done.append("a"), lambda: done.append("b")]
        seconds = benchmark("figures").in_turns(2, *works, clock=lambda: next(clock))
        assert (done, seconds) == (["a", "b"] * 3, [[1, 1], [1, 1]])

    def test_every_benchmark_has_them_and_is_in_the_committed_table(self, benchmark):
        speed = benchmark("speed")
        text = (GENERATED / "speed.md").read_text(encoding="utf-8")
        assert set(speed.names()) == {path.stem for path in BENCHMARKS.glob("bench_*.py")}
        for name in speed.names():
            tree = ast.parse((BENCHMARKS / f"{name}.py").read_text(encoding="utf-8"))
            (found,) = (n for n in tree.body if getattr(n, "name", "") == "figures")
            assert [a.arg for a in found.args.args] == ["scale"]
            assert len(found.args.defaults) == 1
            said = ast.get_docstring(tree).splitlines()[0]
            assert f"## {speed.title_of(speed.Measured(name, said, []))}\n" in text
        assert "Not measured" not in text

    def test_a_table_by_hand(self, benchmark):
        speed, figures = benchmark("speed"), benchmark("figures")
        one = figures.Figure("read", 1234.5, 1200, 1300, "lines/s", "it", 2.345, 2, 3)
        found = speed.row_of(one)
        assert found == ["read", "1,234", "1,200 … 1,300", "lines/s", "it", "2.35", "2 … 3"]
        text = speed.markdown([speed.Measured("bench_x", "Speed of x, beside y.", [one])])
        assert "\n## Speed of x\n\n| what |" in text
        missing = speed.Measured("bench_x", "", [], "no root")
        assert "Not measured: no root" in speed.markdown([missing])
