"""The order in which configs compile."""

from __future__ import annotations

from kernellab.timing.config import Config
from kernellab.tune.search import longest_first
from tests.tune.fakes import FakeBench, FakeCompiler, config, tune

FEW, MANY = config(64, 8), config(4096, 2)


def test_large_blocks_of_few_threads_come_first_and_deep_pipelines_before_shallow_ones() -> None:
    deep = Config.of({"BLOCK": 64, "num_warps": 8, "num_stages": 4})
    assert longest_first([FEW, config(4096, 8), deep, MANY]) == [MANY, config(4096, 8), deep, FEW]


def test_equals_and_values_that_are_no_sizes_keep_their_order() -> None:
    configs = [Config.of({"KIND": kind, "EVEN": True, "SHIFT": -4}) for kind in ("b", "a", "c")]
    assert longest_first(configs) == configs


def test_what_may_take_longest_compiles_first_and_the_rows_keep_the_order_of_the_list() -> None:
    compiler, bench = FakeCompiler(), FakeBench({FEW: 1.0, MANY: 2.0})
    outcome = tune([FEW, MANY], bench, compiler=compiler, longest_first=True)
    assert compiler.compiled == [MANY, FEW]
    assert list(outcome.rows) == [FEW, MANY]
    assert bench.ready == 1
