"""What all results share: the JSON document, the version, the digest of the input."""

from __future__ import annotations

import hashlib
import inspect
import json
import re
import tomllib
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields
from functools import cached_property, wraps
from html import escape
from importlib import import_module
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from measurements.errors import DAMAGE
from ppw.errors import CaveatWarning, PpwError
from ppw.results import text as tx

if TYPE_CHECKING:
    import pandas as pd


SCHEMA_VERSION = 1
R = TypeVar("R")


def write_document(
    kind: str, digest: str | None, body: Mapping[str, Any], version: int = SCHEMA_VERSION
) -> str:
    """Write a result as JSON: missing and unbounded values are null, numbers keep every digit."""
    head = {"schema_version": version, "kind": kind, "ppw_version": tx.package_version()}
    head["input_digest"] = digest
    text = json.dumps(plain({**head, **body}), indent=1, ensure_ascii=False, allow_nan=False)
    if text.replace("\n", "").isprintable():
        return text
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def read_document(
    text: str, kind: str, version: int = SCHEMA_VERSION, remedy: str = "was it written by ppw?"
) -> dict[str, Any]:
    """Read a result's JSON back. Raises `PpwError` for another kind, or schema: see ``remedy``."""
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


def read_toml(path: str | Path, subject: str, page: str) -> dict[str, Any]:
    """Read a TOML file as `parse_toml`. Raises `PpwError` where it cannot be read, too."""
    try:
        raw = Path(path).read_bytes()
    except OSError as error:
        raise PpwError(f"{path}: cannot be read: {error.strerror or error}") from error
    return parse_toml(raw, str(path), subject, page)


def parse_toml(raw: bytes, file: str, subject: str, page: str) -> dict[str, Any]:
    """Read a TOML file of a ``subject``, which the docs' ``page`` explains. Raises `PpwError`."""
    try:
        return tomllib.loads(raw.decode("utf-8"))
    except UnicodeDecodeError as error:
        raise PpwError(f"{file}: not UTF-8 text; write the {subject} as a TOML file") from error
    # Beside its own error the parser raises those of long numbers and deep nesting.
    except (ValueError, RecursionError) as error:
        reason = " ".join(str(error).split())
        raise PpwError(f"{file}: not TOML: {reason}; see docs/{page}.md") from error


def reads_document(read: Callable[[type[R], str], R]) -> Callable[[type[R], str], R]:
    """Make a ``from_json`` raise `PpwError` for whatever a damaged document leads to."""

    @wraps(read)
    def read_or_refuse(cls: type[R], text: str) -> R:
        try:
            return read(cls, text)
        except DAMAGE as error:
            reason = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
            raise PpwError(
                f"this {cls.__name__} document is damaged ({reason}): give what to_json() wrote"
            ) from error

    return read_or_refuse


class _Document(dict[str, Any]):
    """A result's JSON; what it lacks is an error of ours."""

    def __missing__(self, key: str) -> Any:
        raise PpwError(f"this {self['kind']} document lacks {key!r}: give what to_json() wrote")


def plain(value: Any) -> Any:
    """Turn numpy and nested values into JSON types; NaN and infinities become None."""
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
    """Rows of a table for JSON: missing values are None, whole floats become integers."""
    rows = table.astype(object).where(table.notna(), None).to_dict(orient="records")
    return [
        {str(k): int(v) if isinstance(v, float) and v.is_integer() else v for k, v in row.items()}
        for row in rows
    ]


def frame_digest(frame: pd.DataFrame) -> str:
    """Digest of a table's rows in any order, or that of its files where it is known."""
    import pandas as pd

    if "digest" in frame.attrs:
        return str(frame.attrs["digest"])
    rows = pd.util.hash_pandas_object(frame, index=False).to_numpy()
    # Sorted, because the same runs in another order are the same input.
    return f"sha256:{hashlib.sha256(np.sort(rows).tobytes()).hexdigest()}"


def numbers_digest(*parts: object) -> str:
    """Digest of numbers given directly."""
    return f"sha256:{hashlib.sha256(json.dumps(plain(parts)).encode()).hexdigest()}"


class Estimate(float):
    """A number that carries its unit, prediction interval and limit; arithmetic drops them.

    Attributes
    ----------
    unit : str
    lower, upper : float or None
        Prediction interval for the measured mean at the level of the result; None where there
        is none. An upper end of inf means unbounded.
    limit : float or None
        What the quantity tends to as frequency grows, inf where without bound, None if unknown.
    limit_share : float or None
        Share of a finite limit that is reached, 0 to 1.
    """

    unit: str
    lower: float | None
    upper: float | None
    limit: float | None
    limit_share: float | None

    def __new__(
        cls,
        value: float,
        unit: str = "1",
        *,
        lower: float | None = None,
        upper: float | None = None,
        limit: float | None = None,
        limit_share: float | None = None,
    ) -> Self:
        """Make an estimate; NaN in the optional numbers means None."""
        self = super().__new__(cls, value)
        self.unit = unit
        given = {"lower": lower, "upper": upper, "limit": limit, "limit_share": limit_share}
        for name, number in given.items():
            setattr(self, name, None if number is None or np.isnan(number) else float(number))
        return self

    def __getnewargs_ex__(self) -> tuple[tuple[float, str], dict[str, float | None]]:
        return (float(self), self.unit), self._optional_parts()

    def _optional_parts(self) -> dict[str, float | None]:
        """Interval and limit by name; None where the estimate has none."""
        return {n: getattr(self, n) for n in ("lower", "upper", "limit", "limit_share")}

    def to_dict(self) -> dict[str, Any]:
        """Value, unit, interval and limit as JSON knows them (inf and missing are null)."""
        return {"value": plain(float(self)), "unit": self.unit, **plain(self._optional_parts())}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Self:
        """Build an estimate from `to_dict`."""
        rest = dict(values)
        if rest["lower"] is not None and rest["upper"] is None:
            rest["upper"] = np.inf
        return cls(rest.pop("value"), rest.pop("unit"), **rest)

    def scaled(self, factor: float, unit: str) -> Estimate:
        """Multiply value, interval and limit by a positive number, in another unit."""
        rest = {k: None if v is None else v * factor for k, v in self._optional_parts().items()}
        return Estimate(self * factor, unit, **{**rest, "limit_share": self.limit_share})


# Words for what a column holds where it is no quantity with a unit.
TEXT, FLAG, COUNT, SHARE, ROW_UNIT = "text", "flag", "count", "share", "unit"
Row = Mapping[Any, Any]


class Column(NamedTuple):
    """One column of a result's table."""

    name: str  # in the data frame, the CSV file and the JSON rows
    # Unit of the values ("Hz", "s", "1"), or "text", "flag", "count", "share"; "unit" is what the
    # row has in its column ``unit``, "@name" what the result has in that attribute.
    unit: str
    title: str  # heading in print; a column without one is not printed
    meaning: str  # what the values are
    form: str = ""  # of `format` in print; empty for the one that follows from the unit
    # Columns of the lower and upper end of an interval that is printed beside the value.
    ends: tuple[str, ...] = ()
    unbounded: bool = False  # whether a missing value in JSON means infinity
    if_any: bool = False  # whether it is printed only where some row has a value
    on_pages: bool = False  # whether only pages print it
    in_text: bool = False  # whether only texts print it

    @classmethod
    def parse(cls, line: str) -> Column:
        """Read a line of a declaration: name | unit | title | meaning.

        After the unit may stand a format (".1%"), the ends of an interval ("[lower, upper]"), "or
        inf" (which JSON has as null), "if any" (printed only where a row has a value), "on
        pages" (not printed in summaries), and "in text" (not printed on pages).
        """
        name, unit, title, meaning = (part.strip() for part in line.split("|"))
        unit, _, rest = unit.partition(" ")
        inside = re.search(r"\[(\w+), (\w+)\]", rest)
        form = re.match(r"[+.]\S+", rest)
        return cls(
            name,
            unit,
            title,
            meaning,
            form=form.group() if form else "",
            ends=inside.groups() if inside else (),
            unbounded="or inf" in rest,
            if_any="if any" in rest,
            on_pages="on pages" in rest,
            in_text="in text" in rest,
        )

    def texts(
        self, row: Row, result: object, text: str | None = None, interval: str | None = None
    ) -> list[str]:
        """Return a row's value and interval as texts, or ``text`` and ``interval`` in place."""
        value = row[self.name]
        unit = row["unit"] if self.unit == ROW_UNIT else self.unit
        # The unit of the whole column stands in an attribute of the result.
        unit = str(getattr(result, unit[1:]) if unit.startswith("@") else unit)
        if text is None and self.form:
            text = "–" if value != value else format(value, self.form)
        texts = [value_text(value, unit) if text is None else text]
        if self.ends:
            lower, upper = (row[end] for end in self.ends)
            between = tx.shown_interval(value, lower, upper, unit)
            texts.append(between if interval is None else interval)
        return texts


def value_text(value: Any, unit: str) -> str:
    """Write a value for people by its unit; "–" where it is missing.

    >>> value_text(0.257, "share"), value_text(2.4e9, "Hz"), value_text(None, "flag")
    ('26%', '2.4 GHz', '–')
    """
    if value is None or value != value or value == "":
        return "–"
    if unit == TEXT:
        return str(value)
    if unit == FLAG:
        return "yes" if value else "no"
    if unit == COUNT:
        return f"{value:.0f}"
    return f"{value:.0%}" if unit == SHARE else tx.shown(value, unit)


@dataclass(frozen=True)
class Table:
    """One table of a result, declared as text: a line a column, in the order of print.

    >>> table = Table("table", "best_hz | Hz [lower_hz, upper_hz] | best | most probable step")
    >>> table.columns[0].ends
    ('lower_hz', 'upper_hz')
    """

    name: str  # attribute of the result that holds the data frame
    # Lines as `Column.parse` reads them. In print the columns ``by`` of the result come first.
    declaration: str
    title: str = ""  # heading on a page
    key: str = ""  # name in the JSON document; ``name`` where empty
    note: str = ""  # remark below the table on a page
    most: int = 40  # rows in a summary; with 0 only pages show the table
    # Text of a row for a column, in place of the one that follows from its unit.
    show: Mapping[str, Callable[[Row], str]] = field(default_factory=dict)

    @cached_property
    def columns(self) -> list[Column]:
        """Columns declared."""
        return [Column.parse(line) for line in self.declaration.strip().splitlines()]

    @property
    def names(self) -> list[str]:
        """Names of the columns declared."""
        return [column.name for column in self.columns]

    def print_rows(
        self,
        result: Any,
        most: int | None = None,
        frame: pd.DataFrame | None = None,
        *,
        page: bool = False,
    ) -> PrintedTable:
        """Rows of the result's table, or of ``frame``, as they print, the first ``most``."""
        frame = getattr(result, self.name) if frame is None else frame
        by = [name for name in result.printed_keys() if name in frame]
        columns = [c for c in self.columns if c.title and c.name in frame]
        columns = [c for c in columns if not c.if_any or frame[c.name].notna().any()]
        columns = [c for c in columns if not (c.in_text if page else c.on_pages)]
        rows = []
        for row in rows_of(frame if most is None else frame.head(most)):
            cells = tx.key_texts(by, row)
            for column in columns:
                names = column.name, next(iter(column.ends), "")
                text, interval = (self.show[n](row) if n in self.show else None for n in names)
                cells += column.texts(row, result, text, interval)
            rows.append(cells)
        # Names are the keys, and the texts before the first number.
        texts = next((i for i, c in enumerate(columns) if c.unit != TEXT), len(columns))
        header = by.copy()
        for column in columns:
            # A heading may name an attribute of the result, as in "{objective}".
            header.append(column.title.format(**vars(result)))
            header += [f"{result.level:.0%} interval"] if column.ends else []
        # Say where the rows are that are left out: CSV has the first table alone.
        in_csv = self is result.tables[0] and type(result).to_frame is Result.to_frame
        whole = "--format csv or to_frame()" if in_csv else f"--format json or .{self.name}"
        left_out = len(frame) - len(rows)
        return PrintedTable(self.title, header, rows, len(by) + texts, self.note, left_out, whole)


class PrintedTable(NamedTuple):
    """A table as it prints: the first ``keys`` columns are names, the others numbers."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    keys: int
    note: str = ""
    left_out: int = 0
    whole: str = "--format csv or to_frame()"  # where all rows are

    def lines(self) -> list[str]:
        """Return the table as text, and say how many rows it lacks."""
        more = f"… {self.left_out} more rows: use {self.whole}"
        return [tx.text_table(self.header, self.rows), *([more] if self.left_out else [])]


class Digest:
    """Digest of a result's input; a table is hashed, which takes long, when that is needed."""

    def __get__(self, result: object | None, kind: type[Any]) -> str | None:
        """Return the digest of a result, "sha256:…"."""
        if result is None:
            # So that a data class takes it as a field without a default.
            raise AttributeError("input_digest is an attribute of results")
        known: str | pd.DataFrame | None = vars(result)["input_digest"]
        if known is not None and not isinstance(known, str):
            known = vars(result)["input_digest"] = frame_digest(known)
        return known

    # Checkers take what is set for what is got, so this says Any.
    def __set__(self, result: object, digest: Any) -> None:
        """Keep the digest (str or None), or the table (pandas.DataFrame) to make it of."""
        vars(result)["input_digest"] = digest


@dataclass(frozen=True, kw_only=True, eq=False)
class Result:
    """Answer to a question: tables, the facts they rest on, and caveats.

    A subclass names its ``kind``, declares its ``tables``, and adds fields for them and for
    texts, numbers and tuples of texts. Print, CSV, JSON and page follow from these.

    Attributes
    ----------
    caveats : tuple of str
        What could mislead, in sentences.
    input_digest : str or None
        Digest of the input.
    """

    kind: ClassVar[str]
    tables: ClassVar[tuple[Table, ...]] = ()

    caveats: tuple[str, ...]
    input_digest: Digest = Digest()

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Add the columns of the declared tables to the documentation of the class."""
        super().__init_subclass__(**kwargs)
        # A data class writes a repr of all fields where the class itself has none.
        cls.__repr__ = Result.__repr__  # type: ignore[method-assign]
        if cls.__doc__ and "tables" in cls.__dict__:
            cls.__doc__ = inspect.cleandoc(cls.__doc__) + "".join(map(_columns_section, cls.tables))

    def __repr__(self) -> str:
        """Name the kind and say the answer, or count the rows; ``print`` writes all of it."""
        said = self.sentences()[:1]
        rows = [f"{len(getattr(self, table.name))} rows" for table in self.tables[:1]]
        return f"<{type(self).__name__}: {tx.printable((said or rows or ['one answer'])[0])}>"

    def __str__(self) -> str:
        """Write the answer, its tables and the caveats as text, as `summary`."""
        return self.summary()

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the first table."""
        frame: pd.DataFrame = getattr(self, self.tables[0].name)
        return frame.copy()

    def verdict(self) -> str | list[str]:
        """Say the answer in a sentence or several."""
        return []

    def sentences(self) -> list[str]:
        """Return the sentences of the verdict, one or several."""
        said = self.verdict()
        return [said] if isinstance(said, str) else said

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return the tables as they print; of those behind the first, the ones that have rows.

        Parameters
        ----------
        most : int, optional
            Number of rows of each on a page; by default the tables and rows of a summary.
        """
        return [
            table.print_rows(self, table.most if most is None else most, page=most is not None)
            for table in self.tables
            if (table.most or most is not None)
            and any(column.title for column in table.columns)
            and (table is self.tables[0] or len(getattr(self, table.name)))
        ]

    def printed_keys(self) -> Sequence[str]:
        """Columns that come first in every printed table; by default the grouping columns."""
        return getattr(self, "by", ())

    def text_parts(self) -> list[str]:
        """Sentences and tables of the summary, in their order."""
        return [*self.sentences(), *(line for t in self.printed_tables() for line in t.lines())]

    def summary(self) -> str:
        """Write the answer, its tables and the caveats as text."""
        return tx.summary_text(self.text_parts(), self.caveats)

    def to_html(self, path: str | Path | None = None) -> str:
        """Write the report: one HTML page with everything inside, into ``path`` if it is given.

        Raises
        ------
        PpwError
            For a result that has no page.
        """
        # Questions import no pages: the page stands in the room of the result.
        room = type(self).__module__.rpartition(".")[0]
        pages = import_module(f"{room}.report").PAGES
        if self.kind not in pages:
            raise PpwError(f"a {self.kind} has no page: summary() and to_json() have all of it")
        page = str(pages[self.kind](self).render())
        if path is not None:
            tx.write_text(page, path)
        return page

    def to_markdown(self) -> str:
        """Write the sentences, tables and caveats as Markdown, for a pull request."""
        first, *more = self.sentences() or [self.kind]
        lines = [f"**{_markdown(first)}**", "", *(f"- {_markdown(text)}" for text in more)]
        for table in self.printed_tables():
            rule = ["---" if i < table.keys else "---:" for i in range(len(table.header))]
            rows = [[*map(_markdown, row)] for row in (table.header, *table.rows)]
            texts = [f"| {' | '.join(row)} |" for row in (rows[0], rule, *rows[1:])]
            lines += ["", *texts, *table.lines()[1:]]
        return "\n".join([*lines, "", *(f"- caveat: {_markdown(text)}" for text in self.caveats)])

    def _repr_html_(self) -> str:
        """Sentences, tables and caveats for a notebook."""
        parts = [f"<p>{escape(tx.printable(text))}</p>" for text in self.sentences()]
        parts += [_html_table(table) for table in self.printed_tables()]
        parts += [f"<p><b>Caveat:</b> {escape(tx.printable(text))}</p>" for text in self.caveats]
        return "\n".join(parts)

    def to_json(self, path: str | Path | None = None) -> str:
        """JSON document with ``schema_version``, written into ``path`` if it is given.

        A table is a list of objects, one a row.
        """
        import pandas as pd

        body: dict[str, Any] = {}
        columns: dict[str, dict[str, str]] = {}
        for key, value in self._document_fields().items():
            if isinstance(value, pd.DataFrame):
                kinds = {"b": "flag", "i": "count", "u": "count", "f": "number"}
                columns[key] = {str(c): kinds.get(value[c].dtype.kind, "text") for c in value}
            body[key] = records(value) if isinstance(value, pd.DataFrame) else value
        document = write_document(self.kind, self.input_digest, {**body, "columns": columns})
        if path is not None:
            tx.write_text(document, path)
        return document

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Self:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        result = cls(**cls._read_fields(read_document(text, cls.kind)))
        # Some of what is written is computed from the tables, which may lack what that takes.
        result._document_fields()
        return result

    @classmethod
    def _read_fields(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        """Fields of a document, tables as data frames."""
        types = document.get("columns") or {}
        parts: dict[str, Any] = {}
        tables = {table.name: table for table in cls.tables}
        for one in _json_fields(cls):
            key = _json_key(cls, one)
            is_optional = one.default is not MISSING or one.default_factory is not MISSING
            if key not in document and is_optional:
                continue
            value = document[key]
            if one.name in tables or key in types:
                value = _read_table(value, tables.get(one.name), types.get(key))
            parts[one.name] = tuple(value) if isinstance(value, list) else value
        return {**parts, "input_digest": document["input_digest"]}

    def _document_fields(self) -> dict[str, Any]:
        """Fields by their names in the document, tables as data frames."""
        return {_json_key(type(self), f): getattr(self, f.name) for f in _json_fields(type(self))}


def _json_fields(kind: type[Result]) -> list[Field[Any]]:
    """Fields of a result that its JSON document holds, caveats last.

    A field with ``metadata={"json": False}`` is not among them, as the runs behind an answer; one
    with ``metadata={"key": "name"}`` has that name there.
    """
    written = [f for f in fields(kind) if f.name != "input_digest" and f.metadata.get("json", True)]
    # Of a document that lacks much, say what its own kind of result has first.
    return sorted(written, key=lambda f: f.name == "caveats")


def _json_key(kind: type[Result], one: Field[Any]) -> str:
    """Name of a field in the JSON document, which may be that of its table."""
    declared = (table.key for table in kind.tables if table.name == one.name and table.key)
    return next(declared, one.metadata.get("key", one.name))


def _columns_section(table: Table) -> str:
    """Section of a docstring on the columns of a table."""
    rows = [f"* ``{c.name}`` ({c.unit}): {c.meaning}" for c in table.columns]
    return "\n\n".join(["", f"Columns of ``{table.name}``:", "\n".join(rows)])


def _markdown(text: str) -> str:
    """Escape what Markdown and HTML would take as marks."""
    return re.sub(r"([\\|*`<\[\]])", r"\\\1", tx.printable(text))


def _html_table(table: PrintedTable) -> str:
    head = "".join(f"<th>{escape(tx.printable(title))}</th>" for title in table.header)
    rows = ""
    for row in table.rows:
        cells = "".join(f"<td>{escape(tx.shown_name(text, 160))}</td>" for text in row)
        rows += f"<tr>{cells}</tr>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{rows}</tbody></table>"


def rows_of(table: pd.DataFrame) -> list[dict[str, Any]]:
    """Rows of a table as dicts by column name."""
    # Without columns pandas counts no rows in some versions.
    if not len(table.columns):
        return [{} for _ in range(len(table))]
    return [{str(k): v for k, v in row.items()} for row in table.to_dict(orient="records")]


def _read_table(
    rows: list[dict[str, Any]],
    declared: Table | None,
    types: Mapping[str, str] | Sequence[str] | None,
) -> pd.DataFrame:
    """Build a table of JSON rows, with the types of the document or the declared ones."""
    import pandas as pd

    names = None if types is None else list(types)
    if names is None and declared and not rows:
        names = declared.names
    table = pd.DataFrame(rows, columns=names)
    if not table.columns.is_unique:
        raise ValueError(f"columns {', '.join(map(str, table.columns))}: one name is there twice")
    columns = {c.name: c for c in declared.columns if c.name in table} if declared else {}
    if not isinstance(types, Mapping):
        # Documents of version 0.1.0 name no types: those declared hold.
        types = {name: _KINDS.get(column.unit, "number") for name, column in columns.items()}
    known = {name: _DTYPES[kind] for name, kind in types.items() if kind in _DTYPES}
    table = table.astype(known)
    for name, column in columns.items():
        if column.unit == FLAG and name not in known:
            # Some rows have neither: pandas would make flags of the rest.
            table[name] = table[name].astype(object)
        if column.unbounded:
            table[name] = table[name].fillna(np.inf)
    if {"lower", "upper"} <= set(table):
        unbounded = table["lower"].notna() & table["upper"].isna()
        table["upper"] = table["upper"].mask(unbounded, np.inf)
    return table


_KINDS = {TEXT: "text", FLAG: "text", ROW_UNIT: "number"}
_DTYPES: dict[str, type[Any]] = {"count": np.int64, "number": np.float64, "flag": np.bool_}


def warn_caveats(caveats: Iterable[str]) -> None:
    """Raise each caveat as a `CaveatWarning` where ppw was called."""
    frame, level = inspect.currentframe(), 0
    while frame and str(frame.f_globals.get("__name__")).startswith("ppw."):
        frame, level = frame.f_back, level + 1
    for caveat in caveats:
        warnings.warn(tx.printable(caveat), CaveatWarning, stacklevel=level + 1)
