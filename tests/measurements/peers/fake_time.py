"""Time that passes only where a test says so."""

import math
import threading


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
