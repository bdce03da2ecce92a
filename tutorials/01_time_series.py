# %% [markdown]
# # Learn the structure of a time series and extrapolate it
# A kernel chosen by hand says in advance what a series may do. A Neural Kernel Network starts
# from many simple kernels and learns, by gradient descent, which sums and products of them the
# data ask for. This page learns the monthly CO2 concentration at Mauna Loa up to 1991, forecasts
# the ten years after it, and then looks at what the fit went through.

# %%
import os

import matplotlib.pyplot as plt
import numpy as np

from gpytorch_nkn.baselines import rbf_forecast
from gpytorch_nkn.datasets import decimal_years, load_co2
from gpytorch_nkn.estimators import NKNForecaster
from gpytorch_nkn.plotting import plot_forecast

SMOKE = os.environ.get("GPYTORCH_NKN_SMOKE") == "1"  # set in tests: fewer points and restarts

series = load_co2()
time, co2, past = decimal_years(series.x), series.y, ~series.test  # the last ten years are held out
if SMOKE:
    time, co2, past = time[::4], co2[::4], past[::4]
print(f"{past.sum()} months to learn from, {(~past).sum()} to forecast")

# %% [markdown]
# ## Three lines
# `NKNForecaster` standardises the series, takes start values from its periodogram, trains
# several restarts and keeps the one of highest posterior.

# %%
forecaster = NKNForecaster(restarts=1 if SMOKE else 3, random_state=0)
forecaster.fit(time[past], co2[past])
mean, std = forecaster.predict(time[~past], return_std=True)

# %%
lower, upper = forecaster.predict_interval(time)
figure, axes = plt.subplots(figsize=(9, 4), layout="constrained")
plot_forecast(
    axes,
    time,
    forecaster.predict(time),
    lower,
    upper,
    train=(time[past], co2[past]),
    test=(time[~past], co2[~past]),
    x_label="year",
    y_label="CO2 (ppm)",
)
plt.show()

# %% [markdown]
# ## Against a kernel that does not know of seasons
# The radial basis function kernel, with the same data and its likelihood maximised from several
# starts, returns to the mean as soon as the data end.

# %%
rbf = rbf_forecast(time[past], co2[past], time[~past])


def rmse(prediction):
    return float(np.sqrt(np.mean((prediction - co2[~past]) ** 2)))


network_error, rbf_error = rmse(mean), rmse(rbf.mean)
covered = np.mean((co2[~past] > lower[~past]) & (co2[~past] < upper[~past]))
print(f"RMSE: network {network_error:.2f} ppm, RBF {rbf_error:.2f} ppm")
print(f"the 95 % band holds {covered:.0%} of the ten years")

# %% [markdown]
# ## What the fit went through
# Every restart leaves a record: its loss, the criterion that ranks it, evaluations and time.
# Restarts matter: the likelihood of a series has many optima, most of them at wrong periods.

# %%
print(forecaster.result_)

# %% [markdown]
# ## What the primitives have become
# Lengthscales and periods, back in years.

# %%
for kernel in forecaster.model_.covar_module.primitives:
    name = type(kernel).__name__
    if hasattr(kernel, "period_length"):
        print(f"{name:15} period {kernel.period_length.item() * forecaster.x_scale_:7.3f} years")
    elif kernel.has_lengthscale:
        print(f"{name:15} lengthscale {kernel.lengthscale.item() * forecaster.x_scale_:7.1f} years")

# %%
# The claim of this page.
if not SMOKE:
    assert network_error < 0.5 * rbf_error, (network_error, rbf_error)
