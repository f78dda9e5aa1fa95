"""Kernels that other people wrote, exported: the module alone compiles to the same TTIR as the kernel in its package.

Install the packages (without their dependencies) into a folder outside the tree, put it on PYTHONPATH, and name their
modules: ``python benchmarks/export_outside.py liger_kernel.ops fla.ops``. No GPU is needed. Helpers of these packages
are written out, as those of loose files are; nothing of the package is imported by the modules.

Launches are reconstructed as in ``outside_packages.py``. A kernel counts as equal when the first attempt that compiles
gives the same text, without locations, from the package and from the exported module.
"""

# ruff: noqa: BLE001 - whatever a foreign package raises is a row of the table

from __future__ import annotations

import ast
import importlib.util
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import triton
from outside_launches import attempts
from outside_packages import (
    SECONDS_PER_ATTEMPT,
    innermost,
    launched_kernels,
    pretend_to_have_a_gpu,
    time_limit,
    unwrapped,
)

from kernellab._triton.closure import decorated_closure_of
from kernellab._triton.compiling import raw_module
from kernellab._triton.specialize import specialize
from kernellab.export.module import module_text
from kernellab.registry import RecordedVersion
from kernellab.store import Store
from kernellab.target import parse_target

RESULT = Path(__file__).parent / "results" / "export_outside.txt"


def main() -> None:
    pretend_to_have_a_gpu()
    lines = [f"Triton {triton.__version__}, target cuda:90"]
    for package in sys.argv[1:]:
        with tempfile.TemporaryDirectory() as folder:
            outcomes = Counter(exported(kernel, Path(folder)) for kernel in launched_kernels(package).values())
        total = sum(outcomes.values())
        lines.append(f"{package}: {total} launched kernels, {outcomes['equal']} equal")
        lines += [f"    {count:3} x {what}" for what, count in outcomes.most_common() if what != "equal"]
        sys.stdout.write("\n".join(lines[-1 - len(outcomes) :]) + "\n")
        RESULT.write_text("\n".join(lines) + "\n", encoding="utf-8")


def exported(kernel: Any, folder: Path) -> str:
    """Export a kernel and say what came of it."""
    function = unwrapped(kernel)
    assert function is not None
    try:
        version = Store(None).add(decorated_closure_of(kernel), "0", function.__name__)
        text = module_text(RecordedVersion(version, (), None), autotune=True)
    except Exception as error:
        return f"not exported: {type(error).__name__}: {error}"[:120]
    if function.fn.__module__.split(".")[0] in set(imported_packages(text)):
        return "imports its package"
    return compared(kernel, function, loaded(text, function.__name__, folder))


def imported_packages(text: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.split(".")[0]


def loaded(text: str, name: str, folder: Path) -> Any:
    """Return the kernel of an exported module, or the error of importing it."""
    file = folder / f"exported_{name}_{time.monotonic_ns()}.py"
    file.write_text(text, encoding="utf-8")
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[file.stem] = module
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        return error
    return unwrapped(getattr(module, name))


def compared(kernel: Any, function: Any, alone: Any) -> str:
    if isinstance(alone, Exception):
        return f"not importable: {type(alone).__name__}: {alone}"[:120]
    for arguments in attempts(kernel, function):
        try:
            with time_limit(SECONDS_PER_ATTEMPT):
                wanted = ttir(function, arguments)
        except BaseException:
            continue
        try:
            with time_limit(SECONDS_PER_ATTEMPT):
                return "equal" if ttir(alone, arguments) == wanted else "other TTIR"
        except BaseException as error:
            return f"does not compile alone: {innermost(error)}"[:120]
    return "no launch was reconstructed"


def ttir(function: Any, arguments: dict[str, Any]) -> str:
    special = specialize(function, parse_target("cuda:90"), (), arguments)
    module, _, optimised = raw_module(function, special, parse_target("cuda:90"))
    return str(optimised(module).str_nodebug())


if __name__ == "__main__":
    main()
