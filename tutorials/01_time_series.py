# %% [markdown]
# # Forecast a time series
# Which processes a series is made of is seldom known: a level that wanders, a trend that bends, a
# season that drifts, noise that lasts a while. `NKNForecaster` tries several networks of kernels,
# judges them by the forecasts that they would have made, and lets all of them forecast together.
# This page forecasts the monthly CO2 concentration at Mauna Loa from 1992 on, looks at what was
# tried, and takes the forecast apart.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

from gpytorch_nkn.baselines import rbf_forecast
from gpytorch_nkn.datasets import load_co2
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.interpretation import decompose, expand
from gpytorch_nkn.plotting import plot_forecast

SMOKE = os.environ.get("GPYTORCH_NKN_SMOKE") == "1"  # set in tests: fewer points and structures

series = load_co2()
dates, co2, past = series.x, series.y, ~series.test  # the last ten years are held out
if SMOKE:
    dates, co2, past = dates[-200:], co2[-200:], past[-200:]
print(f"{past.sum()} months to learn from, {(~past).sum()} to forecast")

# %% [markdown]
# ## Three lines
# Time comes as dates, and may have gaps. The forecaster sees that there is a year in it; `horizon`
# says how many steps ahead the structures are to be judged.

# %%
forecaster = NKNForecaster(
    horizon=int((~past).sum()), quality="fast" if SMOKE else "default", random_state=0
)
forecaster.fit(dates[past], co2[past])
median, std = forecaster.predict(dates[~past], return_std=True)
print(f"seasons: {forecaster.seasons_} days")

# %%
lower, upper = forecaster.predict_interval(dates)
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
plot_forecast(
    axes,
    dates.astype("datetime64[D]"),
    forecaster.predict(dates),
    lower,
    upper,
    train=(dates[past].astype("datetime64[D]"), co2[past]),
    test=(dates[~past].astype("datetime64[D]"), co2[~past]),
    x_label="year",
    y_label="CO2 (ppm)",
)
plt.show()

# %% [markdown]
# ## Against a kernel that does not know of seasons
# The radial basis function kernel, with the same data and its likelihood maximised from several
# starts, returns to the mean as soon as the data end.

# %%
days = dates.astype("datetime64[D]").astype(float)
rbf = rbf_forecast(days[past], co2[past], days[~past])


def rmse(prediction):
    return float(np.sqrt(np.mean((prediction - co2[~past]) ** 2)))


covered = np.mean((co2[~past] > lower[~past]) & (co2[~past] < upper[~past]))
print(f"RMSE: forecaster {rmse(median):.2f} ppm, RBF {rmse(rbf.mean):.2f} ppm")
print(f"the 95 % band holds {covered:.0%} of the ten years")

# %% [markdown]
# ## What was tried
# Every structure was fitted to the series and to its logarithm. `log_density` is what counts: the
# mean log density that its forecasts from sixteen earlier months gave to the values that came
# next. Weights follow it, gently: the best of several candidates is the best by chance, too.
# Without a season nothing good can be said of this series, and that candidate gets next to no
# weight.

# %%
print(forecaster.scores_.round(3).to_string(index=False))

# %% [markdown]
# ## What the first of them has learned
# A structure is a network whose wiring is known: products of primitives, each with a weight.
# `expand` writes it out as a sum. WIE is a random walk, IWIE a trend whose slope is one, MATERN1/2
# what lasts a while; numbers in brackets are lengthscales and periods.

# %%
first = forecaster.members_[0]
print(f"{first.name}, {first.transform}, weight {first.weight:.2f}")
print(expand(forecaster))

# %% [markdown]
# The posterior splits along these terms: what each of them says of the past. (Levels and trends
# that wander share what neither the data nor the priors tell apart.)

# %%
print(decompose(forecaster))

# %% [markdown]
# ## A series without any pattern
# A random walk has no trend to extrapolate, whatever it looks like: nobody can tell a fall from
# chance. The forecast starts at the last value and follows the fall so far by a part; its band
# opens with the horizon and holds that the series stays, or returns.

# %%
rng = np.random.default_rng(1)
time, walk = np.arange(150.0), rng.standard_normal(150).cumsum()
ahead = np.arange(150.0, 180.0)
wandering = NKNForecaster(horizon=30, random_state=0).fit(time, walk)
lower, upper = wandering.predict_interval(ahead)
figure, axes = plt.subplots(figsize=(9, 3), layout="constrained")
plot_forecast(axes, ahead, wandering.predict(ahead), lower, upper, train=(time, walk))
plt.show()

# %% [markdown]
# ## The network of the paper
# `structure="time_series"` trains the network of Sun et al. (2018) instead: radial, periodic,
# linear and rational quadratic primitives, and layers of sums and products that are learned
# altogether, from several starts. It needs no season, and finds periods by itself; it knows no
# walks. `quality="best"` lets it forecast beside the others. What such a network has learned is
# read in tutorial 04.

# %%
network = NKNForecaster("time_series", transform="identity", restarts=1, random_state=0)
network.fit(dates[past], co2[past])
print(f"RMSE: forecaster {rmse(median):.2f} ppm, network {rmse(network.predict(dates[~past])):.2f}")

# %%
# The claim of this page.
if not SMOKE:
    assert rmse(median) < 0.1 * rmse(rbf.mean), (rmse(median), rmse(rbf.mean))
