"""The statistics of ``sadf -j`` as JSON lines, piece by piece, however long the document is."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

from measurements.errors import MeasurementError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from measurements.timeseries.source import Source

# Every sample begins so; sadf writes nothing else with that name.
_SAMPLE = re.compile(rb'\{[ ]*"timestamp"')
_STATISTICS = re.compile(rb'"statistics"[ ]*:[ ]*\[[ ]*$')
_ALL_CPUS = re.compile(rb'"cpu-load"[ ]*:[ ]*\[[ ]*\{"cpu"[ ]*:[ ]*"all"')
_LAYOUT = b"\n\r\t"
_LONGEST_SAMPLE = 64 << 20


class SampleStream:
    """Samples of one document.

    Attributes
    ----------
    host : dict
        What stands before the samples: ``nodename``, ``number-of-cpus`` and so on.
    after : str
        What stands behind them, such as restarts.
    cut : bool
        Whether the document breaks off.
    """

    def __init__(self, source: Source) -> None:
        self.host: dict[str, Any] = {}
        self.after = ""
        self.cut = False
        self._source = source

    def lines(self) -> Iterator[bytes]:
        """Samples, one a line, some megabytes at a time.

        Raises
        ------
        MeasurementError
            When the document is not that of sadf.
        """
        rest, begun = b"", False
        for piece in self._source.pieces():
            text = rest + piece.translate(None, _LAYOUT)
            starts = [match.start() for match in _SAMPLE.finditer(text)]
            if not starts:
                self._refuse_endless(text)
                rest = text
                continue
            if not begun:
                self.host, begun = self._read_host(text[: starts[0]]), True
            rest = text[starts[-1] :]
            self._refuse_endless(rest)
            if len(starts) > 1:
                yield _joined(text, starts)
        if not begun:
            self.host = self._read_host(rest)
            return
        last = self._last(rest)
        if last:
            yield last

    def _refuse_endless(self, text: bytes) -> None:
        if len(text) > _LONGEST_SAMPLE:
            raise MeasurementError(
                f"{self._source.name}: no end of a sample within {_LONGEST_SAMPLE >> 20} MiB: "
                "not written by sadf -j"
            )

    def _read_host(self, head: bytes) -> dict[str, Any]:
        """Read what stands before the first sample, as if the document ended there."""
        opened = _STATISTICS.search(head)
        text = head + b"]}]}}" if opened else head
        try:
            hosts = json.loads(text)["sysstat"]["hosts"]
            found = hosts[0] if isinstance(hosts, list) and hosts else {}
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise MeasurementError(
                f"{self._source.name}: does not begin as sadf -j writes it: {error}"
            ) from error
        return found if isinstance(found, dict) else {}

    def _last(self, rest: bytes) -> bytes:
        """Return the last sample; what is behind it is kept aside."""
        text = rest.decode("utf-8", errors="replace")
        try:
            _, end = json.JSONDecoder().raw_decode(text)
        except (ValueError, RecursionError):
            self.cut = True
            return b""
        self.after = text[end:]
        self.cut = not self.after.rstrip().endswith("}")
        return text[:end].encode()


def _joined(text: bytes, starts: list[int]) -> bytes:
    """All samples of a text but the last, one a line."""
    ends = starts[1:]
    samples = (text[a:b].rstrip(b", ") for a, b in zip(starts, ends, strict=False))
    return b"\n".join(map(_without_single_cpus, samples))


def _without_single_cpus(sample: bytes) -> bytes:
    """Cut the CPUs one by one out, where they are there together: most of a document is theirs."""
    together = _ALL_CPUS.search(sample)
    if together is None:
        return sample
    end = sample.find(b"}", together.end()) + 1
    rest = sample.find(b"]", end)
    return sample[:end] + sample[rest:] if 0 < end < rest else sample
