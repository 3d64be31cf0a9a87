"""Robust fits of one form to one set of runs, many resamples at once.

Residuals are relative to the loss and Student-t with `TAIL` degrees of freedom, so that a few broken runs cannot bend
the law. Their scale is not one number: a law holds best on the front and at large scale, hence

    sd_i = s · (1 + q·excess_i²) · (largest compute / compute_i)^discount

with s and q by likelihood from the residuals (:class:`Candidate` fixes the discount, and q for the tight variant).

Runs are not independent. No two sizes are tuned equally well, so each size has an offset of its own, normal with sd
`SIZE_EFFECT` and solved inside the fit: many runs of one size cannot pass for many sizes. Seeds of one configuration
share its misfit and count as one run.
"""

from dataclasses import dataclass

import numpy as np

from argosy.lab.runs import Runs
from argosy.laws.surfaces import Array, Points, Surface

TAIL = 4.0
LEAST_SCALE = 1e-4
"""Relative; below it lie the digits that logs are written with, not noise."""
SIZE_EFFECT = 0.003
"""Relative sd of what sets one model size apart from the law (learning rate, batch, shape: never tuned alike)."""
SPREADS = (0.0, 1.0, 3.0, 10.0, 30.0, 100.0, 300.0)
ROUNDS = 12


@dataclass(frozen=True)
class Candidate:
    """A form and how it trusts runs away from the front (`spread` q, None: by likelihood) and at small scale."""

    surface: Surface
    discount: float
    spread: float | None = None

    @property
    def name(self) -> str:
        tight = "" if self.spread is None else ",tight"
        return f"{self.surface.name}[discount={self.discount:g}{tight}]"


@dataclass(frozen=True)
class Fit:
    """A fitted candidate. `scale` is the relative sd of one run on the front; `covariance` is of `p`."""

    candidate: Candidate
    p: Array
    covariance: Array
    scale: float
    spread: float
    centre: tuple[float, float]

    def loss(self, targets: Runs) -> Array:
        """Fitted loss at targets."""
        return self.candidate.surface.evaluate(self.p[None], targets.points(self.centre))[0][0]

    def moments(self, targets: Runs) -> tuple[Array, Array, Array]:
        """Loss, variance by the parameters' uncertainty, and variance of one more run, each (targets,)."""
        X = targets.points(self.centre)
        loss, J = (part[0] for part in self.candidate.surface.evaluate(self.p[None], X))
        by_parameters = np.einsum("ni,ij,nj->n", J, self.covariance, J)
        of_run = (loss * self.scale * (1 + self.spread * self.candidate.surface.excess(self.p, X) ** 2)) ** 2
        of_size = 0.0 if targets.axis else (loss * SIZE_EFFECT) ** 2
        return loss, by_parameters, of_run + of_size


def fit(candidate: Candidate, runs: Runs) -> Fit:
    """Fit by turns: parameters for a given scale of residuals, then the scale for given parameters."""
    surface, centre = candidate.surface, runs.centre()
    X = runs.points(centre)
    ones, sizes = seed_weights(runs)[None], size_matrix(runs)
    logs = np.log(runs.compute_flops)
    discount = np.exp(candidate.discount * (logs.max() - logs))
    p = surface.start(X, runs.loss, 1 / discount)
    scale, spread = 0.01, 0.0
    shape = discount
    information = np.eye(surface.size)
    for _ in range(ROUNDS):
        P, information, offsets = minimise(surface, p[None], X, runs.loss, ones, scale * shape, sizes)
        p = P[0]
        excess = surface.excess(p, X)
        residual = surface.evaluate(P, X)[0][0] / runs.loss - 1 - sizes @ offsets[0]
        choices = SPREADS if candidate.spread is None else (candidate.spread,)
        shapes = np.array([(1 + q * excess**2) * discount for q in choices])
        scales, likelihoods = _scales(residual, shapes, ones[0], surface.size)
        best = int(np.argmax(likelihoods))
        settled = abs(np.log(scales[best] / scale)) < 0.02 and choices[best] == spread
        scale, spread, shape = float(scales[best]), choices[best], shapes[best]
        if settled:
            break
    information = minimise(surface, p[None], X, runs.loss, ones, scale * shape, sizes, steps=1)[1]
    covariance = np.linalg.inv(information[0] + 1e-6 * np.eye(surface.size))
    return Fit(candidate, p, covariance, scale, spread, centre)


def bootstrap(fitted: Fit, runs: Runs, resamples: int, seed: int = 0) -> Array:
    """Parameters (resamples, parameters) refitted to resampled configurations, all at once.

    What is drawn are configurations (equal N, D and unique tokens), not rows: seeds of one configuration share its
    misfit, and drawing them apart would make the interval too narrow.
    """
    group = runs.configurations()
    groups = int(group.max()) + 1
    draws = np.random.default_rng(seed).multinomial(groups, np.full(groups, 1 / groups), size=resamples)
    surface, X = fitted.candidate.surface, runs.points(fitted.centre)
    logs = np.log(runs.compute_flops)
    shape = (1 + fitted.spread * surface.excess(fitted.p, X) ** 2) * np.exp(
        fitted.candidate.discount * (logs.max() - logs)
    )
    start = np.repeat(fitted.p[None], resamples, 0)
    weight = draws[:, group] * seed_weights(runs)
    return minimise(surface, start, X, runs.loss, weight, fitted.scale * shape, size_matrix(runs))[0]


def seed_weights(runs: Runs) -> Array:
    """1 over the number of runs of the same configuration."""
    group = runs.configurations()
    return 1.0 / np.bincount(group)[group]


def size_matrix(runs: Runs) -> Array:
    """(rows, sizes) of 0 and 1; no columns on one axis, where a size is a run and its offset is noise."""
    if runs.axis:
        return np.zeros((len(runs), 0))
    _, size = np.unique(runs.parameters, return_inverse=True)
    return np.eye(int(size.max()) + 1)[size]


def minimise(
    surface: Surface, P: Array, X: Points, loss: Array, weight: Array, sd: Array, sizes: Array, steps: int = 30
) -> tuple[Array, Array, Array]:
    """Levenberg-Marquardt on the posterior of each row of `P` (batch, parameters) at once.

    `weight` is (batch, rows), `sd` the relative sd (rows,), `sizes` the (rows, sizes) membership. Returns parameters,
    information matrices (batch, parameters, parameters) with the sizes' offsets integrated out, and the offsets
    (batch, sizes). The objective is a sum over runs, never a mean: a mean would shrink it with the number of runs until
    the tolerance stops the search too early.
    """
    mean, precision = surface.prior()
    inverse = 1 / (loss * sd)
    pull = (1 / sd)[:, None] * sizes  # what an offset adds to each standard residual
    damping = np.full(len(P), 1e-2)
    eye = np.eye(surface.size)

    def measure(P: Array) -> tuple[Array, Array, Array, Array]:
        value, J = surface.evaluate(P, X)
        plain = (value - loss) * inverse
        residual, offsets = plain, np.zeros((len(P), sizes.shape[1]))
        for _ in range(3 if sizes.shape[1] else 0):
            trust = _trust(weight, residual)
            offsets = (trust * plain) @ pull / (trust @ pull**2 + SIZE_EFFECT**-2)
            residual = plain - offsets @ pull.T
        objective = (weight * np.log1p(residual**2 / TAIL)).sum(1) * (TAIL + 1) / 2
        objective += 0.5 * ((offsets / SIZE_EFFECT) ** 2).sum(1)
        return objective + 0.5 * (precision * (P - mean) ** 2).sum(1), residual, J, offsets

    objective, residual, J, offsets = measure(P)
    for step in range(steps):
        trust = _trust(weight, residual)
        scaled = J * inverse[:, None]
        pulled = (scaled * trust[..., None]).transpose(0, 2, 1)
        shared = pulled @ pull
        held = trust @ pull**2 + SIZE_EFFECT**-2
        information = pulled @ scaled - (shared / held[:, None, :]) @ shared.transpose(0, 2, 1) + np.diag(precision)
        gradient = (pulled @ residual[..., None])[..., 0] + precision * (P - mean)
        diagonal = np.einsum("bii->bi", information)
        damped = information + (damping[:, None] * diagonal + 1e-6)[:, :, None] * eye
        trial = P - np.clip(np.linalg.solve(damped, gradient[..., None])[..., 0], -1.5, 1.5)
        new = measure(trial)
        better = new[0] <= objective
        gain = float(np.where(better, objective - new[0], 0.0).max())
        P = np.where(better[:, None], trial, P)
        objective = np.where(better, new[0], objective)
        residual = np.where(better[:, None], new[1], residual)
        J = np.where(better[:, None, None], new[2], J)
        offsets = np.where(better[:, None], new[3], offsets)
        damping = np.clip(np.where(better, damping * 0.2, damping * 8), 1e-9, 1e6)
        if better.any() and gain < 1e-5 and step > 4:
            break
    return P, information, offsets


def _trust(weight: Array, residual: Array) -> Array:
    """Weight that Student's t leaves to a standard residual."""
    return weight * (TAIL + 1) / (TAIL + residual**2)


def _scales(residual: Array, shapes: Array, weight: Array, parameters: int) -> tuple[Array, Array]:
    """Student-t scale and log-likelihood of the residuals under each row of `shapes` (choices, rows).

    The divisor takes off most of the degrees of freedom that the parameters used; not all, as priors hold some.
    """
    standard = (residual / shapes) ** 2
    divisor = max(weight.sum() - 0.8 * parameters, 1.0)
    square = np.maximum((weight * standard).sum(1) / weight.sum(), LEAST_SCALE**2)
    for _ in range(25):
        trust = (TAIL + 1) / (TAIL + standard / square[:, None])
        square = np.maximum((weight * trust * standard).sum(1) / divisor, LEAST_SCALE**2)
    density = np.log(shapes * np.sqrt(square)[:, None]) + (TAIL + 1) / 2 * np.log1p(standard / square[:, None] / TAIL)
    return np.sqrt(square), -(weight * density).sum(1)
