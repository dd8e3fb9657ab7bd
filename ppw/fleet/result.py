"""Answers over a fleet: the answer itself, where it comes from, and what could not be used."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from ppw.errors import PpwError
from ppw.fleet.faults import Fault
from ppw.parameters import FittedParameters
from ppw.path_length import PathLengths
from ppw.quality import Quality
from ppw.result import read_document, reads_document, write_document
from ppw.runs_projection import RunsProjection
from ppw.validation import Validation

if TYPE_CHECKING:
    from pathlib import Path

    import ibis.expr.types as ir
    import pandas as pd
    from ibis.backends import BaseBackend
    from matplotlib.axes import Axes

R = TypeVar("R", FittedParameters, RunsProjection, Validation, Quality, PathLengths)
_ANSWERS: dict[str, type[Any]] = {
    "parameters": FittedParameters,
    "runs_projection": RunsProjection,
    "validation": Validation,
    "quality": Quality,
    "path_lengths": PathLengths,
}
_MOST_FAULTS = 20


@dataclass(frozen=True)
class Origin:
    """What an answer was made of.

    ``engine`` that read it, ``files``, ``runs`` and the ``cells`` that they were condensed to;
    ``unusable`` runs have values that cannot be and took no part.
    """

    engine: str
    files: int
    runs: int
    cells: int
    unusable: int


@dataclass(frozen=True, kw_only=True, eq=False)
class FleetAnswer(Generic[R]):
    """An answer over a fleet.

    Attributes
    ----------
    answer : FittedParameters, RunsProjection, Validation, Quality or PathLengths
        As the same question gives in memory.
    origin : Origin
    faults : tuple of Fault
        What could not be used, by file; the answer is of the rest.
    connection : ibis connection or None
        Engine that read the runs; None when read from JSON.
    """

    answer: R
    origin: Origin
    faults: tuple[Fault, ...] = ()
    connection: BaseBackend | None = field(default=None, repr=False, compare=False)

    @property
    def caveats(self) -> tuple[str, ...]:
        """Caveats of the answer."""
        return self.answer.caveats

    @property
    def input_digest(self) -> str | None:
        """Digest of the cells: the runs themselves are too many to read for it."""
        return self.answer.input_digest

    def to_frame(self) -> pd.DataFrame:
        """Return a copy of the answer's table."""
        return self.answer.to_frame()

    def to_table(self) -> ir.Table:
        """Answer as a table of the engine, to join with others there.

        Raises
        ------
        PpwError
            When the answer was read from JSON, and has no engine.
        """
        import pyarrow as pa

        from ppw.fleet.source import registered

        if self.connection is None:
            raise PpwError("this answer was read from JSON and has no engine: use to_frame()")
        return registered(self.connection, pa.Table.from_pandas(_arrow(self), preserve_index=False))

    def write(self, path: str | Path) -> None:
        """Write the answer's table as Parquet, CSV or JSON lines, by the ending; whole or not."""
        from measurements import write_runs

        write_runs(_arrow(self), path)

    def summary(self) -> str:
        """Say the answer, what it was made of, and at most 20 faults."""
        o = self.origin
        files = f" in {o.files:,} files" if o.files else ""
        lines = [
            self.answer.summary(),
            f"From {o.runs:,} runs{files}, condensed to {o.cells:,} cells by {o.engine}.",
            *(f"fault: {fault}" for fault in self.faults[:_MOST_FAULTS]),
        ]
        if len(self.faults) > _MOST_FAULTS:
            lines.append(f"… {len(self.faults) - _MOST_FAULTS} more faults: use --format json")
        return "\n".join(lines)

    def to_json(self) -> str:
        """JSON document with ``schema_version``; the answer's own document is in ``answer``."""
        body = {
            "answer": json.loads(self.answer.to_json()),
            "origin": asdict(self.origin),
            "faults": [fault._asdict() for fault in self.faults],
            "caveats": self.caveats,
        }
        return write_document("fleet", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> FleetAnswer[Any]:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "fleet")
        kind = _ANSWERS.get(d["answer"].get("kind"))
        if kind is None:
            raise PpwError(f"this fleet document holds a {d['answer'].get('kind')!r}")
        return cls(
            answer=kind.from_json(json.dumps(d["answer"])),
            origin=Origin(**d["origin"]),
            faults=tuple(Fault(**fault) for fault in d["faults"]),
        )

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw the answer."""
        return self.answer.plot(ax)


def _arrow(answer: FleetAnswer[Any]) -> pd.DataFrame:
    """Table with the types that a file has: categories as text, True, False or missing."""
    table = answer.to_frame()
    text = {c: "str" for c in table if str(table[c].dtype) == "category"}
    flags = {c: "boolean" for c in ("covered",) if c in table}
    return table.astype({**text, **flags})
