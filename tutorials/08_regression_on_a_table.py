# %% [markdown]
# # Regression on a table
# A column to predict from the others: `NKNRegressor` does that without anything to tune, and what
# it has learned can be read. The first table comes from a formula, so that everything the model
# says can be checked. The second is real, with strings, gaps and a long tail; its truth is
# unknown. Both are predicted by boosted trees (LightGBM), too; at the end comes one where they win.

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
# ## A table whose truth is known
# The electric power that a building draws. Heating sets in below 18 degrees and needs more when
# the wind blows; cooling sets in above 24. People and office hours cost power, the sun on the roof
# saves some. Humidity does nothing. A meter adds noise of 2 kW.


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
# Columns may have any unit: they are standardised inside. Three networks of kernels are trained
# (kernels over all columns, the same with kernels of single columns, and sums and products of
# kernels of single columns), and below 500 rows two single kernels beside them, in case that the
# rows tell no more. Each has two starts.

# %%
network = NKNRegressor(random_state=SEED).fit(X, y)
mean, std = network.predict(X_new, return_std=True)
lower, upper = network.predict_interval(X_new, level=0.95)
coverage = interval_coverage(y_new, lower, upper)
print(f"{coverage:.1%} of {len(y_new)} new rows lie in their 95 % intervals")

# %% [markdown]
# Intervals are for a new *observation*, noise included. `observation_noise=False` excludes the
# noise, for the uncertainty of the function itself: here the power over temperature, on a calm
# and on a windy day, next to the truth (dotted).

# %% mystnb={"image": {"alt": "Power over temperature on a calm and a windy day, with bands"}}
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
# The usual choices: a single kernel with a lengthscale per column (`structure=` takes any), and
# boosted trees, at their defaults and with settings chosen by five folds.


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
# Log densities score intervals as well as means: higher is better. `held_out_log_density_` is the
# score of held-out training rows, known before a test row is used. Such predictions set the
# weight of each network (`members_`, `weights_`).

# %% [markdown]
# ## What does each column do?
# `effects` asks the fitted function: what does a column do on average over the others, and two
# columns together, beyond what each does alone? What follows reads `model_`, the largest member.

# %%
found = effects(network)
print(found)

# %% [markdown]
# *First* is the share of the variance that a column explains alone, *total* that with all its
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
# The last panel is the interaction: in the cold, wind costs more than it does on average, in the
# warmth less. Dots are rows: the effect plus what the model leaves over.

# %% [markdown]
# ## A real table: strings, gaps, a long tail
# Grunfeld's (1958) classic: what eleven American companies invested in each year from 1935 to
# 1954, with their market value and their stock of plant and equipment. Companies are strings, the
# amounts span three orders of magnitude, and we lose a tenth of the values and of the stocks.
# Nothing has to be prepared: strings are pandas' categories here, as LightGBM wants them.

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
# Held-out rows of the training data said that amounts are best modelled as logarithms; predictions
# are in dollars all the same. Numbers that are missing are imputed, with their uncertainty: the
# band of a row is wider where a number is missing that matters.

# %% [markdown]
# ## Can it be trusted?
# Do intervals hold as many rows as they promise? Of the rows that were put aside they hold more:
# they are wide rather than wrong. `report` adds checks that need no such rows, in words.

# %% mystnb={"image": {"alt": "Share of rows within intervals of each level, above the diagonal"}}
levels = np.arange(0.05, 1, 0.05)
inside = [interval_coverage(y_new, *network.predict_interval(X_new, level)) for level in levels]
figure, axes = plt.subplots(figsize=(3.8, 3.4), layout="constrained")
plot_calibration(axes, levels, inside, num_points=len(y_new))
plt.show()

# %% [markdown]
# ## When trees win
# A Gaussian process assumes that close rows have close targets. The price of a shipment is not like
# that: it jumps from one class of weight to the next, with zones of distance, for long and heavy
# items, and at weekends.

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
# Trees cut where prices jump, and are ahead. At their defaults they take milliseconds, networks
# seconds, which counts from some ten thousand rows on. Where functions are smooth, rows are
# few, or intervals matter, networks are ahead, as above. The comparison costs a few lines. Make it.

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
