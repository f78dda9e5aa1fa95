"""The launches whose traffic is compared with hardware counters, each from nothing: the same data on every machine."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks import traffic_kernels as simple
from benchmarks import traffic_kernels_more as more
from benchmarks.traffic_launch import Arguments, TrafficLaunch, empty, filled, permuted
from benchmarks.traffic_launches_held_out import held_out_launches


def _copy(n: int, dtype: torch.dtype = torch.float32, offset: int = 0) -> Arguments:
    return filled((n + offset,), dtype)[offset:], empty(n + offset, dtype=dtype)[offset:], n


def _copies() -> Iterator[TrafficLaunch]:
    kinds = {
        "fp32": torch.float32,
        "fp16": torch.float16,
        "int8": torch.int8,
        "fp64": torch.float64,
        "int64": torch.int64,
        "bf16": torch.bfloat16,
    }
    for name, dtype in kinds.items():
        yield TrafficLaunch(f"copy {name}", simple.traffic_copy, (16,), _copy(16384, dtype), {"BLOCK": 1024})
    for warps in (1, 2, 8, 16):
        meta = {"BLOCK": 1024, "num_warps": warps}
        yield TrafficLaunch(f"copy fp32, {warps} warps", simple.traffic_copy, (16,), _copy(16384), meta)
    for offset in (1, 2, 4):
        arguments = _copy(16384, offset=offset)
        yield TrafficLaunch(f"copy fp32, {offset} off", simple.traffic_copy, (16,), arguments, {"BLOCK": 1024})
    yield TrafficLaunch("copy fp16, 1 off", simple.traffic_copy, (16,), _copy(16384, torch.float16, 1), {"BLOCK": 1024})
    yield TrafficLaunch("copy int8, 4 off", simple.traffic_copy, (16,), _copy(16384, torch.int8, 4), {"BLOCK": 1024})
    yield TrafficLaunch("copy, odd length", simple.traffic_copy, (10,), _copy(9999), {"BLOCK": 1024})
    yield TrafficLaunch("copy, even length, cut", simple.traffic_copy, (10,), _copy(10000), {"BLOCK": 1024})
    for block in (16, 64, 128, 8192):
        meta = {"BLOCK": block}
        yield TrafficLaunch(f"copy, block of {block}", simple.traffic_copy, (16384 // block,), _copy(16384), meta)
    meta = {"BLOCK": 512}
    yield TrafficLaunch("copy, no mask", simple.traffic_copy_unmasked, (8,), _copy(4096)[:2], meta)
    yield TrafficLaunch("copy, hints", simple.traffic_copy_hints, (8,), _copy(4096), meta)
    arguments = (filled((5000,)), filled((5000,)), empty(5000), 5000)
    yield TrafficLaunch("add", simple.traffic_add, (5,), arguments, {"BLOCK": 1024})
    mixed = (filled((5000,), torch.float16), filled((5000,)), empty(5000), 5000)
    yield TrafficLaunch("add, mixed widths", simple.traffic_add, (5,), mixed, {"BLOCK": 1024})


def _strides() -> Iterator[TrafficLaunch]:
    for stride in (2, 3, 8, 32):
        yield TrafficLaunch(
            f"load with stride {stride}",
            simple.traffic_strided,
            (4,),
            (filled((2048 * stride,)), empty(2048), 2048, stride),
            {"BLOCK": 512},
        )
    for stride in (2, 16):
        yield TrafficLaunch(
            f"store with stride {stride}",
            simple.traffic_strided_store,
            (4,),
            (filled((2048,)), empty(2048 * stride), 2048),
            {"STRIDE": stride, "BLOCK": 512},
        )
    arguments = (filled((4096,)), empty(2048), 2048)
    yield TrafficLaunch("interleaved pairs", simple.traffic_interleaved, (4,), arguments, {"BLOCK": 512})
    yield TrafficLaunch("flipped", simple.traffic_flip, (8,), (filled((4096,)), empty(4096)), {"N": 512})


def _tile(
    rows: int, columns: int, *, dtype: torch.dtype = torch.float32, flip_x: bool = False, flip_y: bool = False
) -> Arguments:
    x = filled((columns, rows) if flip_x else (rows, columns), dtype)
    y = empty(*((columns, rows) if flip_y else (rows, columns)), dtype=dtype)
    x, y = x.T if flip_x else x, y.T if flip_y else y
    return x, y, rows, columns, *x.stride(), *y.stride()


def _tiles() -> Iterator[TrafficLaunch]:
    square = {"M": 32, "N": 64}
    kernel = simple.traffic_tile
    yield TrafficLaunch("tile", kernel, (4, 4), _tile(128, 256), square)
    yield TrafficLaunch("tile, 1000 of 1024 columns", kernel, (2, 16), _tile(64, 1000), square)
    yield TrafficLaunch("tile, 1002 columns", kernel, (2, 16), _tile(64, 1002), square)
    yield TrafficLaunch("tile, columns first", kernel, (4, 4), _tile(128, 256, flip_x=True, flip_y=True), square)
    for name, dtype, warps in (("fp32", torch.float32, 4), ("fp16", torch.float16, 8), ("int8", torch.int8, 2)):
        arguments = _tile(128, 256, dtype=dtype, flip_x=True)
        yield TrafficLaunch(f"transpose {name}", kernel, (2, 4), arguments, {"M": 64, "N": 64, "num_warps": warps})
    yield TrafficLaunch("transposed store", kernel, (2, 4), _tile(128, 256, flip_y=True), {"M": 64, "N": 64})
    yield TrafficLaunch("narrow tile", kernel, (4, 32), _tile(128, 256), {"M": 32, "N": 8})
    yield TrafficLaunch("small tile", kernel, (4, 4), _tile(32, 32), {"M": 8, "N": 8, "num_warps": 4})
    table = (filled((512, 96)), permuted(512), empty(512, 96), 96)
    yield TrafficLaunch("gather of rows", simple.traffic_gather_rows, (16,), table, {"M": 32, "N": 128})
    vectors = (filled((64, 128)), filled((128,)), filled((64,)), empty(64, 128))
    yield TrafficLaunch("broadcast vectors", simple.traffic_broadcast, (4,), vectors, {"M": 16, "N": 128})


def _masks() -> Iterator[TrafficLaunch]:
    rows = (filled((32, 500)), empty(32, 500), filled((32,), torch.int32, 2), 500)
    yield TrafficLaunch("mask by row", simple.traffic_row_mask, (32,), rows, {"N": 512})
    data = (filled((4096,)), empty(4096), filled((4096,), torch.int8, 2), 4096)
    yield TrafficLaunch("mask of data", simple.traffic_data_mask, (4,), data, {"BLOCK": 1024})
    plain = (filled((4096,)), empty(4096))
    for every in (2, 4, 64):
        meta = {"BLOCK": 1024, "EVERY": every}
        yield TrafficLaunch(f"mask of every {every}th", simple.traffic_parity_mask, (4,), plain, meta)


def _gathers() -> Iterator[TrafficLaunch]:
    meta = {"BLOCK": 1024}
    for name, dtype in (("int32", torch.int32), ("int64", torch.int64)):
        gathered = (filled((4096,)), permuted(4096, dtype), empty(4096), 4096)
        yield TrafficLaunch(f"gather by {name}", simple.traffic_gather, (4,), gathered, meta)
    half = (
        filled((4096,), torch.float16),
        permuted(4096),
        empty(4096, dtype=torch.float16),
        4096,
    )
    yield TrafficLaunch("gather of fp16", simple.traffic_gather, (4,), half, meta)
    few = (filled((64,)), filled((4096,), torch.int32, 64), empty(4096), 4096)
    yield TrafficLaunch("gather with repeats", simple.traffic_gather, (4,), few, meta)
    scattered = (filled((4096,)), permuted(4096), empty(4096), 4096)
    yield TrafficLaunch("scatter", simple.traffic_scatter, (4,), scattered, meta)
    small = (filled((4096,), torch.int8), permuted(4096), empty(4096, dtype=torch.int8), 4096)
    yield TrafficLaunch("scatter of int8", simple.traffic_scatter, (4,), small, meta)
    yield TrafficLaunch("scalars", simple.traffic_scalar, (16,), (filled((16,)), empty(2048)), {"BLOCK": 128})
    yield TrafficLaunch("one address", simple.traffic_same_address, (8,), (filled((8,)), empty(4096)), {"BLOCK": 512})


def _reductions() -> Iterator[TrafficLaunch]:
    square = (filled((128, 256)), empty(256))
    for warps in (1, 4, 8):
        meta = {"M": 16, "N": 256, "num_warps": warps}
        yield TrafficLaunch(f"sum of rows, {warps} warps", simple.traffic_sum_rows, (8,), square, meta)
    yield TrafficLaunch("sum of columns", simple.traffic_sum_columns, (8,), square, {"M": 128, "N": 32})
    whole = (filled((16384,)), empty(16))
    for warps in (1, 4, 16):
        meta = {"BLOCK": 1024, "num_warps": warps}
        yield TrafficLaunch(f"sum of all, {warps} warps", simple.traffic_sum_all, (16,), whole, meta)
    places = (filled((128, 256)), empty(128, dtype=torch.int32))
    yield TrafficLaunch("argmax", simple.traffic_argmax, (8,), places, {"M": 16, "N": 256})
    rows = (filled((32, 1000)), empty(32, 1000), 1000)
    for warps in (4, 8):
        meta = {"N": 1024, "num_warps": warps}
        yield TrafficLaunch(f"softmax, {warps} warps", simple.traffic_softmax, (32,), rows, meta)
    norm = (
        filled((16, 1500), torch.float16),
        empty(16, 1500),
        filled((1500,)),
        filled((1500,)),
        1500,
        1e-5,
    )
    yield TrafficLaunch("layer norm", simple.traffic_layer_norm, (16,), norm, {"N": 512})
    line = (filled((4096,)), empty(4096))
    for warps in (2, 4):
        yield TrafficLaunch(
            f"scan, {warps} warps", simple.traffic_cumsum, (4,), line, {"BLOCK": 1024, "num_warps": warps}
        )
    yield TrafficLaunch("scan of columns", simple.traffic_cumsum_columns, (4,), line, {"M": 64, "N": 16})
    yield TrafficLaunch("sort", simple.traffic_sort, (4,), line, {"M": 16, "N": 64})
    yield TrafficLaunch("reshape and transpose", simple.traffic_reshape, (2,), line, {"M": 32, "N": 64})
    index = (filled((4096,)), filled((4096,), torch.int32, 32), empty(4096))
    yield TrafficLaunch("gather in a tile", simple.traffic_tile_gather, (2,), index, {"M": 32, "N": 64})
    pair = (filled((2048,)), filled((2048,)), empty(4096))
    yield TrafficLaunch("interleave", simple.traffic_join, (4,), pair, {"BLOCK": 512})


def _flow() -> Iterator[TrafficLaunch]:
    meta = {"BLOCK": 256}
    loop = (filled((10000,)), empty(1024), 10000)
    yield TrafficLaunch("grid-stride loop", simple.traffic_outer_loop, (4,), loop, meta)
    branch = (filled((4096,)), filled((8192,)), empty(4096))
    yield TrafficLaunch("branch by program", simple.traffic_branch, (16,), branch, meta)
    limits = (filled((8192,)), empty(2048), filled((8,), torch.int32, 5))
    yield TrafficLaunch("loop by data", simple.traffic_while, (8,), limits, meta)
    drop = (filled((4000,)), empty(4000), 4000, 7)
    yield TrafficLaunch("dropout", simple.traffic_dropout, (16,), drop, meta)


def _product(
    m: int, n: int, k: int, dtype: torch.dtype = torch.float16, *, out: torch.dtype = torch.float32, b_t: bool = False
) -> Arguments:
    a = filled((m, k), torch.float16, 8).to(dtype)
    b = filled((n, k) if b_t else (k, n), torch.float16, 8).to(dtype)
    b = b.T if b_t else b
    return a, b, empty(m, n, dtype=out), m, n, k, *a.stride(), *b.stride()


def _products() -> Iterator[TrafficLaunch]:
    kernel = more.traffic_matmul
    small = {"BM": 64, "BN": 64, "BK": 32, "PRECISION": "tf32"}
    big = {"BM": 128, "BN": 128, "BK": 64, "PRECISION": "tf32"}
    grid = (2, 2)
    for stages in (1, 2, 3, 4):
        meta = {**small, "num_stages": stages}
        yield TrafficLaunch(f"matmul fp16, {stages} stages", kernel, grid, _product(128, 128, 256), meta)
    meta = {**big, "num_warps": 8, "num_stages": 3}
    yield TrafficLaunch("matmul fp16, 8 warps", kernel, grid, _product(256, 256, 256, out=torch.float16), meta)
    yield TrafficLaunch("matmul fp16, b transposed", kernel, grid, _product(128, 128, 256, b_t=True), small)
    yield TrafficLaunch("matmul fp16, odd K", kernel, grid, _product(128, 128, 200), small)
    yield TrafficLaunch("matmul fp16, cut", kernel, grid, _product(120, 112, 256), small)
    yield TrafficLaunch("matmul fp32", kernel, grid, _product(128, 128, 128, torch.float32), small)
    meta = {**small, "PRECISION": "ieee"}
    yield TrafficLaunch("matmul fp32, ieee", kernel, grid, _product(128, 128, 64, torch.float32), meta)
    yield TrafficLaunch(
        "matmul int8", kernel, grid, _product(128, 128, 256, torch.int8, out=torch.int32), {**small, "BK": 64}
    )
    meta = {"BM": 32, "BN": 32, "BK": 32, "PRECISION": "tf32", "num_warps": 1}
    yield TrafficLaunch("matmul fp16, 1 warp", kernel, (2, 2), _product(64, 64, 128), meta)
    even = (
        filled((256, 512), torch.float16, 8),
        filled((512, 256), torch.float16, 8),
        empty(256, 256, dtype=torch.float16),
        256,
        512,
    )
    for stages in (1, 3):
        meta = {"BM": 128, "BN": 64, "BK": 64, "num_stages": stages}
        yield TrafficLaunch(f"matmul without masks, {stages} stages", more.traffic_matmul_even, (2, 4), even, meta)
    for name, dtype, precision in (("fp16", torch.float16, "tf32"), ("fp32", torch.float32, "tf32")):
        once = (filled((128, 32), dtype, 8), filled((32, 32), dtype, 8), empty(128, 32))
        meta = {"M": 32, "N": 32, "K": 32, "PRECISION": precision}
        yield TrafficLaunch(f"one dot {name}", more.traffic_dot_once, (4,), once, meta)
    heads = (
        *(filled((2, 256, 64), torch.float16, 4) for _ in range(3)),
        empty(2, 256, 64, dtype=torch.float16),
        256,
        0.125,
    )
    meta = {"BM": 64, "BN": 64, "D": 64, "num_stages": 2}
    yield TrafficLaunch("attention", more.traffic_attention, (4, 2), heads, meta)


def _descriptors() -> Iterator[TrafficLaunch]:
    x, y = filled((128, 128), torch.float16), empty(128, 128, dtype=torch.float16)
    copied = TensorDescriptor.from_tensor(x, [32, 64]), TensorDescriptor.from_tensor(y, [32, 64])
    a, b = filled((128, 256), torch.float16, 8), filled((256, 128), torch.float16, 8)
    c = empty(128, 128, dtype=torch.float16)
    multiplied = *(TensorDescriptor.from_tensor(tensor, [64, 64]) for tensor in (a, b, c)), 256

    yield TrafficLaunch("descriptor copy", more.traffic_descriptor_copy, (4, 2), copied, {"M": 32, "N": 64})
    made = (filled((128, 128)), empty(128, 128), 128, 128)
    yield TrafficLaunch(
        "descriptor made by the kernel", more.traffic_device_descriptor, (4, 4), made, {"M": 32, "N": 32}
    )
    meta = {"BM": 64, "BN": 64, "BK": 64, "num_stages": 3}
    yield TrafficLaunch("descriptor matmul", more.traffic_descriptor_matmul, (2, 2), multiplied, meta)


def _atomics() -> Iterator[TrafficLaunch]:
    total = (filled((4096,)), empty(1))
    yield TrafficLaunch("atomic add of a scalar", more.traffic_atomic_scalar, (4,), total, {"BLOCK": 1024})
    for name, dtype, stride in (
        ("fp32", torch.float32, 1),
        ("fp32, stride 8", torch.float32, 8),
        ("fp16", torch.float16, 1),
        ("int32", torch.int32, 1),
        ("fp64", torch.float64, 1),
    ):
        lanes = (filled((2048,), dtype), empty(2048 * stride, dtype=dtype), 2048)
        meta = {"STRIDE": stride, "BLOCK": 512}
        yield TrafficLaunch(f"atomic add {name}", more.traffic_atomic_lanes, (4,), lanes, meta)
    for slots in (1, 8, 100):
        wrapped = (filled((2048,)), empty(slots))
        meta = {"SLOTS": slots, "BLOCK": 512}
        yield TrafficLaunch(f"atomic add to {slots} places", more.traffic_atomic_wrap, (4,), wrapped, meta)
    old = (
        filled((2048,), torch.int32),
        empty(2048, dtype=torch.int32),
        empty(2048, dtype=torch.int32),
    )
    yield TrafficLaunch("atomic max with result", more.traffic_atomic_result, (4,), old, {"BLOCK": 512})
    ticket = (empty(1, dtype=torch.int32), empty(16, dtype=torch.int32))
    yield TrafficLaunch("tickets", more.traffic_atomic_scalar_result, (16,), ticket)
    counted = (filled((3000,), torch.int32, 50), empty(50, dtype=torch.int32), 3000)
    yield TrafficLaunch("atomic histogram", more.traffic_atomic_histogram, (3,), counted, {"BLOCK": 1024})
    swapped = (filled((1024,), torch.int32), empty(1024, dtype=torch.int32))
    yield TrafficLaunch("compare and swap", more.traffic_atomic_cas, (2,), swapped, {"BLOCK": 512})
    bins = (filled((4096,), torch.int32, 64), empty(256, dtype=torch.int32))
    yield TrafficLaunch("histogram", more.traffic_histogram, (4,), bins, {"BINS": 64, "BLOCK": 1024})


def traffic_launches() -> tuple[TrafficLaunch, ...]:
    """Return all launches, those that no rule was made from last; their names differ."""
    groups = (
        _copies(),
        _strides(),
        _tiles(),
        _masks(),
        _gathers(),
        _reductions(),
        _flow(),
        _products(),
        _descriptors(),
        _atomics(),
    )
    return (*(launch for group in groups for launch in group), *held_out_launches())
