"""What the lines of `kernels` hold, written in NumPy line by line: (name, iteration) and the expected tile, in order.

A line is named by its variable; a store by the argument that it writes to.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from triton.tools.tensor_descriptor import TensorDescriptor

from tests.inside import kernels

Step = tuple[str, tuple[int, ...], Any]


@dataclass(frozen=True)
class Case:
    """A launch, and the transcript of one of its programs from the arguments as NumPy arrays."""

    kernel: Any
    grid: tuple[int, ...]
    arguments: Callable[[], dict[str, Any]]
    transcript: Callable[[Mapping[str, Any], tuple[int, int, int]], Iterator[Step]]

    @property
    def name(self) -> str:
        return str(self.kernel.fn.__name__)


def _floats(*shape: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(len(shape) + shape[0]))


def _integers(low: int, high: int, *shape: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(high)
    return torch.randint(low, high, shape, generator=generator, dtype=torch.int32)


def _softmax(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    n, block, row = given["n"], given["BLOCK"], program[0]
    x, high, total = given["x"].ravel(), np.float32(-np.inf), np.float32(0)
    yield from [("row", (), row), ("high", (), high), ("total", (), total)]
    for number, start in enumerate(range(0, n, block)):
        columns = start + np.arange(block)
        part = np.where(columns < n, x[np.minimum(row * n + columns, x.size - 1)], -np.inf).astype(np.float32)
        largest = max(high, part.max())
        total = total * np.exp(high - largest) + np.exp(part - largest).sum()
        high = largest
        values = {"start": start, "columns": columns, "part": part, "largest": largest, "total": total, "high": high}
        yield from [(name, (number,), value) for name, value in values.items()]
    yield "out", (), total


def _welford(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    n, block = given["n"], given["BLOCK"]
    lanes = program[0] * block + np.arange(block)
    mean, spread, count = np.zeros(block, np.float32), np.zeros(block, np.float32), 0.0
    yield from [("lanes", (), lanes), ("mean", (), mean), ("spread", (), spread), ("count", (), count)]
    for step in range(n):
        value = given["x"].ravel()[lanes * n + step]
        yield from [("step", (step,), step), ("value", (step,), value)]
        entered = {"mean": mean, "spread": spread, "count": count, "other_mean": value}
        yield from [
            (name, (step,), part) for name, part in {**entered, "other_spread": 0.0, "other_count": 1.0}.items()
        ]
        both, delta = count + 1.0, value - mean
        yield from [("both", (step,), both), ("delta", (step,), delta)]
        mean, spread = mean + delta / both, spread + delta * delta * count / both
        yield from [("mean", (step,), mean), ("spread", (step,), spread)]
        yield from [(f"return[{i}]", (step,), part) for i, part in enumerate([mean, spread, both])]
        count = both
        yield from [("mean", (step,), mean), ("spread", (step,), spread), ("count", (step,), count)]
    yield "out", (), spread / count


def _attention(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    block, dim = given["BLOCK"], given["DIM"]
    rows, dims = program[0] * block + np.arange(block), np.arange(dim)
    query = given["q"][rows]
    high, total = np.full(block, -np.inf, np.float32), np.zeros(block, np.float32)
    acc = np.zeros((block, dim), np.float32)
    begin = {"rows": rows, "dims": dims, "query": query, "high": high, "total": total, "acc": acc}
    yield from [(name, (), value) for name, value in begin.items()]
    for number, start in enumerate(range(0, given["LENGTH"], block)):
        keys = start + np.arange(block)
        yield from [("start", (number,), start), ("keys", (number,), keys), ("k", (number,), given["k"][keys])]
        scores = query @ given["k"][keys].T * given["scale"]
        largest = np.maximum(high, scores.max(1))
        weights, decay = np.exp(scores - largest[:, None]), np.exp(high - largest)
        total = total * decay + weights.sum(1)
        acc = acc * decay[:, None] + weights @ given["v"][keys]
        high = largest
        before = {"scores": scores, "largest": largest, "weights": weights, "decay": decay, "total": total}
        yield from [(name, (number,), value) for name, value in before.items()]
        yield from [("v", (number,), given["v"][keys]), ("acc", (number,), acc), ("high", (number,), high)]
    acc = acc / total[:, None]
    yield from [("acc", (), acc), ("out", (), acc)]


def _product(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    m, n, k, block = (given[name] for name in ("M", "N", "K", "BLOCK"))
    rows, columns = program[0] * block + np.arange(block), program[1] * block + np.arange(block)
    inner = np.arange(block)
    left, right = rows[:, None] * k + inner, inner[:, None] * n + columns
    acc = np.zeros((block, block), np.float32)
    begin = {"rows": rows, "columns": columns, "inner": inner, "left": left, "right": right, "acc": acc}
    yield from [(name, (), value) for name, value in begin.items()]
    for number, step in enumerate(range(0, k, block)):
        rest = inner < k - step
        x = np.where((rows[:, None] < m) & rest, given["a"].ravel()[np.minimum(left, m * k - 1)], 0)
        y = np.where(rest[:, None] & (columns < n), given["b"].ravel()[np.minimum(right, k * n - 1)], 0)
        acc = acc + x @ y
        left, right = left + block, right + block * n
        values = {"step": step, "rest": rest, "x": x, "y": y, "acc": acc, "left": left, "right": right}
        yield from [(name, (number,), value) for name, value in values.items()]
    yield "c", (), acc


def _scan(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    offsets = program[0] * given["BLOCK"] + np.arange(given["BLOCK"])
    x = given["x"]
    values = np.where(offsets < given["n"], x[np.minimum(offsets, x.size - 1)], 0)
    yield from [("offsets", (), offsets), ("values", (), values)]
    yield from [("sums", (), np.cumsum(values)), ("out", (), np.cumsum(values))]


def _sort(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    offsets = program[0] * given["BLOCK"] + np.arange(given["BLOCK"])
    values = given["x"][offsets]
    yield from [("offsets", (), offsets), ("values", (), values)]
    yield from [("ordered", (), np.sort(values)), ("out", (), np.sort(values))]


def _gather(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    offsets = program[0] * given["BLOCK"] + np.arange(given["BLOCK"])
    inside = offsets < given["n"]
    places = np.where(inside, given["index"][np.minimum(offsets, given["n"] - 1)], 0)
    picked = np.where(inside & (places >= 0), given["x"][np.maximum(places, 0)], -1)
    values = {"offsets": offsets, "inside": inside, "places": places, "picked": picked, "out": picked}
    yield from [(name, (), value) for name, value in values.items()]


def _histogram(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    n, block = given["n"], given["BLOCK"]
    offsets = program[0] * block + np.arange(block)
    keys = np.where(offsets < n, given["x"][np.minimum(offsets, n - 1)], 0)
    inside = offsets < n
    seen = np.array([np.sum((keys[:lane] == keys[lane]) & inside[:lane]) for lane in range(block)])
    old = np.where(inside, seen, 0)
    yield from [("offsets", (), offsets), ("keys", (), keys), ("bins", (), np.ones(block)), ("old", (), old)]
    yield "x", (), old


def _helpers(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    offsets = program[0] * given["BLOCK"] + np.arange(given["BLOCK"])
    loaded = given["x"][offsets]
    yield from [("offsets", (), offsets), ("x", (), loaded)]
    value, scale = loaded, np.float32(given["scale"])
    for name, shift in (("first", np.float32(given["shift"])), ("second", -np.float32(given["shift"]))):
        yield from [("value", (), value), ("scale", (), scale), ("shift", (), shift)]
        yield from [("value", (), value), ("scale", (), scale), ("shift", (), shift)]
        yield from [("scaled", (), value * scale), ("return", (), value * scale + shift)]
        inner = value * scale + shift
        value = np.maximum(inner, 0)
        yield from [("inner", (), inner), ("return", (), value), (name, (), value)]
    yield "out", (), value


def _nested(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    lanes = program[0] * given["BLOCK"] + np.arange(given["BLOCK"])
    acc = np.zeros(given["BLOCK"], np.int32)
    yield from [("lanes", (), lanes), ("acc", (), acc)]
    for i in range(given["ROWS"]):
        yield "i", (i,), i
        for j in range(given["COLUMNS"]):
            value = given["x"][lanes + i * given["COLUMNS"] + j]
            acc = acc + value * (i - j)
            yield from [("j", (i, j), j), ("value", (i, j), value), ("acc", (i, j), acc)]
        if i == 1:
            acc = -acc
            yield "acc", (i,), acc
    yield "out", (), acc


def _unrolled(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    offsets = program[0] * given["BLOCK"] + np.arange(given["BLOCK"])
    loaded = given["x"][offsets]
    value = result = loaded.astype(np.float32)
    yield from [("offsets", (), offsets), ("x", (), loaded), ("value", (), value), ("result", (), result)]
    for number, step in enumerate(range(1, given["POWER"])):
        result = result * value + step
        yield from [("step", (number,), step), ("result", (number,), result)]
    result = -result if given["POWER"] > 2 else result * 0
    yield from [("result", (), result), ("out", (), result.astype(np.float16))]


def _descriptors(given: Mapping[str, Any], program: tuple[int, int, int]) -> Iterator[Step]:
    row, column = program[0] * given["BLOCK_M"], program[1] * given["BLOCK_N"]
    source = given["source"]
    rows, columns = row + np.arange(given["BLOCK_M"]), column + np.arange(given["BLOCK_N"])
    inside = (rows[:, None] < source.shape[0]) & (columns < source.shape[1])
    picked = source[np.minimum(rows, source.shape[0] - 1)[:, None], np.minimum(columns, source.shape[1] - 1)]
    tile = np.where(inside, picked, 0)
    yield from [("row", (), row), ("column", (), column), ("tile", (), tile)]
    yield from [("doubled", (), 2 * tile), ("target", (), 2 * tile)]


def _descriptor_arguments() -> dict[str, Any]:
    source, target = _floats(20, 24), torch.zeros(20, 24)
    blocks = {"BLOCK_M": 8, "BLOCK_N": 16}
    return {
        "source": TensorDescriptor.from_tensor(source, [8, 16]),
        "target": TensorDescriptor.from_tensor(target, [8, 16]),
        **blocks,
    }


CASES = (
    Case(kernels.online_softmax, (3,), lambda: {"x": _floats(3, 20), "out": _floats(3), "n": 20, "BLOCK": 8}, _softmax),
    Case(kernels.welford, (2,), lambda: {"x": _floats(8, 5), "out": _floats(8), "n": 5, "BLOCK": 4}, _welford),
    Case(
        kernels.attention,
        (2,),
        lambda: {
            **{name: _floats(32, 16) * (number + 1) for number, name in enumerate("qkv")},
            "out": _floats(32, 16),
            "scale": 0.25,
            "LENGTH": 32,
            "BLOCK": 16,
            "DIM": 16,
        },
        _attention,
    ),
    Case(
        kernels.product,
        (2, 2),
        lambda: {
            "a": _floats(20, 40),
            "b": _floats(40, 24),
            "c": _floats(20, 24),
            "M": 20,
            "N": 24,
            "K": 40,
            "BLOCK": 16,
        },
        _product,
    ),
    Case(
        kernels.scan, (3,), lambda: {"x": _integers(-9, 9, 20), "out": _integers(0, 9, 20), "n": 20, "BLOCK": 8}, _scan
    ),
    Case(kernels.sort, (2,), lambda: {"x": _floats(32), "out": _floats(32), "BLOCK": 16}, _sort),
    Case(
        kernels.gather,
        (3,),
        lambda: {"x": _floats(50), "index": _integers(-10, 50, 20), "out": _floats(20), "n": 20, "BLOCK": 8},
        _gather,
    ),
    Case(
        kernels.histogram,
        (2,),
        lambda: {"x": _integers(0, 5, 32), "bins": torch.zeros(5, dtype=torch.int32), "n": 32, "BLOCK": 16},
        _histogram,
    ),
    Case(
        kernels.helpers,
        (2,),
        lambda: {"x": _floats(16), "out": _floats(16), "scale": 1.5, "shift": 0.25, "BLOCK": 8},
        _helpers,
    ),
    Case(
        kernels.nested,
        (2,),
        lambda: {"x": _integers(-9, 9, 40), "out": _integers(0, 9, 16), "ROWS": 3, "COLUMNS": 2, "BLOCK": 8},
        _nested,
    ),
    Case(
        kernels.unrolled,
        (2,),
        lambda: {"x": _floats(16).half(), "out": torch.zeros(16).half(), "POWER": 4, "BLOCK": 8},
        _unrolled,
    ),
    Case(kernels.descriptors, (3, 2), _descriptor_arguments, _descriptors),
)
