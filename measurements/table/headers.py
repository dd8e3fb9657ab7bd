"""Foreign headers to canonical columns: units, synonyms and the user's own mapping."""

import difflib
import re
import shlex
import unicodedata
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from measurements.errors import MeasurementError
from measurements.table.schema import (
    COLUMNS,
    IDENTITY,
    ROW_COLUMN,
    SYNONYMS,
    SYNONYMS_WITH_UNIT,
    UNIT_IN_NAME,
)
from measurements.table.units import Unit, named_unit, split_unit

# The unit of a column that the user names by hand, looked for wherever people write it.
#
# A header that is known by itself has its unit after the last underscore or in brackets (see
# `measurements.table.units.split_unit`). One that is named with ``--map`` may be anybody's: ``run
# ms``, ``Size KB``, ``ReqGB``, ``elapsedms``, or no more than ``ms``. There the quantity is known,
# so a last word that is a unit of that quantity is the unit.

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
    ``si`` is the quantity, as in `measurements.table.units`; units of others are not looked for.

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
    last = _unit_ending_word(words[-1], si)
    remarks = (_named_unit_of(remark.strip(), si) for remark in _REMARKS.findall(cased))
    return last or next((unit for unit in remarks if unit), None)


def mapped_factor(
    target: str, header: str, asked: float, own: float | None, canonical: str, source: str
) -> float:
    """Factor of a column to its canonical unit, from what ``--map TARGET=HEADER`` says of it.

    ``asked`` is the factor of the unit in the target's name, 1 where it is the canonical one;
    ``own`` that of the header, which is taken. Raises `MeasurementError` where both say a unit, and
    not the same.
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


def _named_unit_of(text: str, si: str) -> Unit | None:
    """Find the unit of this name that measures in the SI unit ``si``; else None."""
    unit = named_unit(text)
    return unit if unit and unit.si == si else None


def _unit_ending_word(word: str, si: str) -> Unit | None:
    """Find the unit that a word is, or ends in."""
    if unit := _named_unit_of(word, si):
        return unit
    for at in _word_boundaries(word):
        if unit := _named_unit_of(word[at:], si):
            longer = _named_unit_of(word[at - 1 :], si)
            return longer if longer and not _LIKE_PREFIX.search(word[:at]) else unit
    ends = (at for at in range(1, len(word)) if word[:at].lower() in _NAMES)
    return next((unit for at in ends if (unit := _named_unit_of(word[at:], si))), None)


def _word_boundaries(word: str) -> Iterator[int]:
    """Where a word of several begins another one: SizeKB, CPUms, p99ms."""
    for at in range(1, len(word)):
        before, here, after = word[at - 1], word[at], word[at + 1 : at + 2]
        begins = here.isupper() and (not before.isupper() or after.islower())
        if begins or (here.islower() and not before.islower() and not word[at - 1 :].istitle()):
            yield at


MOST_COLUMNS = 4096
# Columns that ppw writes beside those of the schema, and no slips of one of these.
_SETTINGS = frozenset({"connections"})

_IN_PERCENT = re.compile(
    r"(?P<base>.*[^\s_])(\s*[(\[]\s*(%|percent|pct)\s*[)\]]|[\s_]*%|[\s_]+(percent|pct))",
    re.IGNORECASE,
)


class Renaming(NamedTuple):
    """What one foreign column becomes."""

    canonical: str
    factor: float = 1.0  # converts its numbers to the canonical unit
    # The header has no unit, so that each cell must carry one ("2.10GHz").
    unit_in_cells: bool = False

    def scaled(self, numbers: Any) -> Any:
        """Numbers in the canonical unit, of anything that can be multiplied and divided."""
        # Multiplying by 1e-3 and dividing by 1e3 differ in the last digit; the division is exact.
        return numbers * self.factor if self.factor >= 1 else numbers / round(1 / self.factor)


def rename_headers(
    headers: Sequence[str], mapping: Mapping[str, str], source: str
) -> dict[str, Renaming]:
    """Decide for every header that is known, or mapped, which column it becomes.

    ``mapping`` is the user's own: target column (a canonical name, possibly with another unit
    suffix, or a name of the user's) to header; ``source`` is the file, for messages. Raises
    `MeasurementError` for a header twice, a canonical column given twice, a mapped header that is
    not there, or far more columns than a runs table has.
    """
    _refuse_bad_headers(headers, mapping, source)
    renamings = {}
    for target, header in mapping.items():
        # A canonical column that stays itself needs no look at its name.
        stays = target == header and target in COLUMNS and target in headers
        known = Renaming(target) if stays else _rename_mapped(target, header, headers, source)
        renamings[header] = known
    chosen = {r.canonical for r in renamings.values()}
    direct = {h: r for h in headers if h not in renamings and (r := _renaming_by_name(h))}
    # What --map chose stands, and its rivals are columns of the user's own.
    renamings |= {h: r for h, r in direct.items() if r.canonical not in chosen}
    taken = {r.canonical for r in renamings.values()}
    for header in headers:
        synonym = _renaming_by_synonym(header) if header not in renamings else None
        # A synonym beside the real thing is a column of the user's own.
        if synonym and synonym.canonical not in taken:
            renamings[header] = synonym
    for found in unit_candidates(headers, renamings).values():
        if len(found) == 1:
            renamings |= found
    _refuse_twice(headers, renamings, source)
    return renamings


# A column that no header names may be one that ends in a unit of its quantity, but for those with
# one of these words, which say that it is another quantity of the run.
_GUESSED = {
    "freq_hz": r"bus|gpu|mem|memory|ram|dram|uncore|turbo|base|nominal",
    "time_s": r"cpu|user|nice|sys|system|irq|softirq|steal|iowait|wait|warm|warmup|set|setup|start"
    r"|timeout|interval|window|latency|lat|p\d+|delay|sleep|queue|response|timestamp|ts|epoch",
    "power_w": r"cap|tdp|capacity|nominal|rated|pl\d",
    "energy_j": r"ops|price|budget",
}
_OTHER_FIGURE = (
    r"idle|limit|max|min|peak|std|sd|stdev|err|error|var|ci|delta|diff"
    # What is counted per second, or per something else.
    r"|per|[kmgt]?i?b|bytes?|bits?|ops?|operations?|req|reqs|requests?|ios?|iops|runs?|jobs?"
    r"|instructions?|cycles?|queries|query|transactions?|tps|packets?|pages?|blocks?|items?|rows?"
)
# Columns of single sources of power, as ppw names them.
_OF_SOURCE = re.compile(r"[a-z0-9_]+_(power_w|energy_j)")
# Columns that a table may have in which no other known column was measured.
_OF_SET_UP = {*IDENTITY, "freq_hz", "repeat", "sockets", ROW_COLUMN} - {"workload"}
# "_min" may be a minimum, and "_h" a height.
_ONLY_IN_BRACKETS = ("min", "h")


def unit_candidates(
    headers: Sequence[str], renamings: Mapping[str, Renaming]
) -> dict[str, dict[str, Renaming]]:
    """Find, for each main column that is not there, the headers that end in a unit of its kind."""
    taken = {r.canonical for r in renamings.values()} | {*headers}
    # Who spells one column of a unit as ppw does (user_s) would have spelt the main one so, too.
    spelt = {unit_of(h) for h in headers if h in COLUMNS and h not in _GUESSED}
    found: dict[str, dict[str, Renaming]] = {}
    for header in headers:
        base, unit = split_unit(header.strip())
        base, _, last = (base, "", "") if unit else header.strip().rpartition(" ")
        unit = unit or (named_unit(last) if base else None)
        bare = header.rpartition("_")[2].rpartition(" ")[2].lower() in _ONLY_IN_BRACKETS
        if unit is None or bare or header in renamings or _OF_SOURCE.fullmatch(header):
            continue
        words = [word.lower() for word in re.findall(r"[^\W\d_]+\d*", base)]
        for canonical, others in _GUESSED.items():
            other = any(re.fullmatch(f"{others}|{_OTHER_FIGURE}", word) for word in words)
            other |= _NAMED.get(_plain_name(base), canonical) != canonical
            other |= canonical in taken or unit.si in spelt
            if unit_of(canonical) == unit.si and not other:
                found.setdefault(canonical, {})[header] = Renaming(canonical, unit.factor)
    return found


def map_to_paste(canonical: str, headers: Sequence[str]) -> str:
    """Write the options --map that would make one of these headers a column, or ""."""
    found = unit_candidates(headers, {}).get(canonical, ())
    return " or ".join(f"--map {canonical}={shlex.quote(header)}" for header in found)


def wide_columns(mapping: Mapping[str, str], headers: Collection[str]) -> dict[str, list[str]]:
    """Find the columns that ``mapping`` makes of several headers, joined by +: one a workload."""
    return {t: h.split("+") for t, h in mapping.items() if "+" in h and h not in headers}


def name_workloads(
    wide: Mapping[str, Sequence[str]], headers: Sequence[str], source: str
) -> list[tuple[str, dict[str, tuple[str, Renaming]]]]:
    """List the workloads of a wide table: the header and renaming of each by canonical column."""
    found: dict[str, dict[str, tuple[str, Renaming]]] = {}
    for target, joined in wide.items():
        for header in joined:
            renaming = _rename_mapped(target, header, headers, source)
            words = re.split(r"[\s_]+", split_unit(header.strip())[0])
            kept = [w for w in words if _NAMED.get(_plain_name(w)) != renaming.canonical]
            found.setdefault(" ".join(kept), {})[renaming.canonical] = (header, renaming)
    lacking = next((name for name, columns in found.items() if len(columns) < len(wide)), None)
    if lacking is not None or sum(map(len, wide.values())) > len(found) * len(wide):
        raise MeasurementError(
            f"{source}: --map does not name each workload once in {' and '.join(wide)}"
            f"{f': {lacking} is not in all' * bool(lacking)}; the columns are {list_names(headers)}"
        )
    return [*found.items()]


def wide_hint(numeric: Sequence[str], columns: Collection[str]) -> Iterator[str]:
    """Offer the option that reads columns of bare numbers as workloads, beside no measured one."""
    bare = [header for header in numeric if split_unit(header.strip())[1] is None]
    if len(bare) > 1 and {*columns} < _OF_SET_UP:
        yield (
            f"if each of {list_names(bare)} is a workload, add --map "
            f"time_s={shlex.quote('+'.join(bare))} (time_ms, power_w: by the quantity and unit of "
            "their cells)"
        )


def read_sentence(
    headers: Sequence[str], renamings: Mapping[str, Renaming], mapping: Mapping[str, str]
) -> list[str]:
    """Say which headers became which column, which may, and which are ignored; [] for nothing.

    A name of a column in another unit, and what the user mapped, goes without saying.
    """
    asked = {*mapping.values()}
    became = {
        h: r.canonical
        for h, r in renamings.items()
        if h not in asked and _plain_name(split_unit(h)[0]) not in _OWN_NAMES[r.canonical]
    }
    parts = (
        [f"read {', '.join(f'{c}←{_quote_name(h)}' for h, c in became.items())}"] if became else []
    )
    for canonical, found in unit_candidates(headers, renamings).items():
        if len(found) > 1:
            parts.append(
                f"{canonical} may be {' or '.join(map(_quote_name, found))}: choose with "
                f"--map {canonical}={shlex.quote(next(iter(found)))}"
            )
            if "workload" not in (r.canonical for r in renamings.values()):
                joined = shlex.quote("+".join(found))
                parts[-1] += f", or if each is a workload with --map {canonical}={joined}"
    others = [h for h in headers if h and h not in {*renamings, *COLUMNS, ROW_COLUMN}]
    # Columns of ppw itself have such names, and are many.
    foreign = [h for h in others if became or not re.fullmatch(r"[a-z0-9_.:+-]+", h)]
    if foreign:
        parts.append(f"ignored {', '.join(map(_quote_name, foreign[:6]))}")
        parts[-1] += f" and {len(foreign) - 6} more" * (len(foreign) > 6)
    return parts


def _quote_name(header: str) -> str:
    return header if header.isalnum() else f'"{header}"'


def _plain_name(name: str) -> str:
    """Write a name as synonyms are compared: lower case, no accents, spaces, dashes and so on."""
    if not name.isascii():
        name = unicodedata.normalize("NFKD", name.replace("œ", "oe"))
    return "".join(c for c in name.lower() if c not in " -_.#" and not unicodedata.combining(c))


# The column that a name without its unit stands for.
_NAMED = {_plain_name(n.rpartition("_")[0]): n for n in COLUMNS} | SYNONYMS | SYNONYMS_WITH_UNIT
_OWN_NAMES = {n: {_plain_name(n), _plain_name(n.rpartition("_")[0] or n)} for n in COLUMNS}


def column_meant(
    name: str, columns: Collection[str], headers: Mapping[str, Renaming]
) -> Renaming | None:
    """Find the column that a user means by its name or a header, and the unit in the name."""
    if name in columns:
        return Renaming(name)
    meant = headers.get(name) or _renaming_by_name(name) or _renaming_by_synonym(name)
    return meant if meant and meant.canonical in columns else None


def nearest(name: str, known: Sequence[str]) -> str:
    """Suggest what may have been meant: " (did you mean 'host'?)", or nothing."""
    lowered = {k.lower(): k for k in known}
    close = difflib.get_close_matches(name.lower(), lowered, n=1)
    return f" (did you mean {lowered[close[0]]!r}?)" if close else ""


def list_names(names: Sequence[str], most: int = 12) -> str:
    """List names for a message, the first ``most`` of them."""
    lines = (" ".join(name.split()) for name in names[:most])
    listed = ", ".join(name if len(name) <= 40 else f"{name[:37]}…" for name in lines)
    return listed if len(names) <= most else f"{listed} and {len(names) - most} more"


def _refuse_bad_headers(headers: Sequence[str], mapping: Mapping[str, str], source: str) -> None:
    """Refuse far too many columns, a header that is there twice, and one that is mapped twice."""
    if len(headers) > MOST_COLUMNS:
        raise MeasurementError(
            f"{source}: the header has {len(headers)} columns, a runs table has fewer than "
            f"{MOST_COLUMNS}: a runs table has one row per run and a header line"
        )
    twice = [h for h, n in Counter(headers).items() if n > 1 and h]
    if twice:
        raise MeasurementError(
            f"{source}: the header names {list_names(twice)} more than once: rename one of them"
        )
    twice = [h for h, n in Counter(mapping.values()).items() if n > 1]
    if twice:
        targets = [target for target, header in mapping.items() if header == twice[0]]
        raise MeasurementError(
            f"{source}: --map makes column {twice[0]!r} all of {list_names(targets)}: give it "
            "only one of them"
        )


def _refuse_absent(target: str, header: str, headers: Sequence[str], source: str) -> None:
    """Refuse a header that --map names and that is not there."""
    if header in headers:
        return
    if target in headers and _renaming_by_name(header):
        hint = f": write the header second, --map {header}={target}"
    elif "=" in header:
        hint = ": give --map again for each column"
    else:
        hint = f"{nearest(header, headers)}; the columns are {list_names(headers)}"
    raise MeasurementError(
        f"{source}: --map names column {header!r}, which the table does not have{hint}"
    )


def _rename_mapped(target: str, header: str, headers: Sequence[str], source: str) -> Renaming:
    """Decide what a header becomes by --map: a column of ppw's, or one of the user's own."""
    _refuse_absent(target, header, headers, source)
    asked = _renaming_by_name(target)
    if asked is None:
        if target.lower() == header.strip().lower() or target in _SETTINGS:
            return Renaming(target)
        meant = SYNONYMS.get(target.lower(), target)
        if hint := nearest(meant, list(COLUMNS)):
            raise MeasurementError(f"{source}: --map {target}={header}: no column {target!r}{hint}")
        return Renaming(target)
    if is_share(asked.canonical):
        return asked._replace(factor=0.01) if _IN_PERCENT.fullmatch(header.strip()) else asked
    return asked._replace(factor=_mapped_factor(target, header, asked, source))


def _mapped_factor(target: str, header: str, asked: Renaming, source: str) -> float:
    """Factor of a mapped header by its own unit, wherever that stands, and the target's."""
    plain = split_unit(header.strip())[1]
    own = _renaming_by_base(asked.canonical.rpartition("_")[0], plain) if plain else None
    if own is None or own.canonical != asked.canonical:
        # Of a column of rates its name ends in the unit that they are per: throughput_ops_s.
        is_rate = COLUMNS[asked.canonical].unit == "1/s"
        unit = asked.canonical.rpartition("_")[2] if is_rate else unit_of(asked.canonical)
        words = unit_in_words(header, unit)
        own = _renaming_by_base(asked.canonical.rpartition("_")[0], words) if words else None
    # "t_c" need not be in °C, but "t (°C)" is.
    if plain and own is None and header.rstrip().endswith((")", "]")) and unit_of(asked.canonical):
        raise MeasurementError(
            f"{source}: --map {target}={header}: the column is not in "
            f"{COLUMNS[asked.canonical].unit}, by its header"
        )
    factor = own.factor if own else None
    return mapped_factor(target, header, asked.factor, factor, asked.canonical, source)


def _renaming_by_name(header: str) -> Renaming | None:
    """Canonical name, or the same base with another unit: freq_mhz, "Power_W", time_ms."""
    name = header.strip()
    if name.lower() in COLUMNS:
        return Renaming(name.lower())
    if percent := _IN_PERCENT.fullmatch(name):
        share = percent["base"].lower()
        return Renaming(share, 0.01) if is_share(share) else None
    base, unit = split_unit(name)
    return _renaming_by_base(base.lower(), unit) if unit else None


def _renaming_by_synonym(header: str) -> Renaming | None:
    """Find the column that a header of another program stands for."""
    base, unit = split_unit(header.strip())
    name = _plain_name(base)
    # A bare "user" or "data" may be anything; with a unit it is the column of that name.
    canonical = SYNONYMS.get(name) or (_WITH_UNIT.get(name) if unit else None)
    if canonical is None:
        return None
    needs = unit_of(canonical)
    if not needs or name in UNIT_IN_NAME:
        return Renaming(canonical)
    if unit is None:
        return Renaming(canonical, unit_in_cells=True)
    return Renaming(canonical, unit.factor) if unit.si == needs else None


def _renaming_by_base(base: str, unit: Unit) -> Renaming | None:
    """Find the canonical column of a base name and the SI unit of a unit."""
    canonical = f"{base.strip()}_{unit.si}"
    if canonical not in COLUMNS:
        return None
    # 60 a minute are 1 a second.
    factor = 1 / unit.factor if COLUMNS[canonical].unit == "1/s" else unit.factor
    return Renaming(canonical, factor)


def is_share(canonical: str) -> bool:
    """Tell whether a column is a share of a whole, which percent can say too."""
    return canonical in COLUMNS and COLUMNS[canonical].kind == "share"


def unit_in_cells(canonical: str) -> str:
    """Name the unit that cells of a canonical column may carry, "share" for percent, or ""."""
    return "share" if is_share(canonical) else unit_of(canonical)


def unit_of(canonical: str) -> str:
    """Name the unit that a canonical column's name ends in, or "" where it has none."""
    suffix = canonical.rpartition("_")[2]
    return suffix if canonical in COLUMNS and COLUMNS[canonical].unit in _UNITS_SPELT else ""


_UNITS_SPELT = {"Hz", "s", "W", "B", "J", "V", "°C"}
_WITH_UNIT = SYNONYMS_WITH_UNIT | {n.rpartition("_")[0]: n for n in COLUMNS if unit_of(n)}


def _refuse_twice(headers: Sequence[str], renamings: Mapping[str, Renaming], source: str) -> None:
    """Refuse two headers that would become one column."""
    named = {h: renamings[h].canonical if h in renamings else h for h in headers}
    for canonical in (c for c, n in Counter(named.values()).items() if n > 1):
        both = [h for h, name in named.items() if name == canonical]
        # No choice of columns helps against a name that is taken.
        if canonical in both and canonical not in renamings:
            raise MeasurementError(
                f"{source}: columns {list_names(both)} would all be {canonical}: "
                f"drop or rename the column {canonical}"
            )
        raise MeasurementError(
            f"{source}: columns {list_names(both)} would all be {canonical}: "
            f"drop all but one, or choose with --map {canonical}=COLUMN"
        )
