import pytest
import torch

from gpytorch_nkn.fit import Adam


@pytest.mark.parametrize("decays", [(0.9, 0.999), (0.9, 0.99)])
def test_steps_are_those_of_torch(decays):
    values = torch.randn(7)
    other = values.clone().requires_grad_()
    adam, reference = Adam(values, decays), torch.optim.Adam([other], lr=1.0, betas=decays)
    for number in range(30):
        gradient = torch.randn(7) * 10.0 ** (number % 5 - 2)
        rate = 0.1 / (1 + number)
        adam.step(gradient, rate)
        other.grad, reference.param_groups[0]["lr"] = gradient.clone(), rate
        reference.step()
    torch.testing.assert_close(values, other.detach(), rtol=1e-10, atol=1e-11)


def test_a_parameter_is_moved_in_place():
    parameter = torch.nn.Parameter(torch.zeros(2, 3))
    Adam(parameter).step(torch.ones(2, 3), 0.5)
    torch.testing.assert_close(parameter.detach(), torch.full((2, 3), -0.5))
