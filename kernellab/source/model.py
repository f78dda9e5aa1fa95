"""The closure of a kernel as plain data, its hash, and its form in JSON."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, Literal

from kernellab.workers.forks_and_interrupts import cached_property

SCHEMA = 1
CELL_PREFIX = "cell:"
LOADED = "__kernel__"  # the ``__module__`` of functions and classes loaded from a closure

FunctionKind = Literal["jit", "gluon", "constexpr_function", "python", "lambda", "class"]
JIT_KINDS: frozenset[FunctionKind] = frozenset({"jit", "gluon"})

INTEGER_OPTIONS = ("num_warps", "num_stages", "num_ctas", "maxnreg")
"""The options of a `triton.Config` that are numbers."""
CONFIG_OPTIONS = (*INTEGER_OPTIONS, "ir_override")
LAUNCH_FLAGS = ("launch_cooperative_grid", "launch_pdl")
"""Options of NVIDIA's backend that change how a kernel is launched."""


@dataclass(frozen=True, slots=True)
class Constant:
    """A plain Python value: number, string, None, or a tuple, list or dict of plain values."""

    value: object


@dataclass(frozen=True, slots=True)
class Constexpr:
    """A ``tl.constexpr`` around another binding."""

    inner: Binding


@dataclass(frozen=True, slots=True)
class Dtype:
    """A ``tl.dtype``, by its name in Triton."""

    name: str


@dataclass(frozen=True, slots=True)
class FunctionRef:
    """Another function of the closure, by its index."""

    index: int


@dataclass(frozen=True, slots=True)
class Import:
    """A module (``attribute`` is empty) or a dotted attribute of it, imported by the worker.

    ``fingerprint`` changes with the source of an imported jit function.
    """

    module: str
    attribute: str = ""
    fingerprint: str = ""


@dataclass(frozen=True, slots=True)
class Helper:
    """A jit function of an installed package: its import, for exported modules, and its function.

    Another process may import another function under that name, if the package chooses it by device or environment. So
    workers and later sessions use the function of the closure.
    """

    imported: Import
    function: FunctionRef

    @property
    def attribute(self) -> str:
        """The name of the function in its module."""
        return self.imported.attribute


@dataclass(frozen=True, slots=True)
class Members:
    """A module that is not installed or has helpers of the kernel: the attributes that the kernel uses.

    Without members it is a module that only annotations name: it has any attribute, as a placeholder.
    """

    module: str
    members: tuple[tuple[str, Binding], ...]


@dataclass(frozen=True, slots=True)
class Items:
    """A tuple, list, set or dict (of pairs) of bindings."""

    type: Literal["tuple", "list", "set", "frozenset", "dict"]
    members: tuple[Binding, ...]


@dataclass(frozen=True, slots=True)
class Call:
    """A value as `pickle` rebuilds it: the result of a call, with ``state`` set on it afterwards.

    ``identity`` numbers, within a closure, the objects that equal only themselves.
    """

    function: Binding
    arguments: tuple[Binding, ...]
    state: Binding | None = None
    identity: int | None = None


@dataclass(frozen=True, slots=True)
class Opaque:
    """A value that cannot be sent to another process, and the reason. Its use in a kernel is an error."""

    type: str
    reason: str = ""


Binding = Constant | Constexpr | Dtype | FunctionRef | Import | Helper | Members | Items | Call | Opaque


def referenced_functions(binding: Binding) -> list[int]:
    """Return the indices of the functions that a binding refers to."""
    return [part.index for part in walk(binding) if isinstance(part, FunctionRef)]


def opaque_part(binding: Binding) -> Opaque | None:
    """Return the first part of a value that cannot be sent to another process, or None."""
    return next((part for part in walk(binding) if isinstance(part, Opaque)), None)


def walk(binding: Binding) -> Iterator[Binding]:
    """Yield a binding and all its parts."""
    yield binding
    for part in parts(binding):
        yield from walk(part)


def parts(binding: Binding) -> list[Binding]:
    """Return the direct parts of a binding."""
    match binding:
        case Constexpr(inner):
            return [inner]
        case Helper(imported, function):
            return [imported, function]
        case Members(_, members):
            return [member for _, member in members]
        case Items(_, members):
            return list(members)
        case Call(function, arguments, state):
            return [function, *arguments, *(() if state is None else (state,))]
        case _:
            return []


def constant_text(binding: Any, called: tuple[str, ...]) -> str:
    """Return a constant in the user's notation; ``called`` are the functions of its closure, in words."""
    text = partial(constant_text, called=called)
    match binding:
        case Constant(value):
            return repr(value)
        case Constexpr(inner):
            return text(inner)
        case Dtype(name):
            return f"tl.{name}"
        case FunctionRef(index):
            return called[index]
        case Items(kind, members):
            return f"{kind}({', '.join(map(text, members))})"
        case Call(Import("builtins", "getattr"), (owner, Constant(name))):
            return f"{text(owner)}.{name}"
        case Call(Import("copyreg"), (cls, *_)):
            return f"{text(cls)}(...)"
        case Call(function, arguments):
            return f"{text(function)}({', '.join(map(text, arguments))})"
        case _:
            return str(getattr(binding, "attribute", "") or binding)


def with_functions(binding: Binding, replaced: Callable[[int], Binding]) -> Binding:
    """Return a binding with each reference to a function replaced."""
    inside = partial(with_functions, replaced=replaced)
    match binding:
        case FunctionRef(index):
            return replaced(index)
        case Constexpr(inner):
            return Constexpr(inside(inner))
        case Helper(imported, FunctionRef(index)):
            function = replaced(index)
            return Helper(imported, function) if isinstance(function, FunctionRef) else function
        case Members(module, members):
            return Members(module, tuple((name, inside(member)) for name, member in members))
        case Items(kind, parts):
            return Items(kind, tuple(map(inside, parts)))
        case Call(function, arguments, state, identity):
            state = None if state is None else inside(state)
            return Call(inside(function), tuple(map(inside, arguments)), state, identity)
        case _:
            return binding


@dataclass(frozen=True, slots=True)
class Function:
    """A function's text from ``def`` on (or the whole ``lambda``), dedented, and the bindings of its globals.

    For a class, the text is the class statement with its decorators.

    ``file`` and ``first_line`` give the start of ``text``. A function of a notebook cell has its own file,
    ``cell:NAME``, so that re-running a cell under another number changes nothing.
    """

    name: str
    kind: FunctionKind
    text: str
    file: str
    first_line: int
    noinline: bool
    bindings: tuple[tuple[str, Binding], ...]


@dataclass(frozen=True, slots=True)
class ConfigText:
    """A ``triton.Config``: its parameters, its options (``num_warps``, ...) and its hook, or None."""

    parameters: tuple[tuple[str, Binding], ...]
    options: tuple[tuple[str, object], ...]
    pre_hook: Binding | None = None


@dataclass(frozen=True, slots=True)
class Autotune:
    """An ``@triton.autotune``: its configs and its other explicit arguments."""

    configs: tuple[ConfigText, ...]
    key: tuple[str, ...]
    arguments: tuple[tuple[str, Binding], ...]
    prune_configs_by: tuple[tuple[str, Binding], ...] = ()


@dataclass(frozen=True, slots=True)
class Heuristics:
    """An ``@triton.heuristics``: a function for each parameter."""

    values: tuple[tuple[str, Binding], ...]


@dataclass(frozen=True, slots=True)
class JitOptions:
    """The explicit arguments of ``@triton.jit`` that can be written as literals."""

    options: tuple[tuple[str, object], ...]


Wrapper = Autotune | Heuristics | JitOptions


@dataclass(frozen=True)
class Closure:
    """A kernel (function 0) and the functions it uses. ``labels`` gives the displayed name of each file.

    ``wrappers`` are its decorators as data, the outermost first; the closure of a compile has none.
    """

    functions: tuple[Function, ...]
    decorators: str = ""
    labels: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    wrappers: tuple[Wrapper, ...] = ()

    def __hash__(self) -> int:
        return hash(self.compile_digest)  # a constant may be a list, which has no hash of its own

    @property
    def name(self) -> str:
        """The name of the kernel."""
        return self.functions[0].name

    @cached_property
    def digest(self) -> str:
        """A hash of everything that decides what the kernel computes, independent of its position."""
        return _digest(self, position=False)

    @cached_property
    def compile_digest(self) -> str:
        """A hash that also covers the functions' line numbers, which the debug info contains."""
        return _digest(self, position=True)

    def label(self, file: str) -> str:
        """Return the displayed name of ``file``."""
        return dict(self.labels).get(file, file)


def _digest(closure: Closure, *, position: bool) -> str:
    parts = [
        [f.name, f.kind, f.text, f.noinline, jsonable(f.bindings), [f.file, f.first_line] if position else None]
        for f in closure.functions
    ]
    text = json.dumps({"schema": SCHEMA, "functions": parts}, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()


_BINDINGS: dict[str, type] = {
    cls.__name__: cls
    for cls in (
        *(Constant, Constexpr, Dtype, FunctionRef, Import, Helper, Members, Items, Call, Opaque),
        *(Function, Closure, ConfigText, Autotune, Heuristics, JitOptions),
    )
}
_CONTAINERS: dict[str, type] = {"tuple": tuple, "list": list}


def jsonable(value: object) -> object:
    """Return a value as unambiguous JSON: a list that begins with the type."""
    if _BINDINGS.get(type(value).__name__) is type(value):
        return [type(value).__name__, *(jsonable(getattr(value, field.name)) for field in fields(value))]  # type: ignore[arg-type]
    if isinstance(value, tuple | list):
        names = [",".join(value._fields)] if hasattr(value, "_fields") else []
        return [type(value).__name__, *names, *map(jsonable, value)]
    if isinstance(value, dict):
        return ["dict", *sorted(([jsonable(k), jsonable(v)] for k, v in value.items()), key=repr)]
    if isinstance(value, float | bytes):
        return [type(value).__name__, value.hex()]
    return value if value is None or isinstance(value, bool | int | str) else [type(value).__name__, str(value)]


def from_jsonable(value: Any) -> Any:
    """Return the value of `jsonable` output."""
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
    """Return a closure as JSON, with its schema number."""
    return {"schema": SCHEMA, "closure": jsonable(closure)}


def content_keys(groups: Sequence[Sequence[Function]]) -> list[list[str]]:
    """Return a key for each function, equal for functions with the same text and the same bindings.

    Keys are refined by the keys of the used functions until the number of distinct keys stays the same. So recursion
    needs no special case, and a helper with many users is hashed once per round.
    """
    keys = [[""] * len(functions) for functions in groups]
    count = 0
    while (distinct := len({key for group in keys for key in group})) > count:
        count = distinct
        keys = [[_content_key(f, known) for f in functions] for functions, known in zip(groups, keys, strict=True)]
    return keys


def _content_key(function: Function, known: Sequence[str]) -> str:
    bindings = [(n, jsonable(with_functions(b, lambda used: Constant(known[used])))) for n, b in function.bindings]
    text = json.dumps([function.name, function.kind, function.text, function.noinline, bindings])
    return hashlib.sha256(text.encode()).hexdigest()
