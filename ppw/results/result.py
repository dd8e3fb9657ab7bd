"""What all results share: the JSON document, the version, the digest of the input."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields
from functools import wraps
from typing import TYPE_CHECKING, Any, ClassVar, Self, TypeVar

import numpy as np

from measurements.errors import DAMAGE
from ppw.errors import PpwError
from ppw.results.text import package_version

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pandas as pd


SCHEMA_VERSION = 1
R = TypeVar("R")


def write_document(
    kind: str, digest: str | None, body: Mapping[str, Any], version: int = SCHEMA_VERSION
) -> str:
    """Write a result as JSON: missing and unbounded values are null, numbers keep every digit."""
    head = {
        "schema_version": version,
        "kind": kind,
        "ppw_version": package_version(),
        "input_digest": digest,
    }
    text = json.dumps(plain({**head, **body}), indent=1, ensure_ascii=False, allow_nan=False)
    return _without_controls(text)


def _without_controls(document: str) -> str:
    """Spell what would act on a terminal, or is no text at all, as JSON spells it."""
    if document.replace("\n", "").isprintable():
        return document
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in document)


def read_document(
    text: str, kind: str, version: int = SCHEMA_VERSION, remedy: str = "was it written by ppw?"
) -> dict[str, Any]:
    """Read a result's JSON back.

    Raises
    ------
    PpwError
        When it is another kind or schema; ``remedy`` says what to do about the latter.
    """
    try:
        document = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise PpwError(f"not JSON: {error}: give what to_json() wrote") from error
    said = document.get("schema_version") if isinstance(document, dict) else None
    named = document.get("kind") if said is not None else None
    # A document of another kind has its own versions.
    if said != version and named in (None, kind):
        raise PpwError(f"not a document of schema_version {version}: {remedy}")
    if named != kind:
        raise PpwError(f"this document is a {named!r}, not a {kind!r}")
    return _Document(document)


def reads_document(read: Callable[[type[R], str], R]) -> Callable[[type[R], str], R]:
    """Make a ``from_json`` raise `PpwError` for whatever a damaged document leads to."""

    @wraps(read)
    def checked(cls: type[R], text: str) -> R:
        try:
            return read(cls, text)
        except DAMAGE as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise PpwError(
                f"this {cls.__name__} document is damaged ({reason}): give what to_json() wrote"
            ) from error

    return checked


class _Document(dict[str, Any]):
    """A result's JSON; what it lacks is an error of ours."""

    def __missing__(self, key: str) -> Any:
        raise PpwError(f"this {self['kind']} document lacks {key!r}: give what to_json() wrote")


def plain(value: Any) -> Any:
    """Turn numpy and nested values into what JSON knows."""
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, (str, type(None), bool, np.bool_)):
        return bool(value) if isinstance(value, np.bool_) else value
    if isinstance(value, (Sequence, np.ndarray)):
        return [plain(v) for v in value]
    if isinstance(value, (int, np.integer)):
        return int(value)
    number = float(value)
    if not np.isfinite(number):
        return None
    return number


def records(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as JSON objects; whole numbers of key columns stay whole."""
    rows = table.astype(object).where(table.notna(), None).to_dict(orient="records")
    return [{str(k): _whole(v) for k, v in row.items()} for row in rows]


def as_floats(table: pd.DataFrame, *, but: Collection[str]) -> pd.DataFrame:
    """Numbers as they were before JSON made whole ones integers and missing ones null.

    Raises ValueError for a column that is there twice.
    """
    if not table.columns.is_unique:
        raise ValueError(f"columns {', '.join(map(str, table.columns))}: one is there twice")
    return table.astype({column: np.float64 for column in table if column not in but})


def unbounded_where_null(table: pd.DataFrame) -> pd.DataFrame:
    """Put the inf back that JSON cannot say: an interval with a lower end has an upper one."""
    unbounded = table["lower"].notna() & table["upper"].isna()
    return table.assign(upper=table["upper"].mask(unbounded, np.inf))


def _whole(value: Any) -> Any:
    return int(value) if isinstance(value, float) and value.is_integer() else value


def frame_digest(frame: pd.DataFrame) -> str:
    """Digest of a table's content: of the files it was read from where known."""
    import pandas as pd

    if "digest" in frame.attrs:
        return str(frame.attrs["digest"])
    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    # Sorted, because the same runs in another order are the same input.
    return f"sha256:{hashlib.sha256(np.sort(rows).tobytes()).hexdigest()}"


def numbers_digest(*parts: object) -> str:
    """Digest of numbers given directly."""
    return f"sha256:{hashlib.sha256(json.dumps(plain(parts)).encode()).hexdigest()}"


# Results that are tables: their JSON is written and read back by the columns' own types.


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
        import pandas as pd

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
    import pandas as pd

    types = {_NUMBER: np.float64, _FLAG: np.bool_}
    table = pd.DataFrame(rows, columns=list(columns))
    known = {name: types[kind] for name, kind in columns.items() if kind in types}
    table = table.astype(known)
    return unbounded_where_null(table) if {"lower", "upper"} <= set(columns) else table


# Plain text for the terminal: tables, and what a result says in all.
