"""What one training step of a Neural Kernel Network costs, in steps of a stock RBF kernel.

``python -m benchmarks.step`` times the value and gradient of the exact marginal likelihood (all
with Cholesky factorisations) of two preset networks, evaluated in several ways, and of GPyTorch's
RBF kernel under GPyTorch's likelihood. The ways take turns, so that whatever else the machine does
meets them alike; each figure is the median over the turns of its time divided by the RBF's, with
the lowest and highest. ``--memory`` measures, in a process of its own for each way, the highest
resident size above that of a small step, in multiples of an N x N matrix.
"""

import os
import sys

_THREADS = sys.argv[sys.argv.index("--threads") + 1] if "--threads" in sys.argv else "1"
for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ[_name] = _THREADS  # before NumPy and torch read them

import argparse  # noqa: E402
import json  # noqa: E402
import platform  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from importlib import metadata  # noqa: E402
from pathlib import Path  # noqa: E402
from statistics import median  # noqa: E402

import gpytorch  # noqa: E402
import torch  # noqa: E402
from gpytorch.distributions import MultivariateNormal  # noqa: E402
from gpytorch.kernels import (  # noqa: E402
    AdditiveKernel,
    ConstantKernel,
    Kernel,
    ProductKernel,
    RBFKernel,
    ScaleKernel,
)
from gpytorch.likelihoods import GaussianLikelihood  # noqa: E402
from gpytorch.means import ConstantMean  # noqa: E402
from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: E402
from gpytorch.models import ExactGP  # noqa: E402

from gpytorch_nkn.fit.minimize import FlatParameters  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402
from gpytorch_nkn.kernels.evaluation import instruction_set  # noqa: E402
from gpytorch_nkn.layers import Linear  # noqa: E402
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood  # noqa: E402
from gpytorch_nkn.settings import kernel_evaluation  # noqa: E402

__all__ = ["Regression", "main", "training_step"]

_SMALL = 500  # a step of so many points takes what any step does: libraries and their workspaces
_INPUT_DIMS = {"1-D": 1, "8-D": 8}


@dataclass(frozen=True)
class _Way:
    """A kernel, how it is evaluated, and the likelihood that it is trained by."""

    kernel: str
    path: str
    likelihood: str


_BASE = "RBF, stock"
_WAYS = {
    _BASE: _Way("rbf", "plain", "stock"),
    "RBF, our likelihood": _Way("rbf", "plain", "analytic"),
    "composed of GPyTorch's kernels": _Way("composed", "plain", "stock"),
    "network, plain": _Way("network", "plain", "stock"),
    "network, autograd by tiles": _Way("network", "tiles", "stock"),
    "drop-in": _Way("network", "tiles", "stock"),
    "our likelihood": _Way("network", "tiles", "dense"),
    "fused loss": _Way("network", "tiles", "fused"),
    "compiled drop-in": _Way("network", "compiled", "stock"),
    "compiled, our likelihood": _Way("network", "compiled", "dense"),
    "compiled fused loss": _Way("network", "compiled", "fused"),
}
_SLOW = {"composed of GPyTorch's kernels"}


class Regression(ExactGP):
    """A GP with a constant mean."""

    def __init__(self, x: torch.Tensor, y: torch.Tensor, kernel: Kernel):
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.covar_module = kernel

    def forward(self, x: torch.Tensor) -> MultivariateNormal:
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


def training_step(way: str, network: str, num_points: int) -> Callable[[], object]:
    """A function that computes value and gradient once.

    Args:
        way: How, as ``"compiled fused loss"``.
        network: ``"1-D"`` or ``"8-D"``.
        num_points: Number of rows.
    """
    return _make_step(_WAYS[way], network, num_points)


def _make_step(way: _Way, network: str, num_points: int) -> Callable[[], object]:
    dim = _INPUT_DIMS[network]
    generator = torch.Generator().manual_seed(0)
    x = 3 * torch.rand(num_points, dim, generator=generator, dtype=torch.float64)
    noise = torch.randn(num_points, generator=generator, dtype=torch.float64)
    y = torch.sin(3 * x.sum(-1)) + 0.1 * noise
    model = Regression(x, y, _make_kernel(way.kernel, dim)).double().train()
    if way.likelihood == "fused":
        flat = FlatParameters(model)
        return flat.evaluate
    analytic = way.likelihood != "stock"
    make = AnalyticExactMarginalLogLikelihood if analytic else ExactMarginalLogLikelihood
    mll = make(model.likelihood, model)

    def step() -> None:
        for parameter in model.parameters():
            parameter.grad = None
        with gpytorch.settings.lazily_evaluate_kernels(way.likelihood != "dense"):
            (-mll(model(x), y)).backward()

    return step


def _make_kernel(name: str, dim: int) -> Kernel:
    if name == "rbf":
        return ScaleKernel(RBFKernel(ard_num_dims=dim if dim > 1 else None))
    if dim == 1:
        network = NeuralKernelNetwork.time_series(priors=False)
    else:
        network = NeuralKernelNetwork.regression(dim, priors=False)
    return network if name == "network" else _composed(network)


def _composed(network: NeuralKernelNetwork) -> Kernel:
    """The same network out of GPyTorch's sums, products and scales."""
    units: list[Kernel] = list(network.primitives)
    for layer in network.layers:
        if isinstance(layer, Linear):
            units = [
                AdditiveKernel(*(ScaleKernel(unit) for unit in units), ConstantKernel())
                for _ in range(layer.out_features)
            ]
        else:
            size = layer.in_features // layer.out_features
            groups = [units[i : i + size] for i in range(0, len(units), size)]
            units = [ProductKernel(*group) for group in groups]
    return units[0]


def _run(way: _Way, step: Callable[[], object]) -> float:
    with kernel_evaluation(way.path), gpytorch.settings.max_cholesky_size(10**6):
        start = time.perf_counter()
        step()
        return time.perf_counter() - start


def _time(names: Sequence[str], network: str, num_points: int, turns: int) -> dict[str, list]:
    """Seconds of every turn; ways that take minutes get one turn."""
    steps = {name: _make_step(_WAYS[name], network, num_points) for name in names}
    seconds: dict[str, list[float]] = {name: [] for name in names}
    for name in names:
        if name not in _SLOW:
            _run(_WAYS[name], steps[name])  # the first step of a model sets things up
    for turn in range(turns):
        for name in names:
            if name not in _SLOW or turn == 0:
                seconds[name].append(_run(_WAYS[name], steps[name]))
    return seconds


def _peak(name: str, network: str, num_points: int) -> float:
    """Highest resident size above that after a small step, in N x N doubles."""
    _run(_WAYS[name], _make_step(_WAYS[name], network, _SMALL))
    step = _make_step(_WAYS[name], network, num_points)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(2):
        _run(_WAYS[name], step)
    after = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    kilobyte = 1 if sys.platform == "darwin" else 1024
    return (after - before) * kilobyte / (8 * num_points**2)


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table per network."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.step", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[144, 500, 1000, 2000, 4000])
    parser.add_argument("--networks", nargs="+", choices=_INPUT_DIMS, default=list(_INPUT_DIMS))
    parser.add_argument("--ways", nargs="+", choices=_WAYS, metavar="WAY")
    parser.add_argument(
        "--turns",
        type=int,
        default=7,
        help="at 1,000 points and more; smaller sizes take more (default: %(default)s)",
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--memory", action="store_true", help="memory instead of time")
    parser.add_argument("--out", type=Path, metavar="FILE", help="also write the results as JSON")
    parser.add_argument("--peak", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args(argv)
    torch.set_num_threads(args.threads)
    if args.peak is not None:
        print(_peak(args.peak[0], args.peak[1], int(args.peak[2])))
        return 0
    names = args.ways or [name for name in _WAYS if name not in _SLOW]
    if instruction_set() is None:
        names = [name for name in names if _WAYS[name].path != "compiled"]
    if _BASE not in names:
        names = [_BASE, *names]
    results = []
    for network in args.networks:
        rows: dict[str, list[str]] = {name: [] for name in names}
        for size in args.sizes:
            found = (
                {name: _peak_elsewhere(name, network, size, args.threads) for name in names}
                if args.memory
                else _time(names, network, size, args.turns * max(1, 1000 // size))
            )
            results.append({"network": network, "size": size, "values": found})
            for name in names:
                rows[name].append(_cell(found, name, args.memory))
            print(f"{network}, N = {size}: done", file=sys.stderr)
        print(_table(network, args, rows))
    versions = {name: metadata.version(name) for name in ("torch", "gpytorch", "gpytorch_nkn")}
    print(
        f"{', '.join(f'{k} {v}' for k, v in versions.items())}; {args.threads} thread(s) of "
        f"{platform.machine()}, compiled code for {instruction_set()}."
    )
    if args.out is not None:
        content = {"threads": args.threads, "versions": versions, "results": results}
        args.out.write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    return 0


def _peak_elsewhere(name: str, network: str, size: int, threads: int) -> float:
    command = [sys.executable, "-m", "benchmarks.step", "--threads", str(threads)]
    command += ["--peak", name, network, str(size)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def _cell(found: dict, name: str, memory: bool) -> str:
    if memory:
        return f"{found[name]:.1f}"
    ratios = sorted(own / base for own, base in zip(found[name], found[_BASE], strict=False))
    if name == _BASE:
        return f"{1e3 * median(found[name]):.1f} ms"
    return f"{median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"


def _table(network: str, args: argparse.Namespace, rows: dict[str, list[str]]) -> str:
    unit = "peak memory in N x N doubles" if args.memory else "multiples of the RBF step"
    lines = [
        f"{network} network, {unit}:",
        "",
        "| way | " + " | ".join(f"N = {size:,}" for size in args.sizes) + " |",
        "| --- |" + " --- |" * len(args.sizes),
    ]
    lines += [f"| {name} | " + " | ".join(cells) + " |" for name, cells in rows.items()]
    return "\n".join([*lines, ""])


if __name__ == "__main__":
    sys.exit(main())
