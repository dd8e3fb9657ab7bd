"""Core voltage by frequency: where it is taken from, what it covers, and what it is good for."""

import numpy as np
import pandas as pd
import pytest
from made_up import GHZ, answered

import ppw
from fitting.bayes.posterior import MeasuredSteps
from fitting.errors import OutOfRangeError
from ppw.errors import PpwError
from ppw.projection.answers import VoltageTable
from ppw.runs.groups import group_runs

# Flat up to a knee at 1.6 GHz, which no step below it can show, then steep.
KNEE = {0.8e9: 0.7, 1.6e9: 0.7, 2.4e9: 0.95, 3.2e9: 1.25}
STEPS = (0.8, 1.0, 1.2, 1.4, 1.6)
# Half again beyond the highest step, the prior on the static share pulls by a percent or two.
NEAR = 0.02


def volts(ghz, table=KNEE):
    return np.interp(np.asarray(ghz) * GHZ, [*table], [*table.values()])


def truth(number, ghz=2.4, table=KNEE):
    return 8.0 * (number + 1) + 20.0 * ghz * volts(ghz, table) ** 2


def world(*, hosts=("a", "b"), steps=STEPS, table=KNEE, noise=0.0):
    """Runs of P = S + c·f·V² on hosts with one workload each."""
    rng = np.random.default_rng(0)
    parts = []
    for number, host in enumerate(hosts):
        ghz = np.array(steps)
        watts = truth(number, ghz, table) * np.exp(rng.normal(0, noise, len(ghz)))
        parts.append(pd.DataFrame({"host": host, "freq_ghz": ghz, "power_w": watts}))
    return pd.concat(parts, ignore_index=True).assign(power_source="simulated")


def frame(table=KNEE, **columns):
    known = pd.DataFrame({"freq_hz": [*table], "voltage_v": [*table.values()]})
    return known.assign(**columns)


def power(runs, **options):
    asked = {"freq": 2.4e9, "metric": "power", **options}
    return answered(ppw.project, runs, **asked).to_frame()


def steps_of(*sweeps):
    code = np.repeat(np.arange(len(sweeps)), [len(s) for s in sweeps])
    at = np.concatenate([np.asarray(s, dtype=float) for s in sweeps]) * GHZ
    return MeasuredSteps.of(code, at, np.zeros(len(at)), len(sweeps))


def table_of(hosts, given, by=None):
    """Table of groups with one run each, and its voltages of the first one at three steps."""
    runs = pd.DataFrame({"host": list(hosts), "freq_hz": 1e9, "workload": "w"})
    table = VoltageTable.of(runs, group_runs(runs, by), given)
    return table, table.at(ONE, np.array([0]))


ONE = np.array([[1.0, 1.5, 2.0]]) * GHZ
TWO = {2e9: 1.2, 1e9: 0.8}


class TestWhereItComesFrom:
    def test_readings_of_one_step_or_of_hosts_not_told_apart_are_averaged(self):
        given = pd.concat([frame(TWO, host="a"), frame({1e9: 1.0, 2e9: 1.2}, host="b")])
        made = table_of("ab", given, ["workload"])[1], table_of("a", given.drop(columns="host"))[1]
        np.testing.assert_allclose(np.concatenate(made), [[0.9, 1.05, 1.2]] * 2)

    def test_a_host_that_no_table_names_has_none(self):
        made = table_of("ab", frame(TWO, host="b"))[0]
        assert list(made.covers(steps_of((1, 2), (1, 2)), np.full(2, 2e9))) == [False, True]

    def test_none_covers_nothing(self):
        # Empty; no column; a missing value; no rows.
        for given in ({}, None, frame({1e9: np.nan}), frame({})):
            assert not table_of("a", given)[0].covers(steps_of((1, 2)), np.array([2e9])).any()

    @pytest.mark.cases(
        "given, said",
        (frame().rename(columns={"voltage_v": "v"}), "needs the columns freq_hz and voltage_v"),
        (frame().drop(columns="freq_hz"), "needs the columns freq_hz and voltage_v"),
        (frame({1e9: -1.0}), "positive frequencies"),
        ({-1e9: 1.0}, "positive frequencies"),
        *(({1e9: volts}, "positive frequencies") for volts in (0.0, np.inf, np.nan)),
        ids=str,
    )
    def test_what_is_no_table_is_refused(self, given, said):
        with pytest.raises(PpwError, match=said):
            table_of("a", given)


class TestCoverage:
    TABLE = VoltageTable.of(None, range(2), {1e9: 0.8, 2e9: 1.2})

    @pytest.mark.cases(
        "steps, target, covered",
        ((1.0, 1.5), 2.0, True),
        ((1.2, 1.5), 1.0, True),
        ((1.0, 1.5), 2.1, False),
        ((1.2, 1.5), 0.9, False),
        ((0.9, 1.5), 2.0, False),
        ((1.5, 2.1), 1.8, False),
        ((0.9995, 1.5), 2.0005, True),
        ((0.998, 1.5), 2.0, False),
        ((1.0, 1.5), 2.003, False),
        ((1.0, 1.5), np.nan, False),
        ((), 1.5, False),
    )
    def test_the_lowest_and_the_highest_step_and_the_target(self, steps, target, covered):
        made = self.TABLE.covers(steps_of(steps, (1.0, 2.0)), np.array([target, 1.5]) * GHZ)
        assert list(made) == [covered, True]

    def test_groups_of_other_tables_are_not(self):
        table = VoltageTable((self.TABLE.tables[0],), np.array([-1, 0]))
        made = table.covers(steps_of((1.0, 1.5), (1.0, 1.5)), np.full(2, 2e9))
        assert list(made) == [False, True]


VOLTS = KNEE, {}, None
WAYS = {"mapping": dict(reversed(KNEE.items())), "frame": frame()}
WAYS |= {"frame by host": pd.concat([frame(host="a"), frame(host="b")])}


class TestKnownVoltages:
    """P = S + c·f·V² where V is known to rise past a knee that no measured step has reached."""

    @pytest.mark.parametrize("pool", [True, False])
    @pytest.mark.parametrize("way", WAYS)
    def test_the_world_is_projected(self, way, pool):
        rows = power(world(), voltages=WAYS[way], pool=pool)
        expected = np.array([truth(0), truth(1)])
        np.testing.assert_allclose(rows["projected"], expected, rtol=NEAR)
        assert (rows["lower"] < expected).all()
        assert (expected < rows["upper"]).all()

    def test_recorded_in_the_runs(self):
        # Another workload of each host was measured at the target, so its voltage is known.
        low = world().assign(workload="sort")
        all_steps = world(steps=(*STEPS, 2.0, 2.4)).assign(workload="grep")
        runs = pd.concat([low, all_steps]).assign(voltage_v=lambda r: volts(r["freq_ghz"]))
        rows = power(runs)
        rows = rows[rows["workload"] == "sort"]
        np.testing.assert_allclose(rows["projected"], [truth(0), truth(1)], rtol=NEAR)
        # Nor does the other workload stand in for this one.
        ignored = power(runs, voltages={}, pool=False)
        assert (ignored.loc[rows.index, "projected"] < 0.9 * rows["projected"]).all()
        plain = power(runs.drop(columns="voltage_v"), pool=False)
        np.testing.assert_allclose(ignored["projected"], plain["projected"], rtol=1e-9)

    def test_a_column_that_does_not_reach_the_target_is_not_used(self):
        unknown = power(world())["projected"]
        assert (unknown < 0.9 * np.array([truth(0), truth(1)])).all()
        runs = world().assign(voltage_v=lambda r: volts(r["freq_ghz"]))
        np.testing.assert_allclose(power(runs)["projected"], unknown, rtol=1e-9)
        given = power(runs.assign(voltage_v=0.9), voltages=KNEE)["projected"]
        np.testing.assert_allclose(given, [truth(0), truth(1)], rtol=NEAR)
        np.testing.assert_array_equal(power(world(), voltages={})["projected"], unknown)

    def test_each_host_has_its_own(self):
        steeper = {f: v**2 for f, v in KNEE.items()}
        runs = pd.concat([world(hosts=("a",)), world(hosts=("b",), table=steeper)])
        rows = power(runs, voltages=pd.concat([frame(host="a"), frame(steeper, host="b")]))
        expected = [truth(0), truth(0, table=steeper)]
        np.testing.assert_allclose(rows["projected"], expected, rtol=NEAR)

    def test_a_host_without_is_answered_as_if_there_were_none(self):
        given = (frame(host="a"), frame(), {})
        some, every, none = (power(world(), voltages=v, pool=False) for v in given)
        ends = ["projected", "lower", "upper"]
        # Quantiles are found to a small share of their distance.
        some, every, none = (table[ends].astype(float) for table in (some, every, none))
        np.testing.assert_allclose(some.loc[0], every.loc[0], rtol=1e-4)
        np.testing.assert_allclose(some.loc[1], none.loc[1], rtol=1e-4)

    def test_they_narrow_the_interval_and_energy_and_perf_per_watt_have_them_too(self):
        runs = world(noise=0.005).assign(time_s=lambda r: 10 + 20 / r["freq_ghz"])
        known, unknown = (power(runs, metric=None, voltages=v) for v in (KNEE, {}))
        watts = known["metric"] == "power"
        widths = [(rows["upper"] / rows["lower"])[watts] for rows in (known, unknown)]
        assert (widths[0] < widths[1]).all()
        more = (known["projected"] / unknown["projected"]).groupby(known["metric"]).median()
        assert more["time"] == pytest.approx(1)
        assert more["energy"] > 1.1
        assert more["perf_per_watt"] < 1 / 1.1

    def test_one_workload(self):
        points = world(hosts=("a",))
        pairs = [(g * GHZ, w) for g, w in zip(points["freq_ghz"], points["power_w"], strict=True)]
        asked = {"freq": 2.4e9, "power_pts": pairs, "power_source": "simulated"}
        cpi = [(0.8e9, 1.0), (1.6e9, 1.2)]
        known, empty, none = (answered(ppw.project_points, cpi, voltages=v, **asked) for v in VOLTS)
        assert float(known.power_w) == pytest.approx(truth(0), rel=NEAR)
        assert empty == none
        assert float(none.power_w) < 0.9 * truth(0)

    def test_validated(self):
        runs = world(steps=(*STEPS, 2.4))
        known, unknown = (answered(ppw.validate, runs, voltages=v) for v in (KNEE, {}))
        assert known.worst_error_pct() < 100 * NEAR
        assert unknown.worst_error_pct() > 10

    def test_by_least_squares(self):
        rows = power(world(), voltages=KNEE, interval="t")
        assert list(rows["projected"]) == pytest.approx([truth(0), truth(1)])
        for interval in ("t", "none"):
            with pytest.raises(PpwError, match="need one V-f table for all hosts"):
                power(world(), voltages=WAYS["frame by host"], interval=interval)


class TestRefusals:
    @pytest.mark.parametrize("given", [KNEE, frame()], ids=["mapping", "frame"])
    def test_a_target_that_a_given_table_does_not_reach_and_a_line_that_has_no_voltage(self, given):
        with pytest.raises(OutOfRangeError, match=r"no voltage is known at 3\.6 GHz"):
            ppw.project(world(), freq=3.6e9, metric="power", voltages=given)
        with pytest.raises(PpwError, match="works only with --power-form cmos"):
            ppw.project(world(), freq=2.4e9, voltages=given, power_form="linear")

    @pytest.mark.parametrize("interval", ["bayes", "t"])
    @pytest.mark.parametrize("call", ["project", "validate", "fit"])
    def test_a_frame_of_other_columns(self, call, interval):
        options = {"freq": 2.4e9} if call == "project" else {}
        options |= {} if call == "fit" else {"interval": interval}
        runs = world(steps=(*STEPS, 2.4))
        with pytest.raises(PpwError, match="needs the columns freq_hz and voltage_v"):
            getattr(ppw, call)(runs, voltages=frame().rename(columns={"voltage_v": "v"}), **options)
