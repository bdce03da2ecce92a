"""Constraints on sums of outcomes, kept through the transforms of Ax."""

from __future__ import annotations

from typing import Any

import numpy as np
from ax.adapter.base import Adapter
from ax.adapter.registry import GENERATOR_KEY_TO_GENERATOR_SETUP, Generators
from ax.adapter.transforms.base import Transform
from ax.adapter.transforms.bilog_y import BilogY
from ax.adapter.transforms.derelativize import Derelativize
from ax.adapter.transforms.winsorize import Winsorize
from ax.core.observation import ObservationFeatures
from ax.core.outcome_constraint import OutcomeConstraint, ScalarizedOutcomeConstraint

__all__ = [
    "JointBilogY",
    "JointConstraints",
    "JointConstraintsAtLast",
    "JointWinsorize",
    "transforms",
]


class _Joint(ScalarizedOutcomeConstraint):
    """Constraint on several outcomes, an instance of the class that Ax checks for."""

    def __init__(self, constraint: OutcomeConstraint):
        OutcomeConstraint.__init__(
            self,
            expression=constraint.expression,
            metric_name_to_signature=constraint.metric_name_to_signature,
        )


class JointConstraints(Transform):
    """Transform that keeps constraints on sums of outcomes, such as ``"cost + 2 * weight <= 3"``.

    Ax (1.3) applies such a constraint to its first outcome only, whether the bound is absolute or
    relative to a baseline. This transform precedes all other outcome transforms.
    """

    no_op_for_experiment_data = True

    def transform_optimization_config(
        self,
        optimization_config: Any,
        adapter: Adapter | None = None,
        fixed_features: ObservationFeatures | None = None,
    ) -> Any:
        """Replace constraints on several outcomes by the class that Ax checks for, in place."""
        optimization_config.outcome_constraints = [
            _Joint(c) if len(c.metric_names) > 1 else c
            for c in optimization_config.outcome_constraints
        ]
        return optimization_config


class JointConstraintsAtLast(JointConstraints):
    """The same transform at the end, because Ax's standardisation creates new constraints."""


class JointWinsorize(Winsorize):
    """Ax's Winsorize, without cutoffs for outcomes in a constrained sum."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for outcome in _joint_outcomes(self.adapter):
            self.cutoffs[outcome] = (-np.inf, np.inf)


class JointBilogY(BilogY):
    """Ax's BilogY, without outcomes in a constrained sum."""

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        for outcome in _joint_outcomes(self.adapter):
            self.metric_to_bound.pop(outcome, None)


def transforms() -> list[type[Transform]]:
    """Return Ax's transforms for mixed inputs, changed to keep constraints on sums of outcomes."""
    ours: dict[Any, list[type[Transform]]] = {
        Derelativize: [JointConstraints, Derelativize],
        Winsorize: [JointWinsorize],
        BilogY: [JointBilogY],
    }
    known = GENERATOR_KEY_TO_GENERATOR_SETUP[Generators.BO_MIXED.value].transforms
    return [new for kind in known for new in ours.get(kind, [kind])] + [JointConstraintsAtLast]


def _joint_outcomes(adapter: Adapter | None) -> set[str]:
    """Return the outcomes in constraints on several outcomes."""
    config = None if adapter is None else adapter._optimization_config
    constraints = () if config is None else config.outcome_constraints
    joint = (c.metric_signatures for c in constraints if len(c.metric_names) > 1)
    return {signature for signatures in joint for signature in signatures}
