"""The length of trainings, ridge regressions, and start values."""

import math

import numpy as np
import pytest
import torch
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from torch.nn.functional import cross_entropy

from gpytorch_nkn.estimators.askl import leave_one_out
from gpytorch_nkn.estimators.askl.askl_base import METHODS, start_network
from gpytorch_nkn.estimators.askl.askl_selection import Selection, SpectralTask, held_out_parts
from gpytorch_nkn.estimators.askl.askl_training import Trainer
from gpytorch_nkn.estimators.askl.leave_one_out import kernel_ridge, leave_one_out_ridge
from gpytorch_nkn.fit import Session
from tests.estimators.askl.test_askl_network import network, rows, targets
from tests.estimators.askl.test_askl_training import interrupt, trainer


def test_held_out_rows_have_every_class_in_its_share():
    labels = np.repeat([0, 1, 2, 3], [3000, 1500, 499, 1])
    rng = np.random.RandomState(0)
    ((kept, out),) = held_out_parts(5000, rng, labels)
    assert sorted([*kept, *out]) == list(range(5000)) and len(out) == 1000
    np.testing.assert_allclose(np.bincount(labels[out], minlength=4), [600, 300, 100, 0], atol=1)
    ((_, again),) = held_out_parts(5000, rng, labels)
    assert len(np.intersect1d(out, again)) < 500  # at random
    pairs = held_out_parts(100, rng, np.repeat([0, 1], [80, 20]))
    held = np.concatenate([out for _, out in pairs])
    assert len(pairs) == 5 and sorted(held) == list(range(100))
    assert len(held_out_parts(800, rng)) == 3
    assert len(held_out_parts(10, rng, np.arange(10))) == 5  # classes of one row


def test_gamma_is_that_of_the_best_kernel_ridge_regression():
    x = np.random.default_rng(0).normal(size=(25, 2))
    y = np.sin(4 * x[:, 0]) + 0.1 * x[:, 1]
    median = float(torch.pdist(torch.from_numpy(x)).square().median())
    errors = {}
    for exponent in range(-5, 5):
        gamma = 2.0**exponent / median
        for penalty in 10 ** np.arange(-7, 1.1, 0.5) * 25:
            system = np.ones((26, 26))  # with an intercept that is not penalised
            system[:25, :25] = rbf_kernel(x, gamma=gamma) + penalty * np.eye(25)
            system[25, 25] = 0.0
            gaps = []
            for out in range(25):
                kept = np.delete(np.arange(26), out)
                found = np.linalg.solve(system[np.ix_(kept, kept)], np.append(y, 0)[kept])
                gaps.append(system[out, kept] @ found - y[out])
            errors[gamma, penalty] = np.mean(np.square(gaps))
    best, penalty = min(errors, key=errors.get)
    assert best > 1.5 / median  # not where the search begins
    found = kernel_ridge(torch.from_numpy(x), torch.from_numpy(y[:, None]))
    assert found.gamma == pytest.approx(best) and 25 * found.penalty == pytest.approx(penalty)
    assert found.error == pytest.approx(errors[best, penalty] / y.var(), rel=1e-8)


def held_out_predictions(features, y, penalty):
    """Return predictions of ridge regressions on all other rows."""
    found = []
    for row in range(len(y)):
        others = np.arange(len(y)) != row
        middle, level = features[others].mean(0), y[others].mean(0)
        x = features[others] - middle
        system = x.T @ x + penalty * np.eye(x.shape[1])
        weight = np.linalg.solve(system, x.T @ (y[others] - level))
        found.append(level + (features[row] - middle) @ weight)
    return np.array(found)


@pytest.mark.parametrize("count", [15, 30])
def test_ridge_regression_is_scikit_learns_with_the_best_penalty(count, monkeypatch):
    rng = np.random.default_rng(0)
    features = rng.normal(size=(count, 20)) + 1
    y = features[:, :2] + 0.5 * rng.normal(size=(count, 2)) + 3
    errors = {}
    for penalty in 10 ** np.arange(-7, 1.1, 0.5) * count:
        found = held_out_predictions(features, y, penalty)
        errors[penalty] = np.mean((found - y) ** 2), found
    best = min(errors, key=lambda penalty: errors[penalty][0])
    model = Ridge(alpha=best).fit(features, y)
    blocks = torch.from_numpy(features)
    ridge = leave_one_out_ridge(blocks, torch.from_numpy(y), np.random.RandomState(0))
    np.testing.assert_allclose(ridge.weight, model.coef_.T, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ridge.intercept, model.intercept_, rtol=1e-5)
    np.testing.assert_allclose(ridge.outputs, errors[best][1], rtol=1e-5, atol=1e-5)
    # with some rows held out the penalty may differ, and all rows count
    monkeypatch.setattr(leave_one_out, "_MAX_ROWS", count - 5)
    some = leave_one_out_ridge(blocks, torch.from_numpy(y), np.random.RandomState(0))
    assert len(some.rows) == count - 5
    np.testing.assert_allclose(some.outputs, y[some.rows], atol=3)
    penalties = 10 ** np.arange(-7, 1.1, 0.5) * (count - 5)
    gaps = [
        np.abs(Ridge(alpha=a).fit(features, y).coef_.T - some.weight.numpy()).max()
        for a in penalties
    ]
    assert min(gaps) < 1e-6


def fit(net, score, count=40, parts=1, cycles=(1, 1, 2), loss="squared_error", budget=None):
    x, y = rows(count), targets("squared_error", count)
    order = np.arange(count)
    held = [(np.setdiff1d(order, order[k::5]), order[k::5]) for k in range(parts)]
    task = SpectralTask(x, y, y.double(), loss, score)
    objective = trainer(net, loss="squared_error").objective
    session = Session(progress=False, budget=budget)
    rng = np.random.RandomState(0)
    return Selection(net, objective, task, list(cycles), held, session, rng).run(), task


def by_turn(*scores):
    scores = iter(scores)
    return lambda outputs, targets: torch.full((len(outputs),), float(next(scores)))


def test_the_number_of_cycles_is_chosen_and_all_rows_are_trained_on():
    outcome, _ = fit(network(), by_turn(0.0, 1.0, 3.0, 2.0))
    assert outcome.scores == [0.0, 1.0, 3.0, 2.0] and outcome.best_epoch == 2
    assert len(outcome.losses) == 2 and outcome.epochs == 6
    outcome, _ = fit(network(), by_turn(0, 1, 9, 2, 0, 3, 1, 5), parts=2)
    assert outcome.scores == [0, 2, 5, 3.5] and outcome.best_epoch == 2
    outcome, _ = fit(network(), None, parts=0, cycles=[3])
    assert outcome.scores == [] and outcome.best_epoch == 3


def test_one_part_is_trained_until_two_cycles_are_no_better():
    outcome, _ = fit(network(), by_turn(0.0, 1.0, 3.0, 2.0, 3.0), cycles=[1, 2, 1, 1, 1, 1])
    assert outcome.scores == [0.0, 1.0, 3.0, 2.0, 3.0] and outcome.best_epoch == 3
    assert outcome.epochs == 5 + 3 and len(outcome.losses) == 3


def test_ctrl_c_keeps_the_best_so_far(monkeypatch):
    interrupt(monkeypatch, 14)  # four steps an epoch: in the fourth
    with pytest.warns(UserWarning, match="after 3 epochs: the parameters of epoch 2 of"):
        outcome, _ = fit(network(), by_turn(0.0, 1.0, 3.0, 2.0), cycles=[1, 1, 1, 9])
    assert outcome.best_epoch == 2 and len(outcome.losses) == 3
    monkeypatch.undo()
    interrupt(monkeypatch, 6)  # in the training on all rows
    with pytest.warns(UserWarning, match="epoch 1"):
        outcome, _ = fit(network(), by_turn(0.0, 3.0), cycles=[1])
    assert outcome.best_epoch == 1


def test_a_training_that_diverges_keeps_the_last_finite_cycle(monkeypatch):
    epoch, copies = Trainer.epoch, []

    def fourth_fails(self, *args):
        if len(copies) == 3:
            self.network.values.fill_(math.nan)
            return 1.0
        loss = epoch(self, *args)
        copies.append(self.network.values.clone())
        return loss

    monkeypatch.setattr(Trainer, "epoch", fourth_fails)
    net = network()
    with pytest.warns(ConvergenceWarning, match="in epoch 4: the training ends with epoch 2"):
        outcome, _ = fit(net, None, parts=0, cycles=(2, 3))
    assert outcome.best_epoch == 2 and torch.equal(net.values, copies[1])
    monkeypatch.setattr(Trainer, "epoch", lambda *_: math.inf)
    with pytest.raises(FloatingPointError, match="NaN in epoch 1: lower weight_penalty"):
        fit(net, None, parts=0)


def is_ridge_regression(net, task):
    """Whether the weights are a ridge regression on the network's own features."""
    features = torch.cat(list(net.features_in_double(task.x[:, :-1].double()))).numpy()
    outputs, y = net.outputs(task.x).double().numpy(), task.targets.double().numpy()
    gaps = [
        np.abs(Ridge(alpha=len(y) * a).fit(features, y).predict(features) - outputs).max()
        for a in 10 ** np.arange(-7, 1.1, 0.5)
    ]
    return min(gaps) < 1e-3 < max(gaps)


def test_ridge_regression_is_a_candidate_and_closes_cycles_of_the_squared_loss():
    net = network()
    begin = net.matrix.clone()
    outcome, task = fit(net, by_turn(5.0, 1.0, 3.0, 2.0))
    assert outcome.best_epoch == 0 and outcome.losses == []
    assert is_ridge_regression(net, task) and torch.equal(net.matrix, begin)
    outcome, task = fit(net, by_turn(0.0, 1.0, 3.0, 2.0))
    assert outcome.best_epoch == 2 and is_ridge_regression(net, task)
    assert not torch.equal(net.matrix, begin)  # of features that were learned


def test_ridge_regression_on_classes_is_scaled_to_the_loss():
    torch.manual_seed(3)
    net, x, y = network(outputs=2), rows(200), torch.zeros(200, 1, dtype=torch.int64)
    y[:, 0] = (x[:, 0] > 0).long()
    signs = 2.0 * torch.eye(2)[y[:, 0]].double() - 1
    objective, rng = trainer(net).objective, np.random.RandomState(0)
    task = SpectralTask(x, y, signs, "log_loss", lambda outputs, labels: outputs[:, 0])
    order = np.arange(200)
    Selection(net, objective, task, [], [(order, order[::5])], Session(progress=False), rng).run()
    features = torch.cat(list(net.features_in_double(x[:, :-1].double())))
    ridge = leave_one_out_ridge(features, signs, np.random.RandomState(0))
    factors = (net.weight.double() / ridge.weight.mT).flatten()
    torch.testing.assert_close(factors, factors[:1].expand_as(factors), rtol=1e-4, atol=0)
    torch.testing.assert_close(net.intercept.double(), factors[0] * ridge.intercept)
    losses = {
        scale: float(cross_entropy(ridge.outputs * factors[0] * scale, y[:, 0]))
        for scale in (0.25, 0.7, 1.0, 1.42, 4.0)
    }
    assert min(losses, key=losses.get) == 1.0 and factors[0] > 1.2


def start(method, x, **options):
    defaults = {
        "num_features": 4000,
        "gamma": 0.2,
        "ridge_targets": x[:, :1].clone(),
        "classes": False,
        "rng": np.random.RandomState(0),
        "device": torch.device("cpu"),
    }
    return start_network(x, 3, METHODS[method], **{**defaults, **options})


def test_features_start_at_the_kernel_that_gamma_says():
    x = torch.randn(30, 2)
    for method in ("SK", "NSK"):
        made, gamma, _ = start(method, x)
        assert gamma == 0.2 and not made.weight.any()
        features = torch.cat(list(made.features_in_double(x))).numpy()
        if method == "SK":
            np.testing.assert_allclose(features @ features.T, rbf_kernel(x, gamma=0.2), atol=0.1)
        stacked = made.frequencies
        assert len(stacked) == (1 if method == "SK" else 2)
        deviations = stacked.std(dim=(1, 2))
        expected = torch.full_like(deviations, math.sqrt(0.4))
        torch.testing.assert_close(deviations, expected, rtol=0.05, atol=0)
    correlation = torch.corrcoef(stacked.reshape(2, -1))[0, 1]
    assert 0.93 < correlation < 0.97  # apart, but not by much
