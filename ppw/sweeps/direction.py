"""Which way a measure is better, by the words of its name."""

from __future__ import annotations

import re

from measurements.quantities import split_unit

# How words begin; what is divided by ("per watt") says nothing.
_LOWER = (
    *("latenc", "time", "runtime", "walltime", "wait", "respon", "delay", "duration", "elapsed"),
    *("makespan", "seconds", "stall", "power", "watt", "energ", "joule", "cost", "price", "cpi"),
    *("cycles", "miss", "error", "fail", "fault", "retr", "drop", "percentile"),
)
_HIGHER = (
    *("rate", "ops", "operation", "request", "quer", "transaction", "job", "qps", "tps", "rps"),
    *("ipc", "perf", "speed", "flop", "mflop", "gflop", "tflop", "hit", "instructions", "work"),
)
# These win over what stands beside them: power efficiency, 99th percentile of throughput.
_HIGHER_ALWAYS = (
    *("throughput", "bandwidth", "efficien", "saving", "score", "iops", "goodput", "responses"),
)
_PERCENTILE = re.compile(r"p\d{2,}")
_DIVIDED = re.compile(r"/| per ")


def higher_is_better(name: str) -> bool | None:
    """Tell whether more of a measure is better; None where its name does not say.

    >>> higher_is_better("P99 latency (ms)"), higher_is_better("perf_per_watt")
    (False, True)
    """
    words = _words(name)
    if _begins(words, _HIGHER_ALWAYS):
        return True
    if _begins(words, _LOWER) or any(_PERCENTILE.fullmatch(word) for word in words):
        return False
    if _begins(words, _HIGHER):
        return True
    unit = split_unit(name)[1]
    # A bare "_s" after bytes is a rate.
    if unit and unit.si == "s":
        return _begins(words, ("byte",))
    return False if unit and unit.si in ("w", "j") else None


def _begins(words: list[str], beginnings: tuple[str, ...]) -> bool:
    return any(word.startswith(beginnings) for word in words)


def _words(name: str) -> list[str]:
    """Words of what is counted, without what it is divided by."""
    apart = re.sub(r"([a-z])([A-Z])", r"\1 \2", name).lower()
    plain = re.sub(r"[_\-.\s]+", " ", apart)
    return re.findall(r"[a-z]+\d*", _DIVIDED.split(plain)[0])
