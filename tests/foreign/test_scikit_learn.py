"""scikit-learn's checks of every estimator, without repetitions."""

import inspect
from unittest import SkipTest

import pytest
from sklearn.base import BaseEstimator
from sklearn.utils.estimator_checks import check_estimator, estimator_checks_generator

from gpytorch_nkn import estimators
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

SHORT = Recipe(adam_steps=0, lbfgs_iterations=2)
_HINGE = {"gamma": 0.5, "early_stopping": False, "random_state": 0}
ESTIMATORS = [
    ASKLClassifier(n_components=10, max_iter=3),
    ASKLClassifier(loss="hinge", max_iter=15, n_components=30, **_HINGE),
    ASKLRegressor(n_components=10, max_iter=2),
    DANKClassifier(eta="norm", relevance=None),
    DANKRegressor(eta="norm", relevance=None),
    NKNClassifier("rbf", restarts=1, recipe=SHORT, random_state=0),
    NKNForecaster(quality="fast", recipe=Recipe(5, lbfgs_iterations=2), random_state=0),
    NKNRegressor("rbf", restarts=1, recipe=SHORT, random_state=0),
    # both factors are learned by folds, of two instead of five; one of them, in a fifth of the time
    DANKClassifier(),
    DANKRegressor(relevance=None),
]


TRAINING = ("check_classifiers_train", "check_regressors_train")
# Of an estimator in a second form, what may depend on how it is trained.
OF_FORMS = (
    *TRAINING,
    "check_classifiers_classes",
    "check_fit_idempotent",
    "check_fit2d_1feature",
    "check_regressors_int",
)


def check_as_scikit_learn_does(estimator):
    """As ``check_estimator``; of its trainings on the same rows, that on read-only ones.

    It holds what the training on rows that may be written does; rows of single precision are
    among the types of ``check_estimators_dtypes``.
    """
    first = estimator is next(one for one in ESTIMATORS if type(one) is type(estimator))
    count = 0
    for model, check in estimator_checks_generator(estimator):
        name = check.func.__name__
        repeated = (*TRAINING, "check_estimators_pickle")
        if name in repeated and check.keywords != {"readonly_memmap": True}:
            continue
        if not first and name not in OF_FORMS:
            continue
        try:
            check(model)
        except SkipTest:
            continue
        count += 1
    assert count > (40 if first else 2)


@pytest.mark.usefixtures("few_candidates")
@pytest.mark.filterwarnings("ignore:.*one_d_array|Can't test estimator|.*2darray.*")
@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda estimator: type(estimator).__name__)
def test_scikit_learns_own_checks(estimator, monkeypatch):
    monkeypatch.setattr("gpytorch_nkn.estimators.nkn.nkn_classifier._LABELLED_WORK", 0)
    if isinstance(estimator, NKNForecaster):  # most need inputs of two dimensions and are skipped
        check_estimator(estimator, on_skip=None)
    else:
        check_as_scikit_learn_does(estimator)


def test_every_estimator_is_here():
    public = filter(inspect.isclass, (getattr(estimators, name) for name in estimators.__all__))
    assert {cls for cls in public if issubclass(cls, BaseEstimator)} == set(map(type, ESTIMATORS))
