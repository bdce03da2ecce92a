"""Every model of the package, in all variants, for the contract."""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache, partial
from unittest import mock

import torch
from botorch.models.model import Model
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel

from gpytorch_nkn.models import (
    KroneckerGridGP,
    NKNMultiTaskGP,
    NKNSingleTaskGP,
    SparseNKNGP,
    SpectralGP,
    StructureEnsembleGP,
    VariationalNKNGP,
)
from gpytorch_nkn.models.averaging.member_warp import fit_warp
from gpytorch_nkn.models.spectral import spectral_gp
from tests.models.small_models import moved, structure_of

N = 14  # rows, or cells of a grid that are not missing


@dataclass(frozen=True)
class Case:
    """One kind of model, and what is true of it.

    Attributes:
        name: Of the test.
        cls: The public class.
        make: ``make(inputs, y, **options)``, with the constructor's options ``outcome_transform``,
            ``input_transform`` and, where the noise may be known, ``train_Yvar``.
        columns: Of the inputs.
        outputs, batches, known_noise: Whether there may be several outputs, a batch of data sets,
            known noise; else NotImplementedError or TypeError is raised.
        takes_rows: It can be conditioned on further rows; otherwise it says so.
        members: An ensemble of so many; posteriors have a dimension of members.
        exact: GPyTorch's exact marginal likelihood applies to it in training mode.
        linear: Variances do not depend on the values that were observed.
        on_grid: Data are coordinates of a grid and values with NaN where missing.
        checks: Names of the checks in which it can differ from another kind of its class, to
            which the others would do the same again; ``None`` means all.
    """

    name: str
    cls: type[Model]
    make: Callable[..., Model]
    columns: int = 2
    outputs: bool = True
    batches: bool = True
    known_noise: bool = True
    takes_rows: bool = True
    members: int | None = None
    exact: bool = True
    linear: bool = True
    on_grid: bool = False
    checks: tuple[str, ...] | None = None

    def data(self, outputs=1, batch_shape=(), dtype=torch.float64, n=N, seed=0):
        """Inputs and values that differ in their shape."""
        generator = torch.Generator().manual_seed(seed)
        if self.on_grid:
            coordinates = [torch.linspace(0, 1, k, dtype=torch.float64) for k in (4, 5)]
            y = torch.sin(5 * coordinates[0])[:, None] + coordinates[1] ** 2
            y = y + 0.1 * torch.randn(*batch_shape, 4, 5, generator=generator, dtype=y.dtype)
            y[..., 1:3, 1:4] = torch.nan
            return [x.to(dtype) for x in coordinates], y.to(dtype)
        x = torch.rand(*batch_shape, n, self.columns, generator=generator, dtype=torch.float64)
        y = [torch.sin(5 * x[..., 0] + k) + k * x[..., -1] for k in range(outputs)]
        noise = 0.1 * torch.randn(
            *batch_shape, n, outputs, generator=generator, dtype=torch.float64
        )
        return x.to(dtype), (3 * torch.stack(y, -1) + 1 + noise).to(dtype)

    def points(self, *shape, dtype=torch.float64):
        """Points at which to predict."""
        generator = torch.Generator().manual_seed(7)
        x = torch.rand(*shape, self.columns, generator=generator, dtype=torch.float64)
        return x.to(dtype)

    def model(self, outputs=1, batch_shape=(), dtype=torch.float64, seed=0, **options):
        """Return a model in eval mode whose parameters differ from their start values."""
        if any(value is not None for value in options.values()):
            return self._moved(outputs, batch_shape, dtype, seed, **options)
        devices = torch.zeros(0).device, torch.get_default_device()
        return copy.deepcopy(_kept(devices, self, outputs, batch_shape, dtype, seed, *options))

    def _moved(self, outputs, batch_shape, dtype, seed, **options):
        inputs, y = self.data(outputs, batch_shape, dtype, seed=seed)
        model = self.make(inputs, y, **options)
        kept = {
            name: parameter.detach().clone()
            for name, parameter in model.named_parameters()
            if "inducing_points" in name
        }
        own = all(p.shape[: len(batch_shape)] == batch_shape for p in model.parameters())
        moved(model, batch_shape if own else ())
        for name, parameter in model.named_parameters():
            if name in kept:
                parameter.data.copy_(kept[name])
        return model


@cache
def _kept(devices, case, outputs, batch_shape, dtype, seed, *without):
    """Return a model that tests copy; construction takes ten times as long."""
    return case._moved(outputs, batch_shape, dtype, seed, **dict.fromkeys(without))


def nkn(inputs, y, *, structure="optimization", **options):
    return NKNSingleTaskGP(inputs, y, structure=structure, **options)


def multi_task(inputs, y, train_Yvar=None, *, input_transform=None, **options):
    """Tasks 3 and 7; task 3 is the output."""
    tasks = torch.where(torch.arange(inputs.size(-2)) % 3 > 0, 3.0, 7.0).to(inputs)
    rows = torch.cat([inputs, tasks.unsqueeze(-1).expand(*inputs.shape[:-1], 1)], -1)
    return NKNMultiTaskGP(
        rows, y, -1, train_Yvar, output_tasks=[3], structure="additive", **options
    )


def small_network(x, options):
    transform = options.get("input_transform")
    x = x if transform is None else copy.deepcopy(transform).to(x)(x)
    return structure_of("network", x.size(-1)).to(x.dtype)


def sparse(inputs, y, train_Yvar=None, **options):
    options = {"structure": small_network(inputs, options), "inducing_points": 6} | options
    return SparseNKNGP(inputs, y, train_Yvar, **options)


def variational(inputs, y, train_Yvar=None, **options):
    options = {"structure": small_network(inputs, options), "inducing_points": 6} | options
    model = VariationalNKNGP(inputs, y, train_Yvar, **options)
    m, generator = len(model.inducing_points), torch.Generator().manual_seed(0)
    root = 0.3 * torch.randn(m, m, generator=generator, dtype=torch.float64)
    mean = torch.randn(m, generator=generator, dtype=torch.float64)
    model._set_distribution(mean.to(y), root.to(y))
    return model


def spectral(inputs, y, train_Yvar=None, *, rbf=True, **options):
    """With a dense RBF kernel, one at inducing points as with many rows, or none."""
    options = {"num_features": 4, "inducing_points": 6} | options
    with mock.patch.object(spectral_gp, "_MAX_DENSE", 0 if rbf == "points" else 2000):
        return SpectralGP(inputs, y, train_Yvar, rbf=bool(rbf), **options)


def structures(inputs, y, *, warped=False, **options):
    """Members of two structures; outcomes of one may be warped."""
    kernels = small_network(inputs, options), "outcome-warped matern" if warped else "matern"
    model = StructureEnsembleGP(inputs, y, structures=kernels, num_members=4, **options)
    model.warps[model.is_warped] = fit_warp(model.common_data()[1])
    model.set_weights([0.75, 0.25])
    return model


def grid(inputs, y, *, own=False, **options):
    shape = y.shape[:-2] if own else torch.Size([])
    kernels = [
        ScaleKernel(RBFKernel(batch_shape=shape), batch_shape=shape),
        MaternKernel(nu=1.5, batch_shape=shape),
    ]
    options = {"tolerance": 1e-10 if y.dtype == torch.float64 else None} | options
    return KroneckerGridGP(inputs, y, kernels, **options)


def checks(names: str) -> tuple[str, ...]:
    """Return the names of checks, given without ``check_``."""
    return tuple(f"check_{name}" for name in names.split())


# What takes the columns of inputs apart.
_OF_ONE_COLUMN = checks("gradients_of_points outputs batches input_transforms bad_data device")
# How predictions are made of features.
_OF_FEATURES = checks("""
    posterior gradients_of_points gradients_of_joint_posteriors second_derivatives_of_points paths
    outputs subsets batches conditioning noise_of_new_rows leave_one_out device
""")
_AT_POINTS = (*_OF_FEATURES, *checks("many_points copies state dtypes settings"))
_OF_WARPS = checks("""
    posterior many_points gradients_of_points gradients_of_joint_posteriors
    second_derivatives_of_points gradient_posterior paths noise state units conditioning
    leave_one_out data_set_later device
""")
# without those that change the number of columns, where the task would be lost
_OF_TASKS = checks("""
    many_points covariances_of_many_points posterior gradients_of_points
    gradients_of_joint_posteriors second_derivatives_of_points copies state dtypes units device
    samples paths predict lists batches global_state noise_of_new_rows
""")
_SPARSE = Case("sparse", SparseNKNGP, sparse, takes_rows=False)
_STRUCTURES = Case(
    "structures", StructureEnsembleGP, structures, outputs=False, batches=False, members=4
)
_GRID = Case(
    "grid",
    KroneckerGridGP,
    grid,
    outputs=False,
    known_noise=False,
    takes_rows=False,
    exact=False,
    on_grid=True,
)
CASES = [
    Case("nkn", NKNSingleTaskGP, nkn),
    Case(
        "nkn time series",
        NKNSingleTaskGP,
        partial(nkn, structure="time_series"),
        columns=1,
        checks=_OF_ONE_COLUMN,
    ),
    Case("nkn tasks", NKNMultiTaskGP, multi_task, outputs=False, batches=False, checks=_OF_TASKS),
    _SPARSE,
    Case(
        "variational",
        VariationalNKNGP,
        variational,
        outputs=False,
        batches=False,
        takes_rows=False,
        exact=False,
    ),
    Case("spectral beside", SpectralGP, spectral),
    Case("spectral at points", SpectralGP, partial(spectral, rbf="points"), checks=_AT_POINTS),
    Case("spectral alone", SpectralGP, partial(spectral, rbf=False), checks=_OF_FEATURES),
    _STRUCTURES,
    replace(
        _STRUCTURES,
        name="structures warped",
        make=partial(structures, warped=True),
        columns=3,
        linear=False,
        checks=_OF_WARPS,
    ),
    _GRID,
    # without a batch the results are the same as in the previous case
    replace(
        _GRID, name="grid own kernels", make=partial(grid, own=True), checks=("check_batches",)
    ),
]


def case_of(cls: type[Model]) -> Case:
    """The first case of a class."""
    return next(case for case in CASES if case.cls is cls)
