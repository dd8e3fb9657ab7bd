"""Simulated hosts whose time and power are known at every frequency: a zoo of stated physics.

Each feature of a host is drawn independently:

- Time is ((work/f)^q + stalls^q)^(1/q): additive, overlapping or roofline (q = 1, 2, 8), memory-
  bound fractions from a broad mix; on some hosts the memory follows the core frequency in part.
- Power is an idle floor, leakage and f·V² with a lowest voltage; or a local exponent
  d ln P/d ln f that rises or falls along the ladder, from -0.2 to 2.5.
- On some hosts: cores that sleep while they wait; a highest step faster than its label, most for
  light programs; a power cap, where frequency stays behind; a step at half its frequency.
- Deviations of ln T and ln P correlate by -0.35 to -0.7: one that all programs of a host share and
  one of each program, both random walks over ln f, and noise from run to run.

The ranges were written down before any projection was looked at. The same seed gives the same zoo.
"""

from typing import NamedTuple

import numpy as np
import pandas as pd

SPLITS = ("up", "down", "between")
# Share of the hosts that have each feature.
FEATURES = {"exponent": 0.4, "uncore": 0.3, "sleep": 0.3, "turbo": 0.2, "cap": 0.15, "half": 0.03}
_MOST_LEARNT = 8


class Host(NamedTuple):
    """A simulated host: what its laws say at each step, and runs with their deviations."""

    name: str
    features: frozenset[str]
    steps: np.ndarray  # Hz, rising
    time: np.ndarray  # (programs, steps), s
    power: np.ndarray  # (programs, steps), W
    runs: pd.DataFrame  # a runs table of all steps

    def split(self, kind: str, rng: np.random.Generator) -> tuple[pd.DataFrame, pd.DataFrame]:
        """Runs at 2 to 8 steps drawn of the ladder, and the first runs above, below or between."""
        count = int(rng.integers(2, min(_MOST_LEARNT, len(self.steps) - 1) + 1))
        chosen = np.sort(rng.choice(self.steps, count + 1, replace=False))
        asked = chosen[{"up": count, "down": 0, "between": int(rng.integers(1, count))}[kind]]
        at, first = self.runs["freq_hz"], self.runs["repeat"] == 0
        return self.runs[at.isin(chosen) & (at != asked)], self.runs[(at == asked) & first]


def hosts(count: int, seed: int = 1) -> list[Host]:
    """Draw some hosts; each has its own stream, so that a longer zoo begins with the same ones."""
    return [_host(f"host{n:03d}", np.random.default_rng((seed, n))) for n in range(count)]


def _host(name, rng):
    features = frozenset(f for f, share in FEATURES.items() if rng.random() < share)
    lowest, ratio = rng.uniform(0.6, 1.8), rng.uniform(1.8, 3.2)
    steps = np.unique(np.round(np.linspace(lowest, lowest * ratio, rng.integers(9, 17)), 1)) * 1e9
    programs = int(np.exp(rng.uniform(0, np.log(31))))
    # How hard a program drives the core.
    activity = rng.uniform(0.3, 1.0, (programs, 1))
    label = steps / steps[-1]
    time_of = _time_law(rng, programs, features)
    power_of = _power_law(rng, features, time_of, activity, label[0])
    actual = np.tile(label, (programs, 1))
    if "half" in features:
        actual[:, rng.integers(len(label))] /= 2
    if "turbo" in features:
        actual[:, -1:] *= 1 + rng.uniform(0.05, 0.3) * (1.3 - activity)
    if "cap" in features:
        actual = np.minimum(actual, _highest_below_cap(rng, power_of, label[0]))
    seconds, unit = np.exp(rng.uniform(0, np.log(1000), (programs, 1))), np.exp(rng.uniform(1, 6))
    time, power = seconds * time_of(actual), unit * power_of(actual)
    return Host(name, features, steps, time, power, _runs(name, rng, steps, time, power))


def _time_law(rng, programs, features):
    """Time relative to the highest label, by relative frequency."""
    ranges = ((0, 0.02), (0, 0.3), (0, 1), (0.7, 1))
    broad = [rng.uniform(*ends, programs) for ends in ranges]
    stalls = np.choose(rng.choice(4, programs, p=(0.25, 0.25, 0.35, 0.15)), broad)[:, None]
    q = rng.choice((1.0, 2.0, 8.0), (programs, 1), p=(0.6, 0.2, 0.2))
    uncore = rng.uniform(0, 0.3) if "uncore" in features else 0.0
    return lambda f: ((1 - stalls) * f**-q + stalls * f ** (-uncore * q)) ** (1 / q)


def _power_law(rng, features, time_of, activity, lowest):
    """Power in a host's own unit, by relative frequency."""
    asleep = rng.uniform(0.3, 1.0) if "sleep" in features else 0.0
    top, bottom = (rng.uniform(-0.2, 2.5) + rng.normal(0, 0.1, activity.shape) for _ in range(2))
    least, slope = rng.uniform(0.5, 0.95), rng.uniform(0.2, 1.1)
    floor, leakage, stalled = rng.uniform(0.1, 1.5), rng.uniform(0, 0.5), rng.uniform(0.3, 1.0)

    def by_exponent(f):
        bend = (bottom - top) / (2 * np.log(lowest))
        return activity * np.exp(top * np.log(f) + bend * np.log(np.clip(f, lowest, 1)) ** 2)

    def by_voltage(f):
        voltage = np.maximum(least, 1 + slope * (f - 1))
        busy = 1 / (f * time_of(f))
        dynamic = activity * (busy + (1 - busy) * stalled * (1 - asleep)) * f * voltage**2
        return floor * (1 - asleep * (1 - busy) / 2) + leakage * voltage + dynamic

    return by_exponent if "exponent" in features else by_voltage


def _highest_below_cap(rng, power_of, lowest):
    """Highest relative frequency of each program below a host's power cap."""
    fine = np.linspace(lowest, 1.3, 257)
    power = power_of(fine[None])
    over = power > rng.uniform(0.75, 1.0) * power[:, fine <= 1].max()
    last = np.where(over.any(axis=1), over.argmax(axis=1) - 1, len(fine) - 1)
    return fine[np.maximum(last, 0)][:, None]


def _runs(name, rng, steps, time, power):
    """Runs table with the deviations of the host, of each program, and of each run."""
    shape = (*time.shape, int(rng.integers(1, 6)))
    correlation = rng.uniform(-0.7, -0.35)

    def pairs(*shape):
        first, other = rng.standard_normal((2, *shape))
        return np.stack([first, correlation * first + (1 - correlation**2) ** 0.5 * other], -1)

    # Standard deviations of ln T and ln P: of the host and of a program, per octave; and of a run.
    usual = np.array([[0.006, 0.015], [0.008, 0.012], [0.006, 0.01]])
    host, own, of_run = usual * np.exp(rng.normal(0, 0.6, (3, 2)))
    octaves = np.sqrt(np.diff(np.log2(steps), prepend=np.log2(steps[0])))[:, None]
    walk = np.cumsum((pairs(1, shape[1]) * host + pairs(*shape[:2]) * own) * octaves, axis=1)
    factor = np.exp(walk[:, :, None] + pairs(*shape) * of_run)
    program, step, repeat = (i.ravel() for i in np.indices(shape))
    return pd.DataFrame(
        {
            "host": name,
            "workload": np.char.add("program", program.astype(str)),
            "freq_hz": steps[step],
            "repeat": repeat,
            "time_s": (time[:, :, None] * factor[..., 0]).ravel(),
            "power_w": (power[:, :, None] * factor[..., 1]).ravel(),
        }
    )


def linear_hosts(count: int = 200, seed: int = 2) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Hosts whose power is a straight line: at 1.2 and 1.8 GHz, and at 2.4 GHz."""
    rng = np.random.default_rng(seed)
    static, ratio = rng.uniform(10, 100, count), rng.uniform(1.2, 1.9, count)
    # (static + 2.4·slope)/(static + 1.2·slope) is the ratio.
    slope = static * (ratio - 1) / (2.4 - 1.2 * ratio)
    host, ghz = np.tile(np.arange(count), 3), np.repeat([1.2, 1.8, 2.4], count)
    power = static[host] + slope[host] * ghz
    names = np.char.mod("host%03d", host)
    whole = pd.DataFrame({"host": names, "freq_hz": ghz * 1e9, "power_w": power})
    return whole[ghz < 2.4], whole[ghz == 2.4]


def exact_times(count: int = 60, seed: int = 3) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Programs that follow Amdahl's law: three runs at 1.2 to 3.0 GHz, and exactly at 0.6 GHz."""
    rng = np.random.default_rng(seed)
    program, step, repeat = (i.ravel() for i in np.indices((count, 8, 3)))
    ghz = np.append(0.6, np.linspace(1.2, 3.0, 7))[step]
    stalls = rng.uniform(0, 0.95, count)[program]
    noise = np.exp(0.005 * rng.standard_normal(len(ghz)) * (ghz > 1))
    time = 100 * (stalls + (1 - stalls) * 1.2 / ghz) * noise
    names = np.char.mod("program%02d", program)
    whole = pd.DataFrame({"workload": names, "freq_hz": ghz * 1e9, "time_s": time})
    return whole[ghz > 1], whole[(ghz < 1) & (repeat == 0)]


def scaling_programs(count: int = 200, seed: int = 4) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Programs on 1, 2 and 4 cores, and on 8: some wait less once their data fits in the caches."""
    rng = np.random.default_rng(seed)
    program, step, _ = (i.ravel() for i in np.indices((count, 4, 3)))
    cores, fits = 2**step, rng.choice((1.5, 3.0, 6.0), count)[program]
    serial, contention = rng.beta(1, 15, count)[program], rng.exponential(0.004, count)[program]
    gain = (rng.uniform(0.05, 0.33, count) * (rng.random(count) < 0.25))[program] * (cores > fits)
    time = serial + (1 - serial) * (1 - gain) / cores + contention * (cores - 1)
    time = 100 * time * np.exp(0.01 * rng.standard_normal(len(time)))
    names = np.char.mod("program%03d", program)
    whole = pd.DataFrame({"workload": names, "cores": cores, "time_s": time})
    return whole[cores < 8], whole[cores == 8]
