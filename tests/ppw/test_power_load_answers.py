"""Power against load: curves between levels, from runs and published results, and the command."""

import functools

import numpy as np
import pandas as pd
import pytest
from golden_runs import golden
from hypothesis import given, strategies as st
from made_up import answered
from processes import ppw_inside, printed, refused
from specpower_results import text_report

from measurements import read_runs
from measurements.table.specpower import LoadLevel, SpecPowerResult, read_specpower
from ppw.errors import CaveatWarning, PpwError
from ppw.power.load_curve import PowerLoadCurve, power_loads

# Idle 60 W, 80 W at half, 120 W at full load.
HAND = PowerLoadCurve.of_levels([0, 0.5, 1], [60, 80, 120], name="hand")


@st.composite
def curves(draw, least=2):
    percent = draw(st.lists(st.integers(0, 100), min_size=least, max_size=11, unique=True))
    watts = draw(st.lists(st.floats(20, 500), min_size=len(percent), max_size=len(percent)))
    return np.array(percent) / 100, np.array(watts)


def inside(load):
    return np.linspace(load.min(), load.max(), 201)


class TestBetweenLevels:
    @given(curves(), st.randoms())
    def test_it_goes_through_its_levels_and_stays_between_neighbours(self, levels, random):
        load, watts = levels
        curve = PowerLoadCurve.of_levels(load, watts)
        np.testing.assert_allclose(curve.watts(load), watts)
        at = inside(load)
        above = np.clip(np.searchsorted(curve.load, at), 1, len(load) - 1)
        ends = np.stack([curve.power[above - 1], curve.power[above]])
        found, slack = curve.watts(at), 1e-9 * watts.max()
        assert (found >= ends.min(axis=0) - slack).all()
        assert (found <= ends.max(axis=0) + slack).all()
        # The order of levels says nothing.
        order = random.sample(range(len(load)), len(load))
        other = PowerLoadCurve.of_levels(load[order], watts[order])
        np.testing.assert_array_equal(other.watts(at), found)

    @given(curves())
    def test_levels_that_rise_make_a_curve_that_rises(self, levels):
        load, watts = np.sort(levels[0]), np.sort(levels[1])
        found = PowerLoadCurve.of_levels(load, watts).watts(inside(load))
        assert (np.diff(found) >= -1e-9 * watts.max()).all()

    def test_two_levels_are_a_straight_line(self):
        curve = PowerLoadCurve.of_levels([0.2, 0.6], [100, 140])
        np.testing.assert_allclose(curve.watts(np.array([0.3, 0.5])), [110, 130])

    def test_the_cubic_is_fritsch_and_carlsons(self):
        """By hand: weighted harmonic means of the slopes either side."""
        # Slopes 40 and 80 a unit of load; in the middle 2·40·80/(40 + 80); at the ends
        # (3·40 − 80)/2 = 20 and (3·80 − 40)/2 = 100. Hermite at the middle of each half.
        middle = 2 * 40 * 80 / 120
        first = (60 + 80) / 2 + 0.5 * (20 - middle) / 8
        second = (80 + 120) / 2 + 0.5 * (middle - 100) / 8
        np.testing.assert_allclose(HAND.watts(np.array([0.25, 0.75])), [first, second])


class TestOutsideLevels:
    def test_only_when_allowed_and_labelled(self):
        curve = PowerLoadCurve.of_levels([0.5, 0.9], [100, 140], name="rack1")
        with pytest.raises(PpwError, match=r"^rack1: load 1 is outside its levels, 0\.5 to 0"):
            curve.watts(np.array([0.6, 1.0]))
        np.testing.assert_allclose(curve.watts([0.6, 1.0], extrapolate=True), [110, 150])
        found = curve.forecast([0.5, 0.6, 1.0])
        assert list(found["label"]) == ["measured", "interpolated", "extrapolated"]
        np.testing.assert_allclose(found["power_w"], [100, 110, 150])
        half = ((found["upper"] - found["lower"]) / 2).to_numpy()
        assert half[0] == 0
        assert 0 < half[1] < half[2]

    @given(curves(least=3))
    def test_a_forecast_between_levels_is_the_curve(self, levels):
        curve = PowerLoadCurve.of_levels(*levels)
        at = inside(levels[0])[1:-1]
        found = curve.forecast(at)
        np.testing.assert_allclose(found["power_w"], curve.watts(at))
        assert (found["lower"] <= found["power_w"]).all()
        assert (found["power_w"] <= found["upper"]).all()
        assert (found["lower"] >= 0).all()

    def test_some_levels_alone(self):
        load = [0, 0.102, 0.496, 0.905, 1]
        curve = PowerLoadCurve.of_levels(load, [50, 70, 100, 140, 160])
        assert list(curve.only([0.9, 0.5]).load) == [0.496, 0.905]
        with pytest.raises(PpwError, match=r"no level at load 0\.3; there are 0, 0\.102"):
            curve.only([0.3, 0.9])


@pytest.mark.cases(
    "load, watts, said",
    ([0.5], [100], "1 levels with power"),
    ([0.5, 1], [100, np.nan], "1 levels with power"),
    ([0.5, 0.5, 1], [100, 110, 120], "two levels at load 0.5: give their mean"),
    ([0.5, 1.2], [100, 110], "load 1.2 is no share"),
    ([0.5, 0.9, 1.2], [100, 110, 120], "load 1.2 is no share"),
    ([-0.1, 1], [100, 110], "load -0.1 is no share"),
    ([0.5, 1], [0, 110], "0 W is no possible power"),
    ([0.5, 1], [100], "2 loads and 1 power values"),
    ([0.5, np.inf], [100, 110], "load inf is no share"),
)
def test_levels_that_cannot_be(load, watts, said):
    with pytest.raises(PpwError, match=said):
        PowerLoadCurve.of_levels(load, watts)


def test_loads_that_cannot_be():
    for load in (-0.1, 1.1, np.nan):
        with pytest.raises(PpwError, match="is no share of full load"):
            HAND.watts([load])


class TestFigures:
    def test_by_hand(self):
        found = HAND.proportionality()
        assert (found.idle_w, found.half_w, found.full_w) == (60, 80, 120)
        assert (found.idle_to_peak, found.dynamic_range) == (0.5, 0.5)
        assert found.energy_proportionality == pytest.approx(7 / 12)
        assert (found.linear_deviation, found.deviates_at) == (pytest.approx(-1 / 9), 0.5)
        assert (found.peak_efficiency_load, found.peak_efficiency) == (1, 1)

    def test_without_idle_there_are_no_figures_that_need_it(self):
        found = PowerLoadCurve.of_levels([0.5, 1], [80, 120]).proportionality()
        assert np.isnan([found.idle_w, found.energy_proportionality, found.dynamic_range]).all()
        assert (found.half_w, found.full_w) == (80, 120)

    def test_work_per_joule(self):
        curve = PowerLoadCurve.of_levels([0, 0.5, 1], [60, 80, 120], rate=[0, 400, 900])
        np.testing.assert_allclose(curve.efficiency(), [0, 5, 7.5])
        assert np.isnan(HAND.efficiency()).all()


def runs(**columns):
    rows = {
        "host": ["rack1"] * 5,
        "workload": ["memcached get"] * 5,
        "load": [0.25, 0.5, 0.5, 0.998, 1.002],
        "throughput_ops_s": [250.0, 495, 505, 998, 1002],
        "power_w": [80.0, 99, 101, 149, 151],
        "idle_power_w": [60.0] * 5,
    }
    return pd.DataFrame(rows | columns)


class TestFromRuns:
    def test_repeats_are_averaged_and_idle_is_a_level(self):
        curve = PowerLoadCurve.from_runs(runs())
        np.testing.assert_allclose(curve.load, [0, 0.25, 0.5, 1])
        np.testing.assert_allclose(curve.power, [60, 80, 100, 150])
        np.testing.assert_allclose(curve.rate, [0, 250, 500, 1000])
        assert (curve.name, curve.caveats) == ("rack1", ())
        mixed = PowerLoadCurve.from_runs(runs().sample(frac=1, random_state=2))
        np.testing.assert_array_equal(mixed.power, curve.power)
        # Throughput stands for load.
        rates = [250.0, 500, 500, 1000, 1000]
        curve = PowerLoadCurve.from_runs(runs(throughput_ops_s=rates).drop(columns="load"))
        np.testing.assert_allclose(curve.load, [0, 0.25, 0.5, 1])

    def test_idle_that_was_not_measured_is_missing(self):
        for frame in (runs().drop(columns="idle_power_w"), runs(idle_power_w=[np.nan] * 5)):
            curve = PowerLoadCurve.from_runs(frame)
            assert curve.load[0] == 0.25
            assert "idle was not measured" in curve.caveats[0]

    def test_a_rate_that_was_not_reached_is_said(self):
        slow = runs(throughput_ops_s=[250.0, 400, 405, 998, 1002])
        # Full load begins at 0.995.
        for frame in (slow, slow.assign(load=[0.25, 0.5, 0.5, 0.995, 0.995])):
            said = PowerLoadCurve.from_runs(frame).caveats[0]
            assert "2 of 5 runs did not reach the rate" in said

    def test_runs_at_load_0_are_idle(self):
        rows = runs(load=[0.0, 0.5, 0.5, 1, 1]).drop(columns=["idle_power_w", "throughput_ops_s"])
        for frame in (rows, rows.assign(idle_power_w=60.0)):
            curve = PowerLoadCurve.from_runs(frame)
            assert (curve.has_idle, curve.caveats) == (True, ())

    def test_loads_above_full_load_are_refused_or_said(self):
        above = runs(load=[0.3, 0.6, 0.6, 1.2, 1.2])
        with pytest.raises(PpwError, match=r"load 1\.2 is more than full load.* 50% or .*load_pct"):
            PowerLoadCurve.from_runs(above.drop(columns="throughput_ops_s"))
        # The rate of the highest load is what tells.
        for frame in (above, above.assign(throughput_ops_s=[300, np.nan, np.nan, 1200, 1200])):
            curve = PowerLoadCurve.from_runs(frame)
            np.testing.assert_allclose(curve.load, [0, 0.25, 0.5, 1])
            assert "1.2 was reached, which is more than full load" in curve.caveats[-1]

    @pytest.mark.cases(
        "frame, said",
        (runs(workload=["a", "a", "a", "b", "b"]), "these runs differ in workload"),
        (runs().drop(columns="power_w"), "no column power_w"),
        (runs().drop(columns=["load", "throughput_ops_s"]), "no column load"),
    )
    def test_what_is_no_curve_is_refused(self, frame, said):
        with pytest.raises(PpwError, match=said):
            PowerLoadCurve.from_runs(frame)


def published(actual=True, **more):
    levels = [
        LoadLevel(t / 100, (t - 1) / 100 if actual else None, 10.0 * t - 10, 50 + t)
        for t in range(100, 0, -10)
    ]
    facts = {"system": "Pebble", "vendor": "", "processor": "", "test_date": "", "year": None}
    facts |= dict.fromkeys(("nodes", "chips", "cores", "threads", "memory_gb", "overall"))
    facts |= {"levels": (*levels, LoadLevel(0.0, None, 0.0, 50.0)), "compliant": True}
    return SpecPowerResult(**{**facts, "findings": (), "source": "made up", **more})


def published_without(figure, *targets):
    levels = published().levels
    return published(
        levels=[x._replace(**{figure: None} if x.target in targets else {}) for x in levels]
    )


class TestFromSpecpower:
    def test_a_newer_result_or_one_without_a_year_has_wider_intervals(self):
        halves = []
        for year in (2007, 2012, 2014, 2020, None):
            curve = PowerLoadCurve.from_specpower(published(year=year))
            found = curve.only([0.5, 0.9]).forecast([1])
            halves.append(float((found["upper"] - found["lower"]).iloc[0]))
        assert halves[0] == halves[1] < halves[2] < halves[3] == halves[4]

    def test_full_load_is_what_the_highest_level_reached(self):
        curve = PowerLoadCurve.from_specpower(published())
        assert (curve.load[0], curve.load[-1]) == (0, 1)
        assert curve.load[-2] == pytest.approx(89 / 99)
        assert curve.watts(np.array([1.0])) == pytest.approx(150)
        assert (curve.name, curve.caveats) == ("Pebble", ())

    def test_without_actual_loads_throughputs_stand_for_them_and_without_either_the_targets(self):
        result = published(actual=False)
        curve = PowerLoadCurve.from_specpower(result)
        assert curve.load[-2] == pytest.approx(89 / 99)
        assert "loads are shares of throughput" in curve.caveats[0]
        # One that is not known is enough.
        curve = PowerLoadCurve.from_specpower(published_without("actual", 0.7))
        assert "loads are shares of throughput" in curve.caveats[0]
        levels = tuple(x._replace(ops_s=None) for x in result.levels)
        curve = PowerLoadCurve.from_specpower(published(levels=levels))
        assert curve.load[-2] == pytest.approx(0.9)
        assert "loads are the target loads" in curve.caveats[0]

    def test_a_level_that_is_missing_stays_missing(self):
        curve = PowerLoadCurve.from_specpower(published_without("watts", 0.7, 0.0))
        assert len(curve.load) == 9
        assert not curve.has_idle


class TestAnswer:
    def test_frame_and_curve(self):
        two = [HAND, PowerLoadCurve.of_levels([0.5, 0.9], [100, 140], name="b")]
        result = answered(power_loads, two)
        frame = result.to_frame()
        assert list(frame["power_at_50_w"]) == pytest.approx([80, 100])
        assert list(frame["server"]) == ["hand", "b"]
        np.testing.assert_array_equal(result.curve("hand").power, HAND.power)
        with pytest.raises(PpwError, match="no server 'c'; there are hand, b"):
            result.curve("c")
        assert any("is extrapolated for 1 of 2 servers" in c for c in result.caveats)
        assert "150 W (" in result.summary()
        with pytest.warns(CaveatWarning, match="is extrapolated"):
            power_loads(two[1:], at=[1])

    def test_set_ups_of_a_runs_table_are_curves_of_their_own(self):
        second = runs(host=["rack2"] * 5, power_w=runs()["power_w"] * 2)
        found = answered(power_loads, pd.concat([runs(), second]))
        assert list(found.figures["server"]) == ["rack1", "rack2"]
        assert list(found.figures["half_w"]) == pytest.approx([100, 200])
        # One of one load is left out.
        second = second.assign(load=1.0).drop(columns="idle_power_w")
        found = answered(power_loads, pd.concat([runs(), second]))
        assert list(found.figures["server"]) == ["rack1"]
        assert any("1 of 2 set-ups left out" in c for c in found.caveats)

    @pytest.mark.parametrize(("count", "named"), [(6, True), (7, False)])
    def test_a_figure_names_a_few_servers_alone(self, count, named):
        found = answered(power_loads, [HAND] * count)
        assert list(found.figures["server"][:2]) == ["hand", "hand (2)"]
        assert (found.plot().get_legend() is not None) == named

    @pytest.mark.parametrize(
        ("curves", "at", "said"),
        [([HAND], [], "no load"), ([HAND], [2.0], "load 2 is no share"), ([], [0.5], "no curve")],
    )
    def test_what_has_no_answer(self, curves, at, said):
        with pytest.raises(PpwError, match=said):
            answered(power_loads, curves, at=at)


@pytest.mark.cases(
    "header, loads",
    *(("load", "0 0.5 1"), ("load", "0% 50% 100%"), ("load", "0 50% 1")),
    *(("Load (%)", "0 50 100"), ("Load %", "0 50 100%"), ("load_pct", "0 0.5e2 100")),
)
@pytest.mark.parametrize("ending", ["csv", "parquet"])
def test_loads_as_people_write_them_are_one_curve(tmp_path, header, loads, ending):
    path = tmp_path / f"runs.{ending}"
    table = pd.DataFrame({"host": "r1", header: loads.split(), "power_w": [60.0, 80, 120]})
    table.to_csv(path, index=False) if ending == "csv" else table.to_parquet(path)
    (found,) = answered(power_loads, read_runs(path)).figures.to_dict(orient="records")
    assert (found["idle_w"], found["half_w"], found["full_w"]) == (60, 80, 120)


def test_loads_in_percent_without_a_sign_are_refused(tmp_path):
    """10, 50, 90 once became 11, 56 and 100 %: another 50 % than the one that was measured."""
    path = tmp_path / "pct.csv"
    path.write_text("host,load,power_w\nr1,10,60\nr1,50,80\nr1,90,120\n")
    ask = functools.partial(ppw_inside, "powerload", "pct.csv", "--at", "50%", cwd=tmp_path)
    said = "write 50% in the cells, or name the column load_pct"
    refused(ask(), "lines 2-4, column load: 10 is above 1, which is the whole", said)
    path.write_text(path.read_text().replace("load", "load_pct"))
    assert "80 W" in ask().stdout


@pytest.mark.thirdparty
def test_the_energy_proportionality_of_published_servers_is_as_published(data_dir):
    """Ryckbosch et al. (2011): from 30-40 percent in 2007 to 50-80 percent in 2011."""
    results = read_specpower(data_dir / "specpower" / "results_to_2012.csv")
    found = answered(power_loads, results).figures
    year = np.array([r.year for r in results])
    share = found["energy_proportionality"].to_numpy()
    assert 0.30 <= np.median(share[year == 2007]) <= 0.40
    assert 0.50 <= np.median(share[year == 2011]) <= 0.80


def test_the_command_reads_runs_and_published_results_each_by_themselves(tmp_path):
    runs().to_csv(tmp_path / "runs.csv", index=False)
    (tmp_path / "pebble.txt").write_text(text_report())
    golden("powerload runs.csv --at 50%,1", tmp_path)
    run = functools.partial(ppw_inside, "powerload", cwd=tmp_path)
    assert printed(run("pebble.txt")).startswith("Pebble 100: 50 W idle, 200 W at full load: ")
    mixed = run("pebble.txt", "runs.csv")
    refused(mixed, "runs.csv is no SPECpower result, but pebble.txt is: give only one kind", code=2)
