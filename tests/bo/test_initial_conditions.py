import pytest
import torch
from botorch.acquisition import AcquisitionFunction, qKnowledgeGradient
from botorch.models import SingleTaskGP
from botorch.optim import optimize_acqf
from botorch.optim.initializers import gen_batch_initial_conditions

from gpytorch_nkn.bo import coordinate_sweep_initial_conditions

BOUNDS = torch.tensor([[-1.0, 0.0, 2.0], [3.0, 1.0, 12.0]], dtype=torch.float64)
BEST = torch.tensor([2.2, 0.9, 7.5], dtype=torch.float64)
WIDTH = BOUNDS[1] - BOUNDS[0]
FEW_DRAWS = {"n_burnin": 50, "n_thinning": 2}  # of points that satisfy constraints


class Separable(AcquisitionFunction):
    """A sum of narrow peaks over points and columns, which random points miss."""

    def __init__(self, best=BEST):
        super().__init__(model=None)
        self.best = best
        self.sizes = []
        self.seen = []
        self.X_pending = None

    def set_X_pending(self, X_pending=None):
        self.X_pending = X_pending

    def forward(self, X):
        self.sizes.append(len(X))
        self.seen.append(X.detach().clone())
        assert X.shape[-1] == 3 and X.dim() == 3
        distance = (X - self.best) / WIDTH
        return torch.exp(-300 * distance.square()).sum((-1, -2))


def sweep(acquisition=None, q=1, num_restarts=4, raw_samples=8, **options):
    options = {"incumbent": BOUNDS.mean(0), **options}
    acquisition = Separable() if acquisition is None else acquisition
    return coordinate_sweep_initial_conditions(
        acquisition, BOUNDS, q, num_restarts, raw_samples, **options
    )


def is_within_bounds(points):
    return bool((points >= BOUNDS[0]).all() and (points <= BOUNDS[1]).all())


@pytest.mark.parametrize("q", [1, 3])
def test_sweep_finds_the_best_of_a_sum_to_the_resolution_of_its_grid(q):
    points = sweep(q=q, num_restarts=8)[:4]
    assert points.shape == (4, q, 3) and is_within_bounds(points)
    gap = ((points - BEST) / WIDTH).abs()
    assert (gap <= 1 / 16).all()
    assert gap.max() > 1e-6  # the grid of each start is shifted at random
    assert len({tuple(p.flatten().tolist()) for p in points}) == 4


def test_incumbents_in_turn_moved_into_the_bounds():
    seen = Separable()
    incumbent = torch.tensor([[0.0, 5.0, 3.0], [1.0, 0.5, -7.0]])
    sweep(seen, num_restarts=8, incumbent=incumbent)
    expected = torch.tensor([[0.0, 1.0, 3.0], [1.0, 0.5, 2.0]])
    first = next(points for points in seen.seen if len(points) == 4)  # BoTorch's own are eight
    torch.testing.assert_close(first.squeeze(1), expected.repeat(2, 1))
    assert torch.equal(incumbent[0], torch.tensor([0.0, 5.0, 3.0]))


@pytest.mark.parametrize(("num_restarts", "num_swept"), [(4, 2), (1, 1), (8, 4)])
def test_half_of_the_starting_points(num_restarts, num_swept):
    points = sweep(num_restarts=num_restarts)
    assert points.shape == (num_restarts, 1, 3)
    close = (((points - BEST) / WIDTH).abs() <= 1 / 16).all(-1).flatten()
    assert close.tolist() == [True] * num_swept + [False] * (num_restarts - num_swept)


def test_the_other_points_match_botorch():
    torch.manual_seed(3)
    expected = gen_batch_initial_conditions(Separable(), BOUNDS, 1, 2, 8)
    torch.manual_seed(3)
    assert torch.equal(sweep()[2:], expected)


def test_reproducible_by_seed():
    found = []
    for seed in (0, 0, 1):
        torch.manual_seed(seed)
        found.append(sweep(q=2))
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])
    found = []
    for seed in (5, 5, 6):  # BoTorch's option, which leaves the global random state alone
        state = torch.get_rng_state()
        found.append(sweep(num_restarts=1, options={"seed": seed}))
        assert torch.equal(torch.get_rng_state(), state)
        torch.rand(1)
    assert torch.equal(found[0], found[1]) and not torch.equal(found[0], found[2])


@pytest.mark.parametrize(
    ("column", "value", "q"),
    [(1, 0.25, 1), (-2, torch.tensor(0.25), 2), (1, torch.tensor([0.25]), 1)],
)
def test_fixed_features(column, value, q):
    seen = Separable()
    points = sweep(seen, q=q, fixed_features={column: value})
    assert points.shape == (4, q, 3)
    assert all((p[..., 1] == 0.25).all() for p in (points, *seen.seen))
    free = [0, 2]
    assert (((points[:2] - BEST) / WIDTH)[..., free].abs() <= 1 / 16).all()


def test_fixed_numbers_keep_their_digits_if_the_default_is_float32():
    torch.set_default_dtype(torch.float32)
    assert (sweep(fixed_features={1: 0.3})[..., 1] == 0.3).all()


def test_intra_point_constraints():
    # x_1 + x_0 / 4 <= 1 and x_2 >= 8, which the best values and the incumbent violate
    constraints = [
        (torch.tensor([1, 0]), torch.tensor([-1.0, -0.25]), -1.0),
        (torch.tensor([2]), torch.tensor([1.0]), 8.0),
    ]
    for q in (1, 2):
        seen = Separable()
        points = sweep(seen, q=q, inequality_constraints=constraints, options=FEW_DRAWS)
        assert points.shape == (4, q, 3) and is_within_bounds(points)
        assert (points[..., 1] + points[..., 0] / 4 <= 1 + 1e-6).all()
        assert (points[..., 2] >= 8 - 1e-6).all()
        assert (points[:2, :, 2] < 8 + 10 / 16).all()  # as near to 7.5 as may be


def test_a_feasible_incumbent_is_kept_with_constraints():
    constraints = [(torch.tensor([2]), torch.tensor([1.0]), 8.0)]
    incumbent = torch.tensor([BEST[0], BEST[1], 9.0])
    points = sweep(incumbent=incumbent, inequality_constraints=constraints, options=FEW_DRAWS)
    assert torch.equal(points[:2, 0, :2], BEST[:2].expand(2, 2))
    assert (points[:2, 0, 2] >= 8).all() and (points[:2, 0, 2] < 9).all()


def test_inter_point_constraints():
    # the second point lies at least 1 above the first in column 0
    indices = torch.tensor([[1, 0], [0, 0]])
    constraints = [(indices, torch.tensor([1.0, -1.0]), 1.0)]
    points = sweep(q=2, inequality_constraints=constraints, options=FEW_DRAWS)
    assert (points[:, 1, 0] - points[:, 0, 0] >= 1 - 1e-6).all() and is_within_bounds(points)
    gap = ((points[:2] - BEST) / WIDTH).abs()
    assert (gap[..., 1:] <= 1 / 16).all()


def test_equality_constraints_leave_all_to_botorch():
    constraints = [(torch.tensor([0, 1]), torch.tensor([1.0, 1.0]), 1.0)]
    points = sweep(equality_constraints=constraints, options={**FEW_DRAWS, "seed": 0})
    torch.testing.assert_close(points[..., 0] + points[..., 1], torch.ones(4, 1))


@pytest.mark.parametrize("options", [{"init_batch_limit": 5}, {"batch_limit": 1}])
def test_limit_of_points_per_evaluation(options):
    torch.manual_seed(0)
    expected = sweep(q=2)
    torch.manual_seed(0)
    limited = Separable()
    assert torch.equal(sweep(limited, q=2, options=options), expected)
    assert max(limited.sizes) == options.get("init_batch_limit", 16)
    free = Separable()
    sweep(free, q=2)
    assert max(free.sizes) == 2 * 16


@pytest.mark.parametrize("value", [-torch.inf, torch.nan])
def test_acquisition_values_that_are_all_the_worst(value):
    class Worst(Separable):
        def forward(self, X):
            return torch.full(X.shape[:1], value)

    points = sweep(Worst(), num_restarts=1)
    torch.testing.assert_close(points, BOUNDS.mean(0).expand(1, 1, 3))


def test_points_without_a_value_are_not_taken():
    class Holes(Separable):
        def forward(self, X):
            values = super().forward(X)
            return values.masked_fill((X[..., 1] > 0.7).any(-1), torch.nan)

    points = sweep(Holes(), num_restarts=1)
    assert (points[..., 1] <= 0.7).all() and (points[..., 1] > 0.7 - 1 / 16).all()


def test_points_have_the_type_of_the_bounds():
    class Single(Separable):
        def forward(self, X):
            assert X.dtype == torch.float32
            return super().forward(X)

    points = coordinate_sweep_initial_conditions(
        Single(BEST.float()), BOUNDS.float(), 1, 4, 8, incumbent=BEST.double()
    )
    assert points.dtype == torch.float32


WRONG = [
    ({"incumbent": [1.0, 1.0]}, "B x 3 .* got shape \\(1, 2\\)"),
    ({"incumbent": torch.ones(0, 3)}, r"at least one point, got shape \(0, 3\)"),
    ({"incumbent": torch.ones(1, 1, 3)}, r"got shape \(1, 1, 3\)"),
    ({"incumbent": torch.tensor([0.0, torch.nan, 3.0])}, "incumbent must be finite"),
    ({"fixed_features": {3: 1.0}}, "must be indices of 3 input dimensions, got 3"),
    ({"fixed_features": {0: torch.ones(2)}}, "must have one finite value"),
    ({"fixed_features": {0: float("nan")}}, "must have one finite value"),
]


@pytest.mark.parametrize(("options", "message"), WRONG)
def test_arguments_without_meaning(options, message):
    with pytest.raises(ValueError, match=message):
        sweep(**options)


@pytest.mark.parametrize(
    "bounds", [torch.tensor([[0.0, 0.0], [1.0, torch.inf]]), torch.zeros(3, 2), torch.zeros(2)]
)
def test_bounds_without_meaning(bounds):
    with pytest.raises(ValueError, match="bounds must be 2 x d and finite, got"):
        coordinate_sweep_initial_conditions(Separable(), bounds, 1, 4, 8, incumbent=torch.zeros(2))


def test_one_shot_acquisition_functions_have_generators_of_their_own():
    x = torch.rand(5, 3)
    acquisition = qKnowledgeGradient(SingleTaskGP(x, x.sum(-1, keepdim=True)), num_fantasies=2)
    with pytest.raises(NotImplementedError, match="function, got qKnowledgeGradient: drop ic_gen"):
        sweep(acquisition)


def test_optimize_acqf_reaches_the_best_point():
    options = {"q": 2, "num_restarts": 4, "raw_samples": 8}
    ours = {"ic_generator": coordinate_sweep_initial_conditions, "incumbent": BOUNDS.mean(0)}
    point, value = optimize_acqf(Separable(), BOUNDS, **options, **ours)
    torch.testing.assert_close(point, BEST.expand(2, 3), rtol=1e-3, atol=1e-3)
    torch.testing.assert_close(value, torch.tensor(6.0), rtol=1e-5, atol=1e-5)
    torch.manual_seed(0)
    _, without = optimize_acqf(Separable(), BOUNDS, **options)
    assert without < value - 0.5  # BoTorch's own starting points do not see the peaks
