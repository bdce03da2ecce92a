"""Names that are private to other libraries and used here: each is known, and there."""

import ast
import importlib.util
import inspect
import re
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import gpytorch_nkn
from tests.test_structure import parse

PACKAGE = Path(gpytorch_nkn.__file__).parent
SETUP = PACKAGE.parent / "setup.cfg"
PRIVATE = re.compile(r"_[A-Za-z]\w*")

IMPORTED = {
    "botorch.fit._fit_fallback",
    "botorch.fit._fit_fallback_approximate",
    "botorch.utils.types._DefaultType",
    "torch.utils._python_dispatch._get_current_dispatch_mode",
}
# Attributes that are read from objects of theirs, and what has them.
READ = {
    "_C": "torch",
    "_add_other_terms": "gpytorch.mlls.ExactMarginalLogLikelihood",
    "_added_loss_terms": "gpytorch.Module",
    "_constraints": "gpytorch.Module",
    "_current_level": "torch.autograd.forward_ad",
    "_default_sample_shape": "botorch.acquisition.MCAcquisitionFunction",
    "_diag_tensor": "linear_operator.operators.AddedDiagLinearOperator",
    "_expected_task_values": "botorch.models.MultiTaskGP",
    "_forward_hooks": "torch.nn.Module",
    "_forward_pre_hooks": "torch.nn.Module",
    "_functorch": "torch._C",
    "_get_param_names": "sklearn.base.BaseEstimator",
    "_get_per_input_means_stdvs": "botorch.models.transforms.outcome.StratifiedStandardize",
    "_has_transformed_inputs": "botorch.models.model.Model",
    "_interleaved": "gpytorch.distributions.MultitaskMultivariateNormal",
    "_linear_op": "linear_operator.operators.AddedDiagLinearOperator",
    "_lower_triangle_corr": "botorch.models.kernels.positive_index.PositiveIndexKernel",
    "_map_tasks": "botorch.models.MultiTaskGP",
    "_model": "ax.generators.torch.botorch_modular.acquisition.Acquisition",
    "_modules": "torch.nn.Module",
    "_objective_weights": "ax.generators.torch.botorch_modular.acquisition.Acquisition",
    "_optimization_config": "ax.adapter.base.Adapter",
    "_outcome_constraints": "ax.generators.torch.botorch_modular.acquisition.Acquisition",
    "_output_tasks": "botorch.models.MultiTaskGP",
    "_priors": "gpytorch.Module",
    "_revert_to_original_inputs": "botorch.models.model.Model",
    "_set_lower_triangle_corr": "botorch.models.kernels.positive_index.PositiveIndexKernel",
    "_set_transformed_inputs": "botorch.models.model.Model",
    "_split_inputs": "botorch.models.MultiTaskGP",
    "_stratification_idx": "botorch.models.transforms.outcome.StratifiedStandardize",
    "_task_feature": "botorch.models.MultiTaskGP",
    "_variational_distribution": "gpytorch.variational.VariationalStrategy",
}


def tree(path):
    return parse(path.read_text("utf-8"))


@cache
def nodes():
    """All nodes of all files of the package."""
    return [node for path in sorted(PACKAGE.rglob("*.py")) for node in ast.walk(tree(path))]


def imported_names():
    """``library.module.name`` where a part of it is private, outside this package."""
    found = set()
    for node in nodes():
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        else:
            continue
        found |= {
            name
            for name in names
            if not name.startswith(("gpytorch_nkn", "__future__"))
            and any(PRIVATE.fullmatch(part) for part in name.split("."))
        }
    return found


def read_attributes():
    """Private attributes that the package reads and nothing in it binds."""
    read, bound = set(), {"_replace"}  # of named tuples, which is public
    for node in nodes():
        if isinstance(node, ast.Attribute):
            (bound if isinstance(node.ctx, ast.Store) else read).add(node.attr)
        elif isinstance(node, ast.FunctionDef | ast.ClassDef):
            bound.add(node.name)
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            bound.add(node.id)
        elif isinstance(node, ast.arg):
            bound.add(node.arg)
        elif isinstance(node, ast.alias):
            bound.add(node.asname or node.name)
    return {name for name in read - bound if PRIVATE.fullmatch(name)}


def test_imports():
    assert imported_names() == IMPORTED


def test_attributes():
    assert read_attributes() == READ.keys()


def is_there(name, where):
    """Whether the module or class has the attribute, or a part of its text names it."""
    try:
        holders = [importlib.import_module(where)]
    except ModuleNotFoundError:
        module, _, cls = where.rpartition(".")
        holders = getattr(importlib.import_module(module), cls).__mro__[:-1]
    return any(hasattr(one, name) or re.search(rf"\b{name}\b", source_of(one)) for one in holders)


def source_of(holder):
    try:
        return inspect.getsource(holder)
    except (OSError, TypeError):  # compiled
        return ""


def test_attributes_are_where_they_are_said_to_be():
    has_ax = importlib.util.find_spec("ax") is not None
    known = {name: where for name, where in READ.items() if has_ax or not where.startswith("ax.")}
    assert [name for name, where in known.items() if not is_there(name, where)] == []


def test_libraries_have_upper_bounds():
    """What is private may change with the next release."""
    config = ConfigParser()
    config.read(SETUP)
    extras = dict(config["options.extras_require"])
    lines = [*config["options"]["install_requires"].split(), *extras["ax"].split()]
    bounds = {re.split(r"[<>=]", line)[0]: line for line in lines}
    for library in ("ax-platform", "botorch", "gpytorch", "linear_operator"):
        assert ",<" in bounds[library] or re.search(r"<[^,]+,>", bounds[library]), library


# Tests make constants smaller (names in capitals); of the rest they patch these, and no more.
PATCHED = {"_library", "_paths", "_pointer", "_results"}
PATCH = re.compile(r"""(?:setattr|patch\.object)\(\s*(?:[\w.]+,\s*"|"[\w.]*\.)(_[A-Za-z]\w+)\"""")


def test_tests_patch_sizes_and_hardly_anything_else_of_the_package():
    texts = (path.read_text("utf-8") for path in Path(__file__).parent.rglob("*.py"))
    found = {name for text in texts for name in PATCH.findall(text)}
    assert len(found) > 9 and {name for name in found if not name.isupper()} == PATCHED
