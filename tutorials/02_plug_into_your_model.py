# %% [markdown]
# # Plug the kernel into your own model
# A `NeuralKernelNetwork` is a GPyTorch kernel. It works wherever a model takes a `covar_module`: an
# `ExactGP` with its own training loop, BoTorch's `SingleTaskGP`, a multi-output model, or a sparse
# variational model. This tutorial replaces the kernel in each of these models. The
# data are from the two-dimensional function of the paper's first figure, whose pattern continues
# beyond the training data.
# For each model you see which line to change and what the change gains.

# %%

import gpytorch
import matplotlib.pyplot as plt
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from gpytorch.kernels import PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO

from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.layers import PAPER_WIRING, parse_wiring
from gpytorch_nkn.mlls import AnalyticExactMarginalLogLikelihood

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
torch.set_default_dtype(torch.float64)
torch.manual_seed(0)


def function(x):
    # the paper multiplies by sqrt(x1 x2), which is not real everywhere; by sqrt(|x1 x2|) it is
    return (torch.cos(2 * x[:, 0]) + torch.cos(2 * x[:, 1])) * x.prod(-1).abs().sqrt()


train_x = 12 * torch.rand(100, 2) - 6
train_y = function(train_x) + 0.05 * torch.randn(100)
axis = torch.linspace(-8, 8, 61)
grid = torch.cartesian_prod(axis, axis)
truth = function(grid)
outside = (grid.abs() > 6).any(-1)

# %% [markdown]
# ## Your own network
# Any kernel can be a primitive; `active_dims` selects its input dimensions. The preset
# `NeuralKernelNetwork.regression(2)` is enough for smooth functions. This function is periodic, so
# the network needs periodic primitives.


# %%
def make_network():
    primitives = []
    for column in (0, 1):
        primitives += [
            RBFKernel(active_dims=(column,)),
            PeriodicKernel(active_dims=(column,)),
            RBFKernel(active_dims=(column,)).initialize(lengthscale=4.0),
        ]
    return NeuralKernelNetwork(primitives, parse_wiring(PAPER_WIRING, 6, priors=True))


print(make_network()(train_x[:3]).to_dense())

# %% [markdown]
# ## An ExactGP with its own training loop
# Only the `covar_module` changes.


# %%
class YourModel(gpytorch.models.ExactGP):
    def __init__(self, x, y, likelihood, kernel):
        super().__init__(x, y, likelihood)
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


likelihood = gpytorch.likelihoods.GaussianLikelihood()
model = YourModel(train_x, train_y, likelihood, make_network())
mll = ExactMarginalLogLikelihood(likelihood, model)
optimizer = torch.optim.Adam(model.parameters(), lr=0.03)
losses = []
for _ in range(150):
    optimizer.zero_grad()
    loss = -mll(model(train_x), train_y)
    loss.backward()
    optimizer.step()
    losses.append(loss.item())
print(f"loss {losses[0]:.3f} -> {losses[-1]:.3f}")

# %% [markdown]
# ## Several restarts
# `fit_best_of` takes the same model, trains it from several starting points that depend on the
# data, and keeps the best.

# %%
result = fit_best_of(
    YourModel(train_x, train_y, gpytorch.likelihoods.GaussianLikelihood(), make_network()),
    restarts=6,
    seed=0,
)
network_mean, _ = result.predict(grid)
print(result)

baseline = fit_best_of(
    YourModel(
        train_x,
        train_y,
        gpytorch.likelihoods.GaussianLikelihood(),
        ScaleKernel(RBFKernel(ard_num_dims=2)),
    ),
    restarts=6,
    seed=0,
)
rbf_mean, _ = baseline.predict(grid)

# %% mystnb={"image": {"alt": "Maps: the network continues the pattern, RBF returns to its mean"}}
figure, panels = plt.subplots(1, 3, figsize=(11, 3.6), layout="constrained", sharey=True)
limit = truth.abs().max()
for panel, values, title in zip(
    panels, (truth, network_mean, rbf_mean), ("truth", "network", "RBF, ARD"), strict=True
):
    image = panel.pcolormesh(
        axis, axis, values.view(61, 61).T, cmap="RdBu_r", vmin=-limit, vmax=limit, shading="nearest"
    )
    panel.plot(*train_x.T, "k.", markersize=2)
    panel.add_patch(plt.Rectangle((-6, -6), 12, 12, fill=False, linestyle="--"))
    panel.set(title=title, xlabel="x1", aspect="equal")
panels[0].set_ylabel("x2")
figure.colorbar(image, ax=panels, label="f(x1, x2)")
plt.show()


# %%
def error(mean, where):
    return ((mean - truth)[where].square().mean() / truth[where].square().mean()).sqrt().item()


for where, name in ((~outside, "inside the box of data"), (outside, "outside it")):
    print(
        f"relative error {name}: "
        f"network {error(network_mean, where):.2f}, RBF {error(rbf_mean, where):.2f}"
    )

# %% [markdown]
# ## In BoTorch
# `SingleTaskGP` takes the kernel as `covar_module`; `fit_gpytorch_mll` and acquisition functions
# work unchanged. `AnalyticExactMarginalLogLikelihood` replaces GPyTorch's
# `ExactMarginalLogLikelihood`: it has the same value, but computes the gradient in closed form.
# With several outputs, all parameters need the batch shape of the outputs, which the presets take
# as `batch_shape`.

# %%
single = SingleTaskGP(train_x, train_y.unsqueeze(-1), covar_module=NeuralKernelNetwork.additive(2))
fit_gpytorch_mll(
    AnalyticExactMarginalLogLikelihood(single.likelihood, single),
    optimizer_kwargs={"options": {"maxiter": 200}},
    max_attempts=1,
)
print("one output:", single.posterior(grid[:2]).mean.shape)

two_outputs = torch.stack([train_y, train_y.square()], -1)
double = SingleTaskGP(
    train_x, two_outputs, covar_module=NeuralKernelNetwork.additive(2, batch_shape=torch.Size([2]))
)
print("two outputs:", double.posterior(grid[:2]).mean.shape)


# %% [markdown]
# ## In a sparse variational GP


# %%
class SparseModel(gpytorch.models.ApproximateGP):
    def __init__(self, inducing_points, kernel):
        distribution = gpytorch.variational.CholeskyVariationalDistribution(len(inducing_points))
        super().__init__(
            gpytorch.variational.VariationalStrategy(self, inducing_points, distribution)
        )
        self.mean_module = gpytorch.means.ConstantMean()
        self.covar_module = kernel

    def forward(self, x):
        return gpytorch.distributions.MultivariateNormal(self.mean_module(x), self.covar_module(x))


sparse = SparseModel(train_x[:40].clone(), make_network())
likelihood = gpytorch.likelihoods.GaussianLikelihood()
elbo = VariationalELBO(likelihood, sparse, num_data=len(train_y))
optimizer = torch.optim.Adam([*sparse.parameters(), *likelihood.parameters()], lr=0.03)
bounds = []
for _ in range(100):
    optimizer.zero_grad()
    loss = -elbo(sparse(train_x), train_y)
    loss.backward()
    optimizer.step()
    bounds.append(loss.item())
print(f"negative evidence lower bound {bounds[0]:.2f} -> {bounds[-1]:.2f}")

# %% tags=["remove-cell"]
# The claim of this page: the same data, restarts and recipe, and the pattern goes on.
assert losses[-1] < losses[0] and bounds[-1] < bounds[0]
assert error(network_mean, outside) < 0.8 * error(rbf_mean, outside)
