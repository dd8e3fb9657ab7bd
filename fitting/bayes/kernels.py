"""Compiled loops of the pooled posterior, for tables of many groups.

They do what numpy does in `fitting.bayes.posterior`, `fitting.bayes.pooling` and
`fitting.bayes.prediction`, which say why; results agree to rounding. An inner loop writes to one
array only, to run on vector units.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fitting.bayes.posterior import Parts, solve_cell
from fitting.bayes.prediction import LAST_STEP, MOST_STEPS, PRECISION
from fitting.compiled.loops import FloatArray, IntArray, jit_inline, jit_reordered

if TYPE_CHECKING:
    from fitting.bayes.posterior import Designs, Grid

# Steps whose products are added up at once; vectors over the steps are filled up to a multiple.
_LANES = 4
# Vectors over the steps, of a design and a shape. All that is sought of a cell follows from their
# inner products, weighted by 1/variance of the points.
_ONE, _CROSS, _BEND = range(3)
# What each point adds to a cell's answers: to the squares about the curve, to what level and θ
# explain of them, and to the expected value at the target.
_SQUARE, _BY_LEVEL, _BY_BEND, _MOVE = range(4)
# Deviations from its mean beyond which a normal distribution has nothing to add.
_FAR = 9.0
_solve_cell = jit_inline(solve_cell)


def fill_evidence(designs: Designs, design: IntArray, grid: Grid, *points: FloatArray) -> Parts:
    """Compute what `_fill_evidence` of `fitting.bayes.posterior` does."""
    (count, steps), (residual, at_target, scatter) = designs.eigenvalue.shape, points
    (groups, shapes), scales = at_target.shape, len(grid.noise)
    order = np.argsort(design, kind="stable")
    bounds = np.searchsorted(design[order], np.arange(count + 1))
    noise2, filled = grid.noise**2, -(-steps // _LANES) * _LANES
    # The determinant is taken in units of the noise.
    scatter = scatter + (steps - 1) * np.log(noise2)
    cells = (noise2, grid.drift**2, residual.transpose(0, 2, 1), at_target, scatter)
    of_group = ((2, filled), (2, scales), (shapes, 4, filled, scales))
    of_design = ((3, filled), (filled,), (3, 3, scales), (6, scales))
    scratch = tuple(map(np.zeros, of_group)), tuple(map(np.zeros, of_design))
    made = tuple(np.empty((n, shapes, scales)) for n in (groups, groups, count, count, count))
    # Of one layout, so that they are compiled for once.
    designed, given = (tuple(map(np.ascontiguousarray, part)) for part in (designs, cells))
    _fill_designs(order, bounds, designed, given, scratch, made)
    quadratic, mean, variance, form, factor = made
    quadratic -= np.log(factor, out=factor)[design]
    noise = np.broadcast_to(noise2 * designs.new[:, None, None], form.shape)
    return quadratic, mean, design, variance, form, noise


@jit_reordered
def _fill_designs(
    order: IntArray, bounds: IntArray, designs: Parts, cells: Parts, scratch: Parts, made: Parts
) -> None:
    """Fill the cells of all groups, design by design."""
    noise2, drift2, residual, at_target, scatter = cells
    (point, explained, adds), of_design = scratch
    quadratic, mean, variance, form, factor = made
    for d in range(len(variance)):
        for t in range(len(drift2)):
            of_shape = (adds[t], factor[d, t], variance[d, t], form[d, t])
            _solve_shape(designs, d, t, (noise2, drift2[t]), of_design, of_shape)
        # All shapes of a group together: its cells are written one after the other.
        for number in range(bounds[d], bounds[d + 1]):
            g = order[number]
            for t in range(len(drift2)):
                for i in range(residual.shape[2]):
                    point[0, i] = _dot(designs[0][d, i], residual[g, t])
                    point[1, i] = point[0, i] ** 2
                of_group = (explained, at_target[g, t], scatter[g], quadratic[g, t], mean[g, t])
                _fill_shape(point, adds[t], of_group)


@jit_reordered
def _dot(a: FloatArray, b: FloatArray) -> float:
    total = 0.0
    for i in range(len(a)):
        total += a[i] * b[i]
    return total


@jit_reordered
def _weigh(values: FloatArray, drift2: FloatArray, noise2: FloatArray, made: Parts) -> None:
    """Write 1/variance of each point, and their product in units of the noise."""
    weight, factor = made
    factor[:] = 1.0
    for i in range(len(values)):
        for s in range(len(noise2)):
            weight[i, s] = 1 / (values[i] * drift2[s] + noise2[s])
        for s in range(len(noise2)):
            factor[s] *= weight[i, s] * noise2[s]


@jit_reordered
def _sum_up(point: FloatArray, adds: FloatArray, total: FloatArray) -> None:
    """Sum up over the points, in all scales."""
    total[:] = 0.0
    for i in range(0, len(adds), _LANES):
        p, q, r, s = point[i], point[i + 1], point[i + 2], point[i + 3]
        for k in range(len(total)):
            first = p * adds[i, k] + q * adds[i + 1, k]
            total[k] += first + (r * adds[i + 2, k] + s * adds[i + 3, k])


@jit_reordered
def _solve_shape(
    designs: Parts, d: int, t: int, scales: Parts, scratch: Parts, made: Parts
) -> None:
    """Solve the cells of a shape of a design; write what its points add to them."""
    _, eigenvalue, one, cross, error, new, bend = designs
    (vector, product, inner, solved), (adds, factor, variance, form) = scratch, made
    noise2, drift2 = scales
    for i in range(eigenvalue.shape[1]):
        vector[_ONE, i], vector[_CROSS, i] = one[d, i], cross[d, i]
        vector[_BEND, i] = bend[d, t, i]
    _weigh(eigenvalue[d], drift2, noise2, (adds[_SQUARE], factor))
    for a in range(len(vector)):
        for b in range(a + 1):
            for i in range(vector.shape[1]):
                product[i] = vector[a, i] * vector[b, i]
            _sum_up(product, adds[_SQUARE], inner[a, b])
    asked = (error[d], new[d], bend[d, t, -1])
    for s in range(len(noise2)):
        of_one = (inner[_ONE, _ONE, s], inner[_CROSS, _ONE, s], inner[_BEND, _ONE, s])
        of_cross = (inner[_CROSS, _CROSS, s], inner[_BEND, _CROSS, s])
        products = (*of_one, *of_cross, inner[_BEND, _BEND, s])
        of_cell, variance[s], form[s] = _solve_cell(products, drift2[s], noise2[s], asked)
        # Finished: 1/determinant.
        factor[s] *= of_cell[1] * of_cell[2] / noise2[s]
        for part in range(6):
            solved[part, s] = of_cell[part]
    _share_out(vector, solved, adds)


@jit_reordered
def _share_out(vector: FloatArray, solved: FloatArray, adds: FloatArray) -> None:
    """Write what a residual of 1 at each point adds: `fitting.bayes.posterior.explain_points`."""
    followed, by_level, by_bend, to_level, to_error, to_bend = solved
    for i in range(vector.shape[1]):
        one, cross, bend = vector[_ONE, i], vector[_CROSS, i], vector[_BEND, i]
        weight = adds[_SQUARE, i]
        for s in range(len(weight)):
            adds[_BY_LEVEL, i, s] = weight[s] * one * math.sqrt(by_level[s])
        for s in range(len(weight)):
            bent = bend - followed[s] * one
            adds[_BY_BEND, i, s] = weight[s] * bent * math.sqrt(by_bend[s])
        for s in range(len(weight)):
            bent = bend - followed[s] * one
            moved = one * to_level[s] + cross * to_error[s] + bent * to_bend[s]
            adds[_MOVE, i, s] = weight[s] * moved


@jit_reordered
def _fill_shape(point: FloatArray, adds: FloatArray, of_group: Parts) -> None:
    """Write quadratic form and mean of a group in the cells of a shape."""
    explained, at_target, scatter, quadratic, mean = of_group
    _sum_up(point[1], adds[_SQUARE], quadratic)
    _sum_up(point[0], adds[_BY_LEVEL], explained[0])
    _sum_up(point[0], adds[_BY_BEND], explained[1])
    _sum_up(point[0], adds[_MOVE], mean)
    for s in range(len(mean)):
        quadratic[s] += scatter[s] - (explained[0, s] ** 2 + explained[1, s] ** 2)
    for s in range(len(mean)):
        mean[s] += at_target


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
        for other in range(begin[g], begin[g] + size[g]):
            if other != g:
                near = math.exp(-0.5 * ((position[g] - position[other]) / reach) ** 2)
                for c in range(len(mixed)):
                    mixed[c] += near * shared[other, c]
        for c in range(len(mixed)):
            mixed[c] *= likelihood[g, c]
        for c in range(len(mixed)):
            mass += mixed[c]
        for c in range(len(mixed)):
            mixed[c] /= mass


def join_cells(
    joined: int, weight: FloatArray, middle: FloatArray, cells: Parts
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Sum up weight and moments of neighbouring shapes, as `fitting.bayes.prediction` does."""
    groups, shapes, scales = weight.shape
    made = tuple(np.zeros((groups, -(-shapes // joined), scales)) for _ in range(3))
    _join(joined, np.ascontiguousarray(weight), middle, cells, made)
    return made[0], made[1], made[2]


@jit_reordered
def _join(joined: int, weight: FloatArray, middle: FloatArray, cells: Parts, made: Parts) -> None:
    """Add each shape of each group to those that it is joined with."""
    mean, variance, design = cells
    mass, shift, square = made
    for g in range(len(weight)):
        for t in range(weight.shape[1]):
            row, at, spread = weight[g, t], mean[g, t], variance[design[g], t]
            into = t // joined
            total, first, second = mass[g, into], shift[g, into], square[g, into]
            for s in range(len(row)):
                total[s] += row[s]
            for s in range(len(row)):
                first[s] += row[s] * (at[s] - middle[g])
            for s in range(len(row)):
                second[s] += row[s] * (spread[s] + (at[s] - middle[g]) ** 2)


def solve_quantile(p: float, mixture: Parts, scale: FloatArray, ends: Parts) -> FloatArray:
    """Solve for a quantile of each mixture, as `fitting.bayes.prediction` does."""
    mean, variance, weight = mixture
    made: FloatArray = ends[2].copy()
    parts = (mean, 1 / np.sqrt(variance), weight)
    _solve(p, tuple(map(np.ascontiguousarray, parts)), scale, ends[:2], made)
    return made


@jit_reordered
def _solve(p: float, mixture: Parts, scale: FloatArray, ends: Parts, made: FloatArray) -> None:
    """Move each group's start to its quantile; a group stops when its own step is short enough."""
    for g in range(len(made)):
        low, high, x = ends[0][g], ends[1][g], made[g]
        last = high - low
        for _ in range(MOST_STEPS):
            excess, density, slope = _weigh_tail(x, mixture, g)
            excess -= p
            if excess > 0:
                high = x
            else:
                low = x
            root = math.sqrt(max(density**2 - 2 * excess * slope, 0.0))
            guess = x - 2 * excess / (density + root)
            step = abs(guess - x)
            # Not a number is not safe.
            is_safe = low <= guess <= high and step <= max(last / 2, LAST_STEP * scale[g])
            if not is_safe:
                guess = (low + high) / 2
            last, x = abs(guess - x), guess
            if last <= (LAST_STEP if is_safe else PRECISION) * scale[g]:
                break
        made[g] = x


@jit_inline
def _weigh_tail(x: float, mixture: Parts, g: int) -> tuple[float, float, float]:
    """Share of a mixture below x, its density there and the slope of that."""
    mean, unit, weight = mixture
    below, density, slope = 0.0, 0.0, 0.0
    for c in range(mean.shape[1]):
        z = (x - mean[g, c]) * unit[g, c]
        if z > _FAR:
            below += weight[g, c]
        elif z > -_FAR:
            below += 0.5 * weight[g, c] * math.erfc(-z * math.sqrt(0.5))
            part = weight[g, c] * unit[g, c] * math.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
            density += part
            slope -= part * z * unit[g, c]
    return below, density, slope
