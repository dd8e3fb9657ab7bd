"""What a runs table or its grouping shows that could mislead: mixtures, repeats, vague watts."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from measurements.headers import shown as shown_names
from measurements.schema import COLUMNS, FILE_COLUMN, ROW_COLUMN
from ppw.checks.check import FLAGS
from ppw.condensed import is_condensed_table, key_columns, run_count, tally_column
from ppw.grouping import varies, varying_identity
from ppw.mixtures import mixed_by

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    import pandas as pd

    from ppw.caveats import Mask
    from ppw.grouping import Groups
    from ppw.metrics import Metric

T = TypeVar("T")

_ACHIEVED_OFF = 0.02
_ENERGY_OFF = 0.02
# Looking for rows that repeat costs more than the fits of a larger table.
_COMPARED_ROWS = 200_000

# What the column ``power_label`` says of watts that a sensor showed, and not a calibration.
MEASURED = "measured"
SIMULATED = (
    "simulated, not hardware: how these figures change with the clock says more than their size, "
    "and they have no watts"
)
UNKNOWN_WATTS = (
    "watts of unknown source: package, node and wall watts are not comparable; say which in "
    "power_source"
)
FAMILY_MISMATCH = (
    "family mismatch: a baseline holds within one microarchitecture family, and these runs are of "
    "several"
)


def table_caveats(
    runs: pd.DataFrame, groups: Groups, metrics: Sequence[Metric], learnt: Mask | None = None
) -> list[str]:
    """Find what in a table, or in its grouping, could mislead.

    ``learnt`` are the rows that curves go through, where that is not all of them.
    """
    caveats = [
        f"runs of one group differ in {column}, which is not in --by: their curve is a mixture"
        for column in varying_identity(runs, groups)
        if column != "host"
    ]
    caveats += [
        f"runs of one group differ in {column!r}, which ppw does not know, and by up to "
        f"{ratio - 1:.0%} in {metric}: their curve is a mixture; add it to --by, or say with --map "
        "what it is"
        for column, metric, ratio in mixed_by(runs, groups, metrics, learnt)
    ]
    if "host" in runs.columns and "host" not in groups.by:
        rows = slice(None) if learnt is None else learnt
        caveats += _across_hosts(runs[rows], replace(groups, codes=groups.codes[rows]))
        if "family" in runs.columns and varies(runs["family"], groups).any():
            caveats.append(FAMILY_MISMATCH)
    if any({"power", "energy", "perf_per_watt"} & {m.name} for m in metrics):
        caveats += _watts(runs, groups)
    caveats += _simulated(runs)
    return caveats + _achieved(runs) + _repeated_rows(runs) + _one_group(runs, groups)


def _simulated(runs: pd.DataFrame) -> list[str]:
    """Say that rows are of a simulator, which the column ``simulator`` names."""
    if "simulator" not in runs.columns:
        return []
    count, total = run_count(runs, runs["simulator"].notna().to_numpy()), run_count(runs)
    if not count:
        return []
    if count == total:
        return [f"all runs are {SIMULATED}"]
    return [
        f"{count} of {total} runs are {SIMULATED}; the others are not simulated: a difference "
        "between the two kinds is no difference between machines"
    ]


def _repeated_rows(runs: pd.DataFrame) -> list[str]:
    if len(runs) > _COMPARED_ROWS or is_condensed_table(runs):
        return []
    count = int(runs.drop(columns=ROW_COLUMN, errors="ignore").duplicated().sum())
    if not count:
        return []
    return [
        f"{count} of {len(runs)} rows repeat another one in every column: a run that is counted "
        "twice makes intervals too short"
    ]


def _one_group(runs: pd.DataFrame, groups: Groups) -> list[str]:
    if groups.by or len(runs.columns) <= 2:
        return []
    own = key_columns(runs) if is_condensed_table(runs) else runs.columns
    unused = [c for c in own if c not in (*COLUMNS, FILE_COLUMN, ROW_COLUMN, FLAGS)]
    rest = f"; not used: {shown_names(unused)}" if unused else ""
    return [f"no host or workload is named: all rows are one group{rest}; see --by and --map"]


def _across_hosts(runs: pd.DataFrame, groups: Groups) -> list[str]:
    several = varies(runs["host"], groups) & varies(runs["freq_hz"], groups)
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


def sources_known(runs: pd.DataFrame) -> bool:
    """Tell whether every row says which sensor its watts come from."""
    if "power_source" not in runs.columns:
        return False
    return all(map(is_known_source, runs["power_source"].unique()))


def is_known_source(source: object) -> bool:
    """Tell whether a power source is named; "unknown" names none."""
    return isinstance(source, str) and source.strip().lower() not in ("", "unknown")


def _watts(runs: pd.DataFrame, groups: Groups) -> list[str]:
    caveats = []
    if not sources_known(runs):
        caveats.append(UNKNOWN_WATTS)
    if "power_source" in runs.columns and varies(runs["power_source"], groups).any():
        caveats.append(
            "the watts of one group come from several sources, which may differ in scope"
        )
    if "power_label" in runs.columns:
        labels = runs["power_label"]
        total = run_count(runs)
        said = [
            f"{run_count(runs, (labels == label).to_numpy())} of {total} are {label}"
            for label in labels.dropna().unique()
            if label != MEASURED
        ]
        if said:
            caveats.append(
                f"not all watts are measured: {' and '.join(sorted(said))}, by another sensor's "
                "calibration, whose error is not in the interval"
            )
    if off := _having(runs, "energy_off", energy_off):
        caveats.append(
            f"energy_j and power_w·time_s differ by more than {_ENERGY_OFF:.0%} in "
            f"{off} of {run_count(runs)} rows: energy is taken from energy_j as measured "
            "and projected from power and time"
        )
    return caveats


def energy_off(columns: Mapping[str, T]) -> T | None:
    """Tell where energy is not power times time; None without the columns."""
    if not {"energy_j", "power_w", "time_s"} <= columns.keys():
        return None
    c: Mapping[str, Any] = columns
    off: T = (c["energy_j"] / (c["power_w"] * c["time_s"]) - 1).abs() > _ENERGY_OFF
    return off


def achieved_off(columns: Mapping[str, T]) -> T | None:
    """Tell where the achieved frequency is not the one asked for; None without the columns."""
    if not {"freq_hz", "freq_achieved_hz"} <= columns.keys():
        return None
    c: Mapping[str, Any] = columns
    off: T = (c["freq_achieved_hz"] / c["freq_hz"] - 1).abs() > _ACHIEVED_OFF
    return off


def _having(
    runs: pd.DataFrame,
    property_: str,
    tell: Callable[[Mapping[str, pd.Series[Any]]], pd.Series[Any] | None],
) -> int:
    """How many runs have a property: counted, or as the cells of a condensed table say."""
    if is_condensed_table(runs):
        column = tally_column(property_)
        return int(runs[column].sum()) if column in runs.columns else 0
    found = tell({str(name): column for name, column in runs.items()})
    return 0 if found is None else int(found.sum())


def _achieved(runs: pd.DataFrame) -> list[str]:
    off = _having(runs, "achieved_off", achieved_off)
    if not off:
        return []
    return [
        f"the achieved frequency is more than {_ACHIEVED_OFF:.0%} off the one asked for in "
        f"{off} of {run_count(runs)} rows; the fit uses the one asked for"
    ]
