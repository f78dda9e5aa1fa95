"""Benchmarks: sweeps over sizes, dtypes, configs and versions vs peers; baselines; two kernels side by side."""
