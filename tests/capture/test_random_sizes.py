"""Random programs at random sizes: each gives what its code gives, or refuses with a guard; nothing else happens."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
import triton
from hypothesis import given, settings
from hypothesis import strategies as st

import kernellab
from kernellab.capture.program import Program
from kernellab.errors import UsageError
from tests import samples

Recipe = list[tuple[str, int, int]]
Operation = Callable[[kernellab.Lab, Any, Any], Any]


def _scaled(lab: kernellab.Lab, a: Any, n: int, grid: Any, block: int = 64) -> Any:
    a, out = a.contiguous(), torch.zeros(a.shape)
    lab.bind(samples.scale_kernel)[grid](a, out, n, BLOCK=block)
    return out


def _in_rows(lab: kernellab.Lab, a: Any, b: Any) -> Any:
    return torch.cat([_scaled(lab, row, row.shape[0], (triton.cdiv(row.shape[0], 64),))[None] for row in a[:2]])


OPERATIONS: dict[str, Operation] = {
    "scaled": lambda lab, a, b: _scaled(lab, a, a.numel(), lambda meta: (triton.cdiv(a.numel(), meta["BLOCK"]),)),
    "scaled in one block": lambda lab, a, b: _scaled(lab, a, a.numel(), (1,), 1024),
    "scaled in a power of two": lambda lab, a, b: _scaled(
        lab, a, a.numel(), (1,), triton.next_power_of_2(a.shape[0] * a.shape[1])
    ),
    "scaled in part": lambda lab, a, b: _scaled(lab, a, a.shape[1], (triton.cdiv(a.shape[1], 64),)),
    "scaled by the other": lambda lab, a, b: _scaled(lab, a, min(a.numel(), b.numel()), (triton.cdiv(b.numel(), 64),)),
    "scaled in rows": _in_rows,
    "added": lambda lab, a, b: a + b if a.shape == b.shape else a + b.sum(),
    "added where it fits": lambda lab, a, b: a + b[: a.shape[0], : a.shape[1]],
    "product": lambda lab, a, b: a @ b.t() / b.shape[0] if a.shape[1] == b.shape[1] else a @ a.t() @ a,
    "transposed": lambda lab, a, b: a.t(),
    "copy of the transposed": lambda lab, a, b: a.t().contiguous().view(a.shape[0], a.shape[1]),
    "joined": lambda lab, a, b: torch.cat([a.reshape(-1), b.reshape(-1)])[: a.numel()].view_as(a),
    "halved": lambda lab, a, b: a[: a.shape[0] // 2 + 1],
    "every other": lambda lab, a, b: a[:, ::2],
    "rolled": lambda lab, a, b: torch.roll(a, a.shape[0] // 2, 0),
    "filled": lambda lab, a, b: torch.full(a.shape, float(a.dim())) + a.shape[0] * b.shape[1],
    "numbered": lambda lab, a, b: a + torch.arange(a.shape[1]) / a.shape[0],
    "spread": lambda lab, a, b: a.sum(0, keepdim=True).expand(a.shape[0], -1) * len(b.shape),
    "in place": lambda lab, a, b: a.add_(1) if a.is_contiguous() else a,
    "written": lambda lab, a, b: torch.zeros_like(a).copy_(a[:1]),
    "row written": lambda lab, a, b: a.index_fill(0, torch.tensor([a.shape[0] - 1]), 0.5),
    "softmax": lambda lab, a, b: torch.softmax(a, -1) * a.stride(0),
    "sorted": lambda lab, a, b: torch.sort(a, 1)[0],
    "padded": lambda lab, a, b: torch.nn.functional.pad(a, (0, a.shape[0] % 3)),
    "positive": lambda lab, a, b: a * a[a > 0].shape[0] + a[a > 0].sum(),
    "of rows with positive sums": lambda lab, a, b: torch.cat([a[a.sum(1) > 0], a]),
    "branched": lambda lab, a, b: a * 2 if a.shape[0] > b.shape[1] else a - 1,
    "half": lambda lab, a, b: a.half().float(),
}


@st.composite
def recipes(draw: st.DrawFn) -> Recipe:
    step = st.tuples(st.sampled_from(sorted(OPERATIONS)), st.integers(0, 9), st.integers(0, 9))
    return draw(st.lists(step, min_size=1, max_size=6))


def followed(lab: kernellab.Lab, recipe: Recipe, x: Any, z: Any) -> Any:
    live = [x, z]
    for name, i, j in recipe:
        live.append(OPERATIONS[name](lab, live[-1 - i % len(live)], live[j % len(live)]))
    return live[-1] + 0


def made(rows: int, columns: int, other: int) -> dict[str, Any]:
    x = torch.linspace(-2, 3, rows * columns).reshape(rows, columns)
    return {"x": x, "z": torch.linspace(3, -1, rows * other).reshape(rows, other)}


def outcome(run: Callable[[], Any]) -> Any:
    """Return what a run gives, or None where it is refused or fails."""
    try:
        return run()
    except (UsageError, RuntimeError, IndexError):
        return None


def agree(lab: kernellab.Lab, program: Program, recipe: Recipe, sizes: tuple[int, int, int]) -> bool:
    """Require that a program does what its code does, if it does not refuse; tell whether it ran."""
    expected = outcome(lambda: followed(lab, recipe, **made(*sizes)))
    given_inputs = {name: tensor for name, tensor in made(*sizes).items() if name in program.inputs}
    try:
        found = next(iter(program.run(**given_inputs).values()))
    except UsageError:
        return False
    assert expected is not None, "a program runs where its code does not"
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4, equal_nan=True)
    return True


sizes = st.tuples(st.integers(1, 12), st.integers(1, 12), st.integers(1, 12))


@pytest.mark.slow
@settings(max_examples=12, deadline=None, derandomize=True)
@given(recipe=recipes(), first=sizes, others=st.lists(sizes, min_size=3, max_size=3))
def test_a_random_program_is_right_or_refuses(lab: kernellab.Lab, recipe: Recipe, first: Any, others: Any) -> None:
    inputs = made(*first)
    x, z = inputs["x"], inputs["z"]
    if outcome(lambda: followed(lab, recipe, **made(*first))) is None:
        return
    with lab.capture(dynamic=True) as program:
        program.returns(followed(lab, recipe, x, z))
    assert agree(lab, program, recipe, first)
    for other in others:
        agree(lab, program, recipe, other)
        agree(lab, program.functionalise(), recipe, other)
