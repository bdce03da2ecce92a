"""The native evaluator of Neural Kernel Networks; all other metadata stands in setup.cfg."""

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

DIRECTORY = "gpytorch_nkn/kernels/evaluation"
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
            sources=[f"{DIRECTORY}/native.cpp"],
            depends=[
                f"{DIRECTORY}/native_plan.h",
                f"{DIRECTORY}/native_math.inl",
                f"{DIRECTORY}/native_tile.inl",
            ],
            language="c++",
            # Without a compiler the package is installed all the same.
            optional=True,
        )
    ],
    cmdclass={"build_ext": BuildNative},
)
