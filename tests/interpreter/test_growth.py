"""The process that runs kernels on the CPU forgets those that it ran long ago."""

from __future__ import annotations

from pathlib import Path

import kernellab
from tests.alone import run_alone

PROGRAM = r"""
import gc, sys, weakref

sys.path.insert(0, sys.argv[1])
from kernellab.interpreter import worker
from kernellab.source import Closure, FunctionRef, Import
from kernellab.source.model import Function

KERNEL = '''
def first_max(x, n: tl.constexpr):
    tl.store(x, tl.reduce(tl.load(x + tl.arange(0, n)), 0, larger))
'''
LARGER = '''
def larger(a, b):
    return tl.where(a > b, a, b)
'''
BINDINGS = (("tl", Import("triton.language")), ("larger", FunctionRef(1)))
worker.start()
functions = []
for version in range(worker._MAX_KERNELS + 3):
    kernel = Function("first_max", "jit", f"{KERNEL}# {version}\n", "kernel.py", 1, False, BINDINGS)
    helper = Function("larger", "jit", LARGER, "larger.py", 1, False, BINDINGS[:1])
    loaded = worker._load_kernel(Closure((kernel, helper)))
    functions.append([weakref.ref(function.fn) for function in loaded.functions.values()])
del loaded
gc.collect()
print([version for version, pair in enumerate(functions) if not any(function() for function in pair)])
"""


def test_functions_of_kernels_that_ran_long_ago_are_freed(tmp_path: Path) -> None:
    run = run_alone(PROGRAM, str(Path(kernellab.__file__).parents[1]), folder=tmp_path)
    assert (run.stdout.strip(), run.returncode) == ("[0, 1, 2]", 0), run.stderr
