"""Contract of all trainers, with their registry."""

import contextlib
import copy
import inspect
import io
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
import torch
from botorch.fit import fit_gpytorch_mll
from gpytorch.constraints import Interval
from gpytorch.kernels import AdditiveKernel, Kernel, RBFKernel
from gpytorch.means import LinearMean, Mean, ZeroMean
from gpytorch.mlls import ExactMarginalLogLikelihood, VariationalELBO
from gpytorch.priors import LogNormalPrior

from gpytorch_nkn import bo, fit, models
from gpytorch_nkn.fit import Recipe, fit_best_of, fit_in_stages, options_of
from gpytorch_nkn.models import TRAINERS, NKNSingleTaskGP
from gpytorch_nkn.models.sparse import fit_sparse, fit_variational
from gpytorch_nkn.models.spectral import fit_spectral
from tests.fit.models import rbf_model
from tests.global_state import unchanged
from tests.models.registry import CASES, case_of


@contextlib.contextmanager
def short_starts():
    """Few iterations, also without an option for their number."""
    with pytest.MonkeyPatch.context() as patch:
        for module in (fit_sparse, fit_spectral):
            patch.setattr(module, "Recipe", lambda **_: Recipe(adam_steps=0, lbfgs_iterations=4))
        for name in ("_INDUCING", "_REFIT"):
            patch.setattr(fit_spectral, name, 3)
        patch.setattr(fit_variational, "_SUBSET_ITERATIONS", 3)
        yield


@dataclass(frozen=True)
class Trainer:
    """A trainer, a small model for it, and options with which it is quick.

    Attributes:
        through_botorch: ``fit_gpytorch_mll`` trains such a model by it.
        draws: Options with which the result depends on the seed; ``None`` where it may not.
        trains_as_another: Another trainer here adjusts its parameters by the same lines.
    """

    train: Callable[..., Any]
    make: Callable[[], torch.nn.Module]
    options: dict[str, Any] = field(default_factory=dict)
    through_botorch: bool = True
    draws: dict[str, Any] | None = None
    trains_as_another: bool = False

    def __str__(self) -> str:
        return self.train.__name__

    def __call__(self, model, **options):
        with short_starts():
            return self.train(model, **{**self.options, **options})

    def has(self, option):
        return option in options_of(self.train)


def model_of(case):
    return lambda: case.make(*case.data())


QUICK = {
    models.KroneckerGridGP: {"likelihood_steps": 5, "block_steps": 4, "blocks": 2},
    models.SparseNKNGP: {"restarts": 1, "max_iterations": 3},
    models.VariationalNKNGP: {"restarts": 1, "epochs": 1, "batch_size": 7},
    models.SpectralGP: {"restarts": 1, "max_iterations": 3},
    models.StructureEnsembleGP: {"max_iterations": 2},
    NKNSingleTaskGP: {"max_iterations": 3, "fresh_starts": 1},
}
SHORT = Recipe(adam_steps=3, lbfgs_iterations=3)
LONG = {
    "recipe": Recipe(adam_steps=500, lbfgs_iterations=500),
    "likelihood_steps": 500,
    "max_iterations": 500,
    "epochs": 200,
}
DRAWS = {
    models.KroneckerGridGP: {"restarts": 2},
    models.VariationalNKNGP: {},
    models.SpectralGP: {"restarts": 2},
}
# One kind of each class; cases of SpectralGP are trained in different ways.
KINDS = [case for case in CASES if case is case_of(case.cls) or case.cls is models.SpectralGP]
KINDS = [case for case in KINDS if case.cls is not models.NKNMultiTaskGP]  # as NKNSingleTaskGP
TRAINERS_HERE = [
    Trainer(fit_best_of, rbf_model, {"restarts": 2, "recipe": SHORT}, through_botorch=False),
    Trainer(
        fit_in_stages,
        rbf_model,
        {"restarts": 2, "recipe": SHORT},
        through_botorch=False,
        trains_as_another=True,
    ),
    *(
        Trainer(
            TRAINERS[case.cls],
            model_of(case),
            QUICK[case.cls],
            draws=DRAWS.get(case.cls) if case is case_of(case.cls) else None,
            trains_as_another=case is not case_of(case.cls),
        )
        for case in KINDS
    ),
]
pytestmark = pytest.mark.usefixtures("device")
each = pytest.mark.parametrize("trainer", TRAINERS_HERE, ids=str)
APART = [trainer for trainer in TRAINERS_HERE if not trainer.trains_as_another]
each_apart = pytest.mark.parametrize("trainer", APART, ids=str)


def mll_of(model):
    """The objective that a user of BoTorch gives to ``fit_gpytorch_mll``."""
    if isinstance(model, models.VariationalNKNGP):
        inner = model.model
        return VariationalELBO(model.likelihood, inner, num_data=inner.train_targets.numel())
    return ExactMarginalLogLikelihood(model.likelihood, model)


def state_of(model):
    return {name: value.clone() for name, value in model.state_dict().items()}


def same(one, two):
    return one.keys() == two.keys() and all(
        torch.equal(value, two[name]) for name, value in one.items()
    )


def predictions(model):
    """Means at some points, which must be numbers and have gradients."""
    model.eval()
    if hasattr(model, "posterior"):
        points = case_of(type(model)).points(3).requires_grad_()
        mean = model.posterior(points).mean
    else:
        points = (model.train_inputs[0][:3] + 0.01).requires_grad_()
        mean = model(points).mean
    assert torch.isfinite(mean).all()
    (gradient,) = torch.autograd.grad(mean.sum(), points)
    assert torch.isfinite(gradient).all()
    return mean


def test_every_trainer_is_registered():
    public = {
        getattr(room, name)
        for room in (fit, bo, models)
        for name in room.__all__
        if name.startswith("fit_")
    }
    assert len(public) > 7 and public == {trainer.train for trainer in TRAINERS_HERE}
    trained = {getattr(models, name) for name in models.__all__ if name.endswith("GP")}
    assert trained - {models.LaplaceGP} == TRAINERS.keys()  # fit_best_of trains that one


@each
def test_options_are_keywords_and_those_that_all_have_are_alike(trainer):
    parameters = inspect.signature(trainer.train).parameters
    first, *others = parameters.values()
    assert first.name == "model"
    assert all(p.kind is inspect.Parameter.KEYWORD_ONLY for p in others)
    assert parameters["seed"].default == 0 and parameters["progress"].default is True
    if trainer.has("budget"):
        assert parameters["budget"].default is None


def train(trainer, run, *, terminal=False, global_seed=0):
    """A new model trained by ``run(model)``, and what it wrote to standard error."""
    torch.manual_seed(0)
    model = trainer.make()
    torch.manual_seed(global_seed)
    np.random.seed(global_seed)
    stream = io.StringIO()
    stream.isatty = lambda: terminal
    with contextlib.redirect_stderr(stream):
        run(model)
    return model, stream.getvalue()


@pytest.fixture(scope="module")
def trainings():
    """State and messages of each trainer without progress, by its index in the list."""
    return {}


@pytest.fixture
def quiet(trainer, trainings, device):
    key = TRAINERS_HERE.index(trainer), device, torch.get_default_device()
    if key not in trainings:
        model, told = train(trainer, lambda model: trainer(model, progress=False), terminal=True)
        trainings[key] = state_of(model), told
    return trainings[key]


@each
def test_it_trains_in_place_by_the_seed_alone_and_leaves_the_rest_alone(trainer, quiet):
    """It shows its progress on a terminal, unless ``progress`` is False."""
    before = []

    def run(model):
        before.append(state_of(model))
        before.append([p.requires_grad for p in model.parameters()])
        with unchanged():
            trainer(model)

    expected, nothing = quiet
    model, told = train(trainer, run, terminal=True, global_seed=1)
    assert same(state_of(model), expected) and told and not nothing
    assert not same(state_of(model), before[0])
    assert not any(module.training for module in model.modules())
    assert [p.requires_grad for p in model.parameters()] == before[1]
    assert all(p.grad is None for p in model.parameters())
    predictions(model)


@each
def test_it_learns_what_it_learns_on_the_cpu(trainer, device):
    if device.type == "cpu":
        return
    there = trainer.make()
    here = copy.deepcopy(there).cpu()
    trainer(there)
    trainer(here)
    assert {value.device for value in there.state_dict().values()} == {device}
    expected = predictions(here.to(device).train())  # which forgets what it kept for predictions
    torch.testing.assert_close(predictions(there), expected, rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("trainer", [t for t in APART if t.draws is not None], ids=str)
def test_another_seed_draws_something_else(trainer, quiet):
    states = [] if trainer.draws else [quiet[0]]
    for seed in range(len(states), 2):
        model, _ = train(trainer, lambda model, s=seed: trainer(model, seed=s, **trainer.draws))
        states.append(state_of(model))
    assert not same(*states)


@each
def test_a_seed_is_an_integer_and_a_budget_positive(trainer):
    model = trainer.make()
    for seed, error in ((1.5, TypeError), ("1", TypeError), (None, TypeError), (-1, ValueError)):
        with pytest.raises(error, match="seed must be (an integer|at least 0), got"):
            trainer(model, seed=seed)
    for budget in (0, -1.0, float("nan")) if trainer.has("budget") else ():
        with pytest.raises(ValueError, match="budget must be (positive|finite), got"):
            trainer(model, budget=budget)


has_budget = pytest.mark.parametrize("trainer", [t for t in APART if t.has("budget")], ids=str)


@has_budget
def test_a_budget_that_is_used_up_at_once_leaves_a_model_that_predicts(trainer):
    model = trainer.make()
    trainer(model, budget=1e-9)
    predictions(model)


@has_budget
def test_the_clock_ends_a_training(trainer, monkeypatch):
    """Each look at the clock takes a second: of a budget of seconds, so many looks are left."""
    looks = []

    def clock():
        looks.append(None)
        return float(len(looks))

    model = trainer.make()
    monkeypatch.setattr(time, "monotonic", clock)
    long = {name: value for name, value in LONG.items() if name in trainer.options}
    trainer.train(model, budget=6.0, **{**trainer.options, **long})
    predictions(model)
    assert len(looks) <= 40


@pytest.mark.filterwarnings("ignore::UserWarning")  # of what is kept
@each_apart
@pytest.mark.parametrize("after", [1, 12])
def test_ctrl_c_at_any_look_at_the_clock_leaves_a_model_that_predicts(trainer, after, monkeypatch):
    model, looks = trainer.make(), []
    trainable = [p.requires_grad for p in model.parameters()]
    real = time.monotonic

    def clock():
        looks.append(None)
        if len(looks) == after:
            raise KeyboardInterrupt
        return real()

    with unchanged(), monkeypatch.context() as patch:
        patch.setattr(time, "monotonic", clock)
        with contextlib.suppress(KeyboardInterrupt):  # it came before there was anything to keep
            trainer(model)
    predictions(model)
    assert [p.requires_grad for p in model.parameters()] == trainable


@each
def test_options_that_are_not_there_are_rejected(trainer):
    model = trainer.make()
    with pytest.raises(TypeError, match="learning_speed"):
        trainer(model, learning_speed=1.0)
    if trainer.through_botorch:
        mll = mll_of(model)
        names = f"(?s)[Oo]ptions of {trainer}.*seed.*learning_speed"
        with pytest.raises(TypeError, match=names):
            fit_gpytorch_mll(mll, learning_speed=1.0)


@each_apart
def test_botorch_trains_by_it_where_gradients_are_off_and_another_dtype_is_the_default(
    trainer, quiet
):
    """No progress is shown without a terminal."""

    def run(model):
        torch.set_default_dtype(torch.float32)
        with torch.inference_mode(), unchanged():
            if trainer.through_botorch:
                mll = mll_of(model)
                with short_starts():
                    assert fit_gpytorch_mll(mll, **trainer.options) is mll
            else:
                trainer(model)
            assert not torch.is_grad_enabled()
        assert torch.get_default_dtype() == torch.float32

    model, told = train(trainer, run)
    assert {p.dtype for p in model.parameters()} == {torch.float64} and not told
    torch.testing.assert_close(state_of(model), quiet[0], rtol=1e-6, atol=1e-6)
    predictions(model)


@each
def test_another_model_is_rejected(trainer):
    wrong = torch.nn.Linear(1, 1)
    with pytest.raises(TypeError, match="(?i)model|ExactGP|Linear"):
        trainer(wrong)


def mean_of(model):
    """The module that has the mean of a model."""
    return getattr(model, "model", model)


def is_learned_otherwise(name):
    """Whether a parameter belongs to the distribution of inducing values, which data determine."""
    return "variational_distribution" in name


@pytest.mark.parametrize(
    "trainer, which",
    [(t, which) for t in TRAINERS_HERE for which in range(1 if t.trains_as_another else 2)],
    ids=str,
)
def test_frozen_parameters_stay_to_the_bit(trainer, which):
    """Every third parameter is trained, the others are frozen: each of them once at least."""
    model = trainer.make()
    names = [name for name, _ in model.named_parameters() if not is_learned_otherwise(name)]
    for number, name in enumerate(names):
        if number % 3 != which:
            parameter = model.get_parameter(name).requires_grad_(False)
            if name.endswith(("raw_noise", "raw_constant")):
                parameter.data.fill_(0.3)  # where no training begins
    parts, before = (model.likelihood, mean_of(model).mean_module), state_of(model)
    trainer(model)
    for name in names:
        if not model.get_parameter(name).requires_grad:
            assert torch.equal(model.get_parameter(name), before[name]), name
    assert model.likelihood is parts[0] and mean_of(model).mean_module is parts[1]
    predictions(model)


MORE = {  # options of trainings that come near an optimum
    "max_iterations": 12,
    "recipe": Recipe(adam_steps=0, lbfgs_iterations=30),
    "likelihood_steps": 200,
    "block_steps": 0,
}


@each_apart
def test_priors_of_noise_and_lengthscales_count(trainer):
    """A prior that is concentrated at large values leads to larger values than no prior."""
    noises, lengthscales = [], []
    for _ in range(2):
        model = trainer.make()
        noise = model.likelihood.noise_covar
        owners = [m for m in model.modules() if isinstance(m, Kernel) and m.has_lengthscale]
        owners = [m for m in owners if m.raw_lengthscale.requires_grad]
        if noises:
            with noise.noise.device:
                priors = LogNormalPrior(0.5, 0.02), *(LogNormalPrior(2.0, 0.02) for _ in owners)
            noise.register_prior("noise_prior", priors[0], lambda m: m.noise)
            for owner, prior in zip(owners, priors[1:], strict=True):
                owner.register_prior("lengthscale_prior", prior, lambda m: m.lengthscale)
        trainer(model, **{name: value for name, value in MORE.items() if trainer.has(name)})
        noises.append(model.likelihood.noise.log().mean())
        lengthscales.append(torch.stack([owner.lengthscale.log().mean() for owner in owners]))
    assert noises[1] > noises[0] + 0.5
    if isinstance(model, models.SpectralGP) and not isinstance(model.covar_module, AdditiveKernel):
        return  # of iterations of low rank, held-out rows choose one: they contradict this prior
    assert (lengthscales[1] > lengthscales[0]).float().mean() > 0.7
    assert lengthscales[1].mean() > lengthscales[0].mean() + 0.3


@pytest.mark.parametrize(
    "trainer, enforced", [*((t, False) for t in APART), *((t, True) for t in APART[::3])], ids=str
)
def test_constraints_of_noise_and_lengthscales_hold(trainer, enforced):
    """Those that a transform enforces, and those that are left to the optimiser."""
    model = trainer.make()
    noise = model.likelihood.noise_covar
    transform = {} if enforced else {"transform": None}
    start = {} if enforced else {"initial_value": 0.45}
    within = Interval(0.4, 0.5, **transform, **start).to(noise.raw_noise)
    noise.register_constraint("raw_noise", within, replace=True)
    owners = [m for m in model.modules() if isinstance(m, Kernel) and m.has_lengthscale]
    for owner in owners:
        constraint = Interval(1.5, 2.5, **transform, **({} if enforced else {"initial_value": 2.0}))
        constraint.to(owner.raw_lengthscale)
        owner.register_constraint("raw_lengthscale", constraint, replace=True)
    trainer(model)
    tiny = 1e-6
    assert ((0.4 - tiny <= model.likelihood.noise) & (model.likelihood.noise <= 0.5 + tiny)).all()
    for owner in owners:
        assert ((1.5 - tiny <= owner.lengthscale) & (owner.lengthscale <= 2.5 + tiny)).all()
    predictions(model)


class Bowl(Mean):
    """A user's mean function, whose parameter has no batch dimension."""

    def __init__(self):
        super().__init__()
        self.register_parameter("curvature", torch.nn.Parameter(torch.tensor(0.1)))

    def forward(self, x):
        return self.curvature * x.square().sum(-1)


# its own mean for each, and one of GPyTorch's
@pytest.mark.parametrize(
    "trainer, make",
    [(t, mean) for i, t in enumerate(APART) for mean in (Bowl, (LinearMean, ZeroMean)[i % 2])],
    ids=lambda value: getattr(value, "__name__", str(value)),
)
def test_any_mean_is_trained_or_rejected_by_name(trainer, make, device):
    """A rejected mean is accepted as soon as its parameters are frozen."""
    model = trainer.make()
    case = next((c for c in CASES if c.cls is type(model)), None)
    batch_shape = getattr(mean_of(model).mean_module, "batch_shape", torch.Size())
    columns = 1 if case is None else case.columns
    mean = make(*{ZeroMean: [batch_shape], LinearMean: [columns]}.get(make, []))
    mean.to(device, torch.float64)
    mean_of(model).mean_module = mean
    before = state_of(mean)
    try:
        trainer(model)
    except TypeError as error:
        assert make.__name__ in str(error) and "requires_grad_(False)" in str(error)
        mean.requires_grad_(False)
        trainer(model)
        assert same(state_of(mean), before)
    assert mean_of(model).mean_module is mean
    moved = any(not torch.equal(value, before[name]) for name, value in mean.named_parameters())
    assert moved == (any(p.requires_grad for p in mean.parameters()))
    predictions(model)


@pytest.mark.parametrize(
    "cls, part", [(models.SpectralGP, "covar_module"), (models.VariationalNKNGP, "likelihood")]
)
def test_parts_of_another_class_are_rejected_by_name(cls, part):
    model = model_of(case_of(cls))()
    setattr(model, part, RBFKernel() if part == "covar_module" else None)
    got = "RBFKernel" if part == "covar_module" else "NoneType"
    with pytest.raises(TypeError, match=f"of a {cls.__name__} must have the class .*, got {got}"):
        TRAINERS[cls](model)
