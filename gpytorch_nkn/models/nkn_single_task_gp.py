"""BoTorch's SingleTaskGP with a kernel that learns its structure."""

from __future__ import annotations

from collections.abc import Sequence

from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import Likelihood
from gpytorch.means import Mean
from torch import Tensor

from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.fit import check_dense
from gpytorch_nkn.kernels.network import frozen_matrices
from gpytorch_nkn.models.base_gp import TRAINERS, ExactBaseGP
from gpytorch_nkn.models.common import check_training_data
from gpytorch_nkn.models.structure import check_columns, make_kernel

__all__ = ["NKNSingleTaskGP"]


class NKNSingleTaskGP(ExactBaseGP):
    """Exact GP whose kernel is a network that learns its structure: use it for SingleTaskGP.

    Data, noise, mean and transforms are those of :class:`botorch.models.SingleTaskGP`, with the
    same defaults: outcomes are standardised, inputs are expected in the unit cube. Several
    outputs are modelled independently, each with a network of its own.

    Args:
        train_X: Inputs ``... x n x d``.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Known variances of the noise ``... x n x m``; ``None`` infers one level.
        cat_dims: Columns of ``train_X`` with integer codes of categories, as in
            :class:`botorch.models.MixedSingleTaskGP`. A named structure then has categorical
            kernels for them, see :meth:`.NeuralKernelNetwork.optimization`; a network of your own
            takes :class:`gpytorch_nkn.kernels.CategoricalKernel`. Leave them out of
            ``input_transform`` (``Normalize(d, indices=...)``). Optimise acquisition functions by
            ``optimize_acqf_mixed`` or ``optimize_acqf_mixed_alternating``.
        structure: What the kernel is made of:

            - ``"optimization"``: :meth:`.NeuralKernelNetwork.optimization` in a ScaleKernel: near
              a sum of one-dimensional kernels while there are few points.
            - ``"pairs"``: :meth:`.NeuralKernelNetwork.pairs` in a ScaleKernel.
            - ``"additive"``, ``"regression"``, ``"tabular"``: the presets of these names.
            - ``"columns"``, ``"spectral"``: :meth:`.NeuralKernelNetwork.tabular` with
              ``columns=True``, a kernel per column, or ``spectral=4``, frequencies across columns.
            - ``"isotropic"``: the same with ``ard=False``, one lengthscale for all columns.
            - ``"time_series"``, ``"texture"``: the presets of these names, for one input column.
            - ``"paper"``: the network of the paper's section 5.3: ``"additive"`` without priors,
              for maximum likelihood.
            - A network, or a ScaleKernel of one, of which the model takes a copy with its own batch
              shape. A network whose last layer is a simplex goes into a ScaleKernel.
        likelihood: Default: Gaussian, with BoTorch's prior on the noise.
        mean_module: Default: a constant.
        outcome_transform: Default: standardise; ``None`` for none.
        input_transform: Applied to the inputs, e.g. ``Normalize(d)``.

    ``fit_gpytorch_mll`` trains it by :func:`gpytorch_nkn.bo.fit_bo_model`, that is from several
    starts without autograd, and takes the options of that; with an optimiser, a closure or any
    other option of BoTorch's it does as with every other model. In a loop, start from the last
    model: ``fit_bo_model(model, previous=last)``.

    Raises:
        MemoryError: The covariance matrices of so many rows do not fit into the memory that is
            free; the message names models for more.
        TypeError: ``structure`` is neither a name nor a network.
        ValueError: ``structure`` is not a known name, or does not fit the number of columns or
            the batch shape; ``cat_dims`` are not columns of integers, or ``input_transform`` gives
            two categories the same number.

    Reference: Sun et al. (2018), Differentiable Compositional Kernel Learning for Gaussian
    Processes, section 5.3. The default differs from the paper's network, which trained by maximum
    likelihood on some tens of points often does no better than one Matern kernel.

    Example:
        >>> from botorch.fit import fit_gpytorch_mll
        >>> train_X = torch.rand(12, 3, dtype=torch.float64)
        >>> model = NKNSingleTaskGP(train_X, train_X.sin().sum(-1, keepdim=True))
        >>> mll = fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        >>> model.posterior(train_X[:2]).mean.shape
        torch.Size([2, 1])
    """

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        cat_dims: Sequence[int] | None = None,
        structure: str | Kernel = "optimization",
        likelihood: Likelihood | None = None,
        mean_module: Mean | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ) -> None:
        check_training_data(train_X, train_Y, train_Yvar)
        check_dense("NKNSingleTaskGP", train_X.size(-2), train_X)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            likelihood=likelihood,
            mean_module=mean_module,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            cat_dims=cat_dims,
        )
        num_columns = self.covar_module.ard_num_dims  # of BoTorch's kernel
        self.covar_module = make_kernel(
            structure,
            num_columns,
            self._aug_batch_shape,
            cat_dims=self.cat_dims,
        )
        self.to(self.train_targets)
        check_columns(self.covar_module, num_columns, self.train_targets)

    def _values(self, one: Tensor, two: Tensor) -> Tensor:
        found = frozen_matrices(self.prediction_strategy, [self.covar_module], [0], one, two)
        return super()._values(one, two) if found is None else found.squeeze(-3)


TRAINERS[NKNSingleTaskGP] = fit_bo_model
