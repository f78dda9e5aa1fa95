"""Launches on a GPU: exactly once, on the right stream, in graphs, with hooks, descriptors and tuners."""

from __future__ import annotations

import random
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton import knobs
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from kernellab.errors import CheckFailed, LaunchError, OutOfBounds
from kernellab.gpu.trial import GpuTrials
from tests.gpu import bad_kernels as bad
from tests.kernels.cases import all_cases
from tests.labs import lab_fixture
from tests.launch.test_checks import log_kernel

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]
N = 1000
lab = lab_fixture(open_lab=kernellab.Lab, on_disk=True)


@triton.jit
def increment(x_ptr, n, step, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) + step, mask=offsets < n)


@triton.jit
def counted(x_ptr, BLOCK: tl.constexpr):
    tl.atomic_add(x_ptr + tl.arange(0, BLOCK), 1.0)


@triton.jit
def shifted_tile(source_desc, target_desc, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    tile = source_desc.load([tl.program_id(0) * ROWS, 0])
    target_desc.store([tl.program_id(0) * ROWS, 0], tile + 1)


@triton.jit
def made_descriptor(source_ptr, target_ptr, M, ROWS: tl.constexpr, COLUMNS: tl.constexpr):
    source = tl.make_tensor_descriptor(source_ptr, [M, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
    target = tl.make_tensor_descriptor(target_ptr, [M, COLUMNS], [COLUMNS, 1], [ROWS, COLUMNS])
    target.store([tl.program_id(0) * ROWS, 0], source.load([tl.program_id(0) * ROWS, 0]) * 2)


@triton.jit
def sum_of_pair(pair, out_ptr, BLOCK: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(pair[0] + offsets) + tl.load(pair[1] + offsets))


CONFIGS = [triton.Config({"BLOCK": 128}), triton.Config({"BLOCK": 256}, num_warps=8)]
tuned_copy = triton.autotune(configs=CONFIGS, key=["n"])(bad.copy_all)


def cells(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(N, meta["BLOCK"]),)


def test_every_launch_happens_exactly_once(lab: kernellab.Lab) -> None:
    x = torch.zeros(N, device="cuda")
    bound = lab.bind(increment)
    for count in range(1, 6):
        bound[cells](x, N, 1, BLOCK=128)
        assert torch.equal(x, torch.full_like(x, count))


def test_a_first_launch_through_a_view_changes_the_view_alone(lab: kernellab.Lab) -> None:
    memory = torch.zeros(4 * N, device="cuda")
    lab.bind(increment)[cells](memory[3 : 3 + N], N, 2, BLOCK=256)
    assert memory.sum().item() == 2 * N
    assert memory[3 : 3 + N].eq(2).all()


def test_two_views_of_one_storage_stay_together_in_the_trial(lab: kernellab.Lab) -> None:
    memory = torch.ones(2048, device="cuda")
    lab.bind(bad.copy_all)[(8,)](memory[:1024], memory[1024:], 1024, BLOCK=128)
    assert memory.eq(1).all()


def test_known_launches_bypass_the_lab(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(increment)
    for _ in range(3):
        bound[cells](x, N, 3, BLOCK=128)

    def refuse(*given: Any) -> None:
        raise AssertionError("the slow way was taken")

    monkeypatch.setattr(type(lab.launches), "launch", refuse)
    handle = bound[cells](x, N, 3, BLOCK=128)
    assert x.eq(12).all()
    assert type(handle).__name__ == "CompiledKernel"


def test_500_random_launches_copy_what_they_are_given(lab: kernellab.Lab) -> None:
    chance, bound = random.Random(3), lab.bind(bad.copy_all)
    sources = [torch.arange(2048, device="cuda").to(dtype) for dtype in (torch.float32, torch.float16)]
    for _ in range(500):
        shift, n = chance.choice((0, 1, 16)), chance.choice((512, 1000, 1008, 999))
        source = chance.choice(sources)[shift : shift + 1024]
        out = torch.zeros_like(source)
        bound[(8,)](source, out, n, BLOCK=128)
        assert torch.equal(out[:n], source[:n])
        assert not out[n:].any()


def test_a_cpu_tensor_after_known_launches_is_named(lab: kernellab.Lab) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(increment)
    for _ in range(4):
        bound[cells](x, N, 3, BLOCK=128)
    with pytest.raises(LaunchError, match=r"x_ptr of increment is on the CPU"):
        bound[cells](torch.zeros(N), N, 3, BLOCK=128)
    bound[cells](x, N, 3, BLOCK=128)
    assert x.eq(15).all()


def test_launches_go_to_the_current_stream(lab: kernellab.Lab) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(increment)
    for _ in range(3):
        bound[cells](x, N, 4, BLOCK=128)
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        torch.cuda._sleep(10_000_000)
        bound[cells](x, N, 4, BLOCK=128)
        marked = torch.cuda.Event()
        marked.record()
    assert not marked.query()
    side.synchronize()
    assert x.eq(16).all()


@pytest.mark.parametrize("is_known", [True, False])
def test_launches_can_be_captured_into_a_graph(lab: kernellab.Lab, is_known: bool) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(increment)
    step = 5 if is_known else 7
    block = 128 if is_known else 512
    if is_known:
        for _ in range(4):
            bound[cells](x, N, step, BLOCK=block)
    else:
        bound.warmup(x, N, step, BLOCK=block, grid=(1,)).run  # noqa: B018 - loads, which a capture forbids
    x.zero_()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound[cells](x, N, step, BLOCK=block)
    assert not x.any()
    graph.replay()
    graph.replay()
    assert x.eq(2 * step).all()


def test_launch_hooks_see_known_launches(lab: kernellab.Lab) -> None:
    x, bound, seen = torch.zeros(N, device="cuda"), lab.bind(increment), []
    for _ in range(3):
        bound[cells](x, N, 6, BLOCK=128)

    def note(info: Any) -> None:
        seen.append(info.get()["name"])

    knobs.runtime.launch_enter_hook.add(note)
    try:
        bound[cells](x, N, 6, BLOCK=128)
    finally:
        knobs.runtime.launch_enter_hook.remove(note)
    assert seen == ["increment"]
    assert x.eq(24).all()


def test_the_profiler_names_the_kernel(lab: kernellab.Lab) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(increment)
    for _ in range(3):
        bound[cells](x, N, 8, BLOCK=128)
    with torch.profiler.profile(acc_events=True) as profile:
        bound[cells](x, N, 8, BLOCK=128)
        torch.cuda.synchronize()
    assert "increment" in {event.key for event in profile.key_averages()}


def test_descriptors_of_the_host_launch(lab: kernellab.Lab) -> None:
    source = torch.rand(64, 32, device="cuda")
    for _ in range(4):
        target = torch.zeros_like(source)
        descriptors = (TensorDescriptor.from_tensor(tensor, [16, 32]) for tensor in (source, target))
        lab.bind(shifted_tile)[(4,)](*descriptors, ROWS=16, COLUMNS=32)
        torch.testing.assert_close(target, source + 1)


def test_descriptors_made_on_the_device_launch(lab: kernellab.Lab) -> None:
    triton.set_allocator(lambda size, align, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    source = torch.rand(64, 32, device="cuda")
    for _ in range(4):
        target = torch.zeros_like(source)
        lab.bind(made_descriptor)[(4,)](source, target, 64, ROWS=16, COLUMNS=32)
        torch.testing.assert_close(target, source * 2)


def test_tuples_and_parameters_launch(lab: kernellab.Lab) -> None:
    weight = torch.nn.Parameter(torch.rand(256, device="cuda"))
    x = torch.rand(256, device="cuda")
    for _ in range(4):
        out = torch.zeros(256, device="cuda")
        lab.bind(sum_of_pair)[(1,)]((x, weight), out, BLOCK=256)
        torch.testing.assert_close(out, x + weight)


def test_a_tuned_kernel_launches_its_config(lab: kernellab.Lab) -> None:
    bound, x = lab.bind(tuned_copy), torch.rand(N, device="cuda")
    for _ in range(5):
        out = torch.zeros(N, device="cuda")
        bound[cells](x, out, N)
        assert torch.equal(out, x)
    assert bound.best_config in CONFIGS


def test_options_of_a_launch_override_the_configs_and_are_tuned_for_themselves(lab: kernellab.Lab) -> None:
    bound, x = lab.bind(tuned_copy), torch.rand(N, device="cuda")
    for options in ({"num_warps": 2}, {}, {"num_warps": 1, "num_stages": 2}) * 3:
        out = torch.zeros(N, device="cuda")
        handle = bound[cells](x, out, N, **options)
        assert torch.equal(out, x)
        assert bound.best_config.kwargs["BLOCK"] in {128, 256}
        assert handle.metadata.num_warps == options.get("num_warps", bound.best_config.num_warps)


def test_pinned_memory_launches_in_this_process_and_the_run_says_so(lab: kernellab.Lab) -> None:
    x, out = torch.rand(N).pin_memory(), torch.zeros(N, device="cuda")
    run = lab.run(bad.copy_all, cells, x, out, N, BLOCK=64)
    assert torch.equal(out.cpu(), x)
    assert run.notes == ("the first launch ran in this process: x_ptr lies on cpu",)


def test_isolation_can_be_left_out(lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(GpuTrials, "launch", None)
    x, out = torch.rand(N, device="cuda"), torch.zeros(N, device="cuda")
    with lab.launches.recording(isolate=False):
        lab.bind(bad.copy_all)[cells](x, out, N, BLOCK=32)
    assert torch.equal(out, x)


def test_what_the_kernel_prints_comes_back(lab: kernellab.Lab) -> None:
    @triton.jit
    def speaking(x_ptr):
        tl.device_print("value", tl.load(x_ptr))

    run = lab.run(speaking, (1,), torch.full((1,), 42.0, device="cuda"))
    assert "value: 42" in run.output


def test_atomics_are_counted_once(lab: kernellab.Lab) -> None:
    x = torch.zeros(128, device="cuda")
    run = lab.run(counted, (10,), x, BLOCK=128)
    assert x.eq(10).all()
    assert run.changed == {"x_ptr": 128}


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_every_gpu_launches_on_its_own(lab: kernellab.Lab) -> None:
    case = all_cases()["softmax-float32"]
    kernel = lab.bind(case.kernel)
    for index in (0, 1, 0, 1):
        with torch.cuda.device(index):
            arguments = case.fresh_arguments(f"cuda:{index}")
            kernel[case.grid](**arguments, **case.meta)
            case.assert_as_expected(arguments)


FACTOR = tl.constexpr(2.0)


@triton.jit
def by_factor(x_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x_ptr + offsets, FACTOR, mask=offsets < n)


def test_a_known_launch_that_writes_out_of_bounds_is_found_where_that_is_checked(lab: kernellab.Lab) -> None:
    x, bound = torch.zeros(128, device="cuda"), lab.bind(by_factor)
    for _ in range(3):
        bound[(1,)](x, 128, BLOCK=128)
    x.zero_()
    with lab.checking(bounds=True), pytest.raises(OutOfBounds):
        bound[(2,)](x, 256, BLOCK=128)
    assert not x.any(), "the launch that failed its trial has not happened"
    with lab.checking(bounds=True):
        bound[(1,)](x, 128, BLOCK=128)
    assert x.eq(2).all()


@pytest.mark.parametrize("known", [False, True])
def test_nan_is_found_on_a_gpu(lab: kernellab.Lab, known: bool) -> None:
    kernel, x, out = lab.bind(log_kernel), -torch.ones(4, device="cuda"), torch.zeros(4, device="cuda")
    for _ in range(3 * known):
        kernel[(1,)](x, out, 4, BLOCK=4)
    with lab.checking(), pytest.raises(CheckFailed, match="log_kernel made 4 of 4"):
        kernel[(1,)](x, out, 4, BLOCK=4)


@pytest.mark.filterwarnings("ignore:.*Profiler clears events:UserWarning")
def test_marks_are_there_on_a_gpu_where_that_is_asked_for(lab: kernellab.Lab) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(increment)
    for _ in range(3):
        bound[cells](x, N, 1, BLOCK=128)

    def marks() -> int:
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
            bound[cells](x, N, 1, BLOCK=128)
        return sum(event.name == "increment" for event in seen.events())

    assert marks() == 0
    with lab.marking():
        assert marks() == 1


def test_a_known_launch_notices_another_value_and_is_kept_as_that_version(
    lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(by_factor)
    lab.kernels.add(bound)
    for value in (2.0, 5.0, 2.0):
        monkeypatch.setitem(globals(), "FACTOR", tl.constexpr(value))
        for _ in range(4):
            bound[cells](x, N, BLOCK=128)
        assert x.eq(value).all()
        assert lab.kernels.version_of(bound).label == {2.0: "by_factor@1", 5.0: "by_factor@2"}[value]
    launches = lab.kernels.store.history.launches()
    kept = [row for row in launches if row.version_id == lab.kernels.version_of(bound).id]
    assert [(row.launch.where, row.launch.by, row.count) for row in kept] == [("gpu", "launch", 0)]


def test_a_first_launch_in_a_cuda_graph_is_not_looked_at(lab: kernellab.Lab) -> None:
    x, bound = torch.zeros(N, device="cuda"), lab.bind(increment)
    lab.kernels.add(bound, name="graphed")
    bound[cells](x, N, 5, BLOCK=128)
    before = len(lab.kernels.store.history.launches())
    bound.reported.clear()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        bound[cells](x, N, 5, BLOCK=128)
    assert len(lab.kernels.store.history.launches()) == before
    graph.replay()
    torch.cuda.synchronize()
    assert x.eq(10).all()
