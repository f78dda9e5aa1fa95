"""Tuning: search spaces and searches, statistics, the pipeline from configs to a winner, and what it leaves behind.

`Space` and the generators of `workloads` give configs, `grids` the grids that go with them.
"""

from kernellab.measure.config import Config, Space
from kernellab.tune import grids, workloads
from kernellab.tune.search import Search

__all__ = ["Config", "Search", "Space", "grids", "workloads"]
