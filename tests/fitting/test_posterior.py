"""The grid posterior against the runs' own joint normal distribution; priors against scipy."""

from dataclasses import replace
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, strategies as st
from scipy.integrate import quad
from scipy.stats import beta, lognorm
from strategies import GHZ, POWER_PRIOR, TIME_PRIOR, frequencies, prior_of

from fitting.bayes.posterior import (
    SHARED_NOISE,
    FrequencyTarget,
    Grid,
    MeasuredSteps,
    error_covariance,
    evidence,
    noise_share,
)
from fitting.bayes.priors import DynamicShare, DynamicSharePrior, StalledShare, noise_grid


class Parabolas(NamedTuple):
    """Curves that are straight or bent on logarithmic axes: a law with any cells.

    The slope of each is normal about that of its node, where ``spread`` is given.
    """

    slope: np.ndarray
    bend: np.ndarray
    grid: Grid
    spread: np.ndarray | None = None

    def log_shape(self, frequency, groups):
        x = np.log(frequency / GHZ)[:, :, None]
        return self.slope * x + self.bend * x**2

    def log_spread(self, frequency, groups):
        return None if self.spread is None else np.log(frequency / GHZ)[:, :, None] * self.spread


class Case(NamedTuple):
    """One group's runs, one array a step, and what is asked of it."""

    frequency: np.ndarray
    runs: list
    target: float
    target_runs: int


def evidence_of(law, cases, order=None):
    """Evidence of cases with the same number of steps, in any order."""
    rows = [
        (number, f, value)
        for number, case in enumerate(cases)
        for f, runs in zip(case.frequency, case.runs, strict=True)
        for value in runs
    ]
    group, frequency, value = np.array(rows, dtype=float).T
    steps = MeasuredSteps.of(group.astype(int), frequency, value, len(cases))
    order = np.arange(len(cases)) if order is None else order
    target = FrequencyTarget(*np.array([(c.target, c.target_runs) for c in cases], dtype=float).T)
    asked = FrequencyTarget._make(part[order] for part in target)
    return evidence(law, steps.sweep(order), asked, order)


@st.composite
def laws(draw):
    shapes, scales = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    grid = Grid(
        rng.dirichlet(np.ones(shapes))[None],
        10 ** rng.uniform(-2, -0.8, scales),
        rng.dirichlet(np.ones(scales)),
        10 ** rng.uniform(-2.5, 0, (shapes, scales)),
        *(draw(st.sampled_from([0.0, 0.7])) for _ in range(2)),
    )
    curves = Parabolas(rng.uniform(0.5, 1.5, shapes), rng.uniform(-0.3, 0.3, shapes), grid)
    spread = rng.choice([0.0, 0.02, 0.3], shapes)
    return curves._replace(spread=spread if draw(st.booleans()) else None)


@st.composite
def cases(draw):
    frequency = np.sort(draw(frequencies(2, 5)))
    values = st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=4)
    target = draw(st.floats(0.5, 6)) * GHZ
    runs = [np.array(draw(values)) + np.log(f / GHZ) for f in frequency]
    return Case(frequency, runs, target, draw(st.integers(1, 5)))


# The joint distribution of the single runs.


def lower_factor(matrix):
    """Cholesky factors of (…, n, n) matrices in the precision that they have; numpy's is double."""
    factor = np.zeros_like(matrix)
    for i in range(matrix.shape[-1]):
        row = matrix[..., i:, i] - np.einsum(
            "...jk,...k->...j", factor[..., i:, :i], factor[..., i, :i]
        )
        factor[..., i:, i] = row / np.sqrt(row[..., :1])
    return factor


def solved(factor, right):
    """Solutions x of factor·x = right, one a matrix."""
    x = np.zeros(factor.shape[:-1], factor.dtype)
    for i in range(factor.shape[-1]):
        known = np.einsum("...k,...k->...", factor[..., i, :i], x[..., :i])
        x[..., i] = (right[..., i] - known) / factor[..., i, i]
    return x


def double_integral(a, b):
    """∫₀ᵃ∫₀ᵇ min(s, t) dt ds of distances on one side, by the sum of its two triangles."""
    a, b = min(a, b), max(a, b)
    return a**3 / 3 + a**2 * (b - a) / 2


def brute_force(law, case):
    """Log-likelihood, mean and variance of each cell from the covariance of all single runs.

    The flat level goes by taking differences to the first run; nothing else is simplified. In
    longdouble, because the least of a covariance is lost beside the largest in double.
    """
    wide = np.longdouble
    at = np.repeat(np.arange(len(case.runs)), [len(r) for r in case.runs])
    new = np.full(case.target_runs, len(case.runs))
    step = np.concatenate([at, new])
    frequency = np.append(case.frequency, case.target)
    x = np.log((frequency / GHZ).astype(wide))
    u = x - x[:-1].max()
    kernel = np.zeros((len(u), len(u)), wide)
    for i in range(len(u)):
        for j in range(len(u)):
            if u[i] * u[j] > 0:
                kernel[i, j] = double_integral(abs(u[i]), abs(u[j]))
    if case.target > case.frequency.max():
        # A Wiener process that begins at the highest step.
        kernel[-1, -1] += wide(law.grid.beyond) ** 2 * u[-1]
    if case.target < case.frequency.min():
        # The same from the lowest step downwards.
        kernel[-1, -1] += wide(law.grid.below) ** 2 * (u[:-1].min() - u[-1])

    shape = (law.slope.astype(wide)[:, None] * x + law.bend.astype(wide)[:, None] * x**2)[
        :, None, step
    ]
    drift = law.grid.drift.astype(wide)[:, :, None, None]
    noise = law.grid.noise.astype(wide)[:, None, None]
    same_step, same_run = step[:, None] == step, np.eye(len(step))
    covariance = drift**2 * kernel[np.ix_(step, step)] + noise**2 * (
        SHARED_NOISE * same_step + (1 - SHARED_NOISE) * same_run
    )
    if law.spread is not None:
        bent = (law.spread.astype(wide)[:, None] * x)[:, step]
        covariance = covariance + (bent[:, :, None] * bent[:, None, :])[:, None]
    # Runs, then the mean of the new runs, all less the first run.
    runs = len(at)
    contrast = np.zeros((runs, len(step)), wide)
    contrast[:-1, 1:runs] = np.eye(runs - 1)
    contrast[-1, runs:] = wide(1) / case.target_runs
    contrast[:, 0] = -1
    joint = contrast @ covariance @ contrast.T
    centre = np.einsum("ij,tsj->tsi", contrast, np.broadcast_to(shape, covariance.shape[:-1]))
    value = np.concatenate(case.runs).astype(wide)
    factor = lower_factor(joint)
    residual = (value[1:] - value[0]) - centre[..., :-1]
    white = solved(factor[..., :-1, :-1], residual)
    diagonal = np.diagonal(factor, axis1=-2, axis2=-1)
    log_likelihood = -np.log(diagonal[..., :-1]).sum(axis=-1) - (white**2).sum(axis=-1) / 2
    carried = (factor[..., -1, :-1] * white).sum(axis=-1)
    return log_likelihood, value[0] + centre[..., -1] + carried, diagonal[..., -1] ** 2


def check_against_brute_force(law, case, found, group=0, rtol=1e-9):
    log_likelihood, mean, variance = brute_force(law, case)
    expected = np.exp((log_likelihood - log_likelihood.max()).astype(float))
    np.testing.assert_allclose(found.likelihood[group], expected, rtol=rtol, atol=1e-30)
    np.testing.assert_allclose(found.mean[group], mean.astype(float), rtol=rtol, atol=1e-11)
    design = found.design[group]
    np.testing.assert_allclose(found.variance[design], variance.astype(float), rtol=rtol)


@given(laws(), cases())
def test_every_cell_is_the_normal_distribution_of_all_single_runs(law, case):
    found = evidence_of(law, [case])
    check_against_brute_force(law, case, found)
    noise = law.grid.noise**2 * noise_share(np.array(case.target_runs))
    np.testing.assert_allclose(found.noise[0], np.broadcast_to(noise, found.noise[0].shape))
    assert (found.form >= -1e-12).all()
    assert (found.variance >= (found.form + found.noise) * (1 - 1e-12)).all()
    # A posterior is the prior times the likelihood.
    prior = prior_of(law.grid)
    weight, product = found.posterior(prior), prior * found.likelihood
    np.testing.assert_allclose(weight, product / product.sum(), rtol=1e-12)
    # A prior of zero is never revived.
    only = np.zeros_like(weight)
    only[0, 0, 0] = 0.2
    if found.likelihood[0, 0, 0] > 0:
        np.testing.assert_array_equal(found.posterior(only), only * 5)


def three_shapes(noise=(5e-4, 0.02)):
    grid = Grid(np.full((1, 3), 1 / 3), np.array(noise), np.array([0.5, 0.5]), np.ones((3, 2)))
    return Parabolas(np.array([-2.0, 0.9, 1.0]), np.zeros(3), grid)


def test_sixty_steps_do_not_underflow():
    rng, law = np.random.default_rng(60), three_shapes()
    frequency = np.linspace(0.8, 4.0, 60) * GHZ
    runs = [np.log([f / GHZ]) + 0.05 * rng.standard_normal(3) for f in frequency]
    case = Case(frequency, runs, 4.5 * GHZ, 1)
    found = evidence_of(law, [case])
    assert found.likelihood.max() == 1
    np.testing.assert_allclose(found.posterior(prior_of(law.grid)).sum(), 1, rtol=1e-12)
    check_against_brute_force(law, case, found, rtol=1e-6)


def test_many_groups_of_a_few_designs_in_any_order():
    # More of one design than are worked on at once.
    rng, law = np.random.default_rng(4), three_shapes((0.02, 0.1))
    designs = np.array([[1.0, 1.7, 2.5], [1.1, 1.7, 2.5]])[np.arange(200) % 7 // 6] * GHZ
    many = [Case(f, list(rng.normal(0, 0.1, (3, 2))), 3e9, 1) for f in designs]
    order = rng.permutation(200)
    found = evidence_of(law, many, order)
    assert len(found.variance) == 2
    for row in (0, 63, 64, 100, 199):
        check_against_brute_force(law, many[order[row]], found, row)


def test_repeats_share_a_part_of_their_noise():
    np.testing.assert_allclose(noise_share(np.array([1.0, 1e12])), [1.0, SHARED_NOISE])
    # n runs with covariance share everywhere and the rest on the diagonal.
    covariance = SHARED_NOISE * np.ones((5, 5)) + (1 - SHARED_NOISE) * np.eye(5)
    np.testing.assert_allclose(noise_share(np.array([5.0])), covariance.mean())


@pytest.mark.parametrize("a", [-1.1, -0.2, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("b", [-0.7, 0.0, 0.05, 0.9, 2.0])
def test_error_covariance_is_the_double_integral_of_its_walks_covariance(a, b):
    def walk(s):
        if a * b <= 0:
            return 0.0
        inner, error = quad(lambda t: min(s, t), 0, abs(b), points=[min(s, abs(b))])
        assert error < 1e-10
        return inner

    expected, _ = quad(walk, 0, abs(a), points=[min(abs(a), abs(b))], epsabs=1e-12)
    found = error_covariance(np.array([a]), np.array([b]))
    np.testing.assert_allclose(found, [expected], rtol=1e-9, atol=1e-12)


# The prior of times.

TIME = replace(TIME_PRIOR, shares=5, scales=3)


def cells_of_shares(cells):
    """Edges and middles of cells that are narrow at both ends, a little more so near none."""
    edges = 1 - (1 - (np.arange(cells + 1) / cells) ** 2) ** 1.5
    return edges, (edges[1:] + edges[:-1]) / 2


def test_shares_of_times_weigh_as_the_beta_law_in_their_cells():
    law, (edges, middles) = StalledShare(np.array([2 * GHZ]), TIME), cells_of_shares(5)
    # None, then the cells, for each overlap.
    assert law.share == pytest.approx(np.append(0.0, np.tile(middles, 2)))
    assert law.overlap.tolist() == [1.0] * 6 + [4.0] * 5
    assert law.spread == pytest.approx(np.append(0.0, np.tile(0.4 * np.diff(edges), 2)))
    weight = 0.7 * (0.8 * np.diff(beta.cdf(edges, 0.7, 1.1)) + 0.2 * np.diff(edges))
    found = law.grid.shape_weight[0]
    assert found == pytest.approx(np.concatenate([[0.3], 0.6 * weight, 0.4 * weight]))
    # Half the frequency doubles what is no stall; with an overlap of 4 the fourth powers add up.
    times = np.exp(law.log_shape(np.array([[1.0, 2.0]]) * GHZ, np.array([0])))
    share = middles[2]
    expected = [2, (1 - share) * 2 + share, ((1 - share) * 16 + share) ** 0.25]
    assert times[0, 0, [0, 3, 8]] == pytest.approx(expected)
    assert times[0, 1] == pytest.approx(np.ones(11))


def test_one_deviation_of_a_share_moves_the_time_as_the_next_node_does():
    law, asked = StalledShare(np.array([2 * GHZ]), TIME), np.array([0.7, 1.4, 2.0, 3.1]) * GHZ
    step = 1e-6
    moved = StalledShare(law.reference, TIME)
    moved.share = law.share + step * law.spread
    first, second = (one.log_shape(asked[None], np.array([0]))[0] for one in (law, moved))
    found = law.log_spread(asked[None], np.array([0]))[0]
    assert found == pytest.approx((second - first) / step, rel=1e-4, abs=1e-9)


def test_noise_is_log_normal_and_model_errors_go_with_stalls():
    noise, weight = noise_grid(0.03, 0.8, 5, (0.003, 0.3))
    assert noise == pytest.approx(0.003 * 10 ** np.array([0, 0.5, 1, 1.5, 2]))
    # Levels are evenly spaced in the logarithm, in which the density is noise times that of noise.
    density = noise * lognorm.pdf(noise, 0.8, scale=0.03)
    assert weight == pytest.approx(density / density.sum())
    grid = StalledShare(np.array([2 * GHZ]), TIME).grid
    assert grid.noise == pytest.approx([0.0005, 0.01, 0.2] * 2)
    assert grid.noise_weight.reshape(2, 3).sum(axis=1) == pytest.approx([0.4, 0.6])
    # Roots of the products of work and stalls.
    _, middles = cells_of_shares(5)
    stalls = np.append(0.0, np.tile(np.sqrt(middles * (1 - middles)), 2))
    expected = (0.02 + 0.4 * stalls)[:, None] * np.repeat([0.2, 1.0], 3)
    assert grid.drift == pytest.approx(expected)
    assert grid.beyond == TIME.beyond


# The prior of power.

_SLOPES, _WEIGHT = (0.2, 0.6, 1.0), (0.3, 0.4, 0.3)
POWER = replace(
    POWER_PRIOR, slope=_SLOPES, slope_weight=_WEIGHT, known_voltage=0.25, shares=2, scales=2
)
# Middles of halves; slopes run slowest.
STATIC = np.array([0.25, 0.75] * 3)
SLOPES = np.repeat(_SLOPES, 2)


def power_law(clock_power=None, prior=POWER):
    return DynamicShare(np.full(2, 2 * GHZ), np.array([1.0, 0.5]), prior, clock_power)


def cube(frequency, groups):
    return (frequency / (2 * GHZ)) ** 3


def test_power_of_unknown_voltage():
    law = power_law()
    assert law.static == pytest.approx(STATIC)
    assert law.slope == pytest.approx(SLOPES)
    assert law.share == pytest.approx(1 - np.outer([1.0, 0.5], STATIC))
    for group, most in enumerate([1.0, 0.5]):
        density = beta.pdf(1 - most * STATIC, 1.2, 0.8) * np.repeat(_WEIGHT, 2)
        assert law.grid.shape_weight[group] == pytest.approx(density / density.sum())
    # The model error goes with the exponent, and wanders.
    scale = 0.02 + 0.1 * (1 + 2 * SLOPES)
    assert law.grid.drift == pytest.approx(scale[:, None] * np.repeat(POWER.wander, 2))
    # At half the clock and v = 0.6 the voltage is 0.7: a dynamic part of 0.245.
    found = law.log_shape(np.array([[1.0, 2.0]]) * GHZ, np.array([0]))
    assert np.exp(found[0, 0, 2]) == pytest.approx(1 + 0.75 * (0.5 * 0.49 - 1))
    assert found[0, 1] == pytest.approx(np.zeros(6), abs=1e-15)


def test_power_of_known_voltage():
    law = power_law(cube)
    assert law.static == pytest.approx(STATIC[:2])
    # One slope and less model error.
    scale = 0.25 * (0.02 + 0.1 * 3)
    assert law.grid.drift == pytest.approx(np.tile(scale * np.repeat(POWER.wander, 2), (2, 1)))
    density = beta.pdf(1 - STATIC[:2], 1.2, 0.8)
    assert law.grid.shape_weight[0] == pytest.approx(density / density.sum())
    any_share = power_law(
        cube, DynamicSharePrior(share_alpha=1.0, share_beta=1.0)
    ).grid.shape_weight
    assert any_share[0] == pytest.approx(np.full(16, 1 / 16))
    # A cube at half the clock: an eighth of the dynamic part.
    found = law.log_shape(np.array([[1.0]]) * GHZ, np.array([1]))
    assert np.exp(found[0, 0]) == pytest.approx(1 + (1 - 0.5 * STATIC[:2]) * (1 / 8 - 1))
