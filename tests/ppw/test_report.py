"""Report pages: what they say, what their sliders hold, and what a browser may do with them."""

import base64
import hashlib
import html
import json
import re

import numpy as np
import pandas as pd
import pytest
from conftest import HOSTILE
from hypothesis import given, strategies as st
from made_up import answered, sweep
from parsed_pages import Parsed
from procurement_scenarios import asked, scenario, server
from slider_pages import page_of, projected, rich

import ppw
from ppw.procurement import report
from ppw.projection.report import parameters_page, projection_sliders, validation_page
from ppw.results.page import stops

RUNS = sweep(noise=0.02)


def straight_page(runs, **options):
    return page_of(projected(runs, interval="t", **options))


class TestProjectionVerdict:
    def test_one_group_without_any_key(self):
        bare = pd.DataFrame({"freq_ghz": [1.0, 2.0], "time_s": [30.0, 20.0]})
        page = straight_page(bare, freq=4e9)
        assert page.verdict == [
            "Going from the highest measured frequency to 4 GHz is projected to change time by "
            "-25.0 %.",
            "time at 4 GHz: 15 s (no interval), against 20 s measured at 2 GHz.",
        ]

    def test_the_one_group_that_could_be_projected_is_held_against_its_own(self):
        columns = {"workload": ["a", "b", "b"], "freq_ghz": [1.0, 1.0, 2.0]}
        page = page_of(projected(pd.DataFrame(columns).assign(time_s=[99.0, 30.0, 20.0]), 4e9))
        assert "against 20 s measured at 2 GHz" in page.verdict[1]

    def test_many_groups_are_summed_up(self):
        page = straight_page(sweep(noise=0), freq=3e9, metric="power")
        # 65 W at 3 GHz against 56 W at 2.4 GHz, in every group.
        assert "power by +16.1 % (median over the groups)" in page.verdict[0]
        assert "1.16 times what was measured" in page.verdict[1]

    def test_where_perf_per_watt_is_best(self):
        # T = 20 s + 10e9/f, P = 30 W + 7.5 W/GHz·f: f* = sqrt(10·30/(20·7.5)) = 1.414 GHz.
        f = np.array([1.0, 1.5, 2.0, 2.5])
        runs = pd.DataFrame({"freq_ghz": f, "time_s": 20 + 10 / f, "power_w": 30 + 7.5 * f})
        page = straight_page(runs, freq=3e9)
        assert "Performance per watt of all runs is best at 1.412 GHz." in page.verdict

    def test_no_answer(self):
        falling = pd.DataFrame({"freq_ghz": [1.0, 2.0], "power_w": [30.0, 10.0]})
        page = straight_page(falling, freq=4e9)
        assert page.verdict[0] == "No projection could be made."
        assert page.render()

    def test_a_target_below_all_that_was_measured_and_the_other_form_are_shown(self):
        runs = RUNS.assign(time_s=RUNS["freq_ghz"] ** -1.5)
        page = straight_page(runs, freq=0.8e9, metric="time")
        assert "to 800 MHz" in page.verdict[0]
        assert page.tables[0].header[-1] == "other form"


class TestValidationPage:
    @pytest.mark.parametrize("interval", ["bayes", "t"])
    def test_verdict(self, interval):
        result = answered(ppw.validate, RUNS, metric="time", interval=interval)
        (sentence,) = validation_page(result).verdict
        summary = result.summary_by_metric["time"]
        assert f"within {summary['median_ape']:.2g} % of the measurement" in sentence
        assert f"cover {summary['coverage']:.0%} of 3 measurements" in sentence

    def test_largest_error_first(self):
        how = {"scheme": "frequency", "interval": "t", "metric": ["time", "power"]}
        result = answered(ppw.validate, RUNS, **how)
        errors = [abs(float(row[-3])) for row in validation_page(result).tables[1].rows]
        assert (len(errors), errors) == (24, sorted(errors, reverse=True))

    def test_no_answer(self):
        falling = pd.DataFrame({"freq_ghz": [1.0, 1.5, 2.5], "power_w": [10.0, 4.0, 0.5]})
        page = validation_page(answered(ppw.validate, falling, interval="t"))
        assert page.verdict == ["power: no projection could be made."]
        assert page.tables[1].rows[0][-3] == "–"
        text = page.render()
        assert "nan" not in " ".join(Parsed(text).words)
        assert 'id="sliders"' not in text


def test_long_tables_say_what_they_cut():
    many = pd.concat([sweep(host=f"node{i}", seed=i, repeats=1) for i in range(90)])
    page = parameters_page(answered(ppw.fit, many, metric="time"))
    assert len(page.tables[0].rows) == 500
    assert "40 more rows are in the JSON of this page." in page.render()


class TestStops:
    EXACT = st.lists(st.floats(0, 2e10), max_size=5)

    @given(st.floats(0, 1e10), st.floats(1e-6, 1e10), EXACT, st.integers(5, 300))
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
        wanted = [1.2e9, 1.4e9, 1.6e9, 1.8e9, 2e9, 2.2e9, 2.33e9, 2.4e9, 2.6e9, 2.8e9]
        assert stops(1.2e9, 2.8e9, [2.33e9], most=8) == wanted
        assert stops(5.0, 5.0, [5.0]) == [5.0]


class TestSliders:
    """What the page holds for its script; a browser moves them in test_interactive_page."""

    @pytest.mark.parametrize("kind", ["RunsProjection", "Procurement"])
    def test_only_the_two_scripts_of_the_page_may_run(self, kind, results, pages):
        result, (page, text) = results(kind, HOSTILE), pages(kind, HOSTILE)
        (policy,) = re.findall(r'Content-Security-Policy" content="([^"]*)"', text)
        scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
        digests = (hashlib.sha256(script.encode()).digest() for script in scripts)
        allowed = [f"'sha256-{base64.b64encode(digest).decode()}'" for digest in digests]
        said = dict(part.split(maxsplit=1) for part in html.unescape(policy).split("; "))
        assert (said["default-src"], said["script-src"].split()) == ("'none'", allowed)
        # The first is the library of the charts.
        _, script = scripts
        for word in ("innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval("):
            assert word not in script
        # The same answer gives the same bytes; one that was read back is without sliders.
        assert page_of(result).render() == text
        assert page.sliders is not None
        assert page_of(type(result).from_json(result.to_json())).sliders is None

    def test_all_groups_are_there_with_what_was_measured_of_each(self):
        hosts = [sweep(host=f"node{i}", seed=i, repeats=1) for i in range(5)]
        runs = pd.concat(hosts)
        data = json.loads(projection_sliders(projected(runs, 3e9, metric="time")).data)
        assert len(data["groups"]) == 15
        for group in data["groups"]:
            host, workload = group["name"].split(", ")
            own = runs[(runs["host"] == host) & (runs["workload"] == workload)]
            at = data["lists"][group["points"]["at"]]
            points = sorted(zip(at, group["points"]["time"], strict=True))
            wanted = sorted(zip(1e9 * own["freq_ghz"], own["time_s"], strict=True))
            assert np.ravel(points) == pytest.approx(np.ravel(wanted), rel=1e-4)

    def test_fewer_draws_are_carried_where_there_are_many_and_it_is_said(self, monkeypatch):
        monkeypatch.setattr(report, "_MOST_NUMBERS", 1200)
        result = asked(rich(), draws=400)
        sliders = report.procurement_sliders(result)
        data = json.loads(sliders.data)
        assert data["draws"] == 240
        assert "of the first 240 draws of 400" in sliders.note
        packed = {key: drawn for key, _, drawn in data["figures"] if drawn}
        assert len(packed) == 5
        values = np.frombuffer(base64.b64decode(packed["site.pue"]), "<f8")
        wanted = result.basis.inputs["site.pue"].draw(400, 0)
        assert values.tolist() == wanted[:240].tolist()

    def test_many_candidates_have_no_slider_each_and_it_is_said(self):
        result = asked(scenario(*(server(f"s{i}") for i in range(7))), draws=100)
        sliders = report.procurement_sliders(result)
        assert len([s for s in json.loads(sliders.data)["sliders"] if "price" in s["key"]]) == 6
        assert "The prices of 6 of 7 candidates have sliders." in sliders.note
