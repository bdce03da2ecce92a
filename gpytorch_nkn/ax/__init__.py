"""Models and kernels of this package in Ax; needs ax-platform.

Importing this module registers them with Ax. A generation strategy selects the models::

    client.set_generation_strategy(make_generation_strategy(seed=0))

A custom strategy specifies the surrogate by a ``ModelConfig``. Ax infers input dimensions and batch
shapes from the data; options must be plain values that Ax can store::

    ModelConfig(botorch_model_class=NKNSingleTaskGP, model_options={"structure": "regression"})
    ModelConfig(
        botorch_model_class=MultiTaskGP,  # any model that takes a covar_module
        covar_module_class=NeuralKernelNetwork,
        covar_module_options={"structure": "additive", "wiring": "Linear4-Product2-Linear1"},
    )

:func:`gpytorch_nkn.bo.fit_bo_model` trains the first model, BoTorch the second. ``structure`` is a
name as in :class:`.NKNSingleTaskGP` (default: ``"optimization"`` with unit variance); other options
are passed to the preset. :class:`.StructureEnsembleGP`, :class:`.SparseNKNGP` and
:class:`.SpectralGP` are also registered.

Import this module before you load a stored experiment, because Ax finds classes by name.
"""

from gpytorch_nkn._optional import needs

with needs("gpytorch_nkn.ax"):
    from gpytorch_nkn.ax.acquisition import EnsembleAcquisition
    from gpytorch_nkn.ax.registration import register as _register
    from gpytorch_nkn.ax.strategy import make_generation_strategy

__all__ = ["EnsembleAcquisition", "make_generation_strategy"]

_register()
