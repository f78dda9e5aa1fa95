"""The algebra against Triton's floating-point sanitizer: the same bits, but where the algebra departs on purpose.

The sanitizer's TTGIR is evaluated in numpy, see `benchmarks.fpsan_evaluator`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import kernellab
from benchmarks.algebra_fpsan import differences, operands_of
from benchmarks.fpsan_embedding import embedding
from benchmarks.fpsan_evaluator import has_fpsan
from benchmarks.fpsan_kernels import CASES, DEPARTURES, DTYPES, Case
from kernellab.interpreter import algebra
from kernellab.interpreter.algebra import FORMATS
from tests.labs import shared_lab
from tests.tables import every

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not has_fpsan(), reason="this Triton has no sanitizer of floats with these definitions"),
]
MLIR_NAMES = {"f64": "fp64", "f32": "fp32", "f16": "fp16", "bf16": "bf16", "f8E5M2": "fp8e5", "f8E4M3FN": "fp8e4nv"}
SAME = [case for case in CASES if case.operation not in DEPARTURES]
OTHER = [case for case in CASES if case.operation in DEPARTURES]


@pytest.fixture(scope="module")
def lab() -> Iterator[kernellab.Lab]:
    with shared_lab(store=":memory:") as lab:
        yield lab


@pytest.mark.parametrize("case", every(8, SAME), ids=lambda case: case.name)
def test_an_operation_leaves_the_bits_that_the_sanitizer_leaves(lab: kernellab.Lab, case: Case) -> None:
    assert not differences(lab, case).any()


@pytest.mark.parametrize("case", every(6, OTHER), ids=lambda case: case.name)
def test_a_departure_from_the_sanitizer_still_departs(lab: kernellab.Lab, case: Case) -> None:
    assert differences(lab, case).any()


def test_a_quotient_by_an_odd_payload_is_that_of_the_sanitizer(lab: kernellab.Lab) -> None:
    case = next(case for case in CASES if case.name == "div fp32")
    is_odd = (algebra.embed(operands_of(case)[1], FORMATS["fp32"]) & 1).astype(bool)
    assert 0 < is_odd.sum() < len(is_odd)
    assert not differences(lab, case)[is_odd].any()


@pytest.mark.parametrize("element", MLIR_NAMES)
def test_bit_patterns_have_the_payloads_of_the_sanitizer(element: str) -> None:
    format, integer = FORMATS[MLIR_NAMES[element]], DTYPES[MLIR_NAMES[element]][1]
    random = np.random.default_rng(0).integers(0, 1 << 64, 1000, np.uint64)
    raw: np.ndarray[Any, Any] = (
        random.astype(integer) if format.bits > 16 else np.arange(1 << format.bits).astype(integer)
    )
    payloads = algebra.embed(raw, format)
    is_finite = ~algebra.is_infinite(payloads, format)
    assert (embedding(element)(raw.astype(np.int64)) == payloads)[is_finite].all()
    assert (embedding(element, is_inverse=True)(payloads).astype(integer) == raw)[is_finite].all()
