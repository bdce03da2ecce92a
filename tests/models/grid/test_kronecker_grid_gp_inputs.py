"""Inputs that raise an error, and odd ones that do not."""

import math

import pytest
import torch
from botorch.models.transforms import Log
from gpytorch.kernels import RBFKernel, RBFKernelGrad
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from linear_operator.utils.errors import NotPSDError
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.models import KroneckerGridGP
from tests.models.grid.small_grids import all_points, dense, holed, make, move, some_kernels

ROWS, COLUMNS = torch.arange(4.0, dtype=torch.float64), torch.arange(5.0, dtype=torch.float64)
VALUES = torch.arange(20.0, dtype=torch.float64).view(4, 5).sin()


def build(coordinates=(ROWS, COLUMNS), targets=VALUES, kernels=None, **options):
    kernels = [RBFKernel(), RBFKernel()] if kernels is None else kernels
    return KroneckerGridGP(coordinates, targets, kernels, **options)


def with_entry(values, value, *index):
    changed = values.clone()
    changed[index] = value
    return changed


def of_batch(kind, *sizes):
    return [kind(batch_shape=torch.Size([size])) for size in sizes]


TWO = torch.stack([VALUES, VALUES])
BAD = {
    "a list": ({"targets": VALUES.tolist()}, TypeError, "float32 or float64 numbers, got list"),
    "integers": ({"targets": VALUES.long()}, TypeError, r"float64 numbers, got torch\.int64"),
    "infinite": ({"targets": with_entry(VALUES, math.inf, 1, 2)}, ValueError,
        "finite or NaN .* infinite values"),
    "huge": ({"targets": 1e200 * VALUES}, ValueError,
        r"Squares of targets must be finite numbers, got targets of up to 9.*e\+199"),
    "transposed": ({"targets": VALUES.mT}, ValueError, r"sizes \(4, 5\) .* shape \(5, 4\)"),
    "one tensor": ({"coordinates": VALUES}, ValueError, r"one tensor per dimension .*\(4, 5\)"),
    "no coordinates": ({"coordinates": []}, ValueError, r"one tensor per dimension .*\[\]"),
    "empty coordinates": ({"coordinates": [ROWS, COLUMNS[:0]]}, ValueError,
        r"dimension 1 must be of shape n or n x c, got \(0, 1\)"),
    "cubic coordinates": ({"coordinates": [ROWS.view(4, 1, 1), COLUMNS]}, ValueError,
        r"dimension 0 must be of shape n or n x c, got \(4, 1, 1\)"),
    "NaN coordinates": ({"coordinates": [ROWS, with_entry(COLUMNS, math.nan, 2)]}, ValueError,
        "coordinates of dimension 1 must be finite"),
    "nothing": ({"targets": VALUES * math.nan}, ValueError, "at least 2 observed .* 0 of 20"),
    "one cell": ({"targets": with_entry(VALUES * math.nan, 1.0, 1, 1)}, ValueError,
        "at least 2 observed cells, got 1 of 20"),
    "an empty entry": ({"targets": torch.stack([VALUES, VALUES * math.nan])}, ValueError,
        "Every entry of the batch needs at least 2 observed cells, got 0 of 20"),
    "one kernel too few": ({"kernels": [RBFKernel()]}, ValueError,
        "one kernel for each of 2 .*, got 1"),
    "a column too many": ({"kernels": [RBFKernel(), RBFKernel(active_dims=(1,))]}, ValueError,
        r"active_dims of kernels\[1\] .* 1 column\(s\) of its dimension.* got \(1,\)"),
    "no kernel": ({"kernels": [RBFKernel(), torch.nn.Linear(1, 1)]}, TypeError,
        "kernels must be .*, got Linear"),
    "kernel of two outputs": ({"kernels": [RBFKernelGrad(), RBFKernel()]}, ValueError,
        "dimension 0 must have one output per input, got 2"),
    "a joint kernel": ({"kernels": RBFKernel(ard_num_dims=2)}, ValueError,
        "one kernel for each of 2 dimensions, got one RBFKernel"),
    "batch of kernels": ({"kernels": [*of_batch(RBFKernel, 3), RBFKernel()]}, ValueError,
        r"broadcast to the model's, \(\), got \(3,\), \(\)\."),
    "batches that differ": ({"targets": TWO, "kernels": of_batch(RBFKernel, 2, 3)}, ValueError,
        r"broadcast to the model's, \(2,\), got \(2,\), \(3,\)\."),
    "batch of likelihoods": ({"likelihood": of_batch(GaussianLikelihood, 3)[0]}, ValueError,
        r"likelihood must broadcast to the model's, \(\), got \(3,\)"),
    "batch of means": ({"mean_module": of_batch(ConstantMean, 3)[0]}, ValueError,
        r"mean_module must broadcast to the model's, \(\), got \(3,\)"),
    "fixed noise": ({"likelihood": FixedNoiseGaussianLikelihood(torch.ones(20))}, TypeError,
        "GaussianLikelihood, got FixedNoiseGaussianLikelihood"),
    "tolerance": ({"tolerance": 0.0}, ValueError, r"tolerance must be between 0 and 1, got 0\.0"),
    "no tolerance": ({"tolerance": "x"}, TypeError, "tolerance must be a number, got 'x'"),
    "iterations": ({"max_iterations": 0}, ValueError, "max_iterations must be at least 1, got 0"),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD)
def test_bad_arguments_are_rejected_with_what_came(name):
    options, error, match = BAD[name]
    with pytest.raises(error, match=match):
        build(**options)


@pytest.mark.parametrize("dtype", [torch.float32, torch.int64])
def test_coordinates_get_the_dtype_of_the_targets(dtype):
    model = build([ROWS.to(dtype), COLUMNS]).eval()
    torch.testing.assert_close(model.grid_mean(), build().eval().grid_mean())


def test_a_transform_sees_the_observed_cells_of_each_grid_only():
    targets = torch.stack([VALUES, VALUES]) + 2
    targets[0, 0, 0] = math.nan
    mean = build(targets=targets, outcome_transform=Log()).eval().grid_mean()
    alone = build(targets=targets[0], outcome_transform=Log()).eval().grid_mean()
    torch.testing.assert_close(mean[0], alone)


@pytest.mark.parametrize(
    "call, error, match",
    [
        (lambda m: m.predict(VALUES.mT > 0), ValueError, r"of shape \(4, 5\), got .*\(5, 4\)"),
        (lambda m: m.predict(VALUES), ValueError, r"of shape \(4, 5\), got torch\.float64"),
        (lambda m: m.predict([[1]]), ValueError, r"of shape \(4, 5\), got torch\.int64 of shape"),
        (lambda m: m.sample(0), ValueError, "num_samples must be at least 1, got 0"),
        (lambda m: next(m.block_means(VALUES[None, 1:] > 0)), ValueError, r"got shape \(1, 3, 5\)"),
        (lambda m: next(m.block_means((VALUES > 0.5)[None])), ValueError, "have an observed cell"),
    ],
)
def test_bad_arguments_of_predictions(call, error, match):
    with pytest.raises(error, match=match):
        call(build(targets=holed(VALUES, VALUES > 0.5)).eval())


class Indefinite(RBFKernel):
    def forward(self, x1, x2, diag=False, **params):
        return -super().forward(x1, x2, diag=diag, **params)


def test_a_kernel_that_is_no_kernel_is_named_by_its_dimension():
    model = build(kernels=[RBFKernel(), Indefinite()])
    with pytest.raises(NotPSDError, match="Factor 1 of the covariance is not positive semi-def"):
        model.grid_mean()


def test_too_few_iterations_give_a_warning():
    model, _, _ = make((15, 14), 0.3, max_iterations=2)
    model.likelihood.noise = 1e-3
    with pytest.warns(NumericalWarning, match="After 2 conjugate gradient iterations"):
        model.grid_mean()
    with pytest.warns(NumericalWarning, match="After 2 conjugate gradient iterations"):
        model.log_marginal_likelihood()


ODD = {
    "one row": ((1, 9), 0.3),
    "one cell in a dimension of three": ((4, 1, 5), 0.3),
    "two cells of one dimension": ((2,), 0.0),
    "two of many": ((4, 4), 0.8),
}


@pytest.mark.parametrize("name", ODD)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_odd_grids_are_predicted_as_by_dense_matrices(name, dtype):
    shape, share = ODD[name]
    values, missing = torch.randn(shape), torch.rand(shape) < share
    missing.view(-1)[0] = missing.view(-1)[-1] = False
    coordinates = [torch.arange(n, dtype=dtype) / 4 for n in shape]
    model = KroneckerGridGP(coordinates, holed(values.to(dtype), missing), some_kernels(len(shape)))
    move(model)
    whole = torch.ones(shape, dtype=torch.bool)
    found, variance = model.eval().predict(whole)
    assert found.dtype == variance.dtype == dtype
    model = model.double()  # the numbers it stands for
    mean, covariance = dense(
        model, values.to(dtype).double(), missing, all_points(model.coordinates)
    )
    close = {"rtol": 1e-4, "atol": 1e-4} if dtype == torch.float64 else {"rtol": 1e-2, "atol": 1e-2}
    torch.testing.assert_close(found.double(), mean, **close)
    torch.testing.assert_close(variance.double(), covariance.diagonal(), **close)
    assert model.log_marginal_likelihood().isfinite()


@pytest.mark.parametrize("level, batch", [(0.1, ()), (1e7 + 0.1, (2,)), (-3e-9, ())])
def test_a_constant_image_is_continued_and_its_rounding_is_no_signal(level, batch):
    values = torch.full((*batch, 5, 6), level)
    values[..., 1:3, 2:4] = math.nan
    model = build([torch.arange(5.0), torch.arange(6.0)], values).eval()
    mean, variance = model.predict()
    torch.testing.assert_close(mean, torch.full((*batch, 4), level))
    assert (variance > 0).all() and variance.isfinite().all()
