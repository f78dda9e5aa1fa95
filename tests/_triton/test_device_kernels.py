"""The kernels of the GPU worker, run on the CPU beside what torch says."""

from __future__ import annotations

import itertools
import math
import os
import struct
from pathlib import Path

import pytest
import torch
import triton

import kernellab
from kernellab._triton import device_kernels as kernels
from kernellab._triton.device_binaries import KernelVariant, compile_device_kernel, device_kernel, request_of
from kernellab.checking.comparison import output_difference
from kernellab.checking.tolerance import LIMITS, largest_of, share_of_largest, smallest_of, unit_named
from kernellab.gpu.device_view import COMPARED_DTYPES, kernels_for
from tests.tables import every

BLOCK = 64
VIEWS = {
    "dense": (torch.empty(3, 70), True),
    "rows apart": (torch.empty(5, 40)[:, :33], False),
    "transposed": (torch.empty(7, 11).t(), False),
    "every other": (torch.empty(90)[::2], False),
    "three dimensions": (torch.empty(4, 6, 10)[1:, ::2, 3:], False),
}
AWKWARD = (math.nan, math.inf, -math.inf, 0.0, -0.0)


def layout(view: torch.Tensor) -> list[int]:
    """Return what the kernels are told of a view: its elements, sizes and strides."""
    missing = kernels.DIMENSIONS - view.dim()
    sizes, strides = [1] * missing + list(view.shape), [0] * missing + list(view.stride())
    return [view.numel(), *sizes[1:], *strides]


def programs(count: int) -> tuple[int]:
    return (-(-count // BLOCK),)


def like(view: torch.Tensor, dtype: torch.dtype, seed: int) -> torch.Tensor:
    """Return values in the layout of a view, with what floats have that is no number."""
    generator = torch.Generator().manual_seed(seed)
    values = torch.empty_strided(view.shape, view.stride(), dtype=dtype)
    if dtype.is_floating_point:
        drawn = torch.randn(view.shape, generator=generator, dtype=torch.float64)
        drawn.view(-1)[: len(AWKWARD)] = torch.tensor(AWKWARD)
    else:
        drawn = torch.randint(-100, 100, view.shape, generator=generator)
    return values.copy_(drawn)


FLOATS = (torch.float32, torch.float16, torch.float64)
CHANGES = (0.0, 1e-7, 1e-3, 1.0)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("place", "dtype", "change"),
    every(
        4,
        [
            *itertools.product(VIEWS, FLOATS, [1e-3]),
            *itertools.product(["dense", "three dimensions"], FLOATS, [each for each in CHANGES if each != 1e-3]),
        ],
    ),
    ids=str,
)
def test_outputs_differ_where_the_comparison_of_tensors_says_so(
    lab: kernellab.Lab, place: str, dtype: torch.dtype, change: float
) -> None:
    view, is_dense = VIEWS[place]
    want, got = like(view, dtype, 1), like(view, dtype, 1)
    got[1] += change
    name = str(dtype).removeprefix("torch.")
    unit = unit_named(name)
    limits = torch.tensor([unit, *LIMITS[name], share_of_largest(unit)], dtype=torch.float64)
    largest, found = torch.zeros(1, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)
    meta = {"IS_DENSE": is_dense, "BLOCK": BLOCK}
    lab.run(kernels.largest_size, programs(view.numel()), want, largest, *layout(want), **meta)
    as_float = largest.view(torch.float64)
    lab.run(kernels.differing_floats, programs(view.numel()), got, want, as_float, limits, found, *layout(want), **meta)
    count, distance, unknown = struct.unpack("<qdq", struct.pack("<3q", *found.tolist()))
    expected = output_difference("out", got, want)
    assert count == (0 if expected is None else expected.differing)
    if expected is not None:
        assert (None if unknown else distance) == expected.largest


@pytest.mark.slow
@pytest.mark.parametrize("wrong", AWKWARD[:3])
def test_what_is_no_number_in_one_of_them_differs(lab: kernellab.Lab, wrong: float) -> None:
    want = like(torch.empty(80), torch.float32, 2)
    got = want.clone()
    got[50] = wrong
    limits = torch.tensor([unit_named("float32"), *LIMITS["float32"], 2.0**-10], dtype=torch.float64)
    largest, found = torch.ones(1, dtype=torch.float64), torch.zeros(3, dtype=torch.int64)
    meta = {"IS_DENSE": True, "BLOCK": BLOCK}
    lab.run(kernels.differing_floats, programs(80), got, want, largest, limits, found, *layout(want), **meta)
    assert found[0] == 1
    assert found[2] == 1


@pytest.mark.slow
@pytest.mark.parametrize("dtype", [torch.uint8, torch.int16, torch.int32, torch.int64], ids=str)
def test_integers_differ_by_their_distance(lab: kernellab.Lab, dtype: torch.dtype) -> None:
    want, got = (like(torch.empty(5, 40)[:, :33], dtype, 3) for _ in range(2))
    got[2, 7] += 3
    got[4, 1] += 9
    found = torch.zeros(2, dtype=torch.int64)
    meta = {"IS_DENSE": False, "BLOCK": BLOCK}
    lab.run(kernels.differing_integers, programs(want.numel()), got, want, found, *layout(want), **meta)
    assert struct.unpack("<qd", struct.pack("<2q", *found.tolist())) == (2, 9.0)


@pytest.mark.slow
@pytest.mark.parametrize("place", VIEWS)
def test_a_view_is_filled_and_nothing_between_its_elements(lab: kernellab.Lab, place: str) -> None:
    view, is_dense = VIEWS[place]
    whole = torch.zeros(view.untyped_storage().nbytes() // 4, dtype=torch.int32)
    filled, expected = (
        torch.as_strided(each, view.shape, view.stride(), view.storage_offset()) for each in (whole, whole.clone())
    )
    expected.fill_(0x5AA5A55A)
    lab.run(
        kernels.fill_view, programs(view.numel()), filled, 0x5AA5A55A, *layout(view), IS_DENSE=is_dense, BLOCK=BLOCK
    )
    assert torch.equal(whole, torch.as_strided(expected, whole.shape, whole.stride(), 0))


@pytest.mark.slow
def test_damage_is_counted_with_its_first_and_last_place(lab: kernellab.Lab) -> None:
    room = torch.zeros(300, dtype=torch.uint8)
    lab.run(kernels.mark_zone, programs(290), room, 10, 293, BLOCK=BLOCK)
    words = torch.arange(38) * kernels.GOLDEN
    assert torch.equal(room[10:293], words.view(torch.uint8)[10:293])
    assert not room[:10].any()
    for damaged, expected in (((), [0, 2**62, -1]), ((57, 58, 200), [3, 57, 200])):
        for place in damaged:
            room[place] ^= 255
        found = torch.tensor([0, 2**62, -1])
        lab.run(kernels.zone_damage, programs(290), room, 10, 293, found, BLOCK=BLOCK)
        assert found.tolist() == expected


@pytest.mark.slow
def test_bytes_are_summed(lab: kernellab.Lab) -> None:
    data = torch.randint(0, 256, (1000,), dtype=torch.uint8)
    found = torch.zeros(1, dtype=torch.int64)
    lab.run(kernels.sum_of_bytes, programs(1000), data, 1000, found, BLOCK=BLOCK)
    assert found.item() == data.sum().item()


def test_limits_of_formats_are_those_of_torch() -> None:
    for name, limits in LIMITS.items():
        dtype = getattr(torch, name)
        assert limits == (smallest_of(dtype), largest_of(dtype))
    assert {name for name in COMPARED_DTYPES if "float" in name} == set(LIMITS)


@pytest.mark.parametrize(
    ("name", "data"), [("mark_zone", 1), ("fill_view", 1), ("differing_floats", 2), ("keep_busy", 0)]
)
def test_all_parameters_are_words_of_64_bits(name: str, data: int) -> None:
    is_dense = name in {"fill_view", "differing_floats"}
    kernel = device_kernel(KernelVariant(name, "fp32" if "float" in name else "u8", is_dense), (9, 0))
    assert kernel.binary.startswith(b"\x7fELF")
    assert kernel.threads == 128
    given = {"mark_zone": 3, "fill_view": 12, "differing_floats": 15, "keep_busy": 2}[name]
    assert given <= kernel.parameters <= given + 2  # pointers to scratch memory come last


@pytest.mark.slow
def test_a_kernel_is_kept_and_one_that_is_broken_written_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    first = device_kernel(KernelVariant("keep_busy"), (9, 0))
    (kept,) = tmp_path.glob("kernellab-*/*.cubin")
    assert device_kernel(KernelVariant("keep_busy"), (9, 0)) == first
    whole = kept.read_bytes()
    for broken in (b"{", whole[:-1], whole[:40] + b"?" + whole[41:]):
        kept.write_bytes(broken)
        assert device_kernel(KernelVariant("keep_busy"), (9, 0)) == first
        assert kept.read_bytes() == whole


@pytest.mark.slow
def test_a_compile_worker_compiles_one_for_this_process_without_the_settings_of_its_last_compile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    variant = KernelVariant("keep_busy")
    request = request_of(variant, (9, 0))
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path / "of the worker"))
    monkeypatch.setenv("MLIR_ENABLE_DUMP", "1")
    compile_device_kernel(request, None)
    assert "MLIR_ENABLE_DUMP" not in os.environ
    assert [*tmp_path.rglob("*.cubin")] == [request.file]
    written = request.file.read_bytes()
    monkeypatch.setattr(triton.knobs.cache, "dir", str(tmp_path))
    assert device_kernel(variant, (9, 0)).binary in written
    assert request.file.read_bytes() == written


@pytest.mark.parametrize(
    ("dtypes", "compared"),
    [
        ([], set()),
        (["float16"], {("fill_view", "u64"), ("largest_size", "fp16"), ("differing_floats", "fp16")}),
        (["bool", "int64"], {("fill_view", "u64"), ("differing_integers", "u8"), ("differing_integers", "i64")}),
        (["float8_e5m2"], set()),
    ],
)
def test_the_kernels_for_outputs_of_some_dtypes_are_those_that_compare_them(
    dtypes: list[str], compared: set[tuple[str, str]]
) -> None:
    variants = kernels_for(dtypes)
    assert {variant.name for variant in variants if not variant.is_dense} == {
        "mark_zone", "zone_damage", "sum_of_bytes", "keep_busy",
    }  # fmt: skip
    assert {(variant.name, variant.element) for variant in variants if variant.is_dense} == compared
