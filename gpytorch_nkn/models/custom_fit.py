"""Which options of ``fit_gpytorch_mll`` are ours, and which are BoTorch's."""

from __future__ import annotations

from collections.abc import Mapping, Sequence, Set
from typing import Any

from botorch.models.model import Model
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood

__all__ = ["is_own_fit"]

_BOTORCH_OPTIONS = {
    "optimizer",
    "max_attempts",
    "pick_best_of_all_attempts",
    "warning_handler",
    "caught_exception_types",
}


def is_own_fit(
    model: Model,
    mll: MarginalLogLikelihood,
    stock: Sequence[object],
    options: Mapping[str, Any],
    own: Set[str],
    name: str,
) -> bool:
    """Whether a model is to be trained by the function ``name`` of ours, not by BoTorch's.

    Args:
        model: The model.
        mll: What is to be maximised.
        stock: Closure and options that only BoTorch's optimisers take; ``None`` if not given.
        options: All other options.
        own: Those that our function takes.
        name: What it is called.

    Raises:
        TypeError: An option is neither of ours nor of BoTorch's, or there are some of both.
    """
    plain = type(mll) is ExactMarginalLogLikelihood
    plain = plain and mll.model is model and mll.likelihood is model.likelihood
    if plain and all(option is None for option in stock) and options.keys() <= own:
        return True
    if not options.keys() <= _BOTORCH_OPTIONS:
        raise TypeError(
            f"Expected options of {name} {sorted(own)} or, with a closure, an optimizer or a "
            f"likelihood of its own, of BoTorch {sorted(_BOTORCH_OPTIONS)}; got {sorted(options)}."
        )
    return False
