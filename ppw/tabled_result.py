"""Results that are tables: their JSON is written and read back by the columns' own types."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any, ClassVar, Self

import numpy as np
import pandas as pd

from ppw.result import read_document, reads_document, records, unbounded_where_null, write_document

if TYPE_CHECKING:
    from collections.abc import Iterator

_NUMBER, _TEXT, _FLAG = "number", "text", "flag"


@dataclass(frozen=True, kw_only=True, eq=False)
class TabledResult:
    """A result whose answer is in one or more tables.

    A subclass names its kind and adds fields: tables, texts, numbers, and tuples of texts.

    Attributes
    ----------
    caveats : tuple of str
    input_digest : str
    """

    kind: ClassVar[str]

    caveats: tuple[str, ...]
    input_digest: str = field(repr=False)

    def to_json(self) -> str:
        """JSON document with ``schema_version``."""
        body: dict[str, Any] = {}
        columns: dict[str, dict[str, str]] = {}
        for name, value in self._parts():
            if isinstance(value, pd.DataFrame):
                columns[name] = {str(c): _type(value[c]) for c in value}
                value = records(value)
            body[name] = value
        return write_document(self.kind, self.input_digest, {**body, "columns": columns})

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Self:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        document = read_document(text, cls.kind)
        parts: dict[str, Any] = {"input_digest": document["input_digest"]}
        for one in fields(cls):
            if one.name == "input_digest":
                continue
            value = document[one.name]
            if one.name in document["columns"]:
                value = _table(value, document["columns"][one.name])
            parts[one.name] = tuple(value) if isinstance(value, list) else value
        return cls(**parts)

    def _parts(self) -> Iterator[tuple[str, Any]]:
        for one in fields(self):
            if one.name != "input_digest":
                yield one.name, getattr(self, one.name)


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as mappings."""
    # Without columns pandas counts no rows in some versions.
    if not len(table.columns):
        return [{} for _ in range(len(table))]
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def _type(column: pd.Series[Any]) -> str:
    if column.dtype == np.bool_:
        return _FLAG
    return _NUMBER if column.dtype.kind in "iuf" else _TEXT


def _table(rows: list[dict[str, Any]], columns: dict[str, str]) -> pd.DataFrame:
    types = {_NUMBER: np.float64, _FLAG: np.bool_}
    table = pd.DataFrame(rows, columns=list(columns))
    known = {name: types[kind] for name, kind in columns.items() if kind in types}
    table = table.astype(known)
    return unbounded_where_null(table) if {"lower", "upper"} <= set(columns) else table
