"""Comparisons with other methods, and timings; results/ and RESULTS.md contain the results."""

import os

for _name in ("OMP_NUM_THREADS", "MKL_NUM_THREADS", "OPENBLAS_NUM_THREADS", "NUMBA_NUM_THREADS"):
    os.environ.setdefault(_name, "1")  # before NumPy and torch read them; processes inherit them
