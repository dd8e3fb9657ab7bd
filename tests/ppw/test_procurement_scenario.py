"""Scenario files: what the published schema allows, and the line that answers what it does not."""

from __future__ import annotations

import copy
import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator
from procurement_scenarios import ROOT, asked, documented, ranged, scenario, server

from ppw.errors import PpwError
from ppw.procurement.scenario import read_scenario
from ppw.procurement.schema import dotted, node_at, resolved, schema_text


def nodes(node, path=()):
    """Every property of the schema with its path."""
    for name, below in node.get("properties", {}).items():
        full = resolved(below)
        yield (*path, name), full
        inner = full.get("additionalProperties")
        following = inner if isinstance(inner, dict) and not full.get("properties") else full
        following = resolved(following.get("items", following))
        if not {"value", "low", "high"} <= set(following.get("properties", {})):
            yield from nodes(following, (*path, name))


SCHEMA = json.loads(schema_text())
NODES = dict(nodes(SCHEMA))


class TestPublishedSchema:
    def test_is_a_schema(self):
        Draft202012Validator.check_schema(SCHEMA)
        assert SCHEMA["$schema"] == "https://json-schema.org/draft/2020-12/schema"

    def test_its_defaults_are_what_it_allows(self):
        checked = 0
        for node in NODES.values():
            if "default" in node:
                alone = {**node, "$defs": SCHEMA["$defs"]}
                Draft202012Validator(alone).validate(node["default"])
                checked += 1
        assert checked > 20

    @pytest.mark.parametrize("path", NODES, ids=lambda p: ".".join(p))
    def test_every_key_says_what_it_means_and_is_in_the_guide(self, path):
        guide = (ROOT / "docs" / "procurement.md").read_text(encoding="utf-8")
        assert re.search(rf"`{path[-1]}`|\[{path[-1]}\]|\b{path[-1]} = ", guide)
        if path[-1] not in ("demand", "site", "rate", "load", "power", "p50", "p99"):
            assert NODES[path].get("description")

    @pytest.mark.parametrize("name", ["documented", "example"])
    def test_allows_the_files_that_are_shown(self, name):
        import tomllib

        text = (ROOT / "examples" / "procurement.toml").read_text(encoding="utf-8")
        table = documented() if name == "documented" else tomllib.loads(text)
        Draft202012Validator(SCHEMA).validate(table)


def changed(path, value):
    """Small scenario with one key put at a path."""
    table = scenario(server("one"), server("two"))
    place = table
    for step in path[:-1]:
        place = place[step]
    place[path[-1]] = value
    return table


def refused(table, *said):
    with pytest.raises(PpwError) as caught:
        asked(table)
    text = str(caught.value)
    assert text.startswith("scenario: ")
    assert "\n" not in text
    for part in said:
        assert part in text


UNKNOWN = {
    "top": (("currancy",), "currancy: unknown key (did you mean 'currency'?)"),
    "demand": (("demand", "yeers"), "demand.yeers: unknown key (did you mean 'years'?)"),
    "site": (("site", "electricty"), "site.electricty: unknown key (did you mean 'electricity'?)"),
    "costs": (("costs", "discount"), "costs.discount: unknown key (did you mean 'discount_rate'?)"),
    "workload": (
        ("workload", 0, "latency_p9"),
        "workload 1: latency_p9: unknown key (did you mean 'latency_p99'?)",
    ),
    "candidate": (
        ("candidate", 1, "idle_watts"),
        "candidate 2: idle_watts: unknown key (did you mean 'idle_power'?)",
    ),
    "figures": (
        ("candidate", 0, "workload", "work", "powr"),
        "candidate 1: workload.work.powr: unknown key (did you mean 'power'?)",
    ),
    "like nothing": (("site", "zzz"), "site.zzz: unknown key (the keys here are electricity, "),
}


@pytest.mark.parametrize("name", UNKNOWN)
def test_an_unknown_key_names_the_nearest(name):
    path, said = UNKNOWN[name]
    refused(changed(path, 1), said)


WRONG = {
    "below": (("site", "pue"), 0.9, "site.pue = 0.9 must be 1 or more (energy of the site over"),
    "text": (("site", "pue"), "high", "site.pue = 'high' must be a number or a table"),
    "whole": (("demand", "years"), 2.5, "demand.years = 2.5 must be a whole number"),
    "choice": (
        ("demand", "pools"),
        "seperate",
        "must be one of 'shared', 'separate' (did you mean 'separate'?)",
    ),
    "share": (("costs", "residual_share"), 1.5, "costs.residual_share = 1.5 must be at most 1"),
    "share in words": (
        ("costs", "residual_share"),
        "a fifth",
        "costs.residual_share = 'a fifth' is no share: write 20% or 0.2",
    ),
    "too many percent": (
        ("demand", "spare_share"),
        "150%",
        "demand.spare_share = '150%' must be at most 1 (",
    ),
    "negative percent": (("demand", "headroom"), "-5%", "headroom = '-5%' must be 0 or more"),
    "nothing": (("candidate", 0, "price"), 0, "candidate 1: price = 0 must be more than 0"),
    "unit": (
        ("candidate", 0, "idle_power"),
        "90 volts",
        "candidate 1: idle_power: '90 volts' is not a quantity in W",
    ),
    "negative text": (
        ("candidate", 0, "idle_power"),
        "-5W",
        "candidate 1: idle_power = '-5W' must be 0 or more",
    ),
    "range": (
        ("site", "electricity"),
        ranged(0.3, 0.1, 0.2),
        "site.electricity: value 0.3 is not between low 0.1 and high 0.2",
    ),
    "half a range": (
        ("site", "electricity"),
        {"value": 0.3, "low": 0.2},
        "site.electricity.high is missing",
    ),
    "not finite": (
        ("site", "electricity"),
        float("nan"),
        "site.electricity is not a finite number",
    ),
    "no load": (("demand", "profile"), [0, 0], "the profile of workload 'work' is 0 all day"),
    "empty": (("demand", "profile"), [], "demand.profile must have 1 or more"),
    "no name": (("candidate", 0, "name"), "", "candidate 1: name must not be empty"),
    "scope": (("candidate", 0, "power_scope"), "wal", "(did you mean 'wall'?)"),
    "twice": (("candidate", 0, "name"), "two", "two [[candidate]] are named 'two'"),
    "weight too": (("workload", 0, "weight"), 1, "give its rate, or its weight in demand.rate"),
    "no workload": (
        ("candidate", 0, "workload"),
        {"wrok": {"rate": 1}},
        "has figures of 'wrok', which is no [[workload]] (did you mean 'work'?)",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_cannot_be_is_answered_in_one_line(name):
    path, value, said = WRONG[name]
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
    number = asked(changed(path, percent / 100))
    for written in (f"{percent}%", f"{percent} %", str(percent / 100)):
        assert asked(changed(path, written)).candidates.equals(number.candidates)
    typed = asked(changed(path, ranged(percent / 200, percent / 400, percent / 100)))
    percents = ranged(f"{percent / 2}%", f"{percent / 4}%", f"{percent}%")
    assert asked(changed(path, percents)).candidates.equals(typed.candidates)


def test_loads_may_be_percent():
    one = changed(("demand", "profile"), [0.5, 1])
    for profile in (["50%", "100%"], [50, 100]):
        other = asked(changed(("demand", "profile"), profile))
        assert other.candidates.equals(asked(one).candidates)
    watts = {"power": [60.0, 90.0, 110.0]}
    levels = ("candidate", 0, "power_levels")
    typed = asked(changed(levels, {"load": [0, 0.5, 1], **watts}))
    percent = asked(changed(levels, {"load": ["0%", "50%", "100%"], **watts}))
    assert percent.candidates.equals(typed.candidates)
    refused(changed(levels, {"load": [0, 50, 100], **watts}), "write 50% or 0.5")


@pytest.mark.parametrize(
    ("path", "said"),
    [
        (("site", "pue"), "site.pue is missing: give energy of the site over energy of servers"),
        (("demand",), "demand is missing: give what must be served"),
        (("candidate", 0, "name"), "candidate 1: name is missing"),
        (("workload", 0, "rate"), "give its rate, or its weight in demand.rate; it has neither"),
    ],
)
def test_what_is_missing_is_named(path, said):
    table = scenario()
    place = table
    for step in path[:-1]:
        place = place[step]
    del place[path[-1]]
    refused(table, said)


def test_all_that_is_wrong_is_said_at_once():
    table = changed(("site", "pue"), 0.5)
    table["demand"]["yeers"] = 3
    table["candidate"][1]["price"] = -1
    refused(table, "site.pue", "demand.yeers", "candidate 2: price")


def test_weights_need_a_demand_to_share():
    table = scenario()
    del table["workload"][0]["rate"]
    table["workload"][0]["weight"] = 2
    refused(table, "there is no demand.rate to share")
    table["demand"]["rate"] = 10
    assert asked(table).candidates["servers"].tolist() == [1]
    table["workload"][0] = scenario()["workload"][0]
    refused(table, "demand.rate is shared by weight, and no workload has one")


def test_profiles_cut_the_day_alike():
    table = scenario()
    second = {**copy.deepcopy(table["workload"][0]), "name": "more", "profile": [1, 0.5]}
    table["workload"] = [{**table["workload"][0], "profile": [1, 0.5, 0.2]}, second]
    table["candidate"][0]["workload"]["more"] = table["candidate"][0]["workload"]["work"]
    refused(table, "the profiles have 2 and 3 parts")


class TestFiles:
    @pytest.mark.parametrize(
        ("content", "said"),
        [
            (b"[demand\nyears = 3", "scenario.toml: not TOML: "),
            (b"\xff\xfe", "scenario.toml: not UTF-8 text"),
        ],
    )
    def test_that_are_none(self, content, said, tmp_path):
        path = tmp_path / "scenario.toml"
        path.write_bytes(content)
        with pytest.raises(PpwError, match=said):
            read_scenario(path)

    def test_that_are_not_there(self, tmp_path):
        with pytest.raises(PpwError, match=r"nowhere\.toml: cannot be read: No such file"):
            read_scenario(tmp_path / "nowhere.toml")


class TestUnits:
    @settings(max_examples=20)
    @given(watts=st.integers(101, 10**6))
    def test_a_text_with_a_unit_is_the_number(self, watts):
        texts = watts, f"{watts}W", f"{watts / 1000!r} kW"
        answers = [
            asked(scenario(server("one", power=text, idle=100.0)), draws=100).costs["tco"][0]
            for text in texts
        ]
        assert answers[0] == answers[1] == pytest.approx(answers[2], abs=0.011)

    def test_rates_are_counted_in_any_time(self):
        hourly = scenario(server("one"), workload={"rate": 3.6e6, "per": "h"})
        hourly["candidate"][0]["workload"]["work"] |= {"rate": 8.64e6, "per": "day"}
        assert asked(hourly).costs.equals(asked(scenario(server("one"))).costs)


@pytest.mark.parametrize(
    ("path", "words"),
    [
        (("site", "pue"), "site.pue"),
        (("candidate", 1, "workload", "sort", "rate"), "candidate 2: workload.sort.rate"),
        (("workload", 0), "workload 1"),
        (("candidate", 0, "power_levels", "load", 2), "candidate 1: power_levels.load.3"),
    ],
)
def test_keys_are_written_as_in_the_file(path, words):
    assert dotted(path) == words


def test_a_node_has_the_words_of_its_own_and_of_what_it_refers_to():
    node = node_at(["candidate", 0, "workload", "any name", "power"])
    assert node["title"] == "full-load power"
    assert node["x-si"] == "w"
