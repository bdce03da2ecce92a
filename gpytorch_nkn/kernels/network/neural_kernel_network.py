"""A network of kernels, every unit of which is a kernel."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import torch
from gpytorch.kernels import Kernel
from torch import Tensor, nn

from gpytorch_nkn.kernels.batch_kernel import BatchKernel
from gpytorch_nkn.kernels.complex_kernel import ComplexKernel
from gpytorch_nkn.kernels.evaluation import network_matrix
from gpytorch_nkn.kernels.network import forecast, presets
from gpytorch_nkn.kernels.network.parts import (
    check_parts,
    kernel_values,
    part_batch_shape,
    select_columns,
)
from gpytorch_nkn.layers import PAPER_WIRING, Layer
from gpytorch_nkn.linalg import broadcast_batch_shapes, to_dense as to_dense_matrix

__all__ = ["NeuralKernelNetwork"]


class NeuralKernelNetwork(BatchKernel):
    r"""Kernel computed by a network whose units are kernels.

    .. math:: k(x, x') = \Re\, f_L(\dots f_1(k_1(x, x'), \dots, k_P(x, x')))

    The primitives :math:`k_p` are kernels, and every layer :math:`f_l` maps kernels to kernels
    (non-negative sums, products, power series), hence every unit is a kernel and so is the
    output. :class:`ComplexKernel` primitives keep their complex values inside the network; the
    real part is taken at the output (theorem 7 of the paper). Any other kernel, another network
    included, takes part with its real values.

    Args:
        primitives: Kernels, at least one: GPyTorch's or this package's, with ``active_dims`` and
            batch shapes of their own, sums, products and ScaleKernels included. With
            ``active_dims`` on the network, theirs count within the columns that it selects.
        layers: Layers whose widths chain from the number of primitives to one.
        skip: The last layer sees the primitives, too, behind the units of the layer before it:
            it takes that many more. Sums of single primitives then need not pass the products.
        active_dims: Input columns that the network sees; ``None`` means all of them.

    Networks whose primitives have a formula are evaluated tile by tile, compiled where a compiler
    was present at installation: this takes less time and little more memory than the result.
    Otherwise evaluation is plain; :class:`gpytorch_nkn.settings.kernel_evaluation` forces a way.

    Every way of evaluation can be differentiated twice, at equal inputs too, so that gradients of
    a Gaussian process have their variances and covariances. These are infinite with primitives
    whose functions have no derivative: :class:`gpytorch.kernels.MaternKernel` with ``nu=0.5`` and
    :class:`gpytorch_nkn.kernels.WienerKernel`.

    The batch shape is that of the parts, broadcast. Values are ``... x N x M`` for inputs
    ``... x N x D`` and ``... x M x D``; with primitives of several outputs per input,
    ``... x (N O) x (M O)``.

    Raises:
        TypeError: A primitive is not a kernel or a layer is not a layer.
        ValueError: There is no primitive, the widths do not chain from the primitives to one
            output, or the batch shapes of the parts do not broadcast.
        NotImplementedError: A primitive models derivatives: products of such kernels are not
            the derivative kernels of the products.

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

    input_dim: int | None = None  # columns that a preset is for

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
                # a kernel alone would be iterated for ever, through its batch indexing
                raise TypeError(f"{name} must be a sequence, got {parts!r}.")
        primitives, layers = list(primitives), list(layers)
        check_parts(primitives, layers, skip)
        self.skip = skip
        self.primitives = nn.ModuleList(primitives)
        self.layers = nn.ModuleList(layers)
        try:
            self.batch_shape  # noqa: B018, the property broadcasts the parts
        except RuntimeError:
            shapes = [tuple(part.batch_shape) for part in (*primitives, *layers)]
            raise ValueError(f"The batch shapes of the parts do not broadcast: {shapes}.") from None

    @classmethod
    def time_series(
        cls,
        *,
        wiring: str = PAPER_WIRING,
        zero_mean: bool = False,
        priors: bool = True,
        variances: bool = False,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Network for one-dimensional series: 2 RBF, 2 periodic, 2 linear, 2 rational quadratic.

        Args:
            wiring: Layers in the paper's notation.
            zero_mean: Use the periodic kernel without its constant part and the linear kernel
                around a centre, which make decompositions readable.
            priors: Weak log-normal priors on lengthscales, periods, variances and weights, for
                inputs and targets that are standardised.
            variances: Give every primitive a variance of its own, as the paper does. The weights
                of the first layer scale the primitives already, so the default is without.
            sparsity: ``"l1"`` for few connections that matter: an exponential prior on the weights
                in place of the weak ones. With ``priors=False`` it is the only prior.
            batch_shape: Shape of the batch of independent networks.
            active_dims: The input column of time, where there are several.

        All presets start with a variance near one, as a weighted mean of their primitives, with
        start values spread over the copies of a primitive; take them from data with
        :func:`gpytorch_nkn.initialization.initialize_from_data`. With ``variances`` this has 113
        parameters where the paper counts 111: GPyTorch's rational quadratic also learns its
        exponent (printed with a wrong sign in the paper's section 2.3).

        Reference: Sun et al. (2018), section 5.1 and appendix J.1.
        """
        options = presets.make_options(wiring, priors, variances, batch_shape, sparsity)
        name = "time_series-zero_mean" if zero_mean else "time_series"
        return cls._preset(presets.paper(name, 1, None, options), 1, active_dims)

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
        curves: Sequence[int] = (),
        far: float = 1.0,
        priors: bool = True,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Network for forecasts of one series: a weighted sum of processes of which many consist.

        A network whose wiring is known, one product per term: what is learned are weights and
        the parameters of the primitives. ``"walk"`` is a Wiener process, ``"trend"`` an
        integrated one, ``"damped"`` one whose slope is forgotten, ``"line"`` linear,
        ``"smooth"`` rational quadratic, ``"rough"`` an Ornstein-Uhlenbeck process (Matern-1/2).
        For each of the ``seasons``, ``"season"`` repeats with its period and drifts
        (``"steady_season"`` hardly), and
        ``"shifting_season"`` goes on from the last one (periodic times Wiener). For forecasts far
        ahead, ``"level"`` is an Ornstein-Uhlenbeck process that returns to its mean slowly, and
        ``"fixed_season"`` repeats without a change; the shape of the shortest season then varies
        with the longest one (periodic times periodic). For each of the
        ``cycles``, ``"cycle"`` is a wave that loses its phase. Constants are part of it, with a
        variance of 10.

        With ``covariates`` the inputs have columns beside that of time, the first, on which alone
        these terms depend. Each of the covariates adds a linear effect, one that drifts (linear
        times Wiener), one that repeats with the shortest season (linear times periodic), and those
        in ``curves`` a smooth one (RBF). What adds nothing is kept small by the priors.

        The priors are for standardised targets and covariates, and time in units of the shortest
        season (in groups of four steps without one). Modes and widths were chosen by the errors of
        forecasts of series of everyday kinds (M1, M3, M4, retail, livestock); with them one start
        finds what many starts without them do not.

        Args:
            origin: Where walks start: a step ahead of the first time.
            seasons: Periods that are known, and not learned.
            cycles: Periods to start from.
            terms: Names of the terms; those of seasons or cycles count only where there are some.
            covariates: Input columns of covariates, from 1 on (counted within ``active_dims``).
            curves: Those of them that have smooth effects, too.
            far: Time over which the priors of walks, trends, lines and levels hold, in units of
                the inputs.
            priors: Log-normal priors on all that is learned.
            active_dims: The input column of time, or those of time and covariates, where there
                are others.

        Raises:
            ValueError: A term is unknown, a period is not positive, a column is not one of a
                covariate, or there is no term at all.

        Reference: Corani, Benavoli and Zaffalon (2021), Time Series Forecasting with Gaussian
        Processes Needs Priors, for a sum with priors; walks and shifting seasons are not theirs.
        """
        parts = forecast.forecast(origin, seasons, cycles, terms, covariates, curves, priors, far)
        # beside covariates there may be columns that nothing is to depend on
        return cls._preset(parts, None if covariates else 1, active_dims)

    @classmethod
    def regression(
        cls,
        input_dim: int,
        *,
        cat_dims: Iterable[int] | None = None,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        variances: bool = False,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Network for regression in several dimensions: 2 RBF, 2 linear, 2 rational quadratic.

        Args:
            input_dim: Number of input columns, each with a lengthscale of its own (ARD).
            cat_dims: Categorical columns, see :meth:`tabular`.
            wiring, priors, variances, sparsity, batch_shape, active_dims: See :meth:`time_series`.

        Reference: Sun et al. (2018), section 5.2 and appendix J.2.
        """
        options = presets.make_options(wiring, priors, variances, batch_shape, sparsity)
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
        """Network for tables of data: 2 RBF, 2 Matern-5/2, rational quadratic and linear.

        All are over all columns with a lengthscale each, and the last layer sees them, too
        (``skip``), so that a single one of them is a network close by.

        Args:
            input_dim: Number of input columns.
            cat_dims: Columns whose numbers are codes of categories, those below zero counted from
                the last. Each has a :class:`.CategoricalKernel`, one over all of them multiplies
                one kernel of each kind, and other kernels leave them out.
            columns: Add one RBF per column, with one RBF and one Matern-5/2 over all of them.
            spectral: Add so many components of a spectral mixture, which see directions across
                columns; with few rows they fit the noise.
            ard: Give every column a lengthscale of its own. One lengthscale for all columns suits
                many columns and few rows.
            wiring, priors, batch_shape, active_dims: See :meth:`time_series`.

        The paper's network for this purpose is :meth:`regression`; ``benchmarks/RESULTS.md`` has
        both side by side.
        """
        options = presets.make_options(wiring, priors, batch_shape=batch_shape)
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
        variances: bool = False,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Network over one RBF per input column: sums and products of one-dimensional kernels.

        Args:
            input_dim: Number of input columns.
            cat_dims: Categorical columns, each with a :class:`.CategoricalKernel` in place of RBF.
            wiring, priors, variances, sparsity, batch_shape, active_dims: See :meth:`time_series`.

        Reference: Sun et al. (2018), section 5.3 and appendix J.3.
        """
        options = presets.make_options(wiring, priors, variances, batch_shape, sparsity)
        parts = presets.additive(input_dim, cat_dims, options)
        return cls._preset(parts, input_dim, active_dims)

    @classmethod
    def texture(
        cls,
        *,
        wiring: str = PAPER_WIRING,
        priors: bool = True,
        variances: bool = False,
        sparsity: Literal["l1"] | None = None,
        batch_shape: torch.Size | None = None,
        active_dims: tuple[int, ...] | None = None,
    ) -> NeuralKernelNetwork:
        """Network for one dimension of a grid: linear, RBF, rational quadratic and periodic.

        Args:
            wiring, priors, variances, sparsity, batch_shape, active_dims: See :meth:`time_series`.

        Reference: Sun et al. (2018), section 5.4 and appendix J.4. The paper names the four
        primitives and not the wiring, so that of its other experiments is the default.
        """
        options = presets.make_options(wiring, priors, variances, batch_shape, sparsity)
        return cls._preset(presets.paper("texture", 1, None, options), 1, active_dims)

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
        """Network for Bayesian optimisation: additive with few points, more where data ask for it.

        One RBF per input column and one Matern-5/2 over all of them; every Linear unit is a convex
        combination (``weights="simplex"``), and the last one sees the primitives, too (``skip``).
        The variance is one: put it into a ScaleKernel to learn an output scale, as
        :class:`gpytorch_nkn.models.NKNSingleTaskGP` does.

        Args:
            input_dim: Number of input columns, scaled to the unit cube.
            cat_dims: Columns of codes of categories, which are not scaled. Each has a
                :class:`.CategoricalKernel` in place of an RBF, and one over all of them multiplies
                the Matern of the others.
            wiring: Layers in the paper's notation, the last of them ``Linear1``.
            priors: Log-normal and gamma priors on lengthscales, and normal priors on the raw
                weights around values that favour a sum of one-dimensional kernels. Without them,
                the start values stay the same.
            batch_shape, active_dims: See :meth:`time_series`.

        The paper's network for this purpose is :meth:`additive`; ``benchmarks/RESULTS.md`` has
        both side by side.
        """
        options = presets.make_options(wiring, priors, batch_shape=batch_shape)
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
        r"""Network for sums of functions of one and of two columns.

        .. math:: k = b + \sum_i w_i k_i + w_0 \Bigl(c + \sum_i u_i k_i\Bigr)
            \Bigl(d + \sum_j v_j k_j\Bigr)

        with one RBF kernel :math:`k_i` per column, and convex weights. It is an additive kernel of
        the second order (Duvenaud et al. 2011, section 3) with 3 D weights in place of one for
        every pair, whose variance is one: put it into a ScaleKernel to learn an output scale.

        Args:
            input_dim: Number ``D`` of input columns, scaled to the unit cube.
            cat_dims: Columns of codes of categories, which are not scaled. Each has a
                :class:`.CategoricalKernel` in place of an RBF.
            priors: As :meth:`optimization`'s, around half of the variance for the product.
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
        """A network for so many columns, those of ``active_dims`` where these are given."""
        network = cls(*parts, skip=skip, active_dims=active_dims)
        if input_dim and active_dims is not None and len(active_dims) != input_dim:
            raise ValueError(
                f"The network is for {input_dim} input columns, got active_dims {active_dims}."
            )
        network.input_dim = input_dim
        return network

    def check_columns(self, x: Tensor) -> None:
        """Refuse inputs of other columns than a preset is for: some would count for nothing.

        Raises:
            ValueError: Inputs ``... x N x D`` have more or fewer columns than ``input_dim``.
        """
        if self.input_dim not in (None, x.size(-1)):
            raise ValueError(
                f"The network is for {self.input_dim} input columns, got inputs of the shape "
                f"{tuple(x.shape)}; make it for {x.size(-1)}, or choose columns by active_dims."
            )

    @property
    def batch_shape(self) -> torch.Size:
        """Batch shapes of the primitives and the layers, broadcast."""
        if not hasattr(self, "layers"):  # asked for while the base class is being set up
            return self._batch_shape
        shapes = [part_batch_shape(part) for part in (*self.primitives, *self.layers)]
        return broadcast_batch_shapes(self._batch_shape, *shapes)

    @batch_shape.setter
    def batch_shape(self, value: torch.Size) -> None:
        self._batch_shape = torch.Size(value)

    @property
    def is_stationary(self) -> bool:
        """True if every primitive is stationary. Stationary does not mean separable."""
        return all(kernel.is_stationary for kernel in self.primitives)

    def num_outputs_per_input(self, x1: Tensor, x2: Tensor) -> int:
        """Outputs per input of the primitives, which must agree."""
        primitives: list[Kernel] = list(self.primitives)
        outputs = [kernel.num_outputs_per_input(x1, x2) for kernel in primitives]
        if len(set(outputs)) > 1:
            raise ValueError(f"Primitives must agree in their outputs per input, got {outputs}.")
        return outputs[0]

    def forward(
        self,
        x1: Tensor,
        x2: Tensor,
        diag: bool = False,
        **params: Any,
    ) -> Tensor:
        """Values ``... x N x M`` (``... x N`` with ``diag``) for inputs ``... x N x D``."""
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
        """Values as :meth:`forward`'s, by ordinary differentiable operations on whole matrices."""
        values, entry_shape = self._stack(x1, x2, diag, params)
        values = self._stages(values)[-1]
        if values.is_complex():
            values = values.real
        return _with_entries(values.squeeze(-2), entry_shape)

    def unit_values(self, x1: Tensor, x2: Tensor | None = None) -> list[Tensor]:
        """Values of every unit of the network, the primitives first, then layer by layer.

        Args:
            x1: Inputs ``... x N x D``.
            x2: Inputs ``... x M x D``; ``None`` means ``x1``.

        Returns:
            One tensor ``... x units x N x M`` per stage, complex where a primitive is complex.
        """
        x2 = x1 if x2 is None else x2
        x1, x2 = (x.unsqueeze(-1) if x.dim() == 1 else x for x in (x1, x2))  # as Kernel does
        x1, x2 = select_columns(self, x1), select_columns(self, x2)
        values, entry_shape = self._stack(x1, x2, False, {})
        return [_with_entries(stage, entry_shape) for stage in self._stages(values)]

    def _stages(self, values: Tensor) -> list[Tensor]:
        """Values of the primitives, and those of each layer."""
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
        """Values of the primitives, ``... x P x E``, and the shape that the flat entries had."""
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
        if not torch.jit.is_tracing() and len(set(entry_shapes)) > 1:  # tensors while tracing
            raise ValueError(
                "Primitives must return values of one shape, got "
                f"{entry_shapes} (outputs per input differ)."
            )
        if any(value.is_complex() for value in values):
            values = [
                torch.complex(v, torch.zeros_like(v)) if v.is_floating_point() else v
                for v in values
            ]
        values = torch.broadcast_tensors(*values)
        entry_shape = values[0].shape[-num_entry_dims:]
        return torch.stack([v.flatten(-num_entry_dims) for v in values], dim=-2), entry_shape


def _with_entries(flat: Tensor, entry_shape: torch.Size) -> Tensor:
    return flat.reshape(*flat.shape[:-1], *entry_shape)  # unflatten needs numbers, a trace has none
