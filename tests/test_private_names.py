"""Names that are private to other libraries and used here: each is known, and there."""

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import textwrap
from configparser import ConfigParser
from functools import cache
from pathlib import Path

import pytest

import gpytorch_nkn
from tests.test_structure import parse

PACKAGE = Path(gpytorch_nkn.__file__).parent
SETUP = PACKAGE.parent / "setup.cfg"
PRIVATE = re.compile(r"_[A-Za-z]\w*")
LIBRARIES = ("gpytorch", "botorch", "linear_operator", "sklearn", "torch", "ax")

IMPORTED = {
    "botorch.fit._fit_fallback",
    "botorch.fit._fit_fallback_approximate",
    "botorch.utils.types._DefaultType",
    "torch.utils._python_dispatch._get_current_dispatch_mode",
}
# Attributes that are read from objects of theirs, and what has them.
READ = {
    "_BatchNorm": "torch.nn.modules.batchnorm",
    "_C": "torch",
    "_DropoutNd": "torch.nn.modules.dropout",
    "_InstanceNorm": "torch.nn.modules.instancenorm",
    "_SubParsersAction": "argparse",
    "_add_other_terms": "gpytorch.mlls.ExactMarginalLogLikelihood",
    "_added_loss_terms": "gpytorch.Module",
    "_botorch_acqf_class": "ax.generators.torch.botorch_modular.generator.BoTorchGenerator",
    "_constraints": "gpytorch.Module",
    "_current_level": "torch.autograd.forward_ad",
    "_default_sample_shape": "botorch.acquisition.MCAcquisitionFunction",
    "_diag_tensor": "linear_operator.operators.AddedDiagLinearOperator",
    "_experiment": "ax.api.client.Client",
    "_forward_hooks": "torch.nn.Module",
    "_forward_pre_hooks": "torch.nn.Module",
    "_functorch": "torch._C",
    "_generation_strategy": "ax.api.client.Client",
    "_get_param_names": "sklearn.base.BaseEstimator",
    "_has_transformed_inputs": "botorch.models.model.Model",
    "_linear_op": "linear_operator.operators.AddedDiagLinearOperator",
    "_memoize_cache": "gpytorch.utils.memoize",
    "_min_stdv": "botorch.models.transforms.outcome.Standardize",
    "_model": "ax.generators.torch.botorch_modular.acquisition.Acquisition",
    "_objective_weights": "ax.generators.torch.botorch_modular.acquisition.Acquisition",
    "_optimization_config": "ax.adapter.base.Adapter",
    "_outcome_constraints": "ax.generators.torch.botorch_modular.acquisition.Acquisition",
    "_revert_to_original_inputs": "botorch.models.model.Model",
    "_set_transformed_inputs": "botorch.models.model.Model",
    "_task_feature": "botorch.models.MultiTaskGP",
    "_variational_distribution": "gpytorch.variational.VariationalStrategy",
}
# Members of their classes that classes of ours read from themselves or define anew.
INHERITED = {
    "botorch: _apply_noise",
    "botorch: _aug_batch_shape",
    "botorch: _has_transformed_inputs",
    "botorch: _input_batch_shape",
    "botorch: _is_ensemble",
    "botorch: _is_linear",
    "botorch: _num_outputs",
    "botorch: _original_train_inputs",
    "botorch: _revert_to_original_inputs",
    "botorch: _set_transformed_inputs",
    "botorch: _subset_batch_dict",
    "gpytorch: _add_other_terms",
    "gpytorch: _apply",
    "gpytorch: _batch_shape",
    "gpytorch: _clear_cache",
    "gpytorch: _exact_predictive_covar_inv_quad_form_root",
    "gpytorch: _get_test_prior_mean_and_covariances",
    "gpytorch: _get_train_prior_distribution",
    "gpytorch: _load_from_state_dict",
    "gpytorch: _transform",
    "gpytorch: _variational_distribution",
    "linear_operator: _diagonal",
    "linear_operator: _expand_batch",
    "linear_operator: _get_indices",
    "linear_operator: _getitem",
    "linear_operator: _matmul",
    "linear_operator: _permute_batch",
    "linear_operator: _set_requires_grad",
    "linear_operator: _size",
    "linear_operator: _sum_batch",
    "linear_operator: _transpose_nonbatch",
    "linear_operator: _unsqueeze_batch",
    "sklearn: _get_param_names",
    "torch: _apply",
    "torch: _load_from_state_dict",
}


def package_modules():
    for info in pkgutil.walk_packages(gpytorch_nkn.__path__, "gpytorch_nkn."):
        optional = {"ax", "sktime"} & set(info.name.split("."))
        if not (optional or info.name.endswith(("__main__", "_native"))):
            yield importlib.import_module(info.name)


def tree(path):
    return parse(path.read_text("utf-8"))


@cache
def nodes():
    """All nodes of all files of the package."""
    return [node for path in sorted(PACKAGE.rglob("*.py")) for node in ast.walk(tree(path))]


@cache
def class_texts(path):
    """Source of every class of a file; inspect.getsource reads the file again for each."""
    lines = path.read_text("utf-8").splitlines(keepends=True)
    classes = [node for node in ast.walk(tree(path)) if isinstance(node, ast.ClassDef)]
    return {node.name: "".join(lines[node.lineno - 1 : node.end_lineno]) for node in classes}


@cache
def text_of(cls):
    """Source of a class, empty where it is compiled."""
    module = sys.modules[cls.__module__]
    is_python = (getattr(module, "__file__", None) or "").endswith(".py")
    return class_texts(Path(module.__file__)).get(cls.__name__, "") if is_python else ""


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


def own_names(cls):
    """Private members that the body of a class of ours defines, or reads from itself."""
    (node,) = ast.parse(textwrap.dedent(text_of(cls))).body
    names = {n.name for n in node.body if isinstance(n, ast.FunctionDef)}
    names |= {ast.unparse(t) for n in node.body if isinstance(n, ast.Assign) for t in n.targets}
    names |= {ast.unparse(n.target) for n in node.body if isinstance(n, ast.AnnAssign)}
    for child in ast.walk(node):
        if isinstance(child, ast.Attribute) and ast.unparse(child.value) in ("self", "super()"):
            names.add(child.attr)
    return {name for name in names if PRIVATE.fullmatch(name)}


@cache
def members(cls):
    """Private members of a class of a library: of its body, and what it sets on itself."""
    assigned = re.findall(r"self\.(_[A-Za-z]\w*)", text_of(cls))
    return {name for name in [*vars(cls), *assigned] if PRIVATE.fullmatch(name)}


def inherited_names():
    found = set()
    classes = {
        cls
        for module in package_modules()
        for _, cls in inspect.getmembers(module, inspect.isclass)
        if cls.__module__.startswith("gpytorch_nkn.")
    }
    for cls in classes:
        names = own_names(cls)
        for base in cls.__mro__:
            library = base.__module__.split(".")[0]
            if library in LIBRARIES:
                found |= {f"{library}: {name}" for name in names & members(base)}
    return found


def test_imports():
    assert imported_names() == IMPORTED


def test_attributes():
    assert read_attributes() == READ.keys()


def test_members_of_base_classes():
    assert inherited_names() == INHERITED


def is_there(name, where):
    """Whether the module or class has the attribute, or a part of its text names it."""
    try:
        holder = importlib.import_module(where)
        source = Path(inspect.getfile(holder)).read_text("utf-8") if where != "torch._C" else ""
    except ModuleNotFoundError:
        module, _, cls = where.rpartition(".")
        holder = getattr(importlib.import_module(module), cls)
        bases = [base for base in holder.__mro__ if base is not object]
        source = "".join(map(text_of, bases))
    return hasattr(holder, name) or re.search(rf"\b{name}\b", source) is not None


def test_attributes_are_where_they_are_said_to_be():
    known = {name: where for name, where in READ.items() if not where.startswith("ax.")}
    assert [name for name, where in known.items() if not is_there(name, where)] == []


def test_attributes_of_ax_are_where_they_are_said_to_be():
    pytest.importorskip("ax", reason="needs ax-platform")
    known = {name: where for name, where in READ.items() if where.startswith("ax.")}
    assert known and [name for name, where in known.items() if not is_there(name, where)] == []


def test_libraries_have_upper_bounds():
    """What is private may change with the next release."""
    config = ConfigParser()
    config.read(SETUP)
    extras = dict(config["options.extras_require"])
    lines = [*config["options"]["install_requires"].split(), *extras["ax"].split()]
    bounds = {re.split(r"[<>=]", line)[0]: line for line in lines}
    for library in (
        "ax-platform",
        "botorch",
        "gpytorch",
        "linear_operator",
    ):
        assert ",<" in bounds[library] or re.search(r"<[^,]+,>", bounds[library]), library
