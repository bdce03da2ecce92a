"""Ax generation strategy with models of this package."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ax.adapter.registry import Generators
from ax.core.trial_status import TrialStatus
from ax.generation_strategy.generation_node import GenerationNode
from ax.generation_strategy.generation_strategy import GenerationStrategy
from ax.generation_strategy.generator_spec import GeneratorSpec
from ax.generation_strategy.transition_criterion import MaxTrialsAwaitingData, MinTrials
from ax.generators.torch.botorch_modular.surrogate import SurrogateSpec
from ax.generators.torch.botorch_modular.utils import ModelConfig

from gpytorch_nkn.ax.acquisition import EnsembleAcquisition
from gpytorch_nkn.ax.joint_constraints import transforms
from gpytorch_nkn.kernels.network import NETWORKS, check_name
from gpytorch_nkn.linalg import check_counts
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP

__all__ = ["make_generation_strategy"]

_AVERAGED = "averaged"  # structure name for an ensemble


def make_generation_strategy(
    *,
    structure: str = "optimization",
    initialization_trials: int = 5,
    optimizer_options: Mapping[str, Any] | None = None,
    seed: int | None = None,
) -> GenerationStrategy:
    """Return a strategy for Ax: quasi-random points, then points chosen by a model.

    Ax handles objectives and constraints, and chooses the acquisition function: log noisy expected
    improvement or, for several objectives, log noisy expected hypervolume improvement. Each outcome
    has its own model, trained from scratch for each trial. Unordered choices are categorical inputs
    of the model (``cat_dims``); ordered choices and integers are numbers. Unlike Ax's own strategy,
    this strategy does not evaluate the centre of the search space; attach it as a trial if needed.

    A constraint on a sum of outcomes (``"cost + 2 * weight <= 3"``) applies to the sum. Ax's own
    strategies (1.3) and ``client.get_best_parameterization`` apply it to the first outcome only.

    Args:
        structure: Name of a structure of :class:`gpytorch_nkn.models.NKNSingleTaskGP`, or
            ``"averaged"`` for :class:`gpytorch_nkn.models.StructureEnsembleGP`.
        initialization_trials: Number of quasi-random trials, at least 1, including existing trials.
            The model is used once they exist and half of them are completed.
        optimizer_options: Options of BoTorch's ``optimize_acqf``, such as
            ``{"num_restarts": 8, "raw_samples": 256}``.
        seed: Determines the quasi-random points.

    Raises:
        TypeError: ``structure`` is not a string, or another option is not an integer.
        ValueError: ``structure`` is not a known name or an integer is too small.
    """
    check_counts(1, initialization_trials=initialization_trials)
    if seed is not None:
        check_counts(0, seed=seed)
    if not isinstance(structure, str):
        raise TypeError(f"structure must be a name, which Ax can store, got {structure!r}.")
    if structure == _AVERAGED:
        surrogate = ModelConfig(botorch_model_class=StructureEnsembleGP, name=_AVERAGED)
    else:
        check_name(structure, NETWORKS, f"{_AVERAGED!r}")
        surrogate = ModelConfig(
            botorch_model_class=NKNSingleTaskGP, model_options={"structure": structure}, name="NKN"
        )
    enough: dict[str, Any] = {
        "threshold": initialization_trials,
        "not_in_statuses": [TrialStatus.FAILED, TrialStatus.ABANDONED],
        "use_all_trials_in_exp": True,
    }
    first = GenerationNode(
        name="Sobol",
        generator_specs=[
            GeneratorSpec(generator_enum=Generators.SOBOL, generator_kwargs={"seed": seed})
        ],
        transition_criteria=[
            MinTrials(transition_to="NKN", **enough),
            MinTrials(
                threshold=max(1, initialization_trials // 2),
                transition_to="NKN",
                only_in_statuses=[TrialStatus.COMPLETED],
                use_all_trials_in_exp=True,
                count_only_trials_with_data=True,
            ),
        ],
        pausing_criteria=[MaxTrialsAwaitingData(**enough)],
        should_deduplicate=True,
    )
    spec = SurrogateSpec(model_configs=[surrogate], allow_batched_models=structure != _AVERAGED)
    arguments: dict[str, Any] = {
        "surrogate_spec": spec,
        "transforms": transforms(),
        "acquisition_class": EnsembleAcquisition,
    }
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
