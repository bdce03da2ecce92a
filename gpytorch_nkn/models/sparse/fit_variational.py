"""Training of a stochastic variational GP by mini-batches."""

from __future__ import annotations

import math
from contextlib import suppress
from copy import deepcopy
from typing import Any, Literal

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import (
    Best,
    FlatParameters,
    Session,
    adam,
    check_counts,
    check_number,
    log_prior,
    warn_of_size,
)
from gpytorch_nkn.linalg import factorize_inducing
from gpytorch_nkn.models.base_gp import trains
from gpytorch_nkn.models.sparse.collapsed_bound import Statistics, WhitenedPosterior
from gpytorch_nkn.models.sparse.fit_sparse import check_start, learn_on_blocks, maximize_bound
from gpytorch_nkn.models.sparse.sparse_nkn_gp import SparseNKNGP
from gpytorch_nkn.models.sparse.variational_nkn_gp import VariationalNKNGP

__all__ = ["fit_variational_gp"]

_RATE = 0.1  # of the natural gradient: the distribution averages the last ten batches or so
_SUBSET_ROWS, _SUBSET_ITERATIONS = 10_000, 20
_USUAL_ROWS = 500_000


@trains(VariationalNKNGP)
def fit_variational_gp(
    model: VariationalNKNGP,
    *,
    epochs: int = 10,
    batch_size: int = 1000,
    learning_rate: float = 1e-2,
    start: Literal["blocks"] | None = "blocks",
    restarts: int = 2,
    block_size: int = 1000,
    max_blocks: int = 8,
    budget: float | None = None,
    seed: int = 0,
    progress: bool = True,
) -> VariationalNKNGP:
    """Train a stochastic variational GP in place, by mini-batches.

    First hyperparameters are learned exactly on random blocks of the rows
    (:func:`gpytorch_nkn.fit.fit_in_stages`), and then by some steps of L-BFGS on the bound of
    10,000 rows. Then every mini-batch moves hyperparameters and inducing points by Adam, and the
    distribution of the inducing values by a natural gradient. At the end of every epoch one pass
    over the rows gives the optimum of that distribution in closed form, which the Gaussian
    likelihood allows, and with it the exact bound (plus the log density of the priors), by which
    the best epoch is kept. Memory is that of some m x m matrices and of a chunk of rows.

    Ctrl-C and the budget end the training; the best parameters so far are kept.

    Args:
        model: The model.
        epochs: Passes over the rows; 0 leaves the hyperparameters at their start.
        batch_size: Rows of a mini-batch.
        learning_rate: Of Adam; it falls to zero in a straight line.
        start: ``"blocks"``, or ``None`` to start from the parameters that the model has.
        restarts: Starts on the first block.
        block_size, max_blocks: Blocks to start on.
        budget: Wall time in seconds, at most half of it for the start; one last pass over the rows
            may come after it.
        seed: Determines every draw; the global random state is left alone.
        progress: Show progress bars, if standard error is a terminal.

    Returns:
        The same model, in eval mode.

    Raises:
        TypeError: The model is no VariationalNKNGP.
        ValueError: An option has no meaning, or the data are not finite.
        RuntimeError: Every start failed, or the bound cannot be computed at the start.
        KeyboardInterrupt: Ctrl-C came before there was anything better than the start.

    Reference: Hensman, Fusi and Lawrence (2013), Gaussian Processes for Big Data; Titsias (2009),
    equation 10 (the optimal distribution).
    """
    check_start(start)
    check_counts(0, epochs=epochs)
    check_counts(1, batch_size=batch_size)
    check_number("learning_rate", learning_rate, positive=True)
    session = Session(budget=budget, seed=seed, progress=progress)
    gp, inner = model.collapsed(), model.model
    warn_of_size(
        "VariationalNKNGP",
        gp.num_data,
        _USUAL_ROWS,
        "it works, but training starts and ends with a pass over all of them, of num_data times "
        "the square of the inducing points operations; fewer points, or some of the rows, take "
        "less.",
    )
    x, y = gp.inputs(), gp.targets
    model.train()
    try:
        if start is not None:
            learn_on_blocks(
                x,
                y,
                inner.covar_module,
                inner.mean_module,
                model.likelihood,
                restarts=restarts,
                block_size=block_size,
                max_blocks=max_blocks,
                session=session,
            )
            if not session.is_over:
                _learn_on_subset(model, x, y, session)
        state = _State(model)
        state.finish_epoch()

        def message() -> str:
            return (
                f"Interrupted after {state.num_steps} mini-batches; the best parameters so far "
                "are kept."
            )

        try:
            if not session.interrupted:
                with session.interruptible(message=message):
                    _run_epochs(state, epochs, batch_size, learning_rate, session)
        finally:
            posterior = state.restore_best()
            model.set_variational_distribution(posterior.mean, posterior.root)
    finally:
        inner.variational_strategy._clear_cache()
        model.eval()
    return model


def _run_epochs(
    state: _State, epochs: int, batch_size: int, learning_rate: float, session: Session
) -> None:
    gp = state.gp
    num_batches = math.ceil(gp.num_data / batch_size)
    total = epochs * num_batches
    generator = session.generator()
    distribution = state.model.model.variational_strategy._variational_distribution
    learned = [p for p in distribution.parameters() if p.requires_grad]
    for parameter in learned:  # which natural gradients move
        parameter.requires_grad_(False)
    flat = None
    try:
        if not any(p.requires_grad for p in state.model.parameters()):
            return
        flat = FlatParameters(state.model, state.loss, end=session.end)
        rate = lambda step: learning_rate * (1 - step / total)  # noqa: E731
        steps = adam(flat, total, rate)
        with session.bar(total, "mini-batches") as bar:
            for _ in range(epochs):
                order = permutation(gp.num_data, generator).to(gp.targets.device)
                for state.rows in order.tensor_split(num_batches):
                    if next(steps, None) is None:
                        break
                    state.move_distribution()
                    bar.update()
                state.finish_epoch()
                bar.set_postfix(bound=f"{state.best.value / gp.num_data:.4f}")
                if not flat.has_time:
                    break
    finally:
        if flat is not None:
            flat.release(flat.values.clone())
        for parameter in learned:
            parameter.requires_grad_(True)


class _State:
    """Parameters during the training, the distribution of inducing values, and the best epoch.

    The distribution of the whitened inducing values is held by its precision and by precision
    times mean, in which a natural gradient step is an average.
    """

    def __init__(self, model: VariationalNKNGP):
        self.model = model
        self.gp = model.collapsed()
        self.num_steps = 0
        self.rows = torch.empty(0, dtype=torch.long)  # of the present mini-batch
        self.best: Best[tuple[dict[str, Tensor], Statistics]] = Best()
        self.fused = True  # whether a pass over all rows has just been made

    def loss(self) -> Tensor:
        """Negative bound of a mini-batch, less log priors."""
        gp = self.gp
        x, y = gp.inputs()[self.rows], gp.targets[self.rows]
        scale = gp.num_data / y.numel()
        factor, _ = factorize_inducing(gp.kernel(gp.points).to_dense())
        between = gp.kernel(x, gp.points).to_dense().double()
        half = torch.linalg.solve_triangular(factor, between.mT, upper=False)
        noise = gp.noise().squeeze(-1).double()
        error = (y - gp.mean(x)).double()
        variance = gp.kernel(x, diag=True).double() - half.square().sum(0)
        variance = variance + self.root(half).square().sum(0)
        squares = (error - self.mean @ half).square() + variance
        self._batch = half.detach(), scale / noise.detach(), error.detach()
        return 0.5 * scale * (squares / noise + noise.log()).sum() - self.log_prior()

    def move_distribution(self) -> None:
        """Take a step of the natural gradient on the mini-batch of the last loss."""
        half, weight, error = self._batch
        eye = torch.eye(half.size(0), dtype=half.dtype, device=half.device)
        precision = eye + weight * (half @ half.mT)
        shift = torch.lerp(self.shift, weight * (half @ error), _RATE)
        self.fused = False
        self.num_steps += 1
        with suppress(NotPSDError):  # the distribution stays as it is
            self.set_distribution(torch.lerp(self.precision, precision, _RATE), shift)

    def finish_epoch(self) -> None:
        """One pass over all rows, after which the distribution is the best one."""
        if self.best.state is not None and self.fused:
            return
        try:
            statistics = self.gp.statistics()
            with torch.no_grad():
                noise = self.gp.noise_variance()
                value = (statistics.bound(noise) + self.log_prior()).item()
        except NotPSDError:
            if self.best.state is None:
                raise
            value = math.nan
        self.best.offer(value, lambda: (self.parameters(), statistics))
        if math.isfinite(value):
            self.take(statistics)
        else:
            self.restore_best()
        self.fused = True

    def parameters(self) -> dict[str, Tensor]:
        """Copies of all parameters, by name."""
        return {name: p.detach().clone() for name, p in self.model.named_parameters()}

    def take(self, statistics: Statistics) -> None:
        """Set the distribution to the optimum at the present parameters."""
        noise = self.gp.noise_variance().detach()
        gram = statistics.gram / noise
        eye = torch.eye(gram.size(-1), dtype=gram.dtype, device=gram.device)
        self.set_distribution(eye + gram, statistics.cross / noise)

    def set_distribution(self, precision: Tensor, shift: Tensor) -> None:
        """Set precision and precision times mean."""
        factor, info = torch.linalg.cholesky_ex(precision)
        if bool(info.any()) or not bool(factor.isfinite().all()):
            raise NotPSDError("The precision of the inducing values is not positive definite.")
        self.precision, self.shift, self.factor = precision, shift, factor
        self.mean = torch.cholesky_solve(shift.unsqueeze(-1), factor).squeeze(-1)

    def root(self, half: Tensor) -> Tensor:
        """Columns whose squared lengths are the variances of ``half`` under the distribution."""
        return torch.linalg.solve_triangular(self.factor, half, upper=False)

    def log_prior(self) -> Tensor:
        """Log density of all priors."""
        parts = (self.gp.kernel, self.gp.mean, self.model.likelihood)
        return sum(
            (log_prior(part, self.gp.points) for part in parts), self.gp.points.new_zeros(())
        ).double()

    def restore_best(self) -> WhitenedPosterior:
        """Go back to the best parameters; returns the distribution that belongs to them."""
        assert self.best.state is not None
        values, statistics = self.best.state
        with torch.no_grad():
            for name, parameter in self.model.named_parameters():
                parameter.copy_(values[name])
        self.take(statistics)
        return statistics.posterior(self.gp.noise_variance().detach())


def _learn_on_subset(model: VariationalNKNGP, x: Tensor, y: Tensor, session: Session) -> None:
    """Some steps of L-BFGS on the bound of a subset of the rows.

    Exact learning knows nothing of the trace term, which asks for more noise: it would take Adam
    very many small steps to get there.
    """
    rows = permutation(y.numel(), session.generator())
    rows = rows[:_SUBSET_ROWS].to(y.device)
    inner = model.model
    sparse: Any = SparseNKNGP(
        x[rows],
        y[rows].unsqueeze(-1),
        structure=inner.covar_module,
        inducing_points=model.inducing_points,
        learn_inducing_points=model.inducing_points.requires_grad,
        likelihood=deepcopy(model.likelihood),
        mean_module=deepcopy(inner.mean_module),
        outcome_transform=None,
    )
    maximize_bound(sparse.train(), _SUBSET_ITERATIONS, session)
    for own, learned in (
        (inner.covar_module, sparse.covar_module.base_kernel),
        (inner.mean_module, sparse.mean_module),
        (model.likelihood, sparse.likelihood),
    ):
        own.load_state_dict(learned.state_dict())
    model.inducing_points.data.copy_(sparse.inducing_points)
