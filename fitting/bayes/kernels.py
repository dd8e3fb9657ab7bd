"""Compiled loops of the pooled posterior, for tables of many groups.

They do what numpy does in `fitting.bayes.posterior`, `fitting.bayes.pooling` and
`fitting.bayes.prediction`, which say why; results agree to rounding. All cells of a group stay in
a core's cache. An inner loop writes to one array only, to run on vector units.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
from numpy.polynomial import chebyshev

from fitting.bayes.posterior import Parts, solve_cell
from fitting.bayes.prediction import EMPTY, JOINED, KEPT, LAST_STEP, MOST_STEPS, PRECISION, SOUGHT
from fitting.compiled import loops
from fitting.compiled.loops import FloatArray, IntArray, jit_inline, jit_reordered

if TYPE_CHECKING:
    from collections.abc import Sequence

    from fitting.bayes.posterior import Designs, Grid

# Vectors over the steps, of a design and a shape. All that is sought of a cell follows from their
# inner products, weighted by 1/variance of the points.
_ONE, _CROSS, _BEND = range(3)
# What each point adds to a cell's answers: to the squares about the curve, to what level and θ
# explain of them, and to the expected value at the target.
_SQUARE, _BY_LEVEL, _BY_BEND, _MOVE = range(4)
# Weight of components, and their first and second moments about a point.
_MASS, _SHIFT, _SQUARES = range(3)
_solve_cell = jit_inline(solve_cell)

# exp(x) = 2^k·exp(r), with k the whole number nearest to x/ln 2. A number added to this one loses
# its fraction, and has k in its last bits.
_WHOLE = 1.5 * 2**52
_LN2_HIGH, _LN2_LOW = 6.93147180369123816490e-01, 1.90821492927058770002e-10
_EXP = tuple(1 / math.factorial(n) for n in range(13, -1, -1))
# Below it a probability is as good as none, and its logarithm is still a number.
_LEAST_LOG = -700.0
# Deviations from its mean beyond which a normal distribution has nothing to add.
_FAR = 37.0
# The normal distribution below −t is exp(−t²/2)/(1 + t) times a polynomial in (t − c)/(t + c), of
# the degree that leaves 2e-15. Source of the form: Shepherd & Laframboise (1981),
# https://doi.org/10.1090/S0025-5718-1981-0595058-X.
_CENTRE, _DEGREE = 5.0, 20


def _tail_polynomial() -> FloatArray:
    """Coefficients of the polynomial of the normal tail, the highest power first."""
    from scipy.special import erfcx

    u = chebyshev.chebpts1(_DEGREE + 1)
    t = _CENTRE * (1 + u) / (1 - u)
    scaled = (1 + t) * erfcx(t / math.sqrt(2)) / 2
    rising = chebyshev.cheb2poly(chebyshev.chebfit(u, scaled, _DEGREE))
    return np.array(rising[::-1], dtype=np.float64)


_TAIL = _tail_polynomial()


def fill_evidence(designs: Designs, design: IntArray, grid: Grid, *points: FloatArray) -> Parts:
    """Compute the `fitting.bayes.posterior.Evidence` of groups by their designs."""
    (count, steps), (residual, at_target, scatter) = designs.eigenvalue.shape, points
    (groups, shapes), scales = at_target.shape, len(grid.noise)
    order = np.argsort(design, kind="stable")
    bounds = np.searchsorted(design[order], np.arange(count + 1))
    noise2 = grid.noise**2
    # Of one layout, so that they are compiled for once. The determinant is in units of the noise.
    cells = (noise2, grid.drift.T**2, residual, at_target, scatter + (steps - 1) * np.log(noise2))
    # Points are added up two at a time.
    filled = steps + steps % 2
    of_design = ((3, filled, shapes), (6, shapes), (6, shapes), (scales, 4, filled, shapes))
    of_group = ((2, filled, shapes), (2, shapes), (2, scales, shapes), (3, shapes * scales))
    log_factor = np.zeros((scales, shapes))
    scratch = tuple(np.zeros(shape) for shape in (*of_design, *of_group))
    made = tuple(np.empty((n, shapes, scales)) for n in (groups, groups, count, count))
    designed, given = (tuple(map(np.ascontiguousarray, part)) for part in (designs, cells))
    _fill_designs(order, bounds, designed, given, (*scratch, log_factor), made)
    likelihood, mean, variance, form = made
    noise = np.broadcast_to(noise2 * designs.new[:, None, None], form.shape)
    return likelihood, mean, design, variance, form, noise


@jit_reordered
def _fill_designs(
    order: IntArray, bounds: IntArray, designs: Parts, cells: Parts, scratch: Parts, made: Parts
) -> None:
    """Fill the cells of all groups, design by design."""
    whiten, (noise2, drift2, residual, at_target, scatter) = designs[0], cells
    vector, inner, solved, adds, point, explained, found, work, log_factor = scratch
    likelihood, mean, variance, form = made
    steps, shapes = whiten.shape[1], drift2.shape[1]
    for d in range(len(variance)):
        _spread_vectors(designs, d, vector)
        for s in range(len(noise2)):
            of_scale = (noise2[s], drift2[s], log_factor[s])
            of_points = (vector, inner, solved, adds[s])
            _solve_scale(designs, d, s, of_scale, of_points, (variance, form))
        for number in range(bounds[d], bounds[d + 1]):
            g = order[number]
            point[0] = 0.0
            for i in range(steps):
                for j in range(steps):
                    share = whiten[d, i, j]
                    for t in range(shapes):
                        point[0, i, t] += share * residual[g, j, t]
            for i in range(steps):
                for t in range(shapes):
                    point[1, i, t] = point[0, i, t] ** 2
            for s in range(len(noise2)):
                _explain_scale(point, adds[s], explained, (found[0, s], found[1, s]))
                known = scatter[g, s]
                for t in range(shapes):
                    found[0, s, t] += known - log_factor[s, t]
                for t in range(shapes):
                    found[1, s, t] += at_target[g, t]
            _turn(found[1], mean[g])
            _turn(found[0], likelihood[g])
            _normalise(likelihood[g].reshape(-1), work)


@jit_inline
def _spread_vectors(designs: Parts, d: int, vector: FloatArray) -> None:
    """Write the vectors of a design for all its shapes."""
    _, eigenvalue, one, cross, _, _, bend = designs
    for i in range(eigenvalue.shape[1]):
        vector[_ONE, i] = one[d, i]
        vector[_CROSS, i] = cross[d, i]
        for t in range(vector.shape[2]):
            vector[_BEND, i, t] = bend[d, t, i]


@jit_inline
def _solve_scale(
    designs: Parts, d: int, s: int, of_scale: Parts, scratch: Parts, made: Parts
) -> None:
    """Solve the cells of a scale of a design; write what its points add to them."""
    _, eigenvalue, _, _, error, new, bend = designs
    (noise2, drift2, log_factor), (vector, inner, solved, adds) = of_scale, scratch
    variance, form = made
    steps = eigenvalue.shape[1]
    log_factor[:] = 1.0
    for i in range(steps):
        weight, value = adds[_SQUARE, i], eigenvalue[d, i]
        for t in range(len(drift2)):
            weight[t] = 1 / (value * drift2[t] + noise2)
        # Their product, in units of the noise.
        for t in range(len(drift2)):
            log_factor[t] *= weight[t] * noise2
    pair = 0
    for a in range(3):
        for b in range(a + 1):
            inner[pair] = 0.0
            for i in range(steps):
                one, other, weight = vector[a, i], vector[b, i], adds[_SQUARE, i]
                for t in range(len(drift2)):
                    inner[pair, t] += one[t] * other[t] * weight[t]
            pair += 1
    for t in range(len(drift2)):
        products = (inner[0, t], inner[1, t], inner[3, t], inner[2, t], inner[4, t], inner[5, t])
        asked = (error[d], new[d], bend[d, t, steps])
        of_cell, variance[d, t, s], form[d, t, s] = _solve_cell(products, drift2[t], noise2, asked)
        # Finished: 1/determinant.
        log_factor[t] = math.log(log_factor[t] * of_cell[1] * of_cell[2] / noise2)
        for part in range(6):
            solved[part, t] = of_cell[part]
    for i in range(steps):
        _share_out((vector[_ONE, i], vector[_CROSS, i], vector[_BEND, i]), solved, adds[:, i])


@jit_inline
def _share_out(vector: Parts, solved: FloatArray, adds: FloatArray) -> None:
    """Write what a residual of 1 at a point adds: `fitting.bayes.posterior.explain_points`."""
    (one, cross, bend), weight = vector, adds[_SQUARE]
    followed, by_level, by_bend, to_level, to_error, to_bend = solved
    for t in range(len(weight)):
        adds[_BY_LEVEL, t] = weight[t] * one[t] * math.sqrt(by_level[t])
    for t in range(len(weight)):
        bent = bend[t] - followed[t] * one[t]
        adds[_BY_BEND, t] = weight[t] * bent * math.sqrt(by_bend[t])
    for t in range(len(weight)):
        bent = bend[t] - followed[t] * one[t]
        moved = one[t] * to_level[t] + cross[t] * to_error[t] + bent * to_bend[t]
        adds[_MOVE, t] = weight[t] * moved


@loops.jit_reordered_inner
def _sum_up(point: FloatArray, adds: FloatArray, total: FloatArray) -> None:
    """Sum up over the points, in all shapes."""
    total[:] = 0.0
    for i in range(0, len(adds), 2):
        for t in range(len(total)):
            total[t] += point[i, t] * adds[i, t] + point[i + 1, t] * adds[i + 1, t]


@jit_inline
def _explain_scale(point: FloatArray, adds: FloatArray, explained: FloatArray, made: Parts) -> None:
    """Write quadratic form and move of a group in the cells of a scale."""
    quadratic, moved = made
    _sum_up(point[1], adds[_SQUARE], quadratic)
    _sum_up(point[0], adds[_BY_LEVEL], explained[0])
    _sum_up(point[0], adds[_BY_BEND], explained[1])
    _sum_up(point[0], adds[_MOVE], moved)
    for t in range(len(quadratic)):
        quadratic[t] -= explained[0, t] ** 2 + explained[1, t] ** 2


@loops.jit_reordered_inner
def _turn(by_scale: FloatArray, made: FloatArray) -> None:
    """Write cells shape by shape."""
    for t in range(len(made)):
        for s in range(len(by_scale)):
            made[t, s] = by_scale[s, t]


@jit_inline
def _normalise(quadratic: FloatArray, work: FloatArray) -> None:
    """Make likelihoods, 1 at the best, of quadratic forms."""
    least = math.inf
    for c in range(len(quadratic)):
        least = min(least, quadratic[c])
    for c in range(len(quadratic)):
        work[2, c] = max(-0.5 * (quadratic[c] - least), _LEAST_LOG)
    _exponentiate(work[2], work, quadratic)


# Without another order of sums, in which the numbers that round would fall out.
@loops.jit_ordered_inner
def _exponentiate(x: FloatArray, work: FloatArray, made: FloatArray) -> None:
    """Compute exp of numbers from −700 to 0; ``work`` has two rows or more to write to."""
    whole, bits = work[0], work[1].view(np.int64)
    number = whole.view(np.int64)
    for c in range(len(made)):
        whole[c] = x[c] * (1 / math.log(2)) + _WHOLE
    for c in range(len(made)):
        k = whole[c] - _WHOLE
        r = (x[c] - k * _LN2_HIGH) - k * _LN2_LOW
        total = _EXP[0]
        for n in range(1, len(_EXP)):
            total = total * r + _EXP[n]
        made[c] = total
    for c in range(len(made)):
        bits[c] = (number[c] + 1023) << 52
    power = work[1]
    for c in range(len(made)):
        made[c] *= power[c]


def mix_posteriors(reach: float, of_group: Parts, cells: Parts) -> FloatArray:
    """Mix priors, clusters and others into posteriors, as `fitting.bayes.pooling` does."""
    made = np.empty(cells[1].shape)
    flat = (np.ascontiguousarray(part.reshape(len(part), -1)) for part in cells)
    _mix(reach, of_group, tuple(flat), made.reshape(len(made), -1))
    return made


@jit_reordered
def _mix(reach: float, of_group: Parts, cells: Parts, made: FloatArray) -> None:
    """Fill the posteriors of all groups: own prior, others, and the cluster by its distance."""
    position, begin, size, row, worth, shipped = of_group
    prior, likelihood, shared, total, by_cluster = cells
    for g in range(len(made)):
        mixed, own, cluster, mass = made[g], prior[g % len(prior)], by_cluster[row[g]], 0.0
        for c in range(len(mixed)):
            mixed[c] = shipped[g] * own[c] + worth[g] * (total[0, c] - cluster[c])
        # Two neighbours at a time: the sum so far is then read half as often.
        last = begin[g] + size[g] - 1
        for one in range(begin[g], last + 1, 2):
            other = min(one + 1, last)
            near = _nearness(position, g, one, reach)
            far = _nearness(position, g, other, reach) if other > one else 0.0
            for c in range(len(mixed)):
                mixed[c] += near * shared[one, c] + far * shared[other, c]
        for c in range(len(mixed)):
            mixed[c] *= likelihood[g, c]
        for c in range(len(mixed)):
            mass += mixed[c]
        for c in range(len(mixed)):
            mixed[c] /= mass


@loops.jit_reordered_inner
def _nearness(position: FloatArray, g: int, other: int, reach: float) -> float:
    """Weight of another group of a cluster by its distance; 0 of the group itself."""
    return 0.0 if g == other else math.exp(-0.5 * ((position[g] - position[other]) / reach) ** 2)


def summarise_cells(cells: Parts, design: IntArray, probabilities: Sequence[float]) -> Parts:
    """Summarise posteriors as `fitting.bayes.prediction` does: quantiles, components and parts."""
    from scipy.special import ndtri

    groups, shapes, scales = cells[0].shape
    components = -(-shapes // JOINED) * scales
    # In deviations from the mean, the ends of a bracket by Cantelli's inequality and a start.
    p = np.array(probabilities)
    sought = np.stack([p, -np.sqrt(1 / p - 1), np.sqrt(1 / (1 - p) - 1), ndtri(p)], axis=1)
    sizes = ((3, components), (components,), (3, SOUGHT + 1), (3, KEPT), (6, SOUGHT + 1))
    scratch = tuple(np.zeros(size) for size in sizes)
    kept = np.broadcast_to(np.array([0.0, 1.0, 0.0])[:, None, None], (3, groups, KEPT)).copy()
    made = (np.empty((len(p), groups)), kept, np.empty((4, groups)))
    given = tuple(np.ascontiguousarray(part.reshape(len(part), -1)) for part in cells)
    _summarise(given, design, sought, scales, scratch, made)
    return made


@jit_reordered
def _summarise(
    cells: Parts, design: IntArray, sought: FloatArray, scales: int, scratch: Parts, made: Parts
) -> None:
    """Write quantiles, components, and the four parts of `CurveProjection` of each group."""
    weight, mean, likelihood, prior, variance, form, noise = cells
    joined, room, many, few, work = scratch
    quantiles, kept, parts = made
    for g in range(len(weight)):
        d, own = design[g], prior[g % len(prior)]
        middle = _dot(weight[g], mean[g])
        mass, shift = _dot(likelihood[g], own), 0.0
        for c in range(len(own)):
            shift += likelihood[g, c] * own[c] * (mean[g, c] - middle)
        by_form, by_noise = _dot(weight[g], form[d]), _dot(weight[g], noise[d])
        _join(scales, middle, (weight[g], mean[g], variance[d]), joined)
        count = _trim(joined, joined.shape[1], room, many)
        first, second = 0.0, 0.0
        for c in range(count):
            first += many[_SHIFT, c]
        for c in range(count):
            second += many[_SQUARES, c]
        spread = second - first**2
        parts[0, g], parts[1, g] = spread - by_form - by_noise, by_form
        parts[2, g], parts[3, g] = by_noise, -shift / mass
        length = _trim(many, count, room, few)
        _separate(few, length)
        for c in range(length):
            kept[0, g, c], kept[1, g, c] = few[_SHIFT, c] + middle, few[_SQUARES, c]
            kept[2, g, c] = few[_MASS, c]
        _separate(many, count)
        for c in range(count):
            many[_SQUARES, c] = 1 / math.sqrt(many[_SQUARES, c])
        for q in range(len(sought)):
            found = _solve(sought[q], many, count, (first, math.sqrt(spread)), work)
            quantiles[q, g] = found + middle


@loops.jit_reordered_inner
def _dot(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@jit_inline
def _join(scales: int, middle: float, cells: Parts, made: FloatArray) -> None:
    """Add up weight and moments of neighbouring shapes."""
    weight, mean, variance = cells
    made[:] = 0.0
    for begin in range(0, len(weight), scales):
        into = begin // scales // JOINED * scales
        for s in range(scales):
            made[_MASS, into + s] += weight[begin + s]
        for s in range(scales):
            made[_SHIFT, into + s] += weight[begin + s] * (mean[begin + s] - middle)
        for s in range(scales):
            square = variance[begin + s] + (mean[begin + s] - middle) ** 2
            made[_SQUARES, into + s] += weight[begin + s] * square


@loops.jit_reordered_inner
def _trim(given: FloatArray, count: int, room: FloatArray, made: FloatArray) -> int:
    """Keep the weighty components, add up the others to a last one, and count them."""
    most = made.shape[1] - 1
    # Those without weight come last of all.
    if count <= most + 1:
        for c in range(count):
            for part in range(3):
                made[part, c] = given[part, c]
        return count
    for c in range(count):
        room[c] = given[_MASS, c]
    # Numbers from 0 on sort as their bits do.
    bits = room[:count].view(np.int64)
    least, many = _find_threshold(bits, most)
    made[:, most] = 0.0
    length = 0
    for c in range(count):
        at = most
        if bits[c] > least or (bits[c] == least and many > 0):
            at, length = length, length + 1
            many -= bits[c] == least
            for part in range(3):
                made[part, at] = given[part, c]
        elif given[_MASS, c] > EMPTY:
            for part in range(3):
                made[part, most] += given[part, c]
    return most + 1


@jit_inline
def _find_threshold(bits: IntArray, most: int) -> tuple[int, int]:
    """Find the least of the ``most`` largest weights, and how many of its equals are among them."""
    # Weights are below 2, whose bits these are.
    low, high, above = -1, 1 << 62, 0
    # More than ``most`` weights are larger than ``low``, and fewer are larger than ``high``.
    while high - low > 1:
        middle, larger = low + (high - low) // 2, 0
        for c in range(len(bits)):
            larger += bits[c] > middle
        if larger == most:
            return middle, 0
        if larger > most:
            low = middle
        else:
            high, above = middle, larger
    return high, most - above


@loops.jit_reordered_inner
def _separate(parts: FloatArray, count: int) -> None:
    """Make means and variances of moments; a component without mass has no digits of them."""
    for c in range(count):
        if parts[_MASS, c] > EMPTY:
            parts[_SHIFT, c] /= parts[_MASS, c]
            parts[_SQUARES, c] = parts[_SQUARES, c] / parts[_MASS, c] - parts[_SHIFT, c] ** 2
        else:
            parts[_MASS, c], parts[_SHIFT, c], parts[_SQUARES, c] = 0.0, 0.0, 1.0


@jit_inline
def _solve(
    sought: FloatArray, mixture: FloatArray, count: int, moments: Parts, work: FloatArray
) -> float:
    """Solve for a quantile, as `fitting.bayes.prediction` does."""
    p, (middle, scale) = sought[0], moments
    low, high = middle + sought[1] * scale, middle + sought[2] * scale
    x = min(max(middle + sought[3] * scale, low), high)
    last = high - low
    for _ in range(MOST_STEPS):
        excess, density, slope = _weigh_tail(x, mixture, count, work)
        excess -= p
        if excess > 0:
            high = x
        else:
            low = x
        root = math.sqrt(max(density**2 - 2 * excess * slope, 0.0))
        guess = x - 2 * excess / (density + root)
        step = abs(guess - x)
        # Not a number is not safe.
        is_safe = low <= guess <= high and step <= max(last / 2, LAST_STEP * scale)
        if not is_safe:
            guess = (low + high) / 2
        last, x = abs(guess - x), guess
        if last <= (LAST_STEP if is_safe else PRECISION) * scale:
            break
    return x


@jit_inline
def _weigh_tail(
    x: float, mixture: FloatArray, count: int, work: FloatArray
) -> tuple[float, float, float]:
    """Share of a mixture below x, its density there and the slope of that."""
    weight, mean, unit = mixture[0], mixture[1], mixture[2]
    z, half, bell, near = work[2], work[3], work[4], work[5]
    for c in range(count):
        z[c] = min(max((x - mean[c]) * unit[c], -_FAR), _FAR)
    for c in range(count):
        half[c] = -0.5 * z[c] ** 2
    _exponentiate(half, work, bell[:count])
    for c in range(count):
        t = abs(z[c])
        near[c] = (t - _CENTRE) / (t + _CENTRE)
    half[:count] = _TAIL[0]
    for n in range(1, len(_TAIL), 2):
        one, other = _TAIL[n], _TAIL[n + 1]
        for c in range(count):
            half[c] = (half[c] * near[c] + one) * near[c] + other
    for c in range(count):
        tail = half[c] * bell[c] / (1 + abs(z[c]))
        half[c] = weight[c] * (tail if z[c] < 0 else 1 - tail)
    below, density, slope = 0.0, 0.0, 0.0
    for c in range(count):
        part = weight[c] * unit[c] * bell[c]
        below += half[c]
        density += part
        slope -= part * z[c] * unit[c]
    root = 1 / math.sqrt(2 * math.pi)
    return below, density * root, slope * root
