"""Units: in column names (``freq_mhz``, ``Time [ms]``) and in typed quantities (``3.0GHz``).

Decimal prefixes are decimal, ``i`` prefixes are binary, ``m`` is milli and ``u`` micro. Case says
nothing but for one letter: ``MJ`` and ``MW`` are mega, unless the whole header is in capitals.
"""

from __future__ import annotations

import math
import re
from typing import NamedTuple

from measurements.errors import MeasurementError


class Unit(NamedTuple):
    """A unit: the SI unit it stands for and how many of those it is."""

    si: str
    factor: float


_FACTORS: dict[str, dict[str, float]] = {
    "hz": {"hz": 1.0, "khz": 1e3, "mhz": 1e6, "ghz": 1e9},
    "s": {"s": 1.0, "ms": 1e-3, "us": 1e-6, "ns": 1e-9, "min": 60.0, "h": 3600.0},
    "w": {"w": 1.0, "mw": 1e-3, "kw": 1e3},
    "bytes": {
        "bytes": 1.0,
        "b": 1.0,
        **{f"{prefix}b": float(1000**n) for n, prefix in enumerate("kmgtpez", start=1)},
        **{f"{prefix}ib": float(1024**n) for n, prefix in enumerate("kmgtp", start=1)},
    },
    "j": {"j": 1.0, "uj": 1e-6, "mj": 1e-3, "kj": 1e3, "wh": 3600.0, "kwh": 3.6e6},
    "v": {"v": 1.0, "mv": 1e-3},
    "c": {"c": 1.0},
}
UNITS = {name: Unit(si, factor) for si, of in _FACTORS.items() for name, factor in of.items()}

# For typed quantities alone: a column that ends in _d or _y is hardly ever a time.
_TYPED = {
    **dict.fromkeys(("d", "day", "days"), Unit("s", 86400.0)),
    **dict.fromkeys(("y", "yr", "year", "years"), Unit("s", 365 * 86400.0)),
}
MEGA = {"MJ": Unit("j", 1e6), "MW": Unit("w", 1e6)}
# A percent sign alone; "pct" in a header is read by `measurements.headers`.
_PERCENT = {"%": Unit("share", 0.01)}
_WORDS = {
    "s": ("sec", "secs", "second", "seconds"),
    "ms": ("msec", "msecs", "millis", "millisecond", "milliseconds"),
    "us": ("usec", "usecs", "micros", "microsecond", "microseconds"),
    "ns": ("nsec", "nsecs", "nanos", "nanosecond", "nanoseconds"),
    "min": ("mins", "minute", "minutes"),
    "h": ("hr", "hrs", "hour", "hours"),
    "bytes": ("byte",),
    "kb": ("kbytes", "kilobytes", "kbyte"),
    "mb": ("mbytes", "megabytes", "mbyte"),
    "gb": ("gbytes", "gigabytes", "gbyte"),
    "tb": ("tbytes",),
    "pb": ("pbytes",),
    "kib": ("kibytes", "kibibytes", "kibyte"),
    "mib": ("mibytes", "mebibytes", "mibyte"),
    "gib": ("gibytes", "gibibytes", "gibyte"),
    "tib": ("tibytes",),
    "pib": ("pibytes",),
    "w": ("watt", "watts"),
    "mw": ("milliwatts",),
    "kw": ("kilowatts",),
    "hz": ("hertz",),
    "mhz": ("megahertz",),
    "ghz": ("gigahertz",),
    "j": ("joule", "joules"),
    "v": ("volt", "volts"),
}
_SPELT_OUT = {word: unit for unit, words in _WORDS.items() for word in words}

# Slower than any core that runs a server's work, and where GHz written as MHz or Hz end up.
LOWEST_FREQUENCY_HZ = 1e7
HIGHEST_FREQUENCY_HZ = 2e10

TOO_SLOW = "is under 10 MHz: is it in GHz or MHz? Write the unit"
TOO_FAST = "is over 20 GHz: is the unit too large?"

_SPELT = {"hz": "Hz", "s": "s", "w": "W", "bytes": "B", "j": "J", "v": "V", "c": "°C"}
_SPELT |= {"share": "%"}
_BRACKETED = re.compile(r"^(?P<base>.*)[(\[](?P<unit>[^()\[\]]*)[)\]]$")
# Number and unit; engines have no named groups.
QUANTITY = re.compile(r"^\s*([-+]?[\d.]+(?:[eE][-+]?\d+)?)\s*+([A-Za-zµμ°]*+|%)\s*$")


def split_unit(header: str) -> tuple[str, Unit | None]:
    """Split a column header into its name and the unit that it carries, if any.

    >>> split_unit("freq_mhz")
    ('freq', Unit(si='hz', factor=1000000.0))
    >>> split_unit("Power (mW)")
    ('Power', Unit(si='w', factor=0.001))
    >>> split_unit("workload")
    ('workload', None)
    """
    # In capitals throughout, a capital M says nothing.
    cased = header.lower() if header.isupper() else header
    if bracketed := _BRACKETED.match(cased):
        base, suffix = header[: bracketed.end("base")].rstrip(), bracketed["unit"]
    else:
        base, suffix = header.rpartition("_")[0], cased.rpartition("_")[2]
    unit = named_unit(suffix.strip()) if base else None
    return (base, unit) if unit else (header, None)


def has_unit(text: str) -> bool:
    """Whether a text is a number with something after it that may be a unit."""
    match = QUANTITY.match(text)
    return match is not None and bool(match[2])


def size_text(size: int) -> str:
    """Write the size of a request (bytes) as storage counts it: 4 KiB.

    >>> size_text(4096), size_text(520)
    ('4 KiB', '520 B')
    """
    return f"{size // 1024} KiB" if size % 1024 == 0 and size else f"{size} B"


def parse_quantity(text: str, si: str) -> float:
    """Read a quantity such as ``3.0GHz``, ``128MiB`` or ``95W`` in an SI unit.

    Parameters
    ----------
    text : str
        A number with a unit, or a plain number, which is SI.
    si : {"hz", "s", "w", "bytes", "j", "v", "c", "share"}
        What it must be; a share is a number such as 0.5, or ``50%``.

    Raises
    ------
    MeasurementError
        When it is no number, or its unit is unknown or measures something else.
    """
    match = QUANTITY.match(text)
    number, written = match.groups() if match else ("", "")
    unit = Unit(si, 1.0) if match and not written else named_unit(written)
    unit = unit or (_TYPED | _PERCENT).get(written.lower())
    try:
        if unit is None or unit.si != si:
            raise ValueError
        # 7 % is 0.07 to the last digit, as it is where it is typed.
        percent = unit.si == "share" and written
        value = float(number) / 100 if percent else float(number) * unit.factor
        if not math.isfinite(value):
            raise ValueError
        return value
    except ValueError:
        units = UNITS | _PERCENT | {name: _TYPED[name] for name in ("d", "y")}
        known = ", ".join(name for name, unit in units.items() if unit.si == si)
        raise MeasurementError(
            f"{text!r} is not a quantity in {_SPELT[si]}: write a number with one of {known}"
        ) from None


def parse_frequency(text: str) -> float:
    """Read a core frequency (Hz), such as ``3.0GHz``.

    Raises
    ------
    MeasurementError
        Also for one that no core runs at, with a hint at the unit that may be meant.
    """
    value = parse_quantity(text, "hz")
    if reason := implausible_frequency(value):
        raise MeasurementError(f"frequency {text!r}: {reason}")
    return value


def frequency_text(hertz: float) -> str:
    """Write a frequency for people.

    >>> frequency_text(1.8e9)
    '1.8 GHz'
    """
    return f"{hertz / 1e9:.6g} GHz" if hertz >= 1e9 else f"{hertz / 1e6:.6g} MHz"


def implausible_frequency(value: float) -> str | None:
    """Why no core runs at this frequency (Hz), or None where one may."""
    if value <= 0:
        return "must be greater than 0"
    if value < LOWEST_FREQUENCY_HZ:
        return f"{value:g} Hz {TOO_SLOW}"
    if value > HIGHEST_FREQUENCY_HZ:
        return f"{value:g} Hz {TOO_FAST}"
    return None


def named_unit(text: str) -> Unit | None:
    """Look a unit up as it is written: in any case, with either micro sign, or as a word."""
    if text in MEGA:
        return MEGA[text]
    plain = text.replace("µ", "u").replace("μ", "u").removeprefix("°").lower()
    return UNITS.get(_SPELT_OUT.get(plain, plain))
