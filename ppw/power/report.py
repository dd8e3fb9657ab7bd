"""Pages of `calibrate` and `power_loads`."""

from ppw.power import calibration, load_curve
from ppw.results.page import Page


def calibration_page(result: calibration.Calibration) -> Page:
    """Make the page of `ppw.calibrate`."""
    caption = (
        "Means of each level as both sensors saw it, the line, and the band in which the "
        f"reference of a new run lies ({result.level:.0%})."
    )
    title, said = "One power sensor against another", [result.verdict(), result.range_sentence()]
    return Page.with_plot(result, title, caption, subtitle=result.source, verdict=said)


def power_load_page(result: load_curve.PowerLoads) -> Page:
    """Make the page of `ppw.power_loads`."""
    caption = "Watts at the measured levels, and the curve between them."
    servers = f"{len(result.figures)} servers"
    return Page.with_plot(result, "Power against load", caption, subtitle=servers)


PAGES = {"calibration": calibration_page, "power_loads": power_load_page}
