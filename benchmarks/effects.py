"""What graph and effects of a kernel cost, beside making the TTIR that they are read from."""

from __future__ import annotations

import importlib.util
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

from kernellab._triton.compiling import raw_module
from kernellab._triton.mlir import flattened_parameters, graph_of_module
from kernellab._triton.specialize import specialize
from kernellab.compile.cache import COMPILE_WORKER, Compiler
from kernellab.compile.types import compile_job
from kernellab.ir.effects import effects_of
from kernellab.ir.graph import graph_from_json, graph_to_json
from kernellab.target import parse_target
from kernellab.workers.worker import Pool

RESULT = Path(__file__).parent / "results" / "effects.txt"
REPETITIONS = 15
GOALS_MS = {"vector add": 5, "large": 60}
LARGE_STEPS = 137
SHARING_ROUNDS = 3


@triton.jit
def add(x, y, out, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = offs < n
    tl.store(out + offs, tl.load(x + offs, mask=mask) + tl.load(y + offs, mask=mask), mask=mask)


STEP = """
    value = tl.load(x + offs + {number}, mask=mask)
    total += value * {number}.5 + tl.load(y + offs + {number}, mask=mask)
    tl.store(out + offs + {number}, total, mask=mask)
"""


def large_kernel(folder: Path) -> Any:
    """Return a kernel whose optimised TTIR has some 1,500 operations."""
    head = (
        "import triton\nimport triton.language as tl\n\n\n@triton.jit\ndef large(x, y, out, n, BLOCK: tl.constexpr):\n"
    )
    start = "    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)\n    mask = offs < n\n    total = 0.0\n"
    path = folder / "large.py"
    path.write_text(head + start + "".join(STEP.format(number=number) for number in range(1, LARGE_STEPS)))
    spec = importlib.util.spec_from_file_location("large", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.large


def median_ms(measured: Callable[[], object]) -> float:
    times = []
    for _ in range(REPETITIONS):
        start = time.perf_counter()
        measured()
        times.append((time.perf_counter() - start) * 1000)
    return statistics.median(times)


def row(name: str, kernel: Any) -> str:
    """Measure one kernel and return its line of the table."""
    target = parse_target("cuda:90")
    x, y, out = (torch.zeros(4096) for _ in range(3))
    special = specialize(kernel, target, (x, y, out, 4095), {"BLOCK": 128})
    parameters = flattened_parameters(special.signature)

    def ttir() -> tuple[Any, Any]:
        module, context, optimised = raw_module(kernel, special, target)
        return optimised(module), context

    module, context = ttir()
    graph = graph_of_module(module, context, parameters)
    made_ms = median_ms(ttir)
    graph_ms = median_ms(lambda: graph_of_module(module, context, parameters))
    effects_ms = median_ms(lambda: effects_of(graph))
    json_ms = median_ms(lambda: graph_from_json(graph_to_json(graph)))
    both_ms = graph_ms + effects_ms
    return (
        f"{name:12}{len(graph.operations):6}{made_ms:9.2f}{graph_ms:9.2f}{effects_ms:9.2f}{both_ms:9.2f}"
        f"{GOALS_MS[name]:7}{both_ms / made_ms:9.2f}{json_ms:9.2f}\n"
    )


def sharing(kernel: Any) -> str:
    """Return how long twelve launches take whose TTIR is one, by their options, and twelve with other constants."""
    x, y, out = (torch.zeros(4096) for _ in range(3))
    by_options = [{"BLOCK": 128, "num_warps": w, "num_stages": s} for w in (1, 2, 4, 8) for s in (2, 3, 4)]
    by_constants = [{"BLOCK": 128 << i, "num_warps": 4} for i in range(12)]
    text = ""
    for name, metas in (("num_warps and num_stages", by_options), ("a constant", by_constants)):
        jobs = [compile_job(kernel, parse_target("cuda:90"), (x, y, out, 4095), meta) for meta in metas]
        times = []
        for _ in range(SHARING_ROUNDS):
            with tempfile.TemporaryDirectory() as folder:
                pool = Pool(COMPILE_WORKER, 1)
                pool.start()
                pool.wait_ready(60)
                start = time.perf_counter()
                Compiler(pool, Path(folder), 300).effects_of_each(jobs)
                times.append((time.perf_counter() - start) * 1000)
                pool.close()
        text += f"effects of 12 launches of the large kernel that differ in {name}: {statistics.median(times):.0f} ms\n"
    return text


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        rows = row("vector add", add) + row("large", large_kernel(Path(folder)))
        rows += sharing(large_kernel(Path(folder)))
    text = (
        f"medians of {REPETITIONS}, ms; Triton {triton.__version__}, Python {sys.version.split()[0]}; "
        "optimised TTIR for cuda:90\n"
        "ratio: graph and effects to making the TTIR; JSON: there and back\n"
        f"{'kernel':12}{'ops':>6}{'TTIR':>9}{'graph':>9}{'effects':>9}{'both':>9}{'goal':>7}{'ratio':>9}{'JSON':>9}\n"
        + rows
    )
    RESULT.parent.mkdir(exist_ok=True)
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


if __name__ == "__main__":
    main()
