"""How time or throughput changes with the number of cores: Amdahl, Gunther, Ernest.

Three scikit-learn estimators of one law each (`fitting.laws.scaling_average` averages laws). They
take runs as independent with one common variance, and give standard errors and Student's t
intervals by the delta method. A parameter on its bound is not estimated: it costs no degree of
freedom and has no standard error. All learn

- ``theta_``, ndarray: the parameters in the order of the equation;
- ``bound_``, str or None: names of the parameters on a bound, joined by ", ";
- ``rank_``, int: how many parameters the runs tell apart;
- ``degrees_of_freedom_``, int: runs less free parameters;
- ``residual_variance_``, float: residual sum of squares over these, NaN where they are 0;
- ``covariance_``, ndarray: of ``theta_``, 0 on a bound; all NaN without degrees of freedom
  or where ``rank_`` is less than the number of parameters;
- ``standard_errors_``, dict of name to float: NaN on a bound too.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from scipy.optimize import least_squares, nnls
from scipy.special import stdtrit
from sklearn.utils.validation import check_is_fitted

from fitting.errors import FittingError, OutOfRangeError
from fitting.laws.estimators import PositiveRegressor
from fitting.regression.lines import BoolArray, FloatArray


class _ScalingModel(PositiveRegressor):
    """Prediction and inference; a subclass adds its equation."""

    _columns: ClassVar[tuple[str, ...]] = ("core count n",)
    _response = "time"
    _least = 1.0
    _names: ClassVar[tuple[str, ...]]
    _least_distinct: ClassVar[int] = 2
    theta_: FloatArray

    def fit(self, X: ArrayLike, y: ArrayLike) -> Self:
        """Fit the curve to runs.

        Parameters
        ----------
        X : array-like of shape (n_runs, n_columns)
            Core counts, 1 or more, and for Ernest data sizes, above zero, in any one unit.
            A one-column model also takes shape (n_runs,).
        y : array-like of shape (n_runs,)
            Times, or throughputs for Gunther's law, above zero, in any one unit.

        Raises
        ------
        FittingError
            For other values, and for fewer distinct rows of X than 2 (Gunther's law: 3).
        """
        table, observed = self._read_runs(X, y)
        if (found := len(np.unique(table, axis=0))) < self._least_distinct:
            raise FittingError(
                f"{type(self).__name__}.fit read {len(table)} runs at {found} distinct "
                f"({', '.join(self._columns)}), but needs {self._least_distinct}: measure at more "
                "of them"
            )
        self._infer(table, observed, self._fit_parameters(table, observed))
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Give the fitted mean, shape (n_points,), in the unit of y, at X as for ``fit``.

        Raises
        ------
        FittingError
            For core counts below 1 and values that are not finite.
        OutOfRangeError
            Where the curve is at zero or below, as no time or throughput can be.
        """
        return self._positive_mean(self._read_prediction_points(X))

    def predict_interval(
        self, X: ArrayLike, *, level: float = 0.90, repeats: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Bracket the mean of new runs: (lower, upper), each of shape (n_points,).

        The prediction interval is symmetric, so lower may fall below zero; it is NaN where
        the fit has no degrees of freedom or the runs do not tell the parameters apart.

        Parameters
        ----------
        X : array-like of shape (n_points, n_columns)
            As for ``predict``, with the same errors.
        level : float
            Probability that the interval holds the new mean, between 0 and 1.
        repeats : int
            How many new runs that mean is taken over, 1 or more.
        """
        table = self._read_prediction_points(X)
        if not (0.0 < level < 1.0 and repeats >= 1 and repeats % 1 == 0):
            raise FittingError(
                f"level is {level}, repeats is {repeats}: give a level between 0 and 1, and 1 or "
                "more repeats"
            )
        # Delta method: the variance of the curve is that of its parameters along the gradient.
        mean, slope = self._positive_mean(table), self._jacobian(table)
        fit_variance = np.einsum("ij,jk,ik->i", slope, self.covariance_, slope)
        variance = self.residual_variance_ / repeats + np.maximum(fit_variance, 0.0)
        half = stdtrit(self.degrees_of_freedom_, (1.0 + level) / 2.0) * np.sqrt(variance)
        return mean - half, mean + half

    def _fit_parameters(self, table: FloatArray, observed: FloatArray) -> BoolArray:
        """Set ``theta_`` and the attributes made of it; return which parameters are free."""
        raise NotImplementedError

    def _predict_mean(self, table: FloatArray) -> FloatArray:
        # A law that is linear in its parameters is their sum over the derivatives.
        return self._jacobian(table) @ self.theta_

    def _jacobian(self, table: FloatArray) -> FloatArray:
        """Return the derivatives of the mean by each parameter, (rows, parameters)."""
        raise NotImplementedError

    def _infer(self, table: FloatArray, observed: FloatArray, free: BoolArray) -> None:
        """Set rank, covariance, standard errors, and which parameters are held on a bound."""
        jacobian = self._jacobian(table)
        # Columns differ in size by many digits: of unit length, the tolerance is the same for all.
        self.rank_ = int(np.linalg.matrix_rank(jacobian / _column_norms(jacobian), tol=1e-13))
        self.degrees_of_freedom_ = int(observed.size - free.sum())
        freedom = self.degrees_of_freedom_
        squares = np.sum((observed - self._predict_mean(table)) ** 2)
        self.residual_variance_ = float(squares) / freedom if freedom > 0 else np.nan
        variance = self.residual_variance_ if self.rank_ == free.size else np.nan
        self.covariance_ = variance * _unscaled_covariance(jacobian, free)
        errors = np.where(free, np.sqrt(np.diag(self.covariance_)), np.nan)
        self.standard_errors_ = dict(zip(self._names, errors.tolist(), strict=True))
        held = [name for name, is_free in zip(self._names, free, strict=True) if not is_free]
        self.bound_ = ", ".join(held) or None

    def _positive_mean(self, table: FloatArray) -> FloatArray:
        """Fitted mean; raises `OutOfRangeError` where it is not positive."""
        mean = self._predict_mean(table)
        if not np.all(mean > 0.0):
            row = int(np.argmin(mean > 0.0))
            raise OutOfRangeError(
                f"{type(self).__name__} gives the impossible {self._response} {mean[row]:g} in row "
                f"{row} (core count {table[row, 0]:g}): predict nearer to the measured range"
            )
        return mean

    def _read_prediction_points(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self, "standard_errors_")
        return self._read_points(X)


class AmdahlScaling(_ScalingModel):
    """Amdahl's law over cores, T(n) = t_serial + t_parallel / n, by least squares on time.

    It fails where cores wait for each other: time then rises again with n, as this curve cannot
    (see `UniversalScalability`). The runs on few cores are the longest and weigh most.

    Parameters
    ----------
    bounded : bool
        Keep both parameters at zero or above (default). Without it t_serial may be negative
        (more than n-fold speed-up, by cache for example); ``predict`` then refuses core
        counts where the curve is no longer positive.

    Attributes
    ----------
    t_serial_, t_parallel_ : float
        In the unit of y. The module's docstring lists what all models learn.
    serial_fraction_, limit_ : float
        t_serial / T(1), NaN where T(1) is not above zero; T as n → ∞, which is t_serial.

    References
    ----------
    G. M. Amdahl, "Validity of the single processor approach to achieving large scale
    computing capabilities", AFIPS SJCC 1967, doi:10.1145/1465482.1465560.
    """

    _names = ("t_serial", "t_parallel")

    def __init__(self, *, bounded: bool = True) -> None:
        self.bounded = bounded

    def _fit_parameters(self, table: FloatArray, observed: FloatArray) -> BoolArray:
        """Set (t_serial, t_parallel) and their attributes; return which of them are free."""
        self.theta_, free = _fit_linear(self._jacobian(table), observed, bounded=self.bounded)
        self.t_serial_, self.t_parallel_ = self.theta_.tolist()
        one = self.t_serial_ + self.t_parallel_
        self.serial_fraction_ = self.t_serial_ / one if one > 0 else np.nan
        self.limit_ = self.t_serial_
        return free

    def _jacobian(self, table: FloatArray) -> FloatArray:
        cores = table[:, 0]
        return np.column_stack([np.ones_like(cores), 1.0 / cores])


class ErnestScaling(_ScalingModel):
    """Ernest, T(n, D) = θ0 + θ1·D/n + θ2·ln n + θ3·n, by non-negative least squares on time.

    A fixed cost, parallel work, a tree of messages, a cost for each core. It fails where
    work is not linear in the data size D or memory runs out on few cores. Terms the runs do
    not call for come out as zero. Where ``rank_`` is below 4 (two core counts only, say) other
    coefficients fit as well: trust predictions at the measured (n, D) alone.

    Attributes
    ----------
    theta_ : ndarray of shape (4,)
        (θ0, θ1, θ2, θ3), zero or above, named "theta0" to "theta3"; in the unit of y, θ1
        over the unit of D. The module's docstring lists what all models learn.

    References
    ----------
    S. Venkataraman, Z. Yang, M. Franklin, B. Recht, I. Stoica, "Ernest: Efficient
    Performance Prediction for Large-Scale Advanced Analytics", NSDI 2016.
    """

    _columns = ("core count n", "data size D")
    _names = ("theta0", "theta1", "theta2", "theta3")

    def _fit_parameters(self, table: FloatArray, observed: FloatArray) -> BoolArray:
        """Set (θ0, θ1, θ2, θ3), each 0 or more; return which of them are free."""
        self.theta_, free = _fit_linear(self._jacobian(table), observed, bounded=True)
        return free

    def _jacobian(self, table: FloatArray) -> FloatArray:
        cores, size = table.T
        return np.column_stack([np.ones_like(cores), size / cores, np.log(cores), cores])


class UniversalScalability(_ScalingModel):
    """Gunther's law, X(n) = λn / (1 + σ(n−1) + κn(n−1)), by least squares on throughput.

    λ > 0 is the throughput of one core, σ in [0, 1] contention (waiting for what is shared),
    κ ≥ 0 coherency (cores agreeing with each other). It fails above linear speed-up, across
    sockets or SMT, and well below the peak, where runs tell little of κ. X may be jobs/time.

    Attributes
    ----------
    throughput_one_, contention_, coherency_ : float
        λ in the unit of y, σ and κ without unit. The module's docstring lists what all
        models learn; for ``bound_``, "contention" means that σ is 0 or 1.
    peak_cores_ : float
        sqrt((1−σ)/κ), infinite for κ = 0; below 1, throughput falls from the first core on.
    peak_throughput_ : float
        Highest X over n ≥ 1; for κ = 0 the limit, which may be approached only.
    limit_ : float
        X as n → ∞: 0 for κ > 0, else λ/σ, infinite for κ = σ = 0.

    References
    ----------
    N. J. Gunther, "A simple capacity model of massively parallel transaction systems", CMG
    1993; "Guerrilla Capacity Planning", Springer 2007, doi:10.1007/978-3-540-31010-5.
    """

    _names = ("throughput_one", "contention", "coherency")
    _response = "throughput"
    _least_distinct = 3

    def _fit_parameters(self, table: FloatArray, observed: FloatArray) -> BoolArray:
        """Set (λ, σ, κ) and their attributes; return which of them are free."""
        flat, per_core, crosstalk = _fit_time_per_work(table[:, 0], observed).tolist()
        one = flat + per_core
        if not one > 0:
            raise FittingError(
                "UniversalScalability.fit read a throughput that falls too fast with n to have a "
                "finite estimate for one core: measure at one core too"
            )
        self.theta_ = np.array([1.0 / one, per_core / one, crosstalk / one])
        self.throughput_one_, self.contention_, self.coherency_ = self.theta_.tolist()
        self.limit_ = 1.0 / per_core if per_core > 0 else np.inf
        self.peak_cores_, self.peak_throughput_ = np.inf, self.limit_
        if crosstalk > 0:
            self.limit_, self.peak_cores_ = 0.0, float(np.sqrt(flat / crosstalk))
            best = np.array([[max(1.0, self.peak_cores_)]])
            self.peak_throughput_ = float(self._predict_mean(best)[0])
        return np.array([True, flat > 0 and per_core > 0, crosstalk > 0])

    def _predict_mean(self, table: FloatArray) -> FloatArray:
        return np.asarray(self.theta_[0] * self._jacobian(table)[:, 0])

    def _jacobian(self, table: FloatArray) -> FloatArray:
        cores = table[:, 0]
        one, sigma, kappa = self.theta_
        slowdown = 1.0 + sigma * (cores - 1.0) + kappa * cores * (cores - 1.0)
        by_sigma = -one * cores * (cores - 1.0) / slowdown**2
        return np.column_stack([cores / slowdown, by_sigma, by_sigma * cores])


def _column_norms(matrix: FloatArray) -> FloatArray:
    """Return the length of each column, 1 in place of 0."""
    sizes = np.linalg.norm(matrix, axis=0)
    return np.where(sizes > 0, sizes, 1.0)


def _unscaled_covariance(jacobian: FloatArray, free: BoolArray) -> FloatArray:
    """Invert JᵀJ over the free parameters; rows and columns of the others are zero."""
    sizes = _column_norms(jacobian[:, free])
    inverse = np.linalg.pinv(jacobian[:, free] / sizes) / sizes[:, None]
    full = np.zeros((free.size, free.size))
    full[np.ix_(free, free)] = inverse @ inverse.T
    return full


def _fit_linear(terms: FloatArray, y: FloatArray, *, bounded: bool) -> tuple[FloatArray, BoolArray]:
    """Fit coefficients by least squares, 0 or more if bounded; and tell which are free."""
    sizes, unit = _column_norms(terms), float(y.max())
    scaled, target = terms / sizes, y / unit
    theta = nnls(scaled, target, maxiter=100)[0]
    free = theta > 0 if bounded else np.ones_like(theta, dtype=bool)
    # The coefficients that are free are solved again: nnls stops at fewer digits.
    theta[free] = np.linalg.lstsq(scaled[:, free], target, rcond=None)[0]
    if bounded:
        theta = np.maximum(theta, 0.0)  # what is zero up to rounding may come out just below
        free = theta > 0
    return theta * unit / sizes, free


def _fit_time_per_work(cores: FloatArray, throughput: FloatArray) -> FloatArray:
    """Fit 1/X = p0/n + p1 + p2·(n−1), p ≥ 0, by least squares on X.

    Gunther's law and bounds, with λ = 1/(p0+p1), σ = p1·λ and κ = p2·λ.
    """
    terms = np.column_stack([1.0 / cores, np.ones_like(cores), cores - 1.0])
    target = throughput / (unit := float(throughput.max()))
    # An error of 1/X is X² times as large in X; rows weighed so make a close start.
    weighed = terms * target[:, None] ** 2
    sizes = _column_norms(weighed)
    start = nnls(weighed / sizes, target, maxiter=100)[0]
    return _refine_fit(terms / sizes, target, np.maximum(start, 1e-6)) / (sizes * unit)


def _refine_fit(terms: FloatArray, target: FloatArray, start: FloatArray) -> FloatArray:
    """Minimise the squares of 1/(terms·p) − target over p ≥ 0, from ``start``."""

    def residual(p: FloatArray) -> Any:
        with np.errstate(divide="ignore"):  # an infinite residual: the solver steps back
            return 1.0 / (terms @ p) - target

    def residual_jacobian(p: FloatArray) -> Any:
        return -terms / (terms @ p)[:, None] ** 2

    # dogbox puts parameters on their bound exactly, which the other methods only approach.
    stop: dict[str, Any] = {"ftol": None, "xtol": 1e-14, "gtol": None, "max_nfev": 1000}
    p = least_squares(residual, start, residual_jacobian, (0.0, np.inf), "dogbox", **stop).x
    p[np.all(terms * p < 1e-13 * (terms @ p)[:, None], axis=0)] = 0.0  # this is rounding
    return _newton_step(terms, target, _newton_step(terms, target, p))


def _newton_step(terms: FloatArray, target: FloatArray, p: FloatArray) -> FloatArray:
    """Return p after a Newton step, or p where that is no better; zeros stay zero."""
    free, fitted = p > 0, 1.0 / (terms @ p)
    residual, used = fitted - target, terms[:, free]
    bend = fitted**4 + 2.0 * residual * fitted**3
    gradient = used.T @ (-residual * fitted**2)
    better = p.copy()
    better[free] -= np.linalg.lstsq(used.T @ (bend[:, None] * used), gradient, rcond=None)[0]
    enough = np.sum(residual**2) * (1.0 + 1e-12) + 1e-28
    improves = np.sum((1.0 / (terms @ better) - target) ** 2) <= enough
    return better if improves and np.all(better[free] > 0) else p
