"""BoTorch's SingleTaskGP with a network as its kernel."""

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
from gpytorch_nkn.models.base_gp import TRAINERS, ExactBaseGP
from gpytorch_nkn.models.structure import check_columns, make_kernel

__all__ = ["NKNSingleTaskGP"]


class NKNSingleTaskGP(ExactBaseGP):
    """Exact GP whose kernel structure is learned by a network, for use in place of SingleTaskGP.

    Outputs are independent, each with its own network. Inputs should be in the unit cube.

    Args:
        train_X: Inputs ``... x n x d``.
        train_Y: Outcomes ``... x n x m``.
        train_Yvar: Known noise variances ``... x n x m``; ``None`` infers one variance per output.
        cat_dims: Columns of ``train_X`` with integer category codes, as in
            :class:`botorch.models.MixedSingleTaskGP`. Named structures have categorical kernels
            for them, see :meth:`.NeuralKernelNetwork.optimization`; a custom network needs a
            :class:`gpytorch_nkn.kernels.CategoricalKernel`. Exclude them from ``input_transform``
            (``Normalize(d, indices=...)``). Optimise acquisition functions by
            ``optimize_acqf_mixed`` or ``optimize_acqf_mixed_alternating``.
        structure: Kernel of the model:

            - ``"optimization"``: :meth:`.NeuralKernelNetwork.optimization` in a ScaleKernel. With
              few points it stays near a sum of one-dimensional kernels.
            - ``"pairs"``: :meth:`.NeuralKernelNetwork.pairs` in a ScaleKernel.
            - ``"additive"``, ``"regression"``, ``"tabular"``: presets of these names.
            - ``"columns"``, ``"spectral"``, ``"isotropic"``: :meth:`.NeuralKernelNetwork.tabular`
              with ``columns=True`` (a kernel per column), ``spectral=4`` (frequencies across
              columns) or ``ard=False`` (one lengthscale for all columns).
            - ``"time_series"``, ``"texture"``: presets of these names, for one input column.
            - ``"paper"``: the paper's network (section 5.3), that is ``"additive"`` without priors,
              for training by maximum likelihood.
            - A kernel. The model copies it with its own batch shape, and adds a ScaleKernel if it
              is a network whose last layer is a simplex.
        likelihood, mean_module, outcome_transform, input_transform: As in
            :class:`botorch.models.SingleTaskGP`.

    ``fit_gpytorch_mll`` trains the model by :func:`gpytorch_nkn.bo.fit_bo_model` from several
    starts and accepts its options; with BoTorch's options it uses BoTorch's optimisers. In a loop,
    start from the last model: ``model.load_state_dict(last.state_dict())``.

    Raises:
        MemoryError: The covariance matrices do not fit into free memory.
        TypeError: ``structure`` is neither a name nor a kernel.
        ValueError: ``structure`` is unknown or does not fit the columns or the batch shape,
            ``cat_dims`` are not columns of integers, or ``input_transform`` merges categories.

    Reference: Sun et al. (2018), Differentiable Compositional Kernel Learning for Gaussian
    Processes, section 5.3. The default differs, because with tens of points the paper's network,
    trained by maximum likelihood, is often no better than a Matern kernel.

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
        check_dense("NKNSingleTaskGP", train_X.size(-2), train_X)
        num_columns = self.covar_module.ard_num_dims  # BoTorch's kernel, replaced below
        self.covar_module = make_kernel(
            structure, num_columns, self._aug_batch_shape, cat_dims=self.cat_dims
        )
        self.to(self.train_targets)
        check_columns(self.covar_module, num_columns, self.train_targets)


TRAINERS[NKNSingleTaskGP] = fit_bo_model
