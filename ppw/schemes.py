"""Validation schemes: which runs a projection may learn from, and which it is held against."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fitting.bayes.steps import SAME_STEP
from ppw.arguments import known_choice
from ppw.errors import PpwError
from ppw.estimate import shown

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    import pandas as pd
    from numpy.typing import NDArray

    from fitting.regression.lines import FloatArray
    from ppw.grouping import Groups

    Mask = NDArray[np.bool_]

SCHEMES = ("highest", "frequency", "host")


class Fold(NamedTuple):
    """Rows to learn from and rows to be held against; no row is both."""

    train: Mask
    test: Mask


class Plan(NamedTuple):
    """What a validation learns from and what it tests: frequencies, hosts or a scheme."""

    train: list[float]
    test: list[float]
    scheme: str
    train_host: str | None
    test_host: str | None

    def folds(self, runs: pd.DataFrame, groups: Groups) -> Iterator[Fold]:
        """Yield the folds; raises `PpwError` for what the table does not hold."""
        if self.train_host is not None and self.test_host is not None:
            yield from self._between_hosts(runs, self.train_host, self.test_host)
        elif self.train or self.test:
            yield from given_frequencies(runs, self.train, self.test)
        elif self.scheme == "highest":
            yield from highest_left_out(runs, groups)
        elif self.scheme == "frequency":
            yield from each_frequency_left_out(runs, groups)
        else:
            yield from each_host_left_out(runs)

    def _between_hosts(self, runs: pd.DataFrame, train: str, test: str) -> Iterator[Fold]:
        for fold in one_host_to_another(runs, train, test):
            narrow = fold
            if self.train:
                narrow = narrow._replace(train=fold.train & at_any(runs, self.train))
            if self.test:
                narrow = narrow._replace(test=fold.test & at_any(runs, self.test))
            yield narrow

    def describe(self) -> str:
        """Say in words what is learnt from and what is tested."""
        learnt = ", ".join(shown(f, "Hz") for f in self.train) or "all other frequencies"
        tested = ", ".join(shown(f, "Hz") for f in self.test) or "all other frequencies"
        if self.train_host is not None:
            at = f" ({learnt} to {tested})" if self.train or self.test else ""
            return f"learnt on {self.train_host}, tested on {self.test_host}{at}"
        if self.train or self.test:
            return f"learnt at {learnt}, tested at {tested}"
        return {
            "highest": "each group's highest frequency left out",
            "frequency": "each frequency left out in turn",
            "host": "each host left out in turn",
        }[self.scheme]


def refuse_contradiction(
    frequencies: bool, scheme: str | None, train_host: str | None, test_host: str | None
) -> None:
    """Refuse a choice of what to learn from and to test on that says two things at once."""
    if scheme is not None:
        known_choice("scheme", scheme, SCHEMES)
    if (train_host is None) != (test_host is None):
        raise PpwError("give both the train host and the test host")
    if scheme is not None and (frequencies or train_host is not None):
        raise PpwError("give a scheme, or the frequencies or hosts to train and test on, not both")


def given_frequencies(
    runs: pd.DataFrame, train: Sequence[float], test: Sequence[float]
) -> Iterator[Fold]:
    """Learn at the frequencies ``train`` (Hz) and test at ``test``; without one, at all others.

    Raises
    ------
    PpwError
        For a frequency that no run has, or that is asked for on both sides.
    """
    frequency = runs["freq_hz"].to_numpy()
    at_train = at_any(runs, train)
    at_test = at_any(runs, test) if test else ~at_train
    if not train:
        at_train = ~at_test
    if (at_train & at_test).any():
        both = shown(float(frequency[at_train & at_test][0]), "Hz")
        raise PpwError(f"{both} is in --train and in --test: a run cannot be held against itself")
    yield Fold(at_train, at_test)


def highest_left_out(runs: pd.DataFrame, groups: Groups) -> Iterator[Fold]:
    """Learn from all but each group's highest frequency, and test there."""
    frequency = runs["freq_hz"].to_numpy()
    highest = np.full(len(groups), -np.inf)
    np.maximum.at(highest, groups.codes, frequency)
    top = frequency > highest[groups.codes] * (1 - SAME_STEP)
    yield Fold(~top, top)


def each_frequency_left_out(runs: pd.DataFrame, groups: Groups) -> Iterator[Fold]:
    """Leave each frequency of a group out in turn."""
    step = _step_in_group(runs["freq_hz"].to_numpy(), groups)
    for left_out in range(int(step.max()) + 1):
        yield Fold(step != left_out, step == left_out)


def each_host_left_out(runs: pd.DataFrame) -> Iterator[Fold]:
    """Learn from all other hosts of a group, and test on each host in turn."""
    host = _hosts(runs)
    names = np.unique(host)
    if len(names) < 2:
        raise PpwError(f"leaving one host out takes two hosts; the table has only {names[0]}")
    for name in names:
        yield Fold(host != name, host == name)


def one_host_to_another(runs: pd.DataFrame, train_host: str, test_host: str) -> Iterator[Fold]:
    """Learn on one host and test on another."""
    host = _hosts(runs)
    for name in (train_host, test_host):
        if not (host == name).any():
            raise PpwError(f"no host {name!r}; the hosts are {', '.join(np.unique(host)[:12])}")
    if train_host == test_host:
        raise PpwError(f"{train_host!r} is the train host and the test host: name two")
    yield Fold(host == train_host, host == test_host)


def at_any(runs: pd.DataFrame, steps: Sequence[float]) -> Mask:
    """Rows at any of these frequencies (Hz). Raises `PpwError` for one that no run has."""
    frequency = runs["freq_hz"].to_numpy()
    found = np.zeros(len(frequency), dtype=bool)
    for step in steps:
        at = np.abs(frequency / step - 1) < SAME_STEP
        if not at.any():
            distinct = np.unique(frequency)
            nearest = distinct[np.argmin(np.abs(np.log(distinct / step)))]
            raise PpwError(
                f"no run at {shown(step, 'Hz')}; the nearest is at {shown(float(nearest), 'Hz')} "
                f"and the table has {len(distinct)} frequencies from "
                f"{shown(float(distinct[0]), 'Hz')} to {shown(float(distinct[-1]), 'Hz')}"
            )
        found |= at
    return found


def _step_in_group(frequency: FloatArray, groups: Groups) -> NDArray[np.int64]:
    """Rank of each row's frequency among the distinct steps of its group, from 0."""
    order = np.lexsort((frequency, groups.codes))
    codes, sorted_frequency = groups.codes[order], frequency[order]
    new_group = np.diff(codes, prepend=-1) != 0
    apart = np.diff(sorted_frequency, prepend=0) > SAME_STEP * sorted_frequency
    new_step = new_group | apart
    running = np.cumsum(new_step) - 1
    rank = np.empty(len(frequency), dtype=np.int64)
    first = np.flatnonzero(new_group)
    rank[order] = running - np.repeat(running[first], np.diff(np.append(first, len(codes))))
    return rank


def _hosts(runs: pd.DataFrame) -> NDArray[np.object_]:
    if "host" not in runs.columns:
        raise PpwError("the table has no column host: name it so, or use --map host=COLUMN")
    return runs["host"].fillna("").to_numpy(dtype=object)
