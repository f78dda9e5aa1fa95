"""Making live functions of a closure again, in a worker process or in a new session."""

from __future__ import annotations

import importlib
import linecache
from types import ModuleType
from typing import Any

import triton
import triton.language as tl

from kernellab._triton.decorators import wrapped
from kernellab.source import (
    Binding,
    Closure,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionRef,
    Import,
    JitOptions,
    Members,
    Opaque,
)


class _Untaken:
    """Stands for a value that stayed behind. An annotation may name it; Triton refuses it anywhere else."""

    def __getattr__(self, name: str) -> _Untaken:
        if name.startswith("__"):
            raise AttributeError(name)
        return self

    def __getitem__(self, item: object) -> _Untaken:
        return self

    def __or__(self, other: object) -> _Untaken:
        return self

    __ror__ = __or__


def load(closure: Closure, *, name: str | None = None) -> Loaded:
    """Return the functions of ``closure``, decorated as in the notebook and with the same file names and lines.

    In a process that was started with ``TRITON_INTERPRET=1`` they are interpreted functions. ``name`` is the symbol of
    the compiled kernel, where it differs from the Python name.
    """
    _register_sources(closure)
    loaded = Loaded(closure, name)
    loaded.load_all()
    return loaded


class Loaded:
    """The live functions of a closure, by index."""

    def __init__(self, closure: Closure, name: str | None) -> None:
        self.closure = closure
        self.name = name
        self.functions: dict[int, Any] = {}
        self._namespaces: list[dict[str, Any]] = [{"__name__": "__kernel__"} for _ in closure.functions]

    @property
    def kernel(self) -> Any:
        """The jit function of the kernel."""
        return self.functions[0]

    @property
    def decorated(self) -> Any:
        """The kernel with the autotuners and heuristics of its closure."""
        return wrapped(self.kernel, self.closure.wrappers, self.value)

    def value(self, binding: Binding) -> Any:
        """Return the live value that a binding stands for."""
        match binding:
            case Constant(value):
                return value
            case Constexpr(inner):
                return tl.constexpr(self.value(inner))
            case Dtype(name):
                return tl.dtype(name)
            case FunctionRef(index):
                return self.functions[index]
            case Import(module, attribute):
                return _imported(module, attribute)
            case Members(module, members):
                return self._module(module, members)
            case Opaque():
                return _Untaken()

    def load_all(self) -> None:
        """Define every function, those that others use first; a recursive one sees itself afterwards."""
        for index in reversed(range(len(self.closure.functions))):
            self._define(index, frozenset())
        for function, namespace in zip(self.closure.functions, self._namespaces, strict=True):
            for name, binding in function.bindings:
                namespace[name] = self.value(binding)

    def _define(self, index: int, entered: frozenset[int]) -> None:
        if index in self.functions or index in entered:
            return
        function = self.closure.functions[index]
        for needed in _references(function):
            self._define(needed, entered | {index})
        namespace = self._namespaces[index]
        for name, binding in function.bindings:
            if all(i in self.functions for i in _referenced(binding)):
                namespace[name] = self.value(binding)
        text = "\n" * (function.first_line - 1) + function.text
        if function.kind == "lambda":
            code = compile(f"({text})", function.file, "eval", dont_inherit=True)
            self.functions[index] = eval(code, namespace)
            return
        exec(compile(text, function.file, "exec", dont_inherit=True), namespace)
        self.functions[index] = self._decorated(index, function, namespace[function.name])

    def _decorated(self, index: int, function: Function, python: Any) -> Any:
        if function.kind == "python":
            return python
        if function.kind == "constexpr_function":
            return triton.constexpr_function(python)
        symbol = self.name
        named = {"repr": lambda _: symbol} if index == 0 and symbol else {}
        options = self._options() if index == 0 else {}
        return triton.jit(noinline=function.noinline or None, **named, **options)(python)

    def _options(self) -> dict[str, Any]:
        return {n: v for w in self.closure.wrappers if isinstance(w, JitOptions) for n, v in w.options}

    def _module(self, name: str, members: tuple[tuple[str, Binding], ...]) -> ModuleType:
        module = ModuleType(name)
        vars(module).update({key: self.value(binding) for key, binding in members})
        if not members:
            vars(module)["__getattr__"] = _any_type
        return module


def _any_type(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def _references(function: Function) -> list[int]:
    return [index for _, binding in function.bindings for index in _referenced(binding)]


def _referenced(binding: Binding) -> list[int]:
    match binding:
        case FunctionRef(index):
            return [index]
        case Constexpr(inner):
            return _referenced(inner)
        case Members(_, members):
            return [index for _, member in members for index in _referenced(member)]
        case _:
            return []


def _imported(module: str, attribute: str) -> Any:
    value: Any = importlib.import_module(module)
    for part in filter(None, attribute.split(".")):
        value = getattr(value, part)
    return value


def _register_sources(closure: Closure) -> None:
    """Let `inspect` and tracebacks find each text where it stood, on the same lines of the same file name.

    A file that still has all of them there stays whole: this process may be the user's own. Else it has these alone,
    since lines of another version, behind a text, could pass for its end.
    """
    texts: dict[str, dict[int, list[str]]] = {}
    for function in closure.functions:
        texts.setdefault(function.file, {})[function.first_line - 1] = function.text.splitlines(keepends=True)
    for name, parts in texts.items():
        lines = linecache.getlines(name)
        if not all(_stripped(lines[start : start + len(part)]) == _stripped(part) for start, part in parts.items()):
            lines = ["\n"] * max(start + len(part) for start, part in parts.items())
            for start, part in parts.items():
                lines[start : start + len(part)] = part
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def _stripped(lines: list[str]) -> list[str]:
    return [line.rstrip("\n") for line in lines]
