"""Surrogate models for Bayesian optimisation: how each is built, fitted, and asked for a point."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from botorch.acquisition import AcquisitionFunction
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.map_saas import AdditiveMapSaasSingleTaskGP, EnsembleMapSaasSingleTaskGP
from botorch.models.utils.gpytorch_modules import (
    get_gaussian_likelihood_with_gamma_prior,
    get_matern_kernel_with_gamma_prior,
)
from botorch.optim import optimize_acqf
from gpytorch.constraints import GreaterThan, Positive
from gpytorch.kernels import Kernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import LogNormalPrior
from torch import Tensor
from torch.nn import Parameter
from torch.quasirandom import SobolEngine

from benchmarks.bo_problems import Problem
from gpytorch_nkn.fit import Recipe, fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork

__all__ = [
    "INITIAL_POINTS",
    "SURROGATES",
    "AcquisitionSettings",
    "Search",
    "SumOverGroupsKernel",
    "Surrogate",
    "make_surrogate",
]


INITIAL_POINTS = 10  # of every run, drawn


@dataclass(frozen=True)
class AcquisitionSettings:
    """How the acquisition function is optimised, the same for every surrogate.

    Attributes:
        num_restarts: Points from which L-BFGS-B starts.
        raw_samples: Points that the starts are chosen from.
        batch_limit: Starts that are optimised together.
        maxiter: Largest number of iterations of L-BFGS-B.
        q: Points of an iteration, searched one after another.
    """

    num_restarts: int = 8
    raw_samples: int = 256
    batch_limit: int = 8
    maxiter: int = 100
    q: int = 1


@dataclass(frozen=True)
class Search:
    """What a point is searched with.

    Attributes:
        model: The fitted model.
        acqf: Acquisition function of that model.
        bounds: Lower and upper bounds ``2 x D``.
        X: Inputs ``N x D`` in the order of evaluation.
        values: Values ``N``, larger is better, minus infinity where a constraint is violated.
    """

    model: SingleTaskGP
    acqf: AcquisitionFunction
    bounds: Tensor
    X: Tensor
    values: Tensor

    @property
    def best_points(self) -> Tensor:
        """The five best points ``5 x D`` so far, the best first."""
        return self.X[self.values.argsort(descending=True, stable=True)[:5]]


class SumOverGroupsKernel(Kernel):
    r"""Sum of one ARD RBF kernel with an output scale for each group of columns.

    .. math::
        k(x, x') = \sum_g v_g \exp\Bigl(-\frac{1}{2}
            \sum_{d \in g} \frac{(x_d - x'_d)^2}{\ell_d^2}\Bigr)

    A sum of ``ScaleKernel(RBFKernel(active_dims=group))``, in one go instead of one after another.
    The priors on lengthscales are BoTorch's, which go by the number of columns of a kernel, here
    of the group; output scales have none and start with a sum of 1.

    Args:
        groups: The columns of each group; every column in exactly one.
    """

    has_lengthscale = False  # of its own, with its own prior
    is_stationary = True

    def __init__(self, groups: Sequence[Sequence[int]]):
        super().__init__()
        sizes = {column: len(group) for group in groups for column in group}
        if sorted(column for group in groups for column in group) != list(range(len(sizes))):
            raise ValueError(f"groups must hold each of the columns once, got {groups}.")
        membership = torch.zeros(len(sizes), len(groups))
        for place, group in enumerate(groups):
            membership[list(group), place] = 1.0
        self.register_buffer("membership", membership)
        number = torch.tensor([sizes[column] for column in range(len(sizes))])
        prior = LogNormalPrior(2**0.5 + number.log() / 2, 3**0.5)
        constraint = GreaterThan(2.5e-2, transform=None, initial_value=prior.mode)
        self.register_parameter("raw_lengthscales", Parameter(prior.mode.clone()))
        self.register_constraint("raw_lengthscales", constraint)
        self.register_prior("lengthscales_prior", prior, _lengthscales, _set_lengthscales)
        self.register_parameter("raw_scales", Parameter(torch.zeros(len(groups))))
        self.register_constraint("raw_scales", Positive())
        self.initialize(
            raw_scales=self.raw_scales_constraint.inverse_transform(
                torch.full((len(groups),), 1 / len(groups))
            )
        )

    @property
    def lengthscales(self) -> Tensor:
        """One for each column."""
        return self.raw_lengthscales_constraint.transform(self.raw_lengthscales)

    @property
    def outputscales(self) -> Tensor:
        """One for each group."""
        return self.raw_scales_constraint.transform(self.raw_scales)

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        if params.pop("last_dim_is_batch", False):
            raise NotImplementedError("A sum over groups of columns has no values by column.")
        if diag:
            x2_rows = x2
        else:
            x1, x2_rows = x1.unsqueeze(-2), x2.unsqueeze(-3)
        squares = ((x1 - x2_rows) / self.lengthscales).square()  # ... x N x M x D, or ... x N x D
        return (squares @ self.membership).mul(-0.5).exp() @ self.outputscales


def _lengthscales(kernel: SumOverGroupsKernel) -> Tensor:
    return kernel.lengthscales


def _set_lengthscales(kernel: SumOverGroupsKernel, value: Tensor) -> None:
    kernel.initialize(raw_lengthscales=kernel.raw_lengthscales_constraint.inverse_transform(value))


class Surrogate:
    """A model with BoTorch's fit and BoTorch's starts for the acquisition function.

    Args:
        make: Makes a model of inputs ``N x D`` in the unit cube and targets ``N x 1``.
        acquisition: How the acquisition function is optimised.
    """

    uses_previous = False

    def __init__(
        self, make: Callable[[Tensor, Tensor], SingleTaskGP], acquisition: AcquisitionSettings
    ):
        self.make = make
        self.acquisition = acquisition

    def fit(self, X: Tensor, Y: Tensor, previous: SingleTaskGP | None) -> SingleTaskGP:
        """A model of inputs ``N x D`` and targets ``N x 1`` (larger is better), fitted.

        Args:
            X: Inputs.
            Y: Targets.
            previous: The model of the previous iteration, if ``uses_previous``.
        """
        model = self.make(X, Y)
        fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        return model

    def propose(self, search: Search) -> Tensor:
        """The points ``q x D`` that maximise the acquisition function."""
        return self._optimize(search.acqf, search.bounds)

    def _optimize(self, acqf: AcquisitionFunction, bounds: Tensor, **generator: Any) -> Tensor:
        settings = self.acquisition
        candidate, _ = optimize_acqf(
            acqf,
            bounds,
            q=settings.q,
            sequential=settings.q > 1,
            num_restarts=settings.num_restarts,
            raw_samples=settings.raw_samples,
            options={"batch_limit": settings.batch_limit, "maxiter": settings.maxiter},
            **generator,
        )
        return candidate


class _Oracle(Surrogate):
    """Fitted by at most 200 iterations: without priors on output scales the last ones are slow."""

    def fit(self, X: Tensor, Y: Tensor, previous: SingleTaskGP | None) -> SingleTaskGP:
        model = self.make(X, Y)
        mll = ExactMarginalLogLikelihood(model.likelihood, model)
        fit_gpytorch_mll(mll, optimizer_kwargs={"options": {"maxiter": 200}})
        return model


class _PaperNetwork(Surrogate):
    """Maximum likelihood by L-BFGS from start values that come from the data."""

    def fit(self, X: Tensor, Y: Tensor, previous: SingleTaskGP | None) -> SingleTaskGP:
        model = self.make(X, Y)
        recipe = Recipe(adam_steps=0, lbfgs_iterations=75)
        fit_best_of(model, restarts=1, recipe=recipe, progress=False)
        return model


class _Ours(Surrogate):
    """Warm starts, and coordinate sweeps of the best points among the starts."""

    uses_previous = True

    def fit(self, X: Tensor, Y: Tensor, previous: SingleTaskGP | None) -> SingleTaskGP:
        from gpytorch_nkn.bo import fit_bo_model

        model = self.make(X, Y)
        fit_bo_model(model, previous=previous)
        return model

    def propose(self, search: Search) -> Tensor:
        from gpytorch_nkn.bo import coordinate_sweep_initial_conditions

        starts = partial(coordinate_sweep_initial_conditions, incumbent=search.best_points)
        return self._optimize(search.acqf, search.bounds, ic_generator=starts)


class _Structures(_Ours):
    """The same, averaged over structures."""

    def fit(self, X: Tensor, Y: Tensor, previous: SingleTaskGP | None) -> SingleTaskGP:
        from gpytorch_nkn.models import fit_structure_ensemble_gp

        return fit_structure_ensemble_gp(self.make(X, Y), previous=previous)


class _InRegion(_Structures):
    """The same, within a region around the best point."""

    def propose(self, search: Search) -> Tensor:
        from gpytorch_nkn.bo import trust_region

        region = trust_region(
            search.X,
            search.values.masked_fill(search.values.isinf(), torch.nan),
            search.bounds,
            num_initial=INITIAL_POINTS,
            q=self.acquisition.q,
            model=search.model,
        )
        return super().propose(replace(search, bounds=region.bounds))


class _TrustRegion(Surrogate):
    """TuRBO-1 of Eriksson et al. (2019): the search is within a box around the best point.

    As in BoTorch's tutorial, with one point at a time and the acquisition function of all others
    in place of Thompson sampling. The box grows after three better values in a row, shrinks after
    as many worse ones as there are columns (four at least), and starts anew where it has vanished.
    Its sides go by the lengthscales.
    """

    _most, _least, _start = 1.6, 0.5**7, 0.8

    def propose(self, search: Search) -> Tensor:
        model, best = search.model, search.best_points[0]
        scales = model.covar_module.base_kernel.lengthscale.detach().squeeze(0)
        scales = scales / scales.log().mean().exp()
        width = scales * self._length(model.train_targets.tolist(), len(best)) / 2
        box = torch.stack([best - width, best + width]).clamp(0, 1)
        return self._optimize(search.acqf, box)

    def _length(self, values: list[float], num_columns: int) -> float:
        """Replayed from the values, the initial ones included, of which larger is better."""
        length, better, worse, best = self._start, 0, 0, max(values[:INITIAL_POINTS])
        for value in values[INITIAL_POINTS:]:
            gained = value > best + 1e-3 * abs(best)
            better, worse = (better + 1, 0) if gained else (0, worse + 1)
            best = max(best, value)
            if better == 3:
                length, better = min(2 * length, self._most), 0
            elif worse == max(4, num_columns):
                length, worse = length / 2, 0
            if length < self._least:
                length, better, worse = self._start, 0, 0
        return length


class _Unasked(Surrogate):
    """The model is not trained and nobody asks it."""

    def fit(self, X: Tensor, Y: Tensor, previous: SingleTaskGP | None) -> SingleTaskGP:
        return self.make(X, Y).eval()


class _Random(_Unasked):
    """Random points."""

    def propose(self, search: Search) -> Tensor:
        return torch.rand_like(search.bounds[:1].expand(self.acquisition.q, -1))


class _Sobol(_Unasked):
    """Quasi-random points."""

    def propose(self, search: Search) -> Tensor:
        engine = SobolEngine(search.bounds.size(-1), scramble=True, seed=0)
        engine.fast_forward(len(search.model.train_targets))
        return engine.draw(self.acquisition.q, dtype=search.bounds.dtype)


class _Ax(_Unasked):
    """Ax's default strategy, which has its own model and settings; a client is told each point."""

    def __init__(self, *args: Any):
        super().__init__(*args)
        self._client: Any = None
        self._trials: dict[int, dict[str, float]] = {}  # that the client has chosen, and waits for
        self._told = 0

    def fit(self, X: Tensor, Y: Tensor, previous: SingleTaskGP | None) -> SingleTaskGP:
        if self._client is None:
            self._client = _ax_client(X.size(-1))
        for x, y in zip(X[self._told :].tolist(), Y[self._told :, 0].tolist(), strict=True):
            parameters = {f"x{column}": value for column, value in enumerate(x)}
            trial = next((t for t, chosen in self._trials.items() if chosen == parameters), None)
            if trial is None:
                trial = self._client.attach_trial(parameters)
            self._client.complete_trial(trial, {"y": y})
            self._trials.pop(trial, None)
        for trial in self._trials:  # something else was evaluated
            self._client.mark_trial_abandoned(trial)
        self._trials, self._told = {}, len(X)
        return super().fit(X, Y, previous)

    def propose(self, search: Search) -> Tensor:
        self._trials = self._client.get_next_trials(max_trials=self.acquisition.q)
        points = [list(parameters.values()) for parameters in self._trials.values()]
        return torch.tensor(points, dtype=search.bounds.dtype)


def _ax_client(num_columns: int) -> Any:
    """A client that maximises "y" and takes its model from the first point on that it chooses."""
    from ax import Client, RangeParameterConfig

    logging.getLogger("ax.api.client").setLevel(logging.WARNING)  # says every trial
    client = Client()
    unit = {"bounds": (0.0, 1.0), "parameter_type": "float"}
    client.configure_experiment(
        parameters=[RangeParameterConfig(name=f"x{n}", **unit) for n in range(num_columns)]
    )
    client.configure_optimization(objective="y")
    client.configure_generation_strategy(
        initialization_budget=INITIAL_POINTS, initialize_with_center=False
    )
    return client


def make_surrogate(
    name: str, problem: Problem, acquisition: AcquisitionSettings | None = None
) -> Surrogate:
    """The surrogate of that name for a problem.

    Raises:
        ValueError: There is none of that name, or the oracle is asked of a problem without groups.
    """
    if name not in SURROGATES:
        raise ValueError(f"name must be one of {', '.join(SURROGATES)}; got {name!r}.")
    kind, make = SURROGATES[name]
    if name == "oracle":
        if problem.groups is None:
            raise ValueError(f"The oracle needs a function with known groups, got {problem.name}.")
        make = partial(make, problem.groups)
    return kind(make, AcquisitionSettings() if acquisition is None else acquisition)


def _matern(X: Tensor, Y: Tensor) -> SingleTaskGP:
    return SingleTaskGP(
        X,
        Y,
        covar_module=get_matern_kernel_with_gamma_prior(X.size(-1)),
        likelihood=get_gaussian_likelihood_with_gamma_prior(),
    )


def _oracle(groups: tuple[tuple[int, ...], ...], X: Tensor, Y: Tensor) -> SingleTaskGP:
    return SingleTaskGP(X, Y, covar_module=SumOverGroupsKernel(groups))


def _paper(X: Tensor, Y: Tensor) -> SingleTaskGP:
    kernel = NeuralKernelNetwork.additive(X.size(-1), priors=False)
    return SingleTaskGP(X, Y, covar_module=kernel)


def _ours(X: Tensor, Y: Tensor) -> SingleTaskGP:
    from gpytorch_nkn.models import NKNSingleTaskGP

    return NKNSingleTaskGP(X, Y)


def _structures(X: Tensor, Y: Tensor, **options: Any) -> SingleTaskGP:
    from gpytorch_nkn.models import StructureEnsembleGP

    return StructureEnsembleGP(X, Y, **options)


SURROGATES: dict[str, tuple[type[Surrogate], Callable[..., SingleTaskGP]]] = {
    "singletask": (Surrogate, SingleTaskGP),
    "matern": (Surrogate, _matern),
    "oracle": (_Oracle, _oracle),
    "paper": (_PaperNetwork, _paper),
    "saas": (Surrogate, AdditiveMapSaasSingleTaskGP),
    "ours": (_Ours, _ours),
    "structures": (_Structures, _structures),
    "region": (_InRegion, _structures),
    "unwarped": (_Structures, partial(_structures, structures=("optimization", "matern", "rbf"))),
    "ensemblesaas": (Surrogate, EnsembleMapSaasSingleTaskGP),
    "turbo": (_TrustRegion, _matern),
    "ax": (_Ax, SingleTaskGP),
    "sobol": (_Sobol, SingleTaskGP),
    "random": (_Random, SingleTaskGP),
}
