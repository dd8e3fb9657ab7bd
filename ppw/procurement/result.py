"""What `ppw.procure` answers: tables, a verdict in sentences, JSON and one row a candidate."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import pandas as pd

from ppw.procurement import words
from ppw.procurement.sections import Section, sections
from ppw.result import as_floats, read_document, reads_document, records, write_document
from ppw.tables import summary_text, text_table

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from ppw.procurement.model import Basis

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
        One row a figure that was moved, as `ppw.procurement.sensitivities.Sensitivities.rows`.
    crossovers : pandas.DataFrame
        One row a tie, as `ppw.procurement.crossovers.Crossovers.rows`.
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
        return words.verdict(self)

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
        from ppw.report.procurement_page import plot_costs

        return plot_costs(self, ax)
