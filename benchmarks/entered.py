"""Count the modules and functions of ppw that two questions enter.

    python benchmarks/entered.py        figures of `ppw.project` and `ppw project RUNS`
    python benchmarks/entered.py -v     and the functions, module by module

Modules are imported before the count, so that it shows what an answer passes through.
"""

from __future__ import annotations

import io
import sys
from collections import defaultdict
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import FrameType

ROOT = Path(__file__).resolve().parents[1]
PACKAGES = tuple(str(ROOT / name) for name in ("ppw", "measurements", "fitting"))
POINTS = [(1.2e9, 1.31), (1.8e9, 1.44), (2.4e9, 1.58)]


def entered(question: object) -> dict[str, set[str]]:
    """Functions of the three packages that a question enters, by module."""
    found: dict[str, set[str]] = defaultdict(set)

    def record(frame: FrameType, event: str, _: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(PACKAGES) and "<" not in code.co_name:
            found[code.co_filename].add(code.co_qualname)

    sys.setprofile(record)
    try:
        question()  # type: ignore[operator]
    finally:
        sys.setprofile(None)
    return found


def project_points() -> None:
    """Project the CPI of three points."""
    import ppw

    ppw.project(POINTS, freq="3GHz")


def project_table() -> None:
    """Project a runs table by the command line."""
    from ppw.cli import main

    runs = str(ROOT / "examples" / "simulated_runs.csv")
    with redirect_stdout(io.StringIO()):
        main(["project", runs, "--freq", "3GHz"], standalone_mode=False)


def report() -> None:
    """Print the figures, and with -v the functions."""
    for question in (project_points, project_table):
        # The first call imports and compiles.
        question()
        found = entered(question)
        count = sum(map(len, found.values()))
        print(f"{question.__name__}: {len(found)} modules, {count} functions")
        if "-v" in sys.argv:
            for module in sorted(found):
                names = ", ".join(sorted(found[module]))
                print(f"  {Path(module).relative_to(ROOT)} ({len(found[module])}): {names}")


if __name__ == "__main__":
    report()
