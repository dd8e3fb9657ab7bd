"""Simulated cores by rvsim itself, with programs that Debian's RISC-V compiler made."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pandas as pd
import pytest
from peers.riscv import WORK, build, marked

from measurements import MeasurementError
from measurements.runs import check_runs, read_runs
from measurements.simulated import programs
from measurements.simulated.cores import CORES, rvsim
from measurements.simulated.kernels import KERNELS
from measurements.simulated.programs import Program, compiled, program_of
from measurements.workloads import simulated
from measurements.workloads.simulated import MARKED, WHOLE, Cell, simulate, simulate_sweep

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def work(folder):
    """A small program with marks."""
    return program_of(str(build(folder / "work.elf", marked())), folder)


class TestRow:
    def test_is_labelled_simulated_and_has_no_watts(self, work):
        row = simulate(work, "inorder", 2e9)
        assert row["host"] == "simulated-inorder"
        assert row["power_source"] == "simulated"
        assert row["simulator"] == f"rvsim {rvsim().version()}"
        assert not {"power_w", "energy_j"} & set(row)

    def test_figures_belong_to_each_other(self, work):
        row = simulate(work, "o3", 1.6e9)
        assert row["time_s"] == row["cycles"] / 1.6e9
        assert row["cpi"] == row["cycles"] / row["instructions"]
        assert row["memory_read_bytes"] == 64 * row["llc_misses"]

    def test_is_a_runs_table(self, work, tmp_path):
        path = tmp_path / "runs.csv"
        pd.DataFrame([simulate(work, core, 1e9) for core in CORES]).to_csv(path, index=False)
        assert len(check_runs(read_runs(path), needed=["time_s", "cpi", "freq_hz"])) == 2

    @pytest.mark.parametrize("core", CORES)
    def test_two_runs_are_identical(self, work, core):
        assert simulate(work, core, 2.4e9) == simulate(work, core, 2.4e9)

    @pytest.mark.parametrize("core", CORES)
    def test_memory_costs_more_cycles_at_a_higher_clock_and_never_more_time(self, work, core):
        slow, fast = (simulate(work, core, hertz) for hertz in (1e9, 4e9))
        assert fast["instructions"] == slow["instructions"]
        assert fast["cpi"] > slow["cpi"]
        assert fast["time_s"] < slow["time_s"]


class TestRegion:
    def test_set_up_and_check_do_not_count(self, folder, work):
        longer = build(folder / "longer.elf", marked(WORK, WORK))
        row = simulate(program_of(str(longer), folder), "inorder", 2e9)
        assert row["region"] == MARKED
        alone = simulate(work, "inorder", 2e9)["instructions"]
        # A loop more or less is thousands; its addresses may be kept in other registers.
        assert row["instructions"] == pytest.approx(alone, abs=20)

    def test_without_marks_all_counts_and_is_said(self, folder, work):
        plain = build(folder / "plain.elf", f"{WORK} return 0;")
        row = simulate(program_of(str(plain), folder), "inorder", 2e9)
        assert row["region"] == WHOLE
        assert row["instructions"] > simulate(work, "inorder", 2e9)["instructions"]

    def test_one_mark_is_no_region(self, folder):
        half = build(folder / "half.elf", "REGION_BEGINS(); return 0;")
        with pytest.raises(MeasurementError, match="marks one end of a region"):
            simulate(program_of(str(half), folder), "inorder", 2e9)


class TestPrograms:
    @pytest.mark.parametrize("kernel", KERNELS)
    def test_each_kernel_compiles(self, kernel, folder):
        elf, compiler = compiled(kernel, folder)
        assert elf.read_bytes().startswith(b"\x7fELF")
        assert compiler.startswith("riscv64-unknown-elf-gcc ")

    def test_a_kernel_begins_where_its_preparation_ends(self, folder):
        row = simulate(program_of("pointer_chase", folder), "inorder", 1e9)
        assert row["region"] == MARKED
        assert row["data_bytes"] == KERNELS["pointer_chase"].data_bytes

    def test_success_by_the_finisher(self, folder):
        body = f"{WORK} *(volatile uint32_t *)0x100000 = 0x5555; for (;;);"
        row = simulate(
            program_of(str(build(folder / "finisher.elf", body)), folder), "inorder", 1e9
        )
        assert row["region"] == WHOLE

    def test_a_wrong_result_is_an_error(self, folder):
        wrong = program_of(str(build(folder / "wrong.elf", f"{WORK} return 7;")), folder)
        with pytest.raises(MeasurementError, match=r"wrong on o3 at 1 GHz: .* exit code 7"):
            simulate(wrong, "o3", 1e9)

    def test_a_trap_is_an_error(self, folder):
        trap = program_of(
            str(build(folder / "trap.elf", "*(volatile int *)8 = 1; return 0;")), folder
        )
        with pytest.raises(MeasurementError, match="trap on inorder at 1 GHz: the program fails"):
            simulate(trap, "inorder", 1e9)

    def test_an_endless_program_is_an_error(self, folder, monkeypatch):
        monkeypatch.setattr(simulated, "_MOST_CYCLES", 50_000)
        endless = program_of(str(build(folder / "endless.elf", "for (;;);")), folder)
        with pytest.raises(MeasurementError, match="does not exit within 50,000 cycles"):
            simulate(endless, "inorder", 1e9)

    def test_a_broken_file_is_an_error(self, folder, tmp_path):
        whole = build(folder / "whole.elf", "return 0;").read_bytes()
        cut = tmp_path / "cut.elf"
        cut.write_bytes(whole[:100])
        with pytest.raises(MeasurementError, match=r"cut\.elf cannot be loaded"):
            simulate(program_of(str(cut), tmp_path), "inorder", 1e9)

    @pytest.mark.parametrize(
        ("name", "said"),
        [
            (
                "kmens",
                r"neither a kernel \(word_count, .*\) nor a file \(did you mean 'kmeans'\?\)",
            ),
            (sys.executable, "not an ELF file for RISC-V"),
            (__file__, "not an ELF file for RISC-V"),
            ("/", "cannot be read: Is a directory"),
        ],
    )
    def test_what_is_no_program(self, name, said, tmp_path):
        with pytest.raises(MeasurementError, match=said):
            program_of(name, tmp_path)

    def test_without_a_compiler(self, tmp_path, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(MeasurementError, match="apt install gcc-riscv64-unknown-elf"):
            compiled("kmeans", tmp_path)

    def test_with_a_compiler_that_fails(self, tmp_path, monkeypatch):
        monkeypatch.setattr(programs, "_FLAGS", ("-march=vax",))
        with pytest.raises(MeasurementError, match=r"cannot compile the kernels: .*error.*vax"):
            compiled("kmeans", tmp_path)

    def test_without_rvsim(self, work, monkeypatch):
        monkeypatch.setitem(sys.modules, "rvsim", None)
        with pytest.raises(MeasurementError, match=r"pip install 'perf-per-watt\[simulate\]'"):
            simulate(work, "inorder", 1e9)


class TestSweep:
    def test_all_cells_in_order(self, work):
        asked = [str(work.elf)]
        made = list(simulate_sweep(asked, ["o3", "inorder"], [2e9, 1e9]))
        cells = [cell for cell, _ in made]
        assert cells == [Cell(asked[0], c, f) for c in ("o3", "inorder") for f in (2e9, 1e9)]
        for cell, row in made:
            assert row == simulate(work, cell.core, cell.freq_hz)

    @pytest.mark.parametrize("hertz", [1.2345678e9, 50e6, 20e9])
    def test_a_clock_that_cannot_be(self, work, hertz):
        with pytest.raises(MeasurementError, match="a whole number of MHz from 100 MHz to 10 GHz"):
            next(simulate_sweep([str(work.elf)], ["o3"], [1e9, hertz]))

    def test_an_unknown_core(self, work):
        with pytest.raises(
            MeasurementError, match=r"core 'inordr': .* \(did you mean 'inorder'\?\)"
        ):
            next(simulate_sweep([str(work.elf)], ["inordr"], [1e9]))

    def test_two_programs_of_one_name(self, work, tmp_path):
        other = Path(shutil.copy(work.elf, tmp_path))
        with pytest.raises(MeasurementError, match="would both be workload 'work'"):
            next(simulate_sweep([str(work.elf), str(other)], ["o3"], [1e9]))

    def test_a_failing_program_ends_it(self, folder):
        wrong = build(folder / "fails.elf", "return 3;")
        with pytest.raises(MeasurementError, match="exit code 3"):
            list(simulate_sweep([str(wrong)], ["o3"], [1e9, 2e9]))

    def test_nothing_outlives_a_kill(self, folder, tmp_path):
        endless = build(folder / "forever.elf", "for (;;);")
        code = (
            "from measurements.workloads.simulated import simulate_sweep\n"
            f"list(simulate_sweep([{str(endless)!r}], ['inorder', 'o3'], [1e9]))"
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
        parent = subprocess.Popen(
            [sys.executable, "-c", f"if __name__ == '__main__':\n exec({code!r})"], env=env
        )
        try:
            children = _until(lambda: found if len(found := _simulating(parent.pid)) == 2 else None)
            # Simulating, and no longer starting: then only the kernel can end them.
            _until(lambda: all(_cpu_s(child) > 1.5 for child in children))
        finally:
            parent.send_signal(signal.SIGKILL)
            parent.wait()
        _until(lambda: not any(map(_is_running, children)))
        _until(lambda: not list(tmp_path.iterdir()))


def _simulating(parent):
    """Spawned children of a process."""
    children = Path("/proc", str(parent), "task", str(parent), "children").read_text().split()
    return [c for c in children if b"spawn_main" in Path("/proc", c, "cmdline").read_bytes()]


def _cpu_s(process):
    """CPU time that it has taken."""
    fields = Path("/proc", process, "stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _is_running(process):
    """Whether it is there, and not only waiting to be looked at by a parent."""
    try:
        return Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def _until(condition, seconds=60):
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if met := condition():
            return met
        time.sleep(0.1)
    raise AssertionError("not within a minute")


def test_a_program_is_what_the_runs_table_calls_it(folder):
    program = Program("mine", build(folder / "other.elf", "return 0;"), data_bytes=64)
    row = simulate(program, "o3", 1e9)
    assert (row["workload"], row["data_bytes"], row["compiler"]) == ("mine", 64, None)
