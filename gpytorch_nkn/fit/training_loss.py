"""Closed-form loss and gradient of a training step, for models with known parts."""

from __future__ import annotations

import math
from typing import Any

import gpytorch
import numpy as np
import torch
from gpytorch.distributions import MultivariateNormal
from gpytorch.lazy import LazyEvaluatedKernelTensor
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.likelihoods.noise_models import HomoskedasticNoise
from gpytorch.means import ConstantMean, LinearMean, ZeroMean
from gpytorch.models import ExactGP
from gpytorch.module import Module
from gpytorch.priors import GammaPrior, NormalPrior, Prior
from torch import Tensor

from gpytorch_nkn.fit.parameter_pool import ParameterPool, UnknownPartError, require, to_numpy
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.evaluation import NativeEvaluator, describe, program_matrix, unwrap_scales
from gpytorch_nkn.layers import Linear, LogNormalPrior, ShrunkLogNormalPrior
from gpytorch_nkn.linalg import Evaluator, broadcasts, solve_in_place, with_less_noise

__all__ = ["TrainingLoss", "UnknownPartError"]

# Perturbations of the parameters, which identify the parameter of each prior.
_PERTURBATIONS = (0.05, 2.0)
_LEAST_NOISE_RATIO = 0.01  # least ratio of known noise variances of outputs that share an inverse


class TrainingLoss:
    """Negative log posterior of an exact GP and its gradient, without autograd.

    At a few hundred points, autograd and GPyTorch's modules take much longer than the network. This
    class transforms all raw parameters in one operation, computes the likelihood in the memory of
    one matrix, and has explicit gradients. The loss of a batch is the sum over its elements.

    It supports networks whose primitives and layers all have formulas. Means are zero, constant or
    linear. Noise is homoskedastic or fixed. Priors are normal, log-normal or gamma. The caller
    compares results with autograd, because the model's ``forward`` may depend on other parts.

    The model is in training mode. The vector of trained raw values shares its memory with the
    parameters and is perturbed temporarily.

    Raises:
        UnknownPartError: The model has an unsupported part.
    """

    def __init__(self, model: ExactGP, values: Tensor):
        self._values = values
        self._pool = ParameterPool(model, values)
        kernel, inputs = _kernel_and_inputs(model)
        batch_shape, (size, width) = model.train_targets.shape[:-1], inputs.shape[-2:]
        require(broadcasts(inputs.shape[:-2], batch_shape), "a batch of inputs")
        self._batch_shape = batch_shape
        self._inputs = list(inputs.expand(*batch_shape, size, width).reshape(-1, size, width))
        if all(torch.equal(self._inputs[0], other) for other in self._inputs[1:]):
            self._inputs = self._inputs[:1] * len(self._inputs)
        self._targets = to_numpy(model.train_targets).reshape(-1, size)
        self._simplexes: dict[int, dict[str, np.ndarray]] = {}  # indices of weights, by layer
        theta = self._describe_kernel(kernel)
        coefficients = self._describe_mean(model.mean_module)
        noise = self._describe_noise(model.likelihood)
        parts = [theta, coefficients, noise]
        stops = np.cumsum([part.shape[1] for part in parts])
        self._theta_slice, self._mean_slice, self._noise_slice = map(slice, [0, *stops[:-1]], stops)
        self._indices = np.concatenate(parts, 1)  # outputs x values of one output
        count = len(theta)
        size_of_group = count if self._shares_kernel(theta) else 1
        self._groups = [slice(n, n + size_of_group) for n in range(0, count, size_of_group)]
        self._pool.finish()
        require(self._pool.reaches_all(self._indices), "a parameter of an unknown part")
        self._prior = _LogPrior(model, values, self._pool)
        self._parameters = np.empty(self._indices.shape)  # values of each output
        self._evaluators: dict[int, Evaluator] = {}  # by element
        self._buffer = values.new_empty(0)  # memory of a matrix, allocated when needed

    def __call__(self) -> tuple[float, Tensor]:
        """Return loss (infinite if the covariance is not positive definite) and gradient."""
        if self._buffer.numel() == 0:
            self._buffer = self._values.new_empty(self._targets.shape[1], self._targets.shape[1])
        with np.errstate(all="ignore"):  # parameters may have any value
            numbers = self._pool.numbers()
            np.take(numbers, self._indices, out=self._parameters)
            gradient = np.empty_like(self._parameters)
            loss = 0.0
            for group in self._groups:
                loss += self._evaluate(group, gradient[group])
                if not math.isfinite(loss):
                    return math.inf, torch.zeros_like(self._values)
            grad_numbers = np.bincount(self._indices.ravel(), gradient.ravel(), len(numbers))
            trained = slice(self._pool.num_trained)
            loss -= self._prior.take_from(numbers[trained], grad_numbers[trained])
            grad_values = self._pool.vjp(numbers, grad_numbers)
        return loss, torch.from_numpy(grad_values).to(self._values)

    def _evaluate(self, group: slice, gradient: np.ndarray) -> float:
        """Return the negative log likelihood of a group of outputs, and write its gradient."""
        element, is_single = group.start, len(gradient) == 1
        parameters, basis = self._parameters[element], self._basis[element]
        theta = parameters[self._theta_slice]
        for formula, first, derived in self._derived:
            number = formula.derived(torch.from_numpy(theta[first]))
            theta[derived] = number.numpy()
        means = self._parameters[group, self._mean_slice] @ basis.T
        residuals = self._to_tensor(self._targets[group] - means)
        noise = torch.full_like(residuals, parameters[self._noise_slice].sum())
        if self._fixed_noise is not None:
            noise += self._fixed_noise[group]
        largest, evaluator = noise.amax(0), self._evaluator(element)

        def fill(out: Tensor) -> None:
            evaluator.fill(out)
            out.diagonal().add_(largest)

        right = residuals[0] if is_single else torch.zeros_like(largest)
        loss, solution = solve_in_place(fill, right, self._buffer, invert=True)
        if solution is not None and not is_single:
            less = largest - noise
            loss, solution = with_less_noise(self._buffer, less, residuals, loss)
        if solution is None:
            return math.inf
        _, grad_theta = evaluator.vjp(self._buffer, solution if is_single else None)
        assert grad_theta is not None
        solved = np.atleast_2d(to_numpy(solution))
        gradient[:, self._theta_slice] = 0  # outputs of a group share these parameters
        gradient[:, self._mean_slice] = -(solved @ basis)
        gradient = gradient[0]
        gradient[self._theta_slice] = to_numpy(grad_theta)
        trace = self._buffer.diagonal().sum().item()
        gradient[self._noise_slice] = 0.5 * (trace - np.vdot(solved, solved))
        for formula, first, derived in self._derived:
            values = torch.from_numpy(theta[first]), torch.from_numpy(theta[derived])
            gradient[first] += formula.derived_slope(*values).numpy() * gradient[derived]
        return loss

    def _shares_kernel(self, indices: np.ndarray) -> bool:
        """Return whether at least 3 outputs differ only in mean and moderately in known noise.

        One inverse then serves all outputs, and takes as long as about two separate inverses.
        """
        noise, count = self._fixed_noise, len(indices)
        if noise is None or count < 3 or self._noise_slice.stop > self._noise_slice.start:
            return False
        few = (noise < noise.amax(0)).sum() <= 2 * noise.size(-1)
        well_conditioned = noise.min() > _LEAST_NOISE_RATIO * noise.max()
        same = (indices == indices[0]).all() and all(x is self._inputs[0] for x in self._inputs)
        return bool(few and well_conditioned and same)

    def _evaluator(self, element: int) -> Evaluator:
        """Return an evaluator of one output at its current parameters."""
        if element in self._evaluators:
            return self._evaluators[element]
        theta = self._to_tensor(self._parameters[element, self._theta_slice])
        evaluator = self._matrix.bind((self._inputs[element], theta), [False, True])
        if isinstance(evaluator, NativeEvaluator):  # reads parameters from memory in every call
            self._evaluators[element] = evaluator
        return evaluator

    def _to_tensor(self, numbers: np.ndarray) -> Tensor:
        return torch.from_numpy(numbers).to(self._values)

    def release_memory(self) -> None:
        """Free the memory of the matrix until the next call."""
        self._buffer = self._values.new_empty(0)

    def _describe_kernel(self, kernel: Module) -> np.ndarray:
        """Return indices of the network's parameters for each element of the batch."""
        network, scales = unwrap_scales(kernel)
        require(type(network) is NeuralKernelNetwork, f"the kernel {type(network).__name__}")
        described = describe(network, self._inputs[0].size(-1), scales)
        require(described is not None, "a part of the network")
        program, vector = described  # type: ignore[misc]
        theta = vector.values()
        if theta is None or theta.shape[:-1] not in (self._batch_shape, torch.Size([])):
            raise UnknownPartError("a network of another batch shape")
        theta = theta.detach().view(-1, theta.size(-1))  # one row if the outputs share the kernel
        matrix = program_matrix(program, theta[0], (self._inputs[0],))
        if matrix is None:
            raise UnknownPartError("a network with another evaluation setting")
        self._matrix = matrix
        # Indices of derived values, and of the parameters from which they are derived.
        primitives = [p for p in program.primitives if p.formula.derived is not None]
        self._derived: list[tuple[Any, np.ndarray, np.ndarray]] = [
            (
                formula,
                np.array([p.slots[0].start for p in primitives if p.formula is formula]),
                np.array([p.slots[-1].start for p in primitives if p.formula is formula]),
            )
            for formula in {p.formula for p in primitives}
        ]
        constants = self._pool.add_constants(theta)
        indices = np.repeat(constants, len(self._inputs) // len(constants), 0)
        for part, (start, stop) in zip(vector.parts, vector.slots, strict=True):
            if isinstance(part, Tensor):  # derived values
                continue
            module, name = part
            if isinstance(module, Linear) and module.is_simplex:
                indices[:, start:stop] = self._simplex_of(module)[name]
                continue
            parameter = module._parameters.get(f"raw_{name}", module._parameters.get(name))
            require(parameter is not None, f"the parameter {name}")
            trained = self._pool.indices(parameter)
            if trained is not None:
                indices[:, start:stop] = self._by_element(trained, stop - start)
        return indices

    def _by_element(self, indices: np.ndarray, count: int) -> np.ndarray:
        """Return indices ``... x count`` of a parameter for each element of the batch."""
        batch_shape = self._batch_shape
        shared = indices.size == count
        shape = torch.Size([] if shared else indices.shape[: len(batch_shape)])
        fits = shape.numel() * count == indices.size and broadcasts(shape, batch_shape)
        require(fits, "a parameter of another batch shape")
        expanded = np.broadcast_to(indices.reshape(*shape, count), (*batch_shape, count))
        return expanded.reshape(batch_shape.numel(), count)

    def _simplex_of(self, layer: Linear) -> dict[str, np.ndarray]:
        """Return indices of the weights and biases of a layer of convex combinations."""
        if id(layer) not in self._simplexes:
            logits = []
            for parameter, width in ((layer.raw_weight, layer.in_features), (layer.raw_bias, 1)):
                if parameter is None:
                    continue
                indices = self._pool.indices_of(parameter, parameter)
                by_element = self._by_element(indices, layer.out_features * width)
                logits.append(by_element.reshape(-1, width))
            both = self._pool.add_simplexes(np.concatenate(logits, 1))
            both = both.reshape(len(self._inputs), layer.out_features, -1)
            split = np.split(both, [layer.in_features], 2)
            weight, bias = (part.reshape(len(both), -1) for part in split)
            self._simplexes[id(layer)] = {"weight": weight, "bias": bias}
        return self._simplexes[id(layer)]

    def _describe_mean(self, mean: Module) -> np.ndarray:
        """Return indices of the mean's coefficients for each element of the batch."""
        parts: list[tuple[bool, Tensor, Tensor]] = []  # first: whether it multiplies the inputs
        if type(mean) is ConstantMean:
            parts = [(False, mean.raw_constant, mean.constant)]
        elif type(mean) is LinearMean:
            parts = [(True, mean.weights, mean.weights)]
            parts += [] if mean.bias is None else [(False, mean.bias, mean.bias)]
        else:
            require(type(mean) is ZeroMean, f"the mean {type(mean).__name__}")
        inputs = [to_numpy(x) for x in self._inputs]
        ones = np.ones_like(inputs[0][:, :1])
        self._basis = [
            np.concatenate([x[:, :0], *(x if of_inputs else ones for of_inputs, _, _ in parts)], 1)
            for x in inputs
        ]
        columns = [np.empty((len(inputs), 0), dtype=int)]
        for of_inputs, parameter, natural in parts:
            indices = self._pool.indices_of(parameter, natural)
            columns.append(self._by_element(indices, inputs[0].shape[1] if of_inputs else 1))
        return np.concatenate(columns, 1)

    def _describe_noise(self, likelihood: Module) -> np.ndarray:
        """Return indices of the noise variances for each element of the batch."""
        self._fixed_noise: Tensor | None = None
        if type(likelihood) is GaussianLikelihood:
            learned = [likelihood.noise_covar]
        else:
            require(type(likelihood) is FixedNoiseGaussianLikelihood, "the likelihood")
            fixed = likelihood.noise_covar.noise.detach()
            size = fixed.size(-1)
            self._fixed_noise = fixed.expand(*self._batch_shape, size).reshape(-1, size)
            second = likelihood.second_noise_covar
            learned = [] if second is None else [second]
        columns = [np.empty((len(self._inputs), 0), dtype=int)]
        for noise in learned:
            require(type(noise) is HomoskedasticNoise, "the noise")
            columns.append(self._by_element(self._pool.indices_of(noise.raw_noise, noise.noise), 1))
        return np.concatenate(columns, 1)


class _LogPrior:
    """Log density of normal, (shrunk) log-normal and gamma priors, and any prior on frozen values.

    Log densities are linear combinations of 1, x, x^2, log x and log^2 x of natural values x. A
    temporary perturbation of ``values`` identifies the parameter that a prior's closure returns.
    """

    def __init__(self, model: ExactGP, values: Tensor, pool: ParameterPool):
        self._constant = 0.0
        self._slope, self._curvature, self._log, self._log_square = np.zeros((4, pool.num_trained))
        self._tiny = torch.finfo(values.dtype).tiny  # where softplus underflows to zero
        rounding = 1e-12 if values.dtype == torch.float64 else 1e-5
        priors = [(prior, get, module) for _, module, prior, get, _ in model.named_priors()]
        start = values.clone()
        steps = torch.arange(len(start)).to(start)
        factors = 2 + steps.cos() + (1.7 * steps).sin()  # all different
        starts = [get(module).detach().clone() for _, get, module in priors]
        moved, naturals = [], []
        try:
            for move in _PERTURBATIONS:
                values.copy_(start + move * factors)
                naturals.append(pool.natural())
                moved.append([to_numpy(get(module)).ravel().copy() for _, get, module in priors])
        finally:
            values.copy_(start)
        ends_of_priors = zip(*moved, strict=True)
        for (prior, _, _), value, ends in zip(priors, starts, ends_of_priors, strict=True):
            if all(np.array_equal(to_numpy(value).ravel(), end) for end in ends):  # not trained
                self._constant += prior.log_prob(value).sum().item()
                continue
            spans = [span for span in pool.spans if span.stop - span.start == value.numel()]
            for natural, end in zip(naturals, ends, strict=True):
                difference = rounding * np.abs(end)
                spans = [s for s in spans if (np.abs(natural[s] - end) <= difference).all()]
            require(len(spans) == 1, "a prior that is not on a parameter")
            self._add(prior, spans[0], value)
        self._indices = np.flatnonzero((self._log != 0) | (self._log_square != 0))
        self._log, self._log_square = self._log[self._indices], self._log_square[self._indices]

    def take_from(self, natural: np.ndarray, gradient: np.ndarray) -> float:
        """Return the log density at natural values, and subtract its gradient from ``gradient``."""
        curved = self._curvature * natural
        value = self._constant + natural @ (self._slope + curved)
        gradient -= self._slope + 2 * curved
        if self._indices.size:
            positive = np.maximum(natural[self._indices], self._tiny)
            logs = np.log(positive)
            curved = self._log_square * logs
            value += logs @ (self._log + curved)
            gradient[self._indices] -= (self._log + 2 * curved) / positive
        return float(value)

    def _add(self, prior: Prior, span: slice, like: Tensor) -> None:
        def parameter(value: Tensor) -> np.ndarray:
            return to_numpy(value.expand_as(like)).ravel()

        require(getattr(prior, "_transform", None) is None, "a transformed prior")
        if type(prior) is ShrunkLogNormalPrior:
            self._slope[span] -= prior.rate
            self._constant += like.numel() * math.log(prior.rate)
            prior = prior.log_normal
        if type(prior) is GammaPrior:
            shape, rate = parameter(prior.concentration), parameter(prior.rate)
            self._log[span] += shape - 1
            self._slope[span] -= rate
            constant = shape * np.log(rate) - parameter(prior.concentration.lgamma())
        else:
            supported = (NormalPrior, LogNormalPrior, gpytorch.priors.LogNormalPrior)
            require(type(prior) in supported, f"a {type(prior).__name__}")
            location, scale = parameter(prior.loc), parameter(prior.scale)
            precision = scale**-2
            constant = -0.5 * location**2 * precision - np.log(scale)
            constant -= 0.5 * math.log(2 * math.pi)
            if type(prior) is NormalPrior:
                self._slope[span] += location * precision
                self._curvature[span] -= 0.5 * precision
            else:
                self._log[span] += location * precision - 1
                self._log_square[span] -= 0.5 * precision
        self._constant += float(constant.sum())


def _kernel_and_inputs(model: ExactGP) -> tuple[Module, Tensor]:
    """Return the kernel of the model's covariance, and its inputs ``... x N x D``."""
    with torch.no_grad():
        output = model.forward(*model.train_inputs)
    require(type(output) is MultivariateNormal, "the output distribution")
    covariance = output.lazy_covariance_matrix
    require(type(covariance) is LazyEvaluatedKernelTensor, "the covariance")
    x1, x2 = covariance.x1.detach(), covariance.x2.detach()
    require(not covariance.last_dim_is_batch, "a batch of columns")
    require(not covariance.params and torch.equal(x1, x2), "the covariance")
    require(hasattr(model, "mean_module"), "a model without mean_module")
    return covariance.kernel, x1
