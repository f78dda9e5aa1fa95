"""Options and precisions on a card, by real compiles."""

from __future__ import annotations

from typing import Any

import pytest
import torch
import triton
import triton.language as tl

import kernellab
from kernellab.compile.types import Compiled
from kernellab.views.compile_facts import is_pipelined, option_words, precision_words
from tests import samples

TILE = {"BLOCK": 64}


@triton.jit
def product(a_ptr, b_ptr, c_ptr, k, PRECISION: tl.constexpr, STAGES: tl.constexpr, BLOCK: tl.constexpr):
    at = tl.arange(0, BLOCK)
    total = tl.zeros((BLOCK, BLOCK), tl.float32)
    for start in tl.range(0, k, BLOCK, num_stages=STAGES):
        a = tl.load(a_ptr + at[:, None] * k + start + at[None, :])
        b = tl.load(b_ptr + (start + at[:, None]) * BLOCK + at[None, :])
        total = tl.dot(a, b, total, input_precision=PRECISION)
    tl.store(c_ptr + at[:, None] * BLOCK + at[None, :], total)


LINE_OF_LOOP = product.starting_line_number + 4


def compile_product(
    lab: kernellab.Lab, precision: str = "tf32", stages: int | None = None, dtype: Any = torch.float32, **meta: Any
) -> Compiled:
    a = torch.zeros(64, 256, dtype=dtype)
    return lab.compile(product, a, a.T.contiguous(), torch.zeros(64, 64), 256, precision, stages, **TILE, **meta)


@pytest.mark.slow
def test_stages_show_where_a_loop_is_pipelined(lab: kernellab.Lab) -> None:
    compiled = compile_product(lab, num_stages=4)
    assert is_pipelined(compiled)
    assert option_words(compiled) == ["4 warps", "4 stages"]
    x = torch.zeros(256)
    plain = lab.compile(samples.add_kernel, x, x, x, 256, BLOCK=128, num_stages=4)
    assert not is_pipelined(plain)
    assert option_words(plain) == ["4 warps"]


@pytest.mark.slow
def test_stages_of_a_loop_are_said_to_override_the_config(lab: kernellab.Lab) -> None:
    words = option_words(compile_product(lab, stages=2, num_stages=4))
    assert words == ["4 warps", f"2 stages by tl.range in line {LINE_OF_LOOP} (not 4)"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("precision", "words"),
    [("tf32", "TF32 on cuda:90"), ("tf32x3", "TF32x3 on cuda:90"), ("ieee", "full fp32 on cuda:90")],
)
def test_the_precision_of_single_precision_products_is_said(lab: kernellab.Lab, precision: str, words: str) -> None:
    (sentence,) = precision_words(compile_product(lab, precision))
    assert sentence.startswith(f"tl.dot of fp32 in line {LINE_OF_LOOP + 3}: {words}")


@pytest.mark.slow
def test_products_of_half_precision_need_no_sentence(lab: kernellab.Lab) -> None:
    assert precision_words(compile_product(lab, dtype=torch.float16)) == []


@pytest.mark.slow
def test_a_target_without_tensor_cores_for_it_multiplies_in_full(lab: kernellab.Lab) -> None:
    (sentence,) = precision_words(compile_product(lab, target="cuda:75"))
    assert "full fp32 on cuda:75" in sentence
