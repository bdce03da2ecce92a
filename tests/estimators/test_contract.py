"""Contract of all estimators, with their registry."""

import inspect
import pickle
import re
import time
import warnings
from copy import deepcopy
from functools import partial
from typing import get_args, get_type_hints

import joblib
import numpy as np
import pytest
import torch
from sklearn.base import clone, is_classifier
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectFromModel
from sklearn.utils.validation import check_is_fitted

from gpytorch_nkn.estimators import (
    ASKLClassifier,
    ASKLRegressor,
    DANKClassifier,
    DANKRegressor,
    NKNClassifier,
    NKNForecaster,
    NKNRegressor,
)
from gpytorch_nkn.fit import Recipe
from gpytorch_nkn.interpretation import report
from tests.global_state import unchanged

SHORT = Recipe(adam_steps=0, lbfgs_iterations=5)
_ASKL = {"n_components": 20, "max_iter": 4, "gamma": 0.5}
_DANK = {"C": 2.0, "eta": 0.05, "relevance": None}
_NKN = {"structure": "tabular", "restarts": 1, "recipe": SHORT}
MAKE = {
    ASKLClassifier: lambda **options: ASKLClassifier(**_ASKL | options),
    ASKLRegressor: lambda **options: ASKLRegressor(**_ASKL | options),
    DANKClassifier: lambda **options: DANKClassifier(**_DANK | options),
    DANKRegressor: lambda **options: DANKRegressor(**_DANK | options),
    NKNClassifier: lambda **options: NKNClassifier(**_NKN | {"structure": "rbf"} | options),
    NKNForecaster: lambda **options: NKNForecaster(
        **{"quality": "fast", "recipe": SHORT, "outliers": "keep"} | options
    ),
    NKNRegressor: lambda **options: NKNRegressor(**_NKN | options),
}


@pytest.fixture(autouse=True)
def _options(device, monkeypatch):
    """Estimators with the option ``device`` compute there."""
    for cls, make in MAKE.items() if device.type != "cpu" else ():
        if "device" in inspect.signature(cls).parameters:
            monkeypatch.setitem(MAKE, cls, partial(make, device=str(device)))


each = pytest.mark.parametrize("cls", MAKE, ids=lambda cls: cls.__name__)


def data(cls, n=40):
    """Rows that can be learned from; one column of times for series."""
    rng = np.random.default_rng(0)
    if cls is NKNForecaster:
        times = np.arange(float(n))
        return times, np.sin(times / 3) + 0.1 * rng.normal(size=n)
    X = rng.normal(size=(n, 2))
    y = np.sin(2 * X[:, 0]) + X[:, 1] + 0.1 * rng.normal(size=n)
    return X, np.where(y > 0, "high", "low") if cls.__name__.endswith("Classifier") else y


def fitted(cls, **options):
    return MAKE[cls](**{"random_state": 0} | options).fit(*data(cls))


def values(model, X):
    """Predictions as finely as the estimator gives them."""
    if hasattr(model, "decision_function"):
        return model.decision_function(X)
    return model.predict_proba(X) if is_classifier(model) else model.predict(X)


@each
def test_help_describes_every_argument(cls):
    text = inspect.getdoc(cls)
    assert not re.search(r"^ *<", text, re.MULTILINE)  # a placeholder
    arguments = text.partition("\nArgs:\n")[2].partition("\nAttributes:\n")[0]
    described = ", ".join(re.findall(r"^    (\w[\w, ]*):", arguments, re.MULTILINE)).split(", ")
    assert set(inspect.signature(cls).parameters) == set(described)


def words_of(annotation):
    """Return the string choices of a type."""
    found = set()
    for part in get_args(annotation):
        found |= {part} if isinstance(part, str) else words_of(part)
    return found


@each
def test_fixed_words_in_types_are_those_that_are_accepted(cls):
    for name, annotation in get_type_hints(cls.__init__).items():
        words = words_of(annotation)
        if not words or name in ("return", "class_weight"):  # scikit-learn names the latter
            continue
        with pytest.raises((TypeError, ValueError), match=f"{name} must be") as caught:
            fitted(cls, **{name: "nonsense"})
        message = str(caught.value)
        assert set(re.findall(r"'([\w-]+)'", message)) - {"nonsense"} == words, (name, message)


NAMED_BY_OTHERS = {"class_weight", "device", "progress", "random_state", "structure"}
MAY_BE_ZERO = {"epsilon", "feature_penalty", "weight_penalty"}


@each
def test_wrong_options_are_named_with_what_came(cls):
    for name, annotation in get_type_hints(cls.__init__).items():
        if name in NAMED_BY_OTHERS or name == "return":
            continue
        number = {annotation, *get_args(annotation)} <= {int, float, type(None)}
        for wrong in (np.nan, "nonsense", -1.0, 0):
            if wrong == 0 and name in MAY_BE_ZERO:
                continue
            error = TypeError if number and wrong == "nonsense" else (TypeError, ValueError)
            error = ValueError if number and wrong == 0 else error
            with pytest.raises(error, match=f"{name} must .*got {wrong!r}"):
                fitted(cls, **{name: wrong})


_known = {}


@pytest.fixture
def known(cls, device, _options):
    """A model that the tests of a class share and do not change, and its values."""
    if (cls, device) not in _known:
        with unchanged():
            model = fitted(cls)
        _known[cls, device] = model, values(model, data(cls)[0])
    return _known[cls, device]


@each
def test_copies_pickles_and_clones(cls, known, tmp_path):
    X, y = data(cls)
    model, expected = known
    joblib.dump(model, tmp_path / "model")
    mapped = joblib.load(tmp_path / "model", mmap_mode="r")  # as in joblib's workers: read-only
    for other in (mapped, pickle.loads(pickle.dumps(model)), deepcopy(model)):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            np.testing.assert_allclose(values(other, X), expected, rtol=1e-10, atol=1e-12)
        assert other.get_params().keys() == model.get_params().keys()
    other.fit(X[:20], y[:20])  # a deep copy learns alone
    np.testing.assert_array_equal(values(model, X), expected)
    fresh = clone(model)
    assert repr(fresh.get_params()) == repr(model.get_params())
    for name in {"predict", "standardised_inputs"} & set(dir(fresh)):
        with pytest.raises(NotFittedError):
            getattr(fresh, name)(X)


@each
def test_no_attribute_is_mistaken_for_importances_of_columns(cls, known):
    """RFE and SelectFromModel read ``coef_`` and ``feature_importances_``."""
    with pytest.raises(ValueError, match="should have `coef_`"):
        SelectFromModel(known[0], prefit=True).transform(np.ones((2, 2)))


@each
def test_it_learns_what_it_learns_on_the_cpu(cls, device):
    if device.type != "cpu" and "device" in inspect.signature(cls).parameters:
        X, y = data(cls)
        there, here = MAKE[cls](random_state=0), MAKE[cls](random_state=0, device=None)
        there, here = there.fit(X, y), here.fit(X, y)
        np.testing.assert_allclose(values(there, X), values(here, X), rtol=1e-3, atol=1e-3)


@each
def test_random_state_decides_and_nothing_else_is_touched(cls, known):
    X, y = data(cls)
    given = X.copy(), y.copy()
    torch.manual_seed(5)
    np.random.seed(5)
    model = MAKE[cls](random_state=0)
    if "budget" in model.get_params():
        model.set_params(budget=np.inf)  # which is no limit
    parameters = repr(model.get_params())
    with torch.inference_mode(), unchanged():
        np.testing.assert_array_equal(values(model.fit(X, y), X), known[1])
    assert repr(model.get_params()) == parameters  # as scikit-learn's clones need them
    np.testing.assert_array_equal(X, given[0])
    np.testing.assert_array_equal(y, given[1])


@each
def test_the_default_dtype_does_not_matter_and_nothing_is_shown_without_a_terminal(
    cls, known, capsys
):
    X, _ = data(cls)
    options = {"progress": True} if "progress" in MAKE[cls]().get_params() else {}
    torch.set_default_dtype(torch.float32)  # of double precision is the known one
    with torch.no_grad():
        found = values(fitted(cls, **options), X)
    assert torch.get_default_dtype() == torch.float32
    np.testing.assert_allclose(found, known[1], rtol=1e-5, atol=1e-6)
    shown = capsys.readouterr()
    assert shown.out == shown.err == ""


@pytest.mark.usefixtures("few_iterations")
@pytest.mark.parametrize(
    ("cls", "factor"), [*((cls, 1e4) for cls in MAKE), (NKNForecaster, None), (NKNRegressor, None)]
)
def test_numpy_may_raise_what_it_otherwise_ignores(cls, factor):
    """Small densities may underflow; nothing divides by zero or overflows."""
    X, y = data(cls)
    far = X + 1000 if cls is not NKNForecaster else np.arange(len(X), len(X) + 200.0)
    if factor is None:  # a deterministic function whose logarithm is linear
        column, factor = X.reshape(len(X), -1)[:, 0], 1.0
        y = np.exp(8 * column / column.std())
    elif not is_classifier(MAKE[cls]()):
        y = factor * y + np.where(np.arange(len(y)) == 7, factor, 0)
    with np.errstate(all="raise"):
        model = MAKE[cls](random_state=0).fit(X, y)
        for new in (X, far):
            assert len(values(model, new)) == len(new)
            for name in ("predict_interval", "predict_proba", "sample_y"):
                if hasattr(model, name):
                    getattr(model, name)(new)
        if hasattr(model, "log_predictive_density"):
            assert np.isfinite(
                model.log_predictive_density(far, np.full(len(far), 50 * factor))
            ).all()
            model.log_predictive_density(
                X, y, **({"resolution": 1.0} if cls is NKNRegressor else {})
            )
        if hasattr(model, "results_") and not is_classifier(model):
            str(report(model, progress=False))


@each
def test_options_that_are_not_there_are_rejected(cls):
    with pytest.raises(TypeError, match="learning_speed"):
        MAKE[cls](learning_speed=1.0)
    with pytest.raises(ValueError, match="learning_speed"):
        MAKE[cls]().set_params(learning_speed=1.0)


@each
def test_bad_data_are_rejected_and_leave_nothing_fitted(cls, known):
    X, y = data(cls)
    model = deepcopy(known[0])
    taken = model.__sklearn_tags__().input_tags.allow_nan
    for bad in (np.inf,) if taken else (np.nan, np.inf):
        broken = X.copy()
        broken.reshape(-1)[3] = bad
        with pytest.raises(ValueError, match="(?i)nan|inf"):
            model.fit(broken, y)
        with pytest.raises(NotFittedError):
            model.predict(X)
        with pytest.raises(NotFittedError):
            check_is_fitted(model)


@each
def test_known_noise(cls, known):
    if "noise_variance" in inspect.signature(cls.fit).parameters:
        X, y = data(cls)
        model = MAKE[cls](random_state=0).fit(X, y, noise_variance=np.zeros((len(y), 1)))
        np.testing.assert_array_equal(values(model, X), known[1])
        for wrong in (-1.0, np.nan, np.inf, np.ones(3), True, "0.01"):
            with pytest.raises((ValueError, TypeError), match="noise_variance must be"):
                model.fit(X, y, noise_variance=wrong)
            with pytest.raises(NotFittedError):
                model.predict(X)


@each
@pytest.mark.filterwarnings("ignore::UserWarning")  # of what is kept
def test_a_budget_that_is_used_up_at_once_leaves_what_predicts(cls):
    X, _ = data(cls)
    if "budget" in MAKE[cls]().get_params():
        model = fitted(cls, budget=1e-6)
        assert len(model.predict(X)) == len(X)


@each
@pytest.mark.filterwarnings("ignore::UserWarning")  # of what is kept
@pytest.mark.parametrize("after", [1, 9])
def test_ctrl_c_at_any_look_at_the_clock(cls, after, monkeypatch):
    """An interrupted fit predicts; without a result it raises an error and is not fitted."""
    X, y = data(cls)
    model = MAKE[cls](random_state=0)
    looks, real = [], time.monotonic

    def clock():
        looks.append(None)
        if len(looks) == after:
            raise KeyboardInterrupt
        return real()

    with monkeypatch.context() as patch, unchanged():
        patch.setattr(time, "monotonic", clock)
        try:
            model.fit(X, y)
        except KeyboardInterrupt:
            kept = False
        else:
            kept = True
    if kept:
        assert len(model.predict(X)) == len(X)
    else:
        with pytest.raises(NotFittedError):
            model.predict(X)
