"""What a regression on a table tells of itself once it is fitted."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from gpytorch.models import ExactGP
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gpytorch_nkn.estimators.nkn.ensemble import Ensemble, sparse_predictors
from gpytorch_nkn.estimators.table_input import Standardisation, refuse_other_values
from gpytorch_nkn.fit import FitResult

__all__ = ["FittedTable"]


class FittedTable:
    """The part of :class:`NKNRegressor` that reads a fit; see there."""

    selection: str
    calibrate: bool
    block_size: int
    num_inducing: int
    device: str | None
    method_: str
    seed_: int
    y_offset_: float
    y_scale_: float
    n_features_in_: int
    standardisation_: Standardisation
    results_: dict[str, FitResult]
    _ensemble: Ensemble | None

    @property
    def members_(self) -> list[tuple[str, int]]:
        """What is mixed: pairs of a network's name and the number of its start."""
        return self._fitted().members

    @property
    def weights_(self) -> np.ndarray:
        """Shares of the members."""
        return self._fitted().weights

    @property
    def width_shares_(self) -> dict[float, float]:
        """Shares of the widths of predictions, by factor of the standard deviation."""
        ensemble = self._fitted()
        return dict(zip(ensemble.widths.tolist(), ensemble.width_shares.tolist(), strict=True))

    @property
    def model_(self) -> ExactGP:
        """The Gaussian process of the largest share, over standardised columns and targets."""
        return self._fitted().model

    @property
    def left_out_log_density_(self) -> float:
        """Mean log density of left-out training rows, per unit of the targets."""
        return self._fitted().left_out_log_density - math.log(self.y_scale_)

    @property
    def x_offset_(self) -> np.ndarray:
        """Means of the columns in use."""
        return self.standardisation_.offset

    @property
    def x_scale_(self) -> np.ndarray:
        """Standard deviations of the columns in use."""
        return self.standardisation_.scale

    @property
    def columns_(self) -> tuple[str, ...]:
        """Names of the columns in use."""
        check_is_fitted(self, "results_")
        single = self.n_features_in_ == 1
        plain = ["x"] if single else [f"x{number}" for number in range(self.n_features_in_)]
        names = np.asarray(getattr(self, "feature_names_in_", plain))
        return tuple(str(name) for name in names[self.standardisation_.used])

    def standardised_inputs(self, X: ArrayLike) -> np.ndarray:
        """Rows as :attr:`model_` takes them.

        Args:
            X: Rows ``M x D``, with the columns of :meth:`fit`.

        Returns:
            Rows ``M x d`` of the columns in use, standardised.
        """
        check_is_fitted(self, "results_")
        refuse_other_values("X", X)
        table = validate_data(self, X, dtype=np.float64, reset=False, order="C")
        return self.standardisation_(table)

    def _fitted(self) -> Ensemble:
        check_is_fitted(self, "results_")
        if self._ensemble is None:  # in fit, or after a fit that was interrupted at its very end
            inputs = self._any_model.train_inputs[0]
            points = self.num_inducing if self.method_ == "sparse" else 0
            self._ensemble = Ensemble(
                self.results_,
                selection=self.selection,
                calibrate=self.calibrate,
                sparse=sparse_predictors(inputs, points, self.seed_) if points else None,
                block_size=self.block_size,
            )
        return self._ensemble

    @property
    def _any_model(self) -> Any:
        return next(iter(self.results_.values())).model

    def _tensor(self, values: np.ndarray) -> Tensor:
        device: Any = self.device
        if hasattr(self, "results_"):  # where the models are
            device = self._any_model.train_targets.device
        return torch.as_tensor(values, dtype=torch.float64, device=device)
