"""Waits of tests: for what other processes do, and by clocks that nobody waits for."""

import math
import os
import threading
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


class FakeTime:
    """Stands for the module ``time``; who follows it is called whenever it has moved.

    `wait` is for the threads of a sampler with so many readers: they sleep until `sleep` has come
    to the time that they wait for, and `sleep` ends when all of them wait again.
    """

    def __init__(self, readers=0):
        self.now, self.followers, self.readers = 1000.0, [], readers
        self._due, self._changed = {}, threading.Condition()

    def monotonic(self):
        return self.now

    def time(self):
        return self.now + 1.7e9

    def sleep(self, seconds):
        end = self.now + seconds
        while (due := self._next()) <= end:
            self._move(max(self.now, due))
            for wake in [wake for wake, at in self._due.items() if at <= due]:
                del self._due[wake]
                with wake:
                    wake.notify_all()
        self._move(end)

    def wait(self, wake, seconds):
        with self._changed:
            self._due[wake] = math.inf if seconds is None else self.now + seconds
            self._changed.notify_all()
        wake.wait()
        self._due.pop(wake, None)

    def _next(self):
        with self._changed:
            assert self._changed.wait_for(lambda: len(self._due) == self.readers, 60)
        return min(self._due.values(), default=math.inf)

    def _move(self, now):
        self.now = now
        for follow in self.followers:
            follow()


def wait_for(condition, seconds=120.0):
    """Look until a condition holds: milliseconds on an idle machine, long on a busy one."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it did not come to pass"
        time.sleep(0.01)


def is_running(pid):
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
