"""Regret of Bayesian optimisation by evaluations: ``python docs/figures/regret.py``, CPU minutes.

The loops of tutorial 03 on Styblinski and Tang's function of ten variables, with three seeds. The
full comparison, with ten seeds and more rivals, stands in benchmarks/RESULTS.md.
"""

import warnings
from pathlib import Path

import matplotlib

matplotlib.use("Agg")
import matplotlib.pyplot as plt
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import StyblinskiTang
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn.bo import coordinate_sweep_initial_conditions, fit_bo_model
from gpytorch_nkn.models import NKNSingleTaskGP

DIM, INITIAL, EVALUATIONS, SEEDS = 10, 10, 50, 3
STYLES = {SingleTaskGP: ("#d55e00", "--"), NKNSingleTaskGP: ("#0072b2", "-")}


def regrets(surrogate, problem, seed):
    """What the best value so far lacks, after each evaluation."""
    torch.manual_seed(seed)
    cube = torch.stack([torch.zeros(DIM), torch.ones(DIM)]).double()
    x = torch.rand(INITIAL, DIM).double()
    y = problem(8 * x - 4).unsqueeze(-1)
    model = None
    while len(y) < EVALUATIONS:
        options = {}
        if surrogate is NKNSingleTaskGP:
            model = fit_bo_model(NKNSingleTaskGP(x, y), previous=model)
            best = x[y[:, 0].topk(min(5, len(y))).indices]
            options = {"ic_generator": coordinate_sweep_initial_conditions, "incumbent": best}
        else:
            model = SingleTaskGP(x, y)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = LogExpectedImprovement(model, best_f=y.max())
        found, _ = optimize_acqf(acquisition, cube, q=1, num_restarts=4, raw_samples=128, **options)
        x, y = torch.cat([x, found]), torch.cat([y, problem(8 * found - 4).unsqueeze(-1)])
    return problem.optimal_value - y[:, 0].cummax(0).values


if __name__ == "__main__":
    warnings.simplefilter("ignore")  # BoTorch's words on data that are not scaled
    problem = StyblinskiTang(dim=DIM, bounds=[(-4.0, 4.0)] * DIM, negate=True).double()
    figure, ax = plt.subplots(figsize=(6.6, 3.4), layout="constrained")
    for surrogate, (color, style) in STYLES.items():
        runs = torch.stack([regrets(surrogate, problem, seed) for seed in range(SEEDS)])
        count = torch.arange(1, EVALUATIONS + 1)
        ax.plot(count, runs.T, style, color=color, lw=0.7, alpha=0.5)
        ax.plot(count, runs.mean(0), style, color=color, lw=2, label=surrogate.__name__)
        print(surrogate.__name__, runs[:, -1].tolist())
    ax.set(xlabel="evaluations", ylabel="regret", ylim=(0, None), xlim=(1, EVALUATIONS))
    ax.legend(frameon=False)
    ax.spines[["top", "right"]].set_visible(False)
    figure.savefig(Path(__file__).parent / "regret.png", dpi=100)
