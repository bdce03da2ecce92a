"""The dual problem of support vector machines with a learned Hadamard factor."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations

import numpy as np

from gpytorch_nkn.estimators.dank.support_vectors.factor import FactorStep, HadamardFactor

__all__ = [
    "Block",
    "DualPoint",
    "DualProblem",
    "classification_blocks",
    "project_box_hyperplane",
    "regression_blocks",
]


@dataclass(frozen=True)
class Block:
    """Dual variables ``u`` (``m``) of one SVM: ``0 <= u <= upper``, ``signs' u = 0``.

    Attributes:
        rows: Training rows ``m`` that the variables belong to.
        signs: 1 or -1, ``m``; signed dual coefficients are sums of ``signs * u`` over each row.
        linear: Linear term of the objective, ``m``.
        upper: Bounds, ``m``.
        epsilon: Half width of the insensitive tube; ``None`` for classification.
        bias: Whether there is an intercept; without one the sum ``signs' u`` is free.
    """

    rows: np.ndarray
    signs: np.ndarray
    linear: np.ndarray
    upper: np.ndarray
    epsilon: float | None = None
    bias: bool = True

    @property
    def count(self) -> int:
        """Number of rows: of a regression each has two variables."""
        return len(self.rows) if self.epsilon is None else len(self.rows) // 2

    @property
    def targets(self) -> np.ndarray:
        """Labels 1 and -1, or the targets of a regression, of each row."""
        if self.epsilon is None:
            return self.signs
        return self.linear[: self.count] + self.epsilon

    @property
    def bounds(self) -> np.ndarray:
        """Bounds of each row."""
        return self.upper[: self.count]

    def restricted(self, places: np.ndarray, *, bias: bool = True) -> Block:
        """The same with some of its rows alone, given by place, which are numbered from 0 on."""
        numbers = np.arange(len(places))
        if self.epsilon is not None:
            places, numbers = np.append(places, places + self.count), np.tile(numbers, 2)
        return Block(
            numbers,
            self.signs[places],
            self.linear[places],
            self.upper[places],
            self.epsilon,
            bias,
        )


def classification_blocks(codes: np.ndarray, num_classes: int, upper: np.ndarray) -> list[Block]:
    """SVMs of all pairs of classes ``n``, as ``sklearn.svm.SVC`` has them: the first is positive.

    For two classes the second is positive, as scikit-learn has it there.
    """
    blocks = []
    for first, second in combinations(range(num_classes), 2):
        rows = np.flatnonzero((codes == first) | (codes == second))
        positive = second if num_classes == 2 else first
        signs = np.where(codes[rows] == positive, 1.0, -1.0)
        blocks.append(Block(rows, signs, np.ones(len(rows)), upper[rows]))
    return blocks


def regression_blocks(targets: np.ndarray, epsilon: float, upper: np.ndarray) -> list[Block]:
    """The SVM of epsilon-insensitive regression of ``n`` targets: two variables for each row."""
    count = len(targets)
    rows = np.tile(np.arange(count), 2)
    signs = np.concatenate([np.ones(count), -np.ones(count)])
    linear = np.concatenate([targets - epsilon, -targets - epsilon])
    return [Block(rows, signs, linear, np.tile(upper, 2), epsilon)]


@dataclass(frozen=True)
class DualPoint:
    """Dual variables and what the objective is there.

    Attributes:
        variables: Those of all blocks, one after the other, ``m``.
        signed: Signed dual coefficients ``n x P``, a column for each block.
        factor: The minimiser ``F`` of the objective at these variables.
        products: ``(F o K) signed``, ``n x P``.
        value: ``h``, the objective at these variables and this factor.
        gradient: Of ``h``, ``m``.
    """

    variables: np.ndarray
    signed: np.ndarray
    factor: HadamardFactor
    products: np.ndarray
    value: float
    gradient: np.ndarray


def project_box_hyperplane(point: np.ndarray, signs: np.ndarray, upper: np.ndarray) -> np.ndarray:
    """Nearest point of ``{u : 0 <= u <= upper, signs' u = 0}``, exactly.

    It is ``clip(point - t signs, 0, upper)`` for a root ``t`` of ``signs' u(t)``, which falls
    piecewise linearly in ``t``: sorted breakpoints give the piece, the piece gives the root. (To
    clip and to project onto the hyperplane in turn, as in the paper, ends in the set, but not in
    its nearest point.)

    Reference: Held, Wolfe and Crowder (1974), Validation of subgradient optimization.
    """
    first = np.where(signs > 0, point - upper, -point)  # entry i moves for t in [first, first + c]
    ends = np.concatenate([first, first + upper])
    order = np.argsort(ends, kind="stable")
    slopes = np.concatenate([np.full(len(point), -1.0), np.ones(len(point))])[order].cumsum()
    ends = ends[order]
    total = upper[signs > 0].sum()  # of signs' u for t at minus infinity
    sums = total + np.concatenate([[0.0], (slopes[:-1] * np.diff(ends)).cumsum()])
    piece = min(int(np.searchsorted(-sums, 0.0, side="right")) - 1, len(ends) - 2)
    piece = max(piece, 0)
    root = ends[piece]
    if slopes[piece] < 0:
        root += sums[piece] / -slopes[piece]
    projected = np.clip(point - root * signs, 0.0, upper)
    free = (projected > 0) & (projected < upper)
    if free.any():  # once more without the rounding of the sums
        root += (signs @ projected) / free.sum()
        projected = np.clip(point - root * signs, 0.0, upper)
    return projected


class DualProblem:
    r"""Max over dual variables, min over ``F``: the objectives (4) and (22) of the paper in one.

    .. math::
        \max_u \min_{F \succeq 0} \sum_p \bigl[c_p^\top u_p
            - \tfrac{1}{2} s_p^\top (F \circ K) s_p\bigr]
            + \eta \lVert F - 11^\top \rVert_F^2 + \tau \eta \lVert F \rVert_*

    with a block ``p`` for each SVM, and ``s_p`` its signed dual coefficients. All blocks share
    one ``F``, hence one kernel. For one block it is the paper's. (There the constraint of (22)
    reads ``(a - b)'y = 0``; it is ``1'(a - b) = 0``, that of the intercept, and the gradient (25)
    with respect to ``b`` has ``+ F o K (a - b)``.)

    Args:
        gram: Gram matrix ``K``, ``n x n``, symmetric positive semi-definite.
        blocks: The SVMs.
        eta: Weight of the distance of ``F`` from the matrix of ones, positive.
        tau: Weight of the nuclear norm of ``F``, relative to ``eta``; not negative.

    Reference: Liu, Huang, Gong, Yang and Li (2020), Learning Data-adaptive Nonparametric Kernels.
    """

    def __init__(self, gram: np.ndarray, blocks: Sequence[Block], eta: float, tau: float):
        self.gram = gram
        self.blocks = tuple(blocks)
        self.step = FactorStep(gram, eta, tau)
        self.linear = np.concatenate([block.linear for block in blocks])
        self.upper = np.concatenate([block.upper for block in blocks])
        ends = np.cumsum([0, *(len(block.rows) for block in blocks)])
        self.parts = [slice(a, b) for a, b in zip(ends[:-1], ends[1:], strict=True)]

    def project(self, variables: np.ndarray) -> np.ndarray:
        """Nearest feasible point, ``m``, to any point."""
        return np.concatenate(
            [
                project_box_hyperplane(variables[part], block.signs, block.upper)
                if block.bias
                else np.clip(variables[part], 0.0, block.upper)
                for block, part in zip(self.blocks, self.parts, strict=True)
            ]
        )

    def signed(self, variables: np.ndarray) -> np.ndarray:
        """Signed dual coefficients ``n x P``."""
        columns = [
            np.bincount(block.rows, block.signs * variables[part], minlength=len(self.gram))
            for block, part in zip(self.blocks, self.parts, strict=True)
        ]
        return np.stack(columns, axis=1)

    def evaluate(self, variables: np.ndarray) -> DualPoint:
        """Objective, gradient and minimising factor at dual variables, feasible or not."""
        signed = self.signed(variables)
        factor, products = self.step(signed)
        value = self.linear @ variables - 0.5 * np.sum(signed * products)
        return DualPoint(
            variables,
            signed,
            factor,
            products,
            float(value + factor.penalty),
            self.gradient(products),
        )

    def gradient(self, products: np.ndarray) -> np.ndarray:
        """Gradient ``m`` from products ``n x P`` of the kernel with signed coefficients."""
        parts = [
            block.linear - block.signs * products[block.rows, column]
            for column, block in enumerate(self.blocks)
        ]
        return np.concatenate(parts)

    def gap(self, point: DualPoint) -> float:
        """Duality gap of the SVMs at the kernel ``F o K`` of the point, which is feasible.

        It bounds ``max_u H(u, F) - h``, hence what ``h`` lacks to its maximum, from above.
        """
        primal = self.primal(point.signed, point.products)
        dual = self.linear @ point.variables - 0.5 * np.sum(point.signed * point.products)
        return float(primal - dual)

    def primal(self, signed: np.ndarray, products: np.ndarray) -> float:
        """Primal objective at coefficients and kernel times these, with the best intercepts."""
        loss = sum(
            block.upper @ np.maximum(slack, 0.0)
            for block, slack in zip(self.blocks, self._slacks(products), strict=True)
        )
        return float(0.5 * np.sum(signed * products) + loss)

    def intercepts(self, products: np.ndarray) -> np.ndarray:
        """Intercepts ``P`` that make the primal objective least, given functions ``n x P``."""
        return np.array(
            [_best_intercept(block, products[:, p]) for p, block in enumerate(self.blocks)]
        )

    def _slacks(self, products: np.ndarray) -> list[np.ndarray]:
        outputs = products + self.intercepts(products)
        return [
            block.linear - block.signs * outputs[block.rows, p]
            for p, block in enumerate(self.blocks)
        ]


def _best_intercept(block: Block, function: np.ndarray) -> float:
    """Weighted median of where the slacks vanish; the middle if a whole interval is best."""
    if not block.bias:
        return 0.0
    places = block.signs * block.linear - function[block.rows]
    order = np.argsort(places, kind="stable")
    rise = block.upper[order].cumsum() - block.upper[block.signs > 0].sum()
    scale = block.upper.sum()
    low = int(np.searchsorted(rise, -1e-12 * scale))
    high = int(np.searchsorted(rise, 1e-12 * scale, side="right"))
    last = len(order) - 1
    return float(0.5 * (places[order[min(low, last)]] + places[order[min(high, last)]]))
