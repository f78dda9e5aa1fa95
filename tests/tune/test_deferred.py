"""A bench that is made when it is first asked for something."""

from __future__ import annotations

from kernellab.tune.bench import Candidate
from kernellab.tune.deferred import DeferredBench
from tests.tune.fakes import FakeBench, compiled, config

CANDIDATE = Candidate(0, config(64), compiled())


def test_nothing_is_made_where_nothing_is_measured() -> None:
    made: list[FakeBench] = []
    DeferredBench(lambda: made.append(FakeBench({})) or made[-1]).close()  # type: ignore[func-returns-value]
    assert made == []


def test_it_is_made_once_and_closed() -> None:
    made: list[FakeBench] = []

    def make() -> FakeBench:
        made.append(FakeBench({CANDIDATE.config: 1.0}))
        return made[-1]

    bench = DeferredBench(make)
    assert bench.measure(CANDIDATE, 3, None).times_ms
    assert len(bench.interleave([CANDIDATE], 5)[0]) == 5
    assert len(bench.warm([CANDIDATE], 2)) == 1
    bench.close()
    assert [each.closed for each in made] == [True]
