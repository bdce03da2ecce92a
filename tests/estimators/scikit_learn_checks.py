"""scikit-learn's own checks of an estimator, each said once."""

from unittest import SkipTest

from sklearn.utils.estimator_checks import estimator_checks_generator

TRAINING = ("check_classifiers_train", "check_regressors_train")


def check_as_scikit_learn_does(estimator):
    """As ``check_estimator``; of its three trainings on the same rows, that on read-only ones.

    It holds what the training on rows that may be written does; rows of single precision are
    among the types of ``check_estimators_dtypes``.
    """
    count = 0
    for model, check in estimator_checks_generator(estimator):
        if check.func.__name__ in TRAINING and check.keywords != {"readonly_memmap": True}:
            continue
        try:
            check(model)
        except SkipTest:
            continue
        count += 1
    assert count > 40
