"""The steps of a training of frequency pairs, within a budget."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy

import torch
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, Likelihood
from gpytorch.means import Mean
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn._devices import permutation
from gpytorch_nkn.fit import FlatParameters, Recipe, Session, adam, fit_best_of, lbfgs
from gpytorch_nkn.initialization import assign, initialize_model
from gpytorch_nkn.models.spectral.spectral_gp import SpectralGP
from gpytorch_nkn.models.spectral.spectral_rows import Rows, RowsGP

__all__ = ["Training", "Watch", "left_out_density"]

_START_SHARE = 0.4  # of a budget
_FIRST = 150  # iterations of an RBF kernel from start values
_PATIENCE = 30  # iterations without a better density of held-out rows
_WARM_UP = 40  # iterations before it counts
_LEAST_GAIN = 1e-4  # of a mean log density
_RATE = 0.02  # of Adam
_SHORT = 0.15  # of the median distance and the like


class Training:
    """Data, with the rows in a random order, options and time of a training."""

    def __init__(
        self,
        model: SpectralGP,
        max_iterations: int,
        restarts: int,
        session: Session,
    ):
        with torch.no_grad():
            x = model.transform_inputs(model.train_inputs[0]).detach()
        y, likelihood = model.train_targets.detach(), model.likelihood
        known = isinstance(likelihood, FixedNoiseGaussianLikelihood)
        noise = likelihood.noise_covar.noise.detach().expand(y.shape) if known else None
        if x.size(-2) != y.size(-1):
            raise ValueError(f"There are {x.size(-2)} rows of inputs and {y.size(-1)} targets.")
        for name, values in (("inputs", x), ("targets", y)):
            if not bool(values.isfinite().all()):
                raise ValueError(f"The training {name} contain NaN or infinite values.")
        order = permutation(y.size(-1), session.generator())
        self.rows = Rows(x, y, noise)[order.to(y.device)]
        self.max_iterations, self.restarts, self.session = max_iterations, restarts, session
        self.bar = session.bar(None, "pairs of frequencies", "steps")

    def learn_rbf(self, rows: Rows, kernel: Kernel, mean: Mean, likelihood: Likelihood) -> None:
        """Train parts in place, with an RBF kernel, from start values that the rows give."""
        gp = RowsGP(rows, deepcopy(kernel), deepcopy(mean), deepcopy(likelihood))
        if not _trained(gp):
            return
        result = fit_best_of(
            gp,
            restarts=self.restarts,
            initialize=_start_rbf,
            recipe=Recipe(adam_steps=0, lbfgs_iterations=_FIRST),
            budget=self.session.part(_START_SHARE),
            seed=self.session.seed,
            progress=False,
        )
        best = result.model
        kernel.load_state_dict(best.covar_module.state_dict())
        mean.load_state_dict(best.mean_module.state_dict())
        learned = dict(best.likelihood.named_parameters())
        for name, parameter in likelihood.named_parameters():
            parameter.data.copy_(learned[name])
        self.session.interrupted = result.interrupted

    def maximize(self, gp: RowsGP, iterations: int, watch: Watch | None = None) -> None:
        """Iterations of L-BFGS on the parts of a GP, in place; none where the training is over.

        A watch ends the training, and says where it was best.
        """
        if self.session.is_over or not _trained(gp):
            return
        flat = FlatParameters(gp.train(), end=self.session.end)

        def on_step() -> None:
            self.bar.update()
            if watch is not None:
                watch(flat.values)

        with self._released(flat, watch):
            lbfgs(flat, iterations, on_step)

    def descend(self, gp: RowsGP, steps: int, check: Callable[[int], None] | None = None) -> None:
        """The first steps of Adam, out of as many as there may be, on the parts of a GP.

        The GP is left where the last step leads, or the last one whose loss is finite. ``check``
        is called with the number of each step, at the point to which it leads.
        """
        if not _trained(gp):
            return
        flat = FlatParameters(gp.train(), end=self.session.end)
        with self._released(flat):
            last = flat.values.clone()
            for step, _ in enumerate(adam(flat, steps, self._rate), 1):
                self.bar.update()
                if check is not None:
                    check(step)
                flat.best_values, last = last, flat.values.clone()
            if flat.has_time and math.isfinite(flat.evaluate()):
                flat.best_values = last  # the last point, not the one of least loss

    def _rate(self, step: int) -> float:
        return _RATE * 0.5 * (1 + math.cos(math.pi * step / self.max_iterations))

    @contextmanager
    def _released(self, flat: FlatParameters, watch: Watch | None = None) -> Iterator[None]:
        """Leave the model at the best point, whatever ends the training."""

        def message() -> str:
            return (
                f"Interrupted after {flat.evaluations} evaluations; the best parameters so far "
                "are kept."
            )

        try:
            with self.session.interruptible(lambda: flat.evaluations, message):
                yield
        finally:
            if watch is not None:
                flat.best_values = watch.best_values
            flat.release()


def _start_rbf(gp: ExactGP, seed: int, restart: int) -> None:
    """Start values from the data, with short lengthscales in every second start."""
    initialize_model(gp, seed=seed, restart=restart)
    if restart % 2:
        base = gp.covar_module.base_kernel
        if base.raw_lengthscale.requires_grad:
            assign(base, "lengthscale", _SHORT * base.lengthscale.detach())


class Watch:
    """The parameters that give held-out rows the highest density."""

    def __init__(self, gp: RowsGP, rows: Rows):
        self._gp, self._rows = gp, rows
        trained = [p.detach().reshape(-1) for p in _trained(gp)]
        self.best_values = torch.cat([rows.y.new_empty(0), *trained])
        self._best = self._density()
        self._steps = self._since = 0

    def __call__(self, values: Tensor) -> None:
        density = self._density()
        self._steps += 1
        self._since += 1
        if density > self._best + _LEAST_GAIN:
            self._best, self.best_values, self._since = density, values.clone(), 0
        if self._steps >= _WARM_UP and self._since >= _PATIENCE:
            raise StopIteration

    def _density(self) -> float:
        return left_out_density(self._gp, self._rows).mean(-1).sum().item()


def _trained(gp: RowsGP) -> list[Tensor]:
    return [p for p in gp.parameters() if p.requires_grad]


def left_out_density(gp: RowsGP, rows: Rows) -> Tensor:
    """Log densities of held-out rows, minus infinity where the GP has none."""
    try:
        return gp.log_density(rows).nan_to_num(nan=-math.inf)
    except (ArithmeticError, RuntimeError):  # a matrix that is not positive definite
        return torch.full_like(rows.y, -math.inf)
