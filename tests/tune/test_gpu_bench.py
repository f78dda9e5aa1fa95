"""What a bench is asked and how its answers become rows, without a GPU."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kernellab.errors import LaunchError, OutOfBounds, RunError
from kernellab.gpu.bench_jobs import Timing
from kernellab.gpu.flight import Damage
from kernellab.ir.effects import Access, Effects, Site, UnknownEffect
from kernellab.ir.graph import Location
from kernellab.packed import DescriptorSpec, ScalarSpec, TensorSpec, TupleSpec
from kernellab.tune.bench import Candidate
from kernellab.tune.bench_kernels import require_good, touched, views_of
from tests.tune.fakes import compiled, config

HERE = Location(None, None)
VIEW = TensorSpec(0, 0, (4,), (1,), "float32", 4)
OTHER = TensorSpec(1, 0, (4,), (1,), "float32", 4)
CANDIDATE = Candidate(0, config(64), compiled())


def site(argument: str, kind: Access) -> Site:
    return Site(argument, kind, "tt.store", 0, HERE, masked=False, conditional=False)


def test_an_atomic_reads_and_writes() -> None:
    effects = Effects(("x", "y"), (site("x", Access.READ), site("y", Access.ATOMIC)))
    assert touched(effects) == (frozenset({"y"}), frozenset({"x", "y"}))


def test_an_unknown_effect_touches_everything() -> None:
    unknown = UnknownEffect(None, "tt.mystery", 0, HERE, "not in the tables")
    everything = frozenset({"x", "y"})
    assert touched(Effects(("x", "y"), (), (unknown,))) == (everything, everything)


def test_views_have_the_names_that_effects_give_them() -> None:
    descriptor = DescriptorSpec(OTHER, (4,), (1,), (4,), "zero")
    assert views_of("x", VIEW) == [("x", VIEW)]
    assert views_of("d", descriptor) == [("d", OTHER)]
    assert views_of("t", TupleSpec((ScalarSpec(1), VIEW))) == [("t[1]", VIEW)]
    assert views_of("n", ScalarSpec(3)) == []


def test_a_fault_names_kernel_and_config() -> None:
    fault = Timing(fault="CUDA error: an illegal memory access was encountered\nmore")
    with pytest.raises(RunError, match=r"copy \(BLOCK=64.*\) failed on the GPU: an illegal memory access"):
        require_good(fault, "copy", CANDIDATE)


def test_a_refused_launch_is_no_fault() -> None:
    with pytest.raises(LaunchError, match="was refused: out of resource"):
        require_good(Timing(refusal="out of resource: threads"), "copy", CANDIDATE)


def test_a_good_answer_passes() -> None:
    require_good(Timing((1.0,)), "copy", CANDIDATE)


def test_a_write_out_of_bounds_names_the_argument_and_how_far() -> None:
    effects = Effects(("x", "y"), (site("y", Access.WRITE),))
    candidate = Candidate(0, config(64), replace(compiled(), effects=effects))
    damaged = Timing(damages=(Damage(after=1, before=None, past_end_bytes=0, ahead_bytes=99, count=8),))
    with pytest.raises(OutOfBounds, match=r"copy \(BLOCK=64.*\) wrote out of bounds: 8 bytes beyond the end of y"):
        require_good(damaged, "copy", candidate, {0: ["x"], 1: ["y"]})
