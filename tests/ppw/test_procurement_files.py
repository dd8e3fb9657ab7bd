"""Scenario files, candidates from runs, the command line, and a page for screen and paper."""

import json
import math
import re
import tomllib
from pathlib import Path

import numpy as np
import pandas as pd
import procurement_scenarios as ps
import pytest
from golden_runs import golden
from hypothesis import given, strategies as st
from jsonschema import Draft202012Validator
from laid_out_pages import laid_out
from made_up import GHZ, WORK, only, sweep
from processes import ROOT, ppw_inside, printed
from procurement_scenarios import asked, inputs_of, ranged, row_of, scenario, server

import ppw
from ppw.errors import PpwError
from ppw.procurement.candidates import gather
from ppw.procurement.inputs import published_text, resolve_node
from ppw.procurement.report import procurement_page, second_figure
from ppw.procurement.scenario import read_scenario, scenario_of


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


SCHEMA = json.loads(published_text())
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
            assert re.search(rf"`{path[-1]}`|\[{path[-1]}\]|\b{path[-1]} = ", ps.GUIDE), path
            if path[-1] not in ("demand", "site", "rate", "load", "power", "p50", "p99"):
                assert node.get("description"), path

    def test_allows_the_files_that_are_shown(self):
        for text in (ps.DOCUMENTED, (ps.ROOT / "examples" / "procurement.toml").read_text("utf-8")):
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
    _, inputs, *_ = gather(asked_for, draws=100, seed=0)
    read = {figure.key: (figure.value, figure.low, figure.high) for figure in inputs.values()}
    return {key: [v for v in values if not math.isnan(v)] for key, values in read.items()}


@pytest.mark.cases(
    "path, value, said",
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
    (("site", "grid_carbon"), 400, "grid_carbon = 400: in g per kWh? write kg: 0.4 for 400 g"),
    (("site", "electricity"), ranged(22, 20, 30), "electricity = 30: in cents? write 0.22 for"),
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
    more = {"name": "more", "profile": [1, 0.5]}
    table["workload"] = [{**work, "profile": [1, 0.5, 0.2]}, {**work, **more}]
    refused(table, "the profiles have 2 and 3 parts")


@pytest.mark.cases(
    "content, said",
    (b"[demand\nyears = 3", "scenario.toml: not TOML: "),
    (b"\xff\xfe", "scenario.toml: not UTF-8 text"),
    (None, "scenario.toml: cannot be read: No such file"),
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


EPYC = {"catalogue": "EPYC 9654"}


@pytest.mark.parametrize(
    ("more", "cores"),
    [({}, None), (EPYC | {"cores": 24}, 24), (EPYC, 96), (EPYC | {"sockets": 2}, 192)],
)
def test_cores_are_typed_or_those_of_all_sockets(more, cores):
    asked_for = scenario_of(scenario(server("x", **more)), source="scenario", folder=Path())
    assert gather(asked_for, draws=100, seed=0)[0][0].cores == cores


@pytest.fixture
def folder(tmp_path):
    """Folder with the guide's scenario."""
    (tmp_path / "scenario.toml").write_text(ps.DOCUMENTED, encoding="utf-8")
    return tmp_path


class TestCommandLine:
    def test_golden(self, folder):
        golden("procure scenario.toml", folder, name="procurement")

    def test_the_example_becomes_a_report(self, tmp_path):
        example = ps.ROOT / "examples" / "procurement.toml"
        done = ppw_inside("compare", example, "-o", "report.html", cwd=tmp_path)
        assert (done.stdout, done.stderr, done.returncode) == ("", "", 0)
        text = (tmp_path / "report.html").read_text(encoding="utf-8")
        assert "wimpy at 3.6 GHz" in text
        assert "projected" in text
        # Its three candidates stand side by side, and its sliders have all draws.
        assert "What to buy (" not in text
        assert text.count('"draws":2000,') == 1
        assert len(text) < 1_500_000

    def test_json_and_csv_take_the_options(self, folder):
        options = "--draws", "300", "--seed", "4", "--level", "0.8"
        words = ["compare", "scenario.toml", *options, "--format"]
        result = asked(tomllib.loads(ps.DOCUMENTED), draws=300, seed=4, level=0.8)
        # Of a table there is no file to name.
        own = result.to_json().replace('"source": "scenario"', '"source": "scenario.toml"')
        assert printed(ppw_inside(*words, "json", cwd=folder)) == own + "\n"
        done = ppw_inside(*words, "csv", cwd=folder)
        names = [line.split(",")[0] for line in done.stdout.splitlines()]
        assert (names, done.returncode) == (["candidate", "small", "large"], 0)
        assert all(line.startswith("ppw: caveat: ") for line in done.stderr.splitlines())

    def test_the_schema_is_printed(self, tmp_path):
        done = ppw_inside("procure", "--schema", cwd=tmp_path)
        assert (done.stdout, done.stderr, done.returncode) == (published_text(), "", 0)
        assert json.loads(done.stdout)["title"] == "Procurement scenario"

    def test_the_template_runs_and_compare_answers_as_procure(self, tmp_path):
        template = printed(ppw_inside("procure", "--template", cwd=tmp_path))
        (tmp_path / "scenario.toml").write_text(template, encoding="utf-8")
        words = ("scenario.toml", "--draws", 100, "--format", "csv")
        new, old = (ppw_inside(name, *words, cwd=tmp_path) for name in ("procure", "compare"))
        assert [line.split(",")[0] for line in new.stdout.splitlines()] == [
            *("candidate", "keep", "refresh", "rent")
        ]
        assert (new.returncode, new.stdout, new.stderr) == (0, old.stdout, old.stderr)

    @pytest.mark.cases(
        "words, said",
        (("scenario.toml", "--a", "host=x"), "--a works only with runs tables"),
        (("scenario.toml", "--electricity", "0.2"), "--electricity works only with runs tab"),
        (("scenario.toml", "--no-pool"), "--pool/--no-pool works only with r"),
        (("scenario.toml", "runs.csv"), "one scenario at a time, and 2 files were given"),
        ((str(ROOT / "examples" / "simulated_runs.csv"),), "Missing option '--a'"),
        ((), "Missing argument 'RUNS...'"),
    )
    def test_wrong_usage(self, words, said, folder):
        done = ppw_inside("compare", *words, cwd=folder)
        assert (done.stdout, done.returncode) == ("", 2)
        assert said in done.stderr

    def test_a_scenario_that_is_wrong_is_one_line(self, folder):
        misspelt = ps.DOCUMENTED.replace("pue = 1.5", "peu = 1.5")
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
    tables = {"guide": tomllib.loads(ps.DOCUMENTED), "five": many(), "one": scenario(server("x"))}
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
        # Its sliders draw the costs; the figures that move them are drawn here.
        assert len(drawn["one"].figures) == 1


@pytest.mark.peer("browser")
@pytest.mark.parametrize("name", ["guide", "five"])
def test_it_reads_at_1280_and_400_pixels_and_on_paper(name, drawn, tmp_path):
    # A4 between the browser's margins, in its pixels of 1/96 inch, where nothing scrolls.
    paper = 718
    found = laid_out(drawn[name], tmp_path, (1280, 400, paper))
    assert max(found[paper]["tables"]) <= paper
    assert found[400]["height"] > found[1280]["height"]


# Candidates from runs tables: figures, services, sensors' scope.


def two_hosts():
    one = sweep(noise=0.01, seed=1, host="rack1")
    other = sweep(noise=0.01, seed=2, host="rack2").assign(price=5000.0)
    other["time_s"] /= 1.6
    return pd.concat([one, other]).assign(idle_power_w=15.0, power_source="meter:wt310")


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


@pytest.fixture(scope="module")
def answer(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    racks = rack("rack1"), rack("rack1 at 3.0 GHz", freq="3.0GHz"), rack("rack2")
    return asked(measured(folder, two_hosts(), *racks, workloads=("sort", "wc")), draws=1000)


class TestCandidatesFromRuns:
    @pytest.mark.parametrize(
        ("name", "ghz", "faster"),
        [("rack1", 2.4, 1), ("rack1 at 3.0 GHz", 3.0, 1), ("rack2", 2.4, 1.6)],
    )
    def test_rates_and_watts_are_those_that_were_put_in(self, answer, name, ghz, faster):
        figures = inputs_of(answer)
        for workload in ("sort", "wc"):
            fixed, work = WORK[workload]
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
        assert figures.loc["candidate.rack2.price", "value"] == 5000
        rates = [figures.loc[f"candidate.rack2.workload.{w}.rate", "value"] for w in ("sort", "wc")]
        expected = np.ceil(5 / rates[0] + 5 / rates[1])
        row = answer.candidates.set_index("candidate").loc["rack2"]
        assert row["servers"] == expected
        assert row["servers_lower"] <= expected <= row["servers_upper"]

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

    def test_a_typed_candidate_may_stand_before_those_of_runs(self, tmp_path):
        frame = two_hosts()
        frame["family"] = frame["host"].map({"rack1": "Zen 4"})
        table = measured(tmp_path, frame, rack("rack1"), rack("rack2"))
        typed = server("typed") | {"workload": {"sort": {"rate": 1.0, "power": 300.0}}}
        figures = inputs_of(asked(table | {"candidate": [typed, *table["candidate"]]}))
        assert figures.loc["candidate.typed.workload.sort.rate", "value"] == 1.0
        # Nor does it matter that what the one is, is not said of the other.
        for name in ("rack1", "rack2"):
            assert figures.loc[f"candidate.{name}.idle_power", "value"] == 15.0

    def test_typed_figures_take_the_place_of_measured_ones(self, tmp_path):
        typed = rack("rack1", workload={"sort": {"rate": 1.0}}, price=77.0)
        figures = inputs_of(asked(measured(tmp_path, two_hosts(), typed)))
        key = "candidate.rack1.workload.sort"
        assert figures.loc[f"{key}.rate", ["value", "label"]].tolist() == [1.0, "given"]
        assert figures.loc[f"{key}.power", "label"] == "measured"
        assert figures.loc["candidate.rack1.price", "value"] == 77


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


def service(tmp_path, frame=None, **workload):
    """Scenario of a service on two hosts, of runs."""
    runs = rate_limited() if frame is None else frame
    table = measured(tmp_path, runs, rack("small"), rack("large"))
    table["workload"] = [{"name": "cache", "unit": "gets", "rate": 10_000.0, **workload}]
    return table


class TestServicesFromRuns:
    def test_full_load_and_power_and_latency_at_a_load_are_taken_from_the_runs(self, tmp_path):
        result = asked(service(tmp_path, latency_p99="0.8ms"))
        figures = inputs_of(result)["value"]
        assert figures["candidate.small.workload.cache.rate"] == pytest.approx(1000, rel=0.02)
        assert figures["candidate.large.workload.cache.power"] == pytest.approx(240, rel=0.02)
        servers = row_of(result, "candidates", "small")["servers"]
        watts = servers * (40 + 40 * np.sqrt(10_000 / (servers * 1000)))
        kwh = row_of(result, "energy", "small")["servers_kwh"]
        assert kwh == pytest.approx(watts * 8.76, rel=0.02)
        # 2e-4/(1.05 − load): 8e-4 at a load of 0.8, the next point is above.
        assert servers == pytest.approx(10_000 / (0.8 * 1000), abs=1)
        assert not any("straight" in c or "not compared" in c for c in result.caveats)

    def test_full_load_alone_makes_a_straight_line(self, tmp_path):
        frame = rate_limited()
        result = asked(service(tmp_path, frame[frame["load"] == 1]))
        assert only(result.caveats, "straight").startswith("the power of small, large is taken")

    def test_latency_is_against_the_rate_where_no_load_is_known(self, tmp_path):
        unknown = rate_limited().assign(load=np.nan)
        result = asked(service(tmp_path, unknown, latency_p99="0.8ms"))
        assert not [c for c in result.caveats if "not compared" in c]

    def test_a_load_never_reached_says_how_to_measure_it(self, tmp_path):
        frame = rate_limited()
        with pytest.raises(PpwError, match="every run is below full load: add runs at load 1"):
            asked(service(tmp_path, frame[frame["load"] < 1]))

    def test_latency_that_was_not_measured_is_none(self, tmp_path):
        unknown = rate_limited().assign(latency_p99_s=np.nan)
        limited = asked(service(tmp_path, unknown, latency_p99="0.8ms", latency_p50="0.8ms"))
        assert not [name for name in inputs_of(limited).index if "latency" in name]
        for name in ("p50", "p99"):
            assert only(limited.caveats, f"small: the limit on latency {name} of cache is not")

    @pytest.mark.parametrize(("limited", "named"), [(True, ["small", "large"]), ("False", [])])
    def test_a_client_that_limits_is_said(self, limited, named, tmp_path):
        result = asked(service(tmp_path, rate_limited(client_limited=limited)))
        said = [c.partition(":")[0] for c in result.caveats if "client" in c]
        assert said == [f"{name}, cache" for name in named]

    def test_set_ups_that_are_mixed_up_are_said(self, tmp_path):
        frame = pd.concat([rate_limited(threads_used=1), rate_limited(threads_used=4)])
        frame.loc[frame["threads_used"] == 4, "throughput_ops_s"] *= 3
        table = service(tmp_path, frame)
        assert any(
            "up to 3 times apart, so they are probably of several set-ups" in c
            for c in asked(table).caveats
        )
        for candidate in table["candidate"]:
            candidate["where"]["threads_used"] = 4
        result = asked(table)
        assert not [c for c in result.caveats if "set-ups" in c]
        rate = inputs_of(result).loc["candidate.small.workload.cache.rate", "value"]
        assert rate == pytest.approx(3000, rel=0.02)


def two_sensors(tmp_path, other="meter:wt310", **more):
    """Scenario of two hosts, each with its sensor."""
    frame = two_hosts()
    frame["power_source"] = frame["host"].map({"rack1": "rapl:package", "rack2": other})
    return measured(tmp_path, frame, rack("rack1", **more), rack("rack2"))


class TestWattsOfDifferentScope:
    def test_are_refused_unless_asked_for_or_made_whole(self, tmp_path):
        table = two_sensors(tmp_path)
        with pytest.raises(PpwError, match=r"different scopes \(rack1: package, rack2: wall\)"):
            asked(table)
        bare = asked(table | {"mixed_scope": True})
        said = "because of mixed_scope = true: it is of rack1: package, rack2: wall"
        assert only(bare.caveats, "mixed_scope").endswith(said)
        whole = asked(two_sensors(tmp_path, beside_power="30W"))
        assert not [c for c in whole.caveats if "scope" in c]
        more = whole.energy["servers_kwh"][0] - bare.energy["servers_kwh"][0]
        servers = whole.candidates["servers"][0]
        assert more == pytest.approx(servers * 30 * 8.76, abs=0.2)

    def test_typed_watts_are_not_of_the_sensor(self, tmp_path):
        typed = {"workload": {"sort": {"power": 70.0}}, "idle_power": 30.0, "power_scope": "wall"}
        assert not [c for c in asked(two_sensors(tmp_path, **typed)).caveats if "scope" in c]

    def test_package_watts_are_no_bill(self, tmp_path):
        result = asked(two_sensors(tmp_path, other="rapl:package"))
        assert only(result.caveats, "add beside_power").startswith("all power is of the pac")

    def test_typed_ones_say_theirs(self):
        silent = server("one")
        del silent["power_scope"]
        said = only(asked(scenario(silent, server("two"))).caveats, "give power_scope")
        assert said.startswith("the scope of the power of one is")
        package = server("three", power_scope="package")
        with pytest.raises(PpwError, match="two: wall, three: package"):
            asked(scenario(server("two"), package))


@pytest.mark.cases(
    "workload, more, said",
    ("sort", {"where": {"host": "rack9"}}, "candidate 'rack1': no run has host 'rack9' (did y"),
    ("sort", {"where": {"hots": "rack1"}}, "candidate 'rack1': "),
    ("sort", {"where": {"family": "Zen 4"}}, "are 2 groups, which differ in host: name one of"),
    ("sort", {"freq": "3.0"}, "is it in GHz or MHz?"),
    ("wcc", {}, "no run of workload 'wcc' (did you mean 'wc'?)"),
)
def test_runs_that_do_not_answer(workload, more, said, tmp_path):
    table = measured(tmp_path, two_hosts(), rack("rack1") | more, workloads=[workload])
    with pytest.raises((PpwError, ppw.MeasurementError)) as caught:
        asked(table)
    assert said in str(caught.value)


def test_a_host_of_one_clock_has_no_other(tmp_path):
    frame = two_hosts()
    frame = frame[frame["freq_ghz"] == 2.0]
    assert asked(measured(tmp_path, frame, rack("rack1"))).cheapest == "rack1"
    with pytest.raises(PpwError, match=r"candidate 'rack1': measured at 2 GHz only"):
        asked(measured(tmp_path, frame, rack("rack1", freq="2.4GHz")))


class TestCountry:
    SITES = tomllib.loads(published_text("sites.toml"))

    def test_every_published_figure_has_a_year_a_source_and_a_plausible_range(self):
        plausible = {"electricity": (0.02, 0.5), "grid_carbon": (0.01, 1.0), "pue": (1.0, 2.0)}
        tables = [self.SITES["anywhere"], *self.SITES["country"].values()]
        figures = [item for table in tables for item in table.items()]
        assert len(figures) > 40
        for name, figure in figures:
            least, most = plausible[name]
            low, high = (figure.get(end, figure["value"]) for end in ("low", "high"))
            assert least <= low <= figure["value"] <= high <= most
            assert 2022 <= figure["year"] <= 2026
            assert ("currency" in figure) == (name == "electricity")
        assert {figure["source"] for _, figure in figures} == set(self.SITES["sources"])
        assert all("https://" in citation for citation in self.SITES["sources"].values())

    # The prices and the carbon as their sources print them.
    @pytest.mark.cases(
        "site, currency, values, low",
        ({"country": "DE"}, "EUR", (0.3052, 1.58, 0.38095), 0.2016),
        ({"country": "US", "pue": 1.2}, "USD", (0.1124, 1.2, 0.38598), 0.0781),
        ({"country": "FR", "electricity": 0.15}, "EUR", (0.15, 1.58, 0.05604), None),
    )
    def test_fills_in_what_the_site_leaves_out(self, site, currency, values, low):
        table = {**scenario(), "site": site, "currency": currency}
        result = asked(table)
        inputs = inputs_of(result)
        keys = ["site.electricity", "site.pue", "site.grid_carbon"]
        assert tuple(inputs.loc[keys, "value"]) == pytest.approx(values, rel=1e-12)
        for key in keys:
            typed = key.removeprefix("site.") in site
            assert inputs.loc[key, "label"] == ("given" if typed else "default")
            assert ("https://" in inputs.loc[key, "source"]) != typed
            assert (inputs.loc[key, "source"] in result.summary()) != typed
        if low is not None:
            assert inputs.loc["site.electricity", "low"] == low

    @pytest.mark.cases(
        "site, currency, message",
        ({"country": "XX"}, "EUR", "site.country: no figures of 'XX'.*; there are AE, .*DE"),
        ({"country": "DE"}, "USD", 'that of DE is in EUR, and the scenario in USD: .*"EUR"'),
        ({"country": "FR"}, "EUR", "site.electricity is missing: give price of a kWh"),
        ({"country": 3}, "EUR", "site.country = 3 must be a text"),
    )
    def test_refuses_what_it_has_no_figure_for(self, site, currency, message):
        with pytest.raises(PpwError, match=message):
            ppw.procure({**scenario(), "site": site, "currency": currency})
