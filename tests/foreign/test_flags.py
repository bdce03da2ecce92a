"""Every public boolean option rejects what is neither True nor False, such as ``"no"``."""

import contextlib
import importlib
import inspect
import pkgutil
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from gpytorch.kernels import RBFKernel

import gpytorch_nkn
from gpytorch_nkn import (
    datasets,
    estimators,
    fit,
    grids,
    interpretation,
    kernels,
    layers,
    models,
    plotting,
)
from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.estimators import NKNForecaster, NKNRegressor
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import KroneckerGridGP, NKNSingleTaskGP, SpectralGP, StructureEnsembleGP

X = torch.rand(8, 2, generator=torch.Generator().manual_seed(0), dtype=torch.float64)
Y = X.sum(-1, keepdim=True)
TASKS = torch.cat([X, torch.arange(8.0, dtype=X.dtype).view(8, 1) % 2], -1)
IMAGE = np.add.outer(np.sin(range(14)), np.cos(range(12)))
SERIES = pd.DataFrame({"unique_id": "a", "ds": range(9), "y": np.sin(range(9))})
SHORT = {"recipe": fit.Recipe(adam_steps=0, lbfgs_iterations=1), "restarts": 1, "random_state": 0}
# Options of GPyTorch, BoTorch and PyTorch, which raises an error of its own; fields of results,
# methods for templates, and sktime's class.
OTHERS = {
    "Component", "Decomposition", "Decomposition.curves_at", "Decomposition.posterior_at",
    "Report.checking", "SearchReport", "SearchReport.checking", "SktimeNKNForecaster",
    "VariationalNKNGP.posterior", "add_constrained", "assign", "diag", "interrupted",
    "keep_transforms", "last_dim_is_batch", "mode",
    "of_holes", "strict", "validate_args",
}  # fmt: skip


def ensemble():
    return StructureEnsembleGP(X, Y, num_members=4)


def grid():
    return KroneckerGridGP([X[:3, :1], X[:4, :1]], Y[:3] + Y[:4].T, [RBFKernel(), RBFKernel()])


CALLS = {
    "Decomposition.posterior": lambda **o: interpretation.decompose(
        NKNSingleTaskGP(X, Y, structure="additive")
    ).posterior(X, **o),
    "KroneckerGridGP.predict": lambda **o: grid().predict(**o),
    "KroneckerGridGP.sample": lambda **o: grid().sample(1, **o),
    "Linear": lambda **o: layers.Linear(2, 1, **o),
    "NKNForecaster.predict": lambda **o: (
        NKNForecaster(quality="fast", budget=0.01, random_state=0)
        .fit(range(9), np.sin(range(9)))
        .predict([9], **o)
    ),
    "NKNRegressor.predict": lambda **o: (
        NKNRegressor("rbf", **SHORT).fit(X.numpy(), Y[:, 0].numpy()).predict(X.numpy(), **o)
    ),
    "NKNRegressor.sample_y": lambda **o: (
        NKNRegressor("rbf", **SHORT).fit(X.numpy(), Y[:, 0].numpy()).sample_y(X.numpy(), **o)
    ),
    "NeuralKernelNetwork": lambda **o: NeuralKernelNetwork([RBFKernel()], [], **o),
    "NonStationarySpectralKernel": lambda **o: kernels.NonStationarySpectralKernel(2, 1, **o),
    "Recipe": fit.Recipe,
    "SpectralGP": lambda **o: SpectralGP(X, Y, **o),
    "StructureEnsembleGP": lambda **o: StructureEnsembleGP(X, Y, **o),
    "fit_best_of": lambda **o: fit.fit_best_of(NKNSingleTaskGP(X, Y), **o),
    "fit_bo_model": lambda **o: fit_bo_model(NKNSingleTaskGP(X, Y), **o),
    "fit_grid_gp": lambda **o: models.fit_grid_gp(grid(), **o),
    "fit_in_stages": lambda **o: fit.fit_in_stages(NKNSingleTaskGP(X, Y), **o),
    "fit_sparse_gp": lambda **o: models.fit_sparse_gp(models.SparseNKNGP(X, Y), **o),
    "fit_spectral_gp": lambda **o: models.fit_spectral_gp(SpectralGP(X, Y), **o),
    "fit_structure_ensemble_gp": lambda **o: models.fit_structure_ensemble_gp(ensemble(), **o),
    "fit_variational_gp": lambda **o: models.fit_variational_gp(models.VariationalNKNGP(X, Y), **o),
    "forecast_many": lambda **o: estimators.forecast_many(SERIES, 1, **o),
    "inpaint": lambda **o: grids.inpaint(IMAGE, IMAGE > 1.6, budget=0.1, **o),
    "report": lambda **o: interpretation.report(NKNSingleTaskGP(X, Y), **o),
    "expand": lambda **o: interpretation.expand(NeuralKernelNetwork.additive(2), X, **o),
    "parse_wiring": lambda **o: layers.parse_wiring("Linear2-Linear1", 2, **o),
    "plot_progress": lambda **o: plotting.plot_progress(None, [1.0, 2.0], **o),
    "read_time_series": lambda **o: datasets.read_time_series("none.csv", **o),
    "report_search": lambda **o: interpretation.report_search(NKNSingleTaskGP(X, Y), **o),
    "simplify": lambda **o: interpretation.simplify(NKNSingleTaskGP(X, Y), **o),
}
for name in ("ASKLClassifier", "ASKLRegressor", "NKNClassifier", "NKNForecaster", "NKNRegressor"):
    cls = getattr(estimators, name)
    CALLS[name] = lambda cls=cls, **o: cls(**o).fit(X.numpy(), (Y[:, 0] > 1).numpy())
for cls in (models.NKNSingleTaskGP, models.SparseNKNGP, models.VariationalNKNGP, SpectralGP):
    CALLS[f"{cls.__name__}.predict"] = lambda cls=cls, **o: cls(X, Y).predict(X, **o)
CALLS["NKNMultiTaskGP.predict"] = lambda **o: models.NKNMultiTaskGP(TASKS, Y, -1).predict(X, **o)
CALLS["StructureEnsembleGP.predict"] = lambda **o: ensemble().predict(X, **o)
for preset in ("additive", "optimization", "pairs", "regression", "tabular"):
    make = getattr(NeuralKernelNetwork, preset)
    CALLS[f"NeuralKernelNetwork.{preset}"] = lambda make=make, **o: make(2, **o)
for preset in ("texture", "time_series"):
    CALLS[f"NeuralKernelNetwork.{preset}"] = getattr(NeuralKernelNetwork, preset)
CALLS["NeuralKernelNetwork.forecast"] = partial(NeuralKernelNetwork.forecast, origin=0.0)


def flags():
    """Names of public functions, classes and methods, and their boolean options."""
    for room in pkgutil.iter_modules(gpytorch_nkn.__path__):
        face = importlib.import_module(f"gpytorch_nkn.{room.name}")
        for name in getattr(face, "__all__", ()):
            calls = {name: getattr(face, name)}
            if inspect.isclass(calls[name]):
                own = [n for n in dir(calls[name]) if n[0] != "_"]
                calls |= {f"{name}.{n}": getattr(calls[name], n, None) for n in own}
            for label, call in calls.items():
                if getattr(call, "__module__", "").startswith("gpytorch_nkn") and callable(call):
                    with contextlib.suppress(ValueError):  # exceptions have no signature
                        for option in inspect.signature(call).parameters.values():
                            if str(option.annotation) in ("bool", "bool | None"):
                                yield label, option.name


FLAGS = {(name, o) for name, o in flags() if not OTHERS & {name, o, name.rpartition(".")[2]}}


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("name", "option"), sorted(FLAGS))
def test_only_true_and_false_are_flags(name, option):
    with pytest.raises(TypeError, match=f"{option} must be True.* or "):
        CALLS[name](**{option: "no"})
