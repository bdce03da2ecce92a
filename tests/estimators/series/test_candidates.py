import numpy as np
import pytest
import torch
from scipy.stats import norm

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.series.candidates import SeriesGP
from gpytorch_nkn.estimators.series.member import Member, Scales
from gpytorch_nkn.estimators.series.scoring import score
from gpytorch_nkn.estimators.series.series import Series
from gpytorch_nkn.fit import FitResult
from gpytorch_nkn.kernels import NeuralKernelNetwork

TRANSFORMS = {
    Transform(): (lambda y: y, lambda y: np.ones_like(y)),
    Transform("log", 0.0, power=0.0): (np.log, lambda y: 1 / y),
    Transform("sqrt", 0.0, power=0.5): (np.sqrt, lambda y: 0.5 / np.sqrt(y)),
}


@pytest.mark.parametrize(
    ("transform", "line"),
    list(zip([Transform(), *TRANSFORMS], [False, True, True, False], strict=True)),
)
def test_rolling_forecasts_are_those_of_processes_that_know_the_past_only(transform, line):
    rng = np.random.default_rng(0)
    time, values = np.arange(30.0), 20 + rng.standard_normal(30).cumsum()
    scales = Scales(29.0, 4.0, 2.0, 3.0, transform)
    forward, slope = TRANSFORMS[transform]
    x, y = scales.inputs(time[:, None], None), scales.targets(values, None)
    kernel = NeuralKernelNetwork.forecast(origin=-8.0, seasons=[1.0]).double()
    model = SeriesGP(x, y, kernel, priors=True, line=line).double()
    log_density, got_spread = score(model, scales, Series(time, values, [], 5))

    parts = []
    for origin in range(10, 30):  # fewer than 48: each of them
        past = SeriesGP(x[:origin], y[:origin], kernel, priors=True, line=line).double().eval()
        past.load_state_dict(model.state_dict())
        with torch.no_grad():
            ahead = past.likelihood(past(x[origin : origin + 5]))
        target = values[origin : origin + 5]
        own = forward(target)
        parts.append([2 + 3 * ahead.mean.numpy(), 3 * ahead.stddev.numpy(), own, slope(target)])
    mean, std, own, slopes = (np.concatenate(part) for part in zip(*parts, strict=True))
    ratio = np.mean(np.abs(own - mean) / std) / np.sqrt(2 / np.pi)
    spread = (2 + 20 / 5 * ratio) / (2 + 20 / 5)  # four windows, and two for the process
    assert got_spread == pytest.approx(spread, rel=1e-6)
    expected = norm.logpdf(own, mean, spread * std) + np.log(slopes)
    expected -= norm.logsf(transform.ends[0], mean, spread * std)  # what the bound leaves
    assert log_density == pytest.approx(expected.mean(), rel=1e-6)


def test_spread_widens_deviations_only():
    time, values = np.arange(12.0)[:, None], np.sin(np.arange(12.0))
    scales = Scales(0.0, 4.0, 0.0, 1.0, Transform())
    kernel = NeuralKernelNetwork.forecast(origin=-1.0, seasons=[]).double()
    x, y = scales.inputs(time, None), scales.targets(values, None)
    model = SeriesGP(x, y, kernel, priors=True, line=False).double()
    result = FitResult(model, [], 0, "marginal_likelihood", {})
    plain, wide = (Member("walks", scales, result, spread=spread) for spread in (1.0, 1.5))
    new = np.array([[12.0], [20.0]])
    np.testing.assert_array_equal(wide.moments(new)[0], plain.moments(new)[0])
    np.testing.assert_allclose(wide.moments(new)[1], 1.5 * plain.moments(new)[1])
