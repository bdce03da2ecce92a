"""How ASKL chooses the length of its training, and what it starts from."""

import math
import sys

import numpy as np
import pytest
import torch
from scipy.stats import rankdata
from sklearn.linear_model import Ridge
from sklearn.metrics.pairwise import rbf_kernel
from torch.nn.functional import cross_entropy

from gpytorch_nkn.estimators.askl import (
    askl_inputs,
    askl_selection,
    leave_one_out,
)
from gpytorch_nkn.estimators.askl.askl_inputs import InputMap, choose_input_map
from gpytorch_nkn.estimators.askl.askl_selection import (
    Plan,
    SpectralTask,
    doubling_cycles,
    held_out_parts,
    train,
)
from gpytorch_nkn.estimators.askl.askl_start import METHODS, start_network
from gpytorch_nkn.estimators.askl.askl_training import Trainer
from gpytorch_nkn.estimators.askl.leave_one_out import (
    kernel_ridge,
    relevance,
    ridge_by_left_out_rows,
)
from tests.estimators.askl.test_askl_network import network, rows, targets
from tests.estimators.askl.test_askl_training import interrupt, scored, trainer


def test_cycles_double_the_number_of_epochs():
    assert doubling_cycles(80) == [5, 5, 10, 20, 40]
    assert doubling_cycles(30) == [5, 5, 10, 10]
    assert doubling_cycles(5) == [5] and doubling_cycles(3) == [3]


def test_held_out_rows_have_every_class_in_its_share():
    labels = np.repeat([0, 1, 2, 3], [600, 300, 99, 1])
    rng = np.random.RandomState(0)
    ((kept, out),) = held_out_parts(1000, 1, 0.1, rng, labels)
    assert sorted([*kept, *out]) == list(range(1000)) and len(out) == 100
    np.testing.assert_allclose(np.bincount(labels[out], minlength=4), [60, 30, 10, 0], atol=1.5)
    assert 3 in labels[kept]
    ((_, again),) = held_out_parts(1000, 1, 0.1, rng, labels)
    assert len(np.intersect1d(out, again)) < 50  # at random
    ((kept, out),) = held_out_parts(50, 1, 0.2, rng)
    assert len(kept) == 40 and len(out) == 10


def test_parts_that_are_held_out_in_turn_have_nothing_in_common():
    labels = np.repeat([0, 1], [80, 20])
    pairs = held_out_parts(100, 5, 0.2, np.random.RandomState(0), labels)
    held = np.concatenate([out for _, out in pairs])
    assert len(pairs) == 5 and len(held) == len(set(held)) == 98  # a row of each class never is
    for kept, out in pairs:
        assert sorted([*kept, *out]) == list(range(100))
        assert 3 <= np.sum(labels[out]) <= 5 and 15 <= len(out) - np.sum(labels[out]) <= 17
    assert held_out_parts(3, 1, 0.9, np.random.RandomState(0), np.arange(3)) == []


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


def left_out_predictions(features, y, penalty):
    """Of ridge regressions on all other rows."""
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
        found = left_out_predictions(features, y, penalty)
        errors[penalty] = np.mean((found - y) ** 2), found
    best = min(errors, key=lambda penalty: errors[penalty][0])
    model = Ridge(alpha=best).fit(features, y)
    blocks = torch.from_numpy(features).split(7)
    ridge = ridge_by_left_out_rows(blocks, torch.from_numpy(y), np.random.RandomState(0))
    np.testing.assert_allclose(ridge.weight, model.coef_.T, rtol=1e-5, atol=1e-7)
    np.testing.assert_allclose(ridge.intercept, model.intercept_, rtol=1e-5)
    np.testing.assert_allclose(ridge.left_out, errors[best][1], rtol=1e-5, atol=1e-5)
    # with some rows left out only, the penalty may differ, and all rows count
    monkeypatch.setattr(leave_one_out, "_MAX_ROWS", count - 5)
    some = ridge_by_left_out_rows(blocks, torch.from_numpy(y), np.random.RandomState(0))
    assert len(some.rows) == count - 5
    np.testing.assert_allclose(some.left_out, y[some.rows], atol=3)
    penalties = 10 ** np.arange(-7, 1.1, 0.5) * (count - 5)
    gaps = [
        np.abs(Ridge(alpha=a).fit(features, y).coef_.T - some.weight.numpy()).max()
        for a in penalties
    ]
    assert min(gaps) < 1e-6


def plan(count, **options):
    held = held_out_parts(count, options.pop("parts", 1), 0.2, np.random.RandomState(0))
    defaults = {
        "cycles": [1, 1, 2],
        "held_out": held,
        "refit": True,
        "patience": 9,
        "batch_size": 8,
        "budget": None,
        "progress": False,
    }
    return Plan(**{**defaults, **options})


def fit(net, score, count=40, ridge=False, **options):
    x, y = rows(count), targets("squared_error", count)
    task = SpectralTask(x, y, y.double() if ridge else None, "squared_error", score)
    outcome = train(
        net,
        lambda: trainer(net, loss="squared_error"),
        task,
        plan(count, **options),
        np.random.RandomState(0),
    )
    return outcome, task


def by_turn(*scores):
    scores = iter(scores)
    return lambda outputs, targets: torch.full((len(outputs),), float(next(scores)))


def by_rows(*scores):
    scores = iter(scores)
    return lambda outputs, targets: next(scores)


def watch_runs(monkeypatch):
    """Number of rows and the cycles of every training to come."""
    seen, run = [], Trainer.run

    def watched(self, x, targets, cycles, **options):
        seen.append((len(x), list(cycles)))
        return run(self, x, targets, cycles, **options)

    monkeypatch.setattr(Trainer, "run", watched)
    return seen


def test_the_number_of_cycles_is_chosen_and_all_rows_are_trained_on(monkeypatch):
    seen = watch_runs(monkeypatch)
    outcome, _ = fit(network(), by_turn(0.0, 1.0, 3.0, 2.0))
    assert seen == [(32, [1, 1, 2]), (40, [1, 1])]
    assert outcome.scores == [0.0, 1.0, 3.0, 2.0] and outcome.best_epoch == 2
    assert len(outcome.losses) == 2 and outcome.epochs == 6


def test_parts_are_held_out_in_turn_and_their_scores_averaged(monkeypatch):
    seen = watch_runs(monkeypatch)
    outcome, _ = fit(network(), by_turn(0, 1, 9, 2, 0, 3, 1, 5), parts=2)
    assert seen == [(32, [1, 1, 2])] * 2 + [(40, [1, 1])]
    assert outcome.scores == [0, 2, 5, 3.5] and outcome.best_epoch == 2


def test_without_refit_the_network_of_the_best_cycle_is_kept(monkeypatch):
    seen, net, copies = watch_runs(monkeypatch), network(), []
    validate = scored([0.0, 1.0, 3.0, 2.0], copies)
    outcome, _ = fit(net, lambda outputs, targets: torch.full((8,), validate(net)), refit=False)
    assert seen == [(32, [1, 1, 2])] and outcome.best_epoch == 2
    assert torch.equal(net.values, copies[2])


def test_without_held_out_rows_the_training_runs_to_its_end(monkeypatch):
    seen = watch_runs(monkeypatch)
    outcome, _ = fit(network(), None, held_out=[], refit=False, cycles=[3])
    assert seen == [(40, [3])] and outcome.scores == [] and outcome.best_epoch == 3


def test_ridge_regression_is_a_candidate(monkeypatch):
    seen, net = watch_runs(monkeypatch), network()
    outcome, task = fit(net, by_turn(5.0, 1.0, 3.0, 2.0), ridge=True)
    assert seen == [(32, [1, 1, 2])] and outcome.best_epoch == 0 and outcome.losses == []
    assert is_ridge_regression(net, task)


def is_ridge_regression(net, task):
    """Whether the weights are a ridge regression on the network's own features."""
    features = torch.cat(list(net.features_in_double(task.x[:, :-1].double()))).numpy()
    outputs, y = net.outputs(task.x).double().numpy(), task.targets.double().numpy()
    gaps = [
        np.abs(Ridge(alpha=len(y) * a).fit(features, y).predict(features) - outputs).max()
        for a in 10 ** np.arange(-7, 1.1, 0.5)
    ]
    return min(gaps) < 1e-3 < max(gaps)


def test_ridge_regression_closes_the_cycles_of_the_squared_loss():
    net = network()
    begin = net.values.clone()
    window = net.layers[0].window
    outcome, task = fit(net, by_turn(0.0, 1.0, 3.0, 2.0), ridge=True)
    assert outcome.best_epoch == 2 and is_ridge_regression(net, task)
    assert not torch.equal(net.values[window], begin[window])  # of features that were learned
    outcome, task = fit(net, by_turn(0.0, 1.0, 3.0, 2.0))
    assert outcome.best_epoch == 2 and not is_ridge_regression(net, task)


def test_ridge_regression_on_classes_is_scaled_to_the_loss():
    torch.manual_seed(3)
    net, x, y = network(outputs=2), rows(200), torch.zeros(200, 1, dtype=torch.int64)
    y[:, 0] = (x[:, 0] > 0).long()
    signs = 2.0 * torch.eye(2)[y[:, 0]].double() - 1
    task = SpectralTask(x, y, signs, "log_loss", lambda outputs, labels: outputs[:, 0])
    askl_selection._set_ridge_weights(net, task, np.random.RandomState(0))
    blocks = net.features_in_double(x[:, :-1].double())
    ridge = ridge_by_left_out_rows(blocks, signs, np.random.RandomState(0))
    factors = (net.weight.double() / ridge.weight.mT).flatten()
    torch.testing.assert_close(factors, factors[:1].expand_as(factors), rtol=1e-4, atol=0)
    torch.testing.assert_close(net.intercept.double(), factors[0] * ridge.intercept)
    losses = {
        scale: float(cross_entropy(ridge.left_out * factors[0] * scale, y[:, 0]))
        for scale in (0.25, 0.7, 1.0, 1.42, 4.0)
    }
    assert min(losses, key=losses.get) == 1.0 and factors[0] > 1.2


def test_an_interruption_keeps_the_best_of_what_was_held_out(monkeypatch):
    net, copies = network(), []
    validate = scored([0.0, 1.0, 3.0, 2.0], copies)
    interrupt(monkeypatch, 4 * 4 + 3)  # four steps in each of four epochs: while training again
    with pytest.warns(UserWarning, match="Interrupted after 4 epochs; the parameters of epoch 2"):
        outcome, _ = fit(net, lambda outputs, targets: torch.full((8,), validate(net)))
    assert torch.equal(net.values, copies[2]) and outcome.best_epoch == 2
    monkeypatch.undo()
    interrupt(monkeypatch, 6)
    copies.clear()
    validate = scored([0.0, 1.0], copies)
    with pytest.warns(UserWarning, match="Interrupted after 1 epochs; the parameters of epoch 1"):
        fit(net, lambda outputs, targets: torch.full((8,), validate(net)))
    assert torch.equal(net.values, copies[1])


def test_an_interruption_keeps_the_ridge_regression_if_that_was_best(monkeypatch):
    net = network()
    begin = net.values.clone()
    interrupt(monkeypatch, 6)
    with pytest.warns(UserWarning, match="after 1 epochs; what training was to improve"):
        outcome, _ = fit(net, by_turn(5.0, 1.0), ridge=True)
    assert outcome.best_epoch == 0 and outcome.scores == [5.0, 1.0]
    window = net.layers[0].window
    assert torch.equal(net.values[window], begin[window])
    assert not torch.equal(net.values[net.head], begin[net.head])


def test_every_training_starts_anew(monkeypatch):
    starts, run = [], Trainer.run

    def watched(self, *args, **options):
        starts.append((self.network.values.clone(), self.optimizer.steps))
        return run(self, *args, **options)

    monkeypatch.setattr(Trainer, "run", watched)
    net = network()
    begin = net.values.clone()
    fit(net, by_turn(0, 1, 9, 2, 0, 3, 1, 5), parts=2, ridge=True)
    assert len(starts) == 3
    assert all(torch.equal(values, begin) and steps == 0 for values, steps in starts)


def test_the_budget_is_shared(monkeypatch):
    ends, now = [], [100.0]
    monkeypatch.setattr(askl_selection.time, "monotonic", lambda: now[0])
    run = Trainer.run

    def watched(self, *args, end, **options):
        ends.append(end)
        return run(self, *args, end=end, **options)

    monkeypatch.setattr(Trainer, "run", watched)
    fit(network(), by_turn(0, 1, 9, 2, 0, 3, 1, 5), parts=2, budget=30.0)
    assert ends == [110.0, 120.0, 130.0]
    ends.clear()
    fit(network(), by_turn(0, 1, 9, 2))
    assert ends == [math.inf] * 2


def test_progress_is_shown_on_a_terminal_only(monkeypatch, capsys):
    fit(network(), by_turn(0, 1, 9, 2), progress=True)
    assert capsys.readouterr().err == ""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    fit(network(), by_turn(0, 1, 9, 2), progress=False)
    assert capsys.readouterr().err == ""
    fit(network(), by_turn(0, 1, 9, 2), progress=True)
    assert "epoch" in capsys.readouterr().err


def start(method, x, **options):
    defaults = {
        "num_features": 4000,
        "depth": 1,
        "gamma": 0.2,
        "ridge_targets": x[:, :1].clone(),
        "intercept": True,
        "solver": "adam",
        "classes": False,
        "rng": np.random.RandomState(0),
        "device": torch.device("cpu"),
    }
    return start_network(x, 3, METHODS[method], **{**defaults, **options})


def test_features_start_at_the_kernel_that_gamma_says():
    x = torch.randn(30, 2)
    for method in ("SK", "NSK"):
        made = start(method, x)
        assert made.gamma == [0.2] and not made.network.weight.any()
        features = torch.cat(list(made.network.features_in_double(x))).numpy()
        if method == "SK":
            np.testing.assert_allclose(features @ features.T, rbf_kernel(x, gamma=0.2), atol=0.1)
        stacked = made.network.stacked_frequencies()[0]
        assert len(stacked) == (1 if method == "SK" else 2)
        deviations = stacked.std(dim=(1, 2))
        torch.testing.assert_close(
            deviations, torch.full_like(deviations, math.sqrt(0.4)), rtol=0.05, atol=0
        )
    correlation = torch.corrcoef(stacked.reshape(2, -1))[0, 1]
    assert 0.93 < correlation < 0.97  # apart, but not by much


def test_rules_of_start_values():
    x = 3 * torch.randn(50, 2)
    median = np.median(torch.pdist(x))
    made = start("ASKL", x, gamma="median", num_features=50, depth=2)
    assert made.gamma[0] == pytest.approx(0.5 / median**2)
    below = torch.cat(list(made.network.features_in_double(x, 1)))
    assert made.gamma[1] == pytest.approx(0.5 / np.median(torch.pdist(below)) ** 2, rel=1e-4)
    expected = [0.15 / float(seen.abs().sum(1).mean()) for seen in (x, below)]
    np.testing.assert_allclose(made.rates, expected, rtol=1e-4)
    made = start("ASKL", x, gamma="median", num_features=50, depth=2, classes=True)
    np.testing.assert_allclose(made.rates, np.array(expected) * 0.5 / 0.15, rtol=1e-4)
    wide = torch.randn(50, 400)
    made = start("ASKL", wide, num_features=50, classes=True)
    np.testing.assert_allclose(made.rates, [1.0 / float(wide.abs().sum(1).mean())])
    made = start("ASKL", x, num_features=50, solver="sgd")
    np.testing.assert_allclose(made.rates, [0.02 * 50 / float(x.square().sum(1).mean())])
    made = start("ASKL", x, gamma="auto", num_features=50, ridge_targets=torch.sin(x[:, :1]))
    assert made.gamma[0] == kernel_ridge(x, torch.sin(x[:, :1])).gamma


def test_a_shorter_training_is_preferred_if_it_is_as_good():
    noise = torch.tensor([1.0, -1.0] * 4)
    for gap, expected in ((0.01, 1), (10.0, 4)):
        # ridge regression, first of all, is worse than the best by no more than noise, too
        scores = by_rows(noise, noise, -noise - 5, gap + 0 * noise)
        net, states = network(), []

        def watched(outputs, targets, net=net, states=states, scores=scores):
            states.append(net.values.clone())
            return scores(outputs, targets)

        outcome, _ = fit(net, watched, refit=False)
        assert outcome.best_epoch == expected
        assert torch.equal(net.values, states[1 if expected == 1 else 3])


def test_standard_scaling_draws_tails_in():
    X = np.random.default_rng(0).standard_t(2, size=(500, 3)) * [1, 100, 0] + [5, 0, 7]
    seen = InputMap.of(X, "standard")
    Z = seen(X)
    assert Z.shape == (500, 2)
    np.testing.assert_allclose(Z.mean(0), 0, atol=1e-12)
    np.testing.assert_allclose(Z.std(0), 1)
    z = (X[:, 0] - X[:, 0].mean()) / X[:, 0].std()
    z = np.where(np.abs(z) > 3, np.sign(z) * (3 + np.log1p(np.maximum(np.abs(z) - 3, 0))), z)
    np.testing.assert_allclose(Z[:, 0], (z - z.mean()) / z.std())
    assert np.abs(z).max() > 4
    kept = InputMap.of(X, "standard", keep_constant=True)
    np.testing.assert_allclose(kept(X)[:, 2], 0, atol=1e-12)


def test_other_scalings_by_their_formulas():
    X = np.random.default_rng(0).standard_t(2, size=(500, 2)) * [1, 100] + [5, 0]
    Z = InputMap.of(X, "robust")(X)
    low, middle, high = np.quantile(X[:, 0], [0.25, 0.5, 0.75])
    z = (X[:, 0] - middle) / ((high - low) / 1.349)  # smaller than the deviation, here
    z = np.where(np.abs(z) > 3, np.sign(z) * (3 + np.log1p(np.maximum(np.abs(z) - 3, 0))), z)
    np.testing.assert_allclose(Z[:, 0], (z - z.mean()) / z.std())
    rare = np.zeros((100, 1))
    rare[:3] = 1.0  # without an interquartile range
    np.testing.assert_allclose(InputMap.of(rare, "robust")(rare).std(0), 1)
    Z = InputMap.of(X, "common")(X)
    np.testing.assert_allclose(Z, (X - X.mean(0)) / np.sqrt(X.var(0).mean()))
    np.testing.assert_array_equal(InputMap.of(X, "none")(X), X)
    with pytest.raises(ValueError, match="1e\\+40, which is too large"):
        InputMap.of(np.array([[1e40], [1.0]]), "none")


def test_ranks_are_columns_of_their_own():
    X = np.random.default_rng(0).standard_t(2, size=(300, 2)).round(1)
    seen = InputMap.of(X, "ranks")
    Z = seen(X)
    assert Z.shape == (300, 4)
    z = (X - X.mean(0)) / X.std(0)
    z = z / np.sqrt(1 + (z / 3) ** 2)
    np.testing.assert_allclose(Z[:, :2], (z - z.mean(0)) / z.std(0))
    ranks = rankdata(X[:, 1])
    assert np.corrcoef(Z[:, 3], ranks)[0, 1] > 1 - 1e-5  # ties at the ends apart
    far = seen(np.array([[1e9, -1e9]]))
    assert far[0, 2] == Z[:, 2].max() and far[0, 3] == Z[:, 3].min()


def test_slopes_are_those_of_the_regression():
    x, y = torch.randn(30, 3), torch.randn(30, 2)
    settings = kernel_ridge(x, y)._replace(penalty=0.01)
    points = x.clone().requires_grad_()
    kernel = torch.exp(-settings.gamma * (points[:, None] - x).square().sum(-1))
    weights = torch.linalg.solve(kernel.detach() + 0.3 * torch.eye(30), y - y.mean(0))
    expected = sum(
        torch.autograd.grad((kernel @ weights)[:, k].sum(), points, retain_graph=True)[0]
        .square()
        .mean(0)
        for k in range(2)
    )
    torch.testing.assert_close(relevance(x, y, settings), expected)


def test_columns_count_by_their_relevance():
    X = np.random.default_rng(0).normal(size=(300, 6))
    y = np.sin(3 * X[:, :1]) + 0.3 * X[:, 1:2]
    chosen = choose_input_map(X, y / y.std(), np.random.RandomState(0))
    assert chosen.weight[0] > chosen.weight[1] > 2 * chosen.weight[2:].max()
    assert np.square(chosen.weight).mean() == pytest.approx(1)
    seen = chosen(X)
    np.testing.assert_allclose(seen.std(0), chosen.weight, rtol=1e-6)
    alike = np.sin(2 * X).sum(1, keepdims=True)
    chosen = choose_input_map(X, alike / alike.std(), np.random.RandomState(0))
    np.testing.assert_allclose(chosen.weight, 1, atol=0.3)
    few = choose_input_map(X[:30], y[:30], np.random.RandomState(0))
    assert few.scaling == "standard" and (few.weight == 1).all()


def test_weights_are_roots_of_slopes_and_again_of_what_these_make():
    x = torch.randn(80, 4)
    y = torch.sin(3 * x[:, :1]) + 0.2 * x[:, 1:2]
    found, base = askl_inputs._weights(x, y), torch.ones(4)
    assert len(found) == 4
    for pair in (found[:2], found[2:]):
        settings = kernel_ridge(x * base, y, askl_inputs._GAMMAS)
        slopes = relevance(x * base, y, settings)
        slopes = torch.clamp(slopes / slopes.mean(), min=1e-3)
        for power, weight in zip((0.25, 0.5), pair, strict=True):
            expected = base * slopes**power
            torch.testing.assert_close(weight, expected / expected.square().mean().sqrt())
        base = found[0]


def test_what_is_not_standard_has_to_be_better(monkeypatch):
    X = np.random.default_rng(0).normal(size=(300, 6))
    y = np.sin(3 * X[:, :1])
    monkeypatch.setattr(askl_inputs, "_RELEVANCE_HANDICAP", 1e6)
    assert (choose_input_map(X, y, np.random.RandomState(0)).weight == 1).all()
    monkeypatch.setattr(askl_inputs, "_HANDICAP", 1e-6)
    assert choose_input_map(X, y, np.random.RandomState(0)).scaling != "standard"


def test_ranks_of_many_columns_are_too_many():
    heavy = np.random.default_rng(0).standard_cauchy(size=(200, 101)) ** 5
    y = rankdata(heavy[:, :3], axis=0).sum(1, keepdims=True) / 100
    few = choose_input_map(heavy[:, :100], y, np.random.RandomState(0))
    many = choose_input_map(heavy, y, np.random.RandomState(0))
    assert few.scaling == "ranks" != many.scaling


def test_the_scaling_is_chosen():
    rng = np.random.default_rng(0)
    pixels = rng.normal(size=(300, 30)) * np.repeat([1.0, 0.01], [3, 27])
    y = np.sin(2 * pixels[:, :1]) * pixels[:, 1:2]
    assert choose_input_map(pixels, y / y.std(), np.random.RandomState(0)).scaling == "common"
    heavy = rng.standard_cauchy(size=(300, 1)) ** 3
    y = np.sin(4 * rankdata(heavy, axis=0) / 300)
    assert choose_input_map(heavy, y / y.std(), np.random.RandomState(0)).scaling == "ranks"
    plain = rng.normal(size=(300, 2))
    y = np.sin(3 * plain[:, :1])
    assert choose_input_map(plain, y / y.std(), np.random.RandomState(0)).scaling == "standard"
