"""Classes registered with Ax, and arguments supplied by our handlers."""

import importlib
import sys

import ax.adapter.transfer_learning.adapter  # noqa: F401, registers BOTL
import pytest
import torch
from ax.adapter.registry import Generators
from ax.core.auxiliary import AuxiliaryExperiment, AuxiliaryExperimentPurpose
from ax.core.search_space import SearchSpaceDigest
from ax.exceptions.core import UserInputError
from ax.generators.torch.botorch_modular.input_constructors.covar_modules import (
    covar_module_argparse,
)
from ax.generators.torch.botorch_modular.surrogate import Surrogate, SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from botorch.models import MultiTaskGP, SingleTaskGP
from botorch.utils.datasets import SupervisedDataset
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

import gpytorch_nkn.ax  # noqa: F401, registers the classes
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood
from gpytorch_nkn.models import (
    KroneckerGridGP,
    LaplaceGP,
    NKNMultiTaskGP,
    NKNSingleTaskGP,
    SparseNKNGP,
    SpectralGP,
    StructureEnsembleGP,
    VariationalNKNGP,
)
from tests.ax.clients import make_client, run_trials, take_few_steps

WIRING = "Linear4-Product2-Linear1"


@pytest.mark.parametrize(
    "value",
    [
        ModelConfig(
            botorch_model_class=SingleTaskGP,
            mll_class=AnalyticExactMarginalLogLikelihood,
            covar_module_class=NeuralKernelNetwork,
            covar_module_options={"structure": "additive", "wiring": "Linear1"},
        ),
        ModelConfig(botorch_model_class=StructureEnsembleGP, model_options={"structures": ["rbf"]}),
        ModelConfig(botorch_model_class=SparseNKNGP, model_options={"inducing_points": 5}),
        ModelConfig(botorch_model_class=SpectralGP),
    ],
    ids=["network", "structures", "sparse", "spectral"],
)
def test_what_is_registered_is_stored(value):
    assert object_from_json(object_to_json(value)) == value


def dataset(num_columns=3, num_outcomes=1, num_points=6, noise=None):
    return SupervisedDataset(
        X=torch.rand(num_points, num_columns),
        Y=torch.randn(num_points, num_outcomes),
        Yvar=noise,
        feature_names=[f"x{i}" for i in range(num_columns)],
        outcome_names=[f"y{i}" for i in range(num_outcomes)],
    )


def make_network(data, model_class=SingleTaskGP, **options):
    arguments = covar_module_argparse(
        NeuralKernelNetwork, botorch_model_class=model_class, dataset=data, **options
    )
    return NeuralKernelNetwork(**arguments)


@pytest.mark.parametrize(("structure", "num_outcomes"), [("additive", 1), ("optimization", 2)])
def test_dimensions_and_batch_shape_come_from_the_data(structure, num_outcomes):
    kernel = make_network(dataset(3, num_outcomes), structure=structure, wiring=WIRING)
    batch_shape = torch.Size([] if num_outcomes == 1 else [num_outcomes])
    assert kernel.batch_shape == batch_shape
    preset = getattr(NeuralKernelNetwork, structure)
    expected = preset(3, wiring=WIRING, batch_shape=batch_shape)
    shapes, others = ([p.shape for p in k.parameters()] for k in (kernel, expected))
    assert shapes == others
    x = torch.rand(4, 3)
    torch.testing.assert_close(kernel(x).to_dense(), expected(x).to_dense())


def test_the_task_is_no_input_of_the_kernel():
    tasks = torch.tensor([[0.0], [1.0]]).repeat(4, 1)
    x = torch.cat([torch.rand(8, 2), tasks], -1)
    data = SupervisedDataset(
        X=x, Y=torch.randn(8, 1), feature_names=["a", "b", "task"], outcome_names=["y"]
    )
    kernel = make_network(data, MultiTaskGP, structure="additive", wiring="Linear1")
    assert len(kernel.primitives) == 2
    model = MultiTaskGP(x, data.Y, task_feature=2, covar_module=kernel)
    moved = torch.cat([x[:, :2], 1 - tasks], -1)
    torch.testing.assert_close(kernel(moved).to_dense(), kernel(x).to_dense())
    assert model.posterior(x).mean.shape == (8, 1)


def test_a_network_from_parts_is_taken_unchanged():
    parts = {"primitives": [RBFKernel()], "layers": [Linear(1, 1)]}
    kernel = make_network(dataset(), **parts)
    assert kernel.primitives[0] is parts["primitives"][0] and kernel.active_dims is None


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structure": "tree"}, UserInputError, "structure must be one of .*'paper'.*got 'tree'"),
        ({"structure": "texture"}, UserInputError, "one input column, got 3"),
        ({"wirings": "Linear1"}, TypeError, "wirings"),
    ],
)
def test_wrong_options_of_the_kernel_are_named(options, error, message):
    with pytest.raises(error, match=message):
        make_network(dataset(3), **options)


def fit_surrogate(data, categories=(), **config):
    surrogate = Surrogate(SurrogateSpec(model_configs=[ModelConfig(**config)]))
    bounds = [(0.0, 2.0)] * len(data.feature_names)
    digest = SearchSpaceDigest(
        feature_names=data.feature_names,
        bounds=bounds,
        categorical_features=list(categories),
        discrete_choices={column: [0, 1, 2] for column in categories},
    )
    surrogate.fit([data], digest)
    return surrogate.model


def test_model_options_reach_the_model_and_data_are_scaled_once(few_steps):
    data = dataset(2, 2)
    model = fit_surrogate(
        data, botorch_model_class=NKNSingleTaskGP, model_options={"structure": "additive"}
    )
    assert isinstance(model.covar_module, NeuralKernelNetwork)
    assert not hasattr(model, "outcome_transform")  # Ax standardises
    torch.testing.assert_close(model.train_targets, data.Y.mT)
    torch.testing.assert_close(model.input_transform(data.X), data.X / 2)


def test_earlier_experiments_are_tasks(monkeypatch):
    take_few_steps(monkeypatch)
    clients = [make_client(), make_client()]
    for client in clients:
        run_trials(client, 3)
    experiment, earlier = (client._experiment for client in clients)
    purpose = AuxiliaryExperimentPurpose.TRANSFERABLE_EXPERIMENT
    experiment.auxiliary_experiments_by_purpose = {purpose: [AuxiliaryExperiment(earlier)]}
    options = {"structure": "additive", "rank": 1}
    config = ModelConfig(botorch_model_class=NKNMultiTaskGP, model_options=options)
    spec = SurrogateSpec(model_configs=[config])
    data = experiment.lookup_data()
    adapter = Generators.BOTL(experiment=experiment, data=data, surrogate_spec=spec)
    model = adapter.generator.surrogate.model
    assert type(model) is NKNMultiTaskGP and model.train_targets.shape == (6,)
    assert model.num_tasks == 2 and model.num_outputs == 1
    assert set(adapter.gen(1).arms[0].parameters) == {"x", "y"}


@pytest.mark.parametrize("cls", [SparseNKNGP, SpectralGP])
def test_other_models_are_trained_with_known_noise(cls, few_steps):
    noise = torch.full((6, 1), 0.1)
    data = dataset(2, noise=noise)
    model = fit_surrogate(data, botorch_model_class=cls)
    assert type(model) is cls and type(model.likelihood) is FixedNoiseGaussianLikelihood
    assert model.posterior(data.X).mean.isfinite().all()
    noise[2] = torch.nan  # one trial without a standard error
    with pytest.raises(UserInputError, match="got 1 of 6 without a standard error"):
        fit_surrogate(dataset(2, noise=noise), botorch_model_class=cls)


@pytest.mark.parametrize(
    ("cls", "categories", "message"),
    [
        (
            SparseNKNGP,
            [1],
            "no kernel for categorical parameters: use NKNSingleTaskGP or StructureEnsembleGP",
        ),
        (VariationalNKNGP, [], "cannot train a VariationalNKNGP: use .*SparseNKNGP or SpectralGP"),
        (KroneckerGridGP, [], "cannot train a KroneckerGridGP"),
        (LaplaceGP, [], "cannot train a LaplaceGP"),
    ],
)
def test_a_model_that_ax_cannot_train_is_rejected(cls, categories, message):
    with pytest.raises(UserInputError, match=message):
        fit_surrogate(dataset(2), categories, botorch_model_class=cls)
    if categories:
        data = dataset(2)
        data.X[:, 1] = torch.arange(6) % 3
        advised = fit_surrogate(data, categories, botorch_model_class=NKNSingleTaskGP)
        assert list(advised.cat_dims) == categories


def test_a_kernel_for_a_model_that_makes_its_own_is_rejected():
    with pytest.raises(UserInputError, match="NKNSingleTaskGP makes its kernel .*got RBFKernel"):
        fit_surrogate(dataset(), botorch_model_class=NKNSingleTaskGP, covar_module_class=RBFKernel)


def test_without_ax_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "ax"]:
        monkeypatch.setitem(sys.modules, name, None)  # as where it is not installed
    for name in [name for name in sys.modules if name.startswith("gpytorch_nkn.ax")]:
        monkeypatch.delitem(sys.modules, name)
    message = r"gpytorch_nkn\.ax needs ax-platform: pip install 'gpytorch_nkn\[ax\]'"
    with pytest.raises(ImportError, match=message):
        importlib.import_module("gpytorch_nkn.ax")
