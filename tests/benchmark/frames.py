"""Benchmarks with written-down times, for views and files."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

from kernellab.benchmark.result import Benchmark, BenchmarkRow, with_rates
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.provenance import Ceilings
from kernellab.tune.result import Tuning

CEILINGS = Ceilings("NVIDIA H200", "580.1", 4200.0, {"fp16": 740.0, "bf16": 750.0, "tf32": 370.0, "fp32": 52.0}, 1.7e9)
PROVENANCE = {"device": "NVIDIA H200", "driver": "580.1", "target": "cuda:90", "triton": "3.6.0", "torch": "2.11.0"}


def row(point: dict[str, Any], name: str, time_ms: float | None, **more: Any) -> BenchmarkRow:
    status = more.pop("status", Status.OK if time_ms is not None else Status.FAULT)
    found = BenchmarkRow(
        more.pop("config", None), status, point=tuple(point.items()), implementation=name, created=1.7e9, **more
    )
    if time_ms is None:
        return found
    return replace(
        found,
        time_ms=time_ms,
        low_ms=time_ms * 0.97,
        high_ms=time_ms * 1.04,
        samples=30,
        rank=1,
        options={"num_warps": 4, "num_stages": 3, "num_ctas": 1, "maxnreg": None},
        clock_mhz=1980,
        temperature_c=41,
    )


def sweep(dtypes: tuple[str, ...] = ("float32",)) -> Benchmark:
    """Return an elementwise kernel from 1 K to 128 M elements beside torch, with one point that faults."""
    rows = []
    for dtype, power in itertools.product(dtypes, range(10, 28)):
        n, size = 2**power, 4 if dtype == "float32" else 2
        for name, floor, rate in (("add", 0.0021, 4.0e9), ("torch", 0.0034, 3.9e9)):
            ms = floor + 3 * size * n / rate
            point = {"n": n, "dtype": dtype} if len(dtypes) > 1 else {"n": n}
            failed = name == "torch" and power == 27
            more = {"bytes": 3 * size * n, "flops": 0, "fp_ops": n, "intensity": 0.0}
            if failed:
                rows.append(row(point, name, None, reason="CUDA out of memory", **more))
            else:
                speedup = (floor + 0.0013 + 3 * size * n / 3.9e9) / ms if name == "add" else 1.0
                more |= {"speedup": speedup, "speedup_low": speedup * 0.96, "speedup_high": speedup * 1.05}
                rows.append(row(point, name, ms, **more))
    swept = ("n", "dtype") if len(dtypes) > 1 else ("n",)
    return made("add", swept, ("add", "torch"), "torch", rows)


def roofed(tuning: Tuning) -> Tuning:
    """Return a tuning as that of a product of 4096 by 4096 matrices, on a device whose ceilings are known."""
    rows = tuple(
        replace(row, tflops=0.03 * 2 * 4096**3 / row.time_ms / 1e9, gbps=0.03 * 6 * 4096**2 / row.time_ms / 1e6)
        if row.time_ms is not None
        else row
        for row in tuning.rows
    )
    return replace(tuning, rows=rows, provenance={**tuning.provenance, "ceilings": CEILINGS.as_dict()})


def products(configs: int = 1) -> Benchmark:
    """Return a matrix product over sizes beside torch; of ``configs`` configs each."""
    rows = []
    for size in (512, 1024, 2048, 4096, 8192):
        flops, moved = 2 * size**3, 6 * size**2
        work = {"flops": flops, "bytes": moved, "intensity": flops / moved, "dot_dtype": "fp16"}
        for number in range(configs):
            config = Config.of({"BLOCK": 32 << number % 4, "GROUP": 1 + number // 4, "num_warps": 4})
            ms = 0.008 + flops / 5.9e11 * (1 + 0.07 * (number * 7 % 11))
            point = {"size": size, "config": config.text} if configs > 1 else {"size": size}
            rows.append(
                row(point, "matmul", ms, config=config, speedup=0.8, speedup_low=0.78, speedup_high=0.82, **work)
            )
        point = {"size": size, "config": None} if configs > 1 else {"size": size}
        more = {"speedup": 1.0, "speedup_low": 1.0, "speedup_high": 1.0}
        rows.append(row(point, "torch", 0.007 + flops / 7.0e11, **work, **more))
    swept = ("size", "config") if configs > 1 else ("size",)
    return made("matmul", swept, ("matmul", "torch"), "torch", rows)


def blocks() -> Benchmark:
    """Return a kernel over two block sizes alone."""
    rows = []
    for m, n in itertools.product((16, 32, 64, 128), (16, 32, 64, 128, 256)):
        rows.append(row({"BLOCK_M": m, "BLOCK_N": n}, "tiles", 0.2 + abs(m * n - 4096) / 2e4, bytes=10**8))
    return made("tiles", ("BLOCK_M", "BLOCK_N"), ("tiles",), "", rows)


def dtypes() -> Benchmark:
    """Return a kernel over dtypes, which are no numbers."""
    rows = [
        row({"dtype": dtype}, name, ms, bytes=10**9)
        for dtype, ms in (("float32", 0.5), ("float16", 0.27), ("bfloat16", 0.28))
        for name in ("softmax", "torch")
    ]
    return made("softmax", ("dtype",), ("softmax", "torch"), "torch", rows)


def untimed() -> Benchmark:
    """Return what a machine without a GPU gives."""
    rows = [
        BenchmarkRow(None, Status.NOT_TIMED, "not measured: there is no GPU", point=(("n", n),), implementation=name,
            bytes=12 * n, flops=0,
            fp_ops=n, registers=24 if name == "add" else None, created=1.7e9)
        for n in (1000, 2000) for name in ("add", "torch")
    ]  # fmt: skip
    found = made("add", ("n",), ("add", "torch"), "torch", rows)
    return replace(found, ceilings=None, provenance={**PROVENANCE, "device": None, "driver": None})


def made(
    kernel: str, swept: tuple[str, ...], names: tuple[str, ...], reference: str, rows: list[BenchmarkRow]
) -> Benchmark:
    found = tuple(with_rates(row, CEILINGS) for row in rows)
    return Benchmark(kernel, swept, names, reference, found, 4.2, CEILINGS, PROVENANCE)
