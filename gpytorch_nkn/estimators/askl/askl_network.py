"""Linear model on spectral features, with gradients in closed form."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import torch
from torch import Tensor

__all__ = ["LOSSES", "Loss", "SpectralNetwork", "feature_scale"]

_BLOCK = 2**18  # number of angles per block on a CPU; a block fits into the L2 cache
_DEVICE_BLOCK = 2**26  # number of angles per block on a GPU

# Returns the sum of the losses of outputs M x K, given labels M x 1 or targets M x K. Overwrites
# the outputs with the gradient of this sum.
Loss = Callable[[Tensor, Tensor], Tensor]


def _log_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return the cross-entropy of the softmax of the outputs."""
    logs = torch.log_softmax(outputs, 1)
    total = logs.gather(1, labels).sum().neg_()
    torch.exp(logs, out=outputs)
    outputs.scatter_add_(1, labels, torch.full_like(logs[:, :1], -1.0))
    return total


def _hinge_loss(outputs: Tensor, labels: Tensor) -> Tensor:
    """Return Crammer and Singer's loss: 1 minus the margin of the true class, at least 0."""
    right = outputs.gather(1, labels)
    best, rival = outputs.scatter_(1, labels, -math.inf).max(1, keepdim=True)
    excess = best.sub_(right).add_(1.0)
    active = (excess > 0).to(outputs.dtype)
    outputs.zero_().scatter_(1, rival, active)
    outputs.scatter_(1, labels, active.neg_())
    return excess.clamp_min_(0.0).sum()


def _squared_loss(outputs: Tensor, targets: Tensor) -> Tensor:
    """Return the squared error, summed over the ``K`` outputs."""
    outputs.sub_(targets)
    total = outputs.square().sum()
    outputs.mul_(2.0)
    return total


LOSSES: dict[str, Loss] = {
    "hinge": _hinge_loss,
    "log_loss": _log_loss,
    "squared_error": _squared_loss,
}


def feature_scale(terms: int, num_features: int) -> float:
    """Return the factor of a feature: of one cosine, or of a sum of two."""
    return math.sqrt((1 if terms == 2 else 4) / (2 * num_features))


class SpectralNetwork:
    r"""Outputs :math:`W^\top \phi(x) + c` of float32 features, and their gradients.

    .. math::
        \phi(x) = \sqrt{1/2D}\,[\cos(\Omega^\top x + b) + \cos(\Omega'^\top x + b)]
        \quad\text{or}\quad \sqrt{2/D}\,\cos(\Omega^\top x + b)

    For speed, all parameters are views of one vector, and blocks of rows fit into the cache. The
    last column of the inputs is 1 and multiplies the phases. Frequencies are ``T x D x d`` with
    T = 1 or 2 cosines per feature, and have gradients if ``learned``.

    Attributes:
        values, gradient: Vectors of ``W``, ``c``, frequencies and phases, and of their gradients
            (zero for phases).
        weight, intercept: ``W`` transposed, ``K x D``, and ``c``, ``K``.
        matrix: Frequencies stacked on phases, ``(d + 1) x TD``.
    """

    def __init__(
        self,
        frequencies: Tensor,
        phases: Tensor,
        num_outputs: int,
        *,
        learned: bool,
        device: torch.device,
    ):
        self.terms, self.num_features, _ = frequencies.shape
        self.num_outputs, self.learned = num_outputs, learned
        rows = torch.cat([frequencies.permute(2, 0, 1).flatten(1), phases.repeat(self.terms)[None]])
        head = torch.zeros((self.num_features + 1) * num_outputs)
        self.values = torch.cat([head.float(), rows.float().reshape(-1)]).to(device)
        self.weight, self.intercept, self.matrix = self._views(self.values)
        self.scale = feature_scale(self.terms, self.num_features)
        limit = _BLOCK if device.type == "cpu" else _DEVICE_BLOCK
        self.block_rows = max(1, limit // (self.terms * self.num_features))
        self.gradient = self._angles = self._cosines = self.values.new_empty(0)

    def _views(self, vector: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        size = self.num_features * self.num_outputs
        weight = vector[:size].view(self.num_outputs, self.num_features)
        intercept = vector[size : size + self.num_outputs]
        rest = vector[size + self.num_outputs :]
        return weight, intercept, rest.view(-1, self.terms * self.num_features)

    @property
    def frequencies(self) -> Tensor:
        """Frequencies ``T x D x d``."""
        return self.matrix[:-1].view(len(self.matrix) - 1, self.terms, -1).permute(1, 2, 0)

    @property
    def phases(self) -> Tensor:
        """Phases ``D``."""
        return self.matrix[-1, : self.num_features]

    def parts(self) -> list[tuple[Tensor, Tensor]]:
        """Return learned parameters and gradients: weights and intercepts, then frequencies."""
        if len(self.gradient) != len(self.values):
            self.gradient = torch.zeros_like(self.values)
        head = len(self.values) - self.matrix.numel()
        pairs = [(self.values[:head], self.gradient[:head])]
        if self.learned:
            pairs.append((self.values[head:], self.gradient[head:]))
        return pairs

    def compute_gradient(
        self, x: Tensor, targets: Tensor, loss: Loss, *, feature_penalty: float = 0.0
    ) -> Tensor:
        """Overwrite :attr:`gradient` with the gradient of a batch's mean loss plus feature penalty.

        Rows are ``M x (d + 1)``, with ones in the last column. Return the sum of the losses.
        """
        pieces = -(-len(x) // self.block_rows)
        bounds = [len(x) * k // pieces for k in range(pieces + 1)]
        penalty = 2 * feature_penalty * self.scale / len(x)
        own_weight, own_intercept, own_matrix = self._views(self.gradient)
        total = self.values.new_zeros(())
        for first, last in zip(bounds, bounds[1:], strict=False):
            rows, beta = x[first:last], float(first > 0)
            outputs, features, angles = self._forward(rows)
            total += loss(outputs, targets[first:last])
            errors = outputs.mul_(1 / len(x))
            torch.addmm(
                own_weight, errors.mT, features, beta=beta, alpha=self.scale, out=own_weight
            )
            torch.add(errors.sum(0), own_intercept, alpha=beta, out=own_intercept)
            if self.learned:
                torch.addmm(features, errors, self.weight, beta=penalty, out=features)
                angles.sin_().view(len(rows), self.terms, -1).mul_(features.unsqueeze(1))
                torch.addmm(
                    own_matrix, rows.mT, angles, beta=beta, alpha=-self.scale, out=own_matrix
                )
        own_matrix[-1].zero_()
        return total

    def outputs(self, x: Tensor) -> Tensor:
        """Return outputs ``M x K`` of rows ``M x (d + 1)``, in float32."""
        return torch.cat([self._forward(rows)[0] for rows in x.split(self.block_rows)])

    def features_in_double(self, x: Tensor) -> Iterator[Tensor]:
        """Yield features ``m x D`` of blocks of rows ``M x d`` (without ones), in float64."""
        frequencies, phases = self.matrix[:-1].double(), self.matrix[-1].double()
        for rows in x.split(self.block_rows):
            cosines = torch.addmm(phases, rows, frequencies).cos_()
            yield cosines.view(len(rows), self.terms, -1).sum(1).mul_(self.scale)

    def _forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Return outputs, unscaled features and angles; the next call overwrites the last two."""
        if len(self._angles) < len(x):
            self._angles = self.values.new_empty(len(x), self.terms * self.num_features)
            self._cosines = torch.empty_like(self._angles)
        angles, cosines = self._angles[: len(x)], self._cosines[: len(x)]
        torch.mm(x, self.matrix, out=angles)
        torch.cos(angles, out=cosines)
        features = cosines[:, : self.num_features]
        if self.terms == 2:
            features.add_(cosines[:, self.num_features :])
        outputs = torch.addmm(self.intercept, features, self.weight.mT, alpha=self.scale)
        return outputs, features, angles
