"""Pages with sliders, in a headless Chromium: real drags, held against the Python that answers.

A figure of the page is read from its <data> element, which holds the number that its text rounds.
"""

from __future__ import annotations

import base64
import hashlib
import html
import io
import json
import math
import re
import tomllib

import numpy as np
import pandas as pd
import pytest
from browser import Browser
from hypothesis import given
from hypothesis import strategies as st
from made_up import answered, sweep
from matplotlib.image import imread
from procurement_scenarios import ROOT, asked, documented, scenario, server

import ppw
from ppw.objectives import OBJECTIVES, Rates, log_cost
from ppw.procurement.procure import procure
from ppw.procurement.ranking import share_best
from ppw.procurement.result import Procurement
from ppw.report import procurement_sliders as sliders_of_procurement
from ppw.report.procurement_page import procurement_page
from ppw.report.projection_page import projection_page
from ppw.report.projection_sliders import MOST_GROUPS
from ppw.report.stops import nearest, stops
from ppw.runs_projection import RunsProjection

HOURS = 8760
GHZ = 1e9
HOSTILE = ["</script><b>", "<!--<script>", '"><img src=x onerror=alert(1)>', "a&amp;b", "__proto__"]


def cored(**options):
    """One host with 1, 2 and 4 of its cores at work, and what it draws while idle."""
    parts = [
        sweep(noise=0.02, **options).assign(
            cores=cores, time_s=lambda d, n=cores: d["time_s"] * (0.1 + 0.9 / n)
        )
        for cores in (1, 2, 4)
    ]
    return pd.concat(parts).assign(idle_power_w=12.0)


RUNS = cored()
TARGETS = [2.8e9, 3.0e9]


def projected(runs=RUNS, freq=TARGETS, **options):
    return answered(ppw.project_runs, runs, freq=freq, **options)


# Every term of the model counts in it.
RICH = """
[demand]
years = 3
rate = 9000
growth_per_year = { value = 0.15, low = 0.0, high = 0.4 }
headroom = 0.2
max_utilisation = 0.7
spare_share = 0.1
spare_servers = 1
profile = [0.2, 0.6, 1.0, 0.5]

[[workload]]
name = "work"
weight = 2
memory = "900GiB"
latency_p99 = "10ms"

[[workload]]
name = "scan"
weight = 1
profile = [1.0]

[site]
electricity = { value = 0.2, low = 0.1, high = 0.4 }
electricity_change_per_year = 0.03
pue = { value = 1.4, low = 1.2, high = 1.6 }
grid_carbon = 0.35
grid_carbon_change_per_year = -0.05
rack_units = 30
rack_power = "5kW"
rack_price = 900
rack_rent_per_year = 700
max_racks = 12
power = "40kW"

[costs]
discount_rate = 0.06
support_share = 0.08
licence_per_core = 20
licence_per_core_per_year = 12
licence_per_server_per_year = 60
port_price = 110
port_power = 5
carbon_price = 80
residual_share = 0.05

[[candidate]]
name = "a"
price = 2400
cores = 16
memory = "64GiB"
embodied_carbon = 900
residual_share = 0.2
idle_power = 90
beside_power = 15
power_levels = { load = [0.0, 0.2, 0.5, 0.8, 1.0], power = [90, 130, 155, 190, 240] }
[candidate.workload.work]
rate = { value = 480, low = 400, high = 560 }
latency = { rate = [100, 300, 450], p99 = ["1ms", "3ms", "30ms"] }
[candidate.workload.scan]
rate = 250
power = 210

[[candidate]]
name = "b"
price = { value = 4100, low = 3900, high = 4600 }
cores = 32
height = 2
ports = 2
memory = "128GiB"
embodied_carbon = 1500
support_per_year = 150
idle_power = 110
rated_power = 450
power_scope = "wall"
[candidate.workload.work]
rate = 900
power = 320
[candidate.workload.scan]
rate = 600
power = 300
"""


def rich(**demand):
    table = tomllib.loads(RICH)
    table["demand"] |= demand
    return table


SCENARIOS = {
    "guide": documented,
    "rich": rich,
    "pools": lambda: rich(pools="separate"),
}


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as made:
        yield made


@pytest.fixture(scope="module")
def answers():
    made = {"projection": projected(), "straight": projected(interval="t")}
    made["time alone"] = projected(metric="time")
    return made | {name: asked(table()) for name, table in SCENARIOS.items()}


@pytest.fixture(scope="module")
def pages(answers):
    return {
        name: (procurement_page if isinstance(result, Procurement) else projection_page)(result)
        for name, result in answers.items()
    }


@pytest.fixture(scope="module")
def files(pages, tmp_path_factory):
    """The pages as files, by name."""
    folder = tmp_path_factory.mktemp("pages")
    return {name: written(page, folder / f"{name}.html") for name, page in pages.items()}


def written(page, path):
    path.write_text(page.render(), encoding="utf-8")
    return path


@pytest.fixture
def shown(browser, files):
    """Show a page by its name; nothing may be wrong with it, and nothing asked for."""

    def show(name, **options):
        browser.show(files[name], **options)
        return Shown(browser)

    yield show
    assert browser.complaints() == []
    assert [url for url in browser.requests() if not url.startswith("file:")] == []
    assert len(browser.requests()) == 1


class Shown:
    """The sliders of the page that the browser shows, by their labels."""

    def __init__(self, browser):
        self.browser = browser

    @property
    def data(self):
        return self.browser.run("JSON.parse(document.querySelector('#ppw-sliders').textContent)")

    def input(self, label):
        wanted = json.dumps(label)
        return (
            "[...document.querySelectorAll('#sliders input')]"
            f".find(e => e.labels[0].textContent === {wanted})"
        )

    def place(self, label):
        return self.browser.run(f"(e => [+e.value, +e.max])({self.input(label)})")

    def said(self, label):
        return self.browser.run(
            f"(e => document.querySelector(`output[for=${{e.id}}]`).textContent)"
            f"({self.input(label)})"
        )

    def move(self, label, place):
        """Put a slider to a place as its keys would."""
        self.browser.run(
            f"(e => {{ e.value = {place}; e.dispatchEvent(new Event('input', {{bubbles: true}}));"
            f" }})({self.input(label)})"
        )
        self.browser.settle()

    def move_to(self, label, places, value):
        self.move(label, nearest(places, value))
        return places[nearest(places, value)]

    def drag(self, label, share):
        """Drag its thumb to a share of its way."""
        x, y, width, height = self.browser.box(self.input(label))
        place, most = self.place(label)
        # A thumb of 16 pixels stays within its slider.
        across = [x + 8 + part * (width - 16) for part in (place / most, share)]
        self.browser.drag(*((at, y + height / 2) for at in across))
        return self.place(label)[0]

    def choose(self, name):
        self.browser.run(
            "(e => { e.selectedIndex = [...e.options].findIndex(o => o.textContent === "
            f"{json.dumps(name)}); e.dispatchEvent(new Event('change')); }})"
            "(document.querySelector('#sliders select'))"
        )
        self.browser.settle()

    def back(self):
        x, y, width, height = self.browser.box("document.querySelector('#sliders button')")
        self.browser.drag(*[(x + width / 2, y + height / 2)] * 2, steps=1)

    def texts(self):
        """Text of every cell, by the first of its row."""
        rows = self.browser.run(
            "[...document.querySelectorAll('#sliders tbody tr')]"
            ".map(row => [...row.cells].map(cell => cell.textContent))"
        )
        return {first: rest for first, *rest in rows}

    def numbers(self):
        """Numbers of every cell, by the first of its row; NaN where there is none."""
        rows = self.browser.run(
            "[...document.querySelectorAll('#sliders tbody tr')].map(row => [...row.cells].map("
            "cell => cell.querySelector('data')?.value.split(' ').map(Number) ?? "
            "cell.textContent))"
        )
        return {
            first: [x for cell in rest for x in (cell if isinstance(cell, list) else [math.nan])]
            for first, *rest in rows
        }

    def note(self):
        return self.browser.run("document.querySelector('#sliders .note').textContent")

    def status(self):
        return self.browser.run("document.querySelector('#sliders [role=status]').textContent")


class TestStops:
    @given(
        st.floats(0, 1e10),
        st.floats(1e-6, 1e10),
        st.lists(st.floats(0, 2e10), max_size=5),
        st.integers(5, 300),
    )
    def test_they_rise_and_hold_what_must_be_met(self, low, span, exact, most):
        high = low + span
        made = stops(low, high, exact, most=most)
        inside = [x for x in exact if low <= x <= high]
        assert made == sorted(set(made))
        assert (made[0], made[-1]) == (low, high)
        assert set(inside) <= set(made)
        assert len(made) <= most + 3 + len(inside)

    def test_they_are_the_numbers_that_people_mean(self):
        assert stops(0.0, 1.0, most=10) == [0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0]
        assert stops(1.2e9, 2.8e9, [2.33e9], most=8) == [
            *(1.2e9, 1.4e9, 1.6e9, 1.8e9, 2e9, 2.2e9, 2.33e9, 2.4e9, 2.6e9, 2.8e9),
        ]

    def test_one_value_is_one_stop(self):
        assert stops(5.0, 5.0, [5.0]) == [5.0]


class TestProjection:
    def of(self, runs, frequency, name, **options):
        """Table of the answer to one frequency, by metric, for the group of a page."""
        table = answered(ppw.project_runs, runs, freq=frequency, **options).table
        chosen = table[(table["workload"] == name[0]) & (table["cores"] == name[1])]
        return chosen.set_index("metric")

    @pytest.mark.parametrize("part", [0.0, 0.3, 0.8, 1.0])
    def test_at_a_computed_frequency_figures_are_pythons(self, part, shown):
        page = shown("projection")
        group = next(g for g in page.data["groups"] if (g["name"], g["cores"]) == ("sort", 2))
        frequency = group["grid"][round(part * (len(group["grid"]) - 1))]
        page.choose("sort")
        page.move("cores", 1)
        page.move_to("frequency", group["frequency"]["stops"], frequency)
        wanted, found = self.of(RUNS, frequency, ("sort", 2)), page.numbers()
        for metric in ("time", "cpi", "power", "energy"):
            row = wanted.loc[metric, ["projected", "lower", "upper"]]
            assert found[metric] == pytest.approx(row.tolist(), rel=1e-9)

    def test_between_them_they_are_as_near_as_is_said(self, shown):
        page = shown("projection")
        (said,) = re.findall(r"to ([\d.]+) % or better", page.note())
        assert float(said) < 1
        group = next(g for g in page.data["groups"] if (g["name"], g["cores"]) == ("grep", 4))
        between = [f for f in group["frequency"]["stops"] if f not in group["grid"]]
        assert len(between) > 2 * len(group["grid"]) / 3
        asked = between[:: len(between) // 8]
        wanted = self.of(RUNS, asked, ("grep", 4)).set_index("freq_hz", append=True)
        for frequency in asked:
            page.move_to("frequency", group["frequency"]["stops"], frequency)
            found = page.numbers()
            for metric in ("time", "cpi", "power", "energy"):
                row = wanted.loc[(metric, frequency), ["projected", "lower", "upper"]]
                assert found[metric] == pytest.approx(row.tolist(), rel=float(said) / 100)

    def test_it_begins_as_the_table_of_the_page_says(self, shown, pages):
        page = shown("projection")
        rows = pages["projection"].tables[0].rows
        said = {
            row[-6]: row[-4:-2]
            for row in rows
            if "grep" in row and row[-5] == "3 GHz" and row[-7] == "4"
        }
        texts = page.texts()
        for metric in ("time", "power", "energy"):
            assert texts[metric] == said[metric]
        assert page.status() == f"grep at 3 GHz on 4 cores: time {said['time'][0]}."

    def test_a_drag_of_each_slider_moves_what_hangs_on_it(self, shown):
        page = shown("projection")
        # Towards the other end, so that a thumb that stays where it is fails.
        order = [
            ("frequency", 0.2, "time"),
            ("cores", 0.0, "time"),
            ("price of a host", 0.9, "total cost over 1 year"),
            ("electricity", 0.5, "total cost over 1 year"),
            ("power usage effectiveness", 0.6, "energy of a year"),
            ("utilisation", 0.3, "energy of a year"),
            ("years kept", 1.0, "total cost over 10 years"),
        ]
        for label, share, figure in order:
            before, (_, most) = page.texts(), page.place(label)
            place = page.drag(label, share)
            assert place == pytest.approx(share * most, abs=1 + 0.02 * most), label
            assert page.texts()[figure] != before.get(figure), label
        assert page.said("years kept") == "10"
        page.back()
        assert page.texts() == shown("projection").texts()

    def test_keys_move_a_slider(self, shown):
        page = shown("projection")
        page.browser.run(f"{page.input('frequency')}.focus()")
        before = page.place("frequency")[0]
        page.browser.press("ArrowLeft", 37)
        assert page.place("frequency")[0] == before - 1
        page.browser.press("Home", 36)
        assert page.said("frequency") == "1.2 GHz"

    def test_cores_keep_the_frequency_and_the_price(self, shown):
        page = shown("projection")
        page.drag("frequency", 0.4)
        page.drag("price of a host", 0.7)
        kept = page.said("frequency"), page.said("price of a host")
        page.drag("cores", 0.5)
        assert page.said("cores") == "2"
        assert (page.said("frequency"), page.said("price of a host")) == kept
        page.choose("wc")
        assert page.said("frequency") == kept[0]
        assert page.said("price of a host") == "2,500.00"

    def set_costs(self, page):
        places = {s["label"]: s["stops"] for s in page.data["sliders"]}
        tariff = page.move_to("electricity", places["electricity"], 0.31)
        pue = page.move_to("power usage effectiveness", places["power usage effectiveness"], 1.44)
        share = page.move_to("utilisation", places["utilisation"], 35.0) / 100
        years = page.move_to("years kept", places["years kept"], 4.0)
        return tariff, pue, share, years

    @pytest.mark.parametrize("name", ["projection", "straight"])
    def test_costs_follow_from_the_watts_by_hand(self, name, shown):
        page = shown(name)
        tariff, pue, share, years = self.set_costs(page)
        found = page.numbers()
        watts = np.array(found["power"])
        site = pue * (share * watts + (1 - share) * 12.0)
        kilowatt_hours = site * HOURS / 1000
        assert found["power of the site, mean"] == pytest.approx(site, rel=1e-12)
        assert found["energy of a year"] == pytest.approx(kilowatt_hours, rel=1e-12)
        paid = kilowatt_hours * tariff * years
        assert found["electricity over 4 years"] == pytest.approx(paid, rel=1e-12)
        assert found["total cost over 4 years"] == pytest.approx(2500 + paid, rel=1e-12)

    def test_work_per_cost_is_that_of_the_objectives(self, browser, tmp_path):
        # With nothing drawn while idle: price·T/lifetime + electricity·P·T is the same cost.
        runs = sweep(noise=0.0, workloads=["wc"])
        page = written(projection_page(projected(runs, 3e9)), tmp_path / "page.html")
        browser.show(page)
        at = Shown(browser)
        tariff, pue, share, years = self.set_costs(at)
        found = at.numbers()
        cost = log_cost(
            OBJECTIVES["perf_per_dollar"],
            np.log(found["time"][:1]),
            np.log(found["power"][:1]),
            2500.0,
            Rates(electricity=tariff * pue, lifetime_hours=share * years * HOURS),
        )
        per_cost = found["work per total cost (per price unit)"]
        assert per_cost[0] == pytest.approx(1 / np.exp(cost[0]), rel=2e-3)

    @pytest.mark.parametrize("frequency", [1.2e9, 2.0e9, 3.0e9])
    def test_where_only_watts_cost_the_interval_is_that_of_perf_per_watt(self, frequency, shown):
        page = shown("projection")
        group = page.data["groups"][0]
        page.choose(group["name"])
        page.move("cores", 0)
        page.move_to("frequency", group["frequency"]["stops"], frequency)
        page.move("price of a host", 0)
        page.move("electricity", 100)
        wanted = self.of(RUNS, frequency, (group["name"], group["cores"])).loc["perf_per_watt"]
        per_kwh = np.array(page.numbers()["work per total cost (per price unit)"])
        ends = per_kwh / 3.6e6
        middle, reach = wanted["projected"], wanted["upper"] - wanted["lower"]
        assert ends == pytest.approx(
            wanted[["projected", "lower", "upper"]].tolist(), abs=0.03 * reach
        )
        assert ends[0] == pytest.approx(middle, rel=0.005)

    def test_the_price_scales_performance_per_price(self, shown, answers):
        page = shown("projection")
        table = answers["projection"].table
        row = table[(table["workload"] == "grep") & (table["cores"] == 4)]
        row = row[(row["metric"] == "perf_per_dollar") & (row["freq_hz"] == 3e9)].iloc[0]
        label = "performance per price (1/s per price)"
        assert page.numbers()[label] == pytest.approx(
            row[["projected", "lower", "upper"]].tolist(), rel=1e-9
        )
        places = page.data["groups"][0]["price"]["stops"]
        price = page.move_to("price of a host", places, 5000.0)
        assert page.numbers()[label][0] == pytest.approx(row["projected"] * 2500 / price)

    def test_without_watts_there_are_no_costs_to_set(self, shown):
        page = shown("time alone")
        assert list(page.texts()) == ["time", "performance per price (1/s per price)"]
        visible = page.browser.run(
            "[...document.querySelectorAll('#sliders label')].filter(e => e.checkVisibility())"
            ".map(e => e.textContent)"
        )
        assert visible == ["group", "frequency", "cores", "price of a host"]

    def test_without_an_interval_there_is_none(self, browser, tmp_path):
        result = projected(RUNS[RUNS["workload"] == "wc"], interval="none")
        browser.show(written(projection_page(result), tmp_path / "page.html"))
        texts = Shown(browser).texts()
        assert {row[1] for row in texts.values()} == {"–"}
        assert "work per total cost (per price unit)" in texts

    def test_an_answer_of_one_group_without_keys(self, browser, tmp_path):
        bare = pd.DataFrame({"freq_ghz": [1.0, 2.0], "time_s": [30.0, 20.0]})
        browser.show(written(projection_page(projected(bare, 3e9)), tmp_path / "page.html"))
        page = Shown(browser)
        assert page.status().startswith("all runs at 3 GHz: time ")
        assert browser.complaints() == []

    def test_the_groups_are_capped_and_it_is_said(self):
        hosts = [sweep(host=f"node{i}", seed=i, repeats=1) for i in range(6)]
        page = projection_page(projected(pd.concat(hosts), metric="time"))
        assert page.sliders.note.startswith(f"{MOST_GROUPS} of 18 groups are here, ")
        assert len(json.loads(page.sliders.data)["groups"]) == MOST_GROUPS

    def test_one_that_was_read_back_is_the_page_without_sliders(self, answers):
        again = RunsProjection.from_json(answers["projection"].to_json())
        page = projection_page(again)
        assert page.sliders is None
        assert 'id="sliders"' not in page.render()


def moved(result, settings, years):
    """Cost of every candidate with some figures known: at the values, and in all draws."""
    model, inputs = result.basis
    drawn = inputs.drawn(result.draws, result.seed).replaced(settings)
    central = inputs.central().replaced(settings)
    return model.outcomes(central, years), model.outcomes(drawn, years)


class TestProcurement:
    POSITIONS = (
        {},
        {"site.electricity": 0.8, "site.pue": 0.1},
        {"demand.max_utilisation": 0.3, "candidate.{0}.price": 0.9},
        {"demand.scale": 0.6, "demand.years": 0.8, "site.pue": 0.9},
        {"candidate.{1}.price": 0.05, "demand.years": 0.0, "demand.max_utilisation": 1.0},
    )

    @pytest.mark.parametrize("position", range(len(POSITIONS)))
    @pytest.mark.parametrize("name", list(SCENARIOS))
    def test_the_page_costs_as_the_model_does(self, name, position, shown, answers):
        page, result = shown(name), answers[name]
        sliders = {s["key"]: s for s in page.data["sliders"]}
        settings = {}
        for pattern, share in self.POSITIONS[position].items():
            slider = sliders[pattern.format(*result.candidates["candidate"])]
            place = round(share * (len(slider["stops"]) - 1))
            page.move(slider["label"], place)
            settings[slider["key"]] = slider["stops"][place]
        years = int(settings.pop("demand.years", result.years))
        central, drawn = moved(result, settings, years)
        costs = np.stack([one.tco() for one in drawn])
        fits = np.stack([one.racks.fits for one in drawn]) > 0
        cheapest = share_best(costs, fits, more_is_better=False)
        ends = np.quantile(costs, [0.05, 0.95], axis=1).T
        for i, (candidate, found) in enumerate(page.numbers().items()):
            assert candidate == result.candidates["candidate"][i]
            servers, racks, energy, cost, *interval, best = found
            one = central[i]
            assert servers == one.servers[0]
            assert racks == one.racks.racks[0] if one.racks.fits[0] else math.isnan(racks)
            assert energy == pytest.approx(one.energy.site().sum(), rel=1e-9)
            assert cost == pytest.approx(one.tco()[0], rel=1e-9)
            if np.ptp(costs[i]) > 0:
                assert interval == pytest.approx(ends[i], rel=1e-9)
            else:
                assert np.isnan(interval).all()
            assert best == pytest.approx(cheapest[i], rel=1e-9, nan_ok=True)

    def test_the_positions_change_servers_fits_and_the_answer(self, answers):
        model, inputs = answers["rich"].basis
        plain = model.outcomes(inputs.central())
        full = model.outcomes(inputs.central().replaced({"demand.max_utilisation": 0.3}))
        more = model.outcomes(inputs.central().replaced({"demand.scale": 2.5}))
        assert [a.servers[0] < b.servers[0] for a, b in zip(plain, full, strict=True)] == [1, 1]
        assert [one.racks.fits[0] for one in plain] != [one.racks.fits[0] for one in more]

    @pytest.mark.parametrize("name", list(SCENARIOS))
    def test_it_begins_as_the_tables_of_the_page_say(self, name, shown, answers, pages):
        page, result = shown(name), answers[name]
        table = {row[0]: row[1:] for row in pages[name].tables[0].rows[::-1]}
        for i, texts in enumerate(page.texts().values()):
            assert texts[0] == table["servers"][i]
            assert texts[3] == table[f"total cost ({result.currency})"][i]
        assert page.status().startswith(result.verdict()[0].split(" (")[0].rstrip("."))

    def test_a_drag_of_each_slider_changes_a_cost(self, shown):
        page = shown("rich")
        assert page.said("electricity (USD/kWh)") == "0.2 (0.1 … 0.4)"
        for slider in page.data["sliders"]:
            before, most = page.numbers(), len(slider["stops"]) - 1
            share = 0.9 if slider["start"] < most / 2 else 0.15
            place = page.drag(slider["label"], share)
            assert place == pytest.approx(share * most, abs=1 + 0.02 * most)
            after = page.numbers()
            changed = [after[name][3] != before[name][3] for name in before]
            assert any(changed), slider["label"]
            own = re.fullmatch(r"candidate\.(.)\.price", slider["key"])
            assert all(changed) or own
        assert page.said("electricity (USD/kWh)") == "0.545"
        page.back()
        assert page.numbers() == shown("rich").numbers()

    def test_a_figure_moved_back_to_its_value_is_known(self, shown):
        page = shown("rich")
        (slider,) = [s for s in page.data["sliders"] if s["key"] == "site.electricity"]
        wide = page.numbers()["a"][4:6]
        page.move(slider["label"], slider["start"])
        narrow = page.numbers()["a"][4:6]
        assert page.said(slider["label"]) == "0.2"
        assert narrow[1] - narrow[0] < wide[1] - wide[0]

    def test_fewer_draws_are_carried_where_there_are_many_and_it_is_said(self, monkeypatch):
        monkeypatch.setattr(sliders_of_procurement, "_MOST_NUMBERS", 1200)
        page = procurement_page(asked(rich(), draws=400))
        data = json.loads(page.sliders.data)
        assert data["draws"] == 240
        assert "of the first 240 draws of 400" in page.sliders.note
        packed = {key: drawn for key, _, drawn in data["figures"] if drawn}
        assert len(packed) == 5
        values = np.frombuffer(base64.b64decode(packed["site.pue"]), "<f8")
        wanted = asked(rich(), draws=400).basis.inputs["site.pue"].drawn(400, 0)
        assert values.tolist() == wanted[:240].tolist()

    def test_many_candidates_have_no_slider_each_and_it_is_said(self):
        page = procurement_page(asked(scenario(*(server(f"s{i}") for i in range(8)))))
        prices = [s for s in json.loads(page.sliders.data)["sliders"] if "price" in s["key"]]
        assert len(prices) == 6
        assert "The prices of the first 6 of 8 candidates have sliders." in page.sliders.note

    def test_one_that_was_read_back_is_the_page_without_sliders(self, answers):
        page = procurement_page(Procurement.from_json(answers["guide"].to_json()))
        assert page.sliders is None


PAGES = ["projection", "rich"]


@pytest.mark.parametrize("name", PAGES)
class TestEveryPage:
    def test_a_browser_runs_the_one_script_of_the_page_and_asks_for_nothing(self, name, files):
        text = files[name].read_text(encoding="utf-8")
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
        (script,) = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        digest = base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()
        said = dict(part.split(maxsplit=1) for part in html.unescape(policy).split("; "))
        assert said["default-src"] == "'none'"
        assert said["script-src"] == f"'sha256-{digest}'"
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in script

    def test_another_script_is_refused(self, name, files, browser, tmp_path):
        text = files[name].read_text(encoding="utf-8")
        path = tmp_path / "page.html"
        path.write_text(text.replace("</body>", "<script>window.bad = 1</script></body>"))
        browser.show(path)
        assert browser.run("window.bad ?? null") is None
        assert "Content Security Policy" in " ".join(browser.complaints())

    def test_without_scripts_it_is_the_page_without_sliders(self, name, browser, files, pages):
        browser.show(files[name], scripts=False)
        page, state = Shown(browser), browser.run("document.querySelector('#sliders').hidden")
        assert state is True
        assert page.texts() == {}
        assert browser.run("document.querySelectorAll('section:not([hidden])').length") >= 3
        words = browser.run("document.body.innerText")
        assert pages[name].sliders.title not in words
        assert pages[name].verdict[0] in words

    @pytest.mark.parametrize("width", [1280, 390])
    def test_it_fits_the_screen(self, name, width, shown):
        page = shown(name, width=width)
        browser = page.browser
        assert browser.run("document.documentElement.scrollWidth") <= width
        boxes = browser.run(
            "[...document.querySelectorAll('#sliders input, #sliders label, #sliders output')]"
            ".filter(e => e.checkVisibility()).map(e => e.getBoundingClientRect())"
            ".map(b => [b.left, b.right, b.height])"
        )
        assert len(boxes) >= 18
        assert min(left for left, _, _ in boxes) >= 0
        assert max(right for _, right, _ in boxes) <= width
        inputs = browser.run(
            "[...document.querySelectorAll('#sliders input')].filter(e => e.checkVisibility())"
            ".map(e => e.getBoundingClientRect()).map(b => [b.width, b.height])"
        )
        # Wide enough to set, and as high as a finger needs at the least.
        assert min(w for w, _ in inputs) >= 200
        assert min(h for _, h in inputs) >= 24
        browser.box("document.querySelector('#sliders .sliders')")
        picture = imread(io.BytesIO(browser.screenshot()))
        assert picture.shape[1] == width
        assert 0.01 < (picture[..., :3].mean(axis=2) < 0.9).mean() < 0.5

    def test_a_thumb_can_be_dragged_on_a_telephone_too(self, name, shown):
        page = shown(name, width=390)
        label = {"projection": "frequency", "rich": "power usage effectiveness"}[name]
        before = page.texts()
        page.drag(label, 0.5)
        assert page.place(label)[0] == pytest.approx(page.place(label)[1] / 2, abs=2)
        assert page.texts() != before

    def test_values_are_printed_and_sliders_are_not(self, name, shown):
        page = shown(name, width=718, media="print")
        seen = page.browser.run(
            "Object.fromEntries(['input', 'button', 'output', 'label', 'td'].map(kind => [kind, "
            "[...document.querySelectorAll(`#sliders ${kind}`)].some(e => e.checkVisibility())]))"
        )
        assert seen == {"input": False, "button": False, "output": True, "label": True, "td": True}
        assert page.browser.run("document.documentElement.scrollWidth") <= 718

    def test_readers_of_the_screen_hear_name_and_value_of_each(self, name, shown):
        page = shown(name)
        page.browser.call("Accessibility.enable")
        nodes = page.browser.call("Accessibility.getFullAXTree")["nodes"]
        page.browser.call("Accessibility.disable")
        by_role = {}
        for node in nodes:
            role, said = node.get("role", {}).get("value"), node.get("name", {}).get("value", "")
            by_role.setdefault(role, []).append((said, node))
        names = [said for said, _ in by_role["slider"]]
        assert len(names) >= 7
        assert len(set(names)) == len(names)
        assert all(names)
        for _, node in by_role["slider"]:
            states = {p["name"]: p["value"].get("value") for p in node["properties"]}
            assert states["valuetext"]
            assert states["focusable"]
        assert len(by_role["status"]) >= 1

    def test_the_same_input_gives_the_same_bytes(self, name, files):
        again = procurement_page(asked(rich())) if name == "rich" else projection_page(projected())
        assert again.render() == files[name].read_text(encoding="utf-8")


class TestHostileNames:
    def check(self, browser, path, names):
        browser.show(path)
        assert browser.complaints() == []
        assert len(browser.requests()) == 1
        assert browser.run("document.querySelectorAll('#sliders :is(b, img, script)').length") == 0
        words = browser.run("document.querySelector('#sliders').textContent")
        assert [name for name in names if name not in words] == []

    def test_of_workloads(self, browser, tmp_path):
        one = [cored(workloads=["sort"], seed=i) for i in range(len(HOSTILE))]
        runs = pd.concat([r.assign(workload=n) for r, n in zip(one, HOSTILE, strict=True)])
        page = projection_page(projected(runs, metric=["time", "power"]))
        # Of 15 groups 12 are shown.
        self.check(browser, written(page, tmp_path / "page.html"), sorted(HOSTILE)[:4])
        at = Shown(browser)
        at.choose(sorted(HOSTILE)[1])
        assert at.status().startswith(f"{sorted(HOSTILE)[1]} at 3 GHz on 4 cores: ")

    def test_of_candidates(self, browser, tmp_path):
        table = scenario(*(server(name, price=900.0 + i) for i, name in enumerate(HOSTILE)))
        page = procurement_page(asked(table))
        self.check(browser, written(page, tmp_path / "page.html"), HOSTILE)
        found = Shown(browser).numbers()
        assert list(found) == HOSTILE
        costs = asked(table).costs["tco"]
        assert [row[3] for row in found.values()] == pytest.approx(costs.tolist())


@pytest.mark.parametrize(
    ("value", "unit"),
    [
        *((v, "1") for v in (0.0, 1.0, 0.1 + 0.2, 9999.4, 9999.5, 12345.678, 1e12, -3.14159)),
        *((v, "1") for v in (1.2345e-4, 1.2345e-5, 2.5e-7, 123456789.0, 1e15, 0.00099996)),
        *((v, "W") for v in (0.0, 0.5, 139.5371, 4200.0, 3.1e6)),
        *((v, "Hz") for v in (3e9, 2.4499e9, 8e8)),
        *((v, "s") for v in (139.5371, 1e-6, 86400.0)),
    ],
)
def test_numbers_are_written_as_python_writes_them(value, unit, shown):
    from ppw.estimate import shown as wanted

    page = shown("time alone")
    assert page.browser.run(f"shown({value!r}, {unit!r})") == wanted(value, unit)


def test_the_example_is_a_page_of_reasonable_size(tmp_path):
    import warnings

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        result = procure(ROOT / "examples" / "procurement.toml")
    page = procurement_page(result)
    assert json.loads(page.sliders.data)["draws"] == result.draws
    assert len(page.render()) < 600_000
