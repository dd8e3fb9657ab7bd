"""Parts of the plots of a procurement."""

from __future__ import annotations

import textwrap

import numpy as np

from ppw.results.text import plot_label

_LABEL = 24


def _axis_scale(values: np.ndarray) -> tuple[float, str]:
    """What to divide by so that axes have few digits, and its word."""
    most = float(np.nanmax(np.abs(values), initial=0.0))
    return (1e6, "million ") if most >= 2e6 else (1e3, "thousand ") if most >= 2e3 else (1.0, "")


def _wrapped(text: str) -> str:
    return "\n".join(textwrap.wrap(plot_label(text, most=4 * _LABEL), _LABEL))
