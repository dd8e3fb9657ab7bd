"""The published study again: every figure against the paper or against a hand calculation."""

import json
import math

import pytest
from parsed_pages import Parsed

from ppw.cli import demo as published
from ppw.cli.demo import DERIVED, PUBLISHED, demo, demo_page

ATOM, WESTMERE = "Atom D525", "Westmere L5640"
BOTH = f"{WESTMERE} : {ATOM}"


@pytest.fixture(scope="module")
def figures():
    return demo()


@pytest.mark.cases(
    "subject, quantity, value",
    (ATOM, "CPI bound 1/c", 1 / 0.304),
    (ATOM, "pole k/c", 250e6 / 0.304),
    (ATOM, "CPI at 1.66 GHz", 1 / (0.304 - 250 / 1660)),
    (ATOM, "CPI at 1.80 GHz", 1 / (0.304 - 250 / 1800)),
    (ATOM, "CPI at 3.00 GHz", 1 / (0.304 - 250 / 3000)),
    (WESTMERE, "CPI bound 1/c", 1 / 0.505),
    (WESTMERE, "pole k/c", 402e6 / 0.505),
    (WESTMERE, "CPI at 2.27 GHz", 1 / (0.505 - 402 / 2270)),
    (BOTH, "throughput ratio measured", 14.79),
    (BOTH, "power ratio measured", 5.9),
    (BOTH, "perf/W ratio", 14.79 / 5.9),
    (BOTH, "break-even price ratio", 14.79),
    (BOTH, "throughput ratio n·f/CPI", 12 * 2270 / 3.0498 / (2 * 1800 / 6.0565)),
    ("Wordcount", "path length at 4 cores to 1 core", (70702 - 31500 * math.log(4)) / 70702),
    ("Wordcount", "path length at 1 core to 1 core", 1.0),
)
def test_figure(figures, subject, quantity, value):
    assert figures.value(subject, quantity) == pytest.approx(value, rel=1e-4)


def test_bounded_form_is_the_mean_of_the_two_measured(figures):
    points = [1 / (0.304 - 250 / mhz) for mhz in (1660, 1800)]
    answer = figures.value(ATOM, "CPI at 3.00 GHz, bounded form")
    assert answer == pytest.approx(sum(points) / 2, rel=1e-12)
    assert answer == pytest.approx(6.288, abs=1e-3)


def test_only_what_the_paper_prints_is_called_published_and_nothing_is_invented(figures):
    said = {line.value for line in figures.lines if line.label == PUBLISHED}
    assert said == {0.304, 250e6, 0.505, 402e6, 14.79, 5.9, -31500.0, 70702.0}
    assert {line.label for line in figures.lines} == {PUBLISHED, DERIVED}
    assert any("nor a price was published" in c for c in figures.caveats)
    assert not [x for x in figures.lines if "$" in x.quantity or x.unit == "W"]


def test_core_counts_past_the_root_are_refused(figures):
    assert [r.split(":")[0] for r in figures.refusals] == ["10 cores", "12 cores", "16 cores"]
    assert all("reaches zero at 9.436" in r for r in figures.refusals)


def test_verdict_document_and_page_have_the_answers(figures):
    verdict = " ".join(figures.verdict())
    for answer in ("14.79 times", "2.51 times the performance per watt", "15.03", "4.53", "6.3"):
        assert answer in verdict
    document = json.loads(figures.to_json())
    assert (document["schema_version"], document["kind"]) == (1, "demo")
    assert document["source"] == published.CITATION
    assert len(document["figures"]) == len(figures.to_frame()) == len(figures.lines)
    assert document["refusals"] == list(figures.refusals)
    page = demo_page(figures)
    assert (len(page.tables[0].rows), len(page.figures)) == (len(figures.lines), 4)
    parsed = Parsed(page.render())
    assert json.loads(parsed.scripts["ppw-result"]) == json.loads(page.document) == document
    assert not [tag for tag, names in parsed.tags if tag == "link" or "src" in names]
    assert page.render() == demo_page(figures).render()
