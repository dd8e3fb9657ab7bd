"""The words of the API and the command line: docstrings, help, options and messages."""

import inspect
import re
from itertools import chain
from pathlib import Path

import click
import pytest
from click.testing import CliRunner
from test_house import texts
from walked_commands import COMMANDS, examples, options, spellings

import ppw
from measurements.table.schema import COLUMNS
from ppw.cli import choose_answer, main
from ppw.runs.metrics import METRICS

ROOT = Path(__file__).resolve().parents[2]
FUNCTIONS = {n: f for n in ppw.__all__ if inspect.isfunction(f := getattr(ppw, n))}


def sections(thing):
    """Texts of a docstring by their heading; what stands before them under no name."""
    parts = re.split(r"^([A-Z][A-Za-z ]+)\n-{3,}$", inspect.getdoc(thing) or "", flags=re.M)
    return {"": parts[0], **dict(zip(parts[1::2], parts[2::2], strict=True))}


def entries(text):
    """Names at the left margin of a section, several with commas between them."""
    lines = [line for line in text.splitlines() if line and not line.startswith(" ")]
    return [name.strip(" *`") for line in lines for name in line.split(" : ")[0].split(",")]


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_docstrings_name_parameters_result_and_errors(name):
    function, said = FUNCTIONS[name], sections(FUNCTIONS[name])
    signature = inspect.signature(function)
    assert sorted(entries(said.get("Parameters", ""))) == sorted(signature.parameters)
    assert ("Returns" in said) == (str(signature.return_annotation) != "None")
    assert entries(said["Raises"])


# Words of the field with two meanings: runs are a table, and how often a trace is replayed; a level
# is a share, levels are of a state diagram; an engine reads tables, and issues I/O.
APART = {"runs", "draws", "levels", "engine", "host"}


def parameters(function):
    """Parameters with their annotations; keywords that are declared elsewhere one by one."""
    for parameter in inspect.signature(function).parameters.values():
        unpacked = re.fullmatch(r"Unpack\[(\w+)\]", str(parameter.annotation))
        if unpacked is None:
            yield parameter.name, str(parameter.annotation)
            continue
        for name, of in function.__globals__[unpacked[1]].__annotations__.items():
            yield name, of.__forward_arg__


def test_the_same_parameter_is_of_the_same_kind_everywhere():
    kinds = {}
    for name, function in FUNCTIONS.items():
        for parameter, annotation in parameters(function):
            said = re.sub(r"(Iterable|Sequence)\[", "| ", annotation)
            types = {part.strip(" ]") for part in said.split("|")} - {"", "None"}
            kinds.setdefault(parameter, {})[name] = types
    for name in set(kinds) - APART:
        widest = max(kinds[name].values(), key=len)
        assert all(types <= widest for types in kinds[name].values()), (name, kinds[name])


@pytest.mark.parametrize("words", COMMANDS, ids=" ".join)
def test_help_has_an_example_of_the_command_and_explains_every_option(words):
    command = COMMANDS[words]
    done = CliRunner().invoke(main, [*words[1:], "--help"], prog_name="ppw")
    assert (done.stderr, done.exit_code) == ("", 0)
    assert "Example: ppw " in done.stdout
    path = list(words[1:])
    # A command may be shown by the option of another one that it answers for, or by its group.
    shown = [[[a, *rest], rest, rest[1:]] for _, a, rest in map(choose_answer, examples(command))]
    assert any(words[: len(path)] == path for words in chain(*shown))
    assert not [o.name for o in options(command) if not o.help and o.name != "help"]


def listed(option):
    """Longest spelling that is listed; a former one is not."""
    return max((o for o in option.opts if o != getattr(option, "_former", None)), key=len)


# A word of the field that asks for a name here and an amount there, and choices of one kind.
SEVERAL_KINDS = {
    "--cores": {"N", "NUMBER"},
    "--price": {"PRICE", "HOST=PRICE"},
    "--levels": {"SHARE", "N"},
    "--reference": {"LABEL", "HOST"},
    "--engine": {"[duckdb|spark]", "[memory|duckdb|spark]"},
    "--format": {
        *("[text|json|csv|html|markdown]", "[text|json|csv|html]", "[text|json|csv]"),
        "[text|json]",
    },
    "--method": {"[perf|callgrind|qemu|cpu-time]", "[auto|blktrace|blk tracer]"},
    "--mode": {"[local|yarn|cluster]", "NAME"},
}


def test_an_option_has_one_kind_of_value_in_all_commands():
    kinds = {}
    for words, command in COMMANDS.items():
        context = click.Context(command, info_name=words[-1])
        assert ("-o" in spellings(command)) == ("--output" in spellings(command)), words
        for option in options(command):
            kind = "flag" if option.is_flag else option.make_metavar(context).removesuffix("[,…]")
            # No value is called by its type in Python.
            assert not re.search("TEXT|INTEGER|FLOAT|RANGE|PATH|DIR", kind), words
            kinds.setdefault(listed(option), set()).add(kind)
    mixed = {name: kind for name, kind in kinds.items() if len(kind) > 1}
    assert {k: v for k, v in mixed.items() if v != SEVERAL_KINDS.get(k)} == {}


# Words that are a name of their own in Python: columns of a file, a V-f table, what is written.
OTHER_NAMES = {"--map": "mapping", "--vf": "voltages", "--cpus": "cores", "--clock": "freq"}
OTHER_NAMES |= {"--idle-log": "idle", "--jar": "examples", "--jobs": "by", "--apply": "target"}
OTHER_NAMES |= {"--set": "values", "--network": "network_bytes_s_each_way"}


def test_parameters_are_called_as_their_options():
    """Options reach the functions by their names: the words, with a unit or in the plural."""
    units = "bytes|bytes_s|hours|minutes|s|w|j|kg_per_kwh"
    apart = {}
    for option in (o for command in COMMANDS.values() for o in options(command)):
        spelt = [o[2:].replace("-", "_") for o in option.opts if o.startswith("--")]
        names = [re.fullmatch(f"{s}(_|s|_({units}))?|{s[:-1]}ies", option.name) for s in spelt]
        if spelt and not any(names):
            apart[listed(option)] = option.name
    assert apart == OTHER_NAMES


# A declared table names columns or options, a line each, as a docstring does.
DECLARED = re.compile(r"\n.* \| |^\s*--?\w")


def test_messages_speak_of_options_and_not_of_parameters():
    names = {str(o.name) for command in COMMANDS.values() for o in options(command)}
    names = {n for n in names if "_" in n} - {*COLUMNS, *METRICS}
    told = re.compile(rf"(?<![-\w.])({'|'.join(sorted(names))})(?![\w.])")
    # A scenario's keys are the words of those who write one.
    modules = [m for m in (ROOT / "ppw").rglob("*.py") if m.parent.name != "procurement"]
    found = [
        (module.name, line, text)
        for module in modules
        for line, text in texts(module)
        if told.search(text) and not DECLARED.search(text)
    ]
    assert found == []
