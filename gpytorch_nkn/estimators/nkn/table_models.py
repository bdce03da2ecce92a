"""The networks and models of a regression on a table."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import torch
from gpytorch.constraints import GreaterThan
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import Kernel
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from gpytorch.models import ExactGP
from torch import Tensor

from gpytorch_nkn.averaging import train_candidates
from gpytorch_nkn.fit import FitResult, Recipe, Session, fit_in_stages, warn_user
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.kernels.network import NETWORKS, check_word, named_kernel, with_outputscale
from gpytorch_nkn.layers import Linear, log_normal_prior

__all__ = [
    "ClassGP",
    "TableGP",
    "check_structures",
    "named_structures",
    "train_structures",
    "untrained_model",
]

_WORDS = (*NETWORKS, "matern", "rbf")

# Columns up to which networks with a kernel per column, and several networks, are worth their time.
_MANY_COLUMNS, _TOO_MANY_COLUMNS = 25, 50
# Rows from which on frequencies across columns are learned and not fitted to the noise.
_MANY_ROWS = 2000
# Rows up to which a single kernel may be all that they tell.
_FEW_ROWS = 500
# Mode of the prior on the noise, in parts of the targets' variance. Where there is little signal,
# noise and a kernel of short lengthscales explain the targets equally well, and this decides.
_NOISE = 0.1
# Variances of log-normal variables with the moments of gamma variables of two shapes, and half of
# the difference of the means of their logarithms: the middle is the same for all classes.
_SHAPES = np.array([1.01, 0.01])
_LOG_VARIANCES = np.log(1 / _SHAPES + 1)
_CLASS_TARGET = float((np.log(_SHAPES) - _LOG_VARIANCES / 2) @ [0.5, -0.5])
_NOISE_FLOOR = 1e-6  # of the targets' variance: keeps covariances of noise-free data regular


class TableGP(ExactGP):
    """Exact GP of standardised data with a constant mean and a weak prior on the noise."""

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel):
        likelihood = GaussianLikelihood(
            noise_prior=log_normal_prior(_NOISE, 2.0), noise_constraint=GreaterThan(_NOISE_FLOOR)
        )
        super().__init__(x, y, likelihood)
        self.mean_module = ConstantMean()
        self.covar_module = kernel

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Prior at rows ``... x N x D``."""
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


class ClassGP(ExactGP):
    r"""Exact GPs of the classes of standardised rows, which share a kernel.

    Their values are logarithms of gamma variables, whose shares have a Dirichlet distribution. A
    row has the shape 1.01 for its own class and 0.01 for the others; targets and the variances of
    the noise are the moments of log-normal variables that have the moments of these.

    Args:
        x: ``N x D``.
        y: ``K x N``, see :meth:`targets_of`.
        kernel: Covariance of each.

    Reference: Milios, Camoriano, Michiardi, Rosasco and Filippone (2018), Dirichlet-based Gaussian
    processes for large-scale calibrated classification.
    """

    likelihood: FixedNoiseGaussianLikelihood

    def __init__(self, x: Tensor, y: Tensor, kernel: Kernel):
        likelihood = FixedNoiseGaussianLikelihood(_class_noise(y), batch_shape=y.shape[:-1])
        super().__init__(x, y, likelihood)
        self.mean_module = ConstantMean(batch_shape=y.shape[:-1])
        self.mean_module.initialize(constant=y.mean(-1))
        self.covar_module = kernel

    @staticmethod
    def targets_of(labels: np.ndarray, num_classes: int) -> np.ndarray:
        """Targets ``K x N`` of labels ``N`` from 0 on, positive for rows of the class."""
        own = labels == np.arange(num_classes)[:, None]
        return np.where(own, 1.0, -1.0) * _CLASS_TARGET

    def set_train_data(
        self, inputs: Any = None, targets: Tensor | None = None, strict: bool = True
    ) -> None:
        """As in GPyTorch, with the variances of the noise that belong to the targets."""
        super().set_train_data(inputs, targets, strict)
        if targets is not None:
            self.likelihood.noise_covar.noise = _class_noise(targets)

    def forward(self, x: Tensor) -> MultivariateNormal:
        """Prior at rows ``N x D``."""
        mean = self.mean_module(x)
        return MultivariateNormal(
            mean, self.covar_module(x.expand(*mean.shape[:-1], *x.shape[-2:]))
        )


def _class_noise(y: Tensor) -> Tensor:
    """Variances of the noise of positive and negative targets."""
    own, other = _LOG_VARIANCES.tolist()
    return torch.where(y > 0, own, other).to(y)


def check_structures(structure: object) -> list[str | Kernel]:
    """The structures that an estimator is asked for, as a list.

    Raises:
        TypeError: Neither a name nor a kernel, nor a sequence of such.
        ValueError: A name is unknown, or there is none.
    """
    several = isinstance(structure, Sequence) and not isinstance(structure, str)
    structures = list(structure) if several else [structure]  # type: ignore[call-overload]
    if not structures:
        raise ValueError("structure must name at least one network, got none.")
    for one in structures:
        if isinstance(one, str):
            if several or one != "auto":
                check_word(one, _WORDS, "a kernel" if several else "'auto', or a kernel")
        elif not isinstance(one, Kernel):
            raise TypeError(
                "structure must be a name, a kernel or a sequence of such, got "
                f"{type(one).__name__}."
            )
    return structures


def named_structures(
    structures: Sequence[str | Kernel], num_rows: int, input_dim: int
) -> dict[str, str | Kernel]:
    """What to train, by name; ``"auto"`` becomes what suits the numbers of rows and columns."""
    if list(structures) == ["auto"]:
        names = ["tabular"]
        if 1 < input_dim <= _TOO_MANY_COLUMNS:
            if num_rows > _MANY_ROWS:
                names += ["spectral"]
            else:
                names += ["columns"] * (input_dim <= _MANY_COLUMNS) + ["additive"]
        if num_rows < _FEW_ROWS:
            names += ["rbf", "matern"]
        return {name: name for name in names}
    named: dict[str, str | Kernel] = {}
    for structure in structures:
        name = structure if isinstance(structure, str) else type(structure).__name__
        key, number = name, 2
        while key in named:
            key, number = f"{name} {number}", number + 1
        named[key] = structure
    return named


def train_structures(
    named: Mapping[str, str | Kernel],
    inputs: Tensor,
    targets: Tensor,
    *,
    budget: float | None,
    restarts: int,
    recipe: Recipe | None,
    seed: int,
    n_jobs: int,
    progress: bool,
    cat_dims: Sequence[int] = (),
    make_model: Callable[[Tensor, Tensor, Kernel], ExactGP] = TableGP,
) -> dict[str, FitResult]:
    """Train a model of each structure on rows ``N x D``; see ``fit_in_stages`` for the options.

    Columns ``cat_dims`` are codes of categories; a given kernel takes them as it likes.

    Returns:
        Records by name. Structures that failed, or that had no time left, are missing.

    Raises:
        ValueError: ``budget`` is not positive.
        RuntimeError: All of them failed.
        KeyboardInterrupt: It came before the first step.
    """
    kernels = {name: _make_kernel(structure, inputs, cat_dims) for name, structure in named.items()}

    def train(_: None, name: str, seconds: float | None) -> FitResult:
        return fit_in_stages(
            make_model(inputs, targets, kernels[name]).to(inputs),
            restarts=restarts,
            recipe=recipe,
            budget=seconds,
            seed=seed,
            n_jobs=n_jobs,
            progress=progress,
        )

    session = Session(budget=budget, seed=seed, progress=False)
    trained = train_candidates(train, list(named), session)
    failures = [f"{one.key}: {one.status}" for one in trained if one.candidate is None]
    if len(failures) == len(trained):
        raise RuntimeError(f"No network could be trained ({'; '.join(failures)}).")
    for failure in failures:
        warn_user(f"A network could not be trained: {failure}", RuntimeWarning)
    return {one.key: one.candidate for one in trained if one.candidate is not None}


def untrained_model(
    named: Mapping[str, str | Kernel],
    inputs: Tensor,
    targets: Tensor,
    cat_dims: Sequence[int] = (),
) -> TableGP:
    """A model of the first structure, with the parameters that it starts from."""
    kernel = _make_kernel(next(iter(named.values())), inputs, cat_dims)
    return TableGP(inputs, targets, kernel).to(inputs)


def _make_kernel(structure: str | Kernel, x: Tensor, cat_dims: Sequence[int]) -> Kernel:
    """A new kernel for rows ``N x D``.

    Raises:
        ValueError: A given kernel does not take so many columns, or has a batch dimension.
    """
    input_dim = x.size(-1)
    if isinstance(structure, str):
        kernel = named_kernel(structure, input_dim, cat_dims=cat_dims)
        if not isinstance(
            kernel, NeuralKernelNetwork
        ):  # one of one kernel, for the speed of their training
            kernel = NeuralKernelNetwork([kernel], [Linear(1, 1)])
    else:
        kernel = deepcopy(structure)
    kernel = kernel.to(x)
    if isinstance(kernel, NeuralKernelNetwork) and len(kernel.layers):
        last = kernel.layers[-1]
        if isinstance(last, Linear) and last.is_simplex:  # its variance is one
            kernel = with_outputscale(kernel, kernel.batch_shape).to(x)
    try:
        with torch.no_grad():
            values = kernel(x[:2]).to_dense()
    except (IndexError, RuntimeError, ValueError) as error:
        raise ValueError(f"The kernel does not take {input_dim} columns: {error}") from error
    if values.shape != (2, 2) or values.dtype != x.dtype:
        raise ValueError(
            f"The kernel must give one matrix of rows by rows in {x.dtype}, got shape "
            f"{tuple(values.shape)} in {values.dtype} for 2 rows."
        )
    return kernel
