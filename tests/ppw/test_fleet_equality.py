"""Answers over a fleet are the answers in memory: parameters, intervals, caveats, to 1e-9."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from fleet_peers import OTHERS_WARNINGS, assert_same, engine, quiet, sockets_closed  # noqa: F401
from hypothesis import given, settings
from hypothesis import strategies as st

import ppw
from measurements import BadRunsError
from ppw import fleet
from ppw.errors import PpwError
from ppw.fleet import answers as over_fleet
from ppw.samples import simulated_sweep

pytestmark = OTHERS_WARNINGS


def both(name, runs, *, over="duckdb", **options):
    """Answer of a question in memory and over an engine, or the errors of both."""
    in_memory = {"fit": ppw.fit_runs, "project": ppw.project_runs, "validate": ppw.validate}

    def answer(function, **more):
        try:
            return quiet(function, runs, **options, **more)
        except PpwError as error:
            return str(error)
        except BadRunsError as error:
            return error

    return answer(in_memory[name]), answer(getattr(over_fleet, name), engine=engine(over))


def assert_equal(in_memory, answered):
    if isinstance(in_memory, BadRunsError):
        # In memory a figure that some runs of a group lack is refused; here it is a fault.
        faults = getattr(answered, "faults", ())
        assert isinstance(answered, str) or any(" is missing in " in f.what for f in faults)
        return
    if isinstance(in_memory, str):
        assert answered == in_memory
        return
    assert_same(answered.to_frame(), in_memory.to_frame())
    # Rows that repeat are looked for in memory alone.
    expected = tuple(c for c in in_memory.caveats if "repeat another one" not in c)
    assert answered.caveats == expected
    assert answered.faults == ()


@st.composite
def tables(draw):
    """Runs of a few hosts and workloads: ties, repeats, single runs, missing watts, any order."""
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    steps = np.sort(random.choice(np.arange(8, 40), draw(st.integers(2, 6)), replace=False)) / 10
    rows = []
    for group in range(draw(st.integers(1, 6))):
        fixed, work, watts = (
            random.exponential(5),
            random.exponential(20) + 0.1,
            random.exponential(40),
        )
        noise = draw(st.sampled_from([0.0, 1e-3, 0.02, 0.2]))
        measured = draw(st.booleans())
        digits = draw(st.sampled_from([2, 6, 17]))
        for ghz in steps:
            for _ in range(draw(st.sampled_from([0, 1, 1, 2, 5]))):
                scatter = np.exp(noise * random.normal(size=2))
                time = float(f"{(fixed + work / ghz) * scatter[0]:.{digits}g}")
                power = (30 + watts * ghz**2) * scatter[1] if measured else np.nan
                cores = 2.0 ** (group % 3) if group < 4 else np.nan
                rows.append((f"h{group % 2}", f"w{group // 3}", cores, ghz, time, power))
    columns = ["host", "workload", "cores", "freq_ghz", "time_s", "power_w"]
    table = pd.DataFrame(rows, columns=columns).astype({"time_s": float, "power_w": float})
    table["power_source"] = draw(st.sampled_from(["rapl:package", "meter:wt310", "unknown"]))
    return table.sample(frac=1, random_state=seed % 1000)


OPTIONS = st.fixed_dictionaries(
    {},
    optional={
        "form": st.sampled_from(["amdahl", "unbounded", "reciprocal"]),
        "power_form": st.sampled_from(["linear", "cmos"]),
        "via": st.sampled_from(["fits", "ratio"]),
    },
)
QUESTIONS = st.sampled_from(
    [
        ("fit", {}),
        ("project", {"freq": "3.1GHz"}),
        ("project", {"freq": ["0.9GHz", "2.5GHz"], "interval": "t"}),
        ("project", {"freq": "3.1GHz", "pool": False}),
        ("validate", {}),
        ("validate", {"scheme": "frequency", "interval": "t"}),
        ("validate", {"scheme": "host"}),
    ]
)


def _hold(table, question, options, over="duckdb"):
    name, more = question
    if not len(table):
        return
    more = more if name == "fit" else {**more, "keep_all": True}
    assert_equal(*both(name, table, over=over, **options, **more))


class TestRandomTables:
    """In memory is the oracle."""

    @given(tables(), QUESTIONS, OPTIONS)
    @settings(max_examples=10)
    def test_duckdb_answers_as_memory_does(self, table, question, options):
        _hold(table, question, options)

    @pytest.mark.slow
    @given(tables(), QUESTIONS, OPTIONS)
    @settings(max_examples=200)
    def test_in_two_hundred_cases(self, table, question, options):
        _hold(table, question, options)

    @pytest.mark.slow
    @given(tables(), QUESTIONS, OPTIONS)
    @settings(max_examples=24)
    def test_spark_answers_as_memory_does(self, table, question, options):
        _hold(table, question, options, over="spark")


SWEEPS = ("nornir-repara/tidy.csv", "xu3-cbench/tidy_runs.csv", "freqbench/tidy.csv")


@pytest.fixture(params=SWEEPS)
def measured(request, data_dir):
    runs = ppw.read_runs(data_dir / request.param, check=False)
    return runs[~(runs["power_w"] <= 0)] if "power_w" in runs else runs


def assert_same_but_places(in_memory, answered):
    """All but how a caveat names the rows that a check leaves out: a file's, or a cell's."""
    assert_same(answered.to_frame(), in_memory.to_frame())
    counts = [[c.split(", such as")[0] for c in a.caveats] for a in (answered, in_memory)]
    assert counts[0] == counts[1]
    assert answered.faults == ()


@pytest.mark.thirdparty
@pytest.mark.parametrize("name", ["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
class TestMeasuredSweeps:
    """In memory is the oracle, the checks included."""

    def test_fits(self, measured, name):
        assert_same_but_places(
            quiet(ppw.fit_runs, measured), quiet(over_fleet.fit, measured, engine=engine(name))
        )

    @pytest.mark.parametrize("options", [{}, {"interval": "t"}, {"keep_all": True}])
    def test_projections(self, measured, name, options):
        asked = {"freq": "3GHz", **options}
        assert_same_but_places(
            quiet(ppw.project_runs, measured, **asked),
            quiet(over_fleet.project, measured, engine=engine(name), **asked),
        )

    @pytest.mark.parametrize("options", [{}, {"interval": "conformal", "keep_all": True}])
    def test_validations(self, measured, name, options):
        assert_same_but_places(
            quiet(ppw.validate, measured, **options),
            quiet(over_fleet.validate, measured, engine=engine(name), **options),
        )

    def test_checks(self, measured, name):
        in_memory = quiet(ppw.check_quality, measured)
        answered = quiet(over_fleet.check, measured, engine=engine(name)).answer
        assert answered.counts == in_memory.counts
        assert (answered.rows, answered.suspects) == (in_memory.rows, in_memory.suspects)


class TestSpark:
    """The same expressions on Spark; one session for all."""

    def test_hard_tables(self):
        random = np.random.default_rng(5)
        table = pd.DataFrame(
            {
                "host": random.choice(["a", "b", None], 400),
                "cores": random.choice([1.0, 2.0, np.nan], 400),
                "freq_mhz": random.choice([1200, 1800, 2400], 400),
                "power_w": random.choice([40.0, 41.5, 50.25], 400),
            }
        )
        table["time_ms"] = np.round(2e4 / table["freq_mhz"] + random.normal(0, 0.2, 400), 1)
        for question, options in (("fit", {}), ("validate", {"scheme": "frequency"})):
            in_memory, answered = both(question, table, over="spark", **options)
            assert_same(answered.to_frame(), in_memory.to_frame())
            assert answered.faults == ()


def test_simulated_times_have_their_own_noise():
    """The noise level that a source stands for, with a question that asks for no watts."""
    in_memory, answered = both("project", simulated_sweep(), freq=3.2e9, metric="time")
    assert "lower" in answered.to_frame()
    assert_equal(in_memory, answered)


class TestOptions:
    """What is refused in memory is refused over a fleet, in the same words."""

    @pytest.mark.parametrize(
        "options", [{"by": ["rack"]}, {"metric": "speed"}, {"metric": "cpi"}, {"form": "linear"}]
    )
    def test_errors(self, options):
        table = pd.DataFrame({"host": ["a", "a"], "freq_ghz": [1.0, 2.0], "time_s": [2.0, 1.0]})
        errors = []
        for function in (ppw.fit_runs, fleet.fit):
            with pytest.raises((PpwError, ppw.MeasurementError)) as refused:
                quiet(function, table, **options)
            errors.append(str(refused.value))
        assert errors[0] == errors[1]
