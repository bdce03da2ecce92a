"""Sparse GP for tables with many rows, with a kernel that learns its structure."""

from __future__ import annotations

from typing import Any

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import GaussianLikelihood
from gpytorch.means import Mean
from torch import Tensor

from gpytorch_nkn.models.common import check_likelihood, make_likelihood
from gpytorch_nkn.models.inducing_points import FeatureGP, InducingFeatureKernel
from gpytorch_nkn.models.sparse.collapsed_bound import CollapsedGP
from gpytorch_nkn.models.sparse.inducing_point_gp import InducingPointGP
from gpytorch_nkn.models.structure import make_kernel

__all__ = ["SparseNKNGP"]


class SparseNKNGP(InducingPointGP, FeatureGP):
    r"""Sparse GP with inducing points (SGPR), for thousands to tens of thousands of rows.

    Titsias' approximation uses the distribution of the function values at m inducing points that is
    closest to the exact posterior. It takes :math:`O(n m^2)` time and no n x n matrices. With all
    rows as inducing points it is the exact GP. Several outputs are independent, each with its own
    kernel, at the same inducing points.

    Args:
        train_X: Inputs ``... x n x d``, preferably standardised or in the unit cube.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Known noise variances ``... x n x m``; ``None`` infers one variance per output.
        structure: A name, or a kernel to copy, as in :class:`NKNSingleTaskGP`.
        inducing_points: Points ``m x d`` (``... x m x d`` for a batch) in the space of transformed
            inputs. An integer is the number of cluster centres, at most one per distinct row. They
            are trained; ``model.inducing_points.requires_grad_(False)`` fixes them.
        likelihood: ``None`` for a Gaussian likelihood with a weak log-normal prior on the noise
            variance, which is at least 1e-6 for standardised outcomes.
        mean_module, outcome_transform, input_transform: As in
            :class:`botorch.models.SingleTaskGP`.
        seed: Seed of the cluster centres, independent of the global random state.

    ``fit_gpytorch_mll`` trains the model by :func:`fit_sparse_gp` and accepts its options. With
    BoTorch's options, BoTorch's optimisers train it. A ``posterior`` is joint over its points;
    ``predict`` returns means and variances at many points.

    Raises:
        TypeError: ``structure`` is neither a name nor a kernel, or the likelihood is not a
            GaussianLikelihood.
        ValueError: ``structure`` is an unknown name. Structure, inducing points or numbers of rows
            do not fit the data.

    Reference: Titsias (2009), Variational Learning of Inducing Variables in Sparse Gaussian
    Processes; Sun et al. (2018), section 5.2.

    Example:
        >>> from botorch.fit import fit_gpytorch_mll
        >>> train_X = torch.rand(60, 2, dtype=torch.float64)
        >>> model = SparseNKNGP(train_X, train_X.sin().sum(-1, keepdim=True), inducing_points=20)
        >>> mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> mean, variance = model.predict(train_X, observation_noise=True)
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        structure: str | Kernel = "tabular",
        inducing_points: int | Tensor = 1000,
        likelihood: GaussianLikelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
        seed: int = 0,
    ) -> None:
        check_likelihood(likelihood, train_Yvar)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        batch_shape = self._aug_batch_shape
        if likelihood is None and train_Yvar is None:
            self.likelihood = make_likelihood(batch_shape)
        with torch.no_grad():
            inputs = self.transform_inputs(train_X).to(self.train_targets)
        kernel = make_kernel(structure, inputs.size(-1), batch_shape).to(inputs)
        points = self._choose_points(inducing_points, inputs, kernel, seed)
        if self._num_outputs > 1 and points.dim() > 2:  # the outputs share them
            points = points.unsqueeze(-3)
        self.covar_module = InducingFeatureKernel(kernel, points)
        self.to(self.train_targets)

    @property
    def inducing_points(self) -> Tensor:
        """Inducing points ``... x m x d``, in the space of transformed inputs."""
        return self.covar_module.inducing_points

    def collapsed(self) -> CollapsedGP:
        """Return the model with its inducing values integrated out."""

        def inputs() -> Tensor:
            x = self.train_inputs[0]
            return self.transform_inputs(x.detach()) if self.training else x

        return CollapsedGP(
            kernel=self.covar_module.base_kernel,
            mean_module=self.mean_module,
            points=self.inducing_points,
            inputs=inputs,
            targets=self.train_targets,
            noise=lambda: self.likelihood.noise,
        )

    @torch.no_grad()
    def bound(self) -> Tensor:
        """Return a lower bound ``...`` of the log marginal likelihood of transformed outcomes."""
        return self.collapsed().bound()

    def subset_output(self, idcs: list[int]) -> Any:
        """Return the model of some of the outputs, which share the inducing points."""
        subset, points = super().subset_output(idcs), self.inducing_points.detach().clone()
        if self._num_outputs > 1 == subset._num_outputs and points.dim() > 2:
            points = points.squeeze(-3)  # the dimension of outputs
        subset.inducing_points.data = points
        return subset
