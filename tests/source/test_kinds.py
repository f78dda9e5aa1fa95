"""A value in a kernel is what plain Triton has there: as an argument, a default and a global, compiled and run."""

from __future__ import annotations

import linecache
import pickle
import re
from functools import cache
from typing import Any

import pytest
import torch
from triton.compiler.errors import CompilationError

from kernellab._triton.compiling import build_ttir, raw_module
from kernellab._triton.specialize import specialize
from kernellab.compile.types import compile_job
from kernellab.compile.worker import _specialized_kernel
from kernellab.errors import KernellabError, LaunchError
from kernellab.interpreter.runner import Interpreter
from kernellab.target import parse_target
from tests.labs import shared_interpreter
from tests.source.kinds import CELLS, KINDS, cell
from tests.tables import every

TARGET = parse_target("cuda:90")
ALL = [(name, value) for name, kind in KINDS.items() for value in dict.fromkeys((kind.first, kind.second))]
WAYS = ("by_argument", "by_default", "by_global")
CASES = every(7, [(name, value, way) for name, value in ALL for way in WAYS])


@pytest.fixture(scope="module")
def interpreter() -> Interpreter:
    return shared_interpreter()


def without_places(ttir: object) -> str:
    text = re.sub(r" loc\(.*", "", str(ttir))
    return "\n".join(line for line in text.splitlines() if not line.startswith("#"))


def plain_ttir(kernel: Any, args: tuple[Any, ...]) -> str | None:
    """Return what plain Triton makes of a launch in this process; None where it refuses it."""
    try:
        module, _, optimised = raw_module(kernel, specialize(kernel, TARGET, args, {}), TARGET)
        return without_places(optimised(module))
    except (CompilationError, LaunchError, RuntimeError):
        return None


def lab_ttir(kernel: Any, args: tuple[Any, ...]) -> str | None:
    """Return what a compile worker makes of a job that went through a pipe."""
    try:
        job = pickle.loads(pickle.dumps(compile_job(kernel, TARGET, args, {})))
        return without_places(build_ttir(*_specialized_kernel(job), job.target, job.closure)[0])
    except KernellabError:
        return None


def case(name: str, value: str, way: str) -> tuple[Any, tuple[Any, ...], str | None]:
    """Return a case whose cell linecache knows."""
    linecache.cache.update(CELLS)
    return made_case(name, value, way)


@cache
def made_case(name: str, value: str, way: str) -> tuple[Any, tuple[Any, ...], str | None]:
    """Return a kernel, the arguments of its launch, and what plain Triton makes of it."""
    names = cell(KINDS[name], value)
    out = torch.zeros(1, dtype=torch.int32)
    args = (out, names["value"]) if way == "by_argument" else (out,)
    return names[way], args, plain_ttir(names[way], args)


def stored(ttir: str) -> int:
    """Return the integer that the kernel of a case stores."""
    found = re.findall(r"arith.constant (-?[0-9]+) : i32", ttir)
    assert len(found) == 1, ttir
    return int(found[0])


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value", "way"), CASES)
def test_a_value_compiles_to_what_plain_triton_compiles_it_to(name: str, value: str, way: str) -> None:
    kernel, args, plain = case(name, value, way)
    assert lab_ttir(kernel, args) == plain


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value", "way"), CASES)
def test_a_value_runs_on_the_cpu_as_it_compiles(interpreter: Interpreter, name: str, value: str, way: str) -> None:
    kernel, args, plain = case(name, value, way)
    if plain is None:
        pytest.skip("plain Triton compiles no such kernel, so that nothing is run")
    interpreter.run(kernel, specialize(kernel, TARGET, args, {}).bound, (1, 1, 1))
    assert int(args[0][0]) == stored(plain)
