"""The report of a search with the client of Ax."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from ax.adapter.transforms.base import Transform
from ax.adapter.transforms.log import Log
from ax.adapter.transforms.logit import Logit
from ax.adapter.transforms.standardize_y import StandardizeY
from ax.adapter.transforms.utils import derelativize_optimization_config_with_raw_status_quo
from ax.adapter.transforms.winsorize import Winsorize
from ax.api.client import Client
from ax.core.observation import ObservationFeatures
from ax.core.outcome_constraint import OutcomeConstraint
from ax.core.parameter import ChoiceParameter, RangeParameter
from ax.core.search_space import SearchSpace
from ax.core.types import ComparisonOp
from botorch.models.model import ModelList
from pandas import DataFrame
from torch import Tensor

from gpytorch_nkn.ax.joint_constraints import with_joint_constraints
from gpytorch_nkn.interpretation import SearchReport, report_search

__all__ = ["report_client"]


def report_client(
    client: Client,
    *,
    outcome: str | None = None,
    optimum: float | None = None,
    title: str = "How the search goes",
    seed: int = 0,
) -> SearchReport:
    """Say how a search with Ax went, in its own units, see :func:`.report_search`.

    The model of the client's strategy is trained on all evaluations. Trials under way are the next
    points. Choices are categories with their names; a parameter on a logarithmic scale is
    ``log10(rate)``. The best is one of the trials whose observed outcomes keep the constraints.
    The acquisition function is Ax's, with constraints and other objectives; the rest is on one
    outcome. The client is left as it was.

    Args:
        client: A client with a strategy of :func:`make_generation_strategy`, or one of your own
            with a ``surrogate_spec``, and at least 3 evaluations. Where a strategy of your own
            turns unordered choices into columns of 0 and 1, they have Ax's names.
        outcome: Which of several objectives the report is on; not a constraint.
        optimum: The best value of it that there is, if it is known.
        title: Of the report.
        seed: Of all random draws; the global random state is left alone.

    Returns:
        The report. Values so bad that Ax cuts them off are in it as the model has them.

    Raises:
        TypeError: It is no client of Ax.
        ValueError: ``outcome`` is none of the objectives, or there are several and it is not given;
            there is no such strategy, or there are too few evaluations.
        NotImplementedError: Ax transforms the outcome otherwise than by cutting values off and
            standardising them, as where it is bounded, too.
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
        of = _Transforms(adapter.transforms.values())
        signature = experiment.get_metric(outcome).signature
        means = adapter.get_training_data().observation_data["mean"]
        means = means[means[signature].notna()]
        evaluated = means[signature]
        joint = with_joint_constraints(goal.clone())
        fixed = derelativize_optimization_config_with_raw_status_quo(joint, adapter)
        feasible = _feasible(means, fixed.outcome_constraints)
        trials = evaluated.index.get_level_values("trial_index")
        by_model = np.isin(trials, list(node.trials_from_node))
        under_way = [
            ObservationFeatures(parameters=arm.parameters)
            for trial in experiment.trials.values()
            if not trial.status.is_terminal and trial.index not in trials
            for arm in trial.arms
        ]
        report = report_search(
            _surrogate(adapter, signature),
            maximize=weights[outcome] > 0,
            acquisition=_Acquisition(adapter),
            candidates=adapter.transform_observation_features(under_way) if under_way else None,
            bounds=of.bounds(space, adapter.parameters),
            optimum=optimum,
            num_initial=int(by_model.argmax()) if by_model.any() else len(by_model),
            feasible=feasible,
            outcome=outcome,
            columns=[of.name(space, parameter) for parameter in adapter.parameters],
            categories=_choices(space, adapter),
            y_offset=of(StandardizeY, "Ymean").get(signature, 0.0),
            y_scale=of(StandardizeY, "Ystd").get(signature, 1.0),
            title=title,
            seed=seed,
        )
    values = evaluated.to_numpy()
    cut = values.clip(*of(Winsorize, "cutoffs").get(signature, (-np.inf, np.inf)))
    if not np.allclose(report.values, cut, rtol=1e-5, atol=1e-5 * np.ptp(cut)):
        raise NotImplementedError(
            f"Ax does more to {outcome!r} than standardise it, and a report would be on another "
            f"scale: got the transforms {list(adapter.transforms)}."
        )
    notes = []
    if others := sorted({*weights} - {outcome}):
        notes.append(f"This is on {outcome} alone, whatever {' and '.join(others)} came to.")
    if number := int((values != cut).sum()):
        notes.append(f"Ax cut off {number} of the values.")
    return replace(report, summary=(*report.summary, *notes))


def _surrogate_node(strategy: Any) -> tuple[Any, Any]:
    """The last node of a strategy that has a model, and its specification."""
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


class _Transforms:
    """What the transforms of an adapter of Ax hold."""

    def __init__(self, transforms: Iterable[Transform]):
        self._transforms = list(transforms)

    def __call__(self, kind: type[Transform], attribute: str) -> Any:
        """What it has by parameter or outcome; empty without such a transform."""
        found = (getattr(one, attribute, {}) for one in self._transforms if isinstance(one, kind))
        return next(found, {})

    def name(self, space: SearchSpace, parameter: str) -> str:
        """The parameter, or the function of a range that the model has."""
        is_range = isinstance(space.parameters[parameter], RangeParameter)
        for kind, function in ((Logit, "logit"), (Log, "log10")):
            if is_range and parameter in self(kind, "transform_parameters"):
                return f"{function}({parameter})"
        return parameter

    def bounds(self, space: SearchSpace, parameters: Sequence[str]) -> Tensor:
        """Lower and upper ends ``2 x D`` of what the model has."""
        space = deepcopy(space)
        for transform in self._transforms:
            space = transform.transform_search_space(space)
        ends = []
        for name in parameters:
            one: Any = space.parameters[name]
            is_range = isinstance(one, RangeParameter)
            ends.append((one.lower, one.upper) if is_range else (min(one.values), max(one.values)))
        return torch.tensor(ends, dtype=torch.float64).mT


def _choices(space: SearchSpace, adapter: Any) -> dict[str, dict[float, str]]:
    """Values of the choices by the numbers that the model has for them."""
    found = {}
    observed = adapter.get_training_data().arm_data
    first = {name: observed[name].iloc[0] for name in space.parameters if name in observed}
    for name, parameter in space.parameters.items():
        if name not in adapter.parameters or not isinstance(parameter, ChoiceParameter):
            continue
        rows = [ObservationFeatures(parameters={**first, name: v}) for v in parameter.values]
        codes = adapter.transform_observation_features(rows)[:, adapter.parameters.index(name)]
        found[name] = dict(zip(codes.tolist(), map(str, parameter.values), strict=True))
    return found


def _feasible(means: DataFrame, constraints: Sequence[OutcomeConstraint]) -> list[bool]:
    """Which observed outcomes keep all constraints; where one is missing, they do not."""
    kept = np.ones(len(means), dtype=bool)
    for constraint in constraints:
        held = sum(weight * means[name] for name, weight in constraint.metric_weights)
        at_least = constraint.op is ComparisonOp.GEQ
        kept &= held >= constraint.bound if at_least else held <= constraint.bound
    return kept.tolist()


def _surrogate(adapter: Any, signature: str) -> Any:
    """The model of one outcome."""
    model, place = adapter.generator.surrogate.model, adapter.outcomes.index(signature)
    if isinstance(model, ModelList):
        return model.models[place]
    if model.num_outputs == 1:
        return model
    # in eval mode it may hold inputs for each outcome, which subset_output takes as they are
    return model.train().subset_output([place]).eval()


class _Acquisition:
    """Ax's acquisition function ``A`` at points ``A x 1 x D`` of the model."""

    def __init__(self, adapter: Any):
        self._adapter = adapter

    @property
    def _log(self) -> bool:
        """Whether values are logarithms, which shows once there are some."""
        return getattr(self._adapter.generator._botorch_acqf_class, "_log", False)

    def __call__(self, points: Tensor) -> Tensor:
        rows = [
            ObservationFeatures(parameters=dict(zip(self._adapter.parameters, row, strict=True)))
            for row in points.squeeze(-2).tolist()
        ]
        for transform in reversed(self._adapter.transforms.values()):
            rows = transform.untransform_observation_features(rows)
        return torch.tensor(self._adapter.evaluate_acquisition_function(rows))
