"""Compiled loops of the pooled posterior, for tables of many groups.

They do what numpy does in `fitting.bayes.posterior` and `fitting.bayes.pooling`, which say why;
results agree to rounding. An inner loop writes to one array only, to run on vector units.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np

from fitting.bayes.posterior import Parts, explain_points, solve_cell
from fitting.compiled.loops import FloatArray, IntArray, jit_inline, jit_reordered

if TYPE_CHECKING:
    from fitting.bayes.posterior import Designs, Grid

# Steps whose products are added up at once; vectors over the steps are filled up to a multiple.
_LANES = 4
# Vectors over the steps, of a design, of a shape, and of a group's residuals. All that is sought of
# a cell follows from their inner products, weighted by 1/variance of the points.
_ONE, _CROSS, _BEND, _RESIDUAL = range(4)
_SMALLEST = -100.0  # exp of less is of no account beside a likelihood of 1
_solve_cell, _explain_points = jit_inline(solve_cell), jit_inline(explain_points)


def fill_evidence(designs: Designs, design: IntArray, grid: Grid, *points: FloatArray) -> Parts:
    """Compute the parts of `fitting.bayes.posterior.Evidence`, as its `_fill_evidence` does."""
    (count, steps), (residual, at_target, scatter) = designs.eigenvalue.shape, points
    (groups, shapes), scales = at_target.shape, len(grid.noise)
    order = np.argsort(design, kind="stable")
    bounds = np.searchsorted(design[order], np.arange(count + 1))
    noise2, filled = grid.noise**2, -(-steps // _LANES) * _LANES
    # The determinant is taken in units of the noise.
    scatter = scatter + (steps - 1) * np.log(noise2)
    cells = (noise2, grid.drift**2, residual.transpose(0, 2, 1), at_target, scatter)
    sizes = ((4, filled), (filled, scales), (4, 4, scales), (6, scales), (shapes, scales))
    made = tuple(np.empty((rows, shapes, scales)) for rows in (groups, groups, count, count))
    # Of one layout, so that they are compiled for once.
    designed, given = (tuple(map(np.ascontiguousarray, part)) for part in (designs, cells))
    _fill_designs(order, bounds, designed, given, tuple(map(np.zeros, sizes)), made)
    likelihood, mean, variance, form = made
    noise = np.broadcast_to(noise2 * designs.new[:, None, None], form.shape)
    return likelihood, mean, design, variance, form, noise


@jit_reordered
def _fill_designs(
    order: IntArray, bounds: IntArray, designs: Parts, cells: Parts, scratch: Parts, made: Parts
) -> None:
    """Fill the cells of all groups, a design and a shape at a time."""
    whiten, eigenvalue, one, cross, error, new, bend = designs
    noise2, drift2, residual, at_target, scatter = cells
    vector, weight, inner, solved, factor = scratch
    likelihood, mean, variance, form = made
    for d in range(len(new)):
        for t in range(len(drift2)):
            for i in range(eigenvalue.shape[1]):
                vector[_ONE, i], vector[_CROSS, i] = one[d, i], cross[d, i]
                vector[_BEND, i] = bend[d, t, i]
            _weigh(eigenvalue[d], drift2[t], noise2, (weight, factor[t]))
            for a in range(_RESIDUAL):
                _multiply(vector, a, weight, inner[a])
            asked = (error[d], new[d], bend[d, t, -1])
            of_shape = (solved, factor[t], variance[d, t], form[d, t])
            _solve_shape(inner, drift2[t], noise2, asked, of_shape)
            for number in range(bounds[d], bounds[d + 1]):
                g = order[number]
                for i in range(eigenvalue.shape[1]):
                    vector[_RESIDUAL, i] = _dot(whiten[d, i], residual[g, t])
                _multiply(vector, _RESIDUAL, weight, inner[_RESIDUAL])
                of_group = (solved, at_target[g, t], scatter[g], likelihood[g, t], mean[g, t])
                _fill_shape(inner[_RESIDUAL], of_group)
        for number in range(bounds[d], bounds[d + 1]):
            _exponentiate(likelihood[order[number]], factor)


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
def _multiply(vector: FloatArray, a: int, weight: FloatArray, inner: FloatArray) -> None:
    """Multiply a vector by those up to it, in all scales."""
    for b in range(a + 1):
        total = inner[b]
        total[:] = 0.0
        for i in range(0, len(weight), _LANES):
            p, q = vector[a, i] * vector[b, i], vector[a, i + 1] * vector[b, i + 1]
            r, s = vector[a, i + 2] * vector[b, i + 2], vector[a, i + 3] * vector[b, i + 3]
            for k in range(len(total)):
                first = p * weight[i, k] + q * weight[i + 1, k]
                total[k] += first + (r * weight[i + 2, k] + s * weight[i + 3, k])


@jit_reordered
def _solve_shape(
    inner: FloatArray, drift2: FloatArray, noise2: FloatArray, asked: Parts, made: Parts
) -> None:
    """Solve the cells of a shape; finish their factors, 1/√determinant."""
    solved, factor, variance, form = made
    for s in range(len(noise2)):
        one, cross, bend = inner[_ONE, :, s], inner[_CROSS, :, s], inner[_BEND, :, s]
        products = (one[_ONE], cross[_ONE], bend[_ONE], cross[_CROSS], bend[_CROSS], bend[_BEND])
        of_cell, variance[s], form[s] = _solve_cell(products, drift2[s], noise2[s], asked)
        factor[s] = math.sqrt(factor[s] * of_cell[1] * of_cell[2] / noise2[s])
        for part in range(6):
            solved[part, s] = of_cell[part]


@jit_inline
def _explain_cell(product: FloatArray, solved: FloatArray, s: int) -> tuple[float, float]:
    """Explain the residuals of a group in one cell."""
    p = (product[_ONE, s], product[_CROSS, s], product[_BEND, s], product[_RESIDUAL, s])
    cell = (solved[0, s], solved[1, s], solved[2, s], solved[3, s], solved[4, s], solved[5, s])
    return _explain_points(p, cell)


@jit_reordered
def _fill_shape(product: FloatArray, of_group: Parts) -> None:
    """Write quadratic form and mean of a group in the cells of a shape."""
    solved, at_target, scatter, quadratic, mean = of_group
    for s in range(len(mean)):
        quadratic[s] = scatter[s] + _explain_cell(product, solved, s)[0]
    for s in range(len(mean)):
        mean[s] = at_target + _explain_cell(product, solved, s)[1]


@jit_reordered
def _exponentiate(cells: FloatArray, factor: FloatArray) -> None:
    """Turn a group's quadratic forms into its likelihood, 1 at the best cell."""
    flat, of_cell, best = cells.reshape(-1), factor.reshape(-1), 0.0
    least = flat[0]
    for c in range(len(flat)):
        least = min(least, flat[c])
    for c in range(len(flat)):
        x = -0.5 * (flat[c] - least)
        flat[c] = math.exp(x) * of_cell[c] if x > _SMALLEST else 0.0
        best = max(best, flat[c])
    for c in range(len(flat)):
        flat[c] /= best


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
