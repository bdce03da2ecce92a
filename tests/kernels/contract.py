"""Property tests for every kernel of the package: GPyTorch's contract and more."""

import io
import itertools
import pickle
import warnings
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from functools import cached_property

import gpytorch
import pytest
import torch
from gpytorch.kernels import Kernel, PeriodicKernel, RBFKernel, ScaleKernel
from gpytorch.priors import NormalPrior
from torch import Tensor

from gpytorch_nkn.kernels import (
    CategoricalKernel,
    ComplexKernel,
    NeuralKernelNetwork,
    WienerKernel,
    ZeroMeanPeriodicKernel,
)
from gpytorch_nkn.layers import Product
from gpytorch_nkn.settings import kernel_evaluation
from tests.global_state import unchanged

BATCH_SHAPES = [(3, 2), (1,), (2,)]
# Entries of a batch: of six every row, every column, and none that a transposed order would hit;
# the first two are enough where not everything is checked.
ENTRIES = {(3, 2): [(1, 1), (2, 0), (0, 0)], (1,): [(0,)], (2,): [(0,), (1,)]}
INDICES = [  # the first where not everything is checked, the first five on every class
    (..., 1),
    (torch.tensor([0, 2, 1]).unsqueeze(-1), torch.tensor([1, 0])),
    slice(1, 3),
    (None, 1),
    0,
    -1,
    (1, 0),
    (slice(None), 0),
    slice(None, None, 2),
    (slice(1, None), slice(0, 1)),
    torch.tensor([2, 0]),
    (slice(None), torch.tensor([1, 1, 0])),
    torch.tensor([True, False, True]),
]


@dataclass(frozen=True)
class Subject:
    """What is checked: see :func:`check_kernel`.

    Attributes:
        thorough: Every batch shape, index and sum; without it a few that reach all parts
            of a kernel, enough for a further form of one whose class is checked thoroughly.
    """

    kernel: Kernel
    x1: Tensor
    x2: Tensor
    make: Callable[..., Kernel] | None = None
    thorough: bool = True

    @cached_property
    def matrix(self) -> Tensor:
        return dense(self.kernel, self.x1).detach()

    @cached_property
    def rectangle(self) -> Tensor:
        return dense(self.kernel, self.x1, self.x2).detach()

    @property
    def batch_shapes(self) -> list[tuple[int, ...]]:
        return BATCH_SHAPES if self.thorough else BATCH_SHAPES[:1]

    def batched(self, *batch_shape: int) -> Kernel:
        """A kernel of that batch shape, whose entries differ."""
        shape = torch.Size(batch_shape)
        kernel = self.make(batch_shape=shape) if self.make else self.kernel.expand_batch(shape)
        return perturb(kernel.double())


def check_kernel(kernel, x1, x2, *, make=None):
    """Fail with a message unless the kernel keeps every property in ``PROPERTIES``.

    Args:
        kernel: A kernel without batch shape, float64.
        x1, x2: Inputs ``N x D`` and ``M x D``, rough enough to break an invalid kernel.
        make: ``make(batch_shape=..., active_dims=...)`` constructs such a kernel. Without it, batch
            shapes are checked through ``expand_batch`` only and ``active_dims`` not at all.
    """
    subject = Subject(kernel.double(), x1.double(), x2.double(), make)
    for check in PROPERTIES:
        check(subject)


def check_symmetry(s):
    close(s.matrix, s.matrix.mT, "k(x, x) is not symmetric")
    close(s.rectangle, dense(s.kernel, s.x2, s.x1).mT, "k(x, x') is not k(x', x)")


def check_positive_semi_definite(s):
    nearly_coincident = torch.cat([s.x1, s.x1[:4], s.x1[:4] + 1e-5])
    for x in (s.x1, 0.3 * s.x1, 3 * s.x1, nearly_coincident):
        matrix = dense(s.kernel, x).detach()
        assert matrix.isfinite().all(), "values are not finite"
        eigenvalues = torch.linalg.eigvalsh((matrix + matrix.mT) / 2)
        floor = -1e-7 * eigenvalues.abs().max()
        assert eigenvalues[0] >= floor, (
            f"not PSD: eigenvalues {eigenvalues[0]} to {eigenvalues[-1]}"
        )


def check_diag(s):
    diagonal = s.matrix.diagonal(dim1=-1, dim2=-2)
    close(to_tensor(s.kernel(s.x1, diag=True)), diagonal, "diag=True is not the diagonal")
    close(s.kernel(s.x1).diagonal(dim1=-1, dim2=-2), diagonal, "the lazy diagonal is wrong")
    m = len(s.x2)
    expected = s.rectangle[:m].diagonal(dim1=-1, dim2=-2)
    close(to_tensor(s.kernel(s.x1[:m], s.x2, diag=True)), expected, "diag of x1, x2 is wrong")
    if s.kernel.active_dims is None:  # ScaleKernel calls forward directly
        close(
            to_tensor(s.kernel.forward(s.x1[:m], s.x2, diag=True)), expected, "forward ignores diag"
        )


def check_cross_blocks(s):
    n = len(s.x1)
    joint = dense(s.kernel, torch.cat([s.x1, s.x2]))
    close(s.rectangle, joint[:n, n:], "k(x1, x2) is not the block of k([x1, x2])")
    close(dense(s.kernel, s.x2), joint[n:, n:], "k(x2, x2) is not the block of k([x1, x2])")
    m = len(s.x2)  # a square block of different inputs
    close(dense(s.kernel, s.x1[:m], s.x2), joint[:m, n:], "a square k(x1, x2) is not the block")
    lazy = s.kernel(torch.cat([s.x1, s.x2]))
    close(to_tensor(lazy[2:5, n:]), joint[2:5, n:], "a slice of the lazy matrix is wrong")
    index = torch.tensor([4, 0, 2])
    close(to_tensor(lazy[index, index]), joint[index, index], "lazy tensor indices are wrong")


def check_input_batches(s):
    x1 = torch.stack([s.x1, 0.5 * s.x1 + 0.1]).unsqueeze(1)  # 2 x 1 x N x D
    x2 = torch.stack([s.x2, -s.x2, s.x2 + 0.3])  # 3 x M x D
    values = dense(s.kernel, x1, x2)
    assert values.shape == (2, 3, len(s.x1), len(s.x2)), f"batch of x gives {values.shape}"
    for i, j in itertools.product(range(2), range(3)) if s.thorough else ((0, 1), (1, 2)):
        close(values[i, j], dense(s.kernel, x1[i, 0], x2[j]), "a batch of inputs is not one by one")
    diagonal = to_tensor(s.kernel(x2, diag=True))
    close(
        diagonal, torch.stack([to_tensor(s.kernel(x, diag=True)) for x in x2]), "batched diagonal"
    )


def check_batch_shapes(s):
    single = deepcopy(s.kernel)
    for shape in s.batch_shapes:
        batched = s.batched(*shape)
        assert batched.batch_shape == shape, f"batch_shape is {batched.batch_shape}, not {shape}"
        matrix = dense(batched, s.x1)
        assert matrix.shape == (*shape, len(s.x1), len(s.x1)), f"shape {shape} gives {matrix.shape}"
        wide = torch.stack([s.x1, 0.5 * s.x1]).reshape(2, *[1] * len(shape), *s.x1.shape)
        of_wide = dense(batched, wide)  # a further batch dimension of the inputs
        rectangle = dense(batched, s.x1, s.x2)
        diagonal = to_tensor(batched(s.x1, diag=True))
        few = to_tensor(batched(s.x1[: shape[-1]], diag=True))  # as many points as kernels
        close(few, diagonal[..., : few.size(-1)], "diag=True of few points")
        for index in ENTRIES[shape] if s.thorough else ENTRIES[shape][:2]:
            take_entry(single, batched, index)
            expected = dense(single, s.x1)
            message = f"entry {index} of batch shape {shape} is not its unbatched copy"
            close(matrix[index], expected, message)
            close(rectangle[index], dense(single, s.x1, s.x2), message)
            close(diagonal[index], expected.diagonal(), message)
            close(of_wide[(0, *index)], expected, message)
            close(of_wide[(1, *index)], dense(single, 0.5 * s.x1), message)
        assert shape == (1,) or differ(matrix.flatten(0, -3)), "batch entries do not differ"


def check_batch_indexing(s):
    kernel = s.batched(3, 2)
    names = set(kernel.state_dict())
    matrix = dense(kernel, s.x1, s.x2)
    every = isinstance(s.kernel, NeuralKernelNetwork | ZeroMeanPeriodicKernel)  # one way to read
    for index in INDICES[: None if s.thorough and every else 5 if s.thorough else 1]:
        entries = torch.arange(6).view(3, 2)[index]
        expected = matrix.flatten(0, 1)[entries.flatten()].view(*entries.shape, *matrix.shape[-2:])
        indexed = kernel[index]
        assert indexed.batch_shape == entries.shape, f"kernel[{index}] has {indexed.batch_shape}"
        assert set(indexed.state_dict()) == names, f"kernel[{index}] has other parameters"
        close(dense(indexed, s.x1, s.x2), expected, f"kernel[{index}] has other values")
    close(dense(kernel, s.x1, s.x2), matrix, "indexing changed the kernel itself")
    close(to_tensor(kernel(s.x1, s.x2)[1, 0]), matrix[1, 0], "the lazy matrix is indexed wrongly")
    if s.thorough:
        batch_of_x = torch.stack([s.x1, -s.x1, 2 * s.x1]).unsqueeze(1)  # 3 x 1 x N x D
        lazy = s.batched(2)(batch_of_x)
        close(to_tensor(lazy[2, 1]), lazy.to_dense()[2, 1], "broadcast lazy matrix")
    assert s.kernel[0] is s.kernel, "a kernel without batch is itself under any index"


def check_expand_batch(s):
    matrix = s.rectangle
    modules = [name for name, _ in s.kernel.named_modules()]
    for number, shape in enumerate(s.batch_shapes):
        ways = [s.kernel.expand_batch(*shape)]
        ways += [s.kernel.expand_batch(torch.Size(shape))] if s.thorough and not number else []
        for expanded in ways:
            assert expanded.batch_shape == shape, f"expand_batch{shape}: {expanded.batch_shape}"
            assert [name for name, _ in expanded.named_modules()] == modules, "stray modules"
            assert list(expanded.state_dict()) == list(s.kernel.state_dict()), "other parameters"
            values = dense(expanded, s.x1, s.x2)
            close(values, matrix.expand(*shape, *matrix.shape), "expand_batch changed values")
        for (name, new), old in zip(
            expanded.named_parameters(), s.kernel.parameters(), strict=True
        ):
            assert new.shape == (*shape, *old.shape), f"{name}: {new.shape} from {old.shape}"
            assert new.requires_grad == old.requires_grad, f"{name}: requires_grad changed"
        perturb(expanded)  # in place, as optimisers do: entries must not share memory
        assert shape == (1,) or differ(dense(expanded, s.x1, s.x2).flatten(0, -3)), "tied entries"
    close(dense(s.kernel, s.x1, s.x2), matrix, "expand_batch changed the kernel itself")
    if s.thorough:
        batched = s.batched(2)
        once = dense(batched, s.x1)
        close(dense(batched.expand_batch(3, 2), s.x1), once.expand(3, *once.shape), "2 to 3 x 2")
        with pytest.raises(RuntimeError, match=r"Cannot expand .*3"):
            batched.expand_batch(3)


def check_samples_of_some_parameters(s):
    """Parameters with a prior get a batch of samples from Pyro, and the others stay as they are."""
    x = s.x1[:4]
    starts = (0, 1)[: len(list(s.kernel.parameters()))]
    for start in starts[: None if s.thorough else 1]:
        # as many samples as the first layer of a preset has units
        kernel, one, sampled, named = deepcopy(s.kernel), deepcopy(s.kernel), {}, {}
        for module in kernel.modules():
            vars(module).get("_priors", {}).clear()
        for name, value in list(kernel.named_parameters())[start::2]:
            path, _, last = name.rpartition(".")
            kernel.get_submodule(path).register_prior("sampled_" + last, NormalPrior(0, 1), last)
            steps = torch.linspace(0, 0.3, 8).to(value).view(8, *[1] * value.dim())
            sampled[name] = value.detach() + steps
            named[".".join(filter(None, (path, "sampled_" + last)))] = sampled[name]
        kernel.pyro_load_from_samples(named)
        found = dense(kernel, x.expand(8, *x.shape))
        for index in (0, 5, -1) if s.thorough else (5,):
            for name, values in sampled.items():
                one.get_parameter(name).data = values[index]
            close(found[index], dense(one, x), "samples")
        close(dense(kernel[5], x), found[5], "the entry of a sample")


def check_active_dims(s):
    if s.make is None:
        return
    columns = tuple(range(1, s.x1.size(-1) + 1))[::-1]  # of a wider x, in another order

    def widen(x):
        wide = torch.full((*x.shape[:-1], x.size(-1) + 2), 7.0, dtype=x.dtype)
        wide[..., list(columns)] = x
        return wide

    plain = perturb(s.make(batch_shape=torch.Size([3, 2])).double())
    kernel = s.make(batch_shape=torch.Size([3, 2]), active_dims=columns).double()
    kernel.load_state_dict(plain.state_dict() | {"active_dims": kernel.active_dims})
    x1, x2 = widen(s.x1), widen(s.x2)
    expected = dense(plain, s.x1, s.x2)
    close(dense(kernel, x1, x2), expected, "active_dims select the wrong columns")
    close(dense(kernel[..., 1], x1, x2), expected[:, 1], "active_dims of kernel[..., j]")
    if s.thorough:
        close(dense(kernel[1], x1, x2), expected[1], "active_dims of kernel[i]")
        close(dense(kernel[2, 1], x1, x2), expected[2, 1], "active_dims of kernel[i, j]")
        expanded = kernel[0, 1].expand_batch(2)
        close(dense(expanded, x1, x2)[1], expected[0, 1], "active_dims of expand_batch")
    diagonal = to_tensor(kernel(x1, diag=True))
    close(diagonal, dense(plain, s.x1).diagonal(dim1=-1, dim2=-2), "active_dims and diag")


def check_is_stationary(s):
    shift = torch.linspace(0.7, 1.3, s.x1.size(-1), dtype=s.x1.dtype)
    before = s.rectangle
    change = (dense(s.kernel, s.x1 + shift, s.x2 + shift) - before).abs().max()
    invariant = bool(change < 1e-6 * before.abs().max())
    assert s.kernel.is_stationary == invariant, (
        f"is_stationary is {s.kernel.is_stationary}, a shift changes values by {change}"
    )


def check_gradients(s):
    parameters = {n: p for n, p in s.kernel.named_parameters() if p.requires_grad}

    def check(values, inputs, where):
        weights = torch.linspace(0.5, 1.5, values.numel(), dtype=values.dtype).view(values.shape)
        sources = {**parameters, **inputs}
        gradients = torch.autograd.grad(
            (values * weights).sum(), sources.values(), allow_unused=True
        )
        for name, gradient in zip(sources, gradients, strict=True):
            if name == "x2" and gradient is None:
                continue
            assert gradient is not None, f"no gradient for {name} ({where})"
            assert gradient.isfinite().all(), f"gradient of {name} is not finite ({where})"

    x1, x2 = s.x1.clone().requires_grad_(), s.x2.clone().requires_grad_()
    check(dense(s.kernel, x1, x2), {"x1": x1, "x2": x2}, "x1, x2")
    coincident = torch.cat([s.x1[:3], s.x1[:3], torch.zeros_like(s.x1[:2])])
    x1, x2 = coincident.clone().requires_grad_(), coincident.clone().requires_grad_()
    check(dense(s.kernel, x1, x2), {"x1": x1, "x2": x2}, "coincident points")
    check(dense(s.kernel, x1), {"x1": x1}, "one x with coincident points")
    diagonal = to_tensor(s.kernel(s.x1, diag=True))
    assert diagonal.isfinite().all()


def check_tracing(s):
    """Traces, with GPyTorch's setting and without, are the kernel at other inputs of any number.

    Of further forms, those with complex values: presets are traced as parts of models.
    """
    if not s.thorough and not any(isinstance(part, ComplexKernel) for part in s.kernel.modules()):
        return
    kernel = deepcopy(s.kernel).eval().requires_grad_(False)
    for mode in (True, False) if s.thorough else (True,):
        with torch.no_grad(), gpytorch.settings.trace_mode(mode):
            traced = trace(kernel, dense, s.x1[:6], s.x2[:4], has_parameters=s.thorough and mode)
        close(traced(s.x1, s.x2), dense(kernel, s.x1, s.x2), f"a trace differs, trace_mode({mode})")


def trace(module, function, *inputs, has_parameters=True):
    """A trace of ``function(module, *inputs)``, saved and loaded again; else of constants."""

    class Traced(torch.nn.Module):
        def __init__(self):
            super().__init__()
            if has_parameters:  # PyTorch converts the module, which takes most of the time
                self.module = module

        def forward(self, *inputs):
            return function(module, *inputs)

    with warnings.catch_warnings():  # of comparisons that the trace takes as they come out
        warnings.simplefilter("ignore")
        made, file = torch.jit.trace(Traced(), inputs, check_trace=False), io.BytesIO()
        torch.jit.save(made, file)
        file.seek(0)
        loaded = torch.jit.load(file)

    def call(*inputs):
        with torch.jit.optimized_execution(False):  # which takes longer than the calls
            return loaded(*inputs)

    return call


def check_second_derivatives(s):
    """At equal and at other inputs, against central differences of values."""
    classes = {type(part) for part in s.kernel.modules()}
    if CategoricalKernel in classes:  # values jump
        return
    rough = [p for p in s.kernel.modules() if getattr(p, "nu", None) == 0.5]
    rough += [p for p in s.kernel.modules() if isinstance(p, WienerKernel)]
    one, other = s.x1[0], s.x2[1]
    apart, equal = (differences_of_pair(s.kernel, one, x) for x in (other, one))
    for path in ("auto", "plain") if s.thorough and NeuralKernelNetwork in classes else ("auto",):
        with kernel_evaluation(path):
            found = hessian_of_pair(s.kernel, one, other)
            assert_near(found, apart, f"apart, {path}")
            for diag in (False, True):
                if rough:  # functions without a derivative: its variance is infinite
                    later = one.abs() + 1  # than the origin of a walk
                    found = hessian_of_pair(s.kernel, later, later.clone(), diag)
                    assert not found.isfinite().all(), f"finite for {type(rough[0]).__name__}"
                else:
                    found = hessian_of_pair(s.kernel, one, one.clone(), diag)
                    assert_near(found, equal, f"equal inputs, {path}, diag={diag}")


def check_second_derivatives_of_parameters(s):
    """Along one direction, against central differences of gradients, on both paths."""
    parameters = [p for p in s.kernel.parameters() if p.requires_grad]
    directions = [torch.arange(1, p.numel() + 1).to(p).cos().view(p.shape) for p in parameters]

    def slope(create_graph=False):
        values = dense(s.kernel, s.x1).sum()
        found = torch.autograd.grad(
            values, parameters, create_graph=create_graph, allow_unused=True, materialize_grads=True
        )
        return torch.cat([gradient.flatten() for gradient in found])

    def shift(step):
        for parameter, direction in zip(parameters, directions, strict=True):
            parameter.data.add_(step * direction)

    if not parameters:
        return
    is_network = any(isinstance(part, NeuralKernelNetwork) for part in s.kernel.modules())
    for path in ("auto", "plain") if is_network else ("auto",):
        with kernel_evaluation(path):
            along = slope(True) @ torch.cat([direction.flatten() for direction in directions])
            found = torch.autograd.grad(
                along, parameters, allow_unused=True, materialize_grads=True
            )
            shift(1e-5)
            up = slope()
            shift(-2e-5)
            expected = (up - slope()) / 2e-5
            shift(1e-5)
        found = torch.cat([gradient.flatten() for gradient in found])
        assert_near(found, expected, f"parameters, {path}")


def hessian_of_pair(kernel, x1, x2, diag=False):
    """Second derivatives ``2D x 2D`` of k(x1, x2) by both inputs ``D``."""

    def value(both):
        one, two = both.unflatten(0, (2, 1, -1))
        return to_tensor(kernel(one, two, diag=diag)).sum()

    return torch.autograd.functional.hessian(value, torch.cat([x1, x2]))


def differences_of_pair(kernel, x1, x2, step=1e-4):
    """As :func:`hessian_of_pair`, by values at inputs that are shifted."""
    both = torch.cat([x1, x2])
    n = len(both)
    shifts = step * torch.eye(n, dtype=both.dtype)
    rows, columns = shifts.unsqueeze(1), shifts.unsqueeze(0)
    signs = ((1, 1), (1, -1), (-1, 1), (-1, -1))
    points = torch.stack([both + a * rows + b * columns for a, b in signs])
    points = points.view(-1, 2, 1, len(x1))
    with torch.no_grad():
        up, right, left, down = dense(kernel, points[:, 0], points[:, 1]).view(4, n, n)
    return (up - right - left + down) / (4 * step**2)


def assert_near(found, expected, where, tolerance=1e-3):
    """Compare with differences of a small step."""
    error = (found - expected).abs().max()
    scale = expected.abs().max().clamp_min(1e-3)
    assert error < tolerance * scale, f"off by {error} of {scale} ({where})"


def check_dtypes(s):
    reference = s.rectangle
    single = deepcopy(s.kernel).float()
    assert single.dtype == torch.float32
    values = dense(single, s.x1.float(), s.x2.float())
    assert values.dtype == torch.float32, f"float32 gives {values.dtype}"
    scale = reference.abs().max()
    error = (values.double() - reference).abs().max() / scale
    assert error < 1e-4, f"float32 values are off by {error}"
    try:
        assert dense(single, s.x1, s.x2).dtype == torch.float64, "float64 inputs do not promote"
    except ValueError as error:
        assert "convert the network" in str(error)
    if not s.thorough:
        return
    assert (dense(s.kernel, s.x1.float(), s.x2.float()) - reference).abs().max() < 1e-4 * scale
    with torch.autocast("cpu", torch.bfloat16):
        half = dense(single, s.x1.float(), s.x2.float())
    assert (half.double() - reference).abs().max() < 0.1 * scale, "values under autocast are off"
    whole = (3 * s.x1).round()
    expected = dense(s.kernel, whole, s.x2)
    close(dense(s.kernel, whole.long(), s.x2), expected, "integers are not the numbers they are")
    diagonal = to_tensor(single(s.x1.float(), diag=True))
    assert diagonal.dtype == torch.float32, f"float32 diag gives {diagonal.dtype}"
    again = single.double()
    assert {p.dtype for p in again.parameters()} == {torch.float64}
    assert dense(again, s.x1, s.x2).dtype == torch.float64
    before = torch.get_default_dtype()
    try:  # a float64 kernel under a float32 default, and the other way round
        torch.set_default_dtype(torch.float32)
        close(dense(s.kernel, s.x1, s.x2), reference, "values depend on the default dtype")
        torch.set_default_dtype(torch.float64)
        assert dense(again.float(), s.x1.float()).dtype == torch.float32
    finally:
        torch.set_default_dtype(before)


def check_devices(s):
    device = s.x1.device
    if device.type == "cpu":
        return
    here, x1, x2 = deepcopy(s.kernel).cpu(), s.x1.cpu(), s.x2.cpu()
    close(dense(s.kernel, s.x1, s.x2).cpu(), dense(here, x1, x2), "values differ from the CPU's")
    close(
        dense(deepcopy(here).to(device), s.x1), dense(s.kernel, s.x1), "values after the way back"
    )
    single = dense(deepcopy(s.kernel).float(), s.x1.float(), s.x2.float()).double().cpu()
    expected = dense(here, x1, x2)
    assert (single - expected).abs().max() < 1e-4 * expected.abs().max(), "float32 values differ"


def check_copies(s):
    for kernel in (s.kernel, s.batched(2)) if s.thorough else (s.kernel,):
        expected = dense(kernel, s.x1, s.x2)
        other = deepcopy(kernel)
        close(dense(other, s.x1, s.x2), expected, "deepcopy changed values")
        close(dense(pickle.loads(pickle.dumps(kernel)), s.x1, s.x2), expected, "pickle")
        perturb(other)
        assert differ(torch.stack([dense(other, s.x1, s.x2), expected])), "parameters do nothing"
        close(dense(kernel, s.x1, s.x2), expected, "a deepcopy shares memory")
        if s.thorough:  # check_active_dims loads every form's values into another kernel
            result = other.load_state_dict(kernel.state_dict(), strict=True)
            assert not result.missing_keys and not result.unexpected_keys
            close(dense(other, s.x1, s.x2), expected, "state_dict changed values")


def check_columns_alone(s):
    """With ``last_dim_is_batch``, a kernel has the values of each column alone, or an error."""
    inputs = torch.stack([s.x1, s.x1.flip(0)]), s.x1[: s.x1.size(-1)], s.x1
    kernels = s.batched(2), s.kernel
    if not s.thorough:
        kernels, inputs = kernels[:1], inputs[:1]
    for kernel, x, diag in itertools.product(kernels, inputs, (False, True)):
        try:
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", ".*last_dim_is_batch", DeprecationWarning)
                values = to_tensor(kernel(x, diag=diag, last_dim_is_batch=True))
        except ValueError:  # a kernel for several columns
            continue
        for column in range(x.size(-1)):
            alone = to_tensor(kernel(x[..., [column]], diag=diag))
            close(values.select(-2 if diag else -3, column), alone, f"column {column}")


def check_algebra(s):
    k = s.kernel
    p = RBFKernel().to(s.x1).initialize(lengthscale=0.8)
    q = ScaleKernel(PeriodicKernel()).to(s.x1).initialize(outputscale=1.7)
    scaled = ScaleKernel(k).to(s.x1).initialize(outputscale=0.6)
    cases = {
        "part of a network": (
            NeuralKernelNetwork([k, p], [Product(2, 1)]).to(s.x1),
            lambda m, mp, _: m * mp,
        )
    }
    if s.thorough:
        cases |= {
            "(scaled + p) * q": ((scaled + p) * q, lambda m, mp, mq: (0.6 * m + mp) * mq),
            "q * (p + k * k)": (q * (p + k * k), lambda m, mp, mq: mq * (mp + m * m)),
            "k * p + q": (k * p + q, lambda m, mp, mq: m * mp + mq),
        }
    for x2, m in ((s.x1, s.matrix), (s.x2, s.rectangle))[: 2 if s.thorough else 1]:
        mp, mq = (dense(kernel, s.x1, x2) for kernel in (p, q))
        for name, (kernel, combine) in cases.items():
            expected = combine(m, mp, mq)
            close(dense(kernel, s.x1, x2), expected, f"{name} is not that of the matrices")
            if x2 is s.x1:
                diagonal = to_tensor(kernel(s.x1, diag=True))
                close(diagonal, expected.diagonal(), f"diagonal of {name}")


def check_global_state(s):
    x1, x2 = s.x1.clone(), s.x2.clone()
    state = {name: value.clone() for name, value in s.kernel.state_dict().items()}
    modules = [name for name, _ in s.kernel.named_modules()]
    for training in (True, False) if s.thorough else (True,):
        s.kernel.train(training)
        with unchanged():
            values = dense(s.kernel, x1, x2)
            dense(s.kernel, x1)
            to_tensor(s.kernel(x1, diag=True))
            if training:
                s.kernel.expand_batch(2)[0]
            s.kernel.is_stationary  # noqa: B018
        assert all(m.training == training for m in s.kernel.modules()), "train/eval mode changed"
        close(dense(s.kernel, x1, x2), values, "a second call gives other values")
    assert torch.equal(x1, s.x1) and torch.equal(x2, s.x2), "the inputs were modified"
    assert all(torch.equal(state[n], v) for n, v in s.kernel.state_dict().items()), "parameters"
    assert [name for name, _ in s.kernel.named_modules()] == modules, "a call made modules"


PROPERTIES_OF = {
    "values": [
        check_symmetry,
        check_positive_semi_definite,
        check_diag,
        check_cross_blocks,
        check_input_batches,
        check_is_stationary,
        check_columns_alone,
    ],
    "batches": [check_batch_shapes, check_expand_batch, check_samples_of_some_parameters],
    "indices": [check_batch_indexing, check_active_dims],
    "derivatives and copies": [
        check_gradients,
        check_second_derivatives,
        check_second_derivatives_of_parameters,
        check_tracing,
        check_dtypes,
        check_devices,
        check_copies,
    ],
    "algebra and state": [check_algebra, check_global_state],
}
PROPERTIES = [check for group in PROPERTIES_OF.values() for check in group]


def dense(kernel, x1, x2=None):
    """The kernel matrix as a tensor."""
    return kernel(x1, x2).to_dense()


def to_tensor(values):
    return values if isinstance(values, Tensor) else values.to_dense()


def close(actual, expected, message):
    """Equal up to rounding; GPyTorch's distances lose half of the digits near zero."""
    scale = max(1.0, expected.detach().abs().max().item())
    torch.testing.assert_close(
        actual, expected, rtol=1e-6, atol=1e-7 * scale, msg=lambda text: f"{message}: {text}"
    )


def differ(matrices):
    """Whether every matrix ``B x N x M`` differs from the first one."""
    others = (matrices[1:] - matrices[:1]).abs().flatten(1).amax(-1)
    return bool((others > 1e-5).all())


def perturb(kernel, seed=1):
    """Change every parameter in place, entry by entry; return the kernel."""
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in kernel.parameters():
            noise = torch.rand(parameter.shape, generator=generator, dtype=torch.float64) - 0.5
            parameter += 0.6 * noise.to(parameter)
    return kernel


def take_entry(single, batched, index):
    """Give an unbatched kernel the parameters of one entry of the batched kernel, in place."""
    values = dict(batched.named_parameters())
    for name, parameter in single.named_parameters():
        value = values[name].data
        if value.shape != parameter.shape:  # a part without batch shape belongs to every entry
            value = value[index]
            assert value.shape == parameter.shape, f"{name}: {value.shape} for {parameter.shape}"
        parameter.data = value.clone()
