"""Models and kernels of this package in Ax; needs ax-platform.

Importing this module makes them known to Ax. The whole of it, as a strategy for Ax's client::

    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig
    from gpytorch_nkn.ax import make_generation_strategy

    client = Client()
    client.configure_experiment(
        parameters=[
            RangeParameterConfig(name=name, parameter_type="float", bounds=(-4, 4))
            for name in ("x", "y")
        ]
    )
    client.configure_optimization(objective="-loss")  # minimise
    client.set_generation_strategy(make_generation_strategy(seed=0))
    for _ in range(20):
        for trial, point in client.get_next_trials(max_trials=1).items():
            client.complete_trial(trial, {"loss": (point["x"] - 1) ** 2 + point["y"] ** 4})

:func:`report_client` then says how the search went.

In a strategy of your own, the surrogate is one of these ``ModelConfig``. Numbers of columns and
batch shapes come from the data; options are plain values, so that Ax can store them::

    ModelConfig(botorch_model_class=NKNSingleTaskGP, model_options={"structure": "regression"})
    ModelConfig(
        botorch_model_class=MultiTaskGP,  # any model that takes a covar_module
        covar_module_class=NeuralKernelNetwork,
        covar_module_options={"structure": "additive", "wiring": "Linear4-Product2-Linear1"},
    )

The first is trained by :func:`gpytorch_nkn.bo.fit_bo_model`, the second by BoTorch. The structure
of a kernel is a name as :class:`.NKNSingleTaskGP` takes it (default: ``"optimization"``, here with
a variance of one, as BoTorch's own default kernel has), beside options of the preset it stands for.
:class:`.AdditivePartitionGP` and :class:`.StructureEnsembleGP` are known to Ax, too.

Import this module before a stored experiment is loaded, too: Ax finds classes by name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
import torch
from botorch.acquisition import (
    AcquisitionFunction,
    MCAcquisitionFunction,
    OneShotAcquisitionFunction,
)
from botorch.acquisition.multi_objective import MultiObjectiveMCAcquisitionFunction
from botorch.acquisition.multioutput_acquisition import MultiOutputAcquisitionFunction
from botorch.models import SingleTaskGP
from botorch.models.model import Model, ModelList
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import LinearKernel
from pandas import DataFrame
from torch import Tensor

from gpytorch_nkn.bo import coordinate_sweep_initial_conditions
from gpytorch_nkn.interpretation import SearchReport, report_search
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import NETWORKS, check_word, named_network
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood
from gpytorch_nkn.models import AdditivePartitionGP, NKNSingleTaskGP, StructureEnsembleGP

try:
    from ax.adapter.base import Adapter
    from ax.adapter.registry import GENERATOR_KEY_TO_GENERATOR_SETUP, Generators
    from ax.adapter.transforms.base import Transform
    from ax.adapter.transforms.bilog_y import BilogY
    from ax.adapter.transforms.derelativize import Derelativize
    from ax.adapter.transforms.log import Log
    from ax.adapter.transforms.logit import Logit
    from ax.adapter.transforms.standardize_y import StandardizeY
    from ax.adapter.transforms.utils import derelativize_optimization_config_with_raw_status_quo
    from ax.adapter.transforms.winsorize import Winsorize
    from ax.api.client import Client
    from ax.core.observation import ObservationFeatures
    from ax.core.optimization_config import OptimizationConfig
    from ax.core.outcome_constraint import OutcomeConstraint, ScalarizedOutcomeConstraint
    from ax.core.parameter import ChoiceParameter, RangeParameter
    from ax.core.search_space import SearchSpace, SearchSpaceDigest
    from ax.core.trial_status import TrialStatus
    from ax.core.types import ComparisonOp
    from ax.exceptions.core import UserInputError
    from ax.generation_strategy.generation_node import GenerationNode
    from ax.generation_strategy.generation_strategy import GenerationStrategy
    from ax.generation_strategy.generator_spec import GeneratorSpec
    from ax.generation_strategy.transition_criterion import MaxTrialsAwaitingData, MinTrials
    from ax.generators.torch.botorch_modular.acquisition import Acquisition
    from ax.generators.torch.botorch_modular.input_constructors.covar_modules import (
        covar_module_argparse,
    )
    from ax.generators.torch.botorch_modular.surrogate import (
        SurrogateSpec,
        submodel_input_constructor,
    )
    from ax.generators.torch.botorch_modular.utils import ModelConfig
    from ax.storage.botorch_modular_registry import (
        register_acquisition,
        register_kernel,
        register_mll,
        register_model,
    )
    from ax.storage.transform_registry import register_transform
except ImportError as error:
    raise ImportError(
        f"gpytorch_nkn.ax needs ax-platform: pip install 'gpytorch_nkn[ax]' ({error})."
    ) from error

__all__ = [
    "CoordinateSweepAcquisition",
    "EnsembleAcquisition",
    "make_generation_strategy",
    "report_client",
]

_ENSEMBLES = (AdditivePartitionGP, StructureEnsembleGP)
_MODELS = (*_ENSEMBLES, NKNSingleTaskGP)
_SAMPLED = (MCAcquisitionFunction, MultiObjectiveMCAcquisitionFunction)
_TRIALS, _POINTS = 6, 4  # that a report names
_AVERAGED = "averaged"  # name of the structure that stands for an ensemble


class EnsembleAcquisition(Acquisition):
    """Ax's acquisition, told what an ensemble needs: which outcomes shall be small, and draws.

    Ax models outcomes that are to be minimised, or bounded from above, as they are. A
    :class:`.StructureEnsembleGP` has to know (``maximize``).

    BoTorch's default number of draws is for each member. With eight of them that is eight times the
    work, of which several objectives make most: their front is partitioned for every draw. A
    ``sampler`` or ``mc_samples`` among the options of the acquisition function goes before.

    For ``GeneratorSpec(generator_kwargs={"acquisition_class": EnsembleAcquisition, ...})``.
    """

    def _construct_botorch_acquisition(
        self,
        botorch_acqf_class: type[AcquisitionFunction],
        botorch_acqf_options: dict[str, Any],
        model: Model,
    ) -> AcquisitionFunction:
        parts = model.models if isinstance(model, ModelList) else [model]
        for part, is_larger_better in zip(parts, self._directions(), strict=False):
            if isinstance(part, StructureEnsembleGP):
                part.maximize = is_larger_better
        members = [part.num_members for part in parts if isinstance(part, _ENSEMBLES)]
        kind: Any = botorch_acqf_class
        is_sampled = issubclass(kind, _SAMPLED) and not issubclass(kind, OneShotAcquisitionFunction)
        is_told = {"sampler", "mc_samples"} & set(botorch_acqf_options)
        if is_sampled and not is_told and len(members) == len(parts):
            number = max(1, kind._default_sample_shape.numel() // max(members))
            sampler = SobolQMCNormalSampler(torch.Size([number]))
            botorch_acqf_options = {**botorch_acqf_options, "sampler": sampler}
        return super()._construct_botorch_acquisition(
            botorch_acqf_class, botorch_acqf_options, model
        )

    def _directions(self) -> list[bool]:
        """Whether each outcome shall be large; true for one that nothing is said of."""
        weights = self._objective_weights
        wanted = weights.reshape(-1, weights.size(-1)).sum(0)
        if self._outcome_constraints is not None:  # A y <= b
            upper = self._outcome_constraints[0].sum(0)
            wanted = torch.where(wanted == 0, -upper.to(wanted), wanted)
        return (wanted >= 0).tolist()


class CoordinateSweepAcquisition(EnsembleAcquisition):
    """Ax's acquisition, half of whose starting points are coordinate sweeps of the best points.

    The sweeps are those of :func:`gpytorch_nkn.bo.coordinate_sweep_initial_conditions`. They take
    place where BoTorch's ``optimize_acqf`` does: in search spaces without discrete parameters.

    For ``GeneratorSpec(generator_kwargs={"acquisition_class": CoordinateSweepAcquisition, ...})``.
    An ``ic_generator`` among the options of the optimiser goes before.
    """

    def optimize(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Candidates, their acquisition values and weights; arguments are those of the base."""
        options = dict(kwargs.get("optimizer_options") or {})
        incumbent = self._incumbent()
        if incumbent is not None and "ic_generator" not in options:
            options["ic_generator"] = coordinate_sweep_initial_conditions
            options["incumbent"] = incumbent
            kwargs["optimizer_options"] = options
        return super().optimize(*args, **kwargs)

    def _incumbent(self) -> Tensor | None:
        """Points to sweep from, best first, or ``None`` where sweeps make no sense."""
        space = self.search_space_digest
        if space.ordinal_features or space.categorical_features:
            return None
        if isinstance(self.acqf, OneShotAcquisitionFunction | MultiOutputAcquisitionFunction):
            return None
        # acquisition functions for noisy outcomes keep the points that may be best
        points = getattr(self.acqf, "X_baseline", self.X_observed)
        if points is None or len(points) == 0:
            return None
        with torch.no_grad():
            posterior: Any = self._model.posterior(points)
        means = getattr(posterior, "mixture_mean", posterior.mean)  # N x outcomes
        score = (means @ self._objective_weights.to(means).mT).sum(-1)
        return points[score.argsort(descending=True)]


class _Joint(ScalarizedOutcomeConstraint):
    """A constraint on several outcomes, of the class by which Ax's functions know one."""

    def __init__(self, constraint: OutcomeConstraint):
        OutcomeConstraint.__init__(
            self,
            expression=constraint.expression,
            metric_name_to_signature=constraint.metric_name_to_signature,
        )


class JointConstraints(Transform):
    """Keeps constraints on sums of outcomes, such as ``"cost + 2 * weight <= 3"``.

    Ax (1.3) takes such a constraint for one on its first outcome, and with a baseline for a share
    of that outcome alone. First among the transforms of outcomes.
    """

    no_op_for_experiment_data = True

    def transform_optimization_config(
        self,
        optimization_config: OptimizationConfig,
        adapter: Adapter | None = None,
        fixed_features: ObservationFeatures | None = None,
    ) -> OptimizationConfig:
        """The same with every constraint on several outcomes as such."""
        return _with_joint_constraints(optimization_config)


class JointConstraintsAtLast(JointConstraints):
    """The same after Ax's standardisation, which makes such constraints anew."""


class JointWinsorize(Winsorize):
    """Ax's, without a cut where the bound is one on a sum."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for outcome in _joint_outcomes(self.adapter):
            self.cutoffs[outcome] = (-np.inf, np.inf)


class JointBilogY(BilogY):
    """Ax's, for outcomes in no sum: a sum of logarithms would not be the one that is bounded."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for outcome in _joint_outcomes(self.adapter):
            self.metric_to_bound.pop(outcome, None)


def _with_joint_constraints(config: Any) -> Any:
    """The same config, changed: constraints on several outcomes are known as such."""
    config.outcome_constraints = [
        _Joint(one) if len(one.metric_names) > 1 else one for one in config.outcome_constraints
    ]
    return config


def _transforms() -> list[type[Transform]]:
    """Those of Ax for mixed columns, with constraints on sums of outcomes."""
    ours: dict[Any, list[type[Transform]]] = {
        Derelativize: [JointConstraints, Derelativize],
        Winsorize: [JointWinsorize],
        BilogY: [JointBilogY],
    }
    known = GENERATOR_KEY_TO_GENERATOR_SETUP[Generators.BO_MIXED.value].transforms
    return [one for kind in known for one in ours.get(kind, [kind])] + [JointConstraintsAtLast]


def _joint_outcomes(adapter: Adapter | None) -> set[str]:
    """Outcomes that are in a constraint on several."""
    config = None if adapter is None else adapter._optimization_config
    constraints = () if config is None else config.outcome_constraints
    joint = (one.metric_signatures for one in constraints if len(one.metric_names) > 1)
    return {signature for signatures in joint for signature in signatures}


def make_generation_strategy(
    *,
    structure: str = "optimization",
    initialization_trials: int = 5,
    coordinate_sweeps: bool = True,
    optimizer_options: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> GenerationStrategy:
    """Strategy for Ax: quasi-random points first, then those that a model of this package picks.

    Objectives, constraints and the acquisition function are Ax's business: logarithmic noisy
    expected improvement, of the hypervolume with several objectives. Every outcome has a model of
    its own. Choices that are not ordered are categories to the model (``cat_dims``), ordered ones,
    fractions such as 0.1 and integers are numbers. Ax trains models afresh for each trial, without
    a warm start. The centre of the search space, which Ax's own strategy tries first, is not tried:
    attach it as a trial if you want it.

    A constraint on a sum of outcomes (``"cost + 2 * weight <= 3"``) holds for the sum. Ax's own
    strategies (1.3) take it for one on the first outcome, and so does
    ``client.get_best_parameterization``: :func:`report_client` names the best that keeps it.

    Args:
        structure: Name of a structure of :class:`gpytorch_nkn.models.NKNSingleTaskGP`, or
            ``"averaged"`` for :class:`gpytorch_nkn.models.StructureEnsembleGP`, which averages
            over several.
        initialization_trials: Number of quasi-random trials, at least 1. Trials that the
            experiment has already count; half of them must be completed before the model starts.
        coordinate_sweeps: Search the acquisition function from coordinate sweeps, too.
        optimizer_options: Options of BoTorch's ``optimize_acqf``, such as
            ``{"num_restarts": 8, "raw_samples": 256}``.
        seed: Determines the quasi-random points.

    Returns:
        A strategy for ``client.set_generation_strategy(...)``.

    Raises:
        TypeError: ``structure`` is not a name.
        ValueError: ``structure`` is not a known name or ``initialization_trials`` is less than 1.
    """
    if initialization_trials < 1:
        raise ValueError(f"initialization_trials must be at least 1, got {initialization_trials}.")
    if not isinstance(structure, str):
        raise TypeError(f"structure must be a name, which Ax can store, got {structure!r}.")
    if structure == _AVERAGED:
        surrogate = ModelConfig(botorch_model_class=StructureEnsembleGP, name=_AVERAGED)
    else:
        check_word(structure, NETWORKS, f"{_AVERAGED!r}")
        surrogate = ModelConfig(
            botorch_model_class=NKNSingleTaskGP, model_options={"structure": structure}, name="NKN"
        )
    not_run = [TrialStatus.FAILED, TrialStatus.ABANDONED]
    first = GenerationNode(
        name="Sobol",
        generator_specs=[
            GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs={"seed": seed})
        ],
        transition_criteria=[
            MinTrials(
                threshold=initialization_trials,
                transition_to="NKN",
                not_in_statuses=not_run,
                use_all_trials_in_exp=True,
            ),
            MinTrials(
                threshold=max(1, initialization_trials // 2),
                transition_to="NKN",
                only_in_statuses=[TrialStatus.COMPLETED],
                use_all_trials_in_exp=True,
                count_only_trials_with_data=True,
            ),
        ],
        pausing_criteria=[
            MaxTrialsAwaitingData(
                threshold=initialization_trials,
                not_in_statuses=not_run,
                use_all_trials_in_exp=True,
            )
        ],
        should_deduplicate=True,
    )
    spec = SurrogateSpec(model_configs=[surrogate], allow_batched_models=structure != _AVERAGED)
    arguments: dict[str, Any] = {"surrogate_spec": spec, "transforms": _transforms()}
    acquisition = CoordinateSweepAcquisition if coordinate_sweeps else EnsembleAcquisition
    arguments["acquisition_class"] = acquisition
    options = {"optimizer_kwargs": dict(optimizer_options)} if optimizer_options else {}
    then = GenerationNode(
        name="NKN",
        generator_specs=[
            GeneratorSpec(
                generator_enum=Generators.BO_MIXED,  # categories as codes, not a column each
                generator_kwargs=arguments,
                generator_gen_kwargs={"model_gen_options": options} if options else {},
            )
        ],
        should_deduplicate=True,
    )
    return GenerationStrategy(name=f"Sobol+NKN:{structure}", nodes=[first, then])


def report_client(
    client: Client,
    *,
    outcome: str | None = None,
    optimum: float | None = None,
    title: str = "How the search goes",
    seed: int = 0,
) -> SearchReport:
    """Say how a search with Ax went, in its own units, see :func:`.report_search`.

    The model of the client's strategy is trained on all that was evaluated. Trials under way are
    the next points. Choices are categories with their names; curves of a parameter on a scale of
    logarithms are over ``log10(rate)``, points have its own value. The best is one of the trials
    whose observed outcomes keep the constraints. The acquisition function is Ax's, with
    constraints and other objectives; all else is on one outcome. The client is left as it was.

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
    node, spec = known[-1]
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
        joint = _with_joint_constraints(goal.clone())
        fixed = derelativize_optimization_config_with_raw_status_quo(joint, adapter)
        feasible = _feasible(means, fixed.outcome_constraints)
        trials = evaluated.index.get_level_values("trial_index")
        arms = evaluated.index.get_level_values("arm_name")
        counts = trials.value_counts()
        labels = [
            f"trial {trial}" if counts[trial] == 1 else f"arm {arm}"
            for trial, arm in zip(trials, arms, strict=True)
        ]
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
            acquisition=partial(_acquisition, adapter),
            candidates=adapter.transform_observation_features(under_way) if under_way else None,
            bounds=of.bounds(space, adapter.parameters),
            optimum=optimum,
            num_initial=int(by_model.argmax()) if by_model.any() else len(by_model),
            feasible=feasible,
            outcome=outcome,
            columns=[of.name(parameter) for parameter in adapter.parameters],
            categories=_choices(space, adapter),
            logarithms=of.logarithms(space, adapter.parameters),
            labels=labels,
            y_offset=of(StandardizeY, "Ymean").get(signature, 0.0),
            y_scale=of(StandardizeY, "Ystd").get(signature, 1.0),
            title=title,
            seed=seed,
        )
        notes = _left_out(experiment, {*trials}, outcome)
        notes += _also_expected(adapter, under_way, signature)
    values = evaluated.to_numpy()
    cut = values.clip(*of(Winsorize, "cutoffs").get(signature, (-np.inf, np.inf)))
    if not np.allclose(report.values, cut, rtol=1e-5, atol=1e-5 * np.ptp(cut)):
        raise NotImplementedError(
            f"Ax does more to {outcome!r} than standardise it, and a report would be on another "
            f"scale: got the transforms {list(adapter.transforms)}."
        )
    if others := sorted({*weights} - {outcome}):
        notes.append(f"This is on {outcome} alone, whatever {' and '.join(others)} came to.")
    if number := int((values != cut).sum()):
        notes.append(f"Ax cut off {number} of the values, which were far worse than the others.")
    return replace(report, summary=(*report.summary, *notes))


class _Transforms:
    """What the transforms of an adapter of Ax hold."""

    def __init__(self, transforms: Iterable[Transform]):
        self._transforms = list(transforms)

    def __call__(self, kind: type[Transform], attribute: str) -> Any:
        """What it has by parameter or outcome; empty without such a transform."""
        found = (getattr(one, attribute, {}) for one in self._transforms if isinstance(one, kind))
        return next(found, {})

    def name(self, parameter: str) -> str:
        """The parameter, or the function of it that the model has."""
        is_logit = parameter in self(Logit, "transform_parameters")
        return f"logit({parameter})" if is_logit else parameter

    def logarithms(self, space: SearchSpace, parameters: Sequence[str]) -> list[str]:
        """Ranges of which the model has the logarithm."""
        known = self(Log, "transform_parameters")
        return [
            name
            for name in parameters
            if name in known and isinstance(space.parameters[name], RangeParameter)
        ]

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


def _left_out(experiment: Any, known: set[int], outcome: str) -> list[str]:
    """Which trials have ended and are not in the report."""
    ended = [t for t in experiment.trials.values() if t.status.is_terminal and t.index not in known]
    if not ended:
        return []
    told = [f"{trial.index} ({trial.status.name.lower()})" for trial in ended[:_TRIALS]]
    told += [f"{len(ended) - _TRIALS} more"] * (len(ended) > _TRIALS)
    word = "trial" if len(ended) == 1 else "trials"
    return [f"Left out, without a value of {outcome}: {word} {', '.join(told)}."]


def _also_expected(adapter: Any, points: Sequence[Any], outcome: str) -> list[str]:
    """What the models expect of the other outcomes of the next points."""
    names = sorted({*adapter.outcomes} - {outcome})
    if not points or not names:
        return []
    mean, covariance = adapter.predict(points[:_POINTS])
    lines = []
    for place in range(len(mean[outcome])):
        texts = [
            f"{name} {mean[name][place]:.4g} ± {max(covariance[name][name][place], 0.0) ** 0.5:.2g}"
            for name in names
        ]
        which = "the next point" if len(points) == 1 else f"next point {place + 1}"
        lines.append(f"Of {which} it also expects {', '.join(texts)}.")
    return lines


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


def _acquisition(adapter: Any, points: Tensor) -> Tensor:
    """Ax's acquisition function ``A`` at points ``A x 1 x D`` of the model."""
    rows = [
        ObservationFeatures(parameters=dict(zip(adapter.parameters, row, strict=True)))
        for row in points.squeeze(-2).tolist()
    ]
    for transform in reversed(adapter.transforms.values()):
        rows = transform.untransform_observation_features(rows)
    return torch.tensor(adapter.evaluate_acquisition_function(rows))


def _model_arguments(
    botorch_model_class: type[SingleTaskGP],
    model_config: ModelConfig,
    search_space_digest: SearchSpaceDigest,
    **context: Any,
) -> dict[str, Any]:
    """Arguments of the constructor: those of a SingleTaskGP, and the model options as they are.

    Ax looks for transforms among the positional arguments only, where a SingleTaskGP has them.
    """
    if model_config.covar_module_class is not None:
        raise UserInputError(
            f"{botorch_model_class.__name__} makes its kernel from model_options; got "
            f"covar_module_class={model_config.covar_module_class.__name__}."
        )
    values = search_space_digest.discrete_choices
    categories = [  # codes are whole numbers
        column
        for column in search_space_digest.categorical_features
        if all(float(value).is_integer() for value in values.get(column, ()))
    ]
    if categories and botorch_model_class is AdditivePartitionGP:
        raise UserInputError(
            "AdditivePartitionGP has no kernel of categories, which unordered choices become in "
            "this adapter; take StructureEnsembleGP."
        )
    arguments = submodel_input_constructor(
        SingleTaskGP,
        model_config=replace(model_config, model_options={}),
        search_space_digest=replace(search_space_digest, categorical_features=[]),
        **context,
    )
    if categories:
        arguments["cat_dims"] = list(categories)
    return {**arguments, **model_config.model_options}


def _network_arguments(
    covar_module_class: type[NeuralKernelNetwork],
    botorch_model_class: type[Model],
    dataset: SupervisedDataset,
    structure: str = "optimization",
    input_dim: int | _DefaultType = DEFAULT,
    batch_shape: torch.Size | _DefaultType = DEFAULT,
    active_dims: list[int] | None = None,
    remove_task_features: bool = False,
    **options: Any,
) -> dict[str, Any]:
    """Arguments of the constructor, from the name and the options of a preset."""
    if "primitives" in options:  # no plain data, but what the constructor takes
        return {**options, "active_dims": active_dims}
    # Ax's own defaults, as for a kernel with one lengthscale per column
    found = covar_module_argparse(
        LinearKernel,
        botorch_model_class=botorch_model_class,
        dataset=dataset,
        ard_num_dims=input_dim,
        active_dims=active_dims,
        batch_shape=batch_shape,
        remove_task_features=remove_task_features,
    )
    if found["batch_shape"] is not DEFAULT:
        options["batch_shape"] = found["batch_shape"]
    try:
        check_word(structure, NETWORKS, "primitives and layers")
        network = named_network(structure, found["ard_num_dims"], **options)
    except ValueError as error:
        raise UserInputError(str(error)) from error
    return {
        "primitives": network.primitives,
        "layers": network.layers,
        "skip": network.skip,
        "active_dims": found["active_dims"],
    }


def _register() -> None:
    """Make everything known to Ax; again does no harm."""
    submodel_input_constructor.register(_MODELS)(_model_arguments)
    covar_module_argparse.register(NeuralKernelNetwork)(_network_arguments)
    register_acquisition(CoordinateSweepAcquisition)
    register_acquisition(EnsembleAcquisition)
    register_kernel(NeuralKernelNetwork)
    register_mll(AnalyticExactMarginalLogLikelihood)
    for transform in (JointConstraints, JointConstraintsAtLast, JointWinsorize, JointBilogY):
        register_transform(transform)
    for model in _MODELS:
        register_model(model)


_register()
