"""Every public function says what it takes, gives and raises, in numpydoc's sections."""

from __future__ import annotations

import inspect
import re

import pytest

import ppw

FUNCTIONS = {n: f for n in ppw.__all__ if inspect.isfunction(f := getattr(ppw, n))}
CLASSES = {n: c for n in ppw.__all__ if inspect.isclass(c := getattr(ppw, n))}
every_function = pytest.mark.parametrize("name", sorted(FUNCTIONS))


def sections(thing):
    """Texts of a docstring by their heading; what stands before them under no name."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}$", inspect.getdoc(thing) or "", flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(text):
    """Names at the left margin of a section, several with commas between them."""
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    return [name.strip(" *`") for line in lines for name in line.split(" : ")[0].split(",")]


@every_function
def test_parameters_are_all_named_in_order_of_nothing_else(name):
    function = FUNCTIONS[name]
    taken = list(inspect.signature(function).parameters)
    assert sorted(entries(sections(function).get("Parameters", ""))) == sorted(taken)


@every_function
def test_what_is_returned_is_named(name):
    function = FUNCTIONS[name]
    returned = str(inspect.signature(function).return_annotation)
    assert ("Returns" in sections(function)) == (returned != "None")


@every_function
def test_errors_are_named(name):
    assert entries(sections(FUNCTIONS[name])["Raises"])


@pytest.mark.parametrize("name", sorted({**FUNCTIONS, **CLASSES}))
def test_the_first_line_is_a_sentence_that_fits(name):
    first = (inspect.getdoc(getattr(ppw, name)) or "").splitlines()[0]
    assert first[0].isupper()
    assert len(first) <= 100


# Words of the field with two meanings: runs are a table, and how often a trace is replayed; a level
# is a share, levels are of a state diagram; an engine reads tables, and issues I/O.
APART = {"runs", "draws", "levels", "engine", "host"}


def kinds():
    """Types that each parameter may have in each function, without None and several."""
    found = {}
    for name, function in FUNCTIONS.items():
        for parameter in inspect.signature(function).parameters.values():
            said = re.sub(r"(Iterable|Sequence)\[", "| ", str(parameter.annotation))
            types = {part.strip(" ]") for part in said.split("|")} - {"", "None"}
            found.setdefault(parameter.name, {})[name] = types
    return found


def test_the_same_parameter_is_of_the_same_kind_everywhere():
    odd = {}
    for name, by_function in kinds().items():
        widest = max(by_function.values(), key=len)
        if not all(types <= widest for types in by_function.values()) and name not in APART:
            odd[name] = by_function
    assert odd == {}
