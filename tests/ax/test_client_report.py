"""Reports on searches with Ax."""

import math

import numpy as np
import pytest
import torch
from ax.adapter.registry import Generators
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.api.client import Client
from ax.api.configs import ChoiceParameterConfig, RangeParameterConfig
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig
from botorch.models import SingleTaskGP

from gpytorch_nkn.ax import make_generation_strategy, report_client
from tests.ax.clients import (
    BRIEF,
    PLANE,
    generator,
    make_client,
    outcomes,
    run_trials,
    take_few_steps,
)


@pytest.fixture(scope="module")
def told():
    """Return a client after six trials (choices, a logarithm), a running trial, and the points."""
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
    assert cut.sum() <= 1 and any("winsorised 1 of" in line for line in found.summary) == cut.any()
    assert not found.maximize and found.best == values.argmin() and found.num_initial == 5
    best = f"Evaluation {values.argmin() + 1}"
    assert f"{best} of 6 has the lowest loss, 10" in found.summary[0]

    names = found.effects.names
    assert set(names) == {"x", "y", "log10(rate)", "c", "k"}
    woods = ["oak", "elm", "ash"]

    def row(point):
        known = {**point, "log10(rate)": math.log10(point["rate"]), "c": woods.index(point["c"])}
        return [known[name] for name in names]

    np.testing.assert_allclose(found.x, list(map(row, points[:6])))
    np.testing.assert_allclose(found.candidates, [row(points[6])])
    (said,) = [line for line in found.summary if line.startswith("Next")]
    assert f"c = {points[6]['c']}" in said and "log10(rate) = " in said
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
    assert np.corrcoef(np.exp(heights), x.acquisition)[0, 1] > 0.9
    assert 0 <= x.acquisition.min() < x.acquisition.max() <= 1

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
        assert f"This report ignores the values of {other}." in found.summary
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
    told = "Evaluation 5 of 5 has the lowest loss of the 2 feasible ones"
    assert told in found.summary[0]
    assert "x = 2, y = 0 and batch = 16" in found.summary[0]
    sizes = next((one for one in found.slices if one.name == "batch"), None)
    assert sizes is None or sizes.levels == ("16", "32", "64")

    ((trial, point),) = client.get_next_trials(max_trials=1).items()
    found = report_client(client)
    (predicted,) = client.predict([point])
    mean, _ = predicted["loss"]
    assert found.slices[0].candidate_means[0] == pytest.approx(mean, rel=1e-4)


def test_a_report_that_cannot_be_made_is_rejected(told, monkeypatch):
    with pytest.raises(TypeError, match="must be an ax.api.client.Client, got GenerationStrategy"):
        report_client(make_generation_strategy())
    client = Client()
    client.configure_experiment(parameters=PLANE)
    client.set_generation_strategy(make_generation_strategy())
    with pytest.raises(ValueError, match=r"one of the objectives \[\], got None"):
        report_client(client)
    client = make_client()
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
    with pytest.raises(NotImplementedError, match=r"'loss' winsorised and .*'StandardizeY'"):
        report_client(told_client)
