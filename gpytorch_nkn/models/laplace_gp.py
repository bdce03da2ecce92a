"""GP with a non-Gaussian likelihood and Laplace's approximation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import (
    BernoulliLikelihood,
    LaplaceLikelihood,
    Likelihood,
    SoftmaxLikelihood,
)
from gpytorch.means import Mean
from gpytorch.models import GP
from gpytorch.settings import min_fixed_noise
from torch import Tensor
from torch.autograd import grad

from gpytorch_nkn.kernels import variances_of
from gpytorch_nkn.linalg import (
    DelayedMatrix,
    check_finite,
    check_tensors,
    solve_lower,
    with_gradients,
)
from gpytorch_nkn.models.common import check_support

__all__ = ["LaplaceGP"]

_MAX_STEPS, _MAX_HALVINGS = 100, 20  # Newton steps, and halvings of one step
_TOLERANCE = 1e-6  # relative difference of K^-1 (f - m) and the slope; at the mode they are equal
_LEAST_CURVATURE = 0.1  # least W of pseudo-targets with outliers, relative to the largest
_TINY = 1e-10  # least W of all pseudo-targets

LogDensity = Callable[[Tensor], Tensor]  # log densities ... x N of latent values ... x N


class LaplaceGP(GP):
    r"""GP with Laplace's approximation, a Gaussian around the mode of the posterior.

    .. math::
        \hat f = \arg\max_f \log p(y \mid f) + \log N(f \mid m, K), \qquad
        q(f) = N(\hat f, (K^{-1} + W)^{-1}), \qquad W = -\nabla\nabla \log p(y \mid \hat f)

    .. math::
        \log q(y) = \log p(y \mid \hat f) - \tfrac12 (\hat f - m)^\top K^{-1} (\hat f - m)
            - \tfrac12 \log\lvert I + W^{1/2} K W^{1/2} \rvert

    :func:`gpytorch_nkn.fit.fit_best_of` maximises the evidence :math:`\log q(y)` plus the log
    prior density over the parameters of mean, kernel and likelihood. In eval mode, ``model(x)`` is
    the latent posterior and ``model.likelihood(model(x))`` the predictive distribution, as for an
    ``ApproximateGP``.

    All GPyTorch likelihoods with one latent value per observation and a three times differentiable
    log density are supported: Bernoulli, Student-t, beta, or your own. Where the log density is not
    concave, as in the tails of Student-t, W is 0.

    Args:
        train_inputs: Inputs ``N x D``.
        train_targets: Targets ``... x N``. Batch elements are independent latent functions, which
            may share mean and covariance.
        likelihood: Likelihood of one latent function.
        mean_module, covar_module: Prior mean and covariance.

    Raises:
        TypeError: The data are not floating-point tensors, or a module has a wrong type.
        ValueError: The data are not finite, their numbers of rows differ, or a target is outside of
            the likelihood's support.
        NotImplementedError: An observation depends on several latent functions (softmax), or its
            log density is not differentiable (Laplace).

    Reference: Rasmussen and Williams (2006), algorithms 3.1, 3.2 and 5.1.
    """

    train_inputs: tuple[Tensor, ...]
    train_targets: Tensor
    _mode: _Mode | None
    _start: Tensor | None  # previous mode, where Newton's method starts

    def __init__(
        self,
        train_inputs: Tensor,
        train_targets: Tensor,
        likelihood: Likelihood,
        mean_module: Mean,
        covar_module: Kernel,
    ):
        super().__init__()
        for module, kind in ((likelihood, Likelihood), (mean_module, Mean), (covar_module, Kernel)):
            if not isinstance(module, kind):
                raise TypeError(
                    "LaplaceGP needs a likelihood, a mean and a kernel of GPyTorch, in this order, "
                    f"got {type(module).__name__} as {kind.__name__.lower()}."
                )
        if isinstance(likelihood, SoftmaxLikelihood):
            raise NotImplementedError(
                "LaplaceGP needs a likelihood of one latent function, got a SoftmaxLikelihood: use "
                "a BernoulliLikelihood and one-hot targets of shape classes x N."
            )
        if isinstance(likelihood, LaplaceLikelihood):
            raise NotImplementedError(
                "LaplaceGP needs a likelihood whose log density is three times differentiable, got "
                "a LaplaceLikelihood: use a StudentTLikelihood, or a VariationalNKNGP."
            )
        self.likelihood, self.mean_module, self.covar_module = likelihood, mean_module, covar_module
        self.set_train_data(train_inputs, train_targets)
        self.register_load_state_dict_post_hook(_forget)

    def set_train_data(
        self, inputs: Tensor | None = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """Replace the data: inputs ``N x D``, targets ``... x N``.

        Raises:
            ValueError: The numbers of rows differ, a value is not finite, or a target is outside of
                the likelihood's support.
        """
        new_inputs = inputs[0] if isinstance(inputs, tuple | list) else inputs
        x = self.train_inputs[0] if new_inputs is None else new_inputs
        y = self.train_targets if targets is None else targets
        check_tensors(train_inputs=x, train_targets=y)
        if x.dim() != 2 or y.dim() < 1 or y.size(-1) != x.size(0):
            raise ValueError(
                "train_inputs must be N x D and train_targets ... x N, got shapes "
                f"{tuple(x.shape)} and {tuple(y.shape)}."
            )
        check_finite(train_inputs=x, train_targets=y)
        check_support("train_targets", y, self.likelihood, y.shape[-1:])
        self.train_inputs, self.train_targets = (x,), y
        _forget(self)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at inputs ``... x N x D``."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))

    def __call__(self, x: Tensor) -> MultivariateNormal:
        """Return the prior (training mode) or the latent posterior (eval mode) at ``M x D``.

        Raises:
            ValueError: ``x`` has another number of columns or a value that is not finite.
        """
        width = self.train_inputs[0].size(-1)
        if x.dim() < 2 or x.size(-1) != width:
            raise ValueError(f"x must be ... x M x {width}, got shape {tuple(x.shape)}.")
        check_finite(x=x)
        if self.training:
            return super().__call__(x)
        mode, x = self._mode_found(), x.to(self.train_inputs[0].dtype)
        cross = self.covar_module(x, self.train_inputs[0]).to_dense()  # ... x M x N
        mean = self.mean_module(x) + (cross @ mode.alpha.unsqueeze(-1))[..., 0]
        white = mode.whiten(cross)  # ... x N x M
        prior = variances_of(self.covar_module, x)
        variance = (prior - white.square().sum(-2)).clamp_min(1e-12 * prior)

        def covariance() -> Tensor:
            return self.covar_module(x).to_dense() - white.mT @ white

        return MultivariateNormal(mean, DelayedMatrix(variance, covariance))

    def log_evidence(self) -> Tensor:
        """Return Laplace's approximation of the log marginal likelihood, differentiable once."""
        x = self.train_inputs[0]
        mean, covariance = self.mean_module(x), self.covar_module(x).to_dense()
        log_density = self._log_density()
        with torch.no_grad():
            mode = _find_mode(covariance, mean, log_density, self._start)
            self._start = mode.latent
            value = mode.log_joint - mode.factor.diagonal(dim1=-2, dim2=-1).log().sum(-1)
        if not torch.is_grad_enabled():
            return value
        with torch.no_grad():
            inverse = torch.cholesky_inverse(mode.factor)  # inverse of B
            variance = (1 - inverse.diagonal(dim1=-2, dim2=-1)) / mode.curvature.clamp_min(1e-12)
            variance = torch.where(mode.curvature > 0, variance, 0.0)  # elsewhere W is constant
            third = _derivatives(log_density, mode.latent, 3)[3]
            # chain rule: log|B| depends on the latent values, and these depend on K and m
            shift = mode.solve_moved(covariance, variance * third / 2)
            root = mode.curvature.sqrt()
            alpha = mode.alpha
            of_covariance = root.unsqueeze(-1) * inverse * root.unsqueeze(-2)
            of_covariance -= _outer(alpha + shift) - _outer(shift)
            of_covariance *= -0.5
            moved = (covariance @ shift.unsqueeze(-1))[..., 0]
        evidence = with_gradients(value, (covariance, mean), (of_covariance, alpha + shift))
        if any(p.requires_grad for p in self.likelihood.parameters()):
            logs, slope, second, _ = _derivatives(log_density, mode.latent, 2, keep=True)
            of_likelihood = (logs + variance * second / 2 + moved * slope).sum(-1)
            evidence = evidence + of_likelihood - of_likelihood.detach()
        return evidence

    @torch.no_grad()
    def leave_one_out(self) -> MultivariateNormal:
        r"""Approximate independent latent distributions ``... x N`` of rows given the other rows.

        The likelihood term of row i is divided out of the Gaussian approximation with variance
        :math:`v_i` and mean :math:`\hat f_i`:

        .. math::
            v_{-i} = (1 / v_i - W_i)^{-1}, \qquad
            \mu_{-i} = \hat f_i - v_{-i} \nabla \log p(y_i \mid \hat f_i)

        Reference: Vehtari, Mononen, Tolvanen, Sivula and Winther (2016), Bayesian leave-one-out
        cross-validation approximations for Gaussian latent variable models, section 3.3.
        """
        mode, x = self._mode_found(), self.train_inputs[0]
        covariance = self.covar_module(x).to_dense()
        prior = covariance.diagonal(dim1=-2, dim2=-1)
        variance = prior - mode.whiten(covariance).square().sum(-2)
        cavity = (1 - mode.curvature * variance).clamp_min(1e-10)
        variance = (variance / cavity).clamp_min(1e-12 * prior)
        mean = mode.latent - variance * mode.slope
        return MultivariateNormal(mean, torch.diag_embed(variance))

    @property
    def pseudo_targets(self) -> tuple[Tensor, Tensor]:
        r"""Return targets and noise variances ``... x N`` of the exact GP with this posterior.

        They are :math:`\hat f + W^{-1} \nabla \log p` and :math:`W^{-1}`. The posterior mean is the
        same for any positive :math:`W`. If the density of a target is not log-concave, :math:`W` is
        at least a tenth of its largest entry. Outliers then stay near their prediction.
        """
        mode = self._mode_found()
        share = _LEAST_CURVATURE if bool((mode.second > 0).any()) else 0.0
        least = (share * mode.curvature.amax(-1, keepdim=True)).clamp_min(_TINY)
        noise = 1 / torch.maximum(mode.curvature, least)
        noise = noise.clamp_min(min_fixed_noise.value(noise.dtype))
        return mode.latent + noise * mode.slope, noise

    def _mode_found(self) -> _Mode:
        if self._mode is None or self.training:
            x = self.train_inputs[0]
            with torch.inference_mode(False), torch.no_grad():
                covariance, mean = self.covar_module(x).to_dense(), self.mean_module(x)
                self._mode = _find_mode(covariance, mean, self._log_density(), self._start)
        return self._mode

    def _log_density(self) -> LogDensity:
        """Return the log densities of the targets as a function of latent values."""
        targets, likelihood = self.train_targets, self.likelihood
        if type(likelihood).forward is BernoulliLikelihood.forward:
            return lambda latent: torch.special.log_ndtr((2 * targets - 1) * latent)
        return lambda latent: likelihood(latent).log_prob(targets)

    def train(self, mode: bool = True) -> LaplaceGP:
        """Set the mode and clear the cached posterior."""
        _forget(self)
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], *args: Any, **kwargs: Any) -> Any:
        self.train_inputs = tuple(fn(x) for x in self.train_inputs)
        self.train_targets = fn(self.train_targets)
        _forget(self)
        return super()._apply(fn, *args, **kwargs)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_mode": None, "_start": None}


def _forget(model: LaplaceGP, *_: Any) -> None:
    """Clear cached results that depend on parameters or data."""
    model._mode = model._start = None


@dataclass
class _Mode:
    """Mode of the posterior and Gaussian approximation around it."""

    latent: Tensor  # ... x N
    alpha: Tensor  # K^-1 (latent - mean), ... x N
    slope: Tensor  # first derivatives of the targets' log density, ... x N
    second: Tensor  # second derivatives of the targets' log density, ... x N
    curvature: Tensor  # W, non-negative, ... x N
    factor: Tensor  # Cholesky factor of B = I + W^1/2 K W^1/2, ... x N x N
    log_joint: Tensor  # joint log density of targets and latent values, ...

    def whiten(self, cross: Tensor) -> Tensor:
        """Return ``L^-1 W^1/2 k_*``, ``... x N x M``, for covariances ``... x M x N``."""
        right = self.curvature.sqrt().unsqueeze(-1) * cross.mT
        return solve_lower(self.factor, right)

    def solve_moved(self, covariance: Tensor, right: Tensor) -> Tensor:
        r"""Solve :math:`(I - \nabla\nabla \log p\, K) u = r` for vectors ``... x N``."""
        if bool((self.second > 0).any()):  # W was clipped at 0
            n = right.size(-1)
            system = torch.eye(n).to(right) - self.second.unsqueeze(-1) * covariance
            # one matrix at a time, because batched LU in PyTorch hangs with several threads (MKL)
            pairs = zip(system.reshape(-1, n, n), right.reshape(-1, n), strict=True)
            return torch.stack([torch.linalg.solve(*pair) for pair in pairs]).view_as(right)
        root = self.curvature.sqrt()
        moved = root * (covariance @ right.unsqueeze(-1))[..., 0]
        solved = torch.cholesky_solve(moved.unsqueeze(-1), self.factor)[..., 0]
        return right - root * solved


def _outer(vector: Tensor) -> Tensor:
    return vector.unsqueeze(-1) * vector.unsqueeze(-2)


def _derivatives(
    log_density: LogDensity, latent: Tensor, order: int, *, keep: bool = False
) -> list[Tensor]:
    """Return log densities ``... x N`` and three derivatives; zeros above the given order."""
    with torch.enable_grad():
        latent = latent.detach().requires_grad_()
        derivatives = [log_density(latent)]
        for number in range(1, order + 1):
            create_graph = keep or number < order
            (slope,) = grad(derivatives[-1].sum(), latent, create_graph=create_graph)
            derivatives.append(slope)
    derivatives = derivatives if keep else [d.detach() for d in derivatives]
    return derivatives + [torch.zeros_like(latent)] * (3 - order)


def _find_mode(
    covariance: Tensor, mean: Tensor, log_density: LogDensity, start: Tensor | None
) -> _Mode:
    """Find the mode by Newton's method, for a covariance ``... x N x N`` and mean ``... x N``."""
    batch_shape = torch.broadcast_shapes(
        covariance.shape[:-2], mean.shape[:-1], log_density(mean).shape[:-1]
    )
    mean = mean.expand(*batch_shape, -1)
    eye = torch.eye(mean.size(-1), dtype=mean.dtype, device=mean.device)

    def at(alpha: Tensor) -> tuple[Tensor, Tensor]:
        """Return latent values, and the joint log density without the determinant of K."""
        shift = (covariance @ alpha.unsqueeze(-1))[..., 0]
        logs = log_density(mean + shift).sum(-1) - (alpha * shift).sum(-1) / 2
        return mean + shift, torch.where(logs.isnan(), -torch.inf, logs)

    def factorize(curvature: Tensor) -> tuple[Tensor, Tensor]:
        """Return the root of W, and the Cholesky factor of B."""
        root = curvature.sqrt()
        scaled = root.unsqueeze(-1) * covariance * root.unsqueeze(-2)
        return root, torch.linalg.cholesky(eye + scaled)

    def step(latent: Tensor) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Return ``K^-1 (f - m)`` after a full step; slopes, second derivatives, the factor.

        Where the log density is not concave, the step uses the absolute curvature. With W = 0
        there, steps to targets far from the mean would be too long to increase the density.
        """
        _, slope, second, _ = _derivatives(log_density, latent, 2)
        curvature = second.abs()
        root, factor = factorize(curvature)
        right = curvature * (latent - mean) + slope
        inner = root * (covariance @ right.unsqueeze(-1))[..., 0]
        inner = torch.cholesky_solve(inner.unsqueeze(-1), factor)[..., 0]
        return right - root * inner, (slope, second, factor)

    alpha = torch.zeros_like(mean)
    latent, value = at(alpha)
    if start is not None and start.shape == alpha.shape:
        other = step(start)[0]
        there, better = at(other)
        first = (better > value).unsqueeze(-1)
        alpha, latent = torch.where(first, other, alpha), torch.where(first, there, latent)
        value = torch.maximum(value, better)
    eps = torch.finfo(mean.dtype).eps
    for _ in range(_MAX_STEPS):
        goal, at_mode = step(latent)
        slope = at_mode[0]
        off = (alpha - slope).abs().amax(-1) / (1 + slope.abs().amax(-1))
        if bool((off <= max(_TOLERANCE, 100 * eps)).all()):
            break
        direction = goal - alpha
        size, before = torch.ones_like(value), value
        for _ in range(_MAX_HALVINGS):
            moved = alpha + size.unsqueeze(-1) * direction
            latent, value = at(moved)
            worse = ~(value >= before - 100 * eps * (1 + before.abs()))
            if not bool(worse.any()):
                break
            size = torch.where(worse, size / 2, size)
        else:
            moved = torch.where(worse.unsqueeze(-1), alpha, moved)
            latent, value = at(moved)
        if bool(torch.equal(alpha, moved)):
            break
        alpha = moved
    else:
        at_mode = step(latent)[1]
    slope, second, factor = at_mode
    curvature = (-second).clamp_min(0)
    if bool((second > 0).any()):
        _, factor = factorize(curvature)
    return _Mode(latent, alpha, slope, second, curvature, factor, value)
