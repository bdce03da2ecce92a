import json

import pytest
import torch
from gpytorch.kernels import RBFKernel, ScaleKernel

from benchmarks import recovery
from benchmarks.compositional_search import search
from benchmarks.kernel_expressions import (
    State,
    Term,
    ZeroMeanPeriodic,
    make_model,
    normal_form,
    read,
    write,
)
from benchmarks.recovery import MethodOutcome, canonical, ranked_terms, score, variance_shares
from benchmarks.recovery_cases import CASES, draw
from gpytorch_nkn.kernels import ZeroMeanPeriodicKernel

LINE = ("LIN", {"center": 0.4})
SMOOTH = ("RBF", {"lengthscale": 0.5})


def line_and_curve():
    """A model of a line and a curve, with the squared distances and outer products written out."""
    x = torch.linspace(-1, 1, 15)
    y = 2 * x + torch.sin(4 * x)
    state = State((Term(1.3, (LINE,)), Term(0.7, (SMOOTH,))), noise=0.02)
    model = make_model(x.unsqueeze(-1), y, state.terms, zero_mean=True)
    write(model, state)
    line = 1.3 * torch.outer(x - 0.4, x - 0.4)
    curve = 0.7 * torch.exp(-((x[:, None] - x) ** 2) / (2 * 0.5**2))
    return model, state, y, line, curve


def test_model_of_an_expression_has_the_values_written_out_and_gives_them_back():
    model, state, _, line, curve = line_and_curve()
    torch.testing.assert_close(
        model.covar_module(model.train_inputs[0]).to_dense(), line + curve + 1
    )
    assert read(model, state).terms[1].factors[0][1]["lengthscale"] == pytest.approx(0.5)
    assert read(model, state).noise == pytest.approx(0.02)


def test_shares_of_the_variance_against_dense_matrices():
    model, _, y, line, curve = line_and_curve()
    weights = torch.linalg.inv(line + curve + 1 + 0.02 * torch.eye(15)) @ y
    parts = torch.stack([line @ weights, curve @ weights])
    covariance = torch.cov(torch.cat([parts, parts.sum(0, keepdim=True)]))
    expected = covariance[:2, 2] / covariance[2, 2]
    assert expected.min() > 0.05
    terms = list(model.covar_module.kernels)
    shares = variance_shares(model.eval(), [[terms[0]], [terms[1]]])
    torch.testing.assert_close(torch.tensor(shares), expected)
    assert not model.training
    assert variance_shares(model, [terms])[0] == pytest.approx(1)


def test_kernels_of_one_kind_rank_together():
    x = torch.linspace(-1, 1, 15)
    scaled = [Term(0.3, (("RBF", {"lengthscale": 0.6}),)) for _ in range(4)]
    model = make_model(x.unsqueeze(-1), 3 * x, (*scaled, Term(1.0, (LINE,))), zero_mean=True)
    write(model, State((*scaled, Term(1.0, (LINE,))), 0.02))
    kernels = list(model.covar_module.kernels)
    names = [("RBF",), ("RQ",), ("RBF", "RBF"), ("SMOOTH",), ("LIN",), ("CONST",)]
    together = ranked_terms(model, names, kernels)
    shares = variance_shares(model, [kernels[:4], [kernels[4]]])
    best = ("SMOOTH",) if shares[0] > shares[1] else ("LIN",)
    assert together[0] == best
    assert set(together) == {("SMOOTH",), ("LIN",)}


@pytest.mark.parametrize(
    ("term", "expected"),
    [
        (("RQ", "PER", "RBF", "PER"), ("PER", "SMOOTH")),
        (("LIN", "PER", "LIN"), ("LIN", "LIN", "PER")),
        (("CONST",), ()),
        ((9, 2, 9), (2, 9)),
    ],
)
def test_canonical_terms(term, expected):
    assert canonical(term) == expected


def test_score_looks_at_as_many_leading_terms_as_are_true():
    truth = [("SMOOTH",), ("LIN", "PER")]
    assert score([("PER", "LIN"), (), ("RQ",), ("LIN",)], truth) == (True, 1.0)
    assert score([("PER", "LIN"), ("LIN",), ("RQ",)], truth) == (False, 1.0)
    assert score([("PER", "RBF")], truth) == (False, 0.0)
    assert score([(0,), (1, 2), (3, 4)], [(0, 3), (1, 2), (4,)]) == (False, 2 / 3)


@pytest.mark.parametrize("case", CASES)
def test_draws_depend_on_the_seed_alone_and_show_every_term(case):
    first, again, other = draw(case, 100), draw(case, 100), draw(case, 103)
    assert torch.equal(first.y, again.y) and not torch.equal(first.y, other.y)
    assert min(first.shares) >= 0.15 and sum(first.shares) == pytest.approx(1)
    assert len(first.x) == (300 if case == "groups" else 200)
    if case == "groups":
        assert sorted(sum(first.truth, ())) == list(range(10))


def test_unknown_case_is_named():
    with pytest.raises(ValueError, match="rbf.per.*got 'sine'"):
        draw("sine", 0)


def test_fast_periodic_kernel_is_the_one_of_the_package():
    x = torch.linspace(0, 2, 9).unsqueeze(-1)
    fast, known = ZeroMeanPeriodic(), ZeroMeanPeriodicKernel()
    for kernel in (fast, known):
        kernel.initialize(lengthscale=0.4, period_length=0.7)
    torch.testing.assert_close(fast(x).to_dense(), known(x).to_dense())
    torch.testing.assert_close(fast(x, diag=True), torch.ones(9))


def test_normal_form_merges_what_is_redundant():
    narrow = ("RBF", {"lengthscale": 1.0})
    terms = (Term(1.0, (narrow, LINE, narrow)), Term(1.0, (LINE,)), Term(1.0, (LINE,)))
    merged = normal_form(State(terms, 0.1))
    assert merged.expression == (("LIN",), ("LIN", "RBF"))
    assert merged.terms[1].factors[1][1]["lengthscale"] == pytest.approx(2**-0.5)


def test_search_finds_a_line_and_counts_its_parameters():
    x = torch.linspace(0, 5, 25)
    y = 3 * x + 0.1 * torch.randn(25)
    found = search(x, y, restarts=1, max_depth=2)
    assert found.terms == [("LIN",)]
    model = found.model.train()
    output = model.likelihood(model.forward(*model.train_inputs))
    distribution = torch.distributions.MultivariateNormal(output.mean, output.covariance_matrix)
    loss = -2 * distribution.log_prob(model.train_targets)
    # output scale, location of the line, noise
    assert found.bic == pytest.approx((loss + 3 * torch.tensor(25.0).log()).item())
    assert found.expressions > 4 and found.evaluations > found.fits > 4


def test_search_over_columns_finds_their_product():
    x = torch.rand(60, 2)
    y = torch.sin(4 * x[:, 0]) * torch.cos(4 * x[:, 1])
    found = search(x, y, restarts=1, max_depth=2, dims=2)
    assert found.terms == [("RBF_1", "RBF_2")]
    (kernel,) = found.term_kernels
    assert isinstance(kernel, ScaleKernel) and isinstance(kernel.base_kernel, RBFKernel)


def test_search_refuses_what_it_cannot_use():
    x = torch.rand(9, 2)
    with pytest.raises(ValueError, match=r"D = 3 .*got shapes \(9, 2\) and \(9,\)"):
        search(x, x[:, 0], dims=3)
    with pytest.raises(ValueError, match="got 0, 4, 4 and 1"):
        search(x, x[:, 0], max_depth=0)
    with pytest.raises(ValueError, match="not constant"):
        search(x, torch.ones(9))


def test_results_are_kept_and_tabled(tmp_path, monkeypatch, capsys):
    calls = []

    def fake(x, y, seed):
        calls.append(seed)
        return MethodOutcome([("PER",), ("RBF",)] if seed == 100 else [("PER",)], 2.0 + len(calls))

    def broken(x, y, seed):
        raise NotImplementedError("not yet")

    monkeypatch.setattr(recovery, "_warm_up", lambda *_: None)
    monkeypatch.setattr(recovery, "METHODS", {"search": fake, "ours": broken})
    out = tmp_path / "recovery.jsonl"
    argv = ["--cases", "rbf+per", "--draws", "2", "--out", str(out), "--methods", "search"]
    assert recovery.main(argv) == 0
    assert "| rbf+per | search | 1 of 2 | 75% | 3.5 | 1.00 |" in capsys.readouterr().out
    assert recovery.main([*argv, "ours"]) == 1
    assert calls == [100, 101]  # what is in the file was not run again
    assert "NotImplementedError: not yet" in capsys.readouterr().err
    assert [json.loads(line)["right"] for line in out.read_text().splitlines()] == [True, False]
