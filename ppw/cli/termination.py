"""SIGTERM and SIGHUP as ways out on which everything is closed, and only then the process ends.

By default either ends Python at once: a command that is being measured would run on by itself.
"""

from __future__ import annotations

import os
import signal
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_SIGNALS = (signal.SIGTERM, signal.SIGHUP)


class _Terminated(BaseException):
    """A signal to end has come; no `Exception`, so that nothing but closing stands in its way."""


@contextmanager
def closing_first() -> Iterator[None]:
    """Let a signal to end unwind what runs inside, then end by that signal as if nothing were.

    A signal that is ignored, as under nohup, stays so. A second one changes nothing: what is being
    put back is put back. A copy of this process ends at once, as ever.
    """
    # Elsewhere Python takes no handlers.
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    owner, came = os.getpid(), list[int]()

    def terminate(number: int, frame: FrameType | None) -> None:
        if os.getpid() != owner:
            _end_by(number)
        came.append(number)
        if len(came) == 1:
            raise _Terminated

    taken = [number for number in _SIGNALS if signal.getsignal(number) is signal.SIG_DFL]
    for number in taken:
        signal.signal(number, terminate)
    try:
        yield
    except _Terminated:
        _end_by(came[0])
    finally:
        for number in taken:
            signal.signal(number, signal.SIG_DFL)


def _end_by(number: int) -> None:
    signal.signal(number, signal.SIG_DFL)
    os.kill(os.getpid(), number)
