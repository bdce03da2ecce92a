"""Random features of networks for BoTorch's pathwise sampling."""

from __future__ import annotations

import torch
from botorch.exceptions.errors import UnsupportedError
from botorch.sampling.pathwise.features import FeatureMap
from botorch.sampling.pathwise.features.generators import GenKernelFeatures
from gpytorch.kernels import AdditiveKernel, Kernel, ProductKernel, ScaleKernel
from torch import Tensor

from gpytorch_nkn.kernels import BatchKernel, NonStationarySpectralKernel
from gpytorch_nkn.kernels.evaluation import unwrap_scales
from gpytorch_nkn.kernels.measures import RandomFeatures
from gpytorch_nkn.models.pathwise.frequency_measures import draw_random_features

__all__ = ["SpectralFeatureMap", "spectral_features"]


class SpectralFeatureMap(FeatureMap):
    r"""Random features whose inner product is a kernel in expectation.

    .. math::
        \phi(x) = \bigl(a_r \sin(\omega_r^\top x) \prod_j f_{rj}(x),\;
            a_r \cos(\omega_r^\top x) \prod_j f_{rj}(x)\bigr)_{r = 1, \dots, R}

    Linear kernels have linear factors :math:`f_{rj}(x) = x_d - c`, and the frequency pairs of
    :class:`.NonStationarySpectralKernel` have cosine factors. Stationary kernels have no factors,
    and :math:`\phi(x)^\top \phi(x) = k(0)` exactly.

    Args:
        kernel: Kernel from which ``features`` were drawn; the map keeps no reference to it.
        features: Drawn features, ``R`` rows per batch element.
        mass: Value of the kernel at zero distance for each batch element.
    """

    frequency: Tensor
    amplitude: Tensor
    slopes: Tensor
    offsets: Tensor
    wave_slopes: Tensor
    wave_offsets: Tensor
    active_dims: Tensor | None

    def __init__(self, kernel: Kernel, features: RandomFeatures, mass: Tensor):
        super().__init__()
        self.input_transform = self.output_transform = None
        self.batch_shape = kernel.batch_shape
        num_rows, num_columns = features.frequency.shape
        num_rows //= len(mass)
        shape = torch.Size([*self.batch_shape, num_rows])
        self.num_outputs = 2 * num_rows
        amplitude = mass.div(num_rows).sqrt().repeat_interleave(num_rows)
        amplitude = amplitude * features.log_amplitude.div(2).exp()
        slopes, offsets = _linear_factors(features)
        wave_slopes, wave_offsets = _stacked(features, features.waves, 0.0)
        buffers = {
            "frequency": features.frequency.view(*shape, num_columns),
            "amplitude": amplitude.view(shape),
            "slopes": slopes.view(len(slopes), *shape, num_columns),
            "offsets": offsets.view(len(slopes), *shape),
            "wave_slopes": wave_slopes.view(len(wave_slopes), *shape, num_columns),
            "wave_offsets": wave_offsets.view(len(wave_slopes), *shape),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value.to(device=kernel.device, dtype=kernel.dtype))
        self.register_buffer("active_dims", kernel.active_dims)

    def forward(self, x: Tensor) -> Tensor:
        """Return features ``... x N x 2R`` of inputs ``... x N x D``."""
        if self.active_dims is not None:
            x = x.index_select(-1, self.active_dims)
        angle = x @ self.frequency.mT
        amplitude = self.amplitude.unsqueeze(-2)
        for slope, offset in zip(self.slopes, self.offsets, strict=True):
            amplitude = amplitude * (x @ slope.mT + offset.unsqueeze(-2))
        for slope, offset in zip(self.wave_slopes, self.wave_offsets, strict=True):
            amplitude = amplitude * (x @ slope.mT + offset.unsqueeze(-2)).cos()
        return torch.cat([amplitude * angle.sin(), amplitude * angle.cos()], -1)


def spectral_features(kernel: Kernel, *, num_inputs: int, num_outputs: int) -> SpectralFeatureMap:
    r"""Draw a feature map with :math:`k(x, x') \approx \phi(x)^\top \phi(x')`.

    Once ``gpytorch_nkn.models`` is imported, BoTorch's ``draw_matheron_paths`` and
    ``PathwiseThompsonSampling`` call this function for networks, sums and products of kernels, and
    ScaleKernels of these. It draws from the exact spectral measure of the kernel, using PyTorch's
    global random state. Each batch element has its own frequencies.

    The features are unbiased, but the posterior variance of a single map has an error. Consider
    1,024 features (BoTorch's default), 40 points in the unit cube of 2 to 6 dimensions and a noise
    variance of 0.001. The RMS relative error is 5 to 9 % for the ``additive`` preset, and 12 to
    70 % for ``optimization``, whose spectral measure has heavy tails. More features reduce the
    error. Models of this package use up to 16 maps, which reduces it to a quarter.

    Args:
        kernel: A network, or a kernel that a network may contain. Features of linear kernels suit
            inputs of the order of one. A :class:`.NonStationarySpectralKernel` has finitely many
            features; the map uses all of them and is exact.
        num_inputs: Number of input dimensions.
        num_outputs: Number of features, even; ignored for kernels with finitely many features.

    Raises:
        UnsupportedError: ``num_outputs`` is odd or not positive.
        NotImplementedError: Random features of a sub-kernel are not implemented.

    References: Rahimi and Recht (2007), Random Features for Large-Scale Kernel Machines; Wilson et
    al. (2020), Efficiently Sampling Functions from Gaussian Process Posteriors.
    """
    if num_outputs < 2 or num_outputs % 2:
        raise UnsupportedError(f"num_outputs must be even and positive, got {num_outputs}.")
    num_columns = num_inputs if kernel.active_dims is None else len(kernel.active_dims)
    inner, _ = unwrap_scales(kernel)
    finite = isinstance(inner, NonStationarySpectralKernel)
    num_rows = inner.num_features if finite else num_outputs // 2
    features, mass = draw_random_features(kernel, num_columns, num_rows)
    return SpectralFeatureMap(kernel, features, mass)


def _linear_factors(features: RandomFeatures) -> tuple[Tensor, Tensor]:
    """Return slopes ``J x R x D`` and offsets ``J x R`` of linear factors, 1 where missing."""
    frequency = features.frequency
    eye = torch.eye(frequency.size(-1), dtype=frequency.dtype, device=frequency.device)
    linear = [(row, eye[column], -center) for row, column, center in features.factors]
    return _stacked(features, linear, 1.0)


def _stacked(
    features: RandomFeatures, factors: list[tuple[Tensor, Tensor, Tensor]], none: float
) -> tuple[Tensor, Tensor]:
    """Stack slopes ``J x R x D`` and offsets ``J x R``; missing factors get 0 and ``none``."""
    num_rows, num_columns = features.frequency.shape
    if not factors:
        empty = features.frequency.new_zeros(0, num_rows, num_columns)
        return empty, empty[..., 0]
    row, slope, offset = (torch.cat(parts) for parts in zip(*factors, strict=True))
    order = row.argsort(stable=True)
    row, slope, offset = row[order], slope[order], offset[order]
    count = row.bincount(minlength=num_rows)
    own = torch.arange(len(row), device=row.device)
    number = own - (count.cumsum(0) - count)[row]  # index of the factor within its row
    slopes = offset.new_zeros(int(count.max()), num_rows, num_columns)
    slopes[number, row] = slope
    offsets = offset.new_full(slopes.shape[:-1], none)
    offsets[number, row] = offset
    return slopes, offsets


_botorch_scale_features = GenKernelFeatures.dispatch(ScaleKernel)
_sums_and_products = tuple(
    cls for cls in (AdditiveKernel, ProductKernel) if GenKernelFeatures.dispatch(cls) is None
)


def _scale_features(kernel: ScaleKernel, *, num_inputs: int, num_outputs: int) -> FeatureMap:
    """Return features of a ScaleKernel: BoTorch's, unless its base kernel is of this package.

    For kernels of this package, BoTorch's map would select columns twice on a GPU.
    """
    base = kernel.base_kernel
    while isinstance(base, ScaleKernel):
        base = base.base_kernel
    if isinstance(base, (BatchKernel, *_sums_and_products)):
        return spectral_features(kernel, num_inputs=num_inputs, num_outputs=num_outputs)
    return _botorch_scale_features(kernel, num_inputs=num_inputs, num_outputs=num_outputs)


for _cls in (BatchKernel, *_sums_and_products):
    GenKernelFeatures.register(_cls)(spectral_features)
GenKernelFeatures.register(ScaleKernel)(_scale_features)
