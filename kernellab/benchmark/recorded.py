"""The spec of a benchmark; and the inputs of a recorded launch, scaled to other sizes, dtypes and scalars."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from kernellab._triton.kernel import Kernel
from kernellab.benchmark.spec import VARIANTS, BenchmarkSpec, cast, peers, swept
from kernellab.errors import UsageError, plural
from kernellab.launch.calls import require_grid
from kernellab.registry import Registry, grid_text, made_inputs, recorded_version, values_of
from kernellab.store import Argument, RecordedLaunch

_OPTIONS = frozenset({"over", "inputs", "versus", "where", "flops", "bytes", "check", "rounds", "timeout_s"})
_ASK = "pass inputs=lambda {names}: dict(...), which makes the arguments."


def spec_of(
    kernels: Registry,
    device: str,
    kernel: Kernel | str | int,
    grid: Any,
    args: tuple[Any, ...],
    given: Mapping[str, Any],
) -> BenchmarkSpec:
    """Return the spec of ``lab.bench``: its own keywords, and the rest as arguments of the kernel.

    Where there is neither a grid nor an argument, those of the latest recorded launch are scaled.

    Raises:
        UsageError: an option has a wrong value, or a name is unknown.
    """
    from kernellab._triton.kernel import parameter_names  # keeps `import kernellab` light

    options = {name: value for name, value in given.items() if name in _OPTIONS}
    meta = {name: value for name, value in given.items() if name not in _OPTIONS}
    names = parameter_names(kernels[kernel] if isinstance(kernel, str | int) else kernel)
    if len(args) > len(names):
        raise UsageError(f"The kernel takes {plural(len(names), 'argument')} ({', '.join(names)}) and got {len(args)}.")
    inputs = options.pop("inputs", None)
    over = swept(options.pop("over"), names, inputs)
    peers_of = peers(options.pop("versus", None))
    if grid is None:
        if args or inputs is not None:
            raise UsageError("The grid is missing; pass it after the kernel: lab.bench(kernel, grid, ..., over=...).")
        found = recorded(kernels, kernel, tuple(name for name in over if name not in VARIANTS), device)
        grid, inputs = found.grid, found.inputs
    require_grid(grid, "lab.bench")
    named = {**dict(zip(names, args, strict=False)), **meta}
    return BenchmarkSpec(kernel, grid, named, over, inputs=inputs, versus=peers_of, **options)


@dataclasses.dataclass(frozen=True, slots=True)
class Recorded:
    """The latest launch of a kept kernel: its grid, and what makes its arguments for other values."""

    grid: Any
    inputs: Callable[..., dict[str, Any]]


def recorded(kernels: Registry, kernel: Kernel | str | int, names: tuple[str, ...], device: str) -> Recorded:
    """Return what the latest recorded launch of a kernel tells, for a sweep over some of its parameters.

    Tensors whose extents are a swept number have other extents then; other parameters stay as they were.

    Raises:
        UsageError: no launch is kept, it does not tell the grid, or what is swept is no scalar of it.
    """
    from kernellab._triton.kernel import supplied_names  # keeps `import kernellab` light

    version = kernels.version(kernel) if isinstance(kernel, str | int) else kernels.version_of(kernel)
    kept = recorded_version(kernels.store, version)
    launch = kept.launch
    if launch is None or launch.grid is None:
        raise UsageError(
            f"No launch of {version.label} is kept; launch it in a %%triton cell, or pass a grid and arguments."
        )
    known = {argument.name for argument in launch.arguments}
    unknown = [name for name in names if name not in known | {"dtype"}]
    if unknown:
        raise UsageError(f"over sweeps {unknown[0]!r}, and {version.label} takes {', '.join(sorted(known))}.")
    formula = grid_text(kept.launches)
    if formula is None and names:
        raise UsageError(
            f"The launches of {version.label} do not tell how its grid {launch.grid} follows from its arguments; "
            "pass the grid as a function: lambda meta: (triton.cdiv(...),)."
        )
    left_out = supplied_names(kernels[version.id])

    def inputs(**values: Any) -> dict[str, Any]:
        sizes = {name: value for name, value in values.items() if name != "dtype"}
        wanted = scaled(launch, sizes)
        made = {**made_inputs(wanted, device), **values_of(wanted)}
        made = {name: value for name, value in made.items() if name not in left_out}
        return cast(made, values["dtype"]) if "dtype" in values else made

    return Recorded(launch.grid if formula is None else formula.grid_for, inputs)


def scaled(launch: RecordedLaunch, values: Mapping[str, Any]) -> RecordedLaunch:
    """Return a launch with other values of some scalars, and tensors and strides that fit them.

    An extent follows a number where it equals it; that of a vector also where it is a multiple of it, or its product
    with another number. Strides are those of the new shapes, also where a parameter called stride has them.

    Raises:
        UsageError: it is not clear what follows a number.
    """
    numbers = {a.name: a.value for a in launch.arguments if a.kind == "scalar" and type(a.value) is int}
    changes: dict[int, int] = {}
    for name, new in values.items():
        old = numbers.get(name)
        if old is None or type(new) is not int or old == new or launch.argument(name).constexpr:
            continue
        if old < 2 or changes.get(old, new) != new:
            raise UsageError(f"{name} was {old}, which does not tell the extents that follow it; {_ask(values)}")
        changes[old] = new
    tensors = {a.name: _tensor(a, numbers, changes, values) for a in launch.arguments if a.kind == "tensor"}
    strides = _strides([(a, tensors[a.name]) for a in launch.arguments if a.name in tensors])
    arguments = []
    for argument in launch.arguments:
        if argument.name in values:
            arguments.append(dataclasses.replace(argument, value=values[argument.name]))
        elif argument.name in tensors:
            arguments.append(tensors[argument.name])
        elif changes and argument.kind in {"tuple", "descriptor"}:
            raise UsageError(f"{argument.name} is a {argument.kind}, which is not scaled; {_ask(values)}")
        else:
            arguments.append(_scalar(argument, changes, strides, values))
    if changes and all(tensors[a.name].shape == a.shape for a in launch.arguments if a.name in tensors):
        names = ", ".join(f"{name}={numbers[name]}" for name in values if name in numbers)
        raise UsageError(f"No tensor of the recorded launch has an extent of {names}; {_ask(values)}")
    return dataclasses.replace(launch, arguments=tuple(arguments))


def _tensor(
    argument: Argument, numbers: Mapping[str, int], changes: Mapping[int, int], values: Mapping[str, Any]
) -> Argument:
    extents = [_extent(extent, len(argument.shape), numbers, changes) for extent in argument.shape]
    if None in extents:
        raise UsageError(
            f"{argument.name} has the shape {argument.shape}, of which it is not clear what follows; {_ask(values)}"
        )
    shape = tuple(extent for extent in extents if extent is not None)
    if shape == argument.shape:
        return argument
    order = sorted(range(len(shape)), key=lambda axis: (argument.stride[axis], -axis))
    if argument.stride != _dense(argument.shape, order):
        raise UsageError(f"{argument.name} has gaps (strides {argument.stride}) and is not scaled; {_ask(values)}")
    return dataclasses.replace(argument, shape=shape, stride=_dense(shape, order), values=None)


def _extent(extent: int, rank: int, numbers: Mapping[str, int], changes: Mapping[int, int]) -> int | None:
    """Return what an extent becomes; None where two readings of it differ."""
    if extent in changes:
        return changes[extent]
    if rank > 1:
        return extent
    factors = set(numbers.values())
    products = {
        changes.get(one, one) * changes.get(other, other)
        for one in changes
        for other in factors
        if one * other == extent
    }
    multiples = {extent // old * new for old, new in changes.items() if extent > old and extent % old == 0}
    found = products or multiples or {extent}
    return found.pop() if len(found) == 1 else None


def _dense(shape: tuple[int, ...], order: list[int]) -> tuple[int, ...]:
    """Return the strides of a tensor without gaps whose dimensions run in this order, the fastest first."""
    strides, step = [0] * len(shape), 1
    for axis in order:
        strides[axis] = step
        step *= shape[axis]
    return tuple(strides)


def _strides(pairs: list[tuple[Argument, Argument]]) -> dict[int, set[int]]:
    """Return what each recorded stride becomes, in all tensors."""
    found: dict[int, set[int]] = {}
    for before, after in pairs:
        for old, new in zip(before.stride, after.stride, strict=True):
            found.setdefault(old, set()).add(new)
    return found


def _scalar(
    argument: Argument, changes: Mapping[int, int], strides: Mapping[int, set[int]], values: Mapping[str, Any]
) -> Argument:
    if argument.kind != "scalar" or type(argument.value) is not int or argument.constexpr:
        return argument
    old = argument.value
    if "stride" in argument.name.lower():
        new = strides.get(old, {old})
        if len(new) > 1:
            raise UsageError(f"{argument.name} was {old}, a stride of several tensors; {_ask(values)}")
        return dataclasses.replace(argument, value=next(iter(new)))
    if changes.get(old, old) != old:
        raise UsageError(
            f"{argument.name} was {old} too, so it is not clear which extents follow what is swept; {_ask(values)}"
        )
    return argument


def _ask(values: Mapping[str, Any]) -> str:
    return _ASK.format(names=", ".join(values))
