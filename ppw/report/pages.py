"""Results as pages: the verdict in sentences, the figures and tables behind it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from ppw.estimate import key_texts, shown, shown_interval
from ppw.plots import plot_projected_against_measured
from ppw.report.page import MOST_ROWS, Figure, Page, Table, draw, rows_cut

if TYPE_CHECKING:
    from ppw.parameters import FittedParameters
    from ppw.quality import Quality
    from ppw.validation import Validation


def validation_page(result: Validation) -> Page:
    """Report of `ppw.validate`."""
    figures = [Figure(draw(result.plot), "Projected over measured; bars are medians.")]
    answered = [name for name, s in result.summary_by_metric.items() if s["n"]]
    figures += [_metric_figure(result, name) for name in answered]
    return Page(
        title="Projected against measured",
        subtitle=f"{result.scheme}; input {result.input_digest}",
        verdict=_validation_verdict(result),
        figures=figures,
        tables=[_summary_table(result), _groups_table(result)],
        caveats=result.caveats,
        document=result.to_json(),
    )


def parameters_page(result: FittedParameters) -> Page:
    """Report of `ppw.fit_runs`."""
    laws = dict.fromkeys(zip(result.table["metric"], result.table["equation"], strict=True))
    header = [*result.by, "metric", "parameter", "value", "standard error", "degrees of freedom"]
    rows = [
        [
            *key_texts(result.by, row),
            row["metric"],
            row["parameter"],
            shown(row["value"]),
            "held at 0" if row["held"] else shown(row["standard_error"]),
            str(row["degrees_of_freedom"]),
        ]
        for row in result.table.head(MOST_ROWS).to_dict(orient="records")
    ]
    table = Table("Parameters", header, rows, len(result.by) + 2, rows_cut(len(result.table)))
    return Page(
        title="Fitted curves",
        subtitle=f"input {result.input_digest}",
        verdict=[f"{metric}: {equation}" for metric, equation in laws],
        figures=[],
        tables=[table],
        caveats=result.caveats,
        document=result.to_json(),
    )


def quality_page(result: Quality) -> Page:
    """Report of `ppw.check_quality`."""
    figures = (
        [Figure(draw(result.plot), "Rows that each check names.")] if len(result.table) else []
    )
    return Page(
        title="Rows that cannot be right",
        subtitle=f"input {result.input_digest}",
        verdict=[result.verdict(), *_remedies(result)],
        figures=figures,
        tables=_quality_tables(result),
        caveats=result.caveats,
        document=result.to_json(),
    )


def _metric_figure(result: Validation, metric: str) -> Figure:
    rows = result.groups[result.groups["metric"] == metric]
    words = metric.replace("_", " ")
    return Figure(
        draw(lambda ax: plot_projected_against_measured(ax, rows, metric)),
        f"{words}: projected against measured, one point a group, with intervals where there are "
        "any.",
    )


def _validation_verdict(result: Validation) -> list[str]:
    sentences = []
    for name, s in result.summary_by_metric.items():
        if not s["n"]:
            sentences.append(f"{name}: no projection could be made.")
            continue
        naive = s["baselines"]["inverse_frequency"]
        sentences.append(
            f"{name.replace('_', ' ')}: half of {s['n']} projections are within "
            f"{s['median_ape']:.2g} % of the measurement and nine in ten within "
            f"{s['p90_ape']:.2g} % (scaling by the clock alone: {naive['median_ape']:.2g} and "
            f"{naive['p90_ape']:.2g} %). {_coverage(s['coverage'], s['with_interval'], result)}"
        )
    return sentences


def _coverage(coverage: float | None, count: int, result: Validation) -> str:
    if coverage is None:
        return "There are no intervals."
    return f"The {result.level:.0%} intervals cover {coverage:.0%} of {count} measurements."


def _summary_table(result: Validation) -> Table:
    header = ["metric", "n", "median", "p90", "mean", "max", "bias", "within 10 %", "coverage"]
    header += ["1/f: median", "1/f: p90", "unscaled: median", "unscaled: p90"]
    rows = []
    for name, s in result.summary_by_metric.items():
        if not s["n"]:
            rows.append([name, "0", *["–"] * 11])
            continue
        errors = [f"{s[k]:.2f}" for k in ("median_ape", "p90_ape", "mean_ape", "max_ape")]
        covered = "–" if s["coverage"] is None else f"{s['coverage']:.0%}"
        naive = [f"{b[k]:.2f}" for b in s["baselines"].values() for k in ("median_ape", "p90_ape")]
        rest = [f"{s['bias_pct']:+.2f}", f"{s['within_10pct']:.0%}", covered]
        rows.append([name, str(s["n"]), *errors, *rest, *naive])
    return Table(
        "Errors in percent",
        header,
        rows,
        1,
        "1/f: the clock is all that counts, so time scales with 1/f, throughput and power with f. "
        "unscaled: time does not change. Both from the nearest frequency learnt from.",
    )


def _remedies(result: Quality) -> list[str]:
    from ppw.quality import CHECKS

    return [
        f"{name.replace('_', ' ')}, {count} row{'s' if count > 1 else ''}: "
        f"{CHECKS[name].meaning}. What to do: {CHECKS[name].remedy}."
        for name, count in result.counts.items()
        if count
    ]


def _quality_tables(result: Quality) -> list[Table]:
    made = [[name, str(count)] for name, count in result.counts.items()]
    made += [[name, "not made"] for name in result.not_made]
    lacks = "; ".join(f"{name} needs {columns}" for name, columns in result.not_made.items())
    tables = [Table("Checks", ["check", "suspect rows"], made, 1, lacks)]
    if len(result.table):
        header, cells = result.header(), result.cells(MOST_ROWS)
        note = rows_cut(len(result.table))
        tables.append(Table("Suspect rows", header, cells, len(header), note))
    return tables


def _groups_table(result: Validation) -> Table:
    header = [*result.by, "metric", "frequency", "projected", "measured", "error %"]
    header += ["interval", "covered"]
    ordered = result.groups.reindex(
        result.groups["error_pct"].abs().sort_values(ascending=False, kind="stable").index
    )
    rows = [
        [
            *key_texts(result.by, row),
            row["metric"],
            shown(row["freq_hz"], "Hz"),
            shown(row["projected"], row["unit"]),
            shown(row["measured"], row["unit"]),
            "–" if np.isnan(row["error_pct"]) else f"{row['error_pct']:+.2f}",
            shown_interval(row["projected"], row["lower"], row["upper"], row["unit"]),
            "–" if row["covered"] is None else ("yes" if row["covered"] else "no"),
        ]
        for row in ordered.head(MOST_ROWS).to_dict(orient="records")
    ]
    keys = len(result.by) + 1
    return Table("Groups, largest error first", header, rows, keys, rows_cut(len(ordered)))
