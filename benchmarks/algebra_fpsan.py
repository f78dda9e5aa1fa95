"""The algebra and Triton's floating-point sanitizer, bit by bit, operation by operation, without a GPU.

Each kernel is compiled for cuda:90 with ``instrumentation_mode="fpsan"``, and its TTGIR is evaluated in numpy
(`benchmarks.fpsan_evaluator`). The same kernel runs by ``lab.run(..., algebra=True)``.

python -m benchmarks.algebra_fpsan
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import triton

import kernellab
from benchmarks.fpsan_evaluator import evaluate, sanitized_graph
from benchmarks.fpsan_kernels import CASES, DEPARTURES, DTYPES, Case
from kernellab.interpreter.algebra import FORMATS

RESULT = Path(__file__).parent / "results" / "algebra_fpsan.txt"


def operands_of(case: Case) -> list[np.ndarray[Any, Any]]:
    """The bit patterns of the three operands of a case."""
    return [patterns(case, dtype, seed) for seed, dtype in enumerate(case.dtypes)]


def patterns(case: Case, dtype: str, seed: int) -> np.ndarray[Any, Any]:
    """Random bit patterns of a type, with zeros and ones among them and no infinities; small numbers for a cast."""
    random, integer = np.random.default_rng(seed), DTYPES[dtype][1]
    if case.operation == "to_int32":
        return (1000 * random.standard_normal(case.elements)).astype(np.float32).view(integer)
    raw = random.integers(0, 1 << 64, case.elements, np.uint64).astype(integer)
    if dtype == "u8":  # codes of E2M1, and of scales but for 255, which is NaN
        return raw % 255
    format = FORMATS[dtype]
    sign = 1 << (format.bits - 1)
    raw[:4] = [0, sign, format.one_bits, format.one_bits | sign]
    random.shuffle(raw)
    if format.infinity_bits is not None:
        raw[(raw & integer(sign - 1)) == format.infinity_bits] = format.one_bits
    return raw


def by_triton(case: Case, operands: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The bit patterns that the sanitized kernel stores."""
    signature = {name: f"*{dtype}" for name, dtype in zip("xyz", case.dtypes, strict=True)} | {"out": f"*{case.out}"}
    signature |= dict.fromkeys(case.meta, "constexpr")
    out = np.zeros(case.elements, DTYPES[case.out][1])
    evaluate(sanitized_graph(case.kernel, signature, case.meta), [*(operand.copy() for operand in operands), out])
    return out


def by_algebra(lab: kernellab.Lab, case: Case, operands: Sequence[np.ndarray[Any, Any]]) -> np.ndarray[Any, Any]:
    """The bit patterns that the kernel stores in the algebra."""
    *dtypes, out_dtype = (getattr(torch, DTYPES[name][0]) for name in (*case.dtypes, case.out))
    signed = (torch.from_numpy(operand.view(f"i{operand.itemsize}").copy()) for operand in operands)
    tensors = [operand.view(dtype) for operand, dtype in zip(signed, dtypes, strict=True)]
    out = torch.zeros(case.elements, dtype=out_dtype)
    lab.run(case.kernel, (1,), *tensors, out, algebra=True, **case.meta)
    integer = DTYPES[case.out][1]
    stored: np.ndarray[Any, Any] = out.view(getattr(torch, f"int{8 * out.itemsize}")).numpy().view(integer)
    return stored


def differences(lab: kernellab.Lab, case: Case) -> np.ndarray[Any, np.dtype[np.bool_]]:
    """The elements whose bits differ."""
    operands = operands_of(case)
    marks: np.ndarray[Any, Any] = by_triton(case, operands) != by_algebra(lab, case, operands)
    return marks


def main() -> None:
    lines: dict[bool, list[str]] = {True: [], False: []}
    with kernellab.Lab(store=":memory:") as lab:
        for case in CASES:
            count = int(differences(lab, case).sum())
            reason = f"{count} of {case.elements} elements; {DEPARTURES.get(case.operation, 'not explained')}"
            lines[not count].append(case.name if not count else f"{case.name}: {reason}")
    text = [
        f"triton {triton.__version__}; lab.run(algebra=True), and sanitized TTGIR for cuda:90 in numpy",
        "",
        f"operations equal: {len(lines[True])} of {len(CASES)}",
        f"other definitions: {len(lines[False])}",
        "",
        *(f"other  {line}" for line in lines[False]),
        *(f"equal  {line}" for line in lines[True]),
        "",
    ]
    RESULT.write_text("\n".join(text), encoding="utf-8")
    sys.stdout.write("\n".join(text))


if __name__ == "__main__":
    main()
