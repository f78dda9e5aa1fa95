"""A kernel with all that its source uses, as data: what a worker process compiles and what the store keeps.

A kernel lives in a namespace full of other things (tensors, models, open files). Its closure is the part of that
namespace that its code names: helpers, constexprs, modules. Each function keeps its own bindings, so that two helpers
of one name, or the kernels of a factory, do not meet.
"""

from __future__ import annotations

import ast
import dis
import hashlib
import json
import sys
import sysconfig
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass, field, fields
from functools import cached_property
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any, Literal

from kernellab.errors import SourceError

SCHEMA = 1
CELL_PREFIX = "cell:"

FunctionKind = Literal["jit", "constexpr_function", "python"]


@dataclass(frozen=True, slots=True)
class Constant:
    """A plain Python value: number, string, None, or a tuple, list or dict of such."""

    value: object


@dataclass(frozen=True, slots=True)
class Constexpr:
    """A ``tl.constexpr`` around another binding."""

    inner: Binding


@dataclass(frozen=True, slots=True)
class Dtype:
    """A ``tl.dtype``, by Triton's name for it."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """Another function of the closure, by its index."""

    index: int


@dataclass(frozen=True, slots=True)
class Import:
    """A module (``attribute`` is empty), or a dotted attribute of one, that the worker imports.

    ``fingerprint`` changes with the source of an imported jit function.
    """

    module: str
    attribute: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Members:
    """A module that is not installed: its attributes that the kernel uses.

    Without members it stands for a module that only annotations name: it has any attribute, and none of use.
    """

    module: str
    members: tuple[tuple[str, Binding], ...]


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that cannot be taken along. Triton refuses it by name if the kernel really uses it."""

    type: str


Binding = Constant | Constexpr | Dtype | FunctionRef | Import | Members | Opaque


@dataclass(frozen=True, slots=True)
class Function:
    """One function: its text from ``def`` on, dedented, and what the global names in it stand for.

    ``file`` and ``first_line`` tell where ``text`` starts. A function of a notebook cell has a file of its own,
    ``cell:NAME``, so that re-running a cell under another number changes nothing.
    """

    name: str
    kind: FunctionKind
    text: str
    file: str
    first_line: int
    noinline: bool
    bindings: tuple[tuple[str, Binding], ...]


@dataclass(frozen=True)
class Closure:
    """A kernel, which is function 0, and the functions it uses. ``labels`` gives the shown name of each file."""

    functions: tuple[Function, ...]
    decorators: str = ""
    labels: tuple[tuple[str, str], ...] = field(default=(), compare=False)

    def __hash__(self) -> int:
        return hash(self.compile_digest)  # a constant may be a list, which has no hash of its own

    @property
    def name(self) -> str:
        return self.functions[0].name

    @cached_property
    def digest(self) -> str:
        """A hash of everything that decides what the kernel computes, wherever it stands."""
        return _digest(self, position=False)

    @cached_property
    def compile_digest(self) -> str:
        """A hash that also covers the lines at which the functions stand, which the debug info holds."""
        return _digest(self, position=True)

    def label(self, file: str) -> str:
        """Return the name under which a user knows ``file``."""
        return dict(self.labels).get(file, file)


def closure_of(kernel: Any, arguments: tuple[Any, ...] = ()) -> tuple[Closure, tuple[Binding, ...]]:
    """Return the closure of a jit function, or of an autotuned or heuristics-wrapped one.

    ``arguments`` are values that a launch passes for constexprs; what they stand for in the closure comes second.

    Raises:
        SourceError: the source of the kernel or of a helper cannot be found.
    """
    from kernellab._triton import objects  # keeps `import kernellab` light

    function = objects.jit_function(kernel)
    collector = _Collector()
    collector.add(function, "jit")
    bound = tuple(collector.bind(argument) for argument in arguments)
    collector.resolve()
    decorators = _decorators(function)
    return Closure(tuple(collector.done), decorators, tuple(sorted(collector.labels.items()))), bound


class _Collector:
    """Walks from a kernel to all that it uses, each function once."""

    def __init__(self) -> None:
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
        text, first_line, node = _definition(owner)
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

    def _bindings(self, python: Any, node: ast.FunctionDef) -> Iterator[tuple[str, Binding]]:
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
        if isinstance(value, FunctionType) and not is_cell_file(value.__code__.co_filename):
            return Opaque(type(value).__name__)
        if isinstance(value, FunctionType):
            return self.add(value, "python")
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


def _signature_names(node: ast.FunctionDef) -> set[str]:
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


def _definition(owner: Any) -> tuple[str, int, ast.FunctionDef]:
    """Return the text of a function from its ``def`` on, the line of that in its file, and its syntax tree."""
    lines, first = _lines(owner)
    text = textwrap.dedent("".join(lines))
    node = next((n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef)), None)
    if node is None:
        raise SourceError(f"{owner.__qualname__} is not defined by a def statement.", kernel=owner.__name__)
    body = text.splitlines(keepends=True)[node.lineno - 1 : node.end_lineno]
    return "".join(body), first + node.lineno - 1, node


def _decorators(owner: Any) -> str:
    text = textwrap.dedent("".join(_lines(owner)[0]))
    node = next(n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef))
    return "".join(text.splitlines(keepends=True)[: node.lineno - 1])


def _digest(closure: Closure, *, position: bool) -> str:
    parts = [
        [f.name, f.kind, f.text, f.noinline, jsonable(f.bindings), [f.file, f.first_line] if position else None]
        for f in closure.functions
    ]
    text = json.dumps({"schema": SCHEMA, "functions": parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


_BINDINGS: dict[str, type] = {
    cls.__name__: cls for cls in (Constant, Constexpr, Dtype, FunctionRef, Import, Members, Opaque, Function, Closure)
}
_CONTAINERS: dict[str, type] = {"tuple": tuple, "list": list}


def jsonable(value: object) -> object:
    """Return a value as unambiguous JSON: a list that begins with the type."""
    if type(value).__name__ in _BINDINGS:
        return [type(value).__name__, *(jsonable(getattr(value, field.name)) for field in fields(value))]  # type: ignore[arg-type]
    if isinstance(value, tuple | list):
        return [type(value).__name__, *map(jsonable, value)]
    if isinstance(value, dict):
        return ["dict", *sorted(([jsonable(k), jsonable(v)] for k, v in value.items()), key=repr)]
    if isinstance(value, float | bytes):
        return [type(value).__name__, value.hex()]
    return value if value is None or isinstance(value, bool | int | str) else [type(value).__name__, str(value)]


def from_jsonable(value: Any) -> Any:
    """Return what `jsonable` wrote."""
    if not isinstance(value, list):
        return value
    kind, *rest = value
    if kind in _BINDINGS:
        return _BINDINGS[kind](*map(from_jsonable, rest))
    if kind in _CONTAINERS:
        return _CONTAINERS[kind](map(from_jsonable, rest))
    if kind == "dict":
        return {from_jsonable(k): from_jsonable(v) for k, v in rest}
    return {"float": float.fromhex, "bytes": bytes.fromhex}[kind](rest[0])


def closure_to_jsonable(closure: Closure) -> object:
    return {"schema": SCHEMA, "closure": jsonable(closure)}


def closure_from_jsonable(value: dict[str, Any]) -> Closure:
    closure: Closure = from_jsonable(value["closure"])
    return closure
