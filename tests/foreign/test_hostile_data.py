"""Every public class, method and function that takes data, given data with each fault.

The result must be finite numbers, or an error that states what was expected. Public names and
signatures are read from the packages, so that a class, method or function without an entry fails.
Kernels raise GPyTorch's errors, and figures have their own contract.
"""

import importlib
import inspect
import pkgutil
import warnings
from copy import deepcopy

import numpy as np
import pytest
import torch
from botorch.models.model import Model
from gpytorch.kernels import RBFKernel
from sklearn.base import BaseEstimator

import gpytorch_nkn
from gpytorch_nkn import (
    averaging,
    baselines,
    bo,
    datasets,
    estimators,
    fit,
    grids,
    initialization,
    interpretation,
    metrics,
    mlls,
    models,
)
from gpytorch_nkn.kernels import NeuralKernelNetwork
from tests.estimators.test_contract import MAKE, data as table_of
from tests.foreign.hostile import FAULTS, check_call, faulty, not_finite
from tests.models.registry import case_of

TIMES = np.arange(30.0)
WAVE = np.sin(TIMES / 3) + 0.1 * np.cos(7 * TIMES)
IMAGE = np.add.outer(np.sin(TIMES[:14]), np.cos(TIMES[:12]))
HOLE = np.zeros(IMAGE.shape, dtype=bool)
HOLE[3:6, 3:5] = True
X = torch.rand(14, 3, generator=torch.Generator().manual_seed(0), dtype=torch.float64)

# What takes arrays, with arguments that are right.
FUNCTIONS = {
    initialization.change_points: (initialization.change_points, (TIMES, WAVE)),
    initialization.periodogram_peaks: (initialization.periodogram_peaks, (TIMES, WAVE)),
    initialization.median_distances: (initialization.median_distances, (X,)),
    initialization.initialize_from_data: (
        lambda x, y: list(
            initialization.initialize_from_data(
                NeuralKernelNetwork.regression(3), x, y
            ).state_dict()
        ),
        (X, X.sum(-1)),
    ),
    models.gradient_posterior: (
        lambda x: (
            models.gradient_posterior(
                models.NKNSingleTaskGP(X, X.sum(-1, keepdim=True), structure="additive"), x
            ).mean
        ),
        (X[:3],),
    ),
    baselines.seasonal_naive_forecast: (
        lambda x, y, new: baselines.seasonal_naive_forecast(x, y, new).mean(),
        (TIMES, WAVE, TIMES[:5] + 30),
    ),
    metrics.forecast_scores: (
        lambda y, mean, lower, upper, density: metrics.forecast_scores(
            y, mean=mean, lower=lower, upper=upper, log_density=density
        ),
        (WAVE, WAVE + 0.1, WAVE - 1, WAVE + 1, -(WAVE**2)),
    ),
    metrics.interval_coverage: (metrics.interval_coverage, (WAVE, WAVE - 1, WAVE + 1)),
    averaging.stacking_weights: (
        averaging.stacking_weights,
        (np.random.default_rng(0).normal(size=(10, 3)),),
    ),
    interpretation.expand: (
        lambda x: interpretation.expand(
            NeuralKernelNetwork.additive(3, wiring="Linear4-Product2-Linear1"), x
        ),
        (X,),
    ),
    grids.inpaint: (
        lambda image, mask, noise: (
            grids.inpaint(image, mask, noise_variance=noise, budget=0.05).filled
        ),
        (IMAGE, HOLE, np.full(IMAGE.shape, 0.01)),
    ),
}
# Functions that take no arrays: models, kernels, names or files, whose tests are elsewhere.
WITHOUT_ARRAYS = {
    bo.coordinate_sweep_initial_conditions,
    bo.fit_bo_model,
    datasets.load_co2,
    datasets.read_time_series,
    estimators.forecast_many,  # a data frame
    fit.fit_best_of,
    fit.fit_in_stages,
    initialization.initialize_grid_kernels,
    initialization.initialize_model,
    interpretation.decompose,
    interpretation.effects,
    interpretation.report,
    interpretation.report_search,
    interpretation.simplify,
    mlls.exact_log_density,  # as the log_prob of GPyTorch's distribution
    *models.TRAINERS.values(),
    models.spectral_features,
}
# Rooms without functions or models of data, or with a contract of their own in their tests.
OTHER_ROOMS = {
    "ax", "cli", "kernels", "layers", "linalg", "plotting", "settings", "sktime",
}  # fmt: skip
ROOMS = [
    importlib.import_module(f"gpytorch_nkn.{found.name}")
    for found in pkgutil.iter_modules(gpytorch_nkn.__path__)
    if found.name not in OTHER_ROOMS and not found.name.startswith("_")
]


def public(room, base):
    found = (getattr(room, name) for name in room.__all__)
    return [one for one in found if inspect.isclass(one) and issubclass(one, base)]


def grid_model(rows, columns, values):
    return models.KroneckerGridGP([rows, columns], values, [RBFKernel(), RBFKernel()])


def multi_task_model(x, y):
    """Tasks 0 and 1 in turn; task 0 is the output."""
    if isinstance(x, torch.Tensor) and x.dim() == 2:
        x = torch.cat([x, (torch.arange(len(x)) % 2).unsqueeze(-1).to(x)], -1)
    return models.NKNMultiTaskGP(x, y, -1, output_tasks=[0])


CONSTRUCTORS = {
    models.NKNSingleTaskGP: models.NKNSingleTaskGP,
    models.NKNMultiTaskGP: multi_task_model,
    models.SpectralGP: models.SpectralGP,
    models.StructureEnsembleGP: models.StructureEnsembleGP,
    models.SparseNKNGP: lambda x, y: models.SparseNKNGP(x, y, inducing_points=5),
    models.VariationalNKNGP: lambda x, y: models.VariationalNKNGP(x, y, inducing_points=5),
    models.KroneckerGridGP: grid_model,
}


# Arguments of methods by their names, next to those that are the points of a class.
METHOD_ARRAYS = {
    "scaled": np.linspace(0, 1, 30),
    "weights": torch.tensor([0.7, 0.3], dtype=torch.float64),
    "mean": torch.zeros(6, dtype=torch.float64),
    "root": torch.eye(6, dtype=torch.float64),
    "probabilities": np.array([0.1, 0.5, 0.9]),
}
DATA_NAMES = ("X", "Y", "x", "y", "cells", "noise_variance")  # given even where optional
# Methods whose arguments are no data: numbers, options, raw parameters, other objects. And methods
# of GPyTorch, which say what its own say. (Chunks of rows have a test of their own; two of a
# classifier, of standardised rows, serve `effects`, which checks its data.)
NO_DATA_METHODS = {
    "class_probabilities", "construct_inputs", "custom_fit", "fantasize",
    "forecast", "forward", "get_fantasy_model", "get_params", "linearised", "load_state_dict",
    "member_parts", "on_common_scale", "plot", "sample", "sample_paths", "sample_y",
    "set_member_values", "set_train_data", "subset_output", "train", "trimmed",
}  # fmt: skip


def methods(cls):
    """Public methods of a class that take data, with the names of their arguments."""
    for name in sorted(set(dir(cls))):
        method = inspect.getattr_static(cls, name)
        method = getattr(method, "__func__", method)
        of_a_library = not str(getattr(method, "__module__", "")).startswith("gpytorch_nkn")
        if name.startswith("_") or not inspect.isfunction(method) or name in NO_DATA_METHODS:
            continue
        if of_a_library and name not in ("score", "predict"):
            continue
        given = list(inspect.signature(method).parameters.values())[1:]
        given = [p for p in given if p.kind < p.VAR_POSITIONAL or p.name in DATA_NAMES]
        taken = [p.name for p in given if p.default is p.empty or p.name in DATA_NAMES]
        if taken:
            yield name, taken


def method_calls(cls, fitted, arrays, reset):
    """Calls of all methods of a class, on copies where a method may change what it is of."""
    for name, taken in methods(cls):

        def call(*given, name=name, last="noise_variance" in taken):
            options = {"noise_variance": given[-1]} if last else {}
            given = given[:-1] if last else given
            answer = getattr(deepcopy(fitted) if name in reset else fitted, name)(*given, **options)
            return _parts(answer)

        yield f"{cls.__name__}.{name}", call, tuple(arrays[one] for one in taken)


def entries():
    """Names, calls and arguments of all that takes data."""
    for function, (call, arguments) in FUNCTIONS.items():
        yield function.__name__, call, arguments
    for cls, make in CONSTRUCTORS.items():
        case = case_of(cls)
        data = case.data()
        data = (*data[0], data[1]) if case.on_grid else data
        model, points = case.model(), case.points(4)
        _at(model, points)  # as GPyTorch wants it before conditioning
        yield (
            cls.__name__,
            lambda *data, make=make, at=points: _moments(make(*data).eval(), at),
            data,
        )
        tasks = cls is models.NKNMultiTaskGP
        rows = torch.nn.functional.pad(points, (0, 1), value=3.0) if tasks else points
        arrays = METHOD_ARRAYS | {"X": rows, "x": points, "Y": points[:, :1]}
        if case.on_grid:
            blocks = torch.zeros(2, 4, 5, dtype=torch.bool)
            blocks[0, 0, :2] = blocks[1, 3, 3:] = True
            arrays |= {"cells": data[-1].isnan(), "blocks": blocks}
        yield from method_calls(cls, model, arrays, {"set_weights"})
    for cls, make in MAKE.items():
        x, y = table_of(cls, 30)
        later = METHOD_ARRAYS | {"x": x + 30, "X": x, "Y": x, "y": y, "noise_variance": np.ones(30)}
        short = {}
        if "recipe" in inspect.signature(cls).parameters:
            short = {"recipe": fit.Recipe(adam_steps=0, lbfgs_iterations=1)}
            short |= {} if cls is estimators.NKNForecaster else {"structure": "rbf"}
        fitted = make(random_state=0, **short).fit(x, y)
        reset = {"fit", "partial_fit", "update"}
        yield from method_calls(cls, fitted, later, reset)


def _parts(answer):
    """The numbers of an answer: moments, or what a generator yields."""
    if isinstance(answer, Model):
        return ()
    if inspect.isgenerator(answer):
        return list(answer)
    if hasattr(answer, "log_density"):  # a distribution
        return answer.quantile(0.5), answer.std()
    return (answer.mean, answer.variance) if hasattr(answer, "variance") else answer


def _at(model, points):
    with torch.no_grad():
        posterior = model.posterior(points)
    return posterior.mean, posterior.variance


def _moments(model, points):
    return _at(model, points.to(next(model.parameters()).dtype))


def test_every_public_class_and_function_is_here():
    functions = {
        getattr(room, name)
        for room in ROOMS
        for name in room.__all__
        if inspect.isfunction(getattr(room, name))
    }
    known = FUNCTIONS.keys() | WITHOUT_ARRAYS
    names = [f.__name__ for f in functions - known]
    assert not names, f"enter {names} into FUNCTIONS, or WITHOUT_ARRAYS"
    assert not known - functions, "what is no longer public"
    assert set(public(models, Model)) == CONSTRUCTORS.keys()
    assert set(public(estimators, BaseEstimator)) == MAKE.keys()


def test_every_room_is_here_or_has_tests_of_its_own():
    rooms = {found.name for found in pkgutil.iter_modules(gpytorch_nkn.__path__)}
    assert rooms >= OTHER_ROOMS
    assert {room.__name__.rpartition(".")[2] for room in ROOMS} >= {"estimators", "models"}


@pytest.fixture(scope="module")
def calls():
    return {name: (call, arguments) for name, call, arguments in entries()}


NAMES = [
    *(function.__name__ for function in FUNCTIONS),
    *(cls.__name__ for cls in CONSTRUCTORS),
    *(f"{cls.__name__}.{name}" for cls in [*CONSTRUCTORS, *MAKE] for name, _ in methods(cls)),
]


@pytest.mark.usefixtures("few_candidates")
def test_right_arguments_are_answered(calls):
    """Only methods that a model does not have raise an error."""
    assert calls.keys() == set(NAMES)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        for name, (call, arguments) in calls.items():
            try:
                assert not not_finite(call(*arguments)), name
            except NotImplementedError:
                assert name.endswith(".condition_on_observations")


def is_meant(name, fault, place):
    """Whether documentation says what NaN or infinity in an argument stands for."""
    if fault == "nan":  # missing values
        of_rows = name.startswith(("NKNClassifier.", "NKNRegressor.")) and place == 0
        return of_rows or name in ("inpaint", "KroneckerGridGP", "stacking_weights")
    return name in ("forecast_scores", "interval_coverage", "stacking_weights")


@pytest.mark.usefixtures("few_candidates")
@pytest.mark.parametrize("name", NAMES)
def test_an_answer_or_a_sentence(name, calls, request):
    """In a quick run a call meets NaN, infinity and every second other fault.

    One argument after another has the fault.
    """
    call, arguments = calls[name]
    everything = request.config.getoption("--all-foreign")
    arrays = [k for k, one in enumerate(arguments) if isinstance(one, np.ndarray | torch.Tensor)]
    places = arrays if len(arrays) == 1 else [*arrays, -1]
    wrong = []
    few = ["nan", "inf", *[*FAULTS][2 + NAMES.index(name) % 2 :: 2]]
    for turn, fault in enumerate(FAULTS if everything else few):
        for place in places if everything else [places[turn % len(places)]]:
            try:
                bad = faulty(arguments, place, fault)
            except (TypeError, ValueError, IndexError, RuntimeError):
                continue  # there is no such fault of such an array
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                must_fail = fault in ("nan", "inf") and not is_meant(name, fault, place)
                found = check_call(lambda bad=bad: call(*bad), must_fail)
            if found and not (name.endswith(".score") and fault == "one row"):  # R2 is NaN
                wrong.append(f"{fault} in argument {place}: {found}")
    assert not wrong, "\n".join(wrong)
