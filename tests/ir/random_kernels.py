"""Small kernels with random pointer flow, as source text, and their runs.

Every pointer of such a kernel stays far inside its tensor, whatever it does: bumps and loops are short and the
tensors are long. Run as a program in an interpreter process, this reads sources, a JSON string a line, and prints for
each a line with the facts of its runs with every value in `RUNS`.
"""

from __future__ import annotations

import importlib.util
import json
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from hypothesis import strategies as st

TENSORS = ("x", "y", "z", "w")
RUNS = (0, 2, 3, 7)
LONG = 1 << 15
ADDRESS = ".to(tl.int64)"
POINTER = ".to(tl.pointer_type(tl.float32))"

HEADER = """
import triton
import triton.language as tl


@triton.jit
def swapped(a, b):
    return b, a


@triton.jit(noinline=True)
def rotated_apart(a, b, c):
    return b, c, a


@triton.jit
def chosen(a, b, n):
    if n > 2:
        return a
    return b + 1


@triton.jit(noinline=True)
def stored_apart(p, n):
    q = p
    for _ in range(n):
        q += 1
        tl.store(p, 1.0)
    return q


@triton.jit
def kernel(x, y, z, w, idx, n, B: tl.constexpr = 4):
    offs = tl.arange(0, B)
    lane = tl.load(idx + offs)
    p0, p1, p2, p3 = x, y, z, w
    a0, a1 = x.to(tl.int64), w.to(tl.int64)
    q0, q1 = y + offs, z + offs
    total = lane.to(tl.float32)
    m = n
"""

FLOWS: tuple[str, ...] = (
    "{a} = {b}",
    "{a} += {c}",
    "{a} = {b} + {c}",
    "{a}, {b} = {b}, {a}",
    "{a}, {b} = swapped({b}, {d})",
    "{a} = chosen({b}, {d}, n)",
    "{a} = tl.where(n > {c}, {b}, {d})",
    "{a} = {b} if n > {c} else {d}",
    "{a} = ({b}" + ADDRESS + " + 4 * {c})" + POINTER,
    "{a} = ({b}" + ADDRESS + " + ({d}" + ADDRESS + " - {b}" + ADDRESS + "))" + POINTER,
    "{a} = {b}.to(tl.pointer_type(tl.int32))" + POINTER,
    "{a} = ({b}" + ADDRESS + " & -4)" + POINTER,
    "p0, p1, p2 = rotated_apart({a}, {b}, {d})",
    "{a} = stored_apart({b}, n)",
    "a0 = {b}" + ADDRESS,
    "a0, a1 = a1 + 4 * {c}, a0",
    "{a} = a0" + POINTER,
    "{a} = ({b}" + ADDRESS + " + (a1 - {b}" + ADDRESS + "))" + POINTER,
    "q0 = {b} + offs",
    "q0, q1 = q1, q0 + {c}",
    "q1 = tl.where(offs < {c}, q0, q1)",
    "q0 = tl.where(n > {c}, {a} + offs, q1)",
)
ACCESSES: tuple[str, ...] = (
    "total += tl.load({a} + offs)",
    "total += tl.load({a} + lane)",
    "tl.store({a} + offs, total)",
    "tl.store({a} + lane, tl.load({b} + offs), mask=offs < n)",
    "tl.atomic_add({a} + offs, 0.0)",
    "tl.store(q0, tl.load(q1))",
    "tl.atomic_max(q1, 0.0, mask=offs > {c})",
    "tl.store(a1" + POINTER + " + offs, total)",
    "tl.store(tl.where(offs < 2, {a} + offs, {b} + offs), total)",
    "total += tl.load(tl.join(({a} + offs)" + ADDRESS + ", ({b} + offs)" + ADDRESS + ")" + POINTER + ").sum(axis=1)",
    "tl.store(tl.split(tl.join(({a} + offs)" + ADDRESS + ", ({b} + offs)" + ADDRESS + "))[1]" + POINTER + ", total)",
)
HEADS = ("if n > {c}:", "for i in range({c}):", "for j in range(n):", "for s in tl.static_range(2):", "while m > 0:")


@st.composite
def statements(draw: Callable[..., Any], depth: int) -> list[str]:
    """Draw a block of statements, with loops and branches nested up to ``depth``."""
    lines: list[str] = []
    for _ in range(draw(st.integers(1, 4))):
        names = [f"p{draw(st.integers(0, 3))}" for _ in range(3)]
        words = {"a": names[0], "b": names[1], "d": names[2], "c": draw(st.integers(0, 3))}
        kind = draw(st.sampled_from(["flow", "flow", "access", *["nest"] * (depth > 0)]))
        if kind != "nest":
            lines.append(draw(st.sampled_from(FLOWS if kind == "flow" else ACCESSES)).format(**words))
            continue
        head = draw(st.sampled_from(HEADS)).format(**words)
        body = draw(statements(depth - 1))
        if head.startswith("while"):
            lines += ["m = n", head, "    m -= 1", *indented(body)]
            continue
        lines += [head, *indented(body)]
        if head.startswith("if") and draw(st.booleans()):
            lines += ["else:", *indented(draw(statements(depth - 1)))]
    return lines


@st.composite
def kernels(draw: Callable[..., Any]) -> str:
    """Draw the source of a module with a function ``kernel``; its last statements always touch memory."""
    lines = draw(statements(2))
    if draw(st.booleans()):
        lines += [f"if n == {draw(st.sampled_from(RUNS))}:", "    return"]
    lines += draw(statements(1))
    lines.append("tl.store(p0 + offs, tl.load(p1 + offs) + total)")
    return HEADER + "\n".join(indented(lines)) + "\n"


def indented(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]


def loaded(source: str, folder: Path, name: str) -> Any:
    """Return the kernel of a module with this source."""
    path = folder / f"{name}.py"
    path.write_text(source)
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.kernel


def arguments(n: int) -> dict[str, Any]:
    """Return arguments for a drawn kernel; offsets are far from both ends of every tensor."""
    tensors = {name: torch.zeros(LONG) for name in TENSORS}
    return {**tensors, "idx": torch.arange(4, dtype=torch.int32), "n": n}


def main() -> None:
    from tests.ir.expected import spans
    from tests.ir.truth import recorder_in_place

    recorder = recorder_in_place()
    with tempfile.TemporaryDirectory() as folder:
        for index, line in enumerate(sys.stdin):
            kernel = loaded(json.loads(line), Path(folder), f"random_kernel_{index}")
            facts = set()
            for n in RUNS:
                given = arguments(n)
                recorder.spans, recorder.facts = spans(given), set()
                kernel[1,](**given)
                facts |= recorder.facts
            print(json.dumps(sorted(facts)), flush=True)


if __name__ == "__main__":
    main()
