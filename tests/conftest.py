"""Settings of every test: one thread, float64, a fixed seed, figures without a screen.

``pytest --evaluation PATH`` forces one of the paths by which networks of kernels are evaluated.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = "1"  # before NumPy, SciPy or torch read them; subprocesses inherit them
os.environ["MPLBACKEND"] = "Agg"

import random  # noqa: E402
import sys  # noqa: E402
from contextlib import nullcontext  # noqa: E402

import numpy as np  # noqa: E402
import pytest  # noqa: E402
import torch  # noqa: E402

from gpytorch_nkn.settings import kernel_evaluation  # noqa: E402

torch.set_num_threads(1)


def pytest_addoption(parser):
    parser.addoption(
        "--evaluation",
        choices=["auto", "plain", "autograd", "closed_form", "compiled"],
        help="path by which networks of kernels are evaluated in every test",
    )


def pytest_report_header(config):
    path = config.getoption("--evaluation")
    return f"evaluation of networks: {path}" if path else None


@pytest.fixture(autouse=True)
def _evaluation(request):
    """The path that was asked for; a test of one path sets its own."""
    path = request.config.getoption("--evaluation")
    with kernel_evaluation(path) if path else nullcontext():
        yield


def _seed_everything() -> None:
    random.seed(0)
    np.random.seed(0)
    torch.manual_seed(0)


@pytest.fixture(scope="session", autouse=True)
def _float64_and_seed_for_wider_fixtures():
    """Fixtures of module or session scope are made before those of a test: same settings."""
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    _seed_everything()
    yield
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def _float64():
    before = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    yield
    torch.set_default_dtype(before)


@pytest.fixture(autouse=True)
def _seed():
    _seed_everything()


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    if "matplotlib.pyplot" in sys.modules:
        sys.modules["matplotlib.pyplot"].close("all")
