"""What is asked of a memcached server beside its load: its counts, and to hold some objects."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, NamedTuple

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Callable

_TIMEOUT_S = 10.0
_END = b"END\r\n"
# Sets that are sent at once while a server is filled.
_BATCH_BYTES = 1 << 20


class Address(NamedTuple):
    """Where a server listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"

    @classmethod
    def parse(cls, text: str) -> Address:
        """Read ``host:port``, ``[::1]:port`` or ``host``, whose port is 11211.

        Raises
        ------
        MeasurementError
            When it is none of them.
        """
        host, colon, port = text.strip().rpartition(":")
        if not colon or text.strip().endswith("]"):
            host, port = text.strip(), "11211"
        host = host.removeprefix("[").removesuffix("]")
        if not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
            raise MeasurementError(f"{text!r} is no address of a server: write HOST:PORT")
        return cls(host, int(port))


class Counts(NamedTuple):
    """What a server, or several together, counted since their start.

    Attributes
    ----------
    at_s : float
        When, by `time.monotonic`: the middle of question and answer.
    gets, sets : int
        Keys asked for, and objects stored; a request for several keys counts each.
    hits : int
        Keys found.
    user_s, system_s : float
        CPU time of the server.
    read_bytes, written_bytes : int
        From and to clients, as the server counts them: without what TCP adds.
    evictions : int
        Objects that had to go for others.
    """

    at_s: float
    gets: int
    sets: int
    hits: int
    user_s: float
    system_s: float
    read_bytes: int
    written_bytes: int
    evictions: int

    @property
    def operations(self) -> int:
        """Objects read or written."""
        return self.gets + self.sets

    def plus(self, other: Counts) -> Counts:
        """Add another server's; the time is the mean of both."""
        both = [one + two for one, two in zip(self[1:], other[1:], strict=True)]
        return Counts((self.at_s + other.at_s) / 2, *both)  # type: ignore[arg-type]


class Control:
    """A connection to a server for questions, beside those of its load.

    Raises
    ------
    MeasurementError
        When the server cannot be reached, or answers something else than memcached does.
    """

    def __init__(self, address: Address) -> None:
        self.address = address
        try:
            self._socket = socket.create_connection(address, _TIMEOUT_S)
        except OSError as error:
            raise MeasurementError(
                f"memcached at {address}: no connection: {error.strerror or error}: is it running "
                "there, and open to this host?"
            ) from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def stats(self) -> dict[str, str]:
        """What ``stats`` says."""
        self._send(b"stats\r\n")
        lines = self._answer(lambda got: got.endswith(_END)).decode(errors="replace").splitlines()
        parts = [line.split(" ", 2) for line in lines if line.startswith("STAT ")]
        if not parts:
            raise MeasurementError(f"{self.address} is no memcached: it does not answer to stats")
        return {part[1]: part[2] if len(part) > 2 else "" for part in parts}

    def counts(self) -> Counts:
        """Read the counts of load and CPU time."""
        asked_s = time.monotonic()
        said = self.stats()
        at_s = (asked_s + time.monotonic()) / 2
        try:
            return Counts(
                at_s,
                *(int(said[name]) for name in ("cmd_get", "cmd_set", "get_hits")),
                *(float(said[name]) for name in ("rusage_user", "rusage_system")),
                *(int(said[name]) for name in ("bytes_read", "bytes_written", "evictions")),
            )
        except (KeyError, ValueError) as error:
            raise MeasurementError(
                f"{self.address}: its stats lack {error}: ppw needs memcached 1.4 or newer"
            ) from error

    def fill(self, key: Callable[[int], str], keys: int, value_bytes: int) -> None:
        """Store so many objects.

        Parameters
        ----------
        key : callable
            Key by number, from 0.
        keys : int
        value_bytes : int

        Raises
        ------
        MeasurementError
            When the server does not hold them afterwards.
        """
        tail = f" 0 0 {value_bytes} noreply\r\n".encode() + b"x" * value_bytes + b"\r\n"
        before = int(self.stats()["cmd_set"])
        batch = bytearray()
        for number in range(keys):
            batch += b"set " + key(number).encode() + tail
            if len(batch) >= _BATCH_BYTES:
                self._send(bytes(batch))
                batch.clear()
        self._send(bytes(batch))
        stats = self.stats()
        stored, evicted = int(stats["cmd_set"]) - before, int(stats["evictions"])
        if stored < keys or evicted:
            raise MeasurementError(
                f"{self.address}: {keys} objects of {value_bytes} B do not fit: {stored} were "
                f"stored and {evicted} evicted: give it more memory, or take fewer objects"
            )

    def close(self) -> None:
        """Close the connection."""
        self._socket.close()

    def _send(self, data: bytes) -> None:
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise self._lost(error) from error

    def _answer(self, complete: Callable[[bytes], bool]) -> bytes:
        got = b""
        while not complete(got):
            try:
                part = self._socket.recv(65536)
            except OSError as error:
                raise self._lost(error) from error
            if not part:
                raise self._lost(ConnectionResetError("the server closed the connection"))
            got += part
            if got.startswith((b"ERROR", b"CLIENT_ERROR", b"SERVER_ERROR")):
                raise MeasurementError(
                    f"{self.address} said {got.decode(errors='replace').strip()}"
                )
        return got

    def _lost(self, error: OSError) -> MeasurementError:
        return MeasurementError(
            f"memcached at {self.address} does not answer: {error.strerror or error}"
        )
