"""Rows and columns named on the command line as the user's own files name them.

The oracle of --where is a file that holds only the rows asked for, made by pandas.
"""

import json
from pathlib import Path

import click
import pandas as pd
import pytest
from fleet_peers import OTHERS_WARNINGS
from made_up import sweep
from processes import ppw_inside, refused, worked
from walked_commands import COMMANDS, options

import ppw
from ppw import fleet
from ppw.cli import main
from ppw.runs.groups import choose_runs

OWN = {"host": "machine", "workload": "Benchmark", "freq_ghz": "Clock (GHz)"}
OWN |= {"time_s": "Elapsed [s]", "power_w": "Watts"}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A table of two hosts under headers of somebody's own."""
    monkeypatch.chdir(tmp_path)
    hosts = [sweep(host=h, seed=i) for i, h in enumerate(("atom", "xeon"))]
    table = pd.concat(hosts, ignore_index=True).rename(columns=OWN)
    table.to_csv("mine.csv", index=False)
    return tmp_path


def ask(*words):
    return ppw_inside(*words, cwd=".")


def said(*words):
    """Standard output of a command that must work, and what else it told."""
    done = worked(ask(*words))
    return done.stdout, done.stderr


def only(**held):
    """File of the rows that hold these values, and no other."""
    table = pd.read_csv("mine.csv")
    for column, values in held.items():
        table = table[table[column].isin(values)]
    table.to_csv("only.csv", index=False)


READERS = {
    " ".join(words): {option.name: option for option in options(command)}
    for words, command in COMMANDS.items()
    if any(o.name == "mapping" and "freq_khz" in o.help for o in options(command))
}


def test_every_command_that_reads_runs_tables_chooses_rows():
    named = {"project", "fit", "best", "plan", "validate", "check", "size", "compare", "knee"}
    assert {f"ppw {name}" for name in (*named, "fleet project")} <= set(READERS)
    # A saved state takes whole files.
    assert [name for name in READERS if "where" not in READERS[name]] == ["ppw fleet update"]


@pytest.mark.cases(
    "command",
    ("fit",),
    ("project", "--freq", "3GHz", "--metric", "time,power"),
    ("best", "--draws", "100"),
    ("validate", "--metric", "time"),
    ("plan", "--freq", "3GHz", "--steps", "1.2GHz", "--repeats", "1", "--metric", "time"),
    ("knee", "--over", "freq_hz", "--of", "time"),
    ids=lambda c: c[0],
)
@pytest.mark.usefixtures("folder")
def test_an_answer_is_that_of_a_table_with_these_rows_alone(command):
    name, *rest = command
    only(machine=["atom"], Benchmark=["grep", "wc"])
    where = ("--where", "machine=atom,Benchmark=grep", "--where", "Benchmark=wc")
    assert said(name, "mine.csv", *rest, *where)[0] == said(name, "only.csv", *rest)[0]


@pytest.mark.usefixtures("folder")
def test_a_number_carries_its_unit_or_that_of_the_name():
    only(**{"Clock (GHz)": [1.2, 2.4]})
    for name in ("freq=1.2GHz", "freq_mhz=1200", "Clock (GHz)=1.2", "freq_hz=1.2e9"):
        where = ("--where", name, "--where", "freq_ghz=2.4")
        assert said("fit", "mine.csv", *where)[0] == said("fit", "only.csv")[0]
    # A column in another unit is not worth a word.
    told = said("fit", "mine.csv", "--where", "freq_ghz=1.2,freq_ghz=1.6")[1]
    assert "is read as" not in told


@pytest.mark.usefixtures("folder")
def test_suspect_rows_keep_the_numbers_that_they_have_in_the_file():
    table = pd.read_csv("mine.csv")
    table["freq_achieved_ghz"] = table["Clock (GHz)"]
    table.loc[30, "freq_achieved_ghz"] = 0.6
    table.loc[40, "Elapsed [s]"] = -1
    table.to_csv("mine.csv", index=False)
    where = ("check", "mine.csv", "--format", "json", "--where")
    found = json.loads(ask(*where, "machine=xeon").stdout)["suspects"]
    flagged = [(row["line"], row["check"]) for row in found if row["row"] == 41]
    assert flagged == [(42, "unusable_value")]
    document = json.loads(said(*where, "machine=xeon,Benchmark=grep")[0])
    assert {row["row"] for row in document["suspects"]} == {31}


@pytest.mark.cases(
    "command, where, answer",
    ("fit", "machine=atm", "has host 'atm' (did you mean 'atom'?); there are atom, xeon"),
    ("best", "mchine=atom", "no column 'mchine' (did you mean 'machine'?) to choose runs by"),
    ("check", "freq=3GHz", "has freq_hz '3 GHz'; there are 1.2 GHz, 1.6 GHz, 2 GHz, 2.4 GHz"),
    ("fit", "freq=fast", "no run has freq_hz 'fast'; there are 1.2 GHz, 1.6 GHz"),
    ("fit", "cores=two", "no run has cores 'two'; there are 4"),
    ("fit", "machine=xeon,Benchmark=wc", "no run has all of host=xeon, workload=wc"),
)
@pytest.mark.usefixtures("folder")
def test_what_matches_nothing_is_told_with_what_there_is(command, where, answer):
    table = pd.read_csv("mine.csv")
    few = table[(table["machine"] == "atom") | (table["Benchmark"] != "wc")]
    few.to_csv("mine.csv", index=False)
    refused(ask(command, "mine.csv", "--where", where), answer)


@pytest.mark.usefixtures("folder")
def test_a_selection_that_is_none_is_wrong_usage():
    for option in ("--where", "--a", "--b"):
        done = ask("compare", "mine.csv", option, "machine")
        refused(done, "'machine' is not COLUMN=VALUE, like host=atom", code=2)
    # Other inputs have no rows to choose.
    done = ask("size", "--data", "1TB", "--time", "1d", "--cores", "8", "--where", "host=a")
    refused(done, "--where is for runs tables, and no RUNS are named", code=2)


@pytest.mark.usefixtures("folder")
class TestHeadersOfTheUsersOwn:
    """What reading renamed is named by either name, and which column it is, is said."""

    @pytest.mark.cases(
        "words",
        "fit mine.csv --by {host},{workload}",
        "fit mine.csv --where {host}=atom",
        "compare mine.csv --draws 100 --a {host}=atom --b {host}=xeon",
    )
    def test_either_name(self, words):
        mine, told = said(*words.format(**OWN).split())
        again, quiet = said(*words.format(**dict(zip(OWN, OWN, strict=True))).split())
        assert (again, "is read as" in quiet) == (mine, False)
        assert told.count("ppw: machine is read as the column host\n") == 1

    def test_axes_of_a_sweep(self):
        table = pd.read_csv("mine.csv").assign(**{"Worker Count": range(1, 49)})
        table.to_csv("mine.csv", index=False)
        axes = ("--over", "Worker Count", "--of", "Elapsed [s]")
        done, told = said("knee", "mine.csv", "--map", "threads=Worker Count", *axes)
        assert "threads" in done
        assert "ppw: Worker Count is read as the column threads\n" in told
        assert "ppw: Elapsed [s] is read as the column time_s\n" in told


@pytest.mark.usefixtures("folder")
class TestFleet:
    pytestmark = OTHERS_WARNINGS

    def test_the_same_rows_as_in_memory_and_refusals(self):
        where = ("--where", "machine=atom,freq_mhz=1200,freq=2.4GHz", "--metric", "time")
        asked = ("project", "mine.csv", "--freq", "3GHz", *where)
        found, _ = said("fleet", *asked)
        assert found.startswith(said(*asked)[0].split("\ncaveat")[0])
        done = ask("fleet", "fit", "mine.csv", "--where", "mchine=atom")
        refused(done, "no column 'mchine' to choose runs by")
        done = ask("fleet", "fit", "mine.csv", "--where", "machine=atm")
        refused(done, "mine.csv: no run has all of host=atm")

    def test_a_saved_state_has_no_rows_to_choose(self):
        with pytest.raises(ppw.PpwError, match="no single runs to choose from: leave --where out"):
            fleet.fit([fleet.FleetState(Path("state"))], where={"host": "atom"})

    def test_a_number_that_was_rounded_is_the_same_and_a_missing_one_is_none(self):
        ghz, rack = [4 / 3, 4 / 3, 2.0], [1.0, None, 1.0]
        table = pd.DataFrame({"freq_ghz": ghz, "rack": rack, "time_s": 3.0})
        found = fleet.open_runs(table, where={"freq": "1.3333333GHz", "rack": "1"})
        assert found.table.count().to_pyarrow().as_py() == 1


def test_the_digest_is_of_the_rows(folder):
    runs = ppw.read_runs(folder / "mine.csv")
    chosen = [choose_runs(runs, {"host": host}) for host in ("atom", "xeon")]
    assert len({t.attrs["digest"] for t in (runs, *chosen)}) == 3
    assert len(chosen[0]) + len(chosen[1]) == len(runs)


def test_columns_are_completed_within_a_selection(folder):
    context = click.Context(main)
    context.params["runs"] = (str(folder / "mine.csv"),)
    where = READERS["ppw fit"]["where"]
    found = where.shell_complete(context, "machine=atom,Be")
    assert [item.value for item in found] == ["machine=atom,Benchmark="]
