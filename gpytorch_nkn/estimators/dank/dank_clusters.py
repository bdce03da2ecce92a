"""Data-adaptive SVMs for many rows: factors inside clusters, and one SVM on all rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from gpytorch_nkn.estimators.dank.base_kernel import check_gram
from gpytorch_nkn.estimators.dank.clustered_kernel import (
    ClusteredKernel,
    find_clusters,
    map_clusters,
)
from gpytorch_nkn.estimators.dank.dank_selection import (
    Candidate,
    choose,
    list_candidates,
    losses_of_etas,
)
from gpytorch_nkn.estimators.dank.support_vectors import (
    Block,
    Learner,
    SmoothExtension,
    solve_dual,
)

__all__ = ["DECOMPOSITIONS", "ClusteredSVM", "ClusteredSVMs", "fit_clusters"]

DECOMPOSITIONS = ("global", "block")
_SHARES = (10.0, 1.0, 0.1)  # of eta over the mean squared dual variable of a cluster
_LEAST = 2.0  # standard errors of a gain
_HELD_OUT, _COMPARED_ROWS = 0.3, 500  # of a cluster, to compare etas
_TOL = 1e-3  # of optimality conditions, LIBSVM's default
_LEARNER = Learner(tol=1e-3, max_iter=500, machine_tol=_TOL)

Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class _EtaRule:
    """``eta`` of a cluster, given the squared norm of the dual variables of its own SVM."""

    factor: float
    norm_power: int
    count_power: int

    def __call__(self, norm: float, count: int) -> float:
        return float(self.factor * norm**self.norm_power / count**self.count_power)


@dataclass(frozen=True)
class ClusteredSVM:
    """One SVM: of a pair of classes, or a regression."""

    rows: np.ndarray
    kernel: ClusteredKernel
    signed: np.ndarray
    intercept: float


@dataclass(frozen=True)
class ClusteredSVMs:
    """SVMs with factors inside clusters, each with clusters and a kernel of its own.

    Attributes:
        svms: One for each block.
        count: Number ``n`` of training rows.
        eta: What was given, infinite for ``F = 1``, or NaN where clusters differ.
        candidates: What was compared, for each block the SVM with ``F = 1`` first.
    """

    svms: tuple[ClusteredSVM, ...]
    count: int
    eta: float
    candidates: tuple[Candidate, ...]

    @property
    def signed(self) -> np.ndarray:
        """Signed dual coefficients, ``n x P``."""
        signed = np.zeros((self.count, len(self.svms)))
        for column, svm in enumerate(self.svms):
            signed[svm.rows, column] = svm.signed
        return signed

    @property
    def intercepts(self) -> np.ndarray:
        """Intercepts ``P``."""
        return np.array([svm.intercept for svm in self.svms])

    def outputs(self, table: np.ndarray) -> np.ndarray:
        """Decision values, ``M x D`` to ``M x P``."""
        columns = [svm.kernel.outputs(table, svm.signed) + svm.intercept for svm in self.svms]
        return np.stack(columns, axis=1)

    def gram(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` of the learned kernel.

        Raises:
            ValueError: There are several SVMs, with a kernel each.
        """
        if len(self.svms) > 1:
            raise ValueError(
                f"With clusters each of the {len(self.svms)} pairs of classes has a kernel of "
                "its own: learned_kernel needs n_clusters=1 or two classes."
            )
        return self.svms[0].kernel.between_inputs(left, right)


def fit_clusters(
    table: np.ndarray,
    blocks: Sequence[Block],
    kernel: Kernel,
    *,
    eta: float | str,
    n_clusters: int,
    decomposition: str,
    seed: int,
    n_jobs: int | None,
) -> ClusteredSVMs:
    """Learn factors inside k-means clusters, then the SVMs.

    The paper's theorems 6 and 7, which would bound what its block-diagonal ``F`` loses and screen
    rows, do not hold as printed: with ``eta`` large the bound is zero where the maxima differ, and
    no row can meet (21). By lemma 5 the solution of its problem (20) is ``11' + blockdiag(E_c)``,
    the decomposition ``"global"``.

    Args:
        table: Inputs ``n x D``.
        blocks: The SVMs.
        kernel: Base kernel of two tables.
        eta: ``"cv"``, ``"norm"``, or a number.
        n_clusters: Number of clusters.
        decomposition: One of ``DECOMPOSITIONS``.
        seed: Of k-means and of what is held out.
        n_jobs: Processes, as joblib's.
    """
    options = (eta, n_clusters, decomposition == "block", seed, n_jobs)
    fitted = [_fit_block(table, block, kernel, *options) for block in blocks]
    etas = {eta for _, eta, _ in fitted}
    return ClusteredSVMs(
        tuple(svm for svm, _, _ in fitted),
        len(table),
        etas.pop() if len(etas) == 1 else math.nan,
        tuple(candidate for _, _, found in fitted for candidate in found),
    )


def _fit_block(
    table: np.ndarray,
    block: Block,
    kernel: Kernel,
    eta: float | str,
    n_clusters: int,
    apart: bool,
    seed: int,
    n_jobs: int | None,
) -> tuple[ClusteredSVM, float, list[Candidate]]:
    """An SVM, its ``eta`` and what was compared."""
    rows = block.rows[: block.count]
    table = table[rows]
    clusters = find_clusters(table, min(n_clusters, block.count), random_state=seed)

    def on_clusters(function: Callable[..., Any], bias: bool = True) -> list[Any]:
        parts = [block.restricted(own, bias=bias) for own in clusters.rows]
        return map_clusters(function, kernel, table, clusters, parts, n_jobs=n_jobs)

    if not getattr(kernel, "is_definite", False):
        on_clusters(_check_cluster)
    used, rule, candidates = _choose_eta(on_clusters, eta, seed)
    if apart:
        svms = on_clusters(partial(_svm_of_cluster, rule=rule), bias=False)
        learned = ClusteredKernel(kernel, table, clusters, [e for e, _ in svms], between=0.0)
        signed = np.zeros(block.count)
        for own, (_, part) in zip(clusters.rows, svms, strict=True):
            signed[own] = part
        return ClusteredSVM(rows, learned, signed, 0.0), used, candidates
    extensions: list[Any] = [None] * len(clusters.rows)
    if rule is not None:
        extensions = on_clusters(partial(_factor_of_cluster, rule=rule))
    learned = ClusteredKernel(kernel, table, clusters, extensions)
    spread = 1.0 if block.epsilon is None else float(np.std(block.targets)) or 1.0
    solution = solve_dual(
        learned.block,
        block.targets,
        block.bounds,
        epsilon=block.epsilon,
        tol=_TOL * spread,
        n_jobs=n_jobs,
    )
    return ClusteredSVM(rows, learned, solution.signed, solution.intercept), used, candidates


def _choose_eta(
    on_clusters: Callable[[Callable[..., Any]], list[Any]], eta: float | str, seed: int
) -> tuple[float, _EtaRule | None, list[Candidate]]:
    """``eta``, or NaN where clusters differ; the rule for each, ``None`` for ``F = 1``; trials."""
    if eta == "norm":
        return math.nan, _EtaRule(1.0, 1, 0), []
    if eta != "cv":
        return float(eta), (_EtaRule(float(eta), 0, 0) if math.isfinite(float(eta)) else None), []
    losses = np.concatenate(on_clusters(partial(_compare_etas, seed=seed)), axis=1)
    if not losses.shape[1]:
        return math.inf, None, []
    weights = choose(losses, _LEAST)
    names = [{"eta_share": share} for share in _SHARES]
    candidates = list_candidates("eta", losses, names, weights)
    best = int(np.argmax(weights))
    if not best:
        return math.inf, None, candidates
    return math.nan, _EtaRule(_SHARES[best - 1], 1, 1), candidates


def _check_cluster(gram: np.ndarray, block: Block) -> None:
    check_gram(gram)


def _compare_etas(gram: np.ndarray, block: Block, seed: int) -> np.ndarray:
    """Losses of rows held out of a cluster: with ``F = 1``, then with each share of ``eta``.

    Wrong classes, which count as they do in the SVM, or squared errors.
    """
    order = np.random.default_rng(seed).permutation(len(gram))[:_COMPARED_ROWS]
    cut = round(_HELD_OUT * len(order))
    test, train = order[:cut], order[cut:]
    known, held_out = block.restricted(train), block.restricted(test)
    if not cut or (block.epsilon is None and np.ptp(known.targets) == 0.0):
        return np.zeros((1 + len(_SHARES), 0))
    weights = held_out.bounds / block.bounds.mean()

    def losses(outputs: np.ndarray) -> np.ndarray:
        if block.epsilon is None:
            return weights * ((outputs[:, 0] > 0) != (held_out.targets > 0))
        return weights * (held_out.targets - outputs[:, 0]) ** 2

    inner, cross = gram[np.ix_(train, train)], gram[np.ix_(test, train)]
    shares = [share / len(train) for share in _SHARES]
    return losses_of_etas(_LEARNER, inner, cross, [known], shares, losses)


def _factor_of_cluster(gram: np.ndarray, block: Block, rule: _EtaRule) -> SmoothExtension | None:
    """The factor of one cluster as a function of inputs; ``None`` where there is none."""
    plain = _LEARNER.plain(gram, [block])
    if not plain.norm:
        return None
    return _LEARNER.factor(gram, [block], rule(plain.norm, len(gram)), plain.variables)


def _svm_of_cluster(
    gram: np.ndarray, block: Block, rule: _EtaRule | None
) -> tuple[SmoothExtension | None, np.ndarray]:
    """Factor and signed coefficients of one part of the paper's form, which has no intercept."""
    svm = _LEARNER.plain(gram, [block])
    if rule is not None and svm.norm:
        svm = _LEARNER.learn(gram, [block], rule(svm.norm, len(gram)), svm.variables)
    return svm.extension, svm.signed[:, 0]
