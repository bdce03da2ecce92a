import pickle
from copy import deepcopy

import pytest
import torch

from gpytorch_nkn.estimators import conditioned_gp
from gpytorch_nkn.estimators.conditioned_gp import ConditionedGP
from gpytorch_nkn.estimators.nkn.table_models import TableGP
from gpytorch_nkn.fit import Rows
from gpytorch_nkn.kernels import NeuralKernelNetwork


@pytest.fixture
def model():
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(25, 2, generator=generator, dtype=torch.float64)
    y = torch.sin(3 * x[:, 0]) + x[:, 1]
    model = TableGP(Rows(x, y), NeuralKernelNetwork.tabular(2)).double()
    model.likelihood.noise = 0.03
    model.mean_module.constant = 0.4
    return model


def dense(model, x):
    """Mean, covariance at rows and the precision of the data, by textbook formulas."""
    with torch.no_grad():
        k = model.covar_module
        inputs, targets = model.train_inputs[0], model.train_targets
        noisy = k(inputs).to_dense() + model.likelihood.noise * torch.eye(len(targets))
        precision = torch.linalg.inv(noisy)
        between = k(x, inputs).to_dense()
        mean = 0.4 + between @ precision @ (targets - 0.4)
        return mean, k(x).to_dense() - between @ precision @ between.mT, precision


def test_a_held_out_target_is_predicted_as_by_the_model_without_it(model):
    mean, variance = ConditionedGP(model).leave_one_out()
    place = 7
    inputs, targets = model.train_inputs[0], model.train_targets
    rest = torch.arange(25) != place
    less = deepcopy(model)
    less.set_train_data(inputs[rest], targets[rest], strict=False)
    expected, covariance, _ = dense(less, inputs[place : place + 1])
    torch.testing.assert_close(mean[place], expected[0])
    torch.testing.assert_close(variance[place], covariance[0, 0] + 0.03)


def test_blocks_are_conditioned_on_their_own_rows_only(model):
    first, second = (ConditionedGP(model).at(slice(i, i + 10)) for i in (0, 10))
    part = deepcopy(model)
    part.set_train_data(model.train_inputs[0][10:20], model.train_targets[10:20], strict=False)
    torch.testing.assert_close(second.leave_one_out(), ConditionedGP(part).leave_one_out())
    assert first.targets.numel() == 10


def test_a_matrix_that_is_not_positive_definite_is_an_error(model):
    model.covar_module.layers[-1].raw_weight.data.fill_(torch.nan)
    with pytest.raises(torch.linalg.LinAlgError, match="not positive definite"):
        ConditionedGP(model).moments(torch.randn(3, 2))


def test_rows_with_uncertain_inputs_have_noise_of_their_own(model, monkeypatch):
    generator = torch.Generator().manual_seed(1)
    inputs = torch.randn(4, 3, 2, generator=generator, dtype=torch.float64)
    inputs[..., 1] = inputs[:1, :, 1]
    targets, known = torch.tensor([3.0, -1.0, 0.5]), torch.tensor([0.0, 0.5, 2.0])
    middle, x = inputs.median(0).values, torch.randn(5, 2)
    shift, noise = [], []
    for row in range(3):  # moments of f(draw) - f(mean), averaged over draws
        mean, covariance, _ = dense(model, torch.cat([inputs[:, row], middle[row : row + 1]]))
        apart = mean[:-1] - mean[-1]
        variance = covariance.diagonal()[:-1] + covariance[-1, -1] - 2 * covariance[-1, :-1]
        shift.append(apart.mean())
        noise.append(apart.var(correction=0) + variance.mean())
    mean, before, _ = dense(model, middle)
    posterior = ConditionedGP(model)
    monkeypatch.setattr(conditioned_gp, "_CHUNK_ENTRIES", 75)
    more = posterior.add_uncertain_rows(Rows(inputs, targets, known))
    likely = torch.distributions.MultivariateNormal
    errors, own = targets - torch.stack(shift) - mean, torch.stack(noise) + 0.03 + known

    def log_prob(added):
        return likely(torch.zeros(3), before + (own + added).diag()).log_prob(errors).item()

    assert log_prob(more) >= max(map(log_prob, (0.0, 0.1, 1.0, 3.0))) - 0.05
    larger = deepcopy(model)
    larger.set_train_data(
        torch.cat([model.train_inputs[0], middle]),
        torch.cat([model.train_targets, targets - torch.stack(shift)]),
        strict=False,
    )
    with torch.no_grad():
        k, seen = larger.covar_module, larger.train_inputs[0]
        noises = torch.cat([torch.full((25,), 0.03), own + more])
        precision = torch.linalg.inv(k(seen).to_dense() + noises.diag())
        between = k(x, seen).to_dense()
        expected = 0.4 + between @ precision @ (larger.train_targets - 0.4)
        covariance = k(x).to_dense() - between @ precision @ between.mT
    torch.testing.assert_close(posterior.moments(x)[0], expected)
    torch.testing.assert_close(posterior.covariance(x), covariance)
    again = pickle.loads(pickle.dumps(posterior))
    torch.testing.assert_close(again.moments(x)[1], covariance.diagonal())
