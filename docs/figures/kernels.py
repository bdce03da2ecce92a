"""Pictures of docs/kernels.md: functions drawn from the prior of each kernel.

Run ``python docs/figures/kernels.py [NAME ...]`` in the root of the repository.
"""

import sys
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel

from gpytorch_nkn import kernels
from gpytorch_nkn.layers import Linear, Product

FIGURES = Path(__file__).parent
BLUE, ORANGE, GRAY = "#1f5fa8", "#d1580b", "#808080"
X = torch.linspace(0, 10, 300, dtype=torch.float64)


def periodic(period):
    return PeriodicKernel().initialize(period_length=period, lengthscale=1.0)


def smooth(lengthscale):
    return RBFKernel().initialize(lengthscale=lengthscale)


def network():
    """Sums and products of a smooth, a periodic and a linear kernel."""
    parts = [smooth(4.0), periodic(2.0), kernels.CenteredLinearKernel()]
    return kernels.NeuralKernelNetwork(parts, [Linear(3, 4), Product(4, 2), Linear(2, 1)])


def factor():
    anchors = torch.tensor([[2.0], [5.0], [8.0]])
    kernel = kernels.DataAdaptiveHadamardKernel(smooth(0.5), anchors, rank=1)
    kernel.weights.data[:] = torch.tensor([[0.0], [0.0], [6.0]])
    return kernel


MAKE = {
    "NeuralKernelNetwork": network,
    "WienerKernel": lambda: kernels.WienerKernel(origin=0.0),
    "IntegratedWienerKernel": lambda: kernels.IntegratedWienerKernel(origin=0.0),
    "DampedTrendKernel": lambda: kernels.DampedTrendKernel(origin=0.0),
    "ChangePointKernel": lambda: kernels.ChangePointKernel(
        smooth(2.0), MaternKernel(nu=0.5), location=6.0, width=0.1
    ),
    "StepKernel": lambda: smooth(3.0) + ScaleKernel(kernels.StepKernel(location=6.0, width=0.05)),
    "ZeroMeanPeriodicKernel": lambda: kernels.ZeroMeanPeriodicKernel().initialize(
        period_length=2.5
    ),
    "CenteredLinearKernel": lambda: kernels.CenteredLinearKernel(),
    "SpectralComponentKernel": lambda: kernels.SpectralComponentKernel().initialize(
        lengthscale=3.0, frequency=4.0
    ),
    "DataAdaptiveHadamardKernel": factor,
}


def draw(name):
    torch.manual_seed(3)
    kernel = MAKE[name]().double()
    with torch.no_grad():
        matrix = kernel(X[:, None]).to_dense()
        root = torch.linalg.cholesky(matrix + 1e-6 * matrix.diagonal().mean() * torch.eye(len(X)))
    figure, ax = plt.subplots(figsize=(3.2, 1.7), layout="constrained")
    for values, color in zip(
        (root @ torch.randn(len(X), 3).double()).T, (BLUE, ORANGE, GRAY), strict=True
    ):
        ax.plot(X, values, color=color, lw=1.3)
    ax.set(xticks=[], yticks=[])
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(FIGURES / f"kernel_{name}.png", dpi=120, facecolor="white")


if __name__ == "__main__":
    for name in sys.argv[1:] or MAKE:
        draw(name)
