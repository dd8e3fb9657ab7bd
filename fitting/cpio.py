"""Cycles per I/O: the arithmetic between cycles, utilisation, I/O rate, servers and energy.

An I/O is 512 bytes throughout. With µ the utilisation (0 to 1), N cores of F hertz and c cycles per
I/O, a server does µ·N·F/c I/Os a second. All functions take scalars or arrays that broadcast.

References
----------
S. Akram, M. Marazakis, A. Bilas, "Understanding Scalability and Performance Requirements of
I/O-Intensive Applications on Future Multicore Servers", MASCOTS 2012.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from fitting.line import FloatArray

IO_BYTES = 512


def cycles_per_io(cycles: ArrayLike, ios: ArrayLike) -> FloatArray:
    """Cycles over 512-byte I/Os; NaN where there was no I/O."""
    cycles, ios = np.asarray(cycles, dtype=np.float64), np.asarray(ios, dtype=np.float64)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(ios > 0, cycles / ios, np.nan)


def io_rate(
    utilisation: ArrayLike, cores: ArrayLike, frequency: ArrayLike, cpio: ArrayLike
) -> FloatArray:
    """512-byte I/Os a second of a server, µ·N·F/c.

    Parameters
    ----------
    utilisation : array-like
        Share of the time that a core is busy, 0 to 1.
    cores : array-like
    frequency : array-like
        Hz.
    cpio : array-like
        Cycles per I/O, without those of idle time. Infinitely many I/Os where it is 0 or less.
    """
    cpio = np.asarray(cpio, dtype=np.float64)
    cycles = np.asarray(utilisation) * np.asarray(cores) * np.asarray(frequency)
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(cpio <= 0, np.inf, cycles / cpio)


def grown(base: ArrayLike, growth_per_year: ArrayLike, years: ArrayLike) -> FloatArray:
    """What a market that grows by a share each year comes to, base·(1 + g)^years."""
    yearly = 1.0 + np.asarray(growth_per_year, dtype=np.float64)
    made: FloatArray = np.asarray(base) * yearly ** np.asarray(years)
    return made


def idle_factor(utilisation: ArrayLike, idle_share: ArrayLike) -> FloatArray:
    """Energy of a server that idles beside its work over that of one always busy.

    It is 1 + i·(1 − µ)/µ with i the idle power as a share of the full one: to the energy of the
    busy time comes, for each busy second, (1 − µ)/µ seconds at idle power.
    """
    busy = np.asarray(utilisation, dtype=np.float64)
    factor: FloatArray = 1.0 + np.asarray(idle_share) * (1.0 - busy) / busy
    return factor


def mean_watts(full_watts: ArrayLike, utilisation: ArrayLike, idle_share: ArrayLike) -> FloatArray:
    """Mean power (W) of a server busy for a share of the time, P·(µ + i·(1 − µ))."""
    busy = np.asarray(utilisation, dtype=np.float64)
    watts: FloatArray = np.asarray(full_watts) * (busy + np.asarray(idle_share) * (1.0 - busy))
    return watts


def servers_to_sweep(data_bytes: ArrayLike, seconds: ArrayLike, rate: ArrayLike) -> FloatArray:
    """Servers, not rounded, that read or write a data set once in a time.

    Parameters
    ----------
    data_bytes, seconds : array-like
    rate : array-like
        512-byte I/Os a second of one server.
    """
    ios = np.asarray(data_bytes, dtype=np.float64) / IO_BYTES
    with np.errstate(divide="ignore"):
        servers: FloatArray = ios / (np.asarray(rate, dtype=np.float64) * np.asarray(seconds))
    return servers


def cpio_of_energy(
    joules: ArrayLike,
    data_bytes: ArrayLike,
    *,
    full_watts: ArrayLike,
    cores: ArrayLike,
    frequency: ArrayLike,
) -> FloatArray:
    """Cycles per I/O that the energy (J) of sweeping a data set with busy servers implies."""
    server_seconds = np.asarray(joules, dtype=np.float64) / np.asarray(full_watts)
    ios = np.asarray(data_bytes, dtype=np.float64) / IO_BYTES
    implied: FloatArray = server_seconds * np.asarray(cores) * np.asarray(frequency) / ios
    return implied


def thread_worth(
    cores_alone: ArrayLike, with_threads: ArrayLike, as_cores: ArrayLike
) -> FloatArray:
    """How much of a full core a second hardware thread is worth.

    Parameters
    ----------
    cores_alone : array-like
        Rate of n cores with one hardware thread each.
    with_threads : array-like
        Rate of the same n cores with m hardware threads.
    as_cores : array-like
        Rate of m cores with one hardware thread each.

    Returns
    -------
    array
        (with_threads − cores_alone)/(as_cores − cores_alone): 0 where threads add nothing, 1 where
        they are as good as cores; NaN where more cores add nothing either.
    """
    start = np.asarray(cores_alone, dtype=np.float64)
    by_cores = np.asarray(as_cores, dtype=np.float64) - start
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.where(by_cores > 0, (np.asarray(with_threads) - start) / by_cores, np.nan)


def bandwidth_at_rise(bandwidth: FloatArray, cpio: FloatArray, rise: float) -> FloatArray:
    """Memory bandwidth at which cpio has risen by a share over that at the highest bandwidth.

    Parameters
    ----------
    bandwidth : (levels,) float array
        Of each core (B/s), each level once, in any order.
    cpio : (…, levels) float array
        Cycles per I/O at these.
    rise : float
        Above 0: 0.10 is 10 %.

    Returns
    -------
    (…,) float array
        By straight lines between neighbouring levels, at the first crossing met coming from the
        highest bandwidth; NaN where cpio has not risen so far at any level.
    """
    down = np.argsort(-np.asarray(bandwidth))
    at = np.asarray(bandwidth, dtype=np.float64)[down]
    increase = np.asarray(cpio)[..., down] / np.asarray(cpio)[..., down[:1]] - 1.0
    above = increase >= rise
    reached = above.any(axis=-1)
    first = np.maximum(np.argmax(above, axis=-1), 1)[..., None]
    low, high = (np.take_along_axis(increase, i, axis=-1)[..., 0] for i in (first - 1, first))
    before, after = at[first - 1][..., 0], at[first][..., 0]
    with np.errstate(divide="ignore", invalid="ignore"):
        crossing = before + (after - before) * (rise - low) / (high - low)
    return np.where(reached, crossing, np.nan)
