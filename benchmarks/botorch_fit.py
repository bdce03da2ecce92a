"""How long a BoTorch model takes to fit, with BoTorch's own kernel and with a network.

``python -m benchmarks.botorch_fit`` fits SingleTaskGP to points of Hartmann-6: as BoTorch does,
with the likelihood in closed form, and by ``fit_best_of`` with one start. Median CPU seconds of the
turns.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy and torch read them

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from statistics import median  # noqa: E402

import torch  # noqa: E402
from botorch.fit import fit_gpytorch_mll  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from botorch.test_functions import Hartmann  # noqa: E402
from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: E402

from gpytorch_nkn.fit import Recipe, fit_best_of  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402
from gpytorch_nkn.kernels.evaluation import instruction_set  # noqa: E402
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood  # noqa: E402

__all__ = ["main"]

_KERNELS = {
    "BoTorch's": lambda: None,
    "additive": lambda: NeuralKernelNetwork.additive(6).double(),
    "regression": lambda: NeuralKernelNetwork.regression(6).double(),
}
_POLISH = Recipe(adam_steps=0, lbfgs_iterations=75)


def _fit_by(make):
    return lambda model: fit_gpytorch_mll(make(model.likelihood, model))


_WAYS = {
    "fit_gpytorch_mll": _fit_by(ExactMarginalLogLikelihood),
    "fit_gpytorch_mll, closed form": _fit_by(AnalyticExactMarginalLogLikelihood),
    "fit_best_of": lambda model: fit_best_of(model, restarts=1, progress=False),
    "fit_best_of, 75 L-BFGS": lambda model: fit_best_of(
        model, restarts=1, recipe=_POLISH, progress=False
    ),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.botorch_fit", description=__doc__)
    parser.add_argument("--sizes", type=int, nargs="+", default=[40, 100, 300])
    parser.add_argument("--turns", type=int, default=3)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    print("| kernel | way | " + " | ".join(f"n = {size}" for size in args.sizes) + " |")
    print("| --- | --- |" + " --- |" * len(args.sizes))
    data = {}
    for size in args.sizes:
        generator = torch.Generator().manual_seed(0)
        x = torch.rand(size, 6, generator=generator, dtype=torch.float64)
        data[size] = x, Hartmann()(x).unsqueeze(-1)
    for way in _WAYS.values():  # what is imported at first use
        way(SingleTaskGP(*data[args.sizes[0]]))
    for kernel, make in _KERNELS.items():
        for name, fit in _WAYS.items():
            cells = []
            for size in args.sizes:
                seconds = []
                for _ in range(args.turns):
                    model = SingleTaskGP(*data[size], covar_module=make())
                    start = time.process_time()
                    fit(model)
                    seconds.append(time.process_time() - start)
                cells.append(f"{median(seconds):.2f}")
            print(f"| {kernel} | {name} | " + " | ".join(cells) + " |", flush=True)
    print(f"\ntorch {torch.__version__}, compiled code for {instruction_set()}, one thread.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
