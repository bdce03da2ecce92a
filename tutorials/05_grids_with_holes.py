# %% [markdown]
# # Grids with holes
# Images, videos and arrays of sensors are values on a grid, often with missing cells. A Gaussian
# process whose kernel is a product over the dimensions of the grid is exact there. It takes a
# fraction of a second where a dense Gaussian process would not fit into memory. Each dimension
# learns its own kernel. This tutorial fills a synthetic texture, whose truth is known, then a
# photograph, and finally the readings of sensors at irregular locations.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.kernels import MaternKernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood
from skimage import data

from gpytorch_nkn.grids import inpaint
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.models import KroneckerGridGP, fit_grid_gp
from gpytorch_nkn.plotting import plot_inpainting, plot_kernel

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
SEED = 0
torch.set_default_dtype(torch.float64)

# %% [markdown]
# ## A texture with a known truth
# The image shows woven cloth. Threads run down and across and pass alternately over and under each
# other, so the pattern repeats every two threads. We cut out a rectangle.


# %%
def cloth(height, width, down, across, seed):
    """Gray values of a plain weave whose threads are so many pixels apart."""
    row, column = np.mgrid[:height, :width]
    warp, weft = np.abs(np.cos(np.pi * column / across)), np.abs(np.cos(np.pi * row / down))
    above = (np.floor(row / down + 0.5) + np.floor(column / across + 0.5)) % 2 == 0
    gray = np.where(above, 0.25 + warp * (0.3 + 0.2 * weft), 0.15 + weft * (0.2 + 0.15 * warp))
    return gray + 0.03 * np.random.default_rng(seed).standard_normal(gray.shape)


size = (120, 150)
image = cloth(*size, down=17, across=12, seed=SEED)
hole = np.zeros(size, dtype=bool)
hole[size[0] // 3 : size[0] * 7 // 10, size[1] // 3 : size[1] * 7 // 10] = True

# %% [markdown]
# One call fills the hole. Missing cells are NaN or `True` in the mask, as in scikit-image and
# OpenCV; values under the mask are ignored. The kernel of each dimension is a Neural Kernel Network
# of linear, RBF, rational quadratic and periodic kernels. Training maximises the marginal
# likelihood from several starts. The start that best predicts held-out blocks with the shape of the
# hole is selected.

# %%
result = inpaint(image, hole, seed=SEED)
print(result.fit)

# %% mystnb={"image": {"alt": "Cloth with a hole, filled, the truth, and standard deviations"}}
figure, axes = plt.subplots(1, 4, figsize=(13, 3.7), layout="constrained")
plot_inpainting(axes, result, truth=image)
plt.show()

# %% [markdown]
# ## Is the network worth it?
# The first competitor is the same model with an RBF kernel per dimension, trained on the same data
# and scored on the same blocks. It smooths, and returns to its mean within a few pixels of the
# edge. The second is a harmonic interpolant, as used in image editors: each pixel is the mean of
# its neighbours. Errors are mean squared errors in the hole, divided by the variance there. A
# constant prediction at the mean of the hole has an error of 1.


# %%
def harmonic(image, hole):
    filled = np.where(hole, image[~hole].mean(), image)
    for _ in range(5000):
        neighbours = sum(np.roll(filled, step, axis) for step in (1, -1) for axis in (0, 1))
        filled[hole] = neighbours[hole] / 4
    return filled


def error(filled, truth, hole):
    return np.mean((filled - truth)[hole] ** 2) / truth[hole].var()


def compare(result, image, hole):
    """Errors of the network, of RBF kernels and of the harmonic fill."""
    rbf = inpaint(image, hole, structure="rbf", interpolants="kernel", seed=SEED)
    fills = {"network": result.filled, "RBF": rbf.filled, "harmonic": harmonic(image, hole)}
    return {name: error(filled, image, hole) for name, filled in fills.items()}


woven = compare(result, image, hole)
print({name: round(float(value), 3) for name, value in woven.items()})

# %% [markdown]
# ## Uncertainty
# `result.std` is the predictive standard deviation of a missing pixel, noise included. The
# variances are calibrated on the errors of the held-out blocks, so that intervals reach their
# nominal coverage. The true content of the hole, which was not used for the fit, provides the
# check:


# %%
def coverage(result, truth, hole, factor=1.96):
    return np.mean(np.abs(result.mean - truth)[hole] < factor * result.std[hole])


woven_coverage = coverage(result, image, hole)
print(f"{woven_coverage:.1%} of the missing pixels lie in their 95 % intervals")
print(f"standard deviations from {result.std[hole].min():.3f} to {result.std[hole].max():.3f}")

# %% [markdown]
# ## What has it learned?
# `result.model.kernels` holds one kernel per dimension. Their inputs are not pixels, but run from
# -1 to 1 along the longer side; `x_offset` and `x_scale` convert them. The kernel is high where two
# pixels are similar. Dotted lines mark the true period, two threads. (The axes do not start at
# zero: most of the left kernel is a constant, because all rows share a pattern. The peaks
# distinguish the rows.)

# %% mystnb={"image": {"alt": "Learned kernels of rows and columns peak at the true periods"}}
half = max(size) / 2  # pixels per unit of the kernels' inputs
repeats = {"row": 2 * 17, "column": 2 * 12}
learned = []
figure, axes = plt.subplots(1, 2, figsize=(11, 3), layout="constrained")
for ax, kernel, length, (name, repeat) in zip(
    axes, result.model.kernels, size, repeats.items(), strict=True
):
    middle = length // 2
    plot_kernel(
        ax,
        kernel,
        np.arange(length),
        origins=[middle],
        x_offset=(length - 1) / 2,
        x_scale=half,
        x_label=name,
    )
    for place in np.arange(middle % repeat, length, repeat):
        ax.axvline(place, color="black", lw=1, ls=":")
    (periodic,) = (part for part in kernel.primitives if isinstance(part, PeriodicKernel))
    learned.append(periodic.period_length.item() * half)
    print(f"{name}s: repeat of {learned[-1]:.2f} pixels learned, {repeat} true")
plt.show()

# %% [markdown]
# ## A photograph
# The photograph shows bricks and is part of scikit-image. The rows of bricks are neither parallel
# nor equally high, and the vertical joints are offset. The image is therefore not a product of two
# patterns, and no kernel of this type can reconstruct joints that lie entirely inside the hole. It
# can continue the joints that enter the hole, and state its uncertainty.

# %%
bricks = data.brick()[144:368, 144:368] / 255
cut = np.zeros(bricks.shape, dtype=bool)
cut[80:120, 90:140] = True
wall = inpaint(bricks, cut, seed=SEED)
real = compare(wall, bricks, cut)
wall_coverage = coverage(wall, bricks, cut)
print({name: round(float(value), 3) for name, value in real.items()})
print(f"{wall_coverage:.1%} of the missing pixels lie in their 95 % intervals")

# %% mystnb={"image": {"alt": "Bricks with a hole, filled, and the standard deviations"}}
figure, axes = plt.subplots(1, 4, figsize=(13, 4), layout="constrained")
plot_inpainting(axes, wall, truth=bricks)
plt.show()

# %% [markdown]
# Colour images take `channel_axis=-1`; the channels share their kernels. For files there is a
# command: `gpytorch-nkn inpaint photo.png --mask scratches.png --out filled`.
#
# ## Sensors at irregular locations, in BoTorch
# Videos work in the same way, with time as the third dimension. `inpaint` uses the model
# `KroneckerGridGP`, whose grid may have any number of dimensions with arbitrary coordinates. This
# example has forty weather stations, whose location has *two* columns, and hourly readings with
# gaps in time. Single readings are missing, some stations failed for two days, and for one day all
# readings are missing.

# %%
torch.manual_seed(SEED)
stations, days = 40, 6


def temperature(locations, hours):
    """Degrees at locations ``n x 2`` (km) and hours ``m``; a town is warm and cools less."""
    east, north = locations[:, :1], locations[:, 1:]
    town = 3 * torch.exp(-((east - 4) ** 2 + (north - 6) ** 2) / 8)
    day = torch.sin(2 * math.pi * (hours - 9) / 24)
    return 15 - 0.4 * north + town + (4 - 0.5 * town) * day + 0.3 * torch.sin(hours / 11)


locations = 10 * torch.rand(stations, 2)
hours = torch.arange(24.0 * days)
hours = hours[torch.rand(len(hours)) < 0.9]
truth = temperature(locations, hours)
readings = truth + 0.3 * torch.randn(truth.shape)
missing = torch.rand(truth.shape) < 0.1
down = (hours >= 24 * (days // 2)) & (hours < 24 * (days // 2) + 24)
missing[:, down] = True
for station in range(4):
    missing[station, 10 * station : 10 * station + 48] = True
print(f"{len(locations)} stations x {len(hours)} hours, {missing.double().mean():.0%} missing")

# %% [markdown]
# Each dimension takes one kernel, from GPyTorch or from this package. `fit_gpytorch_mll` trains the
# model; `fit_grid_gp(model)` does the same and returns a record of the restarts.


# %%
def weather(kernel_of_time):
    kernels = [ScaleKernel(MaternKernel(nu=2.5)), kernel_of_time]
    return KroneckerGridGP([locations, hours], readings.masked_fill(missing, torch.nan), kernels)


model = weather(NeuralKernelNetwork.texture())
mll = ExactMarginalLogLikelihood(model.likelihood, model)
fit_gpytorch_mll(mll, seed=SEED)
smooth = weather(RBFKernel())
fit_grid_gp(smooth, seed=SEED)

mean, variance = model.predict()  # at the missing cells, in the units of the readings
outage = {}
for name, fitted in (("network", model), ("RBF", smooth)):
    outage[name] = (fitted.grid_mean() - truth)[:, down].square().mean().sqrt().item()
    print(f"{name}: error during the outage {outage[name]:.2f} degrees")

# %% [markdown]
# `posterior` accepts points anywhere, with the columns of all dimensions side by side, and supports
# gradients, so BoTorch's acquisition functions work. `grid_mean` and `sample` evaluate the model on
# the whole grid.
#
# ## Which tool to use
#
# | you have | use |
# | --- | --- |
# | an image, a video, an array with holes | `inpaint`: one call, arrays in, arrays out |
# | a grid with holes, kernels of your own, Gaussian noise | `KroneckerGridGP` |
# | a grid, with another likelihood or a sum of kernels | `VariationalNKNGP`, `SparseNKNGP` |
# | thousands of inputs that do not form a grid | `SparseNKNGP` |

# %% tags=["remove-cell"]
# The claims of this page.
assert woven["network"] < 0.1 < 0.7 < min(woven["RBF"], woven["harmonic"]), woven
assert real["network"] < 0.6 * real["RBF"] and real["network"] < real["harmonic"], real
assert 0.9 < woven_coverage < 0.99 and 0.8 < wall_coverage, (woven_coverage, wall_coverage)
for found, repeat in zip(learned, repeats.values(), strict=True):
    assert abs(found / repeat - 1) < 0.03, (found, repeat)
assert outage["network"] < 0.6 * outage["RBF"], outage
