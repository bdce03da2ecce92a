"""Neural Kernel Networks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel, check_columns
from gpytorch_nkn.kernels.complex_kernel import ComplexKernel
from gpytorch_nkn.kernels.evaluation import network_matrix
from gpytorch_nkn.kernels.network import forecast, presets
from gpytorch_nkn.kernels.network.parts import check_parts, kernel_values, select_columns
from gpytorch_nkn.layers import PAPER_WIRING, Layer
from gpytorch_nkn.linalg import broadcast_batches, to_dense as to_dense_matrix

__all__ = ["NeuralKernelNetwork"]


class NeuralKernelNetwork(BatchKernel):
    r"""Neural Kernel Network, a composition of kernels by non-negative sums and products.

    .. math:: k(x, x') = \Re\, f_L(\dots f_1(k_1(x, x'), \dots, k_P(x, x')))

    The primitives :math:`k_p` are kernels, and each layer :math:`f_l` maps kernels to kernels
    (non-negative sums, products, power series). All units and the output are therefore kernels.
    Values of :class:`ComplexKernel` primitives remain complex up to the output, where the network
    takes their real part (theorem 7 of the paper).

    Networks whose primitives have a formula are evaluated tile by tile, by compiled code if a
    compiler was available at installation. PyTorch evaluates other networks.
    :class:`gpytorch_nkn.settings.kernel_evaluation` selects the evaluation path. BoTorch's pathwise
    sampling works with networks, by random features.

    All paths are twice differentiable, even at equal inputs, as covariances of derivatives of a
    Gaussian process require. Sample paths of :class:`gpytorch.kernels.MaternKernel` with ``nu=0.5``
    and :class:`gpytorch_nkn.kernels.WienerKernel` are not differentiable; second derivatives of
    these kernels at equal inputs are infinite. Kernels of distances without a formula
    (:class:`gpytorch.kernels.PiecewisePolynomialKernel`) raise an error.

    Batch shapes of primitives and layers broadcast. Values are ``... x N x M`` at
    ``N`` and ``M`` inputs, or ``... x (N O) x (M O)`` with ``O`` outputs per input.

    Args:
        primitives: One or more kernels of any kind, including networks; each may have
            ``active_dims`` (indices among the network's columns) and a batch shape.
        layers: Layers in order, from one input per primitive to one output.
        skip: Append the primitives to the inputs of the last layer, so that sums bypass products.
        active_dims: As in :class:`gpytorch.kernels.Kernel`.

    Raises:
        TypeError: A primitive is not a kernel, or a layer is not a Layer.
        ValueError: ``primitives`` is empty, the widths of layers do not fit, or the batch shapes of
            the parts do not broadcast.
        NotImplementedError: A primitive models derivatives, which layers do not preserve.

    Reference: Sun et al. (2018), Differentiable Compositional Kernel Learning for Gaussian
    Processes, section 3.1.

    Example:
        >>> from gpytorch.kernels import PeriodicKernel, RBFKernel
        >>> from gpytorch_nkn.layers import Linear, Product
        >>> kernel = NeuralKernelNetwork(
        ...     [RBFKernel(), PeriodicKernel()], [Linear(2, 4), Product(4, 2), Linear(2, 1)]
        ... )
        >>> kernel(torch.rand(5, 1)).shape
        torch.Size([5, 5])
    """

    input_dim: int | None = None  # number of input columns of a preset

    def __init__(
        self,
        primitives: Sequence[Kernel],
        layers: Sequence[Layer],
        *,
        skip: bool = False,
        active_dims: tuple[int, ...] | None = None,
    ):
        super().__init__(active_dims=active_dims)
        for name, parts in (("primitives", primitives), ("layers", layers)):
            if isinstance(parts, nn.Module) and not isinstance(parts, nn.ModuleList):
                # iterating over a single kernel would not end
                raise TypeError(f"{name} must be a sequence, got {type(parts).__name__}.")
        primitives, layers = list(primitives), list(layers)
        check_parts(primitives, layers, skip)
        self.skip = skip
        self.primitives = nn.ModuleList(primitives)
        self.layers = nn.ModuleList(layers)
        try:
            self.batch_shape  # noqa: B018, the property broadcasts the parts
        except RuntimeError:
            shapes = [tuple(part.batch_shape) for part in (*primitives, *layers)]
            raise ValueError(f"Batch shapes of the parts must broadcast, got {shapes}.") from None

    @classmethod
    def time_series(
        cls,
        *,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Create a network for time series: 2 RBF, 2 periodic, 2 linear, 2 rational quadratic.

        All presets start near a weighted mean of their primitives with a variance near one. Copies
        of a primitive have different start values.
        :func:`gpytorch_nkn.initialization.initialize_from_data` sets start values from data.

        Args:
            wiring: Layers in the paper's notation.
            priors: Use weak log-normal priors on lengthscales, periods, variances and weights, for
                standardised inputs and targets.
            sparsity: ``"l1"`` uses an exponential prior on weights, which leaves few connections;
                it also applies with ``priors=False``.
            batch_shape: Batch shape for independent networks.
            active_dims: Index of the time column, if the input has several columns.

        Raises:
            ValueError: In any preset: the wiring or ``cat_dims`` is invalid, or the number of
                ``active_dims`` is not ``input_dim``.

        Reference: Sun et al. (2018), section 5.1 and appendix J.1.
        """
        options = presets.make_options(wiring, priors, sparsity, batch_shape)
        return cls._preset(presets.paper("time_series", 1, None, options), 1, active_dims)

    @classmethod
    def forecast(
        cls,
        *,
        origin: float,
        seasons: Sequence[float] = (1.0,),
        cycles: Sequence[float] = (),
        terms: Sequence[str] = (
            "walk",
            "trend",
            "line",
            "smooth",
            "rough",
            "season",
            "shifting_season",
        ),
        covariates: Sequence[int] = (),
        nonlinear: Sequence[int] = (),
        time_scale: float = 1.0,
        shifts: Sequence[float] = (),
        kinks: Sequence[float] = (),
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Create a network for forecasts of one series, a weighted sum of common processes.

        The wiring is fixed: one product of primitives per term, plus a constant with variance 10.
        Terms are ``"walk"`` (random walk), ``"trend"`` (local linear trend), ``"damped"`` (damped
        trend), ``"line"`` (linear) and ``"smooth"`` (rational quadratic). ``"rough"`` and
        ``"level"`` are Matern-1/2 with a short or a long lengthscale. Terms for each of the
        ``seasons``:

        - ``"season"``: periodic times RBF, which drifts slowly; ``"steady_season"`` drifts less.
        - ``"shifting_season"``: periodic times random walk.
        - ``"fixed_season"``: periodic; also the product of the shortest and the longest season.

        ``"cycle"`` adds a quasi-periodic component for each of the ``cycles``. Each of the
        ``shifts`` adds a level shift, and each of the ``kinks`` a change of slope.

        These terms depend on time, the first column. Each covariate adds a linear effect and its
        products with a random walk and with the shortest season. Columns in ``nonlinear`` add a
        smooth effect (RBF). Priors shrink effects that the data do not support.

        The priors assume standardised targets and covariates, and time in units of the shortest
        season (or of four steps without a season). They were chosen by forecast errors on other
        series (M1, M3, M4, retail, livestock), and make restarts unnecessary.

        Args:
            origin: Start of random walks and trends, one step before the first time.
            seasons: Known periods, which are not trained.
            cycles: Start values of trained periods.
            terms: Names of the terms; terms for seasons or cycles need ``seasons`` or ``cycles``.
            covariates: Input columns of covariates, at least 1 (counted within ``active_dims``).
            nonlinear: Covariates with an additional smooth effect.
            time_scale: Time scale of priors on walks, trends, lines and levels, in units of time.
            shifts, kinks: Times of changes of level and of slope, which are not trained.
            active_dims: Columns of time and covariates, if the input has other columns.

        Raises:
            ValueError: A term is unknown or no term is given, a period is not positive, or a column
                is not a covariate.

        Reference: Corani, Benavoli and Zaffalon (2021), Time Series Forecasting with Gaussian
        Processes Needs Priors, for a sum with priors, without random walks and shifting seasons.
        """
        covariates = tuple(covariates)
        parts = forecast.forecast(
            origin, seasons, cycles, terms, covariates, nonlinear, time_scale, shifts, kinks
        )
        # the input may have columns besides the covariates
        return cls._preset(parts, None if covariates else 1, active_dims)

    @classmethod
    def regression(
        cls,
        input_dim: int,
        *,
        cat_dims: Iterable[int] | None = None,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Create a network for regression: 2 RBF, 2 linear, 2 rational quadratic.

        Args:
            input_dim: Number of input columns, each with a lengthscale (ARD).
            cat_dims: Categorical columns, see :meth:`tabular`.
            wiring, priors, sparsity, batch_shape, active_dims: See :meth:`time_series`.

        Reference: Sun et al. (2018), section 5.2 and appendix J.2.
        """
        options = presets.make_options(wiring, priors, sparsity, batch_shape)
        parts = presets.paper("regression", input_dim, cat_dims, options)
        return cls._preset(parts, input_dim, active_dims)

    @classmethod
    def tabular(
        cls,
        input_dim: int,
        *,
        cat_dims: Iterable[int] | None = None,
        columns: bool = False,
        spectral: int = 0,
        ard: bool = True,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Create a network for tabular data: 2 RBF, 2 Matern-5/2, rational quadratic, linear.

        Primitives use all columns, with one lengthscale per column. The last layer also receives
        the primitives (``skip``). ``benchmarks/RESULTS.md`` compares the preset with
        :meth:`regression`, the paper's network.

        Args:
            input_dim: Number of input columns.
            cat_dims: Indices of categorical columns; negative indices count from the last column.
                Each gets a :class:`.CategoricalKernel`. A kernel over all of them multiplies one
                primitive of each kind; other primitives ignore categories.
            columns: Add one RBF per column, and use only one RBF and one Matern-5/2 over all.
            spectral: Number of added spectral components over all columns; they overfit small data.
            ard: Use one lengthscale per column; ``False`` suits many columns with few rows.
            wiring, priors, batch_shape, active_dims: See :meth:`time_series`.
        """
        options = presets.make_options(wiring=wiring, priors=priors, batch_shape=batch_shape)
        parts = presets.tabular(input_dim, cat_dims, columns, spectral, ard, options)
        return cls._preset(parts, input_dim, active_dims, skip=True)

    @classmethod
    def additive(
        cls,
        input_dim: int,
        *,
        cat_dims: Iterable[int] | None = None,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Create a network for sums and products of one-dimensional RBF kernels, one per column.

        Args:
            input_dim: Number of input columns.
            cat_dims: Categorical columns, with :class:`.CategoricalKernel` instead of RBF.
            wiring, priors, sparsity, batch_shape, active_dims: See :meth:`time_series`.

        Reference: Sun et al. (2018), section 5.3 and appendix J.3.
        """
        options = presets.make_options(wiring, priors, sparsity, batch_shape)
        parts = presets.additive(input_dim, cat_dims, options)
        return cls._preset(parts, input_dim, active_dims)

    @classmethod
    def texture(
        cls,
        *,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Create a network for one dimension of a grid: linear, RBF, rational quadratic, periodic.

        Args:
            wiring, priors, sparsity, batch_shape, active_dims: See :meth:`time_series`.

        Reference: Sun et al. (2018), section 5.4 and appendix J.4, which do not state the wiring;
        the default is the wiring of the other experiments.
        """
        options = presets.make_options(wiring, priors, sparsity, batch_shape)
        parts = presets.paper("texture", 1, None, options)
        return cls._preset(parts, 1, active_dims)

    @classmethod
    def optimization(
        cls,
        input_dim: int,
        *,
        cat_dims: Iterable[int] | None = None,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Create a network for Bayesian optimisation, which favours additive structure.

        Primitives are one RBF per input column and one Matern-5/2 over all columns. Linear layers
        are convex combinations (``weights="simplex"``), and the last layer also receives the
        primitives (``skip``). The variance is one: use a ScaleKernel to learn an output scale, as
        in :class:`gpytorch_nkn.models.NKNSingleTaskGP`. ``benchmarks/RESULTS.md`` compares the
        preset with :meth:`additive`, the paper's network.

        Args:
            input_dim: Number of input columns, scaled to the unit cube.
            cat_dims: Categorical columns, not scaled. Each has a :class:`.CategoricalKernel`
                instead of an RBF. A kernel over all categorical columns multiplies the Matern
                kernel.
            wiring: Layers in the paper's notation; the last layer must be ``Linear1``.
            priors: Use log-normal priors on lengthscales, and normal priors on raw
                weights that favour a sum of one-dimensional kernels.
            batch_shape, active_dims: See :meth:`time_series`.
        """
        options = presets.make_options(wiring=wiring, priors=priors, batch_shape=batch_shape)
        parts = presets.optimization(input_dim, cat_dims, options)
        return cls._preset(parts, input_dim, active_dims, skip=True)

    @classmethod
    def pairs(
        cls,
        input_dim: int,
        *,
        cat_dims: Iterable[int] | None = None,
        priors: bool = True,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        r"""Create a network for sums of functions of one or two columns.

        .. math:: k = b + \sum_i w_i k_i + w_0 \Bigl(c + \sum_i u_i k_i\Bigr)
            \Bigl(d + \sum_j v_j k_j\Bigr)

        with one RBF kernel :math:`k_i` per column and convex weights. This is a second-order
        additive kernel (Duvenaud et al. 2011, section 3) with 3 D weights instead of one per pair.
        The variance is one: use a ScaleKernel to learn an output scale.

        Args:
            input_dim: Number ``D`` of input columns, scaled to the unit cube.
            cat_dims: Categorical columns, not scaled, with :class:`.CategoricalKernel` instead of
                RBF.
            priors: As in :meth:`optimization`; at their centre the product has half of the
                variance.
            batch_shape, active_dims: See :meth:`time_series`.

        Reference: Duvenaud, Nickisch and Rasmussen (2011), Additive Gaussian Processes.
        """
        options = presets.make_options(priors=priors, batch_shape=batch_shape)
        parts = presets.pairs(input_dim, cat_dims, options)
        return cls._preset(parts, input_dim, active_dims, skip=True)

    @classmethod
    def _preset(
        cls,
        parts: presets.Parts,
        input_dim: int | None,
        active_dims: tuple[int, ...] | None,
        *,
        skip: bool = False,
    ) -> NeuralKernelNetwork:
        """Create a network for ``input_dim`` columns, selected by ``active_dims`` if given."""
        network = cls(*parts, skip=skip, active_dims=active_dims)
        if input_dim and active_dims is not None and len(active_dims) != input_dim:
            raise ValueError(
                f"The network needs {input_dim} input columns, got active_dims {active_dims}."
            )
        network.input_dim = input_dim
        return network

    def check_columns(self, x: Tensor) -> None:
        """Raise a ValueError unless inputs ``... x N x D`` have the columns of all parts."""
        check_columns(self, x, self.input_dim)
        for kernel in self.primitives:
            if kernel.active_dims is None:
                check_columns(self, x, kernel.ard_num_dims)

    @property
    def batch_shape(self) -> torch.Size:
        """Broadcast batch shapes of the primitives and layers."""
        if not hasattr(self, "layers"):  # read by the base class's constructor
            return self._batch_shape
        parts = (*self.primitives, *self.layers)
        return broadcast_batches(self._batch_shape, *(part.batch_shape for part in parts))

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        self._batch_shape = torch.Size(value)

    @property
    def is_stationary(self) -> bool:
        """Whether all primitives are stationary."""
        return all(kernel.is_stationary for kernel in self.primitives)

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """Return the number of outputs per input of all primitives."""
        primitives: list[Kernel] = list(self.primitives)
        outputs = [kernel.num_outputs_per_input(x1, x2) for kernel in primitives]
        if len(set(outputs)) > 1:
            raise ValueError(f"Primitives must have equal outputs per input, got {outputs}.")
        return outputs[0]

    def forward(self, x1: Tensor, x2: Tensor, diag: bool = False, **params: Any) -> Tensor:
        """Return values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
        matrix = None if params else network_matrix(self, x1, x2, diag=diag)
        if matrix is None:
            return self.plain_values(x1, x2, diag, params)
        values = to_dense_matrix(matrix)
        return values.flatten(-3) if diag else values

    def plain_values(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        params: Mapping[str, Any] = MappingProxyType({}),
    ) -> Tensor:
        """Return the values of :meth:`forward` by plain PyTorch operations on whole matrices."""
        values, entry_shape = self._stack(x1, x2, diag, params)
        values = self._stages(values)[-1]
        if values.is_complex():
            values = values.real
        return _with_entries(values.squeeze(-2), entry_shape)

    def unit_values(self, x1: Tensor, x2: Tensor | None = None) -> list[Tensor]:
        """Return the values of all units: the primitives, then each layer.

        Inputs are ``... x N x D`` and ``... x M x D`` (``None`` for ``x1``). Values are
        ``... x U x N x M`` for ``U`` units, complex if a primitive is complex.
        """
        x2 = x1 if x2 is None else x2
        x1, x2 = (x.unsqueeze(-1) if x.dim() == 1 else x for x in (x1, x2))  # one column
        x1, x2 = select_columns(self, x1), select_columns(self, x2)
        values, entry_shape = self._stack(x1, x2, False, {})
        return [_with_entries(stage, entry_shape) for stage in self._stages(values)]

    def _stages(self, values: Tensor) -> list[Tensor]:
        """Return the values of the primitives and of each layer."""
        stages = [values]
        for number, layer in enumerate(self.layers, start=1):
            incoming = stages[-1]
            if self.skip and number == len(self.layers):
                incoming = torch.cat([incoming, values.expand(*incoming.shape[:-2], -1, -1)], -2)
            stages.append(layer(incoming))
        return stages

    def _stack(
        self, x1: Tensor, x2: Tensor, diag: bool, params: Mapping[str, Any]
    ) -> tuple[Tensor, torch.Size]:
        """Return values ``... x P x E`` of the primitives, and the shape that ``E`` flattens."""
        self.check_columns(x1)
        num_entry_dims = 1 if diag else 2
        values = []
        for kernel in self.primitives:
            if isinstance(kernel, ComplexKernel):
                left, right = select_columns(kernel, x1), select_columns(kernel, x2)
                values.append(kernel.complex_values(left, right, diag=diag))
            else:
                values.append(kernel_values(kernel, x1, x2, diag, **params))
        entry_shapes = [tuple(value.shape[-num_entry_dims:]) for value in values]
        if not torch.jit.is_tracing() and len(set(entry_shapes)) > 1:  # traced sizes are tensors
            raise ValueError(f"Primitives must return values of one shape, got {entry_shapes}.")
        if any(value.is_complex() for value in values):
            values = [v.to(torch.promote_types(v.dtype, torch.complex64)) for v in values]
        values = torch.broadcast_tensors(*values)
        entry_shape = values[0].shape[-num_entry_dims:]
        return torch.stack([v.flatten(-num_entry_dims) for v in values], dim=-2), entry_shape


def _with_entries(flat: Tensor, entry_shape: torch.Size) -> Tensor:
    return flat.reshape(*flat.shape[:-1], *entry_shape)  # unflatten cannot be traced
