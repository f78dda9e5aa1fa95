"""A bench that is made when it is first asked for something."""

from __future__ import annotations

import pytest

from kernellab.errors import LaunchError, UsageError
from kernellab.measure.implementations import Candidate
from kernellab.tune.deferred import DeferredBench
from tests.tune.fakes import FakeBench, compiled, config

CANDIDATE = Candidate(0, config(64), compiled())


def test_nothing_is_made_where_nothing_is_measured() -> None:
    made: list[FakeBench] = []
    DeferredBench(lambda: made.append(FakeBench({})) or made[-1]).close()  # type: ignore[func-returns-value]
    assert made == []


def test_one_that_cannot_be_made_for_want_of_memory_is_the_fault_of_no_config() -> None:
    def make() -> FakeBench:
        raise RuntimeError("CUDA out of memory. Tried to allocate 2.00 GiB.\nmore")

    bench = DeferredBench(make)
    for asked in (bench.get_ready, lambda: bench.measure(CANDIDATE, 3, None)):
        with pytest.raises(
            UsageError, match=r"CUDA out of memory\. Tried to allocate 2.00 GiB; free memory there"
        ) as raised:
            asked()
        assert not isinstance(raised.value, LaunchError)  # which would be the row of a config


def test_it_is_made_once_and_closed() -> None:
    made: list[FakeBench] = []

    def make() -> FakeBench:
        made.append(FakeBench({CANDIDATE.config: 1.0}))
        return made[-1]

    bench = DeferredBench(make)
    bench.get_ready()
    assert bench.measure(CANDIDATE, 3, None).times_ms
    assert len(bench.interleave([CANDIDATE], 5)[0]) == 5
    assert len(bench.warm([CANDIDATE], 2)) == 1
    bench.close()
    assert [(each.ready, each.closed) for each in made] == [(1, True)]
