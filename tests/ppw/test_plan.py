"""`ppw.plan` and `ppw plan`: the next measurement, and that it pays to follow the advice."""

import functools
import io
import json

import numpy as np
import pandas as pd
import pytest
from made_up import answered, ignore_caveats, only, sweep
from processes import ppw_inside, refused

import ppw
from fitting.bayes.posterior import error_covariance
from fitting.bayes.priors import DynamicShare, DynamicSharePrior, StalledShare, StalledSharePrior
from ppw.catalogue.hosts import host_steps
from ppw.errors import PpwError

STEPS, SEVEN = "1.2GHz:2.4GHz:0.4GHz", "1.2GHz:2.4GHz:0.2GHz"


def plan(runs, **options):
    return answered(ppw.plan, runs, **{"steps": STEPS, "repeats": (1, 5), **options})


def one(**options):
    wanted = {"workloads": ("sort",), "steps": (1.2, 1.6, 2.0), "noise": 0.003, "repeats": 3}
    return sweep(**{**wanted, **options})


def row(result):
    (found,) = result.groups.to_dict(orient="records")
    return found


class TestAnswers:
    def test_the_present_is_the_interval_of_a_projection(self):
        runs = sweep(steps=(1.2, 1.6, 2.0))
        result = plan(runs, freq="3GHz")
        projected = answered(ppw.project, runs, freq="3GHz", metric="perf_per_watt").table
        expected = 100 * (np.sqrt(projected["upper"] / projected["lower"]) - 1)
        # Quantiles are those of mixtures that both have cut, each in its own way.
        assert list(result.groups["half_width_pct"]) == pytest.approx(list(expected), rel=0.08)

    def test_every_candidate_is_ranked_with_its_cost(self):
        result = plan(one(), steps=SEVEN, repeats=(1, 4), run_time_minutes=10)
        table = result.to_frame()
        assert list(table["rank"]) == list(range(1, 15))
        assert set(zip(table["freq_hz"].round(-5), table["runs"], strict=True)) == {
            (round(1.2e9 + 2e8 * i, -5), r) for i in range(7) for r in (1, 4)
        }
        assert (table["minutes"] == 10 * table["runs"]).all()
        assert list(table["recommended"]) == [True] + [False] * 13
        assert (np.diff(table["half_width_pct"][1:]) >= 0).all()
        assert table["chance"].between(0, 1).all()
        usual = answered(ppw.plan, one(), steps=STEPS).table
        assert set(usual["runs"]) == {1, 2, 3, 5}

    def test_the_step_nearest_to_the_target_is_next(self):
        found = row(plan(one(), freq="3GHz", within=3))
        assert (found["next_freq_hz"], found["next_runs"]) == (2.4e9, 1)
        assert found["next_half_width_pct"] < 0.7 * found["half_width_pct"]

    def test_already_there(self):
        result = plan(one(), freq="2.1GHz", within=20)
        found = row(result)
        assert (found["status"], found["runs_to_goal"]) == ("there", 0)
        assert np.isnan(found["next_freq_hz"])
        assert "already there: ±" in result.summary()
        assert not result.table["recommended"].any()

    def test_the_goal_is_reached_in_some_runs(self):
        result = plan(one(), freq="3GHz", within=7, run_time_minutes=10)
        found = row(result)
        assert found["status"] == "reach"
        assert found["runs_to_goal"] >= found["next_runs"] >= 1
        assert found["minutes_to_goal"] == 10 * found["runs_to_goal"]
        assert "should reach ±7 %" in found["advice"]

    def test_model_error_stands_in_the_way(self):
        found = row(plan(one(), freq="4GHz", within=1))
        assert found["status"] == "cannot"
        assert found["form_pct"] > found["noise_pct"]
        least = f"±{found['attainable_half_width_pct']:.3g} %"
        assert f"±1 % cannot be reached by steps up to 2.4 GHz: 5 runs at each leave about {least}"
        assert f"measure nearer to 4 GHz, or accept {least}." in found["advice"]
        assert np.isnan([found[c] for c in ("runs_to_goal", "next_freq_hz", "next_runs")]).all()
        assert found["advice"].startswith("measure nothing more for this: ±")

    def test_noise_stands_in_the_way(self):
        found = row(plan(one(noise=0.05), freq="2.4GHz", within=1))
        assert found["status"] == "cannot"
        assert "ask for the mean of more runs there" in found["advice"]
        mean = row(plan(one(noise=0.05), freq="2.4GHz", within=1, target_runs=20))
        assert mean["attainable_half_width_pct"] < 0.9 * found["attainable_half_width_pct"]

    def test_the_target_itself_is_the_way_where_it_is_a_step(self):
        found = row(plan(one(), freq="2.4GHz", within=2))
        assert found["next_freq_hz"] == pytest.approx(2.4e9)
        why = "which is what you ask for: measure it, and no projection is needed"
        assert why in found["advice"]
        other = plan(one(), steps=SEVEN, freq="2.4GHz", within=2, at_target=False)
        assert not other.table["at_target"].any()
        assert row(other)["next_freq_hz"] == pytest.approx(2.2e9)

    def test_a_budget_is_kept(self):
        asked = {"freq": "3GHz", "run_time_minutes": 10, "steps": SEVEN}
        result = plan(one(), **asked, repeats=(1, 2, 3), budget_minutes=25)
        assert result.table["minutes"].max() == 20
        found = row(plan(one(), **asked, budget_minutes=10))
        between = (found["attainable_half_width_pct"] + found["next_half_width_pct"]) / 2
        short = row(plan(one(), **asked, within=between, budget_minutes=10))
        assert short["status"] == "budget"
        assert "the budget ends at about ±" in short["advice"]
        assert "after 1 run, short of ±" in short["advice"]

    def test_other_metrics(self):
        for metric in ("time", "cpi", "power", "energy"):
            found = plan(one(), metric=metric, repeats=(1,))
            assert found.table["half_width_pct"].gt(0).all()

    def test_voltages_of_the_column_are_used(self):
        runs = one()
        volts = runs.assign(voltage_v=0.6 + 0.2 * runs["freq_ghz"])
        for table in (volts, runs):
            table["power_w"] *= 0.2 + volts["voltage_v"] ** 2
        asked = {"metric": "power", "freq": "1.8GHz"}
        with_table, without = (row(plan(r, **asked))["half_width_pct"] for r in (volts, runs))
        assert with_table != pytest.approx(without, rel=0.01)

    def test_a_run_of_a_shorter_program_of_the_host_is_told_with_what_it_leaves(self):
        runs = sweep(steps=(1.2, 1.6, 2.0), noise=0.003, repeats=3)
        measured = sweep(steps=(1.2, 1.6, 2.0, 2.6), noise=0.003, repeats=3)
        seconds = runs.groupby("workload")["time_s"].mean()
        shortest = str(seconds.idxmin())
        asked = {"freq": "2.6GHz", "metric": "power"}
        advice = plan(runs, steps=[2.6e9], **asked).groups.set_index("workload")["advice"]
        for workload in seconds.index.drop(shortest):
            said = f"; a run of {shortest} at 2.6 GHz, in place of its own, leaves about ±"
            left = float(advice[workload].split(said)[1].split(" %")[0])
            others = measured[(measured["workload"] == shortest) | (measured["freq_ghz"] < 2.5)]
            table = answered(ppw.project, others, **asked).table.set_index("workload")
            one = table.loc[workload]
            # An expectation over hosts: on one whose law holds to a hair less is left.
            assert 0.5 < left / (100 * (np.sqrt(one["upper"] / one["lower"]) - 1)) < 2
        # What was not measured at the target cannot stand in where no run there is allowed.
        refused = plan(runs, steps=[2.2e9, 2.6e9], at_target=False, **asked).groups["advice"]
        assert not refused.str.contains("in place of its own").any()

    def test_the_seed_decides_and_the_order_of_the_rows_does_not(self):
        shuffled = one().sample(frac=1, random_state=1)
        first, again, other = (
            plan(runs, seed=seed, repeats=(1,)).to_json()
            for runs, seed in ((one(), 0), (shuffled, 0), (one(), 1))
        )
        assert first == again != other


def test_the_catalogue_knows_the_steps_of_some_hosts_and_the_runs_those_of_others():
    result = plan(one(host="Xeon E5-2690"), steps=None, repeats=(1,))
    known = host_steps(ppw.find_host("Xeon E5-2690"))
    assert set(result.table["freq_hz"]) == set(known)
    for runs in (one(), one().drop(columns="host")):
        assert set(plan(runs, steps=None).table["freq_hz"]) == {1.2e9, 1.6e9, 2e9}


class TestRefusals:
    @pytest.mark.cases(
        "options, said",
        ({"within": 0}, "within 0 must be greater than 0"),
        ({"level": 1.0}, "interval level"),
        ({"repeats": ()}, "no number of repeats"),
        ({"repeats": (0, 1)}, "repeats 0 is not a whole number"),
        ({"target_runs": 1.5}, "target runs 1.5"),
        ({"budget_minutes": 60}, "give --run-time"),
        ({"budget_minutes": 5, "run_time_minutes": 10}, "does not fit into the budget"),
        ({"metric": "speed"}, "no metric 'speed'"),
        ({"steps": ["3GHz"], "at_target": False}, "the only step is the frequency asked for"),
    )
    def test_arguments(self, options, said):
        with pytest.raises(PpwError, match=said):
            ppw.plan(one(), **{"steps": STEPS, **options})

    def test_a_group_without_the_metric_is_left_out(self):
        runs = sweep(steps=(1.2, 1.6), workloads=("grep", "sort"))
        runs.loc[runs["workload"] == "grep", "power_w"] = np.nan
        result = plan(runs)
        assert list(result.groups["workload"]) == ["sort"]
        assert only(result.caveats, "1 of 2 groups left out")
        assert not plan(runs[runs["workload"] == "sort"]).caveats

    def test_suspect_rows_are_left_out_as_from_a_projection(self):
        runs = one(repeats=1, steps=(1.2, 1.4, 1.6, 1.8, 2.0)).drop(columns=["cycles"])
        runs.loc[4, ["time_s", "power_w"]] = runs.loc[3, ["time_s", "power_w"]]
        with_all, without = (row(plan(runs, keep_all=k))["half_width_pct"] for k in (True, False))
        assert with_all != pytest.approx(without, rel=0.01)

    def test_one_frequency_has_a_plan_with_a_caveat(self):
        result = plan(one(steps=(1.2,)))
        assert row(result)["status"] != "there"
        assert only(result.caveats, "1 of 1 groups were measured at one frequency only")


def test_a_figure_has_a_line_for_each_number_of_repeats():
    axes = plan(one(steps=(1.2, 1.6)), repeats=(1, 4)).plot()
    assert len(axes.get_legend().get_texts()) == 2


@pytest.fixture
def run(tmp_path):
    one(noise=0.002).round(4).to_csv(tmp_path / "runs.csv", index=False)
    return functools.partial(ppw_inside, "plan", "runs.csv", cwd=tmp_path)


ASKED = ("--freq", "3.0GHz", "--within", "7", "--steps", STEPS, "--run-time", "10min")


class TestCommandLine:
    def test_every_format(self, run):
        """The text is that of golden/plan.txt."""
        forms = "json", "csv", "html"
        asked = *ASKED, "--not-at-target", "--repeats", "1,2", "--format"
        done = [run(*asked, form) for form in forms]
        assert {(d.returncode, d.stderr) for d in done} == {(0, "")}
        document, table, page = (d.stdout for d in done)
        assert json.loads(document)["within_pct"] == 7
        assert ppw.Plan.from_json(document).to_json() == document.rstrip("\n")
        assert pd.read_csv(io.StringIO(table))["half_width_pct"].gt(0).tolist() == [True] * 8
        assert "Measure 1 × 2.4 GHz" in page

    @pytest.mark.cases(
        "arguments, code, said",
        (["--freq", "3GHz,4GHz", "--steps", STEPS], 2, "a plan is for one, and 2 were given"),
        (["--freq", "3GHz", "--metric", "time,power"], 2, "--metric: a plan is for one"),
        (["--steps", STEPS], 2, "--freq"),
        ([*ASKED, "--budget", "5min"], 1, "does not fit into the budget"),
    )
    def test_refusals(self, run, arguments, code, said):
        refused(run(*arguments), said, code=code)


GHZ = np.arange(1.2, 2.41, 0.2).round(1)
TARGET, MOST, MACHINES = 2.8e9, 12, 5
# What is wanted of each machine, in units of what a whole sweep leaves: neither the priors nor
# the noise of a machine decide whether it can be had.
WANTED = 1.25


def drawn(law, random):
    """One curve of a law's prior with its model error: ln y at the steps, and its noise."""
    grid = law.grid
    prior = (grid.shape_weight[0][:, None] * grid.noise_weight).ravel()
    cell = random.choice(prior.size, p=prior / prior.sum())
    shape, scale = divmod(cell, len(grid.noise))
    u = np.log(GHZ / GHZ[-1])
    root = np.linalg.cholesky(error_covariance(u[:, None], u) + 1e-12 * np.eye(len(u)))
    curve = law.log_shape(1e9 * GHZ[None], np.zeros(1, dtype=np.int64))[0, :, shape]
    drift = grid.drift[shape, scale] * root @ random.normal(size=len(u))
    return curve + drift, grid.noise[scale]


class Machine:
    """A simulated machine: what it measures at a step does not depend on who asks, or when."""

    def __init__(self, seed, steps):
        random, top = np.random.default_rng((2012, seed)), 1e9 * GHZ[-1:]
        self.seed, self.runs = seed, []
        self.curves = [
            drawn(StalledShare(top, StalledSharePrior(noise=0.002)), random),
            drawn(DynamicShare(top, np.ones(1), DynamicSharePrior(noise=0.003)), random),
        ]
        for step in steps:
            self.measure(step)

    def measure(self, step):
        before = sum(r["freq_ghz"] == GHZ[step] for r in self.runs)
        shared = np.random.default_rng((1, self.seed, step)).normal(size=2)
        own = np.random.default_rng((2, self.seed, step, before)).normal(size=2)
        time, watts = (
            np.exp(curve[step] + noise * np.sqrt(0.5) * (a + b))
            for (curve, noise), a, b in zip(self.curves, shared, own, strict=True)
        )
        self.runs.append({"freq_ghz": GHZ[step], "time_s": 60 * time, "power_w": 80 * watts})

    def table(self):
        return pd.DataFrame(self.runs).assign(power_source="simulated")

    def half_width(self):
        projected = ppw.project(self.table(), freq=TARGET, metric="perf_per_watt").table
        return 100 * (np.sqrt(projected["upper"] / projected["lower"]).item() - 1)


def advised(machine, within):
    # With a budget of one run the plan looks no further ahead than the next.
    asked = {"repeats": (1,), "run_time_minutes": 1, "budget_minutes": 1, "within": within}
    result = ppw.plan(machine.table(), freq=TARGET, steps=1e9 * GHZ, **asked)
    return int(np.argmin(np.abs(1e9 * GHZ - result.table["freq_hz"].iloc[0])))


def upwards(machine, within):
    return len(machine.runs) % len(GHZ)


def runs_needed(policy, seed, within):
    """Runs until the interval is as narrow as wanted, the first two at the lowest steps."""
    machine = Machine(seed, (0, 1))
    while machine.half_width() > within and len(machine.runs) < MOST:
        machine.measure(policy(machine, within))
    return len(machine.runs)


@ignore_caveats
def test_the_advice_takes_fewer_runs_than_a_uniform_sweep():
    whole = [Machine(seed, range(len(GHZ))) for seed in range(MACHINES)]
    goals = [WANTED * machine.half_width() for machine in whole]
    by_advice, by_sweep = (
        np.array([runs_needed(policy, *goal) for goal in enumerate(goals)])
        for policy in (advised, upwards)
    )
    assert by_advice.mean() < 0.9 * by_sweep.mean(), (goals, by_advice, by_sweep)
