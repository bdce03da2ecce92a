"""Comparisons with other methods, and timings; what they gave is in RESULTS.md."""

__all__: list[str] = []
