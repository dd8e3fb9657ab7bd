"""The unit of a column that the user names by hand, looked for wherever people write it.

A header that is known by itself has its unit after the last underscore or in brackets (see
`measurements.quantities.split_unit`). One that is named with ``--map`` may be anybody's: ``run
ms``, ``Size KB``, ``ReqGB``, ``elapsedms``, or no more than ``ms``. There the quantity is known,
so a last word that is a unit of that quantity is the unit.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from measurements.errors import MeasurementError
from measurements.quantities import Unit, named_unit
from measurements.schema import COLUMNS, SYNONYMS, SYNONYMS_WITH_UNIT

if TYPE_CHECKING:
    from collections.abc import Iterator

_SEPARATORS = re.compile(r"[\s_()\[\]{}.,:;/|-]+")
_REMARKS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
# What may stand before a unit without anything between: "elapsedms".
_NAMES = (
    SYNONYMS.keys()
    | SYNONYMS_WITH_UNIT.keys()
    | {"".join(name.split("_")[:-1]) for name in COLUMNS}
    | {"address", "job", "latency", "len", "length", "offset", "request", "responsetime", "size"}
    | {"timestamp", "ts"}
)
# Words whose last letter may be taken for a prefix: "clockHz" is not in kHz, and "freqkHz" is.
_LIKE_PREFIX = re.compile(
    r"(clock|disk|task|work|chunk|block|peak|system|ram|stream|sum|maximum|minimum|cpu|gpu"
    r"|run|mean|median|min|duration)$",
    re.IGNORECASE,
)

_BINARY = {1e3**power: 2.0 ** (10 * power) for power in range(1, 6)}


def unit_in_words(header: str, si: str) -> Unit | None:
    """Find the unit of a header whose quantity is known: its last word, or one in brackets.

    Words end at spaces, punctuation and capitals; a name that ppw knows may also run into its unit.

    Parameters
    ----------
    header : str
    si : {"hz", "s", "w", "bytes", "j", "v", "c"}
        The quantity; units of others are not looked for.

    >>> unit_in_words("run in ms", "s"), unit_in_words("ReqGB", "bytes").factor
    (Unit(si='s', factor=0.001), 1000000000.0)
    >>> unit_in_words("Requests", "bytes")
    """
    cased = header.strip()
    if cased.isupper():
        # In capitals throughout, a capital M says nothing.
        cased = cased.lower()
    words = [word for word in _SEPARATORS.split(cased) if word]
    # A header of one letter names nothing: h need not be hours.
    if not words or len("".join(words)) == 1:
        return None
    last = _of_word(words[-1], si)
    remarks = (_of(remark.strip(), si) for remark in _REMARKS.findall(cased))
    return last or next((unit for unit in remarks if unit), None)


def mapped_factor(
    target: str, header: str, asked: float, own: float | None, canonical: str, source: str
) -> float:
    """Factor of a column to its canonical unit, from what --map and the header say of it.

    Parameters
    ----------
    target, header : str
        As in ``--map TARGET=HEADER``.
    asked : float
        Factor of the unit in the target's name; 1 where it is the canonical one.
    own : float, optional
        Factor of the unit in the header, which is taken; None where there is none.
    canonical, source : str
        The column, and the file, for the message.

    Raises
    ------
    MeasurementError
        Where both say a unit, and not the same.
    """
    if own in _BINARY and asked == _BINARY[own]:
        # Many write KB for 1024 bytes: who says KiB of it corrects the header.
        return asked
    if own is not None and asked not in (1.0, own):
        raise MeasurementError(
            f"{source}: --map {target}={header}: the two names carry different units; "
            f"write {canonical}={header} to take the header's"
        )
    return asked if own is None else own


def _of(text: str, si: str) -> Unit | None:
    unit = named_unit(text)
    return unit if unit and unit.si == si else None


def _of_word(word: str, si: str) -> Unit | None:
    if unit := _of(word, si):
        return unit
    for at in _boundaries(word):
        if unit := _of(word[at:], si):
            longer = _of(word[at - 1 :], si)
            return longer if longer and not _LIKE_PREFIX.search(word[:at]) else unit
    ends = (at for at in range(1, len(word)) if word[:at].lower() in _NAMES)
    return next((unit for at in ends if (unit := _of(word[at:], si))), None)


def _boundaries(word: str) -> Iterator[int]:
    """Where a word of several begins another one: SizeKB, CPUms, p99ms."""
    for at in range(1, len(word)):
        before, here, after = word[at - 1], word[at], word[at + 1 : at + 2]
        begins = here.isupper() and (not before.isupper() or after.islower())
        if begins or (here.islower() and not before.islower() and not word[at - 1 :].istitle()):
            yield at
