"""What a runs table or its grouping shows that could mislead: mixtures, repeats, vague watts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from measurements.table.headers import list_names
from measurements.table.schema import COLUMNS, FILE_COLUMN, ROW_COLUMN
from ppw.runs import groups as gr
from ppw.runs.checks import FLAGS
from ppw.runs.expressions import Values, absolute
from ppw.runs.metrics import values

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import pandas as pd

    from fitting.regression.lines import FloatArray, IntArray
    from ppw.results.caveats import Mask
    from ppw.runs.metrics import Metric


# Columns that ppw does not know and that tell runs of one group apart: a host by another name.


# More values than this name runs, not kinds of runs.
_MOST_VALUES = 20
_MOST_ROWS = 200_000
# Of what is left of the runs after the clock: the share that the column has to explain, how far
# apart it sets its values, and how improbable that is by chance.
_LEAST_SHARE, _LEAST_RATIO, _CHANCE = 0.5, 1.03, 1e-3


class ConfoundingColumn(NamedTuple):
    """A column by which runs of one group differ."""

    column: str
    # The metric that differs most by it, and the largest ratio between its values.
    metric: str
    ratio: float


def confounding_columns(
    runs: pd.DataFrame, groups: gr.Groups, metrics: Sequence[Metric], rows: Mask | None = None
) -> list[ConfoundingColumn]:
    """Find columns that are neither ppw's nor in ``groups``, and by which one group's runs differ.

    What counts is what a straight line through logarithms of metric and frequency leaves: a column
    counts where its values were each measured at several frequencies and explain most of the rest.
    """
    if len(runs) > _MOST_ROWS or gr.is_cell_table(runs) or "freq_hz" not in runs:
        return []
    taken = slice(None) if rows is None else rows
    runs, codes = runs[taken], groups.codes[taken]
    known = {*COLUMNS, *groups.by, FILE_COLUMN, ROW_COLUMN}
    others = [c for c in map(str, runs.columns) if c not in known and _is_kind(runs[c])]
    if not others:
        return []
    left = {m.name: _residuals(runs, codes, m) for m in metrics if not m.factors}
    every = ([*_ratios_by(runs, codes, column, left)] for column in others)
    return [max(found, key=lambda f: f.ratio) for found in every if found]


def _is_kind(column: pd.Series[Any]) -> bool:
    """Whether a column may name kinds of runs: texts or whole numbers, few of them."""
    if column.dtype.kind in "fcmM":
        return False
    try:
        return 2 <= column.nunique() <= _MOST_VALUES
    except TypeError:
        return False


def _residuals(runs: pd.DataFrame, codes: IntArray, metric: Metric) -> FloatArray:
    """Logarithm of a metric less the group's line against that of frequency; NaN without one."""
    amount = np.asarray(values(metric, runs), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(amount > 0, np.log(amount), np.nan)
    x = np.log(runs["freq_hz"].to_numpy(dtype=np.float64))
    x = np.where(np.isnan(y), np.nan, x)
    x, y = x - _means(codes, x)[codes], y - _means(codes, y)[codes]
    spread = _sums(codes, x * x)
    slope = np.divide(_sums(codes, x * y), spread, out=np.zeros_like(spread), where=spread > 0)
    made: FloatArray = y - slope[codes] * x
    return made


def _sums(codes: IntArray, amounts: FloatArray) -> FloatArray:
    return np.bincount(codes, np.nan_to_num(amounts)).astype(np.float64)


def _means(codes: IntArray, amounts: FloatArray) -> FloatArray:
    count = _sums(codes, (~np.isnan(amounts)).astype(np.float64))
    made: FloatArray = _sums(codes, amounts) / np.maximum(count, 1)
    return made


def _ratios_by(
    runs: pd.DataFrame, codes: IntArray, column: str, left: dict[str, FloatArray]
) -> Iterator[ConfoundingColumn]:
    import pandas as pd

    frame = pd.DataFrame({"group": codes, "hz": runs["freq_hz"].to_numpy()})
    frame["value"] = pd.factorize(runs[column])[0]
    for name, residual in left.items():
        known = frame.assign(left=residual)[(frame["value"] >= 0).to_numpy() & ~np.isnan(residual)]
        cells = known.groupby(["group", "value"])
        swept = cells["hz"].transform("nunique") > 1
        several = known[swept].groupby("group")["value"].transform("nunique") > 1
        if (ratio := _ratio(known[swept][several])) > _LEAST_RATIO:
            yield ConfoundingColumn(column, name, ratio)


def _ratio(rows: pd.DataFrame) -> float:
    """Largest ratio between values of a column within a group; 1 where chance may have made it."""
    from scipy.special import fdtrc

    if rows.empty:
        return 1.0
    cells = rows.groupby(["group", "value"])["left"]
    means = cells.mean()
    groups = rows["group"].nunique()
    whole = float((rows["left"] ** 2).sum())
    within = float(((rows["left"] - cells.transform("mean")) ** 2).sum())
    more, rest = len(means) - groups, len(rows) - len(means) - groups
    if rest < 1 or whole - within < _LEAST_SHARE * whole:
        return 1.0
    f = (whole - within) / more / max(within / rest, np.finfo(float).tiny)
    if fdtrc(more, rest, f) > _CHANCE:
        return 1.0
    apart = means.groupby("group").agg(np.ptp)
    return float(np.exp(apart.max()))


_ACHIEVED_OFF = 0.02
_ENERGY_OFF = 0.02
# Looking for rows that repeat costs more than the fits of a larger table.
_COMPARED_ROWS = 200_000

# What the column ``power_label`` says of watts that a sensor showed, and not a calibration.
MEASURED = "measured"
SIMULATED = (
    "simulated, not hardware: how these figures change with the clock says more than their size, "
    "and power is not simulated"
)
UNKNOWN_WATTS = (
    "power of unknown source: package, node and wall power are not comparable; say which in "
    "power_source"
)
FAMILY_MISMATCH = (
    "family mismatch: a baseline holds within one microarchitecture family, and these runs are of "
    "several"
)


def table_caveats(
    runs: pd.DataFrame, groups: gr.Groups, metrics: Sequence[Metric], learnt: Mask | None = None
) -> list[str]:
    """Find what in a table, or in its grouping, could mislead.

    ``learnt`` are the rows that curves go through, where that is not all of them.
    """
    caveats = [
        f"runs of one group differ in {column}, which is not in --by: their curve is a mixture"
        for column in gr.varying_identity(runs, groups)
        if column != "host"
    ]
    caveats += [
        f"runs of one group differ in {column!r}, which ppw does not know, and by up to "
        f"{ratio - 1:.0%} in {metric}: their curve is a mixture; add it to --by, or say with --map "
        "what it is"
        for column, metric, ratio in confounding_columns(runs, groups, metrics, learnt)
    ]
    if "host" in runs.columns and "host" not in groups.by:
        rows = slice(None) if learnt is None else learnt
        caveats += _across_hosts(runs[rows], replace(groups, codes=groups.codes[rows]))
        if "family" in runs.columns and gr.varies(runs["family"], groups).any():
            caveats.append(FAMILY_MISMATCH)
    if any({"power", "energy", "perf_per_watt"} & {m.name} for m in metrics):
        caveats += _power_caveats(runs, groups)
    caveats += _simulated_caveats(runs)
    return caveats + _achieved_caveats(runs) + _repeated_rows(runs) + _one_group(runs, groups)


def _simulated_caveats(runs: pd.DataFrame) -> list[str]:
    """Say that rows are of a simulator, which the column ``simulator`` names."""
    if "simulator" not in runs.columns:
        return []
    count, total = gr.run_count(runs, runs["simulator"].notna().to_numpy()), gr.run_count(runs)
    if not count:
        return []
    if count == total:
        return [f"all runs are {SIMULATED}"]
    return [
        f"{count} of {total} runs are {SIMULATED}; the others are not simulated: a difference "
        "between the two kinds is no difference between machines"
    ]


def _repeated_rows(runs: pd.DataFrame) -> list[str]:
    if len(runs) > _COMPARED_ROWS or gr.is_cell_table(runs):
        return []
    count = int(runs.drop(columns=ROW_COLUMN, errors="ignore").duplicated().sum())
    if not count:
        return []
    return [
        f"{count} of {len(runs)} rows repeat another one in every column: a run that is counted "
        "twice makes intervals too short"
    ]


def _one_group(runs: pd.DataFrame, groups: gr.Groups) -> list[str]:
    if groups.by or len(runs.columns) <= 2:
        return []
    own = gr.key_columns(runs) if gr.is_cell_table(runs) else runs.columns
    unused = [c for c in own if c not in (*COLUMNS, FILE_COLUMN, ROW_COLUMN, FLAGS)]
    rest = f"; not used: {list_names(unused)}" if unused else ""
    return [f"no host or workload is named: all rows are one group{rest}; see --by and --map"]


def _across_hosts(runs: pd.DataFrame, groups: gr.Groups) -> list[str]:
    several = gr.varies(runs["host"], groups) & gr.varies(runs["freq_hz"], groups)
    if not several.any():
        return []
    steps = runs["freq_hz"].groupby([groups.codes, runs["host"]], dropna=False).nunique()
    swept = np.zeros(len(groups), dtype=bool)
    swept[steps.index.get_level_values(0)[steps > 1]] = True
    caveats = []
    if (several & ~swept).any():
        caveats.append(
            "host and frequency are confounded: no host was measured at two frequencies, so a "
            "difference between the hosts looks like an effect of the clock"
        )
    if (several & swept).any():
        caveats.append("one baseline goes through several hosts: their difference is in the curve")
    return caveats


def all_sources_named(runs: pd.DataFrame) -> bool:
    """Tell whether every row says which sensor its watts come from."""
    if "power_source" not in runs.columns:
        return False
    return all(map(is_named_source, runs["power_source"].unique()))


def is_named_source(source: object) -> bool:
    """Tell whether a power source is named; "unknown" names none."""
    return isinstance(source, str) and source.strip().lower() not in ("", "unknown")


def _power_caveats(runs: pd.DataFrame, groups: gr.Groups) -> list[str]:
    caveats = []
    if not all_sources_named(runs):
        caveats.append(UNKNOWN_WATTS)
    if "power_source" in runs.columns and gr.varies(runs["power_source"], groups).any():
        caveats.append(
            "the power of one group comes from several sources, which may differ in scope"
        )
    if "power_label" in runs.columns:
        labels = runs["power_label"]
        total = gr.run_count(runs)
        said = [
            f"{gr.run_count(runs, (labels == label).to_numpy())} of {total} are {label}"
            for label in labels.dropna().unique()
            if label != MEASURED
        ]
        if said:
            caveats.append(
                f"not all power is measured: {' and '.join(sorted(said))}, by another sensor's "
                "calibration, whose error is not in the interval"
            )
    if off := _having(runs, "energy_off"):
        caveats.append(
            f"energy_j and power_w·time_s differ by more than {_ENERGY_OFF:.0%} in "
            f"{off} of {gr.run_count(runs)} rows: energy is taken from energy_j as measured "
            "and projected from power and time"
        )
    return caveats


# By property: the columns that it takes, and the rule, of arrays or of an engine's columns.
PROPERTIES: dict[str, tuple[set[str], Callable[[Mapping[str, Values]], Values]]] = {
    "energy_off": (
        {"energy_j", "power_w", "time_s"},
        lambda c: absolute(c["energy_j"] / (c["power_w"] * c["time_s"]) - 1) > _ENERGY_OFF,
    ),
    "achieved_off": (
        {"freq_hz", "freq_achieved_hz"},
        lambda c: absolute(c["freq_achieved_hz"] / c["freq_hz"] - 1) > _ACHIEVED_OFF,
    ),
}


def _having(runs: pd.DataFrame, property_: str) -> int:
    """How many runs have a property: counted, or as the cells of a condensed table say."""
    if gr.is_cell_table(runs):
        column = gr.tally_column(property_)
        return int(runs[column].sum()) if column in runs.columns else 0
    columns, rule = PROPERTIES[property_]
    if not columns <= set(runs.columns):
        return 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return int(rule({c: runs[c].to_numpy(dtype=np.float64) for c in columns}).sum())


def _achieved_caveats(runs: pd.DataFrame) -> list[str]:
    off = _having(runs, "achieved_off")
    if not off:
        return []
    return [
        f"the achieved frequency is more than {_ACHIEVED_OFF:.0%} off the one asked for in "
        f"{off} of {gr.run_count(runs)} rows; the fit uses the one asked for"
    ]
