"""How the kernels of the recorded times are launched: configs, sizes and inputs, the same on every device.

Random indices, bounds and labels come from a seeded generator of the CPU, so that what decides an address is equal
wherever a recipe is called.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import torch
import triton
from triton import Config
from triton.tools.tensor_descriptor import TensorDescriptor

from benchmarks import truth_kernels as kernels
from benchmarks import tune_products as products
from benchmarks import tune_rows as rows_of

Sizes = Mapping[str, int]
PROGRAMS = 132
_PAD = 256


@dataclass(frozen=True, slots=True)
class Recipe:
    """A kernel without configs of its own, the configs and sizes to time, and its grid and arguments for sizes."""

    kernel: Any
    configs: Sequence[Config]
    sizes: Sequence[Sizes]
    inputs: Callable[..., dict[str, Any]]
    grid: Callable[[Mapping[str, Any]], tuple[int, ...]]


def _seeded() -> torch.Generator:
    return torch.Generator().manual_seed(20)


def _half(device: str, *shape: int) -> torch.Tensor:
    return torch.randn(*shape, device=device, dtype=torch.float16)


def _padded(device: str, rows: int, columns: int) -> torch.Tensor:
    """Return a matrix in fp16 with zeros behind it, where whole blocks along its last or first axis may read."""
    data = torch.zeros((rows + _PAD) * columns + _PAD, device=device, dtype=torch.float16)
    return data[: rows * columns].view(rows, columns).normal_()


def _blocks(size: str, block: str) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    return lambda meta: (triton.cdiv(meta[size], meta[block]),)


def _tiles(meta: Mapping[str, Any]) -> tuple[int]:
    return (triton.cdiv(meta["m"], meta["BM"]) * triton.cdiv(meta["n"], meta["BN"]),)


def _warps(values: Mapping[str, Sequence[int]], warps: Sequence[int]) -> list[Config]:
    return [
        Config(dict(zip(values, combination, strict=True)), num_warps=count)
        for combination in product(*values.values())
        for count in warps
    ]


def _flat(device: str, n: int) -> dict[str, Any]:
    x = torch.randn(n, device=device)
    return {"x_ptr": x, "y_ptr": torch.randn(n, device=device), "out_ptr": torch.empty_like(x), "n": n}


def _gelu(device: str, n: int) -> dict[str, Any]:
    return {"x_ptr": _half(device, n), "out_ptr": _half(device, n), "n": n}


def _strided(device: str, n: int, stride: int) -> dict[str, Any]:
    return {
        "x_ptr": torch.randn(n * stride, device=device), "out_ptr": torch.empty(n, device=device), "n": n,
        "stride": stride,
    }  # fmt: skip


def _matrix(device: str, rows: int, columns: int) -> dict[str, Any]:
    x = torch.randn(rows, columns, device=device)
    return {"x_ptr": x, "out_ptr": torch.empty_like(x), "rows": rows, "columns": columns}


def _row_sums(device: str, rows: int, columns: int) -> dict[str, Any]:
    return {**_matrix(device, rows, columns), "out_ptr": torch.empty(rows, device=device)}


def _column_sums(device: str, rows: int, columns: int) -> dict[str, Any]:
    return {**_matrix(device, rows, columns), "out_ptr": torch.empty(columns, device=device)}


def _total(device: str, n: int) -> dict[str, Any]:
    return {"x_ptr": torch.randn(n, device=device), "out_ptr": torch.zeros(1, device=device), "n": n}


def _scatter(device: str, n: int, slots: int) -> dict[str, Any]:
    index = torch.randint(slots, (n,), generator=_seeded(), dtype=torch.int32).to(device)
    return {
        "x_ptr": torch.randn(n, device=device), "index_ptr": index, "out_ptr": torch.zeros(slots, device=device),
        "n": n,
    }  # fmt: skip


def _wide(device: str, rows: int, columns: int) -> dict[str, Any]:
    return {**_matrix(device, rows, columns), "WIDTH": triton.next_power_of_2(columns)}


def _scan(device: str, rows: int, columns: int) -> dict[str, Any]:
    inputs = _wide(device, rows, columns)
    del inputs["rows"]
    return inputs


def _norm(device: str, rows: int, columns: int) -> dict[str, Any]:
    affine = {name: torch.rand(columns, device=device) for name in ("w_ptr", "b_ptr")}
    sums = {name: torch.zeros(rows, device=device) for name in ("mean_ptr", "rstd_ptr")}
    tensors = {name: _half(device, rows, columns) for name in ("x_ptr", "out_ptr")}
    width = triton.next_power_of_2(columns)
    return {**tensors, **affine, **sums, "rows": rows, "columns": columns, "WIDTH": width}


def _norm_backward(device: str, rows: int, columns: int) -> dict[str, Any]:
    tensors = {name: _half(device, rows, columns) for name in ("dy_ptr", "x_ptr", "dx_ptr")}
    means = {name: torch.rand(rows, device=device) for name in ("mean_ptr", "rstd_ptr")}
    sums = {name: torch.zeros(columns, device=device) for name in ("w_ptr", "dw_ptr", "db_ptr")}
    width = triton.next_power_of_2(columns)
    return {**tensors, **means, **sums, "rows": rows, "columns": columns, "WIDTH": width}


def _norm_lock(device: str, rows: int, columns: int) -> dict[str, Any]:
    partial = {name: torch.zeros(64, columns, device=device) for name in ("dw_ptr", "db_ptr")}
    locks = torch.zeros(128, device=device, dtype=torch.int32)
    return {**_norm_backward(device, rows, columns), **partial, "lock_ptr": locks, "GROUPS": 64}


def _entropy(device: str, rows: int, columns: int) -> dict[str, Any]:
    labels = torch.randint(columns, (rows,), generator=_seeded()).to(device)
    loss = torch.zeros(rows, device=device)
    return {"logits_ptr": _half(device, rows, columns), "labels_ptr": labels, "loss_ptr": loss, "columns": columns}


def _segments(device: str, segments: int, longest: int, width: int) -> dict[str, Any]:
    lengths = torch.randint(1, longest, (segments,), generator=_seeded())
    bounds = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    x = torch.randn(int(bounds[-1]), width, device=device)
    out = torch.zeros(segments, width, device=device)
    return {"x_ptr": x, "bounds_ptr": bounds.to(device), "out_ptr": out, "segments": segments, "WIDTH": width}


def _gather(device: str, entries: int, rows: int, width: int) -> dict[str, Any]:
    index = torch.randint(entries, (rows,), generator=_seeded()).to(device)
    table, out = _half(device, entries, width), _half(device, rows, width)
    return {"table_ptr": table, "index_ptr": index, "out_ptr": out, "rows": rows, "WIDTH": width}


def _product(device: str, m: int, n: int, k: int) -> dict[str, Any]:
    a, b = _padded(device, m, k), _padded(device, k, n)
    return {"a_ptr": a, "b_ptr": b, "c_ptr": _half(device, m, n), "m": m, "n": n, "k": k}


def _split(device: str, m: int, n: int, k: int) -> dict[str, Any]:
    return {**_product(device, m, n, k), "c_ptr": torch.zeros(m, n, device=device)}


def _described(device: str, m: int, n: int, k: int) -> dict[str, Any]:
    inputs = _product(device, m, n, k)
    named = {name: TensorDescriptor.from_tensor(inputs[f"{name}_ptr"], [64, 64]) for name in "abc"}
    return {**named, "m": m, "n": n, "k": k}


def _quantised(device: str, m: int, n: int, k: int) -> dict[str, Any]:
    inputs = _product(device, m, n, k)
    weights = torch.randint(-8, 8, (k + _PAD, n), generator=_seeded(), dtype=torch.int8).to(device)[:k]
    return {**inputs, "b_ptr": weights, "scale_ptr": torch.rand(n, device=device)}


def _grouped(device: str, groups: int, m: int, n: int, k: int) -> dict[str, Any]:
    lengths = torch.randint(m // 2, m, (groups,), generator=_seeded())
    bounds = torch.nn.functional.pad(lengths.cumsum(0), (1, 0)).to(torch.int32)
    rows = int(bounds[-1])
    matrices = {"a_ptr": _padded(device, rows, k), "b_ptr": _padded(device, groups * k, n)}
    out, sizes = _half(device, rows, n), {"groups": groups, "n": n, "k": k, "PROGRAMS": PROGRAMS}
    return {**matrices, "c_ptr": out, "bounds_ptr": bounds.to(device), **sizes}


def _attention(device: str, heads: int, length: int, width: int) -> dict[str, Any]:
    tensors = {name: _half(device, heads, length, width) for name in ("q_ptr", "k_ptr", "v_ptr", "out_ptr")}
    return {**tensors, "length": length, "scale": width**-0.5, "WIDTH": width}


def _attention_backward(device: str, heads: int, length: int, width: int) -> dict[str, Any]:
    names = ("q_ptr", "k_ptr", "v_ptr", "do_ptr", "dk_ptr", "dv_ptr")
    tensors = {name: _half(device, heads, length, width) for name in names}
    sums = {name: torch.rand(heads, length, device=device) + 8 for name in ("high_ptr", "delta_ptr")}
    return {**tensors, **sums, "length": length, "scale": width**-0.5, "WIDTH": width}


def _products(*shapes: tuple[int, int, int]) -> list[Sizes]:
    return [{"m": m, "n": n, "k": k} for m, n, k in shapes]


def _rows_by_columns(*shapes: tuple[int, int]) -> list[Sizes]:
    return [{"rows": rows, "columns": columns} for rows, columns in shapes]


def _tile_configs(tiles: Sequence[tuple[int, int]], depths: Sequence[int], pipelines: Any) -> list[Config]:
    return [
        Config({"BM": bm, "BN": bn, "BK": bk}, num_stages=stages, num_warps=warps)
        for (bm, bn), bk, (stages, warps) in product(tiles, depths, pipelines)
    ]


def _heads(block: str) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    return lambda meta: (triton.cdiv(meta["length"], meta[block]), meta["q_ptr"].shape[0])


_FLAT = _warps({"BLOCK": [128, 512, 1024, 4096, 16384]}, (1, 4, 8))
_ROWS = _warps({"ROWS": [1, 4]}, (2, 4, 8, 16))
_GRADIENT_ROWS = _warps({"ROWS": [4, 16, 64]}, (2, 4, 8, 16))
_TILES = [(64, 64), (64, 128), (128, 64), (128, 128), (128, 256)]
_TILE_CONFIGS = _tile_configs(_TILES, (32, 64), ((3, 4), (4, 8)))
_FEW_CONFIGS = _tile_configs(_TILES[1:4], (32, 64), ((2, 4), (3, 4), (4, 8)))
_HOOKED_CONFIGS = [
    Config(config.kwargs, num_warps=config.num_warps, num_stages=config.num_stages, pre_hook=products.set_blocks)
    for config in _FEW_CONFIGS
]
_SPLIT_CONFIGS = [
    Config({"BM": bm, "BN": bn, "BK": bk, "SPLIT": split}, num_stages=3, num_warps=4)
    for (bm, bn), bk, split in product([(64, 64), (64, 128), (128, 128)], (32, 64), (1, 4, 16))
]
_HEAD_CONFIGS = [
    Config({"BM": bm, "BN": bn}, num_stages=stages, num_warps=warps)
    for bm, bn, stages, warps in product((64, 128), (32, 64, 128), (2, 3), (4, 8))
]
_LARGE_PRODUCTS = _products((1024, 1024, 1024), (4096, 4096, 1024), (8192, 1024, 4096), (256, 4096, 4096))
_ROW_SIZES = _rows_by_columns((8192, 2048), (1024, 8192), (65536, 256), (300, 1000))
_FLAT_SIZES = [{"n": n} for n in (1 << 16, 1_000_003, 1 << 24, 1 << 27)]
_HEAD_SIZES = [{"heads": heads, "length": length, "width": 64} for heads, length in ((64, 2048), (8, 4096), (16, 512))]

RECIPES: dict[str, Recipe] = {
    "add": Recipe(kernels.add, _FLAT, _FLAT_SIZES, _flat, _blocks("n", "BLOCK")),
    "gelu": Recipe(kernels.gelu, _FLAT, _FLAT_SIZES, _gelu, _blocks("n", "BLOCK")),
    "strided-copy": Recipe(
        kernels.strided_copy,
        _FLAT,
        [{"n": n, "stride": stride} for n, stride in ((1 << 20, 2), (1 << 22, 9), (1 << 24, 4), (1 << 22, 32))],
        _strided,
        _blocks("n", "BLOCK"),
    ),
    "transpose": Recipe(
        kernels.transpose,
        _warps({"BM": [16, 64, 128], "BN": [16, 64]}, (4, 8)),
        _rows_by_columns((4096, 4096), (1000, 3000), (256, 65536)),
        _matrix,
        lambda meta: (triton.cdiv(meta["rows"], meta["BM"]), triton.cdiv(meta["columns"], meta["BN"])),
    ),
    "row-sum": Recipe(
        kernels.row_sum,
        _warps({"ROWS": [1, 4, 16], "BLOCK": [128, 1024]}, (2, 8)),
        _rows_by_columns((16384, 1024), (256, 65536), (100_000, 100)),
        _row_sums,
        _blocks("rows", "ROWS"),
    ),
    "column-sum": Recipe(
        kernels.column_sum,
        _warps({"ROWS": [4, 16, 64], "BLOCK": [32, 128]}, (2, 8)),
        _rows_by_columns((1024, 16384), (8192, 4096), (64, 200_000)),
        _column_sums,
        _blocks("columns", "BLOCK"),
    ),
    "total-sum": Recipe(
        kernels.total_sum,
        _warps({"BLOCK": [256, 1024, 4096], "ROUNDS": [1, 8]}, (4, 8)),
        _FLAT_SIZES[:3],
        _total,
        lambda meta: (triton.cdiv(meta["n"], meta["BLOCK"] * meta["ROUNDS"]),),
    ),
    "scatter-add": Recipe(
        kernels.scatter_add,
        _warps({"BLOCK": [128, 512, 2048]}, (1, 4, 8)),
        [{"n": 1 << 22, "slots": slots} for slots in (1 << 22, 4096, 64)],
        _scatter,
        _blocks("n", "BLOCK"),
    ),
    "scan": Recipe(
        kernels.cumulative_sum,
        _warps({}, (1, 2, 4, 8, 16, 32)),
        _ROW_SIZES,
        _scan,
        lambda meta: (meta["x_ptr"].shape[0],),
    ),
    "softmax": Recipe(
        rows_of.softmax.fn,
        _warps({"ROWS": [1, 2, 8], "STREAMS": [False]}, (2, 4, 8, 16)),
        _ROW_SIZES,
        _wide,
        _blocks("rows", "ROWS"),
    ),
    "norm-forward": Recipe(rows_of.norm_forward.fn, _ROWS, _ROW_SIZES, _norm, _blocks("rows", "ROWS")),
    "norm-backward": Recipe(
        rows_of.norm_backward.fn, _GRADIENT_ROWS, _ROW_SIZES, _norm_backward, _blocks("rows", "ROWS")
    ),
    "norm-backward-lock": Recipe(
        rows_of.norm_backward_lock.fn, _GRADIENT_ROWS, _ROW_SIZES[:3], _norm_lock, _blocks("rows", "ROWS")
    ),
    "cross-entropy": Recipe(
        rows_of.cross_entropy.fn,
        _warps({"BLOCK": [1024, 4096, 8192]}, (4, 8, 16, 32)),
        _rows_by_columns((4096, 32768), (512, 128_000), (8192, 1000)),
        _entropy,
        lambda meta: (meta["logits_ptr"].shape[0],),
    ),
    "segment-sum": Recipe(
        rows_of.segment_sum.fn,
        _warps({"BLOCK": [8, 16, 32, 64]}, (1, 2, 4, 8)),
        [
            {"segments": segments, "longest": longest, "width": 128}
            for segments, longest in ((8192, 256), (512, 2048), (65536, 16))
        ],
        _segments,
        lambda meta: (meta["segments"],),
    ),
    "gather": Recipe(
        rows_of.gather.fn,
        _warps({"ROWS": [1, 2, 4, 8]}, (1, 2, 4, 8)),
        [
            {"entries": entries, "rows": rows, "width": width}
            for entries, rows, width in ((65536, 131072, 512), (1024, 131072, 128), (1 << 20, 65536, 64))
        ],
        _gather,
        _blocks("rows", "ROWS"),
    ),
    "matmul": Recipe(products.matmul.fn, _TILE_CONFIGS, _LARGE_PRODUCTS, _product, _tiles),
    "persistent": Recipe(
        products.persistent.fn,
        _FEW_CONFIGS,
        _LARGE_PRODUCTS,
        _product,
        lambda meta: (min(PROGRAMS, *_tiles(meta)),),
    ),
    "split-k": Recipe(
        products.split_k.fn,
        _SPLIT_CONFIGS,
        _products((512, 1024, 16384), (64, 4096, 4096), (1024, 1024, 1024)),
        _split,
        lambda meta: (*_tiles(meta), meta["SPLIT"]),
    ),
    "device-descriptors": Recipe(products.device_descriptors.fn, _FEW_CONFIGS, _LARGE_PRODUCTS[:3], _product, _tiles),
    "host-descriptors": Recipe(
        products.host_descriptors.fn,
        _HOOKED_CONFIGS,
        _LARGE_PRODUCTS[:3],
        _described,
        _tiles,
    ),
    "quantised": Recipe(kernels.quantised_product, _FEW_CONFIGS, _LARGE_PRODUCTS[1:], _quantised, _tiles),
    "grouped": Recipe(
        kernels.grouped_product,
        _FEW_CONFIGS,
        [
            {"groups": groups, "m": m, "n": n, "k": k}
            for groups, m, n, k in ((8, 1024, 1024, 1024), (32, 256, 2048, 512), (4, 4096, 512, 2048))
        ],
        _grouped,
        lambda meta: (PROGRAMS,),
    ),
    "attention": Recipe(products.attention.fn, _HEAD_CONFIGS, _HEAD_SIZES, _attention, _heads("BM")),
    "attention-backward": Recipe(
        kernels.attention_backward, _HEAD_CONFIGS, _HEAD_SIZES, _attention_backward, _heads("BN")
    ),
}
