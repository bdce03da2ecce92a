# %% [markdown]
# # Plug the kernel into your own model
# A `NeuralKernelNetwork` is a GPyTorch kernel and works wherever a model takes a kernel. Here one
# function is observed in five ways: values, values with known noise variances, yes or no, counts
# with exposure, and two correlated outputs. Each section compares the network with an RBF kernel in
# the same model, by the log density of held-out rows. Section six predicts slopes. On the table in
# the last section the network is not better.

# %%
import warnings

import gpytorch
import matplotlib.pyplot as plt
import pandas as pd
import torch
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal
from gpytorch.kernels import PeriodicKernel, RBFKernel
from gpytorch.likelihoods import BernoulliLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean
from sklearn.datasets import load_diabetes
from torch.distributions import Bernoulli, Normal, Poisson

from gpytorch_nkn.bo import fit_bo_model
from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import PAPER_WIRING, Linear, parse_wiring
from gpytorch_nkn.models import LaplaceGP, NKNMultiTaskGP, gradient_posterior

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)
warnings.filterwarnings("ignore", message="Sparse invariant")  # of PyTorch, for task indices
RESTARTS = 6


def function(x):
    return (torch.cos(2 * x[:, 0]) + torch.cos(2 * x[:, 1])) * x.prod(-1).abs().sqrt()


train_x, test_x = 12 * torch.rand(200, 2) - 6, 12 * torch.rand(400, 2) - 6
few_x = train_x[:100]
line = torch.stack([torch.linspace(-8, 8, 200), torch.full((200,), 3.0)], -1)

# %% [markdown]
# ## The network
# Any kernel can be a primitive; `active_dims` selects its input dimensions. The preset
# `NeuralKernelNetwork.regression(2)` is enough for smooth functions. This function is periodic, so
# the network needs periodic primitives.


# %%
def make_network():
    primitives = []
    for column in (0, 1):
        primitives += [k(active_dims=(column,)) for k in (RBFKernel, PeriodicKernel, RBFKernel)]
        primitives[-1].lengthscale = 4.0
    return NeuralKernelNetwork(primitives, parse_wiring(PAPER_WIRING, 6, priors=True))


def make_rbf(columns=2):  # a ScaleKernel of an RBFKernel, as a network with one primitive
    return NeuralKernelNetwork([RBFKernel(ard_num_dims=columns)], [Linear(1, 1)])


KERNELS, summary = {"network": make_network, "RBF": make_rbf}, {}


def compare(name, network, rbf):
    """Print mean log densities of held-out rows, and the mean difference with standard error."""
    gain = (network - rbf).detach()
    found = {"network": network.mean(), "RBF": rbf.mean(), "difference": gain.mean()}
    found["standard error"] = gain.std() / len(gain) ** 0.5
    summary[name] = {key: value.item() for key, value in found.items()}
    print(", ".join(f"{key} {value:.2f}" for key, value in summary[name].items()))


def draw_line(truth, found, label):
    """Plot means and 90 % intervals at x2 = 3; training rows have x1 from -6 to 6."""
    figure, panel = plt.subplots(figsize=(9, 3.4), layout="constrained")
    for color, (name, (mean, std)) in zip(("C0", "C1"), found.items(), strict=True):
        panel.plot(line[:, 0], mean, color=color, label=f"{name}, 90 % interval")
        lower, upper = mean - 1.645 * std, mean + 1.645 * std
        panel.fill_between(line[:, 0], lower, upper, color=color, alpha=0.2, linewidth=0)
    panel.plot(line[:, 0], truth, "k--", label="truth")
    panel.set(xlabel="x1", ylabel=label)
    figure.legend(loc="outside upper center", ncols=3)
    plt.show()


# %% [markdown]
# ## Values: your own ExactGP
# *How do I replace the kernel of my model?* Only the `covar_module` changes. Your training loop
# still works; `fit_best_of` trains the model from several starting points that depend on the data.
# An `ApproximateGP` takes the kernel in the same way.


# %%
class YourModel(gpytorch.models.ExactGP):
    def __init__(self, x, y, kernel):
        super().__init__(x, y, GaussianLikelihood())
        self.mean_module = ConstantMean()
        self.covar_module = kernel

    def forward(self, x):
        return MultivariateNormal(self.mean_module(x), self.covar_module(x))


values = function(few_x) + 0.05 * torch.randn(100)
new_values = function(test_x) + 0.05 * torch.randn(400)
exact, scores = {}, []
for name, make in KERNELS.items():
    exact[name] = fit_best_of(YourModel(few_x, values, make()), restarts=RESTARTS, seed=0)
    new = exact[name].model.likelihood(exact[name].model(test_x))
    scores.append(Normal(new.mean, new.stddev).log_prob(new_values).detach())
compare("values", *scores)
print(exact["network"])

# %% mystnb={"image": {"alt": "Maps: the network continues the pattern, RBF returns to its mean"}}
axis = torch.linspace(-8, 8, 61)
grid = torch.cartesian_prod(axis, axis)
maps = {"truth": function(grid)} | {k: fit.model(grid).mean.detach() for k, fit in exact.items()}
figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
for panel, (title, shown) in zip(panels, maps.items(), strict=True):
    image = panel.pcolormesh(axis, axis, shown.view(61, 61).T, cmap="RdBu_r", clim=(-14, 14))
    panel.plot(*few_x.T, "k.", markersize=2)
    panel.set(title=title, xlabel="x1", aspect="equal")
panels[0].set_ylabel("x2")
figure.colorbar(image, ax=panels, label="f(x1, x2)")
plt.show()

# %% [markdown]
# ## Known noise by row: BoTorch's SingleTaskGP
# *Half of the measurements are poor. Should I discard them?* Pass the variances as `train_Yvar`;
# poor rows then have little weight. `fit_gpytorch_mll` and acquisition functions work, too.

# %%
stds = torch.where(torch.arange(200) % 2 == 0, 0.05, 2.0)[:, None]
noisy = function(train_x)[:, None] + stds * torch.randn(200, 1)
scores = {}
for name, make in KERNELS.items():
    for label, rows in (("all rows", slice(None)), ("precise rows", slice(None, None, 2))):
        data = train_x[rows], noisy[rows], stds[rows] ** 2
        gp = fit_best_of(SingleTaskGP(*data, covar_module=make()), restarts=RESTARTS, seed=0).model
        found = gp.posterior(test_x)
        density = Normal(found.mean[:, 0], found.variance[:, 0].sqrt())
        scores[name, label] = density.log_prob(function(test_x)).detach()
compare("known noise", scores["network", "all rows"], scores["RBF", "all rows"])
pd.Series({key: score.mean().item() for key, score in scores.items()}).unstack().round(2)

# %% [markdown]
# ## Yes or no: a Laplace approximation
# *Only the sign was recorded, with errors. How probable is a yes?* `LaplaceGP` accepts any
# likelihood of GPyTorch with one latent function. For several classes, or a table with categories
# and missing cells, use `NKNClassifier`.

# %%
labels = Bernoulli(logits=2 * function(train_x)).sample()
new_labels = Bernoulli(logits=2 * function(test_x)).sample()
scores = []
for make in KERNELS.values():
    gp = LaplaceGP(train_x, labels, BernoulliLikelihood(), ConstantMean(), make())
    fit_best_of(gp, restarts=3, seed=0)
    scores.append(gp.likelihood(gp(test_x)).log_prob(new_labels).detach())
compare("yes or no", *scores)

# %% [markdown]
# ## Counts with exposure
# *Events were counted for different times. What is the rate?* `NKNRegressor` takes the network as
# its structure. `exposure` is the time of each row. Predictions without it are rates.

# %%
hours, new_hours = 0.2 + 4.8 * torch.rand(200), 0.2 + 4.8 * torch.rand(400)
counts = Poisson(hours * (function(train_x) / 2).exp()).sample()
new_counts = Poisson(new_hours * (function(test_x) / 2).exp()).sample()
scores = []
for make in KERNELS.values():
    counted = NKNRegressor(make(), likelihood="poisson", restarts=RESTARTS, random_state=0)
    counted.fit(train_x, counts, exposure=hours)
    density = counted.log_predictive_density(test_x, new_counts, exposure=new_hours)
    scores.append(torch.tensor(density))
compare("counts", *scores)

# %% [markdown]
# ## Two correlated outputs: a multitask GP
# *A second quantity was measured at 20 of 100 inputs.* `NKNMultiTaskGP` is BoTorch's `MultiTaskGP`
# with a network. Each row is one observation; the last column is the task.


# %%
def second(x):
    return 50 + 3 * (function(x) + 0.5 * torch.sin(x[:, 0]))


tasks = torch.arange(120)[:, None] // 100
X = torch.cat([torch.cat([few_x, few_x[:20]]), tasks], -1)
Y = torch.cat([values, second(few_x[:20]) + 0.1 * torch.randn(20)])[:, None]
new_second = second(test_x) + 0.1 * torch.randn(400)
scores, on_line = [], {}
for name, make in KERNELS.items():
    gp = fit_bo_model(NKNMultiTaskGP(X, Y, task_feature=-1, structure=make()))
    with torch.no_grad():
        found, along = gp.posterior(test_x, observation_noise=True), gp.posterior(line)
    density = Normal(found.mean[:, 1], found.variance[:, 1].sqrt())
    scores.append(density.log_prob(new_second))
    on_line[name] = along.mean[:, 1], along.stddev[:, 1]
compare("two outputs", *scores)

# %% mystnb={"image": {"alt": "Second output along a line with intervals: network, RBF and truth"}}
draw_line(second(line), on_line, "second output")

# %% [markdown]
# ## Slopes: the derivative of a fitted model
# *How steep is the function, and is it certain that it rises?* `gradient_posterior` takes a fitted
# model, here from the first section. The true slope jumps at x1 = 0, which both kernels miss.


# %%
def slopes(x):
    x = x.clone().requires_grad_()
    return torch.autograd.grad(function(x).sum(), x)[0]


scores, on_line = [], {}
for name, fit in exact.items():
    found, along = (gradient_posterior(fit.model, x) for x in (test_x[:200], line))
    scores.append(Normal(found.mean, found.stddev).log_prob(slopes(test_x[:200])).mean(-1))
    on_line[name] = along.mean[:, 0].detach(), along.stddev[:, 0].detach()
compare("slopes", *scores)

# %% mystnb={"image": {"alt": "Slope along a line with intervals: network, RBF and truth"}}
draw_line(slopes(line)[:, 0], on_line, "slope in x1")

# %% [markdown]
# ## A table without a pattern
# *Does it help on my data?* The periodic primitives help because the function is periodic. In the
# diabetes table of scikit-learn (442 patients) the target depends almost linearly on ten columns.

# %%
table_x, table_y = (torch.tensor(part).double() for part in load_diabetes(return_X_y=True))
table_x, table_y = table_x / table_x.std(0), (table_y - table_y.mean()) / table_y.std()
kept, held_out = torch.randperm(442).split(300)
scores = []
for kernel in (NeuralKernelNetwork.regression(10), make_rbf(10)):
    own = YourModel(table_x[kept], table_y[kept], kernel)
    fit_best_of(own, restarts=RESTARTS, seed=0)
    new = own.likelihood(own(table_x[held_out]))
    scores.append(Normal(new.mean, new.stddev).log_prob(table_y[held_out]).detach())
compare("diabetes", *scores)
pd.DataFrame(summary).T.round(2)

# %% tags=["remove-cell"]
for name, row in summary.items():
    gain = row["difference"] / row["standard error"]
    assert (gain > 2) != (name == "diabetes"), f"{name}: {gain:.1f} standard errors"
