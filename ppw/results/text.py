"""Text for people, of characters that print, and the arguments that they give.

Names, numbers with units, intervals and tables; frequencies with units, positive numbers, choices.
"""

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from importlib import metadata
from numbers import Integral, Real
from pathlib import Path
from typing import Any

from measurements.table.units import implausible_frequency, parse_frequency
from ppw.errors import PpwError

_MOST, _MOST_IN_PLOTS = 48, 40


def printable(text: object) -> str:
    r"""Return a text in one line, with characters that do not print as escapes.

    >>> printable("\x1b[2Jrack1\n")
    '\\x1b[2Jrack1\\n'
    """
    line = str(text)
    if line.isprintable():
        return line
    spelt = (c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in line)
    return "".join(spelt)


def printable_lines(text: str) -> str:
    """Return a text with characters that do not print as escapes; line ends stay."""
    return "\n".join(map(printable, text.split("\n")))


def join_words(words: Sequence[str], last: str = "and") -> str:
    """Join words by commas, and the last one by another word: "a, b and c"."""
    return f" {last} ".join(filter(None, [", ".join(words[:-1]), *words[-1:]]))


def shown_name(name: object, most: int = _MOST) -> str:
    """Write a name with escapes; the middle of one longer than ``most`` is left out."""
    text, end = printable(name), most // 3
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[-end:]}"


def plot_label(name: object, most: int = _MOST_IN_PLOTS) -> str:
    """Write a name for a plot: there dollar signs are mathematics, and a first underscore hides."""
    label = shown_name(name, most).replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label


def shown_interval(value: float, lower: float | None, upper: float | None, unit: str) -> str:
    """Write an interval in the prefix of its value; "–" where it has no ends.

    >>> shown_interval(1863.0, 1757.0, 1975.0, "J")
    '1.757 … 1.975'
    """
    if lower is None or upper is None or math.isnan(lower):
        return "–"
    # Ends in another prefix than the value would look far from it.
    _, size = _readable_unit(value, unit)
    ends = [lower / size, upper / size]
    texts = [shown(end) for end in ends]
    if texts[0] == texts[1] and lower < upper:
        # Ends that print alike take one digit more, and none where that does not tell them apart.
        texts = [f"{end:,.1f}" if 9999.5 <= abs(end) < 1e12 else f"{end:.5g}" for end in ends]
        return " … ".join(texts) if texts[0] != texts[1] else "–"
    return " … ".join(texts)


def shown_within(value: float, lower: float, upper: float) -> str:
    """Write a number with at most four digits, and no more than half its interval has two of.

    >>> shown_within(2.5312, 2.1, 2.9)
    '2.53'
    """
    half = (upper - lower) / 2
    if not 0 < half < math.inf or not value:
        return shown(value)
    digits = math.floor(math.log10(abs(value))) - math.floor(math.log10(half)) + 2
    return shown(float(f"{value:.{min(max(digits, 1), 4)}g}"))


def _readable_unit(value: float, unit: str) -> tuple[str, float]:
    """Unit in which a value reads well ("kHz" of "Hz"), and its size in the given one."""
    if unit == "1/J" and abs(value) < _FEW_PER_JOULE:
        return "1/kWh", 1 / _J_PER_KWH
    if unit in _PREFIXED and value:
        prefix, size = next((p for p in _PREFIXES if abs(value) >= p[1]), ("", 1.0))
        return prefix + unit, size
    return unit, 1.0


_PREFIXED = {"Hz", "W", "J", "J/run", "J/op", "B", "instructions/s"}
_PREFIXES = (("G", 1e9), ("M", 1e6), ("k", 1e3), ("", 1.0), ("m", 1e-3), ("µ", 1e-6))
# Work per energy of less than this is read by the kWh.
_FEW_PER_JOULE, _J_PER_KWH = 0.1, 3.6e6


def shown(value: float | None, unit: str = "") -> str:
    """Write a number for people: four significant digits, and a prefix for large or small units.

    >>> shown(3.0e9, "Hz")
    '3 GHz'
    >>> shown(139.5371, "s")
    '139.5 s'
    >>> shown(1.829e-4, "1/J")
    '658.4 1/kWh'
    """
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞"
    unit, size = _readable_unit(value, unit)
    value /= size
    # Numbers with five digits and more before the point are read by their thousands.
    number = f"{value:,.0f}" if 9999.5 <= abs(value) < 1e12 else f"{value:.4g}"
    return f"{number} {unit}".strip() if unit != "1" else number


def key_texts(by: Iterable[str], row: Mapping[Any, Any]) -> list[str]:
    """Write the keys of a table's row for people; "–" for one that is missing."""
    keys = [row[name] if row[name] == row[name] else None for name in by]
    return [shown(k) if k is None or isinstance(k, float) else shown_name(k) for k in keys]


def telling_keys(by: Iterable[str], rows: Sequence[Mapping[Any, Any]]) -> list[str]:
    """Choose the fewest leading keys that tell rows apart as well as all keys do."""
    by = list(by)

    # Rows that all keys together do not tell apart no choice of keys can.
    def count_distinct(names: Sequence[str]) -> int:
        return len({tuple(key_texts(names, row)) for row in rows})

    every = count_distinct(by)
    found: list[str] = []
    for name in by:
        if count_distinct(found) < min(count_distinct([*found, name]), every):
            found.append(name)
    return found or by[:1]


# A sentence may stand in a cell; a name of thousands of characters may not.
_MOST_IN_CELLS = 160
# Cells that begin as a number does, yes and no, and cells without text.
_ALIGNED_RIGHT = re.compile(r"[\d\-–∞+]|(yes|no)?\Z")


class TextTable(str):
    """A table as lines of text."""

    __slots__ = ()


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
    """Lay cells out in columns, numbers to the right; of a long cell the middle is left out."""
    titles = [shown_name(cell, _MOST_IN_CELLS) for cell in header]
    cells = [[shown_name(cell, _MOST_IN_CELLS) for cell in row] for row in rows]
    columns = []
    for title, *texts in zip(titles, *cells, strict=True):
        width = max(map(len, (title, *texts)))
        pad = str.rjust if texts and all(map(_ALIGNED_RIGHT.match, texts)) else str.ljust
        columns.append([pad(title, width), "-" * width, *(pad(text, width) for text in texts)])
    return TextTable("\n".join("  ".join(line).rstrip() for line in zip(*columns, strict=True)))


def summary_text(parts: Iterable[str], caveats: Iterable[str]) -> str:
    """Join sentences and tables, then the caveats: a summary, of characters that print."""
    said = [*parts, *(f"caveat: {caveat}" for caveat in caveats)]
    return "\n".join(one if isinstance(one, TextTable) else printable(one) for one in said)


@cache
def package_version() -> str:
    """Version of the installed distribution."""
    try:
        return metadata.version("perf-per-watt")
    except metadata.PackageNotFoundError:
        return "0+uninstalled"


# Arguments as callers give them.
def as_frequency(freq: float | str) -> float:
    """Read a frequency given as a number (Hz) or as text with a unit ("3.0GHz")."""
    if isinstance(freq, str):
        return parse_frequency(freq)
    value = as_number("frequency", freq)
    if reason := implausible_frequency(value):
        raise PpwError(f"frequency {freq!r}: {reason}")
    return value


def as_frequencies(freq: float | str | Iterable[float | str]) -> list[float]:
    """Read one frequency or several, also as one text ("1.2GHz,1.6GHz"); each is kept once."""
    if isinstance(freq, str):
        freq = freq.split(",")
    given = list(freq) if isinstance(freq, Iterable) else [freq]
    if not given:
        raise PpwError("no frequency was given")
    return list(dict.fromkeys(map(as_frequency, given)))


def as_number(name: str, value: Any) -> float:
    """Read a finite number."""
    # A numpy number is a Real too; a text with digits is none, as its unit is not known.
    if not isinstance(value, Real) or not math.isfinite(float(value)):
        raise PpwError(f"{name} {value!r} is not a finite number")
    return float(value)


def as_positive(name: str, value: Any) -> float:
    """Read a finite number greater than zero."""
    number = as_number(name, value)
    if number <= 0:
        raise PpwError(f"{name} {value!r} must be greater than 0")
    return number


def as_share(name: str, value: float) -> float:
    """Check a share inside (0, 1), such as a level. Raises `PpwError`."""
    if not 0 < value < 1:
        raise PpwError(f"{name} {value!r} is not a share between 0 and 1; try 0.90")
    return float(value)


def as_whole(name: str, value: Any, least: int = 1) -> int:
    """Check a whole number of at least ``least``. Raises `PpwError`."""
    # True is an int to Python, and never a count to a caller.
    if isinstance(value, bool) or not isinstance(value, Integral) or value < least:
        raise PpwError(f"{name} {value!r} is not a whole number of at least {least}")
    return int(value)


def as_names(names: str | Iterable[str]) -> list[str]:
    """Read one name or several; each is kept once."""
    return list(dict.fromkeys([names] if isinstance(names, str) else names))


def check_choice(what: str, value: str, choices: Sequence[str]) -> None:
    """Refuse a value that is not one of the choices."""
    if value not in choices:
        raise PpwError(f"{what} {value!r} is not one of {', '.join(choices)}")


def write_text(text: str, output: str | Path) -> None:
    """Write text into a file, whole or not at all. Raises `PpwError` where it cannot be written."""
    path = Path(output)
    try:
        if path.exists() and not path.is_file():
            # A device or a pipe takes the text; a file in its place would be its end.
            path.write_text(text, encoding="utf-8", errors="backslashreplace")
        else:
            # A link stays one: what it points to is written.
            from measurements.table.writing import replace_whole

            with replace_whole(path.resolve(), str(output)) as scratch:
                scratch.write_text(text, encoding="utf-8", errors="backslashreplace")
    except OSError as error:
        raise PpwError(f"{output}: cannot be written: {error.strerror or error}") from error
