"""Variants of kernels, right ones and wrong ones that pass ``torch.allclose``, for `benchmarks.algebra`."""

from __future__ import annotations

import importlib.util
import inspect
import itertools
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from benchmarks import algebra_kernels as kernels

Grid = tuple[int, ...]
_numbers = itertools.count()


@dataclass(frozen=True)
class Launch:
    """A launch of a kernel: arguments in order, constexprs and grid."""

    kernel: str
    arguments: Callable[[], tuple[Any, ...]]
    meta: dict[str, int]
    grid: Grid


def numbers(*shape: int, scale: float = 1.0, dtype: torch.dtype = torch.float32, seed: int = 0) -> torch.Tensor:
    return (torch.randn(*shape, generator=torch.Generator().manual_seed(seed)) * scale).to(dtype)


def with_tiny_end(tensor: torch.Tensor, tiny: float = 1e-9) -> torch.Tensor:
    tensor[..., -1] = tiny
    return tensor


ROWS, N = 3, 100
LAUNCHES = {
    launch.kernel: launch
    for launch in (
        Launch("softmax", lambda: (numbers(ROWS, N), torch.zeros(ROWS, N), N), {"BLOCK": 128}, (ROWS,)),
        Launch("online_softmax", lambda: (numbers(ROWS, N), torch.zeros(ROWS, N), N), {"BLOCK": 32}, (ROWS,)),
        Launch("row_sum", lambda: (numbers(ROWS, N), torch.zeros(ROWS), N), {"BLOCK": 32}, (ROWS,)),
        Launch(
            "layer_norm",
            lambda: (numbers(ROWS, N), numbers(N, seed=1), numbers(N, seed=2), torch.zeros(ROWS, N), N),
            {"BLOCK": 128},
            (ROWS,),
        ),
        Launch(
            "rms_norm", lambda: (numbers(ROWS, N), numbers(N, seed=1), torch.zeros(ROWS, N), N), {"BLOCK": 128}, (ROWS,)
        ),
        Launch(
            "product",
            lambda: (numbers(32, 72), numbers(72, 32, seed=1), torch.zeros(32, 32), 32, 32, 72),
            {"BLOCK": 16, "BLOCK_K": 16},
            (2, 2),
        ),
        Launch(
            "update",
            lambda: (*(numbers(N, seed=seed) for seed in range(3)), torch.zeros(N), 0.01, 0.1, N),
            {"BLOCK": 64},
            (2,),
        ),
        Launch("gate", lambda: (numbers(N), numbers(N, seed=1), torch.zeros(N), N), {"BLOCK": 64}, (2,)),
        Launch(
            "rotate", lambda: (*(numbers(N, seed=seed) for seed in range(3)), torch.zeros(N), N), {"BLOCK": 64}, (2,)
        ),
    )
}


@dataclass(frozen=True)
class Variant:
    """A variant of a kernel: changes of its text, other options, another kernel, or a function of torch.

    ``arguments`` take the place of those of the launch.
    """

    kernel: str
    name: str
    changes: tuple[tuple[str, str], ...] = ()
    other: Any = None
    arguments: Callable[[], tuple[Any, ...]] | None = field(default=None, compare=False)

    @property
    def launch(self) -> Launch:
        launch = LAUNCHES[self.kernel]
        return launch if self.arguments is None else Launch(launch.kernel, self.arguments, launch.meta, launch.grid)

    def compared_with(self, folder: Path) -> Any:
        """What the kernel is compared with; a changed kernel is written to a folder."""
        return self.other if self.other is not None else changed_kernel(self.kernel, self.changes, folder)


def changed_kernel(name: str, changes: tuple[tuple[str, str], ...], folder: Path) -> Any:
    """Write the module with a changed kernel to a folder and return the kernel."""
    text = inspect.getsource(kernels)
    source = inspect.getsource(getattr(kernels, name).fn)
    new = source
    for old, replacement in changes:
        assert new.count(old) == 1, f"{old!r} stands {new.count(old)} times in {name}"
        new = new.replace(old, replacement)
    path = folder / f"changed_{next(_numbers)}.py"
    path.write_text(text.replace(source, new))
    spec = importlib.util.spec_from_file_location(path.stem, path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return getattr(module, name)


def text(kernel: str, old: str, new: str, arguments: Callable[[], tuple[Any, ...]] | None = None) -> Variant:
    return Variant(kernel, new, ((old, new),), arguments=arguments)


LOG2_E = "1.4426950408889634"


def _softmax_half(dtype: torch.dtype) -> Callable[[], tuple[Any, ...]]:
    return lambda: (numbers(ROWS, N, dtype=dtype), torch.zeros(ROWS, N, dtype=dtype), N)


def _product_half() -> tuple[Any, ...]:
    a, b = numbers(32, 72, dtype=torch.float16), numbers(72, 32, seed=1, dtype=torch.float16)
    return a, b, torch.zeros(32, 32, dtype=torch.float16), 32, 32, 72


def _split(parts: int) -> tuple[Any, Grid, dict[str, int]]:
    return kernels.split_k_product, (2, 2, parts), {"SPLIT": parts}


def _norm(x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, (N,), weight, bias, 1e-5)


RIGHT = (
    Variant("softmax", "BLOCK=256", other={"BLOCK": 256}),
    Variant("softmax", "online, blocks of 32", other=(kernels.online_softmax, (ROWS,), {"BLOCK": 32})),
    Variant("softmax", "online, blocks of 16", other=(kernels.online_softmax, (ROWS,), {"BLOCK": 16})),
    Variant("softmax", "torch.softmax", other=lambda x: x.softmax(1)),
    Variant("softmax", "exp over sum of exp in torch", other=lambda x: x.exp() / x.exp().sum(1, keepdim=True)),
    Variant("softmax", "float16, BLOCK=256", other={"BLOCK": 256}, arguments=_softmax_half(torch.float16)),
    Variant("softmax", "bfloat16, torch", other=lambda x: x.softmax(1), arguments=_softmax_half(torch.bfloat16)),
    text("softmax", "tl.exp(values - tl.max(values, 0))", f"tl.exp2((values - tl.max(values, 0)) * {LOG2_E})"),
    text("softmax", "parts / total", "parts * (1.0 / total)"),
    text("softmax", "tl.sum(parts, 0)", "tl.sum(tl.flip(parts, 0), 0)"),
    text("softmax", "tl.sum(parts, 0)", "tl.sum(tl.sum(tl.reshape(parts, (8, BLOCK // 8)), 0), 0)"),
    text("softmax", "tl.exp(values - tl.max(values, 0))", "tl.exp(values)"),
    text("softmax", "tl.exp(values - tl.max(values, 0))", "tl.exp(values) / tl.exp(tl.max(values, 0))"),
    Variant("online_softmax", "BLOCK=64", other={"BLOCK": 64}),
    Variant("row_sum", "BLOCK=128", other={"BLOCK": 128}),
    Variant("row_sum", "BLOCK=16", other={"BLOCK": 16}),
    Variant("row_sum", "atomics", other=(kernels.atomic_row_sum, (ROWS, 4), {})),
    Variant("row_sum", "torch.sum", other=lambda x: x.sum(1)),
    Variant("row_sum", "a product with ones in torch", other=lambda x: x @ torch.ones(N)),
    text("row_sum", "total += tl.sum(values, 0)", "total = tl.sum(values, 0) + total"),
    text("row_sum", "start + tl.arange", "n // BLOCK * BLOCK - start + tl.arange"),
    Variant(
        "row_sum",
        "a block of sums",
        (
            ("total = 0.0", "total = tl.zeros((BLOCK,), tl.float32)"),
            ("+= tl.sum(values, 0)", "+= values"),
            ("out + row, total", "out + row, tl.sum(total, 0)"),
        ),
    ),
    Variant("layer_norm", "torch layer_norm", other=_norm),
    Variant("layer_norm", "BLOCK=256", other={"BLOCK": 256}),
    text("layer_norm", "1 / tl.sqrt(variance + 1e-5)", "tl.rsqrt(variance + 1e-5)"),
    text("layer_norm", "centred * scale * w + b", "b + w * (scale * centred)"),
    text("layer_norm", "centred * scale * w + b", "tl.fma(centred * w, scale, b)"),
    text("layer_norm", "tl.sum(values, 0) / n", "tl.sum(values / n, 0)"),
    text("layer_norm", "tl.sum(values, 0) / n", "tl.sum(values, 0) * (1.0 / n)"),
    Variant("rms_norm", "torch rms_norm", other=lambda x, weight: torch.nn.functional.rms_norm(x, (N,), weight, 1e-6)),
    Variant(
        "rms_norm",
        "by hand in torch",
        other=lambda x, weight: x * torch.rsqrt((x * x).mean(1, keepdim=True) + 1e-6) * weight,
    ),
    text("rms_norm", "values * scale * tl.load", "scale * values * tl.load"),
    Variant("product", "BLOCK_K=32", other={"BLOCK_K": 32}),
    Variant("product", "BLOCK_K=64", other={"BLOCK_K": 64}),
    Variant("product", "split K by 2", other=_split(2)),
    Variant("product", "split K by 3", other=_split(3)),
    Variant("product", "torch matmul", other=lambda a, b: a @ b),
    Variant("product", "sum of outer products in torch", other=lambda a, b: (a[:, :, None] * b[None]).sum(1)),
    Variant("product", "float16, torch", other=lambda a, b: a @ b, arguments=_product_half),
    text("product", "acc = tl.dot(left, right, acc)", "acc += tl.dot(left, right)"),
    text("product", "acc = tl.dot(left, right, acc)", "acc += tl.trans(tl.dot(tl.trans(right), tl.trans(left)))"),
    text("product", "acc = tl.dot(left, right, acc)", "acc += tl.sum(left[:, :, None] * right[None, :, :], 1)"),
    text("update", "value - lr * step - lr * decay * value", "value - lr * (step + decay * value)"),
    text("update", "value - lr * step - lr * decay * value", "value * (1.0 - lr * decay) - lr * step"),
    Variant("gate", "torch silu", other=lambda x, y: torch.nn.functional.silu(x) * y),
    text("gate", "a / (1.0 + tl.exp(-a)) * b", "a * b * (1.0 / (1.0 + 1.0 / tl.exp(a)))"),
    text("gate", "tl.exp(-a)", f"tl.exp2(-a * {LOG2_E})"),
    Variant("rotate", "torch", other=lambda x, y, angle: x * angle.cos() - y * angle.sin()),
    text("rotate", "b * tl.sin(t)", "b * (tl.sin(t * 0.5 + t - t * 0.5))"),
    text("rotate", "tl.cos(t)", "(tl.cos(t - 1.0) * tl.cos(1.0) - tl.sin(t - 1.0) * tl.sin(1.0))"),
)


def _tiny_sum() -> tuple[Any, ...]:
    return with_tiny_end(numbers(ROWS, N).abs() + 1), torch.zeros(ROWS), N


def _zero_sum() -> tuple[Any, ...]:
    padded = torch.zeros(ROWS, N)
    padded[:, : N - 1] = numbers(ROWS, N - 1)
    return padded, torch.zeros(ROWS), N


def _large_norm() -> tuple[Any, ...]:
    return numbers(ROWS, N, scale=1e3), numbers(N, seed=1), numbers(N, seed=2), torch.zeros(ROWS, N), N


def _large_rms() -> tuple[Any, ...]:
    return numbers(ROWS, N, scale=1e3), numbers(N, seed=1), torch.zeros(ROWS, N), N


def _tiny_bias() -> tuple[Any, ...]:
    return numbers(ROWS, N), numbers(N, seed=1), torch.full((N,), 1e-10), torch.zeros(ROWS, N), N


def _tiny_inner() -> tuple[Any, ...]:
    a = numbers(32, 72).abs() + 1
    a[:, 64:] = 1e-9
    return a, numbers(72, 32, seed=1).abs() + 1, torch.zeros(32, 32), 32, 32, 72


def _whole_numbers() -> tuple[Any, ...]:
    a, b = ((numbers(*shape, seed=seed) * 2).round() for shape, seed in (((32, 72), 0), ((72, 32), 1)))
    return a, b, torch.zeros(32, 32), 32, 32, 72


def _still() -> tuple[Any, ...]:
    p, g = numbers(N).abs() + 1, numbers(N, seed=1)
    return p, g, numbers(N, scale=1e-9, seed=2), torch.zeros(N), 1e-3, 1e-9, N


def _far_apart() -> tuple[Any, ...]:
    x = numbers(ROWS, N)
    x[:, -1] = -1e4
    return x, torch.zeros(ROWS, N), N


def _small_angles() -> tuple[Any, ...]:
    return numbers(N).abs() + 1, numbers(N, seed=1), numbers(N, scale=1e-9, seed=2), torch.zeros(N), N


def _tiny_gate() -> tuple[Any, ...]:
    return numbers(N), numbers(N, seed=1), torch.zeros(N), N


CLOSE = (
    text("row_sum", "mask=columns < n,", "mask=columns < n - 1,", _tiny_sum),
    text("row_sum", "total = 0.0", "total = 1e-9", _tiny_sum),
    Variant(
        "row_sum",
        "the last lane twice, where it is 0",
        (("mask=columns < n,", "mask=columns < n - 1,"),),
        None,
        _zero_sum,
    ),
    text("softmax", "parts / total", "parts / (total + 1e-20)"),
    text("softmax", "tl.exp(values - tl.max(values, 0))", "tl.exp2((values - tl.max(values, 0)) * 1.4426951)"),
    text("softmax", "mask=columns < n, other", "mask=columns < n - 1, other", _far_apart),
    text("softmax", 'other=-float("inf")', "other=-1e4"),
    text("layer_norm", "variance + 1e-5", "variance", _large_norm),
    text("layer_norm", "variance + 1e-5", "variance + 1e-6", _large_norm),
    text("layer_norm", "* w + b", "* w", _tiny_bias),
    text("layer_norm", "* w + b", "* w + b + b", _tiny_bias),
    text("rms_norm", "/ n + 1e-6", "/ n", _large_rms),
    text("rms_norm", "/ n + 1e-6", "/ n + 1e-5", _large_rms),
    text("product", "range(0, K, BLOCK_K)", "range(0, K - BLOCK_K, BLOCK_K)", _tiny_inner),
    text(
        "product",
        "acc = tl.dot(left, right, acc)",
        "acc = tl.dot(left.to(tl.float16), right.to(tl.float16), acc)",
        _whole_numbers,
    ),
    text(
        "product",
        "acc = tl.dot(left, right, acc)",
        "acc = tl.dot(left, right, acc).to(tl.float16).to(tl.float32)",
        _whole_numbers,
    ),
    text("update", "0.9 * state + gradient", "gradient", _still),
    text("update", " - lr * decay * value", "", _still),
    text("update", "lr * decay * value", "lr * decay * gradient", _still),
    text("gate", "1.0 + tl.exp(-a)", "1.0 + tl.exp(-a) + 1e-9", _tiny_gate),
    text("rotate", "b * tl.sin(t)", "b * t", _small_angles),
    text("rotate", " - b * tl.sin(t)", "", _small_angles),
)
