"""Matrices given entry by entry: a small one of this file's own, and that of a network."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor
from torch.autograd import gradcheck, gradgradcheck

from gpytorch_nkn.linalg import TileEvaluator, elements, to_dense


class CauchyEvaluator(TileEvaluator):
    """``1 / (1 + s (x - x')^2)``, with gradients of the inputs and of the scale ``s``."""

    def __init__(self, x1, x2, scale):
        super().__init__(x1.size(0), x2.size(0), x1 is x2, x1)
        self._x1, self._x2, self._scale = x1, x2, scale

    def tile_values(self, rows, columns, keep=False):
        return cauchy(self._x1[rows], self._x2[columns], self._scale)

    def zero_gradients(self):
        inputs = [self._x1] if self.symmetric else [self._x1, self._x2]
        return [torch.zeros_like(tensor) for tensor in (*inputs, self._scale)]

    def add_tile_gradients(self, rows, columns, weights, total):
        difference = self._x1[rows] - self._x2[columns].mT
        slope = weights * self.tile_values(rows, columns).square()
        total[-1] -= (slope * difference.square()).sum()
        of_difference = -2 * self._scale * difference * slope
        total[0][rows] += of_difference.sum(1, keepdim=True)
        total[-2][columns] -= of_difference.sum(0).unsqueeze(-1)


class WholeCauchyEvaluator:
    """The same for a whole batch, by autograd."""

    def __init__(self, tensors):
        self.symmetric = len(tensors) == 2
        self._tensors = [tensor.detach().requires_grad_() for tensor in tensors]

    def _values(self):
        *inputs, scale = self._tensors
        return cauchy(inputs[0], inputs[-1], scale.unsqueeze(-1))

    def fill(self, out):
        out.copy_(self._values().detach())
        if self.symmetric:  # no caller may rely on what is above the diagonal
            above = torch.ones(out.shape[-2:], dtype=torch.bool).triu(1)
            out.masked_fill_(above, torch.nan)

    def vjp(self, weights):
        with torch.enable_grad():
            return list(torch.autograd.grad(self._values(), self._tensors, weights))


def cauchy(x1, x2, scale):
    return 1 / (1 + scale * (x1 - x2.mT).square())


@dataclass
class Cauchy:
    """An EntrywiseMatrix; ``inputs`` are ``... x N x 1``, ``scale`` is ``... x 1``."""

    inputs: tuple[Tensor, ...]
    scale: Tensor
    whole: bool = False

    @property
    def shape(self):
        x1, x2 = self.inputs[0], self.inputs[-1]
        batch = torch.broadcast_shapes(x1.shape[:-2], x2.shape[:-2], self.scale.shape[:-1])
        return torch.Size([*batch, x1.size(-2), x2.size(-2)])

    @property
    def tensors(self):
        return (*self.inputs, self.scale)

    @property
    def event_dims(self):
        return (2,) * len(self.inputs) + (1,)

    def bind(self, tensors, needed):
        if self.whole:
            return WholeCauchyEvaluator(tensors)
        return CauchyEvaluator(tensors[0], tensors[-2], tensors[-1])

    def differentiable(self, tensors):
        for index, own in elements(self, tensors):
            yield index, cauchy(own[0], own[-2], own[-1])

    def dense(self):
        return cauchy(self.inputs[0], self.inputs[-1], self.scale.unsqueeze(-1))


def random_matrix(shape_of_x1, shape_of_x2, shape_of_scale=(1,), *, whole=False):
    """Of positive scales; symmetric without a second shape."""
    inputs = [torch.randn(*shape, 1) for shape in (shape_of_x1, shape_of_x2) if shape]
    tensors = [*inputs, 0.5 + torch.rand(shape_of_scale)]
    *inputs, scale = (tensor.requires_grad_() for tensor in tensors)
    return Cauchy(tuple(inputs), scale, whole)


SHAPES = [  # of x1, of x2, of the scale
    ((7,), (5,), (1,)),
    ((7,), None, (1,)),
    ((1,), None, (1,)),
    ((300,), None, (1,)),
    ((300,), (130,), (1,)),
    ((3,), (9000,), (1,)),
    ((2, 7), None, (1,)),
    ((7,), None, (2, 1)),
    ((2, 7), (5,), (1,)),
    ((3, 1, 4), (2, 5), (1,)),
    ((2, 4), (5,), (3, 1, 1)),
    ((1, 4), None, (1, 1)),
]


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shapes", SHAPES)
def test_values_and_gradients_equal_dense_ones(shapes, whole):
    matrix = random_matrix(*shapes, whole=whole)
    values, expected = to_dense(matrix), matrix.dense()
    torch.testing.assert_close(values, expected)
    weights = torch.randn(values.shape)
    torch.testing.assert_close(
        torch.autograd.grad((values * weights).sum(), matrix.tensors),
        torch.autograd.grad((expected * weights).sum(), matrix.tensors),
        rtol=1e-10,
        atol=1e-11,
    )


@pytest.mark.parametrize("whole", [False, True])
@pytest.mark.parametrize("shapes", [*SHAPES[:2], *SHAPES[6:11:2]])
def test_numerical_gradients_of_both_orders(shapes, whole):
    if sum(map(len, filter(None, shapes))) > 5:
        shapes = tuple(s and (*s[:-1], min(s[-1], 3)) for s in shapes)
    matrix = random_matrix(*shapes)

    def values(*tensors):
        return to_dense(Cauchy(tensors[:-1], tensors[-1], whole))

    assert gradcheck(values, matrix.tensors, fast_mode=True)  # entries are compared above
    assert gradgradcheck(values, matrix.tensors, fast_mode=True)


@pytest.mark.parametrize("wanted", [(0,), (1,), (2,), (0, 2)])
def test_only_gradients_that_are_wanted(wanted):
    matrix = random_matrix((6,), (5,))
    for number, tensor in enumerate(matrix.tensors):
        tensor.requires_grad_(number in wanted)
    sources = [matrix.tensors[number] for number in wanted]
    first, second = (
        torch.autograd.grad(values.square().sum(), sources, create_graph=True)
        for values in (to_dense(matrix), matrix.dense())
    )
    torch.testing.assert_close(first, second)
    torch.testing.assert_close(
        *(torch.autograd.grad(sum(g.sin().sum() for g in one), sources) for one in (first, second))
    )


def test_inputs_changed_between_the_passes_are_noticed():
    matrix = random_matrix((6,), (5,))
    total = to_dense(matrix).sum()
    with torch.no_grad():
        matrix.scale += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        total.backward()
