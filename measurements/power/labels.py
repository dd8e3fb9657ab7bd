"""Columns of a runs table that hold what one labelled source said of each run."""

from __future__ import annotations

import re

POWER_SUFFIX, ENERGY_SUFFIX = "_power_w", "_energy_j"


def column_stem(label: str) -> str:
    """Label as it stands in column names: all but letters and digits become underscores.

    >>> column_stem("rapl:package-0")
    'rapl_package_0'
    """
    return re.sub(r"[^0-9A-Za-z]", "_", label.strip())


def power_column(label: str) -> str:
    """Column of a source's mean power of a run (W).

    >>> power_column("meter:wt310e")
    'meter_wt310e_power_w'
    """
    return column_stem(label) + POWER_SUFFIX


def energy_column(label: str) -> str:
    """Column of the energy that a source saw in a run (J).

    >>> energy_column("ipmi:dcmi")
    'ipmi_dcmi_energy_j'
    """
    return column_stem(label) + ENERGY_SUFFIX
