import pickle

import numpy as np
import pytest
import torch

from gpytorch_nkn.estimators import NKNClassifier, NKNRegressor
from gpytorch_nkn.estimators.nkn.class_processes import by_class
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import decompose, effects, expand, report
from gpytorch_nkn.interpretation.averages import ClassAverages
from tests.global_state import unchanged

OPTIONS = {"restarts": 1, "recipe": Recipe(adam_steps=0, lbfgs_iterations=5), "progress": False}


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(30, 2))
    scores = np.stack([np.zeros(30), 2 * X[:, 0], X[:, 1] - 0.5])
    return X, np.array(["a", "b", "c"])[(scores + rng.gumbel(size=(3, 30))).argmax(0)]


@pytest.fixture(scope="module", params=[2, 3])
def model(data, request):
    X, y = data
    y = y if request.param == 3 else np.where(y == "c", "a", y)
    weights = {"a": 2.0}
    model = NKNClassifier(["matern", "rbf"], class_weight=weights, random_state=0, **OPTIONS)
    return model.fit(X, y)


def test_effects_are_the_partial_dependence_of_predict_proba(model):
    X = model.x_offset_ + model.x_scale_ * model.model_.train_inputs[0].numpy()
    with unchanged():
        found = effects(model, label="b", samples=64, columns=["heat", "time"])
    assert found.scale == "probability of class b"
    assert str(found).startswith("Effects on the probability of class b:")
    for effect in found.main:
        rows = np.stack([X] * 7)
        rows[..., effect.columns[0]] = effect.grid[0][::9, None]
        averages = model.predict_proba(rows.reshape(-1, 2))[:, 1].reshape(7, -1).mean(1)  # of "b"
        np.testing.assert_allclose(np.diff(effect.mean[::9]), np.diff(averages), atol=1e-8)
    if len(model.classes_) == 2:
        mean = effects(model, samples=2, max_effects=1).main[0].mean
        np.testing.assert_array_equal(mean, found.main[0].mean)
        other = effects(pickle.loads(pickle.dumps(model)), samples=2, max_effects=1, label="a")
        np.testing.assert_allclose(other.main[0].mean, -mean, atol=1e-8)


def test_standard_deviations_match_drawn_latent_values(model):
    gp, member = model.model_, int(model.weights_.argmax())
    known = model._predictors, model.weights_
    power = known[1].sum()
    model._predictors, model.weights_ = [known[0][member]], np.array([power])
    X = model.x_offset_ + model.x_scale_ * gp.train_inputs[0].numpy()
    points = np.stack([np.column_stack([np.full(len(X), v), X[:, 1]]) for v in (-2, 0, 0.5, 2)])
    with torch.no_grad():
        _, std = ClassAverages(model, 1).contrast(points, X)
    x = torch.as_tensor((np.concatenate([*points, X]) - model.x_offset_) / model.x_scale_)
    generator, drawn, number = torch.Generator().manual_seed(0), [], len(model.classes_)
    noises = torch.randn(number, len(x), 1000, generator=generator, dtype=x.dtype)
    noises = (noises - noises.mean(0)) * (number / (number - 1)) ** 0.5  # one label for each row
    for process, noise in zip(by_class(gp), noises, strict=True):
        with torch.no_grad():
            normal = process(x)
            root = torch.linalg.cholesky(normal.covariance_matrix + 1e-8 * torch.eye(len(x)))
            drawn.append(power * normal.mean[:, None] + root @ noise)
    base = ((1 - power) * model._base)[..., None]
    table = torch.softmax(torch.stack(drawn) + torch.as_tensor(base), 0).numpy()
    mixed = table * model._class_factors[:, None, None]
    averages = (mixed / mixed.sum(0))[1].reshape(5, len(X), -1).mean(1)
    expected = (averages[:-1] - averages[-1]).std(1)
    model._predictors, model.weights_ = known
    np.testing.assert_allclose(std, expected, rtol=0.4)
    np.testing.assert_allclose(std.mean(), expected.mean(), rtol=0.2)


def test_the_kernel_of_a_classifier_expands(model):
    assert expand(model).terms


def test_wrong_labels_are_named(data):
    few = NKNClassifier("rbf", random_state=0, **OPTIONS).fit(*data)
    classes = r"one of the classes \['a', 'b', 'c'\], got "
    for describe in (effects, report):
        with pytest.raises(ValueError, match=classes + "None"):
            describe(few)
        with pytest.raises(ValueError, match=classes + "'z'"):
            describe(few, label="z")
        with pytest.raises(ValueError, match="NKNClassifier is not fitted yet"):
            describe(NKNClassifier(), label="a")
        with pytest.raises(ValueError, match="label is the class of a classifier, got 'a' for NK"):
            describe(NKNRegressor("rbf"), label="a")
    with pytest.raises(TypeError, match="process for each class: use effects or report"):
        decompose(few)
    with pytest.raises(ValueError, match="report on a probability has no horizon, got 3"):
        report(few, label="a", horizon=3)
