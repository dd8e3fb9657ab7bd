"""The gate: how often it fails tables without excess, what it finds, and what it says."""

import numpy as np
import pandas as pd
import pytest
from made_up import answered
from processes import ppw_inside
from scipy import stats
from statsmodels.stats.multitest import multipletests

import ppw
from fitting.regression.variances import moderate_variances
from measurements.errors import BadRunsError
from ppw.decision import changes
from ppw.decision.changes import Limit, LimitError, _holm
from ppw.errors import PpwError

STEPS = np.array([1.2e9, 1.8e9, 2.4e9])
SLOWER = "time > 3%"
FIGURES = ("mean", "var", "size")


def side(change=0.0, runs=5, noise=0.02, seed=0, workloads=3, host="x1", steps=STEPS):
    """Runs of a side: time with a change, of each group or all, and log-normal noise."""
    rng = np.random.default_rng(seed)
    group = np.repeat(np.arange(workloads * len(steps)), runs)
    changes, sd = (np.resize(figure, workloads * len(steps))[group] for figure in (change, noise))
    work, hz = np.divmod(group, len(steps))[0], steps[group % len(steps)]
    time = (1 + work) * (2 + 20e9 / hz) * (1 + changes)
    table = pd.DataFrame({"host": host, "workload": [f"w{w}" for w in work], "freq_hz": hz})
    power = 40 + 20e-9 * hz
    return table.assign(
        time_s=time * np.exp(sd * rng.standard_normal(len(group))),
        power_w=power * np.exp(sd * rng.standard_normal(len(group))),
    )


def check(base, new, fail_if=SLOWER, **options):
    return answered(ppw.check_changes, base, new, fail_if=fail_if, **options)


def fails(result):
    return (result.table["verdict"] == "fails").to_numpy()


def share_that_fail(change, tables, at=slice(None), runs=(5, 5), noise=0.02):
    """Share of simulated tables of nine groups that fail, in any group or ``at`` one place."""
    rng, limit, found = np.random.default_rng(5), Limit.parse(SLOWER), []
    for _ in range(tables):
        cells = {"group": np.arange(9), "freq_hz": 2e9, "limit": limit.text}
        for name, count, shift in (("base", runs[0], 0.0), ("new", runs[1], change)):
            spread = np.resize(noise, 9)[:, None] * rng.standard_normal((9, count))
            logs = np.log1p(np.resize(shift, 9))[:, None] + spread
            figures = logs.mean(axis=1), logs.var(axis=1, ddof=1), np.full(9, float(count))
            cells |= {f"{f}_{name}": v for f, v in zip(FIGURES, figures, strict=True)}
        table = changes._judge(changes._estimate_changes(pd.DataFrame(cells)), [limit], 0.05)
        found.append((table["verdict"] == "fails").to_numpy()[at].any())
    return np.mean(found)


class TestErrorRates:
    def test_tables_at_the_limit_seldom_fail_and_a_real_regression_does(self):
        # A rate of 5 % shows more than 11 % of 100 tables in one case of 100.
        assert share_that_fail(0.03, 100) <= 0.11
        assert share_that_fail([0, 0, 0, 0, 0.1, 0, 0, 0, 0], 60, at=[4]) >= 0.88
        assert share_that_fail(0.10, 20) == 1

    @pytest.mark.parametrize("runs", [(2, 2), (20, 3)])
    def test_few_runs_and_noise_that_differs_by_group_do_not_fail(self, runs):
        noise = [0.02, 0.02, 0.02, 0.10, 0.02, 0.02, 0.02, 0.02, 0.02]
        assert share_that_fail(0.03, 50, runs=runs, noise=noise) <= 0.14

    def test_one_group_is_a_t_test_of_logarithms(self):
        base = side(workloads=1, steps=STEPS[:1])
        new = side(0.05, seed=1, workloads=1, steps=STEPS[:1])
        (row,) = check(base, new).table.to_dict("records")
        logs = np.log(base["time_s"]), np.log(new["time_s"])
        change = logs[1].mean() - logs[0].mean()
        assert row["change"] == pytest.approx(np.expm1(change))
        # With moderated variances of two samples: those of either alone, 4 degrees of freedom.
        error = np.sqrt(sum(one.var() / 5 for one in logs))
        assert row["p_over"] == pytest.approx(stats.t.cdf((change - np.log(1.03)) / error, 4))
        assert row["noise"] == pytest.approx(np.sqrt(np.mean([one.var() for one in logs])))

    def test_holm_and_the_moderation_of_variances(self):
        p = np.array([0.2, 0.001, np.nan, 0.02, 0.02])
        known = ~np.isnan(p)
        assert _holm(p)[known] == pytest.approx(multipletests(p[known], method="holm")[1])
        rng = np.random.default_rng(3)
        # True variances of one scale: each estimate is nearer to it than its own sample's.
        freedom = np.full(400, 4.0)
        own = rng.chisquare(4, 400) / 4
        moderate, more = moderate_variances(own, freedom)
        assert np.var(moderate) < 0.2 * np.var(own)
        assert (more > 20).all()
        # Of samples that differ a hundredfold each is its own.
        scale = np.exp(3 * rng.standard_normal(400))
        moderate, more = moderate_variances(scale * own, freedom)
        assert np.median(moderate / (scale * own)) == pytest.approx(1, abs=0.2)
        assert (more < 6).all()
        assert np.isnan(moderate_variances(np.full(3, np.nan), np.zeros(3))[0]).all()


class TestWhatIsSaid:
    def test_a_change_at_this_noise_cannot_be_told_and_the_runs_needed_decide_it(self):
        said = check(side(noise=0.05), side(0.01, noise=0.05, seed=1))
        row = said.table[said.table["verdict"] == "cannot tell"].iloc[0]
        more = int(row["measure_next"].split("measure ")[1].split(" ")[0])
        many = 5 + more
        decided = check(side(noise=0.05, runs=many), side(0.01, noise=0.05, seed=1, runs=many))
        assert (decided.table["verdict"] != "cannot tell").mean() > 0.6
        assert said.passed

    def test_one_run_a_side_cannot_tell_and_one_run_of_new_has_the_noise_of_base(self):
        found = check(side(runs=1), side(0.1, runs=1, seed=1))
        assert set(found.table["verdict"]) == {"cannot tell"}
        assert "no run is repeated" in found.table["measure_next"].iloc[0]
        found = check(side(runs=9), side(0.3, runs=1, seed=1))
        assert fails(found).all()
        assert any("new has no repeated run" in caveat for caveat in found.caveats)

    def test_runs_without_scatter_and_without_frequency(self):
        base, new = (side(c, noise=0).drop(columns="freq_hz") for c in (0, 0.1))
        base, new = (one[one["workload"] == "w0"].iloc[:2] for one in (base, new))
        assert fails(check(base, new)).all()
        assert check(base, base.copy()).table["verdict"].tolist() == ["passes"]

    def test_a_group_that_one_side_lacks_is_not_passed_over(self):
        found = check(side(workloads=3), side(workloads=2, seed=1))
        (lacking,) = found.table[found.table["workload"] == "w2"]["measure_next"].unique()
        assert lacking == "new has no run of it: measure it there"

    def test_other_host_names_describe_the_sides_and_several_hosts_are_paired(self):
        found = check(side(host="runner-17"), side(host="runner-23", seed=1))
        assert found.by == ("workload",)
        assert "base and new also differ in host: runner-17 against runner-23" in found.caveats
        two = [pd.concat([side(seed=s), side(seed=s + 1, host="x2")]) for s in (0, 2)]
        assert check(*two).by == ("host", "workload")
        others = two[1].replace({"host": {"x1": "y1", "x2": "y2"}})
        with pytest.raises(PpwError, match="give --by without host"):
            ppw.check_changes(two[0], others, fail_if=SLOWER)
        # Each host counts once where a side mixes several: two figures a side, of two hosts each.
        assert set(check(two[0], others, by=["workload"]).table["runs_base"]) == {2}

    def test_a_thousandfold_time_fails_though_it_looks_like_a_wrong_unit(self):
        new = side(seed=1)
        new.loc[(new["workload"] == "w1") & (new["freq_hz"] == 2.4e9), "time_s"] *= 1000
        found = check(side(), new)
        assert found.table[fails(found)]["workload"].tolist() == ["w1"]
        assert any("they count here" in caveat for caveat in found.caveats)

    def test_an_outlier_does_not_fail_a_table(self):
        new = side(seed=1)
        new.loc[7, "time_s"] *= 1.5
        assert not fails(check(side(), new)).any()

    def test_sides_without_a_common_frequency_are_compared_by_their_curves(self):
        new = side(0.2, seed=1, steps=np.array([1.4e9, 2.0e9, 2.2e9]))
        found = check(side(), new)
        assert fails(found).all()
        assert set(found.table["freq_hz"]) == {2.2e9}
        assert found.table["change"].to_numpy() == pytest.approx(0.2, abs=0.05)

    @pytest.mark.parametrize("cell", [0.0, np.nan])
    def test_a_cell_that_is_zero_or_missing_is_an_error_not_a_pass(self, cell):
        new = side(seed=1)
        new.loc[3, "time_s"] = cell
        with pytest.raises(BadRunsError, match="row 4"):
            ppw.check_changes(side(), new, fail_if=SLOWER)
        new = side(seed=1).assign(queue=[cell, *[1.0] * 44])
        with pytest.raises((BadRunsError, PpwError), match="row 1"):
            ppw.check_changes(side().assign(queue=1.0), new, fail_if="queue > 3%")

    def test_power_of_another_scope_is_refused(self):
        base, new = (side(seed=s).assign(power_source=n) for s, n in enumerate(("rapl", "meter")))
        with pytest.raises(PpwError, match="power of base is of package, that of new of wall"):
            ppw.check_changes(base, new, fail_if="energy > 5%")

    @pytest.mark.cases(
        "limit, told",
        ("time", "write 'time > 3%'"),
        ("time > 3", "write 3% for percent"),
        ("tiem > 3%", "did you mean 'time'"),
        ("time < 3%", "would fail where time gets better: write 'time > 3%'"),
        ("throughput > 3%", "write 'throughput < -3%'"),
        ("throughput < -3%", "base has no throughput_ops_s: measure it"),
        ("latency_p99_s < -100%", "no metric falls by 100 %"),
    )
    def test_a_bad_limit_is_told_with_what_to_write(self, limit, told):
        with pytest.raises(LimitError, match=f"{limit!r}") as error:
            ppw.check_changes(side(), side(seed=1), fail_if=limit)
        assert told in str(error.value)


class TestCommand:
    @pytest.fixture
    def folder(self, tmp_path):
        for name, change in (("base", 0), ("new", [0, 0.1, 0, 0, 0, 0, 0, 0, 0])):
            side(change, seed=len(name), host=name).to_csv(tmp_path / f"{name}.csv", index=False)
        pd.concat(
            [side(host="x1"), side(0.2, host="x2", seed=1), side(0.2, host="x3", seed=2)]
        ).to_csv(tmp_path / "both.csv", index=False)
        return tmp_path

    def test_two_tables(self, folder):
        words = ("compare", "base.csv", "new.csv", "--fail-if", SLOWER, "--fail-if", "energy>50%")
        done = ppw_inside(*words, cwd=folder)
        assert done.returncode == 3
        assert done.stderr.startswith("ppw: check failed: time > 3%, w0, 1.8 GHz: changed by +")
        assert "18 comparisons: 1 fail, " in done.stdout
        done = ppw_inside(*words[:3], "--fail-if", "time > 30%", "-o", "gate.md", cwd=folder)
        assert done.returncode == 0
        report = (folder / "gate.md").read_text()
        assert report.startswith("**Of 9 comparisons with time > 30%: 9 pass.**\n\n- ")
        assert report.count("| passes |") == 9

    def test_two_sides_of_one_table(self, folder):
        words = ("compare", "both.csv", "--a", "host=x1", "--b", "host=x2,host=x3")
        done = ppw_inside(*words, "--fail-if", SLOWER, "--by", "workload", cwd=folder)
        assert done.returncode == 3
        done = ppw_inside(*words, "--draws", "200", cwd=folder)
        assert "B is 2 values of host: one curve goes through the runs of x2 and x3" in done.stdout

    @pytest.mark.cases(
        "words, code, told",
        (("new.csv", "--fail-if", "tiem > 3%"), 2, "did you mean 'time'"),
        (("new.csv", "--fail-if", SLOWER, "--draws", "200"), 2, "--draws has no effect"),
        (("new.csv", "--confidence", "0.9"), 2, "--confidence has no effect without --fail-if"),
        (("base.csv", "--fail-if", SLOWER), 1, "all runs are of base.csv"),
        (("--fail-if", SLOWER), 2, "Missing option '--a'"),
    )
    def test_what_is_refused(self, folder, words, code, told):
        done = ppw_inside("compare", "base.csv", *words, cwd=folder)
        assert done.returncode == code
        assert told in done.stderr
