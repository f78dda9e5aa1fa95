"""Timing of kernels and checks of their outputs, shared by tuning, benchmarks and comparisons."""
