"""Clients of Ax with our strategy, and operations on them."""

import inspect
from functools import partial

from ax.api.client import Client
from ax.api.configs import RangeParameterConfig

from gpytorch_nkn.ax import make_generation_strategy
from gpytorch_nkn.models import TRAINERS, NKNMultiTaskGP, NKNSingleTaskGP, StructureEnsembleGP

BRIEF = {"num_restarts": 1, "raw_samples": 4, "options": {"maxiter": 2}}
# with many choices; others go through all of them
ALTERNATING = {**BRIEF, "options": {"maxiter_alternating": 1, "maxiter_continuous": 2}}
CHEAP = {"num_restarts": 2, "raw_samples": 16, "options": {"maxiter": 10}}
BOUNDS = (-4.0, 4.0)
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


def run_trials(client, number, names=("loss",)):
    """Complete a number of trials; return the names of their generation nodes."""
    nodes = []
    for _ in range(number):
        for trial, point in client.get_next_trials(max_trials=1).items():
            client.complete_trial(trial, {name: outcomes(point)[name] for name in names})
        nodes.append(client._generation_strategy.current_node.name)
        run = client._generation_strategy.last_generator_run
        expected = {"Sobol": "Sobol", "NKN": "BO_MIXED"}[nodes[-1]]
        assert run._generator_key == expected, "Ax fell back on another generator"
    return nodes


def generator(client):
    return client._generation_strategy.current_node._fitted_adapter.generator


class Spy:
    """Calls a function and records its arguments."""

    def __init__(self, function):
        self.function, self.calls = function, []
        self.__signature__ = inspect.signature(function)

    def __call__(self, *args, **kwargs):
        self.calls.append((args, kwargs))
        return self.function(*args, **kwargs)


def take_few_steps(patch, max_iterations=3):
    for cls in (NKNSingleTaskGP, NKNMultiTaskGP, StructureEnsembleGP):
        patch.setitem(TRAINERS, cls, partial(TRAINERS[cls], max_iterations=max_iterations))
