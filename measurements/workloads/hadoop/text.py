"""Text for Wordcount and Sort: words of a made-up language, as unevenly frequent as real ones.

The words' frequencies follow Zipf's law with Mandelbrot's offset, p(rank) ~ 1/(rank + 2.7), over
50 000 words, and frequent words are short. A seed gives the same text on every host, and a longer
text begins with the shorter one.

Source: Mandelbrot (1953), "An informational theory of the statistical structure of language".
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

# Words by length.
_WORDS = {1: 2, 2: 28, 3: 170, 4: 800, 5: 3000, 6: 8000, 7: 12000, 8: 12000, 9: 9000, 10: 4998}
_LETTERS = b"eeeettaaooiinnsshhrrddllcumwfgypbvkxqjz"
_OFFSET = 2.7
_WORDS_A_LINE = 10
# Random numbers of so many bits choose a word: the rarest still has several of them.
_BITS = 22
_BLOCK_WORDS = 1 << 18


def write_text(path: Path, size: int, *, seed: int = 0) -> None:
    """Write a text of exactly ``size`` bytes that ends with the end of a line.

    Parameters
    ----------
    path : Path
    size : int
        Bytes.
    seed : int
    """
    left = size
    with path.open("wb") as file:
        for block in _blocks(seed):
            part = block[:left]
            left -= len(part)
            if not left:
                file.write(part[:-1] + b"\n"[: len(part)])
                return
            file.write(part)


def copy_beginning(source: Path, path: Path, size: int) -> None:
    """Write the text of ``size`` bytes whose longer form ``source`` is."""
    left = size
    with source.open("rb") as long, path.open("wb") as file:
        while left > 0 and (part := long.read(min(left, 1 << 24))):
            left -= len(part)
            file.write(part if left else part[:-1] + b"\n")


def _blocks(seed: int) -> Iterator[bytes]:
    import numpy as np

    # Raw numbers of a bit generator are the same in all versions of NumPy.
    words = np.array(_vocabulary(seed), dtype=object)
    chance = 1.0 / (np.arange(len(words)) + 1 + _OFFSET)
    edges = np.cumsum(chance / chance.sum())
    numbers = (np.arange(1 << _BITS) + 0.5) / (1 << _BITS)
    table = np.searchsorted(edges[:-1], numbers).astype(np.uint16)
    generator = np.random.PCG64([seed, 1])
    while True:
        raw = generator.random_raw(_BLOCK_WORDS) >> np.uint64(64 - _BITS)
        chosen = words[table[raw]].tolist()
        lines = range(0, len(chosen), _WORDS_A_LINE)
        yield b"\n".join(b" ".join(chosen[n : n + _WORDS_A_LINE]) for n in lines) + b"\n"


def _vocabulary(seed: int) -> list[bytes]:
    """Different words, the short ones first."""
    import numpy as np

    generator = np.random.PCG64([seed, 0])
    letters = np.frombuffer(_LETTERS, dtype=np.uint8)
    words: list[bytes] = []
    for length, count in _WORDS.items():
        found: dict[bytes, None] = {}
        while len(found) < count:
            raw = generator.random_raw(length * count) % np.uint64(len(letters))
            text = letters[raw].tobytes()
            made = (text[n : n + length] for n in range(0, len(text), length))
            found |= dict.fromkeys(made)
        words += list(found)[:count]
    return words
