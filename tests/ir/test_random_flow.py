"""Kernels with random pointer flow: what their runs touch must be among what the analysis reports."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable, Iterator
from itertools import count

import pytest
from hypothesis import HealthCheck, given, settings

from kernellab.ir.effects import effects_of
from tests.ir.conftest import graphs_of, interpreter_command, interpreter_environment
from tests.ir.expected import Fact
from tests.ir.random_kernels import arguments, kernels, loaded
from tests.ir.test_suite import facts_of

Run = Callable[[str], frozenset[Fact]]
_number = count()


@pytest.fixture(scope="module")
def run_touches() -> Iterator[Run]:
    """What the runs of a source touch, worked out by one interpreter process for all examples."""
    with subprocess.Popen(
        interpreter_command("random_kernels"),
        env=interpreter_environment(),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        sent, received = process.stdin, process.stdout

        def run(source: str) -> frozenset[Fact]:
            sent.write(json.dumps(source) + "\n")
            sent.flush()
            return frozenset((kind, name) for kind, name in json.loads(received.readline()))

        yield run
        sent.close()


@pytest.mark.slow
@settings(max_examples=60, deadline=None, derandomize=True, database=None, suppress_health_check=[HealthCheck.too_slow])
@given(source=kernels())
def test_no_touch_of_a_random_kernel_is_missed(
    run_touches: Run, tmp_path_factory: pytest.TempPathFactory, source: str
) -> None:
    touched = run_touches(source)
    kernel = loaded(source, tmp_path_factory.getbasetemp(), f"random_kernel_{next(_number)}")
    for graph in graphs_of(kernel, arguments(3)):
        effects = effects_of(graph)
        assert effects.unknown == ()
        assert touched <= facts_of(effects)
