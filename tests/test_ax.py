"""Ax with our models: a loop, storage, and what our handlers supply."""

import importlib
import inspect
import math
import sys
import textwrap
from types import SimpleNamespace

import numpy as np
import pytest
import torch

pytest.importorskip("ax", reason="needs ax-platform: pip install 'gpytorch_nkn[ax]'")

from ax.adapter.registry import Generators
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.core.search_space import SearchSpaceDigest
from ax.exceptions.core import UserInputError
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from ax.generators.torch.botorch_modular.input_constructors.covar_modules import (
    covar_module_argparse,
)
from ax.generators.torch.botorch_modular.kernels import ScaleMaternKernel
from ax.generators.torch.botorch_modular.surrogate import (
    Surrogate,
    SurrogateSpec,
    submodel_input_constructor,
)
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.storage import botorch_modular_registry as registry
from ax.storage.json_store.decoder import object_from_json
from ax.storage.json_store.encoder import object_to_json
from botorch.acquisition import LogExpectedImprovement, qKnowledgeGradient
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from botorch.acquisition.multi_objective.logei import qLogNoisyExpectedHypervolumeImprovement
from botorch.models import ModelListGP, MultiTaskGP, SingleTaskGP
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import MultiTaskDataset, SupervisedDataset
from gpytorch.kernels import RBFKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood

import gpytorch_nkn.ax as nkn_ax
from gpytorch_nkn.ax import (
    CoordinateSweepAcquisition,
    EnsembleAcquisition,
    make_generation_strategy,
    report_client,
)
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import Linear
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood
from gpytorch_nkn.models import TRAINERS, AdditivePartitionGP, NKNSingleTaskGP, StructureEnsembleGP

BRIEF = {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 2}}
# with many choices; others go through all of them
ALTERNATING = {**BRIEF, "options": {"maxiter_alternating": 1, "maxiter_continuous": 2}}
CHEAP = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 10}}
BOUNDS = (-4.0, 4.0)
WIRING = "Linear4-Product2-Linear1"
PLANE = [
    RangeParameterConfig(name=name, parameter_type="float", bounds=BOUNDS) for name in ("x", "y")
]


def outcomes(point):
    return {"loss": (point["x"] - 1) ** 2 + point["y"] ** 4, "cost": abs(point["x"] + point["y"])}


def make_client(objective="-loss", parameters=PLANE, constraints=(), **options):
    client = Client()
    client.configure_experiment(name="test", parameters=parameters)
    client.configure_optimization(objective=objective, outcome_constraints=list(constraints))
    options = {"seed": 0, "optimizer_options": CHEAP, **options}
    client.set_generation_strategy(make_generation_strategy(**options))
    return client


def run_trials(client, number, names=("loss",), noise=None):
    """Complete this many trials; names of the nodes that made them."""
    nodes = []
    for _ in range(number):
        for trial, point in client.get_next_trials(max_trials=1).items():
            values = {name: outcomes(point)[name] for name in names}
            if noise is not None:
                values = {name: (value, noise) for name, value in values.items()}
            client.complete_trial(trial, values)
        nodes.append(client._generation_strategy.current_node.name)
        run = client._generation_strategy.last_generator_run
        expected = {"Sobol": "Sobol", "NKN": "BO_MIXED"}[nodes[-1]]
        assert run._generator_key == expected, "Ax fell back on another generator"
    return nodes


def generator(client):
    return client._generation_strategy.current_node._fitted_adapter.generator


class Spy:
    """Calls a function and keeps what it was given."""

    def __init__(self, function):
        self.function, self.calls = function, []
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.function(*args, **kwargs)


@pytest.fixture(scope="module")
def loop():
    """A client after seven trials, with the calls of the recipe and of the sweeps."""
    with pytest.MonkeyPatch.context() as patch:
        recipe = Spy(TRAINERS[NKNSingleTaskGP])
        sweeps = Spy(nkn_ax.coordinate_sweep_initial_conditions)
        patch.setitem(TRAINERS, NKNSingleTaskGP, recipe)
        patch.setattr(nkn_ax, "coordinate_sweep_initial_conditions", sweeps)
        client = make_client()
        nodes = run_trials(client, 7)
    return SimpleNamespace(client=client, nodes=nodes, recipe=recipe, sweeps=sweeps)


def test_loop_fits_our_model_by_our_recipe(loop):
    assert loop.nodes == ["Sobol"] * 5 + ["NKN"] * 2
    model = generator(loop.client).surrogate.model
    assert type(model) is NKNSingleTaskGP
    fitted = [args[0] for args, kwargs in loop.recipe.calls]
    assert [type(m) for m in fitted] == [NKNSingleTaskGP] * 2 and fitted[-1] is model
    assert [len(m.train_targets) for m in fitted] == [5, 6]
    assert all(kwargs == {} for _, kwargs in loop.recipe.calls)  # the recipe's own defaults
    trials = loop.client._experiment.trials.values()
    points = torch.tensor([[t.arm.parameters[name] for name in "xy"] for t in trials])
    unit = (points[:6] - BOUNDS[0]) / (BOUNDS[1] - BOUNDS[0])  # Ax's transform of the inputs
    assert not model.training  # transformed inputs, then
    torch.testing.assert_close(model.train_inputs[0], unit)


def test_loop_searches_from_sweeps_of_the_best_points(loop):
    assert len(loop.sweeps.calls) == 2
    acquisition = generator(loop.client)._acquisition
    assert type(acquisition) is CoordinateSweepAcquisition
    assert type(acquisition.acqf) is qLogNoisyExpectedImprovement
    incumbent, known = loop.sweeps.calls[-1][1]["incumbent"], acquisition.acqf.X_baseline
    assert sorted(incumbent.tolist()) == sorted(known.tolist())


def test_points_to_sweep_from_come_best_first_whatever_the_direction(loop, monkeypatch):
    acquisition = generator(loop.client)._acquisition
    monkeypatch.setattr(acquisition, "acqf", SimpleNamespace())  # keeps no points: all observed
    points = acquisition._incumbent()
    assert len(points) == 6
    means = generator(loop.client).surrogate.model.posterior(points).mean.squeeze(-1)
    assert means.max() - means.min() > 0.5
    assert (means.diff() >= 0).all()  # loss is to be small
    flipped = -acquisition._objective_weights
    monkeypatch.setattr(acquisition, "_objective_weights", flipped)
    torch.testing.assert_close(acquisition._incumbent(), points.flip(0))


def test_experiment_and_strategy_are_stored_and_go_on_where_they_were(loop, few_steps, tmp_path):
    file = tmp_path / "experiment.json"
    loop.client.save_to_json_file(str(file))
    restored = Client.load_from_json_file(str(file))
    (spec,) = restored._generation_strategy.current_node.generator_specs
    (config,) = spec.generator_kwargs["surrogate_spec"].model_configs
    assert config.botorch_model_class is NKNSingleTaskGP
    assert config.model_options == {"structure": "optimization"}
    assert spec.generator_kwargs["acquisition_class"] is CoordinateSweepAcquisition
    assert spec.generator_gen_kwargs == {"model_gen_options": {"optimizer_kwargs": CHEAP}}
    assert list(restored.get_next_trials(max_trials=1)) == [7]
    model = generator(restored).surrogate.model
    assert type(model) is NKNSingleTaskGP and len(model.train_targets) == 7


@pytest.mark.parametrize(
    "value",
    [
        ModelConfig(
            botorch_model_class=SingleTaskGP,
            mll_class=AnalyticExactMarginalLogLikelihood,
            covar_module_class=NeuralKernelNetwork,
            covar_module_options={"structure": "additive", "wiring": "Linear1"},
        ),
        ModelConfig(botorch_model_class=AdditivePartitionGP, model_options={"num_samples": 3}),
        ModelConfig(botorch_model_class=StructureEnsembleGP, model_options={"structures": ["rbf"]}),
    ],
    ids=["network", "partitions", "structures"],
)
def test_what_is_registered_is_stored(value):
    assert object_from_json(object_to_json(value)) == value


@pytest.mark.parametrize(
    ("objective", "constraints", "noise", "acquisition"),
    [
        ("-loss", ["cost <= 2"], None, qLogNoisyExpectedImprovement),
        ("-loss, -cost", [], 0.1, qLogNoisyExpectedHypervolumeImprovement),
    ],
    ids=["outcome-constraint", "two-objectives-known-noise"],
)
def test_several_outcomes(objective, constraints, noise, acquisition, few_steps):
    options = {"initialization_trials": 4, "optimizer_options": BRIEF}
    client = make_client(objective, constraints=constraints, **options)
    nodes = run_trials(client, 5, names=("loss", "cost"), noise=noise)
    assert nodes == ["Sobol"] * 4 + ["NKN"]
    model = generator(client).surrogate.model
    assert type(model) is NKNSingleTaskGP and model.num_outputs == 2
    assert isinstance(model.likelihood, FixedNoiseGaussianLikelihood) is (noise is not None)
    assert type(generator(client)._acquisition.acqf) is acquisition


@pytest.mark.parametrize(
    ("constraint", "weight", "bound", "room"),
    [
        ("cost - 2 * size <= 1", -2, 1.0, 1e-9),
        ("1 <= 2 * size - cost", -2, -1.0, 1e-9),
        ("cost + 2 * size <= 0.9 * baseline", 2, None, 0.25),  # the model expects its value
    ],
    ids=["upper", "lower", "of-a-baseline"],
)
def test_a_constraint_on_a_sum_of_outcomes_is_on_the_sum(
    constraint, weight, bound, room, monkeypatch
):
    take_few_steps(monkeypatch, max_iterations=3 if bound else 60)
    client = make_client(constraints=[constraint, "size <= 50"], optimizer_options=BRIEF)
    points = [(1, 1), (3, 3), (0, -2), (-1, 0), (2, -2), (0.5, 1), (4, 4)]
    told = []
    for place, (x, y) in enumerate(points):
        point = {"x": float(x), "y": float(y)}
        trial = (client.attach_trial if place else client.attach_baseline)(point)
        told.append({**outcomes(point), "size": 2.0 - min(y, 0) / 8})
        if place == 6 and bound:
            told[-1]["cost"] = 40.0  # Ax would cut it off
        client.complete_trial(trial, told[-1])
    sums = torch.tensor([one["cost"] + weight * one["size"] for one in told], dtype=torch.float64)
    bound = bound or 0.9 * sums[0].item()
    client.get_next_trials(max_trials=1)
    adapter = client._generation_strategy.current_node._fitted_adapter
    (data,) = adapter.generator.surrogate.training_data
    rows, bounds = adapter.generator._acquisition._outcome_constraints  # of what the model has
    (row,) = rows.count_nonzero(-1).sub(2).eq(0).nonzero().squeeze(-1).tolist()
    columns = [data.outcome_names.index(name) for name in adapter.outcomes]
    held = data.Y[:, columns] @ rows[row] - bounds[row]
    torch.testing.assert_close(held, sums - bound, atol=room, rtol=0)
    feasible = report_client(client).feasible
    assert feasible.tolist() == (sums <= bound).tolist() and 0 < feasible.sum() < 7


def test_discrete_parameters_are_searched_without_sweeps(few_steps, monkeypatch):
    sweeps = Spy(nkn_ax.coordinate_sweep_initial_conditions)
    monkeypatch.setattr(nkn_ax, "coordinate_sweep_initial_conditions", sweeps)
    extra = [
        RangeParameterConfig(name="n", parameter_type="int", bounds=(1, 2)),
        ChoiceParameterConfig(name="c", parameter_type="str", values=list("abc"), is_ordered=False),
        ChoiceParameterConfig(
            name="f", parameter_type="float", values=[0.5, 2, 3.5], is_ordered=False
        ),
    ]
    client = make_client(
        parameters=[*PLANE, *extra], initialization_trials=3, optimizer_options=ALTERNATING
    )
    assert run_trials(client, 4) == ["Sobol"] * 3 + ["NKN"]
    run = client._generation_strategy.last_generator_run
    assert run._generator_key == "BO_MIXED", "Ax fell back on another generator"
    model = generator(client).surrogate.model
    assert type(model) is NKNSingleTaskGP and model.train_inputs[0].shape == (3, 5)
    digest = generator(client)._acquisition.search_space_digest
    whole = digest.feature_names.index("c")  # codes of categories are whole numbers
    assert len(digest.categorical_features) == 2 and model.cat_dims == (whole,)
    assert sweeps.calls == []


@pytest.fixture(scope="module")
def mixed():
    """A client with two objectives, a constraint and choices, one of whose trials has failed."""
    extra = [
        RangeParameterConfig(name="n", parameter_type="int", bounds=(1, 3)),
        ChoiceParameterConfig(name="c", parameter_type="str", values=list("abc"), is_ordered=False),
    ]
    client = make_client(
        "-loss, -cost",
        parameters=[*PLANE, *extra],
        constraints=["size <= 3"],
        initialization_trials=4,
        optimizer_options=BRIEF,
    )
    for number in range(4):
        for trial, point in client.get_next_trials(max_trials=1).items():
            if number == 2:
                client.mark_trial_failed(trial)
                continue
            client.complete_trial(trial, {**outcomes(point), "size": point["n"]})
    return client


def test_a_mixed_loop_with_several_outcomes_goes_on_from_its_file(mixed, few_steps, tmp_path):
    (under_way,) = mixed.get_next_trials(max_trials=1)
    file = tmp_path / "experiment.json"
    mixed.save_to_json_file(str(file))
    restored = Client.load_from_json_file(str(file))
    trials = {}
    while restored._generation_strategy.current_node.name == "Sobol":
        ((trial, point),) = restored.get_next_trials(max_trials=1).items()
        restored.complete_trial(trial, {**outcomes(point), "size": point["n"]})
        trials[trial] = point
    ((trial, point),) = restored.get_next_trials(max_trials=1).items()
    assert trial not in (under_way, *trials) and point["c"] in "abc" and point["n"] in (1, 2, 3)
    run = restored._generation_strategy.last_generator_run
    assert run._generator_key == "BO_MIXED", "Ax fell back on another generator"
    model = generator(restored).surrogate.model
    column = generator(restored)._acquisition.search_space_digest.categorical_features
    assert type(model) is NKNSingleTaskGP and model.num_outputs == 3
    assert model.cat_dims == tuple(column) and len(column) == 1
    acqf = generator(restored)._acquisition.acqf
    assert type(acqf) is qLogNoisyExpectedHypervolumeImprovement
    assert len(acqf.X_pending) == 1


def take_few_steps(patch, max_iterations=3):
    def shorter(trainer):
        return lambda model: trainer(model, fresh_starts=0, max_iterations=max_iterations)

    for cls in (NKNSingleTaskGP, StructureEnsembleGP):
        patch.setitem(TRAINERS, cls, shorter(TRAINERS[cls]))


@pytest.fixture
def few_steps(monkeypatch):
    """Models whose training takes few steps."""
    take_few_steps(monkeypatch)


def test_structures_are_averaged_on_request_with_choices_too(few_steps, tmp_path):
    choice = ChoiceParameterConfig(
        name="c", parameter_type="str", values=list("abc"), is_ordered=False
    )
    client = make_client(
        parameters=[*PLANE, choice],
        constraints=["cost <= 2"],
        initialization_trials=3,
        structure="averaged",
        optimizer_options=BRIEF,
    )
    run_trials(client, 3, names=("loss", "cost"))
    file = tmp_path / "experiment.json"
    client.save_to_json_file(str(file))
    restored = Client.load_from_json_file(str(file))
    assert run_trials(restored, 1, names=("loss", "cost")) == ["NKN"]
    models = generator(restored).surrogate.model.models
    assert [type(model) for model in models] == [StructureEnsembleGP] * 2
    assert all(len(model.cat_dims) == 1 for model in models)
    acqf = generator(restored)._acquisition.acqf
    assert acqf.sampler.sample_shape.numel() * models[0].num_members == 512
    assert [model.maximize for model in models] == [False, False]  # loss; cost <= 2


@pytest.mark.parametrize(
    "acqf_class, options, draws",
    [
        (qLogNoisyExpectedImprovement, {}, 512 // 3),
        (qLogNoisyExpectedHypervolumeImprovement, {}, 128 // 3),
        (qLogNoisyExpectedHypervolumeImprovement, {"mc_samples": 4}, None),
        (qLogNoisyExpectedImprovement, {"sampler": SobolQMCNormalSampler(torch.Size([5]))}, 5),
        (qKnowledgeGradient, {"num_fantasies": 2}, None),
        (LogExpectedImprovement, {}, None),
    ],
)
def test_an_ensemble_gets_as_many_draws_as_one_model(acqf_class, options, draws, monkeypatch):
    """What our class adds to the options, which Ax's own then takes."""
    monkeypatch.setattr(
        Acquisition, "_construct_botorch_acquisition", lambda self, kind, options, model: options
    )
    x = torch.rand(6, 2, dtype=torch.float64)
    ensemble = AdditivePartitionGP(x, x[:, :1], num_samples=3)
    acquisition = EnsembleAcquisition.__new__(EnsembleAcquisition)
    acquisition._objective_weights, acquisition._outcome_constraints = torch.ones(1, 2), None
    for model in (ensemble, ModelListGP(ensemble, ensemble)):
        found = dict(acquisition._construct_botorch_acquisition(acqf_class, options, model))
        sampler = found.pop("sampler", None)
        assert (None if sampler is None else sampler.sample_shape.numel()) == draws
        assert found == {k: v for k, v in options.items() if k != "sampler"}
    single = ModelListGP(ensemble, SingleTaskGP(x, x[:, :1]))
    assert acquisition._construct_botorch_acquisition(acqf_class, options, single) is options


@pytest.mark.parametrize("objective, is_maximized", [("-loss", False), ("loss", True)])
def test_averaged_structures_know_what_is_minimised(few_steps, objective, is_maximized):
    client = make_client(
        objective, initialization_trials=4, structure="averaged", optimizer_options=BRIEF
    )
    run_trials(client, 5)
    model = generator(client)._acquisition.acqf.model
    y = model.common_data()[1]
    assert model.maximize is is_maximized and model.is_warped.any()
    best = y.max() if is_maximized else y.min()
    torch.testing.assert_close(model.warps[model.is_warped, -1], best.expand(2).to(model.warps))


def test_averaged_structures_with_several_objectives(few_steps):
    client = make_client(
        objective="-loss, -cost",
        initialization_trials=3,
        structure="averaged",
        coordinate_sweeps=False,
        optimizer_options=BRIEF,
    )
    assert run_trials(client, 4, names=("loss", "cost"))[-1] == "NKN"
    acqf = generator(client)._acquisition.acqf
    assert type(acqf) is qLogNoisyExpectedHypervolumeImprovement
    assert acqf.sampler.sample_shape.numel() == 128 // 8
    assert not any(model.maximize for model in acqf.model.models)


def test_partitions_have_no_kernel_of_categories():
    digest = SearchSpaceDigest(["a", "b"], [(0.0, 1.0), (0.0, 2.0)], categorical_features=[1])
    config = ModelConfig(botorch_model_class=AdditivePartitionGP)
    with pytest.raises(UserInputError, match="AdditivePartitionGP has no kernel of categories"):
        submodel_input_constructor(
            AdditivePartitionGP,
            model_config=config,
            dataset=dataset(2),
            search_space_digest=digest,
            surrogate=None,
        )


def test_sweeps_are_left_out_on_request(few_steps):
    client = make_client(
        coordinate_sweeps=False,
        initialization_trials=3,
        structure="additive",
        optimizer_options=BRIEF,
    )
    run_trials(client, 4)
    assert type(generator(client)._acquisition) is EnsembleAcquisition
    network = generator(client).surrogate.model.covar_module
    assert isinstance(network, NeuralKernelNetwork) and not network.skip


@pytest.mark.parametrize(
    ("options", "error", "message"),
    [
        ({"structure": "optimisation"}, ValueError, "structure must be one of .*'optimisation'"),
        ({"structure": RBFKernel()}, TypeError, r"must be a name.*got RBFKernel"),
        ({"initialization_trials": 0}, ValueError, "at least 1, got 0"),
    ],
)
def test_wrong_options_fail_before_the_first_trial(options, error, message):
    with pytest.raises(error, match=message):
        make_generation_strategy(**options)


def dataset(num_columns=3, num_outcomes=1, num_points=6):
    return SupervisedDataset(
        X=torch.rand(num_points, num_columns),
        Y=torch.randn(num_points, num_outcomes),
        feature_names=[f"x{i}" for i in range(num_columns)],
        outcome_names=[f"y{i}" for i in range(num_outcomes)],
    )


def make_network(data, model_class=SingleTaskGP, **options):
    arguments = covar_module_argparse(
        NeuralKernelNetwork, botorch_model_class=model_class, dataset=data, **options
    )
    return NeuralKernelNetwork(**arguments)


@pytest.mark.parametrize("num_outcomes", [1, 2])
@pytest.mark.parametrize("structure", ["additive", "regression", "tabular", "optimization"])
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


def test_given_columns_and_batch_shape_are_kept():
    options = {"active_dims": [0, -1], "batch_shape": torch.Size([5])}
    kernel = make_network(dataset(4), structure="additive", **options)
    assert len(kernel.primitives) == 2 and kernel.active_dims.tolist() == [0, 3]
    assert kernel.batch_shape == (5,)
    series = make_network(dataset(4), structure="time_series", active_dims=[2])
    assert series.active_dims.tolist() == [2]


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


def test_a_model_of_one_task_leaves_the_task_out_on_request():
    parts = [
        SupervisedDataset(
            X=torch.cat([torch.rand(3, 2), torch.full((3, 1), float(task))], -1),
            Y=torch.randn(3, 1),
            feature_names=["a", "b", "task"],
            outcome_names=[f"y{task}"],
        )
        for task in range(2)
    ]
    data = MultiTaskDataset(parts, target_outcome_name="y0", task_feature_index=2)
    kernel = make_network(data, structure="additive", remove_task_features=True)
    assert len(kernel.primitives) == 2 and kernel.active_dims.tolist() == [0, 1]


def test_a_network_from_parts_is_taken_as_it_is():
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


def fit_surrogate(data, **config):
    surrogate = Surrogate(SurrogateSpec(model_configs=[ModelConfig(**config)]))
    bounds = [(0.0, 2.0)] * len(data.feature_names)
    surrogate.fit([data], SearchSpaceDigest(feature_names=data.feature_names, bounds=bounds))
    return surrogate.model


def test_stock_model_with_a_network_for_two_outcomes():
    model = fit_surrogate(
        dataset(2, 2),
        botorch_model_class=SingleTaskGP,
        covar_module_class=NeuralKernelNetwork,
        covar_module_options={"structure": "additive", "wiring": "Linear1"},
    )
    assert type(model) is SingleTaskGP and isinstance(model.covar_module, NeuralKernelNetwork)
    assert model.covar_module.batch_shape == (2,)
    assert model.posterior(torch.rand(4, 2)).mean.shape == (4, 2)


def test_model_options_reach_the_model_and_data_are_scaled_once(few_steps):
    data = dataset(2, 2)
    model = fit_surrogate(
        data,
        botorch_model_class=NKNSingleTaskGP,
        model_options={"structure": "additive", "shared_kernel": True},
    )
    assert model.shared_kernel and model.covar_module.base_kernel.batch_shape == ()
    assert not hasattr(model, "outcome_transform")  # Ax standardises
    torch.testing.assert_close(model.train_targets, data.Y.mT)
    torch.testing.assert_close(model.input_transform(data.X), data.X / 2)


def test_partitions_are_sampled_when_ax_fits():
    config = {"botorch_model_class": AdditivePartitionGP, "model_options": {"num_samples": 3}}
    model = fit_surrogate(dataset(2, num_points=4), **config)
    assert type(model) is AdditivePartitionGP and model.num_samples == 3
    assert sum(model.partitions.values()) > 3


def test_structures_are_weighed_when_ax_fits(few_steps):
    config = {"botorch_model_class": StructureEnsembleGP}
    model = fit_surrogate(dataset(2, num_points=6), **config)
    assert type(model) is StructureEnsembleGP
    assert len(set(model.structure_weights.values())) == len(model.structures)


def test_a_kernel_for_a_model_that_makes_its_own_is_refused():
    with pytest.raises(UserInputError, match="NKNSingleTaskGP makes its kernel .*=RBFKernel"):
        fit_surrogate(dataset(), botorch_model_class=NKNSingleTaskGP, covar_module_class=RBFKernel)


def test_registering_again_changes_nothing():
    def state():
        maps = [*registry.CLASS_TO_REGISTRY.values(), *registry.CLASS_TO_REVERSE_REGISTRY.values()]
        maps += [covar_module_argparse.funcs, submodel_input_constructor.funcs]
        return [dict(entries) for entries in maps]

    before = state()
    assert registry.MODEL_REGISTRY[NKNSingleTaskGP] == "NKNSingleTaskGP"
    nkn_ax._register()
    assert state() == before
    stock = covar_module_argparse.dispatch(ScaleMaternKernel)
    assert stock.__module__.startswith("ax.")
    assert covar_module_argparse.dispatch(NeuralKernelNetwork).__module__ == "gpytorch_nkn.ax"


def test_without_ax_the_error_says_what_to_install(monkeypatch):
    for name in [name for name in sys.modules if name.split(".")[0] == "ax"]:
        monkeypatch.setitem(sys.modules, name, None)  # as where it is not installed
    monkeypatch.delitem(sys.modules, "gpytorch_nkn.ax")
    message = r"gpytorch_nkn\.ax needs ax-platform: pip install 'gpytorch_nkn\[ax\]'"
    with pytest.raises(ImportError, match=message):
        importlib.import_module("gpytorch_nkn.ax")


@pytest.fixture(scope="module")
def told():
    """A client with choices and a logarithm after six trials, and one under way; their points."""
    extra = [
        RangeParameterConfig(name="rate", parameter_type="float", bounds=(1e-4, 1), scaling="log"),
        ChoiceParameterConfig(name="c", parameter_type="str", values=["oak", "elm", "ash"]),
        ChoiceParameterConfig(name="k", parameter_type="int", values=[8, 2, 5], is_ordered=False),
    ]
    client = make_client(
        parameters=[*PLANE, *extra], initialization_trials=5, optimizer_options=BRIEF
    )
    points = []
    with pytest.MonkeyPatch.context() as patch:
        take_few_steps(patch)
        for _ in range(6):
            ((trial, point),) = client.get_next_trials(max_trials=1).items()
            client.complete_trial(trial, {"loss": told_loss(point)})
            points.append(point)
        ((_, point),) = client.get_next_trials(max_trials=1).items()
    return client, [*points, point]


def told_loss(point):
    wood = {"oak": 0.0, "elm": 4.0, "ash": 9.0}[point["c"]]
    return 1000 + (point["x"] - 1) ** 2 + wood + math.log10(point["rate"]) ** 2


def test_a_report_is_in_the_units_and_the_words_of_the_experiment(told, few_steps, tmp_path):
    client, points = told
    before, state = generator(client), torch.get_rng_state()
    found = report_client(client)
    assert generator(client) is before and torch.equal(torch.get_rng_state(), state)
    assert len(client._experiment.trials) == 7
    values = np.array([told_loss(point) for point in points[:6]])
    cut = found.values < values - 1e-6  # those that are far worse
    np.testing.assert_allclose(found.values[~cut], values[~cut])
    assert cut.sum() <= 1 and any("cut off 1" in line for line in found.summary) == cut.any()
    assert not found.maximize and found.best == values.argmin() and found.num_initial == 5
    assert f"trial {values.argmin()} has the lowest loss, 10" in found.summary[0]

    names = found.effects.names
    assert set(names) == {"x", "y", "log10(rate)", "c", "k"}
    woods = ["oak", "elm", "ash"]

    def row(point):
        known = {**point, "log10(rate)": math.log10(point["rate"]), "c": woods.index(point["c"])}
        return [known[name] for name in names]

    np.testing.assert_allclose(found.x, list(map(row, points[:6])))
    np.testing.assert_allclose(found.candidates, [row(points[6])])
    (said,) = [line for line in found.summary if line.startswith("Next")]
    assert f"c = {points[6]['c']}" in said and f"rate = {points[6]['rate']:#.3g}"[:12] in said
    slices = {one.name: one for one in found.slices}
    assert slices["c"].levels == ("oak", "elm", "ash") and set(slices["k"].levels) <= {*"258"}
    assert slices["log10(rate)"].grid[[0, -1]] == pytest.approx([-4, 0])
    x = slices["x"]
    assert x.grid[[0, -1]].tolist() == [-4, 4]

    near = [{**points[6], "x": value} for value in x.grid[::25]]  # what Ax itself predicts
    expected = [one["loss"] for one in client.predict(near)]
    spread = np.ptp(values)
    np.testing.assert_allclose(x.mean[::25], [mean for mean, _ in expected], atol=0.02 * spread)
    std = (x.upper - x.lower)[::25] / (2 * 1.96)
    np.testing.assert_allclose(std, [sem for _, sem in expected], atol=0.02 * spread)
    acquisition = generator(client)._acquisition.acqf  # by which it has chosen
    rows = torch.tensor(row(points[6]), dtype=torch.float64).repeat(101, 1, 1)
    rows[:, 0, names.index("x")] = torch.from_numpy(x.grid)
    with torch.no_grad():
        heights = acquisition(rows).numpy()
    assert np.corrcoef(heights, x.acquisition)[0, 1] > 0.9

    file = tmp_path / "experiment.json"
    client.save_to_json_file(str(file))
    again = report_client(Client.load_from_json_file(str(file)), title="Again")
    assert again.title == "Again" and again.num_initial == 5
    np.testing.assert_allclose(again.slices[0].mean, found.slices[0].mean, rtol=1e-6)


@pytest.mark.parametrize(
    ("structure", "reported"), [("optimization", ("loss", "cost")), ("averaged", ("cost",))]
)
def test_a_report_is_on_one_of_several_outcomes(structure, reported, few_steps):
    client = make_client(
        "-loss, cost",
        constraints=["size <= 3"],
        initialization_trials=4,
        structure=structure,
        optimizer_options=BRIEF,
    )
    values = []
    for _ in range(4):
        ((trial, point),) = client.get_next_trials(max_trials=1).items()
        values.append({**outcomes(point), "size": point["x"]})
        client.complete_trial(trial, values[-1])
    for outcome in reported:
        found, maximize = report_client(client, outcome=outcome), outcome == "cost"
        kept = np.array([value["size"] <= 3 for value in values])
        own = np.array([value[outcome] for value in values])[kept]
        assert found.maximize is maximize and not kept.all()
        assert found.feasible.tolist() == kept.tolist()
        assert found.values[found.best] == pytest.approx(own.max() if maximize else own.min())
        other = {"loss": "cost", "cost": "loss"}[outcome]
        assert f"This is on {outcome} alone, whatever {other} came to." in found.summary
        assert bool(found.structures) == (structure == "averaged")
    for outcome in (None, "size"):
        with pytest.raises(ValueError, match=rf"objectives \['loss', 'cost'\], got {outcome!r}"):
            report_client(client, outcome=outcome)


def test_a_report_says_which_trials_it_is_on_and_which_keep_the_constraints():
    client = Client()
    batch = {"parameter_type": "int", "values": [16, 32, 64]}
    extra = ChoiceParameterConfig(name="batch", is_ordered=True, **batch)
    client.configure_experiment(parameters=[*PLANE, extra])
    constraints = ["cost <= 0.5 * baseline", "size >= -2"]
    client.configure_optimization(objective="-loss", outcome_constraints=constraints)
    configs = [ModelConfig(botorch_model_class=SingleTaskGP)]  # one for all outcomes
    options = {"surrogate_spec": SurrogateSpec(model_configs=configs)}
    spec = GeneratorSpec(
        generator_enum=Generators.BOTORCH_MODULAR,
        generator_kwargs=options,
        generator_gen_kwargs={"model_gen_options": {"optimizer_kwargs": BRIEF}},
    )
    node = GenerationNode(name="only", generator_specs=[spec])
    client.set_generation_strategy(GenerationStrategy(name="own", nodes=[node]))
    points = [(3, 3, 16), (1, 0, 32), (2, 2, 64), (-1, 0, 16), (0, 2, 32), (0.5, 1, 64), (2, 0, 16)]
    told = []
    for place, (x, y, size) in enumerate(points):
        point = {"x": float(x), "y": float(y), "batch": size}
        attach = client.attach_trial if place else client.attach_baseline
        trial = attach(point)
        told.append({**outcomes(point), "size": -3.0 if place == 1 else 0.0})
        if place == 3:
            client.mark_trial_failed(trial)
        elif place == 4:
            client.complete_trial(trial, {"cost": told[4]["cost"], "size": 0.0})
        else:
            client.complete_trial(trial, told[-1])
    found = report_client(client)
    # of the baseline's 6 half are 3; trial 1 is better and too small
    assert found.feasible.tolist() == [False, False, False, True, True] and len(found.x) == 5
    assert "2 keep the constraints; trial 6 has the lowest loss of these" in found.summary[0]
    assert "x = 2.00, y = 0 and batch = 16" in found.summary[0]
    line = "Left out, without a value of loss: trials 3 (failed), 4 (completed)."
    assert line in found.summary or line.replace("completed", "failed") in found.summary
    sizes = next((one for one in found.slices if one.name == "batch"), None)
    assert sizes is None or sizes.levels == ("16", "32", "64")

    ((trial, point),) = client.get_next_trials(max_trials=1).items()
    found = report_client(client)
    (predicted,) = client.predict([point])
    cost, error = predicted["cost"]
    (line,) = [line for line in found.summary if line.startswith("Of the next point")]
    assert f"cost {cost:.4g} ± {error:.2g}, size " in line
    mean, error = predicted["loss"]
    assert found.slices[0].candidate_means[0] == pytest.approx(mean, rel=1e-4)


def test_a_report_that_cannot_be_made_is_refused(told, monkeypatch):
    with pytest.raises(TypeError, match="must be an ax.api.client.Client, got GenerationStrategy"):
        report_client(make_generation_strategy())
    client = Client()
    client.configure_experiment(parameters=PLANE)
    client.set_generation_strategy(make_generation_strategy())
    with pytest.raises(ValueError, match=r"one of the objectives \[\], got None"):
        report_client(client)
    client = make_client()
    with pytest.raises(ValueError, match="at least 3 evaluations, got none"):
        report_client(client)
    run_trials(client, 2)
    with pytest.raises(ValueError, match="at least 3 evaluations, got 2"):
        report_client(client)
    specs = [GeneratorSpec(generator_enum=Generators.SOBOL)]
    node = GenerationNode(name="only", generator_specs=specs)
    client.set_generation_strategy(GenerationStrategy(name="random", nodes=[node]))
    with pytest.raises(ValueError, match="The strategy 'random' has no surrogate_spec"):
        report_client(client)
    told_client, _ = told
    standardised = StandardizeY.transform_experiment_data

    def bent(self, experiment_data):
        found = standardised(self, experiment_data)
        found.observation_data["mean"] = found.observation_data["mean"] ** 3
        return found

    monkeypatch.setattr(StandardizeY, "transform_experiment_data", bent)
    with pytest.raises(NotImplementedError, match=r"more to 'loss' than .*'StandardizeY'"):
        report_client(told_client)


def test_example_of_the_module_runs():
    _, text = nkn_ax.__doc__.split("client::\n", 1)
    example, count = textwrap.dedent(text.split("\n\n:func:")[0]), "range(20)"
    assert example.count(count) == 1
    namespace = {}
    exec(example.replace(count, "range(6)"), namespace)
    client = namespace["client"]
    assert len(client._experiment.trials) == 6
    assert type(generator(client).surrogate.model) is NKNSingleTaskGP
