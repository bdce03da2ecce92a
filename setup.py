"""The native evaluator of Neural Kernel Networks; all other metadata stands in setup.cfg."""

import zlib
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DIRECTORY = "gpytorch_nkn/kernels/evaluation"
SOURCES = sorted(Path(DIRECTORY).glob("cpp/native*.[chi]*"))  # in the order of native.py
VERSION = zlib.crc32(b"".join(path.read_bytes() for path in SOURCES)) & 0x7FFFFFFF
# Not -ffast-math: loading what GCC before 13 makes of it flushes subnormal numbers to zero.
UNIX_FLAGS = [
    "-std=c++17",
    "-O3",
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


setup(
    ext_modules=[
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
    cmdclass={"build_ext": BuildNative},
)
