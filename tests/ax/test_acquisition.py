"""Acquisition functions that Ax builds for ensembles."""

import torch

from tests.ax.clients import BRIEF, generator, make_client, run_trials


def test_averaged_structures_know_what_is_maximised(few_steps):
    """Minimised losses: see test_structures_are_averaged_on_request_with_choices_too."""
    client = make_client(
        "loss", initialization_trials=4, structure="averaged", optimizer_options=BRIEF
    )
    run_trials(client, 5)
    model = generator(client)._acquisition.acqf.model
    assert model.maximize is True and model.is_warped.any()
    best = model.common_data()[1].max()
    torch.testing.assert_close(model.warps[model.is_warped, -1], best.expand(1).to(model.warps))
