"""Pages of `calibrate` and `power_loads`."""

from ppw.power import calibration, load_curve
from ppw.results.page import Figure, Page, draw


def calibration_page(result: calibration.Calibration) -> Page:
    """Make the page of `ppw.calibrate`."""
    caption = (
        "Means of each level as both sensors saw it, the line, and the band in which the "
        f"reference of a new run lies ({result.level:.0%})."
    )
    return Page.of(
        result,
        title="One power sensor against another",
        subtitle=result.source,
        verdict=[result.verdict(), result.range_sentence()],
        figures=[Figure(draw(result.plot), caption)],
    )


def power_load_page(result: load_curve.PowerLoads) -> Page:
    """Make the page of `ppw.power_loads`."""
    caption = "Watts at the measured levels, and the curve between them."
    return Page.of(
        result,
        title="Power against load",
        subtitle=f"{len(result.figures)} servers",
        figures=[Figure(draw(result.plot), caption)],
    )


PAGES = {"calibration": calibration_page, "power_loads": power_load_page}
