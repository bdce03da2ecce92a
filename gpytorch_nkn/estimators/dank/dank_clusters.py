"""Data-adaptive machines for many rows: factors inside clusters, and one machine on all rows."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial, reduce
from operator import add
from typing import Any

import numpy as np

from gpytorch_nkn.estimators.dank.dank_kernel import check_gram
from gpytorch_nkn.estimators.dank.dank_selection import Candidate
from gpytorch_nkn.estimators.dank.support_vectors import (
    Block,
    BlockCertificate,
    ClusteredKernel,
    Clusters,
    Comparison,
    certify_blocks,
    compare_etas,
    find_clusters,
    learn_extension,
    learn_machine,
    map_clusters,
    solve_dual,
    solve_local,
)

__all__ = ["ClusterOptions", "ClusteredMachines", "fit_clusters"]

_SHARES = (10.0, 1.0, 0.1)  # of eta over the mean squared dual variable of a cluster
_LEAST = 2.0  # standard errors of a gain
_TOL = 1e-3  # of optimality conditions, LIBSVM's default
_COMPARE_TOL = 1e-2

Kernel = Callable[[np.ndarray, np.ndarray], np.ndarray]


@dataclass(frozen=True)
class ClusterOptions:
    """How clusters are fitted.

    Attributes:
        eta: ``"cv"``, ``"norm"``, or a number.
        n_clusters: Number of clusters.
        decomposition: ``"global"`` or ``"block"``.
        seed: Of k-means and of what is held out.
        n_jobs: Processes, as joblib's.
    """

    eta: float | str
    n_clusters: int
    decomposition: str
    seed: int
    n_jobs: int | None


@dataclass(frozen=True)
class _Machine:
    """One machine: a pair of classes, or a regression."""

    rows: np.ndarray
    kernel: ClusteredKernel
    signed: np.ndarray
    intercept: float
    block: Block


@dataclass(frozen=True)
class ClusteredMachines:
    """Machines with factors inside clusters, each with clusters and a kernel of its own.

    Attributes:
        machines: One for each block.
        count: Number ``n`` of training rows.
        eta: What was given, infinite for ``F = 1``, or NaN where clusters differ.
        candidates: What was compared, for each block the machine with ``F = 1`` first.
    """

    machines: tuple[_Machine, ...]
    count: int
    eta: float
    candidates: tuple[Candidate, ...]

    @property
    def signed(self) -> np.ndarray:
        """Signed dual coefficients, ``n x P``."""
        signed = np.zeros((self.count, len(self.machines)))
        for column, machine in enumerate(self.machines):
            signed[machine.rows, column] = machine.signed
        return signed

    @property
    def intercepts(self) -> np.ndarray:
        """Intercepts ``P``."""
        return np.array([machine.intercept for machine in self.machines])

    def outputs(self, table: np.ndarray) -> np.ndarray:
        """Decision values, ``M x D`` to ``M x P``."""
        columns = [m.kernel.outputs(table, m.signed) + m.intercept for m in self.machines]
        return np.stack(columns, axis=1)

    def gram(self, left: np.ndarray, right: np.ndarray) -> np.ndarray:
        """Gram matrix ``M x N`` of the learned kernel.

        Raises:
            ValueError: There are several machines, with a kernel each.
        """
        if len(self.machines) > 1:
            raise ValueError(
                f"With clusters each of the {len(self.machines)} pairs of classes has a kernel of "
                "its own: learned_kernel needs n_clusters=1 or two classes."
            )
        return self.machines[0].kernel.between_inputs(left, right)

    def certificate(self, eta: float, n_jobs: int | None) -> BlockCertificate:
        """What the solutions (19) of clusters tell of the whole problem (18).

        Args:
            eta: Weight of the distance of ``F`` from ones; infinite for ``F = 1``.
            n_jobs: Processes, as joblib's.

        Raises:
            ValueError: There are several machines.
        """
        if len(self.machines) > 1:
            raise ValueError(
                f"The bounds are of one machine of two classes, got {len(self.machines)} pairs."
            )
        (machine,) = self.machines
        kernel, block = machine.kernel, machine.block
        inputs, clusters = kernel.inputs, kernel.clusters
        solve = partial(solve_local, eta=eta, bias=False, tol=_TOL)
        parts = map_clusters(
            solve, kernel.kernel, inputs, clusters, block.signs, block.upper, n_jobs=n_jobs
        )
        signed = np.zeros(len(inputs))
        for rows, part in zip(clusters.rows, parts, strict=True):
            signed[rows] = part
        return certify_blocks(
            lambda left, right: kernel.kernel(inputs[left], inputs[right]),
            block.signs,
            block.upper,
            clusters.labels,
            signed,
            eta,
        )


def fit_clusters(
    table: np.ndarray, blocks: Sequence[Block], kernel: Kernel, options: ClusterOptions
) -> ClusteredMachines:
    """Learn factors inside k-means clusters, then the machines.

    Args:
        table: Inputs ``n x D``.
        blocks: The machines.
        kernel: Base kernel of two tables.
        options: How.
    """
    fitted = [_fit_block(table[_own_rows(block)], block, kernel, options) for block in blocks]
    candidates = [candidate for _, _, found in fitted for candidate in found]
    etas = {eta for _, eta, _ in fitted}
    return ClusteredMachines(
        tuple(machine for machine, _, _ in fitted),
        len(table),
        etas.pop() if len(etas) == 1 else math.nan,
        tuple(candidates),
    )


def _own_rows(block: Block) -> np.ndarray:
    return block.rows if block.epsilon is None else block.rows[: len(block.rows) // 2]


def _fit_block(
    table: np.ndarray, block: Block, kernel: Kernel, options: ClusterOptions
) -> tuple[_Machine, float, list[Candidate]]:
    """A machine, its ``eta`` and what was compared."""
    rows = _own_rows(block)
    count = len(rows)
    targets = block.signs if block.epsilon is None else block.linear[:count] + block.epsilon
    upper = block.upper[:count]
    clusters = find_clusters(table, min(options.n_clusters, count), random_state=options.seed)
    if not getattr(kernel, "is_definite", False):
        map_clusters(check_gram, kernel, table, clusters, n_jobs=options.n_jobs)
    on_clusters = partial(_map, kernel, table, clusters, targets, upper, options.n_jobs)
    spread = 1.0 if block.epsilon is None else float(np.std(targets)) or 1.0
    settings: dict[str, Any] = {"epsilon": block.epsilon, "tol": _TOL * spread}
    eta, weight, candidates = _weight(on_clusters, block, spread, options)
    if options.decomposition == "block":
        parts = on_clusters(
            partial(learn_machine, **({"eta": math.inf} if weight is None else weight), **settings)
        )
        learned = ClusteredKernel(
            kernel, table, clusters, [extension for extension, _ in parts], between=0.0
        )
        signed = np.zeros(count)
        for own, (_, part) in zip(clusters.rows, parts, strict=True):
            signed[own] = part
        return _Machine(rows, learned, signed, 0.0, block), eta, candidates
    extensions: list[Any] = [None] * len(clusters.rows)
    if weight is not None:
        extensions = on_clusters(partial(learn_extension, **weight, **settings))
    learned = ClusteredKernel(kernel, table, clusters, extensions)
    solution = solve_dual(
        learned.block,
        targets,
        upper,
        epsilon=block.epsilon,
        tol=_TOL * spread,
        n_jobs=options.n_jobs,
    )
    return _Machine(rows, learned, solution.signed, solution.intercept, block), eta, candidates


def _map(
    kernel: Kernel,
    table: np.ndarray,
    clusters: Clusters,
    targets: np.ndarray,
    upper: np.ndarray,
    n_jobs: int | None,
    function: Callable[..., Any],
) -> list[Any]:
    return map_clusters(function, kernel, table, clusters, targets, upper, n_jobs=n_jobs)


def _weight(
    on_clusters: Callable[[Callable[..., Any]], list[Any]],
    block: Block,
    spread: float,
    options: ClusterOptions,
) -> tuple[float, dict[str, Any] | None, list[Candidate]]:
    """``eta`` or its share for each cluster, ``None`` for ``F = 1``, and what was compared."""
    if options.eta == "norm":  # of each cluster's own machine
        return math.nan, {}, []
    if options.eta != "cv":
        eta = float(options.eta)
        return eta, ({"eta": eta} if math.isfinite(eta) else None), []
    compare = partial(
        compare_etas,
        shares=_SHARES,
        epsilon=block.epsilon,
        tol=_COMPARE_TOL * spread,
        seed=options.seed,
    )
    total: Comparison = reduce(add, on_clusters(compare))
    best = total.best(_LEAST)
    names = [{}, *({"eta_share": share} for share in _SHARES)]
    candidates = [
        Candidate(
            stage="eta",
            params=params,
            mean_loss=loss,
            gain=gain,
            error=error,
            weight=float(place == (0 if best is None else best + 1)),
        )
        for place, (params, (loss, gain, error)) in enumerate(
            zip(names, total.means(), strict=True)
        )
    ]
    if best is None:
        return math.inf, None, candidates
    return math.nan, {"share": _SHARES[best]}, candidates
