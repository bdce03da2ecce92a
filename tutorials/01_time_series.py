# %% [markdown]
# # Forecast a time series
# Which processes a series is made of is seldom known: a level that wanders, a trend that bends, a
# season that drifts, noise that lasts a while. `NKNForecaster` tries several networks of kernels,
# judges them by the forecasts that they would have made, and lets all of them forecast together.
# This page forecasts the monthly CO2 concentration at Mauna Loa from 1992 on, looks at what was
# tried, and takes the forecast apart.

# %%

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd

from gpytorch_nkn.baselines import rbf_forecast
from gpytorch_nkn.datasets import load_co2
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.interpretation import decompose, expand

plt.style.use("gpytorch_nkn.plotting.gpytorch_nkn")

series = load_co2()
co2 = pd.Series(series.y, pd.PeriodIndex(series.x, freq="M"), name="CO2 (ppm)")
past, later = co2[~series.test], co2[series.test]  # the last ten years are held out
print(f"{len(past)} months to learn from, {len(later)} to forecast")

# %% [markdown]
# ## Three lines
# A pandas series brings its times along; they may have gaps. The forecaster sees that there is a
# year in it; `horizon` says how many steps ahead the structures are to be judged. The forecast goes
# on where the index ends.

# %%
forecaster = NKNForecaster(horizon=len(later), random_state=0)
forecaster.fit(past)
forecast = forecaster.forecast(level=(80, 95))
print(forecast.iloc[[0, 1, -1]].round(2))

# %% mystnb={"image": {"alt": "CO2 up to 1991 and the forecast of ten years, with bands"}}
forecaster.plot(held_out=later, history=400)
plt.show()

# %% [markdown]
# ## Against a kernel that does not know of seasons
# The radial basis function kernel, with the same data and its likelihood maximised from several
# starts, returns to the mean as soon as the data end.

# %%
months = co2.index.asi8.astype(float)
rbf = rbf_forecast(months[: len(past)], past.to_numpy(), months[-len(later) :])
median = forecast["median"][later.index]


def rmse(prediction):
    return float(np.sqrt(np.mean((np.asarray(prediction) - later.to_numpy()) ** 2)))


band = forecast.loc[later.index, ["lo-95", "hi-95"]]
covered = later.between(band["lo-95"], band["hi-95"]).mean()
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
# ## Questions of several steps at once
# Bands are for one month each. When is 370 ppm first passed, and how high will the highest month of
# the next five years be? `sample_paths` draws whole futures, of which such things are counted.

# %%
paths = forecaster.sample_paths(400, horizon=360, random_state=0)
above = paths.loc[:, (paths > 370).any()] > 370  # a few of the futures never get there
passed = above.idxmax().sort_values().iloc[[len(above.columns) * k // 100 for k in (5, 50, 95)]]
print(f"{above.shape[1]} of 400 pass 370 ppm within 30 years, first in", *passed, "(5, 50, 95 %)")
print("highest of five years:", paths[:60].max().quantile([0.05, 0.5, 0.95]).round(1).tolist())
print(f"it was passed in {later.index[later > 370][0]}; the highest was {later[:60].max():.1f}")

# %% [markdown]
# ## New observations
# `update` takes a new year into account without training anew: the forecast starts from it.

# %%
before = forecaster.forecast(24, level=95)
forecaster.update(later[:12])
after = forecaster.forecast(12, level=95)
for what, table in (("before", before[12:]), ("after", after)):
    missed = (table["median"] - later[12:24]).abs().mean()
    width = (table["hi-95"] - table["lo-95"]).mean()
    print(f"{what} the update: mean error {missed:.2f} ppm, width of the band {width:.2f} ppm")

# %% [markdown]
# ## How well it would have done
# `cross_validation` forecasts from several origins, each time from what came before, and puts what
# was observed beside it.

# %%
judged = NKNForecaster(quality="fast", random_state=0)
table = judged.cross_validation(past, horizon=12, windows=3, step=60)
table["error"] = (table["median"] - table["y"]).abs()
table["inside"] = table["y"].between(table["lo-95"], table["hi-95"])
print(table.groupby("cutoff")[["error", "inside"]].mean().round(2))

# %% [markdown]
# ## A series without any pattern
# A random walk has no trend to extrapolate, whatever it looks like: nobody can tell a fall from
# chance. The forecast starts at the last value and follows the fall so far by a part; its band
# opens with the horizon and holds that the series stays, or returns.

# %% mystnb={"image": {"alt": "A random walk and its forecast, whose band opens"}}
rng = np.random.default_rng(1)
walk = pd.Series(rng.standard_normal(150).cumsum())
NKNForecaster(horizon=30, random_state=0).fit(walk).plot(history=150)
plt.show()

# %% [markdown]
# ## The network of the paper
# `structure="time_series"` trains the network of Sun et al. (2018) instead: radial, periodic,
# linear and rational quadratic primitives, and layers of sums and products that are learned
# altogether, from several starts. It needs no season, and finds periods by itself; it knows no
# walks. What such a network has learned is
# read in tutorial 04.

# %%
network = NKNForecaster("time_series", transform="identity", restarts=1, random_state=0)
network.fit(past)
print(f"RMSE: forecaster {rmse(median):.2f} ppm, network {rmse(network.predict(later.index)):.2f}")

# %% tags=["remove-cell"]
# The claim of this page.
assert rmse(median) < 0.1 * rmse(rbf.mean), (rmse(median), rmse(rbf.mean))
