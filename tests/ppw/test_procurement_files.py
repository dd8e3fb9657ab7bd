"""Scenario files, and what the buyer gets: the command line and a page for screen and paper."""

from __future__ import annotations

import json
import math
import re
import tomllib
from pathlib import Path

import pytest
from golden_runs import golden
from hypothesis import given
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from laid_out_pages import laid_out
from processes import ppw_inside
from procurement_scenarios import DOCUMENTED, GUIDE, ROOT, asked, ranged, scenario, server

from ppw.cli import main
from ppw.errors import PpwError
from ppw.procurement.candidates import gather
from ppw.procurement.report import procurement_page, second_figure
from ppw.procurement.scenario import read_scenario, scenario_of
from ppw.procurement.scenario_schema import resolve_node, schema_text


def nodes(node, path=()):
    """Every property of the schema with its path."""
    for name, below in node.get("properties", {}).items():
        full = resolve_node(below)
        yield (*path, name), full
        inner = full.get("additionalProperties")
        following = inner if isinstance(inner, dict) and not full.get("properties") else full
        following = resolve_node(following.get("items", following))
        if not {"value", "low", "high"} <= set(following.get("properties", {})):
            yield from nodes(following, (*path, name))


SCHEMA = json.loads(schema_text())
NODES = dict(nodes(SCHEMA))


class TestPublishedSchema:
    def test_is_a_schema_whose_defaults_it_allows(self):
        Draft202012Validator.check_schema(SCHEMA)
        assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"
        defaults = [node for node in NODES.values() if "default" in node]
        assert len(defaults) > 20
        for node in defaults:
            alone = {**node, "$defs": SCHEMA["$defs"]}
            Draft202012Validator(alone).validate(node["default"])

    def test_every_key_says_what_it_means_and_is_in_the_guide(self):
        for path, node in NODES.items():
            assert re.search(rf"`{path[-1]}`|\[{path[-1]}\]|\b{path[-1]} = ", GUIDE), path
            if path[-1] not in ("demand", "site", "rate", "load", "power", "p50", "p99"):
                assert node.get("description"), path

    def test_allows_the_files_that_are_shown(self):
        for text in (DOCUMENTED, (ROOT / "examples" / "procurement.toml").read_text("utf-8")):
            Draft202012Validator(SCHEMA).validate(tomllib.loads(text))


def changed(path, value):
    """Small scenario with one key put at a path, or taken away."""
    table = scenario(server("one"), server("two"))
    place = table
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    if value is None:
        del place[path[-1]]
    return table


def refused(table, *said):
    with pytest.raises(PpwError) as caught:
        asked(table)
    text = str(caught.value)
    assert text.startswith("scenario: ")
    assert "\n" not in text
    for part in said:
        assert part in text


def figures(table):
    """Figures of a scenario as they are read: the value, and the ends of its range."""
    asked_for = scenario_of(table, source="scenario", folder=Path())
    inputs = gather(asked_for, draws=100, seed=0).inputs
    read = {figure.key: (figure.value, figure.low, figure.high) for figure in inputs}
    return {key: [v for v in values if not math.isnan(v)] for key, values in read.items()}


@pytest.mark.parametrize(
    ("path", "value", "said"),
    [
        (("currancy",), 1, "currancy: unknown key (did you mean 'currency'?)"),
        (("costs", "discount"), 1, "costs.discount: unknown key (did you mean 'discount_rate'?)"),
        (("candidate", 1, "idle_watts"), 1, "candidate 2: idle_watts: unknown key (did you mean"),
        (("candidate", 0, "workload", "work", "powr"), 1, "candidate 1: workload.work.powr: unk"),
        (("site", "zzz"), 1, "site.zzz: unknown key (the keys here are electricity, "),
        (("site", "pue"), 0.9, "site.pue = 0.9 must be 1 or more (energy of the site over"),
        (("site", "pue"), "high", "site.pue = 'high' must be a number or a table"),
        (("site", "electricity"), ranged(0.3, 0.1, 0.2), "value 0.3 is not between low 0.1 and h"),
        (("site", "electricity"), {"value": 1, "low": 1}, "site.electricity.high is missing"),
        (("site", "electricity"), float("nan"), "site.electricity is not a finite number"),
        (("demand", "years"), 2.5, "demand.years = 2.5 must be a whole number"),
        (("demand", "pools"), "seperate", "one of 'shared', 'separate' (did you mean 'separate'?)"),
        (("demand", "spare_share"), "150%", "demand.spare_share = '150%' must be at most 1 ("),
        (("demand", "headroom"), "-5%", "headroom = '-5%' must be 0 or more"),
        (("demand", "profile"), [0, 0], "the profile of workload 'work' is 0 all day"),
        (("demand", "profile"), [], "demand.profile must have 1 or more"),
        (("costs", "residual_share"), 1.5, "costs.residual_share = 1.5 must be at most 1"),
        (("costs", "residual_share"), "a fifth", "'a fifth' is no share: write 20% or 0.2"),
        (("candidate", 0, "price"), 0, "candidate 1: price = 0 must be more than 0"),
        (("candidate", 0, "idle_power"), "90 volts", "'90 volts' is not a quantity in W"),
        (("candidate", 0, "idle_power"), "-5W", "idle_power = '-5W' must be 0 or more"),
        (("candidate", 0, "name"), "", "candidate 1: name must not be empty"),
        (("candidate", 0, "name"), "two", "two [[candidate]] are named 'two'"),
        (("candidate", 0, "power_scope"), "wal", "(did you mean 'wall'?)"),
        (("candidate", 0, "workload"), {"wrok": {}}, "no [[workload]] (did you mean 'work'?)"),
        (("workload", 0, "weight"), 1, "give its rate, or its weight in demand.rate"),
        (("workload", 0, "rate"), None, "or its weight in demand.rate; it has neither"),
        (("site", "pue"), None, "site.pue is missing: give energy of the site over energy of ser"),
        (("demand",), None, "demand is missing: give what must be served"),
        (("candidate", 0, "name"), None, "candidate 1: name is missing"),
    ],
)
def test_what_cannot_be_is_answered_in_one_line(path, value, said):
    refused(changed(path, value), said)


SHARES = {
    **{("demand", name): 20 for name in ("headroom", "spare_share", "growth_per_year")},
    ("demand", "max_utilisation"): 70,
    **{("costs", name): 6 for name in ("discount_rate", "support_share", "residual_share")},
    ("candidate", 0, "residual_share"): 10,
    **{("site", f"{name}_change_per_year"): 3 for name in ("electricity", "grid_carbon")},
}


@pytest.mark.parametrize("path", SHARES, ids=lambda path: path[-1])
def test_a_share_is_a_number_or_percent_and_percent_need_their_sign(path):
    percent = SHARES[path]
    said = f"{path[-1]} = {percent} must be at most "
    refused(changed(path, percent), said, f": write {percent}% or {percent / 100:g} (")
    refused(changed(path, ranged(percent, 0.0, percent)), f"write {percent}% or {percent / 100:g}")
    number = figures(changed(path, percent / 100))
    assert [percent / 100] in number.values()
    for written in (f"{percent}%", f"{percent} %", str(percent / 100)):
        assert figures(changed(path, written)) == number
    typed = figures(changed(path, ranged(percent / 200, percent / 400, percent / 100)))
    percents = ranged(f"{percent / 2}%", f"{percent / 4}%", f"{percent}%")
    assert figures(changed(path, percents)) == typed
    assert [percent / 200, percent / 400, percent / 100] in typed.values()


def test_loads_may_be_percent():
    profiles = [0.5, 1], ["50%", "100%"], [50, 100]
    number, *others = (asked(changed(("demand", "profile"), p)).candidates for p in profiles)
    assert all(other.equals(number) for other in others)
    watts = {"power": [60.0, 90.0, 110.0]}
    levels = ("candidate", 0, "power_levels")
    typed = asked(changed(levels, {"load": [0, 0.5, 1], **watts}))
    percent = asked(changed(levels, {"load": ["0%", "50%", "100%"], **watts}))
    assert percent.candidates.equals(typed.candidates)
    refused(
        changed(levels, {"load": [0, 50, 100], **watts}),
        *("candidate 1: power_levels.load.2 = 50", "write 50% or 0.5", "power_levels.load.3 = 100"),
    )


def test_workloads_share_a_demand_by_weight_and_cut_the_day_alike():
    table = scenario()
    work = table["workload"][0]
    rate = work.pop("rate")
    work["weight"] = 2
    refused(table, "there is no demand.rate to share")
    table["demand"]["rate"] = 10
    assert asked(table).candidates["servers"].tolist() == [1]
    table["workload"] = [{"name": "work", "rate": rate}]
    refused(table, "demand.rate is shared by weight, and no workload has one")
    table["workload"] = [
        {**work, "profile": [1, 0.5, 0.2]},
        {**work, "name": "more", "profile": [1, 0.5]},
    ]
    refused(table, "the profiles have 2 and 3 parts")


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"[demand\nyears = 3", "scenario.toml: not TOML: "),
        (b"\xff\xfe", "scenario.toml: not UTF-8 text"),
        (None, "scenario.toml: cannot be read: No such file"),
    ],
)
def test_files_that_are_none(content, said, tmp_path):
    path = tmp_path / "scenario.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(PpwError, match=said):
        read_scenario(path)


@given(watts=st.integers(101, 10**6))
def test_a_text_with_a_unit_is_the_number(watts):
    first, second, third = (
        figures(scenario(server("one", power=text, idle=100.0)))
        for text in (watts, f"{watts}W", f"{watts / 1000!r} kW")
    )
    assert first == second
    power = "candidate.one.workload.work.power"
    assert first[power] == [watts] == pytest.approx(third[power])


def test_rates_are_counted_in_any_time():
    each_second = figures(scenario(server("one"), workload={"rate": 100.0}))
    for per, seconds in (("min", 60), ("h", 3600), ("day", 86_400)):
        slow = scenario(server("one"), workload={"rate": 100.0 * seconds, "per": per})
        slow["candidate"][0]["workload"]["work"] |= {"rate": 100.0 * seconds, "per": per}
        assert figures(slow) == each_second


@pytest.mark.parametrize(
    ("more", "cores"),
    [
        ({}, None),
        ({"cores": 24, "catalogue": "EPYC 9654"}, 24),
        ({"catalogue": "EPYC 9654"}, 96),
        ({"catalogue": "EPYC 9654", "sockets": 2}, 192),
    ],
)
def test_cores_are_typed_or_those_of_all_sockets(more, cores):
    asked_for = scenario_of(scenario(server("x", **more)), source="scenario", folder=Path())
    assert gather(asked_for, draws=100, seed=0).servers[0].cores == cores


@pytest.fixture
def folder(tmp_path):
    """Folder with the guide's scenario."""
    (tmp_path / "scenario.toml").write_text(DOCUMENTED, encoding="utf-8")
    return tmp_path


class TestCommandLine:
    def test_golden(self, folder, monkeypatch):
        monkeypatch.chdir(folder)
        words = ["compare", "scenario.toml"]
        golden("procurement.txt", f"$ ppw {' '.join(words)}\n", main, words)

    def test_the_example_becomes_a_report(self, tmp_path):
        example = ROOT / "examples" / "procurement.toml"
        done = ppw_inside("compare", example, "-o", "report.html", cwd=tmp_path)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
        text = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "wimpy at 3.6 GHz" in text
        assert "projected" in text
        # Its three candidates stand side by side, and its sliders have all draws.
        assert "What to buy (" not in text
        assert text.count('"draws":2000,') == 1
        assert len(text) < 600_000

    def test_json_and_csv_take_the_options(self, folder):
        options = "--draws", "300", "--seed", "4", "--level", "0.8"
        words = ["compare", "scenario.toml", *options, "--format"]
        done = ppw_inside(*words, "json", cwd=folder)
        assert (done.stderr, done.returncode) == ("", 0)
        result = asked(tomllib.loads(DOCUMENTED), draws=300, seed=4, level=0.8)
        # Of a table there is no file to name.
        own = result.to_json().replace('"source": "scenario"', '"source": "scenario.toml"')
        assert done.stdout == own + "\n"
        done = ppw_inside(*words, "csv", cwd=folder)
        names = [line.split(",")[0] for line in done.stdout.splitlines()]
        assert (names, done.returncode) == (["candidate", "small", "large"], 0)
        assert all(line.startswith("ppw: caveat: ") for line in done.stderr.splitlines())

    def test_the_schema_is_printed(self, tmp_path):
        done = ppw_inside("compare", "--schema", cwd=tmp_path)
        assert (done.stdout, done.stderr, done.returncode) == (schema_text(), "", 0)
        assert json.loads(done.stdout)["title"] == "Procurement scenario"

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("scenario.toml", "--a", "host=x"), "--a is for runs tables"),
            (("scenario.toml", "--electricity", "0.2"), "--electricity is for runs tables"),
            (("scenario.toml", "--no-pool"), "--pool is for runs tables"),
            (("scenario.toml", "runs.csv"), "one scenario at a time, and 2 files were given"),
            (("runs.csv",), "Missing option '--a'"),
            ((), "Missing argument 'RUNS...'"),
        ],
    )
    def test_wrong_usage(self, words, said, folder):
        done = ppw_inside("compare", *words, cwd=folder)
        assert (done.stdout, done.returncode) == ("", 2)
        assert said in done.stderr

    def test_a_scenario_that_is_wrong_is_one_line(self, folder):
        misspelt = DOCUMENTED.replace("pue = 1.5", "peu = 1.5")
        (folder / "scenario.toml").write_text(misspelt, encoding="utf-8")
        done = ppw_inside("compare", "scenario.toml", cwd=folder)
        assert (done.stdout, done.returncode) == ("", 1)
        assert done.stderr == (
            "ppw: error: scenario.toml: site.peu: unknown key (did you mean 'pue'?); site.pue is "
            "missing: give energy of the site over energy of servers and network, 1 or more\n"
        )


LONG = [
    *("2 × EPYC 9654 with 384 GB", "rack1 at 2.4 GHz", "rack1 at 3.0 GHz, as projected"),
    *("a quarter of a rack with forty cores", "what we have"),
]


def many():
    """Five candidates with ranges and carbon, and no room for one of them."""
    made = [
        server(name, rate=60.0 + 40 * i, price=700.0 + 450 * i, embodied_carbon=900.0 - 60 * i)
        for i, name in enumerate(LONG)
    ]
    site = {"electricity": ranged(0.2, 0.1, 0.4), "grid_carbon": 0.3, "rack_units": 4}
    demand = {"years": 4, "growth_per_year": 0.2, "profile": [0.4, 1.0]}
    return scenario(*made, site={**site, "max_racks": 6}, demand=demand)


@pytest.fixture(scope="module")
def answers():
    tables = {"guide": tomllib.loads(DOCUMENTED), "five": many(), "one": scenario(server("x"))}
    return {name: asked(table) for name, table in tables.items()}


@pytest.fixture(scope="module")
def drawn(answers):
    return {name: procurement_page(result) for name, result in answers.items()}


@pytest.mark.parametrize("name", ["guide", "five", "one"])
def test_a_page_has_the_verdict_tables_and_labelled_figures(name, drawn, answers):
    page = drawn[name]
    assert page.verdict == answers[name].verdict()
    titles = [re.sub(r" \(\d\)", "", table.title) for table in page.tables]
    wanted = ["What to buy", "Money, present value", "Energy", "Carbon"]
    wanted += ["What moves the answer", "Where the answer turns", "What it rests on"]
    left_out = {"one": {"Carbon", "Where the answer turns"}}.get(name, set())
    assert list(dict.fromkeys(titles)) == [t for t in wanted if t not in left_out]
    labels = page.tables[-1]
    assert labels.header[1] == "who says so"
    known = {"given", "default", "measured", "projected", "catalogue"}
    assert "given" in {row[1] for row in labels.rows} <= known


class TestWhatIsDrawn:
    def test_parts_stand_on_each_other_up_to_the_total(self, answers):
        axes = answers["guide"].plot()
        ends = {}
        for bar in axes.patches:
            place = round(bar.get_y() + bar.get_height() / 2)
            ends[place] = ends.get(place, 0) + bar.get_width()
        totals = answers["guide"].costs["tco"] / 1000
        assert [ends[i] for i in sorted(ends)] == pytest.approx(totals.tolist())
        assert axes.get_xlabel() == "total cost (thousand EUR)"

    def test_the_front_is_against_carbon_or_else_energy(self, answers):
        assert second_figure(answers["five"]) == "carbon"
        assert second_figure(answers["one"]) == "energy"

    def test_many_candidates_are_cut_into_tables_that_paper_takes(self, drawn):
        tables = [t for t in drawn["five"].tables if t.title.startswith("What to buy")]
        assert [t.title for t in tables] == [f"What to buy ({i + 1})" for i in range(len(tables))]
        names = [name for t in tables for name in t.header[1:]]
        assert names == LONG
        # Equal parts: none has two candidates more than another.
        counts = [len(t.header) for t in tables]
        assert max(counts) - min(counts) <= 1
        assert len(drawn["one"].figures) == 2


@pytest.mark.peer("browser")
@pytest.mark.parametrize("name", ["guide", "five"])
def test_it_reads_at_1280_and_400_pixels_and_on_paper(name, drawn, tmp_path):
    # A4 between the browser's margins, in its pixels of 1/96 inch, where nothing scrolls.
    paper = 718
    found = laid_out(drawn[name], tmp_path, (1280, 400, paper))
    assert max(found[paper]["tables"]) <= paper
    assert found[400]["height"] > found[1280]["height"]
