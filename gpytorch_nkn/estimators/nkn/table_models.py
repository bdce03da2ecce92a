"""Kernel networks and Gaussian process models for tabular data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from types import MappingProxyType
from typing import Any

import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import (
    FixedNoiseGaussianLikelihood,
    GaussianLikelihood,
    Likelihood,
    StudentTLikelihood,
)
from gpytorch.means import ConstantMean, Mean
from gpytorch.priors import GammaPrior
from torch import Tensor

from gpytorch_nkn.averaging import train_candidates, warn_of_untrained
from gpytorch_nkn.fit import FitResult, Rows, RowsGP, Session, fit_in_stages, warn_user
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import (
    NETWORKS,
    check_name,
    named_kernel,
    numbered_names,
    with_outputscale,
)
from gpytorch_nkn.layers import Linear, add_prior, log_normal_prior

__all__ = [
    "LatentGP",
    "TableGP",
    "check_structures",
    "laplace_model",
    "named_structures",
    "robust_model",
    "train_structures",
    "untrained_model",
]

_WORDS = (*NETWORKS, "matern", "rbf")

# Most columns for which "auto" has a kernel per column, and an additive or spectral network.
_MANY_COLUMNS, _TOO_MANY_COLUMNS = 25, 50
_MANY_ROWS = 2000  # rows above which frequencies across columns are learned; below, they overfit
_FEW_ROWS = 500  # rows below which single kernels are also candidates
# Mode of the prior on the noise relative to the variance of the targets. With little signal, noise
# and a kernel of short lengthscales explain the targets equally well, and the prior decides.
_NOISE = 0.1
_LEAST_NOISE = 1e-6  # least noise; keeps covariances of noise-free data well-conditioned


class TableGP(RowsGP):
    """Exact GP of standardised rows with a constant mean and a weak prior on the noise.

    The learned noise variance is added to known noise variances of the rows.
    """

    def __init__(self, rows: Rows, kernel: Kernel):
        likelihood = GaussianLikelihood(
            noise_prior=log_normal_prior(_NOISE, 2.0), noise_constraint=GreaterThan(_LEAST_NOISE)
        )
        super().__init__(rows, kernel, ConstantMean(), likelihood)


def laplace_model(rows: Rows, kernel: Kernel, mean: Mean, likelihood: Likelihood) -> Any:
    """Make a GP of rows whose likelihood is not Gaussian."""
    from gpytorch_nkn.models import LaplaceGP

    return LaplaceGP(rows.x, rows.y, likelihood, mean, kernel)


def robust_model(rows: Rows, kernel: Kernel) -> Any:
    """Make a GP with Student-t noise for standardised rows.

    Reference for the prior: Juarez and Steel (2010), Model-based clustering of non-Gaussian panel
    data based on skew-t distributions.
    """
    likelihood = StudentTLikelihood(noise_constraint=GreaterThan(_LEAST_NOISE))
    # priors passed to the constructor cannot be pickled
    add_prior(likelihood, "noise", log_normal_prior(_NOISE, 2.0))
    add_prior(likelihood, "deg_free", GammaPrior(2.0, 0.1))
    return laplace_model(rows, kernel, ConstantMean(), likelihood)


class LatentGP(RowsGP):
    """Exact GP of latent values at rows ``N x D``, with a noise variance for each target.

    Targets and variances are ``N``, or ``K x N`` for ``K`` classes that share a kernel;
    ``observations`` is the likelihood of observations given the latent values.
    """

    likelihood: FixedNoiseGaussianLikelihood
    observed: Tensor | None = None  # targets N of a model with Student-t noise

    def __init__(
        self,
        x: Tensor,
        y: Tensor,
        noise: Tensor,
        mean: Mean,
        kernel: Kernel,
        observations: Likelihood | None = None,
    ):
        likelihood = FixedNoiseGaussianLikelihood(noise, batch_shape=y.shape[:-1])
        super().__init__(Rows(x, y), kernel, mean, likelihood)
        self.observations = observations
        self.eval()

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Return the prior at rows ``... x N x D``, with the kernel for each class."""
        mean = self.mean_module(x)
        rows = x.expand(*mean.shape[:-1], *x.shape[-2:])
        return MultivariateNormal(mean, self.covar_module(rows))

    @classmethod
    def of(cls, model: Any) -> LatentGP:
        """Return the exact GP with the posterior of a ``LaplaceGP``."""
        targets, noise = model.eval().pseudo_targets
        prior = model.mean_module, model.covar_module
        exact = cls(model.train_inputs[0], targets, noise, *prior, model.likelihood)
        exact.observed = model.train_targets if model.train_targets.dim() == 1 else None
        return exact


def check_structures(structure: object) -> list[str | Kernel]:
    """Check the argument ``structure`` of an estimator, and return it as a list."""
    is_sequence = isinstance(structure, Sequence) and not isinstance(structure, str)
    structures = list(structure) if is_sequence else [structure]  # type: ignore[call-overload]
    if not structures:
        raise ValueError("structure must name at least one network, got none.")
    for network in structures:
        if isinstance(network, str):
            if is_sequence or network != "auto":
                check_name(network, _WORDS, "a kernel" if is_sequence else "'auto', or a kernel")
        elif not isinstance(network, Kernel):
            raise TypeError(
                "structure must be a name, a kernel or a sequence of them, got "
                f"{type(network).__name__}."
            )
    return structures


def named_structures(
    structures: Sequence[str | Kernel],
    num_rows: int,
    input_dim: int,
    simple: Sequence[str] = ("rbf", "matern"),
) -> dict[str, str | Kernel]:
    """Return structures by name; ``"auto"`` depends on the numbers of rows and columns.

    For few rows, ``"auto"`` includes the ``simple`` kernels.
    """
    if list(structures) == ["auto"]:
        names = ["tabular"]
        if 1 < input_dim <= _TOO_MANY_COLUMNS:
            if num_rows > _MANY_ROWS:
                names += ["spectral"]
            else:
                names += ["columns"] * (input_dim <= _MANY_COLUMNS) + ["additive"]
        elif input_dim > _TOO_MANY_COLUMNS:
            names += ["isotropic"]
        if num_rows < _FEW_ROWS:
            names += simple
        return {name: name for name in names}
    return dict(zip(numbered_names(structures), structures, strict=True))


def train_structures(
    named: Mapping[str, str | Kernel],
    rows: Rows,
    *,
    budget: float | None,
    seed: int,
    cat_dims: Sequence[int] = (),
    makers: Mapping[str, Callable[[Rows, Kernel], Any]] = MappingProxyType({"": TableGP}),
    **options: Any,
) -> dict[str, FitResult]:
    """Train models of each structure, with options of ``fit_in_stages``.

    Columns ``cat_dims`` are category codes; a given kernel receives them, too. Each of the
    ``makers`` makes a model of each structure, with its key as suffix of the name. Models that fail
    or have no time left are not in the result, with a warning. If all fail, a ``RuntimeError`` is
    raised.
    """
    models = {
        name + suffix: untrained_model(structure, rows, cat_dims, make)
        for suffix, make in makers.items()
        for name, structure in named.items()
    }

    def train(_: None, name: str, seconds: float | None) -> FitResult:
        return fit_in_stages(models[name], budget=seconds, seed=seed, **options)

    session = Session(budget=budget, seed=seed, progress=False)
    trained = train_candidates(train, list(models), session)
    warn_of_untrained(trained)
    failures = [f"{run.key}: {run.status}" for run in trained if run.failed]
    if len(failures) == len(trained):
        raise RuntimeError(f"No network could be trained ({'; '.join(failures)}).")
    for failure in failures:
        warn_user(f"A network could not be trained: {failure}", RuntimeWarning)
    return {run.key: run.candidate for run in trained if run.candidate is not None}


def untrained_model(
    structure: str | Kernel,
    rows: Rows,
    cat_dims: Sequence[int] = (),
    make: Callable[[Rows, Kernel], Any] = TableGP,
) -> Any:
    """Create a model with initial hyperparameters."""
    return make(rows, _make_kernel(structure, rows.x, cat_dims)).to(rows.x)


def _make_kernel(structure: str | Kernel, x: Tensor, cat_dims: Sequence[int]) -> Kernel:
    """Create a kernel for rows ``N x D``, or check a copy of the given one."""
    input_dim = x.size(-1)
    if isinstance(structure, str):
        kernel = named_kernel(structure, input_dim, cat_dims=cat_dims)
        if not isinstance(kernel, NeuralKernelNetwork):  # networks train faster
            kernel = NeuralKernelNetwork([kernel], [Linear(1, 1)])
    else:
        kernel = deepcopy(structure)
    kernel = with_outputscale(kernel, kernel.batch_shape).to(x)
    try:
        with torch.no_grad():
            values = kernel(x[:2]).to_dense()
    except (IndexError, RuntimeError, ValueError) as error:
        raise ValueError(f"The kernel must accept {input_dim} columns: {error}") from error
    if values.shape != (2, 2) or values.dtype != x.dtype:
        raise ValueError(
            f"The kernel must return one N x N matrix in {x.dtype}, got shape "
            f"{tuple(values.shape)} in {values.dtype} for 2 rows."
        )
    return kernel
