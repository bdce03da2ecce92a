"""Whether a network finds that the Styblinski-Tang function is a sum over its columns.

``python -m benchmarks.stybtang_terms`` fits SingleTaskGP with the additive preset of the Neural
Kernel Network to 100 random points of the 10-dimensional function on [-4, 4]^10, with inputs and
targets standardised, in several ways. Then it looks whether the ten leading parts but for constants
depend on one column each, and on ten different ones (Sun et al. 2018, section 5.3): of the ten,

- ``terms``: products of the expanded kernel, by their share of its diagonal,
- ``groups``: products of equal kind together, by their share,
- ``parts``: components of the posterior by columns, by their share of its mean's variance.

The error is the root mean square one at 1,000 other points, in standard deviations of the targets;
the loss is the negative log posterior that the fit minimises, which compares fits with equal priors
and wiring only.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy and torch read them

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from botorch.test_functions import StyblinskiTang  # noqa: E402
from gpytorch.models import ExactGP  # noqa: E402
from torch import Tensor  # noqa: E402

from gpytorch_nkn.fit import fit_best_of  # noqa: E402
from gpytorch_nkn.initialization import initialize_model  # noqa: E402
from gpytorch_nkn.interpretation import decompose, expand  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402
from gpytorch_nkn.kernels.evaluation import instruction_set  # noqa: E402
from gpytorch_nkn.layers import Linear  # noqa: E402

__all__ = ["leading_columns", "main", "start_with_products"]

_DIM, _POINTS, _TEST_POINTS = 10, 100, 1000
_RANKINGS = ("terms", "groups", "parts")


def start_with_products(model: ExactGP, seed: int, restart: int) -> None:
    """Start values from data, with the constants of the hidden layers at 0.01.

    So other presets start: near a product of four kernels, where the additive preset starts near
    a sum.
    """
    initialize_model(model, seed=seed, restart=restart)
    *hidden, _ = (part for part in model.covar_module.modules() if isinstance(part, Linear))
    for layer in hidden:
        layer.bias = 0.01


@dataclass(frozen=True)
class _Way:
    network: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)


_WAYS = {
    "default": _Way(),
    "no-priors": _Way({"priors": False}),
    "shallow": _Way({"wiring": "Linear8-Product4-Linear1"}),
    "products": _Way(fit={"initialize": start_with_products}),
    "products-restarts": _Way(fit={"initialize": start_with_products, "restarts": 20}),
    "products-no-priors": _Way({"priors": False}, {"initialize": start_with_products}),
}


def leading_columns(model: ExactGP) -> dict[str, list[frozenset[int]]]:
    """Columns of the ten leading parts but for constants, by ranking."""
    with torch.no_grad():
        expansion = expand(model)
        split = decompose(model, by="columns", max_components=2**_DIM + 2)
    parts = [split.components[place] for place in np.argsort(-split.shares)]
    found = {
        "terms": [term.columns for term in expansion.terms],
        "groups": [group.terms[0].columns for group in expansion.groups],
        "parts": [part.columns for part in parts],
    }
    return {name: [c for c in columns if c][:_DIM] for name, columns in found.items()}


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table per way, and the counts."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stybtang_terms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(10)))
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=list(_WAYS))
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    counts = []
    for name in args.ways:
        print(f"{name}\n\n| seed | terms | groups | parts | error | loss | CPU s |")
        print("| --- |" + " --- |" * 6)
        rows = [_run(_WAYS[name], seed) for seed in args.seeds]
        found = [sum(row[ranking] == _DIM for row in rows) for ranking in _RANKINGS]
        means = [np.mean([row[key] for row in rows]) for key in ("error", "seconds")]
        cells = " | ".join(map(str, found))
        counts.append(f"| {name} | {cells} | {means[0]:.2f} | {means[1]:.1f} |")
        print()
    print(
        f"Data sets of {len(args.seeds)} with all ten columns in front, mean error and CPU time\n"
    )
    print("| way | terms | groups | parts | error | CPU s |\n| --- |" + " --- |" * 5)
    print("\n".join(counts))
    print(f"\ntorch {torch.__version__}, compiled code for {instruction_set()}, one thread.")
    return 0


def _run(way: _Way, seed: int) -> dict[str, float]:
    generator = torch.Generator().manual_seed(seed)
    x, y = _draw(_POINTS, generator)
    test_x, test_y = _draw(_TEST_POINTS, generator)
    test_x, test_y = ((t - u.mean(0)) / u.std(0) for t, u in ((test_x, x), (test_y, y)))
    x, y = ((u - u.mean(0)) / u.std(0) for u in (x, y))
    kernel = NeuralKernelNetwork.additive(_DIM, **way.network).double()
    model = SingleTaskGP(x, y, covar_module=kernel)
    start = time.process_time()
    record = fit_best_of(model, seed=seed, progress=False, **way.fit)
    row = {"seconds": time.process_time() - start}
    for ranking, columns in leading_columns(model).items():
        row[ranking] = len({c for c in columns if len(c) == 1})
    with torch.no_grad():
        row["error"] = (model.posterior(test_x).mean - test_y).square().mean().sqrt().item()
    row["loss"] = record.restarts[record.best].loss
    cells = [*(f"{row[ranking]:.0f}" for ranking in _RANKINGS)]
    cells += [f"{row['error']:.2f}", f"{row['loss']:.1f}", f"{row['seconds']:.1f}"]
    print(f"| {seed} | " + " | ".join(cells) + " |", flush=True)
    return row


def _draw(number: int, generator: torch.Generator) -> tuple[Tensor, Tensor]:
    x = 8 * torch.rand(number, _DIM, generator=generator, dtype=torch.float64) - 4
    return x, StyblinskiTang(_DIM)(x).unsqueeze(-1)


if __name__ == "__main__":
    sys.exit(main())
