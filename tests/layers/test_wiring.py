import math

import pytest
import torch

from gpytorch_nkn.layers import Linear, Product, parse_wiring


def shapes(layers):
    return [(type(layer), layer.in_features, layer.out_features) for layer in layers]


def test_priors_have_their_modes_at_the_start_values():
    layers = parse_wiring("Linear4-Product2-Linear1", 3, priors=True)
    for layer in (layers[0], layers[2]):
        priors = {name: prior for name, _, prior, _, _ in layer.named_priors()}
        assert set(priors) == {"weight_prior", "bias_prior"}
        both, weights = priors["weight_prior"], torch.tensor([0.5, 2.0])
        priors["weight_prior"] = both.log_normal  # times an exponential density of rate 2
        exponential = math.log(2) - 2 * weights
        expected = both.log_normal.log_prob(weights) + exponential
        torch.testing.assert_close(both.log_prob(weights), expected)
        for name, mode in (("weight_prior", 1 / layer.in_features), ("bias_prior", 0.01)):
            grid = mode * torch.logspace(-1, 1, 201)
            density = priors[name].log_prob(grid)
            torch.testing.assert_close(grid[density.argmax()], torch.tensor(mode))
            log_ratio = (grid / mode).log()
            expected = -(log_ratio**2) / (2 * priors[name].scale ** 2)
            torch.testing.assert_close(density - density.max(), expected)


@pytest.mark.parametrize(
    "wiring, token",
    [
        ("Linear8-product4", "product4"),
        ("Linear0", "Linear0"),
        ("Linear8--Linear1", ""),
        ("Linear8,Linear1", "Linear8,Linear1"),
        ("", ""),
        ("Linear", "Linear"),
        ("Exp2", "Exp2"),
        ("Linear-4", "Linear"),
        ("Linear8 -Linear1", "Linear8 "),
        (8, "8"),
        (None, "None"),
    ],
)
def test_bad_wiring_shows_the_token_and_the_whole(wiring, token):
    with pytest.raises(
        ValueError, match=f"consist of Linear and Product.*got '{token}' in {wiring!r}"
    ):
        parse_wiring(wiring, 4)


@pytest.mark.parametrize("priors", [False, True])
def test_l1_replaces_the_priors_on_weights_by_an_exponential(priors):
    layers = parse_wiring("Linear4-Product2-Linear1", 3, priors=priors, sparsity="l1")
    for layer, width in ((layers[0], 3), (layers[2], 2)):
        found = {name: prior for name, _, prior, _, _ in layer.named_priors()}
        assert set(found) == ({"weight_prior", "bias_prior"} if priors else {"weight_prior"})
        weights = torch.tensor([1e-300, 0.1, 2.0])
        rate = 3.0 * width
        expected = math.log(rate) - rate * weights
        torch.testing.assert_close(found["weight_prior"].log_prob(weights), expected)


def test_simplex_layers_and_a_skip_connection():
    layers = parse_wiring("Linear4-Product2-Linear1", 3, weights="simplex", skip=True)
    assert shapes(layers) == [(Linear, 3, 4), (Product, 4, 2), (Linear, 2 + 3, 1)]
    assert all(layer.is_simplex for layer in (layers[0], layers[2]))
    assert all(not list(layer.named_priors()) for layer in layers)
    layers = parse_wiring("Linear4-Linear4-Linear1", 3, skip=True, priors=True)
    assert shapes(layers) == [(Linear, 3, 4), (Linear, 4, 4), (Linear, 4 + 3, 1)]
    assert not any(layer.is_simplex for layer in layers)
