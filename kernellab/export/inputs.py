"""Arguments of the shapes and strides of a recorded launch: made here, or by an exported module for itself."""

from __future__ import annotations

import inspect
import textwrap
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from kernellab.errors import UsageError
from kernellab.export.literal import literal
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
    """Return new arguments of these layouts by name."""
    namespace: dict[str, Any] = {}
    imports = (
        "import torch\nimport triton.language as tl\nfrom triton.tools.tensor_descriptor import TensorDescriptor\n"
    )
    exec(imports + arguments_text(given, "inputs(device, seed)"), namespace)
    made: dict[str, Any] = namespace["inputs"](device, seed)
    return made


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
    what = f"the function {argument.value}" if argument.kind == "function" else f"a {argument.value}"
    raise UsageError(f"{argument.name} was {what}, which an exported module cannot make; export it without its launch.")


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
    low, high = (0.0, 1.0) if argument.low is None or argument.high is None else (argument.low, argument.high)
    layout = f"{argument.shape}, {argument.stride}, {dtype}"
    return f"random_tensor({layout}, {literal(low)}, {literal(high)}, generator, device)"


def _tensors(arguments: list[Argument]) -> list[Argument]:
    return [t for a in arguments for t in ((a,) if a.kind == "tensor" else _tensors(list(a.members)))]


def _source(function: Callable[..., Any]) -> str:
    text = inspect.getsource(function).replace("  # type: ignore[no-untyped-def]", "")
    return text.replace("    import torch\n\n", "").rstrip()
