"""Constraints on sums of outcomes."""

import pytest
import torch

from tests.ax.clients import BRIEF, make_client, outcomes, take_few_steps


@pytest.mark.parametrize(
    ("constraint", "weight", "bound", "room"),
    [
        ("1 <= 2 * size - cost", -2, -1.0, 1e-9),
        ("cost + 2 * size <= 0.9 * baseline", 2, None, 0.25),  # the model expects its value
    ],
    ids=["lower", "upper-of-a-baseline"],
)
@pytest.mark.filterwarnings("ignore:Automatic winsorization")  # of Ax, for the baseline
def test_a_constraint_on_a_sum_of_outcomes_is_on_the_sum(
    constraint, weight, bound, room, monkeypatch
):
    take_few_steps(monkeypatch, max_iterations=3 if bound else 60)
    client = make_client(constraints=[constraint, "size <= 50"], optimizer_options=BRIEF)
    points = [(1, 1), (3, 3), (0, -2), (-1, 0), (2, -2), (0.5, 1), (4, 4)]
    told = []
    for place, (x, y) in enumerate(points):
        point = {"x": float(x), "y": float(y)}
        trial = (client.attach_trial if place else client.attach_baseline)(point)
        told.append({**outcomes(point), "size": 2.0 - min(y, 0) / 8})
        if place == 6 and bound:
            told[-1]["cost"] = 40.0  # Ax would cut it off
        client.complete_trial(trial, told[-1])
    sums = torch.tensor([one["cost"] + weight * one["size"] for one in told], dtype=torch.float64)
    bound = bound or 0.9 * sums[0].item()
    client.get_next_trials(max_trials=1)
    adapter = client._generation_strategy.current_node._fitted_adapter
    (data,) = adapter.generator.surrogate.training_data
    rows, bounds = adapter.generator._acquisition._outcome_constraints  # of what the model has
    (row,) = rows.count_nonzero(-1).sub(2).eq(0).nonzero().squeeze(-1).tolist()
    columns = [data.outcome_names.index(name) for name in adapter.outcomes]
    held = data.Y[:, columns] @ rows[row] - bounds[row]
    torch.testing.assert_close(held, sums - bound, atol=room, rtol=0)
