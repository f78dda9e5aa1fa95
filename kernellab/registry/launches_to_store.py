"""Launches, their arguments and what was compiled, as the store keeps them."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import replace
from types import FunctionType, MappingProxyType
from typing import Any

from kernellab._triton.closure import value_closure_of
from kernellab._triton.kernel import best_config, constexpr_value, dtype_name, is_jit_function
from kernellab.compile.types import Compiled
from kernellab.launch.arguments import bypass_modes
from kernellab.launch.bound_launch import ValueSample, sample_of
from kernellab.launch.recording import LaunchRecord
from kernellab.launch.symbolic import symbolic_grid
from kernellab.source import INTEGER_OPTIONS, LAUNCH_FLAGS, is_formula, is_plain
from kernellab.store import Argument, RecordedLaunch, Result
from kernellab.target import device_name

_SMALL = 256  # a tensor of integers up to this size is kept as it is: offsets and lengths are not random numbers


def recorded_launch_of(record: LaunchRecord, check: str = "") -> RecordedLaunch:
    """The storable launch of a record."""
    compiled = record.compiled
    constexprs = {parameter.name for parameter in record.kernel.params if parameter.is_constexpr}
    aliases = aliases_among(record.arguments)
    arguments = (
        replace(argument_of(name, value, record.before), constexpr=name in constexprs, alias=aliases.get(name, ""))
        for name, value in record.arguments.items()
    )
    options = {name: compiled.options.get(name) for name in INTEGER_OPTIONS if compiled.options.get(name) is not None}
    options |= {name: True for name in LAUNCH_FLAGS if compiled.options.get(name)}
    user_grid, where = record.given_grid, (record.run or record).where
    grid_text = symbolic_grid(user_grid, record.arguments) if isinstance(user_grid, FunctionType) else ""
    return RecordedLaunch(
        signature=tuple((parameter.name, parameter.type) for parameter in compiled.parameters),
        arguments=tuple(arguments),
        options=options,
        grid=record.grid,
        target=str(compiled.target),
        where=where,
        result=compiled.digest,
        config=best_config(record.owner, compiled.options),
        grid_text=grid_text if is_formula(grid_text, record.arguments) else "",
        device=device_name() if where == "gpu" else "",
        check=check,
    )


def result_of(compiled: Compiled) -> Result:
    """The summary of a compiled kernel."""
    import triton

    effects = compiled.effects
    return Result(
        digest=compiled.digest,
        target=str(compiled.target),
        options={name: compiled.options.get(name) for name in INTEGER_OPTIONS},
        resources=dataclasses.asdict(compiled.resources),
        reads=tuple(sorted(effects.reads)),
        writes=tuple(sorted(effects.writes)),
        atomics=tuple(sorted(effects.atomics)),
        complete=not effects.unknown,
        through=tuple(sorted(effects.through)),
        seconds=compiled.seconds,
        triton=str(triton.__version__),
    )


def argument_of(
    name: str, value: Any, before: Mapping[str, ValueSample] = MappingProxyType({}), *, reads: bool = True
) -> Argument:
    """The description of one argument, with the values in ``before`` if the launch changed them.

    Without ``reads``, no tensor is read, so that a GPU is not waited for.
    """
    value = constexpr_value(value)
    if isinstance(value, tuple) and any(hasattr(member, "data_ptr") for member in value):
        members = tuple(argument_of(f"{name}[{i}]", member, before, reads=reads) for i, member in enumerate(value))
        return Argument(name, "tuple", members=members)
    if is_plain(value):
        return Argument(name, "scalar", value=value)
    if (dtype := dtype_name(value)) is not None:
        return Argument(name, "dtype", value=dtype)
    if is_jit_function(value):
        return Argument(name, "function", value=value.__name__, source=value_closure_of(value))
    if hasattr(value, "untyped_storage"):
        return _tensor_argument(name, value, before.get(name)) if reads else _tensor_layout(name, value)
    if hasattr(getattr(value, "base", None), "untyped_storage") and hasattr(value, "block_shape"):
        member = argument_of(f"{name}.base", value.base, before, reads=reads)
        return Argument(name, "descriptor", value=_layout_of(value), members=(member,), block=tuple(value.block_shape))
    source = value_closure_of(value)
    if source is None:
        return Argument(name, "other", value=type(value).__name__)
    return Argument(name, "value", value=getattr(value, "__name__", type(value).__name__), source=source)


def _layout_of(descriptor: Any) -> dict[str, Any] | None:
    """The shared-memory layout of a Gluon descriptor, as its class and fields; else None."""
    layout = getattr(descriptor, "layout", None)
    if not dataclasses.is_dataclass(layout):
        return None
    fields = {member.name: getattr(layout, member.name) for member in dataclasses.fields(layout) if member.init}
    return {"class": type(layout).__name__, **fields} if is_plain(fields) else None


def aliases_among(arguments: Mapping[str, Any]) -> dict[str, str]:
    """The name of the first of several tensors that are one memory with one layout, by the names of the others."""
    first, aliases = dict[Any, str](), dict[str, str]()
    for name, value in arguments.items():
        if hasattr(value, "untyped_storage") and value.numel():
            layout = value.data_ptr(), value.dtype, tuple(value.shape), tuple(value.stride())
            if (earlier := first.setdefault(layout, name)) != name:
                aliases[name] = earlier
    return aliases


def _tensor_layout(name: str, tensor: Any) -> Argument:
    return Argument(
        name,
        "tensor",
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        device=tensor.device.type,
    )


@bypass_modes()
def _tensor_argument(name: str, tensor: Any, before: ValueSample | None) -> Argument:
    sample = before or sample_of(tensor)
    low, high = _bounds(tensor, sample)
    return replace(
        _tensor_layout(name, tensor),
        low=low,
        high=high,
        values=_small_values(tensor, sample),
        is_updated=before is not None,
    )


def _bounds(tensor: Any, sample: ValueSample | None) -> tuple[float | None, float | None]:
    """The least and the largest finite value of a sample of a tensor; None of complex ones."""
    import torch  # keeps `import kernellab` light

    if sample is None or tensor.is_complex():
        return None, None
    copies = [run.cpu() for run in sample.runs]  # no more than copies: a GPU would load a kernel for anything else
    is_floating = tensor.is_floating_point()
    numbers = torch.cat([copy.float() if is_floating else copy.long() for copy in copies])
    if is_floating:
        numbers = numbers[torch.isfinite(numbers)]
    if numbers.numel() == 0:
        return None, None
    low, high = torch.aminmax(numbers)
    return low.item(), high.item()


def _small_values(tensor: Any, sample: ValueSample | None) -> tuple[int, ...] | None:
    """All values of a small tensor of integers, else None."""
    if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() > _SMALL or tensor.device.type == "meta":
        return None
    return () if sample is None else tuple(map(int, sample.runs[0].cpu().tolist()))
