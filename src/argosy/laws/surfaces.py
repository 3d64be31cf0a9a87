"""Forms of the loss over parameters and tokens, vectorised for fitting: values and exact derivatives.

Coordinates are centred natural logarithms (:class:`Points`), so that parameters of a fit are nearly independent.
Parameters are logarithms where the quantity is positive. All forms are L = E + reducible(N, D), in nats per token:

========== ============================================================== =========================================
Chinchilla A/N^alpha + B/D^beta, exponents free or tied                    Hoffmann et al. 2022; tied: Gadre et al. 2024
Front      exp(c - g·k + bowl(m - mu - drift·k)), k = ln N·D, m = ln D/N   own; see below
Curve      exp(c - g·x) on one axis                                        power law with a floor
========== ============================================================== =========================================

*Front* says what a ladder shows: along the recipe's own optimum the reducible loss is a power of compute, and it rises
smoothly when tokens per parameter leave the optimum, which itself may drift with scale. Chinchilla's form is the
special case whose bowl and power share two exponents; freeing them lets the front be fitted where the ladder is.

Repeated tokens (Muennighoff et al. 2023) replace D by U + U·R·(1 - exp(-r/R)), r = D/U - 1, in any two-axis form.
"""

from abc import ABC, abstractmethod
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

Array = NDArray[np.float64]
Mask = NDArray[np.bool_]

PUBLISHED_HALF_LIFE = 15.4
"""R_D* of Muennighoff et al.: repetitions after which new ones are worth 1/e. Centre of the prior."""
TERM_EXPONENT = (0.35, 0.4)
"""Median and log-sd of the prior of alpha and beta: published fits give 0.28 to 0.37."""
FRONT_EXPONENT = (0.10, 0.3)
"""The same for g: 0.05 (Kaplan, no floor), 0.09 (Marin), 0.17 (Chinchilla), 0.07 to 0.21 on our training rows."""
AXIS_EXPONENT = (0.2, 0.7)
"""The same for an axis of unknown kind."""
BOWL_CURVATURE = (0.03, 2.0)
BOWL_LINEAR_BEYOND = 4.0
"""Distance in ln(D/N) at which the bowl turns from quadratic to linear, as any sum of powers does."""


class Points(NamedTuple):
    """Where runs lie: (rows,) each, centred logs of parameters, tokens and unique tokens; `repeats` is no log."""

    n: Array
    d: Array
    unique: Array | None = None
    repeats: Array | None = None


class Surface(ABC):
    """A form. `p` is one vector (parameters,), `P` a batch (batch, parameters)."""

    name: str
    names: tuple[str, ...]
    repetition: bool

    @property
    def size(self) -> int:
        """Number of parameters."""
        return len(self.names)

    @abstractmethod
    def prior(self) -> tuple[Array, Array]:
        """Mean and precision of a normal prior per parameter; precision 0 means none."""

    @abstractmethod
    def evaluate(self, P: Array, X: Points) -> tuple[Array, Array]:
        """Losses (batch, rows) and their derivatives (batch, rows, parameters)."""

    @abstractmethod
    def excess(self, p: Array, X: Points) -> Array:
        """ln of reducible loss over the least one at the same compute and fresh data, (rows,); 0 on the front."""

    @abstractmethod
    def start(self, X: Points, loss: Array, weight: Array) -> Array:
        """Parameters to start a fit from: best of a grid of exponents, all else solved linearly."""

    def _effective(self, P: Array, X: Points) -> tuple[Array, Array]:
        """ln effective tokens and its derivative by ln R; both (batch, rows) or broadcastable to it."""
        if not self.repetition:
            return X.d[None], np.zeros((1, 1))
        assert X.unique is not None
        assert X.repeats is not None
        life, repeats = np.exp(P[:, -1:]), X.repeats
        spent = np.exp(-repeats / life)
        worth = 1 + life * (1 - spent)
        return X.unique + np.log(worth), life * ((1 - spent) - repeats / life * spent) / worth


class Chinchilla(Surface):
    """E + A/N^alpha + B/D^beta."""

    def __init__(self, *, tied: bool = False, repetition: bool = False):
        self.name = ("chinchilla_tied" if tied else "chinchilla") + ("+repetition" if repetition else "")
        self.tied, self.repetition = tied, repetition
        self.names = ("ln_E", "ln_A", "ln_B", "ln_alpha") + (() if tied else ("ln_beta",)) + ("ln_R",) * repetition
        self._beta = 3 if tied else 4

    def prior(self) -> tuple[Array, Array]:
        mean, precision = np.zeros(self.size), np.zeros(self.size)
        _set_log(mean, precision, slice(3, self._beta + 1), TERM_EXPONENT)
        if self.repetition:
            _set_log(mean, precision, -1, (PUBLISHED_HALF_LIFE, 1.0))
        return mean, precision

    def evaluate(self, P: Array, X: Points) -> tuple[Array, Array]:
        floor, alpha, beta = (np.exp(P[:, i : i + 1]) for i in (0, 3, self._beta))
        tokens, by_life = self._effective(P, X)
        of_n = _bounded_exp(P[:, 1:2] - alpha * X.n)
        of_d = _bounded_exp(P[:, 2:3] - beta * tokens)
        loss = floor + of_n + of_d
        J = np.zeros((*loss.shape, self.size))
        J[..., 0], J[..., 1], J[..., 2] = floor, of_n, of_d
        J[..., 3] -= alpha * X.n * of_n
        J[..., self._beta] -= beta * tokens * of_d
        if self.repetition:
            J[..., -1] = -beta * of_d * by_life
        return loss, J

    def excess(self, p: Array, X: Points) -> Array:
        alpha, beta = np.exp(p[3]), np.exp(p[self._beta])
        tokens = self._effective(p[None], X)[0][0]
        pairs = X.n + X.d
        best = (p[1] - p[2] + np.log(alpha / beta) + beta * pairs) / (alpha + beta)
        here = np.logaddexp(p[1] - alpha * X.n, p[2] - beta * tokens)
        return here - np.logaddexp(p[1] - alpha * best, p[2] - beta * (pairs - best))

    def start(self, X: Points, loss: Array, weight: Array) -> Array:
        steps = np.geomspace(0.05, 1.2, 14)
        grid = np.stack([steps, steps], 1) if self.tied else np.stack(np.meshgrid(steps, steps), -1).reshape(-1, 2)
        guess = np.full((1, self.size), np.log(PUBLISHED_HALF_LIFE))
        tokens = self._effective(guess, X)[0]
        terms = [np.exp(-grid[:, :1] * X.n), np.exp(-grid[:, 1:] * tokens)]
        best, coefficients = _solve_linear(terms, loss, weight)
        p = guess[0]
        p[:3], p[3], p[self._beta] = np.log(coefficients), np.log(grid[best, 0]), np.log(grid[best, 1])
        return p


class Front(Surface):
    """E + exp(c - g·k + bowl(v)), v = m - mu - drift·k; the bowl is quadratic near 0, linear far out, and skewed.

    bowl(v) = 2·kappa·B²·(√(1 + (w/B)²) - 1) with w = v·exp(skew·tanh(v/2)) and B = BOWL_LINEAR_BEYOND.
    """

    def __init__(self, *, drift: bool = True, repetition: bool = False):
        self.name = ("front" if drift else "front_fixed_ratio") + ("+repetition" if repetition else "")
        self.drift, self.repetition = drift, repetition
        self.names = ("ln_E", "c", "ln_g", "mu", "ln_kappa", "skew") + ("drift",) * drift + ("ln_R",) * repetition

    def prior(self) -> tuple[Array, Array]:
        mean, precision = np.zeros(self.size), np.zeros(self.size)
        _set_log(mean, precision, 2, FRONT_EXPONENT)
        precision[3] = 1 / 3.0**2
        _set_log(mean, precision, 4, BOWL_CURVATURE)
        precision[5] = 1 / 0.3**2
        if self.drift:
            precision[6] = 1 / 0.5**2
        if self.repetition:
            _set_log(mean, precision, -1, (PUBLISHED_HALF_LIFE, 1.0))
        return mean, precision

    def evaluate(self, P: Array, X: Points) -> tuple[Array, Array]:
        floor, g = np.exp(P[:, :1]), np.exp(P[:, 2:3])
        tokens, by_life = self._effective(P, X)
        pairs = X.n + tokens
        bowl, slope, by_skew, drift = self._bowl(P, X, tokens)
        reducible = _bounded_exp(P[:, 1:2] - g * pairs + bowl)
        J = np.empty((*reducible.shape, self.size))
        J[..., 0], J[..., 1], J[..., 2] = floor, reducible, -g * pairs * reducible
        J[..., 3], J[..., 4], J[..., 5] = -slope * reducible, bowl * reducible, by_skew * reducible
        if self.drift:
            J[..., 6] = -slope * pairs * reducible
        if self.repetition:
            J[..., -1] = reducible * (slope * (1 - drift) - g) * by_life
        return floor + reducible, J

    def excess(self, p: Array, X: Points) -> Array:
        tokens = self._effective(p[None], X)[0]
        bowl = self._bowl(p[None], X, tokens)[0]
        return (bowl - np.exp(p[2]) * (tokens - X.d))[0]

    def start(self, X: Points, loss: Array, weight: Array) -> Array:
        # Chinchilla's form around its optimum: curvature alpha·beta/8 in m, drift (alpha-beta)/(alpha+beta)
        q = Chinchilla(repetition=self.repetition).start(X, loss, weight)
        alpha, beta = np.exp(q[3]), np.exp(q[4])
        n = (q[1] - q[2] + np.log(alpha / beta)) / (alpha + beta)
        p = np.zeros(self.size)
        p[0] = q[0]
        p[1] = np.logaddexp(q[1] - alpha * n, q[2] + beta * n)
        p[2] = np.log(alpha * beta / (alpha + beta))
        p[3], p[4] = -2 * n, np.log(alpha * beta / 8)
        if self.drift:
            p[6] = (alpha - beta) / (alpha + beta)
        if self.repetition:
            p[-1] = q[-1]
        return p

    def _bowl(self, P: Array, X: Points, tokens: Array) -> tuple[Array, Array, Array, Array]:
        """Bowl, its slope by v, its derivative by skew, and the drift."""
        drift = P[:, 6:7] if self.drift else np.zeros((1, 1))
        v = tokens - X.n - P[:, 3:4] - drift * (X.n + tokens)
        lean = np.tanh(v / 2)
        stretch = np.exp(P[:, 5:6] * lean)
        w = v * stretch
        root = np.sqrt(1 + (w / BOWL_LINEAR_BEYOND) ** 2)
        kappa = np.exp(P[:, 4:5])
        by_w = 2 * kappa * w / root
        slope = by_w * stretch * (1 + v * P[:, 5:6] * (1 - lean**2) / 2)
        return 2 * kappa * BOWL_LINEAR_BEYOND**2 * (root - 1), slope, by_w * w * lean, drift


class Curve(Surface):
    """E + exp(c - g·x) on one axis, held in `Points.n` (`d` is ignored): the recipe's own optimal curve."""

    repetition = False
    names = ("ln_E", "c", "ln_g")

    def __init__(self, *, of_compute: bool = True):
        self.name = "curve"
        self.of_compute = of_compute

    def prior(self) -> tuple[Array, Array]:
        mean, precision = np.zeros(3), np.zeros(3)
        _set_log(mean, precision, 2, FRONT_EXPONENT if self.of_compute else AXIS_EXPONENT)
        return mean, precision

    def evaluate(self, P: Array, X: Points) -> tuple[Array, Array]:
        floor, g = np.exp(P[:, :1]), np.exp(P[:, 2:3])
        reducible = _bounded_exp(P[:, 1:2] - g * X.n)
        J = np.empty((*reducible.shape, 3))
        J[..., 0], J[..., 1], J[..., 2] = floor, reducible, -g * X.n * reducible
        return floor + reducible, J

    def excess(self, p: Array, X: Points) -> Array:
        return np.zeros(len(X.n))

    def start(self, X: Points, loss: Array, weight: Array) -> Array:
        grid = np.geomspace(0.03, 1.0, 24)
        best, coefficients = _solve_linear([np.exp(-grid[:, None] * X.n)], loss, weight)
        return np.array([*np.log(coefficients), np.log(grid[best])])


def _set_log(mean: Array, precision: Array, where: int | slice, median_and_log_sd: tuple[float, float]) -> None:
    median, log_sd = median_and_log_sd
    mean[where], precision[where] = np.log(median), 1 / log_sd**2


def _bounded_exp(exponent: Array) -> Array:
    """exp with an exponent that a wild trial step cannot overflow."""
    return np.exp(np.clip(exponent, -50.0, 12.0))


def _solve_linear(terms: list[Array], loss: Array, weight: Array) -> tuple[int, Array]:
    """Variable projection on a grid: per row of `terms`, solve the coefficients of 1 and the terms; the best row.

    Residuals are relative to the loss. Coefficients are kept positive, since their logarithms are what is fitted.
    """
    A = np.stack([np.ones_like(terms[0]), *terms], -1) * (weight / loss)[None, :, None]
    M = A.transpose(0, 2, 1) @ A
    ridge = 1e-12 * np.trace(M, axis1=1, axis2=2)[:, None, None] * np.eye(M.shape[-1])
    solved = np.linalg.solve(M + ridge, (A * weight[None, :, None]).sum(1)[..., None])[..., 0]
    solved = np.maximum(solved, 1e-3 * loss.min())
    misfit = (((A @ solved[..., None])[..., 0] - weight) ** 2).sum(1)
    best = int(np.argmin(misfit))
    return best, solved[best]
