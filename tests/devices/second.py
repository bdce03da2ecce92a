"""A second device without a GPU (second.cpp): compiled on its first use, named ``second``."""

from __future__ import annotations

import contextlib
import hashlib
import subprocess
import sys
import tempfile
import types
from pathlib import Path

import torch

__all__ = ["load"]

SOURCE = Path(__file__).with_name("second.cpp")


def load() -> None:
    """Compile (a minute; kept for later runs) and register the device."""
    if hasattr(torch, "second"):
        return
    torch.ops.load_library(str(_compiled()))
    torch.utils.rename_privateuse1_backend("second")
    torch._register_device_module("second", _module())
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)


def _compiled() -> Path:
    from torch.utils.cpp_extension import include_paths, library_paths

    key = hashlib.sha256(SOURCE.read_bytes() + torch.__version__.encode()).hexdigest()[:16]
    found = Path(tempfile.gettempdir()) / f"gpytorch_nkn_second_{key}.so"
    if not found.exists():
        made = found.with_suffix(f".{id(found)}")
        command = ["g++", "-std=c++20", "-O1", "-fPIC", "-shared", str(SOURCE), "-o", str(made)]
        command += [f"-D_GLIBCXX_USE_CXX11_ABI={int(torch._C._GLIBCXX_USE_CXX11_ABI)}"]
        command += [f"-I{path}" for path in include_paths()]
        command += [f"-L{path}" for path in library_paths()]
        command += ["-lc10", "-ltorch", "-ltorch_cpu"]
        print(f"Compiling {SOURCE.name}: about a minute.", file=sys.stderr)
        subprocess.run(command, check=True)
        made.replace(found)  # whole, also for another process
    return found


def _module() -> types.ModuleType:
    """``torch.second``: the module that PyTorch requires of a device."""
    ops = torch.ops.gpytorch_nkn_second
    module = types.ModuleType("torch.second")
    for name, function in {
        "is_available": lambda: True,
        "is_initialized": lambda: True,
        "device_count": lambda: 1,
        "current_device": lambda: 0,
        "device": lambda device: contextlib.nullcontext(),
        "synchronize": lambda device=None: None,
        "manual_seed": ops.seed,
        "manual_seed_all": ops.seed,
        "get_rng_state": lambda device=None: ops.rng_state(),
        "set_rng_state": lambda state, device=None: ops.set_rng_state(state),
        "get_amp_supported_dtype": lambda: [torch.float16],
        "_is_in_bad_fork": lambda: False,
        "_lazy_init": lambda: None,
    }.items():
        setattr(module, name, function)
    return module
