"""Plain text tables for the terminal."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence


def text_table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Lay cells out in columns, numbers to the right."""
    widths = [max(map(len, column)) for column in zip(header, *rows, strict=True)]
    numeric = [bool(rows) and all(_is_number(r[i]) for r in rows) for i in range(len(header))]
    lines = [_line(header, widths, numeric), "  ".join("-" * w for w in widths)]
    return "\n".join(lines + [_line(row, widths, numeric) for row in rows])


def _line(cells: Sequence[str], widths: Sequence[int], numeric: Sequence[bool]) -> str:
    padded = zip(cells, widths, numeric, strict=True)
    return "  ".join(c.rjust(w) if right else c.ljust(w) for c, w, right in padded).rstrip()


def _is_number(cell: str) -> bool:
    return cell[:1].isdigit() or cell[:1] in "-–∞+" or cell in ("yes", "no")
