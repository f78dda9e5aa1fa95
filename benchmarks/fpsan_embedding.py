"""The payloads of bit patterns by Triton's floating-point sanitizer: its LLVM IR, evaluated in numpy.

`embedding` compiles the operations ``embed`` and ``unembed`` for cuda:90 and runs the straight-line LLVM IR of integers
that they are lowered to.
"""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from typing import Any

import numpy as np
import triton
from numpy.typing import NDArray
from triton.backends.compiler import GPUTarget
from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon._runtime import GluonASTSource

Array = NDArray[Any]
TARGET = GPUTarget("cuda", 90, 32)
_TRITON_NAMES = {"f16": "fp16", "bf16": "bf16", "f32": "fp32", "f64": "fp64", "f8E5M2": "fp8e5", "f8E4M3FN": "fp8e4nv"}
COMPARISONS: dict[str, Callable[..., Any]] = {
    "eq": operator.eq,
    "ne": operator.ne,
    "lt": operator.lt,
    "le": operator.le,
    "gt": operator.gt,
    "ge": operator.ge,
}


class NotEvaluated(NotImplementedError):
    """Raised for an operation that the evaluator does not have."""


def bits_of_type(element: str) -> int:
    """The width of an integer or float type as MLIR prints it: ``i32``, ``bf16``, ``f8E5M2``."""
    match = re.match(r"[a-z]+(\d+)", element)
    if match is None:
        raise NotEvaluated(f"the type {element}")
    return int(match[1])


def wrap(integers: Array, bits: int) -> Array:
    """Reduce integers to the signed range of a width; of one bit, to booleans."""
    if bits == 1:
        return (integers & 1).astype(bool)
    spare = np.int64(64 - bits)
    return integers.astype(np.int64) << spare >> spare


def unsigned(integers: Array, bits: int) -> Array:
    return integers.astype(np.int64).view(np.uint64) & np.uint64((1 << bits) - 1)


@gluon.jit
def _embed_kernel(x, out, BLOCK: gl.constexpr):  # type: ignore[no-untyped-def]
    lanes = gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [1], [0]))
    gl.store(out + lanes, gl.fpsan.embed(gl.load(x + lanes)))


@gluon.jit
def _unembed_kernel(x, out, BLOCK: gl.constexpr):  # type: ignore[no-untyped-def]
    lanes = gl.arange(0, BLOCK, gl.BlockedLayout([1], [32], [1], [0]))
    gl.store(out + lanes, gl.fpsan.unembed(gl.load(x + lanes), out.dtype.element_ty))


@cache
def embedding(element: str, *, is_inverse: bool = False) -> Callable[[Array], Array]:
    """The function of int64 arrays that ``embed``, or its inverse, of a float type is lowered to in LLVM IR."""
    number, integer = _TRITON_NAMES[element], f"i{bits_of_type(element)}"
    source, target = (integer, number) if is_inverse else (number, integer)
    kernel = _unembed_kernel if is_inverse else _embed_kernel
    signature = {"x": f"*{source}", "out": f"*{target}", "BLOCK": "constexpr"}
    text = triton.compile(GluonASTSource(kernel, signature, {"BLOCK": 32}), TARGET, {"num_warps": 1}).asm["llir"]
    lines = re.findall(r"^  (.*?)(?:, !dbg.*)?$", text[text.index("\ndefine") :].partition("\n}")[0], re.MULTILINE)
    return lambda values: _run_llvm(lines, values)


_LLVM: dict[str, Callable[..., Any]] = {
    "add": operator.add,
    "sub": operator.sub,
    "mul": operator.mul,
    "and": operator.and_,
    "or": operator.or_,
    "xor": operator.xor,
    "shl": operator.lshift,
}
_ASSIGNED = re.compile(r"(%[\w.]+) = (?:tail )?(\w+) (.*)")
_STORED = re.compile(r"call void asm .*\(i\d+ (%[\w.]+), ptr")


def _run_llvm(lines: Sequence[str], loaded: Array) -> Array:
    """Run straight-line LLVM IR of integers from its one load to its one store; returns what it stores."""
    names: dict[str, Array] = {}
    with np.errstate(all="ignore"):
        for line in lines:
            if (stored := _STORED.search(line)) is not None:
                return names[stored[1]]
            if (match := _ASSIGNED.match(line)) is None:
                continue
            name, operation, rest = match.groups()
            if operation == "call" and "ld.global" in rest:
                names[name] = wrap(loaded, int(re.match(r"i(\d+)", rest)[1]))  # type: ignore[index]
            elif names:
                names[name] = _llvm_result(operation, rest, names)
    raise NotEvaluated("LLVM IR without a store")


def _llvm_result(operation: str, rest: str, names: Mapping[str, Array]) -> Array:
    bits = [int(width) for width in re.findall(r"\bi(\d+) ", rest)]
    words = re.findall(r"(%[\w.]+|(?<![\w.])-?\d+|true|false)(?=,|$|\s)", re.sub(r"\bi\d+ ", "", rest))
    operands = [names[word] if word.startswith("%") else np.asarray(int(word), np.int64) for word in words]
    if operation in _LLVM:
        return wrap(_LLVM[operation](*operands), bits[0])
    if operation == "lshr":
        return wrap((unsigned(operands[0], bits[0]) >> operands[1].view(np.uint64)).view(np.int64), bits[0])
    if operation == "select":
        return np.where(*operands)
    if operation == "icmp":
        predicate = rest.split(maxsplit=1)[0].removeprefix("samesign ")
        if predicate in ("eq", "ne") or predicate.startswith("s"):
            return np.asarray(COMPARISONS[predicate[1:] if predicate.startswith("s") else predicate](*operands))
    raise NotEvaluated(f"{operation} of LLVM IR")
