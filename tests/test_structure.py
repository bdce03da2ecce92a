"""The shape of the package: direction of imports, what an import loads, names, sizes of files."""

import ast
import importlib
import json
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

PACKAGE = "gpytorch_nkn"
ROOT = Path(__file__).parents[1] / PACKAGE
FILES = sorted(ROOT.rglob("*.py"))
MAX_LINES = 400

# Imports go to a room further down; rooms of one floor may do so in one direction.
FLOORS = [
    {"cli", "__main__"},
    {"ax", "estimators", "interpretation", "grids"},
    {"plotting"},
    {"models"},
    {"bo"},
    {"fit"},
    {"initialization", "baselines"},
    {"mlls"},
    {"kernels"},
    {"layers", "linalg", "support_vectors"},
    {"metrics", "datasets", "settings"},
]
FLOOR = {room: -depth for depth, rooms in enumerate(FLOORS) for room in rooms}
IMPORT_NOTHING = {"metrics", "datasets", "settings"}


def module_name(path):
    parts = path.relative_to(ROOT.parent).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def room_of(name):
    """``gpytorch_nkn.kernels.batch`` is in the room ``kernels``, the package itself in none."""
    return name.split(".")[1] if "." in name else None


def package_imports(source, module, is_init=False):
    """Dotted names in the package that the module imports, anywhere in its text."""
    parents = module.split(".") if is_init else module.split(".")[:-1]
    names = []
    for node in ast.walk(ast.parse(source)):
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
        room = room_of(module)
        if room is None:  # the package's own __init__ stands above all rooms
            continue
        if room not in FLOOR:
            faults.append(f"{module}: the room {room!r} is on none of the FLOORS of this test")
            continue
        for name in package_imports(source, module, is_init):
            target = room_of(name)
            if target in (room, "__version__"):
                continue
            if target not in FLOOR:
                faults.append(f"{module} imports {name}, which is in no room")
            elif room in IMPORT_NOTHING or FLOOR[target] > FLOOR[room]:
                faults.append(f"{module} imports {name}, but {target} is not below {room}")
            elif FLOOR[target] == FLOOR[room]:
                sideways.setdefault((room, target), f"{module} imports {name}")
    for (room, target), fault in sorted(sideways.items()):
        if (target, room) in sideways:
            faults.append(f"{fault}, and {target} imports {room} too")
    return faults


def public_classes(path):
    body = ast.parse(path.read_text(encoding="utf-8")).body
    return [n for n in body if isinstance(n, ast.ClassDef) and not n.name.startswith("_")]


def snake_case(name):
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


def isort_order(name):
    """Constants, classes, functions: the order that ruff's RUF022 gives to __all__."""
    return 0 if name.isupper() else 1 if name[0].isupper() else 2, name


def by_module(*, skip=()):
    files = [path for path in FILES if path.name not in skip]
    return pytest.mark.parametrize("path", files, ids=module_name)


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
        ("kernels.a", "import gpytorch_nkn.models as m", "models is not below kernels"),
        ("kernels.a", "from gpytorch_nkn import models", "models is not below kernels"),
        ("kernels.a", "from ..models import GP", "models is not below kernels"),
        ("kernels.a", "from .. import models", "models is not below kernels"),
        ("kernels.a", "def f():\n    from gpytorch_nkn import cli", "cli is not below kernels"),
        ("metrics", "from gpytorch_nkn.layers import Linear", "layers is not below metrics"),
        ("kernels.a", "from gpytorch_nkn import Linear", "in no room"),
        ("kernels.a", "import gpytorch_nkn", "in no room"),
        ("helpers", "import math", "none of the FLOORS"),
    ],
)
def test_import_direction_notices_an_import_that_points_up(module, source, expected):
    (fault,) = import_faults({f"{PACKAGE}.{module}": (source, False)})
    assert expected in fault


def test_import_direction_notices_an_init_that_points_up():
    sources = {f"{PACKAGE}.kernels": ("from ..models.a import GP\nfrom .b import K", True)}
    assert len(import_faults(sources)) == 1


def test_import_direction_notices_rooms_of_one_floor_that_import_each_other():
    one_way = {f"{PACKAGE}.grids": ("from gpytorch_nkn.estimators import NKNRegressor", False)}
    other_way = {f"{PACKAGE}.estimators.a": ("from gpytorch_nkn.grids import inpaint", False)}
    assert import_faults(one_way) == import_faults(other_way) == []
    assert len(import_faults(one_way | other_way)) == 2


def test_import_direction_allows_what_points_down():
    source = (
        "import torch\nfrom .b import K\nfrom gpytorch_nkn import __version__, kernels, metrics"
    )
    assert import_faults({f"{PACKAGE}.fit.a": (source, False)}) == []


SIDE_EFFECTS = """
import importlib, json, sys
import gpytorch, linear_operator, torch

def settings():
    return {
        f"{module.__name__}.{name}": {k: repr(v) for k, v in vars(cls).items() if k[:2] != "__"
            and not callable(v) and not isinstance(v, (classmethod, staticmethod, property))}
        for module in (gpytorch.settings, linear_operator.settings)
        for name, cls in vars(module).items() if isinstance(cls, type)
    }

def state():
    return {"dtype": str(torch.get_default_dtype()), "threads": torch.get_num_threads(),
        "seed": torch.initial_seed(), "random": hash(torch.get_rng_state().numpy().tobytes()),
        "settings": settings()}

torch.manual_seed(0)
before, loaded = state(), set(sys.modules)
importlib.import_module(sys.argv[1])
after = state()
print(json.dumps({"loaded": sorted(set(sys.modules) - loaded),
    "changed": [key for key in before if before[key] != after[key]],
    "num_settings": sum(map(len, before["settings"].values()))}))
"""


def side_effects(module):
    """What a fresh interpreter with GPyTorch loads and changes when it imports the module."""
    command = [sys.executable, "-c", SIDE_EFFECTS, module]
    run = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert run.returncode == 0, run.stderr
    return json.loads(run.stdout)


@pytest.mark.parametrize("module", [PACKAGE, f"{PACKAGE}.layers", f"{PACKAGE}.kernels"])
def test_import_is_light_and_leaves_global_state_alone(module):
    effects = side_effects(module)
    assert module in effects["loaded"]
    heavy = {"botorch", "sklearn", "matplotlib", "statsmodels"}
    assert heavy.isdisjoint(name.split(".")[0] for name in effects["loaded"])
    assert effects["changed"] == []


def test_changed_settings_would_be_noticed():
    effects = side_effects("botorch")  # it changes GPyTorch's settings when it is imported
    assert effects["changed"] == ["settings"] and effects["num_settings"] > 30


@by_module(skip={"__main__.py"})
def test_all_is_explicit_sorted_and_true(path):
    if path == ROOT / "ax.py":
        pytest.importorskip("ax", reason="needs ax-platform")
    body = ast.parse(path.read_text(encoding="utf-8")).body
    values = [
        n.value
        for n in body
        if isinstance(n, ast.Assign) and ast.unparse(n.targets[0]) == "__all__"
    ]
    assert len(values) == 1, f"{path} must assign __all__ once"
    names = ast.literal_eval(values[0])  # fails on a computed list
    assert names == sorted(set(names), key=isort_order)
    module = importlib.import_module(module_name(path))
    assert [name for name in names if not hasattr(module, name)] == []


@by_module()
def test_public_classes_have_docstrings_and_files_are_short(path):
    assert [c.name for c in public_classes(path) if not ast.get_docstring(c)] == []
    lines = len(path.read_text(encoding="utf-8").splitlines())
    assert lines <= MAX_LINES, f"{path.name} has {lines} lines, more than {MAX_LINES}"


@pytest.mark.parametrize(
    "path", [p for p in FILES if p.parent.name in ("kernels", "layers")], ids=module_name
)
def test_one_public_class_per_file_named_after_it(path):
    names = [c.name for c in public_classes(path)]
    assert len(names) <= 1
    for name in names:
        assert path.stem in {snake_case(name), snake_case(name.removesuffix("Kernel"))}


def test_snake_case_keeps_acronyms_together():
    names = ["NKNSingleTaskGP", "RBFKernel", "Linear", "KroneckerGridGP"]
    expected = ["nkn_single_task_gp", "rbf_kernel", "linear", "kronecker_grid_gp"]
    assert [snake_case(name) for name in names] == expected


def test_only_warnings_of_the_package_are_errors():
    with pytest.raises(UserWarning, match="ours"):
        warnings.warn_explicit("ours", UserWarning, "a.py", 1, module=f"{PACKAGE}.kernels.a")
    with pytest.warns(UserWarning, match="theirs"):
        warnings.warn_explicit("theirs", UserWarning, "a.py", 1, module="torch.nn")
