"""Pages with sliders, in a headless Chromium: real drags, compared with the answers of Python.

A figure of the page is read from its <data> element, which holds the number that its text rounds.
"""

import base64
import io
import json
import math
import re

import numpy as np
import pandas as pd
import pytest
from browser import Browser
from made_up import sweep
from matplotlib.image import imread
from procurement_scenarios import asked, scenario, server
from slider_pages import RUNS, SCENARIOS, cored, page_of, projected

from ppw.decision.objectives import OBJECTIVES, Rates, log_cost
from ppw.procurement.procure import share_best
from ppw.results.page import nearest
from ppw.results.text import shown as written_by_python

pytestmark = pytest.mark.peer("browser")

HOURS = 8760
SLIDERS = "[...document.querySelectorAll('#sliders input')]"


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
    return {name: page_of(result) for name, result in answers.items()}


@pytest.fixture
def open_page(browser, tmp_path):
    """Show a page; nothing may be wrong with it, and it asks for nothing."""

    def open_page(page, **options):
        path = tmp_path / "page.html"
        path.write_text(page.render(), encoding="utf-8")
        browser.show(path, **options)
        return Shown(browser)

    yield open_page
    assert browser.complaints() == []
    assert [url.partition(":")[0] for url in browser.requests()] == ["file"]


@pytest.fixture
def shown(open_page, pages):
    return lambda name, **options: open_page(pages[name], **options)


class Shown:
    """The sliders of the page that the browser shows, by their labels."""

    def __init__(self, browser):
        self.browser, self.run = browser, browser.run
        data = self.run("document.querySelector('#ppw-sliders')?.textContent ?? 'null'")
        self.data = json.loads(data)
        for group in (self.data or {}).get("groups", []):
            group["grid"] = self.data["lists"][group["grid"]]
            for slider in (group["frequency"], group["price"]):
                slider["stops"] = self.data["lists"][slider["stops"]]

    def of(self, label, what):
        """Value of an expression about the slider e."""
        return self.run(f"(e => {what})({self.input(label)})")

    def input(self, label):
        return f"{SLIDERS}.find(e => e.labels[0].textContent === {json.dumps(label)})"

    def place(self, label):
        return self.of(label, "[+e.value, +e.max]")

    def said(self, label):
        return self.of(label, "document.querySelector(`output[for=${e.id}]`).textContent")

    def text(self, selector):
        return self.run(f"document.querySelector('#sliders {selector}').textContent")

    def status(self):
        return self.text("[role=status]")

    def move(self, label, place):
        """Put a slider to a place as its keys would."""
        event = "e.dispatchEvent(new Event('input', {bubbles: true}))"
        self.of(label, f"{{ e.value = {place}; {event}; }}")
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
        place = self.place(label)[0]
        assert place == pytest.approx(share * most, abs=1 + 0.02 * most), label

    def choose(self, name):
        self.run(
            "(e => { e.selectedIndex = [...e.options].findIndex(o => o.textContent === "
            f"{json.dumps(name)}); e.dispatchEvent(new Event('change')); }})"
            "(document.querySelector('#sliders select'))"
        )
        self.browser.settle()

    def top(self):
        """Sentence and figures on top of the page."""
        parts = "document.querySelectorAll('.verdict :is(.answer, dt, dd)')"
        return self.run(f"[...{parts}].map(e => e.textContent)")

    def back(self):
        x, y, width, height = self.browser.box("document.querySelector('#sliders button')")
        self.browser.drag(*[(x + width / 2, y + height / 2)] * 2, steps=1)

    def rows(self, cell):
        """An expression about every cell, by the first of its row."""
        rows = "[...document.querySelectorAll('#sliders tbody tr')]"
        rows = self.run(f"{rows}.map(row => [...row.cells].map(cell => {cell}))")
        return {first: rest for first, *rest in rows}

    def texts(self):
        return self.rows("cell.textContent")

    def numbers(self):
        """Numbers of every cell, by the first of its row; NaN where there is none."""
        parts = "cell.querySelector('data')?.value.split(' ').map(Number) ?? cell.textContent"
        return {
            first: [x for cell in rest for x in (cell if isinstance(cell, list) else [math.nan])]
            for first, rest in self.rows(parts).items()
        }


ENDS = ["projected", "lower", "upper"]
PER_PRICE = "performance per price (1/s per price)"
METRICS = {name: name for name in ("time", "cpi", "power", "energy")}
METRICS |= {PER_PRICE: "perf_per_dollar"}


class TestProjection:
    def of(self, frequency, workload, cores):
        """Table of the answer to frequencies, for one group of the page, by metric."""
        table = projected(freq=frequency).table
        here = (table["workload"] == workload) & (table["cores"] == cores)
        return table[here].set_index("metric")

    def group(self, page, workload, cores):
        """Choose a group, and return what the page holds of it."""
        found = [g for g in page.data["groups"] if (g["name"], g["cores"]) == (workload, cores)]
        page.choose(workload)
        page.move("cores", [1, 2, 4].index(cores))
        return found[0]

    def test_at_computed_frequencies_figures_are_pythons_and_between_as_near_as_said(self, shown):
        page = shown("projection")
        (said,) = re.findall(r"to ([\d.]+) % or better", page.text(".note"))
        assert float(said) < 1
        group = self.group(page, "sort", 2)
        places, grid = group["frequency"]["stops"], group["grid"]
        between = [f for f in places if f not in grid]
        assert len(between) > 2 * len(grid) / 3
        exact = [grid[round(part * (len(grid) - 1))] for part in (0.0, 0.3, 0.8, 1.0)]
        near = between[:: len(between) // 8]
        wanted = self.of([*exact, *near], "sort", 2).set_index("freq_hz", append=True)
        for frequency in (*exact, *near):
            page.move_to("frequency", places, frequency)
            found, rel = page.numbers(), 1e-9 if frequency in exact else float(said) / 100
            for name, metric in METRICS.items():
                row = wanted.loc[(metric, frequency), ENDS]
                assert found[name] == pytest.approx(row.tolist(), rel=rel)

    def test_it_begins_as_the_table_of_the_page_says(self, shown, pages):
        page, rows = shown("projection"), pages["projection"].tables[0].rows
        here = [row for row in rows if "grep" in row and row[-5] == "3 GHz" and row[-7] == "4"]
        said = {row[-6]: row[-4:-2] for row in here}
        texts = page.texts()
        for metric in ("time", "power", "energy"):
            assert texts[metric] == said[metric]
        assert page.status() == f"grep at 3 GHz on 4 cores: time {said['time'][0]}."

    def test_a_drag_of_each_slider_moves_what_hangs_on_it(self, shown):
        page = shown("projection")
        first = page.texts()
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
            before = page.texts()
            page.drag(label, share)
            assert page.texts()[figure] != before.get(figure), label
        assert page.said("years kept") == "10"
        page.back()
        assert page.texts() == first

    def test_cores_keep_the_frequency_and_the_price(self, shown):
        page = shown("projection")
        page.drag("frequency", 0.4)
        page.drag("price of a host", 0.7)
        kept = page.said("frequency"), page.said("price of a host")
        page.drag("cores", 0.5)
        assert page.said("cores") == "2"
        assert (page.said("frequency"), page.said("price of a host")) == kept
        page.choose("wc")
        assert (page.said("frequency"), page.said("price of a host")) == (kept[0], "2,500.00")

    def test_headline_charts_and_address_follow_the_sliders(self, shown):
        page = shown("projection")
        page.run("drawn.then(() => 1)")
        asked = page.top()
        group = self.group(page, "sort", 2)
        page.move_to("frequency", group["frequency"]["stops"], 1.7e9)
        status, sentence = page.status(), page.top()[0]
        texts, numbers = page.texts(), page.numbers()
        assert status.startswith("sort at 1.7 GHz on 2 cores: time ")
        assert sentence.startswith(f"{status} From 2.4 GHz, the highest frequency measured, ")
        # Three digits stand on top.
        assert page.top()[1:3] == ["time", f"{numbers['time'][0]:.3g} s"]
        # Runs on two cores do 1.6 and 2.4 GHz: 10 s + 40 Gcycles and the rest, by hand.
        for name in ("time", "power", "energy"):
            chart = page.run(f"views.get('{name}').view.data('now')[0]")
            assert [chart[end] for end in ("x", "y", "lower", "upper")] == [1.7, *numbers[name]]
            points = page.run(f"views.get('{name}').view.data('points')")
            assert len(points) == (RUNS["workload"].eq("sort") & RUNS["cores"].eq(2)).sum()
        page.run("Promise.all([...views.values()].map(e => e.view.runAsync())).then(() => 1)")
        words = page.run("[...document.querySelectorAll('.chart text')].map(e => e.textContent)")
        assert {texts["time"][0], texts["power"][0]} <= set(words)
        address = page.run("location.hash")
        page.back()
        assert page.top() == asked
        came = "new Promise(done => { onhashchange = () => done(1); location.hash = "
        page.run(f"{came}{json.dumps(address)}; }})")
        page.browser.settle()
        assert (page.texts(), page.top()[0]) == (texts, sentence)

    def set_costs(self, page):
        places = {s["label"]: s["stops"] for s in page.data["sliders"]}
        wanted = {"electricity": 0.31, "power usage effectiveness": 1.44}
        wanted |= {"utilisation": 35.0, "years kept": 4.0}
        tariff, pue, share, years = (page.move_to(k, places[k], v) for k, v in wanted.items())
        return tariff, pue, share / 100, years

    @pytest.mark.parametrize("name", ["projection", "straight"])
    def test_costs_follow_from_the_watts_and_the_price_by_hand(self, name, shown):
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
        places = page.data["groups"][0]["price"]["stops"]
        price = page.move_to("price of a host", places, 5000.0)
        dear = page.numbers()
        assert dear["total cost over 4 years"] == pytest.approx(price + paid, rel=1e-12)
        assert dear[PER_PRICE][0] == pytest.approx(found[PER_PRICE][0] * 2500 / price)

    def test_work_per_cost_is_that_of_the_objectives(self, open_page):
        # With nothing drawn while idle: price·T/lifetime + electricity·P·T is the same cost.
        page = open_page(page_of(projected(sweep(noise=0.0, workloads=["wc"]), 3e9)))
        tariff, pue, share, years = self.set_costs(page)
        found = page.numbers()
        logs = (np.log(found[name][:1]) for name in ("time", "power"))
        rates = Rates(electricity=tariff * pue, lifetime_hours=share * years * HOURS)
        cost = log_cost(OBJECTIVES["perf_per_dollar"], *logs, 2500.0, rates)
        per_cost = found["work per total cost (per price unit)"]
        assert per_cost[0] == pytest.approx(1 / np.exp(cost[0]), rel=2e-3)

    @pytest.mark.parametrize("frequency", [1.2e9, 2.0e9, 3.0e9])
    def test_where_only_watts_cost_the_interval_is_that_of_perf_per_watt(self, frequency, shown):
        page = shown("projection")
        group = self.group(page, "grep", 1)
        page.move_to("frequency", group["frequency"]["stops"], frequency)
        page.move("price of a host", 0)
        page.move("electricity", 100)
        wanted = self.of(frequency, "grep", 1).loc["perf_per_watt", ENDS].tolist()
        ends = np.array(page.numbers()["work per total cost (per price unit)"]) / 3.6e6
        assert ends == pytest.approx(wanted, abs=0.03 * (wanted[2] - wanted[0]))
        assert ends[0] == pytest.approx(wanted[0], rel=0.005)

    def test_without_watts_there_are_no_costs_to_set(self, shown):
        page = shown("time alone")
        assert list(page.texts()) == ["time", PER_PRICE]
        visible = page.run(
            "[...document.querySelectorAll('#sliders label')].filter(e => e.checkVisibility())"
            ".map(e => e.textContent)"
        )
        assert visible == ["group", "frequency", "cores", "price of a host"]

    def test_without_an_interval_and_without_keys(self, open_page):
        page = open_page(page_of(projected(RUNS[RUNS["workload"] == "wc"], interval="none")))
        texts = page.texts()
        assert {row[1] for row in texts.values()} == {"–"}
        assert "work per total cost (per price unit)" in texts
        bare = pd.DataFrame({"freq_ghz": [1.0, 2.0], "time_s": [30.0, 20.0]})
        page = open_page(page_of(projected(bare, 3e9)))
        assert page.status().startswith("all runs at 3 GHz: time ")


class TestProcurement:
    POSITIONS = (
        {},
        {"site.electricity": 0.8, "site.pue": 0.1},
        {"demand.max_utilisation": 0.3, "candidate.{0}.price": 0.9},
        {"demand.scale": 0.6, "demand.years": 0.8, "site.pue": 0.9},
        {"candidate.{1}.price": 0.05, "demand.years": 0.0, "demand.max_utilisation": 1.0},
    )

    @pytest.mark.parametrize("position", POSITIONS, ids=list)
    @pytest.mark.parametrize("name", SCENARIOS)
    def test_the_page_costs_as_the_model_does(self, name, position, shown, answers):
        page, result = shown(name), answers[name]
        sliders = {s["key"]: s for s in page.data["sliders"]}
        settings = {}
        for pattern, share in position.items():
            slider = sliders[pattern.format(*result.candidates["candidate"])]
            place = round(share * (len(slider["stops"]) - 1))
            page.move(slider["label"], place)
            settings[slider["key"]] = slider["stops"][place]
        years = int(settings.pop("demand.years", result.years))
        model, inputs = result.basis
        drawn = inputs.draw(result.draws, result.seed).with_values(settings)
        drawn = model.outcomes(drawn, years)
        costs = np.stack([one.tco() for one in drawn])
        fits = np.stack([one.racks.fits for one in drawn]) > 0
        cheapest = share_best(costs, fits, more_is_better=False)
        ends = np.quantile(costs, [0.05, 0.95], axis=1).T
        central = model.outcomes(inputs.central().with_values(settings), years)
        numbers = page.numbers()
        assert list(numbers) == result.candidates["candidate"].tolist()
        for i, (one, found) in enumerate(zip(central, numbers.values(), strict=True)):
            racks = one.racks.racks[0] if one.racks.fits[0] else math.nan
            band = ends[i] if np.ptp(costs[i]) > 0 else [math.nan]
            wanted = [one.servers[0], racks, one.energy.site().sum(), one.tco()[0], *band]
            assert found == pytest.approx([*wanted, cheapest[i]], rel=1e-9, nan_ok=True)

    @pytest.mark.parametrize("name", SCENARIOS)
    def test_it_begins_as_the_tables_of_the_page_say(self, name, shown, answers, pages):
        page, result = shown(name), answers[name]
        table = {row[0]: row[1:] for row in pages[name].tables[0].rows[::-1]}
        for i, texts in enumerate(page.texts().values()):
            assert texts[0] == table["servers"][i]
            assert texts[3] == table[f"total cost ({result.currency})"][i]
        # The headline is over the draws; the sliders tell of the values that they show.
        total = table[f"total cost ({result.currency})"]
        assert page.status().startswith("At these values ")
        assert any(f": {cost} {result.currency}" in page.status() for cost in total)

    def test_a_drag_of_each_slider_changes_a_cost(self, shown):
        page = shown("rich")
        first = page.numbers()
        assert page.said("electricity (USD/kWh)") == "0.2 (0.1 … 0.4)"
        for slider in page.data["sliders"]:
            before = page.numbers()
            middle = (len(slider["stops"]) - 1) / 2
            page.drag(slider["label"], 0.9 if slider["start"] < middle else 0.15)
            after = page.numbers()
            changed = [after[name][3] != before[name][3] for name in before]
            assert any(changed), slider["label"]
            assert all(changed) or re.fullmatch(r"candidate\.(.)\.price", slider["key"])
        assert page.said("electricity (USD/kWh)") == "0.545"
        page.back()
        assert page.numbers() == first
        # A figure that is moved back to its value by hand is known.
        (slider,) = [s for s in page.data["sliders"] if s["key"] == "site.electricity"]
        page.move(slider["label"], slider["start"])
        assert page.said(slider["label"]) == "0.2"
        assert np.ptp(page.numbers()["a"][4:6]) < np.ptp(first["a"][4:6])


@pytest.mark.parametrize("name", ["projection", "rich"])
class TestEveryPage:
    def test_another_script_is_refused(self, name, pages, browser, tmp_path):
        bad = "<script>window.bad = 1</script></body>"
        (tmp_path / "bad.html").write_text(pages[name].render().replace("</body>", bad))
        browser.show(tmp_path / "bad.html")
        assert browser.run("window.bad ?? null") is None
        assert "Content Security Policy" in " ".join(browser.complaints())

    def test_without_scripts_it_is_the_page_without_sliders(self, name, shown, pages):
        page = shown(name, scripts=False)
        assert page.run("document.querySelector('#sliders').hidden") is True
        assert page.texts() == {}
        parts = "main > :is(section, details):not([hidden])"
        assert page.run(f"document.querySelectorAll('{parts}').length") >= 3
        words = page.run("document.body.innerText")
        assert pages[name].sliders.title not in words
        assert pages[name].verdict[0] in words

    @pytest.mark.parametrize("width", [1280, 390])
    def test_it_fits_the_screen_and_is_drawn(self, name, width, shown):
        page = shown(name, width=width)
        browser = page.browser
        assert browser.run("document.documentElement.scrollWidth") <= width
        boxes = browser.run(
            "[...document.querySelectorAll('#sliders input, #sliders label, #sliders output')]"
            ".filter(e => e.checkVisibility()).map(e => [e.tagName, e.getBoundingClientRect()])"
            ".map(([tag, b]) => [tag, b.left, b.right, b.height])"
        )
        assert len(boxes) >= 18
        assert min(left for _, left, _, _ in boxes) >= 0
        assert max(right for _, _, right, _ in boxes) <= width
        inputs = [box for tag, *box in boxes if tag == "INPUT"]
        # Wide enough to set, and as high as a finger needs at the least.
        assert min(right - left for left, right, _ in inputs) >= 200
        assert min(height for _, _, height in inputs) >= 24
        browser.box("document.querySelector('#sliders .sliders')")
        picture = browser.call("Page.captureScreenshot")["data"]
        picture = imread(io.BytesIO(base64.b64decode(picture)))
        assert picture.shape[1] == width
        # Ink on paper, in more shades than a page of one colour or an error message has.
        assert 0.01 < (picture[..., :3].mean(axis=2) < 0.9).mean() < 0.5
        assert len(np.unique(picture.reshape(-1, picture.shape[2]), axis=0)) > 50
        # Thumbs can be dragged, on a telephone too.
        before = page.texts()
        page.drag({"projection": "frequency", "rich": "power usage effectiveness"}[name], 0.5)
        assert page.texts() != before

    def test_values_are_printed_and_sliders_are_not(self, name, shown):
        page = shown(name, width=718, media="print")
        seen = page.run(
            "Object.fromEntries(['input', 'button', 'output', 'label', 'td'].map(kind => [kind, "
            "[...document.querySelectorAll(`#sliders ${kind}`)].some(e => e.checkVisibility())]))"
        )
        assert seen == {"input": False, "button": False, "output": True, "label": True, "td": True}
        assert page.run("document.documentElement.scrollWidth") <= 718

    def test_readers_of_the_screen_hear_name_and_value_of_each(self, name, shown):
        call = shown(name).browser.call
        call("Accessibility.enable")
        nodes = call("Accessibility.getFullAXTree")["nodes"]
        call("Accessibility.disable")
        by_role = {}
        for node in nodes:
            by_role.setdefault(node.get("role", {}).get("value"), []).append(node)
        names = [node["name"]["value"] for node in by_role["slider"]]
        assert len(names) >= 7
        assert len(set(names)) == len(names)
        assert all(names)
        for node in by_role["slider"]:
            states = {p["name"]: p["value"].get("value") for p in node["properties"]}
            assert states["valuetext"]
            assert states["focusable"]
        assert by_role["status"]


NAMES = ["</script><b>", "<!--<script>", '"><img src=x onerror=alert(1)>', "a&amp;b", "__proto__"]


@pytest.mark.parametrize("about", ["workloads", "candidates"])
def test_no_name_acts(about, open_page):
    if about == "workloads":
        runs = [cored(workloads=["sort"], seed=i).assign(workload=n) for i, n in enumerate(NAMES)]
        page = open_page(page_of(projected(pd.concat(runs), metric=["time", "power"])))
        names = sorted(NAMES)
        page.choose(names[1])
        assert page.status().startswith(f"{names[1]} at 3 GHz on 4 cores: ")
    else:
        names, answer = NAMES, asked(scenario(*(server(n, price=900.0 + len(n)) for n in NAMES)))
        page = open_page(page_of(answer))
        found = page.numbers()
        assert list(found) == names
        assert [row[3] for row in found.values()] == pytest.approx(answer.costs["tco"].tolist())
    assert page.run("document.querySelectorAll('#sliders :is(b, img, script)').length") == 0
    words = page.run("document.querySelector('#sliders').textContent")
    assert [name for name in names if name not in words] == []


NUMBERS = {
    "1": [
        *(0.0, 1.0, 0.1 + 0.2, 9999.4, 9999.5, 12345.678, 1e12, -3.14159, 1.2345e-4, 1.2345e-5),
        *(2.5e-7, 123456789.0, 1e15, 0.00099996),
    ],
    "W": [0.0, 0.5, 139.5371, 4200.0, 3.1e6],
    "Hz": [3e9, 2.4499e9, 8e8],
    "s": [139.5371, 1e-6, 86400.0],
}


def test_numbers_are_written_as_python_writes_them(shown):
    page = shown("time alone")
    for unit, values in NUMBERS.items():
        written = [page.run(f"shown({value!r}, {unit!r})") for value in values]
        assert written == [written_by_python(value, unit) for value in values]
