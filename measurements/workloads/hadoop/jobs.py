"""Jobs of Hadoop's examples: their settings, their inputs, and Hadoop's options for them."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

# Text for Wordcount and Sort has words of a made-up language, as unevenly frequent as real ones:
# their frequencies follow Zipf's law with Mandelbrot's offset, p(rank) ~ 1/(rank + 2.7), over
# 50 000 words, and frequent words are short. A seed gives the same text on every host, and a longer
# text begins with the shorter one.
#
# Source: Mandelbrot (1953), "An informational theory of the statistical structure of language".

# Words by length.
_WORDS = {1: 2, 2: 28, 3: 170, 4: 800, 5: 3000, 6: 8000, 7: 12000, 8: 12000, 9: 9000, 10: 4998}
_LETTERS = b"eeeettaaooiinnsshhrrddllcumwfgypbvkxqjz"
_OFFSET = 2.7
_WORDS_A_LINE = 10
# Random numbers of so many bits choose a word: the rarest still has several of them.
_BITS = 22
_BLOCK_WORDS = 1 << 18


def write_text(path: Path, size: int, *, seed: int = 0) -> None:
    """Write a text of exactly ``size`` bytes that ends with the end of a line."""
    left = size
    with path.open("wb") as file:
        for block in _text_blocks(seed):
            part = block[:left]
            left -= len(part)
            if not left:
                # Wherever the text is cut, its last byte is the end of a line.
                file.write(part[:-1] + b"\n"[: len(part)])
                return
            file.write(part)


def _text_blocks(seed: int) -> Iterator[bytes]:
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


# A job's spills, merges and output, beside its input.
_TIMES_THE_LARGEST = 4


def input_sizes(settings: Iterable[Setting], workloads: Collection[str]) -> list[int]:
    """Sizes (B) of the inputs of some workloads, the largest first."""
    found = {s.data_bytes for s in settings if s.workload in workloads and s.data_bytes}
    return sorted(found, reverse=True)


def room_needed(settings: Sequence[Setting], *, copies: int = 1) -> float:
    """Room on disk (B) for so many copies of the inputs, and for the largest job."""
    largest = max((s.data_bytes or 0 for s in settings), default=0)
    inputs = sum(input_sizes(settings, TEXT_READERS)) + sum(input_sizes(settings, ROW_READERS))
    return float(copies * inputs + _TIMES_THE_LARGEST * largest)


def make_texts(folder: Path, sizes: Sequence[int], *, seed: int) -> dict[int, Path]:
    """Write a text of each size; the shorter ones are the beginning of the longest."""
    paths = {size: folder / f"text-{size}" for size in sizes}
    if sizes:
        write_text(paths[sizes[0]], sizes[0], seed=seed)
    for size in sizes[1:]:
        left = size
        with paths[sizes[0]].open("rb") as long, paths[size].open("wb") as file:
            while left > 0 and (part := long.read(min(left, 1 << 24))):
                left -= len(part)
                file.write(part if left else part[:-1] + b"\n")
    return paths


WORKLOADS = ("wordcount", "sort", "teragen", "terasort")
TEXT_READERS, ROW_READERS = ("wordcount", "sort"), ("terasort",)
COMPRESSIONS = ("none", "zlib", "snappy", "lz4", "zstd")
# Those that Hadoop's own jars can do; the others need libraries of the host.
SELF_CONTAINED_COMPRESSIONS = ("none", "zlib", "snappy")
ROW_BYTES = 100

_CODECS = {
    "zlib": "org.apache.hadoop.io.compress.DefaultCodec",
    "snappy": "org.apache.hadoop.io.compress.SnappyCodec",
    "lz4": "org.apache.hadoop.io.compress.Lz4Codec",
    "zstd": "org.apache.hadoop.io.compress.ZStandardCodec",
}
_MIB = 2**20
_TEXT_FORMATS = (
    *("-inFormat", "org.apache.hadoop.mapreduce.lib.input.KeyValueTextInputFormat"),
    *("-outFormat", "org.apache.hadoop.mapreduce.lib.output.TextOutputFormat"),
    *("-outKey", "org.apache.hadoop.io.Text"),
    *("-outValue", "org.apache.hadoop.io.Text"),
)


class Setting(NamedTuple):
    """A job and its settings; None leaves one to Hadoop."""

    workload: str
    data_bytes: int | None  # size of its input; of its output for teragen
    map_slots: int | None  # tasks that may run at once
    reduce_slots: int | None
    task_memory_bytes: int | None  # memory of a task's container; four fifths of it are the heap
    compression: str | None  # of the output of maps

    def columns(self) -> dict[str, Any]:
        """Columns of the runs table, without what is left to Hadoop."""
        return {name: value for name, value in self._asdict().items() if value is not None}

    def text(self) -> str:
        """Text of the setting for messages."""
        words = [self.workload]
        if self.data_bytes is not None:
            words.append(f"{self.data_bytes / 1e6:g} MB")
        for value, name in ((self.map_slots, "map"), (self.reduce_slots, "reduce")):
            if value is not None:
                words.append(f"{value} {name} slot{'s' * (value > 1)}")
        if self.task_memory_bytes is not None:
            words.append(f"{self.task_memory_bytes / _MIB:g} MiB a task")
        if self.compression not in (None, "none"):
            words.append(f"{self.compression}")
        return ", ".join(words)


def _cut_to_whole_rows(setting: Setting) -> Setting:
    if setting.data_bytes is None or setting.workload not in ("teragen", "terasort"):
        return setting
    return setting._replace(data_bytes=setting.data_bytes // ROW_BYTES * ROW_BYTES)


@dataclass(frozen=True, kw_only=True)
class HadoopOptions:
    """Options of a Hadoop sweep, as they are kept with the runs."""

    mode: str = "local"  # or "yarn" (a cluster of this host), or "cluster" (the user's)
    workloads: tuple[str, ...] = ()
    # What is swept; empty leaves it to Hadoop.
    data_bytes: tuple[int, ...] = ()
    map_slots: tuple[int, ...] = ()
    reduce_slots: tuple[int, ...] = ()
    task_memory_bytes: tuple[int, ...] = ()
    compressions: tuple[str, ...] = ()
    reduces: int | None = None  # reduce tasks; None for one per reduce slot
    properties: dict[str, str] = field(default_factory=dict)  # properties of Hadoop for every job
    warm_ups: int = 1
    # Of the user's cluster: its name, and the file of its nodes.
    cluster: str = ""
    nodes: str | None = None
    examples: str | None = None  # jar of Hadoop's examples; by default the one beside ``hadoop``
    history: str | None = None  # folder of job histories in the cluster's file system
    # Arguments of ``hadoop`` for a job of the user's own; empty for Hadoop's examples. {options}
    # becomes Hadoop's options, {input} a text of the size asked for, {output} a folder that is not
    # there, and {data} that size (B).
    command: tuple[str, ...] = ()

    def settings(self) -> list[Setting]:
        """All combinations of what is swept; the rows of Terasort are whole."""
        slots_and_memory = self.map_slots, self.reduce_slots, self.task_memory_bytes
        choices = (self.data_bytes, *slots_and_memory, self.compressions)
        # An option without values leaves the choice to Hadoop.
        parts = product(self.workloads, *(values or (None,) for values in choices))
        return list(dict.fromkeys(_cut_to_whole_rows(Setting._make(part)) for part in parts))


def job_properties(setting: Setting, options: HadoopOptions, *, local: bool) -> list[str]:
    """Make the options (``-Dname=value``) that set a job; the user's own come last and prevail."""
    found: dict[str, Any] = {}
    if local:
        found["mapreduce.local.map.tasks.maximum"] = setting.map_slots
        found["mapreduce.local.reduce.tasks.maximum"] = setting.reduce_slots
    else:
        memory = setting.task_memory_bytes
        memory_mb = None if memory is None else -(-memory // _MIB)
        found["mapreduce.job.running.map.limit"] = setting.map_slots
        found["mapreduce.job.running.reduce.limit"] = setting.reduce_slots
        found["mapreduce.map.memory.mb"] = found["mapreduce.reduce.memory.mb"] = memory_mb
        found["mapreduce.jobhistory.jhist.format"] = "json"
    found["mapreduce.job.reduces"] = options.reduces or setting.reduce_slots
    if setting.workload == "teragen":
        found["mapreduce.job.maps"] = setting.map_slots
    if setting.compression is not None:
        found["mapreduce.map.output.compress"] = str(setting.compression != "none").lower()
        found["mapreduce.map.output.compress.codec"] = _CODECS.get(setting.compression)
    given = {name: str(value) for name, value in found.items() if value is not None}
    return [f"-D{name}={value}" for name, value in {**given, **options.properties}.items()]


def example_arguments(
    setting: Setting, options: HadoopOptions, source: str, target: str, *, local: bool
) -> list[str]:
    """Arguments of Hadoop's example program for a workload, the program's name first."""
    properties = job_properties(setting, options, local=local)
    if setting.workload == "wordcount":
        return ["wordcount", *properties, source, target]
    if setting.workload == "sort":
        # Without it this program takes nine tenths of the cluster's slots, whatever is set.
        count = options.reduces or setting.reduce_slots
        number = [] if count is None else ["-r", str(count)]
        return ["sort", *properties, *number, *_TEXT_FORMATS, source, target]
    if setting.workload == "teragen":
        return ["teragen", *properties, str((setting.data_bytes or 0) // ROW_BYTES), target]
    return ["terasort", *properties, source, target]
