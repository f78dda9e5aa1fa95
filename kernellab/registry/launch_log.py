"""What the store keeps of a launch: enough to launch the kernel again on arguments of the same kind.

A grid function such as ``lambda meta: (triton.cdiv(count, meta["BLOCK"]),)`` names variables of a notebook. Outside of
it only what the kernel itself is given is at hand. So grids and references are kept with symbolic arguments: each
variable is replaced by the parameter that held its value.
"""

from __future__ import annotations

import ast
import builtins
import contextlib
import dataclasses
import inspect
import re
import textwrap
from collections.abc import Mapping
from types import FunctionType, ModuleType
from typing import Any

from kernellab._triton.closure import value_closure_of
from kernellab._triton.definitions import definition
from kernellab._triton.kernel import Kernel
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, SourceError
from kernellab.launch.recording import LaunchRecord
from kernellab.registry.kernels import Registry
from kernellab.source import is_formula, is_plain, lambda_definition
from kernellab.store import Argument, LaunchedBy, RecordedLaunch, Result, Version
from kernellab.store.content import OPTIONS

MODULES = {"triton": "triton", "triton.language": "tl", "torch": "torch", "math": "math"}


def symbolic_grid(grid: Any, arguments: Mapping[str, Any]) -> str:
    """Return a grid function as the text of a lambda over the kernel's parameters, or "" where it cannot be said so."""
    if not isinstance(grid, FunctionType):
        return ""
    try:
        node = _as_lambda(grid)
    except SourceError:
        return ""
    if node is None or len(node.args.args) != 1:
        return ""
    scope = inspect.getclosurevars(grid)
    named = _named_numbers(node, arguments)
    return "" if named is None else symbolic_expression(named, {**scope.globals, **scope.nonlocals}, arguments)


def symbolic_expression(node: ast.expr, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """Return the text of an expression with every name of ``scope`` replaced, or "" where one stands for nothing."""
    bound = {each.arg for part in ast.walk(node) if isinstance(part, ast.Lambda) for each in part.args.args}
    replacement: dict[str, ast.expr] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in bound:
            found = part.id if part.id in arguments and part.id not in scope else _symbol_of(part.id, scope, arguments)
            if found is None:
                return ""
            replacement[part.id] = ast.parse(found, mode="eval").body
    return ast.unparse(_Replaced(replacement).visit(node))


def _named_numbers(node: ast.expr, arguments: Mapping[str, Any]) -> ast.expr | None:
    """Return an expression with its large numbers, which are sizes, as parameters; None where one is no parameter's."""
    sizes = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is int and n.value > 16}
    found = {size: _symbol_of_number("", size, arguments) for size in sizes}
    if None in found.values():
        return None
    text = ast.unparse(node)
    for size, name in found.items():
        text = re.sub(rf"\b{size}\b", str(name), text)
    return ast.parse(text, mode="eval").body


class _Replaced(ast.NodeTransformer):
    def __init__(self, replacement: Mapping[str, ast.expr]) -> None:
        self.replacement = replacement

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.replacement.get(node.id, node)


def _as_lambda(grid: FunctionType) -> ast.Lambda | None:
    """Return a lambda, or a function that is one return statement, as a lambda."""
    if grid.__name__ == "<lambda>":
        return lambda_definition(grid)[2]
    node = ast.parse(textwrap.dedent(definition(grid)[0])).body[0]
    assert isinstance(node, ast.FunctionDef)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    bare = [ast.arg(argument.arg) for argument in node.args.args]
    return ast.Lambda(ast.arguments([], bare, None, [], [], None, []), body[0].value)


def _symbol_of(name: str, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """Return what stands for a name: a parameter, an extent of one, or a module; None where nothing does."""
    if name not in scope:
        return name if hasattr(builtins, name) else None
    value = scope[name]
    if isinstance(value, ModuleType):
        return MODULES.get(value.__name__)
    if hasattr(value, "data_ptr"):
        return next((parameter for parameter, given in arguments.items() if given is value), None)
    if type(value) is not int:
        return None
    return _symbol_of_number(name, value, arguments)


def _symbol_of_number(name: str, value: int, arguments: Mapping[str, Any]) -> str | None:
    equal = [parameter for parameter, given in arguments.items() if type(given) is int and given == value]
    if name in equal:
        return name
    if len(equal) == 1:
        return equal[0]
    for parameter, given in arguments.items():
        extents = [axis for axis, extent in enumerate(getattr(given, "shape", ())) if extent == value]
        if len(extents) == 1:
            return f"{parameter}.shape[{extents[0]}]"
    return None


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
    from kernellab._triton.kernel import best_config

    compiled = record.compiled
    constexprs = {parameter.name for parameter in record.kernel.params if parameter.is_constexpr}
    arguments = [
        dataclasses.replace(
            argument_of(name, value), constexpr=name in constexprs, alias=_alias(name, record.arguments)
        )
        for name, value in record.arguments.items()
    ]
    options = {name: compiled.options.get(name) for name in OPTIONS if compiled.options.get(name) is not None}
    config = best_config(record.owner or kernels.owner_of(record.kernel), compiled.options)
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
    import triton

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
        triton=str(triton.__version__),
    )


def argument_of(name: str, value: Any) -> Argument:
    """Return the description of one argument."""
    from kernellab._triton.kernel import constexpr_value, dtype_name, is_jit_function

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
        return Argument(name, "descriptor", value=_layout_of(value), members=(member,), block=tuple(value.block_shape))
    source = value_closure_of(value)
    if source is None:
        return Argument(name, "other", value=type(value).__name__)
    return Argument(name, "value", value=getattr(value, "__name__", type(value).__name__), source=source)


def _layout_of(descriptor: Any) -> dict[str, Any] | None:
    """Return the layout in shared memory that a descriptor of Gluon has, as its class and fields; else None."""
    layout = getattr(descriptor, "layout", None)
    if not dataclasses.is_dataclass(layout):
        return None
    fields = {each.name: getattr(layout, each.name) for each in dataclasses.fields(layout) if each.init}
    return {"class": type(layout).__name__, **fields} if is_plain(fields) else None


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
