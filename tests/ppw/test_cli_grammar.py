"""The grammar of the command line: every command walked as a new user walks it, by --help alone."""

from __future__ import annotations

import ast
import gzip
import re
import shlex
import shutil
from typing import ClassVar, NamedTuple

import click
import pandas as pd
import pytest
from click.testing import CliRunner
from documentation import ROOT, options_of
from made_up import sweep

from measurements.schema import COLUMNS
from ppw.cli import main
from ppw.cli.choices import Names, OneOf
from ppw.cli.completion import SHELLS
from ppw.cli.cpio import RunsOrCommand
from ppw.cli.numbers import Number, Whole
from ppw.metrics import METRICS

EXAMPLES = ROOT / "examples"


class Walked(NamedTuple):
    """A command by the words that are typed for it."""

    words: tuple[str, ...]
    command: click.Command

    @property
    def name(self):
        return " ".join(self.words)


def walk(command, words=("ppw",)):
    yield Walked(words, command)
    if isinstance(command, click.Group):
        context = click.Context(command)
        for name in command.list_commands(context):
            yield from walk(command.get_command(context, name), (*words, name))


COMMANDS = list(walk(main))
GROUPS = [w for w in COMMANDS if isinstance(w.command, click.Group)]
every_command = pytest.mark.parametrize("walked", COMMANDS, ids=lambda w: w.name)


def examples(command):
    """Words of each example of a command's --help."""
    lead, _, rest = " ".join(command.epilog.split()).partition("Example: ppw ")
    assert not lead
    return [shlex.split(text) for text in re.split(r"; ppw ", rest)]


def options(command):
    return [p for p in command.params if isinstance(p, click.Option) and not p.hidden]


def taken_now(option):
    """Spellings that are listed; a former one is taken alone."""
    return [o for o in option.opts if o != getattr(option, "_former", None)]


def ask(*words):
    return CliRunner().invoke(main, words, prog_name="ppw")


@every_command
def test_help_has_an_example_of_the_command_and_explains_every_option(walked):
    done = ask(*walked.words[1:], "--help")
    assert (done.stderr, done.exit_code) == ("", 0)
    assert "Example: ppw " in done.stdout
    path = list(walked.words[1:])
    assert any(words[: len(path)] == path for words in examples(walked.command))
    assert not [o.name for o in options(walked.command) if not o.help and o.name != "help"]


@every_command
def test_examples_are_understood(walked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("host\n")
    for words in examples(walked.command):
        command, context = main, click.Context(main, info_name="ppw")
        while isinstance(command, click.Group):
            name, command, words = command.resolve_command(context, list(words))
            context = click.Context(command, info_name=name, parent=context)
            if isinstance(command, RunsOrCommand) and words[0] not in command.commands:
                words = ["study", *words]
        if "--help" not in words:
            command.make_context(name, list(words))


class TestOneSpellingOneKind:
    """The same option has the same kind of value in all commands, one or several of it."""

    # A word of the field that asks for a name here and an amount there, and choices of one kind.
    APART: ClassVar = {
        "--cores": {"N", "NUMBER"},
        "--price": {"PRICE", "HOST=PRICE"},
        "--levels": {"SHARE", "N"},
        "--reference": {"LABEL", "HOST"},
        "--engine": {"[duckdb|spark]", "[memory|duckdb|spark]"},
        "--format": {"[text|json|csv|html]", "[text|json|csv]", "[text|json]"},
        "--method": {"[perf|callgrind|qemu|cpu-time]", "[auto|blktrace|blk tracer]"},
        "--mode": {"[local|yarn|cluster]", "[walk|round_robin]"},
    }

    @staticmethod
    def kinds():
        found = {}
        for words, command in COMMANDS:
            context = click.Context(command, info_name=words[-1])
            for option in options(command):
                if option.is_flag:
                    kind = "flag"
                else:
                    kind = option.make_metavar(context).removesuffix("[,…]")
                found.setdefault(max(taken_now(option), key=len), {}).setdefault(kind, []).append(
                    words
                )
        return found

    def test_all(self):
        mixed = {name: set(by) for name, by in self.kinds().items() if len(by) > 1}
        assert {k: v for k, v in mixed.items() if v != self.APART.get(k)} == {}

    def test_no_value_is_called_by_its_type_in_python(self):
        names = {kind for by in self.kinds().values() for kind in by}
        assert not {n for n in names if re.search("TEXT|INTEGER|FLOAT|RANGE|PATH|DIR", n)}

    def test_output_and_help_have_their_letters(self):
        for words, command in COMMANDS:
            spelt = options_of(command)
            assert ("-o" in spelt) == ("--output" in spelt), words


def test_an_option_given_twice_is_refused_not_half_forgotten():
    done = ask("project", "runs.csv", "--freq", "2GHz", "--freq=3GHz")
    assert done.exit_code == 2
    assert "--freq is given more than once: give it once" in done.stderr
    many = ask("compare", "runs.csv", "--a", "host=x", "--a", "workload=y", "--b", "host=z")
    assert "more than once" not in many.stderr


class TestNearest:
    """What is misspelt is answered with what may have been meant, and exit code 2."""

    @pytest.mark.parametrize("walked", GROUPS, ids=lambda w: w.name)
    def test_commands(self, walked):
        name = walked.command.list_commands(click.Context(walked.command))[-1]
        done = ask(*walked.words[1:], name[:-1] + "x")
        assert done.exit_code == 2
        assert f"did you mean '{name}'?" in done.stderr

    @every_command
    def test_options(self, walked):
        for name in {max(o.opts, key=len) for o in options(walked.command)} - {"-D"}:
            done = ask(*walked.words[1:], name + "x")
            assert done.exit_code == 2
            assert "No such option" in done.stderr or "no file and no command" in done.stderr
            assert name in done.stderr

    def test_choices(self):
        asked = 0
        for words, command in COMMANDS:
            for option in options(command):
                choices = getattr(option.type, "choices", None)
                if not choices or option.is_eager:
                    continue
                assert isinstance(option.type, (OneOf, Names)), (words, option.name)
                name = max(choices, key=len)
                with pytest.raises(click.BadParameter, match="is not one of") as refused:
                    option.type.convert(name + "x", option, None)
                assert f"(did you mean {name!r}?)" in str(refused.value)
                asked += 1
        assert asked > 50

    @pytest.mark.parametrize(
        ("words", "said"),
        [
            (("fit", "runs.csv", "--by", "hots"), "did you mean 'host'"),
            (("fit", "runs.csv", "--map", "time_s=tiem_s"), "did you mean 'time_s'"),
            (("knee", "runs.csv", "--over", "freq_gh"), "did you mean 'freq_hz'"),
            (("compare", "runs.csv", "--a", "hots=a", "--b", "host=b"), "did you mean 'host'"),
            (("compare", "runs.csv", "--a", "host=atm", "--b", "host=xeon"), "atom"),
            (("characterise", "runs.csv", "--reference", "atm"), "did you mean 'atom'"),
            (("hosts", "Xeon X5760"), "Xeon X5670"),
            (("datasets", "c3"), "c3o"),
        ],
    )
    def test_columns_hosts_and_data_sets(self, words, said, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        pd.concat([sweep(host=h) for h in ("atom", "xeon")]).to_csv("runs.csv", index=False)
        done = ask(*words)
        assert done.exit_code != 0
        assert said in done.stderr + str(done.exception)


class TestNumbers:
    @pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
    def test_what_is_no_number_is_none(self, text):
        for words, command in COMMANDS:
            for option in options(command):
                if isinstance(option.type, Number):
                    with pytest.raises(click.BadParameter):
                        option.type.convert(text, option, None)
                    assert not isinstance(option.type, Whole), words

    def test_shares_and_percentages_are_typed_either_way(self):
        by_name = {o.name: o.type for w in COMMANDS for o in options(w.command)}
        assert by_name["level"].convert("80%", None, None) == 0.8
        assert by_name["level"].convert("0.8", None, None) == 0.8
        assert by_name["max_error"].convert("10%", None, None) == 10.0
        assert by_name["max_error"].convert("10", None, None) == 10.0
        assert by_name["lifetime_hours"].convert("4y", None, None) == 4 * 365 * 24
        assert by_name["run_time_minutes"].convert("90s", None, None) == 1.5


# Words that are a name of their own in Python: columns of a file, a V-f table, what is written.
OTHER_NAMES: dict[str, str] = {
    "--map": "mapping",
    "--vf": "voltages",
    "--cpus": "cores",
    "--clock": "freq",
    "--idle-log": "idle",
    "--jar": "examples",
    "--jobs": "by",
    "--apply": "target",
}


def test_parameters_are_called_as_their_options():
    """Options reach the functions by their names: the words, with a unit or in the plural."""
    units = "bytes|bytes_s|hours|minutes|s|w|j|kg_per_kwh"
    apart = set()
    for _, command in COMMANDS:
        for option in options(command):
            spelt = [o[2:].replace("-", "_") for o in option.opts if o.startswith("--")]
            names = [re.fullmatch(f"{s}(_|s|_({units}))?|{s[:-1]}ies", option.name) for s in spelt]
            if spelt and not any(names):
                apart.add((max(taken_now(option), key=len), option.name))
    assert apart == set(OTHER_NAMES.items()), apart


def texts_of(path):
    """Sentences in a module that are no docstrings: what a user may read."""
    documented = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    nodes = list(ast.walk(ast.parse(path.read_text(encoding="utf-8"))))
    docstrings = {ast.get_docstring(n, clean=False) for n in nodes if isinstance(n, documented)}
    for node in nodes:
        text = node.value if isinstance(node, ast.Constant) else None
        if isinstance(text, str) and " " in text and text not in docstrings:
            yield node.lineno, text


def test_messages_speak_of_options_and_not_of_parameters():
    names = {str(o.name) for w in COMMANDS for o in options(w.command)}
    names = {n for n in names if "_" in n} - {*COLUMNS, *METRICS}
    told = re.compile(rf"(?<![-\w.])({'|'.join(sorted(names))})(?![\w.])")
    # A scenario's keys are the words of those who write one.
    modules = [m for m in (ROOT / "ppw").rglob("*.py") if m.parent.name != "procurement"]
    found = [
        (module.name, line, text)
        for module in modules
        for line, text in texts_of(module)
        if told.search(text)
    ]
    assert found == []


def test_a_former_spelling_is_taken_and_not_shown():
    assert "--freqs" not in ask("measure", "--help").stdout
    done = ask("measure", "--freqs", "fast", "--", "true")
    assert done.exit_code == 2
    assert "Invalid value for '--freq'" in done.stderr


class TestCompletion:
    @pytest.fixture
    def complete(self, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        sweep().to_csv("runs.csv", index=False)
        shell = SHELLS["bash"](main, {}, "ppw", "_PPW_COMPLETE")
        return lambda *words: [c.value for c in shell.get_completions(list(words[:-1]), words[-1])]

    def test_columns_of_the_table_that_is_named(self, complete):
        assert complete("fit", "runs.csv", "--by", "wo") == ["workload"]
        assert complete("fit", "runs.csv", "--by", "host,wo") == ["host,workload"]
        assert complete("knee", "runs.csv", "--over", "in") == ["instructions"]
        assert complete("fit", "--by", "th") == ["threads"]

    def test_metrics(self, complete):
        assert complete("fit", "runs.csv", "--metric", "time,perf") == [
            "time,perf_per_watt",
            "time,perf_per_dollar",
        ]

    def test_hosts_and_data_sets(self, complete):
        assert complete("hosts", "xeon x567") == ["Xeon X5670"]
        assert complete("datasets", "c3") == ["c3o"]
        assert complete("rightsize", "--catalogue-host", "Atom D51") == ["Atom D510"]


@pytest.fixture(scope="module")
def shop(tmp_path_factory):
    """Folder with the files that examples name."""
    folder = tmp_path_factory.mktemp("shop")
    steps = (1.2, 1.8, 2.4)
    runs = pd.concat([sweep(host=h, seed=i, steps=steps) for i, h in enumerate(("atom", "xeon"))])
    runs.to_csv(folder / "runs.csv", index=False)
    (folder / "runs").mkdir()
    runs.to_csv(folder / "runs" / "monday.csv", index=False)
    for name, copy in (
        ("study.csv", "fio_study.csv"),
        ("counts.csv", "instruction_counts.csv"),
        ("scenario.toml", "procurement.toml"),
        ("simulated_runs.csv", "simulated_runs.csv"),
        ("c1.csv", "recordings/cache.csv"),
    ):
        shutil.copy(EXAMPLES / copy, folder / name)
    batch = (EXAMPLES / "recordings" / "batch.csv").read_bytes()
    for name in ("b3.tab.gz", "db7.tab.gz"):
        (folder / name).write_bytes(gzip.compress(batch))
    (folder / "disk.csv").write_bytes(
        gzip.decompress((EXAMPLES / "disk_trace.csv.gz").read_bytes())
    )
    return folder


# The others take hardware, a network, root, an engine, or minutes.
RUN = (
    *("best", "characterise", "check", "colocate", "compare", "cpio", "cpio project", "demo"),
    *("fit", "hosts", "pathlength", "plan", "project", "rightsize", "sensors", "size", "trace"),
    "validate",
)


@pytest.mark.parametrize("name", RUN)
def test_examples_run(name, shop, tmp_path, monkeypatch):
    folder = shutil.copytree(shop, tmp_path / "shop")
    monkeypatch.chdir(folder)
    (command,) = (w.command for w in COMMANDS if w.name == f"ppw {name}")
    for words in examples(command):
        if name == "demo" and "--report" in words:
            # A minute's work, which test_demo does.
            continue
        done = ask(*words)
        assert done.exit_code in ((0, 3) if {"--strict", "--max-error"} & set(words) else (0,)), (
            f"ppw {shlex.join(words)}\n{done.stderr}{done.exception}"
        )
