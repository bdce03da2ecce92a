"""Cholesky factors with a jitter relative to the mean diagonal.

:func:`factorize` adds no jitter to positive definite matrices. :func:`factorize_inducing` always
adds jitter, because covariances without noise are nearly singular and losses must be continuous.
"""

from __future__ import annotations

import torch
from linear_operator.utils.errors import NotPSDError
from torch import Tensor

__all__ = ["JITTERS", "factorize", "factorize_inducing", "solve_lower"]

JITTERS = (0.0, 1e-8, 1e-6)  # tried in order for matrices with noise, times the mean diagonal

_INDUCING_JITTERS = {  # jitters for matrices without noise
    torch.float64: (1e-8, 1e-7, 1e-6, 1e-5, 1e-4),
    torch.float32: (1e-6, 1e-5, 1e-4),
}


def factorize(matrices: Tensor) -> tuple[Tensor, Tensor]:
    """Return lower Cholesky factors ``... x N x N``, and a mask ``...`` of failed matrices.

    Nearly singular matrices get a jitter of up to 1e-6 of their mean diagonal. The factor of a
    failed matrix is the identity.
    """
    scale = matrices.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None]
    eye = torch.eye(matrices.size(-1), dtype=matrices.dtype, device=matrices.device)
    bad = ~scale.isfinite() | ~matrices.isfinite().all(-1, keepdim=True).all(-2, keepdim=True)
    matrices = torch.where(bad, eye, matrices)
    factor, failed = torch.linalg.cholesky_ex(matrices)
    for jitter in JITTERS[1:]:
        if not bool(failed.any()):
            break
        again, still = torch.linalg.cholesky_ex(matrices + jitter * scale * eye)
        repaired = (failed > 0) & (still == 0)
        factor = torch.where(repaired[..., None, None], again, factor)
        failed = torch.where(repaired, 0, failed)
    lost = (failed > 0) | bad[..., 0, 0]
    return factor.where(~lost[..., None, None], eye), lost


def factorize_inducing(covariance: Tensor) -> tuple[Tensor, float]:
    """Return the Cholesky factor ``... x m x m`` in float64, and the jitter that was needed.

    Raises:
        NotPSDError: The matrix is not positive definite, even with the largest jitter.
    """
    scale = covariance.diagonal(dim1=-2, dim2=-1).mean(-1)[..., None, None].double()
    eye = torch.eye(covariance.size(-1), dtype=torch.float64, device=covariance.device)
    for jitter in _INDUCING_JITTERS.get(covariance.dtype, (1e-4,)):
        factor, info = torch.linalg.cholesky_ex(covariance.double() + jitter * scale * eye)
        if not bool(info.any()) and bool(factor.isfinite().all()):
            return factor, jitter
    raise NotPSDError(
        f"The covariance of {covariance.size(-1)} inducing points is not positive "
        f"definite, even with a jitter of {jitter:g} of its mean diagonal."
    )


def solve_lower(factor: Tensor, columns: Tensor) -> Tensor:
    """Return ``L^-1 B`` for ``... x m x m`` and ``t x ... x m x k``, without expanding L to t."""
    extra = columns.dim() - factor.dim()
    if extra <= 0:
        return torch.linalg.solve_triangular(factor, columns, upper=False)
    leading, inner = tuple(range(extra)), tuple(range(-1 - extra, -1))
    flat = columns.movedim(leading, inner).flatten(-1 - extra)  # ... x m x (t k)
    solved = torch.linalg.solve_triangular(factor, flat, upper=False)
    sizes = (*columns.shape[:extra], columns.size(-1))  # -1 is ambiguous without columns
    return solved.unflatten(-1, sizes).movedim(inner, leading)
