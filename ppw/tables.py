"""Plain text for the terminal: tables, and what a result says in all."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ppw.names import printable, shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


# A sentence may stand in a cell; a name of thousands of characters may not.
_MOST = 160


class TextTable(str):
    """A table as lines of text."""

    __slots__ = ()


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> TextTable:
    """Lay cells out in columns, numbers to the right; of a long cell the middle is left out."""
    titles = [shown_name(cell, _MOST) for cell in header]
    cells = [[shown_name(cell, _MOST) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(titles, *cells, strict=True)]
    numeric = [bool(cells) and all(_is_number(r[i]) for r in cells) for i in range(len(titles))]
    lines = [_line(titles, widths, numeric), "  ".join("-" * w for w in widths)]
    return TextTable("\n".join(lines + [_line(row, widths, numeric) for row in cells]))


def summary_text(parts: Iterable[str], caveats: Iterable[str]) -> str:
    """Join sentences and tables, then the caveats: a summary, of characters that print."""
    said = [*parts, *(f"caveat: {caveat}" for caveat in caveats)]
    return "\n".join(one if isinstance(one, TextTable) else printable(one) for one in said)


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = zip(cells, widths, numeric, strict=True)
    return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in padded).rstrip()


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in "-–∞+" or cell in ("yes", "no")
