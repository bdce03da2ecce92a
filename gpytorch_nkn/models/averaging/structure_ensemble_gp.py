"""GP that averages over several kernel structures."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from copy import deepcopy
from typing import Any, Self, cast

import torch
from botorch.acquisition import (
    AcquisitionFunction,
    InverseCostWeightedUtility,
    PosteriorStandardDeviation,
    PriorGuidedAcquisitionFunction,
    qKnowledgeGradient,
)
from botorch.acquisition.multi_objective.joint_entropy_search import (
    LowerBoundMultiObjectiveEntropySearch,
)
from botorch.acquisition.multi_step_lookahead import qMultiStepLookahead
from botorch.acquisition.multioutput_acquisition import MultiOutputPosteriorMean
from botorch.acquisition.objective import LearnedObjective, PosteriorTransform
from botorch.generation import MaxPosteriorSampling
from botorch.models.transforms.input import InputTransform
from botorch.models.transforms.outcome import ChainedOutcomeTransform, OutcomeTransform
from botorch.models.utils.gpytorch_modules import get_gaussian_likelihood_with_gamma_prior
from botorch.posteriors.fully_bayesian import MCMC_DIM, GaussianMixturePosterior
from botorch.posteriors.gpytorch import GPyTorchPosterior
from botorch.sampling import MCSampler
from botorch.utils.types import DEFAULT, _DefaultType
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel, MaternKernel, RBFKernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import ConstantMean, Mean
from gpytorch.models import ExactGP
from gpytorch.priors import GammaPrior
from torch import Tensor, nn

from gpytorch_nkn.fit import check_counts, check_dense, check_flags
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import NETWORKS, check_name, mixed_parts, numbered_names
from gpytorch_nkn.layers import LogNormalPrior, dimension_scaled_prior
from gpytorch_nkn.linalg import check_tensors
from gpytorch_nkn.models.averaging.member_warp import (
    IDENTITY,
    MemberWarp,
    secant,
    unwarped,
    warp_slope,
    warped,
)
from gpytorch_nkn.models.averaging.structure_kernel import StructureKernel
from gpytorch_nkn.models.base_gp import FEW_POINTS, ExactBaseGP, TrainerOnly, event_dims
from gpytorch_nkn.models.common import check_noise
from gpytorch_nkn.models.structure import check_columns, make_kernel

__all__ = ["StructureEnsembleGP"]


def _matern(num_columns: int, cat_dims: Sequence[int]) -> Kernel:
    """Return Matern-5/2 with BoTorch's priors before 2024, scaled above 10 columns."""

    def make(ard_num_dims: int = 1, **columns: Any) -> Kernel:
        longer = max(1.0, ard_num_dims / 10)
        prior = GammaPrior(3.0, 6.0 / longer)
        kernel = MaternKernel(2.5, ard_num_dims=ard_num_dims, lengthscale_prior=prior, **columns)
        return kernel.initialize(lengthscale=longer * kernel.lengthscale.detach())

    # wrapped in a network, which has closed-form gradients
    network = NeuralKernelNetwork(*mixed_parts(make, num_columns, cat_dims))
    return ScaleKernel(network, outputscale_prior=GammaPrior(2.0, 0.15))


def _rbf(num_columns: int, cat_dims: Sequence[int]) -> Kernel:
    """Return RBF with BoTorch's default prior, whose lengthscales grow with the dimension."""

    def make(ard_num_dims: int = 1, **columns: Any) -> Kernel:
        prior = dimension_scaled_prior(ard_num_dims)
        return RBFKernel(
            ard_num_dims=ard_num_dims,
            lengthscale_prior=prior,
            lengthscale_constraint=GreaterThan(2.5e-2, initial_value=prior.mode),
            **columns,
        )

    # With categories, the output scale and the weights of the sum have no priors, because smooth
    # functions need a large output scale and unequal weights.
    parts = mixed_parts(make, num_columns, cat_dims, weight_priors=not cat_dims)
    network = NeuralKernelNetwork(*parts)
    prior = None if cat_dims else LogNormalPrior(0.0, 1.0)
    return ScaleKernel(network, outputscale_prior=prior)


_KERNELS: dict[str, Callable[[int, Sequence[int]], Kernel]] = {"matern": _matern, "rbf": _rbf}
_OUTCOMES = "outcome-warped "
_PARTS = ("mean_module", "likelihood")
_CALLERS = ("botorch.acquisition", "botorch.generation")
# Acquisition functions and objectives that do not average over members
_WITHOUT_MEMBERS = (
    LearnedObjective,
    LowerBoundMultiObjectiveEntropySearch,
    MultiOutputPosteriorMean,
    PriorGuidedAcquisitionFunction,
    qMultiStepLookahead,
)


class StructureEnsembleGP(TrainerOnly, ExactBaseGP):
    r"""Mixture of exact GPs with several kernel structures, weighted by held-out predictions.

    .. math:: p(f \mid y) = \sum_k w_k\, p_k(f \mid y)

    With tens of points the likelihood does not identify the best kernel. ``fit_gpytorch_mll`` calls
    :func:`gpytorch_nkn.models.fit_structure_ensemble_gp`, which trains every structure and learns
    stacking weights :math:`w_k` from held-out predictions. Before training, weights are equal.

    BoTorch gives members of an ensemble equal weights in acquisition functions, so the number of
    members of a structure is proportional to its weight. The posterior is a
    ``GaussianMixturePosterior`` with a batch dimension ``MCMC_DIM`` of ``num_members`` members, and
    each structure is evaluated only once. Divide the number of samples that a single model would
    need by ``num_members``. BoTorch passes points ``X`` to objectives and cost functions
    without the dimension of members: use ``X.unsqueeze(-3)`` in these functions.

    Args:
        train_X: Inputs ``N x D``, in the unit cube after ``input_transform``.
        train_Y: Targets ``N x 1``.
        train_Yvar: Noise variances ``N x 1``; ``None`` infers one variance for each structure.
        cat_dims: Columns of ``train_X`` with category codes, see
            :class:`gpytorch_nkn.models.NKNSingleTaskGP`. ``"rbf"`` and ``"matern"`` then combine
            numerical and categorical kernels like ``MixedSingleTaskGP``.
        structures: Names, or kernels without a batch shape, which are copied:

            - ``"rbf"``: RBF over all columns, with an output scale and BoTorch's priors, which
              depend on the number of columns (Hvarfner et al. 2024).
            - ``"matern"``: Matern-5/2 over all columns with gamma priors. Above ten columns,
              lengthscales grow in proportion to their number.
            - A ``structure`` of :class:`gpytorch_nkn.models.NKNSingleTaskGP`, such as
              ``"optimization"``, near a sum of kernels of single columns, or ``"pairs"``.
            - ``"outcome-warped "`` plus one of these names adds an outcome warp that compresses
              outcomes far below the best (or far above the worst). Each member is the Gaussian
              with the warped posterior's median and probability of improvement.
        num_members: Number of members; weights are rounded to multiples of ``1 / num_members``.
        maximize: Whether larger targets are better, as in BoTorch; ``False`` if the objective has a
            negative weight. Standard deviations of warped outcomes depend on it.
        outcome_transform: Linear transform of the targets; ``None`` for no transform.
        input_transform: Transform of the inputs without trained parameters.

    Raises:
        MemoryError: The covariance matrices do not fit into free memory.
        TypeError: A structure is neither a name nor a kernel.
        ValueError: ``structures`` is empty, a name is unknown, a kernel does not fit the columns,
            or ``num_members`` is below the number of structures.
        NotImplementedError: The data have several outputs (use a ``ModelListGP``) or a batch shape,
            or the outcome transform is not linear.

    Reference: Yao, Vehtari, Simpson and Gelman (2018), Using stacking to average Bayesian
    predictive distributions; Hvarfner, Hellsten and Nardi (2024), Vanilla Bayesian Optimization
    Performs Great in High Dimensions.

    Example:
        >>> from botorch.acquisition import LogExpectedImprovement
        >>> from gpytorch_nkn.models import fit_structure_ensemble_gp
        >>> train_X = torch.rand(12, 3, dtype=torch.float64)
        >>> train_Y = train_X.sin().sum(-1, keepdim=True)
        >>> model = fit_structure_ensemble_gp(StructureEnsembleGP(train_X, train_Y))
        >>> round(sum(model.structure_weights.values()), 6)
        1.0
        >>> LogExpectedImprovement(model, best_f=train_Y.max())(train_X[:2].unsqueeze(-2)).shape
        torch.Size([2])
    """

    _is_ensemble = True
    _supports_batched_models = False
    covar_module: StructureKernel
    weights: Tensor
    part_values: Tensor
    is_warped: Tensor
    warps: Tensor
    is_trained: Tensor

    def __init__(
        self,
        train_X: Tensor,
        train_Y: Tensor,
        train_Yvar: Tensor | None = None,
        *,
        cat_dims: Sequence[int] | None = None,
        structures: Sequence[str | Kernel] = (
            "optimization",
            "matern",
            "rbf",
            "outcome-warped matern",
        ),
        num_members: int = 8,
        maximize: bool = True,
        outcome_transform: OutcomeTransform | _DefaultType | None = DEFAULT,
        input_transform: InputTransform | None = None,
    ):
        check_counts(1, num_members=num_members)
        check_flags(maximize=maximize)
        if isinstance(structures, str) or not isinstance(structures, Sequence) or not structures:
            raise ValueError(
                f"structures must be a sequence such as ('matern',), got {structures!r}."
            )
        if num_members < len(structures):
            raise ValueError(
                f"num_members must be at least the number of structures, {len(structures)}, got "
                f"{num_members}."
            )
        if isinstance(outcome_transform, OutcomeTransform) and not outcome_transform._is_linear:
            raise NotImplementedError(
                "outcome_transform must be linear, got "
                f"{type(outcome_transform).__name__}: transform train_Y beforehand."
            )
        super().__init__(
            train_X,
            train_Y,
            train_Yvar,
            outcome_transform=outcome_transform,
            input_transform=input_transform,
            cat_dims=cat_dims,
        )
        if train_X.dim() != 2:
            raise NotImplementedError(
                f"train_X must be N x D (one data set), got shape {tuple(train_X.shape)}."
            )
        if self._num_outputs != 1:
            raise NotImplementedError(
                f"train_Y must be N x 1, got shape {tuple(train_Y.shape)}: use one model per "
                "output in a ModelListGP."
            )
        check_dense("StructureEnsembleGP", train_X.size(-2), train_X)
        self._repeat_data(num_members)
        x = self.transform_inputs(train_X)
        is_warped = [isinstance(s, str) and s.startswith(_OUTCOMES) for s in structures]
        kernels = [
            _kernel(
                s.removeprefix(_OUTCOMES) if isinstance(s, str) else s, x.size(-1), self.cat_dims
            ).to(x)
            for s in structures
        ]
        for kernel in kernels:
            check_columns(kernel, x.size(-1), x)
        self.structures = numbered_names(structures)
        self._maximize = maximize
        members = torch.zeros(num_members, dtype=torch.long, device=x.device)
        self.covar_module = StructureKernel(kernels, members)
        count = len(kernels)
        self.register_buffer("weights", torch.full((count,), 1 / count))
        # parameters of mean and likelihood of all structures, including those without members
        self.register_buffer("part_values", self.member_values()[:1].repeat(count, 1))
        self.register_buffer("is_warped", torch.tensor(is_warped))
        self.register_buffer("warps", torch.tensor(IDENTITY, device=x.device).repeat(count, 1))
        self.register_buffer("is_trained", torch.tensor(False))
        transform = getattr(self, "outcome_transform", None)
        if any(is_warped):
            transform = MemberWarp(self.warps[members], transform)
        elif transform is None and train_Yvar is not None:
            transform = ChainedOutcomeTransform()  # identity with a hook
        if transform is not None:
            transform.register_forward_pre_hook(_check_outcomes, with_kwargs=True)
            self.outcome_transform = transform
        self.to(train_X)
        self.set_weights(self.weights)

    def _repeat_data(self, num_members: int) -> None:
        """Repeat the data for a batch of members, each with its mean and likelihood."""
        del self._subset_batch_dict
        batch_shape = torch.Size([num_members])
        self._input_batch_shape = self._aug_batch_shape = batch_shape
        x, y = self.train_inputs[0], self.train_targets
        x, y = x.repeat(num_members, 1, 1), y.repeat(num_members, 1)
        ExactGP.set_train_data(self, x, y, strict=False)
        self.mean_module = ConstantMean(batch_shape=batch_shape)
        if isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            noise = self.likelihood.noise.repeat(num_members, 1)
            self.likelihood = FixedNoiseGaussianLikelihood(noise=noise, batch_shape=batch_shape)
        else:
            self.likelihood = get_gaussian_likelihood_with_gamma_prior(batch_shape=batch_shape)
        self.to(y)

    @property
    def maximize(self) -> bool:
        """Whether larger targets are better; can be set at any time."""
        return self._maximize

    @maximize.setter
    def maximize(self, value: bool) -> None:
        check_flags(maximize=value)
        self._maximize = value
        if (warp := self._member_warp) is not None:
            y = self.common_data()[1]
            best = y.max() if self._maximize else y.min()
            for warps in (self.warps, warp.warps):
                warps[warps[:, 0] != 0, -1] = best.detach()

    @property
    def num_members(self) -> int:
        """Number of members of the mixture."""
        return self._aug_batch_shape[-1]

    def member_parameters(self) -> dict[str, nn.Parameter]:
        """Return parameters ``members x ...`` of mean and likelihood, one entry per member.

        Raises:
            TypeError: Members share a trained parameter.
        """
        parameters = {}
        for root in _PARTS:
            module = getattr(self, root)
            for name, parameter in module.named_parameters():
                num_dims = event_dims(module, name)
                batch = parameter.shape[: 1 if num_dims is None else parameter.dim() - num_dims]
                if batch == self._aug_batch_shape:
                    parameters[f"{root}.{name}"] = parameter
                elif parameter.requires_grad:
                    raise TypeError(
                        f"Trained parameters of {root} must have a first dimension of "
                        f"{self.num_members} members, as with batch_shape=torch.Size(["
                        f"{self.num_members}]), got {type(module).__name__} with {name} of shape "
                        f"{tuple(parameter.shape)}: freeze it by requires_grad_(False), or give it "
                        "that dimension."
                    )
        return parameters

    def member_values(self) -> Tensor:
        """Return concatenated raw values ``members x P`` of the :meth:`member_parameters`."""
        values = [p.detach().reshape(len(p), -1) for p in self.member_parameters().values()]
        return torch.cat([self.train_targets.new_empty(self.num_members, 0), *values], -1)

    @torch.no_grad()
    def set_member_values(self, values: Tensor) -> None:
        """Set the :meth:`member_values` of parameters that are not frozen."""
        for parameter, raw in self._split(values):
            if parameter.requires_grad:
                parameter.copy_(raw)

    def member_parts(self, values: Tensor) -> tuple[Mean, Likelihood]:
        """Return copies of mean and likelihood with the raw values ``P`` of one member."""
        memo: dict[int, Any] = {}
        mean, likelihood = (deepcopy(getattr(self, root), memo) for root in _PARTS)
        for parameter, raw in self._split(values.unsqueeze(0)):
            memo[id(parameter)].data = raw[0].clone()
        if vars(mean).get("batch_shape") == (self.num_members,):  # of ZeroMean
            mean.batch_shape = torch.Size()
        return mean, likelihood

    def _split(self, values: Tensor) -> Iterator[tuple[nn.Parameter, Tensor]]:
        """Yield each of the :meth:`member_parameters` and its part of values ``entries x P``."""
        parameters = list(self.member_parameters().values())
        parts = values.split([p[0].numel() for p in parameters], -1)
        for parameter, part in zip(parameters, parts, strict=True):
            yield parameter, part.reshape(-1, *parameter.shape[1:])

    @property
    def structure_weights(self) -> dict[str, float]:
        """Weight of each structure, before rounding to members."""
        return dict(zip(self.structures, self.weights.tolist(), strict=True))

    def set_weights(self, weights: Tensor) -> None:
        """Set the weights ``K`` of the structures and assign members in proportion.

        Raises:
            ValueError: The number of weights is wrong, one is negative, or all are zero.
        """
        weights = torch.as_tensor(weights).to(self.weights)
        if weights.shape != self.weights.shape or not (weights >= 0).all() or not weights.sum() > 0:
            raise ValueError(
                f"weights must be {len(self.weights)} numbers, not negative and not all zero, got "
                f"{weights.tolist()}."
            )
        _, y, noise = self.common_data()
        self.weights.copy_((weights / weights.sum()).detach())
        counts = _apportion(self.weights, self.num_members)
        members = torch.arange(len(counts), device=counts.device).repeat_interleave(counts)
        self.covar_module.members.copy_(members)
        self.set_member_values(self.part_values[members])
        if (warp := self._member_warp) is not None:
            warp.warps.copy_(self.warps[members])
            self._set_warped(y, noise, warp.warps)
        mode = self.training
        self.train().train(mode)  # clears caches of the previous members

    def _set_warped(self, y: Tensor, noise: Tensor | None, warps: Tensor) -> None:
        """Set targets and known noise ``... x N``, on ``common_data``'s scale, under new warps."""
        warps = warps.to(y).unsqueeze(-2)
        ExactGP.set_train_data(self, targets=warped(y, warps), strict=False)
        if noise is not None:
            self.likelihood.noise_covar.noise = noise * warp_slope(y, warps).square()

    def structure_values(self) -> Tensor:
        """Return raw values ``K x P`` of the ``member_parameters`` of each structure.

        A structure without members keeps its last values of parameters that are not frozen.
        """
        values, members = self.member_values(), self.covar_module.members
        result = values[:1].repeat(len(self.structures), 1)
        if self.part_values.shape == result.shape:  # shapes differ if the user replaced parts
            parameters = self.member_parameters().values()
            free = [p.requires_grad for p in parameters for _ in range(p[0].numel())]
            result = torch.where(torch.tensor(free).to(members.device), self.part_values, result)
        for index in reversed(range(self.num_members)):
            result[members[index]] = values[index]
        return result

    def _load_from_state_dict(self, state_dict: dict[str, Any], prefix: str, *args: Any) -> None:
        values = state_dict.get(f"{prefix}part_values")
        if values is not None and values.shape[:1] == self.part_values.shape[:1]:
            self.part_values = self.part_values.new_empty(values.shape)  # means may be replaced
        warp, warps = self._member_warp, state_dict.get(f"{prefix}outcome_transform.warps")
        if warp is not None and warps is not None and warps.shape == warp.warps.shape:
            _, y, noise = self.common_data()
            self._set_warped(y, noise, warps)
        super()._load_from_state_dict(state_dict, prefix, *args)

    def eval(self) -> Self:
        """Set eval mode; if it is set already, skip the traversal of hundreds of modules."""
        return super().eval() if self.training else self

    def common_data(self) -> tuple[Tensor, Tensor, Tensor | None]:
        """Return inputs ``N x D``, targets ``N`` without warps, and known noise variances."""
        fixed = isinstance(self.likelihood, FixedNoiseGaussianLikelihood)
        x = self.train_inputs[0].flatten(0, -3)[0]  # fantasies have further dimensions
        y = self.train_targets.flatten(0, -2)[0]
        noise = self.likelihood.noise_covar.noise[None].flatten(0, -2)[0] if fixed else None
        if (warp := self._member_warp) is not None:
            y = unwarped(y, warp.warps[0])
            if noise is not None:
                noise = noise / warp_slope(y, warp.warps[0]).square()
        return x, y, noise

    def on_common_scale(self, member: int, mean: Tensor) -> tuple[Tensor, Tensor]:
        """Return a member's mean and factors of standard deviations on ``common_data``'s scale."""
        if (warp := self._member_warp) is None:
            return mean, torch.ones_like(mean)
        return secant(mean, warp.warps[member])

    def posterior(  # type: ignore[override]
        self,
        X: Tensor,
        output_indices: list[int] | None = None,
        observation_noise: bool | Tensor = False,
        posterior_transform: PosteriorTransform | None = None,
    ) -> GaussianMixturePosterior:
        """Return the mixture ``... x members x q x 1`` of posteriors at inputs ``... x q x D``.

        Arguments are as in BoTorch; a ``posterior_transform`` must give Gaussian posteriors. Noise
        variances ``... x q x 1`` or ``... x members x q x 1`` are on the scale of ``common_data``.

        Raises:
            NotImplementedError: A transformed posterior is not Gaussian, or the caller is an
                acquisition function of BoTorch that does not average over the members.
        """
        _check_callers()
        X = self._check_points(X)
        if isinstance(observation_noise, Tensor):
            observation_noise = _with_members(observation_noise, X)
        X = X.unsqueeze(MCMC_DIM)
        posterior = super().posterior(X, output_indices, observation_noise, posterior_transform)
        if not isinstance(posterior, GPyTorchPosterior):  # outcome_transform is linear
            raise NotImplementedError(
                "posterior_transform must give Gaussian posteriors (ScalarizedPosteriorTransform), "
                f"got {type(posterior).__name__} from {posterior_transform!r}."
            )
        return GaussianMixturePosterior(distribution=posterior.distribution)

    def condition_on_observations(
        self, X: Tensor, Y: Tensor, noise: Tensor | None = None, **kwargs: Any
    ) -> Self:
        """Return the ensemble with additional observations and the same parameters.

        Args:
            X: Inputs ``... x q x D``, with a dimension of members only if ``Y`` has it.
            Y: Targets ``... x q x 1`` for all members, or ``... x members x q x 1``.
            noise: Noise variances of the shape of ``Y``, required if the training data have them.
                As in BoTorch, they are on the scale of the transformed outcomes (``common_data``).
            **kwargs: As in BoTorch.

        Raises:
            ValueError: Shapes do not fit, or values are not finite.
        """
        X = self._check_points(X, added=True)
        check_tensors(Y=Y)
        num_members = self.num_members
        if noise is not None:
            check_noise(noise, Y.shape)
        if X.dim() == Y.dim() == 2:
            X = X.expand(num_members, *X.shape)
            Y = Y.expand(num_members, *Y.shape)
        elif X.dim() < Y.dim():
            X = X.unsqueeze(MCMC_DIM).expand(*Y.shape[:-2], *X.shape[-2:])
        if X.dim() < 3 or X.size(MCMC_DIM) != num_members:
            raise ValueError(
                f"X and Y must be q x d and q x 1, or Y ... x {num_members} x q x 1 with an "
                f"entry for each member, got shapes {tuple(X.shape)} and {tuple(Y.shape)}."
            )
        if noise is not None:
            self._make_caches(X)
            noise = self._member_noise(Y, noise)
        return cast(Self, super().condition_on_observations(X, Y, noise, **kwargs))

    def fantasize(
        self, X: Tensor, sampler: MCSampler, observation_noise: Tensor | None = None, **kwargs: Any
    ) -> Self:
        """Construct fantasies as in BoTorch; the members become an ordinary batch dimension.

        Look-ahead acquisition functions (``qKnowledgeGradient``) average over the members of this
        model. Known noise variances are replaced by their mean on the scale of ``common_data``, as
        is the scale of ``observation_noise``, ``... x q x 1`` or ``... x members x q x 1``.

        Raises:
            NotImplementedError: The caller treats members as points, as in ``posterior``.
        """
        _check_callers()
        if isinstance(observation_noise, Tensor):
            observation_noise = _with_members(observation_noise, X)
        elif observation_noise is None and (noise := self._mean_noise()) is not None:
            observation_noise = noise[(None,) * (X.dim() + 1 - noise.dim())]
        model = super().fantasize(X, sampler, observation_noise=observation_noise, **kwargs)
        model._is_ensemble = False
        return model

    def _apply_noise(
        self, X: Tensor, mvn: MultivariateNormal, observation_noise: bool | Tensor = False
    ) -> MultivariateNormal:
        """Add noise as in the base class; known variances are replaced by their mean."""
        if (warp := self._member_warp) is not None:
            if observation_noise is True and not hasattr(self.likelihood, "learned"):
                mean_noise = self._mean_noise()
                observation_noise = True if mean_noise is None else mean_noise
            if isinstance(observation_noise, Tensor):
                ratio = secant(mvn.mean, warp.warps.unsqueeze(-2))[1].unsqueeze(-1)
                observation_noise = observation_noise / ratio.square()
        return super()._apply_noise(X, mvn, observation_noise)

    def _mean_noise(self) -> Tensor | None:
        """Return mean known noise ``... x members x 1 x 1`` on the scale of ``common_data``."""
        if not isinstance(self.likelihood, FixedNoiseGaussianLikelihood):
            return None
        noise, y = self.likelihood.noise_covar.noise, self.train_targets
        if (warp := self._member_warp) is not None:
            warps = warp.warps.unsqueeze(-2)
            noise = noise / warp_slope(unwarped(y, warps), warps).square()
        return noise.expand_as(y).mean(-1)[..., None, None]

    def _member_noise(self, Y: Tensor, noise: Tensor) -> Tensor:
        """Return noise variances for targets ``... x members x q x 1``, on the members' scales."""
        noise = noise.expand(Y.shape)
        if (warp := self._member_warp) is None:
            return noise
        shared, _ = warp.shared(Y)
        return noise * warp_slope(shared, warp.warps[:, None, None]).square()

    @property
    def common_transform(self) -> OutcomeTransform | None:
        """Return the shared outcome transform, to the scale of ``common_data``."""
        warp = self._member_warp
        return getattr(self, "outcome_transform", None) if warp is None else warp.shared

    @property
    def _member_warp(self) -> MemberWarp | None:
        transform = getattr(self, "outcome_transform", None)
        return transform if isinstance(transform, MemberWarp) else None

    def _test_prior(self, train: Tensor, test: Tensor) -> Any:
        """Evaluate the prior as in the base class, each kernel once for all its members."""
        first, few = train[..., :1, :, :], test.size(-2) <= FEW_POINTS
        if few and test.shape[-3:-2] in ((), (1,)) and torch.equal(train, first.expand_as(train)):
            train = first
        return super()._test_prior(train, test)

    def _values(self, x1: Tensor, x2: Tensor) -> Tensor:
        return self.covar_module.forward(x1, x2)


def _with_members(noise: Tensor, X: Tensor) -> Tensor:
    """Return noise variances with a dimension of members, for points ``... x q x D``."""
    noise = noise.view(-1, 1) if noise.dim() < 2 else noise
    noise = noise.unsqueeze(MCMC_DIM) if noise.dim() <= X.dim() else noise
    return noise[(None,) * (X.dim() + 1 - noise.dim())]


def _check_callers() -> None:
    """Reject callers in BoTorch that would treat members as points, samples, outputs or costs.

    Subclasses of InverseCostWeightedUtility may add a dimension of members to the costs.
    """
    frame = inspect.currentframe()
    while (frame := frame and frame.f_back) is not None:
        if not frame.f_globals.get("__name__", "").startswith(_CALLERS):
            continue  # locals of other frames stay referenced
        caller, instead = frame.f_locals.get("self"), "an NKNSingleTaskGP"
        name = type(caller).__name__
        utility = type(getattr(caller, "cost_aware_utility", None))
        if type(caller) is InverseCostWeightedUtility:
            name = f"The cost model of an {name}"
        elif isinstance(caller, AcquisitionFunction) and utility is InverseCostWeightedUtility:
            name += " with InverseCostWeightedUtility"
        elif isinstance(caller, qKnowledgeGradient) and frame.f_code.co_name == "evaluate":
            name += ".evaluate"
        elif (
            isinstance(caller, MaxPosteriorSampling) and frame.f_locals["X"].shape[:-2].numel() > 1
        ):
            name += " of t-batches"
        elif isinstance(caller, PosteriorStandardDeviation):
            instead = "qPosteriorStandardDeviation"
        elif not isinstance(caller, _WITHOUT_MEMBERS):
            continue
        raise NotImplementedError(f"{name} does not support ensembles: use {instead}.")


def _check_outcomes(module: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Reject outcomes ``f x members x n x 1`` for inputs ``f x n x d``."""
    x = kwargs.get("X", args[2] if len(args) > 2 else None)
    if x is not None and args and x.dim() == 3 and args[0].dim() == 4:
        raise NotImplementedError(
            "LogNoisyExpectedImprovement and NoisyExpectedImprovement do not support ensembles: "
            "use qLogNoisyExpectedImprovement (qLogNEI), which averages over the members."
        )


def _kernel(structure: str | Kernel, num_columns: int, cat_dims: Sequence[int]) -> Kernel:
    if isinstance(structure, str) and structure in _KERNELS:
        return _KERNELS[structure](num_columns, cat_dims)
    if isinstance(structure, str):
        check_name(
            structure, {*NETWORKS, *_KERNELS}, "'outcome-warped ' and one of these, or a kernel"
        )
    return make_kernel(structure, num_columns, torch.Size(), cat_dims=cat_dims)


def _apportion(weights: Tensor, total: int) -> Tensor:
    """Distribute ``total`` members in proportion to the weights, by largest remainders.

    A structure with a weight below half a member gets no member. Otherwise structures that predict
    badly, and are uncertain everywhere, could dominate the average of acquisition functions.
    """
    quotas = weights.double() * total
    quotas = quotas * (quotas >= min(0.5, float(quotas.max())))
    quotas = quotas * (total / quotas.sum())
    counts = quotas.floor()
    rest = total - int(counts.sum())
    counts[(quotas - counts).topk(rest).indices] += 1
    return counts.long()
