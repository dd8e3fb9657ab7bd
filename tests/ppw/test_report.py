"""Reports: one page that asks for nothing, holds its own JSON, and cannot be broken into."""

from __future__ import annotations

import json
import re
import shutil
import subprocess

import numpy as np
import pandas as pd
import pytest
from made_up import answered, sweep
from matplotlib.image import imread
from parsed_pages import Parsed

import ppw
from ppw.demo import demo, demo_page
from ppw.report.pages import parameters_page, validation_page
from ppw.report.projection_page import projection_page

RUNS = sweep(noise=0.02)
HOSTILE = ["</script><b>", "<!--<script>", '"><img src=x onerror=alert(1)>', "a&amp;b", "$\\bad$"]


def pages(runs=RUNS, metric=None):
    both = {"freq": ["2.8GHz", "3.0GHz"], "metric": metric}
    return {
        "project": projection_page(answered(ppw.project_runs, runs, **both)),
        "validate": validation_page(
            answered(ppw.validate, runs, scheme="frequency", metric=metric)
        ),
        "fit": parameters_page(answered(ppw.fit_runs, runs, metric=metric)),
        "demo": demo_page(demo()),
    }


@pytest.fixture(scope="module")
def made():
    return pages()


@pytest.fixture(params=["project", "validate", "fit", "demo"])
def page(request, made):
    return made[request.param]


class TestEveryPage:
    def test_no_request_leaves_it(self, page):
        parsed = Parsed(page.render())
        for tag, attributes in parsed.tags:
            assert tag not in ("link", "iframe", "img", "object", "embed", "base", "form")
            assert not {"src", "srcset", "action", "data", "poster"} & set(attributes)
            for name in ("href", "xlink:href"):
                assert attributes.get(name, "#").startswith("#")
            assert not [name for name in attributes if name.startswith("on")]
        assert "@import" not in "".join(parsed.styles)
        outside = re.findall(r"url\(\s*['\"]?(?!#)[^)]*\)", page.render())
        assert outside == []

    def test_its_json_is_the_results(self, page):
        parsed = Parsed(page.render())
        first, *_ = [attributes for tag, attributes in parsed.tags if tag == "script"]
        assert first == {"type": "application/json", "id": "ppw-result"}
        assert json.loads(parsed.scripts["ppw-result"]) == json.loads(page.document)

    def test_verdict_stands_before_the_evidence(self, page):
        text = page.render()
        first = [text.index(mark) for mark in ('class="verdict"', "<table>")]
        assert first == sorted(first)
        words = " ".join(Parsed(text).words)
        assert all(sentence in words for sentence in page.verdict)
        assert all(caveat in words for caveat in page.caveats)

    def test_titles_and_tables_are_full(self, page):
        assert page.title
        assert page.subtitle
        for table in page.tables:
            assert {len(row) for row in table.rows} == {len(table.header)}


def test_the_same_input_gives_the_same_bytes(made):
    for name, page in pages().items():
        assert page.render() == made[name].render()


def test_no_workload_name_breaks_out():
    hostile = pd.concat([RUNS[RUNS["workload"] == "sort"].assign(workload=n) for n in HOSTILE])
    for kind, page in pages(hostile, metric="time").items():
        parsed = Parsed(page.render())
        assert {tag for tag, _ in parsed.tags}.isdisjoint({"b", "img"})
        own = {"ppw-result", "ppw-sliders", ""} if kind == "project" else {"ppw-result"}
        assert set(parsed.scripts) == own
        # A browser leaves a script whose text opens "<!--<script" only at a second end.
        assert not [name for name in own - {""} if "<" in parsed.scripts[name]]
        if kind != "demo":
            rows = json.loads(parsed.scripts["ppw-result"])[
                "parameters" if kind == "fit" else "groups"
            ]
            assert {row["workload"] for row in rows} == set(HOSTILE)
            assert set(HOSTILE) <= {word.strip() for word in parsed.words}


def straight_page(runs, **options):
    """Page of a projection by the least-squares curves."""
    return projection_page(answered(ppw.project_runs, runs, interval="t", **options))


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
        runs = pd.DataFrame(
            {
                "workload": ["a", "b", "b"],
                "freq_ghz": [1.0, 1.0, 2.0],
                "time_s": [99.0, 30.0, 20.0],
            }
        )
        page = projection_page(answered(ppw.project_runs, runs, freq=4e9))
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

    def test_a_target_below_all_that_was_measured(self):
        page = projection_page(answered(ppw.project_runs, RUNS, freq=0.8e9))
        assert "to 0.8 GHz" in page.verdict[0] or "to 800 MHz" in page.verdict[0]

    def test_no_answer(self):
        falling = pd.DataFrame({"freq_ghz": [1.0, 2.0], "power_w": [30.0, 10.0]})
        page = straight_page(falling, freq=4e9)
        assert page.verdict[0] == "No projection could be made."
        assert page.render()

    def test_the_other_form_is_shown(self):
        fast = RUNS.assign(time_s=RUNS["freq_ghz"] ** -1.5)
        page = projection_page(answered(ppw.project_runs, fast, freq=3e9, metric="time"))
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
        page = validation_page(answered(ppw.validate, RUNS, scheme="frequency"))
        errors = [abs(float(row[-3])) for row in page.tables[1].rows]
        assert errors == sorted(errors, reverse=True)

    def test_no_answer(self):
        falling = pd.DataFrame({"freq_ghz": [1.0, 1.5, 2.5], "power_w": [10.0, 4.0, 0.5]})
        page = validation_page(answered(ppw.validate, falling, interval="t"))
        assert page.verdict == ["power: no projection could be made."]
        assert page.tables[1].rows[0][-3] == "–"
        assert "nan" not in " ".join(Parsed(page.render()).words)


def test_long_tables_say_what_they_cut():
    many = pd.concat([sweep(host=f"node{i}", seed=i, repeats=1) for i in range(90)])
    page = parameters_page(answered(ppw.fit_runs, many, metric="time"))
    assert len(page.tables[0].rows) == 500
    assert page.tables[0].note == "40 more rows are in the JSON of this page."


def test_a_browser_draws_it(made, tmp_path):
    chromium = shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        pytest.skip("no chromium on this machine to draw the page with")
    source, picture = tmp_path / "page.html", tmp_path / "page.png"
    source.write_text(made["project"].render(), encoding="utf-8")
    quiet = "background-networking", "component-update", "sync"
    subprocess.run(
        [
            *(chromium, "--headless=new", "--no-sandbox", "--disable-gpu", "--no-first-run"),
            *(f"--disable-{what}" for what in quiet),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1000,1400"),
            *(f"--screenshot={picture}", source.as_uri()),
        ],
        check=True,
        capture_output=True,
        timeout=60,
    )
    drawn = imread(picture)
    assert drawn.shape[:2] == (1400, 1000)
    # Ink on paper, in more shades than a page of one colour or an error message has.
    assert 0.01 < (drawn[..., :3].mean(axis=2) < 0.9).mean() < 0.5
    assert len(np.unique(drawn.reshape(-1, drawn.shape[2]), axis=0)) > 100
