"""The host catalogue: what makers state about the machines that users compare.

A host is one TOML file (docs/catalogue.md). Every figure carries its source; a figure that no
source states is absent, never 0.
"""

from __future__ import annotations

import difflib
import operator
import os
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast

from measurements.table.headers import nearest
from measurements.table.units import parse_quantity
from ppw.errors import PpwError, UnknownHostError
from ppw.results import result as rs, text as tx

if TYPE_CHECKING:
    import pandas as pd


Value = bool | int | float | str | tuple[float, ...]


class FigureKind(NamedTuple):
    """What one figure may be: the TOML type that is asked for, and its unit."""

    wanted: str
    unit: str | None = None


_HZ, _BYTES = FigureKind("a frequency", "Hz"), FigureKind("a whole number", "B")
FIGURES = {
    **dict.fromkeys(("cores", "threads"), FigureKind("a whole number", "1")),
    **dict.fromkeys(("base_hz", "turbo_hz", "min_hz", "step_hz"), _HZ),
    "steps_hz": FigureKind("a list of frequencies", "Hz"),
    **dict.fromkeys(("l1i_bytes", "l1d_bytes", "l2_bytes", "l3_bytes"), _BYTES),
    "memory_bandwidth_bytes_s": FigureKind("a number", "B/s"),
    "tdp_w": FigureKind("a number", "W"),
    "launch_price_usd": FigureKind("a number", "USD"),
    **dict.fromkeys(("rapl", "dvfs"), FigureKind("true or false")),
    "launched": FigureKind("a quarter like '2010-Q1'"),
}
CACHES = ("l1i_bytes", "l1d_bytes", "l2_bytes", "l3_bytes")
TEXTS = ("name", "maker", "kind", "family")
PARTS = ("value", "source", "note", "scope")
SCOPES = ("core", "cluster", "package")
_SHOWN = {
    "Hz": ((1e9, "GHz"), (1e6, "MHz")),
    "B": ((2**20, "MiB"), (2**10, "KiB")),
    "B/s": ((1e9, "GB/s"),),
}


@dataclass(frozen=True)
class HostFigure:
    """One figure of a host."""

    value: Value  # a tuple only for ``steps_hz``
    source: str  # key of :attr:`Host.sources`: who says so
    unit: str | None = None  # "Hz", "B", "B/s", "W", "USD" or "1"; None for words and yes/no
    note: str | None = None  # what to know before using it
    scope: str | None = None  # of a cache: a "core", a "cluster" or the "package" shares it


T = TypeVar("T")


class _FigureValue(Generic[T]):
    """Reads one figure's plain value from a host; None where the figure is not known."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    def __get__(self, host: Host | None, owner: type) -> T | None:
        figure = host.figures.get(self._key) if host else None
        return cast("T", figure.value) if figure else None


@dataclass(frozen=True)
class Host:
    """A machine of the catalogue. A figure that is not known is None; all are of one package."""

    name: str  # "Xeon X5670"
    maker: str  # "Intel"
    kind: str  # "processor"
    family: str  # microarchitecture; a baseline holds within one family only
    figures: Mapping[str, HostFigure] = field(default_factory=dict)  # every known figure
    sources: Mapping[str, str] = field(default_factory=dict)  # citations, with addresses

    cores = _FigureValue[int]()  # physical cores
    threads = _FigureValue[int]()  # hardware threads
    base_hz = _FigureValue[float]()  # nominal frequency
    turbo_hz = _FigureValue[float]()  # highest frequency of one core
    min_hz = _FigureValue[float]()  # lowest frequency
    # Steps that can be set: multiples of a frequency, or a list. `host_steps` takes either.
    step_hz = _FigureValue[float]()
    steps_hz = _FigureValue[tuple[float, ...]]()
    # Size of one cache; the scope of its figure says who shares it.
    l1i_bytes = _FigureValue[int]()
    l1d_bytes = _FigureValue[int]()
    l2_bytes = _FigureValue[int]()
    l3_bytes = _FigureValue[int]()
    memory_bandwidth_bytes_s = _FigureValue[float]()  # as stated, not as measured
    tdp_w = _FigureValue[float]()  # power to cool, not power that is drawn
    launch_price_usd = _FigureValue[float]()
    rapl = _FigureValue[bool]()  # whether it counts its own energy
    dvfs = _FigureValue[bool]()  # whether its frequency can be set
    launched = _FigureValue[str]()  # quarter: "2010-Q1"

    def summary(self) -> str:
        """Describe the host in text: each figure with its source, and what is not known."""
        lines = [f"{self.name} ({self.maker}, {self.family}, {self.kind})"]
        lines += [_figure_summary_line(key, figure) for key, figure in self.figures.items()]
        missing = [key for key in FIGURES if key not in self.figures]
        if missing:
            lines.append(f"  not known: {', '.join(missing)}")
        lines += ["Sources", *(f"  [{key}] {text}" for key, text in self.sources.items())]
        return tx.printable_lines("\n".join(lines))

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the figures: one row each, with unit, scope, source (in full) and note."""
        import pandas as pd

        columns = ["host", "figure", "value", "unit", "scope", "source", "note"]
        rows = [
            (self.name, key, f.value, f.unit, f.scope, self.sources[f.source], f.note)
            for key, f in self.figures.items()
        ]
        return pd.DataFrame(rows, columns=columns, dtype=object)

    def to_json(self) -> str:
        """Write the host as JSON; the unit is in each key's name."""
        figures = {
            key: {part: stated for part in PARTS if (stated := getattr(figure, part)) is not None}
            for key, figure in self.figures.items()
        }
        texts = {key: getattr(self, key) for key in TEXTS}
        host = {**texts, "figures": figures, "sources": self.sources}
        return rs.write_document("host", None, {"host": host})

    @classmethod
    @rs.reads_document
    def from_json(cls, text: str) -> Host:
        """Read what `to_json` wrote. Raises `PpwError` for anything else."""
        table = rs.read_document(text, "host").get("host")
        figures = table.get("figures") if isinstance(table, dict) else None
        if table is None or not isinstance(figures, dict):
            raise PpwError("host JSON: key 'figures': must be a table; write it anew")
        texts = {key: table[key] for key in (*TEXTS, "sources") if key in table}
        return host_of(texts | figures, "host JSON")


def host_steps(host: Host) -> tuple[float, ...]:
    """Frequency steps (Hz, ascending) that a user can ask of a host, without turbo.

    Those listed; the base frequency alone where there is no frequency scaling; else whole multiples
    of ``step_hz`` from ``min_hz`` to ``base_hz``. Empty where these are not known.
    """
    if host.steps_hz is not None:
        return host.steps_hz
    # Without frequency scaling a processor runs at its nominal frequency, whatever is asked.
    if host.dvfs is False and host.base_hz is not None:
        return (float(host.base_hz),)
    if host.min_hz is None or host.base_hz is None or host.step_hz is None:
        return ()
    # Makers print 2.93 GHz for 22 x 133.33 MHz, so the ratio is rounded, not floored.
    low, high = round(host.min_hz / host.step_hz), round(host.base_hz / host.step_hz)
    return tuple(float(round(ratio * host.step_hz)) for ratio in range(low, high + 1))


def _figure_summary_line(key: str, figure: HostFigure) -> str:
    scope = f" a {figure.scope}" if figure.scope else ""
    note = f" ({figure.note})" if figure.note else ""
    return f"  {key:<25}{_figure_value_text(figure)}{scope} [{figure.source}]{note}"


def _figure_value_text(figure: HostFigure) -> str:
    value = figure.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    numbers = value if isinstance(value, tuple) else (value,)
    return ", ".join(_quantity_text(number, figure.unit or "") for number in numbers)


def _quantity_text(number: float, unit: str) -> str:
    # The largest unit that the number reaches; 1 MB of cache is 2**20 bytes to its maker.
    for scale, word in _SHOWN.get(unit, ()):
        if number >= scale:
            return f"{number / scale:.7g} {word}"
    return f"{number:.10g} {unit}".removesuffix(" 1")


# Host files: TOML tables checked key by key and made into hosts; see docs/catalogue.md.

# Below this a bare number was meant in MHz or GHz.
_LEAST_HZ = 1e6
# TOML has infinities and whole numbers of any length; no figure comes near this.
_LIMIT = 1e24


def parse_hosts(raw: bytes, file: str) -> tuple[Host, ...]:
    """Read one TOML file: a host, or hosts that share keys under ``[[host]]``.

    Raises `PpwError` naming ``file`` and what is wrong.
    """
    table = rs.parse_toml(raw, file, "host", "catalogue")
    if "host" not in table:
        return (host_of(table, file),)
    entries = table.pop("host")
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise PpwError(f"{file}: key 'host': not tables; write [[host]] above the keys of each")
    each = enumerate((_write_out(entry, table) for entry in entries), 1)
    return tuple(host_of(host, f"{file}: host {place}") for place, host in each)


def _write_out(entry: Mapping[str, Any], shared: Mapping[str, Any]) -> dict[str, Any]:
    """Add to a host what its file says of all, and the file's ``source`` to each bare figure."""
    host = {**{key: value for key, value in shared.items() if key != "source"}, **entry}
    for key in FIGURES:
        if key in host and not isinstance(host[key], dict) and "source" in shared:
            host[key] = {"value": host[key], "source": shared["source"]}
    # A host keeps the citations of its own figures only.
    cited = {str(figure.get("source")) for figure in host.values() if isinstance(figure, dict)}
    if isinstance(sources := host.get("sources"), dict):
        host["sources"] = {key: text for key, text in sources.items() if key in cited}
    return host


def host_of(table: Mapping[str, Any], file: str) -> Host:
    """Check a table and make it a host. Raises `PpwError` naming ``file`` and the key."""
    return _Reader(file).read_host(table)


@dataclass(frozen=True)
class _Reader:
    """Checks one file's table; every complaint names the file, the key and what to do."""

    file: str

    def read_host(self, table: Mapping[str, Any]) -> Host:
        self._refuse_unknown_keys(table, (*TEXTS, *FIGURES, "sources"), "")
        texts = {key: self._require_text(table, key, "") for key in TEXTS}
        sources = self._read_sources(table)
        figures = {k: self._read_figure(k, table[k], sources) for k in FIGURES if k in table}
        host = Host(**texts, figures=figures, sources=sources)
        self._refuse_contradiction(host)
        return host

    def _error(self, key: str, wrong: str, remedy: str) -> PpwError:
        return PpwError(f"{self.file}: key {key!r}: {wrong}; {remedy}")

    def _refuse_unknown_keys(
        self, table: Mapping[str, Any], known: tuple[str, ...], prefix: str
    ) -> None:
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                remedy = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(known)}"
                raise self._error(prefix + key, "unknown", remedy)

    def _require_text(self, table: Mapping[str, Any], key: str, prefix: str) -> str:
        text = table.get(key)
        if not isinstance(text, str) or not text.strip():
            wrong = "missing" if text is None else "not a text"
            raise self._error(prefix + key, wrong, f'write {tx.shown_name(key)} = "..."')
        return text

    def _read_sources(self, table: Mapping[str, Any]) -> dict[str, str]:
        sources = table.get("sources", {})
        if not isinstance(sources, dict):
            raise self._error("sources", "not a table", "write [sources] with one citation a line")
        return {key: self._require_text(sources, key, "sources.") for key in sources}

    def _read_figure(self, key: str, entry: Any, sources: Mapping[str, str]) -> HostFigure:
        if not isinstance(entry, dict):
            remedy = f'write {key} = {{ value = ..., source = "..." }}'
            raise self._error(key, "a figure without source", remedy)
        self._refuse_unknown_keys(entry, PARTS, f"{key}.")
        source = self._check_source(key, entry, sources)
        note = self._require_text(entry, "note", f"{key}.") if "note" in entry else None
        value = self._read_figure_value(key, entry.get("value"))
        scope = entry.get("scope")
        if key in CACHES and scope not in SCOPES:
            wrong = "a cache without scope" if scope is None else f"unknown scope {scope!r}"
            raise self._error(key, wrong, f"add scope = one of {', '.join(SCOPES)}")
        if key not in CACHES and scope is not None:
            raise self._error(key, "only caches have a scope", "remove it")
        return HostFigure(value, source, FIGURES[key].unit, note, scope)

    def _check_source(self, key: str, entry: Mapping[str, Any], sources: Mapping[str, str]) -> str:
        """Return the key of a figure's source. Raises unless it is in [sources]."""
        source = entry.get("source")
        if not isinstance(source, str):
            remedy = 'add source = "..." with a key of [sources]'
            raise self._error(key, "a figure without source", remedy)
        if source not in sources:
            name = tx.shown_name(source)
            remedy = f'add {name} = "..." to [sources]'
            raise self._error(key, f"source '{name}' is not in [sources]", remedy)
        return source

    def _read_figure_value(self, key: str, value: Any) -> Value:
        wanted = FIGURES[key].wanted
        if value is None:
            raise self._error(key, "no value", "add one, or leave out what is not known")
        if not _has_wanted_type(wanted, value):
            raise self._error(key, f"{value!r} is not {wanted}", f"give {wanted}")
        for number in filter(_is_number_not_bool, value if isinstance(value, list) else [value]):
            # This way NaN, which compares with nothing, is refused too.
            if not abs(number) < _LIMIT:
                raise self._error(key, "not a finite figure", "leave out what is not known")
            if number <= 0:
                remedy = "give a positive value, or leave out what is not known"
                raise self._error(key, f"{number} is not positive", remedy)
            if FIGURES[key].unit == "Hz" and number < _LEAST_HZ:
                remedy = f"frequencies are in Hz; {number} GHz is {number}e9"
                raise self._error(key, f"{number} Hz is below 1 MHz", remedy)
        return tuple(map(float, value)) if isinstance(value, list) else value

    def _refuse_contradiction(self, host: Host) -> None:
        # Two sources may contradict each other: said here, before an answer rests on them.
        for low, high in (("cores", "threads"), ("min_hz", "base_hz"), ("base_hz", "turbo_hz")):
            small, large = getattr(host, low), getattr(host, high)
            if small is not None and large is not None and small > large:
                raise self._error(high, f"{large} is below {low} = {small}", "correct one of them")
        steps = host.steps_hz or ()
        if any(left >= right for left, right in pairwise(steps)):
            raise self._error("steps_hz", "not ascending", "list each step once, lowest first")
        if host.dvfs is False and len(steps) > 1:
            raise self._error("steps_hz", "several steps, yet dvfs is false", "correct one of them")


def _has_wanted_type(wanted: str, value: Any) -> bool:
    """Tell whether a TOML value has the wanted type; true and false are not numbers."""
    if wanted == "true or false":
        return isinstance(value, bool)
    if wanted.startswith("a quarter"):
        return isinstance(value, str) and re.fullmatch(r"\d{4}-Q[1-4]", value) is not None
    if wanted.startswith("a list"):
        return isinstance(value, list) and bool(value) and all(map(_is_number_not_bool, value))
    if wanted == "a whole number":
        return isinstance(value, int) and not isinstance(value, bool)
    return _is_number_not_bool(value)


def _is_number_not_bool(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


HOSTS_DIR_VARIABLE = "PPW_HOSTS_DIR"


def load_hosts(*directories: str | os.PathLike[str]) -> dict[str, Host]:
    """Load the built-in catalogue and the user's own host files.

    Parameters
    ----------
    *directories : path
        Folders with ``*.toml`` files of one or more hosts. A host overrides one of the same name
        (but for case, spaces and hyphens) that came before: built-in, then the folders in the
        environment variable ``PPW_HOSTS_DIR`` (joined as in ``PATH``), then these, in order.

    Returns
    -------
    dict of str to Host
        Hosts by name.

    Raises
    ------
    PpwError
        If a folder is missing or a file is malformed; the message names file and key.
    """
    # Later folders win: what a user states of a machine goes before what comes with ppw.
    hosts = {_fold_name(host.name): host for host in _load_builtin_hosts()}
    listed = os.environ.get(HOSTS_DIR_VARIABLE, "").split(os.pathsep)
    for directory in map(Path, (*filter(None, listed), *directories)):
        hosts |= {_fold_name(host.name): host for host in _read_host_files(directory)}
    return {host.name: host for host in hosts.values()}


def find_host(name: str, *directories: str | os.PathLike[str]) -> Host:
    """Find one host, whatever the case, spaces and hyphens of its name.

    Parameters
    ----------
    name : str
        ``"Xeon X5670"``, ``"Intel Xeon X5670"``, ``"x5670"`` or, where only one host ends so,
        its last word.
    *directories : path
        As in :func:`load_hosts`.

    Returns
    -------
    Host

    Raises
    ------
    UnknownHostError
        If no host has that name; the message suggests the nearest.
    PpwError
        As in :func:`load_hosts`.
    """
    hosts = load_hosts(*directories)
    wanted = _fold_name(name)
    # The plain name goes before the one with its maker, and both before a part of the name.
    for place in range(4):
        found = [host for host in hosts.values() if _host_spellings(host)[place] == wanted]
        if len(found) == 1:
            return found[0]
    spelt = {spelling: host.name for host in hosts.values() for spelling in _host_spellings(host)}
    near = difflib.get_close_matches(_fold_name(name), spelt, n=3, cutoff=0.5)
    names = list(dict.fromkeys(spelt[key] for key in near)) or sorted(hosts)
    raise UnknownHostError(
        f"host {name!r} is not in the catalogue; nearest: {', '.join(names)}; "
        f"or add a TOML file of your own and name its folder in {HOSTS_DIR_VARIABLE}"
    )


@cache
def _load_builtin_hosts() -> tuple[Host, ...]:
    folder = files("ppw.catalogue").joinpath("data", "hosts")
    entries = sorted(folder.iterdir(), key=lambda entry: entry.name)
    toml = (entry for entry in entries if entry.name.endswith(".toml"))
    return tuple(host for entry in toml for host in parse_hosts(entry.read_bytes(), entry.name))


def _read_host_files(directory: Path) -> Iterator[Host]:
    if not directory.is_dir():
        raise PpwError(f"{directory}: no such folder of host files; give one that exists")
    for path in sorted(directory.glob("*.toml")):
        try:
            raw = path.read_bytes()
        except OSError as error:
            raise PpwError(f"{path}: {error.strerror}; give a file that can be read") from error
        yield from parse_hosts(raw, str(path))


def _fold_name(name: str) -> str:
    """Name in lower case, without spaces, hyphens and underscores."""
    return re.sub(r"[\s_-]+", "", name).casefold()


def _host_spellings(host: Host) -> tuple[str, ...]:
    """Spellings that find a host: name, maker and name, name without brand, and last word."""
    brand, _, model = host.name.partition(" ")
    spellings = (host.name, host.maker + host.name, model or brand, host.name.split()[-1])
    return tuple(map(_fold_name, spellings))


# Conditions of `ppw hosts --where`: FIGURE=VALUE as with runs tables, or a comparison.
_CONDITION = re.compile(r"\s*(\w+)\s*(<=|>=|=|<|>)\s*(.*\S)\s*")
_BETWEEN_CONDITIONS = re.compile(r",(?=\s*\w+\s*[<>=])")
# Functions of `operator` by sign.
_COMPARISONS = {"=": "eq", "<": "lt", "<=": "le", ">": "gt", ">=": "ge"}


def choose_hosts(hosts: Iterable[Host], where: Iterable[str]) -> list[Host]:
    """Choose the hosts that meet all conditions, like "launched > 2022" or "maker=AMD,cores>=64".

    A figure that ``=`` names twice may have either value. A number is in the unit of its figure or
    carries its own: "base_hz > 2.5GHz". A year stands for all its quarters. A host whose figure is
    not known meets no condition on it. Raises `PpwError` for what is no condition or figure, or
    where no host meets all.
    """
    asked: dict[tuple[str, ...], list[tuple[str, str, str]]] = {}
    for text in (part for one in where for part in _BETWEEN_CONDITIONS.split(one)):
        match = _CONDITION.fullmatch(text)
        if match is None:
            raise PpwError(f"{text!r} is not a condition; write one like 'launched > 2022'")
        name, sign, value = match.groups()
        if name not in (known := [*TEXTS, *FIGURES]):
            raise PpwError(
                f"no figure {name!r}{nearest(name, known)}; there are {', '.join(known)}"
            )
        # Values with = are alternatives; bounds must all hold.
        key = (name,) if sign == "=" else (name, sign, value)
        asked.setdefault(key, []).append((name, sign, value))
    chosen = [h for h in hosts if all(any(_meets(h, *c) for c in cs) for cs in asked.values())]
    if not chosen:
        raise PpwError(f"no host has all of {', '.join(where)}; loosen --where")
    return chosen


def _meets(host: Host, name: str, sign: str, typed: str) -> bool:
    value, compare = getattr(host, name), getattr(operator, _COMPARISONS[sign])
    if value is None:
        return False
    if isinstance(value, bool):
        return compare(value, typed.casefold() in ("yes", "true"))
    if name == "launched":
        return compare(value[: len(typed)], typed)
    if isinstance(value, str):
        return compare(_fold_name(value), _fold_name(typed))
    unit = FIGURES[name].unit or "1"
    number = parse_quantity(typed, {"Hz": "hz", "B": "bytes", "W": "w"}.get(unit, unit))
    return any(compare(one, number) for one in (value if isinstance(value, tuple) else (value,)))
