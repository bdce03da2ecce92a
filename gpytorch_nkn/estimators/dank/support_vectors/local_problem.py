"""The problem of one cluster of training rows, and whether its learned factor helps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh

from gpytorch_nkn.estimators.dank.support_vectors.dual import Block, DualProblem, regression_blocks
from gpytorch_nkn.estimators.dank.support_vectors.extension import SmoothExtension
from gpytorch_nkn.estimators.dank.support_vectors.sequential import solve_quartic
from gpytorch_nkn.estimators.dank.support_vectors.solvers import solve
from gpytorch_nkn.estimators.dank.support_vectors.svm import comparison_steps, solve_machines

__all__ = [
    "LEAST_ETA",
    "Comparison",
    "compare_etas",
    "learn_extension",
    "learn_machine",
    "solve_local",
]

Array = NDArray[np.float64]

_STEPS = 20  # of pairs for each row, before accelerated gradients take over
_STEPS_ALONE = 1000  # without a bias, where nothing takes over
_MAX_ITER = 500
LEAST_ETA = 1e-12  # over the squared norm of dual variables


def solve_local(
    gram: Array,
    targets: Array,
    upper: Array,
    eta: float,
    *,
    epsilon: float | None = None,
    bias: bool = True,
    start: Array | None = None,
    tol: float = 1e-3,
    max_steps: int = 10_000_000,
) -> Array:
    """Signed dual coefficients of problem (19) on one cluster, ``m``.

    Args:
        gram: Base kernel, ``m x m``.
        targets: Labels 1 and -1, or a regression's targets, ``m``.
        upper: Bounds :math:`C_i`, ``m``.
        eta: Weight of the factor's distance to ones; infinite for a plain machine.
        epsilon: Width of a regression's tube; ``None`` for labels.
        bias: Whether coefficients sum to zero. The paper's (19) has none.
        start: Coefficients to start from, ``m``.
        tol: Largest violation of the optimality conditions, in units of the targets.
        max_steps: Most pairs to update for a plain machine with a bias.
    """
    m = len(targets)
    if epsilon is None:
        block = Block(np.arange(m), targets, np.ones(m), upper)
        one_sided = len(np.unique(targets)) < 2
    else:
        (block,) = regression_blocks(targets, epsilon, upper)
        one_sided = False
    if bias and one_sided:
        return np.zeros(m)
    relative = tol if epsilon is None else tol / (float(np.std(targets)) or 1.0)
    if bias and np.isinf(eta):
        variables, _ = solve_machines(gram, (block,), relative, max_steps=max_steps)
        return _sums(block, block.signs * variables, m)
    if start is not None and epsilon is not None:
        start = np.concatenate([np.maximum(start, 0.0), np.minimum(start, 0.0)])
    signed = solve_quartic(
        gram,
        block.signs,
        block.upper,
        eta,
        linear=block.linear,
        rows=None if epsilon is None else block.rows,
        bias=bias,
        start=start,
        tol=tol,
        max_steps=(_STEPS if bias else _STEPS_ALONE) * m,
    )
    if bias:  # smooth kernels need more steps than are worth it; others pass at once
        problem = DualProblem(gram, (block,), eta, 0.0)
        variables = problem.project(block.signs * signed)
        solution = solve(problem, variables, solver="fista", tol=relative, max_iter=_MAX_ITER)
        return solution.point.signed[:, 0]
    return _sums(block, signed, m)


def _sums(block: Block, signed: Array, m: int) -> Array:
    """Sums of the signed variables of each row, ``m``."""
    return np.bincount(block.rows, signed, minlength=m).astype(np.float64)


def learn_extension(
    gram: Array,
    targets: Array,
    upper: Array,
    *,
    eta: float | None = None,
    share: float | None = None,
    epsilon: float | None = None,
    bias: bool = True,
    tol: float = 1e-3,
) -> SmoothExtension:
    r"""The factor of one cluster as a function of inputs.

    Args:
        gram: Base kernel, ``m x m``.
        targets: Labels 1 and -1, or a regression's targets, ``m``.
        upper: Bounds :math:`C_i`, ``m``.
        eta: Weight of the factor's distance to ones.
        share: In place of ``eta``: its ratio to :math:`\|\alpha\|^2 / m`, where :math:`\alpha`
            is the solution of the cluster's plain machine. With neither it is that of the paper,
            :math:`\|\alpha\|^2`.
        epsilon: Width of a regression's tube; ``None`` for labels.
        bias: Whether coefficients sum to zero.
        tol: Largest violation of the optimality conditions.

    Raises:
        ValueError: If both ``eta`` and ``share`` are given.
    """
    if eta is not None and share is not None:
        raise ValueError(f"Give either eta or share, got eta={eta} and share={share}.")
    if eta is not None and np.isinf(eta):
        return SmoothExtension(gram, np.zeros((len(gram), 1)), 1.0, 0.0)
    plain = solve_local(gram, targets, upper, np.inf, epsilon=epsilon, bias=bias, tol=tol)
    return _extension(gram, targets, upper, plain, eta, share, epsilon, bias, tol)


def learn_machine(
    gram: Array,
    targets: Array,
    upper: Array,
    *,
    eta: float | None = None,
    share: float | None = None,
    epsilon: float | None = None,
    tol: float = 1e-3,
) -> tuple[SmoothExtension, Array]:
    """The factor of one cluster and a machine with it: a part of the paper's block-diagonal form.

    Neither has a bias, as in problem (19). Arguments are those of :func:`learn_extension`.

    Returns:
        The factor, and signed dual coefficients of the machine with the learned kernel, ``m``.
    """
    extension = learn_extension(
        gram, targets, upper, eta=eta, share=share, epsilon=epsilon, bias=False, tol=tol
    )
    if not extension.is_trivial:
        gram = gram * extension.factor(gram, extension.features_, extension.features_)
    signed = solve_local(gram, targets, upper, np.inf, epsilon=epsilon, bias=False, tol=tol)
    return extension, signed


def _extension(
    gram: Array,
    targets: Array,
    upper: Array,
    plain: Array,
    eta: float | None,
    share: float | None,
    epsilon: float | None,
    bias: bool,
    tol: float,
    spectrum: tuple[Array, Array] | None = None,
) -> SmoothExtension:
    if eta is None:
        relative = 1.0 if share is None else share / len(gram)
        # A cluster of one class has no machine with a bias, and no factor.
        eta = relative * float(plain @ plain) or 1.0
    if eta < LEAST_ETA * float(plain @ plain):
        raise ValueError(f"eta is too small for F to be computed, got {eta:g}.")
    signed = solve_local(
        gram, targets, upper, eta, epsilon=epsilon, bias=bias, start=plain, tol=tol
    )
    return SmoothExtension(gram, signed[:, None], eta, 0.0, spectrum)


@dataclass(frozen=True)
class Comparison:
    """Rows held out of clusters, with learned factors against the plain machine.

    Losses are 0 or 1 for labels, squared errors for a regression.

    Attributes:
        gains: Losses of the plain machine minus those with a factor, summed over the rows held
            out; one for each share.
        squares: The same with each row's difference squared.
        loss: Losses of the plain machine, summed.
        count: Rows held out.
    """

    gains: Array
    squares: Array
    loss: float
    count: int

    def __add__(self, other: Comparison) -> Comparison:
        return Comparison(
            self.gains + other.gains,
            self.squares + other.squares,
            self.loss + other.loss,
            self.count + other.count,
        )

    def means(self) -> list[tuple[float, float, float]]:
        """Mean loss, mean gain and its standard error: of the plain machine, then each share.

        Mean losses are NaN without a row.
        """
        count = max(self.count, 1)
        return [
            (
                (self.loss - float(gain)) / count if self.count else math.nan,
                float(gain) / count,
                math.sqrt(square) / count,
            )
            for gain, square in zip([0.0, *self.gains], [0.0, *self.squares], strict=True)
        ]

    def best(self, least: float = 2.0) -> int | None:
        """Share with the largest gain, ``None`` if that is below ``least`` standard errors."""
        choice = int(np.argmax(self.gains))
        sure = self.gains[choice] > least * np.sqrt(self.squares[choice])
        return choice if sure else None


def compare_etas(
    gram: Array,
    targets: Array,
    upper: Array,
    *,
    shares: Sequence[float],
    epsilon: float | None = None,
    held_out: float = 0.3,
    max_rows: int = 500,
    tol: float = 1e-2,
    seed: int = 0,
) -> Comparison:
    """Train on part of a cluster and compare on the rest; sum the results over clusters.

    Args:
        gram: Base kernel, ``m x m``.
        targets: Labels 1 and -1, or a regression's targets, ``m``.
        upper: Bounds :math:`C_i`, ``m``.
        shares: Of ``eta``, see :func:`learn_extension`.
        epsilon: Width of a regression's tube; ``None`` for labels.
        held_out: Part of the rows to predict.
        max_rows: Random rows to use of a larger cluster.
        tol: Largest violation of the optimality conditions.
        seed: Of the split.
    """
    order = np.random.default_rng(seed).permutation(len(gram))[:max_rows]
    cut = round(held_out * len(order))
    test, train = order[:cut], order[cut:]
    gains, squares = np.zeros((2, len(shares)))
    one_class = epsilon is None and len(np.unique(targets[train])) < 2
    if not cut or one_class:
        return Comparison(gains, squares, 0.0, 0)
    inner, cross = gram[np.ix_(train, train)], gram[np.ix_(test, train)]
    known, bounds, truth = targets[train], upper[train], targets[test]
    machine = partial(
        solve_local,
        targets=known,
        upper=bounds,
        eta=np.inf,
        epsilon=epsilon,
        tol=tol,
        max_steps=comparison_steps(len(train)),
    )
    plain = machine(inner)
    weights = upper[test] / upper.mean()  # errors count as they do in the machine
    reference = weights * _held_out_errors(inner, cross, known, bounds, plain, truth, epsilon)
    spectrum = eigh(inner) if plain.any() else None
    for k, share in enumerate(shares):
        extension = _extension(
            inner, known, bounds, plain, None, share, epsilon, True, tol, spectrum
        )
        if extension.is_trivial:
            continue
        near, far = extension.features_, extension.features(cross)
        learned = inner * extension.factor(inner, near, near)
        signed = machine(learned)
        learned_cross = cross * extension.factor(cross, far, near)
        errors = _held_out_errors(learned, learned_cross, known, bounds, signed, truth, epsilon)
        errors *= weights
        gains[k] = (reference - errors).sum()
        squares[k] = ((reference - errors) ** 2).sum()
    return Comparison(gains, squares, float(reference.sum()), cut)


def _held_out_errors(
    gram: Array,
    cross: Array,
    targets: Array,
    upper: Array,
    signed: Array,
    truth: Array,
    epsilon: float | None,
) -> Array:
    """Error of each row held out, with the intercept that suits the free coefficients."""
    residual = targets - gram @ signed
    if epsilon is not None:
        residual -= epsilon * np.sign(signed)
    free = (signed != 0) & (np.abs(signed) < upper)
    intercept = residual[free].mean() if free.any() else np.median(residual)
    outputs = cross @ signed + intercept
    if epsilon is not None:
        return np.asarray((truth - outputs) ** 2)
    return ((outputs > 0) != (truth > 0)).astype(np.float64)
