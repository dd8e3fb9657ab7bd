"""Simulated cores by rvsim itself, with programs that Debian's RISC-V compiler made."""

import os
import shutil
import subprocess
import sys
from itertools import product
from pathlib import Path

import pandas as pd
import psutil
import pytest
from peers.riscv import WORK, build, marked
from peers.waiting import is_running, wait_for

from measurements import MeasurementError
from measurements.table.reading import check_runs, read_runs
from measurements.workloads import simulated as sim

ROOT = Path(__file__).resolve().parents[2]
PEER = pytest.mark.peer("simulated")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("programs")


@pytest.fixture(scope="module")
def made(folder):
    """Compile the body of a program; returns it ready to be simulated."""
    return lambda name, body: sim.program_of(str(build(folder / f"{name}.elf", body)), folder)


@pytest.fixture(scope="module")
def work(made):
    return made("work", marked())


@PEER
class TestRow:
    def test_is_labelled_simulated_and_its_figures_belong_to_each_other(self, work, tmp_path):
        rows = [sim.simulate(work, core, 1.6e9) for core in sim.CORES]
        for core, row in zip(sim.CORES, rows, strict=True):
            assert row["host"] == f"simulated-{core}"
            assert row["power_source"] == "simulated"
            assert row["simulator"] == f"rvsim {sim.rvsim().version()}"
            assert not {"power_w", "energy_j"} & set(row)
            assert row["time_s"] == row["cycles"] / 1.6e9
            assert row["cpi"] == row["cycles"] / row["instructions"]
            # The core in order fetches a line more than it misses.
            lines = row["memory_read_bytes"] / 64
            assert lines - row["llc_misses"] == (core == "inorder")
        pd.DataFrame(rows).to_csv(tmp_path / "runs.csv", index=False)
        table = read_runs(tmp_path / "runs.csv")
        assert len(check_runs(table, needed=["time_s", "cpi", "freq_hz"])) == 2

    @pytest.mark.parametrize("core", sim.CORES)
    def test_memory_costs_more_cycles_at_a_higher_clock_and_never_more_time(self, work, core):
        slow, fast, again = (sim.simulate(work, core, hertz) for hertz in (1e9, 4e9, 4e9))
        assert fast["instructions"] == slow["instructions"]
        assert fast["cpi"] > slow["cpi"]
        assert fast["time_s"] < slow["time_s"]
        assert fast == again


@PEER
class TestRegion:
    def test_what_is_marked_counts_or_else_all(self, made, work):
        alone = sim.simulate(work, "inorder", 2e9)["instructions"]
        row = sim.simulate(made("longer", marked(WORK, WORK)), "inorder", 2e9)
        assert row["region"] == sim.MARKED
        # A loop more or less is thousands; its addresses may be kept in other registers.
        assert row["instructions"] == pytest.approx(alone, abs=20)
        row = sim.simulate(made("plain", f"{WORK} return 0;"), "inorder", 2e9)
        assert row["region"] == sim.WHOLE
        assert row["instructions"] > alone

    def test_success_by_the_finisher_and_a_program_by_the_name_of_the_runs_table(self, made):
        body = f"{WORK} *(volatile uint32_t *)0x100000 = 0x5555; for (;;);"
        assert sim.simulate(made("finisher", body), "inorder", 1e9)["region"] == sim.WHOLE
        program = sim.Program("mine", made("other", "return 0;").elf, data_bytes=64)
        row = sim.simulate(program, "o3", 1e9)
        assert (row["workload"], row["data_bytes"], row["compiler"]) == ("mine", 64, None)

    def test_what_fails_or_is_broken_is_an_error(self, made, work, tmp_path, monkeypatch):
        monkeypatch.setattr(sim, "_MOST_CYCLES", 50_000)
        for name, body, said in (
            ("half", "REGION_BEGINS(); return 0;", "marks only one end of"),
            ("wrong", f"{WORK} return 7;", r"wrong on o3 at 1 GHz: .* exit code 7"),
            ("trap", "*(volatile int *)8 = 1; return 0;", "trap on o3 at 1 GHz: the program fails"),
            ("endless", "for (;;);", "does not exit within 50,000 cycles"),
        ):
            with pytest.raises(MeasurementError, match=said):
                sim.simulate(made(name, body), "o3", 1e9)
        cut = tmp_path / "cut.elf"
        cut.write_bytes(work.elf.read_bytes()[:100])
        with pytest.raises(MeasurementError, match=r"cut\.elf cannot be loaded"):
            sim.simulate(sim.program_of(str(cut), tmp_path), "inorder", 1e9)


class TestPrograms:
    @PEER
    @pytest.mark.parametrize("kernel", sim.KERNELS)
    def test_each_kernel_compiles(self, kernel, folder):
        elf, compiler = sim.compile_kernel(kernel, folder)
        assert elf.read_bytes().startswith(b"\x7fELF")
        assert compiler.startswith("riscv64-unknown-elf-gcc ")

    def test_what_is_no_program(self, tmp_path):
        for name, said in {
            "kmens": r"neither a kernel \(word_count, .*\) nor a file \(did you mean 'kmeans'\?",
            **dict.fromkeys((sys.executable, __file__), "not an ELF file for RISC-V"),
            "/": "cannot be read: Is a directory",
        }.items():
            with pytest.raises(MeasurementError, match=said):
                sim.program_of(name, tmp_path)

    def test_without_a_compiler_or_rvsim(self, tmp_path, monkeypatch):
        monkeypatch.setattr(shutil, "which", lambda name: None)
        with pytest.raises(MeasurementError, match="apt install gcc-riscv64-unknown-elf"):
            sim.compile_kernel("kmeans", tmp_path)
        monkeypatch.setitem(sys.modules, "rvsim", None)
        with pytest.raises(MeasurementError, match=r"pip install 'perf-per-watt\[simulate\]'"):
            sim.simulate(sim.Program("any", tmp_path / "any.elf"), "inorder", 1e9)

    @PEER
    def test_with_a_compiler_that_fails(self, tmp_path, monkeypatch):
        monkeypatch.setattr(sim, "_FLAGS", ("-march=vax",))
        with pytest.raises(MeasurementError, match=r"cannot compile the kernels: .*error.*vax"):
            sim.compile_kernel("kmeans", tmp_path)


@PEER
class TestSweep:
    def test_all_cells_in_order(self, work):
        asked = [str(work.elf)]
        rows = list(sim.simulate_sweep(asked, ["o3", "inorder"], [2e9, 1e9]))
        wanted = product(("o3", "inorder"), (2e9, 1e9))
        assert [cell for cell, _ in rows] == [sim.SimulatedRun(asked[0], *of) for of in wanted]
        for cell, row in rows:
            assert row == sim.simulate(work, cell.core, cell.freq_hz)

    def test_what_cannot_be_simulated_is_refused_or_ends_it(self, work, made, tmp_path):
        clock = "whole number of MHz from 100 MHz to"
        one, twin = str(work.elf), shutil.copy(work.elf, tmp_path)
        fails = str(made("fails", "return 3;").elf)
        for asked, core, hertz, said in (
            *(([one], "o3", f, clock) for f in (1.2345678e9, 50e6, 20e9)),
            ([one], "inordr", 2e9, r"core 'inordr': .* \(did you mean 'inorder'\?\)"),
            ([one, str(twin)], "o3", 2e9, "would both be workload 'work'"),
        ):
            with pytest.raises(MeasurementError, match=said):
                next(sim.simulate_sweep(asked, [core], [1e9, hertz]))
        with pytest.raises(MeasurementError, match="exit code 3"):
            list(sim.simulate_sweep([fails], ["o3"], [1e9, 2e9]))

    def test_nothing_outlives_a_kill(self, made, tmp_path):
        def simulating(parent):
            spawned = psutil.Process(parent.pid).children()
            return [child for child in spawned if "spawn_main" in " ".join(child.cmdline())]

        endless = str(made("forever", "for (;;);").elf)
        code = (
            "from measurements.workloads.simulated import simulate_sweep\n"
            f"list(simulate_sweep([{endless!r}], ['inorder', 'o3'], [1e9]))"
        )
        env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
        command = [sys.executable, "-c", f"if __name__ == '__main__':\n exec({code!r})"]
        with subprocess.Popen(command, env=env) as parent:
            try:
                wait_for(lambda: len(simulating(parent)) == 2)
                children = simulating(parent)
                # Simulating, and no longer starting: then only the kernel can end them.
                wait_for(lambda: all(sum(child.cpu_times()[:2]) > 0.8 for child in children))
            finally:
                parent.kill()
        wait_for(lambda: not any(is_running(child.pid) for child in children))
        wait_for(lambda: not list(tmp_path.iterdir()))
