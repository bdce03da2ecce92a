import numpy as np
import pandas as pd
import pytest
import torch
from botorch.models import SingleTaskGP
from botorch.models.transforms.input import Normalize
from botorch.models.transforms.outcome import ChainedOutcomeTransform, Log, Standardize
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import PeriodicKernel, RBFKernel
from gpytorch.likelihoods import GaussianLikelihoodWithMissingObs
from gpytorch.models import ApproximateGP
from gpytorch.variational import CholeskyVariationalDistribution, VariationalStrategy

from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.interpretation import expand
from gpytorch_nkn.interpretation.source import fitted_gp, source_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import NKNSingleTaskGP, SparseNKNGP
from tests.interpretation.small_models import GP, forecaster
from tests.models.registry import spectral

X = 3 + 10 * torch.rand(20, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = (200 + 40 * X[:, :1].sin() + X[:, 1:]).double()


def rbf(*lengthscales):
    kernel = RBFKernel(ard_num_dims=len(lengthscales))
    kernel.lengthscale = torch.tensor(lengthscales)
    return kernel


# --- units -------------------------------------------------------------------------------------


def test_lengthscales_of_a_botorch_model_are_printed_in_raw_units():
    kernel = rbf(0.5, 0.25)
    model = SingleTaskGP(
        X, Y, covar_module=kernel, input_transform=Normalize(2), outcome_transform=Standardize(1)
    )
    ranges = X.max(0).values - X.min(0).values
    (term,) = expand(model).terms
    expected = ", ".join(f"{v:#.3g}" for v in (0.5 * ranges[0], 0.25 * ranges[1]))
    assert term.label == f"RBF[x0, x1]({expected})"
    units = fitted_gp(model).units
    np.testing.assert_allclose(units.x_scale, ranges.numpy(), rtol=1e-9)
    np.testing.assert_allclose(units.x_offset, X.min(0).values.numpy(), rtol=1e-9)
    assert units.y_offset == pytest.approx(Y.mean().item(), rel=1e-12)
    assert units.y_scale == pytest.approx(Y.std().item(), rel=1e-9)


def test_a_transform_that_is_not_affine_has_no_components():
    tiny = ChainedOutcomeTransform(log=Log(), scaled=Standardize(1))
    for scale, transform in ((1e-9, tiny), (1.0, Log())):
        model = SingleTaskGP(X, scale * Y, outcome_transform=transform)
        with pytest.raises(ValueError, match="outcome transform .* is not affine"):
            fitted_gp(model)
    assert source_of(model).kernel is model.covar_module  # its terms have no unit of the outcomes


@pytest.fixture(scope="module")
def dates():
    return pd.date_range("2001-01-01", periods=60, freq="MS")


@pytest.fixture(scope="module")
def by_date(dates):
    time = np.arange(60)
    return forecaster(dates, 300 + 0.2 * time + 5 * np.sin(2 * np.pi * time / 12))


def test_a_forecaster_over_dates_counts_in_years(by_date, dates):
    source = source_of(by_date)
    assert source.units.x_unit == "yr"
    assert source.units.x_scale[0] == pytest.approx(np.arange(len(dates)).std() / 12)
    expansion = expand(by_date)
    label = next(term.label for term in expansion.terms if "PER" in term.label)
    assert " yr" in label
    factors = [f for t in expansion.terms for f in t.factors if isinstance(f, PeriodicKernel)]
    assert not factors  # all of them are split
    assert fitted_gp(by_date).to_inputs(dates[:3]).flatten().tolist() == pytest.approx(
        source.inputs[:3, 0].tolist()
    )
    torch.testing.assert_close(
        expand(by_date, dates[:10]).evaluate(source.inputs), expansion.evaluate(source.inputs)
    )
    with pytest.raises(TypeError, match="fitted over dates, got numbers"):
        expand(by_date, np.arange(3.0))


def test_a_forecaster_over_numbers():
    time = 100 + 2 * np.arange(40.0)
    made = forecaster(time, np.exp(1 + np.sin(time)), transform="log")
    kernel = made.model_.covar_module
    lengthscale = kernel.primitives[0].lengthscale.item() * time.std()
    labels = {term.label for term in expand(made, merge=False, split=False).terms}
    assert any(f"RBF({lengthscale:#.3g}".rstrip(".") in label for label in labels)
    with pytest.raises(TypeError, match="fitted over numbers, got dates"):
        expand(made, pd.date_range("2001-01-01", periods=3))


# --- what there is to read ---------------------------------------------------------------------


def test_models_records_and_estimators(by_date):
    model = GP(X, Y[:, 0], NeuralKernelNetwork.additive(2))
    record = fit_best_of(model, restarts=1, budget=1.0, seed=0)
    assert source_of(record).kernel is source_of(model).kernel is model.covar_module
    assert str(expand(record)) == str(expand(model))
    assert source_of(by_date).kernel is by_date.model_.covar_module


# --- errors ------------------------------------------------------------------------------------


class Variational(ApproximateGP):
    def __init__(self):
        points = X[:3]
        super().__init__(VariationalStrategy(self, points, CholeskyVariationalDistribution(3)))
        self.covar_module = RBFKernel()


class Doubled(GP):
    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x) * 2)


class WithoutKernel(GP):
    def __init__(self, x, y):
        super().__init__(x, y, None)
        self.own = RBFKernel()

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.own(x))


@pytest.mark.parametrize("function", [source_of, fitted_gp])
def test_unknown_objects(function):
    for thing in ("model", Variational(), 3):
        with pytest.raises(TypeError, match=f"Expected a kernel.*got {type(thing).__name__}"):
            function(thing)
    with pytest.raises(ValueError, match="NKNForecaster is not fitted"):
        function(NKNForecaster())
    with pytest.raises(ValueError, match="no training data"):
        function(GP(None, None, RBFKernel()))
    with pytest.raises(TypeError, match="with a covar_module, got WithoutKernel"):
        function(WithoutKernel(X, Y[:, 0]))
    two = GP([X, X], Y[:, 0], RBFKernel())
    with pytest.raises(ValueError, match="integer index of the task, got 2 tensors"):
        function(two)


def test_processes_that_do_not_split():
    with pytest.raises(TypeError, match="A kernel alone has no posterior.*got RBFKernel"):
        fitted_gp(RBFKernel())
    with pytest.raises(ValueError, match="model's forward must return the covariance of its"):
        fitted_gp(Doubled(X, Y[:, 0], RBFKernel()))
    missing = torch.where(Y[:, 0] > 200, torch.nan, Y[:, 0])
    model = GP(X, missing, RBFKernel(), GaussianLikelihoodWithMissingObs())
    with pytest.raises(ValueError, match="training targets must be finite"):
        fitted_gp(model)
    for model in (SparseNKNGP(X, Y, inducing_points=4), spectral(X, Y, rbf="points")):
        name = type(model).__name__
        with pytest.raises(TypeError, match=f"exact GP, got {name} with inducing points: fit"):
            fitted_gp(model)
    fitted_gp(NKNSingleTaskGP(X[:10], Y[:10]))  # as advised


def test_inputs_that_do_not_fit():
    model = SingleTaskGP(X, Y)
    for function in (lambda x: source_of(model, x), fitted_gp(model).to_inputs):
        with pytest.raises(ValueError, match=r"x must be ... x . x 2, got shape \(4, 3\)"):
            function(torch.ones(4, 3))
        with pytest.raises(ValueError, match="NaN or infinite"):
            function(torch.tensor([[0.0, torch.nan]]))
