"""The model: against the example worked in the guide, a second program, and its own sums."""

from __future__ import annotations

import json
import math
import re
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from procurement_scenarios import ROOT, asked, by_loops, documented, ranged, scenario, server

from ppw.procurement.inputs import Input, Numbers
from ppw.procurement.latency import share_within
from ppw.procurement.result import Procurement
from ppw.procurement.server import Server
from ppw.procurement.tables import CARBON_PARTS, ENERGY_PARTS

GUIDE = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")


def row_of(result, table, name):
    rows = getattr(result, table)
    (row,) = rows[rows["candidate"] == name].to_dict(orient="records")
    return row


@pytest.fixture(scope="module")
def worked():
    return asked(documented())


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

    def test_the_hand_itself(self, worked):
        """The arithmetic of the guide once more, from its figures alone."""
        worth = [1 / 1.05, 1 / 1.05**2]
        meter = [(7446.0 + 262.8) * 1.5, (7665.0 + 262.8) * 1.5]
        by_hand = {
            "servers": 6 * 2500,
            "racks": 2 * 800,
            "network": 6 * 120,
            "licences": 6 * 8 * 50 * sum(worth),
            "support": 15_000 * 0.08 * sum(worth),
            "energy": 0.10 * np.dot(meter, worth),
            "residual_value": -15_000 * 0.10 * worth[1],
        }
        row = row_of(worked, "costs", "small")
        for part, money in by_hand.items():
            assert row[part] == round(money, 2)
        assert meter == pytest.approx([11_563.2, 11_891.7])

    @pytest.mark.parametrize(
        "said",
        [
            "so 5 servers, and the spare one makes 6",
            "So 4 go into a rack|so 4 go into a rack",
            "11,563.2 kWh and (7665.0 + 262.8) · 1.5 = 11,891.7 kWh",
            "9,382.0 kg",
            "4,800.0 kg",
            "14,182.0 kg",
            "150 gets a joule",
            "12 gets/s for a euro",
            "38,940.26 EUR",
            "= 4556 EUR",
        ],
    )
    def test_the_guide_says_it(self, said):
        assert any(part in GUIDE for part in said.split("|"))

    def test_servers_racks_energy_carbon_and_worth(self, worked):
        small = row_of(worked, "candidates", "small")
        assert (small["servers"], small["by_rate"], small["spare"]) == (6, 5, 1)
        assert (small["racks"], small["per_rack"]) == (2, 4)
        assert small["mean_load"] == pytest.approx((0.41667 + 0.45833) / 2, abs=1e-5)
        energy = row_of(worked, "energy", "small")
        assert energy["total_kwh"] == pytest.approx(11_563.2 + 11_891.7)
        carbon = row_of(worked, "carbon", "small")
        assert [carbon[k] for k in (*CARBON_PARTS, "total_kg")] == [9382.0, 4800.0, 14_182.0]
        assert worked.figure("small", "perf_per_watt")["value"] == pytest.approx(150)
        assert worked.figure("small", "perf_per_dollar")["value"] == pytest.approx(12)
        work = 75_000 * 2.1 * 31_536_000
        cost = worked.figure("small", "work_per_cost")["value"]
        assert cost == pytest.approx(work / 24_833.21, rel=1e-6)
        assert cost == pytest.approx(200e6, rel=1e-3)

    def test_where_it_turns(self, worked):
        rows = worked.crossovers
        row = rows[(rows["key"] == "candidate.large.price") & (rows["criterion"] == "total cost")]
        assert round(float(row["value"].iloc[0])) == 4556
        assert row_of(worked, "costs", "large")["tco"] == 38_940.26


shares = st.floats(0.0, 0.5).map(lambda x: round(x, 3))
money = st.floats(1.0, 20_000.0).map(lambda x: round(x, 2))
servers = st.builds(
    lambda rate, idle, span, price, extra: {
        **server("x", rate=rate, power=idle + span, idle=idle, price=price),
        **extra,
    },
    rate=st.floats(5.0, 5000.0),
    idle=st.floats(1.0, 200.0),
    span=st.floats(1.0, 300.0),
    price=money,
    extra=st.fixed_dictionaries(
        {"cores": st.integers(1, 128), "height": st.integers(1, 4)},
        optional={"ports": st.integers(0, 4)},
    ),
)


@st.composite
def scenarios(draw, carbon=True):
    """Any scenario of one workload and up to four candidates."""
    count = draw(st.integers(1, 3))
    table = scenario(*(draw(servers) for _ in range(count)))
    for number, candidate in enumerate(table["candidate"]):
        candidate["name"] = f"number {number}"
        if carbon:
            candidate["embodied_carbon"] = draw(st.floats(0.0, 3000.0))
    table["workload"][0]["rate"] = draw(st.floats(1.0, 50_000.0))
    table["demand"] = {
        "years": draw(st.integers(1, 7)),
        "growth_per_year": draw(shares),
        "headroom": draw(shares),
        "max_utilisation": draw(st.floats(0.4, 1.0)),
        "spare_servers": draw(st.integers(0, 3)),
        "profile": [1.0, *draw(st.lists(st.floats(0.0, 1.0), max_size=5))],
    }
    table["site"] = {
        "electricity": draw(shares),
        "electricity_change_per_year": draw(shares),
        "pue": 1 + draw(shares),
        "rack_power": draw(st.floats(600.0, 20_000.0)),
        "rack_price": draw(money),
        "rack_rent_per_year": draw(money),
    }
    names = "discount_rate", "support_share", "residual_share"
    table["costs"] = {name: draw(shares) for name in names}
    names = "licence_per_core", "licence_per_core_per_year", "licence_per_server_per_year"
    table["costs"] |= {name: draw(money) for name in (*names, "port_price")}
    table["costs"]["port_power"] = draw(st.floats(0.0, 20.0))
    if carbon:
        table["site"]["grid_carbon"] = draw(shares)
        table["site"]["grid_carbon_change_per_year"] = -draw(shares)
        table["costs"]["carbon_price"] = draw(st.floats(0.0, 300.0))
    return table


class TestASecondProgram:
    """Plain loops over candidates, years and parts of the day."""

    @settings(max_examples=25)
    @given(table=scenarios())
    def test_agrees(self, table):
        result = asked(table, draws=100)
        for candidate in table["candidate"]:
            name = candidate["name"]
            count, racks, meter, kilograms, made, parts = by_loops(table, name)
            found = row_of(result, "candidates", name)
            assert (found["servers"], found["racks"]) == (count, racks)
            assert row_of(result, "energy", name)["total_kwh"] == pytest.approx(meter, abs=0.2)
            carbon = row_of(result, "carbon", name)
            assert carbon["use_kg"] == pytest.approx(kilograms, abs=0.06)
            assert carbon["embodied_kg"] == pytest.approx(made, abs=0.06)
            costs = row_of(result, "costs", name)
            for part, value in parts.items():
                assert costs[part] == pytest.approx(value, abs=0.006, rel=1e-9), part


def printed_sum(rows):
    """Parts and total of every column of a printed table, in whole last digits."""
    for column in range(1, len(rows[0])):
        cells = [row[column] for row in rows]
        if "–" not in cells:
            *parts, total = (Decimal(cell.replace(",", "")) for cell in cells)
            yield sum(parts), total


class TestColumnsAddUp:
    @settings(max_examples=25)
    @given(table=scenarios())
    def test_in_every_report(self, table):
        result = asked(table, draws=100)
        again = Procurement.from_json(result.to_json())
        for shown in (result, again):
            tables = [s for s in shown.sections() if s.header[0].startswith("part (")]
            assert [t.title for t in tables] == ["Money, present value", "Energy", "Carbon"]
            for table in tables:
                assert all(parts == total for parts, total in printed_sum(table.rows))
        totals = (("costs", None, "tco"), ("energy", ENERGY_PARTS, "total_kwh"))
        for name, parts, total in (*totals, ("carbon", CARBON_PARTS, "total_kg")):
            for row in json.loads(result.to_json())[name]:
                known = parts or [k for k in row if k not in ("candidate", total)]
                exact = sum(Decimal(repr(row[part])) for part in known)
                assert exact == Decimal(repr(row[total]))

    @settings(max_examples=10)
    @given(table=scenarios(carbon=False))
    def test_and_totals_are_the_figures(self, table):
        result = asked(table, draws=100)
        for row in result.costs.to_dict(orient="records"):
            assert result.figure(row["candidate"], "tco")["value"] == row["tco"]
        assert "carbon" not in set(result.figures["figure"])
        assert [s.header[0] for s in result.sections()[1:3]] == ["part (USD)", "part (kWh)"]
        assert "Carbon" not in [s.title for s in result.sections()]


class TestServersNeeded:
    @pytest.mark.parametrize(
        ("rate", "count"), [(1000.0, 10), (1000.1, 11), (1e-3, 1), (99_999.99, 1000)]
    )
    def test_whole_ones_that_arithmetic_does_not_push_up(self, rate, count):
        result = asked(scenario(server("one"), workload={"rate": rate}))
        assert result.candidates["servers"].tolist() == [count]

    def test_three_tenths_of_ten_are_three(self):
        # 0.1 + 0.2 of a whole: in floating point a little more than 3.
        result = asked(
            scenario(
                server("one", rate=1.0), workload={"rate": 3.0}, demand={"max_utilisation": 0.3}
            )
        )
        assert result.candidates["servers"].tolist() == [10]

    def test_memory_may_ask_for_more_than_the_rate(self):
        table = scenario(
            server("one", memory="64GiB"),
            workload={"memory": "1000GiB"},
            demand={"growth_per_year": 0.1, "years": 2, "headroom": 0.1},
        )
        row = row_of(asked(table), "candidates", "one")
        assert row["by_rate"] == math.ceil(1000 * 1.1 * 1.1 / 100)
        assert row["servers"] == row["by_memory"] == math.ceil(1000 * 1.1 * 1.1 / 64)

    def test_spare_ones_by_share(self):
        result = asked(scenario(server("one"), demand={"spare_share": 0.25, "spare_servers": 1}))
        assert result.candidates["spare"].tolist() == [4]

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
        watts = (200 * 1 + 150 * 10) / 11
        assert result.figure("one", "perf_per_watt")["value"] == pytest.approx(rate / watts)
        table["demand"]["pools"] = "separate"
        assert asked(table).candidates["servers"].tolist() == [22]
        table["demand"]["rate"] = 610.0
        # 2.03 and 20.3 servers: 23 together, 3 and 21 apart.
        assert asked(table).candidates["servers"].tolist() == [24]

    def test_units_that_differ_are_shares_of_the_demand(self):
        table = scenario(server("one"))
        table["workload"].append({"name": "jobs", "unit": "jobs", "rate": 1.0})
        table["candidate"][0]["workload"]["jobs"] = {"rate": 0.5, "power": 200.0}
        row = asked(table).figure("one", "perf_per_dollar")
        assert row["unit"] == "of the demand per USD"
        assert row["value"] == pytest.approx(1 / (1000 / 100 + 1 / 0.5) / 1000)
        years = asked(table).figure("one", "work_per_cost")
        assert years["unit"] == "years of the demand per USD"
        assert years["value"] == pytest.approx(1 / asked(table).costs["tco"][0], rel=1e-5)


class TestLatency:
    KNOWN = np.array([0.2, 0.6, 0.9, 1.0]), np.array([1e-4, 2e-4, 8e-4, 5e-3])

    @pytest.mark.parametrize(
        ("limit", "share"),
        [
            (9e-5, 0.0),
            (1e-4, 0.2),
            # Half way from 2e-4 to 8e-4 in its logarithm.
            (4e-4, 0.75),
            (8e-4, 0.9),
            (1.0, 1.0),
        ],
    )
    def test_by_hand(self, limit, share):
        assert share_within(*self.KNOWN, limit) == pytest.approx(share)

    def test_beyond_what_was_measured_nothing_is_promised(self):
        assert share_within(np.array([0.1, 0.5]), np.array([1e-4, 2e-4]), 1.0) == 0.5

    def test_a_dip_does_not_count(self):
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
        table = scenario(
            server("slow", latency=known, price=1.0),
            server("fast", latency=fast),
            workload={"latency_p99": "1ms"},
        )
        result = asked(table)
        assert result.candidates["candidate"].tolist() == ["fast"]
        assert any(c.startswith("slow is left out: its latency p99") for c in result.caveats)

    def test_where_none_is_known_it_is_said(self):
        result = asked(scenario(server("one"), workload={"latency_p50": "1ms"}))
        (said,) = [c for c in result.caveats if "latency p50" in c]
        assert "is not held against anything" in said


class TestRacksAndRoom:
    @pytest.mark.parametrize(
        ("site", "more", "racks"),
        [
            ({}, {}, 1),
            ({"rack_units": 4}, {}, 3),
            ({"rack_units": 4}, {"height": 2}, 5),
            ({"rack_power": "600W"}, {}, 4),
            ({"rack_power": "600W"}, {"rated_power": "300W"}, 5),
            ({"rack_power": "600W", "rack_units": 2}, {}, 5),
        ],
    )
    def test_by_height_and_by_power(self, site, more, racks):
        result = asked(scenario(server("one", **more), site=site))
        assert result.candidates["racks"].tolist() == [racks]

    @pytest.mark.parametrize(
        ("site", "why"),
        [
            ({"rack_units": 1}, "a server is higher than a rack"),
            ({"rack_power": "150W"}, "a server at its peak draws more than a rack may"),
            ({"max_racks": 1, "rack_units": 4}, "it takes more racks than there is space for"),
            ({"power": "1.9kW"}, "its servers at their peak draw more than the site may"),
        ],
    )
    def test_who_does_not_fit_is_never_the_best(self, site, why):
        dear = server("dear", rate=1100.0, power=140.0, price=90_000.0, height=1)
        table = scenario(server("cheap", height=2), dear, site=site)
        result = asked(table)
        cheap = row_of(result, "candidates", "cheap")
        assert (cheap["fits"], cheap["p_fits"], cheap["why_not"]) == (False, 0.0, why)
        assert result.cheapest == "dear"
        assert result.figure("cheap", "tco")["p_best"] == 0
        assert result.figure("dear", "tco")["p_best"] == 1
        assert f"cheap does not fit the site: {why}" in result.caveats

    def test_nobody_fits(self):
        result = asked(scenario(server("one"), server("two"), site={"rack_power": "10W"}))
        assert not result.any_fits
        assert result.verdict()[0].startswith("No candidate fits the site (one: a server at its")
        assert result.figures["p_best"].isna().all()

    def test_exactly_full_fits(self):
        result = asked(scenario(server("one"), site={"power": "2kW", "rack_power": "0.4kW"}))
        assert result.candidates["fits"].tolist() == [True]
        assert result.candidates["racks"].tolist() == [5]


class TestWatts:
    def numbers(self, **more):
        figures = {"idle_power": 60.0, "workload.a.power": 100.0, "workload.b.power": 140.0, **more}
        return Numbers({f"candidate.x.{k}": np.array([v]) for k, v in figures.items()}, 1)

    def test_a_straight_line_by_hand(self):
        load = np.array([[[0.25]], [[0.5]]])
        one = Server("x", 1, 0, None)
        # 60 + 0.25·40 + 0.5·80.
        assert one.watts(load, ["a", "b"], self.numbers())[0, 0] == pytest.approx(110)
        beside = self.numbers(beside_power=7.0)
        assert one.watts(load, ["a", "b"], beside)[0, 0] == pytest.approx(117)
        assert one.watts(0 * load, ["a", "b"], beside)[0, 0] == pytest.approx(67)
        assert one.full_watts(["a", "b"], beside)[0] == 147

    def test_the_shape_of_a_curve_is_what_counts(self):
        class Curve:
            def watts(self, load):
                return 5 + 2 * np.sqrt(load)

        one = Server("x", 1, 0, None, curve=Curve())
        load = np.array([[[0.25]], [[0.0]]])
        assert one.watts(load, ["a", "b"], self.numbers())[0, 0] == pytest.approx(60 + 0.5 * 40)

    def test_levels_that_are_typed_in(self):
        levels = {"load": [0, 0.5, 1], "power": [60, 90, 100]}
        bent = server("bent", idle=60.0, power=100.0, power_levels=levels)
        table = scenario(bent, workload={"rate": 50.0})
        result = asked(table)
        assert result.energy["servers_kwh"][0] == pytest.approx(90 * 8.76, abs=0.06)
        assert not any("straight" in c for c in result.caveats)
        # Idle and full-load watts may be those of the levels.
        del table["candidate"][0]["idle_power"]
        del table["candidate"][0]["workload"]["work"]["power"]
        assert asked(table).energy.equals(result.energy)


class TestGivenRanges:
    def test_are_triangular(self):
        figure = Input("k", "k", "1", 3.0, "given", low=2.0, high=6.0)
        drawn = figure.drawn(40_000, 0)
        assert drawn.min() >= 2
        assert drawn.max() <= 6
        assert drawn.mean() == pytest.approx((2 + 3 + 6) / 3, abs=0.02)
        share = (3 - 2) / (6 - 2)
        assert (drawn < 3).mean() == pytest.approx(share, abs=0.01)

    def test_the_same_seed_gives_the_same_draws_whatever_else_there_is(self):
        site = {"electricity": ranged(0.1, 0.05, 0.3)}
        alone, beside = (
            scenario(server("one"), site=site),
            scenario(server("two", price=3.0), server("one"), site=site),
        )
        ends = ["value", "lower", "upper"]
        first = asked(alone).figure("one", "tco")[ends].tolist()
        assert asked(beside).figure("one", "tco")[ends].tolist() == first
        assert asked(alone, seed=1).figure("one", "tco")[ends].tolist() != first

    def test_a_figure_without_a_range_has_no_interval(self):
        result = asked(scenario(server("one")))
        assert result.figures[["lower", "upper"]].isna().all(axis=None)
        (said,) = [c for c in result.caveats if c.startswith("nothing is uncertain here")]
        assert "{ value = …, low = …, high = … }" in said
