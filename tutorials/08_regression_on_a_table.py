# %% [markdown]
# # Regression on a table
# `NKNRegressor` predicts one column of a table from the others. It needs no tuning, and you can
# read what it has learned. The first table comes from a formula, so every statement of the model
# can be checked. The second is a real table with strings, missing cells and a long-tailed target.
# LightGBM predicts both tables for comparison. The last table is one on which LightGBM wins.

# %%
import time

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from lightgbm import LGBMRegressor
from scipy.stats import loguniform, randint
from sklearn.model_selection import RandomizedSearchCV, train_test_split

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.interpretation import effects
from gpytorch_nkn.metrics import interval_coverage
from gpytorch_nkn.plotting import plot_calibration, plot_effects

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")
BLUE, ORANGE = "#1f5fa8", "#d1580b"
SEED, ROWS = 0, 150

# %% [markdown]
# ## A table with a known truth
# The target is the electric power that a building draws. Heating starts below 18 degrees and needs
# more power in the wind; cooling starts above 24 degrees. People and office hours add to the power,
# and solar panels on the roof reduce it. Humidity has no effect. The meter adds noise of 2 kW.


# %%
def power(table):
    """Power in kW; wind and temperature act together, all else adds up."""
    heating = (1.5 + 0.125 * table["wind"]) * np.logaddexp(0, 18 - table["temperature"])
    cooling = 4 * np.logaddexp(0, table["temperature"] - 24)
    office = 25 * np.exp(-0.5 * ((table["hour"] - 13) / 3.5) ** 2) + 0.15 * table["people"]
    return 60 + heating + cooling + office - 0.02 * table["sun"]


ranges = {
    "hour": (0, 24),
    "temperature": (-10, 35),
    "wind": (0, 12),
    "sun": (0, 900),
    "people": (0, 200),
    "humidity": (20, 95),
}
rng = np.random.default_rng(SEED)
building = pd.DataFrame({name: rng.uniform(*ends, ROWS + 1000) for name, ends in ranges.items()})
meter = power(building) + 2 * rng.standard_normal(len(building))
X, X_new, y, y_new = train_test_split(building, meter, train_size=ROWS, random_state=SEED)
X.head(3).round(1)

# %% [markdown]
# ## Fit and predict
# Columns may have any unit, because the regressor standardises them. It trains three networks
# (kernels over all columns; these plus kernels of single columns; sums and products of kernels of
# single columns). Below 500 rows it adds two single kernels, in case the data support nothing more
# complex. Each is trained from two starting points.

# %%
network = NKNRegressor(random_state=SEED).fit(X, y)
mean, std = network.predict(X_new, return_std=True)
lower, upper = network.predict_interval(X_new, level=0.95)
coverage = interval_coverage(y_new, lower, upper)
print(f"{coverage:.1%} of {len(y_new)} new rows lie in their 95 % intervals")

# %% [markdown]
# Intervals are for a new *observation*, noise included. `observation_noise=False` excludes the
# noise and gives the uncertainty of the function. The figure shows the power over the temperature,
# on a calm and on a windy day, beside the truth (dotted).

# %% mystnb={"image": {"alt": "Power over temperature on a calm and a windy day, with intervals"}}
figure, axes = plt.subplots(figsize=(7.5, 3.4), layout="constrained")
sweep = pd.DataFrame({name: np.full(100, np.mean(ends)) for name, ends in ranges.items()})
sweep["temperature"] = np.linspace(*ranges["temperature"], 100)
for wind, color in ((1, BLUE), (11, ORANGE)):
    day = sweep.assign(wind=wind)
    curve, spread = network.predict(day, return_std=True, observation_noise=False)
    axes.plot(day["temperature"], curve, color=color, label=f"wind {wind} m/s")
    axes.fill_between(
        day["temperature"], curve - 2 * spread, curve + 2 * spread, color=color, alpha=0.2, lw=0
    )
    axes.plot(day["temperature"], power(day), color="black", lw=1, ls=":")
axes.set(xlabel="temperature (°C)", ylabel="power (kW)", xlim=ranges["temperature"])
axes.legend(frameon=False)
axes.spines[["top", "right"]].set_visible(False)
plt.show()

# %% [markdown]
# ## Is it worth it?
# The usual alternatives are a single kernel with one lengthscale per column (`structure=` accepts
# any kernel) and boosted trees. The trees have default settings, or settings tuned by five-fold
# cross-validation.


# %%
def trees(**settings):
    return LGBMRegressor(random_state=SEED, n_jobs=1, verbose=-1, **settings)


choices = {
    "learning_rate": loguniform(0.02, 0.3),
    "n_estimators": randint(50, 600),
    "num_leaves": randint(4, 64),
    "min_child_samples": randint(2, 30),
    "reg_lambda": loguniform(0.01, 10),
}


def compare(X, y, X_new, y_new, *singles):
    """Scores of a mixture of networks, of single kernels, and of boosted trees."""
    models = {"networks": NKNRegressor(random_state=SEED)}
    for cls in singles:
        kernel = ScaleKernel(cls(ard_num_dims=X.shape[1]))
        models[cls.__name__] = NKNRegressor(kernel, random_state=SEED)
    models["LightGBM"] = trees()
    models["LightGBM, tuned"] = RandomizedSearchCV(trees(), choices, n_iter=30, random_state=SEED)
    scores = {}
    for name, model in models.items():
        begin = time.perf_counter()
        error = model.fit(X, y).predict(X_new) - y_new
        scores[name] = {"RMSE": np.sqrt((error**2).mean()), "mean error": error.abs().mean()}
        if isinstance(model, NKNRegressor):
            scores[name]["log density"] = model.log_predictive_density(X_new, y_new).mean()
        scores[name]["seconds"] = time.perf_counter() - begin
    return pd.DataFrame(scores).T, models["networks"]


known, _ = compare(X, y, X_new, y_new, RBFKernel, MaternKernel)
known.round(2)

# %% [markdown]
# Log densities score means and uncertainties; higher is better. `held_out_log_density_`
# is the same score on held-out training rows, available before any test row is used. These held-out
# predictions also determine the weight of each network (`members_`, `weights_`).

# %% [markdown]
# ## What does each column do?
# `effects` evaluates the fitted function. It measures the effect of each column, averaged over the
# others, and the additional effect of each pair. The results below describe `model_`, the member
# with the largest weight.

# %%
found = effects(network)
print(found)

# %% [markdown]
# *First* is the fraction of the variance that a column explains by itself; *total* includes all its
# interactions. Where the two differ, look at the pairs. The dotted lines are the truth.

# %% mystnb={"image": {"alt": "Effects of five columns and of wind with temperature"}}
shown = [*found.main[:5], *found.pairs[:1]]
figure, panels = plt.subplots(
    2, 3, figsize=(11, 5.4), width_ratios=[1, 1, 1.4], layout="constrained"
)
figure.get_layout_engine().set(w_pad=0.1)
plot_effects(panels.flat[: len(shown)], shown, y_label="effect (kW)")
for axes, effect in zip(panels.flat, found.main[:5], strict=False):
    (grid,) = effect.grid
    rows = pd.concat([X] * len(grid), ignore_index=True)  # the other columns as in the data
    truth = power(rows.assign(**{effect.label: np.repeat(grid, len(X))})).to_numpy()
    truth = truth.reshape(len(grid), len(X)).mean(1)
    centre = np.interp(X[effect.label], grid, truth).mean()
    axes.plot(grid, truth - centre, color="black", lw=1, ls=":", zorder=4)
plt.show()

# %% [markdown]
# The last panel shows the interaction: wind costs more than its average effect in the cold, and
# less in warm weather. Each dot is a row: the effect plus the residual.

# %% [markdown]
# ## A real table: strings, missing cells, a long tail
# Grunfeld's (1958) data set has the yearly investment of eleven American companies from 1935 to
# 1954. It also has their market value and their stock of plant and equipment. Companies are
# strings, and the amounts span three orders of magnitude. We remove a tenth of the market values
# and of the stocks. `NKNRegressor` needs no preparation; the strings are pandas categories because
# LightGBM requires that.

# %%
grunfeld = sm.datasets.grunfeld.load_pandas().data
firms = grunfeld[["value", "capital", "year", "firm"]].astype({"firm": "category"})
for column in ("value", "capital"):
    firms.loc[rng.uniform(size=len(firms)) < 0.1, column] = np.nan
X, X_new, y, y_new = train_test_split(firms, grunfeld["invest"], train_size=ROWS, random_state=SEED)
real, network = compare(X, y, X_new, y_new)
print(network.y_transform_.name, network.missing_fractions_.round(2))
real.round(2)

# %% [markdown]
# On held-out training rows, the logarithm of the target gave the best predictions, so
# `NKNRegressor` chose it; predictions are in dollars nevertheless. It imputes missing numbers and
# includes their uncertainty: the interval of a row is wider if an important number is missing.

# %% [markdown]
# ## Can it be trusted?
# Do the intervals contain as many rows as they should? They contain more of the test rows, so they
# are too wide rather than too narrow. `report` adds checks in words that need no test rows.

# %% mystnb={"image": {"alt": "Share of rows within intervals of each level, above the diagonal"}}
levels = np.arange(0.05, 1, 0.05)
inside = [interval_coverage(y_new, *network.predict_interval(X_new, level)) for level in levels]
figure, axes = plt.subplots(figsize=(3.8, 3.4), layout="constrained")
plot_calibration(axes, levels, inside, num_points=len(y_new))
plt.show()

# %% [markdown]
# ## When trees win
# A Gaussian process assumes that similar rows have similar targets. The price of a shipment
# violates this assumption. It jumps between classes of weight and zones of distance, for long and
# heavy items, and at weekends.

# %%
size = 2500
ends = {"weight": 30, "length": 150, "distance": 900, "day": 7}
shipments = pd.DataFrame({name: rng.uniform(0, end, size) for name, end in ends.items()})
shipments["day"] = np.floor(shipments["day"])
base = np.array([4, 6, 9, 14, 20])[np.searchsorted([2, 5, 10, 20], shipments["weight"])]
zones = 1 + 0.5 * (shipments["distance"] > 300) + 0.5 * (shipments["distance"] > 600)
extra = 8 * ((shipments["length"] > 60) & (shipments["weight"] > 5)) + 6 * (shipments["day"] > 4)
price = base * zones + extra + 0.5 * rng.standard_normal(size)
X, X_new, y, y_new = train_test_split(shipments, price, train_size=2 * ROWS, random_state=SEED)
steps, _ = compare(X, y, X_new, y_new)
steps.round(2)

# %% [markdown]
# Trees split where prices jump, and predict better here. With default settings they take
# milliseconds where networks take seconds, a difference that matters from about ten thousand rows
# on. Networks are better for smooth functions, for few rows, and where intervals matter. The
# comparison takes a few lines: run it on your own table.

# %% tags=["remove-cell"]
# The claims of this page.
for name, scores in (("known", known), ("real", real)):
    others = scores.drop(index="networks")
    assert scores.loc["networks", "RMSE"] < others["RMSE"].min(), (name, scores)
assert known.loc["networks", "log density"] == known["log density"].max(), str(known)
assert steps["RMSE"].idxmin() == "LightGBM, tuned", str(steps)
assert network.y_transform_.name == "log"

assert found.main[0].label == "temperature", str(found)
assert set(found.pairs[0].names) == {"temperature", "wind"}, str(found)
assert found.total_order[list(ranges).index("humidity")] < 0.02, str(found)
