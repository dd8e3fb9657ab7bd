"""Who is best and how surely, what moves it, where it turns: against what is known otherwise."""

from __future__ import annotations

import copy
import json

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from made_up import GHZ, WORK, answered, only, sweep
from procurement_scenarios import asked, documented, ranged, scenario, server

import ppw
from ppw.curve_draws import FEWEST_DRAWS
from ppw.efficiency import break_even_price_ratio, per_dollar_ratio, per_watt_ratio
from ppw.errors import PpwError
from ppw.procurement import words
from ppw.procurement.procure import procure
from ppw.procurement.ranking import on_front, share_best
from ppw.procurement.result import Procurement
from ppw.published import POWER_RATIO, THROUGHPUT_RATIO


def published(price_ratio, **parts):
    """Memcached on Atom (taken as 1) and Westmere, by the ratios of Issa & Figueira 2012."""
    atom = server("Atom", rate=100.0, power=30.0, idle=20.0, price=400.0)
    westmere = server(
        "WSM",
        rate=100.0 * THROUGHPUT_RATIO,
        power=30.0 * POWER_RATIO,
        idle=100.0,
        price=400.0 * price_ratio,
    )
    table = scenario(atom, westmere, workload={"name": "memcached", "rate": 1e5}, **parts)
    for candidate in table["candidate"]:
        candidate["workload"] = {"memcached": candidate["workload"]["work"]}
    return table


def ratio(result, figure):
    values = [result.figure(name, figure)["value"] for name in ("WSM", "Atom")]
    return values[0] / values[1]


class TestPublishedArithmetic:
    def test_throughput_ratio_14_79_and_power_ratio_5_9_give_2_51_in_perf_per_watt(self):
        assert (THROUGHPUT_RATIO, POWER_RATIO) == (14.79, 5.9)
        assert round(per_watt_ratio(14.79, 5.9), 2) == 2.51
        assert round(ratio(asked(published(10.0)), "perf_per_watt"), 2) == 2.51

    def test_perf_per_watt_is_speed_up_over_power_ratio(self):
        result = asked(published(10.0))
        assert ratio(result, "perf_per_watt") == pytest.approx(14.79 / 5.9)

    @pytest.mark.parametrize("price_ratio", [3.0, 14.79, 20.0])
    def test_perf_per_dollar_is_speed_up_over_cost_ratio(self, price_ratio):
        result = asked(published(price_ratio))
        assert ratio(result, "perf_per_dollar") == pytest.approx(14.79 / price_ratio)
        assert per_dollar_ratio(14.79, price_ratio) == pytest.approx(14.79 / price_ratio)

    @pytest.mark.parametrize(
        ("price_ratio", "per_dollar"),
        [(14.0, "WSM"), (14.78, "WSM"), (14.80, "Atom"), (16, "Atom")],
    )
    def test_wsm_is_better_per_watt_and_atom_per_dollar_above_a_price_ratio_of_14_79(
        self, price_ratio, per_dollar
    ):
        result = asked(published(price_ratio))
        best = result.figures[result.figures["p_best"] == 1].set_index("figure")["candidate"]
        assert best["perf_per_watt"] == "WSM"
        assert best["perf_per_dollar"] == per_dollar

    def test_the_price_at_which_they_tie_is_14_79_times_the_atoms(self):
        result = asked(published(10.0))
        row = tie(result, "performance per price", f"candidate.{result.cheapest}.price")
        other = 400.0 if result.cheapest == "WSM" else 4000.0
        ties = row["value"] / other
        expected = break_even_price_ratio(14.79)
        assert ties == pytest.approx(expected if result.cheapest == "WSM" else 1 / expected)


def tie(result, criterion, key):
    rows = result.crossovers
    (row,) = rows[(rows["criterion"] == criterion) & (rows["key"] == key)].to_dict("records")
    return row


class TestProbabilities:
    def test_of_two_triangular_prices_by_their_exact_overlap(self):
        # P(a < b) for a on [1000, 1400] with its top at 1400 and b on [1000, 1400] at 1000: of two
        # right triangles that face each other 1/6.
        table = scenario(
            server("a", price=ranged(1400.0, 1000.0, 1400.0)),
            server("b", price=ranged(1000.0, 1000.0, 1400.0)),
        )
        result = asked(table, draws=20_000)
        assert result.figure("a", "tco")["p_best"] == pytest.approx(1 / 6, abs=0.01)
        assert result.figures.groupby("figure")["p_best"].sum().to_numpy() == pytest.approx(1.0)

    def test_what_is_common_makes_nobody_better(self):
        dear = server("dear", price=1000.01)
        site = {"electricity": ranged(0.2, 0.01, 2.0), "pue": ranged(1.4, 1.1, 2.0)}
        result = asked(scenario(server("one"), dear, site=site, demand={"years": 6}))
        row = result.figure("one", "tco")
        assert row["upper"] > 2 * row["lower"]
        assert row["p_best"] == 1

    def test_candidates_that_are_the_same_share_their_draws(self):
        result = asked(scenario(server("one"), server("same"), server("dear", price=5000.0)))
        shares = [result.figure(n, "tco")["p_best"] for n in ("one", "same", "dear")]
        assert shares == [0.5, 0.5, 0.0]

    @given(
        values=st.lists(st.lists(st.floats(0, 10), min_size=4, max_size=4), min_size=1, max_size=5),
        more=st.booleans(),
    )
    def test_shares_are_of_a_whole_and_go_to_the_best(self, values, more):
        drawn = np.array(values)
        shares = share_best(drawn, np.ones_like(drawn, dtype=bool), more)
        assert shares.sum() == pytest.approx(1)
        best = drawn.max(axis=0) if more else drawn.min(axis=0)
        assert ((shares > 0) == (drawn == best).any(axis=1)).all()

    def test_an_unknown_value_tells_nothing(self):
        drawn = np.array([[1.0, 2.0], [np.nan, 1.0]])
        fits = np.ones((2, 2), dtype=bool)
        assert share_best(drawn, fits, False).tolist() == [0.0, 1.0]
        assert share_best(drawn, np.array([[True, True], [False, False]]), False).tolist() == [1, 0]
        assert np.isnan(share_best(np.full((2, 2), np.nan), fits, False)).all()

    @given(costs=st.lists(st.tuples(st.integers(0, 4), st.integers(0, 4)), min_size=1, max_size=6))
    def test_the_front_is_who_no_other_beats(self, costs):
        drawn = np.array(costs, dtype=float).T[:, :, None]
        found = on_front(drawn, np.ones(drawn.shape[1:], dtype=bool))[:, 0]
        for i, one in enumerate(costs):
            beaten = any(
                other[0] <= one[0] and other[1] <= one[1] and other != one for other in costs
            )
            assert found[i] == (not beaten)


def edited(table, key, value):
    """Scenario with one figure, by its key in the answer, at another value."""
    table = copy.deepcopy(table)
    parts = key.split(".")
    if parts[0] in ("demand", "site", "costs"):
        table[parts[0]][parts[1]] = value
        return table
    place = next(entry for entry in table[parts[0]] if entry["name"] == parts[1])
    for part in parts[2:-1]:
        place = place[part]
    place[parts[-1]] = value
    return table


def lead(result, rival):
    """How much more the rival costs than the cheapest of the first answer."""
    costs = result.costs.set_index("candidate")["tco"]
    return costs[rival] - costs[next(n for n in costs.index if n != rival)]


@pytest.fixture(scope="module")
def worked():
    return asked(documented())


class TestWhereItTurns:
    """A tie that is typed into the scenario must be one."""

    def test_every_straight_tie_is_a_tie(self, worked):
        rows = worked.crossovers[worked.crossovers["criterion"] == "total cost"]
        straight = rows[rows["p_tie"].notna()]
        assert len(straight) >= 2
        for row in straight.to_dict(orient="records"):
            result = asked(edited(documented(), row["key"], row["value"]))
            # To the cents that the parts are rounded to.
            assert lead(result, "large") == pytest.approx(0.0, abs=0.1), row["what"]

    def test_every_followed_one_changes_who_is_ahead(self, worked):
        rows = worked.crossovers[worked.crossovers["p_tie"].isna()]
        assert len(rows) >= 1
        for row in rows.to_dict(orient="records"):
            before, beyond = (
                lead(asked(edited(documented(), row["key"], row["value"] * f)), "large")
                for f in ((1.0001, 0.9999) if row["value"] < row["now"] else (0.9999, 1.0001))
            )
            assert before > 0 > beyond, row["what"]
            assert row["beyond"] == "large"

    def test_electricity_by_hand(self):
        # One year, one server each: 1000 + 0.876·W·e against 1300 + 0.876·w·e.
        table = scenario(
            server("hungry", rate=2000.0, power=300.0, idle=100.0),
            server("frugal", rate=2000.0, power=200.0, idle=60.0, price=1300.0),
            site={"electricity": ranged(0.2, 0.1, 0.4), "pue": 1.5},
        )
        result = asked(table)
        watts = 200.0, 130.0
        expected = 300.0 / (1.5 * 8.76 * (watts[0] - watts[1]))
        row = tie(result, "total cost", "site.electricity")
        assert result.cheapest == "hungry"
        assert row["value"] == pytest.approx(expected)
        # Nothing but the electricity is uncertain, so that its tie is not.
        assert np.isnan([row["lower"], row["upper"]]).all()
        assert (row["beyond"], row["p_tie"]) == ("frugal", 1.0)

    def test_years_until_a_dear_one_has_paid(self):
        table = scenario(
            server("cheap", rate=2000.0, power=300.0, idle=200.0),
            server("dear", rate=2000.0, power=100.0, idle=50.0, price=1600.0),
            demand={"years": 2},
        )
        result = asked(table)
        # 175 W less, which is 153.30 a year: 600 in 3.9 years.
        saved = (250 - 75) * 8.76 * 0.1
        years = int(np.ceil(600 / saved))
        row = tie(result, "total cost", "demand.years")
        assert (result.cheapest, row["value"], row["beyond"]) == ("cheap", years, "dear")
        table["demand"]["years"] = years
        assert asked(table).cheapest == "dear"
        assert words.turn(row) == f"{years} years in place of 2, where dear costs less"

    def test_interval_of_a_price_tie_is_that_of_the_rivals_range(self):
        table = scenario(
            server("one", rate=2000.0), server("two", rate=2000.0, price=ranged(2000.0, 1800, 2400))
        )
        row = tie(asked(table, draws=4000), "total cost", "candidate.one.price")
        exact = np.quantile(
            np.random.default_rng(5).triangular(1800, 2000, 2400, 400_000), [0.5, 0.05, 0.95]
        )
        assert [row["value"], row["lower"], row["upper"]] == pytest.approx(exact, rel=0.01)

    def test_one_candidate_has_no_ties(self):
        result = asked(scenario(server("one")))
        assert result.crossovers.empty
        assert result.runner_up is None
        assert len(result.sensitivities) > 1
        assert "costs least" not in result.summary()


class TestWhatMovesIt:
    def test_each_end_is_the_answer_with_that_figure(self, worked):
        rows = worked.sensitivities[worked.sensitivities["key"] != "demand.years"]
        for row in rows.head(8).to_dict(orient="records"):
            for end in ("low", "high"):
                moved = asked(edited(documented(), row["key"], row[end]))
                assert moved.cheapest == row[f"cheapest_at_{end}"]
                assert lead(moved, "large") == pytest.approx(row[f"apart_at_{end}"], abs=0.1)
            assert row["range"] == "±20%"

    def test_years_too(self, worked):
        (row,) = worked.sensitivities[worked.sensitivities["key"] == "demand.years"].to_dict(
            "records"
        )
        for end in ("low", "high"):
            moved = asked(edited(documented(), "demand.years", int(row[end])))
            assert lead(moved, "large") == pytest.approx(row[f"apart_at_{end}"], abs=0.1)

    def test_widest_first_and_what_changes_the_answer_is_marked(self):
        table = scenario(
            server("one", rate=2000.0),
            server("two", rate=2000.0, price=ranged(1100.0, 900.0, 1200.0)),
        )
        rows = asked(table).sensitivities
        swing = (rows["apart_at_high"] - rows["apart_at_low"]).abs()
        assert swing.is_monotonic_decreasing
        by_key = rows.set_index("key")
        assert by_key.loc["candidate.two.price", "range"] == "given"
        assert by_key.loc["candidate.two.price", "changes"]
        assert by_key.loc["candidate.two.price", "cheapest_at_low"] == "two"
        assert "site.pue" not in by_key.index

    def test_bounds_are_kept(self):
        table = scenario(
            server("one", idle=190.0), server("two", rate=300.0), demand={"profile": [1, 0.5]}
        )
        rows = asked(table).sensitivities
        by_key = rows.set_index("key")
        idle = by_key.loc["candidate.one.idle_power"]
        assert (idle["low"], idle["high"]) == (152.0, 200.0)

    def test_what_to_learn_next_has_most_of_the_variance(self):
        table = scenario(
            server("one", rate=2000.0, price=ranged(1000.0, 900.0, 1100.0)),
            server("two", rate=2000.0, price=ranged(1010.0, 700.0, 1320.0)),
        )
        result = asked(table, draws=4000)
        widths = np.array([200.0, 620.0]) ** 2
        first, second = result.learn_next
        assert first == f"price of two ({widths[1] / widths.sum():.0%} of the variance)"
        assert second.startswith("price of one (")
        assert only(result.caveats, "undecided").startswith("undecided: no candidate costs least")
        assert result.verdict()[-1] == f"What to learn next: {first}, then {second}."

    def test_where_it_is_decided_there_is_nothing_to_learn(self, worked):
        assert worked.learn_next == ()


def two_hosts(**more):
    one = sweep(noise=0.01, seed=1, host="rack1")
    other = sweep(noise=0.01, seed=2, host="rack2").assign(price=5000.0)
    other["time_s"] /= 1.6
    frame = pd.concat([one, other]).assign(idle_power_w=15.0, power_source="meter:wt310")
    return frame.assign(**more)


def measured(tmp_path, frame, *candidates, workloads=("sort",), **parts):
    """Scenario of runs in a file beside it."""
    frame.to_csv(tmp_path / "runs.csv", index=False)
    table = scenario(*candidates, **parts)
    table["workload"] = [{"name": w, "unit": "jobs", "rate": 5.0} for w in workloads]
    for candidate in table["candidate"]:
        candidate["runs"] = str(tmp_path / "runs.csv")
    return table


def rack(name, **more):
    return {"name": name, "where": {"host": name.split()[0]}, **more}


def inputs_of(result):
    return result.inputs.set_index("key")


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    table = measured(
        tmp_path_factory.mktemp("runs"),
        two_hosts(),
        rack("rack1"),
        rack("rack1 at 3.0 GHz", freq="3.0GHz"),
        rack("rack2"),
        workloads=("sort", "wc"),
    )
    return asked(table, draws=1000)


class TestCandidatesFromRuns:
    @pytest.mark.parametrize(
        ("name", "ghz", "faster"),
        [("rack1", 2.4, 1), ("rack1 at 3.0 GHz", 3.0, 1), ("rack2", 2.4, 1.6)],
    )
    @pytest.mark.parametrize("workload", ["sort", "wc"])
    def test_rates_and_watts_are_those_that_were_put_in(self, answer, name, ghz, faster, workload):
        fixed, work = WORK[workload]
        figures = inputs_of(answer)
        rate = figures.loc[f"candidate.{name}.workload.{workload}.rate"]
        watts = figures.loc[f"candidate.{name}.workload.{workload}.power"]
        true = faster / (fixed + work / (ghz * GHZ))
        assert rate["low"] < true < rate["high"]
        assert rate["value"] == pytest.approx(true, rel=0.03)
        assert watts["low"] < 20 + 15 * ghz < watts["high"]

    def test_each_figure_says_who_says_so(self, answer):
        figures = inputs_of(answer)
        labels = {
            "candidate.rack1.workload.sort.rate": "measured",
            "candidate.rack1 at 3.0 GHz.workload.sort.rate": "projected",
            "candidate.rack1.idle_power": "measured",
            "candidate.rack1.price": "given",
            "site.electricity": "given",
            "costs.discount_rate": "default",
        }
        assert figures.loc[list(labels), "label"].to_dict() == labels
        source = figures.loc["candidate.rack1 at 3.0 GHz.workload.sort.rate", "source"]
        assert source == "runs.csv: host rack1, sort at 3 GHz"
        assert any("rack1 at 3.0 GHz: what its runs say is projected" in c for c in answer.caveats)

    def test_the_measured_price_and_servers(self, answer):
        figures = inputs_of(answer)
        assert figures.loc["candidate.rack2.price", "value"] == 5000
        rates = [figures.loc[f"candidate.rack2.workload.{w}.rate", "value"] for w in ("sort", "wc")]
        expected = np.ceil(5 / rates[0] + 5 / rates[1])
        row = answer.candidates.set_index("candidate").loc["rack2"]
        assert row["servers"] == expected
        assert row["servers_lower"] <= expected <= row["servers_upper"]

    def test_comes_back_from_json(self, answer):
        again = Procurement.from_json(answer.to_json())
        assert again.to_json() == answer.to_json()
        assert again.summary() == answer.summary()
        document = json.loads(answer.to_json())
        assert (document["schema_version"], document["kind"]) == (1, "procurement")

    def test_a_row_a_candidate_for_the_spreadsheet(self, answer):
        frame = answer.to_frame()
        assert frame["candidate"].tolist() == ["rack1", "rack1 at 3.0 GHz", "rack2"]
        assert not frame.columns.duplicated().any()
        parts = [c for c in frame if c.startswith("cost_") and c != "cost_tco"]
        assert frame[parts].sum(axis=1).round(2).tolist() == frame["cost_tco"].tolist()
        assert {"tco", "tco_lower", "p_best_tco", "perf_per_watt", "servers"} <= set(frame)

    def test_one_group_at_one_clock_twice_is_one_curve(self, tmp_path):
        table = measured(tmp_path, two_hosts(), rack("rack1"), rack("rack1 again"))
        table["candidate"][1]["where"] = {"host": "rack1"}
        result = asked(table)
        assert [result.figure(n, "tco")["p_best"] for n in ("rack1", "rack1 again")] == [0.5, 0.5]

    def test_copies_of_a_core(self, tmp_path):
        one, many = (
            asked(measured(tmp_path, two_hosts(), rack("rack1", copies=n, price=900.0)))
            for n in (1, 4)
        )
        for figure in ("workload.sort.rate", "workload.sort.power", "idle_power"):
            key = f"candidate.rack1.{figure}"
            ratio = inputs_of(many).loc[key, "value"] / inputs_of(one).loc[key, "value"]
            assert ratio == pytest.approx(4)
        assert any("taken 4 times, as if the copies did not slow" in c for c in many.caveats)

    def test_typed_figures_take_the_place_of_measured_ones(self, tmp_path):
        typed = rack("rack1", workload={"sort": {"rate": 1.0}}, price=77.0)
        figures = inputs_of(asked(measured(tmp_path, two_hosts(), typed)))
        key = "candidate.rack1.workload.sort"
        assert figures.loc[f"{key}.rate", ["value", "label"]].tolist() == [1.0, "given"]
        assert figures.loc[f"{key}.power", "label"] == "measured"
        assert figures.loc["candidate.rack1.price", "value"] == 77

    def test_files_are_looked_for_beside_the_scenario(self, tmp_path):
        two_hosts().to_csv(tmp_path / "runs.csv", index=False)
        (tmp_path / "buy.toml").write_text(
            'runs = "runs.csv"\n[demand]\nyears = 1\n[[workload]]\nname = "sort"\nrate = 5\n'
            "[site]\nelectricity = 0.1\npue = 1.2\n"
            '[[candidate]]\nname = "rack1"\nwhere = { host = "rack1" }\n',
            encoding="utf-8",
        )
        result = answered(procure, tmp_path / "buy.toml", draws=200)
        assert inputs_of(result).loc["candidate.rack1.workload.sort.rate", "label"] == "measured"


def rate_limited(**more):
    """Runs at full load and at rates below, as of a service: watts and latency against load."""
    rows = []
    for host, full, watts in (("small", 1000.0, (40.0, 80.0)), ("large", 8000.0, (90.0, 240.0))):
        for load in (0.2, 0.4, 0.6, 0.8, 1.0):
            for repeat in range(2):
                level = load if load == 1 else load * (1 + 0.001 * repeat)
                power = watts[0] + (watts[1] - watts[0]) * np.sqrt(load)
                rows.append((host, 2.4, full * level, power, level, 2e-4 / (1.05 - load)))
        # Too few clients: neither full load nor a rate that was asked for.
        rows.append((host, 2.4, 0.5 * full, watts[1], np.nan, 2e-4))
    columns = ["host", "freq_ghz", "throughput_ops_s", "power_w", "load", "latency_p99_s"]
    frame = pd.DataFrame(rows, columns=columns)
    frame["idle_power_w"] = frame["host"].map({"small": 40.0, "large": 90.0})
    return frame.assign(workload="cache", price=1000.0, power_source="ipmi:dcmi", **more)


class TestServicesFromRuns:
    def scenario(self, tmp_path, frame=None, **workload):
        table = measured(
            tmp_path, rate_limited() if frame is None else frame, rack("small"), rack("large")
        )
        table["workload"] = [{"name": "cache", "unit": "gets", "rate": 10_000.0, **workload}]
        return table

    def test_full_load_is_what_a_server_can_do(self, tmp_path):
        figures = inputs_of(asked(self.scenario(tmp_path)))
        rate = figures.loc["candidate.small.workload.cache.rate", "value"]
        assert rate == pytest.approx(1000, rel=0.02)
        watts = figures.loc["candidate.large.workload.cache.power", "value"]
        assert watts == pytest.approx(240, rel=0.02)

    def test_latency_against_the_rate_is_taken_from_the_runs(self, tmp_path):
        # 2e-4/(1.05 − load): 8e-4 at a load of 0.8, the next point is above.
        result = asked(self.scenario(tmp_path, latency_p99="0.8ms"))
        table = result.candidates.set_index("candidate")
        assert table.loc["small", "by_rate"] == pytest.approx(10_000 / (0.8 * 1000), abs=1)
        assert not any("not held against" in c for c in result.caveats)

    def test_power_at_a_load_is_taken_from_the_runs(self, tmp_path):
        result = asked(self.scenario(tmp_path))
        row = result.candidates.set_index("candidate").loc["small"]
        load = 10_000 / (row["servers"] * 1000)
        watts = row["servers"] * (40 + 40 * np.sqrt(load))
        kwh = result.energy.set_index("candidate").loc["small", "servers_kwh"]
        assert kwh == pytest.approx(watts * 8.76, rel=0.02)
        assert not any("straight" in c for c in result.caveats)

    def test_a_load_never_reached_says_how_to_measure_it(self, tmp_path):
        frame = rate_limited()
        with pytest.raises(PpwError, match="every run is below full load: add runs at load 1"):
            asked(self.scenario(tmp_path, frame[frame["load"] < 1]))

    def test_latency_that_was_not_measured_is_none(self, tmp_path):
        result = asked(self.scenario(tmp_path, rate_limited().assign(latency_p99_s=np.nan)))
        names = inputs_of(result).index
        assert not [name for name in names if "latency" in name]
        limited = asked(
            self.scenario(
                tmp_path, rate_limited().assign(latency_p99_s=np.nan), latency_p99="0.8ms"
            )
        )
        assert any("not held against" in c for c in limited.caveats)

    def test_a_client_that_limits_is_said(self, tmp_path):
        frame = rate_limited(client_limited=True)
        said = [c for c in asked(self.scenario(tmp_path, frame)).caveats if "client" in c]
        assert [c.partition(":")[0] for c in said] == ["small, cache", "large, cache"]
        frame = rate_limited(client_limited="False")
        assert not [c for c in asked(self.scenario(tmp_path, frame)).caveats if "client" in c]

    def test_set_ups_that_are_mixed_up_are_said(self, tmp_path):
        frame = pd.concat([rate_limited(threads_used=1), rate_limited(threads_used=4)])
        frame.loc[frame["threads_used"] == 4, "throughput_ops_s"] *= 3
        said = [c for c in asked(self.scenario(tmp_path, frame)).caveats if "set-ups" in c]
        assert any("up to 3 times apart" in c for c in said)
        table = self.scenario(tmp_path, frame)
        for candidate in table["candidate"]:
            candidate["where"]["threads_used"] = 4
        result = asked(table)
        assert not [c for c in result.caveats if "set-ups" in c]
        rate = inputs_of(result).loc["candidate.small.workload.cache.rate", "value"]
        assert rate == pytest.approx(3000, rel=0.02)


class TestWattsOfDifferentScope:
    def both(self, tmp_path, *sources, **more):
        frame = two_hosts()
        frame["power_source"] = frame["host"].map(
            dict(zip(("rack1", "rack2"), sources, strict=True))
        )
        return measured(tmp_path, frame, rack("rack1", **more), rack("rack2"))

    def test_are_refused(self, tmp_path):
        table = self.both(tmp_path, "rapl:package", "meter:wt310")
        with pytest.raises(PpwError, match=r"not of one scope \(rack1: package, rack2: wall\)"):
            asked(table)

    def test_unless_asked_for(self, tmp_path):
        table = self.both(tmp_path, "rapl:package", "meter:wt310") | {"mixed_scope": True}
        said = only(asked(table).caveats, "mixed scope")
        assert said == ("mixed scope, as asked for: the watts are of rack1: package, rack2: wall")

    def test_or_made_whole(self, tmp_path):
        table = self.both(tmp_path, "rapl:package", "meter:wt310", beside_power="30W")
        result = asked(table)
        assert not [c for c in result.caveats if "scope" in c]
        bare = asked(self.both(tmp_path, "rapl:package", "meter:wt310") | {"mixed_scope": True})
        more = result.energy["servers_kwh"][0] - bare.energy["servers_kwh"][0]
        servers = result.candidates["servers"][0]
        assert more == pytest.approx(servers * 30 * 8.76, abs=0.2)

    def test_typed_watts_are_not_of_the_sensor(self, tmp_path):
        typed = {"workload": {"sort": {"power": 70.0}}, "idle_power": 30.0, "power_scope": "wall"}
        result = asked(self.both(tmp_path, "rapl:package", "meter:wt310", **typed))
        assert not [c for c in result.caveats if "scope" in c]

    def test_package_watts_are_no_bill(self, tmp_path):
        table = self.both(tmp_path, "rapl:package", "rapl:package")
        assert only(asked(table).caveats, "add beside_power").startswith("all watts are of the pac")

    def test_typed_ones_say_theirs(self):
        silent = server("one")
        del silent["power_scope"]
        said = only(asked(scenario(silent, server("two"))).caveats, "power_scope says it")
        assert said.startswith("it is not said what the watts of one are of")
        package = server("three", power_scope="package")
        with pytest.raises(PpwError, match="two: wall, three: package"):
            asked(scenario(server("two"), package))


class TestTheCatalogue:
    def test_cores_and_launch_price(self):
        epyc = server("epyc", catalogue="EPYC 9654", sockets=2)
        del epyc["price"]
        result = asked(scenario(epyc, costs={"licence_per_core": 10.0}))
        host = ppw.find_host("EPYC 9654")
        figures = inputs_of(result)
        assert figures.loc["candidate.epyc.price", "value"] == 2 * host.launch_price_usd
        assert figures.loc["candidate.epyc.price", "label"] == "catalogue"
        assert figures.loc["candidate.epyc.price", "source"].startswith("AMD")
        servers = result.candidates["servers"][0]
        assert result.costs["licences"][0] == servers * 2 * host.cores * 10
        assert only(result.caveats, "launch price").startswith(
            "epyc: its price is the launch price"
        )

    def test_its_tdp_is_no_power(self):
        xeon = server("xeon", catalogue="Xeon X5670")
        del xeon["workload"]["work"]["power"]
        with pytest.raises(PpwError, match=r"no power of work: give .* which is not the TDP\)"):
            asked(scenario(xeon))

    def test_its_price_is_in_dollars(self):
        epyc = server("epyc", catalogue="EPYC 9654")
        del epyc["price"]
        with pytest.raises(PpwError, match="the catalogue's price is in USD, the scenario in EUR"):
            asked(scenario(epyc) | {"currency": "EUR"})


def without(candidate, *path):
    place = candidate
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    return candidate


MISSING = {
    "rate": (lambda: scenario(without(server("x"), "workload", "work", "rate")), "no rate of work"),
    "power": (lambda: scenario(without(server("x"), "workload", "work", "power")), "no power of w"),
    "idle": (
        lambda: scenario(without(server("x"), "idle_power")),
        "no idle power: give idle_power or power_levels",
    ),
    "price": (lambda: scenario(without(server("x"), "price")), "no price: give price"),
    "memory": (
        lambda: scenario(server("x"), workload={"memory": "1GiB"}),
        "no memory, which work asks for",
    ),
    "cores": (
        lambda: scenario(server("x"), costs={"licence_per_core": ranged(0, 0, 5)}),
        "no cores, which licences count",
    ),
    "carbon": (
        lambda: scenario(server("x"), costs={"carbon_price": 90}, site={"grid_carbon": 0.3}),
        "costs.carbon_price needs site.grid_carbon and the candidate's embodied_carbon",
    ),
    "idle above full": (
        lambda: scenario(server("x", idle=250.0)),
        "its idle power 250 W is not below its full-load power 200 W of work",
    ),
    "runs": (
        lambda: scenario(server("x", where={"host": "a"}), server("y")),
        "where and freq are of runs, and none are named",
    ),
    "levels": (
        lambda: scenario(server("x", power_levels={"load": [0, 1], "power": [1, 2, 3]})),
        "power_levels has 2 loads and 3 watts",
    ),
    "levels end early": (
        lambda: scenario(server("x", power_levels={"load": [0, 0.9], "power": [50, 90]})),
        "power_levels ends below load 1",
    ),
    "latencies": (
        lambda: scenario(
            server("x", latency={"rate": [1, 2], "p99": ["1ms"]}), workload={"latency_p99": 1}
        ),
        "latency of work has 2 rates and 1 values of p99",
    ),
}


@pytest.mark.parametrize("name", MISSING)
def test_what_is_missing_is_an_error_and_not_a_guess(name):
    made, said = MISSING[name]
    with pytest.raises(PpwError) as caught:
        asked(made())
    assert str(caught.value).startswith("scenario: candidate 'x': ")
    assert said in str(caught.value)


RUNS = {
    "host": ({"where": {"host": "rack9"}}, "candidate 'rack1': no run has host 'rack9' (did you"),
    "column": ({"where": {"hots": "rack1"}}, "candidate 'rack1': "),
    "several": ({"where": {"family": "Zen 4"}}, "are 2 groups, which differ in host: name one of"),
    "frequency": ({"freq": "3.0"}, "is it in GHz or MHz?"),
}


@pytest.mark.parametrize("name", RUNS)
def test_runs_that_do_not_answer(name, tmp_path):
    more, said = RUNS[name]
    with pytest.raises((PpwError, ppw.MeasurementError)) as caught:
        asked(measured(tmp_path, two_hosts(), {**rack("rack1"), **more}))
    assert said in str(caught.value)


def test_no_run_of_a_workload(tmp_path):
    table = measured(tmp_path, two_hosts(), rack("rack1"), workloads=("sort", "wcc"))
    with pytest.raises(PpwError, match=r"no run of workload 'wcc' \(did you mean 'wc'\?\)"):
        asked(table)


def test_a_host_of_one_clock_has_no_other(tmp_path):
    frame = two_hosts()
    frame = frame[frame["freq_ghz"] == 2.0]
    assert asked(measured(tmp_path, frame, rack("rack1"))).cheapest == "rack1"
    with pytest.raises(PpwError, match=r"candidate 'rack1': measured at 2 GHz only"):
        asked(measured(tmp_path, frame, rack("rack1", freq="2.4GHz")))


def test_carbon_of_one_that_is_not_known_has_no_total():
    known = server("known", embodied_carbon=100.0)
    result = asked(scenario(known, server("not"), site={"grid_carbon": 0.5}))
    carbon = result.carbon.set_index("candidate")
    assert np.isnan(carbon.loc["not", "total_kg"])
    assert carbon.loc["not", "use_kg"] > 0
    assert only(result.caveats, "embodied carbon of not is not known")
    assert result.figures.loc[result.figures["figure"] == "carbon", "p_best"].isna().all()
    assert not any(s.startswith("Best") and "carbon" in s for s in result.verdict())


@pytest.mark.parametrize(
    ("options", "said"),
    [({"level": 90}, "level 90 is not a share"), ({"draws": 99}, "99 draws are too few")],
)
def test_options_that_cannot_be(options, said):
    assert FEWEST_DRAWS == 100
    with pytest.raises(PpwError, match=said):
        procure(scenario(), **options)


@settings(max_examples=10)
@given(order=st.permutations(["one", "two", "three"]))
def test_the_order_of_candidates_changes_nothing(order):
    made = {
        "one": server("one", price=ranged(900.0, 800.0, 1100.0)),
        "two": server("two", rate=180.0, price=1700.0, power=ranged(260.0, 220.0, 300.0)),
        "three": server("three", rate=55.0, price=500.0, power=120.0, idle=60.0),
    }
    first, other = (asked(scenario(*(made[n] for n in names))) for names in (made, order))
    assert other.cheapest == first.cheapest
    for name in made:
        for figure in ("tco", "perf_per_watt"):
            assert other.figure(name, figure).equals(first.figure(name, figure))
