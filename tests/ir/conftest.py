"""The graphs of the suite's kernels, and the truth about them, each worked out once for all tests."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from kernellab._triton.compiling import raw_module
from kernellab._triton.mlir import flattened_parameters, graph_of_module
from kernellab._triton.specialize import specialize
from kernellab.ir.graph import Graph
from kernellab.target import parse_target
from tests.ir.expected import Case, unwrapped

ROOT = Path(__file__).parents[2]


def modules_of(kernel: Any, arguments: Mapping[str, Any], target: str, **meta: Any) -> Iterator[tuple[Any, Any, Any]]:
    """Yield a kernel's module, its context and its parameters: raw, then optimised (the same module, changed)."""
    device = parse_target(target)
    special = specialize(unwrapped(kernel), device, (), {**arguments, **meta, "sanitize_overflow": False})
    module, context, optimised = raw_module(unwrapped(kernel), special, device)
    parameters = flattened_parameters(special.signature)
    yield module, context, parameters
    yield optimised(module), context, parameters


def graphs_of(kernel: Any, arguments: Mapping[str, Any], target: str = "cuda:90", **meta: Any) -> tuple[Graph, Graph]:
    """Return the graph of a kernel's raw TTIR, and that of its optimised TTIR."""
    raw, optimised = (graph_of_module(*each) for each in modules_of(kernel, arguments, target, **meta))
    return raw, optimised


@cache
def graphs_of_case(case: Case, target: str = "cuda:90") -> tuple[Graph, Graph]:
    return graphs_of(case.kernel, case.arguments(), target, **case.constants(), **case.options)


def interpreter_command(program: str) -> list[str]:
    """Return the command that runs a module of this folder."""
    return [sys.executable, "-W", "ignore", "-m", f"tests.ir.{program}"]


def interpreter_environment() -> dict[str, str]:
    return {**os.environ, "TRITON_INTERPRET": "1", "PYTHONPATH": os.pathsep.join([str(ROOT), *sys.path])}


@pytest.fixture(scope="session")
def truth() -> Mapping[str, Any]:
    """The facts that every interpreted case of the suite shows when it runs."""
    done = subprocess.run(
        interpreter_command("truth"), env=interpreter_environment(), capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout)
