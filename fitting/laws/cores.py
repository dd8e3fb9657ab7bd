"""How time or throughput changes with the number of cores: Amdahl, Gunther, Ernest.

Three scikit-learn estimators of one law each, fitted as `fitting.laws.scaling_average` fits its
laws: to the logarithm of the time, one mean per distinct row of X (a cell), each weighed by its
core count. Repeats have errors in common, so the number of runs in a cell does not count. Intervals
are Student's t about the logarithm. They allow for a law that is wrong, as far as its forecasts of
the most cores were and usual ones are, and more so the farther out the point is. A parameter on
its bound is not estimated: it costs no degree of freedom and has no standard error. All learn

- ``theta_``, ndarray: the parameters in the order of the equation;
- ``free_``, ndarray of bool: which parameters are not on a bound;
- ``bound_``, str or None: names of the parameters on a bound, joined by ", ";
- ``rank_``, int: how many parameters the cells tell apart;
- ``degrees_of_freedom_``, int: cells less free parameters;
- ``residual_variance_``, float: weighed mean square of the relative errors of the cells, for each
  degree of freedom; NaN where there are none;
- ``covariance_``, ndarray: of ``theta_``, 0 on a bound; all NaN without degrees of freedom
  or where ``rank_`` is less than the number of parameters;
- ``standard_errors_``, dict of name to float: NaN on a bound too.
"""

from __future__ import annotations

from typing import ClassVar, Self

import numpy as np
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted

from fitting.errors import FittingError, OutOfRangeError
from fitting.laws import scaling_average as average
from fitting.laws.estimators import PositiveRegressor
from fitting.regression.lines import BoolArray, FloatArray


class _ScalingModel(PositiveRegressor):
    """Fit, prediction and inference; a subclass adds its equation."""

    _columns: ClassVar[tuple[str, ...]] = ("core count n",)
    _response = "time"
    _least = 1.0
    _of: ClassVar[str]  # name of the law of the time
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
        self._cells = average.ScalingCells.of_runs(
            table[:, 0], self._as_time(observed), _size(table)
        )
        self.theta_ = average.fit_law(self._law(), self._cells)[0]
        self._infer(self._free_parameters())
        return self

    def predict(self, X: ArrayLike) -> FloatArray:
        """Give the fitted value, shape (n_points,), in the unit of y, at X as for ``fit``.

        Raises
        ------
        FittingError
            For core counts below 1 and values that are not finite.
        OutOfRangeError
            Where the curve is at zero or below, as no time or throughput can be.
        """
        return self._positive_value(self._read_prediction_points(X))

    def predict_interval(
        self, X: ArrayLike, *, level: float = 0.90, repeats: int = 1
    ) -> tuple[FloatArray, FloatArray]:
        """Bracket the mean of new runs: (lower, upper), each of shape (n_points,).

        NaN where the runs do not tell the parameters apart.

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
        self._positive_value(table)
        alone = average.CORES._replace(laws={self._of: self._law()}, line=self._of)
        found = average.average_laws(self._cells, table[:, 0], data=_size(table), family=alone)
        ends = [self._as_time(end) for end in found.interval(level=level, repeats=repeats)]
        lower, upper = np.where(self.rank_ == len(self.theta_), np.sort(ends, axis=0), np.nan)
        return lower, upper

    def _law(self) -> average.Law:
        return average.LAWS[self._of]

    def _free_parameters(self) -> BoolArray:
        """Set the attributes made of ``theta_``; return which parameters are free."""
        return self.theta_ > 0

    def _as_time(self, values: FloatArray) -> FloatArray:
        """Turn values of y into times, or times into values of y."""
        return values if self._response == "time" else 1 / values

    def _predict_value(self, table: FloatArray) -> FloatArray:
        # A law that is linear in its parameters is their sum over the derivatives.
        return self._jacobian(table) @ self.theta_

    def _jacobian(self, table: FloatArray) -> FloatArray:
        """Return the derivatives of the value by each parameter, (rows, parameters)."""
        return average.term_values(self._law(), table[:, 0], _size(table))

    def _infer(self, free: BoolArray) -> None:
        """Set rank, covariance, standard errors, and which parameters are held on a bound."""
        cells = np.stack([self._cells.counts[0], self._cells.data[0]], axis=1)
        value = self._predict_value(cells[:, : len(self._columns)])
        residual = self._cells.log_time[0] - np.log(self._as_time(value))
        root = np.sqrt(cells[:, 0] / cells[:, 0].mean())
        # Relative errors; columns differ in size by many digits, so they are of unit length.
        slope = self._jacobian(cells[:, : len(self._columns)]) * (root / value)[:, None]
        size = np.linalg.norm(slope, axis=0)
        slope /= np.where(size > 0, size, 1.0)
        self.free_ = free
        self.rank_ = int(np.linalg.matrix_rank(slope, tol=1e-13))
        self.degrees_of_freedom_ = freedom = int(len(cells) - free.sum())
        squares = float(((root * residual) ** 2).sum())
        self.residual_variance_ = squares / freedom if freedom > 0 else np.nan
        # By how much each parameter changes with the error of each cell.
        change = np.zeros((free.size, len(cells)))
        change[free] = np.linalg.pinv(slope[:, free]) / size[free, None] * root
        variance = self.residual_variance_ if self.rank_ == free.size else np.nan
        self.covariance_ = variance * (change @ change.T)
        errors = np.where(free, np.sqrt(np.diag(self.covariance_)), np.nan)
        self.standard_errors_ = dict(zip(self._names, errors.tolist(), strict=True))
        held = [name for name, is_free in zip(self._names, free, strict=True) if not is_free]
        self.bound_ = ", ".join(held) or None

    def _positive_value(self, table: FloatArray) -> FloatArray:
        """Fitted value; raises `OutOfRangeError` where it is not positive."""
        value = self._predict_value(table)
        if not np.all(value > 0.0):
            row = int(np.argmin(value > 0.0))
            raise OutOfRangeError(
                f"{type(self).__name__} gives the impossible {self._response} {value[row]:g} in "
                f"row {row} (core count {table[row, 0]:g}): predict nearer to the measured range"
            )
        return value

    def _read_prediction_points(self, X: ArrayLike) -> FloatArray:
        check_is_fitted(self, "standard_errors_")
        return self._read_points(X)


def _size(table: FloatArray) -> FloatArray:
    """Data of each row, 1 where X has no column of it."""
    return table[:, 1] if table.shape[1] > 1 else np.ones(len(table))


class AmdahlScaling(_ScalingModel):
    """Amdahl's law over cores, T(n) = t_serial + t_parallel / n, by least squares on ln T.

    It fails where cores wait for each other: time then rises again with n, as this curve cannot
    (see `UniversalScalability`).

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

    _of = "amdahl"
    _names = ("t_serial", "t_parallel")

    def __init__(self, *, bounded: bool = True) -> None:
        self.bounded = bounded

    def _law(self) -> average.Law:
        return super()._law()._replace(bounded=self.bounded)

    def _free_parameters(self) -> BoolArray:
        self.t_serial_, self.t_parallel_ = self.theta_.tolist()
        one = self.t_serial_ + self.t_parallel_
        # A difference of the two that is rounding alone is no time.
        has_time = one > 1e-12 * np.abs(self.theta_).sum()
        self.serial_fraction_ = self.t_serial_ / one if has_time else np.nan
        self.limit_ = self.t_serial_
        return (self.theta_ > 0) | (not self.bounded)


class ErnestScaling(_ScalingModel):
    """Ernest, T(n, D) = θ0 + θ1·D/n + θ2·ln n + θ3·n, by non-negative least squares on ln T.

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
    _of = "ernest"
    _names = ("theta0", "theta1", "theta2", "theta3")


class UniversalScalability(_ScalingModel):
    """Gunther's law, X(n) = λn / (1 + σ(n−1) + κn(n−1)), by least squares on ln X.

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

    _of = "gunther"
    _names = ("throughput_one", "contention", "coherency")
    _response = "throughput"
    _least_distinct = 3

    def _free_parameters(self) -> BoolArray:
        # 1/X = p1 + p0/n + p2·(n − 1), p ≥ 0: λ = 1/(p0 + p1), σ = p1·λ and κ = p2·λ.
        per_core, flat, crosstalk = self.theta_.tolist()
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
            self.peak_throughput_ = float(self._predict_value(best)[0])
        return np.array([True, flat > 0 and per_core > 0, crosstalk > 0])

    def _predict_value(self, table: FloatArray) -> FloatArray:
        return np.asarray(self.theta_[0] * self._jacobian(table)[:, 0])

    def _jacobian(self, table: FloatArray) -> FloatArray:
        cores = table[:, 0]
        one, sigma, kappa = self.theta_
        slowdown = 1.0 + sigma * (cores - 1.0) + kappa * cores * (cores - 1.0)
        by_sigma = -one * cores * (cores - 1.0) / slowdown**2
        return np.column_stack([cores / slowdown, by_sigma, by_sigma * cores])
