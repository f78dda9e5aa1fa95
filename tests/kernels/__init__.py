"""Kernels of the kind that people write, each with launches whose results torch can check."""
