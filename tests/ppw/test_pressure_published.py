"""The matrix of Awasthi et al. (2015): from figures typed from its text, words apart."""

from __future__ import annotations

import pytest

from ppw.pressure.measures import RESOURCES
from ppw.pressure.thresholds import DEFAULTS, Thresholds
from ppw.published_pressure import APPLICATIONS, FIGURES, WORDS, published_matrix

# What the paper concludes: where each application presses.
POINTS = {
    "Memcache": {"memory", "network"},
    "Cassandra": {"disk"},
    "Redis": {"network"},
    "Nutch": {"cpu", "disk"},
    "Data analytics": {"cpu"},
}


def cells(basis):
    table = published_matrix()
    rows = table[table["basis"] == basis]
    return dict(
        zip(zip(rows["application"], rows["resource"], strict=True), rows["level"], strict=True)
    )


def test_cells_with_a_figure():
    assert cells("figure") == {
        ("Memcache", "memory_bandwidth"): "low",
        ("Memcache", "network"): "high",
        ("Redis", "memory_bandwidth"): "low",
        ("Cassandra", "disk"): "high",
        ("Cassandra", "network"): "low",
        ("Nutch", "cpu"): "high",
        ("Nutch", "disk"): "high",
        ("Data analytics", "memory_bandwidth"): "low",
    }


def test_figures_and_words_give_the_published_points():
    found = {name: set() for name in APPLICATIONS}
    for (application, resource), level in {**cells("figure"), **cells("word")}.items():
        assert level in ("low", "high")
        if level == "high":
            found[application].add(resource)
    assert found == POINTS


def test_words_are_apart():
    assert set(cells("word")) == {(w.application, w.resource) for w in WORDS}
    assert not set(cells("word")) & set(cells("figure"))


def test_the_others_are_not_measured():
    others = cells("not measured")
    assert len(others) == len(APPLICATIONS) * len(RESOURCES) - len(FIGURES) - len(WORDS)
    assert set(others.values()) == {"not measured"}


@pytest.mark.parametrize("factor", [0.9, 1.1])
def test_no_figure_is_near_a_threshold(factor):
    """Thresholds a tenth off either way give the same levels: they were not fitted."""
    moved = {n: {"medium": t.medium * factor, "high": t.high * factor} for n, t in DEFAULTS.items()}
    table = published_matrix(Thresholds().replaced(moved, "moved"))
    assert list(table["level"]) == list(published_matrix()["level"])
