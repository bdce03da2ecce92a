"""BoTorch's checks of SingleTaskGP (its test/models/test_gp_regression.py) on ours."""

import warnings
from itertools import product
from unittest.mock import patch

import torch
from botorch.fit import fit_gpytorch_mll
from botorch.models.transforms import Normalize, Standardize
from botorch.models.transforms.input import InputStandardize
from botorch.posteriors import GPyTorchPosterior
from botorch.sampling import SobolQMCNormalSampler
from botorch.utils.datasets import SupervisedDataset
from botorch.utils.testing import BotorchTestCase
from gpytorch.constraints import GreaterThan
from gpytorch.likelihoods import FixedNoiseGaussianLikelihood, GaussianLikelihood
from gpytorch.means import ConstantMean, LinearMean
from gpytorch.mlls import ExactMarginalLogLikelihood
from gpytorch.priors import GammaPrior

from gpytorch_nkn.models import NKNSingleTaskGP
from tests.models.small_models import STRUCTURES, moved, structure_of

DTYPES = (torch.float32, torch.float64)
ALL_TRANSFORMS = tuple(product((False, True), repeat=2))
BATCH_SHAPES = (torch.Size(), torch.Size([2]))


def random_data(batch_shape=(), m=1, n=8, d=2, **like):
    """Inputs in the unit cube and outputs of mean zero that differ in their shape."""
    x = torch.rand(*batch_shape, n, d, **like)
    y = torch.stack([torch.sin(5 * x[..., 0] + k) + k * x[..., -1] for k in range(m)], -1)
    return x, (y - y.mean(-2, keepdim=True)) / y.std(-2, keepdim=True)


class TestHabitsOfBoTorch(BotorchTestCase):
    def check(
        self,
        function,
        *,
        ms=(1, 2),
        dtypes=(torch.float64,),
        fixed=(False, True),
        structures=("optimization",),
        transforms=((False, False), (True, True)),  # of outcomes, of inputs
    ):
        """Call ``function(x, y, options, model)`` for models of all kinds.

        Of all combinations it is one half, in which any three of the settings meet in every way.
        """
        kinds = product(structures, BATCH_SHAPES, ms, dtypes, fixed, transforms)
        for structure, batch_shape, m, dtype, fixed_noise, (outcome, inputs) in kinds:
            number = structures.index(structure) + DTYPES.index(dtype)
            if (number + len(batch_shape) + m + fixed_noise + outcome) % 2:
                continue
            like = {"dtype": dtype, "device": self.device}
            d = 1 if structure in ("time_series", "texture") else 2
            x, y = random_data(batch_shape, m, d=d, **like)
            options = {
                "structure": structure_of(structure, d).to(dtype)
                if structure in ("network", "scaled")
                else structure,
                "train_Yvar": torch.full_like(y, 0.01) if fixed_noise else None,
                "outcome_transform": Standardize(m, batch_shape=batch_shape) if outcome else None,
                "input_transform": Normalize(
                    d, bounds=torch.tensor([[-1.0] * d, [1.5] * d], **like)
                )
                if inputs
                else None,
            }
            name = f"{structure}, {tuple(batch_shape)}, {m=}, {dtype}, {fixed_noise=}, {outcome=}"
            with self.subTest(f"{name}, {inputs=}"):
                function(x, y, options, moved(NKNSingleTaskGP(x, y, **options)))

    def check_posteriors(self, x, y, options, model):
        (*batch_shape, _, d), m, like = x.shape, y.size(-1), {"dtype": x.dtype}
        self.assertEqual(model.num_outputs, m)
        self.assertEqual(model.batch_shape, torch.Size(batch_shape))
        self.assertEqual({p.dtype for p in model.parameters()}, {x.dtype})
        # half of them with points in batches: those of the kinds that alternate
        for leading in [(3,) if (m + len(batch_shape)) % 2 else ()]:
            at = torch.rand(*leading, *batch_shape, 4, d, **like)
            shape = torch.Size([*leading, *batch_shape, 4, m])
            posterior = model.posterior(at)
            self.assertIsInstance(posterior, GPyTorchPosterior)
            self.assertEqual(posterior.mean.shape, shape)
            self.assertEqual(posterior.variance.shape, shape)
            self.assertTrue(bool((posterior.variance > 0).all()))
            # noise comes on top: BoTorch takes known noise at its mean, in the model's units
            noisy = model.posterior(at, observation_noise=True)
            noise = model.likelihood.noise.mean(-1)  # batch x m, or batch for one output
            noise = noise.unsqueeze(-1) if m == 1 else noise
            if options["outcome_transform"] is not None:
                noise = noise * model.outcome_transform.stdvs.square().squeeze(-2)
            expected = posterior.variance + noise.unsqueeze(-2)
            self.assertAllClose(noisy.variance, expected, rtol=1e-3, atol=1e-5)
            self.assertAllClose(noisy.mean, posterior.mean, rtol=1e-4, atol=1e-5)
            given = 0.1 + torch.rand(shape, **like)
            noisy = model.posterior(at, observation_noise=given)
            if options["outcome_transform"] is not None:
                given = given * model.outcome_transform.stdvs.square()
            self.assertAllClose(noisy.variance, posterior.variance + given, rtol=1e-3, atol=1e-5)
        if options["outcome_transform"] is not None:
            transform = model.outcome_transform
            del model.outcome_transform
            raw = model.posterior(at)
            model.outcome_transform = transform
            untransformed = transform.untransform_posterior(raw)
            self.assertAllClose(untransformed.variance, posterior.variance)
        if options["train_Yvar"] is not None:
            self.assertIsInstance(model.likelihood, FixedNoiseGaussianLikelihood)

    def test_posterior(self):
        self.check(self.check_posteriors, transforms=ALL_TRANSFORMS)
        self.check(self.check_posteriors, ms=(2,), dtypes=(torch.float32,))

    def test_posterior_of_every_structure(self):
        self.check(
            self.check_posteriors,
            fixed=(False,),
            structures=STRUCTURES[1:],
            transforms=((True, True),),
        )

    def test_fit_by_botorch(self):
        def check(x, y, options, model):
            self.assertIsInstance(model.mean_module, ConstantMean)
            mll = ExactMarginalLogLikelihood(model.likelihood, model)
            before = {n: p.detach().clone() for n, p in model.named_parameters()}
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                fit_gpytorch_mll(
                    mll,
                    optimizer_kwargs={"options": {"maxiter": 1}},
                    max_attempts=1,
                    warning_handler=lambda w: True,
                )
            self.assertFalse(model.training)
            shape = model._aug_batch_shape
            for name, parameter in model.named_parameters():
                self.assertEqual(parameter.shape[: len(shape)], shape)
                self.assertFalse(torch.equal(parameter, before[name]), name)

        self.check(check, dtypes=DTYPES, fixed=(False,), transforms=((True, True),))

    def test_condition_on_observations(self):
        def check(x, y, options, model):
            (*batch_shape, _, d), m = x.shape, y.size(-1)
            new_x, new_y = random_data((3, *batch_shape), m, n=2, d=d)
            new_y = new_y + 0.3
            noise = torch.full_like(new_y, 0.02)
            fixed = options["train_Yvar"] is not None
            at = torch.rand(*batch_shape, 4, d)
            model.posterior(at)
            for points in (new_x, new_x[0]):  # points of their own for every batch, and the same
                of_points = {"noise": noise.new_full((*points.shape[:-1], m), 0.02)}
                conditioned = model.condition_on_observations(
                    points, new_y, **(of_points if fixed else {})
                )
                actual = conditioned.posterior(at)
                self.assertEqual(actual.mean.shape, torch.Size([3, *batch_shape, 4, m]))
                transform = options["outcome_transform"]
                old = model.train_targets.transpose(-1, -2) if m > 1 else model.train_targets
                old = old if m > 1 else old.unsqueeze(-1)
                new = new_y if transform is None else transform(new_y)[0]
                joined = moved(
                    NKNSingleTaskGP(
                        torch.cat([x.expand(3, *x.shape), points.expand_as(new_x)], -2),
                        torch.cat([old.expand(3, *old.shape), new], -2),
                        torch.cat([model_noise(model, m).expand(3, *old.shape), noise], -2)
                        if fixed
                        else None,
                        input_transform=options["input_transform"],
                        outcome_transform=None,
                    ),
                    batch_shape=(3,),
                )
                expected = joined.posterior(at)
                mean, variance = expected.mean, expected.variance
                if transform is not None:
                    mean, variance = transform.untransform(mean, variance)
                self.assertAllClose(actual.mean, mean, rtol=1e-6, atol=1e-7)
                self.assertAllClose(actual.variance, variance, rtol=1e-5, atol=1e-7)

        self.check(check)

    def test_fantasize(self):
        def check(x, y, options, model):
            (*batch_shape, _, d), m = x.shape, y.size(-1)
            candidates = torch.rand(*batch_shape, 2, d, dtype=x.dtype)
            sampler = SobolQMCNormalSampler(torch.Size([3]), seed=0)
            fantasy = model.fantasize(candidates, sampler)
            self.assertIsInstance(fantasy, NKNSingleTaskGP)
            at = torch.rand(*batch_shape, 4, d, dtype=x.dtype)
            posterior = fantasy.posterior(at)
            self.assertEqual(posterior.mean.shape, torch.Size([3, *batch_shape, 4, m]))
            # the samples that the sampler draws are what the model is then conditioned on
            given = model.posterior(candidates, observation_noise=True)
            new_y = SobolQMCNormalSampler(torch.Size([3]), seed=0)(given)
            noise = {}
            if options["train_Yvar"] is not None:
                level = model_noise(model, m).mean(-2, keepdim=True)
                noise = {"noise": level.expand_as(new_y)}
            expected = model.condition_on_observations(
                candidates.expand(3, *candidates.shape), new_y, **noise
            ).posterior(at)
            tolerance = {"rtol": 1e-3, "atol": 1e-4 if x.dtype == torch.float32 else 1e-7}
            self.assertAllClose(posterior.mean, expected.mean, **tolerance)
            self.assertAllClose(posterior.variance, expected.variance, **tolerance)
            with patch.object(
                NKNSingleTaskGP, "condition_on_observations", autospec=True
            ) as condition:
                model.fantasize(candidates, sampler)
            self.assertTrue(torch.equal(condition.call_args.kwargs["X"], candidates))

        self.check(check)

    def test_construct_inputs(self):
        def check(x, y, options, model):
            names = {"feature_names": ["a", "b"], "outcome_names": ["y"]}
            data = SupervisedDataset(x, y, Yvar=options["train_Yvar"], **names)
            made = NKNSingleTaskGP.construct_inputs(data)
            self.assertTrue(torch.equal(made["train_X"], x))
            self.assertTrue(torch.equal(made["train_Y"], y))
            self.assertEqual("train_Yvar" in made, options["train_Yvar"] is not None)
            self.assertEqual(NKNSingleTaskGP(**made).num_outputs, 1)

        self.check(check, ms=(1,))

    def test_set_transformed_inputs(self):
        x, y = random_data(n=6)
        x = 3 * x + 1
        for transform in (Normalize(2), InputStandardize(2)):
            model = NKNSingleTaskGP(x, y, input_transform=transform)
            mll = ExactMarginalLogLikelihood(model.likelihood, model)
            fit_gpytorch_mll(
                mll, optimizer_kwargs={"options": {"maxiter": 2}}, warning_handler=lambda w: True
            )
            self.assertAllClose(model.train_inputs[0], transform(x))
            model.train()
            self.assertTrue(torch.equal(model.train_inputs[0], x))
            model.eval()
            self.assertAllClose(model.train_inputs[0], transform(x))
            self.assertAllClose(model.transform_inputs(x), transform(x))

    def test_custom_parts(self):
        x, y = random_data(m=2)
        likelihood = GaussianLikelihood(
            GammaPrior(1.0, 1.0), GreaterThan(1e-3), batch_shape=torch.Size([2])
        )
        mean = LinearMean(2, batch_shape=torch.Size([2]))
        model = NKNSingleTaskGP(x, y, likelihood=likelihood, mean_module=mean)
        self.assertIs(model.likelihood, likelihood)
        self.assertIs(model.mean_module, mean)
        self.assertTrue(model._is_custom_likelihood)
        self.assertEqual(model.posterior(x[:3]).mean.shape, (3, 2))

    def test_load_state_dict_keeps_the_transforms_of_the_data(self):
        x, y = random_data(n=9)
        for keep in (True, False):
            first = moved(NKNSingleTaskGP(x, 5 * y + 2, input_transform=Normalize(2)))
            second = NKNSingleTaskGP(x[:5], 7 * y[:5] - 1, input_transform=Normalize(2))
            second.load_state_dict(first.state_dict(), keep_transforms=keep)
            self.assertAllClose(second.outcome_transform.means, first.outcome_transform.means)
            if keep:
                expected = (7 * y[:5] - 1 - first.outcome_transform.means) / (
                    first.outcome_transform.stdvs
                )
                self.assertAllClose(second.train_targets, expected.squeeze(-1))


def model_noise(model, m):
    """Known noise as the data have it, ``... x n x m``."""
    noise = model.likelihood.noise
    return noise.transpose(-1, -2) if m > 1 else noise.unsqueeze(-1)
