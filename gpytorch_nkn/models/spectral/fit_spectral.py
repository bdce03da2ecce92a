"""Training of a SpectralGP, with early stopping by held-out rows."""

from __future__ import annotations

import math
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel, ScaleKernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood, Likelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor, nn

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import (
    FlatParameters,
    Recipe,
    Rows,
    RowsGP,
    Session,
    check_counts,
    fit_best_of,
    lbfgs,
    warn_of_size,
)
from gpytorch_nkn.initialization import assign, initialize_model
from gpytorch_nkn.kernels import NonStationarySpectralKernel, feature_function
from gpytorch_nkn.linalg import ExactPosterior, low_rank_posterior
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.common import frozen, load_parts
from gpytorch_nkn.models.spectral.spectral_gp import SpectralGP

__all__ = ["fit_spectral_gp"]

_START_ROWS = 1000  # number of rows on which the RBF kernel is trained first
_HELD_OUT, _FEWEST, _MOST = 0.1, 20, 2000  # fraction of held-out rows, and its limits
_STANDARD_ERRORS = 2.0  # standard errors that the gain in held-out density must exceed
_INDUCING = 50  # iterations for an RBF kernel with inducing points, on all kept rows
_REFIT = 30  # iterations for an RBF kernel that starts near its optimum
_USUAL_ROWS = 100_000  # number of rows above which a warning is issued
_OFF = 1e-8  # outputscale of pairs that are switched off
_START_SHARE = 0.4  # fraction of the budget for the first RBF kernel
_FIRST = 150  # iterations for an RBF kernel from start values
_PATIENCE = 30  # iterations without a higher held-out density after which training ends
_WARM_UP = 40  # iterations before the patience counts
_LEAST_GAIN = 1e-4  # smallest gain in mean log density that counts as an improvement
_SHORT = 0.15  # factor of the lengthscales of every second start


@trains(SpectralGP, spectral_kernel=NonStationarySpectralKernel)
def fit_spectral_gp(
    model: SpectralGP,
    *,
    restarts: int = 3,
    max_iterations: int = 100,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> SpectralGP:
    """Train a SpectralGP in place; return it in eval mode.

    Frequencies can fit noise. An RBF kernel with a lengthscale per column is therefore trained
    first, and the frequencies start from its spectral density. L-BFGS then trains both kernels with
    one tenth of the rows (20 to 2000) held out, and keeps the parameters that predict these rows
    best. An output keeps its pairs if their gain in held-out log density over the RBF kernel
    exceeds two standard errors. Otherwise the RBF kernel is trained on all rows.

    Ctrl-C and the budget end the training with the best parameters so far. Parameters of input
    transforms are not trained. If all inputs are equal, the model keeps its start values.

    Args:
        model: The model.
        restarts: Number of starts of the RBF kernel.
        max_iterations: Largest number of L-BFGS iterations for the pairs.
        budget, seed, progress: As in :func:`gpytorch_nkn.fit.fit_best_of`.

    Raises:
        TypeError: The model is not a SpectralGP.
        ValueError: An option is invalid, or the data are not finite.
        RuntimeError: Every start of the RBF kernel failed.
        KeyboardInterrupt: Ctrl-C was pressed before the first improvement.
    """
    check_counts(0, max_iterations=max_iterations)
    check_counts(1, restarts=restarts)
    session = Session(budget=budget, seed=seed, progress=progress)
    warn_of_size(
        "SpectralGP",
        model.train_targets.size(-1),
        _USUAL_ROWS,
        "every step passes over all of them; use fewer num_features, a random part of the rows, or "
        "VariationalNKNGP, which trains on mini-batches.",
    )
    model.train()
    try:
        training = _Training(model, session)
        with training.bar:
            training.learn(restarts, max_iterations)
    finally:
        model.train().eval()  # clears caches of other parameters
    return model


def _start(kernel: NonStationarySpectralKernel, rbf: ScaleKernel, scale: float) -> None:
    """Start pairs as random Fourier features of an RBF kernel; frozen parameters do not change."""
    with torch.no_grad():
        if kernel.raw_lengthscale.requires_grad:
            assign(kernel, "lengthscale", rbf.base_kernel.lengthscale.clone())
        if kernel.raw_outputscale.requires_grad:
            assign(kernel, "outputscale", scale * rbf.outputscale)


class _Training:
    """Training of one model: its rows in random order, and its session."""

    def __init__(self, model: SpectralGP, session: Session):
        with torch.no_grad():
            x = model.transform_inputs(model.train_inputs[0]).detach()
        y, likelihood = model.train_targets.detach(), model.likelihood
        has_known_noise = isinstance(likelihood, FixedNoiseGaussianLikelihood)
        noise = likelihood.noise_covar.noise.detach().expand(y.shape) if has_known_noise else None
        if not bool(x.isfinite().all() and y.isfinite().all()):
            raise ValueError("Training data must be finite, got NaN or infinite values.")
        order = permutation(y.size(-1), session.generator())
        self.rows = Rows(x, y, noise)[order.to(y.device)]
        self.model, self.session = model, session
        self.bar = session.bar(None, "pairs of frequencies", "steps")

    def learn(self, restarts: int, max_iterations: int) -> None:
        """Train the RBF kernel, then both kernels, and switch off pairs without a gain."""
        rows, model, session = self.rows, self.model, self.session
        if bool((rows.x == rows.x[..., :1, :]).all()):  # the likelihood would remove the kernel
            return
        pairs, rbf = model.spectral_kernel, model.rbf_kernel
        count = len(rows) if max_iterations else 0
        num_held_out = min(max(round(_HELD_OUT * count), _FEWEST), _MOST, count // 2)
        held_out, kept = rows[:num_held_out], rows[num_held_out:]
        kernel = model.make_rbf_kernel() if rbf is None else rbf
        # with few rows, these include held-out rows
        self._learn_rbf(rows[-_START_ROWS:], kernel, restarts)
        _start(pairs, kernel, 1.0 if rbf is None else _OFF)
        points: list[nn.Parameter] = []
        if rbf is not None:
            alone = getattr(model.covar_module, "kernels", [rbf])[0]  # with inducing points, if any
            if len(rows) > _START_ROWS:
                self._maximize(self._gp(kept, alone), _INDUCING)
                _start(pairs, kernel, _OFF)
            points = [p for n, p in alone.named_parameters() if n == "inducing_points"]  # trained
        gp = self._gp(kept, model.covar_module)
        before = deepcopy(gp.state_dict())
        if session.is_over or num_held_out < 2:  # one row shows no significant gain
            return
        message = "Interrupted; the pairs are not trained."
        with frozen(points), session.interruptible(message=message):
            watch = _Watch(gp, held_out)  # starts with the RBF kernel
            if rbf is not None:
                _start(pairs, kernel, 1.0)
            self._maximize(gp, max_iterations, watch)
        if rbf is None or watch.improves.all():
            return
        if not watch.improves.any():
            gp.load_state_dict(before)
        if pairs.raw_outputscale.requires_grad:
            pairs.outputscale = torch.where(watch.improves, pairs.outputscale.detach(), _OFF)
        with frozen([*pairs.parameters(), *points]):
            self._maximize(self._gp(rows, model.covar_module), _REFIT)

    def _gp(self, rows: Rows, kernel: Kernel) -> _SubsetGP:
        return _SubsetGP(rows, kernel, self.model.mean_module, self.model.likelihood)

    def _learn_rbf(self, rows: Rows, kernel: Kernel, restarts: int) -> None:
        """Train an RBF kernel, mean and likelihood in place from start values of the rows."""
        mean, likelihood = self.model.mean_module, self.model.likelihood
        gp = _SubsetGP(rows, deepcopy(kernel), deepcopy(mean), deepcopy(likelihood))
        if not _trained(gp):
            return
        result = fit_best_of(
            gp,
            restarts=restarts,
            initialize=_start_rbf,
            recipe=Recipe(adam_steps=0, lbfgs_iterations=_FIRST),
            budget=self.session.part(_START_SHARE),
            seed=self.session.seed,
            progress=False,
        )
        load_parts((kernel, mean, likelihood), result.model)
        self.session.interrupted = result.interrupted

    def _maximize(self, gp: _SubsetGP, iterations: int, watch: _Watch | None = None) -> None:
        """Train the parameters of a GP by L-BFGS, unless the session is over.

        A watch may end the training early, and selects the best iteration.
        """
        if self.session.is_over or not _trained(gp):
            return
        flat = FlatParameters(gp.train(), end=self.session.end)

        def on_step() -> None:
            self.bar.update()
            if watch is not None:
                watch(flat.values)

        message = "Interrupted after {} evaluations; the best parameters are kept."
        try:
            with self.session.interruptible(
                lambda: flat.evaluations, lambda: message.format(flat.evaluations)
            ):
                lbfgs(flat, iterations, on_step)
        finally:
            if watch is not None:
                flat.best_values = watch.best_values
            flat.release()


def _start_rbf(gp: ExactGP, seed: int, restart: int) -> None:
    """Set start values from the data, with short lengthscales in every second start."""
    initialize_model(gp, seed=seed, restart=restart)
    if restart % 2:
        base = gp.covar_module.base_kernel
        if base.raw_lengthscale.requires_grad:
            assign(base, "lengthscale", _SHORT * base.lengthscale.detach())


class _Watch:
    """Record of the parameters with the highest density of held-out rows."""

    def __init__(self, gp: _SubsetGP, rows: Rows):
        self._gp, self._rows = gp, rows
        trained = [p.detach().reshape(-1) for p in _trained(gp)]
        self.best_values = torch.cat([rows.y.new_empty(0), *trained])
        self._before = self._best = self._densities()
        self._steps = self._since = 0

    def __call__(self, values: Tensor) -> None:
        densities = self._densities()
        self._steps += 1
        self._since += 1
        if densities.mean(-1).sum() > self._best.mean(-1).sum() + _LEAST_GAIN:
            self._best, self.best_values, self._since = densities, values.clone(), 0
        if self._steps >= _WARM_UP and self._since >= _PATIENCE:
            raise StopIteration

    @property
    def improves(self) -> Tensor:
        """Whether the gain ``...`` of each output exceeds two standard errors."""
        gain = self._best - self._before
        return gain.mean(-1) > _STANDARD_ERRORS * gain.std(-1) / math.sqrt(gain.size(-1))

    def _densities(self) -> Tensor:
        """Return log densities ``... x v``, minus infinity if their computation fails."""
        try:
            return self._gp.log_density(self._rows).nan_to_num(nan=-math.inf)
        except (ArithmeticError, RuntimeError):  # a matrix is not positive definite
            return torch.full_like(self._rows.y, -math.inf)


def _trained(gp: _SubsetGP) -> list[Tensor]:
    return [p for p in gp.parameters() if p.requires_grad]


class _SubsetGP(RowsGP):
    """Exact GP of a subset of rows that shares kernel, mean and likelihood with a model."""

    def __init__(self, rows: Rows, kernel: Kernel, mean: Mean, likelihood: Likelihood):
        super().__init__(rows, kernel, mean, likelihood)
        self.rows = rows

    def noise_of(self, rows: Rows) -> Tensor:
        """Return noise variances ``... x n`` of rows."""
        if rows.noise is not None:
            return rows.noise + self.likelihood.second_noise
        assert isinstance(self.likelihood, GaussianLikelihood)
        return self.likelihood.noise.expand(rows.y.shape)

    @torch.no_grad()
    def log_density(self, rows: Rows) -> Tensor:
        """Return log densities ``... x v`` of single held-out rows."""
        kernel, x, noise = self.covar_module, self.rows.x, self.noise_of(self.rows)
        residual = self.rows.y - self.mean_module(x)
        features = feature_function(kernel)
        if features is None:
            noisy = kernel(x).to_dense() + torch.diag_embed(noise)
            posterior, between = ExactPosterior(noisy, residual), kernel(rows.x, x).to_dense()
            mean = posterior.mean(between)
            variance = kernel(rows.x, diag=True) - posterior.reduction(between)
        else:
            weights, factor = low_rank_posterior(features, x, residual, noise)
            phi, omitted = features(rows.x)
            phi = phi.double()
            mean = (phi @ weights.unsqueeze(-1)).squeeze(-1)
            white = torch.linalg.solve_triangular(factor, phi.mT, upper=False)
            variance = white.square().sum(-2)
            if omitted is not None:
                variance = variance + omitted
        variance = variance + self.noise_of(rows)
        error = rows.y - self.mean_module(rows.x) - mean
        return -0.5 * (error.square() / variance + variance.log() + math.log(2 * math.pi))
