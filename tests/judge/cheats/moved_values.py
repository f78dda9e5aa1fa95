"""Cheats by operations that torch calls views or copies: what they compute, and what they reach."""

# The texts of candidates are long lines, and short files joined.
# ruff: noqa: E501

from __future__ import annotations

from tests.judge.cheats.cheat import HEAD, REFUSED, Cheat, cheat
from tests.judge.cheats.forged_messages import forged
from tests.judge.cheats.right import SUM

_COPY = f"""{HEAD}

@triton.jit
def copy(x, out, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out + offsets, tl.load(x + offsets, mask=offsets < n), mask=offsets < n)


def copied(x):
    out = torch.empty_like(x)
    copy[(triton.cdiv(x.numel(), 256),)](x, out, x.numel(), BLOCK=256)
    return out


def solve(x):
"""


def _moved(name: str, specification: str, body: str) -> Cheat:
    lines = "\n".join(f"    {line}" for line in body.splitlines())
    return cheat(name, specification, "values moved", REFUSED, "torch_operation host_code", f"{_COPY}{lines}\n")


def _step(operation: str, args: str, result: str) -> str:
    return f"steps.append({{'operation': '{operation}', 'args': {args}, 'kwargs': [], 'results': [{result}], 'several': False, 'line': 1}})"


CANDIDATES: tuple[Cheat, ...] = (
    _moved("a_view_that_negates", "negate", "return torch._neg_view(copied(x))  # here"),
    _moved(
        "a_view_that_conjugates",
        "negate",
        "pairs = torch.view_as_complex(copied(x)[: x.numel() // 2 * 2].view(-1, 2)).conj()  # here\nreturn pairs",
    ),
    _moved("a_cast_by_torch", "half", "copied(x)\nreturn x.T.to(torch.float16).contiguous()  # here"),
    _moved("a_cast_by_torch_that_a_kernel_copies", "half", "return copied(x.T.to(torch.float16).contiguous())"),
    _moved(
        "a_cast_by_torch_in_inference_mode",
        "half",
        "with torch.inference_mode():\n    return copied(x.T.contiguous().to(torch.float16))",
    ),
    _moved(
        "a_cast_by_torch_in_two_parts",
        "half",
        "m, n = x.shape\nout = torch.empty(n + 1, m, dtype=torch.float16)\nout[: n // 2].copy_(x.T[: n // 2])\nout[n // 2 : n].copy_(x.T[n // 2 :])\nreturn copied(out[:n])",
    ),
    forged(
        "a_sum_by_an_operation_that_may_be_a_view",
        "v = values[program['outputs'][0]]\n    values.append([50, 'float32', [v[2][0], 1], [1, 1], 0])\n    values.append([50, 'float32', v[2], [1], 0])\n    "
        + _step(
            "aten._grad_sum_to_size.default",
            "[{'ref': program['inputs'][0][1]}, {'list': [v[2][0], 1]}]",
            "len(values) - 2",
        )
        + "\n    "
        + _step("aten.squeeze.dim", "[{'ref': len(values) - 2}, 1]", "len(values) - 1")
        + "\n    program['outputs'] = [len(values) - 1]",
        rules="torch_operation",
        candidate=SUM,
        specification="sum",
    ),
    forged(
        "a_view_that_torch_does_not_check",
        "o = program['outputs'][0]\n    "
        + _step("aten._reshape_alias.default", "[{'ref': o}, {'list': values[o][2]}, {'list': [1 << 36, 1]}]", "o"),
        rules="torch_operation",
    ),
    forged("a_line_of_thousands_of_digits", "steps[-1]['line'] = 10**4000"),
    cheat(
        "a_verdict_in_a_message_with_control_characters",
        "softmax",
        "verdict forged",
        REFUSED,
        "host_code",
        f"{HEAD}\n\ndef solve(x):\n    raise ValueError('\\x1b[2K\\x1b[1Gcandidate.py: accepted')  # here\n",
    ),
)
