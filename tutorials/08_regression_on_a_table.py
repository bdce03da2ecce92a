# %% [markdown]
# # Regression on a table
# Rows of numbers, and a column to predict from the others: `NKNRegressor` does that without
# anything to tune, and what it has learned can be read. The first table comes from a formula, so
# that everything the model says can be checked. The second is real, and nobody knows the truth.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import statsmodels.api as sm
from gpytorch.kernels import MaternKernel, RBFKernel, ScaleKernel
from sklearn.datasets import load_diabetes
from sklearn.model_selection import train_test_split

from gpytorch_nkn.estimators import NKNRegressor
from gpytorch_nkn.interpretation import decompose, effects, expand, report, simplify
from gpytorch_nkn.metrics import interval_coverage
from gpytorch_nkn.plotting import plot_calibration, plot_cumulative, plot_effects, plot_qq

SMOKE = os.environ.get("GPYTORCH_NKN_SMOKE") == "1"  # set in tests: fewer rows and starts
BLUE, ORANGE, GRAY = "#1f5fa8", "#d1580b", "#808080"
SEED, STARTS, ROWS = 0, 1 if SMOKE else 2, 30 if SMOKE else 150

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
network = NKNRegressor(restarts=STARTS, random_state=SEED).fit(X, y)
mean, std = network.predict(X_new, return_std=True)
lower, upper = network.predict_interval(X_new, level=0.95)
coverage = interval_coverage(y_new, lower, upper)
print(f"{coverage:.1%} of {len(y_new)} new rows lie in their 95 % band")

# %% [markdown]
# Bands tell where a new *observation* lies, noise included. `observation_noise=False` leaves the
# noise out, for the uncertainty of the function itself: here the power over temperature, on a calm
# and on a windy day, next to the truth (dotted).

# %%
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
# ## Is the network worth it?
# A single kernel with a lengthscale per column (ARD) is the usual choice and trains in a fraction
# of the time. `structure=` takes any kernel, so that the comparison is fair by construction: the
# same rows, the same starts, the same optimiser.


# %%
def compare(network, X, y, X_new, y_new):
    """Scores of a fitted network and of two single kernels."""
    models = {"network": network}
    dim = X.shape[1]
    for name, kernel in {
        "RBF-ARD": RBFKernel(ard_num_dims=dim),
        "Matern-ARD": MaternKernel(nu=2.5, ard_num_dims=dim),
    }.items():
        single = NKNRegressor(ScaleKernel(kernel), restarts=STARTS, random_state=SEED)
        models[name] = single.fit(X, y)
    scores = {
        name: {
            "held-out density": model.left_out_log_density_,
            "test density": model.log_predictive_density(X_new, y_new).mean(),
            "test RMSE": np.sqrt(np.mean((model.predict(X_new) - y_new) ** 2)),
        }
        for name, model in models.items()
    }
    return pd.DataFrame(scores).T


known = compare(network, X, y, X_new, y_new)
known.round(3)

# %% [markdown]
# Densities are mean log densities: higher is better, and they judge bands as well as means. The
# first column was there before a test row was touched: of so few rows every start first sees two
# thirds, and predicts others before it goes on with all of them. With all rows a model does
# better, so that the first column errs on the safe side; what counts is that it ranks the models.
#
# The same predictions decide what is mixed: each network gets the share under which the mixture
# predicts rows that it has not seen best.


# %%
def print_shares(model):
    for (name, start), weight in zip(model.members_, model.weights_, strict=True):
        print(f"{weight:6.1%}  {name}, start {start}")


print_shares(network)

# %% [markdown]
# ## What does each column do?
# `effects` asks the fitted function: what does a column do on average over the others, and what do
# two columns do together, beyond what each does alone? All that follows reads `model_`, the member
# of the largest share.

# %%
found = effects(network, samples=64 if SMOKE else 2048)
print(found)

# %% [markdown]
# *First* is the share of the variance that a column explains alone, *total* that with all its
# interactions. Where the two differ, look at the pairs. The dotted lines are the truth.

# %%
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
#
# `decompose` splits the *kernel* by the columns that its terms see, and the fit with it. Columns
# that need no others come out clean. What several columns share may be in the component of all
# columns: the kernel cannot know that only two of them act together. For that, trust the effects.

# %%
split = decompose(network)
figure, axes = plt.subplots(figsize=(8, 2.8), layout="constrained")
plot_cumulative(
    axes,
    [part.name for part in split.components[:6]],
    split.explained[:6],
    errors=split.errors[:6],
    error_label="mean absolute error (kW),\ncross-validated",
)
plt.show()

# %% [markdown]
# ## A real table
# Grunfeld's (1958) classic: what eleven American companies invested in each year from 1935 to
# 1954, with their market value and their stock of plant and equipment. Amounts span three orders
# of magnitude, so that logarithms are taken. A third of the rows is put aside.

# %%
grunfeld = sm.datasets.grunfeld.load_pandas().data
firms = np.log(grunfeld[["value", "capital"]]).assign(year=grunfeld["year"])
invested = np.log(grunfeld["invest"])
X, X_new, y, y_new = train_test_split(firms, invested, train_size=ROWS, random_state=SEED)

network = NKNRegressor(restarts=STARTS, random_state=SEED).fit(X, y)
real = compare(network, X, y, X_new, y_new)
real.round(3)

# %%
print_shares(network)

# %% [markdown]
# ## What has it found?
# Written out, the kernel is a sum of products of its primitives, by falling share of the prior
# variance. Numbers in brackets are lengthscales, in units of the columns.

# %%
print(expand(network))

# %% [markdown]
# Most of these terms say much the same. `simplify` looks for the few that do the job, and refits
# them as a kernel of GPyTorch's own classes.

# %%
options = {"max_terms": 1, "max_candidates": 2} if SMOKE else {"max_terms": 3, "max_candidates": 8}
simple = simplify(network, restarts=0, **options)
print(simple)

# %% [markdown]
# Few parts are left. A slow one: investment follows the market value, on logarithmic scales nearly
# along a straight line. (From other rows it is a linear kernel, from others an RBF with long
# lengthscales: on these data they say the same.) And one over all columns, with short
# lengthscales: the table does not name the companies, but value, capital and year together give
# them away, as rows that are close in all three are of one company in neighbouring years. A single
# kernel, with one lengthscale per column, cannot be both.

# %%
influence = effects(network, samples=64 if SMOKE else 2048)
shown = [*influence.main, *influence.pairs[:1]]
figure, panels = plt.subplots(
    1, 4, figsize=(13, 2.9), width_ratios=[1, 1, 1, 1.5], layout="constrained"
)
figure.get_layout_engine().set(w_pad=0.1)
plot_effects(panels[: len(shown)], shown, y_label="effect on log investment")
plt.show()

# %% [markdown]
# A caveat that holds for every method of this kind: averages over the other columns ask for rows
# that do not exist (a small company with the largest plants). Bands widen there; do not read more
# than they allow.
#
# ## Can it be trusted?
# `report` collects the reading in words, and adds checks of the model. Do residuals look like the
# noise of the model, and do intervals hold as many held-out rows as they should?

# %%
findings = report(network, y_name="log investment")  # findings.save("report.html") for a page
print("\n".join(findings.text.splitlines()[:20]))

# %%
quantiles = findings.residual_checks.qq
levels = np.arange(0.05, 1, 0.05)
inside = [interval_coverage(y_new, *network.predict_interval(X_new, level)) for level in levels]
figure, panels = plt.subplots(1, 2, figsize=(8, 3.4), layout="constrained")
plot_qq(panels[0], quantiles.x, quantiles.observed, quantiles.lower, quantiles.upper)
plot_calibration(panels[1], levels, inside, num_points=len(y_new))
plt.show()

# %% [markdown]
# At the right are the rows that were put aside, and the bands of the mixture: the check that needs
# no assumption at all.
#
# ## Many rows
# The code stays the same. Exact training costs the cube of the number of rows; beyond twice
# `block_size` rows (2000), the networks learn from random blocks of rows instead, and beyond some
# 12,000, predictions go through inducing points (`method="sparse"`). Here both are forced on a
# small table, to show where the switches are.

# %%
rest, first = (building[300:], building[:300]) if SMOKE else (building[ROWS:], building[:ROWS])
sparse = NKNRegressor(
    "columns",
    restarts=1,
    block_size=60 if SMOKE else 250,
    method="sparse",
    num_inducing=50 if SMOKE else 200,
    random_state=SEED,
)
sparse.fit(rest, meter[rest.index])
error = np.sqrt(np.mean((sparse.predict(first) - power(first)) ** 2))
print(f"RMSE of the function with {len(rest)} rows and inducing points: {error:.2f} kW")

# %% [markdown]
# For models of your own, or in BoTorch, `SparseNKNGP` (to some ten thousand rows) and
# `VariationalNKNGP` (above, by mini-batches) in `gpytorch_nkn.models` are the same networks with
# inducing points that are trained.
#
# ## When not
# Networks earn their time where parts of the function differ, as above: straight lines in some
# columns, bends in others, a few interactions. Not every table is like that. How far diabetes has
# progressed after a year is mostly noise to the ten columns of this one:

# %%
patients = load_diabetes(as_frame=True, scaled=False)
X, X_new, y, y_new = train_test_split(
    patients.data, patients.target, train_size=2 * ROWS, random_state=SEED
)
noisy = compare(NKNRegressor(restarts=STARTS, random_state=SEED).fit(X, y), X, y, X_new, y_new)
noisy.round(3)

# %% [markdown]
# The mixture has not found structure where there is none, because it was asked to predict rows
# that its networks had not seen, and single kernels did so as well. But it is no better than they
# are, and takes longer. The comparison costs a few lines. Make it.

# %%
# The claims of this page.
if not SMOKE:
    for name, scores in (("known", known), ("real", real)):
        singles = scores.drop(index="network")
        assert scores.loc["network", "test RMSE"] < singles["test RMSE"].min(), (name, scores)
        assert scores.loc["network", "test density"] > singles["test density"].max(), (name, scores)

    assert found.main[0].label == "temperature", str(found)
    assert set(found.pairs[0].names) == {"temperature", "wind"}, str(found)
    assert found.total_order[list(ranges).index("humidity")] < 0.02, str(found)
    assert len(simple.terms) <= 3, str(simple)
    assert any("[value, capital, year]" in term.label for term in simple.terms), str(simple)
    assert error < 2, error  # the noise
