"""Answers to a procurement scenario of typed figures: by hand, and by a second program."""

import json
import math
import re
from decimal import Decimal
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given, strategies as st
from made_up import only
from procurement_model import costs_of, take, triangular
from procurement_scenarios import (
    GUIDE,
    asked,
    documented,
    inputs_of,
    random_scenario,
    ranged,
    row_of,
    scenario,
    server,
)

import ppw
from ppw.cli.demo import POWER_RATIO, THROUGHPUT_RATIO
from ppw.decision.objectives import break_even_price_ratio, per_dollar_ratio, per_watt_ratio
from ppw.errors import PpwError
from ppw.procurement.candidates import gather
from ppw.procurement.cost_model import Model
from ppw.procurement.procure import on_front, procure, share_best
from ppw.procurement.result import Procurement, tie_text
from ppw.procurement.scenario import scenario_of, share_within


@pytest.fixture(scope="module")
def worked():
    return asked(documented())


def tie(result, criterion, key):
    rows = result.crossovers
    (row,) = rows[(rows["criterion"] == criterion) & (rows["key"] == key)].to_dict("records")
    return row


class TestWorkedByHandInTheGuide:
    def test_money_to_the_cent(self, worked):
        """Every line of the guide's table, as it is printed there, and they add up."""
        lines = re.findall(r"^ *\| ([a-z ]+) \|([^|]*)\| (-?[\d,.]+) \|$", GUIDE, re.MULTILINE)
        printed = {name: Decimal(money.replace(",", "")) for name, _, money in lines}
        assert len(printed) == 8
        row = row_of(worked, "costs", "small")
        for name, money in printed.items():
            key = {"total cost": "tco"}.get(name, name.replace(" ", "_"))
            assert f"{row[key]:.2f}" == str(money), name
        total = printed.pop("total cost")
        assert sum(printed.values()) == total

    def test_servers_racks_energy_carbon_and_worth_as_the_guide_says(self, worked):
        said = [
            *("so 5 servers are needed. With the spare server there are 6.", "for 4 servers"),
            "11,563.2 kWh and (7665.0 + 262.8) · 1.5 = 11,891.7 kWh",
            *("9,382.0 kg", "4,800.0 kg", "14,182.0 kg"),
            *("150 gets per joule", "12 gets/s per euro", "38,940.26 EUR", "= 4556 EUR"),
        ]
        guide = " ".join(GUIDE.split())
        assert [part for part in said if part not in guide] == []
        small = row_of(worked, "candidates", "small")
        assert (small["servers"], small["by_rate"], small["spare"]) == (6, 5, 1)
        assert (small["racks"], small["per_rack"]) == (2, 4)
        assert small["mean_load"] == pytest.approx((0.41667 + 0.45833) / 2, abs=1e-5)
        energy = row_of(worked, "energy", "small")
        assert energy["total_kwh"] == pytest.approx(11_563.2 + 11_891.7)
        carbon = row_of(worked, "carbon", "small")
        assert [carbon[f"{k}_kg"] for k in ("use", "embodied", "total")] == [9382, 4800, 14_182]
        assert worked.figure("small", "perf_per_watt")["value"] == pytest.approx(150)
        assert worked.figure("small", "perf_per_dollar")["value"] == pytest.approx(12)
        work = 75_000 * 2.1 * 31_536_000
        cost = worked.figure("small", "work_per_cost")["value"]
        assert cost == pytest.approx(work / 24_833.21, rel=1e-6)
        assert cost == pytest.approx(200e6, rel=1e-3)
        assert round(tie(worked, "total cost", "candidate.large.price")["value"]) == 4556
        assert row_of(worked, "costs", "large")["tco"] == 38_940.26


def printed_sum(rows):
    """Parts and total of every column of a printed table, in whole last digits."""
    for column in range(1, len(rows[0])):
        cells = [row[column] for row in rows]
        if "–" not in cells:
            *parts, total = (Decimal(cell.replace(",", "")) for cell in cells)
            yield sum(parts), total


# A handful in every run of the tests; 200 where they may take minutes.
FEW, ALL = range(8), [*range(8), *(pytest.param(n, marks=pytest.mark.slow) for n in range(8, 200))]


@pytest.mark.parametrize("seed", ALL)
def test_a_second_program_of_the_guide_agrees(seed):
    table = random_scenario(seed)
    servers, inputs, *_ = gather(scenario_of(table, source="", folder=Path()), draws=100, seed=0)
    found = Model(scenario_of(table, source="", folder=Path()), servers).outcomes(inputs.central())
    known = take(table, lambda value, low, high: np.array([[value]]))
    for outcome, one in zip(found, known["candidate"], strict=True):
        parts, totals, (most, racks, fits) = costs_of(known, one)
        assert outcome.money.keys() == parts.keys()
        for part, value in parts.items():
            assert outcome.money[part] == pytest.approx(np.ravel(value), rel=1e-9, abs=1e-9), part
        assert outcome.energy.site().sum() == pytest.approx(totals["kwh"].item(), rel=1e-9)
        carbon = outcome.carbon.use.sum(), outcome.carbon.embodied.item()
        assert carbon == pytest.approx((totals["use"].item(), totals["made"].item()), rel=1e-9)
        numbers = outcome.servers, outcome.racks.racks, outcome.racks.fits
        assert [n.item() for n in numbers] == [most.item(), racks.item(), bool(fits)]


@pytest.mark.parametrize("seed", ALL)
def test_the_verdict_is_that_of_many_independent_draws(seed):
    table = random_scenario(seed)
    result = asked(table, draws=2000)
    if not result.figure(result.cheapest, "tco")["p_best"] > 0.6:
        return
    # In pieces that a cache holds: 100,000 draws, and a million for the slow tests' scenarios.
    pieces = 5 if seed in FEW else 50
    costs = dict.fromkeys(result.candidates["candidate"], 0.0)
    for piece in range(pieces):
        drawn = take(table, triangular(20_000, (seed, piece)))
        for one in drawn["candidate"]:
            costs[one["name"]] += np.mean(sum(costs_of(drawn, one)[0].values())) / pieces
    fits = dict(zip(result.candidates["candidate"], result.candidates["fits"], strict=True))
    able = {name: cost for name, cost in costs.items() if fits[name]} or costs
    assert min(able, key=able.get) == result.cheapest
    expected = costs[result.cheapest]
    assert result.expected["cost"] == pytest.approx(expected, rel=0.02)


@pytest.mark.parametrize("seed", FEW)
def test_parts_add_up_to_their_totals_as_printed(seed):
    table = random_scenario(seed)
    result = asked(table, draws=100)
    for name in (candidate["name"] for candidate in table["candidate"]):
        assert result.figure(name, "tco")["value"] == row_of(result, "costs", name)["tco"]
    titles = {"Money, present value": "USD", "Energy": "kWh", "Carbon": "kg CO2e"}
    document = result.to_json()
    for shown in (result, Procurement.from_json(document)):
        tables = [s for s in shown.sections() if s.header[0].startswith("part (")]
        assert {s.title: s.header[0][6:-1] for s in tables} == titles
        for section in tables:
            assert all(parts == total for parts, total in printed_sum(section.rows))
    for name, total in (("costs", "tco"), ("energy", "total_kwh"), ("carbon", "total_kg")):
        for row in json.loads(document)[name]:
            known = [k for k in row if k not in ("candidate", total)]
            assert sum(Decimal(repr(row[k])) for k in known) == Decimal(repr(row[total]))


def test_keep_refresh_and_rent_by_hand():
    """Demand 450 and 900 a second; old ones do 100, new ones 500; half of a price in a year."""
    keep = server("keep", owned=5, price=500.0, support_per_year=200.0)
    new = {"rate": 500.0, "price": 4000.0, "one_off_cost": 1000.0}
    phases = server("phases", purchases="yearly", **new)
    rent = {"name": "rent", "rent_per_hour": 0.2, "workload": {"work": {"rate": 100.0}}}
    demand = {"years": 2, "growth_per_year": 1.0}
    costs = {"discount_rate": 1.0, "residual_share": 0.0}
    table = scenario(keep, server("refresh", **new), phases, rent, demand=demand, costs=costs)
    table["workload"][0]["rate"] = 450.0
    result = asked(table)
    rows = {name: row_of(result, "costs", name) for name in ("keep", "refresh", "phases", "rent")}
    assert [row["servers"] for row in rows.values()] == [
        4 * 500, 2 * 4000, 4000 + 4000 / 2, round(8760 * 0.2 * (5 / 2 + 9 / 4), 2)
    ]  # fmt: skip
    assert [row["one_off"] for row in rows.values()] == [0, 1000, 1000, 0]
    assert rows["keep"]["support"] == 9 * 200 * (1 / 2 + 1 / 4)
    assert (rows["rent"]["energy"], row_of(result, "candidates", "rent")["racks"]) == (0, 0)
    assert np.isnan(row_of(result, "energy", "rent")["total_kwh"])
    assert result.cheapest == "keep"


class TestServersNeeded:
    @pytest.mark.cases(
        "parts, count",
        ({"workload": {"rate": 1000.1}}, 11),
        ({"workload": {"rate": 1e-3}}, 1),
        # Three tenths of ten: in floating point a little more than 3.
        ({"workload": {"rate": 300.0}, "demand": {"max_utilisation": 0.3}}, 10),
        ({"demand": {"spare_share": 0.25, "spare_servers": 1}}, 14),
    )
    def test_whole_ones_that_arithmetic_does_not_push_up(self, parts, count):
        assert asked(scenario(server("one"), **parts)).candidates["servers"].tolist() == [count]

    def test_a_mix_takes_the_sum_of_the_times(self):
        table = scenario(server("one"), demand={"rate": 600.0})
        table["workload"] = [
            {"name": "work", "weight": 1, "unit": "ops"},
            {"name": "slow", "weight": 2, "unit": "ops"},
        ]
        table["candidate"][0]["workload"]["slow"] = {"rate": 20.0, "power": 150.0}
        # 200/100 + 400/20 servers' time.
        result = asked(table)
        assert result.candidates["servers"].tolist() == [22]
        # One server's second: 1/11 of 100 a second, and 10/11 of 20 a second: 27.27 in all.
        rate = 1 / ((1 / 3) / 100 + (2 / 3) / 20)
        peak = (200 * 1 + 150 * 10) / 11
        assert result.figure("one", "perf_per_watt")["value"] == pytest.approx(rate / peak)

    def test_units_that_differ_are_shares_of_the_demand(self):
        table = scenario(server("one"))
        table["workload"].append({"name": "jobs", "unit": "jobs", "rate": 1.0})
        table["candidate"][0]["workload"]["jobs"] = {"rate": 0.5, "power": 200.0}
        result = asked(table)
        row = result.figure("one", "perf_per_dollar")
        assert row["unit"] == "of the demand per USD"
        assert row["value"] == pytest.approx(1 / (1000 / 100 + 1 / 0.5) / 1000)
        years = result.figure("one", "work_per_cost")
        assert years["unit"] == "years of the demand per USD"
        assert years["value"] == pytest.approx(1 / result.costs["tco"][0], rel=1e-5)


class TestLatency:
    def test_shares_within_a_limit_by_hand(self):
        known = np.array([0.2, 0.6, 0.9, 1.0]), np.array([1e-4, 2e-4, 8e-4, 5e-3])
        # 4e-4 is half way from 2e-4 to 8e-4 in its logarithm.
        shares = [share_within(*known, limit) for limit in (9e-5, 1e-4, 4e-4, 8e-4, 1.0)]
        assert shares == pytest.approx([0.0, 0.2, 0.75, 0.9, 1.0])
        # Beyond what was measured nothing is promised, and a dip does not count.
        assert share_within(np.array([0.1, 0.5]), np.array([1e-4, 2e-4]), 1.0) == 0.5
        share, latency = np.array([0.2, 0.5, 0.8]), np.array([1e-3, 5e-3, 2e-3])
        assert share_within(share, latency, 3e-3) < 0.5

    @example(points=[(1.0, 1e-6), (1.0, math.nextafter(1e-6, 1))], limits=(1.0, 1e-6))
    @given(
        points=st.lists(st.tuples(st.floats(0.01, 1.2), st.floats(1e-6, 1.0)), min_size=1),
        limits=st.tuples(st.floats(1e-6, 1.0), st.floats(1e-6, 1.0)),
    )
    def test_a_looser_limit_allows_no_less(self, points, limits):
        share, latency = (np.array(part) for part in zip(*points, strict=True))
        tight, loose = (share_within(share, latency, limit) for limit in sorted(limits))
        assert 0 <= tight <= loose <= min(1.0, share.max())

    def test_it_takes_more_servers_that_are_less_busy(self):
        known = {"rate": [20.0, 60.0, 90.0, 100.0], "p99": ["0.1ms", "0.2ms", "0.8ms", "5ms"]}
        table = scenario(server("one", latency=known), workload={"latency_p99": "0.4ms"})
        result = asked(table)
        assert result.candidates["servers"].tolist() == [math.ceil(1000 / 75)]
        assert result.candidates["mean_load"][0] == pytest.approx(1000 / 14 / 100)
        # At the limit a server is at 75 % of its load, with 175 W.
        assert result.figure("one", "perf_per_watt")["value"] == pytest.approx(75 / 175)

    def test_who_cannot_keep_it_is_left_out(self):
        known = {"rate": [20.0, 100.0], "p99": ["2ms", "5ms"]}
        fast = {"rate": [20.0, 100.0], "p99": ["0.1ms", "0.2ms"]}
        both = server("slow", latency=known, price=1.0), server("fast", latency=fast)
        result = asked(scenario(*both, workload={"latency_p99": "1ms"}))
        assert result.candidates["candidate"].tolist() == ["fast"]
        assert any(c.startswith("slow is left out: its latency p99") for c in result.caveats)


class TestRacksAndRoom:
    @pytest.mark.cases(
        "site, why",
        ({"rack_units": 1}, "a server is higher than a rack"),
        ({"rack_power": "150W"}, "a server at its peak draws more than a rack may"),
        ({"max_racks": 1, "rack_units": 4}, "it takes more racks than there is space for"),
        ({"power": "1.9kW"}, "its servers at their peak draw more than the site may"),
    )
    def test_who_does_not_fit_is_never_the_best(self, site, why):
        dear = server("dear", rate=1100.0, power=140.0, price=90_000.0, height=1)
        table = scenario(server("cheap", height=2), dear, site=site)
        result = asked(table)
        cheap = row_of(result, "candidates", "cheap")
        assert (cheap["fits"], cheap["p_fits"], cheap["why_not"]) == (False, 0.0, why)
        assert result.cheapest == "dear"
        assert [result.figure(n, "tco")["p_best"] for n in ("cheap", "dear")] == [0, 1]
        assert f"cheap does not fit the site: {why}" in result.caveats

    def test_nobody_fits(self):
        result = asked(scenario(server("one"), server("two"), site={"rack_power": "10W"}))
        assert not result.any_fits
        assert result.verdict()[0].startswith("No candidate fits the site (one: a server at its")
        assert result.figures["p_best"].isna().all()


def test_levels_of_power_that_are_typed_in():
    levels = {"load": [0, 0.5, 1], "power": [60, 90, 100]}
    bent = server("bent", idle=60.0, power=100.0, power_levels=levels)
    table = scenario(bent, workload={"rate": 50.0})
    result = asked(table)
    assert result.energy["servers_kwh"][0] == pytest.approx(90 * 8.76, abs=0.06)
    assert not any("straight" in c for c in result.caveats)
    # Idle and full-load watts may be those of the levels, or others: the shape is what counts.
    one = table["candidate"][0]
    one |= {"idle_power": 30.0, "workload": {"work": {"rate": 100.0, "power": 50.0}}}
    kwh = asked(table).energy["servers_kwh"][0]
    assert kwh == pytest.approx((30 + 30 / 40 * 20) * 8.76, abs=0.06)
    del one["idle_power"], one["workload"]["work"]["power"]
    assert asked(table).energy.equals(result.energy)


def test_the_same_seed_gives_the_same_draws_whatever_else_there_is():
    site = {"electricity": ranged(0.1, 0.05, 0.3)}
    alone = scenario(server("one"), site=site)
    beside = scenario(server("two", price=3.0), server("one"), site=site)
    ends = ["value", "lower", "upper"]
    first = asked(alone).figure("one", "tco")[ends].tolist()
    assert asked(beside).figure("one", "tco")[ends].tolist() == first
    assert asked(alone, seed=1).figure("one", "tco")[ends].tolist() != first


@pytest.mark.parametrize(
    ("price_ratio", "per_dollar"), [(3.0, "WSM"), (14.78, "WSM"), (14.80, "Atom"), (20.0, "Atom")]
)
def test_published_ratios_decide_who_is_better_per_watt_and_per_dollar(price_ratio, per_dollar):
    """Memcached on Atom (taken as 1) and Westmere, by the ratios of Issa & Figueira 2012."""
    assert (THROUGHPUT_RATIO, POWER_RATIO) == (14.79, 5.9)
    atom = server("Atom", rate=100.0, power=30.0, idle=20.0, price=400.0)
    figures = {"rate": 100 * THROUGHPUT_RATIO, "power": 30 * POWER_RATIO}
    westmere = server("WSM", **figures, idle=100.0, price=400.0 * price_ratio)
    result = asked(scenario(atom, westmere, workload={"rate": 1e5}))
    best = result.figures[result.figures["p_best"] == 1].set_index("figure")["candidate"]
    assert (best["perf_per_watt"], best["perf_per_dollar"]) == ("WSM", per_dollar)
    values = result.figures.pivot_table("value", "candidate", "figure")
    ratios = values.loc["WSM"] / values.loc["Atom"]
    assert ratios["perf_per_watt"] == pytest.approx(14.79 / 5.9)
    assert round(ratios["perf_per_watt"], 2) == round(per_watt_ratio(14.79, 5.9), 2) == 2.51
    assert ratios["perf_per_dollar"] == pytest.approx(14.79 / price_ratio)
    assert per_dollar_ratio(14.79, price_ratio) == pytest.approx(14.79 / price_ratio)
    # They tie where the one is 14.79 times as dear as the other.
    row = tie(result, "performance per price", f"candidate.{result.cheapest}.price")
    ties = row["value"] / 400 if result.cheapest == "WSM" else 400 * price_ratio / row["value"]
    assert ties == pytest.approx(break_even_price_ratio(14.79))


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
        for one, kept in zip(costs, found, strict=True):
            beaten = [o for o in costs if o[0] <= one[0] and o[1] <= one[1] and o != one]
            assert kept == (not beaten)


def edited(key, value):
    """The guide's scenario with one figure, by its key in the answer, at another value."""
    table = documented()
    first, *path, last = key.split(".")
    place = table[first]
    for part in path:
        named = place if isinstance(place, dict) else {entry["name"]: entry for entry in place}
        place = named[part]
    place[last] = value
    return table


def lead(key, value):
    """How much more the large one of the guide costs with one figure typed anew."""
    typed = scenario_of(edited(key, value), source="guide", folder=Path())
    servers, inputs, *_ = gather(typed, draws=100, seed=0)
    costs, fits = Model(typed, servers).tco_and_fits(inputs.central())
    small, large = np.where(fits, costs, np.inf)[:, 0]
    return float(large - small)


class TestWhereItTurns:
    """A tie that is typed into the scenario must be one."""

    def test_every_straight_tie_is_a_tie(self, worked):
        rows = worked.crossovers[worked.crossovers["criterion"] == "total cost"]
        straight = rows[rows["p_tie"].notna()]
        assert len(straight) >= 2
        for row in straight.to_dict(orient="records"):
            # To the cents that the parts are rounded to.
            assert lead(row["key"], row["value"]) == pytest.approx(0.0, abs=0.1), row["what"]

    def test_every_followed_one_changes_who_is_ahead(self, worked):
        rows = worked.crossovers[worked.crossovers["p_tie"].isna()]
        assert len(rows) >= 1
        for row in rows.to_dict(orient="records"):
            near = (1.0001, 0.9999) if row["value"] < row["now"] else (0.9999, 1.0001)
            before, beyond = (lead(row["key"], row["value"] * f) for f in near)
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

    @pytest.mark.parametrize("price", [1600.0, 3200.0])
    def test_years_until_a_dear_one_has_paid(self, price):
        cheap = server("cheap", rate=2000.0, power=300.0, idle=200.0)
        dear = server("dear", rate=2000.0, power=100.0, idle=50.0, price=price)
        table = scenario(cheap, dear, demand={"years": 2})
        result = asked(table)
        # 175 W less, which is 153.30 a year: 600 in 3.9 years, 2200 in 14.4.
        saved = (250 - 75) * 8.76 * 0.1
        years = int(np.ceil((price - 1000) / saved))
        row = tie(result, "total cost", "demand.years")
        assert (result.cheapest, row["value"], row["beyond"]) == ("cheap", years, "dear")
        table["demand"]["years"] = years
        assert asked(table).cheapest == "dear"
        assert tie_text(row) == f"{years} years in place of 2, where dear costs less"

    def test_interval_of_a_price_tie_is_that_of_the_rivals_range(self):
        rival = server("two", rate=2000.0, price=ranged(2000.0, 1800, 2400))
        result = asked(scenario(server("one", rate=2000.0), rival), draws=4000)
        row = tie(result, "total cost", "candidate.one.price")
        prices = np.random.default_rng(5).triangular(1800, 2000, 2400, 400_000)
        exact = np.quantile(prices, [0.5, 0.05, 0.95])
        assert [row["value"], row["lower"], row["upper"]] == pytest.approx(exact, rel=0.01)

    @pytest.mark.parametrize(
        ("rate", "key", "turn"),
        [(960.0, "workload.work.rate", 1000.0), (920.0, "demand.max_utilisation", 0.92)],
    )
    def test_the_nearest_turn_that_can_be_counts(self, rate, key, turn):
        # One large server is cheaper than ten small ones, and dearer than nine; two are too dear.
        watts = {"power": 0.2, "idle": 0.1}
        large = server("large", rate=1000.0, price=9500.0, **watts)
        table = scenario(server("small", **watts), large, workload={"rate": rate})
        table["demand"]["max_utilisation"] = 1.0
        assert tie(asked(table), "total cost", key)["value"] == pytest.approx(turn, rel=1e-3)

    def test_one_candidate_has_no_ties(self):
        result = asked(scenario(server("one")))
        assert result.crossovers.empty
        assert result.runner_up is None
        assert "costs least" not in result.summary()
        assert result.scope() == "1 candidate over one year"

    @pytest.mark.parametrize(("price", "near"), [(9000.0, True), (11_000.0, False)])
    def test_a_tie_is_within_ten_times_what_a_figure_is(self, price, near):
        result = asked(scenario(server("one"), server("two", price=price)))
        ties = result.crossovers[result.crossovers["criterion"] == "total cost"]
        assert ("candidate.one.price" in set(ties["key"])) == near
        assert (ties["value"] / ties["now"]).between(0.1, 10).all()


def skewed():
    """The guide's scenario with two ranges: the values favour the small one, the draws do not."""
    table = edited("candidate.large.price", ranged(4600, 3500, 5200))
    table["site"]["electricity"] = ranged(0.1, 0.05, 0.6)
    return table


class TestVerdict:
    def test_the_buyer_of_the_cheaper_one_by_expectation_is_not_sent_to_the_other(self):
        table = skewed()
        result = asked(table, draws=4000)
        assert (result.cheapest, result.too_close) == ("large", False)
        assert result.figure("large", "tco")["p_best"] == pytest.approx(0.79, abs=0.02)
        assert result.expected["saving"] == pytest.approx(1080, rel=0.1)
        first, depends, servers, *_ = result.verdict()
        # Thousands of euros are uncertain: no cents, and no single euros.
        assert re.match(r"Over 2 years large costs least: \d\d,\d00 EUR \(90%: ", first)
        assert re.search(r"It saves \d,\d00 EUR \(90%: -\d00 … \d,\d00\) or \d.*% ag", servers)
        # What is uncertain comes before what was typed in as exact.
        assert depends.startswith("What this depends on most: price of large (EUR) 3500 … 5200 (gi")
        assert "small costs least at 5200" in depends
        # At the values the small one is ahead, so nothing that is followed there is a turn.
        assert not (result.crossovers["key"] == "demand.years").any()
        (turn,) = {tie(result, "total cost", "candidate.large.price")["value"]}
        table["candidate"][1]["price"] = turn
        costs = asked(table, draws=4000)
        assert abs(costs.expected["saving"]) < 150

    def test_a_lead_of_next_to_nothing_is_too_close_to_call(self):
        prices = ranged(1000.0, 800.0, 1200.0), ranged(1001.0, 800.0, 1202.0)
        both = [server(f"s{i}", rate=2000.0, price=price) for i, price in enumerate(prices)]
        result = asked(scenario(*both), draws=1000)
        assert result.too_close
        assert result.verdict()[0].startswith("Too close to call. Over one year s")
        said = only(result.verdict(), "What would decide it")
        assert said.startswith("What would decide it: find out price of s")

    def test_power_of_a_rack_ends_who_no_longer_goes_in(self, worked):
        # A rack has 1 kW, and a port takes 5 W of it.
        key = "candidate.small.workload.memcached.power"
        assert tie(worked, "total cost", key)["value"] == pytest.approx(995)

    def test_what_is_not_given_stands_under_the_verdict_and_not_at_the_bottom(self):
        one, two = server("one", price=1500.0), server("two", rate=1500.0, price=18_000.0)
        result = asked(scenario(one, two))
        first, depends, missing, *_ = result.verdict()
        assert first.startswith("Over one year one costs least")
        assert "headroom 0 … 0.5 (not given): two costs least at 0.5" in depends
        assert missing == (
            "Not given: a demand profile, so the peak is taken for all hours; headroom, discount "
            "rate, support, racks, network ports, taken as 0."
        )
        assert inputs_of(result).loc["demand.headroom", "source"] == "range that ppw assumes"
        moves = result.sensitivities
        (day,) = moves[moves["key"] == "demand.profile"].to_dict("records")
        # At a mean load of 30 % both use less energy.
        profile = {"profile": [1.0] + [2 / 9] * 9}
        costs = asked(scenario(one, two, demand=profile)).costs["tco"]
        assert day["apart_at_low"] == pytest.approx(costs[1] - costs[0], abs=0.02)


class TestWhatMovesIt:
    def test_each_end_is_the_answer_with_that_figure(self, worked):
        rows = worked.sensitivities
        years = rows["key"] == "demand.years"
        assert set(rows.loc[~years, "range"]) == {"±20%"}
        assert worked.learn_next == ()
        for row in (*rows[~years].head(5).to_dict("records"), *rows[years].to_dict("records")):
            for end in ("low", "high"):
                value = int(row[end]) if row["key"] == "demand.years" else row[end]
                apart = lead(row["key"], value)
                assert ("small" if apart > 0 else "large") == row[f"cheapest_at_{end}"]
                assert apart == pytest.approx(row[f"apart_at_{end}"], abs=0.1)

    def test_bounds_are_kept(self):
        both = server("one", idle=190.0), server("two", rate=300.0)
        table = scenario(*both, demand={"profile": [1, 0.5]})
        idle = asked(table).sensitivities.set_index("key").loc["candidate.one.idle_power"]
        assert (idle["low"], idle["high"]) == (152.0, 200.0)

    def test_widest_first_and_what_to_learn_next_has_most_of_the_variance(self):
        table = scenario(
            server("one", rate=2000.0, price=ranged(1000.0, 900.0, 1100.0)),
            server("two", rate=2000.0, price=ranged(1010.0, 700.0, 1320.0)),
        )
        result = asked(table, draws=4000)
        rows = result.sensitivities.set_index("key")
        assert (rows["apart_at_high"] - rows["apart_at_low"]).abs().is_monotonic_decreasing
        found = rows.loc["candidate.two.price", ["range", "changes", "cheapest_at_low"]].tolist()
        assert found == ["given", True, "two"]
        assert "site.pue" not in rows.index
        widths = np.array([200.0, 620.0]) ** 2
        first, second = result.learn_next
        assert first == f"price of two ({widths[1] / widths.sum():.0%} of the variance)"
        assert second.startswith("price of one (")
        assert only(result.caveats, "undecided").startswith("undecided: no candidate costs least")
        assert result.verdict()[-1] == f"What would decide it: find out {first}, then {second}."


def test_cores_and_launch_price_in_dollars_are_of_the_catalogue():
    epyc = server("epyc", catalogue="EPYC 9654", sockets=2)
    del epyc["price"]
    table = scenario(epyc, costs={"licence_per_core": 10.0})
    result, host = asked(table), ppw.find_host("EPYC 9654")
    price = result.inputs.set_index("key").loc["candidate.epyc.price"]
    assert (price["value"], price["label"]) == (2 * host.launch_price_usd, "catalogue")
    assert price["source"].startswith("AMD")
    servers = result.candidates["servers"][0]
    assert result.costs["licences"][0] == servers * 2 * host.cores * 10
    assert only(result.caveats, "epyc: its price is only the launch price")
    with pytest.raises(PpwError, match="the catalogue's price is in USD, the scenario in EUR"):
        asked(table | {"currency": "EUR"})


LICENCES = {"costs": {"licence_per_core": ranged(0, 0, 5)}}
CARBON = {"costs": {"carbon_price": 90}, "site": {"grid_carbon": 0.3}}
SHORT = {"load": [0, 1], "power": [1, 2, 3]}
ENDS_EARLY = {"load": [0, 0.9], "power": [50, 90]}
UNLIKE, LIMIT = {"rate": [1, 2], "p99": ["1ms"]}, {"workload": {"latency_p99": 1}}


@pytest.mark.cases(
    "figures, parts, said",
    ({"rate": None}, {}, "no rate of work"),
    ({"power": None}, {}, "candidate.workload.work.power (W at full load)"),
    ({"power": None, "catalogue": "Xeon X5670"}, {}, "power (W at full load, which is not th"),
    ({"idle": None}, {}, "no idle power: give idle_power or power_levels"),
    ({"price": None}, {}, "no price: give price, or rent_per_hour"),
    ({"rent_per_hour": 1.0}, {}, "a price and a rent_per_hour: give one of them"),
    ({"price": None, "rent_per_hour": 1.0, "owned": 2}, {}, "rented servers are not owned"),
    ({}, {"workload": {"memory": "1GiB"}}, "no memory size, which workload work needs"),
    ({}, LICENCES, "no number of cores, which licences need"),
    ({}, CARBON, "costs.carbon_price needs site.grid_carbon and the candidate's embodied_ca"),
    ({"idle": 250.0}, {}, "its idle power 250 W is not below its full-load power 200 W"),
    ({"where": {"host": "a"}}, {}, "where and freq are of runs, and none are named"),
    ({"power_levels": SHORT}, {}, "power_levels has 2 loads and 3 power values"),
    ({"power_levels": SHORT | {"load": [0, 0.4, 0.6, 1]}}, {}, "has 4 loads and 3 power v"),
    ({"power_levels": ENDS_EARLY}, {}, "power_levels ends below load 1"),
    ({"latency": UNLIKE}, LIMIT, "latency of work has 2 rates and 1 values of p99"),
)
def test_what_is_missing_is_an_error_and_not_a_guess(figures, parts, said):
    one = server("x", **figures)
    one = {key: value for key, value in one.items() if value is not None}
    one["workload"]["work"] = {k: v for k, v in one["workload"]["work"].items() if v is not None}
    with pytest.raises(PpwError) as caught:
        asked(scenario(one, **parts))
    assert str(caught.value).startswith("scenario: candidate 'x': ")
    assert said in str(caught.value)


def test_carbon_of_one_that_is_not_known_has_no_total():
    known = server("known", embodied_carbon=100.0)
    result = asked(scenario(known, server("not"), site={"grid_carbon": 0.5}))
    carbon = result.carbon.set_index("candidate")
    assert np.isnan(carbon.loc["not", "total_kg"])
    assert carbon.loc["not", "use_kg"] > 0
    assert only(result.caveats, "embodied carbon of not is not known")
    assert result.figures.loc[result.figures["figure"] == "carbon", "p_best"].isna().all()
    assert not any(s.startswith("Best") and "carbon" in s for s in result.verdict())


def test_options_that_cannot_be():
    with pytest.raises(PpwError, match="level 90 is not a share"):
        procure(scenario(), level=90)
    with pytest.raises(PpwError, match="99 draws are too few"):
        procure(scenario(), draws=99)


def test_the_order_of_candidates_changes_nothing():
    made = [
        server("one", price=ranged(900.0, 800.0, 1100.0)),
        server("two", rate=180.0, price=1700.0, power=ranged(260.0, 220.0, 300.0)),
        server("three", rate=55.0, price=500.0, power=120.0, idle=60.0),
    ]
    first = asked(scenario(*made))
    for order in (made[::-1], [*made[1:], made[0]]):
        other = asked(scenario(*order))
        assert other.cheapest == first.cheapest
        for name in ("one", "two", "three"):
            for figure in ("tco", "perf_per_watt"):
                assert other.figure(name, figure).equals(first.figure(name, figure))
