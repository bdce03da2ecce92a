"""Which function trains a model, and how ``fit_gpytorch_mll`` comes to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any, Concatenate, ParamSpec, TypeVar

from botorch.fit import _fit_fallback
from botorch.models.model import Model
from gpytorch.mlls import ExactMarginalLogLikelihood, MarginalLogLikelihood

from gpytorch_nkn.fit import options_of

__all__ = ["TRAINERS", "CustomFit", "trains"]

M = TypeVar("M", bound=Model)
P = ParamSpec("P")
R = TypeVar("R")

# The trainer of each class of models: a function of a model, whose options are keywords.
TRAINERS: dict[type[Model], Callable[..., Any]] = {}

_BOTORCH_OPTIONS = {
    "optimizer",
    "max_attempts",
    "pick_best_of_all_attempts",
    "warning_handler",
    "caught_exception_types",
}


def trains(
    model_class: type[M],
) -> Callable[[Callable[Concatenate[M, P], R]], Callable[Concatenate[M, P], R]]:
    """Make a function the trainer of a class of models; it then refuses any other model."""

    def register(trainer: Callable[Concatenate[M, P], R]) -> Callable[Concatenate[M, P], R]:
        @wraps(trainer)
        def checked(model: M, *args: P.args, **options: P.kwargs) -> R:
            if not isinstance(model, model_class):
                name = model_class.__name__
                article = "an" if name[0] in "AEIOU" else "a"
                raise TypeError(f"model must be {article} {name}, got {type(model).__name__}.")
            return trainer(model, *args, **options)

        TRAINERS[model_class] = checked
        return checked

    return register


class CustomFit:
    """Lets ``fit_gpytorch_mll`` train a model by its own trainer, unless it is asked otherwise."""

    def custom_fit(
        self,
        mll: MarginalLogLikelihood,
        closure: Callable | None = None,
        closure_kwargs: dict[str, Any] | None = None,
        optimizer_kwargs: dict[str, Any] | None = None,
        **kwargs: Any,
    ) -> MarginalLogLikelihood:
        """What ``fit_gpytorch_mll`` calls.

        Args:
            mll: Marginal log likelihood of this model.
            closure, closure_kwargs, optimizer_kwargs: As in BoTorch.
            **kwargs: Options of the model's trainer, or BoTorch's.

        Raises:
            TypeError: An option is neither, or there are some of both.
        """
        owner: Any = self
        trainer = next(TRAINERS[c] for c in type(owner).__mro__ if c in TRAINERS)
        own = options_of(trainer)
        stock: dict[str, Any] = {
            "closure": closure,
            "closure_kwargs": closure_kwargs,
            "optimizer_kwargs": optimizer_kwargs,
        }
        plain = type(mll) is ExactMarginalLogLikelihood
        plain = plain and mll.model is owner and mll.likelihood is owner.likelihood
        if plain and all(value is None for value in stock.values()) and kwargs.keys() <= own:
            trainer(owner, **kwargs)
            return mll.eval()
        if not kwargs.keys() <= _BOTORCH_OPTIONS:
            raise TypeError(
                f"Expected options of {trainer.__name__} {sorted(own)} or, with a closure, an "
                "optimizer or a likelihood of its own, of BoTorch "
                f"{sorted(_BOTORCH_OPTIONS)}; got {sorted(kwargs)}."
            )
        return self._stock_fit(mll, **stock, **kwargs)

    def _stock_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        """Training by BoTorch's optimisers."""
        return _fit_fallback(mll, **options)
