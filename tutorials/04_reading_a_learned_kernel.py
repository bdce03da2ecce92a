# %% [markdown]
# # Reading a learned kernel
# A network of kernels that forecasts well has found something out. At the end of this page you have
# asked it what: the kernel written out as a sum, the fit split into a trend and a cycle, a report
# in plain words, a kernel short enough to remember, and for a model with several inputs what each
# of them does.
#
# The series is the monthly CO2 concentration at Mauna Loa, learned up to 1991.

# %%
import math

import matplotlib.pyplot as plt
import numpy as np
import torch
from botorch.models import SingleTaskGP

from gpytorch_nkn.datasets import load_co2
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.fit import fit_best_of
from gpytorch_nkn.interpretation import decompose, effects, expand, report, simplify
from gpytorch_nkn.kernels import NeuralKernelNetwork
from gpytorch_nkn.plotting import (
    plot_components,
    plot_cumulative,
    plot_effects,
    plot_kernel,
    plot_network,
)

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
BLUE, ORANGE = "#1f5fa8", "#d1580b"

series = load_co2()
dates, co2, past = series.x, series.y, ~series.test
print(f"{past.sum()} months to learn from, {(~past).sum()} that are held out")

# %% [markdown]
# ## A fit to read
# A network likes to spread one idea over many look-alike products. That does not hurt a forecast,
# but it is hard to read. `sparsity="l1"` is a prior that prefers few strong connections.

# %%
forecaster = NKNForecaster(
    NeuralKernelNetwork.time_series(sparsity="l1"),
    transform="identity",
    restarts=3,
    random_state=1,
).fit(dates[past], co2[past])

# %% [markdown]
# ## The kernel is a polynomial
# Layers of sums with positive weights and of products make a polynomial of the primitives. `expand`
# writes it out. Numbers in brackets are lengthscales and periods; the number in front is the
# *share*: how much of the prior variance $k(x, x)$, averaged over the data, the term stands for.
# A large constant says no more than that the level of the series was not known in advance.

# %%
expansion = expand(forecaster)
print(expansion)

# %% [markdown]
# ## The network itself
# The same kernel, unit by unit, from the primitives at the left to the output at the right. Each
# box shows the kernel of a unit over twelve years, enough to distinguish cycles, and thick
# lines carry most. Follow the dark boxes back from the output: pale ones hardly
# count.

# %% mystnb={"image": {"alt": "The network's units from primitives to output, each a curve"}}
figure, axes = plt.subplots(figsize=(10, 5.2), layout="constrained")
plot_network(axes, forecaster.model_.covar_module, x=forecaster.model_.train_inputs[0])
plt.show()

# %% [markdown]
# ## From the kernel to the data
# Shares speak of what *could* happen. To learn what *did* happen, `decompose` sorts the terms by
# what they do over time (trend, cycle, smooth variation) and splits the fit accordingly.

# %% mystnb={"image": {"alt": "The trend explains most, the cycle takes most of the error away"}}
split = decompose(forecaster)
figure, axes = plt.subplots(figsize=(8, 2.2), layout="constrained")
plot_cumulative(
    axes,
    [part.name for part in split.components],
    split.explained,
    errors=split.errors,
    error_label="mean absolute error (ppm),\ncross-validated",
)
plt.show()

# %% [markdown]
# Read it from top to bottom. *Explained* is the share of the variance of the data that the parts
# so far account for. The yearly cycle adds less than three percent, which looks like little beside
# a trend of 40 ppm. The error at the right is honest: ten blocks of years are predicted from
# the others, and the cycle takes away most of what the trend leaves.
#
# Each component is a Gaussian process with a band of its own. `curves` follows them for ten years
# past the data. Which of them the level belongs to, the data cannot know; it goes to the trend, so
# that it does not blur the others.

# %% mystnb={"image": {"alt": "Trend, cycle and smooth variation, each with a band"}}
DECADE = 10 * 365.25  # dates are counted in days
curves = split.curves(DECADE)
figure, axes = plt.subplots(len(curves), figsize=(9, 2.3 * len(curves)), layout="constrained")
plot_components(axes, curves, x_label="year", y_label="ppm")
plt.show()

# %% [markdown]
# ## In plain words
# `report` does all of this in one call and says it in sentences. It also checks the model: whether
# one-step-ahead errors are independent, and whether held-out points fall where they should.

# %%
findings = report(forecaster, y_name="CO2", y_unit="ppm", horizon=DECADE)
print("\n".join(findings.summary))
for section in findings.sections:
    print(f"\n{section.title}\n  " + "\n  ".join(section.sentences))
# findings.save("co2.html") makes one page with all figures

# %% [markdown]
# ## The kernel as a belief
# Forget the data for a moment. Which series does the kernel find plausible? Draw some. The network
# sees standardised time; the forecaster knows by what it was shifted and scaled, in days since
# 1970.

# %% mystnb={"image": {"alt": "Functions drawn from the kernel, and the kernel over eight years"}}
kernel = forecaster.model_.covar_module
time = 1970 + dates.astype("datetime64[M]").astype(int) / 12  # decimal years
in_years = {
    "x_offset": 1970 + forecaster.x_offset_ / 365.2425,
    "x_scale": forecaster.x_scale_ / 365.2425,
}
figure, panels = plt.subplots(2, figsize=(9, 4.6), layout="constrained")
plot_kernel(panels[0], kernel, time, show="samples", samples=3, x_label="year", **in_years)
plot_kernel(panels[1], kernel, np.linspace(1980, 1988, 400), x_label="year", **in_years)
plt.show()

# %% [markdown]
# Above: draws whose level changes over decades, with a yearly cycle on top. Below: the covariance
# of a month with the months around it. A June is closer to the next June than to the
# December between them.

# %% [markdown]
# ## A kernel to take home
# `simplify` looks for the fewest terms that do the job. What comes out is an ordinary GPyTorch
# kernel, refitted, that runs without this package.

# %%
simple = simplify(forecaster)
print(simple)

# %% [markdown]
# That is close to the kernel which experts have built by hand for this very series (Rasmussen and
# Williams, 2006, section 5.4.3): a slow trend, a yearly cycle that may change its shape, and
# irregularities over a year or so.

# %%
print(simple.kernel)

# %% [markdown]
# GPyTorch's periodic kernel holds a constant, so that its product with an RBF is partly a smooth
# variation. `simplify(..., zero_mean=True)` takes periodic kernels without one: its terms are
# easier to separate, but the kernel needs this package.
#
# Was something lost? The ten years that were put aside give one more answer. It is one decade of
# one series: another start may end in another short kernel, which forecasts better or worse.

# %% mystnb={"image": {"alt": "Errors of network and short kernel over ten years put aside"}}
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
# The question changes: not what happens over time, but which columns matter, and which of them
# work together. Here `a` acts alone, `b` and `c` act together, and `d` does nothing. The preset
# `additive` starts near a sum of one kernel per column, so that products must be worth learning.

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
# `effects` asks the fitted function: what does one column do on average over the others,
# and what do two of them do beyond that?

# %%
influence = effects(surrogate, columns=columns)
print(influence)

# %% [markdown]
# *First* is what a column explains alone, *total* what it explains with all its interactions.
# `c` does nothing alone and much together with `b`: no look at single columns finds that.

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
