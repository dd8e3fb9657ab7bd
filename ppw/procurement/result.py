"""What `ppw.procure` answers: tables, a verdict in sentences, JSON and one row a candidate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import pandas as pd

from ppw.procurement.decision import COST, YEARS
from ppw.procurement.plots import _axis_scale, _wrapped
from ppw.results.axes import MEASURED, new_axes
from ppw.results.result import as_floats, read_document, reads_document, records, write_document
from ppw.results.text import plot_label, shown, shown_interval, summary_text, text_table

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from matplotlib.axes import Axes

    from ppw.procurement.cost_model import Basis


# The answer in words: the verdict's sentences and the cells of its tables.


FIGURE_WORDS = {
    "tco": "total cost",
    "energy": "energy",
    "carbon": "carbon",
    "perf_per_watt": "performance per watt",
    "perf_per_dollar": "performance per price",
    "work_per_cost": "work per total cost",
}
_MOST_TURNS = 2


def verdict_sentences(result: Procurement) -> list[str]:
    """What to buy, how sure that is, who is best by the other figures, what would change it."""
    said = [] if result.any_fits else [_nobody_fits(result)]
    said += [_cheapest(result), _servers(result)]
    said += _others(result) if len(result.candidates) > 1 else []
    said += _turn_lines(result)
    if result.learn_next:
        said.append(f"What to learn next: {', then '.join(result.learn_next)}.")
    return said


def _nobody_fits(result: Procurement) -> str:
    why = "; ".join(
        f"{row['candidate']}: {row['why_not']}" for row in result.candidates.to_dict("records")
    )
    return f"No candidate fits the site ({why}); what follows is as if there were room."


def _cheapest(result: Procurement) -> str:
    row = result.figure(result.cheapest, "tco")
    ends = f"{money(row['lower'])} … {money(row['upper'])}"
    ends = "" if np.isnan(row["lower"]) else f" ({result.level:.0%}: {ends})"
    span = f"{result.years} years" if result.years > 1 else "one year"
    over = f"Over {span} {result.cheapest} costs"
    if len(result.candidates) == 1:
        return f"{over} {money(row['value'])} {result.currency}{ends}."
    known = not np.isnan([row["lower"], row["p_best"]]).any()
    sure = f", with probability {row['p_best']:.0%}" if known else ""
    cost = f"{money(row['value'])} {result.currency}"
    return f"{over} least: {cost}{ends}{sure}."


def _servers(result: Procurement) -> str:
    (row,) = result.candidates[result.candidates["candidate"] == result.cheapest].to_dict("records")
    by = "memory" if row["by_memory"] > row["by_rate"] else "rate"
    spare = f", {row['spare']:.0f} of them to spare" if row["spare"] else ""
    bought = f"{_count(row['servers'], 'server')} (as many as the {by} asks for{spare})"
    start = f"{money(row['at_start'])} {result.currency} at the start"
    text = f"It takes {bought} in {_count(row['racks'], 'rack')} and {start}"
    if result.runner_up is None:
        return f"{text}."
    costs = dict(zip(result.costs["candidate"], result.costs["tco"], strict=True))
    more = costs[result.runner_up] - costs[result.cheapest]
    return f"{text}; {result.runner_up}, the next, costs {money(more)} {result.currency} more."


def _others(result: Procurement) -> list[str]:
    """Who is best by each of the other figures."""
    parts = []
    for figure in ("perf_per_watt", "perf_per_dollar", "carbon"):
        rows = result.figures[result.figures["figure"] == figure]
        if rows["p_best"].isna().all():
            continue
        best = max(rows.to_dict("records"), key=lambda row: row["p_best"])
        parts.append(f"{FIGURE_WORDS[figure]}: {best['candidate']} ({best['p_best']:.0%})")
    return [f"Best by the other figures: {', '.join(parts)}."] if parts else []


def _turn_lines(result: Procurement) -> list[str]:
    """The nearest ties of the total cost among what the market or the buyer decides."""
    if result.crossovers.empty:
        return []
    rows = result.crossovers[result.crossovers["criterion"] == COST]
    rows = rows[rows["key"].map(_in_buyers_hands).astype(bool)]
    nearest = rows.iloc[(rows["value"] / rows["now"] - 1).abs().argsort(kind="stable")]
    first = nearest.drop_duplicates("key").head(_MOST_TURNS)
    said = [turn(row) for row in first.to_dict("records")]
    return [f"What would change that: {'; '.join(said)}."] if said else []


def _in_buyers_hands(key: str) -> bool:
    return key.startswith(("site.", "costs.", "demand.")) or key.endswith(".price")


def turn(row: Mapping[Any, Any]) -> str:
    """Say one tie of the total cost."""
    side = "above" if row["value"] > row["now"] else "below"
    if row["key"] == YEARS:
        when = f"{row['value']:.0f} years in place of {row['now']:.0f}"
    else:
        when = (
            f"{row['what']} {side} {shown(row['value'], row['unit'])} "
            f"(now {shown(row['now'], row['unit'])})"
        )
    return f"{when}, where {row['beyond']} costs less"


def _count(number: float, what: str) -> str:
    return f"{number:.0f} {what}{'' if number == 1 else 's'}"


def money(value: float) -> str:
    """Write money to the cent."""
    return "–" if np.isnan(value) else f"{value:,.2f}"


# The printed tables of the answer, for the terminal and the page alike.


_ADDING_UP = {"tco": 2, "energy": 1, "carbon": 1}
# These carry their unit, with a prefix; of all others it stands in the name.
_WITH_PREFIX = ("W", "B")
_SIZES = ((1e9, "10⁹ "), (1e6, "million "), (1e5, "thousand "))


class Section(NamedTuple):
    """One table: the first ``keys`` columns are names; ``note`` says what cannot be seen."""

    title: str
    header: list[str]
    rows: list[list[str]]
    keys: int
    note: str = ""


def sections(result: Procurement, most: int | None = None) -> list[Section]:
    """All tables but that of the inputs, each with at most ``most`` rows where there are many."""
    names = list(result.candidates["candidate"])
    made = [Section("What to buy", ["figure", *names], _figure_rows(result), 1), *_parts(result)]
    made.append(_moves(result, most))
    if len(result.crossovers):
        made.append(_turn_section(result, most))
    return made


def input_section(result: Procurement) -> Section:
    """Every figure that the answer rests on, with who says so."""
    rows = [
        [
            _named(row),
            row["label"],
            row["source"],
            _number(row["value"], row["unit"]),
            shown_interval(row["value"], row["low"], row["high"], row["unit"]),
        ]
        for row in result.inputs.to_dict(orient="records")
    ]
    header = ["figure", "who says so", "source", "value", "range"]
    return Section("What it rests on", header, rows, 3)


def _parts(result: Procurement) -> Iterator[Section]:
    """Money, energy and carbon: one row a part, one column a candidate; they add up."""
    for title, table, unit, decimals in (
        ("Money, present value", result.costs, result.currency, 2),
        ("Energy", result.energy, "kWh", 1),
        ("Carbon", result.carbon, "kg CO2e", 1),
    ):
        if table.drop(columns="candidate").notna().any(axis=None):
            header = [f"part ({unit})", *table["candidate"]]
            yield Section(title, header, _part_rows(table, decimals), 1)


def _moves(result: Procurement, most: int | None) -> Section:
    rows = [
        [
            _named(row),
            row["range"],
            _cheapest_then(row),
            _number(row["low"], row["unit"]),
            _number(row["high"], row["unit"]),
            shown_interval(row["apart_at_low"], row["apart_at_low"], row["apart_at_high"], "1"),
        ]
        for row in _first(result.sensitivities, most)
    ]
    header, note = ["figure moved", "range", "cheapest then", "from", "to"], "Cost at either end."
    what = "cost" if result.runner_up is None else "lead"
    if result.runner_up is not None:
        note = f"Lead: what {result.runner_up} costs more than {result.cheapest}, at either end."
    note += _cut(result.sensitivities, most)
    header.append(f"{what} ({result.currency})")
    return Section("What moves the answer", header, rows, 3, note)


def _turn_section(result: Procurement, most: int | None) -> Section:
    rows = [
        [
            _named(row),
            f"{row['criterion']}, {row['rival']}",
            _rival_better(row),
            _number(row["now"], row["unit"]),
            _number(row["value"], row["unit"]),
            shown_interval(row["value"], row["lower"], row["upper"], row["unit"]),
        ]
        for row in _first(result.crossovers, most)
    ]
    header = ["figure", "alike in", "rival better", "now", "tie"]
    note = (
        f"Where {result.cheapest} and a rival are alike; without an interval all else is at its "
        f"value.{_cut(result.crossovers, most)}"
    )
    return Section(
        "Where the answer turns", [*header, f"{result.level:.0%} interval"], rows, 3, note
    )


def _first(table: pd.DataFrame, most: int | None) -> list[dict[Any, Any]]:
    rows = table if most is None else table.head(most)
    return rows.to_dict(orient="records")


def _cut(table: pd.DataFrame, most: int | None) -> str:
    more = 0 if most is None else len(table) - most
    return f" {more} more rows are in the JSON." if more > 0 else ""


def _named(row: Mapping[Any, Any]) -> str:
    """Name of a figure, with its unit where numbers do not carry it."""
    bare = row["unit"] == "1" or row["unit"] in _WITH_PREFIX
    return str(row["what"]) if bare else f"{row['what']} ({row['unit']})"


def _rival_better(row: Mapping[Any, Any]) -> str:
    """Side of a tie on which the rival is the better one."""
    if row["key"] == YEARS:
        return "then"
    up = row["value"] > row["now"]
    return "above" if up == (row["beyond"] == row["rival"]) else "below"


def _number(value: float, unit: str) -> str:
    return shown(value, unit if unit in _WITH_PREFIX else "1")


def _figure_rows(result: Procurement) -> list[list[str]]:
    """What to buy, and every figure with its interval and probability, one column a candidate."""
    table = result.candidates.to_dict("records")
    level = f"  {result.level:.0%} interval"
    rows = [
        ["servers", *(f"{r['servers']:.0f}" for r in table)],
        [level, *(_whole_interval(r, "servers") for r in table)],
        ["racks", *(f"{r['racks']:.0f}" for r in table)],
        ["fits the site", *("yes" if r["fits"] else "no" for r in table)],
        ["peak power (kW)", *(shown(r["peak_power_w"] / 1000) for r in table)],
        ["mean load", *(f"{r['mean_load']:.0%}" for r in table)],
        [f"paid at the start ({result.currency})", *(money(r["at_start"]) for r in table)],
    ]
    for figure, group in result.figures.groupby("figure", sort=False):
        size, times = (1.0, "") if figure in _ADDING_UP else _scale(group["value"])
        numbers = ["value", "lower", "upper"]
        found = group.assign(**{n: group[n] / size for n in numbers}).to_dict("records")
        name = f"{FIGURE_WORDS[str(figure)]} ({times}{found[0]['unit']})"
        rows.append([name, *(_value(r) for r in found)])
        rows.append(
            [level, *(shown_interval(r["value"], r["lower"], r["upper"], "1") for r in found)]
        )
        if len(found) > 1:
            rows.append(["  P(best)", *(_share(r["p_best"]) for r in found)])
    if len(table) > 1:
        rows.append(["P(no other beats it)", *(_share(r["p_on_front"]) for r in table)])
    return rows


def _scale(values: pd.Series[float]) -> tuple[float, str]:
    """What to divide large values by, and its word."""
    most = float(values.max())
    return next(((size, word) for size, word in _SIZES if most >= size), (1.0, ""))


def _whole_interval(row: Mapping[Any, Any], name: str) -> str:
    return f"{np.floor(row[f'{name}_lower']):.0f} … {np.ceil(row[f'{name}_upper']):.0f}"


def _value(row: Mapping[Any, Any]) -> str:
    if row["figure"] not in _ADDING_UP or np.isnan(row["value"]):
        return shown(row["value"])
    return f"{row['value']:,.{_ADDING_UP[row['figure']]}f}"


def _share(share: float) -> str:
    return "–" if np.isnan(share) else f"{share:.0%}"


def _part_rows(table: pd.DataFrame, decimals: int) -> list[list[str]]:
    """One row a part and one column a candidate; parts that are 0 everywhere are left out."""
    parts = [c for c in table.columns if c != "candidate"]
    return [
        [_part_name(part), *("–" if np.isnan(v) else f"{v:,.{decimals}f}" for v in table[part])]
        for part in parts
        if part == parts[-1] or not (table[part] == 0).all()
    ]


def _part_name(part: str) -> str:
    plain = part.removesuffix("_kwh").removesuffix("_kg").replace("_", " ")
    return {"tco": "total cost", "facility": "cooling and supply"}.get(plain, plain)


def _cheapest_then(row: Mapping[Any, Any]) -> str:
    low, high = row["cheapest_at_low"], row["cheapest_at_high"]
    return low if low == high else f"{low} … {high}"


_TABLES = (
    *("figures", "candidates", "costs", "energy", "carbon"),
    *("sensitivities", "crossovers", "inputs"),
)
_PLAIN = (
    *("title", "currency", "years", "cheapest", "runner_up", "any_fits", "learn_next"),
    *("level", "draws", "seed", "caveats"),
)
_NOT_FLOATS = (
    *("candidate", "figure", "unit", "fits", "why_not", "key", "what", "range", "changes"),
    *("cheapest_at_low", "cheapest_at_high", "rival", "criterion", "beyond", "label", "source"),
)
_MOST_ROWS = 12


@dataclass(frozen=True, kw_only=True, eq=False)
class Procurement:
    """The answer to a procurement scenario.

    Attributes
    ----------
    title, currency : str
    years : int
    cheapest : str
        Candidate of the least total cost at the values of all figures, of those that fit the site.
    runner_up : str or None
        The next cheapest that fits.
    any_fits : bool
    figures : pandas.DataFrame
        One row a candidate and figure: ``candidate``, ``figure`` ("tco", "energy", "carbon",
        "perf_per_watt", "perf_per_dollar", "work_per_cost"), ``unit``, ``value`` (at the values
        given and the medians measured), ``lower``, ``upper`` and ``p_best``.
    candidates : pandas.DataFrame
        One row a candidate: ``servers`` and ``racks`` with ``_lower`` and ``_upper``, ``by_rate``
        and ``by_memory`` (servers that each asks for), ``spare``, ``per_rack``, ``peak_power_w``,
        ``mean_load``, ``at_start`` (money), ``fits``, ``p_fits``, ``why_not`` and ``p_on_front``
        (probability that no other is as good in cost and carbon, or energy, and better in one).
    costs : pandas.DataFrame
        One row a candidate: present value of each part, which add up to ``tco``.
    energy, carbon : pandas.DataFrame
        The same in kWh (``total_kwh``) and kg CO2e (``total_kg``).
    sensitivities : pandas.DataFrame
        One row a figure that was moved, as `ppw.procurement.decision.Sensitivities.rows`.
    crossovers : pandas.DataFrame
        One row a tie, as `ppw.procurement.decision.Crossovers.rows`.
    inputs : pandas.DataFrame
        Every figure with who says so: ``label`` is "given" (typed in), "measured", "projected",
        "catalogue" or "default".
    learn_next : tuple of str
        Where it is undecided who is cheapest: the figures that would tell most.
    level : float
    draws, seed : int
    caveats : tuple of str
    basis : Basis or None
        What it was made from; None when read from JSON.
    """

    title: str
    currency: str
    years: int
    cheapest: str
    runner_up: str | None
    any_fits: bool
    figures: pd.DataFrame
    candidates: pd.DataFrame
    costs: pd.DataFrame
    energy: pd.DataFrame
    carbon: pd.DataFrame
    sensitivities: pd.DataFrame
    crossovers: pd.DataFrame
    inputs: pd.DataFrame
    learn_next: tuple[str, ...]
    level: float
    draws: int
    seed: int
    caveats: tuple[str, ...]
    input_digest: str = field(repr=False, compare=False)
    basis: Basis | None = field(default=None, repr=False, compare=False)

    def figure(self, candidate: str, figure: str) -> pd.Series[Any]:
        """Row of ``figures``."""
        rows = self.figures[self.figures["candidate"] == candidate]
        return rows[rows["figure"] == figure].iloc[0]

    def to_frame(self) -> pd.DataFrame:
        """One row a candidate with all its figures, for a spreadsheet."""
        made = self.candidates.set_index("candidate")
        # Servers cost money and take energy: each of these columns says which it is.
        costs = self.costs.set_index("candidate").add_prefix("cost_")
        parts = [made, costs, *(t.set_index("candidate") for t in (self.energy, self.carbon))]
        for figure, rows in self.figures.groupby("figure", sort=False):
            named = {
                "value": f"{figure}",
                "lower": f"{figure}_lower",
                "upper": f"{figure}_upper",
                "p_best": f"p_best_{figure}",
            }
            parts.append(rows.set_index("candidate")[list(named)].rename(columns=named))
        return pd.concat(parts, axis=1).rename_axis("candidate").reset_index()

    def summary(self) -> str:
        """Show the verdict, the tables, what moves the answer, what ties, and the caveats."""
        lines = [self.title, *self.verdict(), ""]
        for section in self.sections(_MOST_ROWS):
            lines += [section.title, text_table(section.header, section.rows)]
            lines += [section.note, ""] if section.note else [""]
        return summary_text(lines[:-1], self.caveats)

    def scope(self) -> str:
        """Say how many candidates are compared, and over what time."""
        count = len(self.candidates)
        years = f"{self.years} years" if self.years > 1 else "one year"
        return f"{count} candidate{'' if count == 1 else 's'} over {years}"

    def verdict(self) -> list[str]:
        """Say what to buy, how sure that is, and what would change it."""
        return verdict_sentences(self)

    def sections(self, most: int | None = None) -> list[Section]:
        """Return the printed tables: what to buy, the parts, what moves it, where it turns."""
        return sections(self, most)

    def to_json(self) -> str:
        """JSON document with ``schema_version``; one object a row in each table."""
        body = {name: getattr(self, name) for name in _PLAIN}
        body |= {name: records(getattr(self, name)) for name in _TABLES}
        return write_document("procurement", self.input_digest, body)

    @classmethod
    @reads_document
    def from_json(cls, text: str) -> Procurement:
        """Read `to_json` back. Raises `PpwError` for anything else."""
        d = read_document(text, "procurement")
        body: dict[str, Any] = {name: d[name] for name in _PLAIN}
        body |= {name: tuple(d[name]) for name in ("learn_next", "caveats")}
        body |= {name: as_floats(pd.DataFrame(d[name]), but=_NOT_FLOATS) for name in _TABLES}
        return cls(**body, input_digest=d["input_digest"])

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what each candidate costs, part by part, with the interval of the total."""
        return plot_costs(self, ax)


# Dark for what is bought, light for what is paid by the year.
_COLOURS = {
    "servers": "#1f4e79",
    "racks": "#2563a8",
    "network": "#5b8fc7",
    "licences": "#8a6fb0",
    "support": "#b9a6d3",
    "energy": "#e0a030",
    "carbon": "#6b8e4e",
    "residual_value": "#c9ced4",
}


def plot_costs(result: Procurement, ax: Axes | None = None) -> Axes:
    """Draw what each candidate costs, part by part, with the interval of the total."""
    axes, table = new_axes(ax), result.costs
    place = np.arange(len(table))
    ahead, behind = np.zeros(len(table)), np.zeros(len(table))
    size, unit = _axis_scale(table["tco"].to_numpy())
    for part, colour in _COLOURS.items():
        money = table[part].to_numpy() / size
        if not money.any():
            continue
        start = np.where(money < 0, behind, ahead)
        label = part.replace("_", " ")
        axes.barh(place, money, left=start, color=colour, height=0.6, label=label)
        ahead, behind = ahead + np.maximum(money, 0), behind + np.minimum(money, 0)
    ends = result.figures[result.figures["figure"] == "tco"]
    axes.hlines(place, ends["lower"] / size, ends["upper"] / size, color=MEASURED, lw=1.5)
    axes.plot(table["tco"] / size, place, "|", color=MEASURED, ms=9)
    axes.set_yticks(place, [_wrapped(name) for name in table["candidate"]])
    axes.invert_yaxis()
    axes.set_ylabel("candidate")
    axes.set_xlabel(plot_label(f"total cost ({unit}{result.currency})"))
    axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
    return axes
