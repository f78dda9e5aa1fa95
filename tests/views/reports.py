"""Reports of real kernels, their TTIR built in this process; the rest of the compile is made up."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any

import torch

from kernellab._triton.compiling import raw_module
from kernellab._triton.mlir import flattened_parameters, graph_of_module
from kernellab._triton.specialize import specialize
from kernellab.compile.types import Compiled, Parameter, Resources
from kernellab.ir.effects import effects_of
from kernellab.ir.graph import Graph, StoredGraph
from kernellab.launch.arguments import values_of
from kernellab.launch.run import Run
from kernellab.target import parse_target
from kernellab.views.report import CellReport, KernelReport, argument_reports
from tests.kernels.elementwise import add_case
from tests.kernels.histogram import histogram_case
from tests.kernels.matmul import matmul_case
from tests.kernels.softmax import softmax_case
from tests.views import kernels

TARGET = parse_target("cuda:90")
RESOURCES = Resources(40, 0, 0, 4096, 128, 0.75, "registers", fits=True)


@cache
def launches() -> Mapping[str, tuple[Any, tuple[Any, ...], Mapping[str, Any]]]:
    """Return kernel, arguments and meta of each kernel by a short name."""
    half, single = torch.zeros(4096, dtype=torch.float16), torch.zeros(4096)
    found = {
        name: (case.kernel, tuple(case.arguments.values()), case.meta)
        for name, case in {
            "add": add_case(torch.float32),
            "softmax": softmax_case(torch.float32),
            "matmul": matmul_case(torch.float16),
            "histogram": histogram_case(),
        }.items()
    }
    tail = (0.125, 65536, 64, 1024)
    forward = (half, half, half, half, single, *tail)
    backward = (half, half, half, half, half, half, half, single, single, *tail)
    blocks = {"D": 64, "BLOCK_M": 64, "BLOCK_N": 64, "CAUSAL": True}
    found["forward"] = (kernels.attention_forward, forward, blocks)
    found["backward"] = (kernels.attention_backward, backward, {"D": 64, "BLOCK": 64, "INNER": 32})
    found["branches"] = (kernels.branches, (single, single, single, 1000, 3, 64), {})
    found["unrolled"] = (kernels.unrolled, (single, single, 300, 64), {})
    found["unknown"] = (kernels.through_an_integer, (single, single, torch.zeros(1, dtype=torch.int64), 64), {})
    return found


def ttir_of(kernel: Any, arguments: tuple[Any, ...], meta: Mapping[str, Any]) -> tuple[Any, Any, Mapping[str, Any]]:
    """Return the module after the ttir stage, its context, and the signature."""
    special = specialize(kernel, TARGET, arguments, {**meta, "sanitize_overflow": False})
    module, context, optimised = raw_module(kernel, special, TARGET)
    return optimised(module), context, special.signature


@cache
def compiled_of(name: str, folder: Path) -> Compiled:
    kernel = launches()[name][0]
    ttir, context, signature = ttir_of(*launches()[name])
    graph = graph_of_module(ttir, context, flattened_parameters(signature))
    (folder / name).mkdir(exist_ok=True)
    (folder / name / f"{name}.ttir").write_text(str(ttir))
    return Compiled(
        kernel=kernel.__name__,
        target=TARGET,
        parameters=tuple(Parameter(key, str(kind), "") for key, kind in signature.items()),
        options={"num_warps": 4, "num_stages": 3},
        resources=RESOURCES,
        seconds=0.3124,
        stage_seconds={},
        effects=effects_of(graph),
        stored_graph=StoredGraph(graph),
        folder=folder / name,
        digest=name,
    )


def graph_of(name: str, folder: Path) -> Graph:
    return compiled_of(name, folder).graph


def report_of(name: str, folder: Path, **changes: Any) -> KernelReport:
    """Return the report of one run in which every mutated argument changed wholly."""
    kernel, arguments, _ = launches()[name]
    compiled = changes.pop("compiled", None) or compiled_of(name, folder)
    values = values_of(dict(zip(kernel.arg_names, arguments, strict=False)))
    sizes = {key: value.elements for key, value in values.items() if value.elements is not None}
    changed = {key: size if key in compiled.effects.mutated else 0 for key, size in sizes.items()}
    run = Run(compiled.kernel, (98, 1, 1), 0.0123, changed, (), "interpreter")
    lines = kernel.raw_src if isinstance(kernel.raw_src, list) else kernel.raw_src.splitlines(keepends=True)
    fields: dict[str, Any] = {
        "label": f"{compiled.kernel}@2",
        "source": "".join(lines),
        "file": kernel.fn.__code__.co_filename,
        "first_line": kernel.starting_line_number,
        "compiled": compiled,
        "arguments": argument_reports(compiled, values, run),
        "launches": 3,
        "grid": (98, 1, 1),
        "run": run,
    }
    return KernelReport(**{**fields, **changes})


def cell_of(*reports: KernelReport, **changes: Any) -> CellReport:
    return CellReport(kernels=reports, **changes)
