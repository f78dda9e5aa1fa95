"""Exporting binaries of the kernels of the suite, with inputs and outputs of a launch, for a process without Triton."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

import kernellab
from tests import samples
from tests.kernels.cases import all_cases

RUNNER = """\
import importlib, json, pathlib, sys
from concurrent.futures import ThreadPoolExecutor
sys.modules |= {"triton": None, "kernellab": None}  # whose import raises ImportError
import torch

def is_same(saved, module, pool):
    given = {n: v.cuda() if isinstance(v, torch.Tensor) else v for n, v in saved["arguments"].items()}
    described = {n: module.TensorDescriptor.from_tensor(given[n], block) for n, block in saved["blocks"].items()}
    kernel = getattr(module, saved["kernel"])[saved["grid"]]
    pool.submit(lambda: kernel(**{**given, **described}, **saved["meta"])).result()
    torch.cuda.synchronize()
    outputs = {n: v.cpu() for n, v in given.items() if isinstance(v, torch.Tensor)}
    bits = all(torch.equal(v.view(torch.uint8), saved["outputs"][n].view(torch.uint8)) for n, v in outputs.items())
    return bits and any(not torch.equal(v, saved["arguments"][n]) for n, v in outputs.items())

same, launched = [], []
for folder in map(pathlib.Path, sys.argv[1:]):
    saved = torch.load(folder / "launch.pt")
    sys.path.insert(0, str(folder))
    module = importlib.import_module(saved["kernel"])
    del sys.path[0], sys.modules[saved["kernel"]]
    results = []
    for _ in range(2):  # the second launch is one of a cached specialization, in a thread of its own
        with ThreadPoolExecutor(1) as pool:
            results.append(is_same(saved, module, pool))
    launched.append(folder.name)
    if all(results):
        same.append(folder.name)
assert not [name for name, module in sys.modules.items() if module is not None and name.startswith("triton")]
print(json.dumps({"launched": launched, "same": same}))
"""
"""Launches the binaries of each folder of the command line, twice, in new threads; prints those whose outputs have the
bits of the export both times."""


@triton.jit
def described(source, out_ptr, BLOCK: tl.constexpr):
    tile = source.load([0, tl.program_id(0) * BLOCK])
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.sum(tile.to(tl.float32), 0))


@triton.jit
def describing(x_ptr, out_ptr, columns, BLOCK: tl.constexpr):
    source = tl.make_tensor_descriptor(x_ptr, [16, columns], [columns, 1], [16, BLOCK])
    tile = source.load([0, tl.program_id(0) * BLOCK])
    tl.store(out_ptr + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK), tl.sum(tile.to(tl.float32), 0))


@triton.jit
def staged(a_ptr, out_ptr, BLOCK: tl.constexpr):
    rows, columns = tl.arange(0, BLOCK)[:, None], tl.arange(0, BLOCK)[None, :]
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in tl.range(0, 4 * BLOCK, BLOCK, num_stages=4):
        a = tl.load(a_ptr + rows * 4 * BLOCK + columns + start)
        total += tl.dot(a, a)
    tl.store(out_ptr + rows * BLOCK + columns, total)


@dataclass(frozen=True, slots=True)
class BinaryCase:
    """A launch of a kernel; tensors with ``blocks`` are passed as descriptors. ``least`` is the capability it needs."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Mapping[str, Any]
    meta: Mapping[str, Any]
    blocks: Mapping[str, list[int]] = field(default_factory=dict)
    least: int = 8


def special_cases() -> dict[str, BinaryCase]:
    """Return launches with tensor maps, scratch memory, more than 48 KiB of shared memory, and clusters."""
    half = torch.rand(16, 64, dtype=torch.float16)
    square = torch.rand(128, 512, dtype=torch.float16)
    plain = {"x_ptr": torch.rand(1000), "y_ptr": torch.rand(1000), "out_ptr": torch.zeros(1000), "n": 1000}
    out = torch.zeros(64)
    return {
        "described": BinaryCase(described, (2,), {"source": half, "out_ptr": out}, {"BLOCK": 32}, {"source": [16, 32]}),
        "describing": BinaryCase(describing, (2,), {"x_ptr": half, "out_ptr": out, "columns": 64}, {"BLOCK": 32}),
        "staged": BinaryCase(staged, (1,), {"a_ptr": square, "out_ptr": torch.zeros(128, 128)}, {"BLOCK": 128}),
        "clustered": BinaryCase(samples.add_kernel, (4,), plain, {"BLOCK": 256, "num_ctas": 2}, least=9),
        "dependent": BinaryCase(samples.add_kernel, (4,), plain, {"BLOCK": 256, "launch_pdl": True}, least=9),
        "cooperative": BinaryCase(samples.add_kernel, (4,), plain, {"BLOCK": 256, "launch_cooperative_grid": True}),
    }


def suite_cases() -> dict[str, BinaryCase]:
    """Return the cases of the suite whose bits repeat: without atomics of floats, which come in any order."""
    return {
        name.replace("-", "_"): BinaryCase(case.kernel, case.grid, case.arguments, case.meta)
        for name, case in all_cases().items()
        if not name.startswith("layer_norm_backward")
    }


def export_launch(lab: kernellab.Lab, name: str, case: BinaryCase, folder: Path) -> None:
    """Launch a case by plain Triton on the GPU, and write its binaries with inputs and outputs to a folder."""
    triton.set_allocator(lambda size, alignment, stream: torch.empty(size, dtype=torch.int8, device="cuda"))
    version = lab.kernels.add(case.kernel, name=name)
    lab.run(case.kernel, case.grid, **_on_gpu(case)[1], **case.meta)
    lab.export(version.label, folder, kind="binaries")
    tensors, arguments = _on_gpu(case)
    case.kernel[case.grid](**arguments, **case.meta)
    outputs = {name: tensor.cpu() for name, tensor in tensors.items()}
    saved = {"kernel": case.kernel.__name__, "grid": case.grid, "meta": dict(case.meta), "outputs": outputs}
    torch.save({**saved, "arguments": dict(case.arguments), "blocks": dict(case.blocks)}, folder / "launch.pt")


def _on_gpu(case: BinaryCase) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return copies of the tensors of a case on the GPU, and its arguments with them."""
    tensors = {n: v.to("cuda", copy=True) for n, v in case.arguments.items() if isinstance(v, torch.Tensor)}
    blocks = {n: TensorDescriptor.from_tensor(tensors[n], block) for n, block in case.blocks.items()}
    return tensors, {**case.arguments, **tensors, **blocks}


def run_without_triton(folders: Iterable[Path]) -> subprocess.CompletedProcess[str]:
    """Launch the binaries of folders in one process that cannot import Triton."""
    command = [sys.executable, "-I", "-c", RUNNER, *map(str, folders)]
    return subprocess.run(command, capture_output=True, text=True, check=False)
