"""Functions to be minimised, over the unit cube, with what is known of their structure.

The first four are those of Sun et al. (2018), section 5.3 and appendix J.3, and a variant; the
others have no additive structure that helps, or none on their box.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import torch
from botorch.test_functions import Ackley, Hartmann, Levy, Michalewicz, StyblinskiTang
from torch import Tensor

__all__ = ["PROBLEMS", "Problem", "make_problem"]

_DIM = 10
_STYBLINSKI_TANG_MINIMISER = -2.903534027771177
_STYBLINSKI_TANG_OPTIMUM = -391.66165703771  # in ten dimensions


@dataclass(frozen=True)
class Problem:
    """A function on a box, called with points of the unit cube.

    Attributes:
        name: Key of ``PROBLEMS``.
        function: Values ``...`` at points ``... x D`` of the box.
        bounds: Lower and upper bounds ``2 x D`` of the box.
        optimum: Smallest value on the box.
        groups: Columns that occur together, if the function is a sum over such groups; else None.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    bounds: Tensor
    optimum: float
    groups: tuple[tuple[int, ...], ...] | None = None

    @property
    def dim(self) -> int:
        """Number of input columns."""
        return self.bounds.size(-1)

    def __call__(self, x: Tensor) -> Tensor:
        """Values ``...`` at points ``... x D`` of the unit cube."""
        if x.size(-1) != self.dim:
            raise ValueError(
                f"{self.name} has {self.dim} input columns, got shape {tuple(x.shape)}."
            )
        lower, upper = self.bounds
        return self.function(lower + (upper - lower) * x)


def make_problem(name: str, seed: int) -> Problem:
    """The function of that name; what is random of it is drawn from ``seed``."""
    if name not in PROBLEMS:
        raise ValueError(f"name must be one of {', '.join(PROBLEMS)}; got {name!r}.")
    return PROBLEMS[name](seed)


def _stybtang(seed: int) -> Problem:
    function = StyblinskiTang(_DIM)._evaluate_true
    return Problem("stybtang", function, _box(-4, 4), _STYBLINSKI_TANG_OPTIMUM, _columns())


def _michalewicz(seed: int) -> Problem:
    function = Michalewicz(_DIM)._evaluate_true  # m = 10
    return Problem("michalewicz", function, _box(0, math.pi), -9.66015, _columns())


def _transformed(seed: int) -> Problem:
    return _rotated("transformed", seed, shift=0.0)


def _shifted(seed: int) -> Problem:
    return _rotated("shifted", seed, shift=2.0)


def _rotated(name: str, seed: int, shift: float) -> Problem:
    """Styblinski-Tang of ``Q x``, where ``Q`` is orthonormal within each group of a partition.

    The paper does not say how it draws the partition, nor its box. Here three to seven groups come
    from cuts of a permutation of the columns, the blocks of ``Q`` from the QR decomposition of
    standard normal matrices, and the box reaches 3 to either side of the minimiser, so that the
    function is large at its faces, plus a shift that is uniform on ``[-shift, shift]`` for each
    column. Both functions of one seed share partition and ``Q``.
    """
    rng = np.random.default_rng([1_000, seed])
    cuts = np.sort(rng.choice(np.arange(1, _DIM), rng.integers(2, _DIM - 3), replace=False))
    groups = [sorted(map(int, group)) for group in np.split(rng.permutation(_DIM), cuts)]
    rotation = np.zeros((_DIM, _DIM))
    for group in groups:
        block = np.ones((1, 1))
        if len(group) > 1:
            block, _ = np.linalg.qr(rng.standard_normal((len(group), len(group))))
        rotation[np.ix_(group, group)] = block
    matrix = torch.from_numpy(rotation)
    center = matrix.T @ torch.full((_DIM,), _STYBLINSKI_TANG_MINIMISER, dtype=torch.float64)
    center = center + shift * torch.from_numpy(rng.uniform(-1, 1, _DIM))
    function = StyblinskiTang(_DIM)._evaluate_true
    return Problem(
        name,
        lambda x: function(x @ matrix.T),
        torch.stack([center - 3, center + 3]),
        _STYBLINSKI_TANG_OPTIMUM,
        tuple(map(tuple, groups)),
    )


def _hartmann6(seed: int) -> Problem:
    return Problem("hartmann6", Hartmann(6)._evaluate_true, _box(0, 1, 6), -3.32236801141551)


def _ackley10(seed: int) -> Problem:
    # Not the symmetric box, whose centre is the minimiser.
    return Problem("ackley10", Ackley(_DIM)._evaluate_true, _box(-20, 32.8), 0.0)


def _levy10(seed: int) -> Problem:
    return Problem("levy10", Levy(_DIM)._evaluate_true, _box(-10, 10), 0.0)


def _box(lower: float, upper: float, dim: int = _DIM) -> Tensor:
    return torch.tensor([[lower], [upper]], dtype=torch.float64).expand(2, dim).clone()


def _columns() -> tuple[tuple[int, ...], ...]:
    return tuple((column,) for column in range(_DIM))


PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "stybtang": _stybtang,
    "michalewicz": _michalewicz,
    "transformed": _transformed,
    "shifted": _shifted,
    "hartmann6": _hartmann6,
    "ackley10": _ackley10,
    "levy10": _levy10,
}
