"""How well surrogates of Bayesian optimisation predict: held-out log density and coverage."""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
from scipy.special import logsumexp
from scipy.stats import norm
from torch import Tensor

from benchmarks.bo_problems import make_problem
from benchmarks.bo_surrogates import make_surrogate

__all__ = ["calibration", "scores"]

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
    with torch.no_grad():
        posterior = model.posterior(held_out.unsqueeze(-2), observation_noise=True)
    mean, variance = (v.reshape(_HELD_OUT, -1).mT for v in (posterior.mean, posterior.variance))
    return scores(mean, variance, targets)
