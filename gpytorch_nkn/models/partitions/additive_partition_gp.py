"""An ensemble of additive GPs, each with a sampled partition of the input columns."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import torch
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import OutcomeTransform
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.mlls import MarginalLogLikelihood
from torch import Tensor, nn

from gpytorch_nkn.fit import check_counts
from gpytorch_nkn.models.ensemble_gp import EnsembleGP
from gpytorch_nkn.models.partitions.partition_kernel import PartitionKernel
from gpytorch_nkn.models.partitions.partitions import Partition, co_occurrence, partition_of

__all__ = ["AdditivePartitionGP"]


class AdditivePartitionGP(EnsembleGP):
    r"""Additive GP that averages over partitions of the input columns: the paper's Model MCMC.

    .. math:: f(x) = m + \sum_{g \in P} f_g(x_g), \qquad P \sim p(P \mid y)

    The partitions are sampled by :func:`gpytorch_nkn.models.fit_additive_partition_gp` (or
    ``fit_gpytorch_mll``, which calls it). A model that has not been fitted holds the partition
    into single columns. BoTorch sees an ensemble, as with ``EnsembleMapSaasSingleTaskGP``: the
    posterior is a ``GaussianMixturePosterior`` whose batch dimension ``MCMC_DIM`` counts the
    members, and acquisition functions average over it. All members are one batch. Of BoTorch's
    acquisition functions that look ahead the knowledge gradient works, which other ensembles end in
    an error; several steps and entropy search take ``NKNSingleTaskGP`` or ``SpectralGP``.

    Args:
        train_X: Inputs ``N x D``, in the unit cube after ``input_transform``.
        train_Y: Targets ``N x 1``.
        train_Yvar: Variances of the noise ``N x 1``; ``None`` learns one for all points.
        kernel: Kernel of each group: ``"rbf"`` and ``"matern"`` (5/2) with a lengthscale per
            column, ``"nkn"`` for a small network over two RBFs per group.
        num_samples: Members of the ensemble. Predictions and acquisition cost in proportion.
        outcome_transform: Linear transform of the targets, by default ``Standardize``; ``None``
            for none.
        input_transform: Transform of the inputs. What it learns by gradients stays as it is.

    Raises:
        MemoryError: The covariance matrices of so many rows do not fit into the memory that is
            free; the message names models for more.
        ValueError: ``num_samples`` is below one, or the name of the kernel is unknown.
        NotImplementedError: There are several outputs (use one model each in a ``ModelListGP``),
            batches of data sets, or an outcome transform that is not linear.

    Reference: Sun et al. (2018), appendix I.5; Gardner et al. (2017), Discovering and Exploiting
    Additive Structure for Bayesian Optimization.

    Example:
        >>> from gpytorch_nkn.models import fit_additive_partition_gp
        >>> train_X = torch.rand(12, 3, dtype=torch.float64)
        >>> train_Y = (train_X[:, :1] * train_X[:, 1:2]).sin() + train_X[:, 2:]
        >>> model = fit_additive_partition_gp(AdditivePartitionGP(train_X, train_Y), num_steps=4)
        >>> model.posterior(torch.rand(5, 3, dtype=torch.float64)).mixture_mean.shape
        torch.Size([5, 1])
    """

    covar_module: PartitionKernel

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        kernel: Literal["matern", "nkn", "rbf"] = "rbf",
        num_samples: int = 8,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ):
        check_counts(1, num_samples=num_samples)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            num_members=num_samples,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
        )
        with torch.no_grad():
            num_columns = self.transform_inputs(train_X).size(-1)
        shape = self._aug_batch_shape
        self.covar_module = PartitionKernel(num_columns, kernel=kernel, batch_shape=shape)
        self.sample = PartitionSample(num_columns)
        self.to(train_X)

    @property
    def num_samples(self) -> int:
        """Members of the ensemble."""
        return self.num_members

    @property
    def partitions(self) -> dict[Partition, int]:
        """Partitions that the chain visited and how often, most often first; none before it ran.

        Those of the members are ``model.covar_module.partitions``.
        """
        return self.sample.counts()

    @property
    def co_occurrence(self) -> Tensor:
        """Posterior probability that two columns are in one group, ``D x D``."""
        return self.sample.co_occurrence().to(self.train_targets)

    def _stock_fit(self, mll: MarginalLogLikelihood, **options: Any) -> MarginalLogLikelihood:
        raise NotImplementedError(
            "Partitions are sampled and not optimised: closure, closure_kwargs and "
            "optimizer_kwargs are not supported; see fit_additive_partition_gp."
        )

    @classmethod
    def construct_inputs(
        cls,
        training_data: SupervisedDataset,
        *,
        kernel: Literal["matern", "nkn", "rbf"] = "rbf",
        num_samples: int = 8,
    ) -> dict[str, Any]:
        """Return the arguments of the constructor for a data set.

        Args:
            training_data: Inputs, targets and, if known, noise variances.
            kernel, num_samples: See the class.
        """
        inputs = super().construct_inputs(training_data=training_data)
        return {**inputs, "kernel": kernel, "num_samples": num_samples}


class PartitionSample(nn.Module):
    """States of a chain of partitions, in order.

    Args:
        num_columns: Number of input columns, ``D``.

    Attributes:
        labels: Group numbers ``T x D`` of ``T`` states; none before sampling.
        num_steps: Steps that the chain has taken since its start, over all continuations.
    """

    labels: Tensor
    num_steps: Tensor

    def __init__(self, num_columns: int):
        super().__init__()
        self.register_buffer("labels", torch.zeros(0, num_columns, dtype=torch.long))
        self.register_buffer("num_steps", torch.tensor(0))

    def states(self) -> list[Partition]:
        """Return the states in order."""
        return [partition_of(labels) for labels in self.labels.tolist()]

    def counts(self) -> dict[Partition, int]:
        """Return how often each partition was visited, most often first."""
        return dict(Counter(self.states()).most_common())

    def co_occurrence(self) -> Tensor:
        """Return the share of states in which two columns are in one group, ``D x D``."""
        if len(self.labels) == 0:
            raise RuntimeError(
                "No partitions have been sampled: call fit_additive_partition_gp(model) first."
            )
        return co_occurrence(self.labels)

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        labels = state_dict.get(f"{prefix}labels")
        if labels is not None and labels.shape[1:] == self.labels.shape[1:]:
            self.labels = self.labels.new_zeros(labels.shape)  # chains differ in their lengths
        super()._load_from_state_dict(state_dict, prefix, *args)
