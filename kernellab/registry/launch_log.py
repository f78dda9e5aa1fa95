"""What the store keeps of a launch: enough to launch the kernel again on arguments of the same kind."""

from __future__ import annotations

import contextlib
import dataclasses
from collections.abc import Mapping
from typing import Any

from kernellab._triton.closure import value_closure_of
from kernellab._triton.kernel import Kernel
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.launch.recording import LaunchRecord
from kernellab.registry.kernels import Registry
from kernellab.registry.symbolic_arguments import symbolic_grid
from kernellab.source import is_plain
from kernellab.store import Argument, LaunchedBy, RecordedLaunch, Result, Version, is_formula
from kernellab.store.serial import OPTIONS

_SMALL = 256  # a tensor of integers up to this size is kept as it is: offsets and lengths are no random numbers
_RUNS, _RUN_LENGTH = 16, 2**10  # of a larger tensor, so many runs of so many elements are looked at for its bounds


def launched_version(kernels: Registry, kernel: Kernel, record: LaunchRecord) -> Version | None:
    """Return the version of ``kernel`` that a record launched, or None where it was never entered."""
    return kernels.launched(kernel if kernels.known(record.owner) is None else record.owner, record.closure)


def remember(
    kernels: Registry, kernel: Kernel, record: LaunchRecord, check: str = "", by: LaunchedBy = "launch"
) -> Version | None:
    """Enter the launches of a record into the store, if ``kernel`` was entered; committed when this returns.

    They belong to the version that was launched, which is returned. ``check`` is the reference of the outputs, as an
    expression over the kernel's parameters; ``by`` tells a trial by `Lab.run` from a launch.
    """
    version = launched_version(kernels, kernel, record)
    if version is None:
        return None
    kernels.mark_launched(version)
    seconds = None if record.run is None else record.run.seconds
    launch = dataclasses.replace(launch_of(kernels, record, check), by=by)
    kernels.store.history.add_launch(
        version.id, launch, seconds=seconds, count=record.launches, result=result_of(record.compiled)
    )
    return version


def keep(kernels: Registry, record: LaunchRecord) -> None:
    """Enter a launch of a kept kernel that nobody recorded; what is in its way here is no matter of the launch."""
    if kernels.known(record.owner) is None and kernels.known(record.kernel) is None:
        return
    with contextlib.suppress(KernellabError, RuntimeError):  # a lab that was closed; a tensor that cannot be read
        remember(kernels, record.kernel, record)


def launch_of(kernels: Registry, record: LaunchRecord, check: str = "") -> RecordedLaunch:
    """Return the launch that a record stands for."""
    from kernellab._triton.decorators import best_config

    compiled = record.compiled
    constexprs = {parameter.name for parameter in record.kernel.params if parameter.is_constexpr}
    arguments = [
        dataclasses.replace(
            argument_of(name, value), constexpr=name in constexprs, alias=_alias(name, record.arguments)
        )
        for name, value in record.arguments.items()
    ]
    options = {name: compiled.options.get(name) for name in OPTIONS if compiled.options.get(name) is not None}
    config = best_config(record.owner or kernels.owner_of(record.kernel))
    grid_text = symbolic_grid(record.given_grid, record.arguments)
    where = record.where if record.run is None else record.run.where
    return RecordedLaunch(
        signature=tuple((parameter.name, parameter.type) for parameter in compiled.parameters),
        arguments=tuple(arguments),
        options=options,
        grid=record.grid,
        target=str(compiled.target),
        where=where,
        result=compiled.digest,
        config=", ".join(part for part in config.split(", ") if part and not part.endswith(": None")),
        grid_text=grid_text if is_formula(grid_text, record.arguments) else "",
        device=_device_model() if where == "gpu" else "",
        check=check,
    )


def result_of(compiled: Compiled) -> Result:
    """Return the summary of a compiled kernel."""
    from kernellab._triton.objects import version

    effects = compiled.effects
    return Result(
        digest=compiled.digest,
        target=str(compiled.target),
        options={name: compiled.options.get(name) for name in OPTIONS},
        resources=dataclasses.asdict(compiled.resources),
        reads=tuple(sorted(effects.reads)),
        writes=tuple(sorted(effects.writes)),
        atomics=tuple(sorted(effects.atomics)),
        complete=not effects.unknown,
        through=tuple(sorted(effects.through)),
        seconds=compiled.seconds,
        triton=version(),
    )


def argument_of(name: str, value: Any) -> Argument:
    """Return the description of one argument."""
    from kernellab._triton.objects import constexpr_value, dtype_name, is_jit_function

    _, value = constexpr_value(value)
    if isinstance(value, tuple) and any(hasattr(member, "data_ptr") for member in value):
        members = tuple(argument_of(f"{name}[{i}]", member) for i, member in enumerate(value))
        return Argument(name, "tuple", members=members)
    if is_plain(value):
        return Argument(name, "scalar", value=value)
    if (dtype := dtype_name(value)) is not None:
        return Argument(name, "dtype", value=dtype)
    if is_jit_function(value):
        return Argument(name, "function", value=value.__name__, source=value_closure_of(value))
    if hasattr(value, "untyped_storage"):
        return _tensor(name, value)
    if hasattr(getattr(value, "base", None), "untyped_storage") and hasattr(value, "block_shape"):
        member = _tensor(f"{name}.base", value.base)
        return Argument(name, "descriptor", members=(member,), block=tuple(value.block_shape))
    source = value_closure_of(value)
    if source is None:
        return Argument(name, "other", value=type(value).__name__)
    return Argument(name, "value", value=getattr(value, "__name__", type(value).__name__), source=source)


def _alias(name: str, arguments: Mapping[str, Any]) -> str:
    """Return the earlier argument that is the same memory in the same layout, or ""."""
    value = arguments[name]
    if not hasattr(value, "untyped_storage"):
        return ""
    for earlier, other in arguments.items():
        if earlier == name:
            break
        if hasattr(other, "untyped_storage") and _layout(other) == _layout(value):
            return earlier
    return ""


def _layout(tensor: Any) -> tuple[Any, ...]:
    return tensor.data_ptr(), tensor.dtype, tuple(tensor.shape), tuple(tensor.stride())


def _tensor(name: str, tensor: Any) -> Argument:
    low, high = _bounds(tensor)
    return Argument(
        name,
        "tensor",
        dtype=str(tensor.dtype).removeprefix("torch."),
        shape=tuple(tensor.shape),
        stride=tuple(tensor.stride()),
        device=tensor.device.type,
        low=low,
        high=high,
        values=_small_values(tensor),
    )


def _bounds(tensor: Any) -> tuple[float | None, float | None]:
    """Return the least and the largest finite value among some runs of elements of a tensor, its ends included."""
    import torch  # keeps `import kernellab` light

    is_short = tensor.numel() <= _RUNS * _RUN_LENGTH
    if tensor.numel() == 0 or tensor.is_complex() or not (is_short or tensor.is_contiguous()):
        return None, None
    flat, is_floating = tensor.detach().reshape(-1), tensor.is_floating_point()
    last = flat.numel() - _RUN_LENGTH
    runs = [flat] if is_short else [flat.narrow(0, last * i // (_RUNS - 1), _RUN_LENGTH) for i in range(_RUNS)]
    copies = [run.cpu() for run in runs]  # no more than copies: a GPU would load a kernel for anything else
    numbers = torch.cat([copy.float() if is_floating else copy.long() for copy in copies])
    if is_floating:
        numbers = numbers[torch.isfinite(numbers)]
    if numbers.numel() == 0:
        return None, None
    low, high = torch.aminmax(numbers)
    return low.item(), high.item()


def _small_values(tensor: Any) -> tuple[int, ...] | None:
    if tensor.is_floating_point() or tensor.is_complex() or tensor.numel() > _SMALL:
        return None
    return tuple(map(int, tensor.detach().cpu().reshape(-1).tolist()))


def _device_model() -> str:
    import torch

    return str(torch.cuda.get_device_name())
