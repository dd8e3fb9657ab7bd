"""Import files of other programs: recognise the format, read the runs, ask for what is lacking."""

from __future__ import annotations

import csv
import importlib
import re
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from measurements import timeseries
from measurements.errors import DAMAGE, MeasurementError, first_line
from measurements.imports import FORMATS
from measurements.table import memory_budget, schema
from measurements.table.reading import tidy_runs

# What every run needs, with an example; a power has a scope, which no number shows.
_ASKED = {
    "workload": "--set workload=NAME",
    "freq_hz": "--set freq=2.4GHz",
    "power_source": "--set power_source=rapl:package",
}
# Formats are told by the first bytes of a file.
_START = 65536


def format_names() -> list[str]:
    """List the names of all formats: of other programs, and of logs of a host."""
    return [*FORMATS, *_log_formats()]


def _log_formats() -> list[str]:
    return [name for name in timeseries.reading.FORMATS if name not in FORMATS]


def recognise_format(path: str) -> str | None:
    """Name the format that a file begins as, or None for any other file."""
    try:
        with Path(path).open("rb") as file:
            start = file.read(_START).decode(errors="replace")
    except (OSError, ValueError):
        return None
    for name, form in FORMATS.items():
        if re.search(form.found, start):
            return name
    return timeseries.reading.recognise_log(path)


def import_runs(
    paths: str | Sequence[str],
    *,
    source: str | None = None,
    values: Mapping[str, str] | None = None,
    names: str | None = None,
) -> pd.DataFrame:
    """Read files of another program as a runs table.

    Parameters
    ----------
    paths : str or sequence of str
        Files, or addresses (https://…/api/v1/query_range?…) that a Prometheus answers.
    source : str, optional
        Format of the files, a name in `measurements.imports.FORMATS` or of a log of a host, such
        as ``sar``. By default each file's first bytes tell it.
    values : mapping of str to str, optional
        What the files do not say, by column: ``{"freq": "2.4GHz", "workload": "sort"}``.
    names : str, optional
        Pattern of the file names, with columns in braces: ``{workload}-{freq_ghz}.txt``.

    Returns
    -------
    pandas.DataFrame
        A runs table in SI units, a row a run, in the order of the files; ``attrs["read"]`` says in
        a sentence what was read.

    Raises
    ------
    MeasurementError
        For a file that is not of the format, and where no file, value or name gives the frequency,
        the workload or the sensor of the power.
    """
    files = [paths] if isinstance(paths, str) else list(paths)
    values, notes = dict(values or {}), dict[str, None]()
    found = [
        {**run, **_values_in_name(path, names), **values}
        for path in files
        for run in _read_file(source, path, values.get("hardware_threads"), notes)
    ]
    named = " ".join(path.partition("?")[0] if "://" in path else path for path in files)
    try:
        table = pd.DataFrame(found)
        table.attrs["source"] = named
        runs = tidy_runs(table)
    except UnicodeEncodeError as error:
        raise MeasurementError(
            f"{named}: {error.object[:40]!r} is no text (it holds half of a character): correct it"
        ) from error
    if np.isinf(runs.select_dtypes("number").to_numpy(dtype=float)).any():
        raise MeasurementError(f"{named}: has a number that is too large")
    if lacking := [*_lacking_columns(runs)]:
        asked = " ".join(_ASKED[name] for name in lacking)
        raise MeasurementError(
            f"{named}: the files do not say {' and '.join(lacking)}: ppw import with "
            f"{asked}, or with --names and a pattern of the file names"
        )
    runs.attrs[schema.READ] = [
        f"read {len(runs)} run{'s' * (len(runs) != 1)} with {', '.join(runs.columns)}"
    ]
    runs.attrs[schema.READ] += notes
    return runs


def _lacking_columns(runs: pd.DataFrame) -> Iterator[str]:
    """Name the columns that some run lacks and that nobody may guess."""
    has_power = runs.reindex(columns=["power_w", "energy_j"]).notna().any(axis=1)
    is_missing = runs.reindex(columns=[*_ASKED]).isna()
    is_missing["power_source"] &= has_power
    yield from is_missing.columns[is_missing.any()]


def _read_file(
    source: str | None, path: str, cpus: str | None, notes: dict[str, None]
) -> list[Mapping[str, Any]]:
    """Read the runs of one file. Raises `MeasurementError` for one without any."""
    is_url = path.startswith(("http://", "https://"))
    name = "prometheus" if is_url else source or recognise_format(path)
    if name in _log_formats():
        return [_read_log(name, path, cpus, notes)]
    if name not in FORMATS:
        raise MeasurementError(
            f"{path}: {f'no format {name!r}' if name else 'its format is not recognised'}; the "
            f"formats are {', '.join(format_names())}"
        )
    form = FORMATS[name]
    module = importlib.import_module(f"measurements.imports.{form.module}")
    text = module.fetch(path) if is_url else _read_text(path)
    path = path.partition("?")[0] if is_url else path
    try:
        runs = [*getattr(module, f"read_{name.replace('-', '_')}")(text)]
    except (*DAMAGE, csv.Error) as error:
        raise MeasurementError(f"{path}: is no {form.title}: {first_line(error)}") from error
    if not runs:
        raise MeasurementError(f"{path}: holds no run: give {form.title}")
    return runs


def _read_log(name: str, path: str, cpus: str | None, notes: dict[str, None]) -> Mapping[str, Any]:
    """Make one run of a log of a host: its time, and the amounts that a runs table has."""
    count = None if cpus is None else float(pd.to_numeric(cpus, errors="coerce"))
    log = timeseries.read_time_series(path, format=name, cpus=count)
    notes |= {f.text.replace("--cpus", "--set hardware_threads=N"): None for f in log.findings}
    frame, seconds = log.frame, log.frame["interval_s"]
    start_s = frame["time_s"].iloc[0] - (seconds.iloc[0] if seconds.iloc[0] > 0 else 0)
    run: dict[str, Any] = {"time_s": log.seconds}
    if 0 < start_s < 2**32:
        run["started_at"] = datetime.fromtimestamp(start_s, UTC).isoformat()
    for column in [name for name in schema.COLUMNS if name in frame]:
        if timeseries.series.COLUMNS[column].kind == "amount":
            # An interval whose amount is not known is taken to be like the others.
            known_s = seconds[frame[column].notna()].sum()
            run[column] = frame[column].sum() * (log.seconds / known_s) if known_s else None
    return run | ({"host": frame["host"].iloc[0]} if "host" in frame else {})


def _read_text(path: str) -> str:
    try:
        with Path(path).open("rb") as file:
            return memory_budget.read_whole(file, path).decode("utf-8-sig", errors="replace")
    except OSError as error:
        raise MeasurementError(f"{path}: cannot be read: {error.strerror or error}") from error


def _values_in_name(path: str, names: str | None) -> dict[str, str]:
    """Read the values that a file name holds at the places of ``{column}`` in a pattern."""
    if not names:
        return {}
    parts = re.split(r"\{(\w+)\}", names)
    pattern = "".join(f"(?P<{p}>.+?)" if at % 2 else re.escape(p) for at, p in enumerate(parts))
    try:
        match = re.fullmatch(pattern, Path(path).name)
    except re.error as error:
        raise MeasurementError(f"pattern of names {names!r}: {error}") from error
    if match is None:
        raise MeasurementError(f"{path}: its name is not of the form {names}")
    return match.groupdict()
