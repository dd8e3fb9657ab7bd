"""Groups without a curve: how many, and why."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.schema import HEADERS
from ppw.estimate import shown

if TYPE_CHECKING:
    from ppw.curves import Curves
    from ppw.prepare import Prepared


def unfitted_groups(curves: Curves, prepared: Prepared) -> list[str]:
    """Say how many groups have no curve for a fit, because they have fewer than two frequencies."""
    texts = []
    for name, fitted in curves.fits.items():
        line = fitted.line
        without = np.isnan(line.slope)
        unmeasured = int((without & (line.moments.points == 0)).sum())
        single = int(without.sum()) - unmeasured
        total = len(prepared.groups)
        if unmeasured:
            texts.append(f"{name}: {unmeasured} of {total} groups left out: not measured there")
        if single:
            texts.append(
                f"{name}: {single} of {total} groups left out: only one distinct frequency, and a "
                "curve takes two"
            )
    return texts


def nothing_to_fit(prepared: Prepared) -> str:
    """Say why no group of the table has a curve."""
    source = prepared.runs.attrs.get("source", "runs")
    distinct = np.unique(prepared.runs["freq_hz"])
    found = ", ".join(shown(f, "Hz") for f in distinct[:6])
    by = ", ".join(prepared.groups.by)
    grouped = f"every group by {by}" if by else "all rows, which are one group"
    left_out = "".join(f"; {said}" for said in prepared.said_of_left_out())
    headers = prepared.runs.attrs.get(HEADERS, {})
    named = next((h for h, became in headers.items() if became[0] == "freq_hz"), "freq_hz")
    where = "of the rows that are left" if left_out else "in the file"
    return (
        f"{source}: only one distinct frequency in {grouped} ({named} {where}: "
        f"{found}): a curve takes two; measure at one more, or group by fewer columns with --by"
        f"{left_out}"
    )
