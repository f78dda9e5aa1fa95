"""Walking from a kernel to all that its source names."""

from __future__ import annotations

import ast
import dis
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

from kernellab.errors import SourceError
from kernellab.source.lambdas import lambda_definition
from kernellab.source.model import (
    CELL_PREFIX,
    Binding,
    Closure,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionKind,
    FunctionRef,
    Import,
    Members,
    Opaque,
)
from kernellab.source.syntax import parsed


def closure_of(kernel: Any, arguments: tuple[Any, ...] = ()) -> tuple[Closure, tuple[Binding, ...]]:
    """Return the closure of a jit function, or of an autotuned or heuristics-wrapped one.

    ``arguments`` are values that a launch passes for constexprs; what they stand for in the closure comes second.

    Raises:
        SourceError: the source of the kernel or of a helper cannot be found.
    """
    from kernellab._triton import objects  # keeps `import kernellab` light

    function = objects.jit_function(kernel)
    collector = Collector()
    collector.add(function, "jit")
    bound = tuple(collector.bind(argument) for argument in arguments)
    collector.resolve()
    return Closure(tuple(collector.done), decorators_text(function), tuple(sorted(collector.labels.items()))), bound


def plain_bindings(arguments: tuple[Any, ...]) -> tuple[Binding, ...] | None:
    """Return what values stand for in whichever closure, or None where one of them brings functions along."""
    collector = Collector()
    bound = tuple(collector.bind(argument) for argument in arguments)
    return None if collector.pending else bound


class Collector:
    """Walks from a kernel to all that it uses, each function once.

    Python functions of loose files are taken along only if ``loose``: compiling has no use for them.
    """

    def __init__(self, *, loose: bool = False) -> None:
        self.loose = loose
        self.indices: dict[int, int] = {}
        self.pending: list[tuple[Any, FunctionKind]] = []
        self.done: list[Function] = []
        self.labels: dict[str, str] = {}

    def add(self, owner: Any, kind: FunctionKind) -> FunctionRef:
        if id(owner) not in self.indices:
            self.indices[id(owner)] = len(self.pending)
            self.pending.append((owner, kind))
        return FunctionRef(self.indices[id(owner)])

    def resolve(self) -> None:
        while len(self.done) < len(self.pending):
            owner, kind = self.pending[len(self.done)]
            self.done.append(self._function(owner, kind))

    def _function(self, owner: Any, kind: FunctionKind) -> Function:
        python = owner if isinstance(owner, FunctionType) else owner.fn
        text, first_line, node = lambda_definition(owner) if kind == "lambda" else definition(owner)
        actual = python.__code__.co_filename
        file = f"{CELL_PREFIX}{python.__name__}" if is_cell_file(actual) else actual
        while self.labels.get(file, actual) != actual:
            file += "'"
        self.labels[file] = actual
        return Function(
            name=python.__name__,
            kind=kind,
            text=text,
            file=file,
            first_line=first_line,
            noinline=bool(getattr(owner, "noinline", False)),
            bindings=tuple(sorted(self._bindings(python, node))),
        )

    def _bindings(self, python: Any, node: ast.FunctionDef | ast.Lambda) -> Iterator[tuple[str, Binding]]:
        scope = _scope(python)
        used = set(_global_names(python.__code__)) | set(python.__code__.co_freevars)
        for name in sorted(used):
            if name in scope:
                yield name, self.bind(scope[name], name, node)
        for name in sorted(_signature_names(node) - used):
            if name in scope:
                yield name, _without_import(self.bind(scope[name], name, node))

    def bind(self, value: Any, name: str = "", node: ast.AST | None = None) -> Binding:
        """Return how a worker gets ``value``, which the code ``node`` calls ``name``."""
        from kernellab._triton import objects

        is_constexpr, inner = objects.constexpr_value(value)
        if is_constexpr:
            return Constexpr(self.bind(inner, name, node))
        if (dtype := objects.dtype_name(value)) is not None:
            return Dtype(dtype)
        if objects.is_jit_function(value):
            return _installed(value.fn, value) or self.add(value, "jit")
        if objects.is_constexpr_function(value):
            return _installed(value.fn, value) or self.add(value, "constexpr_function")
        if isinstance(value, ModuleType):
            return self._module(value, name, node)
        if is_plain(value):
            return Constant(value)
        return _installed(value, value) or self._other(value)

    def _module(self, module: ModuleType, name: str, node: ast.AST | None) -> Binding:
        if node is None or is_installed(module.__name__):
            return Import(module.__name__)
        used = {n.attr for n in ast.walk(node) if isinstance(n, ast.Attribute) and _is_name(n.value, name)}
        bound = [(a, self.bind(getattr(module, a), a, node)) for a in sorted(used) if hasattr(module, a)]
        return Members(module.__name__, tuple(bound))

    def _other(self, value: Any) -> Binding:
        if isinstance(value, FunctionType) and not (self.loose or is_cell_file(value.__code__.co_filename)):
            return Opaque(type(value).__name__)
        if isinstance(value, FunctionType):
            return self.add(value, "lambda" if value.__name__ == "<lambda>" else "python")
        return Opaque(f"{type(value).__module__}.{type(value).__qualname__}")


def is_cell_file(file: str) -> bool:
    """Tell whether code of this file name was typed into a notebook cell or a prompt."""
    return file.startswith(("In[", "<", CELL_PREFIX)) or "/ipykernel_" in file


def is_plain(value: object) -> bool:
    """Tell whether a value can be written down as a literal."""
    if value is None or isinstance(value, bool | int | float | str | bytes):
        return type(value) in {type(None), bool, int, float, str, bytes}
    if type(value) in {tuple, list}:
        return all(map(is_plain, value))  # type: ignore[call-overload]
    return type(value) is dict and all(is_plain(k) and is_plain(v) for k, v in value.items())


def is_installed(module: str) -> bool:
    """Tell whether a module belongs to the standard library or to an installed package."""
    if module.split(".", maxsplit=1)[0] in {"triton", "torch"} or module in sys.builtin_module_names:
        return True
    file = getattr(sys.modules.get(module), "__file__", None)
    if file is None:
        return False
    parts = Path(file).parts
    return "site-packages" in parts or "dist-packages" in parts or file.startswith(sysconfig.get_path("stdlib"))


def _installed(named: Any, value: Any) -> Import | None:
    """Return how to import ``value``, if it is what an installed module holds under its own name."""
    module, qualname = getattr(named, "__module__", None), getattr(named, "__qualname__", None)
    if not isinstance(module, str) or not isinstance(qualname, str) or not is_installed(module):
        return None
    found: Any = sys.modules.get(module)
    for part in qualname.split("."):
        found = getattr(found, part, None)
    while found is not None and found is not value and hasattr(found, "fn"):
        found = found.fn
    if found is not value:
        return None
    return Import(module, qualname, str(getattr(value, "cache_key", "")))


def _without_import(binding: Binding) -> Binding:
    """Keep an annotation such as ``x: torch.Tensor`` from importing torch in a worker."""
    if isinstance(binding, Import) and not binding.attribute and binding.module.split(".")[0] != "triton":
        return Members(binding.module, ())
    return binding


def _scope(python: Any) -> dict[str, Any]:
    cells = zip(python.__code__.co_freevars, python.__closure__ or (), strict=False)
    nonlocals = {}
    for name, cell in cells:
        try:
            nonlocals[name] = cell.cell_contents
        except ValueError:
            continue  # a name that its enclosing function has not assigned yet
    return {**python.__globals__, **nonlocals}


def _global_names(code: CodeType) -> Iterator[str]:
    for instruction in dis.get_instructions(code):
        if instruction.opname in {"LOAD_GLOBAL", "LOAD_NAME"}:
            yield instruction.argval
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _global_names(constant)


def _signature_names(node: ast.FunctionDef | ast.Lambda) -> set[str]:
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    parts = [*node.args.defaults, *(d for d in node.args.kw_defaults if d), *(a.annotation for a in arguments)]
    return {n.id for part in parts if part is not None for n in ast.walk(part) if isinstance(n, ast.Name)}


def _is_name(node: ast.AST, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _lines(owner: Any) -> tuple[list[str], int]:
    from kernellab._triton import objects

    try:
        return objects.source_lines(owner)
    except (OSError, TypeError) as exc:
        raise SourceError(
            f"The source of {owner.__qualname__} cannot be found; define it in a cell or in a file.",
            kernel=owner.__name__,
        ) from exc


def definition(owner: Any) -> tuple[str, int, ast.FunctionDef]:
    """Return the text of a function from its ``def`` on, the line of that in its file, and its syntax tree."""
    lines, first = _lines(owner)
    text = textwrap.dedent("".join(lines))
    node = next((n for n in ast.walk(parsed(text)) if isinstance(n, ast.FunctionDef)), None)
    if node is None:
        raise SourceError(f"{owner.__qualname__} is not defined by a def statement.", kernel=owner.__name__)
    body = text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
    return "".join(body), first + node.lineno - 1, node


def decorators_text(owner: Any) -> str:
    """Return the decorators of a function as they were written."""
    text = textwrap.dedent("".join(_lines(owner)[0]))
    node = next(n for n in ast.walk(parsed(text)) if isinstance(n, ast.FunctionDef))
    return "".join(text.splitlines(keepends=True)[: node.lineno - 1])
