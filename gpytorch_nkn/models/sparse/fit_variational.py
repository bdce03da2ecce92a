"""Training of a stochastic variational GP by mini-batches."""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import replace
from typing import Any, Literal

import torch
from gpytorch import settings
from gpytorch.distributions import MultivariateNormal
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from linear_operator.operators import DiagLinearOperator
from linear_operator.utils.errors import NotPSDError
from torch import Tensor
from torch.autograd import grad

from gpytorch_nkn._devices import normal, permutation
from gpytorch_nkn.fit import (
    Best,
    FlatParameters,
    Session,
    adam,
    check_counts,
    check_number,
    lbfgs,
    log_prior,
    warn_of_size,
)
from gpytorch_nkn.linalg import Features, row_chunks
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.common import frozen, make_likelihood
from gpytorch_nkn.models.inducing_points import inducing_features
from gpytorch_nkn.models.sparse.collapsed_bound import CollapsedGP
from gpytorch_nkn.models.sparse.fit_sparse import check_start, learn_on_blocks, maximize_bound
from gpytorch_nkn.models.sparse.variational_nkn_gp import VariationalNKNGP, softmax_rows

__all__ = ["fit_variational_gp"]

_RATE = 0.1  # step size of the natural gradient, which averages about ten mini-batches
_SUBSET_ROWS, _SUBSET_ITERATIONS = 10_000, 20  # rows and L-BFGS iterations after the blocks
_USUAL_ROWS = 500_000  # number of rows above which a warning is issued
_GAUSSIAN = GaussianLikelihood, FixedNoiseGaussianLikelihood
_ROUNDS = 5  # largest number of alternations between the likelihood and the distribution
_STEPS = 300  # smallest number of mini-batches if the likelihood is not Gaussian
# Largest number of steps on all rows after an epoch, and the gain in nats per observation below
# which they end.
_PASSES, _GAIN = 4, 1e-4
_NEWTON_STEPS, _PRIOR = 20, 4.0  # Newton steps for pseudo-targets; their prior variance


@trains(VariationalNKNGP)
def fit_variational_gp(
    model: VariationalNKNGP,
    *,
    epochs: int | None = None,
    batch_size: int = 1000,
    learning_rate: float | None = None,
    start: Literal["blocks"] | None = "blocks",
    restarts: int = 2,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> VariationalNKNGP:
    """Train a stochastic variational GP in place, by mini-batches; return it in eval mode.

    Exact GPs of random blocks of rows learn the hyperparameters first
    (:func:`gpytorch_nkn.fit.fit_in_stages`), followed by L-BFGS steps on the bound for 10,000 rows.
    Every mini-batch then updates hyperparameters and inducing points by Adam, and the distribution
    of the inducing values by a natural gradient. After each epoch one pass over the rows computes
    the optimal distribution, in closed form for the Gaussian likelihood, and the exact bound. The
    epoch with the highest bound plus log density of the priors is kept. Memory holds a few m x m
    matrices and a chunk of rows.

    For other likelihoods, a natural gradient step replaces each row by a Gaussian observation,
    computed from the derivatives of the expected log density. Blocks are trained on such
    observations; L-BFGS then learns the likelihood's parameters. After each epoch, several steps on
    all rows replace the closed form; their size shrinks if the evidence lower bound decreases.

    Ctrl-C and the budget end the training with the best parameters so far.

    Args:
        model: The model.
        epochs: Number of passes over the rows; 0 skips the mini-batches. ``None`` for 10, or for at
            least 300 mini-batches if the likelihood is not Gaussian.
        batch_size: Number of rows per mini-batch.
        learning_rate: Learning rate of Adam, which decays linearly to zero. ``None`` for 0.01, or
            for 0.03 if the likelihood is not Gaussian.
        start: ``"blocks"``, or ``None`` to start from the model's parameters.
        restarts: Number of starts on the first block.
        budget: Wall time in seconds. Blocks use at most half of it, and the last passes over the
            rows may exceed it.
        seed, progress: As in :func:`gpytorch_nkn.fit.fit_best_of`.

    Raises:
        TypeError: The model is not a VariationalNKNGP.
        ValueError: An option is invalid, the data are not finite, or the distribution of the
            inducing values is frozen.
        RuntimeError: Every start failed, or the bound cannot be computed at the start.
        KeyboardInterrupt: Ctrl-C was pressed before the first improvement.

    References: Hensman, Fusi and Lawrence (2013), Gaussian Processes for Big Data; Titsias (2009),
    equation 10 (the optimal distribution); Khan and Lin (2017), Conjugate-Computation Variational
    Inference (the natural gradient for any likelihood).
    """
    check_start(start)
    if epochs is not None:
        check_counts(0, epochs=epochs)
    check_counts(1, batch_size=batch_size)
    is_gaussian = isinstance(model.likelihood, _GAUSSIAN)
    if learning_rate is None:
        learning_rate = 0.01 if is_gaussian else 0.03
    check_number("learning_rate", learning_rate, positive=True)
    session = Session(budget=budget, seed=seed, progress=progress)
    if not all(p.requires_grad for p in model.strategy._variational_distribution.parameters()):
        raise ValueError(
            "fit_variational_gp computes the distribution of the inducing values, but its "
            "parameters are frozen: unfreeze them by model.requires_grad_(True)."
        )
    gp, inner = model.collapsed(), model.model
    warn_of_size(
        "VariationalNKNGP",
        gp.num_data,
        _USUAL_ROWS,
        "the time of each pass over the rows is proportional to the square of the number of "
        "inducing points; use fewer points, or a part of the rows.",
    )
    if epochs is None:
        steps = 0 if is_gaussian else _STEPS
        epochs = max(10, math.ceil(steps / math.ceil(gp.num_data / batch_size)))
    x, y = gp.inputs(), gp.targets
    model.train()
    state = (_Gaussian if is_gaussian else _State)(model, session)
    shape = state.mean.shape[:-1]
    try:
        if start is not None:
            targets, likelihood = y, model.likelihood
            if not is_gaussian:
                state.finish_epoch()  # kept if training on blocks decreases the bound
                targets, likelihood = state.pseudo_targets(), make_likelihood(shape).to(x)
            learn_on_blocks(
                x,
                targets,
                inner.covar_module,
                inner.mean_module,
                likelihood,
                restarts=restarts,
                session=session,
            )
            if not is_gaussian:
                state.set_optimum(replace(gp, targets=targets, noise=lambda: likelihood.noise))
            elif isinstance(state, _Gaussian) and not session.is_over:
                state.learn_on_subset()
            state.fused = False
        state.finish_epoch()
        state.restore_best()

        message = "Interrupted after {} mini-batches; the model keeps the best parameters."
        try:
            if not session.interrupted:
                with session.interruptible(message=lambda: message.format(state.num_steps)):
                    if start is not None and not is_gaussian:
                        state.learn_likelihood()
                    _run_epochs(state, epochs, batch_size, learning_rate, session)
        finally:
            model._set_distribution(*state.restore_best())
    finally:
        model.strategy._clear_cache()
        model.eval()
    return model


def _run_epochs(
    state: _State, epochs: int, batch_size: int, learning_rate: float, session: Session
) -> None:
    gp = state.gp
    num_batches = math.ceil(gp.num_data / batch_size)
    total = epochs * num_batches
    # epochs between passes over all rows, which are in closed form for Gaussian noise
    period = 1 if state.is_gaussian else math.ceil(_STEPS / 10 / num_batches)
    generator = session.generator()
    distribution = state.model.strategy._variational_distribution
    with frozen(distribution.parameters()):  # natural gradients move these
        if not any(p.requires_grad for p in state.model.parameters()):
            return
        flat = FlatParameters(state.model, state.loss, end=session.end)
        steps = adam(flat, total, lambda step: learning_rate * (1 - step / total))
        try:
            with session.bar(total, "mini-batches") as bar:
                for epoch in range(1, epochs + 1):
                    order = permutation(gp.num_data, generator).to(gp.targets.device)
                    for state.rows in order.tensor_split(num_batches):
                        if next(steps, None) is None:
                            break
                        state.move_distribution()
                        bar.update()
                    if epoch % period and epoch < epochs and flat.has_time:
                        continue
                    state.finish_epoch()
                    bar.set_postfix(bound=f"{state.best.value / gp.num_data:.4f}")
                    if not flat.has_time:
                        break
        finally:
            flat.release(flat.values.clone())


class _State:
    """State of the training: parameters, distribution of inducing values, and the best epoch.

    A natural gradient step averages old and new natural parameters of the whitened inducing values:
    the precision, and the precision times the mean. Let E be the expected log density of a row
    under N(m, v). The step treats the row as a Gaussian observation with weight (precision)
    ``w = -2 dE/dv`` and weighted value ``dE/dm + w m``.
    """

    is_gaussian = False

    def __init__(self, model: VariationalNKNGP, session: Session):
        self.model = model
        self.session, self.generator = session, session.generator()  # draws latent values
        self.gp = model.collapsed()
        self.num_steps = 0
        self.rows = torch.empty(0, dtype=torch.long)  # indices of the current mini-batch
        self.best: Best[tuple[dict[str, Tensor], tuple[Tensor, Tensor]]] = Best()
        self.fused = True  # whether the distribution results from a pass over all rows
        distribution = model.strategy._variational_distribution
        shape = distribution.variational_mean.shape
        eye = torch.eye(shape[-1], dtype=torch.float64, device=self.gp.points.device)
        self.eye = eye
        self.set_distribution(eye.expand(*shape, -1), eye.new_zeros(shape))

    def loss(self) -> Tensor:
        """Return the negative bound, estimated from the mini-batch, minus the log priors."""
        features, _ = inducing_features(self.gp.kernel, self.gp.points)
        expected, self._batch = self.observe(self.rows, features)
        return -self.gp.num_data / self.rows.numel() * expected - self.log_prior()

    def observe(
        self, rows: Any, features: Features
    ) -> tuple[Tensor, tuple[Tensor, Tensor, Tensor]]:
        """Return the sum of expected log densities of rows, and the rows as Gaussian observations.

        An observation consists of ``L^-1 k_u(x)``, ``... x m x b``, its weight, ``... x b``, and
        the weighted difference between value and prior mean, ``... x b``.
        """
        half, prior, shift, variance = self.marginals(rows, features)
        is_known = isinstance(self.model.likelihood, FixedNoiseGaussianLikelihood)
        known_noise = {"noise": self.gp.noise()[..., rows]} if is_known else {}
        y = self.gp.targets[..., rows]
        expected, slope, weight = self.expect(y, prior + shift, variance, **known_noise)
        return expected, (half.detach(), weight, slope + weight * shift.detach())

    def marginals(self, rows: Any, features: Features) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Return ``L^-1 k_u(x)``, prior means, posterior minus prior means, and variances."""
        x = self.gp.inputs()[rows]
        values, omitted = features(x)
        assert omitted is not None
        half = values.mT
        shift = (self.mean.unsqueeze(-2) @ half).squeeze(-2)
        variance = omitted + self.root(half).square().sum(-2)
        return half, self.gp.mean_module(x).double(), shift, variance

    @torch.enable_grad()
    def expect(
        self, y: Tensor, mean: Tensor, variance: Tensor, **known_noise: Tensor
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return the sum E of expected log densities, dE/dm and -2 dE/dv, each ``... x b``.

        Latent values have independent normal distributions. ``known`` contains the known noise of
        the rows. Without quadrature, the derivatives are averages of first and second derivatives
        at draws (theorems of Bonnet and Price). Their variance is smaller than the variance of
        reparameterisation gradients.
        """
        likelihood = self.model.likelihood
        has_integral = hasattr(likelihood, "quadrature") or self.is_gaussian
        # nodes far from the mean underflow in float32
        mean, variance = (
            moment if moment.requires_grad else moment.detach().requires_grad_()
            for moment in ((mean, variance) if has_integral else (mean.to(y), variance.to(y)))
        )
        if has_integral:
            latent = MultivariateNormal(mean, DiagLinearOperator(variance))
            expected = likelihood.expected_log_prob(y, latent, **known_noise).sum()
            slope, of_variance = grad(expected, (mean, variance), retain_graph=True)
            return expected.double(), slope.double(), -2 * of_variance.double()
        half = math.ceil(settings.num_likelihood_samples.value() / 2)
        noise = normal((half, *mean.shape), self.generator).to(mean)
        draws = mean + variance.sqrt() * torch.cat([noise, -noise])
        draws = draws.detach().requires_grad_()
        multi_latent = y.dim() < mean.dim()  # each observation depends on all latent functions
        latent_values = softmax_rows(likelihood, draws.mT) if multi_latent else draws
        logs = likelihood(latent_values).log_prob(y).sum() / len(draws)
        (slope,) = grad(logs, draws, create_graph=True)
        units = slope.unbind(-2) if multi_latent else [slope]
        second = [grad(unit.sum(), draws, retain_graph=True)[0] for unit in units]
        if multi_latent:
            second = [torch.stack([derivative[:, k] for k, derivative in enumerate(second)], -2)]
        weight = -second[0].sum(0)
        slope = slope.detach().sum(0)
        moved = (slope * mean).sum() - (weight * variance).sum() / 2
        return (logs + moved - moved.detach()).double(), slope.double(), weight.double()

    def learn_likelihood(self) -> None:
        """Alternate between steps on the likelihood's parameters and on the distribution.

        Parameters of the likelihood can be far from their optimum, and Adam would need many steps.
        """
        likelihood, n = self.model.likelihood, self.gp.num_data
        if not any(p.requires_grad for p in likelihood.parameters()):
            return
        rows = permutation(n, self.session.generator())[:_SUBSET_ROWS].to(self.gp.targets.device)
        y = self.gp.targets[..., rows]
        for _ in range(_ROUNDS):
            if self.session.is_over:
                break
            with torch.no_grad():
                features, _ = inducing_features(self.gp.kernel, self.gp.points)
                _, prior, shift, variance = self.marginals(rows, features)

            def loss(mean: Tensor = prior + shift, variance: Tensor = variance) -> Tensor:
                self.generator = self.session.generator()  # equal draws for each evaluation
                expected, *_ = self.expect(y, mean, variance)
                return -expected * n / len(rows) - log_prior(likelihood, expected)

            flat = FlatParameters(likelihood, loss, end=self.session.end)
            try:
                lbfgs(flat, _SUBSET_ITERATIONS, lambda: None)
            finally:
                flat.release()
            before, self.fused = self.best.value, False
            self.finish_epoch()
            if not self.best.value - before > _GAIN * n:
                break

    def move_distribution(self) -> None:
        """Take a natural gradient step on the mini-batch of the last loss."""
        scale = self.gp.num_data / self.rows.numel()
        self.fused = False
        self.num_steps += 1
        with suppress(NotPSDError):  # a failed step leaves the distribution unchanged
            gram, cross = self.sums_of(*self._batch)
            self.step(scale * gram, scale * cross, _RATE)

    @staticmethod
    def sums_of(half: Tensor, weight: Tensor, shift: Tensor) -> tuple[Tensor, Tensor]:
        """Return sums of the natural parameters of rows, ``... x m x m`` and ``... x m``."""
        gram = (half * weight.unsqueeze(-2)) @ half.mT
        return gram, (half @ shift.unsqueeze(-1)).squeeze(-1)

    def step(self, gram: Tensor, cross: Tensor, rate: float) -> None:
        """Move the distribution towards the given sums of natural parameters."""
        precision = torch.lerp(self.precision, self.eye + gram, rate)
        self.set_distribution(precision, torch.lerp(self.shift, cross, rate))

    def set_optimum(self, gp: CollapsedGP) -> None:
        """Set the distribution to the optimum for Gaussian observations."""
        with torch.no_grad():
            sums, _ = gp.sums()
        self.step(sums.gram, sums.cross, 1.0)

    def finish_epoch(self) -> None:
        """Optimise the distribution on all rows, and keep the best state."""
        if self.best.state is not None and self.fused:
            return
        value = self.optimise_distribution()
        parameters = self.model.named_parameters()
        self.best.update(
            value,
            lambda: ({n: p.detach().clone() for n, p in parameters}, (self.precision, self.shift)),
        )
        if not math.isfinite(value):
            self.restore_best()
        self.fused = True

    def optimise_distribution(self) -> float:
        """Take steps on all rows, with a smaller size if the bound decreases; return the bound."""
        value, sums = self.pass_over_rows()
        if self.best.state is None and not math.isfinite(value):
            raise RuntimeError("The evidence lower bound cannot be computed at the start.")
        rate, passes = 1.0, 5 * _PASSES if self.best.state is None else _PASSES
        for number in range(passes):
            if number and self.session.is_over:
                break
            before = self.precision, self.shift
            try:
                self.step(*sums, rate)
                moved, others = self.pass_over_rows()
            except NotPSDError:
                moved = math.nan
            if moved > value:
                gain, value, sums = moved - value, moved, others
                rate = min(1.0, 2 * rate)
                if gain < _GAIN * self.gp.num_data:
                    break
            else:
                self.set_distribution(*before)
                rate /= 4
        return value

    def pass_over_rows(self) -> tuple[float, tuple[Tensor, Tensor]]:
        """Return the bound plus log priors at the current distribution, and sums over all rows."""
        gp = self.gp
        gram, cross = torch.zeros_like(self.precision), torch.zeros_like(self.shift)
        self.generator = self.session.generator()  # equal draws, so that bounds are comparable
        with torch.no_grad():
            features, _ = inducing_features(gp.kernel, gp.points)
            root = self.root(self.eye.expand_as(self.precision))
            spread = self.factor.diagonal(dim1=-2, dim2=-1).log().sum()
            total = self.log_prior() - spread - 0.5 * (root.square().sum() - self.mean.numel())
            total = total - 0.5 * self.mean.square().sum()
            for rows in row_chunks(self.mean.numel(), gp.num_data):
                expected, batch = self.observe(rows, features)
                total = total + expected.detach()
                sums = self.sums_of(*(term.detach() for term in batch))
                gram, cross = gram + sums[0], cross + sums[1]
        return total.item(), (gram, cross)

    @torch.no_grad()
    def pseudo_targets(self) -> Tensor:
        """Return Gaussian observations ``... x n`` of the latent functions, one for each row.

        Each observation linearises the log density at the posterior mode of one row alone. All
        rows have the same prior mean, which maximises the likelihood.
        """
        y = self.gp.targets
        shape = (*self.mean.shape[:-1], y.size(-1))
        constant = self.mean.new_zeros(*shape[:-1], 1)
        latent, variance = constant.expand(shape), self.mean.new_ones(shape)
        for step in range(2 * _NEWTON_STEPS):
            _, slope, weight = self.expect(y, latent, variance)
            weight = weight.clamp_min(0.1 * weight.mean(-1, keepdim=True).clamp_min(1e-6))
            observed = latent + slope / weight
            if step < _NEWTON_STEPS:
                shift = slope.mean(-1, keepdim=True) / weight.mean(-1, keepdim=True)
                constant = constant + shift.clamp(-1.0, 1.0)
                latent = constant.expand(shape)
            else:
                variance = _PRIOR / (1 + _PRIOR * weight)
                moved = constant + variance * weight * (observed - constant)
                latent = latent + (moved - latent).clamp(-1.0, 1.0) / 2
        return observed.to(y)

    def set_distribution(self, precision: Tensor, shift: Tensor) -> None:
        """Set the precision, and the precision times the mean."""
        factor, info = torch.linalg.cholesky_ex(precision)
        if bool(info.any()) or not bool(factor.isfinite().all()):
            raise NotPSDError("The precision of the inducing values is not positive definite.")
        self.precision, self.shift, self.factor = precision, shift, factor
        self.mean = torch.cholesky_solve(shift.unsqueeze(-1), factor).squeeze(-1)

    def root(self, half: Tensor) -> Tensor:
        """Return columns whose squared norms are variances of ``half`` under the distribution."""
        return torch.linalg.solve_triangular(self.factor, half, upper=False)

    def log_prior(self) -> Tensor:
        """Return the log density of all priors."""
        parts = self.model.model, self.model.likelihood
        return torch.stack([log_prior(part, self.gp.points) for part in parts]).sum().double()

    def restore_best(self) -> tuple[Tensor, Tensor]:
        """Restore the best parameters, and return mean and root of their distribution."""
        assert self.best.state is not None
        values, natural = self.best.state
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(values[name])
        self.set_distribution(*natural)
        return self.mean, self.root(self.eye.expand_as(self.precision)).mT


class _Gaussian(_State):
    """State for Gaussian noise: one pass over the rows gives the optimal distribution."""

    is_gaussian = True

    def optimise_distribution(self) -> float:
        """Set the optimal distribution by one pass over all rows; return the bound."""
        try:
            with torch.no_grad():
                sums, _ = self.gp.sums()
                value = (sums.log_density() + self.log_prior()).item()
        except NotPSDError:
            if self.best.state is None:
                raise
            return math.nan
        if math.isfinite(value):
            self.step(sums.gram, sums.cross, 1.0)
        return value

    def learn_on_subset(self) -> None:
        """Take L-BFGS steps on the bound of a subset of the rows.

        The bound has a trace term, which training on blocks lacks and which requires more noise.
        Adam would need many steps to increase the noise.
        """
        gp, order = self.gp, permutation(self.gp.num_data, self.session.generator())
        rows = order[:_SUBSET_ROWS].to(gp.targets.device)
        x, y = gp.inputs()[rows].detach(), gp.targets[rows].detach()
        is_known = isinstance(self.model.likelihood, FixedNoiseGaussianLikelihood)
        noise = (lambda: gp.noise()[rows]) if is_known else gp.noise
        subset = replace(gp, inputs=lambda: x, targets=y, noise=noise)
        with frozen(self.model.strategy._variational_distribution.parameters()):
            maximize_bound(
                self.model,
                lambda: -subset.bound() - self.log_prior(),
                _SUBSET_ITERATIONS,
                self.session,
            )
