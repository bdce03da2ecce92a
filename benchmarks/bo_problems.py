"""Functions to be minimised, over the unit cube, with what is known of their structure.

The first four are those of Sun et al. (2018), section 5.3 and appendix J.3, and a variant; the
others have no additive structure that helps, or none on their box. ``SUITES`` says which make up
the seven of the paper's comparison, the wide one, and the one of few columns. Boxes whose centre is
the minimiser are moved, but those of few columns, which are BoTorch's.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import numpy as np
import torch
from botorch.test_functions import (
    Ackley,
    Beale,
    Branin,
    Bukin,
    Cosine8,
    DixonPrice,
    DropWave,
    EggHolder,
    Griewank,
    Hartmann,
    HolderTable,
    Levy,
    Michalewicz,
    Rastrigin,
    Rosenbrock,
    Shekel,
    SixHumpCamel,
    StyblinskiTang,
)
from botorch.test_functions.synthetic import SyntheticTestFunction
from torch import Tensor

__all__ = ["PROBLEMS", "SUITES", "Problem", "make_problem"]

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


def _rosenbrock8(seed: int) -> Problem:
    return Problem("rosenbrock8", Rosenbrock(8)._evaluate_true, _box(-5, 10, 8), 0.0)


def _dixonprice10(seed: int) -> Problem:
    return Problem("dixonprice10", DixonPrice(_DIM)._evaluate_true, _box(-10, 10), 0.0)


def _griewank8(seed: int) -> Problem:
    return Problem("griewank8", Griewank(8)._evaluate_true, _box(-400, 600, 8), 0.0)


def _rastrigin10(seed: int) -> Problem:
    function = Rastrigin(_DIM)._evaluate_true
    return Problem("rastrigin10", function, _box(-4, 5.12), 0.0, _columns())


def _cosine8(seed: int) -> Problem:
    def function(x: Tensor) -> Tensor:
        return -Cosine8()._evaluate_true(x)  # which is to be maximised

    groups = tuple((column,) for column in range(8))
    return Problem("cosine8", function, _box(-0.7, 1, 8), -0.8, groups)


def _hartmann6in20(seed: int) -> Problem:
    return _hartmann6in(20, seed)


def _hartmann6in50(seed: int) -> Problem:
    return _hartmann6in(50, seed)


def _hartmann6in100(seed: int) -> Problem:
    return _hartmann6in(100, seed)


def _hartmann6in(dim: int, seed: int) -> Problem:
    """The columns that count are drawn."""
    columns = np.random.default_rng([1_001, seed]).permutation(dim)[:6].copy()
    function = Hartmann(6)._evaluate_true
    bounds = _box(0, 1, dim)
    return Problem(
        f"hartmann6in{dim}", lambda x: function(x[..., columns]), bounds, -3.32236801141551
    )


def _stybtang20(seed: int) -> Problem:
    groups = tuple((column,) for column in range(20))
    function = StyblinskiTang(20)._evaluate_true
    return Problem("stybtang20", function, _box(-4, 4, 20), 2 * _STYBLINSKI_TANG_OPTIMUM, groups)


def _ackley20(seed: int) -> Problem:
    return Problem("ackley20", Ackley(20)._evaluate_true, _box(-20, 32.8, 20), 0.0)


_BOREHOLE = (  # radii, transmissivities, heads, length and conductivity
    (0.05, 100.0, 63070.0, 990.0, 63.1, 700.0, 1120.0, 9855.0),
    (0.15, 50000.0, 115600.0, 1110.0, 116.0, 820.0, 1680.0, 12045.0),
)


def _borehole8(seed: int) -> Problem:
    """Flow of water through a borehole, see Morris, Mitchell and Ylvisaker (1993).

    It is monotone in every column, so that its minimum lies in a corner.
    """

    def function(x: Tensor) -> Tensor:
        radius, influence, upper, upper_head, lower, lower_head, length, conductivity = x.unbind(-1)
        ratio = (influence / radius).log()
        leak = 2 * length * upper / (ratio * radius.square() * conductivity)
        flow = 2 * math.pi * upper * (upper_head - lower_head)
        return flow / (ratio * (1 + leak + upper / lower))

    return _in_a_corner("borehole8", function, _BOREHOLE)


_PISTON = (  # mass, surface, volume, spring, pressure and two temperatures
    (30.0, 0.005, 0.002, 1000.0, 90000.0, 290.0, 340.0),
    (60.0, 0.020, 0.010, 5000.0, 110000.0, 296.0, 360.0),
)


def _piston7(seed: int) -> Problem:
    """Time of a cycle of a piston, see Kenett and Zacks (1998); the minimum lies in a corner."""

    def function(x: Tensor) -> Tensor:
        mass, surface, volume, spring, pressure, ambient, filling = x.unbind(-1)
        gas = pressure * volume / filling * ambient
        force = pressure * surface + 19.62 * mass - spring * volume / surface
        now = surface / (2 * spring) * ((force.square() + 4 * spring * gas).sqrt() - force)
        return 2 * math.pi * (mass / (spring + surface.square() * gas / now.square())).sqrt()

    return _in_a_corner("piston7", function, _PISTON)


_OTL = (  # resistances b1, b2, f, c1, c2 and the gain of the current
    (50.0, 25.0, 0.5, 1.2, 0.25, 50.0),
    (150.0, 70.0, 3.0, 2.5, 1.20, 300.0),
)


def _otl6(seed: int) -> Problem:
    """Mid-point voltage of a push-pull circuit, see Ben-Ari and Steinberg (2007); monotone."""

    def function(x: Tensor) -> Tensor:
        b1, b2, f, c1, c2, gain = x.unbind(-1)
        loaded = gain * (c2 + 9)
        voltage = (12 * b2 / (b1 + b2) + 0.74) * loaded + 11.35 * f + 0.74 * f * loaded / c1
        return voltage / (loaded + f)

    return _in_a_corner("otl6", function, _OTL)


_WING = (  # areas, weights, angles and loads of a light aircraft
    (150.0, 220.0, 6.0, -10.0, 16.0, 0.5, 0.08, 2.5, 1700.0, 0.025),
    (200.0, 300.0, 10.0, 10.0, 45.0, 1.0, 0.18, 6.0, 2500.0, 0.080),
)


def _wingweight10(seed: int) -> Problem:
    """Weight of a wing, see Forrester, Sobester and Keane (2008).

    Monotone but for the sweep, the fourth column, which is best at 0.
    """

    def function(x: Tensor) -> Tensor:
        area, fuel, aspect, sweep, pressure, taper, thick, load, gross, paint = x.unbind(-1)
        cosine = (sweep * math.pi / 180).cos()
        weight = 0.036 * area**0.758 * fuel**0.0035 * (aspect / cosine.square()) ** 0.6
        weight = weight * pressure**0.006 * taper**0.04 * (100 * thick / cosine) ** -0.3
        return weight * (load * gross) ** 0.49 + area * paint

    bounds = torch.tensor(_WING, dtype=torch.float64)
    corners = torch.cartesian_prod(*bounds.mT.unbind(0))
    corners[:, 3] = 0
    return Problem("wingweight10", function, bounds, function(corners).min().item())


def _robotarm8(seed: int) -> Problem:
    """Distance of the end of an arm of four parts from its start, see An and Owen (2001).

    The first columns are angles, the others lengths; 0 where the parts come back to the start.
    """

    def function(x: Tensor) -> Tensor:
        angles, lengths = x[..., :4].cumsum(-1), x[..., 4:]
        return torch.hypot((lengths * angles.cos()).sum(-1), (lengths * angles.sin()).sum(-1))

    bounds = torch.tensor([[0.0] * 8, [2 * math.pi] * 4 + [1.0] * 4], dtype=torch.float64)
    return Problem("robotarm8", function, bounds, 0.0)


def _of_botorch(name: str, make: Callable[[], SyntheticTestFunction], seed: int) -> Problem:
    function = make()
    return Problem(
        name, function._evaluate_true, function.bounds.double(), float(function.optimal_value)
    )


def _in_a_corner(
    name: str, function: Callable[[Tensor], Tensor], bounds: tuple[tuple[float, ...], ...]
) -> Problem:
    """A problem whose minimum lies in a corner of its box."""
    box = torch.tensor(bounds, dtype=torch.float64)
    corners = torch.cartesian_prod(*box.mT.unbind(0))
    return Problem(name, function, box, function(corners).min().item())


def _box(lower: float, upper: float, dim: int = _DIM) -> Tensor:
    return torch.tensor([[lower], [upper]], dtype=torch.float64).expand(2, dim).clone()


def _columns() -> tuple[tuple[int, ...], ...]:
    return tuple((column,) for column in range(_DIM))


_FEW_COLUMNS: dict[str, Callable[[], SyntheticTestFunction]] = {
    "branin": Branin,
    "sixhump": SixHumpCamel,
    "hart3": partial(Hartmann, 3),
    "dropwave": DropWave,
    "eggholder": EggHolder,
    "holder": HolderTable,
    "beale": Beale,
    "shekel": Shekel,
    "bukin": Bukin,
    "rosen4": partial(Rosenbrock, 4),
    "levy3": partial(Levy, 3),
    "griewank3": partial(Griewank, 3),
}
_PROBLEMS: dict[str, Callable[[int], Problem]] = {
    "stybtang": _stybtang,
    "michalewicz": _michalewicz,
    "transformed": _transformed,
    "shifted": _shifted,
    "hartmann6": _hartmann6,
    "ackley10": _ackley10,
    "levy10": _levy10,
    "rosenbrock8": _rosenbrock8,
    "griewank8": _griewank8,
    "rastrigin10": _rastrigin10,
    "cosine8": _cosine8,
    "dixonprice10": _dixonprice10,
    "hartmann6in20": _hartmann6in20,
    "stybtang20": _stybtang20,
    "ackley20": _ackley20,
    "borehole8": _borehole8,
    "hartmann6in100": _hartmann6in100,
    "piston7": _piston7,
    "otl6": _otl6,
    "wingweight10": _wingweight10,
    "robotarm8": _robotarm8,
    "hartmann6in50": _hartmann6in50,
}
PROBLEMS = _PROBLEMS | {
    name: partial(_of_botorch, name, make) for name, make in _FEW_COLUMNS.items()
}
SUITES = {
    "paper": tuple(_PROBLEMS)[:7],
    "wide": tuple(_PROBLEMS)[:-1],
    "few": tuple(_FEW_COLUMNS),
}
