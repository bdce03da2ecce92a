"""Gaussian process models for BoTorch."""

from gpytorch_nkn.models.additive_partition_gp import AdditivePartitionGP
from gpytorch_nkn.models.fit_partitions import fit_additive_partition_gp
from gpytorch_nkn.models.nkn_single_task_gp import NKNSingleTaskGP
from gpytorch_nkn.models.spectral_features import SpectralFeatureMap, spectral_features

__all__ = [
    "AdditivePartitionGP",
    "NKNSingleTaskGP",
    "SpectralFeatureMap",
    "fit_additive_partition_gp",
    "spectral_features",
]
