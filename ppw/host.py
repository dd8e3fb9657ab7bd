"""One machine of the catalogue: its figures, each with the source that states it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar, cast, overload

from ppw.errors import PpwError
from ppw.names import printable_lines
from ppw.result import read_document, reads_document, write_document

if TYPE_CHECKING:
    from collections.abc import Mapping

    import pandas as pd

Value = bool | int | float | str | tuple[float, ...]


class FigureKind(NamedTuple):
    """What one figure may be: the TOML type that is asked for, and its unit."""

    wanted: str
    unit: str | None = None


FIGURES = {
    "cores": FigureKind("a whole number", "1"),
    "threads": FigureKind("a whole number", "1"),
    "base_hz": FigureKind("a frequency", "Hz"),
    "turbo_hz": FigureKind("a frequency", "Hz"),
    "min_hz": FigureKind("a frequency", "Hz"),
    "step_hz": FigureKind("a frequency", "Hz"),
    "steps_hz": FigureKind("a list of frequencies", "Hz"),
    "l1i_bytes": FigureKind("a whole number", "B"),
    "l1d_bytes": FigureKind("a whole number", "B"),
    "l2_bytes": FigureKind("a whole number", "B"),
    "l3_bytes": FigureKind("a whole number", "B"),
    "memory_bandwidth_bytes_s": FigureKind("a number", "B/s"),
    "tdp_w": FigureKind("a number", "W"),
    "launch_price_usd": FigureKind("a number", "USD"),
    "rapl": FigureKind("true or false"),
    "dvfs": FigureKind("true or false"),
    "launched": FigureKind("a quarter such as '2010-Q1'"),
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
class Figure:
    """One figure of a host.

    Attributes
    ----------
    value : bool, int, float, str or tuple of float
        The figure itself; a tuple only for ``steps_hz``.
    source : str
        Who says so: a key of :attr:`Host.sources`.
    unit : str or None
        ``"Hz"``, ``"B"``, ``"B/s"``, ``"W"``, ``"USD"`` or ``"1"``; none for words and yes/no.
    note : str or None
        What to know before using it.
    scope : str or None
        For a cache: one ``"core"``, a ``"cluster"`` of cores, or the whole ``"package"`` shares it.
    """

    value: Value
    source: str
    unit: str | None = None
    note: str | None = None
    scope: str | None = None


T = TypeVar("T")


class _Known(Generic[T]):
    """Reads one figure's plain value from a host; None where the figure is not known."""

    def __set_name__(self, owner: type, name: str) -> None:
        self._key = name

    @overload
    def __get__(self, host: None, owner: type) -> _Known[T]: ...
    @overload
    def __get__(self, host: Host, owner: type) -> T | None: ...
    def __get__(self, host: Host | None, owner: type) -> _Known[T] | T | None:
        if host is None:
            return self
        figure = host.figures.get(self._key)
        return None if figure is None else cast("T", figure.value)


@dataclass(frozen=True)
class Host:
    """A machine of the catalogue. A figure that is not known is None; all are of one package.

    Attributes
    ----------
    name, maker, kind : str
        For example ``"Xeon X5670"``, ``"Intel"``, ``"processor"``.
    family : str
        Microarchitecture family; a baseline holds within one family only.
    figures : mapping of str to Figure
        Every known figure with its source.
    sources : mapping of str to str
        Citation of each source, with its address.
    cores, threads : int or None
        Physical cores and hardware threads.
    base_hz, turbo_hz, min_hz : float or None
        Base (nominal), highest turbo and lowest core frequency in Hz.
    step_hz : float or None
        The frequencies that can be set are whole multiples of this many Hz.
    steps_hz : tuple of float or None
        The same as a list, where the file has one; :func:`host_steps` takes either.
    l1i_bytes, l1d_bytes, l2_bytes, l3_bytes : int or None
        Size in bytes of one cache; its figure's ``scope`` says who shares it.
    memory_bandwidth_bytes_s : float or None
        Bytes per second as stated, not as measured.
    tdp_w : float or None
        Thermal design power in W: what to cool, not what is drawn.
    launch_price_usd : float or None
        Price at launch in USD.
    rapl, dvfs : bool or None
        Whether it counts its own energy, and whether its frequency can be set.
    launched : str or None
        Quarter of the launch, such as ``"2010-Q1"``.
    """

    name: str
    maker: str
    kind: str
    family: str
    figures: Mapping[str, Figure] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)

    cores = _Known[int]()
    threads = _Known[int]()
    base_hz = _Known[float]()
    turbo_hz = _Known[float]()
    min_hz = _Known[float]()
    step_hz = _Known[float]()
    steps_hz = _Known[tuple[float, ...]]()
    l1i_bytes = _Known[int]()
    l1d_bytes = _Known[int]()
    l2_bytes = _Known[int]()
    l3_bytes = _Known[int]()
    memory_bandwidth_bytes_s = _Known[float]()
    tdp_w = _Known[float]()
    launch_price_usd = _Known[float]()
    rapl = _Known[bool]()
    dvfs = _Known[bool]()
    launched = _Known[str]()

    def summary(self) -> str:
        """Describe the host in text: each figure with its source, and what is not known."""
        lines = [f"{self.name} ({self.maker}, {self.family}, {self.kind})"]
        lines += [_figure_line(key, figure) for key, figure in self.figures.items()]
        missing = [key for key in FIGURES if key not in self.figures]
        if missing:
            lines.append(f"  not known: {', '.join(missing)}")
        lines += ["Sources", *(f"  [{key}] {text}" for key, text in self.sources.items())]
        return printable_lines("\n".join(lines))

    def to_frame(self) -> pd.DataFrame:
        """Tabulate the figures.

        Returns
        -------
        pandas.DataFrame
            One row a figure: ``host``, ``figure``, ``value``, ``unit``, ``scope``, ``source``
            (the citation in full) and ``note``.
        """
        import pandas as pd

        columns = ["host", "figure", "value", "unit", "scope", "source", "note"]
        rows = [
            (self.name, key, f.value, f.unit, f.scope, self.sources[f.source], f.note)
            for key, f in self.figures.items()
        ]
        return pd.DataFrame(rows, columns=columns, dtype=object)

    def to_json(self) -> str:
        """Write the host as JSON; the unit is in each key's name."""
        figures = {key: _bare(figure) for key, figure in self.figures.items()}
        texts = {key: getattr(self, key) for key in TEXTS}
        return write_document(
            "host", None, {"host": {**texts, "figures": figures, "sources": self.sources}}
        )

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Host:
        """Read what :meth:`to_json` wrote.

        Raises
        ------
        PpwError
            If the text is not JSON, is of another schema version, or a figure cannot be.
        """
        from ppw.host_files import host_of

        table = read_document(text, "host").get("host")
        figures = table.get("figures") if isinstance(table, dict) else None
        if table is None or not isinstance(figures, dict):
            raise PpwError("host JSON: key 'figures': must be a table; write it anew")
        texts = {key: table[key] for key in (*TEXTS, "sources") if key in table}
        return host_of(texts | figures, "host JSON")


def host_steps(host: Host) -> tuple[float, ...]:
    """Frequency steps that a user can ask of a host, without turbo.

    Parameters
    ----------
    host : Host
        A machine of the catalogue.

    Returns
    -------
    tuple of float
        Hz, ascending: ``steps_hz`` where listed; the base frequency alone where there is no
        frequency scaling; else whole multiples of ``step_hz`` from ``min_hz`` to ``base_hz``.
        Empty where these are not known.
    """
    if host.steps_hz is not None:
        return host.steps_hz
    if host.dvfs is False and host.base_hz is not None:
        return (float(host.base_hz),)
    if host.min_hz is None or host.base_hz is None or host.step_hz is None:
        return ()
    # Makers print 2.93 GHz for 22 x 133.33 MHz, so the ratio is rounded, not floored.
    low, high = round(host.min_hz / host.step_hz), round(host.base_hz / host.step_hz)
    return tuple(float(round(ratio * host.step_hz)) for ratio in range(low, high + 1))


def _bare(figure: Figure) -> dict[str, Any]:
    parts = {key: getattr(figure, key) for key in PARTS}
    return {key: part for key, part in parts.items() if part is not None}


def _figure_line(key: str, figure: Figure) -> str:
    scope = f" a {figure.scope}" if figure.scope else ""
    note = f" ({figure.note})" if figure.note else ""
    return f"  {key:<25}{_readable(figure)}{scope} [{figure.source}]{note}"


def _readable(figure: Figure) -> str:
    value = figure.value
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str):
        return value
    numbers = value if isinstance(value, tuple) else (value,)
    return ", ".join(_quantity(number, figure.unit or "") for number in numbers)


def _quantity(number: float, unit: str) -> str:
    for scale, word in _SHOWN.get(unit, ()):
        if number >= scale:
            return f"{number / scale:.7g} {word}"
    return f"{number:.10g} {unit}".removesuffix(" 1")
