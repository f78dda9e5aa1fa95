"""The devices that times are predicted for: their peak rates, from data sheets or as measured on a GPU.

A device of the table is named as in ``lab.predict(..., device="h100")``. A target without a device means the
data-centre model of its architecture that computes most.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace

from kernellab.errors import UsageError, value_text
from kernellab.explain.facts import DeviceRates
from kernellab.target import Target, parse_target
from kernellab.timing.provenance import Ceilings

_MEMORY_REACHED = 0.9  # of the data sheet, by a copy
_TENSOR_REACHED = 0.72  # by a large product


@dataclass(frozen=True, slots=True)
class Device:
    """A device of the table: its name there, its target, its rates, and the document that these are from."""

    name: str
    target: str
    rates: DeviceRates
    source: str


_NVIDIA, _AMD = "https://www.nvidia.com/en-us", "https://www.amd.com/en/products/accelerators/instinct"
_DOCUMENTS = {
    "ampere": "https://www.nvidia.com/content/PDF/nvidia-ampere-ga-102-gpu-architecture-whitepaper-v2.1.pdf",
    "ada": "https://images.nvidia.com/aem-dam/Solutions/geforce/ada/nvidia-ada-gpu-architecture.pdf",
    "orin": f"{_NVIDIA}/autonomous-machines/embedded-systems/jetson-orin/",
    "thor": f"{_NVIDIA}/autonomous-machines/embedded-systems/jetson-thor/",
    "rtx5090": f"{_NVIDIA}/geforce/graphics-cards/50-series/rtx-5090/",
    "gb10": f"{_NVIDIA}/products/workstations/dgx-spark/",
}

# Rounded from the data sheets. None has the rate of the L2, which is an estimate; that of cuda:90 was measured by
# matrix products on an H200. Clocks are those under load. The columns: name, target, model, SMs, GHz, GB/s of memory
# and of the L2, MiB of the L2, dense TFLOP/s of fp16 with fp32 sums, of fp32 and of fp64 on ordinary units, document.
# Two spaces at least stand between columns, since names have one.
_SHEETS = """
t4         cuda:75     T4          40   1.3   320   1200    4    65   8.1  0.25  tesla-t4/
a100-80    cuda:80     A100       108  1.41  2039   4500   40   312  19.5   9.7  a100/
a100-40    cuda:80     A100 40GB  108  1.41  1555   4500   40   312  19.5   9.7  a100/
a10        cuda:86     A10         72   1.5   600   2000    6   125    31   0.5  products/a10-gpu/
rtx3090    cuda:86     RTX 3090    82   1.7   936   2400    6    71  35.6  0.56  ampere
orin       cuda:87     Orin        16   1.3   205    800    4    42   5.3  0.08  orin
l40s       cuda:89     L40S       142   2.0   864   4000   96   362    91   1.4  l40s/
l4         cuda:89     L4          58   1.5   300   1900   48   121  30.3  0.49  l4/
rtx4090    cuda:89     RTX 4090   128   2.5  1008   4500   72   165  82.6   1.3  ada
h100       cuda:90     H100       132  1.83  3350   9500   50   989    67    34  h100/
h100-pcie  cuda:90     H100 PCIe  114   1.5  2000   7000   50   756    51    26  h100/
h200       cuda:90     H200       132  1.83  4800   9500   50   989    67    34  h200/
b200       cuda:100    B200       148   1.8  8000  14000  126  2250    80    40  dgx-b200/
b300       cuda:103    B300       148   1.8  8000  14000  126  2500    77   1.2  dgx-b300/
thor       cuda:110    Thor        20   1.5   273   1000   32   250     8   0.1  thor
rtx5090    cuda:120    RTX 5090   170   2.2  1792   6000   96   210   105   1.6  rtx5090
gb10       cuda:121    GB10        48   2.2   273   1500   24    62    31   0.5  gb10
mi210      hip:gfx90a  MI210      104   1.7  1638   3500    8   181  22.6  22.6  mi200.html
mi300x     hip:gfx942  MI300X     304   2.1  5300  10000  256  1307   163    81  mi300.html
mi350x     hip:gfx950  MI350X     256   2.2  8000  12000  256  2300   144    72  mi350.html
"""
_WITHOUT_FP8 = {"cuda:75", "cuda:80", "cuda:86", "cuda:87", "hip:gfx90a"}


def _device_of_row(row: str) -> Device:
    name, target, model, *numbers, source = re.split(r"\s{2,}", row)
    processors, clock_ghz, memory_gbps, l2_gbps, l2_mib, fp16, fp32, fp64 = map(float, numbers)
    half = fp16 * _TENSOR_REACHED
    fp8 = half if target in _WITHOUT_FP8 else 2 * half
    rates = {"fp16": half, "bf16": half, "tf32": half / 2, "int8": 2 * half, "fp8": fp8, "fp32": fp32, "fp64": fp64}
    reached_gbps, l2_bytes = memory_gbps * _MEMORY_REACHED, int(l2_mib * 2**20)
    sheet = DeviceRates(model, int(processors), clock_ghz * 1e9, reached_gbps, l2_gbps, l2_bytes, rates)
    if target.startswith("hip"):
        sheet = replace(sheet, launch_s=0.0)  # measured on NVIDIA's devices alone
    page = f"{_AMD}/{source}" if target.startswith("hip") else f"{_NVIDIA}/data-center/{source}"
    return Device(name, target, sheet, _DOCUMENTS.get(source, page))


DEVICES: Mapping[str, Device] = {d.name: d for d in map(_device_of_row, _SHEETS.strip().splitlines())}


def named_device(name: str) -> Device:
    """Return the device of the table with a name such as ``h100-pcie``; case, spaces and underscores do not matter.

    Raises:
        UsageError: the table has no such device.
    """
    known = DEVICES.get(_table_name(name))
    if known is None:
        raise UsageError(f"device is {value_text(name)}; expected one of {', '.join(DEVICES)}.")
    return known


def _table_name(text: str) -> str:
    return text.strip().lower().replace(" ", "").replace("_", "-")


def device_for(target: Target, name: str) -> DeviceRates:
    """Return the rates of a named device; of the one that stands for a target where no name or sheet is known.

    Raises:
        UsageError: the device is of another target.
    """
    device = DEVICES.get(_table_name(name))
    if device is None:
        return device_of_table(target)
    if parse_target(device.target) != target:
        raise UsageError(f"device {name} is a {device.target}, and target is {target}; give one of them.")
    return device.rates


def device_of_table(target: Target) -> DeviceRates:
    """Return the rates of the first device of the table with a target.

    For an unknown target it is an H100, and its name says so.
    """
    for device in DEVICES.values():
        if device.target == str(target):
            return device.rates
    other = DEVICES["h100"].rates
    return replace(other, name=f"{other.name} in place of {target}")


def device_of_model(target: Target, model: str) -> DeviceRates:
    """Return the rates of a GPU that its driver names ``model``, such as "NVIDIA H200"; else those for its target."""
    rates = [device.rates for device in DEVICES.values() if device.target == str(target)]
    named = [row for row in rates if row.name.lower() in model.lower()]
    return max(named, key=lambda row: len(row.name)) if named else device_of_table(target)


def measured_device(table: DeviceRates, ceilings: Ceilings, multiprocessors: int, l2_bytes: int) -> DeviceRates:
    """Return a device with its measured rates; the others stay as in the table."""
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
