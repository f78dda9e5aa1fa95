"""What devices can do where nothing was measured: one model for each architecture, by its maker's data sheet."""

from __future__ import annotations

from dataclasses import dataclass, replace

from kernellab.explain.facts import DeviceRates
from kernellab.measure.ceilings import Ceilings
from kernellab.target import Target

_MEMORY_REACHED = 0.9  # of the data sheet, by a copy
_TENSOR_REACHED = 0.72  # by a large product


@dataclass(frozen=True, slots=True)
class _Sheet:
    """Data of a model: GHz, GB/s, MB, and dense TFLOP/s of fp16 with fp32 sums, fp32 and fp64 outside tensor cores."""

    name: str
    multiprocessors: int
    clock_ghz: float
    memory_gbps: float
    l2_gbps: float
    l2_mb: float
    fp16: float
    fp32: float
    fp64: float
    has_fp8: bool = False


# Rounded from the data sheets, https://www.nvidia.com/en-us/data-center/ and
# https://www.amd.com/en/products/accelerators.html; none tells the rate of the L2, which is an
# estimate; that of cuda:90 is what products drew on an H200.
_SHEETS = {
    "cuda:75": _Sheet("T4", 40, 1.3, 320, 1200, 4, 65, 8.1, 0.25),
    "cuda:80": _Sheet("A100", 108, 1.41, 2039, 4500, 40, 312, 19.5, 9.7),
    "cuda:86": _Sheet("A10", 72, 1.5, 600, 2000, 6, 125, 31, 0.5),
    "cuda:87": _Sheet("Orin", 16, 1.3, 205, 800, 4, 42, 5.3, 0.08),
    "cuda:89": _Sheet("L40S", 142, 2.0, 864, 4000, 96, 362, 91, 1.4, has_fp8=True),
    "cuda:90": _Sheet("H100", 132, 1.7, 3350, 9500, 50, 989, 67, 34, has_fp8=True),
    "cuda:100": _Sheet("B200", 148, 1.8, 8000, 14_000, 126, 2250, 80, 40, has_fp8=True),
    "cuda:103": _Sheet("B300", 148, 1.8, 8000, 14_000, 126, 2500, 77, 1.2, has_fp8=True),
    "cuda:110": _Sheet("Thor", 20, 1.5, 273, 1000, 32, 250, 8, 0.1, has_fp8=True),
    "cuda:120": _Sheet("RTX 5090", 170, 2.2, 1792, 6000, 96, 210, 105, 1.6, has_fp8=True),
    "cuda:121": _Sheet("GB10", 48, 2.2, 273, 1500, 24, 62, 31, 0.5, has_fp8=True),
    "hip:gfx90a": _Sheet("MI210", 104, 1.7, 1638, 3500, 8, 181, 22.6, 22.6),
    "hip:gfx942": _Sheet("MI300X", 304, 2.1, 5300, 10_000, 256, 1307, 163, 81, has_fp8=True),
    "hip:gfx950": _Sheet("MI350X", 256, 2.2, 8000, 12_000, 256, 2300, 144, 72, has_fp8=True),
}


def device_of_table(target: Target) -> DeviceRates:
    """Return the device that stands for a target: the model of its architecture that computes most in data centres.

    Where the table has none, it is another one, whose name says so.
    """
    sheet = _SHEETS.get(str(target))
    if sheet is None:
        other = _SHEETS["cuda:90"]
        sheet = replace(other, name=f"{other.name} in the place of {target}, of which none is known")
    half = sheet.fp16 * _TENSOR_REACHED
    rates = {"fp16": half, "bf16": half, "tf32": half / 2, "int8": 2 * half, "fp8": (2 if sheet.has_fp8 else 1) * half}
    tflops = {**rates, "fp32": sheet.fp32, "fp64": sheet.fp64}
    return DeviceRates(
        name=sheet.name,
        multiprocessors=sheet.multiprocessors,
        clock_hz=sheet.clock_ghz * 1e9,
        memory_gbps=sheet.memory_gbps * _MEMORY_REACHED,
        l2_gbps=sheet.l2_gbps,
        l2_bytes=int(sheet.l2_mb * 2**20),
        tflops=tflops,
    )


def measured_device(table: DeviceRates, ceilings: Ceilings, multiprocessors: int, l2_bytes: int) -> DeviceRates:
    """Return a device with what was measured on it; what was not stays as the table has it."""
    tensor = {kind: rate for kind, rate in ceilings.tflops.items() if kind != "fp32"}
    return replace(
        table,
        name=ceilings.device,
        multiprocessors=multiprocessors,
        l2_bytes=l2_bytes or table.l2_bytes,
        memory_gbps=ceilings.memory_gbps,
        l2_gbps=max(table.l2_gbps, 1.2 * ceilings.memory_gbps),
        tflops={**table.tflops, **tensor},
        is_measured=True,
    )
