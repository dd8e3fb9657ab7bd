"""Programs of the simulated machine: kernels, compiled and prepared, and users' own ELF files."""

from __future__ import annotations

import shutil
import subprocess
from importlib import resources
from pathlib import Path
from typing import NamedTuple

from measurements.asking import ask
from measurements.errors import MeasurementError
from measurements.headers import nearest
from measurements.simulated.cores import preparing, rvsim
from measurements.simulated.kernels import KERNELS, kernel_named

COMPILER = "riscv64-unknown-elf-gcc"
OPTIMISATION = "-O2"

_FLAGS = (
    *("-std=gnu11", OPTIMISATION, "-march=rv64gc", "-mabi=lp64d", "-mcmodel=medany"),
    *("-ffreestanding", "-fno-builtin", "-nostdlib", "-static"),
)
_TIMEOUT_S = 60.0
# The longest preparation takes some ten million.
_MOST_CYCLES = 60_000_000
# The first bytes of an ELF file of 64 bits, little-endian, and its e_machine: RISC-V.
_ELF_64, _RISC_V = b"\x7fELF\x02\x01", (243).to_bytes(2, "little")
_MACHINE_AT = 18


class Program(NamedTuple):
    """A program ready to be run.

    Attributes
    ----------
    name : str
        What the runs table calls it.
    elf : Path
    checkpoint : Path or None
        Registers and memory where a kernel's preparation ends; they do not depend on the core.
        Without one it is run from its entry on.
    compiler : str or None
        Name and version, where it is known.
    data_bytes : int or None
        Data that it works on, where that is known.
    """

    name: str
    elf: Path
    checkpoint: Path | None = None
    compiler: str | None = None
    data_bytes: int | None = None


def check_program(asked: str) -> str:
    """Name of the program that is asked for: a kernel's, or that of a file.

    Raises
    ------
    MeasurementError
        When it is neither a kernel nor an ELF file for RISC-V.
    """
    if asked in KERNELS:
        return asked
    path = Path(asked)
    try:
        with path.open("rb") as file:
            header = file.read(_MACHINE_AT + 2)
    except FileNotFoundError:
        raise MeasurementError(
            f"program {asked!r}: neither a kernel ({', '.join(KERNELS)}) nor a file"
            f"{nearest(asked, list(KERNELS))}"
        ) from None
    except OSError as error:
        raise MeasurementError(f"{asked}: cannot be read: {error.strerror}") from error
    if not header.startswith(_ELF_64) or header[_MACHINE_AT:] != _RISC_V:
        raise MeasurementError(
            f"{asked}: not an ELF file for RISC-V of 64 bits: build it for the bare machine by "
            f"{COMPILER}, as docs/simulated.md says"
        )
    return path.stem


def program_of(asked: str, folder: Path, data_bytes: int | None = None) -> Program:
    """Make the program that is asked for ready: prepare a kernel, or take a file as it is.

    Raises
    ------
    MeasurementError
        As for `check_program` and `prepare`.
    """
    name = check_program(asked)
    if asked in KERNELS:
        return prepare(asked, folder)
    return Program(name, Path(asked), data_bytes=data_bytes)


def prepare(kernel: str, folder: Path) -> Program:
    """Compile a kernel into a folder and simulate its preparation, once for all its runs.

    Raises
    ------
    MeasurementError
        When there is no such kernel, or the compiler or the simulator is missing or fails.
    """
    simulator_class = rvsim().Simulator
    elf, compiler = compiled(kernel, folder)
    simulator = simulator_class(preparing(), binary=str(elf))
    stopped, _ = simulator.run_to(cycles=_MOST_CYCLES)
    if stopped != "break":
        raise MeasurementError(
            f"{kernel}: its preparation does not end within {_MOST_CYCLES:,} cycles: "
            "reinstall perf-per-watt and rvsim"
        )
    checkpoint = folder / f"{kernel}.checkpoint"
    simulator.save(str(checkpoint))
    return Program(kernel, elf, checkpoint, compiler, kernel_named(kernel).data_bytes)


def compiled(kernel: str, folder: Path) -> tuple[Path, str]:
    """Compile a kernel into a folder: the program, and the compiler with its version.

    Raises
    ------
    MeasurementError
        When there is no such kernel, or the compiler is missing or fails.
    """
    name = kernel_named(kernel).name
    compiler = shutil.which(COMPILER)
    if compiler is None:
        raise MeasurementError(
            f"no {COMPILER} on this host, which simulated kernels are compiled by: apt install "
            "gcc-riscv64-unknown-elf, or its like"
        )
    elf = folder / f"{name}.elf"
    with resources.as_file(resources.files("measurements.simulated") / "kernels") as sources:
        layout, files = sources / "layout.ld", [sources / f"{name}.c", sources / "start.c"]
        _said(compiler, *_FLAGS, "-T", str(layout), "-o", str(elf), *map(str, files))
    version = _said(compiler, "-dumpfullversion").strip()
    return elf, f"{COMPILER} {version} {OPTIMISATION}"


def _said(*command: str) -> str:
    try:
        done = ask(command, timeout_s=_TIMEOUT_S)
    except (OSError, subprocess.TimeoutExpired) as error:
        raise MeasurementError(
            f"{command[0]} does not run ({error}): apt install --reinstall gcc-riscv64-unknown-elf"
        ) from error
    if done.returncode:
        lines = done.stderr.splitlines()
        first = next((line for line in lines if "error" in line), lines[0] if lines else "")
        raise MeasurementError(
            f"{command[0]} cannot compile the kernels: {first[:200]}: apt install --reinstall "
            "gcc-riscv64-unknown-elf"
        )
    return done.stdout
