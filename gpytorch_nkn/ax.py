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

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

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
from torch import Tensor

from gpytorch_nkn.bo import coordinate_sweep_initial_conditions
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import NETWORKS, check_word, named_network
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood
from gpytorch_nkn.models import AdditivePartitionGP, NKNSingleTaskGP, StructureEnsembleGP

try:
    from ax.adapter.registry import Generators
    from ax.core.search_space import SearchSpaceDigest
    from ax.core.trial_status import TrialStatus
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
except ImportError as error:
    raise ImportError(
        f"gpytorch_nkn.ax needs ax-platform: pip install 'gpytorch_nkn[ax]' ({error})."
    ) from error

__all__ = ["CoordinateSweepAcquisition", "EnsembleAcquisition", "make_generation_strategy"]

_ENSEMBLES = (AdditivePartitionGP, StructureEnsembleGP)
_MODELS = (*_ENSEMBLES, NKNSingleTaskGP)
_SAMPLED = (MCAcquisitionFunction, MultiObjectiveMCAcquisitionFunction)
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
    its own. Choices that are not ordered are categories to the model (``cat_dims``), ordered ones
    and integers are numbers. Ax trains models afresh for each trial, without a warm start. The
    centre of the search space, which Ax's own strategy tries first, is not tried: attach it as a
    trial if you want it.

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
    arguments: dict[str, Any] = {"surrogate_spec": spec}
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
    categories = search_space_digest.categorical_features
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
    for model in _MODELS:
        register_model(model)


_register()
