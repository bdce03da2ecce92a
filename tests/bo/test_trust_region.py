import math

import pytest
import torch
from botorch.models import MixedSingleTaskGP, ModelListGP, MultiTaskGP, SingleTaskGP
from botorch.models.transforms import Normalize
from botorch.models.transforms.input import InputPerturbation
from gpytorch.kernels import RBFKernel, ScaleKernel
from torch.testing import assert_close

from gpytorch_nkn.bo import trust_region
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP

BOUNDS = torch.tensor([[-1.0, 0.0, 2.0], [3.0, 1.0, 12.0]], dtype=torch.float64)
WIDTH = BOUNDS[1] - BOUNDS[0]
LENGTHSCALES = torch.tensor([0.2, 0.4, 0.8], dtype=torch.float64)  # of the unit cube
DRAWN = torch.Generator().manual_seed(0)
X = BOUNDS[0] + WIDTH * torch.rand(12, 3, generator=DRAWN, dtype=torch.float64)
Y = -((X - BOUNDS.mean(0)) / WIDTH).square().sum(-1, keepdim=True)

UNIT = (X - BOUNDS[0]) / WIDTH


def rbf_model(inputs=X, values=Y, lengthscales=LENGTHSCALES):
    kernel = RBFKernel(ard_num_dims=3).to(inputs)
    kernel.lengthscale = lengthscales
    scaled = Normalize(d=3, bounds=BOUNDS.to(inputs))
    return SingleTaskGP(inputs, values, covar_module=ScaleKernel(kernel), input_transform=scaled)


def replayed(values, num_initial=3, **options):
    """Length and restarts after these values, whose inputs do not matter."""
    y = torch.tensor(values, dtype=torch.float64)
    inputs = X[:1].expand(len(y), 3)
    found = trust_region(inputs, y, BOUNDS, num_initial=num_initial, **options)
    return found.length, found.restarts


def sides(lengthscales, length=0.8):
    weights = lengthscales.reciprocal()
    mean = ((weights * lengthscales.log()).sum() / weights.sum()).exp()
    return length * lengthscales / mean


def test_a_cube_around_the_best_point_without_a_model():
    region = trust_region(X, Y, BOUNDS, num_initial=12)
    half = 0.4 * WIDTH
    best = X[Y.argmax()]
    assert_close(region.bounds, torch.stack([best - half, best + half]).clamp(*BOUNDS))
    assert (region.length, region.restarts) == (0.8, 0)


@pytest.mark.parametrize("length", [0.8, 0.1])
def test_sides_go_by_the_lengthscales_of_an_rbf_kernel(length):
    inputs = torch.cat([X, BOUNDS.mean(0).expand(12 if length == 0.1 else 0, 3)])
    values = torch.cat([Y, Y.new_zeros(len(inputs) - len(X), 1)])
    values[-1] = 0  # the middle of the space, where no side is cut off
    inputs = torch.cat([inputs, BOUNDS.mean(0, keepdim=True)])
    values = torch.cat([values, values.new_ones(1, 1)])
    after = torch.zeros(9, 1, dtype=values.dtype) if length == 0.1 else values[:0]
    points = torch.cat([inputs, BOUNDS[:1].expand(len(after), 3)])
    values = torch.cat([values, after])
    region = trust_region(
        points,
        values,
        BOUNDS,
        num_initial=len(inputs),
        model=rbf_model(points, values),
        patience=3,
    )
    assert region.length == pytest.approx(length)
    expected = sides(LENGTHSCALES, length).clamp(max=1.0)
    assert_close((region.bounds[1] - region.bounds[0]) / WIDTH, expected)
    assert_close(region.bounds.mean(0), BOUNDS.mean(0))


def test_columns_without_effect_leave_those_that_matter_their_side():
    few = torch.tensor([0.2, 1e3, 1e3], dtype=torch.float64)
    region = trust_region(X, Y, BOUNDS, num_initial=12, model=rbf_model(lengthscales=few))
    best = X[Y.argmax()]
    first = BOUNDS[:, 0]
    expected = torch.stack([best[0] - 1.6, best[0] + 1.6]).clamp(first[0], first[1])
    assert_close(region.bounds[:, 0], expected, rtol=0.02, atol=0.02)
    assert_close(region.bounds[:, 1:], BOUNDS[:, 1:])


def test_the_mean_of_outcomes():
    other = LENGTHSCALES.flip(0)
    model = ModelListGP(rbf_model(), rbf_model(lengthscales=other))
    region = trust_region(X, Y, BOUNDS, num_initial=12, model=model)
    correlations = [(-0.5 * (0.1 / one).square()).exp() for one in (LENGTHSCALES, other)]
    reach = 0.1 / (-2 * torch.stack(correlations).mean(0).log()).sqrt()
    alone = trust_region(X, Y, BOUNDS, num_initial=12, model=rbf_model(lengthscales=reach))
    assert_close(region.bounds, alone.bounds)


def shrunk(inputs, values, bounds, model, length, **options):
    """A region of that length, after losses that the model does not know."""
    count = round(math.log2(0.8 / length))
    later = torch.cat([inputs, inputs[:1].expand(count, -1)])
    worse = torch.cat([values, values.new_full((count, 1), float(values.min()))])
    options = {"num_initial": len(inputs), "patience": 1, "model": model, **options}
    region = trust_region(later, worse, bounds, **options)
    assert region.length == pytest.approx(length)
    return region


@pytest.mark.parametrize("length", [0.8, 0.2, 0.0125])
def test_categories_and_whole_columns_do_not_widen_the_others(length):
    codes = torch.arange(12, dtype=torch.float64) % 3
    inputs = torch.cat([0.3 + 0.4 * UNIT[:, :2], codes.unsqueeze(-1)], -1)
    bounds = torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 2.0]], dtype=torch.float64)
    for model in (
        StructureEnsembleGP(inputs, Y, cat_dims=[2]),
        NKNSingleTaskGP(inputs, Y, cat_dims=[2]),
        MixedSingleTaskGP(inputs, Y, cat_dims=[2]),
        MultiTaskGP(inputs, Y, task_feature=2),
    ):
        region = shrunk(inputs, Y, bounds, model, length)
        assert torch.equal(region.bounds[:, 2], bounds[:, 2])
        widths = (region.bounds[1] - region.bounds[0])[:2]
        assert (widths <= length + 0.01).all()
    short = rbf_model(lengthscales=torch.tensor([0.5, 0.5, 0.02], dtype=torch.float64))
    region = shrunk(X, Y, BOUNDS, short, length, whole=[2])
    assert ((region.bounds[1] - region.bounds[0])[:2] / WIDTH[:2] <= length + 1e-6).all()


def test_input_transforms_with_copies_of_a_point():
    kernel = rbf_model().covar_module
    for count in (2, 4):
        transform = InputPerturbation(torch.zeros(count, 3, dtype=torch.float64))
        model = SingleTaskGP(UNIT, Y, covar_module=kernel, input_transform=transform)
        unit = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
        region = trust_region(UNIT, Y, unit, num_initial=12, model=model)
        plain = SingleTaskGP(UNIT, Y, covar_module=kernel)
        expected = trust_region(UNIT, Y, unit, num_initial=12, model=plain)
        assert_close(region.bounds, expected.bounds)


@pytest.mark.parametrize(
    "model",
    [
        NKNSingleTaskGP(UNIT, Y),
        NKNSingleTaskGP(UNIT, torch.cat([Y, -Y], -1)),
        StructureEnsembleGP(UNIT, Y),
        NKNSingleTaskGP(UNIT, Y, structure="additive", train_Yvar=0.01 * torch.ones_like(Y)),
    ],
    ids=["network", "outputs", "structures", "additive"],
)
@pytest.mark.parametrize("mode", [True, False])
def test_models_of_this_package(model, mode):
    model.train(mode)
    modes = [module.training for module in model.modules()]
    state = torch.random.get_rng_state()
    unit = torch.tensor([[0.0] * 3, [1.0] * 3], dtype=torch.float64)
    region = trust_region(UNIT, Y, unit, num_initial=12, model=model)
    assert [module.training for module in model.modules()] == modes
    assert torch.equal(torch.random.get_rng_state(), state)
    best = UNIT[Y.argmax()]
    assert ((region.bounds[0] < best) & (best < region.bounds[1])).all()
    assert not region.bounds.requires_grad
    # Of columns that were not told apart yet: a cube, but for drawn weights of the primitives.
    half = torch.stack([best - region.bounds[0], region.bounds[1] - best]).amax(0)
    assert_close(half, torch.full_like(half, 0.4), atol=0.05, rtol=0)


def test_grows_after_three_gains_in_a_row():
    assert replayed([0, 1, 2, 3, 4]) == (0.8, 0)
    assert replayed([0, 1, 2, 3, 4, 5]) == (1.6, 0)
    assert replayed([0, 1, 2, 3, 4, 4, 5, 6]) == (0.8, 0)
    assert replayed([0, 1, 2, *range(3, 12)]) == (1.6, 0)  # and no further


def test_shrinks_after_as_many_losses_as_it_has_patience():
    assert replayed([0, 1, 2, 0, 0, 0]) == (0.8, 0)
    assert replayed([0, 1, 2, 0, 0, 0, 0]) == (0.4, 0)  # four at least, of three columns
    assert replayed([0, 1, 2, 0, 0, 0, 3, 0]) == (0.8, 0)
    assert replayed([0, 1, 2, 0, 0], patience=1) == (0.2, 0)
    assert replayed([0, 1, 2] + [0] * 8, q=2) == (0.2, 0)
    # of an iteration that is not complete only a better value counts
    assert replayed([0, 1, 2] + [0] * 5, q=4, patience=1) == (0.4, 0)
    assert replayed([0, 1, 2, 3, 0, 4, 0, 5], q=2) == (1.6, 0)
    wide = torch.zeros(10 + 20, 20, dtype=torch.float64)
    bounds = torch.tensor([[0.0] * 20, [1.0] * 20], dtype=torch.float64)
    assert trust_region(wide[:-1], wide[:-1, 0], bounds, num_initial=10).length == 0.8
    assert trust_region(wide, wide[:, 0], bounds, num_initial=10).length == 0.4


def test_a_gain_counts_from_a_thousandth_of_the_distance_to_the_median():
    assert replayed([0, 1, 2, 2.0005, 0, 0, 0]) == (0.4, 0)
    assert replayed([0, 1, 2, 2.002, 0, 0, 0]) == (0.8, 0)


@pytest.mark.parametrize(("scale", "offset"), [(1e6, 0.0), (1e-6, 0.0), (1.0, -1e4), (7.0, 1e4)])
def test_units_of_the_values_do_not_matter(scale, offset):
    drawn = torch.randn(60, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    values = drawn + torch.linspace(0, 3, 60, dtype=torch.float64)
    other = offset + scale * values
    assert replayed(values.tolist(), patience=2) == replayed(other.tolist(), patience=2)


def test_vanishes_and_begins_anew():
    assert replayed([0, 1, 2] + [0] * 6, patience=1) == (0.8 * 0.5**6, 0)
    assert replayed([0, 1, 2] + [0] * 7, patience=1) == (0.8, 1)
    assert replayed([0, 1, 2] + [0] * 15, patience=1) == (0.4, 2)


def test_failed_trials_are_no_gain_and_never_the_centre():
    nan = math.nan
    assert replayed([0, 1, nan, nan, nan, nan, nan]) == (0.4, 0)
    assert replayed([nan, nan, nan, 1.0, 2.0, 3.0]) == (1.6, 0)
    values = Y.clone()
    values[Y.argmax()] = nan
    region = trust_region(X, values, BOUNDS, num_initial=12)
    second = X[Y[:, 0].topk(2).indices[1]]
    half = 0.4 * WIDTH
    assert_close(region.bounds, torch.stack([second - half, second + half]).clamp(*BOUNDS))
    region = trust_region(X, torch.full_like(Y, nan), BOUNDS, num_initial=12)
    assert torch.equal(region.bounds, BOUNDS)


@pytest.mark.parametrize(
    ("change", "error", "message"),
    [
        ({"X": X[0]}, ValueError, "X must be N x D and finite"),
        ({"X": X / 0}, ValueError, "X must be N x D and finite"),
        ({"X": X.long()}, TypeError, "X must be a tensor of floating-point numbers"),
        ({"Y": Y[:3]}, ValueError, "Y must be 12 or 12 x 1 values"),
        ({"Y": Y / 0}, ValueError, "with infinite values"),
        ({"bounds": BOUNDS[:, :2]}, ValueError, "bounds must be 2 x 3"),
        ({"bounds": BOUNDS.flip(0)}, ValueError, "lower and upper ones"),
        ({"bounds": BOUNDS / torch.tensor([[1.0], [0.0]])}, ValueError, "bounds must be finite"),
        ({"num_initial": 0}, ValueError, "num_initial must be at least 1"),
        ({"num_initial": 13}, ValueError, "num_initial must be at most 12"),
        ({"q": 0}, ValueError, "q must be at least 1"),
        ({"patience": 1.5}, TypeError, "patience must be an integer"),
        ({"whole": [3]}, ValueError, r"must be some of 3, got \[3\]"),
        ({"whole": [0.5]}, TypeError, "whole must be numbers of columns"),
        ({"whole": 2}, TypeError, "whole must be numbers of columns, got 2"),
        ({"model": torch.nn.Linear(1, 1)}, TypeError, "must have a covar_module"),
    ],
)
def test_errors(change, error, message):
    arguments = {"X": X, "Y": Y, "bounds": BOUNDS, "num_initial": 12, **change}
    with pytest.raises(error, match=message):
        trust_region(arguments.pop("X"), arguments.pop("Y"), arguments.pop("bounds"), **arguments)
