"""What is said of rows that take no part: why, and only advice that helps."""

from __future__ import annotations

import pytest
from made_up import answered, only, sweep

import ppw
from measurements.errors import BadRunsError

HELPS = "--keep-all uses them"
DOES_NOT = "correct or drop watts of 0 and less, which --keep-all cannot use"


@pytest.fixture
def runs():
    return sweep(repeats=3)


def with_watts_of_nothing(runs):
    return runs.assign(power_w=runs["power_w"].mask(runs.index == 5, -1e-4))


def with_one_step_alone(runs):
    return runs.assign(freq_achieved_ghz=1.2)


@pytest.mark.parametrize("answer", [ppw.best_frequency, ppw.validate])
def test_keeping_is_advised_where_it_helps(runs, answer):
    runs = runs.assign(freq_achieved_ghz=runs["freq_ghz"].mask(runs.index == 5, 0.6))
    assert only(answered(answer, runs).caveats, "left out").endswith(HELPS)
    answered(answer, runs, keep_all=True)


@pytest.mark.parametrize("answer", [ppw.best_frequency, ppw.validate])
def test_keeping_is_not_advised_where_it_only_fails(runs, answer):
    runs = with_watts_of_nothing(runs)
    assert only(answered(answer, runs).caveats, "left out").endswith(DOES_NOT)
    with pytest.raises(BadRunsError, match=r"row 6, column power_w: -0.0001 must be greater"):
        answer(runs, keep_all=True)


@pytest.mark.parametrize("answer", [ppw.best_frequency, ppw.fit_runs])
def test_one_frequency_that_is_left_says_what_was_left_out(runs, answer):
    runs = with_one_step_alone(runs)
    if answer is ppw.fit_runs:
        runs = runs[runs["freq_ghz"] == 1.2]
    with pytest.raises(ppw.PpwError, match="only one distinct frequency") as refused:
        answer(runs)
    told = "27 rows left out (achieved off), such as row 4: asked for 1.6 GHz, achieved 1.2 GHz"
    assert (told in str(refused.value)) == (answer is ppw.best_frequency)


def test_groups_at_other_frequencies_are_counted_with_what_to_do(runs):
    both = runs.assign(
        freq_ghz=runs["freq_ghz"].where(runs["workload"] != "wc", runs["freq_ghz"] + 0.1)
    )
    found = answered(ppw.validate, both, train=("1.2GHz", "1.6GHz"), test="2.4GHz", metric="time")
    assert only(found.caveats, "not tested").startswith("1 of 3 groups are not tested")
    assert "--scheme highest" in only(found.caveats, "not tested")
    with pytest.raises(ppw.PpwError, match=r"nothing to test .* --scheme highest, without --train"):
        ppw.validate(both, train=("1.2GHz", "1.3GHz"), test="2.4GHz", metric="time")
