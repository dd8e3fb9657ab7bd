"""An instrument that is asked through PyVISA, with its faults in plain words."""

from __future__ import annotations

import contextlib
import math
import re
import socket
from typing import TYPE_CHECKING, Any, cast

from measurements.power.protocol import SensorError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import ModuleType

    from pyvisa import ResourceManager
    from pyvisa.resources import MessageBasedResource

# SCPI's words for infinity and for no number are the numbers 9.9E37 and 9.91E37.
NO_FIGURE = 9.89e37


class Instrument:
    """A VISA resource that answers questions.

    Parameters
    ----------
    resource : str
        VISA name, such as ``TCPIP0::10.0.0.5::5025::SOCKET``.
    backend : str
        Of PyVISA, such as ``@py``.
    timeout_s : float
        For connecting and for each answer.

    Raises
    ------
    SensorError
        When there is no such back-end or resource.
    """

    def __init__(self, resource: str, backend: str, timeout_s: float) -> None:
        self.name = f"meter at {resource}"
        self._resource = resource
        self._backend = backend
        self._timeout_s = timeout_s
        self._visa = _pyvisa()
        self._manager: ResourceManager | None = _manager(self._visa, backend)
        self._device: MessageBasedResource | None = None
        try:
            self._open()
        except BaseException:
            self.close()
            raise

    def ask(self, query: str) -> str:
        """Ask a question; the answer without its header and blanks."""
        answer = self._tried(lambda device: device.query(query), query)
        # Such as ":RATE 500.0E-03" of a meter that repeats the question.
        text: str = re.sub(r"^:[\w:]+ +", "", answer.strip())
        if not text:
            raise SensorError(f"{self.name}: answers nothing to {query}: check its name and cable")
        if not text.isprintable():
            raise self._no_text(query)
        return text

    def ask_numbers(self, query: str, binary: bool) -> list[float]:
        """Ask for numbers; NaN for those that the meter does not have."""
        if binary:
            return [_figure(number) for number in self._tried(_block(query), query)]
        text = self.ask(query)
        try:
            return [_figure(float(field)) for field in text.split(",")]
        except ValueError:
            raise SensorError(
                f"{self.name}: answers {text[:60]!r} to {query} instead of numbers: is it a meter "
                f"of this kind? query=... names another question"
            ) from None

    def hurry(self, limit_s: float) -> None:
        """Wait no longer than this from now on."""
        self._timeout_s = min(self._timeout_s, limit_s)
        if self._device:
            self._device.timeout = 1000 * self._timeout_s

    def reopen(self) -> None:
        """Connect again, so that no late answer is taken for the next one."""
        self._close_device()
        self._open()
        # Buses that are not connections keep old answers; not every one can be cleared.
        with contextlib.suppress(self._visa.Error, OSError, NotImplementedError):
            if self._device:
                self._device.clear()

    def close(self) -> None:
        """Let go of the resource, and of PyVISA where nobody else uses it."""
        self._close_device()
        # Managers of one back-end are one and the same, and closing it closes all it opened.
        if self._manager and not self._manager.list_opened_resources():
            self._manager.close()
        self._manager = None

    def _open(self) -> None:
        if self._manager is None:
            raise SensorError(f"{self.name}: is closed")
        if self._backend.endswith("@py"):
            _check_host(self.name, self._visa, self._resource)
        limit_ms = int(1000 * self._timeout_s)
        try:
            device = cast(
                "MessageBasedResource",
                self._manager.open_resource(self._resource, open_timeout=limit_ms),
            )
            device.timeout = limit_ms
            device.write_termination = "\n"
            # Other buses mark the end of an answer themselves.
            if re.search(r"^ASRL|SOCKET$", self._resource, re.IGNORECASE):
                device.read_termination = "\n"
        # PyVISA-py lets through whatever its transports raise, some of it as a bare Exception.
        except Exception as error:
            raise SensorError(
                f"{self.name}: cannot be opened: {_reason(error)}: check that the name is as the "
                f"meter shows it, that its interface is on and that nobody else uses it"
            ) from None
        self._device = device

    def _tried(self, ask: Callable[[MessageBasedResource], Any], query: str) -> Any:
        if self._device is None:
            raise SensorError(f"{self.name}: is closed")
        try:
            return ask(self._device)
        except UnicodeDecodeError:
            raise self._no_text(query) from None
        except Exception as error:
            late = getattr(error, "error_code", None) == self._visa.constants.VI_ERROR_TMO
            reason = f"no answer within {self._timeout_s:g} s" if late else _reason(error)
            raise SensorError(
                f"{self.name}: {reason} to {query}: check its cable and network, and that it is on"
            ) from None

    def _no_text(self, query: str) -> SensorError:
        return SensorError(
            f"{self.name}: answers {query} with bytes that are no text: check the baud rate or the "
            "port"
        )

    def _close_device(self) -> None:
        device, self._device = self._device, None
        if device is not None:
            # What has broken off cannot be ended properly.
            with contextlib.suppress(Exception):
                device.close()


def _figure(number: float) -> float:
    return number if abs(number) < NO_FIGURE else math.nan


def _block(query: str) -> Callable[[MessageBasedResource], Sequence[float]]:
    return lambda device: device.query_binary_values(query, datatype="f", is_big_endian=True)


def _check_host(name: str, visa: ModuleType, resource: str) -> None:
    """Look the host up before PyVISA-py does, which forgets to close a socket then."""
    with contextlib.suppress(visa.rname.InvalidResourceName):
        host = getattr(visa.rname.parse_resource_name(resource), "host_address", None)
        try:
            if host:
                socket.getaddrinfo(host, None)
        except (OSError, UnicodeError):
            raise SensorError(f"{name}: no host is called {host}: check the name") from None


def _manager(visa: ModuleType, backend: str) -> ResourceManager:
    try:
        manager: ResourceManager = visa.ResourceManager(backend)
    except Exception as error:
        raise SensorError(
            f"meter: PyVISA has no back-end {backend!r}: {_reason(error)}: pip install "
            f"'perf-per-watt[measure]' for @py, or name another with backend=..."
        ) from None
    return manager


def _pyvisa() -> ModuleType:
    try:
        import pyvisa
    except ImportError:
        raise SensorError(
            "meter needs the library PyVISA: pip install 'perf-per-watt[measure]'"
        ) from None
    return pyvisa


def _reason(error: Exception) -> str:
    """Say in one line what went wrong."""
    lines = str(getattr(error, "strerror", None) or error).strip().splitlines()
    return lines[0].rstrip(".: ") if lines else type(error).__name__
