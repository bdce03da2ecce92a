"""Log-determinants of the covariance of the observed cells, with their derivatives."""

from __future__ import annotations

import torch
from torch import Tensor

from gpytorch_nkn.linalg.grid.partial_kronecker import PartialKronecker

__all__ = ["LogDeterminant"]

_KINDS = ("scaled", "unbiased")


class LogDeterminant:
    r"""How :math:`\log|A_{oo}|` of a :class:`PartialKronecker` is computed.

    ``"scaled"``: the M largest of the N eigenvalues of the full grid's covariance times M / N stand
    for the M eigenvalues of the observed part, as in equation 39 of the paper. It costs nothing
    and is a deterministic function of the hyperparameters, but biased when cells are missing: the
    noise that maximises the likelihood then comes out too large, twice as large on one image.

    ``"unbiased"``: :math:`\log|A_{oo}| = \log|A| + \log|(A^{-1})_{hh}|` where the last term is
    estimated with random sign vectors (Hutchinson; Lanczos quadrature for the value, solves that
    are warm-started for the derivatives). The vectors are drawn once, so that the estimate is a
    smooth function of the hyperparameters. Where holes are the larger part, the same on
    :math:`A_{oo}` itself. Without a batch, with as many vectors as cells these are unit vectors,
    and exact.

    Both are exact on a complete grid.

    Args:
        kind: ``"scaled"`` or ``"unbiased"``.
        num_probes: Number of random vectors.
        seed: Determines them.
        lanczos_steps: Of the quadrature.
        tolerance: Of the solves with the random vectors.

    Reference: Sun et al. (2018), equation 39; Ubaru, Chen and Saad (2017) for the quadrature.
    """

    def __init__(
        self,
        kind: str = "scaled",
        *,
        num_probes: int = 8,
        seed: int = 0,
        lanczos_steps: int = 30,
        tolerance: float = 1e-2,
    ):
        if kind not in _KINDS:
            raise ValueError(f"The log-determinant is one of {_KINDS}, got {kind!r}.")
        if num_probes < 1:
            raise ValueError(f"num_probes must be at least 1, got {num_probes}.")
        self.kind = kind
        self.num_probes = num_probes
        self.seed = seed
        self.lanczos_steps = lanczos_steps
        self.tolerance = tolerance
        self._support: Tensor | None = None  # where the present random vectors are not zero
        self._probes: Tensor | None = None
        self._solutions: Tensor | None = None

    def value(self, system: PartialKronecker) -> Tensor:
        """The log-determinant, ``...``."""
        if self.kind == "scaled" and not system.grid.is_complete:
            return _scaled(system)[0]
        total = _sum(-system.inverse.log(), system) * self._includes_whole(system)
        if system.grid.is_complete:
            return total
        return total + self._quadrature(system)

    def evaluate(
        self, system: PartialKronecker, *, with_value: bool = True
    ) -> tuple[Tensor | None, list[Tensor], Tensor]:
        """Value, derivatives by the factors (in the eigenbasis) and by the noise variance.

        Args:
            system: Covariance and observed cells.
            with_value: Compute the value where that takes more than the derivatives.

        Returns:
            Values ``...`` or None, matrices ``... x n_p x n_p`` and a vector ``...``.
        """
        grid = system.grid
        if self.kind == "scaled" and not grid.is_complete:
            scaled, weights, of_noise = _scaled(system)
            return scaled, _diagonals(system, weights), of_noise
        value: Tensor | None = None
        if with_value or grid.is_complete:
            value = self.value(system)
        whole = self._includes_whole(system)
        of_noise = whole * _sum(system.inverse, system)
        matrices = [whole * matrix for matrix in _diagonals(system, system.inverse)]
        if grid.is_complete:
            return value, matrices, of_noise
        probes, scale = self._get_probes(system)
        solution = system.solve(probes, self._solutions, tolerance=self.tolerance)
        self._solutions = solution.value
        system.report(solution, self.tolerance, "The probes of the log-determinant")
        left, right = system.to_basis(solution.value), system.to_basis(probes)
        if system.in_holes:
            left, right = left * system.inverse, right * -system.inverse
        left = left * scale
        for number, part in enumerate(system.factor_gradients(left, right)):
            matrices[number] = matrices[number] + part.sum(0)
        axes = tuple(range(-system.num_dims, 0))
        return value, matrices, of_noise + (left * right).sum(axes).sum(0)

    @staticmethod
    def _includes_whole(system: PartialKronecker) -> float:
        return float(system.grid.is_complete or system.in_holes)

    def _get_probes(self, system: PartialKronecker) -> tuple[Tensor, float]:
        """Vectors ``s x ...`` where systems are solved, and what their products are scaled by."""
        grid = system.grid
        support = grid.missing if system.in_holes else grid.observed
        batch = system.batch_shape
        count = self.num_probes
        like = system.inverse
        shape = (*batch, *support.shape[support.dim() - grid.num_dims :])
        support = support.expand(shape)
        cells = int(support.flatten(-grid.num_dims).sum(-1).max())
        known = (
            self._probes is not None
            and self._support is not None
            and self._probes.dtype == like.dtype
            and self._support.device == support.device
            and self._support.shape == shape
            and bool((self._support == support).all())
        )
        if not known:
            if count >= cells and not batch:
                units = torch.zeros(cells, support.numel(), dtype=like.dtype, device=like.device)
                units[torch.arange(cells), support.flatten().nonzero()[:, 0]] = 1.0
                self._probes = units.view(cells, *shape)
            else:
                generator = torch.Generator().manual_seed(self.seed)
                signs = torch.randint(0, 2, (count, *shape), generator=generator, device="cpu")
                self._probes = (2 * signs - 1).to(like) * support
            self._support, self._solutions = support, None
        assert self._probes is not None
        exact = count >= cells and not batch
        return self._probes, 1.0 if exact else 1.0 / count

    def _quadrature(self, system: PartialKronecker) -> Tensor:
        """Lanczos quadrature of the trace of the logarithm."""
        probes, scale = self._get_probes(system)
        axes = tuple(range(-system.num_dims, 0))
        norms = probes.square().sum(axes)  # s x ...
        rounding = 10 * torch.finfo(probes.dtype).eps
        diagonal, offdiagonal = [], []
        # A grid of the batch may lack nothing: its vectors are zero.
        lengths = _columns(torch.where(norms > 0, norms, 1.0).sqrt(), system)
        vector, previous = probes / lengths, torch.zeros_like(probes)
        beta = torch.zeros_like(norms)
        for _ in range(self.lanczos_steps):
            # Without reorthogonalisation: copies of an eigenvalue share its weight.
            image = system.multiply(vector) - _columns(beta, system) * previous
            alpha = (vector * image).sum(axes)
            image = image - _columns(alpha, system) * vector
            beta = image.square().sum(axes).sqrt()
            beta = torch.where(beta > rounding * alpha.abs(), beta, 0.0)  # all has been seen
            diagonal.append(alpha)
            offdiagonal.append(beta)
            if not bool(beta.any()):
                break
            previous = vector
            vector = torch.where(
                _columns(beta, system) > 0, image / _columns(beta, system), torch.zeros_like(image)
            )
        tridiagonal = torch.diag_embed(torch.stack(diagonal, -1))
        if len(diagonal) > 1:
            side = torch.stack(offdiagonal[:-1], -1)
            tridiagonal = tridiagonal + torch.diag_embed(side, 1) + torch.diag_embed(side, -1)
        values, vectors = torch.linalg.eigh(tridiagonal)  # s x ... x k x k
        first = vectors[..., 0, :].square()
        logs = values.clamp_min(torch.finfo(values.dtype).tiny).log()
        return scale * (norms * torch.where(first > 0, first * logs, 0.0).sum(-1)).sum(0)


def _columns(values: Tensor, system: PartialKronecker) -> Tensor:
    """Values ``...`` with a dimension of size 1 for each of the grid."""
    return values[(..., *[None] * system.num_dims)]


def _sum(array: Tensor, system: PartialKronecker) -> Tensor:
    return array.sum(tuple(range(-system.num_dims, 0)))


def _diagonals(system: PartialKronecker, weights: Tensor) -> list[Tensor]:
    return [torch.diag_embed(sums) for sums in system.spectral_gradients(weights)]


def _scaled(system: PartialKronecker) -> tuple[Tensor, Tensor, Tensor]:
    """Value ``...``, its derivatives by the eigenvalues of the grid, and by the noise."""
    grid = system.grid
    shape = (*system.batch_shape, *grid.shape)
    spectrum = system.spectrum.expand(shape)
    flat = spectrum.flatten(-grid.num_dims).reshape(-1, grid.num_cells)
    counts = grid.num_observed.expand(system.batch_shape).reshape(-1).tolist()
    # the M-th largest eigenvalue; of several equal ones each counts for a part
    lowest = torch.stack(
        [v.kthvalue(grid.num_cells - m + 1).values for v, m in zip(flat, counts, strict=True)]
    ).unsqueeze(-1)
    observed = torch.tensor(counts, device=flat.device).unsqueeze(-1)
    share = (flat >= lowest).to(flat)
    surplus = share.sum(-1, keepdim=True) - observed
    if bool((surplus > 0).any()):
        equal = (flat == lowest).to(flat)
        share = share - surplus / equal.sum(-1, keepdim=True) * equal
    scale = observed.to(flat) / grid.num_cells
    noise = system.noise.expand(*system.batch_shape, *[1] * grid.num_dims).reshape(-1, 1)
    shifted = scale * flat + noise
    value = (share * shifted.log()).sum(-1).view(system.batch_shape)
    inverse = share / shifted
    weights = (scale * inverse).view(shape)
    return value, weights, inverse.sum(-1).view(system.batch_shape)
