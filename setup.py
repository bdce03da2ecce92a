"""The native evaluator of Neural Kernel Networks; all other metadata stands in setup.cfg.

The evaluator is a plain library that ctypes loads: a wheel with it is one for all Pythons on a
platform, and without it (no compiler, or ``GPYTORCH_NKN_PURE=1``) one for all platforms.
"""

import os
import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext

DIRECTORY = "gpytorch_nkn/kernels/evaluation"
SOURCES = sorted(Path(DIRECTORY).glob("cpp/native*.[chi]*"))  # in the order of native.py
VERSION = zlib.crc32(b"".join(path.read_bytes() for path in SOURCES)) & 0x7FFFFFFF
# Not -ffast-math: loading what GCC before 13 makes of it flushes subnormal numbers to zero.
UNIX_FLAGS = [
    "-std=c++17",
    "-O3",
    "-g0",  # Python's own flags ask for debug information
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fopenmp-simd",
    "-fvisibility=hidden",
]


class BuildNative(build_ext):
    """Adds the flags of GCC and Clang where the compiler is one of them."""

    def build_extension(self, ext: Extension) -> None:
        if self.compiler.compiler_type == "unix":
            ext.extra_compile_args = UNIX_FLAGS
        super().build_extension(ext)


class TagWheel(bdist_wheel):
    """Tags a wheel by what is in it; setuptools goes by what was to be in it."""

    def get_tag(self) -> tuple[str, str, str]:
        """Python, ABI and platform, once the package is built."""
        native = any(Path(self.bdist_dir).rglob("_native*")) or any(
            Path(path).is_file() for path in self.get_finalized_command("build_ext").get_outputs()
        )
        return "py3", "none", super().get_tag()[2] if native else "any"


PURE = os.environ.get("GPYTORCH_NKN_PURE") == "1"
setup(
    ext_modules=[]
    if PURE
    else [
        Extension(
            "gpytorch_nkn.kernels.evaluation._native",
            sources=[f"{DIRECTORY}/cpp/native.cpp"],
            depends=[str(path) for path in SOURCES],
            define_macros=[("NKN_VERSION", str(VERSION))],
            language="c++",
            # Without a compiler the package is installed all the same.
            optional=True,
        )
    ],
    cmdclass={"bdist_wheel": TagWheel, "build_ext": BuildNative},
)
