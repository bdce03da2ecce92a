"""Gaussian process kernels whose structure is learned by gradient descent.

The most common classes and functions can be imported from here. Each is loaded on first use, so
that ``import gpytorch_nkn`` is fast.
"""

from __future__ import annotations

import sys
from importlib import import_module
from importlib.machinery import ModuleSpec, PathFinder
from types import ModuleType
from typing import TYPE_CHECKING, Any

from gpytorch_nkn import settings

if TYPE_CHECKING:
    from gpytorch_nkn.estimators import (
        ASKLClassifier,
        ASKLRegressor,
        DANKClassifier,
        DANKRegressor,
        NKNClassifier,
        NKNForecaster,
        NKNRegressor,
    )
    from gpytorch_nkn.fit import fit_best_of
    from gpytorch_nkn.grids import inpaint
    from gpytorch_nkn.interpretation import report
    from gpytorch_nkn.kernels import NeuralKernelNetwork
    from gpytorch_nkn.models import (
        KroneckerGridGP,
        LaplaceGP,
        NKNMultiTaskGP,
        NKNSingleTaskGP,
        SparseNKNGP,
        SpectralGP,
        StructureEnsembleGP,
        VariationalNKNGP,
    )

__all__ = [
    "ASKLClassifier",
    "ASKLRegressor",
    "DANKClassifier",
    "DANKRegressor",
    "KroneckerGridGP",
    "LaplaceGP",
    "NKNClassifier",
    "NKNForecaster",
    "NKNMultiTaskGP",
    "NKNRegressor",
    "NKNSingleTaskGP",
    "NeuralKernelNetwork",
    "SparseNKNGP",
    "SpectralGP",
    "StructureEnsembleGP",
    "VariationalNKNGP",
    "__version__",
    "fit_best_of",
    "inpaint",
    "report",
    "settings",
]

__version__ = "0.1.0"

_PACKAGES = {
    "ASKLClassifier": "estimators",
    "ASKLRegressor": "estimators",
    "DANKClassifier": "estimators",
    "DANKRegressor": "estimators",
    "KroneckerGridGP": "models",
    "LaplaceGP": "models",
    "NKNClassifier": "estimators",
    "NKNForecaster": "estimators",
    "NKNRegressor": "estimators",
    "NKNMultiTaskGP": "models",
    "NKNSingleTaskGP": "models",
    "NeuralKernelNetwork": "kernels",
    "SparseNKNGP": "models",
    "SpectralGP": "models",
    "StructureEnsembleGP": "models",
    "VariationalNKNGP": "models",
    "fit_best_of": "fit",
    "inpaint": "grids",
    "report": "interpretation",
}


def __getattr__(name: str) -> Any:
    if name not in _PACKAGES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = getattr(import_module(f"{__name__}.{_PACKAGES[name]}"), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


_REGISTRY = "botorch.sampling.pathwise.features.generators"


class _AfterImport:
    """Import finder that registers random features as soon as BoTorch's registry is imported."""

    @staticmethod
    def find_spec(name: str, path: Any = None, target: Any = None) -> ModuleSpec | None:
        spec = PathFinder.find_spec(name, path, target) if name == _REGISTRY else None
        loader: Any = spec and spec.loader
        if loader is not None:
            execute = loader.exec_module

            def execute_and_register(module: ModuleType) -> None:
                execute(module)
                _register(module)

            loader.exec_module = execute_and_register
        return spec


def _register(registry: Any) -> None:
    """Register the random features of this package for kernels that BoTorch does not support."""

    def features(kernel: Any, **options: Any) -> Any:
        import_module(f"{__name__}.models")  # replaces this function in the registry
        return registry.gen_kernel_features(kernel, **options)

    scale = registry.kernels.ScaleKernel  # BoTorch's ScaleKernel features reject other features
    handler: Any = features
    handler.of_scales = registry.GenKernelFeatures.dispatch(scale)
    registry.GenKernelFeatures.register((registry.Kernel, scale))(features)


if _REGISTRY in sys.modules:
    _register(sys.modules[_REGISTRY])
else:
    sys.meta_path.insert(0, _AfterImport)
