"""Report of a search with Ax's client."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from ax.adapter.transforms.log import Log
from ax.adapter.transforms.logit import Logit
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.adapter.transforms.utils import derelativize_optimization_config_with_raw_status_quo
from ax.adapter.transforms.winsorize import Winsorize
from ax.api.client import Client
from ax.core.observation import ObservationFeatures
from ax.core.parameter import ChoiceParameter, RangeParameter
from ax.core.search_space import SearchSpace
from ax.core.types import ComparisonOp
from botorch.models.model import ModelList
from torch import Tensor

from gpytorch_nkn.ax.joint_constraints import with_joint_constraints
from gpytorch_nkn.interpretation import SearchReport, report_search

__all__ = ["report_client"]


def report_client(
    client: Client,
    *,
    outcome: str | None = None,
    optimum: float | None = None,
    title: str = "Report on the search",
    seed: int = 0,
) -> SearchReport:
    """Describe a search with Ax in its own units, see :func:`.report_search`.

    The model of the client's strategy is trained on all evaluations. Running trials are the next
    points, choice parameters are named categories, and a parameter on a logarithmic scale is
    ``log10(rate)``. Only trials whose observed outcomes satisfy the constraints can be the best.
    The acquisition function is Ax's, for all objectives and constraints; everything else describes
    one outcome. The client does not change.

    Args:
        client: A client with at least 3 evaluations and a strategy of
            :func:`make_generation_strategy`, or one of your own with a ``surrogate_spec``.
        outcome: Name of one of several objectives.
        optimum: Best possible value of the objective, if known.
        title: Title of the report.
        seed: Seed of all random draws; the global random state does not change.

    Returns:
        Report, with winsorised values if Ax winsorises the outcome.

    Raises:
        TypeError: ``client`` is not a client of Ax.
        ValueError: ``outcome`` is not an objective or is missing, the strategy has no surrogate, or
            there are too few evaluations.
        NotImplementedError: Ax transforms the outcome by more than winsorising and standardising,
            for example because of bounds.
    """
    if not isinstance(client, Client):
        raise TypeError(f"client must be an ax.api.client.Client, got {type(client).__name__}.")
    experiment, strategy = client._experiment, client._generation_strategy
    goal: Any = experiment.optimization_config
    weights = {} if goal is None else dict(goal.objective.metric_weights)
    if outcome is None and len(weights) == 1:
        (outcome,) = weights
    if not isinstance(outcome, str) or outcome not in weights:
        raise ValueError(f"outcome must be one of the objectives {list(weights)}, got {outcome!r}.")
    node, spec = _surrogate_node(strategy)
    space = experiment.search_space
    if experiment.lookup_data().df.empty:
        raise ValueError("A report needs at least 3 evaluations, got none.")
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        adapter: Any = spec.generator_enum(experiment=experiment, **spec.generator_kwargs)
        signature = experiment.get_metric(outcome).signature
        means = adapter.get_training_data().observation_data["mean"]
        means = means[means[signature].notna()]
        evaluated = means[signature]
        joint = with_joint_constraints(goal.clone())
        fixed = derelativize_optimization_config_with_raw_status_quo(joint, adapter)
        trials = evaluated.index.get_level_values("trial_index")
        by_model = np.isin(trials, list(node.trials_from_node))
        running = [
            ObservationFeatures(parameters=arm.parameters)
            for trial in experiment.trials.values()
            if not trial.status.is_terminal and trial.index not in trials
            for arm in trial.arms
        ]
        report = report_search(
            _surrogate(adapter, signature),
            maximize=weights[outcome] > 0,
            acquisition=_Acquisition(adapter),
            candidates=adapter.transform_observation_features(running) if running else None,
            bounds=_bounds(adapter, space),
            optimum=optimum,
            num_initial=int(by_model.argmax()) if by_model.any() else len(by_model),
            feasible=_feasible(means, fixed.outcome_constraints),
            outcome=outcome,
            columns=[_name(adapter, space, parameter) for parameter in adapter.parameters],
            categories=_choices(adapter, space),
            y_offset=_learned(adapter, StandardizeY, "Ymean").get(signature, 0.0),
            y_scale=_learned(adapter, StandardizeY, "Ystd").get(signature, 1.0),
            title=title,
            seed=seed,
        )
    values = evaluated.to_numpy()
    cutoffs = _learned(adapter, Winsorize, "cutoffs").get(signature, (-np.inf, np.inf))
    cut = values.clip(*cutoffs)
    if not np.allclose(report.values, cut, rtol=1e-5, atol=1e-5 * np.ptp(cut)):
        raise NotImplementedError(
            f"A report needs {outcome!r} winsorised and standardised only, got the transforms "
            f"{list(adapter.transforms)}."
        )
    notes = []
    if others := sorted({*weights} - {outcome}):
        notes.append(f"This report ignores the values of {' and '.join(others)}.")
    if number := int((values != cut).sum()):
        notes.append(f"Ax winsorised {number} of the values.")
    return replace(report, summary=(*report.summary, *notes))


def _surrogate_node(strategy: Any) -> tuple[Any, Any]:
    """Return the last node of a strategy with a model, and its specification."""
    known = [
        (node, spec)
        for node in strategy.nodes_by_name.values()
        for spec in node.generator_specs
        if "surrogate_spec" in spec.generator_kwargs
    ]
    if not known:
        raise ValueError(
            f"The strategy {strategy.name!r} has no surrogate_spec: give the client one of "
            "make_generation_strategy."
        )
    return known[-1]


def _surrogate(adapter: Any, signature: str) -> Any:
    """Return the model of one outcome."""
    model, number = adapter.generator.surrogate.model, adapter.outcomes.index(signature)
    if isinstance(model, ModelList):
        return model.models[number]
    if model.num_outputs == 1:
        return model
    # in eval mode the model may hold inputs for each outcome, which subset_output would keep
    return model.train().subset_output([number]).eval()


def _learned(adapter: Any, kind: type, attribute: str) -> Any:
    """Return an attribute of a transform by parameter or outcome; empty without the transform."""
    known = adapter.transforms.values()
    return next((getattr(one, attribute, {}) for one in known if isinstance(one, kind)), {})


def _name(adapter: Any, space: SearchSpace, parameter: str) -> str:
    """Return the name of a parameter, or of the function of it that the model uses."""
    if isinstance(space.parameters[parameter], RangeParameter):
        for kind, function in ((Logit, "logit"), (Log, "log10")):
            if parameter in _learned(adapter, kind, "transform_parameters"):
                return f"{function}({parameter})"
    return parameter


def _bounds(adapter: Any, space: SearchSpace) -> Tensor:
    """Return lower and upper bounds ``2 x D`` of the model's inputs."""
    space = deepcopy(space)
    for transform in adapter.transforms.values():
        space = transform.transform_search_space(space)
    ends = []
    for name in adapter.parameters:
        one: Any = space.parameters[name]
        is_range = isinstance(one, RangeParameter)
        ends.append((one.lower, one.upper) if is_range else (min(one.values), max(one.values)))
    return torch.tensor(ends, dtype=torch.float64).mT


def _choices(adapter: Any, space: SearchSpace) -> dict[str, dict[float, str]]:
    """Return the values of choices by their codes in the model."""
    found = {}
    observed = adapter.get_training_data().arm_data
    first = {name: observed[name].iloc[0] for name in space.parameters if name in observed}
    for name, parameter in space.parameters.items():
        if name in adapter.parameters and isinstance(parameter, ChoiceParameter):
            rows = [ObservationFeatures(parameters={**first, name: v}) for v in parameter.values]
            codes = adapter.transform_observation_features(rows)[:, adapter.parameters.index(name)]
            found[name] = dict(zip(codes.tolist(), map(str, parameter.values), strict=True))
    return found


def _feasible(means: Any, constraints: Any) -> list[bool]:
    """Return whether observed outcomes satisfy all constraints; missing outcomes do not."""
    kept = np.ones(len(means), dtype=bool)
    for constraint in constraints:
        total = sum(weight * means[name] for name, weight in constraint.metric_weights)
        at_least = constraint.op is ComparisonOp.GEQ
        kept &= total >= constraint.bound if at_least else total <= constraint.bound
    return kept.tolist()


class _Acquisition:
    """Ax's acquisition function ``A`` at points ``A x 1 x D`` of the model."""

    def __init__(self, adapter: Any):
        self._adapter = adapter

    @property
    def _log(self) -> bool:
        """Whether values are logarithms, which is known after the first evaluation."""
        return getattr(self._adapter.generator._botorch_acqf_class, "_log", False)

    def __call__(self, points: Tensor) -> Tensor:
        rows = [
            ObservationFeatures(parameters=dict(zip(self._adapter.parameters, row, strict=True)))
            for row in points.squeeze(-2).tolist()
        ]
        for transform in reversed(self._adapter.transforms.values()):
            rows = transform.untransform_observation_features(rows)
        return torch.tensor(self._adapter.evaluate_acquisition_function(rows))
