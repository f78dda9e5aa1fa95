"""A recorded launch, made again: its arguments, its grid, its constants."""

from __future__ import annotations

import inspect
import itertools
import math
import os
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kernellab.errors import UsageError, first_line
from kernellab.source.values import literal
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


Extent = Callable[[Launch], int | None]


@dataclass(frozen=True, slots=True)
class GridText:
    """A grid as the text of a lambda; ``inferred`` from that many launches, 0 where the user wrote it so."""

    text: str
    inferred: int = 0


def grid_text(launches: Sequence[Launch]) -> GridText | None:
    """Return the grid of the latest launch that tells it, or None where no formula fits all launches."""
    for launch in reversed(launches):
        if launch.grid_text and _varies(launch.grid_text):
            return GridText(launch.grid_text)
    ran = [launch for launch in launches if launch.grid is not None]
    if not ran:
        return None
    axes = [_axis(ran, axis) for axis in range(3)]
    if None in axes:
        return None
    while len(axes) > 1 and axes[-1] == "1":
        axes.pop()
    return GridText(f"lambda meta: ({', '.join(map(str, axes))},)", len(ran))


def _varies(text: str) -> bool:
    return any(character.isalpha() for character in text.partition(":")[2])


def _axis(launches: Sequence[Launch], axis: int) -> str | None:
    wanted = [launch.grid[axis] for launch in launches if launch.grid is not None]
    if set(wanted) == {1}:
        return "1"
    for text, extent in _candidates(launches[-1]):
        if [extent(launch) for launch in launches] == wanted:
            return text
    return None


def _candidates(launch: Launch) -> Iterator[tuple[str, Extent]]:
    """Yield formulas, the likeliest first: quotients by a block size, then sizes themselves, then products of two."""
    sizes, blocks = list(_sizes(launch)), list(_blocks(launch))
    quotients = [_quotient(size, block) for size in sizes for block in blocks]
    yield from quotients
    yield from sizes
    for first, second in itertools.product([*quotients, *sizes], repeat=2):
        if first[0] != second[0]:
            yield f"{first[0]} * {second[0]}", _product(first[1], second[1])


def _sizes(launch: Launch) -> Iterator[tuple[str, Extent]]:
    for argument in launch.arguments:
        if argument.kind == "scalar" and not argument.constexpr and type(argument.value) is int:
            yield argument.name, _scalar(argument.name)
    for argument in launch.arguments:
        if argument.kind == "tensor":
            for axis in range(len(argument.shape)):
                yield f"{argument.name}.shape[{axis}]", _shape(argument.name, axis)
            if len(argument.shape) > 1:
                yield f"{argument.name}.numel()", _shape(argument.name, None)
    for argument in launch.arguments:
        if argument.constexpr and type(argument.value) is int:
            yield f'meta["{argument.name}"]', _scalar(argument.name)


def _blocks(launch: Launch) -> Iterator[tuple[str, Extent]]:
    for argument in launch.arguments:
        if argument.constexpr and type(argument.value) is int and argument.value > 1:
            yield f'meta["{argument.name}"]', _scalar(argument.name)


def _quotient(size: tuple[str, Extent], block: tuple[str, Extent]) -> tuple[str, Extent]:
    def extent(launch: Launch) -> int | None:
        above, below = size[1](launch), block[1](launch)
        return None if above is None or not below else -(-above // below)

    return f"triton.cdiv({size[0]}, {block[0]})", extent


def _product(first: Extent, second: Extent) -> Extent:
    def extent(launch: Launch) -> int | None:
        left, right = first(launch), second(launch)
        return None if left is None or right is None else left * right

    return extent


def _scalar(name: str) -> Extent:
    def extent(launch: Launch) -> int | None:
        value = next((a.value for a in launch.arguments if a.name == name), None)
        return value if type(value) is int else None

    return extent


def _shape(name: str, axis: int | None) -> Extent:
    def extent(launch: Launch) -> int | None:
        shape = next((a.shape for a in launch.arguments if a.name == name), ())
        if axis is None:
            return math.prod(shape)
        return shape[axis] if axis < len(shape) else None

    return extent
