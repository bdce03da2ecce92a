"""Global state that a call of the package must not change."""

import random
from contextlib import contextmanager

import gpytorch
import linear_operator
import numpy as np
import torch


def settings_of_gpytorch():
    """Every value of GPyTorch's and linear_operator's settings, by name."""
    return {
        f"{module.__name__}.{name}.{key}": repr(getattr(setting, key))
        for module in (gpytorch.settings, linear_operator.settings)
        for name, setting in vars(module).items()
        if isinstance(setting, type)
        for key in dir(setting)  # a setting that was set and reset has values of its own
        if key[:2] != "__" and not callable(getattr(setting, key))
    }


def global_state():
    """Random states, default dtype, gradients and settings."""
    kind, keys, *rest = np.random.get_state()
    return {
        "random": random.getstate(),
        "numpy": (kind, keys.tobytes(), *rest),
        "torch": torch.get_rng_state().numpy().tobytes(),
        "dtype": torch.get_default_dtype(),
        "gradients": torch.is_grad_enabled(),
        "threads": torch.get_num_threads(),
        **settings_of_gpytorch(),
    }


@contextmanager
def unchanged():
    """Fail if the block changes the global state."""
    before = global_state()
    yield
    after = global_state()
    changed = sorted(name for name in before | after if before.get(name) != after.get(name))
    assert not changed, f"changed: {changed}"
