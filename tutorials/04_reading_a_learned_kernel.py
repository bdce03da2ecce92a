# %% [markdown]
# # Reading a learned kernel
# A network that forecasts well has learned something about the series. This tutorial reads it as a
# sum of kernels, as components of the fit, and as a report in plain words. Then it finds a shorter
# kernel that predicts as well, and the effect of each of several inputs.
#
# The series is the monthly CO2 concentration at Mauna Loa up to 1991.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.models import SingleTaskGP
from gpytorch.distributions import MultivariateNormal

from gpytorch_nkn.datasets import load_co2
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.interpretation import decompose, effects, expand, report, simplify
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting import plot_components, plot_effects, plot_kernel, plot_network

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
BLUE, ORANGE = "#1f5fa8", "#d1580b"

series = load_co2()
dates, co2, past = series.x, series.y, ~series.test
print(f"{past.sum()} months to learn from, {(~past).sum()} that are held out")

# %% [markdown]
# ## A sparse fit
# A network tends to spread one component over many similar products. The forecast does not suffer,
# but the kernel is hard to read. `sparsity="l1"` is a prior that favours few strong connections.

# %%
forecaster = NKNForecaster(
    NeuralKernelNetwork.time_series(sparsity="l1"),
    horizon=int((~past).sum()),
    transform="identity",
    restarts=1,
    random_state=2,
).fit(dates[past], co2[past])

# %% [markdown]
# ## The kernel is a polynomial
# Sums with positive weights and products form a polynomial of the primitives, and `expand` writes
# it out. The numbers in brackets are lengthscales and periods. The number in
# front of a term is its *share*: the fraction of the prior variance $k(x, x)$, averaged over the
# data, that the term contributes. A large constant only means that the level of the series was not
# known in advance.

# %%
expansion = expand(forecaster)
print(expansion)

# %% [markdown]
# ## The network itself
# The figure shows the same kernel unit by unit, from the primitives on the left to the output on
# the right. Each box shows the kernel of one unit over twelve years, which is long enough to
# distinguish cycles. Thick lines carry most of the variance. Follow the dark boxes back from the
# output; pale boxes contribute almost nothing.

# %% mystnb={"image": {"alt": "The network's units from primitives to output, each a curve"}}
figure, axes = plt.subplots(figsize=(10, 5.2), layout="constrained")
plot_network(axes, forecaster.model_.covar_module, x=forecaster.model_.train_inputs[0])
plt.show()

# %% [markdown]
# ## From the kernel to the data
# The shares describe the prior, not the data. To see what the data contain, `decompose` groups the
# terms by their behaviour over time (trend, cycle, variation) and splits the fit
# accordingly.

# %%
split = decompose(forecaster)
print(split)

# %% [markdown]
# Read the table from top to bottom. *Explained* is the fraction of the variance of the data that
# the components up to this row account for. The yearly cycle adds less than three percent, which
# looks small beside a trend of 40 ppm. The
# *error* column is cross-validated: each of ten blocks of years is predicted from the others. The
# cycle removes half of the error that the trend leaves, and the variation most of the rest.
#
# Each component is a Gaussian process with its own credible interval. `curves` extends the
# components ten years beyond the data. The data do not determine to which component the level
# belongs. `decompose` assigns it to the trend, so that it does not widen the intervals of the
# others.

# %% mystnb={"image": {"alt": "Trend, cycle and variation, each with an interval"}}
DECADE = 10 * 365.25  # dates are counted in days
curves = split.curves(DECADE)
figure, axes = plt.subplots(len(curves), figsize=(9, 2.3 * len(curves)), layout="constrained")
plot_components(axes, curves, x_label="year", y_label="ppm")
plt.show()

# %% [markdown]
# ## In plain words
# `report` does all of this in one call and summarises it in sentences. It also checks the model:
# whether one-step-ahead errors are independent, and whether held-out points are predicted with the
# stated uncertainty.

# %%
findings = report(forecaster, y_name="CO2", y_unit="ppm", horizon=DECADE)
print("\n".join(findings.summary))
for section in findings.sections:
    print(f"\n{section.title}\n  " + "\n  ".join(section.sentences))
# findings.save("co2.html") makes one page with all figures

# %% [markdown]
# ## Prior samples
# Which series does the kernel consider plausible, before it sees any data? We draw some from the
# prior. The network works on standardised time; the forecaster stores the offset and the scale, in
# days since 1970.

# %% mystnb={"image": {"alt": "Functions drawn from the kernel, and the kernel over eight years"}}
kernel = forecaster.model_.covar_module
time = 1970 + dates.astype("datetime64[M]").astype(int) / 12  # decimal years
in_years = {
    "x_offset": 1970 + forecaster.x_offset_ / 365.2425,
    "x_scale": forecaster.x_scale_ / 365.2425,
}
figure, panels = plt.subplots(2, figsize=(9, 4.6), layout="constrained")
x = torch.as_tensor((time - in_years["x_offset"]) / in_years["x_scale"]).unsqueeze(-1)
torch.manual_seed(0)
with torch.no_grad():
    draws = MultivariateNormal(torch.zeros_like(x[:, 0]), kernel(x)).sample(torch.Size([3]))
panels[0].plot(time, draws.T, lw=1.3)
panels[0].set(ylabel="functions from the prior")
plot_kernel(panels[1], kernel, np.linspace(1980, 1988, 400), x_label="year", **in_years)
plt.show()

# %% [markdown]
# Above: sample paths whose level changes over decades, with a yearly cycle on top. Below: the
# covariance of a month with the months around it. A June is more similar to the next June than to
# the December between them.

# %% [markdown]
# ## A short kernel
# `simplify` searches for the fewest terms that predict as well. It returns an ordinary GPyTorch
# kernel, refitted, which runs without this package.

# %%
simple = simplify(forecaster)
print(simple)

# %% [markdown]
# Rasmussen and Williams (2006, section 5.4.3) designed a similar kernel for this series by hand.
# It has a slow trend, a yearly cycle whose shape may change, and irregularities over about a year.

# %%
print(simple.kernel)

# %% [markdown]
# GPyTorch's periodic kernel contains a constant, so its product with an RBF kernel partly models a
# smooth variation. `simplify(..., zero_mean=True)` uses periodic kernels without this constant: the
# terms are easier to separate, but the kernel needs this package.
#
# Does the short kernel predict worse? The ten held-out years give one answer. They are one decade
# of one series: another random start may lead to another short kernel, with better or worse
# forecasts.

# %% mystnb={"image": {"alt": "Errors of network and short kernel over ten held-out years"}}
ahead = torch.as_tensor(forecaster.standardised_time(dates[~past])).unsqueeze(-1)
with torch.no_grad():
    simple_mean = simple.model(ahead).mean.numpy()
misses = {
    "network": forecaster.predict(dates[~past]) - co2[~past],
    "simple": forecaster.y_offset_ + forecaster.y_scale_ * simple_mean - co2[~past],
}
rmse = {name: float(np.sqrt(np.mean(miss**2))) for name, miss in misses.items()}

figure, axes = plt.subplots(figsize=(8, 3), layout="constrained")
axes.axhline(0, color="#404040", linewidth=0.8)
for (name, miss), color in zip(misses.items(), (BLUE, ORANGE), strict=True):
    axes.plot(dates[~past], miss, color=color, label=f"{name} kernel, RMSE {rmse[name]:.2f} ppm")
axes.set(xlabel="year", ylabel="forecast less truth (ppm)")
axes.legend(loc="lower left", bbox_to_anchor=(0, 1), ncols=2, frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Several inputs
# With several inputs the question is which of them matter and which interact. Here `b` and `c`
# interact, `a` interacts with no other column, and `d` has no effect. The preset `additive` starts
# near a sum of one kernel per column, so interactions must be learned from the data.

# %%
torch.manual_seed(0)
x = torch.rand(80, 4, dtype=torch.float64)
truth = torch.sin(2 * math.pi * x[:, 0]) + x[:, 1] + 8 * (x[:, 1] - 0.5) * (x[:, 2] - 0.5)
y = truth + 0.1 * torch.randn(80, dtype=torch.float64)

additive = NeuralKernelNetwork.additive(4, sparsity="l1").double()
surrogate = SingleTaskGP(x, y.unsqueeze(-1), covar_module=additive)
fit_best_of(surrogate, restarts=4, seed=0)
columns = ["a", "b", "c", "d"]
print(expand(surrogate, columns=columns))

# %% [markdown]
# `effects` evaluates the fitted function. It measures the effect of each column, averaged over the
# others, and the additional effect of each pair.

# %%
influence = effects(surrogate, columns=columns)
print(influence)

# %% [markdown]
# *First* is the fraction of the variance that a column explains by itself; *total* includes all its
# interactions. `c` has no effect by itself but a large one together with `b`, which no plot of
# single columns would show.

# %% mystnb={"image": {"alt": "Effects of a, b and c, and the interaction of b and c"}}
shown = [*influence.main[:3], influence.pairs[0]]
figure, panels = plt.subplots(1, 4, figsize=(12, 2.9), layout="constrained")
plot_effects(panels, shown, y_label="effect on y")
plt.show()

# %% tags=["remove-cell"]
# The claims of this page.
trend, cycle = split.components[:2]
assert trend.role.kind == "trend" and cycle.role.kind == "cycle"
assert abs(cycle.role.period * split.gp.units.x_scale[0] - 1) < 0.02  # a year
assert split.errors[-1] < 0.3 * split.errors[0], split.errors

assert simple.loss < 0.05 and len(simple.terms) <= 3, str(simple)
assert any("PER" in term.label for term in simple.terms), str(simple)
assert rmse["simple"] < 1.5 * rmse["network"], rmse

assert influence.pairs[0].columns == (1, 2) and influence.pairs[0].share > 0.2
assert influence.total_order[3] < 0.01, influence.total_order
