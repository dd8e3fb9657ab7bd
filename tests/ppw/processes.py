"""ppw as a process of its own, as users start it, and what it says when it refuses."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith("PPW_")}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", **more}


def ppw_process(*words, cwd, before=(), timeout=300, **more):
    """Run ppw to its end, with any warning an error; ``more`` is of its environment."""
    return subprocess.run(
        [*before, sys.executable, "-W", "error", "-m", "ppw", *map(str, words)],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        cwd=cwd,
        env=environment(**more),
        timeout=timeout,
        check=False,
    )


def refused(done, *said, code=1):
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ppw: error: " if code == 1 else "Error: "), done.stderr
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in done.stderr
