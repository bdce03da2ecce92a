# %% [markdown]
# # Spectral kernels: frequencies that depend on the input
# An RBF kernel assumes that a function is equally smooth everywhere. The kernels in this tutorial
# are non-stationary: their value depends on the *location* of the two inputs, not only on their
# distance. The tutorial explains the kernels, compares them with an RBF kernel on sixty points, and
# shows what they have learned.

# %%
import math
import warnings

import matplotlib.pyplot as plt
import pandas as pd
import torch
from botorch.exceptions import InputDataWarning
from botorch.models import SingleTaskGP
from gpytorch.kernels import RBFKernel, ScaleKernel
from linear_operator.utils.warnings import NumericalWarning

from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.kernels import NonStationarySpectralKernel
from gpytorch_nkn.models import SpectralGP, fit_spectral_gp
from gpytorch_nkn.plotting import plot_kernel

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
BLUE, ORANGE, GRAY = "#1f5fa8", "#d1580b", "#808080"
SEED, STARTS, POINTS = 0, 3, 60
torch.set_default_dtype(torch.float64)
warnings.filterwarnings("ignore", category=InputDataWarning)  # of inputs beyond the unit cube
warnings.filterwarnings("ignore", category=NumericalWarning)  # of added jitter, which is expected

# %% [markdown]
# ## Pairs of frequencies
# A stationary kernel is a sum of waves, $\cos m (x - x')$. A non-stationary kernel has *pairs* of
# frequencies $\omega, \omega'$ (Yaglom's theorem), and `NonStationarySpectralKernel` is a sum over
# such pairs. With the mean $m$ and half the difference $\delta$ of a pair, its term is
#
# $$k(x, x') = \cos(\delta x) \cos(\delta x') \cos m (x - x'),$$
#
# a wave in an envelope that depends on the location. The example below has three pairs that were
# set by hand. Left: the pairs of frequencies with power. A stationary kernel has all its power on
# the dotted diagonal; power beside the diagonal creates envelopes. Middle: the kernel around two
# locations. Right: functions drawn from this kernel.

# %% mystnb={"image": {"alt": "Frequency pairs, kernel values, three functions with envelopes"}}
pairs = torch.tensor([[2.0, 2.0], [5.0, 6.0], [9.0, 11.0]])  # cycles per second
kernel = NonStationarySpectralKernel(3, 1)
kernel.initialize(lengthscale=1.0)
kernel.frequencies = 2 * math.pi * pairs.T.unsqueeze(-1)
kernel.requires_grad_(False)

seconds = torch.linspace(-1, 1, 400)
features = kernel.features(seconds.unsqueeze(-1))
draws = features @ torch.randn(6, 3, generator=torch.Generator().manual_seed(SEED))

figure, axes = plt.subplots(1, 3, figsize=(14.5, 3.6), layout="constrained")
figure.get_layout_engine().set(w_pad=0.12)
first, second = torch.cat([pairs, pairs.flip(1), pairs[:, [0, 0]], pairs[:, [1, 1]]]).T
axes[0].plot(torch.cat([first, -first]), torch.cat([second, -second]), "o", color=BLUE, ms=5)
axes[0].axline((0, 0), slope=1, color=GRAY, lw=0.8, ls=":")
axes[0].set(aspect="equal", xlabel="frequency ω (cycles/s)", ylabel="frequency ω′ (cycles/s)")
plot_kernel(axes[1], kernel, seconds, origins=[0, 0.25], x_label="time (s)")
axes[2].plot(seconds, draws + torch.tensor([6.0, 0.0, -6.0]), lw=1.2)
axes[2].set(xlabel="time (s)", yticks=[], title="three functions, one above the other")
for ax in axes[1:]:
    ax.set_xticks([-1, -0.5, 0, 0.5, 1])
axes[2].spines[["top", "right", "left"]].set_visible(False)
plt.show()

# %% [markdown]
# The fast wave appears and disappears twice per second, because frequencies of 9 and 11 cycles per
# second beat twice per second. The middle wave does so once per second, and the slow wave, a pair
# of equal frequencies, is always present. All envelopes have their maximum at zero, the *centre* of
# the kernel, and are symmetric about it. A few pairs therefore model a burst in the middle, but
# never a function that is slow on the left and fast on the right.
#
# ## Sixty points
# One test function is a chirp, whose frequency rises from 1 to 13 cycles per second. The other is a
# burst in the middle of a slow wave. Each kernel gets sixty noisy points and the same number of
# restarts. `SpectralGP` has its own trainer. Up to 2000 rows it has an RBF kernel, and it adds
# pairs of frequencies only if they predict held-out rows better.


# %%
def chirp(t):
    return torch.sin(2 * math.pi * (t + 6 * t.square()))


def burst(t):
    wave = torch.cos(2 * math.pi * t)
    return wave + torch.exp(-0.5 * ((t - 0.5) / 0.12).square()) * torch.sin(20 * math.pi * t)


def wavelengths():
    return ScaleKernel(RBFKernel().initialize(lengthscale=4 * 10 ** (-2 * torch.rand(1).item())))


def some_pairs():
    seed = int(torch.randint(1000, (1,)))  # fit_best_of sets the random state of each start
    kernel = NonStationarySpectralKernel(5, 1, seed=seed)
    return kernel.initialize(lengthscale=4 * 10 ** (-1 - torch.rand(1).item()))


PAIRS = "5 pairs"
KERNELS = {"RBF": wavelengths, PAIRS: some_pairs}
grid = torch.linspace(0, 1, 400).unsqueeze(-1)


def compare(function):
    """Root mean squared errors and models, by name; inputs of the models run from -2 to 2."""
    generator = torch.Generator().manual_seed(SEED)
    t = torch.rand(POINTS, 1, generator=generator)
    y = function(t) + 0.1 * torch.randn(t.shape, generator=generator)
    x, models = 4 * t - 2, {}
    for name, make in KERNELS.items():
        fit = fit_best_of(
            lambda make=make: SingleTaskGP(x, y, covar_module=make()), restarts=STARTS, seed=SEED
        )
        models[name] = fit.model
    models["SpectralGP"] = SpectralGP(x, y)
    fit_spectral_gp(models["SpectralGP"], restarts=STARTS, max_iterations=60)
    errors = {}
    for name, model in models.items():
        with torch.no_grad():
            mean = model.posterior(4 * grid - 2).mean
        errors[name] = (mean - function(grid)).square().mean().sqrt().item()
    return errors, models, (t, y)


functions = {"chirp": chirp, "burst": burst}
results = {name: compare(function) for name, function in functions.items()}
errors = pd.DataFrame({name: result[0] for name, result in results.items()})
errors.round(3)

# %% mystnb={"image": {"alt": "RBF kernel and five pairs on a chirp and on a burst"}}
figure, panels = plt.subplots(2, 2, figsize=(13, 5.2), layout="constrained", sharex=True)
for row, (name, function) in zip(panels, functions.items(), strict=True):
    _, models, (t, y) = results[name]
    for ax, shown, color in zip(row, ("RBF", PAIRS), (BLUE, ORANGE), strict=True):
        with torch.no_grad():
            posterior = models[shown].posterior(4 * grid - 2)
        mean, spread = posterior.mean[:, 0], posterior.variance.sqrt()[:, 0]
        ax.fill_between(
            grid[:, 0], mean - 2 * spread, mean + 2 * spread, color=color, alpha=0.2, lw=0
        )
        ax.plot(grid[:, 0], mean, color=color, lw=1.5)
        ax.plot(grid[:, 0], function(grid), color="black", lw=1, ls=":")
        ax.plot(t, y, "o", color=GRAY, markersize=3)
        ax.set_title(f"{name}: {shown}", loc="left")
        ax.spines[["top", "right"]].set_visible(False)
for ax in panels[1]:
    ax.set_xlabel("time (s)")
plt.show()

# %% [markdown]
# The RBF kernel has the smaller errors on both functions, although one lengthscale must fit both
# ends of the chirp. Nothing prevents free frequencies from fitting the noise of sixty points.
# `SpectralGP` compares the pairs on held-out rows and keeps only its RBF kernel here.

# %%
for name, (_, models, _) in results.items():
    weight = models["SpectralGP"].spectral_kernel.outputscale.item()
    print(f"{name}: pairs beside the RBF kernel are {'off' if weight < 1e-6 else 'on'}")

# %% [markdown]
# The values of a kernel around a location show the frequencies that it has learned there
# (`x_offset` and `x_scale` convert the units). The chirp has 3.4 cycles per second at 0.2 seconds,
# and 10.6 at 0.8 seconds.

# %% mystnb={"image": {"alt": "The RBF kernel and the kernel of five pairs around two locations"}}
_, models, _ = results["chirp"]
figure, axes = plt.subplots(1, 2, figsize=(11, 3.5), layout="constrained")
figure.get_layout_engine().set(w_pad=0.1)
for ax, name in zip(axes, ("RBF", PAIRS), strict=True):
    units = {"x_offset": 0.5, "x_scale": 0.25, "x_label": "time (s)"}
    plot_kernel(ax, models[name].covar_module, grid, origins=[0.2, 0.8], **units)
    ax.set_title(name, loc="left", pad=28)
axes[1].set_ylabel("")
plt.show()

# %% [markdown]
# ## Which kernel to use
#
# | you have | use |
# | --- | --- |
# | few points, and no prior knowledge | RBF, or `SpectralGP`, which adds pairs where they help |
# | thousands of rows, and a need for uncertainties | `SpectralGP`, also with `stationary=True` |
# | classes, or mini-batches | `ASKLClassifier`, `ASKLRegressor`, compared with a tuned SVC |
#
# Limitation: pairs of frequencies overfit small data sets. [Results](../docs/results.md)
# has larger data sets, with the gain from learned frequencies.

# %% tags=["remove-cell"]
# The claims of this page.
chirps = errors["chirp"]
assert chirps[PAIRS] > chirps["RBF"], errors
assert (errors.loc["SpectralGP"] < 1.1 * errors.loc["RBF"]).all(), errors
assert errors.loc["RBF", "burst"] < errors.loc[PAIRS, "burst"], errors
