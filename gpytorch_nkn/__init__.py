"""Gaussian process kernels whose structure is learned by gradient descent.

The most common names can be imported from this package. They are loaded on first use, so that
``import gpytorch_nkn`` is fast.
"""

from __future__ import annotations

from importlib import import_module
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
