"""Kernels exported as binaries and launched in a process without Triton: the bits, and what a launch costs the host.

Usage: python -m benchmarks.export_binaries [--stand-in]. Needs a CUDA GPU, under 120 s. Twenty kernels of the test
suite are launched by plain Triton, exported, and launched again from their cubins in one process that cannot import
Triton. Then three kernels are launched in turns by Triton and from their binaries. Prints how many have the same bits,
and writes benchmarks/results/export_binaries.txt. With --stand-in, without a GPU and under 60 s, it only times the
host, over a driver whose functions succeed at once, and prints.
"""

from __future__ import annotations

import importlib.util
import json
import platform
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from benchmarks.cuda_stand_in import use_stand_in
from tests.export.binary_cases import BinaryCase, export_launch, run_without_triton, special_cases, suite_cases

RESULT = Path(__file__).parent / "results" / "export_binaries.txt"
KERNELS = 20


def main() -> None:
    """Export, launch without Triton, compare; then time the host."""
    if "--stand-in" in sys.argv:
        print("\n".join(stand_in_lines()))
        return
    begin = time.perf_counter()
    capability = torch.cuda.get_device_capability()[0]
    special = {name: case for name, case in special_cases().items() if case.least <= capability}
    cases = dict([*special.items(), *suite_cases().items()][: KERNELS - 1]) | {"many": timed_cases()["many"]}
    with kernellab.Lab(store=":memory:") as lab, tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary) / name for name in cases]
        for (name, case), folder in zip(cases.items(), folders, strict=True):
            export_launch(lab, name, case, folder)
        result = run_without_triton(folders)
        if result.returncode:
            sys.exit(result.stderr)
        same = json.loads(result.stdout)["same"]
        versions = f"Triton {triton.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
        lines = [
            f"{torch.cuda.get_device_name()}, {versions}",
            f"{len(same)} of {len(cases)} kernels have the same bits from cubins in a process without Triton",
            *(f"differs: {name}" for name in cases if name not in same),
            *host_lines(Path(temporary)),
            f"{time.perf_counter() - begin:.0f} s in all",
        ]
    text = "\n".join(lines) + "\n"
    print(text, end="")
    RESULT.write_text(text)


def host_lines(parent: Path, device: str = "cuda") -> list[str]:
    """Return what launches cost the host, by Triton and from binaries, in turns."""
    return [host_line(name, case, parent / name, device) for name, case in timed_cases().items()]


def timed_cases() -> dict[str, BinaryCase]:
    """Return launches with few arguments, with many, and with a descriptor."""
    cases = special_cases()
    tensors = {f"x{index}": torch.zeros(16) for index in range(6)}
    numbers = {**{f"n{index}": 100 + index for index in range(6)}, "scale": 0.5}
    many = BinaryCase(many_arguments, (4,), {**tensors, **numbers}, {"BLOCK": 16, "FLAG": True})
    return {"cooperative": cases["cooperative"], "many": many, "described": cases["described"]}


@triton.jit
def many_arguments(x0, x1, x2, x3, x4, x5, n0, n1, n2, n3, n4, n5, scale, BLOCK: tl.constexpr, FLAG: tl.constexpr):
    offsets = tl.arange(0, BLOCK)
    total = tl.load(x0 + offsets) + tl.load(x1 + offsets) + tl.load(x2 + offsets) + tl.load(x3 + offsets)
    tl.store(x4 + offsets, total * scale + n0 + n1 + n2 + n3 + n4 + n5, mask=offsets < n5)
    if FLAG:
        tl.store(x5 + offsets, total)


def host_line(name: str, case: BinaryCase, folder: Path, device: str) -> str:
    """Return what a launch costs the host by Triton and from the binary, and the median of their ratios."""
    given = {n: v.to(device) if isinstance(v, torch.Tensor) else v for n, v in case.arguments.items()}
    binary = exported_kernel(folder, case.kernel.__name__, device)
    described = {n: TensorDescriptor.from_tensor(given[n], block) for n, block in case.blocks.items()}
    arguments = {**given, **described, **case.meta}
    kernels = {"Triton": case.kernel, "binary": binary}
    times_us: dict[str, list[float]] = {way: [] for way in kernels}
    for _ in range(15):
        for way, kernel in kernels.items():
            times_us[way].append(host_us(lambda kernel=kernel: kernel[case.grid](**arguments)))
    ratio = statistics.median(b / t for b, t in zip(times_us["binary"], times_us["Triton"], strict=True))
    by_triton, by_binary = (statistics.median(values) for values in times_us.values())
    words = f"{len(given)} arguments{' with a descriptor' * bool(case.blocks)}"
    return (
        f"host time of a launch, {name}, {words}: {by_triton:.1f} us by Triton, {by_binary:.1f} us from the binary, "
        f"{ratio:.2f} times Triton's"
    )


def exported_kernel(folder: Path, name: str, device: str = "cuda") -> Any:
    """Return the kernel of exported binaries; over the stand-in for the driver, on cuda:90."""
    spec = importlib.util.spec_from_file_location(f"{folder.name}_{name}", folder / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    kernel = getattr(module, name)
    if device == "cpu":
        active = triton.runtime.driver.active
        kernel.driver.current_device, kernel.driver.current_stream = (
            active.get_current_device,
            active.get_current_stream,
        )
        kernel.driver.target = lambda number: "cuda:90"
    return kernel


def stand_in_lines() -> list[str]:
    """Export without a GPU, then return what launches cost the host over a stand-in for the driver."""
    with tempfile.TemporaryDirectory() as temporary:
        export_offline(Path(temporary))
        use_stand_in()
        torch.Tensor.is_cuda = True  # the stand-in launches tensors of the CPU
        versions = f"Triton {triton.__version__}, torch {torch.__version__}, Python {platform.python_version()}"
        return [f"a stand-in for the CUDA driver, {versions}", *host_lines(Path(temporary), "cpu")]


def export_offline(parent: Path) -> None:
    """Export the binaries of the timed kernels for cuda:90, without a GPU."""
    with kernellab.Lab(store=":memory:", target="cuda:90") as lab:
        for name, case in timed_cases().items():
            blocks = {n: TensorDescriptor.from_tensor(case.arguments[n], block) for n, block in case.blocks.items()}
            version = lab.kernels.add(case.kernel, name=name)
            lab.run(case.kernel, case.grid, **{**case.arguments, **blocks}, **case.meta)
            lab.export(version.label, parent / name, kind="binaries")


def host_us(launch: Callable[[], object], count: int = 200) -> float:
    """Return the time of a launch on the host in microseconds."""
    launch()
    synchronize()
    begin = time.perf_counter()
    for _ in range(count):
        launch()
    passed = time.perf_counter() - begin
    synchronize()
    return passed / count * 1e6


def synchronize() -> None:
    """Wait for the GPU, if there is one."""
    if torch.cuda.is_available():
        torch.cuda.synchronize()


if __name__ == "__main__":
    main()
