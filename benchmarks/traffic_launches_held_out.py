"""Launches that no rule of counting was made from; recorded and compared like those of `traffic_launches`."""

from __future__ import annotations

from collections.abc import Iterator

import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks import traffic_kernels_held_out as held
from benchmarks.traffic_launch import TrafficLaunch, empty, filled

HALF, BFLOAT, FLOAT, INT = torch.float16, torch.bfloat16, torch.float32, torch.int32


def _elementwise() -> Iterator[TrafficLaunch]:
    for name, dtype, block, warps in (
        ("fp16", HALF, 512, 2),
        ("bf16", BFLOAT, 2048, 8),
        ("fp32", FLOAT, 256, 1),
        ("fp32, 16 warps", FLOAT, 4096, 16),
    ):
        given = filled((7000,), dtype), empty(7000, dtype=dtype), 7000
        meta = {"BLOCK": block, "num_warps": warps}
        yield TrafficLaunch(f"held: gelu {name}", held.traffic_held_gelu, (-(-7000 // block),), given, meta)
    mixed = filled((7000,), HALF), empty(7000), 7000
    yield TrafficLaunch("held: gelu to fp32", held.traffic_held_gelu, (7,), mixed, {"BLOCK": 1024})
    pairs = filled((4096,)), empty(2048), 4096
    yield TrafficLaunch("held: pairs", held.traffic_held_interleave, (4,), pairs, {"BLOCK": 1024})
    for width in (128, 120):
        rotary = filled((64, width), HALF), filled((64, width // 2), HALF), filled((64, width // 2), HALF)
        given = *rotary, empty(64, width, dtype=HALF), width
        yield TrafficLaunch(f"held: rotary {width}", held.traffic_held_rotary, (64,), given, {"HALF": 64})
    yield TrafficLaunch(
        "held: stencil", held.traffic_held_stencil, (5,), (filled((5000,)), empty(5000), 5000), {"BLOCK": 1024}
    )
    pool = filled((64, 96)), empty(32, 48), 64, 96
    yield TrafficLaunch("held: pool", held.traffic_held_pool, (2, 2), pool, {"M": 16, "N": 32})
    bits = filled((512,), torch.uint8), empty(4096, dtype=torch.int8)
    yield TrafficLaunch("held: bits", held.traffic_held_bitwise, (4,), bits, {"BLOCK": 1024})


def _rows() -> Iterator[TrafficLaunch]:
    for rows, columns, m, n, warps, dtype in (
        (64, 200, 4, 256, 4, FLOAT),
        (64, 256, 8, 256, 8, HALF),
        (64, 64, 16, 64, 1, FLOAT),
        (60, 50, 32, 64, 2, BFLOAT),
    ):
        given = filled((rows, columns), dtype), empty(rows, columns, dtype=dtype), rows, columns
        meta = {"M": m, "N": n, "num_warps": warps}
        name = f"held: softmax {m} x {n}, {warps} warps"
        yield TrafficLaunch(name, held.traffic_held_softmax_rows, (-(-rows // m),), given, meta)
    for columns, warps, dtype in ((768, 4, HALF), (1000, 8, FLOAT), (4096, 16, HALF), (100, 1, FLOAT)):
        given = filled((16, columns), dtype), empty(16, columns, dtype=dtype), empty(16), filled((columns,)), columns
        meta = {"N": 1 << (columns - 1).bit_length(), "num_warps": warps}
        yield TrafficLaunch(f"held: norm of {columns}", held.traffic_held_norm, (16,), given, meta)
    for m, n, warps in ((32, 32, 4), (16, 128, 8), (64, 8, 2)):
        given = filled((300, 250)), empty(250), 300, 250
        meta = {"M": m, "N": n, "num_warps": warps}
        name = f"held: sums of columns {m} x {n}"
        yield TrafficLaunch(name, held.traffic_held_column_norm, (-(-250 // n),), given, meta)
    labels = filled((32, 1500)), filled((32,), torch.int64, 1500), empty(32), 1500
    yield TrafficLaunch("held: cross entropy", held.traffic_held_cross_entropy, (32,), labels, {"N": 512})
    for m, n, warps in ((16, 128, 4), (8, 512, 8), (64, 32, 2)):
        given = filled((128, n)), empty(128), empty(128, dtype=INT)
        meta = {"M": m, "N": n, "num_warps": warps}
        yield TrafficLaunch(f"held: first max {m} x {n}", held.traffic_held_first_max, (128 // m,), given, meta)
    for axis, reverse, warps in ((0, False, 4), (1, True, 4), (1, False, 8), (0, True, 2)):
        given = filled((4, 32, 64)), empty(4, 32, 64)
        meta = {"M": 32, "N": 64, "AXIS": axis, "REVERSE": reverse, "num_warps": warps}
        yield TrafficLaunch(f"held: scan of axis {axis}, {warps} warps", held.traffic_held_scan, (4,), given, meta)
    for n, warps in ((256, 4), (1024, 8)):
        given = filled((4096,)), empty(4096)
        yield TrafficLaunch(
            f"held: sort {n}", held.traffic_held_sort, (4096 // n,), given, {"N": n, "num_warps": warps}
        )
    yield TrafficLaunch("held: flip", held.traffic_held_flip, (4,), (filled((4096,)), empty(4096)), {"M": 16, "N": 64})
    for dtype in (FLOAT, HALF):
        cube = filled((4096,), dtype), empty(4096, dtype=dtype)
        meta = {"A": 8, "B": 16, "C": 16}
        yield TrafficLaunch(f"held: permute {dtype}", held.traffic_held_permute, (2,), cube, meta)


def _products() -> Iterator[TrafficLaunch]:
    for stages, warps in ((3, 4), (1, 8)):
        given = filled((128, 512), HALF, 8), filled((512, 128), HALF, 8), empty(128, 128), 128, 128, 512
        meta = {"SPLIT": 2, "BM": 64, "BN": 64, "BK": 64, "num_stages": stages, "num_warps": warps}
        yield TrafficLaunch(f"held: split K, {stages} stages", held.traffic_held_split_k, (2, 2, 2), given, meta)
    for dtype, k in ((BFLOAT, 64), (BFLOAT, 16)):
        given = filled((3, 64, k), dtype, 8), filled((3, k, 32), dtype, 8), empty(3, 64, 32, dtype=BFLOAT)
        meta = {"K": k, "M": 32, "N": 32}
        yield TrafficLaunch(f"held: batched, K {k}", held.traffic_held_batched, (2, 1, 3), given, meta)
    for m, n, k, bm, bn, warps in (
        (256, 192, 128, 64, 64, 4),
        (200, 136, 96, 64, 128, 8),
        (128, 128, 128, 128, 128, 8),
    ):
        given = filled((m, k), HALF, 8), filled((k, n), HALF, 8), empty(m, n, dtype=HALF), m, n, k
        meta = {"BM": bm, "BN": bn, "BK": 32, "num_warps": warps, "num_stages": 3}
        yield TrafficLaunch(f"held: persistent {m} x {n}", held.traffic_held_persistent, (3,), given, meta)


def _atomics() -> Iterator[TrafficLaunch]:
    for width in (64, 100):
        given = filled((64, width)), filled((64,), INT, 20), empty(20, width), width
        yield TrafficLaunch(
            f"held: embedding gradient {width}", held.traffic_held_embedding_gradient, (64,), given, {"N": 128}
        )
    given = filled((2048,), INT), empty(2048, dtype=INT), empty(2048, dtype=INT)
    yield TrafficLaunch("held: exchange", held.traffic_held_exchange, (4,), given, {"BLOCK": 512})
    for m, n, warps in ((32, 64, 4), (64, 32, 8)):
        rows = filled((64, 256)), empty(64)
        meta = {"M": m, "N": n, "num_warps": warps}
        yield TrafficLaunch(f"held: atomic rows {m}", held.traffic_held_atomic_rows, (64 // m, 256 // n), rows, meta)
    lowest = filled((3000,), INT), empty(1, dtype=INT), 3000
    yield TrafficLaunch("held: atomic minimum", held.traffic_held_atomic_minimum, (6,), lowest, {"BLOCK": 512})
    kept = filled((2048,), INT), empty(2048, dtype=INT), empty(1, dtype=INT)
    yield TrafficLaunch("held: compact", held.traffic_held_compact, (4,), kept, {"BLOCK": 512})


def _boxes() -> Iterator[TrafficLaunch]:
    for dtype, m, n in ((HALF, 32, 128), (FLOAT, 64, 64)):
        x = TensorDescriptor.from_tensor(filled((128, n), dtype), [m, n])
        meta = {"M": m, "N": n}
        yield TrafficLaunch(
            f"held: box sums {m} x {n}", held.traffic_held_box_reduce, (128 // m, 1), (x, empty(128)), meta
        )
    given = (
        TensorDescriptor.from_tensor(filled((128, 128), HALF), [64, 32]),
        TensorDescriptor.from_tensor(empty(128, 128, dtype=HALF), [32, 64]),
    )
    yield TrafficLaunch("held: box transpose", held.traffic_held_box_transpose, (2, 4), given, {"M": 64, "N": 32})
    given = (
        TensorDescriptor.from_tensor(filled((128, 128)), [32, 32]),
        TensorDescriptor.from_tensor(empty(128, 128), [32, 32]),
    )
    yield TrafficLaunch("held: box add", held.traffic_held_box_add, (4, 4), given, {"M": 32, "N": 32})


def held_out_launches() -> tuple[TrafficLaunch, ...]:
    """Return all of them; their names differ."""
    return (*_elementwise(), *_rows(), *_products(), *_atomics(), *_boxes())
