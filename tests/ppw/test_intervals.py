"""Intervals of `project`, `project_runs` and `validate`: what must hold for any prior.

No digit of a posterior is asserted: widths are compared, symmetries and consistencies asked for,
and coverage is counted in worlds that are made by the laws.
"""

from functools import cache

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given, strategies as st
from made_up import GHZ, answered, few_examples, ignore_caveats, only, sweep

import ppw
from fitting import LogPathLength
from measurements import MeasurementError
from ppw.errors import CaveatWarning, PpwError
from ppw.projection.runs import WIDTH_FROM

METER = {"power_source": "meter:wall"}
ENDS = ["projected", "lower", "upper"]
CELL = ["host", "workload", "cores", "metric", "freq_hz"]
# Quantiles are found to 1e-4 of a standard deviation, so a rounding may move them by as much.
OF_WIDTH = 1e-3


def project(points, **options):
    return answered(ppw.project_points, points, **{"freq": 3.0e9, **options})


def project_runs(runs, **options):
    return answered(ppw.project, runs, **{"freq": "3.0GHz", **options})


def validate(runs, **options):
    return answered(ppw.validate, runs, **options)


def cpi_points(stalled, *steps):
    """CPI of a program that stands still for this share of its time at 2.4 GHz."""
    return [(g * GHZ, 2 * (1 - stalled + stalled * g / 2.4)) for g in steps]


def watt_points(dynamic, *steps):
    """Power, of which this share at 2.4 GHz is proportional to the core frequency."""
    return [(g * GHZ, 60 * (1 - dynamic + dynamic * g / 2.4)) for g in steps]


@cache
def everything(*steps, **options):
    """Project all quantities from CPI and power at some steps."""
    known = {"instructions": 1e12, "price": 900.0, **METER, **options}
    return project(cpi_points(0.4, *steps), power_pts=watt_points(0.6, *steps), **known)


def width(estimate):
    """Logarithm of upper over lower end, of an estimate or of each row of a table."""
    return np.log(estimate.upper / estimate.lower)


def ordered(frame):
    """Whether each row has an interval of positive finite ends about its value."""
    ends = frame[["lower", "projected", "upper"]].to_numpy()
    return np.isfinite(ends).all() and (np.diff(ends, prepend=0.0) > 0).all()


def same(frame, other):
    """Check that two tables answer alike, to the precision of quantiles."""
    apart = np.log(frame[ENDS].to_numpy() / other[ENDS].to_numpy())
    assert np.abs(apart).max() <= OF_WIDTH * width(other).max()


def hosts(count):
    """Sweeps of several hosts; each has three workloads."""
    made = [sweep(host=f"node{i:02}", seed=i, noise=0.02) for i in range(count)]
    return pd.concat(made, ignore_index=True)


def of_cores(workloads=5, *, seed=3, steps=(1.2, 1.6, 2.0, 2.4), noise=0.01):
    """Runs of workloads at 1, 2 and 4 cores each, which share what stands still."""
    rng = np.random.default_rng(seed)
    rows = []
    for number in range(workloads):
        stalled, static = rng.uniform(0, 0.7), rng.uniform(10, 30)
        for cores in (1, 2, 4):
            for ghz in steps:
                time, watts = np.exp(rng.normal(0, noise, 2))
                time *= 50 / cores * (stalled + (1 - stalled) * 2.4 / ghz)
                watts *= static + cores * 5 * ghz
                rows.append(("rack1", f"w{number:02}", cores, ghz, time, watts))
    columns = ["host", "workload", "cores", "freq_ghz", "time_s", "power_w"]
    return pd.DataFrame(rows, columns=columns).assign(**METER)


def stale(runs, first=1):
    """Copy time and power of one row to the next, to every digit."""
    broken = runs.reset_index(drop=True)
    measured = ["time_s", "power_w"]
    broken[measured] = broken[measured].round(7)
    broken.loc[first + 1, measured] = broken.loc[first, measured]
    # Counters that tell the two apart would make them two runs.
    return broken.drop(columns=["cycles", "instructions"], errors="ignore")


@pytest.fixture(scope="module")
def table():
    return of_cores()


@pytest.fixture(scope="module")
def pooled(table):
    return project_runs(table, keep_all=True).to_frame()


def two(least, most):
    return st.tuples(st.floats(least, most), st.floats(least, most))


class TestTwoPoints:
    def test_every_quantity_and_metric_has_an_interval_that_holds_its_value(self):
        answer = everything(1.2, 2.4)
        assert not [c for c in answer.caveats if "no interval" in c or "no answer" in c]
        runs = project_runs(sweep(steps=(1.2, 2.4), repeats=1)).to_frame()
        made = (answer.to_frame().rename(columns={"value": "projected"}), runs)
        assert [len(frame) for frame in made] == [8, 3 * 6]
        assert ordered(made[0])
        assert ordered(made[1])

    @ignore_caveats
    @few_examples
    @given(cpi=two(0.2, 20), watts=two(0.5, 500), freq=st.floats(0.5e9, 5e9))
    # By the line these watts fall to nothing.
    @example(cpi=(1.5, 2.0), watts=(40.0, 20.0), freq=3.5e9)
    def test_any_two(self, cpi, watts, freq):
        pairs = [list(zip((1.1e9, 2.3e9), values, strict=True)) for values in (cpi, watts)]
        answer = ppw.project_points(pairs[0], power_pts=pairs[1], freq=freq, instructions=1e10)
        for estimate in (answer.cpi, answer.time_s, answer.power_w, answer.perf_per_watt):
            assert 0 < estimate.lower < estimate < estimate.upper < np.inf

    def test_values_that_agree_in_every_digit_are_no_certainty(self):
        answer = project([(1.2e9, 2.0), (2.4e9, 2.0)] * 5)
        assert width(answer.cpi) > 1e-3


class TestWidth:
    @pytest.mark.parametrize(("stalled", "dynamic"), [(0.0, 0.2), (1.0, 0.5), (0.0, 0.8)])
    def test_adjacent_steps_say_less_than_far_ones(self, stalled, dynamic):
        # How power bends matters more the further apart its two points are.
        pairs = [
            (cpi_points(stalled, x, 2.4), watt_points(dynamic, y, 2.4))
            for x, y in ((2.3, 2.3), (1.2, 1.8))
        ]
        near, far = (project(cpi, power_pts=watts, **METER) for cpi, watts in pairs)
        assert width(near.cpi) > width(far.cpi)
        assert width(near.power_w) > width(far.power_w)

    @pytest.mark.parametrize("quantity", ["cpi", "time_s", "power_w", "energy_j", "perf_per_watt"])
    def test_points_that_agree_narrow_and_a_target_further_away_widens(self, quantity):
        made = [everything(*steps) for steps in ((1.2, 2.4), (1.2, 1.8, 2.4), (1.2, 1.5, 1.8, 2.4))]
        made += [everything(1.2, 1.8, 2.4, freq=g * GHZ) for g in (2.5, 3.0, 4.0)]
        two, three, four, *further = (width(getattr(answer, quantity)) for answer in made)
        assert two > three > four
        assert further == sorted(further)

    def test_repeats_that_agree_narrow_and_those_that_scatter_widen(self):
        once, often = (project(cpi_points(0.4, 1.2, 2.4) * n).cpi for n in (1, 6))
        assert width(often) < width(once)
        points = cpi_points(0.4, 1.2, 1.8, 2.4)
        steady, loud = (
            project([(f, c * e) for f, c in points for e in (1 - x, 1.0, 1 + x)])
            for x in (0.001, 0.05)
        )
        assert width(steady.cpi) < width(loud.cpi)

    def test_a_coarse_sensor_is_wider(self):
        sources = ("simulated", "meter:wall", "battery gauge")
        spread = [width(everything(1.2, 1.8, 2.4, power_source=s).power_w) for s in sources]
        assert spread == sorted(spread)

    def test_an_interval_too_wide_to_buy_by_is_a_caveat(self):
        wide = project(cpi_points(0.9, 1.2, 1.25), freq=6e9)
        assert wide.cpi.upper / wide.cpi.lower > 1.5
        assert only(wide.caveats, "wide interval").startswith("cpi: ")
        assert "far extrapolation" not in " ".join(wide.caveats)
        near = project(cpi_points(0.0, 1.2, 1.8, 2.4), freq=2.5e9)
        assert near.cpi.upper / near.cpi.lower < 1.5
        assert near.caveats == ()

    def test_that_caveat_names_its_groups(self):
        near = sweep(steps=(1.2, 1.25), noise=0, workloads=("grep",), repeats=1)
        far = sweep(steps=(2.6, 2.8, 3.0), noise=0, workloads=("sort",))
        result = project_runs(pd.concat([near, far]), metric="power", pool=False, freq=6e9)
        frame = result.to_frame()
        wide = frame["upper"] / frame["lower"] > 1.5
        assert wide.any()
        assert list(frame["caveats"].astype(str).str.contains("wide_interval")) == list(wide)
        assert only(result.caveats, "wide interval").startswith("power")

    @pytest.mark.parametrize("quantity", ["cpi", "power_w", "energy_j", "perf_per_watt"])
    def test_a_higher_level_is_wider_and_nested(self, quantity):
        levels = (0.5, 0.8, 0.9, 0.95, 0.99)
        made = [getattr(everything(1.2, 1.8, 2.4, level=x), quantity) for x in levels]
        assert np.all(np.diff([e.lower for e in made]) < 0)
        assert np.all(np.diff([e.upper for e in made]) > 0)
        assert len({float(e) for e in made}) == 1


class TestSymmetries:
    @pytest.mark.parametrize("pool", [True, False])
    def test_names_of_groups_do_not(self, table, pool):
        # The last comes first, and the hosts of a third are of another length.
        names = {f"w{i:02}": f"{9 - i}-{'x' * i}" for i in range(5)}
        renamed = table.assign(workload=table["workload"].map(names))
        options = {"pool": pool, "keep_all": True}
        frames = [project_runs(runs, **options).to_frame() for runs in (table, renamed)]
        frames[0]["workload"] = frames[0]["workload"].map(names)
        first, second = (f.sort_values(CELL, ignore_index=True) for f in frames)
        same(first, second)

    def test_what_is_asked_together_is_what_is_asked_alone(self, table, pooled):
        for metric in ("time", "power", "energy"):
            alone = project_runs(table, metric=metric, keep_all=True).to_frame()
            same(pooled[pooled["metric"] == metric], alone)
        steps, asked = [2.8e9, 3.0e9, 3.4e9], {"metric": "perf_per_watt"}
        together = project_runs(table, freq=steps, **asked).to_frame()
        alone = pd.concat([project_runs(table, freq=f, **asked).to_frame() for f in steps])
        first, second = (f.sort_values(CELL, ignore_index=True) for f in (together, alone))
        same(first, second)


class TestMonotone:
    """Beyond what was measured, and between the steps of a curve that falls."""

    @ignore_caveats
    @few_examples
    @given(
        stalled=st.floats(0, 1),
        errors=st.lists(st.floats(0.97, 1.03), min_size=3, max_size=3),
        number=st.integers(2, 3),
    )
    def test_time_falls_with_the_clock(self, stalled, errors, number):
        points = cpi_points(stalled, *(2.4, 1.8, 1.2)[:number])
        points = [(f, c * e) for (f, c), e in zip(points, errors, strict=False)]
        asked = [{"freq": g * GHZ, "instructions": 1e10} for g in (2.4, 2.6, 3.6, 4.8)]
        made = [ppw.project_points(points, **options).time_s for options in asked]
        # The median of a skewed distribution moves a little as it widens.
        assert np.all(np.diff(np.log(made)) < 0.01 * width(made[-1]))

    @ignore_caveats
    def test_time_is_one_curve_between_two_steps(self):
        # Halfway between two measured steps, in logarithms, the other one is the nearer.
        points = pd.DataFrame(cpi_points(0.6, 0.8, 2.8), columns=["freq_hz", "cpi"])
        asked = np.geomspace(0.7, 3.0, 60) * GHZ
        time = ppw.project(points, freq=asked, metric="cpi").table["projected"] / asked
        exponent = -np.diff(np.log(time)) / np.diff(np.log(asked))
        assert exponent.min() > 0
        # Smooth: from one point to the next the exponent changes by little.
        assert np.abs(np.diff(exponent)).max() < 0.02


class TestProducts:
    @pytest.mark.parametrize("steps", [(1.2, 2.4), (1.2, 1.8, 2.4), (2.2, 2.4)])
    def test_energy_is_time_times_power(self, steps):
        answer = everything(*steps)
        time, power, energy = answer.time_s, answer.power_w, answer.energy_j
        assert abs(np.log(energy / (time * power))) < 0.1 * width(energy)
        assert width(energy) <= width(time) + width(power)
        assert width(energy) >= np.hypot(width(time), width(power)) * 0.8
        ratio = answer.perf_per_watt
        for one, other in ((ratio, energy), (ratio.lower, energy.upper)):
            assert float(one) == pytest.approx(1 / float(other), rel=OF_WIDTH * width(energy))

    def test_what_differs_by_exact_factors_has_the_same_width(self):
        answer = everything(1.2, 1.8, 2.4, cores=4, efficiency=1.2)
        timed = ("cpi", "instructions_per_s", "time_s", "performance", "perf_per_dollar")
        spread = [width(getattr(answer, name)) for name in timed]
        np.testing.assert_allclose(spread, spread[0], rtol=OF_WIDTH)
        assert float(answer.performance) == pytest.approx(1 / answer.time_s, rel=1e-4)

    def test_a_rate_is_the_reciprocal_of_time_and_perf_per_watt_of_energy(self, pooled):
        runs = sweep(noise=0.02)
        rates = runs.assign(throughput_ops_s=1 / runs["time_s"]).drop(columns="time_s")
        time = project_runs(runs, metric="time").to_frame()
        rate = project_runs(rates, metric="throughput").to_frame()
        energy, ratio = (pooled[pooled["metric"] == m] for m in ("energy", "perf_per_watt"))
        for one, other in ((time, rate), (ratio, energy)):
            # The ends change places.
            same((1 / one[["projected", "upper", "lower"]]).set_axis(ENDS, axis=1), other)


TIMED = {"time fit", "time form", "time repeats"}
POWERED = {"power fit", "power form", "power sensor and repeats"}
PATH = LogPathLength().fit([[1], [2], [4], [8]], [100.0, 140.0, 110.0, 160.0])


def by_path(path):
    """Project by a path length, and by the number of instructions that it gives."""
    points, options = cpi_points(0.4, 1.2, 2.4), {"power_pts": watt_points(0.6, 1.2, 2.4), **METER}
    return (
        project(points, path_length=path, data_bytes=1e9, cores=4, **options),
        project(points, instructions=1e9 * path.at(4), cores=4, **options),
    )


class TestErrorBudget:
    def test_shares_sum_to_one_and_name_their_sources(self):
        answer = everything(1.2, 1.8, 2.4)
        timed = ("cpi", "time_s", "perf_per_dollar")
        assert set(answer.error_budget) == {*timed, "power_w", "energy_j", "perf_per_watt"}
        for name, shares in answer.error_budget.items():
            assert sum(shares.values()) == pytest.approx(1)
            assert min(shares.values()) >= 0
            expected = {"power_w": POWERED} | dict.fromkeys(timed, TIMED)
            assert set(shares) == expected.get(name, TIMED | POWERED)
        for name in ("time_s", "power_w", "perf_per_watt"):
            assert f"width of {name} from: " in answer.summary()
        assert set(project(cpi_points(0.4, 1.2, 2.4)).error_budget) == {"cpi"}

    def test_of_a_whole_table(self, pooled):
        columns = [c for c in pooled if c.startswith(WIDTH_FROM)]
        assert set(columns) == {WIDTH_FROM + name.replace(" ", "_") for name in TIMED | POWERED}
        np.testing.assert_allclose(pooled[columns].sum(axis=1), 1.0, rtol=1e-9)
        assert (pooled[columns].min(axis=1) >= 0).all()
        timed = [c for c in columns if c.startswith(WIDTH_FROM + "time")]
        assert pooled.loc[pooled["metric"] == "power", timed].isna().all(axis=None)
        assert pooled.loc[pooled["metric"] != "power", timed].notna().all(axis=None)

    def test_only_a_path_length_with_errors_widens_and_what_counts_instructions_alone(self):
        fitted, exact = by_path(PATH)
        for name in ("time_s", "energy_j", "perf_per_watt"):
            assert width(getattr(fitted, name)) > width(getattr(exact, name))
            assert fitted.error_budget[name]["path length"] > 0.01
            assert sum(fitted.error_budget[name].values()) == pytest.approx(1)
            assert "path length" not in exact.error_budget[name]
        assert "path length" in fitted.summary().split("width of time_s from: ")[1].split("\n")[0]
        for name in ("cpi", "instructions_per_s", "power_w"):
            one, other = (getattr(answer, name) for answer in (fitted, exact))
            assert (one, one.lower, one.upper) == (other, other.lower, other.upper)
            assert "path length" not in fitted.error_budget.get(name, {})
        published, exact = by_path(LogPathLength.from_coefficients(a=20, b=100, cores=(1, 8)))
        assert "path length" not in published.error_budget["time_s"]
        assert width(published.time_s) == pytest.approx(width(exact.time_s), rel=1e-9)


class TestPooling:
    def test_without_it_other_groups_change_nothing(self, table):
        cores = table[table["cores"] == 2]
        pairs = ((hosts(6), hosts(1), ("host", "node00")), (table, cores, ("cores", 2)))
        for runs, own, (column, value) in pairs:
            alone = project_runs(own, pool=False).to_frame()
            among = project_runs(runs, pool=False).to_frame()
            same(among[among[column] == value], alone)
            np.testing.assert_allclose(among["pulled_pct"], 0, atol=1e-6)

    def test_with_it_they_do_where_there_are_others(self, table, pooled):
        assert pooled["pulled_pct"].abs().max() > 0.01
        own = project_runs(table[table["cores"] == 2]).to_frame()
        among = pooled[pooled["cores"] == 2]
        assert not np.allclose(among["projected"], own["projected"], rtol=1e-6)
        lone = project_runs(sweep(workloads=("sort",), noise=0.02))
        np.testing.assert_allclose(lone.to_frame()["pulled_pct"], 0, atol=1e-6)
        assert lone.pool is True


@pytest.fixture(scope="module")
def two_hosts():
    return pd.concat([stale(of_cores()), of_cores(2, seed=8).assign(host="rack2")])


@pytest.mark.cases(
    "scheme, how",
    ({}, {"interval": "bayes"}),
    ({"train": ["1.2GHz", "1.6GHz", "2.0GHz"], "test": "2.4GHz"}, {"interval": "bayes"}),
    ({"train": ["1.2GHz", "1.6GHz", "2.0GHz"]}, {"interval": "none"}),
    ({}, {"interval": "t", "via": "ratio"}),
)
def test_without_the_test_rows_a_validation_projects_the_same(two_hosts, scheme, how):
    held = validate(two_hosts, **scheme, **how).to_frame()
    alone = project_runs(two_hosts[two_hosts["freq_ghz"] < 2.4], freq=2.4e9, **how).to_frame()
    both = held.merge(alone, on=CELL, suffixes=("", "_alone"))
    assert len(both) == len(held)
    for column in ENDS:
        np.testing.assert_allclose(both[column], both[column + "_alone"], rtol=1e-4)


def test_a_bad_test_row_is_not_held_against(two_hosts):
    # Watts below nothing at the tested step of one group: nothing to compare with.
    bad = two_hosts.reset_index(drop=True)
    row = bad.index[(bad["freq_ghz"] == 2.4) & (bad["host"] == "rack2")][0]
    bad.loc[row, "power_w"] = -1.0
    good, without = (
        validate(runs, metric="power", interval="t").summary_by_metric["power"]["n"]
        for runs in (two_hosts, bad)
    )
    assert without == good - 1


def test_a_slow_test_row_is():
    # To turn down what is slower than expected would flatter the result.
    runs = sweep(noise=0.005, repeats=1)
    slow = (runs["freq_ghz"] == 2.4) & (runs["workload"] == "sort")
    changed = runs.assign(time_s=runs["time_s"].where(~slow, 5 * runs["time_s"]))
    assert len(ppw.check(changed).table) > 0
    result = validate(changed, metric="time")
    assert result.summary_by_metric["time"]["n"] == 3
    assert result.worst_error_pct() > 70


@pytest.fixture(scope="module")
def twelve():
    return of_cores(12)


@pytest.fixture(scope="module")
def held(twelve):
    return validate(twelve, interval="conformal")


class TestConformal:
    def test_values_are_the_posteriors_and_ends_a_factor_about_them(self, twelve, held):
        plain = validate(twelve).to_frame()
        np.testing.assert_array_equal(held.groups["projected"], plain["projected"])
        assert held.interval == "conformal"
        assert not np.allclose(held.groups["lower"], plain["lower"], rtol=1e-3)
        up, down = (np.log(held.groups[e] / plain["projected"]).abs() for e in ("upper", "lower"))
        np.testing.assert_allclose(up, down, rtol=1e-9)

    def test_it_covers_its_level(self, held):
        for summary in held.summary_by_metric.values():
            assert 0.80 <= summary["coverage"] <= 1
            assert summary["with_interval"] == summary["n"] == 36

    @pytest.mark.parametrize("factor", [0.4, 1.3])
    def test_the_own_cluster_takes_no_part(self, twelve, held, factor):
        there = (twelve["workload"] == "w03") & (twelve["freq_ghz"] == 2.4)
        changed = twelve.assign(power_w=twelve["power_w"] * np.where(there, factor, 1))
        other = validate(changed, interval="conformal", metric="power").to_frame()
        before = held.groups[held.groups["metric"] == "power"].reset_index(drop=True)
        mine = other["workload"] == "w03"
        np.testing.assert_allclose(other.loc[mine, ENDS], before.loc[mine, ENDS], rtol=1e-12)
        assert (width(other[~mine]) >= width(before[~mine]) - 1e-12).all()
        assert (width(other[~mine]) > width(before[~mine]) + 1e-6).any()

    def test_a_table_is_calibrated_where_some_groups_were_measured(self, twelve):
        short = twelve[(twelve["workload"] > "w01") | (twelve["freq_ghz"] < 2.4)]
        result = project_runs(short, freq=2.4e9, interval="conformal", metric=["time", "power"])
        assert len(result.table) == 2 * 36
        assert ordered(result.table)

    @pytest.mark.parametrize("freq", [2.4e9, 3.0e9], ids=["few there", "none there"])
    def test_too_few_measured_there_is_refused_with_the_reason(self, freq):
        with pytest.raises(PpwError, match="takes 9 groups of other workloads") as refused:
            ppw.project(hosts(2), freq=freq, metric="time", interval="conformal")
        assert f"time at {freq / GHZ:g} GHz: a conformal interval at 90%" in str(refused.value)
        assert "--interval bayes" in str(refused.value)

    def test_a_lower_level_takes_fewer_and_a_validation_without_enough_has_none(self):
        result = project_runs(hosts(2), freq=2.4e9, metric="time", interval="conformal", level=0.5)
        assert result.to_frame()["lower"].notna().all()
        result = validate(hosts(2), metric="time", interval="conformal")
        assert result.summary_by_metric["time"]["coverage"] is None
        assert result.groups["lower"].isna().all()
        assert result.groups["projected"].notna().all()


class TestNone:
    def test_there_is_none_and_the_value_is_the_least_squares_one(self):
        points = [everything(1.2, 1.8, 2.4, interval=i) for i in ("none", "t")]
        runs = [project_runs(sweep(noise=0.02), interval=i) for i in ("none", "t")]
        for (bare, straight), column in ((points, "value"), (runs, "projected")):
            frame = bare.to_frame()
            assert frame[["lower", "upper"]].isna().all(axis=None)
            np.testing.assert_array_equal(frame[column], straight.to_frame()[column])
            assert bare.interval == "none"
        # Where the width comes from is told of a posterior alone.
        for answer in points:
            assert answer.error_budget == {}
            assert "width of" not in answer.summary()
        for result in runs:
            assert not [c for c in result.to_frame() if c.startswith(WIDTH_FROM)]
            assert "pulled_pct" not in result.to_frame()


@pytest.fixture(scope="module")
def copied():
    return stale(sweep(repeats=1, noise=0.005, steps=(1.2, 1.4, 1.6, 1.8, 2.0, 2.2, 2.4)))


class TestKeepAll:
    @pytest.mark.parametrize("interval", ["t", "none", "bayes"])
    def test_a_copied_row_and_its_source_are_left_out_and_said_unless_kept(self, copied, interval):
        result = project_runs(copied, interval=interval)
        assert list(result.left_out["position"]) == [1, 2]
        assert set(result.left_out["check"]) == {"frequency_not_applied"}
        assert set(result.left_out["workload"]) == {"grep"}
        said = only(result.caveats, "left out")
        assert said.startswith("2 rows left out (frequency not applied)")
        assert result.left_out["evidence"].iloc[0] in said
        assert "--keep-all" in said
        frame = result.to_frame()
        assert set(frame.loc[frame["workload"] == "grep", "points"]) == {5}
        assert set(frame.loc[frame["workload"] != "grep", "points"]) == {7}
        cut = project_runs(copied.drop(index=[1, 2]), interval=interval)
        np.testing.assert_array_equal(result.table[ENDS], cut.table[ENDS])
        kept = project_runs(copied, interval=interval, keep_all=True)
        assert set(kept.table["points"]) == {7}
        for one in (cut, kept):
            assert one.left_out.empty
            assert not [c for c in one.caveats if "left out" in c]

    def test_only_what_spoils_the_metric(self):
        runs = sweep(repeats=1)
        runs.loc[2, "power_w"] = -3.0
        assert project_runs(runs, metric="time").left_out.empty
        assert list(project_runs(runs, metric="power").left_out["position"]) == [2]

    def test_a_validation_counts_without_them(self):
        # The copied pair is the step before last and the last. The last is the one tested: what
        # is learnt from is judged without it, so that its source stays.
        runs = stale(sweep(repeats=1, noise=0.005, steps=(1.2, 1.6, 2.0, 2.4)), first=2)
        kept, cut = (validate(runs, keep_all=k, metric="time") for k in (True, False))
        assert [r.summary_by_metric["time"]["n"] for r in (kept, cut)] == [3, 2]
        assert "1 of 12 rows left out" in only(cut.caveats, "left out")
        assert not [c for c in kept.caveats if "left out" in c]

    def test_nothing_left_is_an_error_that_says_so(self):
        runs = pd.DataFrame({"freq_ghz": [1.2, 2.4], "power_w": [-1.0, -2.0]})
        with pytest.raises(PpwError, match="every row is flagged"):
            ppw.project(runs, freq=3e9)
        with pytest.raises(MeasurementError, match="must be greater than 0"):
            ppw.project(runs, freq=3e9, keep_all=True)

    @pytest.mark.cases(
        "column, value, said",
        ("freq_ghz", -3.0, "row 3, column freq_ghz: -3 must be"),
        ("time_s", "fast", "row 3, column time_s: 'fast' is not a number"),
    )
    @ignore_caveats
    def test_a_row_without_watts_is_judged_where_no_watts_are_asked(self, column, value, said):
        rows = [(1.0, 5.0, 9.0), (2.0, 3.0, 12.0), (3.0, 2.0, 0.0)]
        runs = pd.DataFrame(rows, columns=["freq_ghz", "time_s", "power_w"], dtype=object)
        runs.loc[2, column] = value
        with pytest.raises(MeasurementError) as refused:
            ppw.project(runs, freq=2.5e9, metric="time")
        assert said in str(refused.value)

    def test_what_was_left_out_comes_back_from_json(self, copied):
        result = project_runs(copied, pool=False, interval="none")
        again = ppw.RunsProjection.from_json(result.to_json())
        assert (again.interval, again.pool) == ("none", False)
        assert (again.to_json(), again.summary()) == (result.to_json(), result.summary())
        pd.testing.assert_frame_equal(again.left_out, result.left_out, check_dtype=False)


def made_by_the_laws(groups, *, steps, noise, seed):
    """Groups of T = t_fixed + w/f and P = S + D·f·V(f)², one run a step."""
    rng = np.random.default_rng(seed)
    f = np.tile(steps, groups)
    code = np.repeat(np.arange(groups), len(steps))
    stalled = np.where(rng.random(groups) < 0.4, 0.0, rng.beta(0.6, 1.5, groups))[code]
    scale, watts = rng.lognormal(2, 1, groups)[code], rng.lognormal(4, 0.5, groups)[code]
    static = rng.uniform(0.1, 0.7, groups)[code]
    slope = rng.uniform(0.1, 0.7, groups)[code]
    relative = f / 2.4
    voltage = np.maximum(0.6, 1 + slope * (relative - 1))
    errors = np.exp(rng.normal(0, noise, (2, len(f))))
    return pd.DataFrame(
        {
            "workload": [f"w{c:03}" for c in code],
            "freq_ghz": f,
            "time_s": scale * (stalled + (1 - stalled) / relative) * errors[0],
            "power_w": watts * (static + (1 - static) * relative * voltage**2) * errors[1],
            **METER,
        }
    )


@ignore_caveats
@pytest.mark.parametrize("pool", [True, False])
@pytest.mark.cases(
    "steps, noise, most",
    # Two steps learnt from, one tested: how much of the watts is static, they cannot show.
    ((1.2, 2.0, 3.0), 0.015, 1.0),
    ((1.2, 1.6, 2.0, 3.0), 0.02, 0.995),
    ((1.0, 1.4, 1.8, 2.2, 2.6), 0.02, 0.995),
)
def test_nine_in_ten_are_covered_where_the_laws_hold(steps, noise, most, pool):
    runs = made_by_the_laws(300, steps=steps, noise=noise, seed=len(steps))
    result = ppw.validate(runs, metric=["time", "power"], pool=pool, keep_all=True)
    for summary in result.summary_by_metric.values():
        assert summary["with_interval"] == 300
        assert 0.85 <= summary["coverage"] <= most


@pytest.mark.thirdparty
class TestMeasuredElsewhere:
    """Frequency sweeps measured by others; see the README of each folder."""

    def test_conformal_intervals_of_a_server_cover_their_level(self, data_dir):
        runs = ppw.read_runs(data_dir / "nornir-repara" / "tidy.csv")
        split = {"train": ["1.2GHz", "1.8GHz"], "test": "2.4GHz", "metric": ["time", "power"]}
        result = validate(runs, interval="conformal", **split)
        for summary in result.summary_by_metric.values():
            assert summary["with_interval"] == summary["n"] > 100
            assert 0.80 <= summary["coverage"] <= 1

    def test_watts_below_nothing(self, data_dir):
        path = data_dir / "freqbench" / "raw" / "exynos7904" / "main" / "results.csv"
        headers = {"freq_khz": "Frequency (kHz)", "power_mw": "Power (mW)", "time_s": "Time (s)"}
        headers |= {"throughput_ops_s": "CoreMarks (iter/s)", "workload": "CPU"}
        runs = ppw.read_runs(path, columns=headers, check=False)
        below = np.flatnonzero(runs["power_w"].astype(float) <= 0)
        assert len(below) > 0
        result = project_runs(runs)
        named = result.left_out[result.left_out["check"] == "power_at_or_below_idle"]
        assert list(named["position"]) == list(below)
        assert only(result.caveats, "power at or below idle")
        assert (result.to_frame()["lower"] > 0).all()
        with pytest.raises(MeasurementError, match=r"line 2, column Power \(mW\): -0.714329 must"):
            ppw.project(runs, freq=3e9, keep_all=True)
        with pytest.warns(CaveatWarning):
            assert ppw.validate(runs).summary_by_metric["power"]["n"] == runs["workload"].nunique()
