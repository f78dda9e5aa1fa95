"""A launch as one operator of torch, ``kernellab::launch``, for what torch's own operator for Triton kernels lacks.

That takes tensors and numbers alone, neither tuples nor descriptors, and Inductor makes code of it for GPUs only. This
one is opaque: every backend of `torch.compile` calls it as it is, so a compiled function runs without a GPU as well.
Kernel and constants are in torch's side table for kernels, by their numbers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Literal

from triton.runtime.autotuner import Autotuner

from kernellab._triton.kernel import jit_function

_SCHEMA = (
    "(int kernel, int constants, Tensor(a!)[] changed, Tensor[] read, SymInt[] integers, Scalar[] numbers, "
    "SymInt[] grid) -> ()"
)


@dataclass(frozen=True, slots=True)
class Place:
    """Where an argument, or a member of one, is among those of the operator."""

    among: Literal["changed", "read", "integers", "numbers"]
    index: int


@dataclass(frozen=True, slots=True)
class DescriptorPlace:
    """A tensor descriptor over a tensor among the arguments of the operator."""

    base: Place
    shape: tuple[Any, ...]
    strides: tuple[Any, ...]
    block_shape: tuple[int, ...]
    padding: str


@dataclass(slots=True)
class _Arguments:
    """The arguments of the operator, as they are collected; ``mutated`` names parameters, None stands for all."""

    mutated: frozenset[str] | None
    changed: list[Any] = field(default_factory=list)
    read: list[Any] = field(default_factory=list)
    integers: list[Any] = field(default_factory=list)
    numbers: list[Any] = field(default_factory=list)

    def placed(self, name: str, value: Any) -> Any:
        """Return an argument of the kernel with places for what the operator takes; all else is a constant."""
        import torch

        if isinstance(value, tuple | list):
            members = [self.placed(name, member) for member in value]
            return type(value)(*members) if hasattr(value, "_fields") else type(value)(members)
        if hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
            shape, strides = (tuple(self.placed(name, size) for size in part) for part in (value.shape, value.strides))
            padding = getattr(value, "padding", "zero")
            return DescriptorPlace(self.placed(name, value.base), shape, strides, tuple(value.block_shape), padding)
        if isinstance(value, torch.Tensor):
            is_changed = self.mutated is None or name in self.mutated or any(value is t for t in self.changed)
            return self._added("changed" if is_changed else "read", value)
        if isinstance(value, torch.SymInt):
            return self._added("integers", value)
        if isinstance(value, torch.SymFloat):
            return self._added("numbers", value)
        return value

    def _added(self, among: Literal["changed", "read", "integers", "numbers"], value: Any) -> Place:
        held = getattr(self, among)
        known = next((index for index, other in enumerate(held) if other is value), None)
        if known is None:
            held.append(value)
        return Place(among, len(held) - 1 if known is None else known)


def needs_opaque(kernel: Any, args: tuple[Any, ...], meta: Mapping[str, Any]) -> bool:
    """Tell whether torch's own operator cannot carry a launch, or what `torch.compile` makes of that cannot run it."""
    import torch
    from torch._guards import TracingContext

    values = [*args, *meta.values()]
    if any(isinstance(value, tuple) or hasattr(value, "block_shape") for value in values):
        return any(True for value in values for _ in _tensors(value))
    if TracingContext.try_get() is None or torch.compiler.is_exporting():
        return False
    devices = {tensor.device.type for value in values for tensor in _tensors(value)}
    return devices == {"cpu"}


def launch_opaquely(kernel: Any, args: tuple[Any, ...], grid: Any, meta: Mapping[str, Any]) -> None:
    """Call the operator for a launch; tensors of parameters that may be written count as changed."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    named = {**dict(zip(kernel.arg_names, args, strict=False)), **meta}
    number = kernel_side_table.add_kernel(kernel)
    arguments = _Arguments(_mutated(kernel, named))
    ordered = sorted(named, key=lambda name: arguments.mutated is not None and name not in arguments.mutated)
    placed = {name: arguments.placed(name, named[name]) for name in ordered}
    constants = kernel_side_table.add_constant_args({name: placed[name] for name in named})
    extents = [extent for each in _grids(kernel, grid, named) for extent in each]
    lists = (arguments.changed, arguments.read, arguments.integers, arguments.numbers)
    _operator()(number, constants, *lists, extents)


def _grids(kernel: Any, grid: Any, named: Mapping[str, Any]) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the extents of the grid for each config of a kernel, or the only ones."""
    configs = [config.kwargs for config in kernel.configs] if isinstance(kernel, Autotuner) and callable(grid) else [{}]
    for config in configs:
        found = tuple(grid({**named, **config}) if callable(grid) else grid)
        yield (*found, *(1 for _ in range(3 - len(found))))


def _mutated(kernel: Any, named: Mapping[str, Any]) -> frozenset[str] | None:
    """Return the parameters that torch finds a kernel to write through; None where it cannot tell."""
    import torch
    from torch._higher_order_ops.triton_kernel_wrap import get_mutated_tensors, kernel_side_table

    if any(isinstance(value, tuple) or hasattr(value, "block_shape") for value in named.values()):
        return None
    with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
        # What stands for a tensor may have no address, which torch's analysis asks for.
        tensors = {n: torch.empty(2, dtype=v.dtype) for n, v in named.items() if isinstance(v, torch.Tensor)}
        symbols = {n: v for n, v in named.items() if isinstance(v, torch.SymInt | torch.SymFloat)}
        rest = kernel_side_table.add_constant_args(
            {n: v for n, v in named.items() if n not in tensors and n not in symbols}
        )
        found = get_mutated_tensors(kernel_side_table.add_kernel(kernel), rest, {**tensors, **symbols}, {})
    return frozenset(found)


def _launch(
    kernel: int,
    constants: int,
    changed: Sequence[Any],
    read: Sequence[Any],
    integers: Sequence[int],
    numbers: Sequence[float],
    grid: Sequence[int],
) -> None:
    """Launch a kernel: what the operator does where its tensors have contents."""
    from torch._higher_order_ops.triton_kernel_wrap import kernel_side_table

    given = {"changed": changed, "read": read, "integers": integers, "numbers": numbers}
    found: Any = kernel_side_table.get_kernel(kernel)
    named = {n: _value(part, given) for n, part in kernel_side_table.get_constant_args(constants).items()}
    grids = [tuple(grid[start : start + 3]) for start in range(0, len(grid), 3)]
    order = [name for name in jit_function(found).arg_names if name in named]
    found[grid_among(found, grids)](**{name: named[name] for name in (*order, *(n for n in named if n not in order))})


def grid_among(kernel: Any, grids: Sequence[Any]) -> Any:
    """Return the only grid of a launch, or a function of the config of an autotuned kernel, which has one for each."""
    if len(grids) == 1:
        return grids[0]

    def grid(meta: Mapping[str, Any]) -> Any:
        chosen = (
            index
            for index, config in enumerate(kernel.configs)
            if all(meta.get(name) == value for name, value in config.kwargs.items())
        )
        return grids[next(chosen)]

    return grid


def _value(part: Any, given: Mapping[str, Sequence[Any]]) -> Any:
    """Return an argument of the kernel with the operator's arguments in their places."""
    if isinstance(part, Place):
        return given[part.among][part.index]
    if isinstance(part, DescriptorPlace):
        from triton.tools.tensor_descriptor import TensorDescriptor

        shape, strides = ([int(_value(size, given)) for size in sizes] for sizes in (part.shape, part.strides))
        options = {} if part.padding == "zero" else {"padding": part.padding}
        return TensorDescriptor(_value(part.base, given), shape, strides, list(part.block_shape), **options)
    if isinstance(part, tuple | list):
        members = [_value(member, given) for member in part]
        return type(part)(*members) if hasattr(part, "_fields") else type(part)(members)
    return part


def _tensors(value: Any) -> Iterator[Any]:
    import torch

    if isinstance(value, tuple | list):
        for member in value:
            yield from _tensors(member)
    elif isinstance(value, torch.Tensor):
        yield value
    elif hasattr(value, "block_shape") and isinstance(getattr(value, "base", None), torch.Tensor):
        yield value.base


@lru_cache(maxsize=1)
def _operator() -> Any:
    """Return the operator, which is registered once in a process."""
    import torch

    made = torch.library.custom_op("kernellab::launch", _launch, mutates_args=("changed",), schema=_SCHEMA)
    made.register_fake(lambda *given: None)
    return torch.ops.kernellab.launch.default
