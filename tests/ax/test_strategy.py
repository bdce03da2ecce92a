"""Loops with our strategy, and their storage."""

from types import SimpleNamespace

import pytest
import torch
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from botorch.acquisition.logei import qLogNoisyExpectedImprovement
from gpytorch.kernels import RBFKernel

from gpytorch_nkn.ax import (
    EnsembleAcquisition,
    acquisition as acquisition_module,
    make_generation_strategy,
)
from gpytorch_nkn.models import TRAINERS, NKNSingleTaskGP, StructureEnsembleGP
from tests.ax.clients import (
    ALTERNATING,
    BOUNDS,
    BRIEF,
    CHEAP,
    PLANE,
    Spy,
    generator,
    make_client,
    run_trials,
)


@pytest.fixture(scope="module")
def loop():
    """A client after seven trials, with the calls of the recipe and of the sweeps."""
    with pytest.MonkeyPatch.context() as patch:
        recipe = Spy(TRAINERS[NKNSingleTaskGP])
        sweeps = Spy(acquisition_module.coordinate_sweep_initial_conditions)
        patch.setitem(TRAINERS, NKNSingleTaskGP, recipe)
        patch.setattr(acquisition_module, "coordinate_sweep_initial_conditions", sweeps)
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
    assert type(acquisition) is EnsembleAcquisition
    assert type(acquisition.acqf) is qLogNoisyExpectedImprovement
    incumbent, known = loop.sweeps.calls[-1][1]["incumbent"], acquisition.acqf.X_baseline
    assert sorted(incumbent.tolist()) == sorted(known.tolist())


def test_experiment_and_strategy_are_stored_and_go_on_where_they_were(loop, few_steps, tmp_path):
    file = tmp_path / "experiment.json"
    loop.client.save_to_json_file(str(file))
    restored = Client.load_from_json_file(str(file))
    (spec,) = restored._generation_strategy.current_node.generator_specs
    (config,) = spec.generator_kwargs["surrogate_spec"].model_configs
    assert config.botorch_model_class is NKNSingleTaskGP
    assert config.model_options == {"structure": "optimization"}
    assert spec.generator_kwargs["acquisition_class"] is EnsembleAcquisition
    assert spec.generator_gen_kwargs == {"model_gen_options": {"optimizer_kwargs": CHEAP}}
    assert list(restored.get_next_trials(max_trials=1)) == [7]
    model = generator(restored).surrogate.model
    assert type(model) is NKNSingleTaskGP and len(model.train_targets) == 7


def test_discrete_parameters_are_searched_without_sweeps(few_steps, monkeypatch):
    sweeps = Spy(acquisition_module.coordinate_sweep_initial_conditions)
    monkeypatch.setattr(acquisition_module, "coordinate_sweep_initial_conditions", sweeps)
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
    ("options", "error", "message"),
    [
        ({"structure": "optimisation"}, ValueError, "structure must be one of .*'optimisation'"),
        ({"structure": RBFKernel()}, TypeError, r"must be a name.*got RBFKernel"),
        ({"initialization_trials": 0}, ValueError, "at least 1, got 0"),
        ({"seed": "x"}, TypeError, "seed must be an integer, got 'x'"),
    ],
)
def test_wrong_options_fail_before_the_first_trial(options, error, message):
    with pytest.raises(error, match=message):
        make_generation_strategy(**options)
