"""Registration of models, kernels and transforms with Ax, and arguments of their constructors."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, NoReturn

import torch
from ax.core.search_space import SearchSpaceDigest
from ax.exceptions.core import UserInputError
from ax.generators.torch.botorch_modular.input_constructors.covar_modules import (
    covar_module_argparse,
)
from ax.generators.torch.botorch_modular.surrogate import submodel_input_constructor
from ax.generators.torch.botorch_modular.utils import ModelConfig
from ax.storage.botorch_modular_registry import (
    register_acquisition,
    register_kernel,
    register_mll,
    register_model,
)
from ax.storage.transform_registry import register_transform
from botorch.models import MultiTaskGP, SingleTaskGP
from botorch.models.model import Model
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import LinearKernel

from gpytorch_nkn.ax.acquisition import EnsembleAcquisition
from gpytorch_nkn.ax.joint_constraints import (
    JointBilogY,
    JointConstraints,
    JointConstraintsAtLast,
    JointWinsorize,
)
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import NETWORKS, check_name, named_network
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

__all__ = ["register"]

_WITH_CATEGORIES = (NKNSingleTaskGP, StructureEnsembleGP)
_MODELS = (*_WITH_CATEGORIES, NKNMultiTaskGP, SparseNKNGP, SpectralGP)
# Models that need another likelihood or other data than Ax provides.
_OTHERS = (KroneckerGridGP, LaplaceGP, VariationalNKNGP)


def _model_arguments(
    botorch_model_class: type[Model],
    model_config: ModelConfig,
    search_space_digest: SearchSpaceDigest,
    **context: Any,
) -> dict[str, Any]:
    """Return the constructor's arguments: Ax's for BoTorch's class, and the model options.

    Ax passes transforms only to classes with positional transform arguments, as in BoTorch.
    """
    if model_config.covar_module_class is not None:
        raise UserInputError(
            f"{botorch_model_class.__name__} makes its kernel from model_options and takes no "
            f"covar_module_class, got {model_config.covar_module_class.__name__}."
        )
    values = search_space_digest.discrete_choices
    categories = [  # their codes are integers
        column
        for column in search_space_digest.categorical_features
        if all(float(value).is_integer() for value in values.get(column, ()))
    ]
    arguments = submodel_input_constructor(
        MultiTaskGP if issubclass(botorch_model_class, MultiTaskGP) else SingleTaskGP,
        model_config=replace(model_config, model_options={}),
        search_space_digest=replace(search_space_digest, categorical_features=[]),
        **context,
    )
    arguments.pop("validate_task_values", None)  # a NKNMultiTaskGP always checks them
    noise = arguments.get("train_Yvar")
    if noise is not None and (unknown := int(noise.isnan().sum())):
        raise UserInputError(
            "Either all results of a metric must be pairs (mean, standard error) or none, got "
            f"{unknown} of {noise.numel()} without a standard error."
        )
    if categories:
        if botorch_model_class not in _WITH_CATEGORIES:
            raise UserInputError(
                f"{botorch_model_class.__name__} has no kernel for categorical parameters: use "
                f"{_names(_WITH_CATEGORIES)} as botorch_model_class."
            )
        arguments["cat_dims"] = list(categories)
    return {**arguments, **model_config.model_options}


def _reject(botorch_model_class: type[Model], **context: Any) -> NoReturn:
    raise UserInputError(
        f"Ax cannot train a {botorch_model_class.__name__}: use {_names(_MODELS)} as "
        "botorch_model_class."
    )


def _names(models: tuple[type[Model], ...]) -> str:
    *first, last = (model.__name__ for model in models)
    return f"{', '.join(first)} or {last}"


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
    """Return the constructor's arguments from the name and the options of a preset."""
    if "primitives" in options:  # stored arguments of the constructor
        return {**options, "active_dims": active_dims}
    # Ax's defaults, as for a kernel with one lengthscale per input dimension
    arguments = covar_module_argparse(
        LinearKernel,
        botorch_model_class=botorch_model_class,
        dataset=dataset,
        ard_num_dims=input_dim,
        active_dims=active_dims,
        batch_shape=batch_shape,
        remove_task_features=remove_task_features,
    )
    if arguments["batch_shape"] is not DEFAULT:
        options["batch_shape"] = arguments["batch_shape"]
    try:
        check_name(structure, NETWORKS, "primitives and layers")
        network = named_network(structure, arguments["ard_num_dims"], **options)
    except ValueError as error:
        raise UserInputError(str(error)) from error
    return {
        "primitives": network.primitives,
        "layers": network.layers,
        "skip": network.skip,
        "active_dims": arguments["active_dims"],
    }


def register() -> None:
    """Register all classes with Ax; a second call has no effect."""
    submodel_input_constructor.register(_MODELS)(_model_arguments)
    submodel_input_constructor.register(_OTHERS)(_reject)
    covar_module_argparse.register(NeuralKernelNetwork)(_network_arguments)
    register_acquisition(EnsembleAcquisition)
    register_kernel(NeuralKernelNetwork)
    register_mll(AnalyticExactMarginalLogLikelihood)
    for transform in (JointConstraints, JointConstraintsAtLast, JointWinsorize, JointBilogY):
        register_transform(transform)
    for model in _MODELS:
        register_model(model)
