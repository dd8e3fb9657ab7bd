"""Small bare-metal programs for the simulated cores, built as docs/simulated.md says."""

from __future__ import annotations

import subprocess
from pathlib import Path

import measurements.workloads

KERNELS = Path(measurements.workloads.__path__[0], "kernels")
FLAGS = "-O2 -march=rv64gc -mabi=lp64d -mcmodel=medany -ffreestanding -fno-builtin"

# Enough stores to memory that a run depends on the clock.
WORK = "for (int i = 0; i < 4096; i += 8) data[i] += i;"


def build(path, body, *, data=4096):
    """Compile a program whose main is ``body`` to an ELF file."""
    source = path.with_suffix(".c")
    source.write_text(
        f'#include "bare_metal.h"\nstatic volatile uint64_t data[{data}];\n'
        f"int main(void) {{ {body} }}\n"
    )
    files = ["-I", KERNELS, "-T", KERNELS / "layout.ld", "-o", path, KERNELS / "start.c", source]
    command = ["riscv64-unknown-elf-gcc", *FLAGS.split(), "-nostdlib", "-static", *map(str, files)]
    subprocess.run(command, check=True, capture_output=True)
    return path


def marked(before="", after=""):
    """Body of a program whose work is marked, with more or less around it."""
    return f"{before} REGION_BEGINS(); {WORK} REGION_ENDS(); {after} return 0;"
