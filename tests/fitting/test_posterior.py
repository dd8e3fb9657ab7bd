"""The grid posterior against the runs' own joint normal distribution, in longdouble and mpmath."""

from __future__ import annotations

from dataclasses import dataclass

import mpmath
import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from scipy.integrate import quad
from strategies import GHZ, frequencies, sizes

from fitting.dynamic_share import DynamicShare
from fitting.posterior import (
    SHARED_NOISE,
    Grid,
    Sweep,
    Target,
    anchors,
    evidence,
    integrated_wiener,
    noise_share,
)
from fitting.stalled_share import StalledShare
from fitting.steps import Steps


@dataclass(frozen=True)
class Parabolas:
    """Curves that are straight or bent on logarithmic axes: a law with any cells."""

    slope: np.ndarray
    bend: np.ndarray
    grid: Grid

    def log_shape(self, frequency, groups):
        x = np.log(frequency / GHZ)[:, :, None]
        return self.slope * x + self.bend * x**2


@dataclass(frozen=True)
class Case:
    """One group's runs, one array a step, and what is asked of it."""

    frequency: np.ndarray
    runs: list[np.ndarray]
    target: float
    target_runs: int

    def steps(self) -> Steps:
        return steps_of([self])

    def asked(self) -> Target:
        return Target(np.array([self.target]), np.array([float(self.target_runs)]))


def steps_of(cases) -> Steps:
    rows = [
        (number, f, value)
        for number, case in enumerate(cases)
        for f, runs in zip(case.frequency, case.runs, strict=True)
        for value in runs
    ]
    group, frequency, value = np.array(rows, dtype=float).T
    return Steps.of(group.astype(int), frequency, value, len(cases))


def together(law, cases, order=None):
    """Evidence of cases with the same number of steps, in any order."""
    order = np.arange(len(cases)) if order is None else order
    target = Target(*np.array([(c.target, c.target_runs) for c in cases], dtype=float).T)
    return evidence(law, steps_of(cases).sweep(order), target.take(order), order)


def well_apart(frequency, target, least=1e-6):
    """Whether one step is nearer to the target than any other."""
    nearest = np.sort(np.abs(np.log(frequency / target)))
    return len(nearest) < 2 or nearest[1] - nearest[0] > least


@st.composite
def laws(draw: st.DrawFn) -> Parabolas:
    shapes, scales = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    grid = Grid(
        rng.dirichlet(np.ones(shapes))[None],
        10 ** rng.uniform(-2, -0.8, scales),
        rng.dirichlet(np.ones(scales)),
        10 ** rng.uniform(-2.5, 0, (shapes, scales)),
        draw(st.sampled_from([0.0, 0.7])),
    )
    return Parabolas(rng.uniform(0.5, 1.5, shapes), rng.uniform(-0.3, 0.3, shapes), grid)


@st.composite
def cases(draw: st.DrawFn, least: int = 2, most: int = 5) -> Case:
    frequency = np.sort(draw(frequencies(least, most)))
    values = st.lists(st.floats(-0.2, 0.2), min_size=1, max_size=4)
    target = draw(st.floats(0.5, 6)) * GHZ
    assume(well_apart(frequency, target))
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


def brute_force(law: Parabolas, case: Case):
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
    u = x - x[np.argmin(np.abs(x[:-1] - x[-1]))]
    kernel = np.zeros((len(u), len(u)), wide)
    for i in range(len(u)):
        for j in range(len(u)):
            if u[i] * u[j] > 0:
                kernel[i, j] = double_integral(abs(u[i]), abs(u[j]))
    if case.target > case.frequency.max():
        # A Wiener process that begins at the highest step.
        kernel[-1, -1] += wide(law.grid.beyond) ** 2 * u[-1]

    slope, bend = law.slope.astype(wide)[:, None], law.bend.astype(wide)[:, None]
    shape = (slope * x + bend * x**2)[:, None, step]
    drift = law.grid.drift.astype(wide)[:, :, None, None]
    noise = law.grid.noise.astype(wide)[:, None, None]
    same_step, same_run = step[:, None] == step, np.eye(len(step))
    covariance = drift**2 * kernel[np.ix_(step, step)] + noise**2 * (
        SHARED_NOISE * same_step + (1 - SHARED_NOISE) * same_run
    )
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


@settings(max_examples=60)
@given(laws(), cases())
def test_every_cell_is_the_normal_distribution_of_all_single_runs(law, case):
    found = evidence(law, case.steps().sweep(np.array([0])), case.asked(), np.array([0]))
    check_against_brute_force(law, case, found)


def test_sixty_steps_do_not_underflow():
    rng = np.random.default_rng(60)
    grid = Grid(
        np.full((1, 3), 1 / 3), np.array([5e-4, 0.02]), np.array([0.5, 0.5]), np.ones((3, 2))
    )
    law = Parabolas(np.array([-2.0, 0.9, 1.0]), np.zeros(3), grid)
    frequency = np.linspace(0.8, 4.0, 60) * GHZ
    runs = [np.log([f / GHZ]) + 0.05 * rng.standard_normal(3) for f in frequency]
    case = Case(frequency, runs, 4.5 * GHZ, 1)
    found = evidence(law, case.steps().sweep(np.array([0])), case.asked(), np.array([0]))
    assert found.likelihood.max() == 1
    np.testing.assert_allclose(found.posterior(grid.prior()).sum(), 1, rtol=1e-12)
    check_against_brute_force(law, case, found, rtol=1e-6)


def test_one_cell_has_the_digits_of_mpmath():
    # Generalised least squares as textbooks have it, e.g. Rasmussen & Williams (2006), eq. 2.41.
    frequency, runs, target, target_runs = [1.2e9, 1.9e9, 2.6e9], [3, 1, 2], 3.5e9, 2
    value, noise, drift = [0.31, 0.84, 1.07], 0.013, 0.37
    grid = Grid(np.ones((1, 1)), np.array([noise]), np.ones(1), np.array([[drift]]))
    law = Parabolas(np.array([0.8]), np.array([-0.1]), grid)
    sweep = Sweep(*(np.array([row], float) for row in (frequency, value, runs)), *np.zeros((2, 1)))
    found = evidence(law, sweep, Target(np.array([target]), np.array([2.0])), np.array([0]))
    with mpmath.workdps(50):
        shared = mpmath.mpf(SHARED_NOISE)
        points = [*map(mpmath.mpf, frequency), mpmath.mpf(target)]
        u = [mpmath.log(f / points[2]) for f in points]
        level = [mpmath.log(f / mpmath.mpf(GHZ)) for f in points]
        shape = [mpmath.mpf(0.8) * x + mpmath.mpf(-0.1) * x**2 for x in level]

        def share(n):
            return mpmath.mpf(noise) ** 2 * (shared + (1 - shared) / n)

        def form(i, j):
            near, far = sorted((abs(u[i]), abs(u[j])))
            one_side = u[i] * u[j] > 0
            return mpmath.mpf(drift) ** 2 * near**2 * (far / 2 - near / 6) * one_side

        c = mpmath.matrix(3, 3)
        for i in range(3):
            for j in range(3):
                c[i, j] = form(i, j) + (share(runs[i]) if i == j else 0)
        one, k = mpmath.ones(3, 1), mpmath.matrix([form(i, 3) for i in range(3)])
        r = mpmath.matrix([mpmath.mpf(y) - s for y, s in zip(value, shape, strict=False)])
        inverse = c**-1
        weight = (one.T * inverse * one)[0]
        fitted = (one.T * inverse * r)[0] / weight
        mean = shape[3] + fitted + (k.T * inverse * (r - fitted * one))[0]
        short = 1 - (one.T * inverse * k)[0]
        variance = form(3, 3) - (k.T * inverse * k)[0] + short**2 / weight + share(target_runs)
        np.testing.assert_allclose(found.mean[0, 0, 0], float(mean), rtol=1e-13)
        np.testing.assert_allclose(found.variance[0, 0, 0], float(variance), rtol=1e-13)
        np.testing.assert_allclose(found.noise[0, 0, 0], float(share(target_runs)), rtol=1e-13)


def test_without_form_worked_by_hand():
    # No model error, a flat curve, single runs of noise 0.1: the mean of 0.1, 0.2 and 0.6 is 0.3
    # with the variance 0.01/3, and one run more adds 0.01.
    grid = Grid(np.ones((1, 1)), np.array([0.1]), np.ones(1), np.zeros((1, 1)))
    law = Parabolas(np.zeros(1), np.zeros(1), grid)
    case = Case(np.array([1e9, 2e9, 3e9]), [np.array([v]) for v in (0.1, 0.2, 0.6)], 4e9, 1)
    found = together(law, [case])
    np.testing.assert_allclose(found.mean, [[[0.3]]], rtol=1e-13)
    np.testing.assert_allclose(found.variance, [[[0.01 / 3 + 0.01]]], rtol=1e-13)
    assert (found.form == 0).all()


@given(laws(), cases())
def test_variance_is_level_and_form_and_noise(law, case):
    found = together(law, [case])
    noise = law.grid.noise**2 * noise_share(np.array(case.target_runs))
    np.testing.assert_allclose(found.noise[0], np.broadcast_to(noise, found.noise[0].shape))
    assert (found.form >= -1e-12).all()
    assert (found.variance >= (found.form + found.noise) * (1 - 1e-12)).all()


@given(laws(), cases())
def test_posterior_is_prior_times_likelihood(law, case):
    found = together(law, [case])
    weight = found.posterior(law.grid.prior())
    product = law.grid.prior() * found.likelihood
    np.testing.assert_allclose(weight, product / product.sum(), rtol=1e-12)
    # A prior of zero is never revived.
    only = np.zeros_like(weight)
    only[0, 0, 0] = 0.2
    if found.likelihood[0, 0, 0] > 0:
        np.testing.assert_array_equal(found.posterior(only), only * 5)


# The integrated Wiener process.


@pytest.mark.parametrize("a", [-1.1, -0.2, 0.0, 0.3, 0.9])
@pytest.mark.parametrize("b", [-0.7, 0.0, 0.05, 0.9, 2.0])
def test_integrated_wiener_is_the_double_integral_of_its_walks_covariance(a, b):
    def walk(s):
        if a * b <= 0:
            return 0.0
        inner, error = quad(lambda t: min(s, t), 0, abs(b), points=[min(s, abs(b))])
        assert error < 1e-10
        return inner

    expected, _ = quad(walk, 0, abs(a), points=[min(abs(a), abs(b))], epsabs=1e-12)
    found = integrated_wiener(np.array([a]), np.array([b]))
    np.testing.assert_allclose(found, [expected], rtol=1e-9, atol=1e-12)


@given(st.lists(st.floats(-3, 3), min_size=1, max_size=12))
def test_integrated_wiener_is_symmetric_and_positive_semi_definite(points):
    u = np.array(points)
    covariance = integrated_wiener(u[:, None], u)
    np.testing.assert_array_equal(covariance, covariance.T)
    values = np.linalg.eigvalsh(covariance)
    assert values.min() >= -1e-13 * max(values.max(), 1e-300)


@given(st.floats(-3, 3), st.floats(-3, 3), sizes(1e-3, 1e3))
def test_integrated_wiener_grows_with_the_cube_of_the_distance(a, b, factor):
    one = integrated_wiener(np.array([a]), np.array([b]))
    far = integrated_wiener(np.array([a * factor]), np.array([b * factor]))
    np.testing.assert_allclose(far, one * factor**3, rtol=1e-10, atol=1e-300)


def test_repeats_share_a_part_of_their_noise():
    np.testing.assert_allclose(noise_share(np.array([1.0])), [1.0])
    np.testing.assert_allclose(noise_share(np.array([1e12])), [SHARED_NOISE])
    # n runs with covariance share everywhere and the rest on the diagonal.
    n = 5
    covariance = SHARED_NOISE * np.ones((n, n)) + (1 - SHARED_NOISE) * np.eye(n)
    np.testing.assert_allclose(noise_share(np.array([5.0])), covariance.mean())


# Invariance.


def law_at(kind, reference):
    """A shipped law; its prior is of no account here."""
    if kind == "time":
        return StalledShare(reference)
    return DynamicShare(reference, np.ones(len(reference)))


kinds = pytest.mark.parametrize("kind", ["time", "power"])


def check_same(one, other, shift=0.0):
    # The likelihood's logarithm is a difference of squares of thousands of standard deviations.
    np.testing.assert_allclose(one.likelihood, other.likelihood, rtol=1e-5, atol=1e-9)
    np.testing.assert_allclose(one.mean, other.mean + shift, rtol=1e-9, atol=1e-9)
    for name in ("variance", "form", "noise"):
        mine, theirs = getattr(one, name)[one.design], getattr(other, name)[other.design]
        np.testing.assert_allclose(mine, theirs, rtol=1e-7, atol=1e-15)


@kinds
@settings(max_examples=40)
@given(case=cases(), shift=st.floats(-20, 20))
def test_a_constant_shifts_the_mean_alone(kind, case, shift):
    law = law_at(kind, case.frequency[-1:])
    moved = Case(case.frequency, [r + shift for r in case.runs], case.target, case.target_runs)
    check_same(together(law, [moved]), together(law, [case]), shift)


@kinds
@settings(max_examples=40)
@given(case=cases(), factor=sizes(1e-9, 1e3))
def test_the_unit_of_frequency_is_of_no_account(kind, case, factor):
    scaled = Case(case.frequency * factor, case.runs, case.target * factor, case.target_runs)
    one = together(law_at(kind, scaled.frequency[-1:]), [scaled])
    check_same(one, together(law_at(kind, case.frequency[-1:]), [case]))


@kinds
@settings(max_examples=25)
@given(
    mixed=st.lists(cases(3, 3), min_size=1, max_size=4),
    again=st.lists(st.integers(0, 3), max_size=4),
    seed=st.integers(0, 99),
)
def test_groups_together_are_groups_alone_in_any_order(kind, mixed, again, seed):
    # Some groups are measured at the same steps as others, with other figures.
    twins = [mixed[i % len(mixed)] for i in again]
    twins = [
        Case(c.frequency, [r[::-1] * 0.5 for r in c.runs], c.target, c.target_runs) for c in twins
    ]
    mixed = mixed + twins
    law = law_at(kind, np.array([c.frequency[-1] for c in mixed]))
    order = np.random.default_rng(seed).permutation(len(mixed))
    found = together(law, mixed, order)
    assert len(found.variance) <= len(mixed) - len(twins)
    for row, group in enumerate(order):
        alone = together(law_at(kind, mixed[group].frequency[-1:]), [mixed[group]])
        np.testing.assert_allclose(
            found.likelihood[row], alone.likelihood[0], rtol=1e-7, atol=1e-30
        )
        np.testing.assert_allclose(found.mean[row], alone.mean[0], rtol=1e-11, atol=1e-11)
        variance = found.variance[found.design[row]]
        np.testing.assert_allclose(variance, alone.variance[0], rtol=1e-11)


def test_more_groups_of_a_design_than_are_worked_on_at_once():
    rng = np.random.default_rng(4)
    frequency = np.array([1.0, 1.7, 2.5]) * GHZ
    many = [Case(frequency, list(rng.normal(0, 0.1, (3, 2))), 3e9, 1) for _ in range(200)]
    law = StalledShare(np.full(200, 2.5e9))
    found = together(law, many)
    assert len(found.variance) == 1
    for group in (0, 63, 64, 199):
        alone = together(StalledShare(frequency[-1:]), [many[group]])
        np.testing.assert_allclose(
            found.likelihood[group], alone.likelihood[0], rtol=1e-7, atol=1e-30
        )
        np.testing.assert_allclose(found.mean[group], alone.mean[0], rtol=1e-11, atol=1e-11)


# The anchor.


def test_anchor_is_nearest_by_ratio():
    # 2.1 GHz is 1.1 GHz from 1 and 1.9 GHz from 4, but 4 is the nearer by ratio.
    steps = np.array([[1e9, 4e9], [1e9, 4e9], [1e9, 4e9]])
    np.testing.assert_array_equal(anchors(steps, np.array([1.9e9, 2.1e9, 9e9])), [1e9, 4e9, 4e9])
