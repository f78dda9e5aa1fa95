"""The GPU worker's memory without torch, beside torch on the same GPU."""

from __future__ import annotations

import ctypes
import math
from concurrent.futures import ThreadPoolExecutor
from uuid import UUID

import pytest
import torch

from kernellab._triton.device_binaries import KernelVariant, device_kernel
from kernellab.checking.comparison import agree, output_difference
from kernellab.gpu import driver
from kernellab.gpu.device_view import COMPARED_DTYPES, DeviceView, keep_busy
from kernellab.gpu.driver import DeviceBytes, DriverError, allocate, ipc_handle, use_device
from kernellab.gpu.ipc import Memory, tensor_of, tensor_on
from kernellab.gpu.redzones import Redzones, allocate_like, spans_of
from kernellab.launch import poison
from kernellab.launch.arguments import TensorSpec
from kernellab.timing.stopwatch import Turn, driver_stopwatch

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA GPU"),
]

LAYOUTS = {
    "dense": ((300, 41), (41, 1), 0),
    "rows apart": ((30, 33), (40, 1), 3),
    "transposed": ((70, 110), (1, 70), 1),
    "three dimensions": ((4, 6, 10), (100, 12, 1), 8),
}


@pytest.fixture(autouse=True)
def device() -> None:
    torch.cuda.init()
    use_device(torch.cuda.current_device())


def view_of(tensor: torch.Tensor) -> DeviceView:
    """Return the view without torch that is the same memory as a tensor."""
    storage = tensor.untyped_storage()
    memory = DeviceBytes(storage.data_ptr(), storage.nbytes(), tensor)
    offset = tensor.storage_offset() * tensor.element_size()
    name = str(tensor.dtype).removeprefix("torch.")
    spec = TensorSpec(0, offset, tuple(tensor.shape), tuple(tensor.stride()), name, tensor.element_size())
    return tensor_of(spec, memory)


def values(layout: str, name: str, *, changed: bool = False) -> torch.Tensor:
    """Return values in a layout; where they are ``changed``, one row or column of elements is another."""
    shape, strides, offset = LAYOUTS[layout]
    span = 1 + sum((size - 1) * stride for size, stride in zip(shape, strides, strict=True)) + offset
    drawn = torch.randn(span, generator=torch.Generator().manual_seed(0)) * 50
    if name == "bool":
        drawn = drawn.clamp(0, 1).round()
    elif name.startswith("u"):
        drawn = drawn.abs()
    if changed:
        row = drawn.as_strided(shape, strides, offset)[1]
        row.copy_(1 - row if name == "bool" else row + 90)
    return drawn.to(getattr(torch, name)).cuda().as_strided(shape, strides, offset)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", sorted(COMPARED_DTYPES))
def test_views_are_compared_as_tensors_are(layout: str, name: str) -> None:
    want, same, other = (values(layout, name, changed=changed) for changed in (False, False, True))
    assert agree(view_of(same), view_of(want))
    assert not agree(view_of(other), view_of(want))
    known = torch.int64 if name.startswith("u") else want.dtype  # of the wider ones, torch knows little
    expected = output_difference("out", other.to(known), want.to(known))
    assert output_difference("out", view_of(other), view_of(want)) == expected
    assert output_difference("out", view_of(same), view_of(want)) is None


@pytest.mark.parametrize("name", ["float32", "float16", "bfloat16"])
@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_equals_itself_alone(name: str, wrong: float) -> None:
    want = values("dense", name)
    got = want.clone()
    got[7, 7] = wrong
    found = output_difference("out", view_of(got), view_of(want))
    assert found is not None
    assert (found.differing, found.largest) == (1, None)
    assert agree(view_of(got), view_of(got.clone()))


def test_formats_and_layouts_that_only_torch_knows_are_left_to_it() -> None:
    want = torch.randn(100, dtype=torch.complex64, device="cuda")
    got = want.clone()
    assert agree(view_of(got), view_of(want))
    got[3] += 5
    assert not agree(view_of(got), view_of(want))


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["float32", "float16", "float64", "uint8", "int64", "bool", "complex64"])
def test_poison_is_what_torch_fills_with(layout: str, name: str) -> None:
    ours, theirs = (values(layout, name) for _ in range(2))
    view = view_of(ours)
    real, size_bytes = view.real_dtype
    view.fill_bits(poison.pattern_of(real, size_bytes))
    poison.fill(theirs)
    whole = [torch.empty(0, dtype=torch.uint8, device="cuda").set_(each.untyped_storage()) for each in (ours, theirs)]
    driver.synchronize()
    assert torch.equal(*whole)
    assert bool(poison.pattern_mask(ours).all())
    view.zero_()
    driver.synchronize()
    assert not ours.any()


def test_a_clone_has_the_layout_of_its_view() -> None:
    view = view_of(values("rows apart", "float32"))
    clone = view.clone()
    driver.synchronize()
    assert torch.equal(tensor_on(clone.memory, clone.spec), tensor_on(view.memory, view.spec))
    assert clone.stride() == view.stride()


def test_a_view_of_more_dimensions_than_kernels_know_is_filled_and_nothing_between() -> None:
    ours, theirs = (torch.zeros(3, 4, 3, 4, 3, 4, 4, device="cuda") for _ in range(2))
    inner = (slice(0, 2), slice(1, 3), slice(0, 2), slice(1, 3), slice(0, 2), slice(1, 3), slice(0, 3))
    view_of(ours[inner]).fill_bits(0x3F800000)
    theirs[inner] = 1
    driver.synchronize()
    assert torch.equal(ours, theirs)


def test_a_device_is_the_one_that_torch_calls_so() -> None:
    device = torch.cuda.current_device()
    assert driver.uuid_of(device) == UUID(str(torch.cuda.get_device_properties(device).uuid)).bytes


def test_memory_is_exported_from_a_thread_that_has_no_context() -> None:
    address = torch.zeros(100, device="cuda").untyped_storage().data_ptr()
    device = torch.cuda.current_device()
    with ThreadPoolExecutor(1) as elsewhere:
        handle = elsewhere.submit(ipc_handle, address, device).result()
    assert handle == ipc_handle(address, device)


@pytest.mark.skipif(torch.cuda.device_count() < 2, reason="needs two GPUs")
def test_exporting_memory_of_another_device_leaves_the_current_one() -> None:
    here = torch.cuda.current_device()
    there = (here + 1) % torch.cuda.device_count()
    ipc_handle(torch.zeros(100, device=f"cuda:{there}").untyped_storage().data_ptr(), there)
    assert (driver.current_device(), torch.cuda.current_device()) == (here, here)


def test_a_kernel_that_nobody_holds_is_unloaded() -> None:
    def taken_by(launches: int) -> int:
        before = driver.free_bytes()
        for _ in range(launches):
            kernel = device_kernel(KernelVariant("keep_busy"), driver.capability_of(driver.current_device()))
            module = ctypes.c_void_p()
            driver._call("cuModuleLoadData", ctypes.byref(module), ctypes.c_char_p(kernel.binary))
            assert module.value is not None
            driver.unload(module.value)
        driver.synchronize()
        return before - driver.free_bytes()

    taken_by(10)
    assert min(taken_by(500) for _ in range(5)) <= 0  # other processes take memory meanwhile, but not each time


def test_redzones_without_torch_find_what_those_with_it_find() -> None:
    memories = tuple(Memory(None, size, 16 * index, True) for index, size in enumerate((1000, 7, 512)))
    spans, total = spans_of(memories, (True,) * 3, 4096)
    ours = Redzones(allocate_like(DeviceBytes(0, 0), total), spans)
    theirs = Redzones(allocate_like(torch.empty(0, device="cuda"), total), spans)
    assert ours.damages() == theirs.damages() == []
    room = tensor_on(ours.room)
    assert all(torch.equal(room[start:end], theirs.room[start:end]) for start, end, _, _ in ours._zones())
    for zones in (ours, theirs):
        zones.copy_of(2).copy_(zones.room[:512])
        zones.watch([2])
    for held in (room, theirs.room):
        held[spans[0][1] + 4 : spans[0][1] + 12] ^= 255  # type: ignore[index]
        held[spans[1][0] - 3] ^= 1  # type: ignore[index]
        held[spans[2][0] + 5] ^= 1  # type: ignore[index]
    torch.cuda.synchronize()
    assert ours.damages() == theirs.damages()
    assert [damage.count for damage in ours.damages()] == [9, 0]


def test_events_tell_the_time_that_those_of_torch_tell() -> None:
    x = torch.zeros(64 << 20, device="cuda")
    watch = driver_stopwatch()

    def timed_by_torch() -> float:
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        x.add_(1)
        end.record()
        torch.cuda.synchronize()
        return float(begin.elapsed_time(end))

    (ours,) = watch.turns([Turn(lambda: x.add_(1))], 20)
    theirs = min(timed_by_torch() for _ in range(20))
    assert min(ours) == pytest.approx(theirs, rel=0.2)


def test_a_busy_device_lets_the_host_go_ahead() -> None:
    word, event = allocate(8), driver.DeviceEvent()
    for _ in range(50):
        keep_busy(word)
    event.record()
    assert not event.query()
    driver.synchronize()
    assert event.query()


def test_what_the_driver_refuses_is_told_in_its_words() -> None:
    with pytest.raises(DriverError, match="CUDA error: out of memory"):
        allocate(1 << 50)
