"""A process that holds one session of pyghmi and is asked over a socket.

pyghmi keeps its thread, sockets and sessions in classes; where two sessions meet, or a local BMC is
silent, it waits without limit; and it prints. Ending the process ends all of that.

Standard input is a socket. A request is a line of JSON, and so is its answer:

* ``{"connect": {...}}``: log in with these arguments of pyghmi's ``Command``, none for this host's
  own BMC; answers ``{}``;
* ``{"raw": [netfn, command, lun, data]}``: answers ``{"code": number, "data": data}``, data in
  hexadecimal.

Failures answer ``{"error": text}``. The end of input logs out. This file is run by its path and
imports nothing of the package, so that it starts quickly wherever the package is.
"""

import contextlib
import json
import os
import queue
import socket
import threading
from typing import Any

# BMCs end a session after an idle minute.
_KEEPALIVE_S = 20.0
_LOGOUT_S = 1.0
_POLL_S = 0.02
# pyghmi's code for no answer lies above those of a BMC.
_HIGHEST_CODE, _NO_ANSWER = 0xFF, 0xFFFF
_APPLICATION, _GET_DEVICE_ID = 0x06, 0x01


class BmcSession:
    """A session of pyghmi."""

    def __init__(self) -> None:
        self._command: Any = None
        self._is_remote = False

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Carry out a request."""
        try:
            if "connect" in request:
                return self._log_in(request["connect"])
            netfn, command, lun, data = request["raw"]
            said = self._send_raw(netfn=netfn, command=command, data=bytes.fromhex(data), rslun=lun)
            if said["code"] > _HIGHEST_CODE:
                return {"error": said.get("error", "no answer")}
            return {"code": said["code"], "data": bytes(said["data"]).hex()}
        except Exception as error:
            # pyghmi raises all kinds, such as KeyError when no answer comes.
            return {"error": f"{type(error).__name__}: {error}"}

    def keep_alive(self) -> None:
        """Send a request, so that the BMC does not end the session."""
        if self._is_remote:
            self.answer({"raw": [_APPLICATION, _GET_DEVICE_ID, 0, ""]})

    def log_out(self) -> None:
        """End the session: a BMC has few."""
        if self._is_remote:
            self._command.ipmi_session.logout()

    def _send_raw(self, **request: Any) -> dict[str, Any]:
        if not self._is_remote:
            return self._command.raw_command(**request)
        # Without a callback pyghmi misses an answer that comes before it begins to wait, and
        # finds it only when it asks again, up to a second later.
        session, answers = self._command.ipmi_session, list[dict[str, Any]]()
        session.raw_command(**request, callback=answers.append)
        while not answers:
            if session.broken:
                return {"code": _NO_ANSWER}
            session.wait_for_rsp(timeout=_POLL_S)
        session.incommand = False
        return answers[0]

    def _log_in(self, arguments: dict[str, Any]) -> dict[str, Any]:
        from pyghmi.ipmi.command import Command  # nosec B415  # IPMI is what was asked for

        self._command = Command(**arguments)
        self._is_remote = bool(arguments)
        return {}


def serve(requests: queue.Queue[dict[str, Any] | None], asker: socket.socket) -> None:
    """Answer requests until `None` comes; then log out."""
    session = BmcSession()
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
        # Even with nobody left to hear the answer, the session must be logged out.
        with contextlib.suppress(OSError):
            asker.sendall(json.dumps(answer).encode() + b"\n")


def main() -> None:
    """Take requests until the input ends; then end whatever pyghmi waits for."""
    requests: queue.Queue[dict[str, Any] | None] = queue.Queue()
    asker = socket.socket(fileno=0)
    worker = threading.Thread(target=serve, args=(requests, asker), daemon=True)
    worker.start()
    with contextlib.suppress(OSError), asker.makefile("r", encoding="utf-8") as lines:
        for line in lines:
            requests.put(json.loads(line))  # nosec B113  # a queue
    requests.put(None)  # nosec B113  # a queue
    worker.join(_LOGOUT_S)
    os._exit(0)


if __name__ == "__main__":
    main()
