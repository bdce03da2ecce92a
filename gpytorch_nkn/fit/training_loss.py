"""Loss and gradient of a whole training step in closed form, for models whose parts are known."""

from __future__ import annotations

import math

import torch
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.distributions import MultivariateNormal
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.models import ExactGP
from gpytorch.module import Module
from gpytorch.priors import GammaPrior, LogNormalPrior, NormalPrior, Prior
from torch import Tensor
from torch.nn.functional import softplus

from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import (
    Kind,
    describe,
    has_softplus,
    program_matrix,
    unwrap_scales,
    zero_mean_factor,
)
from gpytorch_nkn.linalg import solve_in_place

__all__ = ["TrainingLoss", "UnknownPartError"]


class UnknownPartError(Exception):
    """A part of the model is not among those whose formulas are written out here."""


class TrainingLoss:
    """Negative log posterior of an exact GP and its gradient, without autograd.

    What autograd and GPyTorch's modules do around the evaluation of a network costs many times
    as much as the evaluation itself at a few hundred points. Here all raw parameters are
    transformed at once, the likelihood uses the memory of one matrix, and every gradient is
    written out.

    Known are networks whose primitives and layers all have formulas; zero, constant and linear
    means; homoskedastic and fixed noise; normal, log-normal and gamma priors on parameters. The
    inputs of the network must not depend on parameters: the caller compares the result with
    autograd's, which shows that and anything else that a model may do in its ``forward``.

    Args:
        model: An exact GP in training mode.
        values: The raw values of its trainable parameters, one after another, of which the
            parameters are views. They are moved for a moment, to see what priors depend on.

    Raises:
        UnknownPartError: The model has a part that is not known.
    """

    def __init__(self, model: ExactGP, values: Tensor):
        self._values = values
        self._positions = _positions(model)
        self._is_softplus, self._lower = _transforms(model, values)
        kernel, self._inputs = _kernel_and_inputs(model)
        self._describe_kernel(kernel)
        self._describe_mean(model.mean_module)
        self._describe_noise(model.likelihood)
        self._require_all_known()
        self._describe_priors(model)
        self._targets = model.train_targets
        _require(self._targets.dim() == 1, "a batch of targets")
        self._buffer = values.new_empty(0)  # memory of a matrix, taken when it is needed

    def __call__(self) -> tuple[float, Tensor]:
        """The loss, infinite where the covariance is not positive definite, and its gradient."""
        natural = self._natural()
        theta = self._constants.clone()
        theta[self._free] = natural[self._sources]
        theta[self._factors] = zero_mean_factor(theta[self._lengthscales])
        residual = self._targets - self._basis @ natural[self._coefficients]
        noise = self._fixed_noise + natural[self._noise].sum()
        if self._buffer.numel() == 0:
            self._buffer = natural.new_empty(self._targets.size(0), self._targets.size(0))
        evaluator = self._matrix.bind((self._inputs, theta), [False, True])

        def fill(out: Tensor) -> None:
            evaluator.fill(out)
            out.diagonal().add_(noise)

        loss, solution = solve_in_place(fill, residual, self._buffer, invert=True)
        gradient = torch.zeros_like(natural)
        if solution is None:
            return math.inf, gradient
        of_theta = evaluator.pull_back(self._buffer, solution)[-1]
        assert of_theta is not None
        slopes = _zero_mean_slope(theta[self._lengthscales], theta[self._factors])
        of_theta[self._lengthscales] += slopes * of_theta[self._factors]
        gradient.index_add_(0, self._sources, of_theta[self._free])
        gradient[self._coefficients] -= self._basis.mT @ solution
        of_noise = 0.5 * (self._buffer.diagonal().sum() - solution.square().sum())
        gradient[self._noise] += of_noise
        loss -= self._add_log_prior(natural, gradient)
        # softplus is the identity beyond 20 in PyTorch, and so is its slope one
        slope = torch.where(self._values > 20, 1.0, torch.sigmoid(self._values))
        return loss, torch.where(self._is_softplus, gradient * slope, gradient)

    def _natural(self) -> Tensor:
        return torch.where(self._is_softplus, softplus(self._values) + self._lower, self._values)

    def release_memory(self) -> None:
        """Give the memory of the matrix back until the next call."""
        self._buffer = self._values.new_empty(0)

    def _require_all_known(self) -> None:
        """A parameter that no formula knows would never be trained."""
        known = torch.cat([self._sources, self._coefficients, self._noise]).unique()
        _require(len(known) == len(self._values), "a parameter that no part is known to have")

    def _span(self, parameter: Tensor) -> slice | None:
        return self._positions.get(id(parameter))

    def _describe_kernel(self, kernel: Module) -> None:
        network, scales = unwrap_scales(kernel)
        _require(type(network) is NeuralKernelNetwork, f"the kernel {type(network).__name__}")
        described = describe(network, self._inputs.size(-1), scales)
        _require(described is not None and not described[1].batch_shape, "a part of the network")
        program, vector = described  # type: ignore[misc]
        theta = vector.values()
        matrix = None if theta is None else program_matrix(program, theta, (self._inputs,))
        if theta is None or matrix is None:
            raise UnknownPartError("a network that is to be evaluated otherwise")
        self._matrix, self._constants = matrix, theta.detach()
        free, sources, start = [], [], 0
        periodic = [p.slots for p in program.primitives if p.kind is Kind.ZERO_MEAN_PERIODIC]
        self._lengthscales = self._numbers([torch.arange(*slots[0]) for slots in periodic])
        self._factors = self._numbers([torch.arange(*slots[-1]) for slots in periodic])
        for part in vector.parts:
            if isinstance(part, Tensor):  # the factor of a kernel without constant part
                start += part.numel()
                continue
            module, name = part
            parameter = module._parameters.get(f"raw_{name}", module._parameters.get(name))
            _require(parameter is not None, f"the parameter {name}")
            span = self._span(parameter)
            if span is not None:
                free.append(torch.arange(start, start + parameter.numel()))
                sources.append(torch.arange(span.start, span.stop))
            start += parameter.numel()
        self._free, self._sources = self._numbers(free), self._numbers(sources)

    def _describe_mean(self, mean: Module) -> None:
        ones = torch.ones_like(self._inputs[:, :1])
        parts: list[tuple[Tensor, Tensor]] = []
        if type(mean) is ConstantMean:
            parts = [(ones, mean.raw_constant)]
        elif type(mean) is LinearMean:
            parts = [(self._inputs, mean.weights)]
            parts += [] if mean.bias is None else [(ones, mean.bias)]
        else:
            _require(type(mean) is ZeroMean, f"the mean {type(mean).__name__}")
        spans = [self._span(parameter) for _, parameter in parts]
        _require(None not in spans, "a frozen mean")
        self._coefficients = self._numbers([torch.arange(s.start, s.stop) for s in spans if s])
        self._basis = torch.cat([self._inputs[:, :0], *(columns for columns, _ in parts)], -1)

    def _describe_noise(self, likelihood: Module) -> None:
        self._fixed_noise = torch.zeros_like(self._inputs[:, 0])
        if type(likelihood) is GaussianLikelihood:
            learned = [likelihood.noise_covar]
        else:
            _require(type(likelihood) is FixedNoiseGaussianLikelihood, "the likelihood")
            self._fixed_noise = self._fixed_noise + likelihood.noise_covar.noise
            second = likelihood.second_noise_covar
            learned = [] if second is None else [second]
        positions = []
        for noise in learned:
            _require(type(noise) is HomoskedasticNoise, "the noise")
            span = self._span(noise.raw_noise)
            if span is None:
                self._fixed_noise = self._fixed_noise + noise.noise.detach()
            else:
                positions.append(torch.arange(span.start, span.stop))
        self._noise = self._numbers(positions)

    def _describe_priors(self, model: ExactGP) -> None:
        """Coefficients of 1, x, x^2, log x and log^2 x in the log densities of all parameters.

        A prior sees what its closure returns; that this is the natural value of a parameter, and
        of which, shows when the parameters move.
        """
        self._constant = 0.0
        zeros = torch.zeros_like(self._values)
        self._slope, self._curvature, self._log, self._log_square = (zeros.clone() for _ in "1234")
        spans = list(self._positions.values())
        start = self._values.clone()
        steps = torch.arange(len(start)).to(start)
        waves = 2 + steps.cos() + (1.7 * steps).sin()  # all of them different
        for _, module, prior, get, _ in model.named_priors():
            value = get(module).detach().clone()
            found = [span for span in spans if span.stop - span.start == value.numel()]
            still = True
            for scale in (0.05, 2.0):  # far away too, where a closure may be another function
                self._values.copy_(start + scale * waves)
                moved, natural = get(module).detach().reshape(-1), self._natural()
                still = still and torch.equal(moved, value.reshape(-1))
                found = [s for s in found if torch.allclose(natural[s], moved, rtol=1e-12)]
            self._values.copy_(start)
            if still:  # a prior on something that is not trained
                self._constant += prior.log_prob(value).sum().item()
                continue
            _require(len(found) == 1, "a prior on something else than a parameter")
            self._add_prior(prior, found[0], value)
        self._has_log = (self._log != 0) | (self._log_square != 0)

    def _add_prior(self, prior: Prior, span: slice, like: Tensor) -> None:
        def parameter(value: Tensor) -> Tensor:
            return value.detach().expand_as(like).reshape(-1)

        _require(getattr(prior, "_transform", None) is None, "a transformed prior")
        if type(prior) is GammaPrior:
            shape, rate = parameter(prior.concentration), parameter(prior.rate)
            self._log[span] += shape - 1
            self._slope[span] -= rate
            constant = shape * rate.log() - shape.lgamma()
        else:
            _require(type(prior) in (NormalPrior, LogNormalPrior), f"a {type(prior).__name__}")
            location, scale = parameter(prior.loc), parameter(prior.scale)
            precision = scale**-2
            constant = -0.5 * location.square() * precision - scale.log()
            constant = constant - 0.5 * math.log(2 * math.pi)
            if type(prior) is NormalPrior:
                self._slope[span] += location * precision
                self._curvature[span] -= 0.5 * precision
            else:
                self._log[span] += location * precision - 1
                self._log_square[span] -= 0.5 * precision
        self._constant += constant.sum().item()

    def _add_log_prior(self, natural: Tensor, gradient: Tensor) -> float:
        """The log prior; its gradient is taken away from ``gradient``."""
        tiny = torch.finfo(natural.dtype).tiny  # where softplus underflows to zero
        positive = torch.where(self._has_log, natural.clamp_min(tiny), 1.0)
        logs = positive.log()
        value = (
            torch.dot(self._slope, natural)
            + torch.dot(self._curvature, natural.square())
            + torch.dot(self._log, logs)
            + torch.dot(self._log_square, logs.square())
        )
        gradient -= self._slope + 2 * self._curvature * natural
        gradient -= (self._log + 2 * self._log_square * logs) / positive
        return value.item() + self._constant

    def _numbers(self, ranges: list[Tensor]) -> Tensor:
        empty = torch.arange(0)
        return torch.cat([empty, *ranges]).to(self._values.device)


def _zero_mean_slope(lengthscale: Tensor, factor: Tensor) -> Tensor:
    """Derivative of 1 / (1 - exp(-z) I0(z)) by the lengthscale 1 / z."""
    z = lengthscale.reciprocal()
    return factor.square() * (torch.special.i0e(z) - torch.special.i1e(z)) * z.square()


def _require(condition: bool, what: str) -> None:
    if not condition:
        raise UnknownPartError(what)


def _positions(model: ExactGP) -> dict[int, slice]:
    positions, start = {}, 0
    for parameter in model.parameters():
        if parameter.requires_grad:
            positions[id(parameter)] = slice(start, start + parameter.numel())
            start += parameter.numel()
    return positions


def _transforms(model: ExactGP, values: Tensor) -> tuple[Tensor, Tensor]:
    """Which raw values go through softplus, and the lower bounds added to them."""
    masks, bounds = [], []
    for name, parameter in model.named_parameters():
        if not parameter.requires_grad:
            continue
        constraint = model.constraint_for_parameter_name(name)
        lower = torch.zeros_like(parameter)
        transformed = constraint is not None and constraint.enforced
        if transformed:
            known = type(constraint) in (Positive, GreaterThan)
            _require(known and has_softplus(constraint), f"the constraint of {name}")
            lower = constraint.lower_bound.to(parameter).expand_as(parameter)
        masks.append(torch.full_like(parameter, transformed, dtype=torch.bool).reshape(-1))
        bounds.append(lower.detach().reshape(-1))
    return torch.cat(masks), torch.cat(bounds).to(values)


def _kernel_and_inputs(model: ExactGP) -> tuple[Module, Tensor]:
    """The kernel of the model's covariance, and the inputs ``N x D`` that it gets."""
    with torch.no_grad():
        output = model.forward(*model.train_inputs)
    _require(type(output) is MultivariateNormal, "the output distribution")
    covariance = output.lazy_covariance_matrix
    _require(type(covariance) is LazyEvaluatedKernelTensor, "the covariance")
    x1, x2 = covariance.x1.detach(), covariance.x2.detach()
    _require(x1.dim() == 2 and not covariance.last_dim_is_batch, "a batch of inputs")
    _require(not covariance.params and torch.equal(x1, x2), "the covariance")
    _require(hasattr(model, "mean_module"), "a model without mean_module")
    return covariance.kernel, x1
