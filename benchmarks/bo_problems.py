"""Functions to be minimised, over the unit cube, with what is known of their structure.

The first four are those of Sun et al. (2018), section 5.3 and appendix J.3, and a variant. Boxes
whose centre is the minimiser are moved.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import torch
from botorch.test_functions import (
    Ackley,
    Griewank,
    Hartmann,
    Levy,
    Michalewicz,
    Rastrigin,
    Rosenbrock,
    StyblinskiTang,
)
from torch import Tensor

__all__ = ["PROBLEMS", "SUITES", "Problem", "make_problem"]

_MINIMISER, _OPTIMUM = -2.903534027771177, -391.66165703771  # of Styblinski-Tang in 10 dimensions


@dataclass(frozen=True)
class Problem:
    """A function on a box, called with points of the unit cube and codes of categories.

    Attributes:
        name: Key of ``PROBLEMS``, or of ``bo_real_loops.PROBLEMS``.
        function: Values ``...`` at points ``... x D`` of the box; or outcomes ``... x M``:
            objectives, then constraints, which are kept where they are not negative.
        bounds: Lower and upper bounds ``2 x D`` of the box; 0 and 1 for a column of codes.
        optimum: Smallest score, or a bound of it.
        objectives: Number of objectives.
        constraints: Number of constraints.
        noise: Standard deviation of what is added to each outcome.
        levels: Number of categories of each categorical column, with the codes from 0 on.
        reference: With several objectives, the point from which hypervolumes are measured.
        penalty: Score of a point that breaks a constraint.
    """

    name: str
    function: Callable[[Tensor], Tensor]
    bounds: Tensor
    optimum: float
    objectives: int = 1
    constraints: int = 0
    noise: float = 0.0
    levels: Mapping[int, int] = field(default_factory=dict)
    reference: tuple[float, ...] = ()
    penalty: float = math.nan

    @property
    def dim(self) -> int:
        """Number of input columns."""
        return self.bounds.size(-1)

    def __call__(self, x: Tensor) -> Tensor:
        """Values ``...`` at points ``... x D`` of the unit cube."""
        lower, upper = self.bounds
        return self.function(lower + (upper - lower) * x)


def make_problem(name: str, seed: int) -> Problem:
    """The function of that name; what is random of it is drawn from ``seed``."""
    if name not in PROBLEMS:
        raise ValueError(f"name must be one of {', '.join(PROBLEMS)}; got {name!r}.")
    function, bounds, optimum = PROBLEMS[name](seed)
    bounds = torch.as_tensor(bounds, dtype=torch.float64)
    if optimum is None:  # monotone: the minimum lies in a corner
        optimum = function(torch.cartesian_prod(*bounds.mT.unbind(0))).min().item()
    return Problem(name, function, bounds, optimum)


Parts = tuple[Callable[[Tensor], Tensor], object, float | None]


def _box(make: Callable, lower: float, upper: float, dim: int, optimum: float, seed: int) -> Parts:
    """A function of BoTorch on a box of its own."""
    return make(dim)._evaluate_true, [[lower] * dim, [upper] * dim], optimum


def _rotated(shift: float, seed: int) -> Parts:
    """Styblinski-Tang of ``Q x``, where ``Q`` is orthonormal within each group of a partition.

    The paper does not say how it draws the partition, nor its box. Here three to seven groups come
    from cuts of a permutation of the columns, the blocks of ``Q`` from the QR decomposition of
    standard normal matrices, and the box reaches 3 to either side of the minimiser, plus a shift
    that is uniform on ``[-shift, shift]`` for each column.
    """
    rng = np.random.default_rng([1_000, seed])
    cuts = np.sort(rng.choice(np.arange(1, 10), rng.integers(2, 7), replace=False))
    rotation = np.zeros((10, 10))
    for group in np.split(rng.permutation(10), cuts):
        group = np.sort(group)
        block = np.ones((1, 1))
        if len(group) > 1:
            block, _ = np.linalg.qr(rng.standard_normal((len(group), len(group))))
        rotation[np.ix_(group, group)] = block
    matrix = torch.from_numpy(rotation)
    center = matrix.T @ torch.full((10,), _MINIMISER, dtype=torch.float64)
    center = center + shift * torch.from_numpy(rng.uniform(-1, 1, 10))
    function = StyblinskiTang(10)._evaluate_true
    return lambda x: function(x @ matrix.T), torch.stack([center - 3, center + 3]), _OPTIMUM


def _hartmann6in(dim: int, seed: int) -> Parts:
    """The columns that count are drawn."""
    columns = np.random.default_rng([1_001, seed]).permutation(dim)[:6].copy()
    function = Hartmann(6)._evaluate_true
    return lambda x: function(x[..., columns]), [[0.0] * dim, [1.0] * dim], -3.32236801141551


def _borehole(seed: int) -> Parts:
    """Flow of water through a borehole, see Morris, Mitchell and Ylvisaker (1993)."""

    def function(x: Tensor) -> Tensor:
        radius, influence, upper, upper_head, lower, lower_head, length, conductivity = x.unbind(-1)
        ratio = (influence / radius).log()
        leak = 2 * length * upper / (ratio * radius.square() * conductivity)
        flow = 2 * math.pi * upper * (upper_head - lower_head)
        return flow / (ratio * (1 + leak + upper / lower))

    lower = (0.05, 100.0, 63070.0, 990.0, 63.1, 700.0, 1120.0, 9855.0)
    return function, [lower, (0.15, 50000.0, 115600.0, 1110.0, 116.0, 820.0, 1680.0, 12045.0)], None


def _piston(seed: int) -> Parts:
    """Time of a cycle of a piston, see Kenett and Zacks (1998)."""

    def function(x: Tensor) -> Tensor:
        mass, surface, volume, spring, pressure, ambient, filling = x.unbind(-1)
        gas = pressure * volume / filling * ambient
        force = pressure * surface + 19.62 * mass - spring * volume / surface
        now = surface / (2 * spring) * ((force.square() + 4 * spring * gas).sqrt() - force)
        return 2 * math.pi * (mass / (spring + surface.square() * gas / now.square())).sqrt()

    lower = (30.0, 0.005, 0.002, 1000.0, 90000.0, 290.0, 340.0)
    return function, [lower, (60.0, 0.020, 0.010, 5000.0, 110000.0, 296.0, 360.0)], None


PROBLEMS: dict[str, Callable[[int], Parts]] = {
    "stybtang": partial(_box, StyblinskiTang, -4, 4, 10, _OPTIMUM),
    "michalewicz": partial(_box, Michalewicz, 0, math.pi, 10, -9.66015),
    "transformed": partial(_rotated, 0.0),
    "shifted": partial(_rotated, 2.0),
    "hartmann6": partial(_box, Hartmann, 0, 1, 6, -3.32236801141551),
    "ackley10": partial(_box, Ackley, -20, 32.8, 10, 0.0),
    "levy10": partial(_box, Levy, -10, 10, 10, 0.0),
    "rosenbrock8": partial(_box, Rosenbrock, -5, 10, 8, 0.0),
    "griewank8": partial(_box, Griewank, -400, 600, 8, 0.0),
    "rastrigin10": partial(_box, Rastrigin, -4, 5.12, 10, 0.0),
    "stybtang20": partial(_box, StyblinskiTang, -4, 4, 20, 2 * _OPTIMUM),
    "ackley20": partial(_box, Ackley, -20, 32.8, 20, 0.0),
    "hartmann6in20": partial(_hartmann6in, 20),
    "hartmann6in50": partial(_hartmann6in, 50),
    "hartmann6in100": partial(_hartmann6in, 100),
    "borehole8": _borehole,
    "piston7": _piston,
}
SUITES = {
    "bo": tuple(PROBLEMS)[:10],
    "bo_many_columns": ("stybtang20", "ackley20", "hartmann6in20", "hartmann6in100"),
}
