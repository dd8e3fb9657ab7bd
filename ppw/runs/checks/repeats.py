"""Runs at different frequencies that agree in every digit: one of them was never made."""

from dataclasses import replace

import numpy as np
import pandas as pd

from fitting.bayes.posterior import SAME_STEP
from fitting.regression.lines import FloatArray, IntArray
from measurements import identity_columns
from ppw.results.text import shown
from ppw.runs import groups as gr

# Within this share the runs of a program that the clock does not touch scatter, on a quiet
# machine; so many recorded values within it, so unlikely is it that two runs give the same one.
_TIME_SCATTER = 0.003
_POWER_SCATTER = 0.01
_MOST_VALUES = 1e6
# Without watts the time must have so many, since a very quiet machine scatters less.
_TIME_ALONE = 1e4
# No coincidence likelier than this is named, and of all that are at most so many are chance.
_CHANCE = 1e-3
_FALSE_DISCOVERIES = 0.01
# A run that was made has its own of these; a copied row has the other's.
MEASURED = (
    *("time_s", "throughput_ops_s", "energy_j", "instructions", "cycles", "cpi"),
    *("latency_p50_s", "latency_p99_s", "user_s", "system_s", "idle_s", "iowait_s"),
    *("sectors_read", "sectors_written", "network_rx_bytes", "network_tx_bytes"),
)


def find_unapplied(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find rows of one group that agree in time and power to every digit at several frequencies.

    Coarse records agree by chance, so the digits decide. A program that the clock does not touch
    gives times within 0.3 % and watts within 1 %; the recorded values that fit into that say how
    likely two equal ones are. Named is what is less likely than 1 in 1000 and, by the procedure
    of Benjamini and Hochberg over all rows compared, chance in at most 1 % of the cases named.
    Watts that do not vary, as a nameplate's, say nothing; then the time must have the digits:
    about seven. Rows that differ in another measured quantity, such as cycles, are two runs.

    References
    ----------
    Y. Benjamini and Y. Hochberg, "Controlling the False Discovery Rate", J. R. Statist. Soc. B 57
    (1995), 289-300.
    """
    time, where = gr.numbers(runs, "time_s"), np.arange(len(runs))
    pace = np.where(np.isnan(time), gr.numbers(runs, "throughput_ops_s"), time)
    compared, ends = int(np.count_nonzero(pace > 0)), [gr.numbers(runs, "power_w")] * 2
    if gr.is_cell_table(runs):
        ends = [gr.numbers(runs, column("power_w")) for column in (gr.least_column, gr.most_column)]
    # Power that does not vary on its host, as a nameplate's, tells nothing of a run.
    least, most = (pd.Series(end).groupby(gr.host_codes(runs)) for end in ends)
    varying: gr.Mask = (least.transform("min") < most.transform("max")).to_numpy()
    if gr.is_cell_table(runs):
        # Cells of many runs have no digits; none of theirs are equal, as the engine has found.
        single = runs.get(gr.SINGLE, pd.Series(False, runs.index)).to_numpy(dtype=bool)
        paced = [gr.run_counts(runs) - gr.lacking(runs, c) for c in ("time_s", "throughput_ops_s")]
        compared, where = int(np.maximum(*paced).sum()), np.flatnonzero(single)
        runs, groups = runs.iloc[where], replace(groups, codes=groups.codes[where])
    pace = pace[where]
    rows, run = _equal_rows(runs, groups.codes, pace)
    if not rows.size:
        return pd.DataFrame()
    first = np.flatnonzero(np.diff(run, prepend=-1))
    chance = _chance(runs, groups, pace, rows[first], varying[where])
    chance[_differ_elsewhere(runs, rows, first)] = 1.0
    named = _beyond_chance(chance, np.bincount(run) - 1, compared)[run]
    rows, run = rows[named], run[named]
    return _unapplied_figures(runs, rows, run).set_axis(where[rows]).sort_index()


def _equal_rows(runs: pd.DataFrame, codes: IntArray, pace: FloatArray) -> tuple[IntArray, IntArray]:
    """Rows that equal another in pace and power at another frequency, and numbers of their sets."""
    frequency = gr.numbers(runs, "freq_hz")
    # Not recorded is equal to not recorded.
    power = np.nan_to_num(gr.numbers(runs, "power_w"), nan=-np.inf)
    order = np.lexsort((frequency, power, pace, codes))
    order = order[pace[order] > 0]
    if not order.size:
        return order, order
    new = np.logical_or.reduce([np.diff(v[order], prepend=np.nan) != 0 for v in (codes, pace)])
    new |= np.append(True, power[order][1:] != power[order][:-1])
    starts, run = np.flatnonzero(new), np.cumsum(new) - 1
    ends = np.append(starts[1:], len(order)) - 1
    sorted_frequency = frequency[order]
    several = sorted_frequency[ends] > (1 + SAME_STEP) * sorted_frequency[starts]
    chosen = several[run]
    renumbered = np.cumsum(several) - 1
    return order[chosen], renumbered[run[chosen]]


def _chance(
    runs: pd.DataFrame, groups: gr.Groups, pace: FloatArray, rows: IntArray, varying: gr.Mask
) -> FloatArray:
    """Probability that two unaffected runs are recorded as equal, by row."""
    power = gr.numbers(runs, "power_w")
    times = _values_within(_TIME_SCATTER, pace[rows])
    watts = _values_within(_POWER_SCATTER, power[rows])
    # Watts that were measured vary on the host, and in the group go with one time.
    tells = varying & _one_to_one_mask(power, pace, groups)
    watts = np.where(tells[rows], np.maximum(watts, 1.0), 1.0)
    needed = np.where(watts > 1, 1.0, _TIME_ALONE)
    coarse = (times < needed) | ~_one_to_one_mask(pace, power, groups)[rows]
    return np.where(coarse, 1.0, 1 / (times * watts))


def _values_within(share: float, values: FloatArray) -> FloatArray:
    """Number of recorded values that fit into a share of each value; 0 without a value."""
    known = np.nan_to_num(np.abs(values))
    return np.minimum(share * known / gr.recorded_step(known), _MOST_VALUES)


def _one_to_one_mask(values: FloatArray, others: FloatArray, groups: gr.Groups) -> gr.Mask:
    """Mark rows whose value goes with only one of the other values in their group."""
    order = np.lexsort((others, values, groups.codes))
    code, value, other = groups.codes[order], values[order], others[order]
    same = (code[1:] == code[:-1]) & (value[1:] == value[:-1])
    new = np.append(True, ~same)
    # Two that are not known are not two values.
    changes = np.append(False, same & (other[1:] != other[:-1]) & ~np.isnan(other[1:]))
    run = np.cumsum(new) - 1
    alone = np.empty(len(values), dtype=bool)
    alone[order] = (np.bincount(run, changes) == 0)[run]
    return alone


def _differ_elsewhere(runs: pd.DataFrame, rows: IntArray, first: IntArray) -> gr.Mask:
    """Mark sets of rows that differ in another measured column, so are several runs."""
    differ = np.zeros(len(first), dtype=bool)
    for column in MEASURED:
        values = gr.numbers(runs, column)[rows]
        differ |= np.fmax.reduceat(values, first) > np.fmin.reduceat(values, first)
    return differ


def _beyond_chance(chance: FloatArray, coincidences: IntArray, compared: int) -> gr.Mask:
    """Mark sets of equal rows that chance does not explain (Benjamini and Hochberg)."""
    order = np.argsort(chance, kind="stable")
    allowed = _FALSE_DISCOVERIES * np.cumsum(coincidences[order]) / compared
    passing = np.flatnonzero(chance[order] <= np.minimum(allowed, _CHANCE))
    beyond = np.zeros(len(chance), dtype=bool)
    beyond[order[: passing[-1] + 1 if passing.size else 0]] = True
    return beyond


def _unapplied_figures(runs: pd.DataFrame, rows: IntArray, run: IntArray) -> pd.DataFrame:
    """Time, rate and power of equal rows, and the frequencies they span."""
    steps = pd.Series(gr.numbers(runs, "freq_hz")[rows]).groupby(run)
    return pd.DataFrame(
        {
            "time": gr.numbers(runs, "time_s")[rows],
            "throughput": gr.numbers(runs, "throughput_ops_s")[rows],
            "power": gr.numbers(runs, "power_w")[rows],
            "lowest": steps.transform("min"),
            "highest": steps.transform("max"),
            "steps": steps.transform("nunique"),
        }
    )


def say_unapplied(
    time: float, throughput: float, power: float, lowest: float, highest: float, steps: int
) -> str:
    """Say what is equal to every digit, at most twelve of them, and at which frequencies."""
    same = f"{throughput:.12g} operations/s" if np.isnan(time) else f"{time:.12g} s"
    same += "" if np.isnan(power) else f" and {power:.12g} W"
    ends = f"{shown(lowest, 'Hz')} and {shown(highest, 'Hz')}"
    where = f"at {ends}" if steps == 2 else f"at {steps} frequencies between {ends}"
    return f"the same {same}, to every digit, {where}"


# Workloads that are another one's runs, multiplied.

_SETTINGS, _TIMES = 6, 4
# With the same watts to a thousandth in every run, a time that is as fine is enough. Without
# watts the times must be finer than any machine repeats: two programs that the clock alone
# decides on are multiples of each other to a ten-thousandth.
_FINE = 1e-3
_FINER_THAN_ANY_REPEAT = 1e-6
# What binary numbers lose beyond the recorded digits.
_BINARY = 1e-9
# So many steps from setting to setting in common make two workloads worth comparing.
_WORTH = 3


def find_copies(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Find workloads whose times are an exact multiple of another's on the same host.

    Two workloads are compared over the settings that both have (cores, threads,
    data size, whatever else is in ``by``, frequency; means where there are repeats): at least
    six, with at least four different times. The ratio must be the same at all of them to the
    recorded digits. The watts, where both have them, must be the same, vary, and like the times
    be recorded to a thousandth or finer; without watts the times must be to a millionth. The
    workload with the larger time is named, at a ratio of 1 the one whose name comes last.
    """
    if runs["workload"].nunique(dropna=False) < 2 or (rows := _series_rows(runs, groups)).empty:
        return pd.DataFrame()
    cells = _cell_means(rows)
    pairs = _candidate_pairs(cells)
    if pairs.empty:
        return pairs
    columns = ["series", "setting", "base", "workload_base", "ratio", "watts"]
    copies = _find_copied_rows(pairs, cells)[columns]
    named = rows.drop(columns="workload").merge(copies, on=["series", "setting"])
    named["settings"] = named.groupby(["series", "base"])["setting"].transform("nunique")
    named = named.set_index("position").rename(columns={"workload_base": "workload"})
    return named[["workload", "ratio", "settings", "watts"]].sort_index()


def _series_rows(runs: pd.DataFrame, groups: gr.Groups) -> pd.DataFrame:
    """Rows of workloads on a host with enough runs, by setting; empty where there are none."""
    whose = [c for c in ("host", "family") if c in runs.columns]
    series = gr.group_runs(runs, [*whose, "workload"]).codes
    size = np.bincount(series, gr.run_counts(runs))
    position = np.flatnonzero(size[series] >= _SETTINGS)
    if not position.size:
        return pd.DataFrame()
    runs, series = runs.iloc[position], series[position]
    keys = runs[gr.key_columns(runs)] if gr.is_cell_table(runs) else runs
    identity = dict.fromkeys([*identity_columns(keys), *groups.by, "freq_hz"])
    setting = gr.group_runs(runs, [c for c in identity if c not in (*whose, "workload")]).codes
    time, rate = gr.numbers(runs, "time_s"), gr.numbers(runs, "throughput_ops_s")
    frame = pd.DataFrame(
        {
            "position": position,
            "host": gr.group_runs(runs, whose).codes,
            "workload": runs["workload"].to_numpy(),
            "series": series,
            "setting": setting,
            "time": np.where(np.isnan(time), 1 / rate, time),
            "power": gr.numbers(runs, "power_w"),
            "runs": gr.run_counts(runs),
        }
    )
    finest = np.where(np.isnan(time), _finest(runs, "throughput_ops_s"), _finest(runs, "time_s"))
    frame["time_step"] = finest / np.where(np.isnan(time), rate * rate, 1.0)
    frame["power_step"] = _finest(runs, "power_w")
    return frame[frame["time"].notna()]


def _cell_means(rows: pd.DataFrame) -> pd.DataFrame:
    """Mean time and power of each setting of a series, with the finest step of the series."""
    known = {name: column.to_numpy() for name, column in rows.items()}
    cell = gr.number_rows([known["series"], known["setting"]])
    first = np.unique(cell, return_index=True)[1]
    cells = {name: known[name][first] for name in ("host", "workload", "series", "setting")}
    for name in ("time", "power"):
        runs = np.where(np.isnan(known[name]), 0.0, known["runs"])
        total = np.bincount(cell, np.nan_to_num(known[name]) * runs)
        cells[name] = total / np.bincount(cell, runs)
    for name in ("time_step", "power_step"):
        finest = np.full(known["series"].max() + 1, np.inf)
        np.fmin.at(finest, known["series"], known[name])
        cells[name] = finest[cells["series"]]
    return pd.DataFrame(cells)


def _finest(runs: pd.DataFrame, column: str) -> FloatArray:
    """Decimal step to which the values of each row were recorded."""
    if gr.is_aggregated(runs, column):
        return gr.numbers(runs, gr.finest_column(column))
    return gr.recorded_step(np.nan_to_num(gr.numbers(runs, column)))


def _candidate_pairs(cells: pd.DataFrame) -> pd.DataFrame:
    """Pairs of series that may be multiples of each other: ``base`` and ``series``.

    Series whose times go from one setting to the next by the same ratio, and have the same watts
    at both, meet in one bucket, so that no two others are ever compared.
    """
    # Arrays, because nearly no table has a pair: data frames would take most of the time.
    columns = ["series", "setting", "time", "host"]
    series, setting, time, host = (cells[column].to_numpy() for column in columns)
    # To seven digits: the mean of repeats depends on their order in the last.
    watts = cells["power"].to_numpy().astype(np.float32)
    start = np.flatnonzero(series[:-1] == series[1:])
    start = start[np.lexsort((series[start], time[start]))]
    ratio = np.log(time[start + 1] / time[start])
    fine = np.where(np.isnan(watts[start]), _FINER_THAN_ANY_REPEAT, _FINE)
    keys = [host[start], setting[start], setting[start + 1], watts[start], watts[start + 1]]
    step, own = gr.number_rows(keys), series[start]
    pairs = []
    # Two grids, so that no two ratios that are near are apart in both.
    for offset in (0.0, 0.5):
        bucket = gr.number_rows([step, np.floor(ratio / (4 * fine) + offset)])
        first = np.empty(len(start), dtype=np.int64)
        first[bucket[::-1]] = own[::-1]
        base = first[bucket]
        pairs.append(np.column_stack([own, base])[own != base])
    found, size = np.unique(np.concatenate(pairs), axis=0, return_counts=True)
    return pd.DataFrame(found[size >= _WORTH], columns=["series", "base"])


def _find_copied_rows(pairs: pd.DataFrame, cells: pd.DataFrame) -> pd.DataFrame:
    """Rows of series that are a multiple of another, with its ``base`` and ratio."""
    both = pairs[["series", "base"]].merge(cells, on="series")
    both = both.merge(
        cells.drop(columns="host"),
        left_on=["base", "setting"],
        right_on=["series", "setting"],
        suffixes=("", "_base"),
    )
    both["ratio"] = np.log(both["time"] / both["time_base"])
    by_pair = both.groupby(["series", "base"])
    ratio = by_pair["ratio"].transform("mean")
    step = both["time_step"] / both["time"] + both["time_step_base"] / both["time_base"] + _BINARY
    watts = by_pair["power"].transform("count") * by_pair["power_base"].transform("count") > 0
    good = (both["ratio"] - ratio).abs() <= step
    good &= step <= np.where(watts, _FINE, _FINER_THAN_ANY_REPEAT) + _BINARY
    power = both["power"]
    same = (power - both["power_base"]).abs() <= _BINARY * power.abs()
    good &= ~watts | (same & (both["power_step"] <= _FINE * power.abs()))
    counts = by_pair[["time", "power"]].transform("nunique")
    enough = (by_pair["ratio"].transform("size") >= _SETTINGS) & (counts["time"] >= _TIMES)
    enough &= ~watts | (counts["power"] >= _TIMES)
    copy = enough & good.groupby([both["series"], both["base"]]).transform("all")
    found = both.assign(ratio=np.exp(ratio), watts=watts)[copy]
    # A copy of a copy is named once, by the one that is first by name.
    return found.sort_values("base").drop_duplicates(["series", "setting"])


def say_copy(workload: str, ratio: float, settings: int, watts: bool) -> str:
    """Say whose times a row has, how many times, and at how many settings."""
    times = "the same times as" if abs(ratio - 1) < _FINE else f"exactly {ratio:.6g} times"
    with_watts = ", with the same power" if watts else ""
    those = workload if times.startswith("the same") else f"those of {workload}"
    return f"{times} {those} at all {settings} settings that both have{with_watts}"
