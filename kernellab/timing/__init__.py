"""Timing of kernels, shared by tuning, benchmarks, comparisons and sliders: launches, benches, the stopwatch."""
