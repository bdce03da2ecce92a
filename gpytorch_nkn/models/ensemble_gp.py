"""An ensemble of exact GPs: a mixture over which BoTorch averages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from copy import deepcopy
from typing import Any, Self, cast

import torch
from botorch.acquisition.objective import PosteriorTransform
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_lognormal_prior
from botorch.posteriors.fully_bayesian import MCMC_DIM, GaussianMixturePosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.models import ExactGP
from torch import Size, Tensor, nn

from gpytorch_nkn.fit import check_dense
from gpytorch_nkn.linalg import check_tensors
from gpytorch_nkn.models.base_gp import ExactBaseGP, event_dims
from gpytorch_nkn.models.common import check_training_data

__all__ = ["EnsembleGP"]

_PARTS = ("mean_module", "likelihood")


class EnsembleGP(ExactBaseGP):
    """Exact GPs of the same data, equally weighted, as one batch.

    BoTorch sees an ensemble, as with ``EnsembleMapSaasSingleTaskGP``: the posterior is a
    ``GaussianMixturePosterior`` whose batch dimension ``MCMC_DIM`` counts the members, and
    acquisition functions average over it. Means and noise have an entry for each member; so must
    the kernel, which the subclass sets.

    Arguments are those of the subclass; ``num_members`` is the size of the batch.
    """

    _is_ensemble = True
    _supports_batched_models = False

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        num_members: int,
        cat_dims: Sequence[int] | None = None,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ):
        check_training_data(train_X, train_Y, train_Yvar)
        if train_X.dim() != 2:
            raise NotImplementedError(
                f"train_X must be N x D, one data set, got the shape {tuple(train_X.shape)}."
            )
        if train_Y.dim() > 1 and train_Y.size(-1) != 1:
            raise NotImplementedError(
                f"train_Y must be N x 1, got the shape {tuple(train_Y.shape)}: use one model per "
                "output in a ModelListGP."
            )
        if isinstance(outcome_transform, OutcomeTransform) and not outcome_transform._is_linear:
            raise NotImplementedError(
                "The posterior is a mixture of Gaussians, so outcome_transform must be linear, got "
                f"{type(outcome_transform).__name__}: transform train_Y beforehand."
            )
        check_dense(type(self).__name__, train_X.size(-2), train_X)
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            cat_dims=cat_dims,
        )
        # SingleTaskGP has checked and transformed the data; from here on there is one member per
        # batch entry.
        del self._subset_batch_dict
        batch_shape = Size([num_members])
        self._input_batch_shape = self._aug_batch_shape = batch_shape
        x, y = self.train_inputs[0], self.train_targets
        x, y = x.repeat(num_members, 1, 1), y.repeat(num_members, 1)
        ExactGP.set_train_data(self, x, y, strict=False)
        self.mean_module = ConstantMean(batch_shape=batch_shape)
        if train_Yvar is None:
            self.likelihood = get_gaussian_likelihood_with_lognormal_prior(batch_shape=batch_shape)
        else:
            noise = self.likelihood.noise.repeat(num_members, 1)
            self.likelihood = FixedNoiseGaussianLikelihood(noise=noise, batch_shape=batch_shape)
        self.to(y)
        self._guard(getattr(self, "outcome_transform", None))

    def _guard(self, transform: OutcomeTransform | None) -> None:
        """Set the outcome transform, which rejects outcomes that do not belong to members.

        BoTorch's NoisyExpectedImprovement takes the members for fantasies.
        """
        if transform is None and isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            transform = ChainedOutcomeTransform()  # of nothing
        if transform is not None:
            transform.register_forward_pre_hook(_check_outcomes, with_kwargs=True)
            self.outcome_transform = transform

    @property
    def num_members(self) -> int:
        """Members of the mixture."""
        return self._aug_batch_shape[-1]

    def member_parameters(self) -> dict[str, nn.Parameter]:
        """Parameters ``members x ...`` of mean and likelihood; all others are shared."""
        found = {}
        for root in _PARTS:
            module = getattr(self, root)
            for name, parameter in module.named_parameters():
                num_dims = event_dims(module, name)
                own = parameter.shape[: 1 if num_dims is None else parameter.dim() - num_dims]
                if own == self._aug_batch_shape:
                    found[f"{root}.{name}"] = parameter
        return found

    def member_values(self) -> Tensor:
        """Raw values ``members x P`` of the :meth:`member_parameters`, one after another."""
        values = [p.detach().reshape(len(p), -1) for p in self.member_parameters().values()]
        return torch.cat([self.train_targets.new_empty(self.num_members, 0), *values], -1)

    @torch.no_grad()
    def set_member_values(self, values: Tensor) -> None:
        """Set the :meth:`member_values`; what is frozen stays."""
        for parameter, own in self._split(values):
            if parameter.requires_grad:
                parameter.copy_(own)

    def member_parts(self, values: Tensor) -> tuple[Mean, Likelihood]:
        """Copies of mean and likelihood with the raw values ``P`` of one member."""
        memo: dict[int, Any] = {}
        mean, likelihood = (deepcopy(getattr(self, root), memo) for root in _PARTS)
        for parameter, own in self._split(values.unsqueeze(0)):
            memo[id(parameter)].data = own[0].clone()
        return mean, likelihood

    def _split(self, values: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """The :meth:`member_parameters` with their parts of values ``entries x P``."""
        parameters = list(self.member_parameters().values())
        parts = values.split([p[0].numel() for p in parameters], -1)
        for parameter, part in zip(parameters, parts, strict=True):
            yield parameter, part.reshape(-1, *parameter.shape[1:])

    def check_members(self) -> None:
        """Raise a TypeError if members share a trained parameter of the mean or likelihood."""
        own = self.member_parameters()
        for root in _PARTS:
            part = getattr(self, root)
            for name, parameter in part.named_parameters():
                if parameter.requires_grad and f"{root}.{name}" not in own:
                    raise TypeError(
                        f"Trained parameters of {root} must have a first dimension for "
                        f"{self.num_members} members, as with batch_shape=torch.Size(["
                        f"{self.num_members}]), got {type(part).__name__} with {name} of shape "
                        f"{tuple(parameter.shape)}: freeze it by requires_grad_(False), or give it "
                        "that dimension."
                    )

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GaussianMixturePosterior:
        """Return the mixture ``... x members x q x 1`` of the members' posteriors.

        Arguments are BoTorch's, for inputs ``... x q x D``.
        """
        self._check_points(X)
        posterior = super().posterior(
            X.unsqueeze(MCMC_DIM),
            output_indices=output_indices,
            observation_noise=observation_noise,
            posterior_transform=posterior_transform,
        )
        if not isinstance(posterior, GPyTorchPosterior):  # outcome_transform is linear
            raise NotImplementedError(
                "posterior_transform must give Gaussian posteriors (ScalarizedPosteriorTransform), "
                f"got {type(posterior).__name__} from {posterior_transform!r}."
            )
        return GaussianMixturePosterior(distribution=posterior.distribution)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> Self:
        """Return the ensemble with further observations, its members' parameters kept.

        Args:
            X: Inputs ``... x q x D``, without a dimension for the members unless ``Y`` has as
                many dimensions.
            Y: Targets ``... x q x 1``, the same for all members, or ``... x members x q x 1``.
            noise: Variances of the noise, where those of the training data are known, of the shape
                of ``Y`` and, as in BoTorch, on the scale of the outcome transform; with an entry
                for each member on that member's scale.
            **kwargs: As in BoTorch.

        Raises:
            ValueError: Shapes do not belong together, or values are not finite.
        """
        self._check_points(X, added=True)
        check_tensors(Y=Y)
        num_members = self.num_members
        if X.dim() == Y.dim() == 2:
            X = X.expand(num_members, *X.shape)
            Y = Y.expand(num_members, *Y.shape)
            if noise is not None:
                check_tensors(noise=noise)
                if noise.shape != Y.shape[1:] or not (noise >= 0).all():
                    raise ValueError(
                        f"noise must be variances of the shape of Y, {tuple(Y.shape[1:])}, not "
                        f"negative, got the shape {tuple(noise.shape)} and {noise.min():.3g}."
                    )
                noise = self._member_noise(Y, noise)
        elif X.dim() < Y.dim():
            X = X.unsqueeze(MCMC_DIM).expand(*Y.shape[:-2], *X.shape[-2:])
        if X.dim() < 3 or X.size(MCMC_DIM) != num_members:
            raise ValueError(
                f"X and Y must be q x d and q x 1, or Y ... x {num_members} x q x 1 with an "
                f"entry for each member, got the shapes {tuple(X.shape)} and {tuple(Y.shape)}."
            )
        if noise is not None:
            kwargs["noise"] = noise
        return cast(Self, super().condition_on_observations(X, Y, **kwargs))

    def _member_noise(self, Y: Tensor, noise: Tensor) -> Tensor:
        """Variances ``q x 1`` of noise for targets ``members x q x 1``, as each member has them."""
        return noise.expand(Y.shape)

    def subset_output(self, idcs: list[int]) -> Self:
        """Return a copy: ``idcs`` must be ``[0]`` or ``[-1]``."""
        if list(idcs) not in ([0], [-1]):
            raise ValueError(f"There is one output, so idcs must be [0] or [-1], got {idcs}.")
        return deepcopy(self)

    def fantasize(self, X: Tensor, *args: Any, **kwargs: Any) -> Self:
        """As in BoTorch; the members of fantasies are an ordinary batch dimension.

        Acquisition functions that look ahead (``qKnowledgeGradient``) average over the members of
        this model; with an ensemble of fantasies they would average twice.
        """
        model = super().fantasize(X, *args, **kwargs)
        model._is_ensemble = False
        return model


def _check_outcomes(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Reject outcomes ``f x members x n x 1`` for inputs ``f x n x d``."""
    x = kwargs.get("X", args[2] if len(args) > 2 else None)
    if x is not None and args and x.dim() == 3 and args[0].dim() == 4:
        raise NotImplementedError(
            "LogNoisyExpectedImprovement and NoisyExpectedImprovement are not available for "
            "ensembles, whose members have fantasies of their own: take "
            "qLogNoisyExpectedImprovement (qLogNEI), which averages over the members."
        )
