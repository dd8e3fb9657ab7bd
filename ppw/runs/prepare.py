"""From a runs table as given to checked, grouped runs, their metrics, and what could mislead."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from fitting.regression.lines import FloatArray, IntArray
from measurements.host.activity import MOST_OTHER_WORK
from measurements.table.checks import as_numbers, forgive_missing
from measurements.table.headers import list_names
from measurements.table.schema import COLUMNS, DOUBTS, FILE_COLUMN, ROW_COLUMN
from ppw.errors import PpwError
from ppw.results.text import as_names, shown
from ppw.runs import checks as ck, groups as gr, metrics as mt

# Share of the highest throughput from which a run is at full load.
FULL_LOAD = 0.995


def at_full_load(runs: pd.DataFrame, group: IntArray | None = None) -> gr.Mask:
    """Tell the runs at full load, by the number of each run's group; all are one by default.

    Where the column ``load`` says that some runs of a group are at full load, only these are:
    others were held at a rate, or had too few clients. Where it says so of none, those are of
    which it says nothing.
    """
    if "load" not in runs.columns or not len(runs):
        return np.ones(len(runs), dtype=bool)
    load = as_numbers(runs["load"]).to_numpy()
    group = np.zeros(len(runs), dtype=np.int64) if group is None else group
    full = load >= FULL_LOAD
    some = np.bincount(group, full) > 0
    return np.where(some[group], full, np.isnan(load))


# Rows are brought to one order before summing, so that printed digits do not depend on theirs;
# beyond this many rows the ordering would cost more than the fits.
_ORDERED_ROWS = 200_000


@dataclass(frozen=True)
class PreparedRuns:
    """Checked runs, their groups, and the metrics asked."""

    # Without the rows left out and the runs held below what their host can do.
    runs: pd.DataFrame
    groups: gr.Groups
    metrics: list[mt.Metric]
    # A row for each row that cannot be right and each check that says so, as of `check_quality`.
    left_out: pd.DataFrame = field(default_factory=pd.DataFrame)
    below_full_load: int = 0
    keepable: bool = True  # whether the rows left out could be used if they were kept
    # By group the frequencies (Hz) of which every row is left out: they stay, to be projected.
    projected_steps: Mapping[int, FloatArray] = field(default_factory=dict)
    # By column, how many runs lack a value that others of their group have.
    incomplete: Mapping[str, int] = field(default_factory=dict)

    def caveats(self, learnt: gr.Mask | None = None) -> list[str]:
        """Find what could mislead in the table, its grouping or the ``learnt`` rows: texts."""
        runs, groups = self.runs, self.groups
        caveats = [*incomplete_texts(self.incomplete), *self.left_out_texts()]
        caveats += runs.attrs.get(DOUBTS, ())
        caveats += [
            f"runs of one group differ in {column}, which is not in --by: their curve mixes "
            "different set-ups"
            for column in gr.varying_identity(runs, groups)
            if column != "host"
        ]
        caveats += [
            f"runs of one group differ in {column!r}, which ppw does not know, and by up to "
            f"{ratio - 1:.0%} in {metric}: their curve mixes different set-ups; add the column to "
            "--by, or name its meaning with --map"
            for column, metric, ratio in confounding_columns(runs, groups, self.metrics, learnt)
        ]
        if "host" in runs.columns and "host" not in groups.by:
            rows = slice(None) if learnt is None else learnt
            of_rows = replace(groups, codes=groups.codes[rows])
            caveats += _confounded_host_caveats(runs[rows], of_rows)
            if "family" in runs.columns and gr.varies(runs["family"], groups).any():
                caveats.append(FAMILY_MISMATCH)
        if any({"power", "energy", "perf_per_watt"} & {m.name for m in self.metrics}):
            caveats += _power_caveats(runs, groups)
        caveats += _row_caveats(runs)
        if not groups.by and len(runs.columns) > 2:
            caveats.append(_one_group_caveat(runs))
        return caveats

    def left_out_texts(self) -> list[str]:
        """Say for each check how many rows were left out, with the first one's evidence."""
        found = []
        if not self.left_out.empty:
            # A row that several checks flag is told once, by all of them.
            names = self.left_out.groupby("position")["check"].transform(", ".join)
            once = self.left_out.assign(check=names).drop_duplicates("position", keep="last")
            found = [
                f"{(count := _count_runs(rows))} row{'s' * (count != 1)} left out "
                f"({str(name).replace('_', ' ')}); the first, {_row_place(rows.iloc[0])}: "
                f"{rows['evidence'].iloc[0]}; {remedy_of_left_out(self.keepable)}"
                for name, rows in once.groupby("check", sort=True)
            ]
        if self.below_full_load:
            found.append(
                f"{self.below_full_load} runs below full load (column load) are left out, because "
                "curves describe the full speed of a host; --keep-all uses them"
            )
        if steps := self.projected_steps:
            group, frequency = next(iter(steps.items()))
            keys = self.groups.name(group)
            more = sum(map(len, steps.values())) - 1
            found.append(
                f"no row is left {f'of {keys} ' * bool(keys)}at {shown(frequency[0], 'Hz')}"
                f"{f', nor at {more} more frequencies' * bool(more)}: the frequency stays, and "
                "what is said of it is projected"
            )
        return found

    def flagged_rows(self, rows: gr.Mask, *, but: Collection[str] = ()) -> gr.Mask:
        """Mark the chosen rows that checks, except those named in ``but``, flag; no others."""
        where = np.flatnonzero(rows)
        groups = replace(self.groups, codes=self.groups.codes[where])
        flagged = ck.find_flagged_rows(self.runs.take(where), groups, self.metrics)
        mask = np.zeros(len(rows), dtype=bool)
        for name, found in flagged.items():
            mask[where[found.index]] |= name not in but
        return mask

    def measured_means(self) -> pd.DataFrame:
        """Mean of each metric by group and frequency, with the number of runs."""
        every = np.ones(len(self.runs), dtype=bool)
        index = ["group", "freq_hz"]
        by_metric = {m.name: measured_cells(self, m, every).set_index(index) for m in self.metrics}
        means = pd.DataFrame({name: cells["measured"] for name, cells in by_metric.items()})
        if gr.is_cell_table(self.runs):
            runs = pd.concat([cells["runs"] for cells in by_metric.values()], axis=1).max(axis=1)
        else:
            runs = self.runs.groupby([self.groups.codes, "freq_hz"], sort=True).size()
            means = means.reindex(runs.index.set_names(index))
        means = means.assign(runs=runs).reset_index()
        keys = self.groups.keys.take(means.pop("group").to_numpy()).reset_index(drop=True)
        return pd.concat([keys, means], axis=1)


def prepare(
    runs: pd.DataFrame,
    *,
    by: Sequence[str] | None,
    metric: str | Iterable[str] | None,
    keep_all: bool = True,
    drop: bool = True,
) -> PreparedRuns:
    """Bring runs to canonical columns, check them, group them and put them in one order.

    Unless ``keep_all``, runs below full load are left out where there are others, and rows that
    cannot be right are no error and are left out; or, without ``drop``, kept for the caller to
    choose among.
    """
    tidy = gr.canonical(runs)
    by = None if by is None else as_names(by)
    metrics = mt.answerable(tidy) if metric is None else mt.parse_metrics(metric)
    needed = mt.needed_columns(metrics, tidy)
    # Power that cannot be used is no error where the rows that have it are left out.
    hopeless = without_power(tidy)
    ignored = {} if keep_all else dict.fromkeys(("power_w", "energy_j"), hopeless)
    checked, lacking = forgive_missing(tidy, needed=needed, by=by, ignore=ignored)
    if len(checked) < len(tidy):
        hopeless = without_power(checked)
    prepared = PreparedRuns(checked, gr.group_runs(checked, by), metrics, incomplete=lacking)
    if not keep_all:
        prepared = leave_out_rows(prepared, by, hopeless, drop)
    runs, groups = prepared.runs, prepared.groups
    if len(runs) > _ORDERED_ROWS:
        return prepared
    order = np.lexsort([*(runs[c].to_numpy() for c in needed), groups.codes])
    groups = replace(groups, codes=groups.codes[order])
    return replace(prepared, runs=runs.take(order), groups=groups)


def leave_out_rows(
    prepared: PreparedRuns, by: Sequence[str] | None, hopeless: gr.Mask, drop: bool
) -> PreparedRuns:
    """Leave out runs below full load and, with ``drop``, flagged rows; raise if none stays."""
    runs, groups, metrics = prepared.runs, prepared.groups, prepared.metrics
    full = at_full_load(runs, groups.codes)
    # Where a group has no run at full load, the others stay.
    out = ~full & (np.bincount(groups.codes, full) > 0)[groups.codes]
    held, left_out, keepable = gr.run_count(runs, out), pd.DataFrame(), True
    are_cells = gr.is_cell_table(runs)
    flagged = ck.find_flagged_rows(runs, groups, metrics) if drop else {}
    if flagged and (are_cells or any(map(len, flagged.values()))):
        left_out = ck.evidence_table(flagged, runs, groups)
        position = left_out["position"].to_numpy(dtype=np.int64)
        out[position] = True
        keepable = not hopeless[position].any()
    if out.all():
        one, command = ("run", "ppw fleet check") if are_cells else ("row", "ppw check")
        raise PpwError(
            f"{runs.attrs.get('source', 'runs')}: every {one} is flagged, so no run is left for a "
            f"fit: see {command}{', or keep them with --keep-all' * (are_cells or keepable)}"
        )
    steps: dict[int, FloatArray] = {}
    if out.any():
        kept = gr.group_runs(runs[~out], by)
        steps = _steps_without_rows(runs, groups, kept, out)
        runs, groups = runs[~out], kept
    return PreparedRuns(runs, groups, metrics, left_out, held, keepable, steps, prepared.incomplete)


def incomplete_texts(lacking: Mapping[str, int]) -> list[str]:
    """Say for each column how many runs lack its value, and what they are left out of."""
    return [
        f"{count} run{'s' * (count > 1)} without {column}: left out of "
        f"{'the answer' if column == 'freq_hz' else 'what needs it'}"
        for column, count in lacking.items()
    ]


def _steps_without_rows(
    runs: pd.DataFrame, groups: gr.Groups, kept: gr.Groups, out: gr.Mask
) -> dict[int, FloatArray]:
    """Frequencies (Hz) that groups of the kept rows had only in rows that are left out."""
    frequency = runs["freq_hz"].to_numpy(dtype=np.float64)
    new = dict(zip(groups.codes[~out].tolist(), kept.codes.tolist(), strict=True))
    found = {}
    for group in sorted(new.keys() & set(groups.codes[out].tolist())):
        rows = groups.codes == group
        lost, there = np.unique(frequency[rows & out]), frequency[rows & ~out]
        alone = (np.abs(lost[:, None] / there - 1) > SAME_STEP).all(axis=1)
        if alone.any():
            found[new[group]] = lost[alone]
    return found


def without_power(runs: pd.DataFrame) -> gr.Mask:
    """Mark the rows, or cells, whose power is 0 or less."""
    none: gr.Mask = np.zeros(len(runs), dtype=bool)
    if gr.FLAGS in runs.columns:
        none = (runs[gr.FLAGS].to_numpy() & gr.NO_WATTS) > 0
    elif "power_w" in runs.columns:
        none = as_numbers(runs["power_w"]).to_numpy() <= 0
    return none


def remedy_of_left_out(keepable: bool) -> str:
    """Say how to list rows that were left out, and whether they can be kept."""
    if keepable:
        return "ppw check lists them, --keep-all uses them"
    return "ppw check lists them; correct or drop power of 0 and less, which --keep-all cannot use"


def _count_runs(left_out: pd.DataFrame) -> int:
    return int(left_out["runs"].sum()) if "runs" in left_out else len(left_out)


def _row_place(row: pd.Series[Any]) -> str:
    for place in ("line", "row"):
        if place in row:
            return f"{place} {row[place]}"
    return "one" if row["runs"] == 1 else f"{row['runs']} of one group and frequency"


def measured_cells(prepared: PreparedRuns, metric: mt.Metric, rows: gr.Mask) -> pd.DataFrame:
    """Mean of a metric and number of runs by ``group`` and ``freq_hz``, of the chosen rows."""
    runs = prepared.runs
    frame = pd.DataFrame(
        {
            "group": prepared.groups.codes,
            "freq_hz": runs["freq_hz"].to_numpy(),
            "measured": mt.values(metric, runs),
        }
    )
    if gr.is_aggregated(runs, metric.name):
        counted = frame.assign(runs=gr.counts(runs, metric.name))[rows].dropna()
        # One cell for each group and frequency: the mean of the runs of its cells.
        total = counted.assign(measured=counted["measured"] * counted["runs"])
        merged = total.groupby(["group", "freq_hz"], sort=True).sum()
        return merged.assign(measured=merged["measured"] / merged["runs"]).reset_index()
    cells = frame[rows].dropna().groupby(["group", "freq_hz"], sort=True)["measured"]
    return (
        cells.agg(["mean", "size"])
        .reset_index()
        .rename(columns={"mean": "measured", "size": "runs"})
    )


# What a table or its grouping shows that could mislead: mixtures, repeats, power of unknown scope.

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
    runs: pd.DataFrame, groups: gr.Groups, metrics: Sequence[mt.Metric], rows: gr.Mask | None = None
) -> list[ConfoundingColumn]:
    """Find unknown columns that split a group's runs and explain differences between them.

    What counts is what a straight line through logarithms of metric and frequency leaves: a column
    counts where its values were each measured at several frequencies and explain most of the rest.
    """
    if len(runs) > _MOST_ROWS or gr.is_cell_table(runs) or "freq_hz" not in runs:
        return []
    taken = slice(None) if rows is None else rows
    runs, codes = runs[taken], groups.codes[taken]
    known = {*COLUMNS, *groups.by, FILE_COLUMN, ROW_COLUMN}
    others = [c for c in map(str, runs.columns) if c not in known and _may_name_kinds(runs[c])]
    if not others:
        return []
    left = {m.name: _residuals(runs, codes, m) for m in metrics if not m.factors}
    every = ([*_confounding_by_column(runs, codes, column, left)] for column in others)
    return [max(found, key=lambda f: f.ratio) for found in every if found]


def _may_name_kinds(column: pd.Series[Any]) -> bool:
    """Tell whether a column has few values, texts or whole numbers, that may name kinds."""
    if column.dtype.kind in "fcmM":
        return False
    try:
        return 2 <= column.nunique() <= _MOST_VALUES
    except TypeError:
        return False


def _residuals(runs: pd.DataFrame, codes: IntArray, metric: mt.Metric) -> FloatArray:
    """Logarithm of a metric minus the group's line in log frequency; NaN where not above 0."""
    amount = np.asarray(mt.values(metric, runs), dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        y = np.where(amount > 0, np.log(amount), np.nan)
    x = np.log(runs["freq_hz"].to_numpy(dtype=np.float64))
    x = np.where(np.isnan(y), np.nan, x)
    x, y = x - _code_means(codes, x)[codes], y - _code_means(codes, y)[codes]
    spread = _code_sums(codes, x * x)
    slope = np.divide(_code_sums(codes, x * y), spread, out=np.zeros_like(spread), where=spread > 0)
    return np.asarray(y - slope[codes] * x)


def _code_sums(codes: IntArray, amounts: FloatArray) -> FloatArray:
    """Sum of the amounts of each code; NaN counts as 0."""
    return np.bincount(codes, np.nan_to_num(amounts)).astype(np.float64)


def _code_means(codes: IntArray, amounts: FloatArray) -> FloatArray:
    """Mean of the amounts of each code without NaN; 0 where there is none."""
    count = _code_sums(codes, (~np.isnan(amounts)).astype(np.float64))
    return np.asarray(_code_sums(codes, amounts) / np.maximum(count, 1))


def _confounding_by_column(
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
        if (ratio := _largest_ratio(known[swept][several])) > _LEAST_RATIO:
            yield ConfoundingColumn(column, name, ratio)


def _largest_ratio(rows: pd.DataFrame) -> float:
    """Largest ratio between a column's values in a group; 1 where chance explains it."""
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
    "simulated, not hardware: trust how these figures change with the core frequency more than "
    "their size; power is not simulated"
)
UNKNOWN_WATTS = (
    "power of unknown source: package, node and wall power are not comparable; name the sensor "
    "in the column power_source"
)
FAMILY_MISMATCH = (
    "family mismatch: a curve holds within one microarchitecture family, but these runs are of "
    "several"
)


def _row_caveats(runs: pd.DataFrame) -> list[str]:
    """Say how many rows are simulated, off the frequency asked for, or repeat another row."""
    caveats, simulated, total = [], 0, gr.run_count(runs)
    if "simulator" in runs.columns:
        simulated = gr.run_count(runs, runs["simulator"].notna().to_numpy())
    if 0 < simulated < total:
        caveats.append(
            f"{simulated} of {total} runs are {SIMULATED}; the others are not simulated: do not "
            "take a difference between the two kinds for one between machines"
        )
    elif simulated:
        caveats.append(f"all runs are {SIMULATED}")
    if off := _count_with_property(runs, "achieved_off"):
        caveats.append(
            f"the achieved frequency is more than {_ACHIEVED_OFF:.0%} off freq_hz in {off} of "
            f"{total} rows; the fit uses freq_hz"
        )
    compared = len(runs) <= _COMPARED_ROWS and not gr.is_cell_table(runs)
    others = runs.drop(columns=ROW_COLUMN, errors="ignore")
    if compared and (count := int(others.duplicated().sum())):
        caveats.append(
            f"{count} of {len(runs)} rows repeat another one in every column: a run that is "
            "counted twice makes intervals too short"
        )
    return caveats


def _one_group_caveat(runs: pd.DataFrame) -> str:
    """Say that all rows are one group, and which columns might tell them apart."""
    own = gr.key_columns(runs) if gr.is_cell_table(runs) else runs.columns
    unused = [c for c in own if c not in (*COLUMNS, FILE_COLUMN, ROW_COLUMN, gr.FLAGS)]
    rest = f"; not used: {list_names(unused)}" if unused else ""
    return f"no host or workload is named: all rows are one group{rest}; see --by and --map"


def _confounded_host_caveats(runs: pd.DataFrame, groups: gr.Groups) -> list[str]:
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
            "difference between the hosts looks like an effect of the frequency"
        )
    if (several & swept).any():
        caveats.append(
            "runs of several hosts are fitted as one curve, which includes their differences"
        )
    return caveats


def all_sources_named(runs: pd.DataFrame) -> bool:
    """Tell whether every row names the sensor of its power; False without the column."""
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
    if off := _count_with_property(runs, "energy_off"):
        caveats.append(
            f"energy_j and power_w·time_s differ by more than {_ENERGY_OFF:.0%} in "
            f"{off} of {gr.run_count(runs)} rows: energy is taken from energy_j as measured "
            "and projected from power and time"
        )
    if busy := _count_with_property(runs, "other_work"):
        caveats.append(
            f"other work took more than {MOST_OTHER_WORK:.0%} of the CPU time in {busy} of "
            f"{gr.run_count(runs)} runs, so their power is not the workload's alone: see ppw check"
        )
    return caveats


# By property: the columns that it takes, and the rule, of arrays or of an engine's columns.
PROPERTIES: dict[str, tuple[set[str], Callable[[Mapping[str, gr.Values]], gr.Values]]] = {
    "energy_off": (
        {"energy_j", "power_w", "time_s"},
        lambda c: gr.absolute(c["energy_j"] / (c["power_w"] * c["time_s"]) - 1) > _ENERGY_OFF,
    ),
    "achieved_off": (
        {"freq_hz", "freq_achieved_hz"},
        lambda c: gr.absolute(c["freq_achieved_hz"] / c["freq_hz"] - 1) > _ACHIEVED_OFF,
    ),
    "other_work": ck.CONTRADICTIONS[gr.OTHER_WORK],
}


def _count_with_property(runs: pd.DataFrame, property_: str) -> int:
    """Number of runs that have a property, computed or taken from cells."""
    if gr.is_cell_table(runs):
        column = gr.tally_column(property_)
        return int(runs[column].sum()) if column in runs.columns else 0
    columns, rule = PROPERTIES[property_]
    if not columns <= set(runs.columns):
        return 0
    with np.errstate(divide="ignore", invalid="ignore"):
        return int(rule({c: runs[c].to_numpy(dtype=np.float64) for c in columns}).sum())
