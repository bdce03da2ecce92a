import numpy as np
import pytest
import torch
from scipy.stats import norm

from gpytorch_nkn.estimators.series.member import Scales, SeriesGP, rolling_log_density
from gpytorch_nkn.kernels import NeuralKernelNetwork


@pytest.mark.parametrize("logs", [False, True])
@pytest.mark.parametrize("line", [False, True])
def test_rolling_forecasts_are_those_of_processes_that_know_the_past_only(logs, line):
    rng = np.random.default_rng(0)
    time, values = np.arange(30.0), 20 + rng.standard_normal(30).cumsum()
    scales = Scales(29.0, 4.0, 2.0, 3.0, logs)
    x, y = scales.inputs(time[:, None], None), scales.targets(values, None)
    kernel = NeuralKernelNetwork.forecast(origin=-8.0, seasons=[1.0]).double()
    model = SeriesGP(x, y, kernel, priors=True, line=line).double()
    got = rolling_log_density(model, scales, values, horizon=5, first=10, floor=-np.inf)

    expected = []
    for origin in np.unique(np.linspace(10, 29, 16).astype(int)):
        past = SeriesGP(x[:origin], y[:origin], kernel, priors=True, line=line).double().eval()
        past.load_state_dict(model.state_dict())
        with torch.no_grad():
            ahead = past.likelihood(past(x[origin : origin + 5]))
        mean, std = 2 + 3 * ahead.mean.numpy(), 3 * ahead.stddev.numpy()
        target = values[origin : origin + 5]
        own = np.log(target) if logs else target
        expected.append(np.mean(norm.logpdf(own, mean, std) - np.log(target) * logs))
    assert got == pytest.approx(np.mean(expected), rel=1e-6)
