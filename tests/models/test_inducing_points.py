import numpy as np
import pytest
import torch
from gpytorch.kernels import RBFKernel

from gpytorch_nkn.models.inducing_points import select_inducing_points

METHODS = ["kmeans", "greedy_variance"]


def select(x, number, method, **options):
    kernel = RBFKernel(ard_num_dims=x.size(-1)).to(x)
    kernel.lengthscale = 0.3
    return select_inducing_points(
        x, number, kernel=None if method == "kmeans" else kernel, **options
    )


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("method", METHODS)
def test_points_are_distinct_and_of_the_inputs_kind(method, dtype):
    x = torch.rand(200, 3).to(dtype)
    points = select(x, 15, method)
    assert points.shape == (15, 3) and points.dtype == dtype
    assert len(points.unique(dim=0)) == 15
    assert ((points >= x.min(0).values) & (points <= x.max(0).values)).all()


def test_kmeans_finds_clusters_whatever_the_scale_of_their_column():
    centres = torch.tensor([[0.0, 0.0], [1e4, 0.0], [0.0, 1e-3], [1e4, 1e-3]])
    x = centres.repeat(25, 1) + torch.tensor([100.0, 1e-5]) * torch.randn(100, 2)
    points = select(x, 4, "kmeans")
    found = ((points.unsqueeze(1) - centres).abs() / torch.tensor([1e4, 1e-3])).sum(-1)
    assert found.min(0).values.max() < 0.05 and found.min(1).values.max() < 0.05


def test_greedy_points_reduce_the_variance_as_a_pivoted_cholesky_does():
    x = torch.rand(60, 2)
    kernel = RBFKernel()
    kernel.lengthscale = 0.3
    points = select_inducing_points(x, 6, kernel=kernel)
    covariance = kernel(torch.unique(x, dim=0)).to_dense().detach().numpy()
    rows, variance = [], np.diag(covariance).copy()
    for _ in range(6):
        rows.append(int(variance.argmax()))
        inverse = np.linalg.inv(covariance[np.ix_(rows, rows)] + 1e-10 * np.eye(len(rows)))
        between = covariance[:, rows]
        variance = np.diag(covariance) - np.einsum("ij,jk,ik->i", between, inverse, between)
    torch.testing.assert_close(points, torch.unique(x, dim=0)[rows])


@pytest.mark.parametrize("method", METHODS)
def test_few_distinct_rows_are_all_taken(method):
    x = torch.rand(7, 2).repeat(30, 1)[torch.randperm(210)]
    points = select(x, 20, method)
    torch.testing.assert_close(points.unique(dim=0), x.unique(dim=0))


def test_rows_are_weighted_by_how_often_they_come():
    x = torch.cat([torch.zeros(98, 1), torch.tensor([[1.0], [3.0]])])
    points = select(x, 2, "kmeans")
    # without weights 3 would be on its own, and 0 and 1 together; so it is with them
    torch.testing.assert_close(points.sort(0).values, torch.tensor([[1 / 99], [3.0]]))


def test_each_element_of_a_batch_has_points_of_its_own():
    x = torch.stack([torch.rand(40, 2), 5 + torch.rand(40, 2)])
    points = select(x, 8, "kmeans")
    assert points.shape == (2, 8, 2)
    assert points[0].max() < 1 and points[1].min() > 5
    x[1] = x[1, :5].repeat(8, 1)
    assert select(x, 8, "kmeans").shape == (2, 5, 2)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"num_points": 0}, "num_points must be at least 1, got 0"),
        ({"x": torch.rand(0, 2)}, r"not empty, got shape \(0, 2\)"),
        ({"x": torch.tensor([[float("nan")]])}, "finite"),
    ],
)
def test_what_cannot_be_is_rejected(options, message):
    options = {"x": torch.rand(5, 2), "num_points": 3} | options
    with pytest.raises(ValueError, match=message):
        select_inducing_points(options.pop("x"), options.pop("num_points"), **options)
