"""Support vector machines whose Gram matrix has a learned Hadamard factor."""

from gpytorch_nkn.support_vectors.base_kernel import BaseKernel
from gpytorch_nkn.support_vectors.decomposition_bounds import BlockCertificate
from gpytorch_nkn.support_vectors.extension import SmoothExtension
from gpytorch_nkn.support_vectors.learned_kernel import (
    LearnedKernel,
    RelevanceKernel,
    RelevanceTerm,
)

__all__ = [
    "BaseKernel",
    "BlockCertificate",
    "LearnedKernel",
    "RelevanceKernel",
    "RelevanceTerm",
    "SmoothExtension",
]
