"""What cells of text files hold that a fleet reads, and what it says of the rest."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pandas as pd
import pytest
from click.testing import CliRunner, Result
from fleet_peers import OTHERS_WARNINGS

import ppw
from ppw import fleet
from ppw.cli.fleet import command
from ppw.fleet.canonical import canonical

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = OTHERS_WARNINGS


def ask(*arguments: object) -> Result:
    return CliRunner().invoke(command, [str(a) for a in arguments])


def test_units_in_cells_are_read_as_in_memory(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text(
        "Freq,time_s,energy_j\n1.0 GHz,5.5 s,5 MJ\n2.0 GHz,3100 ms,4000 kJ\n2.4GHz,3,4200000 mJ\n"
    )
    known = ppw.read_runs(path)
    read = fleet.open_runs(str(path)).table.to_pandas()
    assert read["time_s"].tolist() == pytest.approx(known["time_s"].tolist())
    assert read["energy_j"].tolist() == pytest.approx(known["energy_j"].tolist())


def test_booleans_are_no_numbers() -> None:
    import ibis

    made = ibis.memtable(pd.DataFrame({"freq_hz": [1e9], "time_s": [True]}))
    assert canonical(made).to_pandas()["time_s"].tolist() == [float("-inf")]


def test_decimal_commas_are_a_fault_that_says_what_reads_them(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text("host;freq_ghz;time_s\na;1,0;5,5\na;2,0;3,1\n")
    done = ask("fit", path)
    assert done.exit_code == 1
    said = "g.csv: has decimal commas (1,0), and a fleet takes numbers with a point"
    assert said in str(done.exception) + done.output


def test_values_that_cannot_be_are_named_where_none_is_left(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("host,freq_ghz,time_s\na,1.0,x\na,2.0,3.1\na,2.4,y\n")
    done = ask("project", path, "--freq", "3GHz", "--metric", "time")
    assert done.exit_code == 1
    assert "fault:" in done.output
    assert "time_s that cannot be in 2 runs" in done.output


def test_a_fault_is_told_once_and_keys_have_no_point(tmp_path: Path) -> None:
    path = tmp_path / "r.csv"
    path.write_text("host,cores,freq_ghz,time_s\na,4,1.0,5\na,4,2.0,3.1\na,4,2.4,\n")
    done = ask("project", path, "--freq", "3GHz", "--metric", "time")
    assert done.output.count("such as host=a, cores=4: these runs") == 1


def test_a_fleet_of_one_group_names_no_columns_of_the_engine(tmp_path: Path) -> None:
    ghz = [1.0, 2.0, 3.0] * 20
    table = pd.DataFrame({"freq_ghz": ghz, "time_s": [1 + 2 / f for f in ghz]})
    table.to_parquet(tmp_path / "runs.parquet")
    done = ask("project", tmp_path, "--freq", "4GHz")
    assert done.exit_code == 0, done.output
    (said,) = [line for line in done.stdout.splitlines() if "one group" in line]
    assert said.endswith("all rows are one group; see --by and --map")
