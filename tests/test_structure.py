"""The shape of the package: direction of imports, what an import loads, names."""

import ast
import importlib
import importlib.util
import json
import re
import subprocess
import sys
import warnings
from functools import cache
from pathlib import Path

import pytest

PACKAGE = "gpytorch_nkn"
ROOT = Path(__file__).parents[1] / PACKAGE
FILES = sorted(ROOT.rglob("*.py"))
TESTS = Path(__file__).parent
ARCHITECTURE = ROOT.parent / "ARCHITECTURE.md"


def read_levels(text):
    """Sets of roles, top level first, from the block of ARCHITECTURE.md that is marked levels."""
    (block,) = re.findall(r"```levels\n(.*?)```", text, flags=re.DOTALL)
    return [set(line.split()) for line in block.splitlines()]


# Imports go to a role further down; roles of one level may do so in one direction.
LEVELS = read_levels(ARCHITECTURE.read_text(encoding="utf-8"))
LEVEL = {role: -depth for depth, roles in enumerate(LEVELS) for role in roles}
IMPORT_NOTHING = {"metrics", "datasets", "_devices", "settings"}


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def role_of(name):
    """``gpytorch_nkn.kernels.batch`` is in the role ``kernels``, the package itself in none."""
    return name.split(".")[1] if "." in name else None


parse = cache(ast.parse)


@cache
def package_imports(source, module, is_init=False):
    """Dotted names in the package that the module imports, anywhere in its text."""
    parents = module.split(".") if is_init else module.split(".")[:-1]
    names = []
    for node in ast.walk(parse(source)):
        if isinstance(node, ast.Import):
            names += [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = parents[: len(parents) - node.level + 1] if node.level else []
            base = ".".join([*base, *filter(None, [node.module])])
            names += [f"{base}.{alias.name}" for alias in node.names]
    return sorted({n for n in names if n == PACKAGE or n.startswith(f"{PACKAGE}.")})


def import_faults(sources):
    """What is wrong with the imports in ``{module: (source, is_init)}``, as sentences."""
    faults, sideways = [], {}
    for module, (source, is_init) in sources.items():
        role = role_of(module)
        if role is None:  # the package's own __init__ stands above all roles
            continue
        if role not in LEVEL:
            faults.append(f"{module}: the role {role!r} is on none of the LEVELS of this test")
            continue
        for name in package_imports(source, module, is_init):
            target = role_of(name)
            if target in (role, "__version__"):
                continue
            if target not in LEVEL:
                faults.append(f"{module} imports {name}, which is in no role")
            elif (role in IMPORT_NOTHING and target != "_optional") or LEVEL[target] > LEVEL[role]:
                faults.append(f"{module} imports {name}, but {target} is not below {role}")
            elif LEVEL[target] == LEVEL[role]:
                sideways.setdefault((role, target), f"{module} imports {name}")
    for (role, target), fault in sorted(sideways.items()):
        if (target, role) in sideways:
            faults.append(f"{fault}, and {target} imports {role} too")
    return faults


def public_classes(path):
    body = parse(path.read_text(encoding="utf-8")).body
    return [n for n in body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]


def snake_case(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def isort_order(name):
    """Constants, classes, functions: the order that ruff's RUF022 gives to __all__."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2, name


def test_import_direction():
    sources = {
        module_name(p): (p.read_text(encoding="utf-8"), p.name == "__init__.py") for p in FILES
    }
    assert len(sources) > 5, f"{ROOT} has hardly any modules: {sorted(sources)}"
    assert import_faults(sources) == []


@pytest.mark.parametrize(
    ("module", "source", "expected"),
    [
        ("kernels.a", "from gpytorch_nkn.fit import fit_best_of", "fit is not below kernels"),
        ("kernels.a", "from .. import models", "models is not below kernels"),
        ("kernels.a", "def f():\n    from gpytorch_nkn import cli", "cli is not below kernels"),
        ("kernels.a", "import gpytorch_nkn", "in no role"),
        ("helpers", "import math", "none of the LEVELS"),
    ],
)
def test_import_direction_notices_an_import_that_points_up(module, source, expected):
    (fault,) = import_faults({f"{PACKAGE}.{module}": (source, False)})
    assert expected in fault


def imported_modules(module, path, modules):
    """Modules of the package that the module imports anywhere in its text, and under which name."""
    names = package_imports(path.read_text(encoding="utf-8"), module, path.name == "__init__.py")
    found = set()
    for name in names:  # `from a import b` is the module a.b if there is one and a has no other b
        base, _, attribute = name.rpartition(".")
        is_module = name in modules and attribute not in bound_names(modules.get(base))
        found.add(name if is_module else base)
    return sorted((found & modules.keys()) - {module})


@cache
def bound_names(path):
    """What the imports at the top of a file bind; nothing for None."""
    body = parse(path.read_text(encoding="utf-8")).body if path else []
    imports = [node for node in body if isinstance(node, ast.ImportFrom)]
    return {alias.asname or alias.name for node in imports for alias in node.names}


def folder_of(module, path):
    return module if path.name == "__init__.py" else module.rpartition(".")[0]


def face_faults(modules):
    """Imports of a file inside a folder from outside that folder, as sentences."""
    return [
        f"{module} imports {target}, past the __init__ of {folder_of(target, modules[target])}"
        for module, path in modules.items()
        for target in imported_modules(module, path, modules)
        if modules[target].name != "__init__.py"
        and not f"{folder_of(module, path)}.".startswith(f"{folder_of(target, modules[target])}.")
    ]


def circles(arrows):
    """Nodes from which an arrow leads back to them, sorted."""

    def reachable(start):
        seen, todo = set(), [*arrows.get(start, ())]
        while todo:
            node = todo.pop()
            if node not in seen:
                seen.add(node)
                todo += arrows.get(node, ())
        return seen

    return sorted(node for node in arrows if node in reachable(node))


MODULES = {module_name(path): path for path in FILES}


def test_outside_a_folder_only_its_face_is_imported():
    assert face_faults(MODULES) == []


def test_no_circle_of_files():
    # An __init__ imports its folder: importing it from inside the folder would be a cycle.
    # The package itself imports its public names for type checkers only.
    arrows = {m: imported_modules(m, path, MODULES) for m, path in MODULES.items() if m != PACKAGE}
    assert circles(arrows) == []


def test_no_circle_of_folders():
    arrows = {}
    for module, path in MODULES.items():
        here = folder_of(module, path)
        for target in imported_modules(module, path, MODULES):
            there = folder_of(target, MODULES[target])
            if not (f"{here}.".startswith(f"{there}.") or f"{there}.".startswith(f"{here}.")):
                arrows.setdefault(here, set()).add(there)
    assert arrows and circles(arrows) == []


IMPORTS = f"""
import importlib, json, sys
before = set(sys.modules)
import {PACKAGE} as top
light, listed = sorted(set(sys.modules) - before), dir(top)
import {PACKAGE}.datasets
images = sorted({{"skimage", "PIL"}}.intersection(sys.modules))

import gpytorch, linear_operator, torch

def settings():
    return {{
        f"{{module.__name__}}.{{name}}": {{k: repr(v) for k, v in vars(cls).items() if k[:2] != "__"
            and not callable(v) and not isinstance(v, (classmethod, staticmethod, property))}}
        for module in (gpytorch.settings, linear_operator.settings)
        for name, cls in vars(module).items() if isinstance(cls, type)
    }}

def state():
    return {{"dtype": str(torch.get_default_dtype()), "threads": torch.get_num_threads(),
        "seed": torch.initial_seed(), "random": hash(torch.get_rng_state().numpy().tobytes()),
        "settings": settings()}}

def effects(load):
    before, loaded = state(), set(sys.modules)
    load()
    after = state()
    return {{"loaded": sorted(set(sys.modules) - loaded),
        "changed": [key for key in before if before[key] != after[key]],
        "num_settings": sum(map(len, before["settings"].values()))}}

torch.manual_seed(0)
kernels = effects(lambda: top.NeuralKernelNetwork)

def draw():  # BoTorch's draws load the models
    from botorch.sampling.pathwise.features import gen_kernel_features
    with torch.random.fork_rng():
        kernel = gpytorch.kernels.ScaleKernel(top.NeuralKernelNetwork.pairs(2))
        gen_kernel_features(kernel, num_inputs=2, num_outputs=8)(torch.ones(1, 2))

later = effects(lambda: (draw(), importlib.import_module("{PACKAGE}.plotting")))
try:
    top.NoSuchName
except AttributeError as error:
    message = str(error)
loaded = dict(light=light, kernels=kernels, later=later, images=images)
print(json.dumps(dict(loaded, listed=listed, message=message)))
"""


@pytest.fixture(scope="module")
def imports():
    """What a fresh interpreter loads and changes: with the package, its kernels, then its models.

    The kernels come by a name at the top, after GPyTorch is there.
    """
    command = [sys.executable, "-c", IMPORTS]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


def packages(modules):
    return {name.split(".")[0] for name in modules}


def test_import_is_light_and_leaves_global_state_alone(imports):
    loaded, changed = imports["kernels"]["loaded"], imports["kernels"]["changed"]
    assert {f"{PACKAGE}.layers", f"{PACKAGE}.kernels"} <= set(loaded)
    assert {"botorch", "sklearn", "matplotlib", "statsmodels"}.isdisjoint(packages(loaded))
    assert changed == []


def test_public_names_are_at_the_top_and_loaded_when_they_are_asked_for(imports):
    light, loaded = imports["light"], imports["kernels"]["loaded"]
    heavy = {"torch", "gpytorch", "botorch", "numpy", "scipy", "sklearn", "pandas", "matplotlib"}
    assert heavy.isdisjoint(packages(light)) and not imports["images"]
    assert {name for name in light if name.startswith(PACKAGE)} == {PACKAGE, f"{PACKAGE}.settings"}
    assert f"{PACKAGE}.kernels" in loaded and f"{PACKAGE}.models" not in loaded
    assert imports["message"] == f"module '{PACKAGE}' has no attribute 'NoSuchName'"
    top = importlib.import_module(PACKAGE)
    assert set(top.__all__) <= set(imports["listed"])
    roles = top._PACKAGES
    assert {*roles, "settings", "__version__"} == set(top.__all__)
    for name, role in roles.items():
        init = importlib.import_module(f"{PACKAGE}.{role}")
        assert name in init.__all__ and getattr(top, name) is getattr(init, name)
    for role, ends in (("estimators", ("Classifier", "Regressor", "Forecaster")), ("models", "GP")):
        public = importlib.import_module(f"{PACKAGE}.{role}").__all__
        assert {name for name in public if name.endswith(ends)} <= set(roles)


def test_models_and_figures_load_neither_ax_nor_matplotlib(imports):
    loaded = imports["later"]["loaded"]
    assert {"botorch", f"{PACKAGE}.models", f"{PACKAGE}.plotting"} <= set(loaded)
    loaded += imports["kernels"]["loaded"]
    assert {"ax", "matplotlib"}.isdisjoint(packages(loaded))


def test_changed_settings_would_be_noticed(imports):
    later = imports["later"]  # BoTorch changes GPyTorch's settings when it is imported
    assert later["changed"] == ["settings"] and later["num_settings"] > 30


def all_faults(path, name):
    """What is wrong with the ``__all__`` of the module of that name, as sentences."""
    values = [
        n.value
        for n in parse(path.read_text(encoding="utf-8")).body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    ]
    if len(values) != 1:
        return [f"{path} assigns __all__ {len(values)} times"]
    names = ast.literal_eval(values[0])  # fails on a computed list
    expected = sorted(set(names), key=isort_order)
    faults = [] if names == expected else [f"{path}: __all__ is not {expected}"]
    optional = {"ax", "sktime"} & {path.parent.name, path.stem}
    if all(map(importlib.util.find_spec, optional)):
        module = importlib.import_module(name)
        faults += [f"{path} has no {n}" for n in names if not hasattr(module, n)]
    return faults


def test_all_is_explicit_sorted_and_true():
    modules = {module_name(path): path for path in FILES if path.name != "__main__.py"}
    assert [fault for name, path in modules.items() for fault in all_faults(path, name)] == []


def test_public_classes_have_docstrings():
    classes = [(path, c) for path in FILES for c in public_classes(path)]
    assert [f"{path}: {c.name}" for path, c in classes if not ast.get_docstring(c)] == []


def test_one_public_class_per_file_named_after_it():
    files = [path for path in FILES if path.parent.name in ("kernels", "layers", "network")]
    classes = {path: [c.name for c in public_classes(path)] for path in files}
    assert {path: names for path, names in classes.items() if len(names) > 1} == {}
    faults = [
        f"{path} holds {name}"
        for path, names in classes.items()
        for name in names
        if path.stem not in {snake_case(name), snake_case(name.removesuffix("Kernel"))}
    ]
    assert faults == []


def test_files_and_functions_that_the_architecture_names_exist():
    text = re.sub(r"```.*?```", "", ARCHITECTURE.read_text(encoding="utf-8"), flags=re.DOTALL)
    names = set(re.findall(r"`([\w/.]+)`", text))
    paths = [f"/{p.relative_to(ROOT.parent)}" for p in (*ROOT.rglob("*.*"), *TESTS.rglob("*.py"))]
    files = {name for name in names if re.search(r"\.(py|jinja|mplstyle)$", name)}
    assert {f for f in files if not any(path.endswith(f"/{f}") for path in paths)} == set()
    words = set(re.findall(r"\w+", "".join(p.read_text(encoding="utf-8") for p in FILES)))
    functions = {n.rpartition(".")[2] for n in names if re.fullmatch(r"[\w.]*_\w+", n)} - files
    assert len(files) > 20 and len(functions) > 20 and functions - words == set()


def test_warnings_are_filtered_only_where_a_dependency_leaves_no_other_way():
    """Filters act on all threads."""
    found = {path.name for path in FILES if "catch_warnings" in path.read_text("utf-8")}
    assert found == {"common.py"}  # of the command line, which has one thread


def test_only_warnings_of_the_package_are_errors():
    with pytest.raises(UserWarning, match="ours"):
        warnings.warn_explicit("ours", UserWarning, "a.py", 1, module=f"{PACKAGE}.kernels.a")
    with pytest.warns(UserWarning, match="theirs"):
        warnings.warn_explicit("theirs", UserWarning, "a.py", 1, module="torch.nn")
