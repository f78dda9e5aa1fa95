"""Benchmarks: sweeps over sizes, dtypes, configs and versions, against peers, as one table; and a device's ceilings."""
