"""Laws of arrivals in plain Python, one window and one gap after the other.

Written from what the docstrings of `fitting` say, with lists and loops. Random numbers come from
the same generator in the same order, so that results can be compared number by number.
"""

import math
from collections import defaultdict
from itertools import accumulate, pairwise
from statistics import NormalDist, correlation, fmean as mean, linear_regression

import numpy as np
from numpy import interp as interpolate, quantile as quantiles, var as variance
from scipy.optimize import brentq
from scipy.special import digamma

ANYWHERE, EVEN, GAPS, PACED, CHAINED = range(5)
TAIL = [0, 0.01, 0.05, *(k / 10 for k in range(1, 10)), 0.95, 0.99, 1]
GAP_LEVELS = [0, 0.01, *(k / 20 for k in range(1, 20)), 0.98, 0.99, 0.995, 0.998, 0.999, 1]
BOUNDS = [2 ** (k / 4 - 30) for k in range(201)]
ON_TIME = [0.0], [0.0] * len(TAIL), 0.0, 0.0


def empirical_quantiles(counts):
    """Quantiles over their mean, where ln g is spread evenly over each class."""
    busy = [k for k, count in enumerate(counts) if count]
    reached, found = [0, *accumulate(counts[k] for k in busy)], []
    for p in TAIL:
        wanted = p * reached[-1]
        at = sum(end < wanted for end in reached[1:-1])
        share = min(1, (wanted - reached[at]) / counts[busy[at]])
        found.append(2 ** ((busy[at] + share) / 4 - 30))
    middles = [(a + b) / 2 for a, b in pairwise(found)]
    whole = sum(m * (b - a) for m, (a, b) in zip(middles, pairwise(TAIL), strict=True))
    return [quantile / whole for quantile in found]


def gap_shapes(gaps, counts, tick_s):
    """Shape of each law that can be, by moments or the largest likelihood."""
    middle = max(mean(gaps), tick_s / 2)
    logs = [math.log(max(gap, tick_s / 2)) for gap in gaps]
    wide, narrowest = math.sqrt(variance(gaps)) / middle, tick_s / 2 / middle
    found = {"constant": math.nan, "exponential": math.nan, "poisson": tick_s}
    if wide <= 0.3:
        found["normal"] = max(wide, narrowest)
    # The largest likelihood is where ln k − ψ(k) is the log of the mean less the mean of the logs.
    ratio = max(math.log(middle) - mean(logs), 1e-12)
    shape = brentq(lambda k: math.log(k) - digamma(k) - ratio, 1e-9, 1e15, xtol=1e-12, maxiter=999)
    found["gamma"] = min(max(shape, 1e-3), 1e6, 1 / narrowest**2)
    found["lognormal"] = max(math.sqrt(variance(logs)), narrowest)
    if len(gaps) >= 64 and sum(counts) >= 64:
        found["empirical"] = empirical_quantiles(counts)
    return found


def gap_scores(gaps, counts, tick_s):
    """Log-likelihood of each law that can be, less half the log of n for each parameter."""
    logs = [math.log(max(gap, tick_s / 2)) for gap in gaps]
    middle, root, scores = max(mean(gaps), tick_s / 2), math.log(2 * math.pi) / 2, {}

    def log_density(law, shape, gap, log):
        if law == "exponential":
            return -math.log(middle) - gap / middle
        if law == "poisson":
            # ln k! by Stirling's series.
            k, log_k = gap / tick_s, log - math.log(tick_s)
            factorial = k * log_k - k + log_k / 2 + root
            return k * math.log(middle / tick_s) - middle / tick_s - factorial - math.log(tick_s)
        if law == "gamma":
            rate = shape / middle
            return shape * math.log(rate) - math.lgamma(shape) + (shape - 1) * log - rate * gap
        # Half a square each, on average, is what gaps are off their own mean, and logs off theirs.
        if law == "normal":
            return -math.log(shape * middle) - root - 0.5
        off = mean(logs) - math.log(middle) + shape**2 / 2
        return -log - math.log(shape) - root - 0.5 - (off / shape) ** 2 / 2

    for law, shape in gap_shapes(gaps, counts, tick_s).items():
        if law == "empirical":
            classes = zip(counts, pairwise(BOUNDS), strict=True)
            shares = [(c / sum(counts), b - a) for c, (a, b) in classes if c]
            found = len(gaps) * sum(share * math.log(share / width) for share, width in shares)
        elif law == "constant":
            apart = max(gaps) - min(gaps) > 1.5 * tick_s
            found = -math.inf if apart else -len(gaps) * math.log(tick_s)
        else:
            found = sum(log_density(law, shape, *pair) for pair in zip(gaps, logs, strict=True))
        free = 14 if law == "empirical" else 1 + (law in ("normal", "gamma", "lognormal"))
        scores[law] = found - free * math.log(len(gaps)) / 2
    return scores


def shared_tick(gaps, finest_s):
    apart = [gap for gap in gaps if gap > 0]
    if not apart or 1 - len(apart) / len(gaps) < 0.1:
        return 0.0
    tick = mean([gap for gap in apart if gap < 1.5 * min(apart)])
    ticks = [gap / tick for gap in apart]
    whole = all(abs(t - round(t)) <= 1e-3 * max(1, t) for t in ticks)
    return tick if whole and tick >= finest_s else 0.0


def _parts(ticks):
    """Place of each arrival in its tick: even where ticks vary half as much as Poisson's do."""
    held = [0] * (ticks[-1] + 1)
    for tick in ticks:
        held[tick] += 1
    if variance(held) < 0.5 * mean(held):
        return [(k + 0.5) / number for number in held for k in range(number)]
    return np.random.default_rng(0).random(len(ticks)).tolist()


def spread_counts(finest, tick_s, duration_s):
    width, spread = duration_s / len(finest), [0] * len(finest)
    ticks = [math.ceil(k * width / tick_s - 1e-3) for k, n in enumerate(finest) for _ in range(n)]
    length = tick_s / width / (1 + tick_s / duration_s)
    for tick, part in zip(ticks, _parts(ticks), strict=True):
        spread[min(len(finest) - 1, int((tick + part) * length))] += 1
    return spread


def spread_gaps(gaps, tick_s, duration_s):
    ticks = [round(time / tick_s) for time in accumulate(gaps, initial=0.0)]
    times = sorted(tick + part for tick, part in zip(ticks, _parts(ticks), strict=True))
    return [(b - a) * tick_s / (1 + tick_s / duration_s) for a, b in pairwise(times)]


def context_of(n, left, right):
    """Alone, among others alike, beside one somewhat busier, and much busier."""
    if 4 * (left + right) <= n:
        return 0
    apart = abs(left - right) / (left + right)
    return 1 if apart <= 0.25 else 2 if apart <= 0.75 else 3


def split_laws(halves):
    """Windows twice as long, and by context the laws of few arrivals and of octaves of many."""
    whole = [a + b for a, b in zip(halves[::2], halves[1::2], strict=True)]
    # First halves by context and number, and shares by context and octave; of all contexts last.
    few, many = [[defaultdict(list) for _ in range(5)] for _ in range(2)]
    for k, n in enumerate(whole):
        beside = [whole[j] for j in (k - 1, k + 1) if 0 <= j < len(whole)] or [n]
        kind = context_of(n, beside[0], beside[-1])
        first = halves[2 * k + (kind > 1 and beside[-1] > beside[0])]
        for key in (kind, 4) if n else ():
            if n < 8:
                few[key][n].append(first)
            else:
                many[key][n.bit_length() - 4].append(first / n)
    small = [_few_laws(few[kind], few[4], mirrored=kind < 2) for kind in range(4)]
    met = [many[kind] or many[4] for kind in range(4)]
    large = [_many_laws(met[kind], mirrored=kind < 2 or not many[kind]) for kind in range(4)]
    return whole, small, large


def _few_laws(firsts, of_all, *, mirrored):
    """Probability, by number, that at most so many are in the first half."""
    rows = [[0.0] * 8]
    for n in range(1, 8):
        seen = firsts[n] or of_all[n]
        if mirrored or not firsts[n]:
            seen = seen + [n - first for first in seen]
        seen = seen or range(n + 1)
        rows.append([sum(first <= k for first in seen) / len(seen) for k in range(8)])
    return rows


def _many_laws(shares, *, mirrored):
    """Quantiles of the share of the first half, by octave."""
    laws = {}
    for here in shares:
        pooled = []
        for near in sorted(shares, key=lambda k: (abs(k - here), k)):
            pooled = pooled + shares[near] if len(pooled) < 32 else pooled
        pooled = pooled[:: math.ceil(len(pooled) / 5000)]
        pooled = pooled + [1 - share for share in pooled] if mirrored else pooled
        laws[here] = quantiles(pooled, [k / 16 for k in range(17)])
    laws = laws or {0: [0.5] * 17}
    return [laws[min(laws, key=lambda k: (abs(k - row), k))] for row in range(40)]


def draw_split(n, left, right, small, large, rng):
    """How many of n arrivals are in the first half of a window between two others."""
    kind, u = context_of(n, left, right), rng.random()
    if n < 8:
        first = sum(u >= small[kind][n][k] for k in range(n))
    else:
        share = interpolate(16 * u, range(17), large[kind][n.bit_length() - 4])
        first = min(n, int(n * share + rng.random()))
    return n - first if kind > 1 and right > left else first


def turned(counts, periods, loose, rng):
    """Windows in an order whose halves change places at loose levels."""
    order, parts = list(range(len(counts))), periods
    for turns in loose:
        size = len(order) // parts
        halves = [order[k : k + size // 2] for k in range(0, len(order), size // 2)]
        pairs = list(zip(halves[::2], halves[1::2], strict=True))
        swap = [turns and rng.random() < 0.5 for _ in pairs]
        # The trace begins and ends with an arrival.
        for end, outer in ((0, 0), (-1, 1)) if turns else ():
            busy = [any(counts[w] for w in half) for half in pairs[end]]
            swap[end] = (swap[end] and busy[1 - outer]) or not busy[outer]
        order = [w for (a, b), s in zip(pairs, swap, strict=True) for w in (b + a if s else a + b)]
        parts *= 2
    return order


def dispersion(counts):
    return variance(counts) * len(counts) / (len(counts) - 1) / mean(counts)


def dispersion_band(counts, level, draws, seed):
    """Quantiles over resamples, which are put together block by block around the ring."""
    n, length = len(counts), round(len(counts) ** (1 / 3))
    rng, found = np.random.default_rng(seed), []
    for _ in range(draws):
        begins = rng.integers(n, size=n // length).tolist()
        drawn = [counts[(begin + k) % n] for begin in begins for k in range(length)]
        if any(drawn):
            found.append(variance(drawn) / mean(drawn))
    return quantiles(found, [(1 - level) / 2, (1 + level) / 2])


def _windows(counts, length):
    """Arrivals of windows of a length that is no whole number of those counted."""
    reached = [0, *accumulate(counts)]
    ends = [k * length for k in range(int(len(counts) / length) + 1)]
    return np.diff(interpolate(ends, range(len(reached)), reached)).tolist()


def _mean_square_interarrival(counts):
    times = [w + (k + 0.5) / n for w, n in enumerate(counts) for k in range(n)]
    return math.fsum((b - a) ** 2 for a, b in pairwise(times)) / len(times)


def loose_levels(counts, fine, periods, fine_s):
    """Levels at which other orders of halves leave the load alike."""
    loose, each = [False] * int(math.log2(len(counts) // periods)), len(fine) // len(counts)
    bands = []
    for seconds in (float(f"{k}e{e}") for e in range(-9, 10) for k in (1, 2, 5)):
        if max(1, 20 * len(fine) / sum(fine)) <= seconds / fine_s < len(fine) / 21:
            held = _windows(fine, seconds / fine_s)
            index, band = dispersion(held), dispersion_band(held, 0.9, 100, 0)
            low, high = (index + 0.4 * (edge - index) for edge in band)
            bands.append((seconds / fine_s, min(index - 1e-3, low), max(index + 1e-3, high)))
    for level in range(len(loose)):
        loose[level], rng, courses = True, np.random.default_rng(level), []
        for _ in range(8):
            order = turned(counts, periods, loose, rng)
            courses.append([n for w in order for n in fine[w * each : (w + 1) * each]])
        squares = mean([_mean_square_interarrival(course) for course in courses])
        loose[level] = abs(squares / _mean_square_interarrival(fine) - 1) <= 0.06 and all(
            low <= mean([dispersion(_windows(course, length)) for course in courses]) <= high
            for length, low, high in bands
        )
    return loose


def lateness_of(gaps, duration_s, arrivals):
    """Cycle, quantiles of the lateness left, its correlation, and drift."""
    if len(gaps) < 5:
        return ON_TIME
    pace, drift = duration_s / arrivals, 0.0
    late = [time / pace - k for k, time in enumerate(accumulate(gaps, initial=0.0))]
    if len(late) == arrivals:
        drift = linear_regression(range(1, arrivals), late[1:]).slope
        late = [value - drift * k for k, value in enumerate(late)]
    cycle = _cycle(late[:20_000])
    left = [value - cycle[k % len(cycle)] for k, value in enumerate(late)][1:]
    found = correlation(left[1:], left[:-1]) if variance(left) > 1e-12 else 0.0
    return cycle, quantiles(left, TAIL), min(0.999, max(-0.999, found)), drift


def _cycle(late):
    """Means by place in the cycle whose variance left and length Schwarz's criterion chooses."""
    n, best, cycle = len(late), math.inf, [0.0]
    for length in range(1, min(64, n // 20) + 1):
        means = [mean(late[k::length]) for k in range(length)]
        left = variance([value - means[k % length] for k, value in enumerate(late)])
        score = n * math.log(left + 1e-12) + length * math.log(n)
        if score < best:
            best, cycle = score, means if length > 1 else [0.0]
    return cycle


def paced_times(lateness, number, before, rng):
    """Times, in gaps, of arrivals whose lateness is a first-order autoregression's rank."""
    state, times, r = 0.0, [], lateness.correlation
    for k, draw in enumerate(rng.standard_normal(number)):
        state = r * state + math.sqrt(1 - r * r) * draw if k else draw
        late = interpolate(NormalDist().cdf(state), TAIL, lateness.quantiles)
        late += lateness.cycle[(before + k) % len(lateness.cycle)]
        due = k * (1 + lateness.drift) + 1e-6
        times.append(min(number, max(0.0, due + late if before + k else due)))
    return sorted(times)


def _ranks(values, rng):
    """Place of each in the order of size; those that are equal are in random order."""
    order = sorted(rng.permutation(len(values)).tolist(), key=lambda k: values[k])
    return sorted(range(len(order)), key=order.__getitem__)


def chain_of(gaps):
    """Probability, by eighth of a gap, that the next is in each eighth or below it."""
    eighths = [8 * place // len(gaps) for place in _ranks(gaps, np.random.default_rng(0))]
    follow = [[1e-9 + list(pairwise(eighths)).count((a, b)) for b in range(8)] for a in range(8)]
    return [[sum(row[: k + 1]) / sum(row) for k in range(8)] for row in follow]


def draw_gaps(cascade, number, rng):
    at, eighth = rng.random(number).tolist(), None
    if cascade.placement == CHAINED:
        for k, u in enumerate(rng.random(number)):
            row = [p / 8 for p in range(1, 9)] if eighth is None else cascade.chain[eighth]
            eighth = sum(u >= p for p in row[:-1])
            at[k] = (eighth + at[k]) / 8
    return [interpolate(p, GAP_LEVELS, cascade.gaps) for p in at]


def ordered_gaps(cascade, gaps, rng):
    if cascade.placement != GAPS:
        return draw_gaps(cascade, len(gaps), rng)
    places, parts = _ranks(gaps, rng), rng.random(len(gaps))
    return [interpolate((p + parts[p]) / len(gaps), GAP_LEVELS, cascade.gaps) for p in places]


def busiest(levels):
    """Least number of arrivals in a window whose halves are kept, and first halves in order."""
    found = [(n, first) for level in levels for n, first in level if n >= 16]
    least = sorted((n for n, _ in found), reverse=True)[2048] + 1 if len(found) > 2048 else 16
    return least, [first for n, first in found if n >= least]


def known_halves(counts, least, first):
    """First half by depth and window of those whose halves are kept."""
    found, queue = {}, [(0, window, n) for window, n in enumerate(counts) if n >= least]
    for half, (depth, window, n) in zip(first, queue, strict=False):
        found[depth, window] = half
        below = (depth + 1, 2 * window, half), (depth + 1, 2 * window + 1, n - half)
        queue += [held for held in below if held[2] >= least]
    return found


def _placed(cascade, windows, gaps, rng):
    """Times, in windows, of arrivals of some coarse windows one after the other."""
    known = known_halves(cascade.counts.tolist(), cascade.halves[0], cascade.halves[1].tolist())
    held = cascade.counts[list(windows)].tolist()
    by_gaps, stop = cascade.placement in (GAPS, CHAINED), cascade.stop - cascade.windows.kept
    edges, times = rng.random(sum(held)).tolist() if by_gaps else [], [0.0] * sum(held)
    starts = [0, *accumulate(held)]
    # Place and number of a window, its arrivals, and the first of them.
    level, depth = [(k, windows[k], n, starts[k]) for k, n in enumerate(held) if n], 0
    while level:
        at_level, below = {at: n for at, _, n, _ in level}, []
        small, large = (law[min(depth, len(law) - 1)] for law in (cascade.small, cascade.large))
        for at, window, n, start in level:
            first = known.get((depth, window))
            if first is None and depth >= stop:
                parts = [(k + 0.5) / n for k in range(n)]
                if by_gaps:
                    # The window begins and ends somewhere in a gap.
                    outer = gaps[start] * (1 - edges[start])
                    reached = list(accumulate(gaps[start + 1 : start + n], initial=outer))
                    end = start + n if start + n < len(gaps) else start
                    whole = max(reached[-1] + gaps[end] * edges[end], 1e-300)
                    parts = [value / whole for value in reached]
                elif cascade.placement == ANYWHERE:
                    parts = sorted(rng.random(n))
                times[start : start + n] = [(at + part) / 2**depth for part in parts]
                continue
            if first is None:
                left, right = at_level.get(at - 1, 0), at_level.get(at + 1, 0)
                # Beyond its ends the trace goes on as on the other side.
                left = right if at == level[0][0] else left
                right = left if at == level[-1][0] else right
                first = draw_split(n, left, right, small, large, rng)
            below.append((2 * at, 2 * window, first, start))
            below.append((2 * at + 1, 2 * window + 1, n - first, start + first))
        depth, level = depth + 1, [half for half in below if half[2]]
    return times


def place(cascade, windows, start_s, gaps, rng, *, in_order=False):
    duration_s, counts = cascade.windows.duration_s, cascade.counts.tolist()
    held, tick = [counts[w] for w in windows], cascade.tick_s
    if cascade.placement == PACED:
        before = round(start_s / duration_s * sum(counts))
        times = paced_times(cascade.lateness, sum(held), before, rng)
        times = [time * len(held) / sum(held) for time in times]
        if in_order:
            window = [w for w, n in enumerate(held) for _ in range(n)]
            times = [min(w + 1 - 1e-9, max(w, t)) for t, w in zip(times, window, strict=True)]
    else:
        times = _placed(cascade, windows, list(gaps), rng)
    times = [start_s + time * duration_s / len(counts) for time in times]
    return [math.floor(t * (1 / tick + 1 / duration_s)) * tick for t in times] if tick else times


def character(gaps):
    middle, deviation = mean(gaps), math.sqrt(variance(gaps))
    found, times = [2 * math.log(0.02 + deviation / middle)], list(accumulate(gaps))
    for length in (math.sqrt(2) * 4**k * middle for k in range(6)):
        held = [0] * (int(times[-1] / length) + 1)
        for time in times:
            held[int(time / length)] += 1
        # The last window is not whole.
        held.pop()
        index = variance(held) / mean(held) if len(held) >= 8 and any(held) else 1.0
        found.append(math.log(0.02 + index) / 2)
    steady = len(gaps) <= 64 or deviation <= 1e-6 * middle
    for lag in (1, 2, 4, 8, 16, 32):
        products = [(a - middle) * (b - middle) for a, b in zip(gaps, gaps[lag:], strict=False)]
        found.append(0.0 if steady else mean(products) / deviation**2 / 2)
    return found


def keeps_pace(counts):
    """Whether arrivals are never further from one pace than 2 and a tenth of their root."""
    pace = sum(counts) / len(counts)
    most = max(abs(n - pace * k) for k, n in enumerate(accumulate(counts), 1))
    return most <= 2 + 0.1 * math.sqrt(sum(counts))


def fit_cascade(windows, finest, gaps):
    """All that a cascade holds but for where it stops, by name."""
    duration_s, gaps, counts = windows.duration_s, list(gaps), list(finest)
    tick_s = shared_tick(gaps, duration_s / len(finest))
    if tick_s:
        counts = spread_counts(counts, tick_s, duration_s)
        gaps = spread_gaps(gaps, tick_s, duration_s)
    gaps = gaps if sum(gaps) > 0 else [1.0]
    small, large, busy, fine = [], [], [], counts
    for _ in range(windows.depth - windows.kept):
        fine = counts if len(counts) > 4096 else fine
        whole, *laws = split_laws(counts)
        small, large = [laws[0], *small], [laws[1], *large]
        busy = [list(zip(whole, counts[::2], strict=True)), *busy]
        counts = whole
    found = {"counts": counts, "small": small, "large": large, "tick_s": tick_s}
    paced = lateness_of(gaps, duration_s, sum(counts)) if keeps_pace(counts) else ON_TIME
    found |= {"halves": busiest(busy), "chain": chain_of(gaps), "lateness": paced}
    found["loose"] = loose_levels(counts, fine, windows.periods, duration_s / len(fine))
    found["gaps"] = [quantile / mean(gaps) for quantile in quantiles(gaps, GAP_LEVELS)]
    return found


def trial_miss(cascade, gaps):
    """How far the character of a trial of at most 25 000 arrivals is from that of the gaps."""
    rng, gaps = np.random.default_rng(0), list(gaps)[:25_000]
    reached = list(accumulate(cascade.counts.tolist()))
    windows = max(1, sum(n < 25_000 for n in reached))
    number, chained = reached[windows - 1], cascade.placement == CHAINED
    drawn = draw_gaps(cascade, number, rng) if chained else rng.choice(gaps, number).tolist()
    times = place(cascade, range(windows), 0.0, drawn, rng)
    made = character([b - a for a, b in pairwise(times)])
    return sum(abs(a - b) for a, b in zip(made, character(gaps), strict=True))
