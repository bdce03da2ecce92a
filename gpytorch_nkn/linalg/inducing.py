"""Cholesky factors of covariances that may be singular, such as those of inducing points."""

from __future__ import annotations

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

__all__ = ["factorize_inducing"]

_JITTERS = {torch.float64: (1e-8, 1e-7, 1e-6, 1e-5, 1e-4), torch.float32: (1e-6, 1e-5, 1e-4)}


def factorize_inducing(covariance: Tensor) -> tuple[Tensor, float]:
    """Cholesky factor ``... x m x m`` in float64 of a matrix plus a jitter, and the jitter.

    The jitter is relative to the mean diagonal, and the least that works out of a few: it is added
    always, so that the bound does not jump where a factorisation starts to need it.

    Raises:
        NotPSDError: None of them works.
    """
    scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].double()
    eye = torch.eye(covariance.size(-1), dtype=torch.float64, device=covariance.device)
    for jitter in _JITTERS.get(covariance.dtype, (1e-4,)):
        factor, info = torch.linalg.cholesky_ex(covariance.double() + jitter * scale * eye)
        if not bool(info.any()) and bool(factor.isfinite().all()):
            return factor, jitter
    raise NotPSDError(
        "The covariance of the inducing points is not positive definite, with "
        f"{jitter:g} of its mean diagonal added; they are {covariance.size(-1)} points."
    )
