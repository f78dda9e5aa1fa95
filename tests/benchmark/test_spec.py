"""What may be asked of a benchmark, and which points and cases follow."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton

from kernellab.benchmark.spec import BenchmarkSpec, peers_by_name, swept_values, table_value
from kernellab.checking.reference import call_by_name
from kernellab.errors import UsageError
from kernellab.timing.config import Space

NAMES = ("x_ptr", "n", "BLOCK")


def asked(over: dict[str, Any], **more: Any) -> BenchmarkSpec:
    return BenchmarkSpec(None, None, {}, swept_values(over, NAMES, more.get("inputs")), **more)


def test_points_are_all_combinations_that_the_condition_leaves() -> None:
    spec = asked({"n": [1, 2, 3], "BLOCK": [16, 32]}, where="n * BLOCK != 32")
    assert [tuple(point.values()) for point in spec.points] == [(1, 16), (2, 32), (3, 16), (3, 32)]


def test_configs_versions_and_options_are_variants_of_one_case() -> None:
    configs = Space(BLOCK=[16, 32], num_warps=[4])
    spec = asked({"n": [1, 2], "config": configs, "num_warps": [2, 4]})
    assert spec.cases == [{"n": 1}, {"n": 2}]
    assert len(spec.variants({"n": 1})) == 4
    assert all(isinstance(each["config"], triton.Config) for each in spec.variants({"n": 2}))


def test_names_that_only_inputs_takes_may_be_swept() -> None:
    assert asked({"rows": [1], "dtype": ["float16"]}, inputs=lambda rows, dtype: {}).case_names == ["rows", "dtype"]


@pytest.mark.parametrize(
    ("over", "message"),
    [
        ({"rows": [1]}, "over sweeps 'rows', which neither the kernel nor inputs takes"),
        ({"n": 5}, r"over\['n'\] is 5; expected a list of values"),
        ({"n": "abc"}, "expected a list of values"),
        ({}, "expected the values of each swept name"),
        ([1, 2], "expected the values of each swept name"),
        ({"config": [5]}, "expected a triton.Config"),
    ],
)
def test_a_sweep_over_something_else_is_refused(over: Any, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        swept_values(over, NAMES, None)


def test_a_condition_that_leaves_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="leaves no point"):
        _ = asked({"n": [1]}, where="n > 1").points


def test_a_peer_without_a_name_has_its_own() -> None:
    assert list(peers_by_name(torch.softmax)) == ["softmax"]
    assert list(peers_by_name(lambda x: x)) == ["reference"]
    with pytest.raises(UsageError, match=r"versus\['it'\] is 0.5; expected a function"):
        peers_by_name({"it": 0.5})


def test_a_function_is_called_with_what_it_takes() -> None:
    def function(a: int, b: int = 7, **rest: int) -> tuple[int, int, dict[str, int]]:
        return a, b, rest

    assert call_by_name(lambda a: a + 1, {"a": 1, "b": 2}, "it") == 2
    assert call_by_name(function, {"a": 1, "c": 3}, "it") == (1, 7, {"c": 3})
    with pytest.raises(UsageError, match="it takes q; there are a"):
        call_by_name(lambda q: q, {"a": 1}, "it")


def test_values_are_shown_as_tables_hold_them() -> None:
    config = triton.Config({"BLOCK": 64}, num_warps=8)
    assert [table_value(each) for each in (5, "a", torch.float16, config, None)] == [
        5,
        "a",
        "float16",
        "BLOCK=64, num_warps=8, num_stages=3",
        None,
    ]
