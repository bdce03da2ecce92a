"""Checks of the options of spectral kernel learning."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch

from gpytorch_nkn.estimators.askl.askl_optimizers import OPTIMIZERS
from gpytorch_nkn.estimators.askl.askl_start import GAMMA_RULES, METHODS
from gpytorch_nkn.fit import check_counts, check_number

__all__ = ["check_options"]

_COUNTS = ("n_components", "depth", "max_iter", "n_iter_no_change")
_POSITIVE = ("learning_rate", "frequency_learning_rate", "budget")
_NOT_NEGATIVE = ("weight_penalty", "feature_penalty")
_OPTIONAL = (*_POSITIVE, "feature_penalty")


def check_options(options: Mapping[str, Any]) -> None:
    """Refuse options without a meaning.

    Args:
        options: Values by name, those of an estimator.

    Raises:
        TypeError: A value is of a wrong type.
        ValueError: A value is out of its range, or has no use with the method.
    """
    for name, known in (("method", METHODS), ("solver", OPTIMIZERS)):
        if options[name] not in known:
            raise ValueError(f"{name} must be one of {list(known)}, got {options[name]!r}.")
    check_counts(1, **{name: options[name] for name in _COUNTS})
    check_counts(1, ("auto",), batch_size=options["batch_size"])
    for name in (*_POSITIVE, *_NOT_NEGATIVE):
        if options[name] is not None or name not in _OPTIONAL:
            check_number(name, options[name], positive=name in _POSITIVE)
    share = options["validation_fraction"]
    if share is not None:
        check_number("validation_fraction", share, positive=True)
        if share >= 1:
            raise ValueError(f"validation_fraction must lie between 0 and 1, got {share}.")
    for name in ("early_stopping", "fit_intercept", "progress", "ridge"):
        if not isinstance(options[name], bool | np.bool_):
            raise TypeError(f"{name} must be True or False, got {options[name]!r}.")
    for name in ("refit", "standardize"):
        value = options[name]
        if not isinstance(value, bool | np.bool_) and not (
            isinstance(value, str) and value == "auto"
        ):
            raise ValueError(f"{name} must be True, False or 'auto', got {options[name]!r}.")
    _check_device(options["device"])
    check_number("gamma", options["gamma"], positive=True, words=GAMMA_RULES)
    method = METHODS[options["method"]]
    if options["feature_penalty"] and not method.trace_norm:
        raise ValueError(
            f"feature_penalty belongs to method='ASKL'; leave it None for {options['method']!r}."
        )
    if options["frequency_learning_rate"] is not None and not method.learned:
        raise ValueError(
            f"frequency_learning_rate has no use with method={options['method']!r}, whose "
            "frequencies are not learned."
        )


def _check_device(device: Any) -> None:
    """Refuse devices on which nothing can be computed."""
    if device is None:
        return
    if not isinstance(device, str | torch.device):
        raise TypeError(f"device must be the name of a torch device or None, got {device!r}.")
    try:
        torch.ones(1, device=device).item()
    except (RuntimeError, AssertionError, NotImplementedError) as error:
        reason = str(error).partition("\n")[0]
        raise ValueError(f"device={str(device)!r} cannot be used: {reason}") from error
