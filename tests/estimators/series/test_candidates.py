import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel
from gpytorch.priors import LogNormalPrior
from scipy.stats import norm

from gpytorch_nkn.averaging import Transform
from gpytorch_nkn.estimators.series.candidates import SeriesGP
from gpytorch_nkn.estimators.series.member import Scales
from gpytorch_nkn.estimators.series.scoring import score
from gpytorch_nkn.estimators.series.series import Series
from gpytorch_nkn.fit import Rows
from gpytorch_nkn.kernels import NeuralKernelNetwork

TRANSFORMS = {
    Transform(): (lambda y: y, lambda y: np.ones_like(y)),
    Transform("log", 0.0, power=0.0): (np.log, lambda y: 1 / y),
    Transform("sqrt", 0.0, power=0.5): (np.sqrt, lambda y: 0.5 / np.sqrt(y)),
}


@pytest.mark.parametrize(
    ("transform", "line", "is_long"),
    list(zip([Transform(), *TRANSFORMS], [0, 1, 1, 0], [0, 1, 0, 1], strict=True)),
)
def test_rolling_forecasts_match_processes_that_know_the_past_only(
    transform, line, is_long, monkeypatch
):
    rng = np.random.default_rng(0)
    time, values = np.arange(30.0), 20 + rng.standard_normal(30).cumsum()
    scales = Scales(29.0, 4.0, 2.0, 3.0, transform)
    forward, slope = TRANSFORMS[transform]
    noise = rng.uniform(0, 9, 30) if line else None
    data = scales.data(time[:, None], values, noise)
    kernel = NeuralKernelNetwork.forecast(origin=-8.0, seasons=[1.0]).double()
    model = SeriesGP(data, kernel, line=line).double()
    if is_long:  # whose forecasts see a part of the rows, here all
        monkeypatch.setattr("gpytorch_nkn.estimators.series.series._LEARNED", 20)
    log_density, got_spread = score(model, scales, Series(time, values, [], 6, noise=noise))

    parts = []
    for origin in range(10, 27 if is_long else 30):  # fewer than can be: each of them
        past = SeriesGP(data[:origin], kernel, line=line).double().eval()
        past.load_state_dict(model.state_dict())
        target = values[origin : origin + 6]
        with torch.no_grad():
            ahead = past(data.x[origin : origin + 6])
            variance = getattr(past.likelihood, "second_noise", past.likelihood.noise).numpy()
        known = noise[origin : origin + 6] if line else 0.0
        variance = variance + ahead.variance.numpy() + known * (slope(target) / 3) ** 2
        own = forward(target)
        moments = [2 + 3 * ahead.mean.numpy(), 3 * np.sqrt(variance), own, slope(target)]
        parts.append(moments)
    mean, std, own, slopes = (np.concatenate(part) for part in zip(*parts, strict=True))
    errors = np.abs(own - mean) / std / np.sqrt(2 / np.pi)
    spread = (2 + 20 / 6 * errors.mean()) / (2 + 20 / 6)  # two windows for the process
    spread *= 2.0452296 / 1.9599640  # tables of Student's t (29 degrees of freedom) and normal
    assert got_spread == pytest.approx(spread, rel=1e-6)
    std = spread * std
    expected = norm.logpdf(own, mean, std) + np.log(slopes)
    expected -= norm.logsf(transform.ends[0], mean, std)  # what the bound leaves
    assert log_density == pytest.approx(expected.mean(), rel=1e-6)


@pytest.mark.parametrize("line", [False, True])
def test_noise_and_mean_have_priors_if_the_kernel_has(line):
    data = Rows(torch.rand(5, 1), torch.rand(5))
    known = RBFKernel(lengthscale_prior=LogNormalPrior(0.0, 1.0))
    with_priors, without = (SeriesGP(data, kernel, line=line) for kernel in (known, RBFKernel()))
    names = {name for name, *_ in with_priors.named_priors()}
    of_mean = {"mean_module.weights_prior", "mean_module.bias_prior"} if line else set()
    of_kernel = "covar_module.lengthscale_prior"
    assert names == {"likelihood.noise_covar.noise_prior", of_kernel, *of_mean}
    assert not list(without.named_priors())
