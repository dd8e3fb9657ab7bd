r"""Names of others' making, as they may be shown: on a terminal, in a page, in a plot.

A name may hold anything: an escape sequence that moves the cursor, a line end that begins a line
of its own, a mark that turns the reading direction round. What is shown is spelt as Python spells
it (``\x1b``, ``\n``, ``\u202e``); JSON and CSV keep the name itself.
"""

from __future__ import annotations

_MOST, _MOST_IN_PLOTS = 48, 40


def printable(text: object) -> str:
    r"""One line in which every character prints.

    >>> printable("\x1b[2Jrack1\n")
    '\\x1b[2Jrack1\\n'
    """
    line = str(text)
    return line if line.isprintable() else "".join(map(_spelt, line))


def printable_lines(text: str) -> str:
    """Lines in which every character prints; line ends stay."""
    return "\n".join(map(printable, text.split("\n")))


def shown_name(name: object, most: int = _MOST) -> str:
    """Write a name for people: every character prints, and of a long one the middle is left out."""
    return _elided(printable(name), most)


def plot_label(name: object, most: int = _MOST_IN_PLOTS) -> str:
    """Write a name for a plot: there dollar signs are mathematics, and a first underscore hides."""
    label = _elided(printable(name), most).replace("$", r"\$")
    return f" {label}" if label.startswith("_") else label


def _elided(text: str, most: int) -> str:
    end = most // 3
    return text if len(text) <= most else f"{text[: most - end - 1]}…{text[-end:]}"


def _spelt(character: str) -> str:
    if character.isprintable():
        return character
    return character.encode("unicode_escape").decode("ascii")
