"""The load of ``bandwidth_load.c`` by numpy, for a host without a C compiler; a program."""

import os
import sys
import threading
import time

import numpy as np

# Elements between two looks at the clock: more than in C, since a call costs more.
_BLOCK = 32768
_LATEST_S, _TOLD_S = 0.2, 0.1


class _Triad(threading.Thread):
    """STREAM's triad on one CPU, by numpy, which releases the interpreter's lock."""

    def __init__(self, elements: int, rate: float, cpu: int) -> None:
        super().__init__(daemon=True)
        self.moved = 0
        self._elements, self._rate, self._cpu = elements, rate, cpu

    def run(self) -> None:
        """Work until the process ends."""
        os.sched_setaffinity(0, {self._cpu})
        a, b, c = (np.full(self._elements, value) for value in (0.0, 1.0, 2.0))
        scratch = np.empty(_BLOCK)
        due = time.monotonic()
        while True:
            for first in range(0, self._elements, _BLOCK):
                part = slice(first, first + _BLOCK)
                product = np.multiply(c[part], 3.0, out=scratch[: len(c[part])])
                np.add(b[part], product, out=a[part])
                due = self._wait_until_due(due, 3 * product.nbytes)

    def _wait_until_due(self, due: float, moved: int) -> float:
        """Count moved bytes; sleep until the next block is due (s); return that time."""
        self.moved += moved
        if not self._rate:
            return due
        now = time.monotonic()
        # A delay is made up for, but not one of more than _LATEST_S.
        due = max(due + moved / self._rate, now - _LATEST_S)
        if due > now + 1e-3:
            time.sleep(due - now)
        return due


def main() -> None:
    """Arguments: bytes of an array, bytes a second or 0, and the CPUs."""
    array_bytes, rate, listed = sys.argv[1:4]
    cpus = [int(cpu) for cpu in listed.split(",")]
    workers = [_Triad(int(array_bytes) // 8, float(rate) / len(cpus), cpu) for cpu in cpus]
    parent = os.getppid()
    for worker in workers:
        worker.start()
    while os.getppid() == parent:
        time.sleep(_TOLD_S)
        print(f"{time.monotonic():.6f} {sum(worker.moved for worker in workers)}", flush=True)


if __name__ == "__main__":
    main()
