"""The options that a what-if weighs, and how each fares under a trace."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from fitting.errors import FittingError
from fitting.storage.caches import Cache
from fitting.storage.devices import ORDERS, FilePages
from ppw.errors import PpwError
from ppw.traces.options import AsItIs, Cached, Defragmented, Option, Outcome
from ppw.traces.source import columns

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.storage.devices import Layout, SolidState
    from ppw.traces.devices import Device
    from ppw.traces.source import Batches

AS_IT_IS = "as it is"
_LAYOUTS = {"address": "order of address kept", "first_use": "order of first use"}


class Plan(NamedTuple):
    """An option by name, and what it adds."""

    name: str
    kind: str
    drives: int
    policy: str
    order: str


def plans_of(caches: Sequence[int], policies: Sequence[str], defragment: bool) -> list[Plan]:
    """List what is asked for, the storage as it is first."""
    plans = [Plan(AS_IT_IS, "base", 0, "", "")]
    for drives in caches:
        if drives < 0:
            raise PpwError(f"{drives} caches: give 0 or more")
        for policy in policies if drives else ():
            plural = "s" if drives > 1 else ""
            name = f"{drives} cache drive{plural}, {policy.upper()}"
            plans.append(Plan(name, "cache", drives, policy, ""))
    layouts = [Plan(f"defragmented, {_LAYOUTS[order]}", "layout", 0, "", order) for order in ORDERS]
    return plans + (layouts if defragment else [])


def outcomes_of(
    source: Batches,
    plans: Sequence[Plan],
    device: Device,
    drive: SolidState,
    size: float,
    block: int,
    writes: str,
    seed: int,
) -> list[Outcome]:
    """Put a trace through every option at once: one outcome a plan."""
    layouts = _layouts(source) if any(plan.kind == "layout" for plan in plans) else {}

    def option(plan: Plan) -> Option:
        if plan.kind == "cache":
            try:
                cache = Cache(int(plan.drives * size // block), plan.policy, writes)
            except FittingError as error:
                raise PpwError(str(error)) from error
            return Cached(device, cache, drive, plan.drives, block, seed)
        if plan.kind == "layout":
            return Defragmented(device, layouts[plan.order], seed)
        return AsItIs(device, seed)

    options = [option(plan) for plan in plans]
    for batch in columns(source):
        for one in options:
            one.take(batch)
    return [one.outcome() for one in options]


def _layouts(source: Batches) -> dict[str, Layout]:
    pages = FilePages()
    for batch in columns(source):
        pages.add(batch.device, batch.file, batch.lbn, batch.size_bytes)
    return {order: pages.layout(order) for order in ORDERS}
