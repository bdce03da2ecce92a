"""Whether a network finds that the Styblinski-Tang function is a sum over its columns, or groups.

``python -m benchmarks.stybtang_terms`` fits networks to 100 random points of 10-dimensional
functions on [-4, 4]^10, in several ways. Two functions, of Sun et al. (2018), appendix I.4:

``stybtang`` is a sum over columns. Do the ten leading parts but for constants depend on one column
each, and on ten different ones? Counted are the different single columns of the ten leading

- ``terms``: products of the expanded kernel, by their share of its diagonal,
- ``groups``: products of equal kind together, by their share,
- ``parts``: components of the posterior by columns, by their share of its mean's variance.

``transformed`` is Styblinski-Tang of ``Q x``, where ``Q`` is a random orthonormal matrix within
each of two random groups of five columns. Do columns that occur together belong to one group?
Without the constant and what holds the kernel over all columns there are

- ``top``: fraction of the products of several columns among the 20 largest terms that lies within
  the groups, by share of the diagonal (``-`` where there are none),
- ``all``: the same of all such products, and ``size``, their share of the diagonal,
- ``joint``: share of the diagonal of what holds the kernel over all columns,
- ``pairs``: fraction of the interactions of two columns in the posterior mean that lies within the
  groups, by variance.

Of pairs of columns taken at random, 0.44 lie within the groups. ``oracle`` is no network but a sum
of one RBF kernel per true group: where its error is no better, the points are too few to tell.

The error is the root mean square one at 1,000 other points, in standard deviations of the targets;
the loss is the negative log posterior that the fit minimises, which compares fits with equal priors
and wiring only. Inputs of the ways by ``additive`` are standardised, others lie in the unit cube.
"""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy and torch read them

import argparse  # noqa: E402
import sys  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass, field  # noqa: E402
from itertools import combinations  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import torch  # noqa: E402
from botorch.fit import fit_gpytorch_mll  # noqa: E402
from botorch.models import SingleTaskGP  # noqa: E402
from botorch.models.utils.gpytorch_modules import (  # noqa: E402
    get_covar_module_with_dim_scaled_prior,
)
from botorch.test_functions import StyblinskiTang  # noqa: E402
from gpytorch.kernels import MaternKernel, ScaleKernel  # noqa: E402
from gpytorch.mlls import ExactMarginalLogLikelihood  # noqa: E402
from gpytorch.models import ExactGP  # noqa: E402
from torch import Tensor  # noqa: E402

from gpytorch_nkn.bo import fit_bo_model  # noqa: E402
from gpytorch_nkn.fit import fit_best_of  # noqa: E402
from gpytorch_nkn.initialization import initialize_model  # noqa: E402
from gpytorch_nkn.interpretation import Term, decompose, expand  # noqa: E402
from gpytorch_nkn.kernels import NeuralKernelNetwork  # noqa: E402
from gpytorch_nkn.kernels.evaluation import instruction_set  # noqa: E402
from gpytorch_nkn.layers import Linear  # noqa: E402
from gpytorch_nkn.models import NKNSingleTaskGP  # noqa: E402

__all__ = ["leading_columns", "main", "share_within", "start_with_products"]

_DIM, _TEST_POINTS = 10, 1000
_RANKINGS = ("terms", "groups", "parts")
_FRACTIONS = ("top", "all", "size", "joint", "pairs")
_TOP = 20  # terms that the paper prints
_PAIR_ROWS, _PAIR_POINTS = 30, 6

Groups = tuple[frozenset[int], ...]


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
class _Fitted:
    model: ExactGP
    loss: float
    inputs: Callable[[Tensor], Tensor] = lambda x: x


@dataclass(frozen=True)
class _Way:
    """The additive preset with options, and those of its fit."""

    network: dict[str, Any] = field(default_factory=dict)
    fit: dict[str, Any] = field(default_factory=dict)

    def __call__(self, x: Tensor, y: Tensor, seed: int, groups: Groups) -> _Fitted:
        mean, std = x.mean(0), x.std(0)
        kernel = NeuralKernelNetwork.additive(_DIM, **self.network).double()
        model = SingleTaskGP((x - mean) / std, y, covar_module=kernel, outcome_transform=None)
        record = fit_best_of(model, seed=seed, progress=False, **self.fit)
        loss = record.restarts[record.best].loss
        return _Fitted(model, loss, lambda other: (other - mean) / std)


def _optimization(x: Tensor, y: Tensor, seed: int, groups: Groups) -> _Fitted:
    """The preset of NKNSingleTaskGP, trained as in Bayesian optimisation."""
    model = NKNSingleTaskGP(x, y, outcome_transform=None)
    return _with_loss(fit_bo_model(model, seed=seed))


def _oracle(x: Tensor, y: Tensor, seed: int, groups: Groups) -> _Fitted:
    """An RBF kernel per true group, with BoTorch's prior on its lengthscales."""
    kernels = [
        ScaleKernel(get_covar_module_with_dim_scaled_prior(len(group), active_dims=sorted(group)))
        for group in groups
    ]
    for kernel in kernels:
        kernel.outputscale = 1 / len(groups)
    total = sum(kernels[1:], kernels[0])
    model = SingleTaskGP(x, y, covar_module=total, outcome_transform=None)
    fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
    return _with_loss(model)


def _with_loss(model: ExactGP) -> _Fitted:
    mll = ExactMarginalLogLikelihood(model.likelihood, model)
    model.train()
    with torch.no_grad():
        value = mll(model(*model.train_inputs), model.train_targets)
    model.eval()
    return _Fitted(model, -float(value) * model.train_targets.numel())


_WAYS: dict[str, Callable[[Tensor, Tensor, int, Groups], _Fitted]] = {
    "optimization": _optimization,
    "default": _Way(),
    "no-priors": _Way({"priors": False}),
    "shallow": _Way({"wiring": "Linear8-Product4-Linear1"}),
    "products": _Way(fit={"initialize": start_with_products}),
    "products-restarts": _Way(fit={"initialize": start_with_products, "restarts": 20}),
    "products-no-priors": _Way({"priors": False}, {"initialize": start_with_products}),
    "oracle": _oracle,
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


def share_within(model: ExactGP, groups: Groups) -> dict[str, float]:
    """Fractions of what several columns do together that lie within true groups, see above."""
    with torch.no_grad():
        terms = expand(model).terms
    sizes = [(frozenset(term.columns or ()), term.mean_share(), _is_joint(term)) for term in terms]
    sizes = [(columns, share, joint) for columns, share, joint in sizes if columns]
    products = [(columns, share) for columns, share, joint in sizes if not joint]
    top = [(columns, share) for columns, share in products[:_TOP] if len(columns) > 1]
    products = [(columns, share) for columns, share in products if len(columns) > 1]
    pairs = [(frozenset(pair), size) for pair, size in _pair_interactions(model).items()]
    return {
        "top": _fraction(top, groups),
        "all": _fraction(products, groups),
        "size": sum(share for _, share in products),
        "joint": sum(share for _, share, joint in sizes if joint),
        "pairs": _fraction(pairs, groups),
    }


def _is_joint(term: Term) -> bool:
    """Whether one of the factors is a primitive over all columns."""
    return any(isinstance(factor, MaternKernel) for factor in term.factors)


def _fraction(sizes: Sequence[tuple[frozenset[int], float]], groups: Groups) -> float:
    total = sum(size for _, size in sizes)
    within = sum(size for columns, size in sizes if any(columns <= group for group in groups))
    return within / total if total > 0 else float("nan")


def _pair_interactions(model: ExactGP) -> dict[tuple[int, int], float]:
    """Variance of what every two columns do together, on average over the others."""
    (x,) = model.train_inputs
    rows = x[:_PAIR_ROWS]
    levels = (torch.arange(_PAIR_POINTS, dtype=torch.float64) + 0.5) / _PAIR_POINTS
    values = x.quantile(levels, dim=0)  # P x D
    found = {}
    for i, j in combinations(range(_DIM), 2):
        points = rows.expand(_PAIR_POINTS, _PAIR_POINTS, -1, -1).clone()
        points[..., i] = values[:, i, None, None]
        points[..., j] = values[None, :, j, None]
        with torch.no_grad():
            mean = model.posterior(points.reshape(-1, _DIM)).mean
        table = mean.reshape(_PAIR_POINTS, _PAIR_POINTS, -1).mean(-1)
        table = table - table.mean(0)
        table = table - table.mean(1, keepdim=True)
        found[i, j] = float(table.square().mean())
    return found


def main(argv: Sequence[str] | None = None) -> int:
    """Print a table per function and way, and their means."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.stybtang_terms",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--seeds", type=int, nargs="+", default=list(range(100, 110)))
    parser.add_argument("--functions", nargs="+", choices=_FUNCTIONS, default=list(_FUNCTIONS))
    parser.add_argument("--ways", nargs="+", choices=_WAYS, default=list(_WAYS))
    parser.add_argument("--points", type=int, default=100)
    args = parser.parse_args(argv)
    torch.set_num_threads(1)
    warnings.simplefilter("ignore")
    for function in args.functions:
        columns = _RANKINGS if function == "stybtang" else _FRACTIONS
        head = " | ".join([*columns, "error", "loss", "CPU s"])
        rule = "| --- |" + " --- |" * (len(columns) + 3)
        summary = []
        for way in args.ways:
            print(f"{function}, {args.points} points, {way}\n\n| seed | {head} |\n{rule}")
            rows = [_run(function, way, seed, args.points) for seed in args.seeds]
            cells = [_summary(name, [row[name] for row in rows]) for name in columns]
            cells += [f"{np.mean([row[name] for row in rows]):.2f}" for name in ("error", "loss")]
            cells.append(f"{np.mean([row['CPU s'] for row in rows]):.1f}")
            summary.append(f"| {way} | {' | '.join(cells)} |")
            print()
        print(
            f"{function}, {args.points} points, {len(args.seeds)} data sets: how many have all ten "
            f"columns in front, or means\n\n| way | {head} |\n{rule}"
        )
        print("\n".join(summary) + "\n")
    print(f"torch {torch.__version__}, compiled code for {instruction_set()}, one thread.")
    return 0


def _summary(name: str, values: Sequence[float]) -> str:
    """Of a ranking how often it is right, of a fraction its mean."""
    if name in _RANKINGS:
        return str(sum(value == _DIM for value in values))
    known = [value for value in values if not np.isnan(value)]
    return f"{np.mean(known):.2f}" if known else "-"


def _run(function: str, way: str, seed: int, points: int) -> dict[str, float]:
    x, y, test_x, test_y, groups = _FUNCTIONS[function](seed, points)
    test_y, y = (test_y - y.mean()) / y.std(), (y - y.mean()) / y.std()
    start = time.process_time()
    fitted = _WAYS[way](x, y, seed, groups)
    row = {"CPU s": time.process_time() - start, "loss": fitted.loss}
    model = fitted.model
    if function == "stybtang":
        for ranking, columns in leading_columns(model).items():
            row[ranking] = len({c for c in columns if len(c) == 1})
        cells = [f"{row[ranking]:.0f}" for ranking in _RANKINGS]
    else:
        row |= share_within(model, groups)
        cells = [_summary(name, [row[name]]) for name in _FRACTIONS]
    with torch.no_grad():
        mean = model.posterior(fitted.inputs(test_x)).mean
    row["error"] = (mean - test_y).square().mean().sqrt().item()
    cells += [f"{row['error']:.2f}", f"{row['loss']:.1f}", f"{row['CPU s']:.1f}"]
    print(f"| {seed} | " + " | ".join(cells) + " |", flush=True)
    return row


Draw = tuple[Tensor, Tensor, Tensor, Tensor, Groups]


def _stybtang(seed: int, points: int) -> Draw:
    generator = torch.Generator().manual_seed(seed)
    return _draw(points, generator, torch.eye(_DIM, dtype=torch.float64), _single_columns())


def _transformed(seed: int, points: int) -> Draw:
    """The paper does not say how it draws; its groups are the first and the last five columns."""
    generator = torch.Generator().manual_seed(seed)
    order = torch.randperm(_DIM, generator=generator)
    matrix = torch.zeros(_DIM, _DIM, dtype=torch.float64)
    for group in order.split(_DIM // 2):
        normal = torch.randn(len(group), len(group), generator=generator, dtype=torch.float64)
        matrix[group[:, None], group] = torch.linalg.qr(normal)[0]
    groups = tuple(frozenset(group.tolist()) for group in order.split(_DIM // 2))
    return _draw(points, generator, matrix, groups)


def _single_columns() -> Groups:
    return tuple(frozenset({column}) for column in range(_DIM))


def _draw(number: int, generator: torch.Generator, matrix: Tensor, groups: Groups) -> Draw:
    """Inputs in the unit cube and targets, to learn from and to test."""
    parts = []
    for count in (number, _TEST_POINTS):
        x = torch.rand(count, _DIM, generator=generator, dtype=torch.float64)
        y = StyblinskiTang(_DIM)._evaluate_true((8 * x - 4) @ matrix.T)  # beyond its box, too
        parts += [x, y.unsqueeze(-1)]
    x, y, test_x, test_y = parts
    return x, y, test_x, test_y, groups


_FUNCTIONS: dict[str, Callable[[int, int], Draw]] = {
    "stybtang": _stybtang,
    "transformed": _transformed,
}


if __name__ == "__main__":
    sys.exit(main())
