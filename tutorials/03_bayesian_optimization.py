# %% [markdown]
# # Bayesian optimisation with learned structures
# We search for the maximum of a function of six variables with fifty evaluations, without knowing
# the right kernel. Only the model changes in BoTorch's usual loop: `StructureEnsembleGP` trains
# several kernels, additive and joint, and averages their predictions by leave-one-out
# cross-validation. The tutorial compares it with `SingleTaskGP` on an additive function and on one
# with interactions, and shows what the models have learned.

# %%
import logging
import math
import warnings

import matplotlib.pyplot as plt
import torch
from botorch.acquisition import LogExpectedImprovement
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.test_functions import Hartmann, StyblinskiTang
from gpytorch.mlls import ExactMarginalLogLikelihood

from gpytorch_nkn import plotting
from gpytorch_nkn.bo import coordinate_sweep_initial_conditions, fit_bo_model
from gpytorch_nkn.interpretation import effects, expand, report_search
from gpytorch_nkn.models import NKNSingleTaskGP, StructureEnsembleGP, fit_structure_ensemble_gp

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
DIM, INITIAL, EVALUATIONS, SEEDS = 6, 10, 50, 3
BLUE, ORANGE = "#1f5fa8", "#d1580b"
torch.set_default_dtype(torch.float64)
warnings.simplefilter("ignore")  # BoTorch's warnings, such as those about scales

unit_cube = torch.stack([torch.zeros(DIM), torch.ones(DIM)])
styblinski_tang = StyblinskiTang(dim=DIM, bounds=[(-4.0, 4.0)] * DIM, negate=True)
hartmann = Hartmann(dim=DIM, negate=True)  # four peaks; all six inputs matter


def sum_over_columns(u):  # u in the unit cube; the models receive no hint of the sum
    return styblinski_tang(8 * u - 4).unsqueeze(-1)


def joint(u):
    return hartmann(u).unsqueeze(-1)


FUNCTIONS = {
    sum_over_columns: ("a sum over columns (Styblinski-Tang)", styblinski_tang.optimal_value),
    joint: ("no sum (Hartmann)", hartmann.optimal_value),
}

# %% [markdown]
# ## Change one line

# %%
torch.manual_seed(0)
train_x = torch.rand(INITIAL, DIM)
train_y = joint(train_x)
model = fit_structure_ensemble_gp(StructureEnsembleGP(train_x, train_y))  # was: SingleTaskGP(...)
acquisition = LogExpectedImprovement(model, best_f=train_y.max())
candidate, _ = optimize_acqf(acquisition, unit_cube, q=1, num_restarts=4, raw_samples=64)
print(candidate)

# %% [markdown]
# ## The loop
# `coordinate_sweep_initial_conditions` adds points to BoTorch's random initial conditions: the best
# points, each with one coordinate changed. On additive functions, such points often lead to
# improvements.


# %%
def optimise(function, surrogate, seed):
    torch.manual_seed(seed)
    x = torch.rand(INITIAL, DIM)
    y, weights = function(x), []
    while len(y) < EVALUATIONS:
        options = {}
        if surrogate is StructureEnsembleGP:
            model = fit_structure_ensemble_gp(StructureEnsembleGP(x, y))
            weights.append(model.structure_weights)
            best = x[y[:, 0].topk(min(5, len(y))).indices]
            options = {"ic_generator": coordinate_sweep_initial_conditions, "incumbent": best}
        else:
            model = SingleTaskGP(x, y)
            fit_gpytorch_mll(ExactMarginalLogLikelihood(model.likelihood, model))
        acquisition = LogExpectedImprovement(model, best_f=y.max())
        candidate, _ = optimize_acqf(
            acquisition, unit_cube, q=1, num_restarts=8, raw_samples=256, **options
        )
        x, y = torch.cat([x, candidate]), torch.cat([y, function(candidate)])
    return x, y, weights


runs = {
    (function, surrogate): [optimise(function, surrogate, seed) for seed in range(SEEDS)]
    for function in FUNCTIONS
    for surrogate in (SingleTaskGP, StructureEnsembleGP)
}

# %% mystnb={"image": {"alt": "Best value by evaluations: StructureEnsembleGP is ahead twice"}}
figure, panels = plt.subplots(1, 2, figsize=(10, 3.6), layout="constrained")
evaluations = torch.arange(1, EVALUATIONS + 1)
regret = {}
for axes, (function, (name, highest)) in zip(panels, FUNCTIONS.items(), strict=True):
    for surrogate, color in ((SingleTaskGP, ORANGE), (StructureEnsembleGP, BLUE)):
        found = runs[function, surrogate]
        best = torch.stack([y[:, 0].cummax(0).values for _, y, _ in found])
        mean, error = best.mean(0), best.std(0, correction=0) / math.sqrt(SEEDS)
        regret[function, surrogate] = (highest - mean[-1]).item()
        axes.plot(evaluations, mean, color=color, label=surrogate.__name__)
        axes.fill_between(evaluations, mean - error, mean + error, color=color, alpha=0.2, lw=0)
    axes.axhline(highest, color="gray", lw=1, ls=":")
    axes.annotate(
        "highest value", (1, highest), xytext=(6, 3), textcoords="offset points", color="gray"
    )
    axes.set_title(name, loc="left", fontsize=11)
    axes.set(xlabel="evaluations", ylabel="best value so far", xlim=(1, EVALUATIONS))
    axes.spines[["top", "right"]].set_visible(False)
panels[0].legend(frameon=False, loc="lower right")
plt.show()

# %% [markdown]
# Lines are means over the seeds, and shaded areas are one standard error. Both models start from
# the same points.
#
# ## Which structures the ensemble prefers
# The figure shows the weights in the first run on each function. After ten points the weights carry
# little information. Later, most of the weight is on `"optimization"`, an approximately additive
# network, for the additive function, and on joint kernels for Hartmann's function. One of the joint
# kernels models warped outcomes (`outcome-warped`).

# %% mystnb={"image": {"alt": "Weights of structures: additive left, joint kernels right"}}
figure, panels = plt.subplots(1, 2, figsize=(10, 3.2), layout="constrained", sharey=True)
shades = [BLUE, "#d1580b", "#f2a541", "#c0c0c0"]
for axes, (function, (name, _)) in zip(panels, FUNCTIONS.items(), strict=True):
    weights = runs[function, StructureEnsembleGP][0][2]
    shares = torch.tensor([list(each.values()) for each in weights]).T
    points = torch.arange(INITIAL, EVALUATIONS)
    axes.stackplot(points, shares.numpy(), labels=list(weights[0]), colors=shades)
    axes.set_title(name, loc="left", fontsize=11)
    axes.set(xlabel="evaluations", ylim=(0, 1))
    axes.margins(x=0)
panels[0].set_ylabel("weight")
figure.legend(*panels[0].get_legend_handles_labels(), frameon=False, loc="outside right center")
plt.show()

# %% [markdown]
# ## What the network has learned
# The network is also available as a model of its own, `NKNSingleTaskGP`, for functions that are
# nearly additive. Its kernel is a sum of products. Most of the variance is due to kernels of one
# variable. The joint kernel over all variables has some, and products of pairs have almost none.

# %% mystnb={"image": {"alt": "Bars: kernels of single columns hold most of the prior variance"}}
x, y, _ = runs[sum_over_columns, StructureEnsembleGP][0]
model = fit_bo_model(NKNSingleTaskGP(x, y))
columns = [f"x{number + 1}" for number in range(DIM)]
terms = expand(model, columns=columns).terms[: DIM + 5]
figure, axes = plt.subplots(figsize=(7, 3.4), layout="constrained")
shares = [term.mean_share() for term in terms]
axes.barh([term.label for term in terms][::-1], shares[::-1], color=BLUE)
axes.set(xlabel="share of the variance of the prior")
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# The next figure shows effects of single variables beside the true effects (dotted, aligned at the
# maximum). The model is accurate where the search has evaluated the function, and the percentages
# describe the evaluated region only.

# %% mystnb={"image": {"alt": "Learned effects match the true curves where evaluations are"}}
influence = effects(model, columns=columns)
shown = influence.main[:3]
figure, panels = plt.subplots(1, 3, figsize=(10, 3), layout="constrained")
plotting.plot_effects(panels, shown, y_label="effect on the value")
for axes, effect in zip(panels, shown, strict=True):
    (grid,) = effect.grid
    along = 8 * torch.as_tensor(grid) - 4
    truth = -(along**4 - 16 * along**2 + 5 * along) / 2
    top = truth.argmax()
    truth = truth - truth[top] + torch.as_tensor(effect.mean)[top]
    axes.plot(grid, truth, color="black", lw=1, ls=":")
plt.show()

# %% [markdown]
# ## The same in Ax
# Ax (`pip install ax-platform`) runs the loop, and one line selects the model. Outcome
# constraints, several objectives and parallel trials are configured as usual.

# %%
logging.disable(logging.INFO)  # Ax logs a line for each trial
try:
    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig

    from gpytorch_nkn.ax import make_generation_strategy
except ImportError as error:
    print(error)
else:
    client = Client()
    client.configure_experiment(
        name="styblinski_tang",
        parameters=[
            RangeParameterConfig(name=name, parameter_type="float", bounds=(-4.0, 4.0))
            for name in columns
        ],
    )
    client.configure_optimization(objective="value")
    client.set_generation_strategy(make_generation_strategy(initialization_trials=5, seed=0))
    for _ in range(30):
        for trial, point in client.get_next_trials(max_trials=1).items():
            value = styblinski_tang(torch.tensor([[point[name] for name in columns]])).item()
            client.complete_trial(trial, raw_data={"value": value})
    best_point, found, *_ = client.get_best_parameterization(use_model_predictions=False)
    print(best_point, found, f"(highest: {styblinski_tang.optimal_value:.1f})")

# %% [markdown]
# ## Is it worth continuing?
# `report_search` takes the model of the loop, with the evaluations in order of time. It states the
# best value so far, describes the next candidate, and checks how well the model predicted each
# evaluation in advance.

# %%
halfway = max(INITIAL, EVALUATIONS // 2)
model = fit_structure_ensemble_gp(StructureEnsembleGP(x[:halfway], y[:halfway]))
acquisition = LogExpectedImprovement(model, best_f=y[:halfway].max())
candidate, _ = optimize_acqf(acquisition, unit_cube, q=1, num_restarts=4, raw_samples=128)
found = report_search(
    model,
    acquisition=acquisition,
    candidates=candidate,
    bounds=unit_cube,
    num_initial=INITIAL,
    columns=columns,
)
print("\n".join([*found.summary, *found.checks]))

# %% [markdown]
# Above: the values, and the one-step-ahead errors in units of the predictive standard deviation.
# Below: the predictions along three input dimensions through the next candidate, and the
# acquisition function. The best point may lie off these curves, because it differs from the next
# candidate in the other dimensions. `found.save("search.html")` writes the whole report to a page.

# %% mystnb={"image": {"alt": "Best value so far, one-step-ahead errors, slices of the model"}}
_, axes = plt.subplot_mosaic("AAABBB;CCDDEE", figsize=(10, 6), layout="constrained")
plotting.plot_progress(axes["A"], found.values, num_initial=INITIAL)
plotting.plot_one_step_ahead(axes["B"], found.ahead.z_scores, num_initial=INITIAL)
plotting.plot_acquisition([axes[name] for name in "CDE"], found.slices[:3])
plt.show()

# %% tags=["remove-cell"]
# The claim of this page.
for function, share in ((sum_over_columns, 0.5), (joint, 1.0)):
    limit = share * regret[function, SingleTaskGP]
    assert regret[function, StructureEnsembleGP] < limit, regret
