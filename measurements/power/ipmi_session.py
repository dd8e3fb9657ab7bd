"""One session of pyghmi in a process of its own, asked over a socket.

pyghmi keeps its thread, sockets and sessions in classes, for the whole process; where two sessions
meet, or a local BMC is silent, it waits without limit; and it prints. A process can be ended at
any time and takes all of that with it.

Standard input is a socket. A request is a line of JSON, and so is its answer:

* ``{"connect": {...}}``: log in with these arguments of pyghmi's ``Command``, none for this host's
  own BMC; answers ``{}``;
* ``{"raw": [netfn, command, lun, data]}``: answers ``{"code": number, "data": data}``, data as
  hexadecimal digits.

What fails is answered with ``{"error": text}``. The end of input logs out. This file is run by its
path and imports nothing of the package: it starts quickly wherever the package lies.
"""

from __future__ import annotations

import contextlib
import json
import os
import queue
import socket
import threading
from typing import Any

# BMCs end a session that was idle for a minute.
_KEEPALIVE_S = 20.0
_LOGOUT_S = 1.0
_POLL_S = 0.02
# pyghmi's own code for no answer is beyond those of a BMC.
_HIGHEST_CODE, _NO_ANSWER = 0xFF, 0xFFFF
_APPLICATION, _GET_DEVICE_ID = 0x06, 0x01


class Session:
    """What the requests act on."""

    def __init__(self) -> None:
        self._command: Any = None
        self._is_remote = False

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Do what is asked for."""
        try:
            if "connect" in request:
                return self._connect(request["connect"])
            netfn, command, lun, data = request["raw"]
            said = self._raw(netfn=netfn, command=command, data=bytes.fromhex(data), rslun=lun)
            if said["code"] > _HIGHEST_CODE:
                return {"error": said.get("error", "no answer")}
            return {"code": said["code"], "data": bytes(said["data"]).hex()}
        except Exception as error:
            # pyghmi lets all kinds through, such as KeyError where an answer does not come.
            return {"error": f"{type(error).__name__}: {error}"}

    def keep_alive(self) -> None:
        """Ask something, so that the BMC does not end the session."""
        if self._is_remote:
            self.answer({"raw": [_APPLICATION, _GET_DEVICE_ID, 0, ""]})

    def log_out(self) -> None:
        """Give the BMC its session back; it has few."""
        if self._is_remote:
            self._command.ipmi_session.logout()

    def _raw(self, **request: Any) -> dict[str, Any]:
        if not self._is_remote:
            local: dict[str, Any] = self._command.raw_command(**request)
            return local
        # Without a callback pyghmi misses an answer that is there before it begins to wait, and
        # finds it when it would ask again, up to a second later.
        session, answers = self._command.ipmi_session, list[dict[str, Any]]()
        session.raw_command(**request, callback=answers.append)
        while not answers:
            if session.broken:
                return {"code": _NO_ANSWER}
            session.wait_for_rsp(timeout=_POLL_S)
        session.incommand = False
        return answers[0]

    def _connect(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from pyghmi.ipmi.command import Command

        self._command = Command(**arguments)
        self._is_remote = bool(arguments)
        return {}


def serve(requests: queue.Queue[dict[str, Any] | None], asker: socket.socket) -> None:
    """Answer requests until there are no more."""
    session = Session()
    while True:
        try:
            request = requests.get(timeout=_KEEPALIVE_S)
        except queue.Empty:
            session.keep_alive()
            continue
        if request is None:
            session.log_out()
            return
        answer = session.answer(request)
        # Nobody may be left to hear it; the session is still to be logged out of.
        with contextlib.suppress(OSError):
            asker.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Take requests until the input ends, and end then whatever pyghmi is waiting for."""
    requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
    asker = socket.socket(fileno=0)
    worker = threading.Thread(target=serve, args=(requests, asker), daemon=True)
    worker.start()
    with contextlib.suppress(OSError), asker.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            requests.put(json.loads(line))
    requests.put(None)
    worker.join(_LOGOUT_S)
    os._exit(0)


if __name__ == "__main__":
    main()
