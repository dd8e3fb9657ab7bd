"""What `ppw.procure` answers: tables, a verdict in sentences, JSON and one row a candidate."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from operator import itemgetter
from typing import Any

import numpy as np
import pandas as pd

from ppw.procurement.cost_model import COST, FIGURES, PROFILE, YEARS, Basis
from ppw.results.axes import MEASURED, Axes, label_lines, new_axes
from ppw.results.result import SHARE, PrintedTable, Result, Row, Table, rows_of, value_text
from ppw.results.text import plot_label, shown, shown_interval

# The answer in words: the verdict's sentences and the cells of its tables.
_MOST_TURNS, _MOST_ASSUMPTIONS = 2, 3
# Less probable than this, or a saving below this share of the cost, is too close to call.
_CLEAR, _WORTH, _SURE = 0.6, 0.01, 0.95
# What counts nothing unless it is given: keys of the figures, and what people call them.
_ASKED = {
    "headroom": ("demand.headroom",),
    "discount rate": ("costs.discount_rate",),
    "support": ("costs.support_share",),
    "racks": ("site.rack_price", "site.rack_rent_per_year"),
    "network ports": ("costs.port_price", "costs.port_power"),
}


def _cheapest_sentence(result: Procurement) -> str:
    row = result.figure(result.cheapest, "tco")
    known = not np.isnan(row["lower"])
    value = result.expected.get("cost", row["value"]) if known else row["value"]
    cost = _money_text(result, value, row["lower"], row["upper"])
    span = f"{result.years} years" if result.years > 1 else "one year"
    over = f"ver {span} {result.cheapest} costs"
    if len(result.candidates) == 1:
        return f"O{over} {cost}."
    sure = f", with probability {row['p_best']:.0%}" if known and row["p_best"] >= 0 else ""
    if result.too_close:
        return f"Too close to call. O{over} least by expectation: {cost}{sure}."
    return f"O{over} least: {cost}{sure}."


def _money_text(result: Procurement, value: float, lower: float, upper: float) -> str:
    """Write money with its interval, in digits that the interval allows; else to the cent."""
    if not upper > lower:
        return f"{_decimal_text(value)} {result.currency}"
    texts = [_text_within(amount, upper - lower) for amount in (value, lower, upper)]
    return f"{texts[0]} {result.currency} ({result.level:.0%}: {texts[1]} … {texts[2]})"


def _text_within(value: float, width: float) -> str:
    """Write a number to the second digit of the width of its interval; to the cent without one."""
    if not width > 0:
        return _decimal_text(value)
    decimals = min(1 - int(np.floor(np.log10(width))), 2)
    return f"{round(value, decimals) + 0.0:,.{max(decimals, 0)}f}"


def _servers_sentence(result: Procurement) -> str:
    (row,) = rows_of(result.candidates[result.candidates["candidate"] == result.cheapest])
    by = "memory" if row["by_memory"] > row["by_rate"] else "rate"
    spare = f", {row['spare']:.0f} of them to spare" if row["spare"] else ""
    bought = f"{_count_text(row['servers'], 'server')} (as many as the {by} asks for{spare})"
    cost = result.figure(result.cheapest, "tco")
    start = _text_within(row["at_start"], cost["upper"] - cost["lower"])
    start = f"{start} {result.currency} at the start"
    text = f"It takes {bought} in {_count_text(row['racks'], 'rack')} and {start}"
    if result.runner_up is None:
        return f"{text}."
    costs = dict(zip(result.costs["candidate"], result.costs["tco"], strict=True))
    cheapest, other = costs[result.cheapest], costs[result.runner_up]
    ends = [result.expected.get(f"saving_{end}", np.nan) for end in ("lower", "upper")]
    # Without an interval the sums of the printed parts tell the saving to the cent.
    known = not np.isnan(ends[0])
    saving = result.expected["saving"] if known else other - cheapest
    share = result.expected["share"] if known else 1 - cheapest / other
    saved = _money_text(result, saving, *ends)
    percent = float(f"{100 * share:.2g}")
    return f"{text}. It saves {saved} or {percent:g}% against {result.runner_up}, the next."


def _assumption_sentences(result: Procurement) -> list[str]:
    """Name the three assumptions that could overturn the verdict, and what was not given."""
    said = []
    if result.runner_up is not None:
        # Of those that overturn it, a range or a default is more of an assumption than a ±20 %.
        rows = sorted(
            rows_of(result.sensitivities),
            key=lambda row: (not row["changes"], row["changes"] and row["range"][0] == "±"),
        )
        texts = [_assumption_text(result, row) for row in rows[:_MOST_ASSUMPTIONS]]
        said.append(f"What this depends on most: {'; '.join(texts)}.")
    figures = result.inputs
    said += [
        f"Not given: {row['what']}, taken as {_published_text(row)} ({row['source']})."
        for row in rows_of(figures[figures["source"].str.contains("https://")])
        if row["label"] == "default"
    ]
    taken = set(figures.loc[(figures["label"] == "default") & (figures["value"] == 0), "key"])
    missing = [name for name, keys in _ASKED.items() if taken.issuperset(keys)]
    parts = [f"{', '.join(missing)}, taken as 0"] if missing else []
    if (result.sensitivities["key"] == PROFILE).any():
        parts.insert(0, "a demand profile, so the peak is taken for all hours")
    return [*said, f"Not given: {'; '.join(parts)}."] if parts else said


def _published_text(row: Row) -> str:
    """Write a figure that somebody published, with its range: "0.2 (0.2 … 0.3) EUR/kWh"."""
    ends = f" ({row['low']:.4g} … {row['high']:.4g})" if row["low"] < row["high"] else ""
    unit = "" if row["unit"] == "1" else f" {row['unit']}"
    return f"{row['value']:.4g}{ends}{unit}"


def _assumption_text(result: Procurement, row: Row) -> str:
    """Say how far an assumption may move, and which candidate costs least then."""
    ends = [_number_in_unit(end)(row) for end in ("low", "high")]
    there = zip((row["cheapest_at_low"], row["cheapest_at_high"]), ends, strict=True)
    others = [f"{name} costs least at {at}" for name, at in there if name != result.cheapest]
    then = " and ".join(others) or f"{result.cheapest} still costs least"
    kinds = {"usual": "not given", "given": "given range", "drawn": "measured"}
    kind = kinds.get(row["range"], row["range"])
    return f"{_figure_name(row)} {' … '.join(ends)} ({kind}): {then}"


def _best_by_figures(result: Procurement) -> list[str]:
    """Sentence on who is best by perf/W, perf/price and carbon; none where unknown."""
    parts = []
    for figure in ("perf_per_watt", "perf_per_dollar", "carbon"):
        rows = result.figures[result.figures["figure"] == figure]
        if rows["p_best"].isna().all():
            continue
        best = max(rows_of(rows), key=lambda row: row["p_best"])
        parts.append(f"{FIGURES[figure].words}: {best['candidate']} ({best['p_best']:.0%})")
    return [f"Best by the other figures: {', '.join(parts)}."] if parts else []


def _tie_lines(result: Procurement) -> list[str]:
    """Sentence on the nearest cost ties of figures that the buyer or market decides; or none."""
    if (rows := decided_ties(result)).empty:
        return []
    nearest = rows.iloc[(rows["value"] / rows["now"] - 1).abs().argsort(kind="stable")]
    first = rows_of(nearest.drop_duplicates("key").head(_MOST_TURNS))
    return [f"What would change the choice: {'; '.join(map(tie_text, first))}."]


def decided_ties(result: Procurement) -> pd.DataFrame:
    """Cost ties of figures that the buyer or market decides."""
    rows = result.crossovers
    if rows.empty:
        return rows
    rows = rows[rows["criterion"] == COST]
    decided = rows["key"].str.endswith((".price", ".rent_per_hour", ".one_off_cost"))
    return rows[rows["key"].str.startswith(("site.", "costs.", "demand.")) | decided]


def tie_text(row: Mapping[Any, Any]) -> str:
    """Say at which value of a figure another candidate costs less."""
    side = "above" if row["value"] > row["now"] else "below"
    if row["key"] == YEARS:
        when = f"{row['value']:.0f} years in place of {row['now']:.0f}"
    else:
        now = shown(row["now"], row["unit"])
        when = f"{row['what']} {side} {shown(row['value'], row['unit'])} (now {now})"
    return f"{when}, where {row['beyond']} costs less"


def _count_text(number: float, what: str) -> str:
    return f"{number:.0f} {what}{'' if number == 1 else 's'}"


def _decimal_text(value: float, decimals: int = 2) -> str:
    """Write a number with fixed decimals, by default money to the cent."""
    return "–" if np.isnan(value) else f"{value:,.{decimals}f}"


# The printed tables of the answer, for the terminal and the page alike.


# These carry their unit, with a prefix; of all others it stands in the name.
_WITH_PREFIX = ("W", "B")
_SIZES = ((1e9, "10⁹ "), (1e6, "million "), (1e5, "thousand "))
_MOST_ROWS = 12


def _figure_name(row: Row) -> str:
    """Name a figure, with its unit where numbers do not carry it."""
    bare = row["unit"] == "1" or row["unit"] in _WITH_PREFIX
    return str(row["what"]) if bare else f"{row['what']} ({row['unit']})"


def _number_in_unit(column: str) -> Callable[[Row], str]:
    """Write a column in the unit of the row, without the units that stand in the name."""
    return lambda row: shown(row[column], row["unit"] if row["unit"] in _WITH_PREFIX else "1")


def _at_both_ends(column: str, text: Callable[[Any], str]) -> Callable[[Row], str]:
    """Write what a column has at either end of a range: once where it is the same."""

    def write_ends(row: Row) -> str:
        low, high = (text(row[f"{column}_at_{end}"]) for end in ("low", "high"))
        return low if low in ("–", high) else f"{low} … {high}"

    return write_ends


def _rival_better(row: Row) -> str:
    """Say on which side of a tie the rival is better: "above", "below", or "then" for years."""
    if row["key"] == YEARS:
        return "then"
    up = row["value"] > row["now"]
    return "above" if up == (row["beyond"] == row["rival"]) else "below"


_FIGURES = Table(
    "figures",
    """
    candidate | text  | | name of the candidate
    figure    | text  | | "tco", "energy", "carbon", "perf_per_watt" or another that it names
    unit      | text  | | unit of the figure
    value     | unit  | | figure at the values given and the medians measured
    lower     | unit  | | lower end of its interval
    upper     | unit  | | upper end of its interval
    p_best    | share | | probability that the candidate is the best by it
    """,
)
_CANDIDATES = Table(
    "candidates",
    """
    candidate     | text  | | name of the candidate
    servers       | 1     | | number of servers
    servers_lower | 1     | | lower end of its interval
    servers_upper | 1     | | upper end of its interval
    by_rate       | 1     | | servers that the rate asks for
    by_memory     | 1     | | servers that the memory asks for
    spare         | 1     | | spare servers
    racks         | 1     | | number of racks
    racks_lower   | 1     | | lower end of its interval
    racks_upper   | 1     | | upper end of its interval
    per_rack      | 1     | | servers in a rack
    peak_power_w  | W     | | power of all servers and ports at their peak
    mean_load     | share | | load of a server over the years and the day
    at_start      | @currency | | money paid before the first year
    fits          | flag  | | whether the site has room and power
    p_fits        | share | | probability of that
    why_not       | text  | | what is short
    p_on_front    | share | | probability that none is as good in cost and carbon and better in one
    """,
)
_COSTS = Table(
    "costs",
    """
    candidate      | text      | | name of the candidate
    servers        | @currency | | present value of the servers, bought or rented
    one_off        | @currency | | one-off cost of the candidate
    racks          | @currency | | present value of the racks
    network        | @currency | | present value of the network ports
    licences       | @currency | | present value of the licences
    support        | @currency | | present value of the support
    energy         | @currency | | present value of the energy
    carbon         | @currency | | present value of the carbon price
    residual_value | @currency | | present value of what comes back at the end, negative
    tco            | @currency | | total cost: the sum of the parts
    """,
)
_ENERGY = Table(
    "energy",
    """
    candidate    | text | | name of the candidate
    servers_kwh  | kWh  | | energy of the servers
    network_kwh  | kWh  | | energy of the network
    facility_kwh | kWh  | | energy of cooling and supply
    total_kwh    | kWh  | | the sum of the parts
    """,
)
_CARBON = Table(
    "carbon",
    """
    candidate   | text    | | name of the candidate
    use_kg      | kg | | carbon of the energy
    embodied_kg | kg | | carbon of making the servers
    total_kg    | kg | | the sum of both
    """,
)
_SENSITIVITIES = Table(
    "sensitivities",
    """
    what             | text      | figure moved  | what the figure is
    range            | text      | range         | "drawn", "given", "usual" or how far it is moved
    cheapest_at_low  | text      | cheapest then | cheapest candidate at the low end
    low              | unit      | from          | low end of the range
    high             | unit      | to            | high end of the range
    apart_at_low     | @currency | cost          | cost of the runner-up less that of the cheapest
    apart_at_high    | @currency |               | the same at the high end
    cheapest_at_high | text      |               | cheapest candidate at the high end
    changes          | flag      |               | whether another one is the cheapest at an end
    key              | text      |               | key of the figure
    unit             | text      |               | unit of the figure
    value            | unit      |               | value of the figure
    """,
    title="What moves the answer",
    show={
        "what": _figure_name,
        "cheapest_at_low": _at_both_ends("cheapest", str),
        "low": _number_in_unit("low"),
        "high": _number_in_unit("high"),
        "apart_at_low": _at_both_ends("apart", shown),
    },
)
_CROSSOVERS = Table(
    "crossovers",
    """
    what      | text | figure       | what the figure is
    criterion | text | alike in     | "total cost" or "performance per price"
    beyond    | text | rival better | candidate that is better on the far side of the tie
    now       | unit | now          | value of the figure
    value     | unit [lower, upper] | tie | value at which both candidates are alike
    lower     | unit |              | lower end of its interval
    upper     | unit |              | upper end of its interval
    p_tie     | share |             | probability that there is a tie
    key       | text |              | key of the figure
    unit      | text |              | unit of the figure
    rival     | text |              | candidate that the cheapest is compared with
    """,
    title="Where the answer turns",
    show={
        "what": _figure_name,
        "criterion": lambda row: f"{row['criterion']}, {row['rival']}",
        "beyond": _rival_better,
        "now": _number_in_unit("now"),
        "value": _number_in_unit("value"),
    },
)
_INPUTS = Table(
    "inputs",
    """
    what   | text | figure      | what the figure is
    label  | text | who says so | "given", "measured", "projected", "catalogue" or "default"
    source | text | source      | where it was read
    value  | unit | value       | value of the figure
    low    | unit | range       | low end of its range
    high   | unit |             | high end of its range
    key    | text |             | key of the figure
    unit   | text |             | unit of the figure
    """,
    title="What it rests on",
    show={
        "what": _figure_name,
        "source": itemgetter("source"),
        "value": _number_in_unit("value"),
        "low": lambda row: shown_interval(row["value"], row["low"], row["high"], row["unit"]),
    },
)
# Dark for what is bought, light for what is paid by the year.
COLOURS = {
    "servers": "#1f4e79",
    "one_off": "#3c4b63",
    "racks": "#2563a8",
    "network": "#5b8fc7",
    "licences": "#8a6fb0",
    "support": "#b9a6d3",
    "energy": "#e0a030",
    "carbon": "#6b8e4e",
    "residual_value": "#c9ced4",
}


@dataclass(frozen=True, kw_only=True, eq=False)
class Procurement(Result):
    """The answer to a procurement scenario.

    Attributes
    ----------
    title, currency : str
    years : int
    cheapest : str
        Candidate of the least expected total cost, of those that fit the site.
    runner_up : str or None
        The next cheapest that fits.
    expected : mapping
        Expected cost of the cheapest ("cost"), and what it saves against the next one: "saving",
        "share" of the next one's cost, "saving_lower" and "saving_upper".
    any_fits : bool
    learn_next : tuple of str
        Where it is undecided who is cheapest: the figures that would tell most.
    level : float
        Level of the intervals.
    draws, seed : int
    figures : pandas.DataFrame
        One row a candidate and figure.
    candidates : pandas.DataFrame
        One row a candidate.
    costs, energy, carbon : pandas.DataFrame
        One row a candidate: parts that add up to a total.
    sensitivities : pandas.DataFrame
        One row a figure that was moved, the others drawn.
    crossovers : pandas.DataFrame
        One row a tie of the cheapest candidate with a rival.
    inputs : pandas.DataFrame
        One row a figure that the answer rests on.
    caveats : tuple of str
    basis : Basis or None
        What it was made from; None when read from JSON.
    """

    kind = "procurement"
    tables = (_FIGURES, _CANDIDATES, _COSTS, _ENERGY, _CARBON, _SENSITIVITIES, _CROSSOVERS, _INPUTS)

    title: str
    currency: str
    years: int
    cheapest: str
    runner_up: str | None
    any_fits: bool
    learn_next: tuple[str, ...]
    level: float
    draws: int
    seed: int
    figures: pd.DataFrame
    candidates: pd.DataFrame
    costs: pd.DataFrame
    energy: pd.DataFrame
    carbon: pd.DataFrame
    sensitivities: pd.DataFrame
    crossovers: pd.DataFrame
    inputs: pd.DataFrame
    expected: Mapping[str, float] = field(default_factory=dict)
    basis: Basis | None = field(default=None, repr=False, metadata={"json": False})

    @property
    def too_close(self) -> bool:
        """Tell whether the cheapest is hardly more probable than others, or saves hardly anything.

        That is a probability below 60 %, or below 95 % and an expected saving under 1 %.
        """
        sure = self.figure(self.cheapest, "tco")["p_best"]
        small = self.expected.get("share", 1.0) < _WORTH
        return bool(sure < _CLEAR or (small and sure < _SURE))

    def figure(self, candidate: str, figure: str) -> pd.Series[Any]:
        """Return the row of ``figures`` for a candidate and a figure."""
        rows = self.figures[self.figures["candidate"] == candidate]
        return rows[rows["figure"] == figure].iloc[0]

    def to_frame(self) -> pd.DataFrame:
        """Tabulate one row a candidate with all its figures, for a spreadsheet."""
        made, costs, *others = (
            table.set_index("candidate")
            for table in (self.candidates, self.costs, self.energy, self.carbon)
        )
        # Servers cost money and take energy: each of these columns says which it is.
        parts = [made, costs.add_prefix("cost_"), *others]
        for figure, rows in self.figures.groupby("figure", sort=False):
            names = {"lower": f"{figure}_lower", "upper": f"{figure}_upper"}
            names = {"value": f"{figure}", **names, "p_best": f"p_best_{figure}"}
            parts.append(rows.set_index("candidate")[list(names)].rename(columns=names))
        return pd.concat(parts, axis=1).rename_axis("candidate").reset_index()

    def scope(self) -> str:
        """Say how many candidates are compared, and over what time."""
        years = f"{self.years} years" if self.years > 1 else "one year"
        return f"{_count_text(len(self.candidates), 'candidate')} over {years}"

    def verdict(self) -> list[str]:
        """Say what to buy, how sure that is, and what would change it."""
        said = []
        if not self.any_fits:
            why = "; ".join(f"{r['candidate']}: {r['why_not']}" for r in rows_of(self.candidates))
            room = "the figures below assume that there is room"
            said.append(f"No candidate fits the site ({why}); {room}.")
        said += [_cheapest_sentence(self), *_assumption_sentences(self), _servers_sentence(self)]
        said += _best_by_figures(self) if len(self.candidates) > 1 else []
        said += _tie_lines(self)
        if self.learn_next:
            what = "What would decide it: find out" if self.too_close else "What to learn next:"
            said.append(f"{what} {', then '.join(self.learn_next)}.")
        return said

    def text_parts(self) -> list[str]:
        """Return title, verdict and tables of the summary, with their notes."""
        lines = [self.title, *self.verdict()]
        for table in self.sections(_MOST_ROWS):
            lines += ["", table.title, *table.lines(), *([table.note] if table.note else [])]
        return lines

    def printed_tables(self, most: int | None = None) -> list[PrintedTable]:
        """Return what to buy, the parts, what moves it, where it turns, and the inputs."""
        return [*self.sections(_MOST_ROWS if most is None else most), _INPUTS.print_rows(self)]

    def sections(self, most: int | None = None) -> list[PrintedTable]:
        """Return the printed tables: what to buy, the parts, what moves it, where it turns."""
        header = ["figure", *self.candidates["candidate"]]
        parts = [PrintedTable("What to buy", header, _figure_rows(self), 1), *_part_tables(self)]
        ties = [_ties_table(self, most)] if len(self.crossovers) else []
        return [*parts, _moves_table(self, most), *ties]

    @classmethod
    def _read_fields(cls, document: Mapping[str, Any]) -> dict[str, Any]:
        parts = super()._read_fields(document)
        # Documents of version 0.1.0 name no types.
        for name, flag in (("candidates", "fits"), ("sensitivities", "changes")):
            if flag in parts[name]:
                parts[name] = parts[name].astype({flag: np.bool_})
        return parts

    def plot(self, ax: Axes | None = None) -> Axes:
        """Draw what each candidate costs, part by part, with the interval of the total."""
        axes, table = new_axes(ax), self.costs
        place = np.arange(len(table))
        ahead, behind = np.zeros(len(table)), np.zeros(len(table))
        size, unit = axis_scale(table["tco"].to_numpy())
        for part, colour in COLOURS.items():
            # Documents of earlier versions have no one-off costs.
            if part not in table or not table[part].any():
                continue
            money = table[part].to_numpy() / size
            start = np.where(money < 0, behind, ahead)
            label = part.replace("_", " ")
            axes.barh(place, money, left=start, color=colour, height=0.6, label=label)
            ahead, behind = ahead + np.maximum(money, 0), behind + np.minimum(money, 0)
        ends = self.figures[self.figures["figure"] == "tco"]
        axes.hlines(place, ends["lower"] / size, ends["upper"] / size, color=MEASURED, lw=1.5)
        axes.plot(table["tco"] / size, place, "|", color=MEASURED, ms=9)
        axes.set_yticks(place, [label_lines(name) for name in table["candidate"]])
        axes.invert_yaxis()
        axes.set_ylabel("candidate")
        axes.set_xlabel(plot_label(f"total cost ({unit}{self.currency})"))
        axes.legend(frameon=False, ncols=3, loc="lower right", bbox_to_anchor=(1.0, 1.0))
        return axes


def axis_scale(values: np.ndarray) -> tuple[float, str]:
    """Divisor and word for an axis: 1e6 "million ", 1e3 "thousand " or 1 ""."""
    most = float(np.nanmax(np.abs(values), initial=0.0))
    return (1e6, "million ") if most >= 2e6 else (1e3, "thousand ") if most >= 2e3 else (1.0, "")


def _part_tables(result: Procurement) -> Iterator[PrintedTable]:
    """Tables of money, energy and carbon: a row a part, a column a candidate; none of unknowns."""
    for title, table, unit, decimals in (
        ("Money, present value", result.costs, result.currency, 2),
        ("Energy", result.energy, "kWh", 1),
        ("Carbon", result.carbon, "kg CO2e", 1),
    ):
        if table.drop(columns="candidate").notna().any(axis=None):
            header = [f"part ({unit})", *table["candidate"]]
            yield PrintedTable(title, header, _part_rows(table, decimals), 1)


def _moves_table(result: Procurement, most: int | None) -> PrintedTable:
    moves = _SENSITIVITIES.print_rows(result, most)
    note, lead = "Cost at either end.", "cost"
    if result.runner_up is not None:
        note = f"Lead: what {result.runner_up} costs more than {result.cheapest}, at either end."
        lead = "lead"
    header = [*moves.header[:-1], f"{lead} ({result.currency})"]
    return moves._replace(header=header, note=note + _rows_left_text(moves), left_out=0)


def _ties_table(result: Procurement, most: int | None) -> PrintedTable:
    turns = _CROSSOVERS.print_rows(result, most)
    note = (
        f"Value at which {result.cheapest} and a rival tie; a row without an interval holds all "
        f"other figures fixed.{_rows_left_text(turns)}"
    )
    return turns._replace(note=note, left_out=0)


def _rows_left_text(table: PrintedTable) -> str:
    return f" {table.left_out} more rows are in the JSON." if table.left_out else ""


def _figure_rows(result: Procurement) -> list[list[str]]:
    """Rows of texts: servers, racks and every figure with interval and probability."""
    table, level = rows_of(result.candidates), f"  {result.level:.0%} interval"
    ends = [(np.floor(row["servers_lower"]), np.ceil(row["servers_upper"])) for row in table]
    rows = [
        ["servers", *(f"{r['servers']:.0f}" for r in table)],
        [level, *("–" if low == high else f"{low:.0f} … {high:.0f}" for low, high in ends)],
        ["racks", *(f"{r['racks']:.0f}" for r in table)],
        ["fits the site", *("yes" if r["fits"] else "no" for r in table)],
        ["peak power (kW)", *(shown(r["peak_power_w"] / 1000) for r in table)],
        ["mean load", *(f"{r['mean_load']:.0%}" for r in table)],
        [f"paid at the start ({result.currency})", *(_decimal_text(r["at_start"]) for r in table)],
    ]
    for figure, group in result.figures.groupby("figure", sort=False):
        rows += _printed_rows_of_figure(str(figure), group, level)
    if len(table) > 1:
        rows.append(["P(no other beats it)", *(value_text(r["p_on_front"], SHARE) for r in table)])
    return rows


def _printed_rows_of_figure(figure: str, group: pd.DataFrame, level: str) -> list[list[str]]:
    decimals, size, times = FIGURES[figure].decimals, 1.0, ""
    if decimals is None:
        # Large values are divided by a number whose word the name then has.
        most = float(group["value"].max())
        size, times = next(((s, word) for s, word in _SIZES if most >= s), (1.0, ""))
    scaled = {end: group[end] / size for end in ("value", "lower", "upper")}
    cells = rows_of(group.assign(**scaled))
    text = shown if decimals is None else partial(_decimal_text, decimals=decimals)
    values = [text(row["value"]) for row in cells]
    rows = [
        [f"{FIGURES[figure].words} ({times}{cells[0]['unit']})", *values],
        [level, *(shown_interval(r["value"], r["lower"], r["upper"], "1") for r in cells)],
    ]
    if len(cells) > 1:
        rows.append(["  P(best)", *(value_text(r["p_best"], SHARE) for r in cells)])
    return rows


def _part_rows(table: pd.DataFrame, decimals: int) -> list[list[str]]:
    """Rows of texts: a row a part and a column a candidate, without parts that are all 0."""
    *parts, total = (str(column) for column in table if column != "candidate")
    kept = [part for part in parts if not (table[part] == 0).all()]
    plain = {p: re.sub(r"_kwh$|_kg$", "", p).replace("_", " ") for p in (*kept, total)}
    plain |= {"tco": "total cost", "facility_kwh": "cooling and supply"}
    return [[plain[p], *(_decimal_text(v, decimals) for v in table[p])] for p in (*kept, total)]
