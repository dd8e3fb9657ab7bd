"""The command line, inside the test's process or as a process of its own, and its refusals."""

import contextlib
import io
import os
import subprocess
import sys
from pathlib import Path
from unittest import mock

import ppw.cli

ROOT = Path(__file__).resolve().parents[2]


def environment(**more):
    kept = {k: v for k, v in os.environ.items() if not k.startswith(("PPW_", "PYTHONIO"))}
    return {**kept, "PYTHONPATH": str(ROOT), "PYTHONUTF8": "1", "COLUMNS": "100", **more}


def ppw_process(*words, cwd, before=(), timeout=300, **more):
    """Run ppw to its end as users do, with any warning an error; ``more`` is of its environment."""
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


@contextlib.contextmanager
def started(*words, cwd, **more):
    """Start ppw as users do; it is killed in the end. ``more`` is of its environment."""
    streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE}
    command = [sys.executable, "-m", "ppw", *map(str, words)]
    process = subprocess.Popen(command, cwd=cwd, env=environment(**more), text=True, **streams)
    try:
        yield process
    finally:
        process.kill()
        process.communicate()


def ppw_inside(*words, cwd, stdin=b"", **more):
    """Run ppw inside this process, which takes milliseconds; same arguments and same answer.

    Not for signals, sensors, or what is said of the standard streams themselves.
    """
    streams = [io.TextIOWrapper(io.BytesIO(b), encoding="utf-8") for b in (stdin, b"", b"")]
    with (
        contextlib.chdir(cwd),
        mock.patch.dict(os.environ, environment(**more), clear=True),
        mock.patch.object(sys, "argv", ["ppw", *map(str, words)]),
        mock.patch.object(sys, "stdin", streams[0]),
        contextlib.redirect_stdout(streams[1]),
        contextlib.redirect_stderr(streams[2]),
    ):
        try:
            ppw.cli.console()
            code = 0
        except SystemExit as end:
            code = end.code
    out, err = (stream.detach().getvalue().decode() for stream in streams[1:])
    return subprocess.CompletedProcess(words, code, out, err)


def worked(done):
    """Check that a command came to a good end; what it printed and said."""
    assert done.returncode == 0, done.stderr
    return done


def printed(done):
    """Check that a command had nothing to say but its answer, and return that."""
    assert (done.stderr, done.returncode) == ("", 0)
    return done.stdout


def refused(done, *said, code=1):
    """Check that a command failed with one line of ours, and gave no result."""
    assert done.returncode == code, done.stderr
    assert done.stdout == ""
    last = done.stderr.splitlines()[-1]
    assert last.startswith("ppw: error: " if code == 1 else "Error: "), done.stderr
    assert "Traceback" not in done.stderr
    for text in said:
        assert text in done.stderr
