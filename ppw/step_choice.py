"""Frequency steps to choose from: as asked for, or those of the runs and of the host catalogue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from measurements.quantities import parse_frequency, parse_quantity
from ppw.arguments import as_frequencies, as_frequency, as_positive
from ppw.errors import PpwError, UnknownHostError
from ppw.hosts import find_host, host_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from fitting.regression.lines import FloatArray

# Makers print 2.93 GHz for 22·133.33 MHz: a catalogue step so near to a measured one is that one.
_SAME_AS_MEASURED = 5e-3
_MOST_STEPS = 1000


def as_steps(steps: str | Iterable[float | str], *, fewest: int = 2) -> FloatArray:
    """Read steps: several frequencies, "1.2GHz,1.8GHz", or a range "lowest:highest:step".

    Parameters
    ----------
    steps : str or sequence of float or str
        Numbers are Hz. A range ends at its highest frequency or one step short of passing it.
    fewest : int
        Different frequencies that there must be.

    Returns
    -------
    float array
        Hz, rising, each once.

    Raises
    ------
    PpwError, MeasurementError
        For what is no frequency, a range that is not, or too few steps.
    """
    if isinstance(steps, str):
        made = (
            _range(steps)
            if ":" in steps
            else [parse_frequency(part.strip()) for part in steps.split(",")]
        )
    else:
        made = as_frequencies(steps)
    if len(set(made)) < fewest:
        raise PpwError(f"steps {steps!r} are one frequency: a choice takes two or more")
    return np.unique(made)


def _range(text: str) -> list[float]:
    parts = text.split(":")
    if len(parts) != 3:
        raise PpwError(f"steps {text!r} are not LOWEST:HIGHEST:STEP, such as 1.2GHz:2.4GHz:0.1GHz")
    low, high = (as_frequency(part.strip()) for part in parts[:2])
    step = as_positive("step", parse_quantity(parts[2], "hz"))
    if low > high:
        raise PpwError(f"steps {text!r}: the lowest frequency is above the highest")
    # Rounded, because 0.1 GHz has no exact binary form and the last step counts.
    count = int(np.floor(round((high - low) / step, 6))) + 1
    if count > _MOST_STEPS:
        raise PpwError(f"steps {text!r} are {count} frequencies: ask for {_MOST_STEPS} at most")
    return [low + step * i for i in range(count)]


def known_steps(measured: FloatArray, listed: Sequence[float]) -> FloatArray:
    """Measured steps (Hz) together with those ``listed`` that are none of them."""
    more = np.asarray(listed, dtype=float)
    apart = np.abs(np.log(more[:, None] / measured)) > _SAME_AS_MEASURED
    return np.sort(np.concatenate([measured, more[apart.all(axis=1)]]))


def catalogued_steps(hosts: Iterable[object]) -> dict[object, tuple[float, ...]]:
    """Steps (Hz) of the hosts that the catalogue knows by name; none for the others."""
    return {host: _catalogued(host) if isinstance(host, str) else () for host in hosts}


def _catalogued(host: str) -> tuple[float, ...]:
    try:
        return host_steps(find_host(host))
    except UnknownHostError:
        return ()
