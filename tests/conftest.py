"""Settings of every test: one thread, float64, a fixed seed, figures without a screen.

Other arithmetic, under which tests hold as well (``make test-portable``): the variable TEST_THREADS
is the number of threads, ``--evaluation PATH`` forces one of the paths by which networks of kernels
are evaluated, ``--uncompiled`` goes without the compiled one, and ``--perturb`` changes what enters
trainings a little.
"""

import os

# Variables that choose the arithmetic of torch, of NumPy and SciPy, and of MKL.
ARITHMETIC = ("ATEN_CPU_CAPABILITY", "OPENBLAS_CORETYPE", "MKL_CBWR", "TEST_THREADS")
THREADS = int(os.environ.get("TEST_THREADS", "1"))
# before NumPy, SciPy or torch read them; subprocesses inherit them
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = str(THREADS)
os.environ["MPLBACKEND"] = "Agg"

import gc  # noqa: E402
import random  # noqa: E402
import sys  # noqa: E402
from contextlib import nullcontext  # noqa: E402
from dataclasses import replace  # noqa: E402
from functools import cache, wraps  # noqa: E402

import pytest  # noqa: E402

from gpytorch_nkn.settings import kernel_evaluation  # noqa: E402


def pytest_addoption(parser):
    parser.addoption(
        "--evaluation",
        choices=["auto", "plain", "tiles", "compiled"],
        help="path by which networks of kernels are evaluated in every test",
    )
    parser.addoption(
        "--uncompiled", action="store_true", help="go without the compiled evaluation of networks"
    )
    parser.addoption(
        "--device", default="cpu", help="run the contract tests there (see tests/devices)"
    )
    parser.addoption(
        "--all-foreign",
        action="store_true",
        help="every combination of tests/foreign; without this option a fixed part of them",
    )
    parser.addoption(
        "--perturb",
        action="store_true",
        help="change what enters trainings by a relative 1e-12 (see tests/perturbation.py)",
    )


def pytest_configure(config):
    if getattr(config.option, "numprocesses", None) and not hasattr(config, "workerinput"):
        import botorch  # noqa: F401  # else threads of xdist import it at once, for warnings

    if config.getoption("--uncompiled"):
        from gpytorch_nkn.kernels.evaluation import native

        native._library = cache(lambda: None)
    if config.getoption("--perturb"):
        from tests.perturbation import perturb_trainings

        perturb_trainings()

    if config.getoption("--device") != "cpu":
        try:
            device_of(config)
        except ValueError as error:
            raise pytest.UsageError(f"--device: {error}") from error


def device_of(config):
    """The device of ``--device``."""
    from tests import devices

    return devices.check(config.getoption("--device"))


@pytest.fixture
def default_evaluation():
    """The default evaluation of networks, despite ``--evaluation``."""
    with kernel_evaluation("auto"):
        yield


def pytest_generate_tests(metafunc):
    if "device" in metafunc.fixturenames and metafunc.config.getoption("--device") != "cpu":
        metafunc.parametrize("device", ["data", "data and default", "default"], indirect=True)


def pytest_collection_modifyitems(config, items):
    """On another device than the CPU, select the tests for devices."""
    if config.getoption("--device") != "cpu":
        wanted = {"device", "bare_device"}
        others = [item for item in items if wanted.isdisjoint(item.fixturenames)]
        config.hook.pytest_deselected(items=others)
        items[:] = [item for item in items if not wanted.isdisjoint(item.fixturenames)]


def pytest_collection_finish(session):
    """Exclude imported objects from garbage collection, which would scan them repeatedly."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(10_000, 20, 50)
    if (logei := sys.modules.get("botorch.acquisition.multi_objective.logei")) is not None:
        logei._load_attempted = True  # else BoTorch compiles its own for half a minute


def pytest_report_header(config):
    options = [f"{name} {os.environ[name]}" for name in ARITHMETIC if name in os.environ]
    if path := config.getoption("--evaluation"):
        options.append(f"evaluation of networks: {path}")
    if config.getoption("--device") != "cpu":
        options.append(f"device: {device_of(config)}")
    options += [name for name in ("uncompiled", "perturb") if config.getoption(f"--{name}")]
    return ", ".join(options)


def pytest_terminal_summary(terminalreporter):
    """Report what this machine could not test."""
    skipped = terminalreporter.stats.get("skipped", [])
    count = sum("test_page_in_browser" in report.nodeid for report in skipped)
    if count:
        terminalreporter.write_line(
            f"Reports were NOT looked at in a browser ({count} tests): no Chromium or Chrome here."
        )


def _seed_everything() -> None:
    import numpy as np
    import torch

    random.seed(0)
    np.random.seed(0)
    if torch.cuda.is_available() or hasattr(torch, "second"):
        torch.manual_seed(0)
    else:  # without the stack that it writes down for GPUs to come, a millisecond of every test
        torch.default_generator.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _settings_of_wider_fixtures():
    import torch

    torch.set_num_threads(THREADS)
    torch.set_default_dtype(torch.float64)
    _seed_everything()


@pytest.fixture(autouse=True)
def _settings(request):
    """The seed and the requested path; a test of one path sets its own."""
    import torch

    _seed_everything()
    path = request.config.getoption("--evaluation")
    with kernel_evaluation(path) if path else nullcontext():
        yield
    torch.set_default_dtype(torch.float64)
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")


@pytest.fixture
def device(request):
    """The device of this test's tensors: the device of ``--device``, or the CPU."""
    from tests import devices

    with devices.made_on(device_of(request.config), getattr(request, "param", "data")) as data:
        yield data


@pytest.fixture
def bare_device(request):
    """The device of ``--device``, which is not the default device."""
    return device_of(request.config)


@pytest.fixture
def one_structure(monkeypatch):
    """Forecasters of the fast quality train the structure that finds outliers, and no other."""
    from gpytorch_nkn.estimators.series.candidates import QUALITIES

    monkeypatch.setitem(QUALITIES, "fast", QUALITIES["fast"][:1])
    monkeypatch.setitem(QUALITIES, "default", QUALITIES["default"][:2])


@pytest.fixture
def few_candidates(monkeypatch, one_structure):
    """Trainings compare fewer candidates in fewer rounds; a search of each kind remains.

    DANK estimators compare two relevances in one round, and two strengths of the factor; ASKL
    estimators hold out two parts of the rows, and try two kernel widths to scale columns.
    """
    from gpytorch_nkn.estimators import DANKClassifier
    from gpytorch_nkn.estimators.askl import askl_base, askl_inputs
    from gpytorch_nkn.estimators.dank import dank_base, dank_classifier, dank_regressor

    few = [replace(path, penalties=path.penalties[:1]) for path in DANKClassifier._paths[:2]]
    monkeypatch.setattr(DANKClassifier, "_paths", tuple(few))
    monkeypatch.setattr(dank_classifier, "_REPEATS", 1)
    for module in (dank_classifier, dank_regressor):
        monkeypatch.setattr(module, "FOLDS", 2)
    choose_eta = dank_base.choose_eta
    monkeypatch.setattr(
        dank_base, "choose_eta", lambda task, shares, cost: choose_eta(task, shares[:2], cost)
    )
    held_out = askl_base.held_out_parts
    monkeypatch.setattr(askl_base, "held_out_parts", lambda *data: held_out(*data)[:2])
    monkeypatch.setattr(askl_inputs, "_GAMMAS", askl_inputs._GAMMAS[1:4:2])


@pytest.fixture
def few_iterations(monkeypatch, few_candidates):
    """Few iterations of optimisers and samples of effects, where their results do not matter."""
    from botorch.optim import batched_lbfgs_b
    from scipy import optimize

    from gpytorch_nkn.fit import minimize
    from gpytorch_nkn.interpretation.effects import sobol_indices
    from gpytorch_nkn.interpretation.reporting import page
    from gpytorch_nkn.models.grid import fit_grid

    scipy_minimize, adam = optimize.minimize, minimize.adam
    batched, name = batched_lbfgs_b.fmin_l_bfgs_b_batched, "fmin_l_bfgs_b_batched"

    @wraps(scipy_minimize)
    def few(*args, options=None, **others):
        options = options or {}
        return scipy_minimize(*args, options={**options, "maxiter": 3}, **others)

    monkeypatch.setattr(optimize, "minimize", few)
    monkeypatch.setattr(batched_lbfgs_b, name, lambda **o: batched(**o | {"maxiter": 3}))
    for module in (minimize, fit_grid):
        monkeypatch.setattr(module, "adam", lambda flat, n, *more: adam(flat, min(n, 3), *more))
    monkeypatch.setattr(page, "_DPI", 20)
    monkeypatch.setattr(
        sys.modules["gpytorch_nkn.interpretation.effects"],
        "sobol_indices",
        lambda n, **others: sobol_indices(n=64, **others),
    )
