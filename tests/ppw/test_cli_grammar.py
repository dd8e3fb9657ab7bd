"""The grammar of the command line: every command walked as a new user walks it, by --help alone."""

import click
import pandas as pd
import pytest
from click.testing import CliRunner
from made_up import sweep
from processes import ppw_inside, refused
from walked_commands import COMMANDS, GROUPS, examples, options

from ppw.cli import SHELLS, main
from ppw.cli.options import NameList, Number, OneOf, Whole
from ppw.cli.pressure import RunsOrCommand

OPTIONS = [(words, option) for words, command in COMMANDS.items() for option in options(command)]
every_command = pytest.mark.parametrize("words", COMMANDS, ids=" ".join)


def ask(*words):
    return CliRunner().invoke(main, words, prog_name="ppw")


@every_command
def test_examples_are_understood(words, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "nodes.csv").write_text("host\n")
    for rest in examples(COMMANDS[words]):
        command, context = main, click.Context(main, info_name="ppw")
        while isinstance(command, click.Group):
            name, command, rest = command.resolve_command(context, list(rest))
            context = click.Context(command, info_name=name, parent=context)
            if isinstance(command, RunsOrCommand) and rest[0] not in command.commands:
                rest = ["study", *rest]
        if "--help" not in rest:
            command.make_context(name, list(rest))


def test_an_option_given_twice_is_refused_not_half_forgotten():
    done = ask("project", "runs.csv", "--freq", "2GHz", "--freq=3GHz")
    assert done.exit_code == 2
    assert "--freq is given more than once: give it once" in done.stderr
    many = ask("compare", "runs.csv", "--a", "host=x", "--a", "workload=y", "--b", "host=z")
    assert "more than once" not in many.stderr


class TestNearest:
    """What is misspelt is answered with what may have been meant, and exit code 2."""

    @every_command
    def test_commands_and_options(self, words):
        spelt = {max(o.opts, key=len) for o in options(COMMANDS[words])} - {"-D"}
        for name in spelt:
            done = ask(*words[1:], name + "x")
            assert done.exit_code == 2
            assert "No such option" in done.stderr or "no file and no command" in done.stderr
            assert name in done.stderr
        if words in GROUPS:
            name = GROUPS[words].list_commands(click.Context(GROUPS[words]))[-1]
            done = ask(*words[1:], name[:-1] + "x")
            assert done.exit_code == 2
            assert f"did you mean '{name}'?" in done.stderr

    def test_choices(self):
        asked = 0
        for words, option in OPTIONS:
            choices = getattr(option.type, "choices", None)
            if choices and not option.is_eager:
                assert isinstance(option.type, (OneOf, NameList)), (words, option.name)
                name = max(choices, key=len)
                with pytest.raises(click.BadParameter, match="is not one of") as refused:
                    option.type.convert(name + "x", option, None)
                assert f"(did you mean {name!r}?)" in str(refused.value)
                asked += 1
        assert asked > 50

    @pytest.mark.cases(
        "words, said",
        ("fit runs.csv --by hots", "did you mean 'host'"),
        ("fit runs.csv --map time_s=tiem_s", "did you mean 'time_s'"),
        ("knee runs.csv --over freq_gh", "did you mean 'freq_hz'"),
        ("compare runs.csv --a hots=a --b host=b", "did you mean 'host'"),
        ("compare runs.csv --a host=atm --b host=xeon", "atom"),
        ("characterise runs.csv --reference atm", "did you mean 'atom'"),
        ("hosts Xeon-X5760", "Xeon X7560"),
        ("datasets c3O", "no data set 'c3O' (did you mean 'c3o'?); there are"),
    )
    def test_columns_hosts_and_data_sets(self, words, said, tmp_path):
        runs = pd.concat([sweep(host=h) for h in ("atom", "xeon")])
        runs.to_csv(tmp_path / "runs.csv", index=False)
        refused(ppw_inside(*words.split(), cwd=tmp_path), said)


@pytest.mark.parametrize("text", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_refused(text):
    numbers = [(words, o) for words, o in OPTIONS if isinstance(o.type, Number)]
    for words, option in numbers:
        with pytest.raises(click.BadParameter):
            option.type.convert(text, option, None)
        assert not isinstance(option.type, Whole), words
    assert len(numbers) > 20


@pytest.mark.cases(
    "name, text, number",
    *(("level", "80%", 0.8), ("level", "0.8", 0.8)),
    *(("max_error", "10%", 10.0), ("max_error", "10", 10.0)),
    *(("lifetime_hours", "4y", 4 * 365 * 24), ("run_time_minutes", "90s", 1.5)),
)
def test_shares_percentages_and_times_are_typed_either_way(name, text, number):
    by_name = {option.name: option.type for _, option in OPTIONS}
    assert by_name[name].convert(text, None, None) == number


def test_a_former_spelling_is_taken_and_not_shown():
    assert "--freqs" not in ask("measure", "--help").stdout
    done = ask("measure", "--freqs", "fast", "--", "true")
    assert done.exit_code == 2
    assert "Invalid value for '--freq'" in done.stderr


@pytest.mark.cases(
    "typed, former",
    ("fit --over load", "powerload"),
    ("fit --over=data", "pathlength"),
    ("fit --over threads", "knee --over threads"),
    ("pressure --for sharing", "colocate"),
    ("pressure --for sizing", "rightsize"),
    ("compare --details", "characterise"),
    ("measure --list-sensors", "sensors"),
    ("cpio size", "size"),
)
def test_a_question_within_a_command_is_that_of_the_former_command(typed, former):
    asked, before = (ask(*words.split(), "--help").stdout for words in (typed, former))
    assert asked.partition("\n\n")[2] == before.partition("\n\n")[2]


def test_options_of_models_and_statistics_are_listed_by_help_all():
    short, whole = (ask("project", option).stdout for option in ("--help", "--help-all"))
    assert "--interval" not in short
    assert "--interval" in whole.partition("Models and statistics:")[2]
    assert "--help-all" not in ask("hosts", "--help").stdout


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

    def test_metrics_hosts_and_data_sets(self, complete):
        found = complete("fit", "runs.csv", "--metric", "time,perf")
        assert found == ["time,perf_per_watt", "time,perf_per_dollar"]
        assert complete("hosts", "xeon x567") == ["Xeon X5670"]
        assert complete("datasets", "c3") == ["c3o"]
        assert complete("rightsize", "--catalogue-host", "Atom D51") == ["Atom D510"]
