"""Advice in messages of errors and warnings works: each is provoked, and its advice followed."""

import ast
import contextlib
import inspect
import re
import warnings
from functools import partial
from itertools import product
from pathlib import Path
from unittest import mock

import botorch.acquisition as acq
import numpy as np
import pandas as pd
import pytest
import torch
from botorch.acquisition.monte_carlo import qPosteriorStandardDeviation
from botorch.acquisition.multi_objective import qMultiFidelityHypervolumeKnowledgeGradient
from botorch.acquisition.multi_step_lookahead import qMultiStepLookahead
from botorch.cross_validation import CVFolds, batch_cross_validation
from botorch.exceptions import InputDataWarning
from botorch.generation import MaxPosteriorSampling
from botorch.models import AffineFidelityCostModel, ModelListGP, MultiTaskGP, SingleTaskGP
from botorch.models.transforms import Log, Normalize, Warp
from botorch.sampling import SobolQMCNormalSampler
from botorch.sampling.pathwise import draw_kernel_feature_paths
from gpytorch.kernels import AdditiveStructureKernel, Kernel, RBFKernel
from gpytorch.likelihoods import LaplaceLikelihood, StudentTLikelihood
from gpytorch.means import Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.settings import min_variance
from sklearn.compose import make_column_transformer
from sklearn.multioutput import MultiOutputClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, OrdinalEncoder

import gpytorch_nkn
from gpytorch_nkn import bo, mlls, models
from gpytorch_nkn.datasets import read_time_series
from gpytorch_nkn.estimators import ASKLRegressor, DANKClassifier, NKNForecaster, NKNRegressor
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.initialization import initialize_model
from gpytorch_nkn.interpretation import decompose, effects, expand, report, report_search, simplify
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear
from gpytorch_nkn.models.grid import kronecker_grid_gp
from tests.fit.models import SmallGP
from tests.test_pages import make_quick
from tests.test_structure import parse

ROOT = Path(gpytorch_nkn.__file__).parent
VERBS = """add ask call choose convert create draw drop encode fit forecast freeze give
    keep leave let make maximise name pass predict raise read save see select set subtract take
    train transform unfreeze use write""".split()
# An imperative behind a colon, a semicolon, a full stop or a comma.
ADVICE = re.compile(rf"[;:.,] (or )?({'|'.join([*VERBS, *(v.title() for v in VERBS)])})\b")

FOLLOWED = {}  # the functions below, by words of a message
ELSEWHERE = {  # words of a message, and the test that provokes it and follows its advice
    "fit an NKNSingleTaskGP to a subset of the rows": "interpretation/test_source.py",
    "add rows without a target": "test_cli.py",
    "name them (--covariates)": "datasets/test_csv_series.py",
    "another table begins": "datasets/test_csv_series.py",
    "had no covariates": "estimators/series/test_forecasts_with_covariates.py",
    "repeat a time": "estimators/series/test_many_series.py",
    "dates such as 2024": "estimators/series/test_many_series.py",
    "If the zone is known": "estimators/series/test_series_input.py",
    "use tz_localize or tz_convert": "estimators/series/test_series_input.py",
    "no structure can be resolved": "estimators/series/test_nkn_forecaster.py",
    "as botorch_model_class": "ax/test_registration.py",
    "without covariates: use decompose": "interpretation/test_effects.py",
    "in place of horizon": "interpretation/test_covariates.py",
    "may be values: name it": "datasets/test_csv_series.py",
    "The target may be any of": "datasets/test_csv_series.py",
    "an unusual character, name it": "datasets/test_csv_series.py",
    "name another column": "datasets/test_csv_series.py",
    "is not text in": "datasets/test_csv_series.py",
    "a thousands separator: set": "datasets/test_csv_series.py",
    "may be {} or {}: set": "datasets/test_csv_series.py",
    "convert it by pandas.to_": "estimators/nkn/test_table_times.py",
    "drop such rows from X and y": "estimators/nkn/test_table_times.py",
    "convert times to days": "estimators/nkn/test_table_times.py",
    "make it a pandas.DataFrame": "estimators/nkn/test_table_times.py",
    "matched by position: if this is wrong, call X": "estimators/test_odd_tables.py",
    "divide it by a constant": "estimators/test_odd_tables.py",
    "only in type or spaces: convert it as in fit": "estimators/nkn/test_table_columns.py",
    "they held numbers in fit; convert": "estimators/nkn/test_table_times.py",
    "convert them, e.g. by y.astype(str)": "estimators/nkn/test_nkn_classifier.py",
    "make categories by .astype(str)": "estimators/test_odd_tables.py",
    "give counts and their exposure in place of rates": "estimators/nkn/test_counts.py",
    "leave y_transform and y_bounds out": "estimators/nkn/test_counts.py",
    "leave it out": "estimators/nkn/test_counts.py",
    "needs Gaussian noise, got a": "models/sparse/test_variational_nkn_gp.py",
    "needs an affine outcome_transform": "models/sparse/test_variational_nkn_gp.py",
    "use report_search or effects": "interpretation/test_ensembles.py",
    "use effects(model) or report_search(model)": "interpretation/test_ensembles.py",
    "has a process for each class: use effects or report": "interpretation/test_class_averages.py",
    "A report on a probability has no": "interpretation/test_class_averages.py",
    "label is the class of a classifier": "interpretation/test_class_averages.py",
    "pass x, the inputs over which shares are averaged": "interpretation/expansion/test_expand.py",
    "Use a smoother kernel, such as": "kernels/test_gradient_kernel.py",
    "use the network as base kernel": "kernels/network/test_neural_kernel_network.py",
    "call its constructor with the coordinates": "models/contract.py",
    "drop ic_generator": "bo/test_initial_conditions.py",
    "or select columns by active_dims": "kernels/network/test_presets.py",
    "select one by active_dims": "kernels/test_contract.py",
    "use rank 0": "interpretation/test_long_form.py",
    "use restarts=1, initialize='data' or a function that draws": "fit/test_best_of.py",
    "use a BernoulliLikelihood and one-hot targets": "models/test_laplace_gp.py",
    "give it the indices of other columns": "models/test_mixed_columns.py",
    "give the network active_dims to omit them": "models/test_nkn_single_task_gp.py",
    "pass x to posterior() instead": "interpretation/reporting/test_honesty.py",
    "Predict this value, as forecast_many": "estimators/test_odd_tables.py",
    "known times are dates within such periods: pass dates": "estimators/series/test_time_axis.py",
    "give one of them": "estimators/series/test_nkn_forecaster.py",
    "select one, as by frame.set_index(": "estimators/series/test_nkn_forecaster.py",
}
X = torch.rand(12, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X.sin().sum(-1, keepdim=True)
SHORT = Recipe(adam_steps=0, lbfgs_iterations=2)
QUICK = {"max_iterations": 2, "progress": False}


def messages():
    """File, line and text of every error and warning that advises."""
    for path in sorted(ROOT.rglob("*.py")):
        for node in ast.walk(parse(path.read_text("utf-8"))):
            call = node.exc if isinstance(node, ast.Raise) else node
            if not isinstance(call, ast.Call):
                continue
            name = getattr(call.func, "id", getattr(call.func, "attr", ""))
            if call is node and name not in ("warn", "warn_user"):
                continue
            parts = [p for a in call.args for p in getattr(a, "values", [a])]
            texts = [p.value if isinstance(p, ast.Constant) else "{}" for p in parts]
            text = "".join(map(str, texts))
            if ADVICE.search(text):
                yield path.relative_to(ROOT).as_posix(), node.lineno, text


def advice(words):
    def register(follow):
        assert words not in FOLLOWED
        FOLLOWED[words] = follow
        return follow

    return register


def test_every_advice_is_followed_by_a_test():
    unknown, used = [], set()
    for file, line, text in messages():
        own = {words for words in FOLLOWED | ELSEWHERE if words in text}
        used |= own
        if not own:
            unknown.append(f"{file}:{line}: {text}")
    assert not unknown, "\n".join(unknown)
    assert used == FOLLOWED.keys() | ELSEWHERE.keys()
    for words, test in ELSEWHERE.items():
        assert (Path(__file__).parent / test).exists(), words


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize("advised", FOLLOWED)
def test_advice_works(advised, tmp_path, monkeypatch):
    make_quick(monkeypatch)
    follow = FOLLOWED[advised]

    @contextlib.contextmanager
    def told():
        words = re.escape(advised).replace(r"\ ", r"\s+")
        with pytest.raises(Exception) as caught, warnings.catch_warnings():
            warnings.filterwarnings("error", message=f"(?s).*{words}")
            yield
        assert re.sub(r"\s", "", advised) in re.sub(r"\s", "", str(caught.value))

    torch.manual_seed(0)
    follow(told, *([tmp_path] if len(inspect.signature(follow).parameters) > 1 else []))


def mll_of(model):
    return ExactMarginalLogLikelihood(model.likelihood, model)


# --- kernels, models


@advice("create the kernel for one column")
def _(told):
    with told():
        AdditiveStructureKernel(NeuralKernelNetwork.additive(2), num_dims=2)(X.float()).to_dense()
    AdditiveStructureKernel(NeuralKernelNetwork.additive(1), num_dims=2)(X.float()).to_dense()


@advice("give train_Y in a larger unit, or predict under")
def _(told):
    with told():
        models.NKNSingleTaskGP(X, 1e-6 * Y)
    deviations = []
    for unit, least in ((1e-6, 1e-10), (1e-6, 1e-20), (1.0, 1e-10)):
        torch.manual_seed(0)
        model = models.NKNSingleTaskGP(X, unit * Y)
        with min_variance(double_value=least):
            deviations.append(model.posterior(X).variance.sqrt() / unit)
    assert (deviations[0] > 2 * deviations[2]).any()
    torch.testing.assert_close(deviations[1], deviations[2], rtol=1e-3, atol=1e-6)


@advice("pass input_transform=Normalize(d)")
def _(told):
    far = torch.cat([1e6 + 100 * X, torch.arange(12).view(-1, 1) % 2], -1)
    for make, x in (
        (partial(models.SparseNKNGP, inducing_points=4), far[:, :2]),
        (partial(models.VariationalNKNGP, inducing_points=4), far[:, :2]),
        (partial(models.NKNMultiTaskGP, task_feature=2), far),
    ):
        with told():
            make(x, Y)
        with warnings.catch_warnings():
            warnings.simplefilter("error", InputDataWarning)
            transform = Normalize(x.size(-1), indices=[0, 1])
            model = make(x, Y, input_transform=transform)
        assert model.posterior(x).mean.isfinite().all()


@advice("use qLogNoisyExpectedImprovement (qLogNEI)")
def _(told):
    model = models.StructureEnsembleGP(X, Y, torch.full_like(Y, 1e-4))
    with told():
        acq.LogNoisyExpectedImprovement(model, X)
    acquisition = acq.qLogNoisyExpectedImprovement(model, X, prune_baseline=False)
    assert acquisition(X[:3, None]).isfinite().all()


@advice("does not support ensembles: use")
def _(told):
    cost = acq.InverseCostWeightedUtility(AffineFidelityCostModel({1: 1.0}))
    options = {"num_fantasies": 2, "current_value": Y.max(), "cost_aware_utility": cost}
    options_of_list = {**options, "num_pareto": 2, "ref_point": Y.new_zeros(2)}
    options_of_list["target_fidelities"] = {1: 1.0}
    few = {"num_restarts": 1, "raw_samples": 4, "bounds": torch.stack([X[0] * 0, X[0] * 0 + 1])}
    calls = (
        lambda m: acq.qMultiFidelityKnowledgeGradient(m, **options),
        lambda m: qMultiFidelityHypervolumeKnowledgeGradient(ModelListGP(m, m), **options_of_list),
        lambda m: qMultiStepLookahead(m, batch_sizes=[1], num_fantasies=[2]),
        lambda m: partial(acq.qKnowledgeGradient(m, num_fantasies=2).evaluate, **few),
        MaxPosteriorSampling,
    )
    ensemble, instead = models.StructureEnsembleGP(X, Y), models.NKNSingleTaskGP(X, Y)
    for make, q in zip(calls, (3, 5, 4, 2, 6), strict=True):
        points = X[:q].repeat(ensemble.num_members, 1, 1)  # as many points as members
        with told():
            make(ensemble.eval())(points)
        assert make(instead.eval())(points).isfinite().all()
    with told():
        acq.PosteriorStandardDeviation(ensemble)(points[:, :1])
    assert (qPosteriorStandardDeviation(ensemble)(points) > 0).all()
    deltas = Y.new_ones(ensemble.num_members, ensemble.num_members)
    objective = acq.GenericMCObjective(lambda y, X=None: y.exp()[..., 0])
    for costs, use_mean in product((lambda m: m, lambda m: ModelListGP(m, m)), (True, False)):
        makes = partial(acq.InverseCostWeightedUtility, use_mean=use_mean, cost_objective=objective)
        given = points[:, :1], deltas, SobolQMCNormalSampler(deltas.shape[:1])
        with told():
            makes(costs(ensemble))(*given)
        assert makes(costs(instead))(*given).isfinite().all()


# --- fit, bo, initialization


@advice("number the tasks from 0, or use NKNMultiTaskGP")
def _(told):
    tasks = torch.arange(12)[:, None] % 2
    with told():
        decompose(MultiTaskGP(torch.cat([X, 5 + tasks], -1), Y, task_feature=-1))
    decompose(MultiTaskGP(torch.cat([X, tasks], -1), Y, task_feature=-1))
    decompose(models.NKNMultiTaskGP(torch.cat([X, 5 + tasks], -1), Y, task_feature=-1))


@advice("use a StudentTLikelihood, or a VariationalNKNGP")
def _(told):
    with told():
        models.LaplaceGP(X, Y[:, 0], LaplaceLikelihood(), ZeroMean(), RBFKernel())
    model = models.LaplaceGP(X, Y[:, 0], StudentTLikelihood(), ZeroMean(), RBFKernel()).double()
    fit_best_of(model, restarts=1, recipe=SHORT)
    model = models.VariationalNKNGP(X, Y, likelihood=LaplaceLikelihood(), inducing_points=5)
    assert models.fit_variational_gp(model, epochs=1).eval()(X).mean.isfinite().all()


@advice("create the model from detached data")
def _(told):
    scale = torch.ones((), dtype=torch.float64, requires_grad=True)
    with told():
        fit_best_of(SmallGP(scale * X, Y[:, 0], RBFKernel()).double())
    fit_best_of(SmallGP((scale * X).detach(), Y[:, 0], RBFKernel()).double(), recipe=SHORT)


class TwoInputs(SmallGP):
    def forward(self, one, two):
        return super().forward(one + two)


@advice("Set the start values with your own function")
def _(told):
    model = TwoInputs((X, X), Y[:, 0], RBFKernel()).double()
    with told():
        initialize_model(model)

    def start(model, seed, restart):
        model.covar_module.lengthscale = 0.5 + restart

    fit_best_of(model, restarts=2, initialize=start, recipe=SHORT)


@advice("give each model its own kernel")
def _(told):
    kernel = RBFKernel()
    with told():
        bo.fit_bo_model(ModelListGP(*(SingleTaskGP(X, Y, covar_module=kernel) for _ in "12")))
    own = ModelListGP(*(SingleTaskGP(X, Y, covar_module=RBFKernel()) for _ in "12"))
    bo.fit_bo_model(own, fresh_starts=0, max_iterations=2)


# --- kernels, layers, likelihoods


@advice("convert the network (.double(), .float()) or the inputs")
def _(told):
    network, x = NeuralKernelNetwork([RBFKernel()], [Linear(1, 1)]).float(), torch.rand(4, 1)
    x = x.double()
    with told():
        network(x).to_dense()
    network(x.float()).to_dense()
    network.double()(x).to_dense()


@advice("use gpytorch.mlls.ExactMarginalLogLikelihood")
def _(told):
    def second(mll_class):
        model = SmallGP(X, Y[:, 0], RBFKernel()).double()
        mll = mll_class(model.likelihood, model)
        raw = model.likelihood.raw_noise
        (slope,) = torch.autograd.grad(mll(model(X), Y[:, 0]), raw, create_graph=True)
        torch.autograd.grad(slope.sum(), raw)

    with told():
        second(mlls.AnalyticExactMarginalLogLikelihood)
    second(ExactMarginalLogLikelihood)


# --- models


class Bowl(Mean):
    def __init__(self, *batch_shape):
        super().__init__()
        self.register_parameter("curvature", torch.nn.Parameter(torch.ones(*batch_shape, 1)))

    def forward(self, x):
        return self.curvature * x.square().sum(-1)


class Flat(Bowl):
    """One that takes no batch."""

    def forward(self, x):
        return self.curvature.sum() * x.square().sum(-1)


@advice("freeze it by requires_grad_(False), or give it")
def _(told):
    model = models.StructureEnsembleGP(X, Y, structures=("rbf",), num_members=2)
    model.mean_module = Flat().double()
    with told():
        models.fit_structure_ensemble_gp(model, **QUICK)
    for mean in (Flat().requires_grad_(False), Bowl(2)):
        model.mean_module = mean.double()
        models.fit_structure_ensemble_gp(model, **QUICK)


@advice("freeze them by input_transform.requires_grad_(False)")
def _(told):
    warp = Warp(d=2, indices=[0])
    with told():
        models.VariationalNKNGP(X, Y, inducing_points=3, input_transform=warp)
    warp.requires_grad_(False)
    model = models.VariationalNKNGP(X, Y, inducing_points=3, input_transform=warp)
    assert model.posterior(X).mean.isfinite().all()


@advice("unfreeze them by model.requires_grad_(True)")
def _(told):
    model = models.VariationalNKNGP(X, Y, inducing_points=3)
    model.strategy._variational_distribution.requires_grad_(False)
    with told():
        models.fit_variational_gp(model, epochs=1, progress=False)
    models.fit_variational_gp(model.requires_grad_(True), epochs=1, progress=False)


@advice("use one model per output in a ModelListGP")
def _(told):
    two = torch.cat([Y, -Y], -1)
    with told():
        models.StructureEnsembleGP(X, two)
    both = [models.StructureEnsembleGP(X, y, structures=("rbf",)) for y in two.split(1, -1)]
    assert ModelListGP(*both).posterior(X[:3]).mean.shape[-1] == 2


@advice("transform train_Y beforehand")
def _(told):
    with told():
        models.StructureEnsembleGP(X, Y, outcome_transform=Log())
    models.StructureEnsembleGP(X, Log()(Y)[0])


@advice("Set other data of an exact GP by set_train_data")
def _(told):
    many = torch.rand(2001, 2, dtype=torch.float64)
    options = {"num_features": 3, "inducing_points": 4}
    saved = models.SpectralGP(many, many.sum(-1, keepdim=True), **options)
    with told():
        models.SpectralGP(X, Y, **options).load_state_dict(saved.state_dict())
    model = models.SpectralGP(many, many.sum(-1, keepdim=True), **options)
    model.load_state_dict(saved.state_dict())
    model.set_train_data(X, Y[:, 0], strict=False)
    assert model.posterior(X).mean.shape == Y.shape


@advice("set both together")
def _(told):
    model = models.NKNSingleTaskGP(X, Y)
    with told():
        model.set_train_data(X[:5], strict=False)
    model.set_train_data(X[:5], model.train_targets[:5], strict=False)


@advice("call the model, or predict held-out rows by")
def _(told):
    model = models.SparseNKNGP(X, Y, inducing_points=4).eval()
    with told():
        model.forward(X)
    model(X)
    folds = torch.stack([X[:6], X[6:]]), torch.stack([Y[:6], Y[6:]])
    batch_cross_validation(
        models.SparseNKNGP,
        ExactMarginalLogLikelihood,
        folds_of(*folds),
        fit_args={"restarts": 1, "max_iterations": 1, "progress": False},
        model_init_kwargs={"inducing_points": 3},
    )


def folds_of(inputs, outcomes):
    return CVFolds(inputs, inputs.flip(0), outcomes, outcomes.flip(0))


def image_model(size=6, missing=0):
    rows = torch.linspace(0, 1, size, dtype=torch.float64)
    image = torch.rand(size, size, dtype=torch.float64)
    image[1, :missing] = torch.nan
    return models.KroneckerGridGP([rows, rows], image, [RBFKernel(), RBFKernel()])


@advice("make a model of the grid with the new cells")
def _(told):
    model = image_model()
    with told():
        model.condition_on_observations(X[:1], Y[:1])
    larger = image_model(7)
    larger.load_state_dict(model.state_dict())
    assert larger.grid_mean().shape == (7, 7)


@advice("pass fewer at a time, or use predict or")
def _(told):
    model = image_model(missing=2)
    limit = mock.patch.object(kronecker_grid_gp, "_MAX_ELEMENTS", 300)
    with limit, told():
        model.posterior(torch.rand(20, 2, dtype=torch.float64)).variance.sum()
    with limit:
        model.posterior(torch.rand(5, 2, dtype=torch.float64)).variance.sum()
    model.posterior(torch.rand(20, 2, dtype=torch.float64)).variance.sum()
    assert model.grid_mean().isfinite().all() and len(model.predict()) == 2


@advice("Draw from the posterior at points with")
def _(told):
    warped = models.NKNSingleTaskGP(X, Y, structure=NeuralKernelNetwork([Odd()], [Linear(1, 1)]))
    with told():
        draw_kernel_feature_paths(warped, sample_shape=torch.Size([2]))
    warped.posterior(X).rsample()
    MaxPosteriorSampling(warped, replacement=False)(X.unsqueeze(0), num_samples=1)


class Odd(Kernel):
    """A kernel that is not registered."""

    def forward(self, x1, x2, diag=False, **params):
        return (-self.covar_dist(x1, x2, diag=diag)).exp()


@advice("make a model of all data with this model's")
def _(told):
    model = models.SparseNKNGP(X, Y, inducing_points=4)
    with told():
        model.condition_on_observations(X[:1], Y[:1])
    more = models.SparseNKNGP(
        torch.cat([X, X[:1]]), torch.cat([Y, Y[:1]]), inducing_points=model.inducing_points
    )
    state = {k: v for k, v in model.state_dict().items() if "outcome_transform" not in k}
    more.load_state_dict(state, strict=False)
    for made in (models.NKNSingleTaskGP(X, Y), models.SpectralGP(X, Y)):
        acq.qKnowledgeGradient(made, num_fantasies=2)(torch.rand(1, 3, 2, dtype=torch.float64))


# --- interpretation


@advice("Transform the targets yourself")
def _(told):
    with told():
        decompose(models.NKNSingleTaskGP(X, Y, structure="additive", outcome_transform=Log()))
    decompose(models.NKNSingleTaskGP(X, Y.log(), structure="additive"))


@advice("use subset_output of a BoTorch model")
def _(told):
    model = models.NKNSingleTaskGP(X, torch.cat([Y, -Y], -1), structure="additive")
    quick = {"max_terms": 1, "max_candidates": 1, "progress": False}
    for reader, options in ((effects, {}), (simplify, quick), (report, {}), (report_search, {})):
        with told():
            reader(model, **options)
        reader(model.subset_output([0]), **options)


# --- data and estimators


@advice("use MultiOutputRegressor or MultiOutputClassifier")
def _(told):
    labels = np.column_stack([Y, -Y]) > [Y.mean(), -Y.mean()]
    with told():
        DANKClassifier().fit(X.numpy(), labels)
    MultiOutputClassifier(DANKClassifier(relevance=None, eta=0.05)).fit(X.numpy(), labels)


@advice("use regressor.estimators_[k]")
def _(told):
    both, options = np.column_stack([Y, -Y]), {"restarts": 1, "recipe": SHORT, "progress": False}
    regressor = NKNRegressor("rbf", **options).fit(X.numpy(), both)
    for read in (report, effects, decompose, expand, simplify):
        with told():
            read(regressor)
        read(regressor.estimators_[1])
    with told():
        regressor.standardised_inputs(X.numpy())
    regressor.estimators_[1].standardised_inputs(X.numpy())


def written(folder, text, name="series.csv", **options):
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode(**options))
    return path


@advice("save it as CSV first")
def _(told, folder):
    with told():
        read_time_series(written(folder, b"PK\x03\x04 a workbook", "book.xlsx"))
    frame = pd.DataFrame({"time": pd.date_range("2020-01-01", periods=3), "y": [1.0, 3.0, 2.0]})
    frame.to_csv(folder / "book.csv", index=False)
    assert len(read_time_series(folder / "book.csv").y) == 3


@advice("encode them first, e.g. with sklearn.preprocessing.One")
def _(told):
    frame = pd.DataFrame({"number": np.arange(12.0), "word": ["a", "b", "c"] * 4})
    y = Y[:, 0].numpy()
    with told():
        ASKLRegressor().fit(frame, y)
    for encoder in (OneHotEncoder(), OrdinalEncoder()):
        columns = make_column_transformer((encoder, ["word"]), remainder="passthrough")
        make_pipeline(columns, ASKLRegressor(method="SK")).fit(frame, y)


T, SERIES = np.arange(24.0), np.exp(np.sin(np.arange(24.0)))


def forecaster(**options):
    recipe = Recipe(adam_steps=0, lbfgs_iterations=2)
    return NKNForecaster(quality="fast", recipe=recipe, random_state=0, **options)


@advice("set transform='identity'")
def _(told):
    with told():
        assert forecaster().fit(T, 23.0 - T).predict([25.0]) == 0
    free = forecaster(transform="identity").fit(T, 23.0 - T)
    assert free.predict_quantiles([25.0], [0.05]) < 0


@advice("fill them in, or drop those rows")
def _(told):
    gaps = pd.DataFrame({"w": np.where(T == 3, np.nan, T)})
    with told():
        forecaster().fit(T, SERIES, covariates=gaps)
    forecaster().fit(T, SERIES, covariates=gaps.ffill())
    kept = gaps["w"].notna().to_numpy()
    forecaster().fit(T[kept], SERIES[kept], covariates=gaps[kept])


@advice("use model.subset_output([0]), one of the models of a list, or output_tasks=[0]")
def _(told):
    model, many = SingleTaskGP(X, Y.repeat(1, 2)), ModelListGP(*[SingleTaskGP(X, Y)] * 2)
    tasks = torch.cat([X, torch.arange(len(X))[:, None] % 2], -1), Y
    for several in (model, many, models.NKNMultiTaskGP(*tasks, -1)):
        with told():
            models.gradient_posterior(several, X[:2])
    task = models.NKNMultiTaskGP(*tasks, -1, output_tasks=[0])
    for one in (model.subset_output([0]), many.models[1], task):
        assert models.gradient_posterior(one, X[:2]).mean.shape == (2, 2)


@advice("If the values are unknown, forecast them, or fit without")
def _(told):
    given = pd.DataFrame({"w": np.cos(T)})
    model = forecaster().fit(T, SERIES, covariates=given)
    with told():
        model.predict(T[-3:] + 3)
    ahead = forecaster().fit(T, given["w"].to_numpy()).predict(T[-3:] + 3)
    model.predict(T[-3:] + 3, covariates=pd.DataFrame({"w": ahead}))
    forecaster().fit(T, SERIES).predict(T[-3:] + 3)


@advice("call fit with all observations")
def _(told):
    model = forecaster(transform="log").fit(T, SERIES)
    times = np.append(T, 24.0)
    with told():
        model.update(times[-1:], [-1.0])
    forecaster().fit(times, np.append(SERIES, -1.0))


@advice("select them by X[columns], or rename them")
def _(told):
    frame, y = pd.DataFrame(X.numpy()), Y[:, 0].numpy()
    regressor = NKNRegressor("rbf", restarts=1, recipe=SHORT, progress=False).fit(frame, y)
    for wrong in (frame[[1, 0]], frame.set_axis(["a", "b"], axis=1)):
        with told():
            regressor.predict(wrong)
    for right in (
        frame[[1, 0]][[0, 1]],
        frame.set_axis(["a", "b"], axis=1).set_axis([0, 1], axis=1),
    ):
        np.testing.assert_array_equal(regressor.predict(right), regressor.predict(frame))


@advice("nonlinear outcome transform: transform the outcomes beforehand")
def _(told):
    with told():
        models.gradient_posterior(SingleTaskGP(X, Y, outcome_transform=Log()), X[:2])
    assert models.gradient_posterior(SingleTaskGP(X, Y.log()), X[:2]).mean.shape == (2, 2)
