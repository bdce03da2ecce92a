"""Checks of the options of data-adaptive support vector machines."""

from __future__ import annotations

import math
from numbers import Integral, Real
from typing import Any

import numpy as np

from gpytorch_nkn.estimators.dank.support_vectors import EXTENSIONS, SOLVERS

__all__ = ["DECOMPOSITIONS", "check_options", "number_of_clusters"]

DECOMPOSITIONS = ("global", "block")
_WHOLE = 3000  # rows up to which all are in one cluster by default
_CLUSTER = 1500  # rows of a cluster beyond, on average
_LARGEST = 1e100  # of numbers whose squares are needed
_POSITIVE = ("C", "tol")
_NOT_NEGATIVE = ("tau", "epsilon")


def check_options(options: dict[str, Any]) -> None:
    """Refuse options without a meaning.

    Args:
        options: Values by name, those of an estimator.

    Raises:
        TypeError: A value is of a wrong type.
        ValueError: A value is out of its range, or has no use with another.
    """
    choices = (("solver", SOLVERS), ("extension", EXTENSIONS), ("decomposition", DECOMPOSITIONS))
    for name, known in choices:
        if options[name] not in known:
            raise ValueError(f"{name} must be one of {list(known)}, got {options[name]!r}.")
    for name in (*_POSITIVE, *_NOT_NEGATIVE):
        if name in options:
            _check_number(name, options[name], positive=name in _POSITIVE)
    for name, least in (("max_iter", 1), ("cv", 2)):
        _check_count(name, options[name], least)
    if options["n_clusters"] != "auto":
        _check_count("n_clusters", options["n_clusters"], 1)
    eta = options["eta"]
    if isinstance(eta, str):
        if eta not in ("cv", "norm"):
            raise ValueError(f"eta must be 'cv', 'norm' or a number, got {eta!r}.")
    else:
        _check_number("eta", eta, positive=True, infinite=True)
    relevance = options["relevance"]
    if relevance not in ("auto", "cv", None):
        raise ValueError(f"relevance must be 'auto', 'cv' or None, got {relevance!r}.")
    if (
        relevance == "cv"
        and isinstance(options["kernel"], str)
        and (options["kernel"] == "precomputed")
    ):
        raise ValueError(
            "relevance='cv' weights input columns, which a precomputed kernel does not have: set "
            "relevance=None."
        )
    if not isinstance(options["progress"], bool | np.bool_):
        raise TypeError(f"progress must be True or False, got {options['progress']!r}.")


def number_of_clusters(options: dict[str, Any], count: int) -> int:
    """Clusters to learn factors in.

    Args:
        options: Values by name, those of an estimator.
        count: Number of training rows.

    Raises:
        ValueError: There are more clusters than rows, or they have no meaning with another option;
            or ``tau`` is too large.
    """
    number, kernel = options["n_clusters"], options["kernel"]
    precomputed = isinstance(kernel, str) and kernel == "precomputed"
    whole = precomputed or options["extension"] == "reciprocal"
    if options["tau"] >= 2 * count:
        raise ValueError(f"tau must be below 2 n = {2 * count}, where F is 0: {options['tau']}.")
    if number == "auto":
        number = 1 if whole or count <= _WHOLE else math.ceil(count / _CLUSTER)
    if number > 1 and options["tau"] > 0:
        raise ValueError(
            f"tau > 0 needs n_clusters=1, which forms the Gram matrix of all {count} rows; got "
            f"tau={options['tau']} and {number} clusters."
        )
    if number > count:
        raise ValueError(f"n_clusters must be at most the number of rows, {count}, got {number}.")
    if number > 1 and whole:
        raise ValueError(
            "n_clusters > 1 needs inputs to cluster and the smooth extension: neither "
            "kernel='precomputed' nor extension='reciprocal'."
        )
    return int(number)


def _check_number(name: str, value: Any, *, positive: bool, infinite: bool = False) -> None:
    if not isinstance(value, Real) or isinstance(value, bool):
        raise TypeError(f"{name} must be a number, got {value!r}.")
    number = float(value)
    if np.isnan(number) or (np.isinf(number) and not infinite):
        raise ValueError(f"{name} must be finite, got {value}.")
    if not infinite and number > _LARGEST:
        raise ValueError(f"{name} must be at most {_LARGEST:g}, got {value}.")
    if number < 0 or (positive and number == 0):
        wanted = "positive" if positive else "not negative"
        raise ValueError(f"{name} must be {wanted}, got {value}.")


def _check_count(name: str, value: Any, least: int) -> None:
    if not isinstance(value, Integral) or isinstance(value, bool):
        raise TypeError(f"{name} must be an integer, got {value!r}.")
    if value < least:
        raise ValueError(f"{name} must be at least {least}, got {value}.")
