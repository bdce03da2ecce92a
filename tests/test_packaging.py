"""What would be published: an sdist, a wheel made from it, and their metadata."""

import os
import re
import shutil
import subprocess
import sys
import tarfile
import zipfile
from configparser import ConfigParser
from email.parser import Parser
from pathlib import Path

import pytest
import yaml

import gpytorch_nkn

ROOT = Path(__file__).parents[1]


def run(*arguments, cwd, **environment):
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=cwd,
        env=os.environ | environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def build(kind, source, target):
    """Path of an archive; the environment's setuptools, as there may be no network."""
    code = f"from setuptools import build_meta as b; print(b.build_{kind}({str(target)!r}))"
    return target / run("-c", code, cwd=source, GPYTORCH_NKN_PURE="1").split()[-1]


@pytest.fixture(scope="module")
def archives(tmp_path_factory):
    """``sdist, wheel``: the wheel is made from what the sdist holds."""
    folder = tmp_path_factory.mktemp("build")
    ignored = shutil.ignore_patterns("__pycache__", "*.so", "*.egg-info")
    shutil.copytree(ROOT / "gpytorch_nkn", folder / "tree" / "gpytorch_nkn", ignore=ignored)
    shutil.copytree(ROOT / "tests", folder / "tree" / "tests", ignore=ignored)
    for path in ROOT.iterdir():
        if path.is_file():
            shutil.copy(path, folder / "tree")
    sdist = build("sdist", folder / "tree", folder)
    with tarfile.open(sdist) as archive:
        archive.extractall(folder / "unpacked", filter="data")
    (source,) = (folder / "unpacked").iterdir()
    return sdist, build("wheel", source, folder)


def test_the_sdist_holds_all_that_is_built_and_nothing_else(archives):
    with tarfile.open(archives[0]) as archive:
        names = {name.partition("/")[2] for name in archive.getnames() if not name.endswith("/")}
    package = {
        path.relative_to(ROOT).as_posix()
        for path in (ROOT / "gpytorch_nkn").rglob("*")
        if path.suffix in {".py", ".cpp", ".h", ".inl", ".jinja", ".mplstyle", ".typed"}
    }
    assert package <= names
    rest = {name for name in names - package if "." in name and "egg-info" not in name}
    assert rest <= {
        *("CHANGELOG.md", "CITATION.cff", "MANIFEST.in", "PKG-INFO", "README.md"),
        *("constraints.txt", "pyproject.toml", "setup.cfg", "setup.py"),
    }
    assert archives[0].stat().st_size < 2_000_000


def test_the_wheel_is_one_for_all_where_nothing_is_compiled(archives):
    assert archives[1].name == f"gpytorch_nkn-{gpytorch_nkn.__version__}-py3-none-any.whl"
    with zipfile.ZipFile(archives[1]) as wheel:
        names = wheel.namelist()
        (of_metadata,) = (name for name in names if name.endswith("/METADATA"))
        metadata = Parser().parsestr(wheel.read(of_metadata).decode())
    assert {name.partition("/")[0] for name in names} == {
        "gpytorch_nkn",
        of_metadata.partition("/")[0],
    }
    assert not [name for name in names if "_native." in name]
    assert {"gpytorch_nkn/py.typed", "gpytorch_nkn/kernels/__init__.py"} <= set(names)
    assert "gpytorch_nkn/interpretation/reporting/page.html.jinja" in names
    assert "gpytorch_nkn/plotting/gpytorch_nkn.mplstyle" in names
    assert metadata["Version"] == gpytorch_nkn.__version__
    assert metadata["License-Expression"] == "MIT"  # PEP 639
    assert {url.partition(",")[0] for url in metadata.get_all("Project-URL")} == {
        *("Repository", "Documentation", "Issues", "Changelog")
    }
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"


# Statements that need a library: the module that is missing, its distribution and its extra.
NEEDS_PANDAS = {
    "import gpytorch_nkn.estimators": ("pandas", "estimators"),
    "import gpytorch_nkn.ax": ("pandas", "estimators"),
    "import gpytorch_nkn.baselines": ("pandas", "estimators"),
    "import gpytorch_nkn.sktime": ("pandas", "estimators"),
    "datasets.read_time_series('any.csv')": ("pandas", "estimators"),
    "datasets.TimeSeries('a', x, x, x > 0).index": ("pandas", "estimators"),
}
NEEDS_OTHERS = {
    "import gpytorch_nkn.ax": ("ax-platform", "ax"),
    "import gpytorch_nkn.sktime": ("sktime", "sktime"),
    "datasets.load_co2()": ("statsmodels", "demo"),
    "datasets.read_image('any.png')": ("pillow", "plot"),
    "gpytorch_nkn.report(gp).to_html()": ("matplotlib", "plot"),
}
NEEDS_DEPENDENCIES = {"import gpytorch_nkn.estimators": ("joblib", None)}


def test_the_wheel_runs_without_pandas_and_errors_name_missing_libraries(archives, tmp_path):
    """Only estimators and series from files need pandas.

    Each set of libraries is missing in a fork of one process, without repository and compiler.
    """
    with zipfile.ZipFile(archives[1]) as wheel:
        wheel.extractall(tmp_path / "site")
    missing = [
        (["pandas"], NEEDS_PANDAS),
        (["ax", "sktime", "statsmodels", "PIL", "matplotlib"], NEEDS_OTHERS),
        (["joblib"], NEEDS_DEPENDENCIES),
    ]
    code = (
        "import os, sys\n"
        "sys.modules['pandas'] = None\n"  # an import raises an ImportError
        "import gpytorch_nkn.bo, gpytorch_nkn.cli, gpytorch_nkn.fit, torch, numpy as np\n"
        "import gpytorch_nkn.grids, gpytorch_nkn.interpretation, gpytorch_nkn.plotting\n"
        "from gpytorch_nkn import datasets, models\n"
        "x, points = np.arange(3.0), torch.rand(9, 1).double()\n"
        "gp = models.NKNSingleTaskGP(points, points)\n"
        "kernel = gpytorch_nkn.NeuralKernelNetwork.time_series().double()\n"
        "assert torch.linalg.eigvalsh(kernel(points).to_dense())[0] > -1e-9\n"
        "print(gpytorch_nkn.__file__, flush=True)\n"
        "del sys.modules['pandas']\n"
    )
    for modules, needs in missing:
        code += f"if os.fork() == 0:\n  sys.modules.update(dict.fromkeys({modules}))\n"
        for act in needs:
            code += f"  try:\n    {act}\n  except ImportError as error:\n    print(error)\n"
        code += "  sys.stdout.flush()\n  os._exit(0)\nos.wait()\n"
    config = ConfigParser()
    config.read(ROOT / "setup.cfg")
    path, *lines = run("-c", code, cwd=tmp_path, PYTHONPATH=str(tmp_path / "site")).splitlines()
    assert path.startswith(str(tmp_path))
    named = [pair for _, needs in missing for pair in needs.values()]
    for line, (name, extra) in zip(lines, named, strict=True):
        if extra is None:  # part of every installation
            assert "pip install" not in line and f"import of {name} halted" in line
            assert name in config["options"]["install_requires"].split()
        else:
            assert f" needs {name}: pip install 'gpytorch_nkn[{extra}]' (" in line
            assert name in config["options.extras_require"][extra]


@pytest.mark.parametrize("path", sorted(ROOT.glob(".github/workflows/*.yml")), ids=lambda p: p.stem)
def test_workflows_run_pinned_actions_without_stored_credentials(path):
    jobs = yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"].values()
    steps = [step for job in jobs for step in job["steps"] if "uses" in step]
    assert steps
    for step in steps:
        assert re.fullmatch(r"[\w-]+/[\w-]+@[0-9a-f]{40}", step["uses"]), step["uses"]
        if step["uses"].startswith("actions/checkout@"):
            assert step["with"]["persist-credentials"] is False


def test_one_version_stands_everywhere():
    version = gpytorch_nkn.__version__
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert citation["version"] == version
    recipe = (ROOT / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f'version: "{version}"' in recipe
    released = re.findall(r"^## \[(.+?)\]", (ROOT / "CHANGELOG.md").read_text(), re.MULTILINE)
    assert next(name for name in released if name != "Unreleased") == version


def test_the_recipe_asks_for_what_the_package_asks_for():
    config = (ROOT / "setup.cfg").read_text(encoding="utf-8")
    wanted = config.partition("install_requires =\n")[2].partition("\n\n")[0].split()
    recipe = yaml.safe_load((ROOT / "conda" / "recipe.yaml").read_text().replace("${{", "<<"))
    asked = [str(line).replace(" ", "") for line in recipe["requirements"]["run"]]
    names = {"torch": "pytorch"}
    for requirement in wanted:
        name, bounds = re.fullmatch(r"([\w-]+)(.*)", requirement).groups()
        assert names.get(name, name) + bounds in asked
