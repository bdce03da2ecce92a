"""Models and kernels of this package in Ax; needs ax-platform.

Importing this module makes them known to Ax. The whole of it, as a strategy for Ax's client::

    from ax.api.client import Client
    from ax.api.configs import RangeParameterConfig
    from gpytorch_nkn.ax import make_generation_strategy

    client = Client()
    client.configure_experiment(
        parameters=[
            RangeParameterConfig(name=name, parameter_type="float", bounds=(-4, 4))
            for name in ("x", "y")
        ]
    )
    client.configure_optimization(objective="-loss")  # minimise
    client.set_generation_strategy(make_generation_strategy(seed=0))
    for _ in range(20):
        for trial, point in client.get_next_trials(max_trials=1).items():
            client.complete_trial(trial, {"loss": (point["x"] - 1) ** 2 + point["y"] ** 4})

:func:`report_client` then says how the search went.

In a strategy of your own, the surrogate is one of these ``ModelConfig``. Numbers of columns and
batch shapes come from the data; options are plain values, so that Ax can store them::

    ModelConfig(botorch_model_class=NKNSingleTaskGP, model_options={"structure": "regression"})
    ModelConfig(
        botorch_model_class=MultiTaskGP,  # any model that takes a covar_module
        covar_module_class=NeuralKernelNetwork,
        covar_module_options={"structure": "additive", "wiring": "Linear4-Product2-Linear1"},
    )

The first is trained by :func:`gpytorch_nkn.bo.fit_bo_model`, the second by BoTorch. The structure
of a kernel is a name as :class:`.NKNSingleTaskGP` takes it (default: ``"optimization"``, here with
a variance of one, as BoTorch's own default kernel has), beside options of the preset it stands for.
:class:`.StructureEnsembleGP` is known to Ax, too.

Import this module before a stored experiment is loaded, too: Ax finds classes by name.
"""

try:
    from gpytorch_nkn.ax.acquisition import EnsembleAcquisition
    from gpytorch_nkn.ax.client_report import report_client
    from gpytorch_nkn.ax.registration import register as _register
    from gpytorch_nkn.ax.strategy import make_generation_strategy
except ImportError as error:
    raise ImportError(
        f"gpytorch_nkn.ax needs ax-platform: pip install 'gpytorch_nkn[ax]' ({error})."
    ) from error

__all__ = [
    "EnsembleAcquisition",
    "make_generation_strategy",
    "report_client",
]

_register()
