"""Path lengths over a fleet are those in memory: fits, points, flat ranges and caveats, to 1e-9."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from fleet_peers import OTHERS_WARNINGS, engine, quiet, sockets_closed  # noqa: F401

import ppw
from ppw import fleet
from ppw.errors import PpwError

pytestmark = OTHERS_WARNINGS
TABLES = ("points", "cores", "data", "flat")


def made(seed, rows=300):
    """Counted, emulated and estimated instructions, in any order, with values missing."""
    random = np.random.default_rng(seed)

    def choice(*values):
        return random.choice(np.array(values, dtype=object), rows)

    cores = random.choice([1, 2, 4, 8, np.nan], rows)
    size = random.choice([1e6, 4e6, 1.6e7, np.nan], rows, p=[0.3, 0.3, 0.3, 0.1])
    per_byte = 700 - 90 * np.log(np.nan_to_num(cores, nan=3.0))
    known = np.nan_to_num(size, nan=1e6)
    instructions = (per_byte * known + 2e7) * np.exp(random.normal(0, 0.02, rows))
    return pd.DataFrame(
        {
            "host": choice("a", "b"),
            "workload": choice("sort", "wordcount", None),
            "cores": cores,
            "data_bytes": size,
            "freq_ghz": 2.0,
            "cpi": 1.1,
            "command_user_s": random.uniform(1, 2, rows),
            "command_system_s": 0.1,
            "instructions": np.where(random.random(rows) < 0.2, np.nan, instructions),
            "instructions_label": choice("counted", "emulated", None),
            "counted_modes": choice("user", "user and kernel"),
            "time_s": known / 1e6 * np.exp(random.normal(0, 0.01, rows)),
        }
    )


@pytest.mark.parametrize("name", ["duckdb", pytest.param("spark", marks=pytest.mark.slow)])
@pytest.mark.parametrize("seed", range(3))
def test_memory_is_the_oracle(name, seed):
    runs = made(seed)
    in_memory = quiet(ppw.path_lengths, runs)
    answer = quiet(fleet.path_lengths, runs, engine=engine(name))
    for table in TABLES:
        found, known = (
            getattr(a, table).reset_index(drop=True) for a in (answer.answer, in_memory)
        )
        assert len(known)
        pd.testing.assert_frame_equal(found, known, rtol=1e-9, check_dtype=False)
    assert answer.caveats == in_memory.caveats
    assert (answer.origin.runs, answer.faults) == (300, ())


def test_runs_that_cannot_be_are_named(tmp_path):
    good, odd = made(1, 40), made(2, 40)
    odd.loc[:2, "data_bytes"] = -1.0
    good.to_parquet(tmp_path / "a.parquet")
    odd.to_parquet(tmp_path / "b.parquet")
    answer = quiet(fleet.path_lengths, tmp_path)
    (fault,) = answer.faults
    assert fault.file == str(tmp_path / "b.parquet")
    assert fault.what.startswith("data_bytes that cannot be in 3 runs: left out")
    whole = pd.concat([good, odd[3:]], ignore_index=True)
    expected = quiet(ppw.path_lengths, whole).points
    pd.testing.assert_frame_equal(answer.answer.points, expected, rtol=1e-9, check_dtype=False)


def test_runs_without_instructions():
    with pytest.raises(PpwError, match="no run has both instructions and data_bytes"):
        fleet.path_lengths(made(1)[["host", "freq_ghz", "time_s"]])


def test_a_saved_state_keeps_no_instructions(tmp_path):
    made(1, 40).drop(columns="cores").to_parquet(tmp_path / "a.parquet")
    fleet.update_state(tmp_path / "s", tmp_path / "a.parquet")
    for source in (tmp_path / "s", [tmp_path / "s"]):
        with pytest.raises(PpwError, match="s: a saved state keeps no instructions"):
            fleet.path_lengths(source)


def test_command(tmp_path):
    from ppw.cli.fleet import command

    made(1).to_parquet(tmp_path / "a.parquet")
    asked = ["pathlength", str(tmp_path), "--format", "json"]
    done = CliRunner().invoke(command, asked, standalone_mode=False)
    assert (done.return_value, done.exception) == (0, None)
    read = fleet.FleetAnswer.from_json(done.stdout)
    assert isinstance(read.answer, ppw.PathLengths)
