"""Acquisition functions that Ax builds for ensembles."""

import pytest
import torch

from tests.ax.clients import BRIEF, generator, make_client, run_trials


@pytest.mark.parametrize("objective, is_maximized", [("-loss", False), ("loss", True)])
def test_averaged_structures_know_what_is_minimised(few_steps, objective, is_maximized):
    client = make_client(
        objective, initialization_trials=4, structure="averaged", optimizer_options=BRIEF
    )
    run_trials(client, 5)
    model = generator(client)._acquisition.acqf.model
    y = model.common_data()[1]
    assert model.maximize is is_maximized and model.is_warped.any()
    best = y.max() if is_maximized else y.min()
    torch.testing.assert_close(model.warps[model.is_warped, -1], best.expand(1).to(model.warps))
