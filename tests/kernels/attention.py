"""Flash attention, forward: keys and values stream by while a running softmax rescales what was summed so far."""

from __future__ import annotations

import torch
import triton
import triton.language as tl

from tests.kernels.case import Case, dtype_name, random


@triton.jit
def attention_kernel(
    q_ptr,
    k_ptr,
    v_ptr,
    out_ptr,
    lse_ptr,
    length,
    scale,
    HEAD: tl.constexpr,
    BLOCK_Q: tl.constexpr,
    BLOCK_K: tl.constexpr,
    CAUSAL: tl.constexpr,
):
    first = tl.program_id(0) * BLOCK_Q
    head = tl.program_id(1) * length
    queries = first + tl.arange(0, BLOCK_Q)
    inner = tl.arange(0, HEAD)
    within = queries[:, None] < length
    q_offsets = (head + queries[:, None]) * HEAD + inner[None, :]
    q = tl.load(q_ptr + q_offsets, mask=within, other=0.0)
    largest = tl.full((BLOCK_Q,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((BLOCK_Q,), dtype=tl.float32)
    out = tl.zeros((BLOCK_Q, HEAD), dtype=tl.float32)
    last = min(length, first + BLOCK_Q) if CAUSAL else length
    for start in range(0, last, BLOCK_K):
        keys = start + tl.arange(0, BLOCK_K)
        offsets = (head + keys[:, None]) * HEAD + inner[None, :]
        k = tl.load(k_ptr + offsets, mask=keys[:, None] < length, other=0.0)
        v = tl.load(v_ptr + offsets, mask=keys[:, None] < length, other=0.0)
        scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale
        seen = keys[None, :] < length
        if CAUSAL:
            seen = seen & (keys[None, :] <= queries[:, None])
        scores = tl.where(seen, scores, -float("inf"))
        new_largest = tl.maximum(largest, tl.max(scores, axis=1))
        weights = tl.exp(scores - new_largest[:, None])
        rescale = tl.exp(largest - new_largest)
        total = total * rescale + tl.sum(weights, axis=1)
        out = out * rescale[:, None] + tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        largest = new_largest
    tl.store(out_ptr + q_offsets, (out / total[:, None]).to(out_ptr.dtype.element_ty), mask=within)
    tl.store(lse_ptr + head + queries, largest + tl.log(total), mask=queries < length)


def attention_case(
    dtype: torch.dtype, *, causal: bool, heads: int = 2, length: int = 50, head_size: int = 16, block: int = 16
) -> Case:
    q, k, v = (random(heads, length, head_size, dtype=dtype, seed=seed) for seed in range(3))
    scale = head_size**-0.5
    scores = q.float() @ k.float().transpose(1, 2) * scale
    if causal:
        scores = scores.masked_fill(torch.ones(length, length).triu(1).bool(), -torch.inf)
    return Case(
        name=f"attention-{'causal' if causal else 'full'}-{dtype_name(dtype)}",
        kernel=attention_kernel,
        grid=(triton.cdiv(length, block), heads),
        arguments={
            "q_ptr": q,
            "k_ptr": k,
            "v_ptr": v,
            "out_ptr": torch.zeros_like(q),
            "lse_ptr": torch.zeros(heads, length),
            "length": length,
            "scale": scale,
        },
        meta={"HEAD": head_size, "BLOCK_Q": block, "BLOCK_K": block, "CAUSAL": causal},
        expected={
            "out_ptr": (torch.softmax(scores, dim=-1) @ v.float()).to(dtype),
            "lse_ptr": torch.logsumexp(scores, dim=-1),
        },
        reads=frozenset({"q_ptr", "k_ptr", "v_ptr"}),
        writes=frozenset({"out_ptr", "lse_ptr"}),
    )
