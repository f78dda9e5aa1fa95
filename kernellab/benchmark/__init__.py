"""Benchmarks: sweeps over sizes, dtypes, configs and versions beside peers; baselines; two kernels side by side."""
