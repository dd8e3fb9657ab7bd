"""Knees of sweeps from runs tables: known curves, failures, watts, and the command."""

import re

import numpy as np
import pandas as pd
import pytest
from golden_runs import golden
from made_up import answered, only
from processes import ppw_inside, refused, worked

from measurements import MeasurementError
from ppw.errors import PpwError
from ppw.pressure.find_knees import find_knees

THREADS = (1, 2, 3, 4, 6, 8, 12, 16)


def sweep(rate, *, over="threads", levels=THREADS, repeats=3, noise=0.01, seed=1, **columns):
    """Runs of a service with a rate at each level."""
    rng = np.random.default_rng(seed)
    x = np.repeat(np.array(levels, dtype=float), repeats)
    measured = rate(x) * rng.normal(1, noise, len(x))
    return pd.DataFrame({over: x, "throughput_ops_s": measured, "host": "lab", **columns})


def ceiling(x):
    """25,000 a second for each thread, up to 6 threads."""
    return np.minimum(25_000 * x, 150_000.0)


def found(runs, over="threads", of="throughput", **options):
    result = answered(find_knees, runs, over=over, of=of, **options)
    return result, result.knees.iloc[0]


def failing(runs, x, over="threads"):
    failed = {over: float(x), "throughput_ops_s": np.nan, "failure": "out of memory"}
    return pd.concat([runs, runs.head(1).assign(**failed)], ignore_index=True)


def test_threads_up_to_a_ceiling():
    result, row = found(sweep(ceiling))
    assert row["finding"] == "knee"
    assert row["lower"] < 6 < row["upper"]
    assert row["knee"] == pytest.approx(6.0, rel=0.05)
    assert row["slope_before"] == pytest.approx(1.0, abs=0.03)
    assert row["slope_after"] == pytest.approx(0.0, abs=0.05)
    assert (row["linear_from"], row["linear_to"]) == (1.0, row["knee"])
    assert (row["recommended"], row["next_step"]) == (6.0, 8.0)
    assert row["next_value_change"] == pytest.approx(0.0, abs=0.02)
    assert "run at 6" in result.summary()
    assert "performance per watt not measured" in result.summary()
    again, _ = found(sweep(ceiling).sample(frac=1, random_state=4))
    pd.testing.assert_frame_equal(again.knees, result.knees)


def test_watts_tell_what_the_next_step_costs():
    _, row = found(sweep(ceiling).assign(power_w=lambda t: 60 + 10 * t["threads"]))
    assert (row["recommended"], row["next_power_change"]) == (6, pytest.approx(140 / 120 - 1))
    assert row["next_per_watt_change"] == pytest.approx(120 / 140 - 1, abs=0.02)
    assert (row["most_per_watt_at"], row["per_watt"]) == (6, pytest.approx(150_000 / 120, rel=0.02))


def test_object_size_whose_throughput_falls():
    sizes = tuple(64 * 4**k for k in range(8))
    runs = sweep(lambda x: np.minimum(80_000, 1.2e9 / x), over="data_bytes", levels=sizes)
    _, row = found(runs, over="object-size")
    assert row["knee"] == pytest.approx(15_000, rel=0.1)
    assert row["slope_after"] == pytest.approx(-1, abs=0.03)
    assert (row["recommended"], row["next_step"]) == (4096, 16_384)
    assert row["next_value_change"] == pytest.approx(1.2e9 / 16_384 / 80_000 - 1, abs=0.02)


def test_latency_that_climbs():
    runs = sweep(ceiling, noise=0).assign(
        latency_p99_s=lambda t: 1e-3 * np.maximum(1.0, (t["threads"] / 5) ** 1.5)
    )
    result, row = found(runs, of="latency")
    assert not result.higher_is_better
    assert (row["knee"], row["recommended"]) == (pytest.approx(5, rel=0.02), 4)
    assert row["next_value_change"] == pytest.approx(1.2**1.5 - 1)
    assert row["next_performance_change"] == pytest.approx(0.5)
    # One that climbs less after its bend has no limit there.
    less = runs.assign(latency_p99_s=lambda t: (t["threads"] / 5) ** 0.8)
    less.loc[less["threads"] < 5, "latency_p99_s"] = (less["threads"] / 5) ** 1.5
    result, row = found(less, of="latency")
    assert row["finding"] == "no knee"
    assert only(result.caveats, "1 sweeps improve further after their bend")


def test_input_size_by_time_is_data_a_second():
    data = np.tile([1, 2, 4, 8, 16, 32], 2) * 64e6
    rate = np.minimum(data / 64, 8e6) * np.random.default_rng(3).normal(1, 0.005, 12)
    runs = pd.DataFrame({"data_bytes": data, "time_s": data / rate, "host": "lab"})
    result, row = found(runs, over="data-size")
    assert result.of_unit == "B/s"
    assert row["knee"] == pytest.approx(512e6, rel=0.03)
    assert (result.value(8e6), result.value(np.nan)) == ("8 MB/s", "–")
    # A throughput that was measured is not made of time.
    _, row = found(runs.assign(throughput_ops_s=data), over="data-size")
    assert row["recommended_value"] == 32 * 64e6


def rising_faster(x):
    return 1000 * np.maximum(x**0.2, 4**0.2 * (x / 4))


@pytest.mark.cases(
    "rate, levels, finding, recommended, said",
    (lambda x: 1000 * x, THREADS, "no knee", 16, "no higher level was measured"),
    (lambda x: 1000 + 0 * x, THREADS, "no knee", 1, "run at 1"),
    (rising_faster, THREADS, "no knee", 16, "faster after their bend"),
    (ceiling, (1, 4, 8), "too few levels", 8, "a knee needs 4"),
    (lambda x: 1000 * x / (1 + 0.1 * (x - 1)), THREADS, "knee", 4, "bend gradually"),
)
def test_curves_without_a_clear_knee(rate, levels, finding, recommended, said):
    result, row = found(sweep(rate, levels=levels, noise=0.002))
    assert (row["finding"], row["recommended"]) == (finding, recommended)
    assert np.isnan(row["knee"]) == (finding != "knee")
    assert said in result.summary()


def test_four_levels_without_repeats_tell_no_knee():
    _, row = found(sweep(ceiling, levels=(2, 4, 8, 16), repeats=1))
    assert (row["finding"], row["recommended"]) == ("no knee", 8)


def test_what_failed_bounds_the_knee():
    runs = failing(failing(sweep(ceiling, levels=(1, 2, 3, 4, 5)), 8), 16)
    result, row = found(runs)
    assert row["failed_above"] == 8
    assert (row["lower"], row["upper"]) == (5, 8)
    assert (row["recommended"], row["next_step"]) == (5, 8)
    assert row["next_failure"] == "out of memory"
    assert "the next step, 8, fails: out of memory" in result.summary()
    assert list(result.levels.loc[result.levels["failed"] > 0, "x"]) == [8, 16]
    # A level that failed once is not recommended.
    _, row = found(failing(sweep(lambda x: 1000 * x), 12))
    assert (row["recommended"], row["next_step"]) == (8, 12)
    # The interval of a knee ends where runs fail.
    _, row = found(failing(sweep(ceiling, levels=(1, 2, 4, 5, 7, 8), noise=0.08), 9))
    assert row["finding"] == "knee"
    assert row["upper"] <= 9


def test_too_little_memory_a_task_fails_from_below():
    memory = (512e6, 1e9, 2e9, 4e9, 8e9)
    runs = sweep(lambda x: 100 + 0 * x, over="task_memory_bytes", levels=memory[1:], noise=0.01)
    _, row = found(failing(runs, memory[0], over="task_memory_bytes"), over="task_memory_bytes")
    assert (row["failed_below"], row["recommended"]) == (512e6, 1e9)


def test_a_run_without_a_result_failed():
    runs = sweep(ceiling)
    runs.loc[len(runs)] = {"threads": 32.0, "throughput_ops_s": np.nan, "host": "lab"}
    _, row = found(runs)
    assert row["failed_above"] == 32
    # Not measured is not failed.
    timed = runs.assign(time_s=1.0)
    assert np.isnan(found(timed)[1]["failed_above"])


def test_sweeps_are_told_apart_by_their_set_up():
    second = sweep(lambda x: 2 * ceiling(x), partitions=2, seed=2)
    runs = pd.concat([sweep(ceiling, partitions=1), second])
    # A column that goes with the setting is no key.
    runs["cores"] = runs["threads"]
    result = answered(find_knees, runs, over="threads", of="throughput")
    assert list(result.knees["sweep"]) == ["partitions 1", "partitions 2"]
    assert result.knees["recommended"].tolist() == [6, 6]


def test_runs_held_at_a_rate_take_no_part():
    runs = sweep(ceiling).assign(load=np.nan)
    held = runs.assign(throughput_ops_s=1000.0, load=0.5)
    result, row = found(pd.concat([runs, held]))
    assert row["knee"] == pytest.approx(6, rel=0.05)
    assert only(result.caveats, "less than full load")
    assert only(found(runs.assign(client_limited=True))[0].caveats, "clients")


@pytest.mark.cases(
    "options, said",
    *(({"over": "thread"}, "did you mean"), ({"of": "speed"}, "no column speed")),
    *(({"level": 1.5}, "level"), ({"scale": "cubic"}, "scale"), ({"goal": "most"}, "goal")),
)
def test_what_cannot_be_asked_is_refused(options, said):
    with pytest.raises(PpwError, match=said):
        find_knees(sweep(ceiling), **{"over": "threads", "of": "throughput", **options})
    with pytest.raises(MeasurementError, match="throughput_ops_s"):
        find_knees(sweep(lambda x: -x), over="threads", of="throughput")


def test_a_figure_has_lines_and_choice_where_there_are_any():
    straight = sweep(lambda x: 1000 * x, seed=2).assign(host="straight")
    failed = failing(sweep(ceiling, levels=(1,), repeats=1), 1).tail(1).assign(host="failed")
    runs = pd.concat([sweep(ceiling), straight, failed])
    result = answered(find_knees, runs, over="threads", of="throughput", by=["host"])
    assert result.knees["finding"].tolist() == ["failed", "knee", "no knee"]
    assert "no level of threads worked: out of memory" in result.summary()
    axes = result.plot()
    # Two sweeps were measured and have a best level; one of them has a knee, with its band.
    lines = [line for line in axes.lines if line.get_marker() == "None"]
    chosen = [line for line in axes.lines if line.get_markersize() == 11]
    assert (len(lines), len(chosen), len(axes.patches)) == (1, 2, 1)


def test_a_knee_at_the_highest_level_has_no_upper_end():
    result, row = found(sweep(lambda x: 1000 * np.minimum(x, 13), noise=0.03))
    assert (row["finding"], row["upper"]) == ("knee", np.inf)
    assert only(result.caveats, "1 knees have no upper end: measure higher levels")
    assert not result.plot().patches


def test_linear_scale_plots_and_says_slopes():
    result, row = found(sweep(ceiling), scale="linear")
    assert row["slope_before"] == pytest.approx(25_000, rel=0.03)
    assert "a step before it" in result.summary()
    assert result.plot().get_xscale() == "linear"


RISING = 2 ** np.arange(8.0)
LOWER = """P99 latency (ms), Mean latency ms, p99_ms, response_time_ms, watts, cost, energy_j,
waiting requests, cpi, LLC-load-misses, meanLatencyMs, time_per_op, svc [ms], user_s, error rate,
energy per request, idle_power_w, 99th percentile, Total Cost (EUR), cycles_per_instruction"""
HIGHER = """requests_per_second, work per joule, perf_per_watt, power_efficiency, bytes_s, IOPS,
p99 throughput, ops_s, responses/s, hit rate"""


@pytest.mark.parametrize(("names", "higher"), [(LOWER, False), (HIGHER, True)])
def test_a_name_says_which_way_is_better(names, higher):
    for name in re.split(r",\s", names):
        result, row = found(pd.DataFrame({"threads": RISING, name: RISING}), of=name)
        assert result.higher_is_better is higher, name
        # Of values that rise, the last is best, or the first.
        assert row["recommended"] == (128 if higher else 1)
        assert not [c for c in result.caveats if "which way" in c]


def test_a_name_that_does_not_say_is_taken_as_higher_and_that_is_said():
    runs = pd.DataFrame({"threads": RISING, "zeal": RISING})
    result, _ = found(runs, of="zeal")
    assert result.higher_is_better
    unknown = only(result.caveats, "the name zeal does")
    assert "ppw takes higher; change it with --goal lower" in unknown
    result, row = found(runs, of="zeal", goal="lower")
    assert (row["recommended"], result.higher_is_better) == (1, False)
    assert not [c for c in result.caveats if "which way" in c]


@pytest.mark.cases(
    "header, over",
    ("Connections", "connections"),
    ("my-setting", "my-setting"),
    ("my_setting", "My-Setting"),
    ("freq_ghz", "freq"),
    ("freq_ghz", "freq_ghz"),
    ("Clock (MHz)", "clock (mhz)"),
)
def test_a_setting_is_found_by_any_name_of_its_column(tmp_path, header, over):
    levels = np.repeat(np.arange(1, 7) / 2 * (1000 if "MHz" in header else 1), 2)
    runs = pd.DataFrame({header: levels, "ops_s": levels, "host": "lab"})
    runs.to_csv(tmp_path / "runs.csv", index=False)
    done = worked(ppw_inside("knee", "runs.csv", "--over", over, "--of", "OPS_S", cwd=tmp_path))
    assert done.stdout == found(runs, over=over, of="OPS_S")[0].summary() + "\n"


def test_the_case_of_a_column_counts_where_there_are_several():
    runs = sweep(ceiling).assign(Zeal=1.0, zeal=lambda t: t["threads"])
    for name in ("Zeal", "zeal"):
        assert found(runs, of=name)[0].of == name
    with pytest.raises(PpwError, match="no column ZEAL"):
        find_knees(runs, over="threads", of="ZEAL")


@pytest.mark.parametrize(("of", "column"), [("power", "power_w"), ("energy", "energy_j")])
def test_measures_go_by_the_names_of_metrics(of, column):
    runs = sweep(ceiling).assign(**{column: lambda t: 9 * t["threads"]})
    result, row = found(runs, of=of)
    assert (result.of, result.higher_is_better, row["recommended"]) == (column, False, 1)


def test_golden(tmp_path):
    # Four digits, so that the text does not depend on the last bit.
    runs = failing(sweep(ceiling).assign(power_w=lambda t: 60 + 10 * t["threads"]), 32)
    runs.round({"throughput_ops_s": 0}).to_csv(tmp_path / "runs.csv", index=False)
    golden("knee runs.csv --over threads", tmp_path, told="ppw: 1 of 25 runs incomplete\n")
    refused(ppw_inside("knee", "runs.csv", cwd=tmp_path), "--over", code=2)
