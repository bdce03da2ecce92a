"""What spectral kernel learning tells of itself once it is fitted."""

from __future__ import annotations

import math

import numpy as np
import torch
from numpy.typing import ArrayLike
from sklearn.utils.validation import check_is_fitted, validate_data
from torch import Tensor

from gpytorch_nkn.estimators.askl.askl_inputs import InputMap
from gpytorch_nkn.estimators.askl.askl_losses import LIPSCHITZ
from gpytorch_nkn.estimators.askl.askl_network import SpectralNetwork
from gpytorch_nkn.estimators.askl.excess_risk import ExcessRiskBound
from gpytorch_nkn.estimators.table_input import refuse_other_values
from gpytorch_nkn.kernels import NonStationarySpectralKernel

__all__ = ["FittedSpectral"]


class FittedSpectral:
    """The part of :class:`ASKLClassifier` and :class:`ASKLRegressor` that reads a fit."""

    n_components: int
    n_features_in_: int
    input_map_: InputMap
    _network: SpectralNetwork
    _trained_loss: str

    @property
    def _loss_name(self) -> str:
        """One of ``LOSSES``."""
        raise NotImplementedError

    def _output_scale(self) -> tuple[np.ndarray | float, np.ndarray | float]:
        """Offset and scale of the outputs."""
        return 0.0, 1.0

    def features(self, X: ArrayLike) -> np.ndarray:
        """The learned feature map; its inner products are the learned kernel.

        Args:
            X: Rows ``M x d``.

        Returns:
            Features ``M x D``, of the last layer: outputs are ``features(X) @ coef_ + intercept_``.
        """
        inputs = self._standardised(X)
        with torch.inference_mode(False), torch.no_grad():
            blocks = [part.cpu() for part in self._network.features_in_double(inputs)]
            return torch.cat(blocks).numpy()

    def _outputs(self, X: ArrayLike) -> np.ndarray:
        """Outputs ``M x K`` in float64."""
        inputs = self._standardised(X)
        network = self._network
        with torch.inference_mode(False), torch.no_grad():
            weight, intercept = network.weight.mT.double(), network.intercept.double()
            blocks = [
                torch.addmm(intercept, part, weight) for part in network.features_in_double(inputs)
            ]
            outputs = torch.cat(blocks).cpu().numpy()
        offset, scale = self._output_scale()
        return offset + scale * outputs

    def excess_risk_bound(self, X: ArrayLike) -> ExcessRiskBound:
        """The data-dependent term of the paper's bound on the excess risk, and its pieces.

        Args:
            X: Rows ``M x d``, those of the training for the bound as the paper states it.

        Returns:
            The terms; see :class:`ExcessRiskBound` for what they are and where they are loose.
        """
        inputs = self._standardised(X)
        network, count = self._network, len(inputs)
        with torch.inference_mode(False), torch.no_grad():
            squares = sum(float(f.square().sum()) for f in network.features_in_double(inputs))
            spectral = float(count)
            if network.terms == 2:
                omega, other = network.layers[-1].frequencies.double().chunk(2, dim=1)
                below = network.features_in_double(inputs, len(network.layers) - 1)
                waves = sum(float((seen @ (omega - other)).cos().sum()) for seen in below)
                spectral = 0.5 * (count + waves / network.num_features)
        factor = float(self.singular_values_.sum()) / count * math.sqrt(network.num_outputs)
        lipschitz = LIPSCHITZ[self._trained_loss]
        rademacher = factor * math.sqrt(squares)
        return ExcessRiskBound(
            trace_norm=float(self.singular_values_.sum()),
            mean_squared_norm=squares / count,
            rademacher=rademacher,
            rademacher_spectral=factor * math.sqrt(spectral),
            lipschitz=lipschitz,
            complexity=4 * math.sqrt(2) * lipschitz * rademacher,
        )

    def kernel(self, *, learn_frequencies: bool = False) -> NonStationarySpectralKernel:
        """The learned kernel, for Gaussian processes.

        Args:
            learn_frequencies: Let the training of a Gaussian process move them further; by
                default they are frozen (``requires_grad`` is ``False``).

        Returns:
            A float64 kernel with :meth:`features` as its features. Its inputs are
            ``input_map_(X)``, the table as the features see it. It has an output scale (and a
            lengthscale) of its own, so it goes into a model without a ``ScaleKernel``, whose scale
            would be the same once more.

        Raises:
            NotImplementedError: There are several layers.
        """
        check_is_fitted(self, "input_map_")
        frequencies, phases = self.frequencies_, self.phases_
        if len(frequencies) > 1:
            raise NotImplementedError(
                f"A kernel of one layer can be returned, got depth={len(frequencies)}."
            )
        pairs = torch.from_numpy(frequencies[0])
        kernel = NonStationarySpectralKernel(
            pairs.size(1),
            pairs.size(2),
            features="phi",
            stationary=len(pairs) == 1,
            learn_frequencies=learn_frequencies,
        ).double()
        kernel.initialize(lengthscale=1.0, phases=torch.from_numpy(phases[0]))
        kernel.frequencies = pairs.expand(2, -1, -1)
        return kernel

    @property
    def coef_(self) -> np.ndarray:
        """Weights ``D x K`` of the features."""
        return self._weight().numpy() * self._output_scale()[1]

    @property
    def intercept_(self) -> np.ndarray:
        """Intercepts ``K``."""
        check_is_fitted(self, "input_map_")
        offset, scale = self._output_scale()
        return offset + scale * self._network.intercept.double().cpu().numpy()

    @property
    def frequencies_(self) -> list[np.ndarray]:
        """Frequencies of each layer, ``2 x D x d`` (``1 x D x d`` if stationary)."""
        check_is_fitted(self, "input_map_")
        return [part.double().cpu().numpy() for part in self._network.stacked_frequencies()]

    @property
    def phases_(self) -> list[np.ndarray]:
        """Phases of each layer, ``D``."""
        check_is_fitted(self, "input_map_")
        size = self._network.num_features
        return [layer.phases[:size].double().cpu().numpy() for layer in self._network.layers]

    @property
    def singular_values_(self) -> np.ndarray:
        """Singular values of the weights, for targets of unit deviation."""
        return torch.linalg.svdvals(self._weight()).numpy()

    @property
    def rank_(self) -> int:
        """Number of singular values above the rounding of float32."""
        values = self.singular_values_
        limit = max(self._weight().shape) * np.finfo(np.float32).eps * values.max()
        return int(np.sum(values > limit))

    def _weight(self) -> Tensor:
        check_is_fitted(self, "input_map_")
        return self._network.weight.mT.double().cpu()

    def _standardised(self, X: ArrayLike) -> Tensor:
        check_is_fitted(self, "input_map_")
        refuse_other_values("X", X)
        table = validate_data(self, X, dtype=np.float64, reset=False, order="C")
        rows = self.input_map_(table)
        return torch.from_numpy(rows).to(self._network.values.device)
