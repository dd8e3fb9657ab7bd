"""Fuzz a reader, guided by coverage: ``python tests/fuzz/run.py TARGET -runs=1000000``.

Options are those of libFuzzer; a folder among them keeps the inputs that reached something new.
Without a target, the targets' names. Of an input that fails, the error and the file that it is kept
in are printed (``-findings=FOLDER``).

With ``--serve`` a line of JSON on standard input, a target and its options, is answered with the
exit code and CPU seconds of a child process that fuzzes: modules are imported and instrumented
once.
"""

import ctypes
import hashlib
import json
import os
import sys
import tempfile
import traceback
from pathlib import Path

import atheris

FOLDER = Path(__file__).resolve().parent
ROOT = FOLDER.parents[1]
sys.path[:0] = [str(ROOT), *(str(ROOT / "tests" / n) for n in ("fuzz", "ppw", "measurements"))]

# Not fitting: numba compiles what stands there. For as long as the process lives, because some
# modules are imported when they are needed.
atheris.instrument_imports(include=["measurements", "ppw"]).__enter__()

import targets  # noqa: E402

# An input of some kilobytes that takes longer is a hang (s); memory that no such input may need,
# and by which many of them may let the process grow (MB).
TIMEOUT_S, MOST_MB, MOST_GROWTH_MB = 60, 2500, 150
PAGE_MB = os.sysconf("SC_PAGE_SIZE") / 1e6


class Watched:
    """A reader whose outcomes are judged, with the inputs that failed kept."""

    def __init__(self, target, runs, folder):
        self._target, self._runs, self._folder = target, runs, folder
        self._number, self._at_first = 0, 0.0

    def __call__(self, data):
        self._number += 1
        try:
            self._target.judge(data)
            self._check_growth()
        except Exception as error:
            kept = self._folder / hashlib.sha256(data).hexdigest()[:12]
            kept.write_bytes(data)
            print(f"finding {kept}: {error!r:.200}", flush=True)
            raise
        if self._number == self._runs:
            # Arrow joins its threads as the process ends, and they may wait for Python's lock: end
            # before that. The last handler to be registered is the first to be called.
            libc = ctypes.CDLL(None)
            libc.on_exit(libc._exit, None)

    def _check_growth(self):
        """Compare memory after a quarter of the inputs with that after all of them."""
        if self._number == self._runs // 4:
            self._at_first = _resident_mb()
        elif self._number == self._runs and _resident_mb() > self._at_first + MOST_GROWTH_MB:
            said = f"memory grew from {self._at_first:.0f} to {_resident_mb():.0f} MB"
            raise targets.FaultError(said)


def _resident_mb():
    return int(Path("/proc/self/statm").read_text().split()[1]) * PAGE_MB


def _dictionary(words, path):
    spelt = ("".join(f"\\x{byte:02x}" for byte in word) for word in words)
    path.write_text("".join(f'"{word}"\n' for word in spelt))
    return path


def fuzz(name, options):
    """Run a target; ends the process, with 0 where nothing was found."""
    target = targets.TARGETS[name]
    scratch = Path(tempfile.mkdtemp(prefix="ppw-fuzz-", dir=targets.SCRATCH))
    targets.be_strict()
    for number, seed in enumerate(target.seeds()):
        (scratch / f"seed-{number}").write_bytes(seed)
        # Also so that all is imported before it counts.
        if (said := target.judge(seed)) and number == 0:
            sys.exit(f"{name}: its first seed is refused: {said}")
    given = dict(option.lstrip("-").partition("=")[::2] for option in options)
    runs = int(given.get("runs", -1))
    keep = Path(given.pop("findings", "") or FOLDER / "found" / name)
    keep.mkdir(parents=True, exist_ok=True)
    watched = Watched(target, runs, keep)
    settings = {"max_len": target.longest, "timeout": TIMEOUT_S, "rss_limit_mb": MOST_MB, "seed": 1}
    settings |= {"dict": _dictionary(target.words(), scratch / "words"), "verbosity": 0}
    settings |= {"artifact_prefix": f"{keep}/", "print_final_stats": 1}
    plain = [*(f"-{k}={v}" for k, v in settings.items()), *options]
    plain = [o for o in plain if not o.startswith("-findings")]
    atheris.Setup([name, *plain, str(scratch)], watched)
    atheris.Fuzz()


def serve():
    """Fuzz what each line of standard input asks for, in a process of its own."""
    # Behind all tests that measure how long something takes.
    os.nice(10)
    # Modules that are imported when they are needed. Nothing is read: threads would not be forked.
    for name in targets.ppw.__all__:
        getattr(targets.ppw, name)
    for line in sys.stdin:
        name, log, *options = json.loads(line)
        child = os.fork()
        if child == 0:
            said = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
            os.dup2(said, 1)
            os.dup2(said, 2)
            try:
                fuzz(name, options)
            except BaseException:
                traceback.print_exc()
            os._exit(1)
        _, status, used = os.wait4(child, 0)
        seconds = round(used.ru_utime + used.ru_stime, 2)
        print(json.dumps([os.waitstatus_to_exitcode(status), seconds]), flush=True)


if __name__ == "__main__":
    if len(sys.argv) < 2:
        print(*targets.TARGETS, sep="\n")
    elif sys.argv[1] == "--serve":
        serve()
    else:
        fuzz(sys.argv[1], sys.argv[2:])
