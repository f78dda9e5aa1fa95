"""What the notebook's process sees of the interpreter worker."""

from __future__ import annotations

import subprocess
import sys

import pytest

_SCRIPT = """
import triton.language as tl
from triton.runtime import interpreter as upstream
names = ("interpreter_builder", "TritonSemantic", "interpreter_semantic", "TensorHandle", "FunctionRewriter")
held = {name: getattr(upstream, name) for name in names}
language = dict(vars(tl)), dict(vars(tl.core))
from kernellab.interpreter.worker import interpret
from kernellab.workers.worker import Job
assert b"interpret" in Job(interpret, None, "kernel k").message()
assert all(getattr(upstream, name) is value for name, value in held.items())
assert language == (dict(vars(tl)), dict(vars(tl.core)))
"""


@pytest.mark.slow
def test_the_notebook_can_name_the_interpreter_and_its_triton_stays_as_it_was() -> None:
    subprocess.run([sys.executable, "-c", _SCRIPT], check=True, timeout=60)
