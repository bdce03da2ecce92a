"""Models of some of the outputs of a model, whatever its kernel is made of."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from botorch.models import SingleTaskGP
from botorch.utils.transforms import normalize_indices
from gpytorch.kernels import Kernel
from gpytorch.means import ConstantMean, LinearMean, ZeroMean

__all__ = ["subset_outputs"]


def subset_outputs(
    model: SingleTaskGP,
    subset_rest: Callable[[list[int]], Any],
    idcs: list[int],
    subset_kernel: Callable[[Kernel, list[int]], Kernel],
) -> Any:
    """The model of some of the outputs only.

    The base class knows nothing of kernels in lists: it subsets the rest.

    Args:
        model: A model whose outputs are the last dimension of its batch.
        subset_rest: ``subset_output`` of the base class.
        idcs: Numbers of the outputs, from -m to m - 1.
        subset_kernel: Returns the kernel of some outputs.

    Raises:
        ValueError: There are no outputs of these numbers, or none are asked for.
        NotImplementedError: The mean or the likelihood is not of a kind whose parameters are
            known to belong to the outputs.
    """
    idcs = normalize_indices(idcs, model._num_outputs) or []
    if not idcs:
        raise ValueError("At least one output is needed, got none.")
    if model._num_outputs == 1:
        return subset_rest(idcs)
    model._subset_batch_dict = _output_dimensions(model)
    kernel, model.covar_module = model.covar_module, None
    try:
        subset = subset_rest(idcs)
    finally:
        model.covar_module = kernel
    subset.covar_module = subset_kernel(kernel, idcs)
    if subset._original_train_inputs is not None:  # the base class leaves those of all outputs
        outputs = idcs if len(idcs) > 1 else idcs[0]
        subset._original_train_inputs = subset._original_train_inputs[..., outputs, :, :]
    return subset


def _output_dimensions(model: SingleTaskGP) -> dict[str, int]:
    """The dimension, counted from the last, of the outputs in each parameter that has one."""
    known = {"likelihood.noise_covar.raw_noise": 1, "likelihood.second_noise_covar.raw_noise": 1}
    if type(model.mean_module) in (ConstantMean, LinearMean, ZeroMean):
        known |= {"mean_module.raw_constant": 0, "mean_module.weights": 2, "mean_module.bias": 1}
    found = {}
    for name, parameter in model.named_parameters():
        if name.split(".")[0] not in ("mean_module", "likelihood"):
            continue
        batch = parameter.shape[: parameter.dim() - known.get(name, 0)]
        if name not in known or (batch and batch[-1] != model._num_outputs):
            raise NotImplementedError(
                f"Which of {name} belongs to which output is not known, of the shape "
                f"{tuple(parameter.shape)}."
            )
        if batch:  # otherwise the outputs share it
            found[name] = -1 - known[name]
    return found
