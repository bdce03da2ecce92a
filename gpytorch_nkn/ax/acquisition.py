"""Ax's acquisition for ensembles, optimised from coordinate sweeps."""

from __future__ import annotations

from typing import Any

import torch
from ax.generators.torch.botorch_modular.acquisition import Acquisition
from botorch.acquisition import (
    AcquisitionFunction,
    MCAcquisitionFunction,
    OneShotAcquisitionFunction,
)
from botorch.acquisition.multi_objective import MultiObjectiveMCAcquisitionFunction
from botorch.acquisition.multioutput_acquisition import MultiOutputAcquisitionFunction
from botorch.models.model import Model, ModelList
from botorch.sampling import SobolQMCNormalSampler
from torch import Tensor

from gpytorch_nkn.bo import coordinate_sweep_initial_conditions
from gpytorch_nkn.models import StructureEnsembleGP

__all__ = ["EnsembleAcquisition"]

_SAMPLED = (MCAcquisitionFunction, MultiObjectiveMCAcquisitionFunction)


class EnsembleAcquisition(Acquisition):
    """Ax's acquisition for the models of this package.

    A :class:`.StructureEnsembleGP` receives the direction of its outcome (maximise or minimise),
    because Ax does not negate outcomes that are minimised. BoTorch's default number of samples is
    divided among the members of an ensemble, unless the acquisition function has the option
    ``sampler`` or ``mc_samples``. Without discrete parameters, half of the initial conditions are
    :func:`coordinate sweeps <gpytorch_nkn.bo.coordinate_sweep_initial_conditions>` from the best
    points, unless the optimizer options contain an ``ic_generator``.

    Use it in ``GeneratorSpec(generator_kwargs={"acquisition_class": EnsembleAcquisition, ...})``.
    """

    def _construct_botorch_acquisition(
        self,
        botorch_acqf_class: type[AcquisitionFunction],
        botorch_acqf_options: dict[str, Any],
        model: Model,
    ) -> AcquisitionFunction:
        parts = model.models if isinstance(model, ModelList) else [model]
        for part, is_larger_better in zip(parts, self._directions(), strict=False):
            if isinstance(part, StructureEnsembleGP):
                part.maximize = is_larger_better
        members = [part.num_members for part in parts if isinstance(part, StructureEnsembleGP)]
        kind: Any = botorch_acqf_class
        is_sampled = issubclass(kind, _SAMPLED) and not issubclass(kind, OneShotAcquisitionFunction)
        is_given = {"sampler", "mc_samples"} & set(botorch_acqf_options)
        if is_sampled and not is_given and len(members) == len(parts):
            number = max(1, kind._default_sample_shape.numel() // max(members))
            sampler = SobolQMCNormalSampler(torch.Size([number]))
            botorch_acqf_options = {**botorch_acqf_options, "sampler": sampler}
        return super()._construct_botorch_acquisition(
            botorch_acqf_class, botorch_acqf_options, model
        )

    def _directions(self) -> list[bool]:
        """Return whether larger values of each outcome are better; True for free outcomes."""
        weights = self._objective_weights
        wanted = weights.reshape(-1, weights.size(-1)).sum(0)
        if self._outcome_constraints is not None:  # A y <= b
            upper = self._outcome_constraints[0].sum(0)
            wanted = torch.where(wanted == 0, -upper.to(wanted), wanted)
        return (wanted >= 0).tolist()

    def optimize(self, *args: Any, **kwargs: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Return candidates ``n x d``, acquisition values and weights, as in the base class."""
        options = dict(kwargs.get("optimizer_options") or {})
        incumbent = self._incumbent()
        if incumbent is not None and "ic_generator" not in options:
            options["ic_generator"] = coordinate_sweep_initial_conditions
            options["incumbent"] = incumbent
            kwargs["optimizer_options"] = options
        return super().optimize(*args, **kwargs)

    def _incumbent(self) -> Tensor | None:
        """Return points ``N x d`` where sweeps start, best first; ``None`` for no sweeps."""
        space = self.search_space_digest
        if space.ordinal_features or space.categorical_features:
            return None
        if isinstance(self.acqf, OneShotAcquisitionFunction | MultiOutputAcquisitionFunction):
            return None
        # noisy acquisition functions have baseline points
        points = getattr(self.acqf, "X_baseline", self.X_observed)
        if points is None or len(points) == 0:
            return None
        with torch.no_grad():
            posterior: Any = self._model.posterior(points)
        means = getattr(posterior, "mixture_mean", posterior.mean)  # N x outcomes
        score = (means @ self._objective_weights.to(means).mT).sum(-1)
        return points[score.argsort(descending=True)]
