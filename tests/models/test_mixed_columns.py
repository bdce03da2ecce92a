"""Models of numbers and categories, beside BoTorch's MixedSingleTaskGP."""

import pickle
from copy import deepcopy

import pytest
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import MixedSingleTaskGP
from botorch.models.transforms import Normalize, Round
from botorch.models.transforms.input import FilterFeatures
from botorch.optim import optimize_acqf_mixed
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP


class Collapse(Round):
    """All categories are the same."""

    def transform(self, X):
        return torch.cat([X[..., :2], 0 * X[..., 2:]], -1)


MODELS = [NKNSingleTaskGP, StructureEnsembleGP]
CODES = torch.tensor([0.0, 2.0, 5.0])


def function(x):
    """The last column shifts the effect of the first one, and turns that of the second."""
    place = (x[..., 2:] == CODES).double()
    shift, sign = place @ torch.tensor([0.0, 0.7, -0.4]), place @ torch.tensor([1.0, 1.0, -1.0])
    return ((5 * x[..., 0]).sin() + shift + sign * x[..., 1])[..., None]


def points(rows, seed=0):
    generator = torch.Generator().manual_seed(seed)
    x = torch.rand(rows, 3, generator=generator, dtype=torch.float64)
    x[:, 2] = CODES[torch.randint(3, (rows,), generator=generator)]
    return x


def fitted(model):
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    fit_gpytorch_mll(mll, max_iterations=20)
    return model


def mean_of(posterior):
    return getattr(posterior, "mixture_mean", posterior.mean)


@pytest.fixture(scope="module")
def trained():
    x = points(40)
    return {cls: fitted(cls(x, function(x), cat_dims=[-1])) for cls in MODELS}


@pytest.mark.parametrize("cls", MODELS)
def test_other_codes_give_the_same_model(cls, trained):
    def recoded(x):
        x = x.clone()
        x[:, 2] = 9 - 3 * x[:, 2]
        return x

    x, test = points(40), points(20, seed=2)
    model = cls(recoded(x), function(x), cat_dims=(2,))
    model.load_state_dict(trained[cls].state_dict())
    if cls is StructureEnsembleGP:
        model.set_weights(trained[cls].weights)
    with torch.no_grad():
        expected = trained[cls].posterior(test)
        found = model.eval().posterior(recoded(test))
    torch.testing.assert_close(mean_of(found), mean_of(expected))


@pytest.mark.parametrize("cls", MODELS)
def test_the_best_point_of_each_category_is_searched(cls, trained):
    x, y = points(40), function(points(40))
    best, value = optimize_acqf_mixed(
        LogExpectedImprovement(trained[cls], best_f=y.max()),
        torch.tensor([[0.0, 0.0, 0.0], [1.0, 1.0, 5.0]]).to(x),
        q=1,
        num_restarts=2,
        raw_samples=16,
        fixed_features_list=[{2: code} for code in CODES.tolist()],
        options={"maxiter": 20},
    )
    # the maximum: 2.7 at x_0 = .31, x_1 = 1 and the second category
    assert best[0, 2] == 2.0 and best[0, 1] > 0.8 and abs(best[0, 0] - 0.31) < 0.1


@pytest.mark.parametrize("cls", MODELS)
def test_input_transforms_leave_codes_alone(cls, trained):
    x, scale = points(40), torch.tensor([10.0, 0.1, 1.0])
    transform = Normalize(3, indices=[0, 1])
    model = cls(scale * x, function(x), cat_dims=[2], input_transform=transform)
    assert model.posterior(scale * x[:2]).mean.isfinite().all()
    other = cls(scale * x, function(x), cat_dims=[2], input_transform=Normalize(3))
    posteriors = [one.eval().posterior(scale * x[:5]).mean for one in (model, other)]
    torch.testing.assert_close(*posteriors)
    for transform in (Collapse(integer_indices=[2]), FilterFeatures(torch.tensor([0, 1]))):
        with pytest.raises(ValueError, match="merge the categories of column 2, got"):
            cls(x, function(x), cat_dims=[2], input_transform=transform)


@pytest.mark.parametrize("cls", MODELS)
def test_codes_are_integers(cls):
    x = points(10)
    x[3, 2] = 0.25
    with pytest.raises(ValueError, match=r"\(2,\) of train_X must contain integer codes, got 0.25"):
        cls(x, function(x), cat_dims=[2])


@pytest.mark.parametrize("cls", MODELS)
def test_copies_know_their_columns(cls, trained):
    x = points(5, seed=3).requires_grad_()  # kernels with kept parameters are copied, too
    expected = trained[cls].posterior(x).mean
    for copied in (deepcopy(trained[cls]), pickle.loads(pickle.dumps(trained[cls]))):
        torch.testing.assert_close(copied.posterior(x).mean, expected)
        assert copied.cat_dims == (2,)


def test_several_outcomes_and_a_warm_start():
    x = points(16)
    y = torch.cat([function(x), -function(x)], -1)
    first = fit_bo_model(NKNSingleTaskGP(x[:12], y[:12], cat_dims=[2]), max_iterations=2)
    second = NKNSingleTaskGP(x, y, cat_dims=[2])
    second.load_state_dict(first.state_dict())
    fit_bo_model(second, fresh_starts=0, max_iterations=2)
    alone = second.subset_output([1])
    assert alone.cat_dims == (2,)
    torch.testing.assert_close(
        alone.posterior(x[:4]).mean[:, 0], second.posterior(x[:4]).mean[:, 1]
    )


def test_the_rbf_structure_is_botorchs_kernel_without_priors_on_scales():
    x = points(12)
    model = StructureEnsembleGP(x, function(x), cat_dims=[2], structures=["rbf"])
    model.eval()
    (kernel,) = model.covar_module.kernels
    assert {type(part).__name__ for _, part, *_ in kernel.named_priors()} == {
        "CategoricalKernel",
        "RBFKernel",
    }
    first, own, product = kernel.base_kernel.primitives
    kernel.outputscale = 30.0  # far from where the prior of other columns draws it
    (weights,) = kernel.base_kernel.layers[0].weight.tolist()
    theirs = MixedSingleTaskGP(x, function(x), cat_dims=[2]).covar_module
    total, joint = theirs.kernels
    total.outputscale, joint.outputscale = 30.0 * weights[0], 30.0 * weights[2]
    total.base_kernel.kernels[1].outputscale = weights[1] / weights[0]
    pairs = [
        (first, total.base_kernel.kernels[0]),
        (own, total.base_kernel.kernels[1].base_kernel),
        *zip(product.kernels, joint.base_kernel.kernels, strict=True),
    ]
    for number, (ours, other) in enumerate(pairs):
        ours.lengthscale = other.lengthscale = 0.4 + 0.3 * number
    torch.testing.assert_close(kernel(x).to_dense(), theirs(x).to_dense())
