"""Arguments of the shapes and strides of a recorded launch: made here, or by an exported module for itself."""

from __future__ import annotations

import inspect
import os
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernellab.errors import UsageError, first_line
from kernellab.source.literal import literal
from kernellab.store import Argument, Launch


def random_tensor(shape, stride, dtype, low, high, generator, device):  # type: ignore[no-untyped-def]
    """Return a tensor of this layout with values from ``low`` to ``high``."""
    import torch

    size = 1 + sum((extent - 1) * step for extent, step in zip(shape, stride, strict=True)) if 0 not in shape else 0
    if dtype.is_floating_point:
        flat = torch.rand(size, generator=generator, device=generator.device) * (high - low) + low
    else:
        flat = torch.randint(int(low), int(high) + 1, (size,), generator=generator, device=generator.device)
    return flat.to(dtype).to(device).as_strided(shape, stride)


def listed_tensor(values, shape, dtype, device):  # type: ignore[no-untyped-def]
    """Return a contiguous tensor that holds just these values."""
    import torch

    return torch.tensor(values, dtype=dtype, device=device).reshape(shape)


def inputs_text(launch: Launch) -> str:
    """Return the source of ``inputs(device, seed=0)``, which returns all arguments by name but the meta-parameters.

    Raises:
        UsageError: an argument is of a kind that cannot be made anew.
    """
    return arguments_text(_given(launch), "inputs(device, seed=0)")


def arguments_text(given: Sequence[Argument], signature: str, *first: str) -> str:
    """Return the source of a function that returns arguments of these layouts by name; ``first`` are its first lines.

    Raises:
        UsageError: an argument is of a kind that cannot be made anew.
    """
    lines = [*first, "generator = torch.Generator().manual_seed(seed)"]
    lines += [f"{argument.name} = {_expression(argument)}" for argument in given]
    result = ", ".join(f'"{argument.name}": {argument.name}' for argument in given)
    body = textwrap.indent("\n".join([*lines, f"return {{{result}}}"]), "    ")
    doc = "Return arguments of the shapes and strides of a recorded launch, with random contents."
    parts = [_source(random_tensor)]
    if any(argument.values is not None for argument in _tensors(list(given))):
        parts.append(_source(listed_tensor))
    return "\n\n\n".join([*parts, f'def {signature}:\n    """{doc}"""\n{body}\n'.rstrip()])


def made_inputs(launch: Launch, device: str) -> dict[str, Any]:
    """Return what the exported ``inputs`` would."""
    return made_arguments(_given(launch), device, 0)


def made_arguments(given: Sequence[Argument], device: str, seed: int) -> dict[str, Any]:
    """Return new arguments of these layouts by name, as the exported function would.

    Raises:
        UsageError: an argument cannot be made anew, or the machine has no room for it.
    """
    import torch  # keeps `import kernellab` light

    _require_room(_tensors([argument for argument in given if not argument.alias]), device)
    generator = torch.Generator().manual_seed(seed)
    made: dict[str, Any] = {}
    for argument in given:
        try:
            made[argument.name] = _value(argument, made, generator, device)
        except (RuntimeError, ValueError, OverflowError) as exc:
            raise UsageError(
                f"{argument.name} of the recorded launch cannot be made again: {first_line(exc)}."
            ) from exc
    return made


def _value(argument: Argument, made: Mapping[str, Any], generator: Any, device: str) -> Any:
    if argument.alias:
        return made[argument.alias]
    match argument.kind:
        case "tensor":
            return _tensor(argument, generator, device)
        case "tuple":
            return tuple(_value(member, made, generator, device) for member in argument.members)
        case "descriptor":
            from triton.tools.tensor_descriptor import TensorDescriptor

            base = _value(argument.members[0], made, generator, device)
            return TensorDescriptor.from_tensor(base, list(argument.block))
        case "dtype":
            import triton.language as tl

            return tl.dtype(argument.value)
        case "scalar":
            return argument.value
    raise UsageError(_unmade(argument))


def _tensor(argument: Argument, generator: Any, device: str) -> Any:
    import torch

    dtype = getattr(torch, argument.dtype)
    if argument.values is not None:
        return listed_tensor(list(argument.values), argument.shape, dtype, device)  # type: ignore[no-untyped-call]
    low, high = _bounds(argument)
    return random_tensor(argument.shape, argument.stride, dtype, low, high, generator, device)  # type: ignore[no-untyped-call]


def _bounds(argument: Argument) -> tuple[float, float]:
    return (0.0, 1.0) if argument.low is None or argument.high is None else (argument.low, argument.high)


def _require_room(tensors: Sequence[Argument], device: str) -> None:
    """Raise `UsageError` unless the tensors fit the device, and the numbers that one is made of the host."""
    import torch

    held, numbers = 0, 0
    for tensor in tensors:
        last = sum((extent - 1) * step for extent, step in zip(tensor.shape, tensor.stride, strict=True))
        span = 0 if 0 in tensor.shape else last + 1
        held += span * int(getattr(torch, tensor.dtype).itemsize)
        numbers = max(numbers, span * 8)
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    room = host - numbers if device == "cpu" else int(torch.cuda.mem_get_info()[1])
    if held > room or numbers > host:
        raise UsageError(f"The tensors of the recorded launch take {held:,} bytes, for which {device} has no room.")


def _given(launch: Launch) -> list[Argument]:
    return [argument for argument in launch.arguments if not argument.constexpr]


def meta_of(launch: Launch, functions: Mapping[Argument, str]) -> dict[str, str]:
    """Return the constexprs and options of a launch, by name, each as an expression.

    ``functions`` gives the expressions of arguments that are functions, or values without a literal.
    """
    constexprs = {a.name: functions[a] if a in functions else scalar_text(a) for a in launch.arguments if a.constexpr}
    return {**constexprs, **{name: literal(value) for name, value in options_of(launch).items()}}


def options_of(launch: Launch) -> dict[str, Any]:
    """Return the options of a launch that say something: one CTA is what there is without the option."""
    return {n: v for n, v in launch.options.items() if v is not None and (n, v) != ("num_ctas", 1)}


def scalar_text(argument: Argument) -> str:
    """Return a scalar or a dtype as an expression.

    Raises:
        UsageError: the argument is something else.
    """
    if argument.kind == "scalar":
        return literal(argument.value)
    if argument.kind == "dtype":
        return f'tl.dtype("{argument.value}")'
    raise UsageError(_unmade(argument))


def _unmade(argument: Argument) -> str:
    what = f"the function {argument.value}" if argument.kind == "function" else f"a {argument.value}"
    return f"{argument.name} was {what}, which an exported module cannot make; export it without its launch."


def _expression(argument: Argument) -> str:
    if argument.alias:
        return argument.alias
    match argument.kind:
        case "tensor":
            return _tensor_expression(argument)
        case "tuple":
            return f"({', '.join(map(_expression, argument.members))},)"
        case "descriptor":
            base = _expression(argument.members[0])
            return f"TensorDescriptor.from_tensor({base}, {list(argument.block)})"
        case _:
            return scalar_text(argument)


def _tensor_expression(argument: Argument) -> str:
    dtype = f"torch.{argument.dtype}"
    if argument.values is not None:
        return f"listed_tensor({list(argument.values)}, {argument.shape}, {dtype}, device)"
    low, high = _bounds(argument)
    layout = f"{argument.shape}, {argument.stride}, {dtype}"
    return f"random_tensor({layout}, {literal(low)}, {literal(high)}, generator, device)"


def _tensors(arguments: list[Argument]) -> list[Argument]:
    return [t for a in arguments for t in ((a,) if a.kind == "tensor" else _tensors(list(a.members)))]


def _source(function: Callable[..., Any]) -> str:
    text = inspect.getsource(function).replace("  # type: ignore[no-untyped-def]", "")
    return text.replace("    import torch\n\n", "").rstrip()
