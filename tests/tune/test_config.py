"""Configs as values."""

from __future__ import annotations

from kernellab.measure.config import Config


def test_the_order_of_parameters_does_not_make_another_config() -> None:
    one, other = Config.of({"BM": 64, "BK": 32}), Config.of({"BK": 32, "BM": 64})
    assert one == other
    assert len({one, other}) == 1
    assert (one.text, other.text) == (
        "BM=64, BK=32, num_warps=4, num_stages=3",
        "BK=32, BM=64, num_warps=4, num_stages=3",
    )


def test_values_and_options_make_another_config() -> None:
    one = Config.of({"BM": 64, "BK": 32})
    others = [Config.of({"BM": 32, "BK": 64}), Config.of({"BM": 64, "BK": 32, "num_warps": 8}), "BM=64"]
    assert all(one != other for other in others)
