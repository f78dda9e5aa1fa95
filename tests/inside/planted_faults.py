"""Kernels of `kernels` with a fault each, and with changes that only round otherwise: (kernel, text, new text)."""

from __future__ import annotations

import importlib.util
import inspect
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from tests.inside import kernels

LOG2_E = "1.4426950408889634"


@dataclass(frozen=True)
class Change:
    """A change of the text of a function that ``kernel`` is, or calls."""

    kernel: str
    old: str
    new: str
    function: str = ""
    module: ModuleType = kernels

    @property
    def name(self) -> str:
        return f"{self.kernel}: {self.new}"

    def apply(self, folder: Path) -> tuple[Any, int]:
        """Write the changed module to a folder; return its kernel, and the first changed line."""
        text = inspect.getsource(self.module)
        owner = getattr(self.module, self.function or self.kernel)
        source = inspect.getsource(owner.fn)
        assert source.count(self.old) == 1, f"{self.old!r} stands {source.count(self.old)} times in {owner.fn.__name__}"
        changed = text.replace(source, source.replace(self.old, self.new))
        line = text[: text.index(source) + source.index(self.old)].count("\n") + 1
        path = folder / "changed_kernels.py"
        path.write_text(changed)
        spec = importlib.util.spec_from_file_location("changed_kernels", path)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return getattr(module, self.kernel), line


FAULTS = (
    # wrong masks
    Change("online_softmax", "columns < n,", "columns < n - 1,"),
    Change("product", "(columns[None, :] < N), other", "(columns[None, :] < N - 1), other"),
    Change("product", "inner < K - step", "inner < K - step - 1"),
    Change("scan", "mask=offsets < n, other", "mask=offsets < n - 3, other"),
    Change("gather", "places >= 0", "places > 5"),
    Change("gather", "inside = offsets < n", "inside = offsets < n - 1"),
    # wrong constants
    Change("online_softmax", 'other=float("-inf"))', "other=0.0)"),
    Change("welford", "count = 0.0", "count = 1.0"),
    Change("product", "tl.zeros((BLOCK, BLOCK), tl.float32)", "tl.full((BLOCK, BLOCK), 1.0, tl.float32)"),
    Change("gather", "other=-1.0", "other=1.0"),
    Change("histogram", "bins + keys, 1,", "bins + keys, 2,"),
    Change("welford", "spread / count", "spread / (count - 1)"),
    Change("unrolled", "result = -result", "result = 2 - result"),
    # wrong strides
    Change("online_softmax", "row * n + columns", "row * (n - 1) + columns"),
    Change("welford", "lanes * n + step", "lanes + step * n"),
    Change("product", "left += BLOCK", "left += BLOCK - 1"),
    Change("product", "right += BLOCK * N", "right += BLOCK * M"),
    Change("product", "c + rows[:, None] * N", "c + rows[:, None] * M"),
    Change("nested", "i * COLUMNS + j", "i * ROWS + j"),
    Change("descriptors", "tl.program_id(0) * BLOCK_M", "tl.program_id(0) * BLOCK_N"),
    # wrong indices
    Change("attention", "k + keys[:, None] * DIM + dims[None, :]", "k + keys[:, None] * DIM + dims[None, :] * 0"),
    Change("attention", "v + keys[:, None]", "k + keys[:, None]"),
    Change("product", "rows = tl.program_id(0)", "rows = tl.program_id(1)"),
    Change("scan", "tl.program_id(0) * BLOCK", "tl.program_id(0) * (BLOCK - 1)"),
    Change("sort", "tl.store(out + offsets,", "tl.store(out + (offsets ^ 1),"),
    Change("gather", "x + places", "x + places // 2"),
    Change("histogram", "bins + keys,", "bins + (keys + 1) % 5,"),
    Change("descriptors", "source.load([row, column])", "source.load([row + 1, column])"),
    Change("descriptors", "target.store([row, column]", "target.store([row, column + 4]"),
    Change("helpers", "tl.load(x + offsets)", "tl.load(x + offsets // 2)"),
    # wrong signs
    Change("online_softmax", "total * tl.exp(high - largest)", "total * tl.exp(largest - high)"),
    Change("welford", "mean = mean + delta", "mean = mean - delta", "combine_moments"),
    Change("attention", "decay = tl.exp(high - largest)", "decay = tl.exp(largest - high)"),
    Change("helpers", "return scaled + shift", "return scaled - shift", "scale_and_shift"),
    Change("helpers", "scale, -shift)", "scale, shift)"),
    Change("nested", "(i - j)", "(i + j)"),
    Change("nested", "acc = -acc", "acc = acc"),
    Change("unrolled", "result * value + step", "result * value - step"),
    # wrong axes and orders
    Change("attention", "tl.sum(weights, 1)", "tl.max(weights, 1)"),
    Change("attention", "scores - largest[:, None]", "scores - largest[None, :]"),
    Change("attention", "tl.sum(weights, 1)", "tl.sum(weights, 0)"),
    Change("attention", "acc /= total[:, None]", "acc /= total[None, :]"),
    Change("scan", "tl.cumsum(values, 0)", "tl.cumsum(values, 0, reverse=True)"),
    Change("sort", "tl.sort(values)", "tl.sort(values, descending=True)"),
    # missing maximum, wrong accumulators and operands
    Change("online_softmax", "tl.maximum(high, tl.max(part, 0))", "tl.max(part, 0)"),
    Change("attention", "q + rows[:, None]", "k + rows[:, None]"),
    Change("attention", "acc * decay[:, None] +", "acc +"),
    Change("attention", "total * decay +", "total +"),
    Change("attention", "* scale", "/ scale"),
    Change("welford", "count * other_count / both", "other_count / both", "combine_moments"),
    Change("welford", "both = count + other_count", "both = count + 1 + other_count", "combine_moments"),
    Change("welford", "other_mean - mean", "other_mean - mean * 0.5", "combine_moments"),
    Change("product", "tl.dot(x, y, acc)", "tl.dot(x, y)"),
    Change("scan", "tl.store(out + offsets, sums", "tl.store(out + offsets, values"),
    Change("histogram", "tl.store(x + offsets, old", "tl.store(x + offsets, keys"),
    Change("helpers", "value * scale", "value + scale", "scale_and_shift"),
    Change("helpers", "tl.maximum(inner, 0.0)", "tl.minimum(inner, 0.0)", "activate"),
    Change("descriptors", "tile + tile", "tile * tile"),
    # off by one in a loop, wrong branches
    Change("online_softmax", "range(0, n, BLOCK)", "range(0, n - BLOCK, BLOCK)"),
    Change("welford", "range(n)", "range(n - 1)"),
    Change("attention", "range(0, LENGTH, BLOCK)", "range(BLOCK, LENGTH, BLOCK)"),
    Change("nested", "range(COLUMNS)", "range(COLUMNS - 1)"),
    Change("nested", "if i == 1", "if i == 2"),
    Change("unrolled", "tl.static_range(1, POWER)", "tl.static_range(1, POWER - 1)"),
    # wrong dtypes
    Change("product", "tl.dot(x, y, acc)", "tl.dot(x, y, acc).to(tl.float16).to(tl.float32)"),
    Change("sort", "tl.load(x + offsets)", "tl.load(x + offsets).to(tl.bfloat16).to(tl.float32)"),
    Change(
        "attention", "exp(scores - largest[:, None])", "exp((scores - largest[:, None]).to(tl.float16).to(tl.float32))"
    ),
    Change("welford", "tl.load(x + lanes * n + step)", "tl.load(x + lanes * n + step).to(tl.float16)"),
)

EQUAL = (
    Change("online_softmax", "tl.exp(part - largest)", f"tl.exp2((part - largest) * {LOG2_E})"),
    Change(
        "online_softmax",
        "total * tl.exp(high - largest) + tl.sum(tl.exp(part - largest), 0)",
        "tl.sum(tl.exp(part - largest), 0) + tl.exp(high - largest) * total",
    ),
    Change("online_softmax", "tl.sum(tl.exp(part - largest), 0)", "tl.sum(tl.flip(tl.exp(part - largest), 0), 0)"),
    Change("welford", "delta * other_count / both\n", "delta * (other_count / both)\n", "combine_moments"),
    Change(
        "welford",
        "delta * delta * count * other_count / both",
        "delta * count * (delta * other_count / both)",
        "combine_moments",
    ),
    Change("welford", "spread / count", "spread * (1.0 / count)"),
    Change(
        "welford",
        "mean + delta * other_count / both",
        "(mean * count + other_mean * other_count) / both",
        "combine_moments",
    ),
    Change("attention", "tl.exp(scores - largest[:, None])", f"tl.exp2((scores - largest[:, None]) * {LOG2_E})"),
    Change("attention", "tl.maximum(high, tl.max(scores, 1))", "tl.max(scores, 1)"),
    Change("attention", "tl.zeros((BLOCK, DIM), tl.float32)", "tl.full((BLOCK, DIM), 1.0, tl.float32)"),
    Change("attention", "acc /= total[:, None]", "acc = acc * (1.0 / total)[:, None]"),
    Change(
        "attention",
        "acc * decay[:, None] + tl.dot(weights, tl.load(v + keys[:, None] * DIM + dims[None, :]))",
        "tl.dot(weights, tl.load(v + keys[:, None] * DIM + dims[None, :]), acc * decay[:, None])",
    ),
    Change(
        "attention",
        "tl.dot(query, tl.trans(tl.load(k + keys[:, None] * DIM + dims[None, :]))) * scale",
        "tl.dot(query * scale, tl.trans(tl.load(k + keys[:, None] * DIM + dims[None, :])))",
    ),
    Change("product", "acc = tl.dot(x, y, acc)", "acc += tl.dot(x, y)"),
    Change("product", "tl.dot(x, y, acc)", "acc + tl.sum(x[:, :, None] * y[None, :, :], 1)"),
    Change("scan", "tl.cumsum(values, 0)", "tl.cumsum(values.to(tl.int64), 0).to(tl.int32)"),
    Change("gather", "inside & (places >= 0)", "(places >= 0) & inside"),
    Change("helpers", "value * scale", "value / (1.0 / scale)", "scale_and_shift"),
    Change("helpers", "scaled + shift", "shift + scaled", "scale_and_shift"),
    Change("nested", "value * (i - j)", "value * i - value * j"),
    Change("unrolled", "result * value + step", "step + value * result"),
    Change("sort", "tl.store(out + offsets, ordered)", "tl.store(out + offsets, ordered * 3 / 3)"),
    Change("descriptors", "tile + tile", "tile * 2"),
)
