"""Base class of the models with inducing points."""

from __future__ import annotations

from typing import Any, NoReturn

from gpytorch.kernels import Kernel
from torch import Tensor

from gpytorch_nkn.linalg import broadcasts, check_counts
from gpytorch_nkn.models.inducing_points import select_inducing_points
from gpytorch_nkn.models.structure import check_columns, check_scale

__all__ = ["InducingPointGP"]


class InducingPointGP:
    """Choice of inducing points, and methods that sparse models do not support."""

    @staticmethod
    def _choose_points(given: int | Tensor, inputs: Tensor, kernel: Kernel, seed: int) -> Tensor:
        """Return inducing points ``... x m x d`` for transformed inputs ``... x n x d``."""
        batch_shape, width = inputs.shape[:-2], inputs.size(-1)
        check_columns(kernel, width, inputs)
        check_scale(kernel, inputs)
        if not isinstance(given, Tensor):
            check_counts(1, inducing_points=given)
            return select_inducing_points(inputs, given, seed=seed)
        fits = given.dim() >= 2 and given.size(-1) == width and given.size(-2) > 0
        if not (fits and broadcasts(given.shape[:-2], batch_shape) and given.isfinite().all()):
            raise ValueError(
                "inducing_points must be a number or finite points of shape "
                f"{(*batch_shape, 'm', width)}, got shape {tuple(given.shape)}."
            )
        return given.detach().to(inputs).expand(*batch_shape, -1, -1).clone()

    def condition_on_observations(self, *args: Any, **kwargs: Any) -> NoReturn:
        """Raise an error: an observation changes the distribution of all inducing values."""
        name = type(self).__name__
        raise NotImplementedError(
            f"{name} does not support conditioning on observations and fantasies: make a model "
            "of all data with this model's state_dict and inducing_points. For look-ahead "
            "acquisition functions (knowledge gradient) use NKNSingleTaskGP or SpectralGP."
        )

    fantasize = get_fantasy_model = condition_on_observations
