"""Waits of tests: for what other processes do, and by a clock that nobody waits for."""

import os
import time
from pathlib import Path
from types import SimpleNamespace


class FakeClock:
    """Seconds that pass where somebody waits, at once."""

    def __init__(self):
        self.now_s = 1000.0
        self.waits_s = []

    def __call__(self):
        return self.now_s

    def wait(self, seconds):
        self.waits_s.append(seconds)
        self.now_s += seconds

    def stand_in(self, monkeypatch, module, wait=None):
        """Stand for the module ``time`` in another module."""
        stand_in = SimpleNamespace(monotonic=self, sleep=wait or self.wait)
        monkeypatch.setattr(module, "time", stand_in)


def wait_for(condition, seconds=120.0):
    """Look until a condition holds: milliseconds on an idle machine, long on a busy one."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


def is_running(pid):
    """Whether a process is there and has not ended."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


def processes(word, file="cmdline"):
    """Command lines of other processes that have a word in them, or in another file of /proc."""
    found = []
    for entry in Path("/proc").iterdir():
        other = entry.name.isdecimal() and int(entry.name) != os.getpid()
        try:
            if other and word.encode() in (entry / file).read_bytes():
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ")
                found.append(line.decode(errors="replace"))
        except OSError:
            continue
    return found
