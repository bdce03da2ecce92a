# %% [markdown]
# # Forecast a time series
# You rarely know the structure of a series in advance. It may follow a random walk, a trend, a
# changing season or autocorrelated noise. `NKNForecaster` trains several networks of kernels,
# scores each one by rolling forecasts, and averages them. This tutorial forecasts the monthly CO2
# concentration at Mauna Loa from 1992 on, compares the candidates, and decomposes the forecast.

# %%

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models import SingleTaskGP
from botorch.models.transforms import Normalize
from gpytorch.kernels import RBFKernel, ScaleKernel
from gpytorch.mlls import ExactMarginalLogLikelihood

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
# The forecaster infers the yearly season from the index, which may have gaps. `horizon` is the
# number of steps ahead at which the candidates are scored. The forecast starts at the first step
# after the training data.

# %%
forecaster = NKNForecaster(horizon=len(later), random_state=0)
forecaster.fit(past)
forecast = forecaster.forecast(level=(80, 95))
print(forecast.iloc[[0, 1, -1]].round(2))

# %% mystnb={"image": {"alt": "CO2 up to 1991 and a forecast of ten years, with intervals"}}
forecaster.plot(held_out=later, history=400)
plt.show()

# %% [markdown]
# ## Comparison with an RBF kernel
# BoTorch's Gaussian process with an RBF kernel is fitted to the same data. It returns to its mean
# right after the last observation. Its lengthscale is initialised at two months: from longer
# lengthscales, the optimiser converges to a lower maximum of the marginal likelihood, which ignores
# the season.

# %%
months = torch.from_numpy(co2.index.asi8.astype(float)).unsqueeze(-1)
values = torch.from_numpy(past.to_numpy()).unsqueeze(-1)
kernel = ScaleKernel(RBFKernel())
kernel.base_kernel.lengthscale = 2 / len(past)
rbf = SingleTaskGP(months[: len(past)], values, covar_module=kernel, input_transform=Normalize(1))
fit_gpytorch_mll(ExactMarginalLogLikelihood(rbf.likelihood, rbf))
rbf_mean = rbf.posterior(months[-len(later) :]).mean.detach().squeeze(-1)
median = forecast["median"][later.index]


def rmse(prediction):
    return float(np.sqrt(np.mean((np.asarray(prediction) - later.to_numpy()) ** 2)))


interval = forecast.loc[later.index, ["lo-95", "hi-95"]]
covered = later.between(interval["lo-95"], interval["hi-95"]).mean()
print(f"RMSE: forecaster {rmse(median):.2f} ppm, RBF {rmse(rbf_mean):.2f} ppm")
print(f"the 95 % intervals hold {covered:.0%} of the ten years")

# %% [markdown]
# ## The candidates
# Every structure was fitted to the series and to transforms of the series. `log_density` is the
# mean log density of its forecasts from 48 earlier months. The weights are shrunk towards
# equal weights, because the best score is partly due to chance. Candidates that forecast poorly get
# almost no weight.

# %%
print(forecaster.scores_.drop(columns="seconds").round(3).to_string(index=False))

# %% [markdown]
# ## The best candidate
# Each structure is a network with a fixed wiring: a weighted sum of products of primitives.
# `expand` writes the kernel as a sum. WIE is a random walk (Wiener process), IWIE a trend whose
# slope is a random walk, and MATERN1/2 autocorrelated noise. The numbers in brackets are
# lengthscales and periods.

# %%
first = forecaster.members_[0]
print(f"{first.name}, {first.transform}, weight {first.weight:.2f}")
print(expand(forecaster))

# %% [markdown]
# `decompose` splits the posterior of the training data into these terms. (It joins the random walk
# of the level with the trend, because neither the data nor the priors separate them.)

# %%
print(decompose(forecaster))

# %% [markdown]
# ## Questions about several steps
# A prediction interval is for a single month. When will CO2 first exceed 370 ppm, and how high will
# the highest month of the next five years be? `sample_paths` draws joint sample paths, which answer
# such questions. It warns that 30 years are longer than the horizon for which the intervals were
# calibrated.

# %% tags=["remove-stderr"]
paths = forecaster.sample_paths(400, horizon=360, random_state=0)
above = paths.loc[:, (paths > 370).any()] > 370  # a few sample paths stay below
passed = above.idxmax().sort_values().iloc[[len(above.columns) * k // 100 for k in (5, 50, 95)]]
print(f"{above.shape[1]} of 400 pass 370 ppm within 30 years, first in", *passed, "(5, 50, 95 %)")
print("highest of five years:", paths[:60].max().quantile([0.05, 0.5, 0.95]).round(1).tolist())
print(f"it was passed in {later.index[later > 370][0]}; the highest was {later[:60].max():.1f}")

# %% [markdown]
# ## New observations
# `update` conditions the forecast on a new year of data without retraining.

# %%
before = forecaster.forecast(24, level=95)
forecaster.update(later[:12])
after = forecaster.forecast(12, level=95)
for what, table in (("before", before[12:]), ("after", after)):
    missed = (table["median"] - later[12:24]).abs().mean()
    width = (table["hi-95"] - table["lo-95"]).mean()
    print(f"{what} the update: mean error {missed:.2f} ppm, interval width {width:.2f} ppm")

# %% [markdown]
# ## Backtest
# `cross_validation` forecasts from several origins, each time from the data before the origin, and
# returns the forecasts together with the observed values.

# %%
fast = NKNForecaster(quality="fast", random_state=0)
table = fast.cross_validation(past, horizon=12, windows=3, step=60)
table["error"] = (table["median"] - table["y"]).abs()
table["inside"] = table["y"].between(table["lo-95"], table["hi-95"])
print(table.groupby("cutoff")[["error", "inside"]].mean().round(2))

# %% [markdown]
# ## A series without any pattern
# A random walk has no trend to extrapolate, even if it seems to have one. The forecast starts at
# the last value and continues part of the recent decline. The interval widens with the horizon; a
# constant level and a recovery both lie inside it.

# %% mystnb={"image": {"alt": "A random walk and its forecast, whose interval widens"}}
rng = np.random.default_rng(1)
walk = pd.Series(rng.standard_normal(150).cumsum())
NKNForecaster(horizon=30, random_state=0).fit(walk).plot(history=150)
plt.show()

# %% [markdown]
# ## The network of the paper
# `structure="time_series"` trains the network of Sun et al. (2018) instead. It combines RBF,
# periodic, linear and rational quadratic primitives by learned layers of sums and products, from
# several random starts. It needs no season and finds periods by itself, but it has no random-walk
# component. Tutorial 04 shows how to read such a network.

# %%
network = NKNForecaster(
    "time_series", transform="identity", horizon=len(later), restarts=1, random_state=0
)
network.fit(past)
print(f"RMSE: forecaster {rmse(median):.2f} ppm, network {rmse(network.predict(later.index)):.2f}")

# %% tags=["remove-cell"]
# The claim of this page.
assert rmse(median) < 0.1 * rmse(rbf_mean), (rmse(median), rmse(rbf_mean))
