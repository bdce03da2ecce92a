"""Estimators with scikit-learn's interface; they need pandas (``gpytorch_nkn[estimators]``)."""

try:
    from gpytorch_nkn.estimators.askl import ASKLClassifier, ASKLRegressor
    from gpytorch_nkn.estimators.dank import Candidate, DANKClassifier, DANKRegressor
    from gpytorch_nkn.estimators.nkn import NKNClassifier, NKNRegressor
    from gpytorch_nkn.estimators.series import NKNForecaster, TimeAxis as TimeAxis, forecast_many
except ImportError as error:
    raise ImportError(
        f"gpytorch_nkn.estimators needs pandas: pip install 'gpytorch_nkn[estimators]' ({error})."
    ) from error

__all__ = [
    "ASKLClassifier",
    "ASKLRegressor",
    "Candidate",
    "DANKClassifier",
    "DANKRegressor",
    "NKNClassifier",
    "NKNForecaster",
    "NKNRegressor",
    "forecast_many",
]
