"""Answers over a fleet are the answers in memory: parameters, intervals, caveats, to 1e-9."""

from dataclasses import asdict
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from fleet_peers import OTHERS_WARNINGS, ask, assert_same, engine, every_engine
from hypothesis import given, settings, strategies as st
from made_up import quiet

import ppw
from measurements import BadRunsError
from ppw import fleet
from ppw.catalogue.datasets import simulated_sweep
from ppw.errors import PpwError
from ppw.fleet import projections as over_fleet
from ppw.fleet.moments import Layout, layout_of, merge_moments, moments, runs_for
from ppw.fleet.run_files import filled_columns, open_runs, register_table
from ppw.runs.groups import recorded_step

pytestmark = OTHERS_WARNINGS


def both(name, runs, *, over="duckdb", **options):
    """Answer of a question in memory and over an engine, or the errors of both."""
    in_memory = {"fit": ppw.fit, "project": ppw.project, "validate": ppw.validate}

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
        # The files of a fleet may have several headers: it names the column that they all become.
        assert answered == in_memory.replace("(freq_ghz in the file", "(freq_hz in the file")
        return
    assert_same(answered.to_frame(), in_memory.to_frame())
    # Rows that repeat are looked for in memory alone.
    expected = tuple(c for c in in_memory.caveats if "repeat another one" not in c)
    assert (answered.caveats, answered.faults) == (expected, ())


@st.composite
def tables(draw):
    """Runs of a few hosts and workloads: ties, repeats, single runs, missing watts, any order."""
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    steps = np.sort(random.choice(np.arange(8, 40), draw(st.integers(2, 6)), replace=False)) / 10
    rows = []
    for group in range(draw(st.integers(1, 6))):
        fixed, work, watts = random.exponential(1, 3) * (5, 20, 40) + (0, 0.1, 0)
        noise = draw(st.sampled_from([0.0, 1e-3, 0.02, 0.2]))
        measured = draw(st.booleans())
        digits = draw(st.sampled_from([2, 6, 17]))
        for ghz in steps:
            for _ in range(draw(st.sampled_from([0, 1, 1, 2, 5]))):
                scatter = np.exp(noise * random.normal(size=2))
                time = float(f"{(fixed + work / ghz) * scatter[0]:.{digits}g}")
                power = (30 + watts * ghz**2) * scatter[1] if measured else np.nan
                cores = 2.0 ** (group % 3) if group < 4 else np.nan
                host = ("h0", "h1", None)[group % 3]
                rows.append((host, f"w{group // 3}", cores, ghz, time, power))
    columns = ["host", "workload", "cores", "freq_ghz", "time_s", "power_w"]
    table = pd.DataFrame(rows, columns=columns).astype({"time_s": float, "power_w": float})
    table["power_source"] = draw(st.sampled_from(["rapl:package", "meter:wt310", "unknown"]))
    return table.sample(frac=1, random_state=seed % 1000)


CHOICES = {"power_form": ["linear", "cmos"], "via": ["fits", "ratio"]}
CHOICES |= {"form": ["amdahl", "unbounded", "reciprocal"]}
OPTIONS = {name: st.sampled_from(values) for name, values in CHOICES.items()}
OPTIONS = st.fixed_dictionaries({}, optional=OPTIONS)
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


@every_engine
@given(table=tables(), question=QUESTIONS, options=OPTIONS)
@settings(max_examples=settings.default.max_examples // 5)
def test_random_tables_are_answered_as_in_memory(name, table, question, options):
    asked, more = question
    if len(table):
        more = more if asked == "fit" else {**more, "keep_all": True}
        assert_equal(*both(asked, table, over=name, **options, **more))


SWEEPS = ("nornir-repara/tidy.csv", "xu3-cbench/tidy_runs.csv", "freqbench/tidy.csv")


@pytest.fixture(scope="module", params=SWEEPS)
def measured(request, data_dir):
    runs = ppw.read_runs(data_dir / request.param, check=False)
    # Some hosts, and up to two threads: the others take ten times as long and differ in nothing.
    some = (runs["threads"] <= 2) & ~runs["host"].str.contains("sdm|msm89[59]")
    return runs[some & ~(runs["power_w"] <= 0)]


def assert_same_but_places(in_memory, answered):
    """All but how a caveat names the rows that a check leaves out: a file's, or a cell's."""
    assert_same(answered.to_frame(), in_memory.to_frame())
    counts = [[c.split("; the first, ")[0] for c in a.caveats] for a in (answered, in_memory)]
    assert counts[0] == counts[1]
    assert answered.faults == ()


@pytest.mark.thirdparty
@every_engine
class TestMeasuredSweeps:
    """In memory is the oracle, the checks included."""

    def test_projections(self, measured, name):
        assert_same_but_places(
            quiet(ppw.project, measured, freq="3GHz"),
            quiet(over_fleet.project, measured, freq="3GHz", engine=engine(name)),
        )

    @pytest.mark.parametrize("options", [{}, {"interval": "conformal", "keep_all": True}])
    def test_validations(self, measured, name, options):
        assert_same_but_places(
            quiet(ppw.validate, measured, **options),
            quiet(over_fleet.validate, measured, engine=engine(name), **options),
        )

    def test_checks(self, measured, name):
        in_memory = quiet(ppw.check, measured)
        answered = quiet(over_fleet.check, measured, engine=engine(name)).answer
        assert answered.counts == in_memory.counts
        assert (answered.rows, answered.suspects) == (in_memory.rows, in_memory.suspects)


def test_simulated_times_have_their_own_noise():
    """The noise level that a source stands for, with a question that asks for no watts."""
    in_memory, answered = both("project", simulated_sweep(), freq=3.2e9, metric="time")
    assert "lower" in answered.to_frame()
    assert_equal(in_memory, answered)


@pytest.mark.parametrize(
    "options", [{"by": ["rack"]}, {"metric": "speed"}, {"metric": "cpi"}, {"form": "linear"}]
)
def test_what_is_refused_in_memory_is_refused_in_the_same_words(options):
    table = pd.DataFrame({"host": ["a", "a"], "freq_ghz": [1.0, 2.0], "time_s": [2.0, 1.0]})
    errors = []
    for function in (ppw.fit, fleet.fit):
        with pytest.raises((PpwError, ppw.MeasurementError)) as refused:
            quiet(function, table, **options)
        errors.append(str(refused.value))
    assert errors[0] == errors[1]


TABLES = ("points", "cores", "data", "flat")


def made(seed, rows=300):
    """Counted, emulated and estimated instructions, in any order, with values missing."""
    random = np.random.default_rng(seed)

    def choice(*values):
        return random.choice(np.array(values, dtype=object), rows)

    cores = random.choice([1, 2, 4, 8, np.nan], rows)
    size = random.choice([1e6, 4e6, 1.6e7, np.nan], rows, p=[0.3, 0.3, 0.3, 0.1])
    per_byte = 700 - 90 * np.log(np.nan_to_num(cores, nan=3.0))
    known = np.nan_to_num(size, nan=1e6)
    instructions = (per_byte * known + 2e7) * np.exp(random.normal(0, 0.02, rows))
    return pd.DataFrame(
        {
            "host": choice("a", "b"),
            "workload": choice("sort", "wordcount", None),
            "cores": cores,
            "data_bytes": size,
            "freq_ghz": 2.0,
            "cpi": 1.1,
            "command_user_s": random.uniform(1, 2, rows),
            "command_system_s": 0.1,
            "instructions": np.where(random.random(rows) < 0.2, np.nan, instructions),
            "instructions_label": choice("counted", "emulated", None),
            "counted_modes": choice("user", "user and kernel"),
            "time_s": known / 1e6 * np.exp(random.normal(0, 0.01, rows)),
        }
    )


@every_engine
@pytest.mark.parametrize("seed", range(2))
def test_memory_is_the_oracle(name, seed):
    runs = made(seed)
    in_memory = quiet(ppw.path_lengths, runs)
    answer = quiet(fleet.path_lengths, runs, engine=engine(name))
    both_answers = (answer.answer, in_memory)
    for table in TABLES:
        found, known = (getattr(a, table).reset_index(drop=True) for a in both_answers)
        assert len(known)
        pd.testing.assert_frame_equal(found, known, rtol=1e-9, check_dtype=False)
    assert answer.caveats == in_memory.caveats
    assert (answer.origin.runs, answer.faults) == (300, ())


def test_runs_that_cannot_be_are_named(tmp_path):
    good, odd = made(1, 40), made(2, 40)
    odd.loc[:2, "data_bytes"] = -1.0
    good.to_parquet(tmp_path / "a.parquet")
    odd.to_parquet(tmp_path / "b.parquet")
    answer = quiet(fleet.path_lengths, tmp_path)
    (fault,) = answer.faults
    assert fault.file == str(tmp_path / "b.parquet")
    assert fault.what.startswith("data_bytes with impossible values in 3 runs: left out")
    whole = pd.concat([good, odd[3:]], ignore_index=True)
    expected = quiet(ppw.path_lengths, whole).points
    pd.testing.assert_frame_equal(answer.answer.points, expected, rtol=1e-9, check_dtype=False)


def test_runs_without_instructions_and_a_saved_state_which_keeps_none(tmp_path):
    with pytest.raises(PpwError, match="no run has both instructions and data_bytes"):
        fleet.path_lengths(made(1)[["host", "freq_ghz", "time_s"]])
    made(1, 40).drop(columns="cores").to_parquet(tmp_path / "a.parquet")
    fleet.update_state(tmp_path / "s", tmp_path / "a.parquet")
    for source in (tmp_path / "s", [tmp_path / "s"]):
        with pytest.raises(PpwError, match="s: a saved state keeps no instructions"):
            fleet.path_lengths(source)


def test_command(tmp_path):
    made(1).to_parquet(tmp_path / "a.parquet")
    done = ask("pathlength", tmp_path, "--format", "json")
    assert (done.return_value, done.exception) == (0, None)
    read = fleet.FleetAnswer.from_json(done.stdout)
    assert isinstance(read.answer, ppw.PathLengths)


def condensed(name, table, **options):
    runs = open_runs(table, engine=engine(name))
    known = filled_columns(runs)
    layout = layout_of(known, metric="time", **options)
    return runs, layout, moments(runs_for(runs.table, layout, known), layout)


def fetched(runs, table):
    return runs.connection.to_pyarrow(table).to_pandas()


def table_of(times, host="a"):
    return pd.DataFrame({"host": host, "freq_ghz": 2.0, "time_s": times})


@every_engine
def test_a_mean_a_million_times_the_scatter_leaves_nine_digits_and_so_does_merging(name):
    """Plain sums of squares would have no digit left."""
    times = 1e6 + np.random.default_rng(1).normal(0, 1, 5000)
    exact = [Fraction(t) for t in times]
    mean = sum(exact) / len(exact)
    squares = float(sum((t - mean) ** 2 for t in exact))
    naive = (times**2).sum() - times.sum() ** 2 / len(times)
    assert abs(naive / squares - 1) > 1e-9
    runs, layout, cells = condensed(name, table_of(times))
    assert Layout.from_dict(asdict(layout)) == layout
    parts = [condensed(name, table_of(part))[2] for part in np.array_split(times, 7)]
    whole, merged = (fetched(runs, t).iloc[0] for t in (cells, merge_moments(parts, layout)))
    for found in (whole, merged):
        assert found["time__mean"] == pytest.approx(float(mean), rel=1e-14)
        assert (found["time__m2"], found["runs"]) == (pytest.approx(squares, rel=1e-9), 5000)
    for column in ("time__log_m2", "time__inverse_m2"):
        assert merged[column] == pytest.approx(whole[column], rel=1e-9)


def test_steps_that_times_are_recorded_to_are_those_in_memory():
    times = np.array([float(f"{4e3 / 7:.{digits}g}") for digits in range(1, 15)])
    hosts = [f"{digits:02}" for digits in range(1, 15)]
    runs, _, cells = condensed("duckdb", table_of(times, hosts), settings=())
    found = fetched(runs, cells).sort_values("host")["time_s__finest"]
    np.testing.assert_allclose(found, recorded_step(times), rtol=1e-9)


@given(st.lists(st.floats(0.5, 2e3), min_size=1, max_size=40), st.integers(1, 5))
@settings(max_examples=settings.default.max_examples // 5)
def test_any_division_gives_the_moments_of_all(times, parts):
    runs, layout, whole = condensed("duckdb", table_of(times))
    divided = [
        register_table(runs.connection, runs.connection.to_pyarrow(condensed("duckdb", t)[2]))
        for t in (table_of(times[i::parts]) for i in range(parts))
        if len(t)
    ]
    found, known = fetched(runs, merge_moments(divided, layout)), fetched(runs, whole)
    for name in layout.columns:
        if name in layout.keys:
            assert found[name][0] == known[name][0]
            continue
        # Equal times have squares of rounding alone.
        mean = known[name.replace("m2", "mean")][0]
        tolerance = 1e-14 * len(times) * mean**2 if name.endswith("m2") else 0
        assert found[name][0] == pytest.approx(known[name][0], rel=1e-9, abs=tolerance), name
