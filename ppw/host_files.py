"""Host files: TOML tables checked key by key and made into hosts; see docs/catalogue.md."""

from __future__ import annotations

import difflib
import re
import tomllib
from dataclasses import dataclass
from itertools import pairwise
from typing import TYPE_CHECKING, Any

from ppw.errors import PpwError
from ppw.host import CACHES, FIGURES, PARTS, SCOPES, TEXTS, Figure, Host
from ppw.names import shown_name

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from ppw.host import Value

# Below this a bare number was meant in MHz or GHz.
_LEAST_HZ = 1e6
# TOML has infinities and whole numbers of any length; no figure comes near this.
_LIMIT = 1e24


def parse_host(raw: bytes, file: str) -> Host:
    """Read one TOML file. Raises `PpwError` naming ``file`` and what is wrong."""
    try:
        table = tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PpwError(f"{file}: not UTF-8 text; write the host as a TOML file") from error
    except tomllib.TOMLDecodeError as error:
        reason = str(error).replace("\n", " ")
        raise PpwError(f"{file}: not TOML: {reason}; see docs/catalogue.md") from error
    return host_of(table, file)


def host_of(table: Mapping[str, Any], file: str) -> Host:
    """Check a table and make it a host. Raises `PpwError` naming ``file`` and the key."""
    return _Reader(file).host(table)


@dataclass(frozen=True)
class _Reader:
    """Checks one file's table; every complaint names the file, the key and what to do."""

    file: str

    def host(self, table: Mapping[str, Any]) -> Host:
        self._known(table, (*TEXTS, *FIGURES, "sources"), "")
        texts = {key: self._text(table, key, "") for key in TEXTS}
        sources = self._sources(table)
        figures = {key: self._figure(key, table[key], sources) for key in FIGURES if key in table}
        host = Host(**texts, figures=figures, sources=sources)
        self._consistent(host)
        return host

    def _fail(self, key: str, wrong: str, remedy: str) -> PpwError:
        return PpwError(f"{self.file}: key {key!r}: {wrong}; {remedy}")

    def _known(self, table: Mapping[str, Any], known: tuple[str, ...], prefix: str) -> None:
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, n=1)
                remedy = f"did you mean '{near[0]}'?" if near else f"use one of {', '.join(known)}"
                raise self._fail(prefix + key, "unknown", remedy)

    def _text(self, table: Mapping[str, Any], key: str, prefix: str) -> str:
        text = table.get(key)
        if not isinstance(text, str) or not text.strip():
            wrong = "missing" if text is None else "not a text"
            raise self._fail(prefix + key, wrong, f'write {shown_name(key)} = "..."')
        return text

    def _sources(self, table: Mapping[str, Any]) -> dict[str, str]:
        sources = table.get("sources", {})
        if not isinstance(sources, dict):
            raise self._fail("sources", "not a table", "write [sources] with one citation a line")
        return {key: self._text(sources, key, "sources.") for key in sources}

    def _figure(self, key: str, entry: Any, sources: Mapping[str, str]) -> Figure:
        if not isinstance(entry, dict):
            remedy = f'write {key} = {{ value = ..., source = "..." }}'
            raise self._fail(key, "a figure without source", remedy)
        self._known(entry, PARTS, f"{key}.")
        source = self._source(key, entry, sources)
        note = self._text(entry, "note", f"{key}.") if "note" in entry else None
        value = self._value(key, entry.get("value"))
        return Figure(value, source, FIGURES[key].unit, note, self._scope(key, entry))

    def _source(self, key: str, entry: Mapping[str, Any], sources: Mapping[str, str]) -> str:
        source = entry.get("source")
        if not isinstance(source, str):
            remedy = 'add source = "..." with a key of [sources]'
            raise self._fail(key, "a figure without source", remedy)
        if source not in sources:
            name = shown_name(source)
            remedy = f'add {name} = "..." to [sources]'
            raise self._fail(key, f"source '{name}' is not in [sources]", remedy)
        return source

    def _scope(self, key: str, entry: Mapping[str, Any]) -> str | None:
        scope = entry.get("scope")
        if key in CACHES and scope not in SCOPES:
            wrong = "a cache without scope" if scope is None else f"unknown scope {scope!r}"
            raise self._fail(key, wrong, f"add scope = one of {', '.join(SCOPES)}")
        if key not in CACHES and scope is not None:
            raise self._fail(key, "only caches have a scope", "remove it")
        return scope

    def _value(self, key: str, value: Any) -> Value:
        wanted = FIGURES[key].wanted
        if value is None:
            raise self._fail(key, "no value", "add one, or leave out what is not known")
        if not _fits(wanted, value):
            raise self._fail(key, f"{value!r} is not {wanted}", f"give {wanted}")
        for number in _numbers(value):
            self._possible(key, number)
        return tuple(map(float, value)) if isinstance(value, list) else value

    def _possible(self, key: str, number: float) -> None:
        if not abs(number) < _LIMIT:
            raise self._fail(key, "not a finite figure", "leave out what is not known")
        if number <= 0:
            remedy = "give a positive value, or leave out what is not known"
            raise self._fail(key, f"{number} is not positive", remedy)
        if FIGURES[key].unit == "Hz" and number < _LEAST_HZ:
            remedy = f"frequencies are in Hz; {number} GHz is {number}e9"
            raise self._fail(key, f"{number} Hz is below 1 MHz", remedy)

    def _consistent(self, host: Host) -> None:
        for low, high in (("cores", "threads"), ("min_hz", "base_hz"), ("base_hz", "turbo_hz")):
            small, large = getattr(host, low), getattr(host, high)
            if small is not None and large is not None and small > large:
                raise self._fail(high, f"{large} is below {low} = {small}", "correct one of them")
        steps = host.steps_hz or ()
        if any(left >= right for left, right in pairwise(steps)):
            raise self._fail("steps_hz", "not ascending", "list each step once, lowest first")
        if host.dvfs is False and len(steps) > 1:
            raise self._fail("steps_hz", "several steps, yet dvfs is false", "correct one of them")


def _fits(wanted: str, value: Any) -> bool:
    """Say whether a TOML value has the asked type; true and false are not numbers."""
    if wanted == "true or false":
        return isinstance(value, bool)
    if wanted.startswith("a quarter"):
        return isinstance(value, str) and re.fullmatch(r"\d{4}-Q[1-4]", value) is not None
    if wanted.startswith("a list"):
        return isinstance(value, list) and bool(value) and all(map(_is_number, value))
    if wanted == "a whole number":
        return isinstance(value, int) and not isinstance(value, bool)
    return _is_number(value)


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _numbers(value: Any) -> Iterable[float]:
    return filter(_is_number, value if isinstance(value, list) else [value])
