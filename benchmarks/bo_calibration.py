"""How well surrogates of Bayesian optimisation predict: held-out log density and coverage."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import torch
from botorch.models import MixedSingleTaskGP, SingleTaskGP
from scipy.special import logsumexp
from scipy.stats import norm
from torch import Tensor

from benchmarks.bo_problems import make_problem
from benchmarks.bo_surrogates import make_surrogate
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP

__all__ = ["MIXED", "calibration", "mixed_calibration", "scores"]

_SIZES = (20, 50, 100)
_HELD_OUT = 256
_WORST = -20.0  # of a log density: one point that a model has not foreseen does not hide the others


def scores(means: Tensor, variances: Tensor, targets: Tensor) -> tuple[float, float]:
    """Mean log density, and the share of targets in the central 90 % of the predictions.

    Args:
        means: ``S x T`` of the members of a mixture of Gaussians.
        variances: As the means.
        targets: ``T``.
    """
    center, spread = means.numpy(), variances.clamp_min(1e-12).sqrt().numpy()
    logs = norm.logpdf(targets.numpy(), center, spread)
    density = (logsumexp(logs, axis=0) - math.log(len(logs))).clip(min=_WORST)
    level = norm.cdf(targets.numpy(), center, spread).mean(0)
    return float(density.mean()), float((abs(level - 0.5) < 0.45).mean())


def calibration(functions: Sequence[str], surrogates: Sequence[str], seeds: Sequence[int]) -> str:
    """A Markdown table of means over functions and seeds.

    Training points are Sobol points, held-out ones are uniform; values are those of the targets
    standardised, observed without noise.
    """
    rows = []
    for surrogate in surrogates:
        cells = []
        for size in _SIZES:
            found = torch.tensor(
                [_one(function, surrogate, seed, size) for function in functions for seed in seeds]
            )
            density, coverage = found.mean(0).tolist()
            cells.append(f"{density:.2f} ({coverage:.0%})")
        rows.append(f"| {surrogate} | " + " | ".join(cells) + " |")
    head = ["surrogate", *(f"{size} points" for size in _SIZES)]
    return "\n".join(
        [
            f"Mean log density of {_HELD_OUT} held-out values over {len(functions)} functions "
            f"(seeds {', '.join(map(str, seeds))}), and share of them in the central 90 %.",
            "",
            f"| {' | '.join(head)} |",
            f"|{' --- |' * len(head)}",
            *rows,
        ]
    )


def _one(function: str, surrogate: str, seed: int, size: int) -> tuple[float, float]:
    problem = make_problem(function, seed)
    engine = torch.quasirandom.SobolEngine(problem.dim, scramble=True, seed=seed)
    x = engine.draw(size, dtype=torch.float64)
    generator = torch.Generator().manual_seed(seed)
    held_out = torch.rand(_HELD_OUT, problem.dim, generator=generator, dtype=torch.float64)
    y, targets = -problem(x), -problem(held_out)
    center, spread = y.mean(), y.std()
    y, targets = (y - center) / spread, (targets - center) / spread
    model = make_surrogate(surrogate, problem).fit(x, y.unsqueeze(-1), None)
    return scores(*_members(model, held_out), targets)


def _members(model: SingleTaskGP, x: Tensor) -> tuple[Tensor, Tensor]:
    """Means and variances of observations, ``S x N`` each, at inputs ``N x D``."""
    with torch.no_grad():
        posterior = model.posterior(x.unsqueeze(-2), observation_noise=True)
    mean, variance = (v.reshape(len(x), -1).mT for v in (posterior.mean, posterior.variance))
    return mean, variance


_LEVELS = torch.tensor([0.0, 1.0, 0.4], dtype=torch.float64)
_FACTORS = torch.tensor([1.0, 2.0, 0.5], dtype=torch.float64)


def _separate(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    return torch.where(c == 0, (4 * a).sin(), torch.where(c == 1, (2 * b - 1).square(), a * b))


def _rough(a: Tensor, b: Tensor, c: Tensor) -> Tensor:
    level = torch.where(c == 0, (a - 0.3).abs(), (b - 0.6).abs() + 0.2 * c)
    return level + 0.5 * ((a > 0.5) & (c == 1))


# Of two numbers and a category of three; noise is in all values.
MIXED: dict[str, tuple[Callable[[Tensor, Tensor, Tensor], Tensor], float]] = {
    "added": (lambda a, b, c: (3 * a).sin() + b.square() + _LEVELS[c], 0.0),
    "shifted": (lambda a, b, c: (3 * a + c).sin() + a * b, 0.0),
    "separate": (_separate, 0.0),
    "scaled": (lambda a, b, c: _FACTORS[c] * ((3 * a).sin() + b), 0.0),
    "rough": (_rough, 0.0),
    "noisy": (_separate, 0.1),
}
_MIXED_SURROGATES = {
    "singletask": MixedSingleTaskGP,
    "structures": StructureEnsembleGP,
    "ours": NKNSingleTaskGP,
}


def mixed_calibration(surrogates: Sequence[str], seeds: Sequence[int]) -> str:
    """A Markdown table for functions of numbers and a category, uniform points, mean over seeds."""
    lines = [
        f"Relative root mean square error (mean log density) of {_HELD_OUT} held-out values of "
        f"standardised functions, seeds {', '.join(map(str, seeds))}.",
        "",
        "| function | points | " + " | ".join(surrogates) + " |",
        "|" + " --- |" * (2 + len(surrogates)),
    ]
    for name in MIXED:
        for size in _SIZES:
            cells = []
            for surrogate in surrogates:
                found = torch.tensor([_one_mixed(name, surrogate, seed, size) for seed in seeds])
                cells.append("{:.3f} ({:.2f})".format(*found.mean(0).tolist()))
            lines.append(f"| {name} | {size} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _one_mixed(name: str, surrogate: str, seed: int, size: int) -> tuple[float, float]:
    generator = torch.Generator().manual_seed(seed)
    function, noise = MIXED[name]
    count = size + _HELD_OUT
    x = torch.rand(count, 3, generator=generator, dtype=torch.float64)
    codes = (3 * x[:, 2]).long()
    x[:, 2] = codes
    y = function(x[:, 0], x[:, 1], codes)
    y = y + noise * torch.randn(count, generator=generator, dtype=torch.float64)
    y = (y - y[:size].mean()) / y[:size].std()
    way = make_surrogate(surrogate, make_problem("hartmann6", 0))
    way.make = lambda X, Y: _MIXED_SURROGATES[surrogate](X, Y, cat_dims=[2])
    model = way.fit(x[:size], y[:size, None], None)
    mean, variance = _members(model, x[size:])
    error = (mean.mean(0) - y[size:]).square().mean().sqrt().item()
    return error, scores(mean, variance, y[size:])[0]
