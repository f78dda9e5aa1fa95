"""Live functions of a closure, in a worker process or in a new session."""

from __future__ import annotations

import importlib
import linecache
from collections.abc import Iterable
from types import ModuleType
from typing import Any

import triton
import triton.language as tl

from kernellab._triton.closure import opaque_message
from kernellab._triton.installed import is_of_triton
from kernellab.errors import LaunchError, SourceError
from kernellab.source import (
    LOADED,
    Autotune,
    Binding,
    Call,
    Closure,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionRef,
    Helper,
    Heuristics,
    Import,
    Items,
    JitOptions,
    Members,
    Opaque,
    referenced_functions,
)
from kernellab.source.text import rebuild

UNWRAPPED = "_kernellab_constants"  # the key of a namespace for the names of its unwrapped constexprs
_KEPT_WRAPPED = {bool, int, float, str, type(None), tl.dtype}
_CONTAINERS: dict[str, Any] = {"tuple": tuple, "list": list, "set": set, "frozenset": frozenset, "dict": dict}


class _OpaqueValue:
    """Stands for a value that could not be sent. An annotation may name it; any use in a kernel is an error.

    While functions are being defined (``is_named``), annotations and defaults are evaluated: then its attributes and
    items are the stand-in itself.
    """

    def __init__(self, name: str, opaque: Opaque, *, is_named: bool) -> None:
        self._message = f"{name} is {opaque_message(opaque)}"
        self._is_named = is_named

    def __repr__(self) -> str:
        return f"<{self._message}>"

    def __getattr__(self, name: str) -> _OpaqueValue:
        if name.startswith("__"):
            raise AttributeError(name)
        return self._stand_in()

    def __getitem__(self, item: object) -> _OpaqueValue:
        return self._stand_in()

    __or__ = __ror__ = __getitem__

    def _stand_in(self) -> _OpaqueValue:
        return self if self._is_named else self._refuse()

    def _refuse(self, *_: object, **__: object) -> Any:
        raise LaunchError(self._message)

    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = __hash__ = __bool__ = __call__ = _refuse
    __len__ = __iter__ = __contains__ = __int__ = __float__ = __index__ = __neg__ = __invert__ = _refuse
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = __truediv__ = __rtruediv__ = _refuse
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __pow__ = __rpow__ = __and__ = __rand__ = _refuse
    __xor__ = __rxor__ = __lshift__ = __rlshift__ = __rshift__ = __rrshift__ = __instancecheck__ = _refuse


def load(closure: Closure, *, name: str | None = None, unwraps: bool = False) -> LoadedClosure:
    """The functions of ``closure``, decorated as in the notebook and with the same file names and lines.

    In a process that was started with ``TRITON_INTERPRET=1`` they are interpreted functions. ``name`` is the symbol of
    the compiled kernel, where it differs from the Python name. With ``unwraps``, a ``tl.constexpr`` of anything but a
    number, string or dtype is replaced by the value in it, so that its attributes and operators work.
    """
    register_sources(closure)
    loaded = LoadedClosure(closure, name, unwraps=unwraps)
    try:
        loaded.load_all()
    except RecursionError as exc:
        raise SourceError(f"The helpers of {closure.name} call each other too deeply.", kernel=closure.name) from exc
    return loaded


class LoadedClosure:
    """The live functions of a closure, by index."""

    def __init__(self, closure: Closure, name: str | None, *, unwraps: bool = False) -> None:
        self.closure = closure
        self.name = name
        self._unwraps = unwraps
        self.functions: dict[int, Any] = {}
        self._objects: dict[int, Any] = {}
        self._own_objects: dict[int, Any] = {}
        self._is_defining = True
        self._namespaces: list[dict[str, Any]] = [{"__name__": LOADED} for _ in closure.functions]

    @property
    def kernel(self) -> Any:
        """The jit function of the kernel."""
        return self.functions[0]

    @property
    def decorated(self) -> Any:
        """The kernel with its autotuners and heuristics, without a heuristic or hook that could not be sent."""
        function = self.kernel
        for wrapper in reversed(self.closure.wrappers):
            match wrapper:
                case Autotune():
                    function = self._apply_autotune(function, wrapper)
                case Heuristics(values):
                    function = triton.heuristics(self._values_of(values))(function)
        return function

    def arguments(self, bindings: Iterable[tuple[Any, Binding]]) -> dict[Any, Any]:
        """The live arguments of one launch; objects among them belong to this launch alone."""
        self._objects = dict(self._own_objects)
        return {name: self.value(binding, str(name)) for name, binding in bindings}

    def value(self, binding: Binding, name: str = "A value") -> Any:
        """The live value of a binding; ``name`` is its name in the kernel, for errors."""
        match binding:
            case Constant(value):
                return value
            case Constexpr(inner):
                value = self.value(inner, name)
                return value if self._unwraps and type(value) not in _KEPT_WRAPPED else tl.constexpr(value)
            case Dtype(name):
                return tl.dtype(name)
            case FunctionRef(index) | Helper(_, FunctionRef(index)):
                return self.functions[index]
            case Import():
                return _import_value(binding)
            case Members(module, members):
                return self._module(module, members)
            case Items(kind, members):
                return _CONTAINERS[kind](self.value(member, name) for member in members)
            case Call():
                return self._value_of_call(binding, name)
            case Opaque():
                return _OpaqueValue(name, binding, is_named=self._is_defining)

    def _value_of_call(self, call: Call, name: str) -> Any:
        if call.identity is not None and call.identity in self._objects:
            return self._objects[call.identity]
        parts = [self.value(part, name) for part in (call.function, *call.arguments)]
        value = rebuild(parts[0], tuple(parts[1:]), None if call.state is None else self.value(call.state, name))
        if call.identity is not None:
            self._objects[call.identity] = value
        return value

    def load_all(self) -> None:
        """Define every function, after those that it uses; a recursive one sees itself afterwards."""
        for index in reversed(range(len(self.closure.functions))):
            self._define(index, frozenset())
        self._is_defining = False
        for function, namespace in zip(self.closure.functions, self._namespaces, strict=True):
            for name, binding in function.bindings:
                namespace[name] = self.value(binding, name)
            if self._unwraps:
                wrapped_in = {name for name, binding in function.bindings if isinstance(binding, Constexpr)}
                namespace[UNWRAPPED] = frozenset(n for n in wrapped_in if not isinstance(namespace[n], tl.constexpr))
        self._own_objects = dict(self._objects)

    def _define(self, index: int, in_progress: frozenset[int]) -> None:
        if index in self.functions or index in in_progress:
            return
        function = self.closure.functions[index]
        for _, binding in function.bindings:
            for needed in referenced_functions(binding):
                self._define(needed, in_progress | {index})
        namespace = self._namespaces[index]
        for name, binding in function.bindings:
            if all(i in self.functions for i in referenced_functions(binding)):
                namespace[name] = self.value(binding, name)
        text = "\n" * (function.first_line - 1) + function.text
        if function.kind == "lambda":
            code = compile(f"({text})", function.file, "eval", dont_inherit=True)
            self.functions[index] = eval(code, namespace)
            return
        exec(compile(text, function.file, "exec", dont_inherit=True), namespace)
        if function.name not in namespace:
            raise SourceError(f"The text of {function.name} defines no function of that name.", kernel=function.name)
        self.functions[index] = self._apply_jit(index, function, namespace[function.name])

    def _apply_jit(self, index: int, function: Function, python: Any) -> Any:
        if function.kind in {"python", "class"}:
            return python
        if function.kind == "constexpr_function":
            return triton.constexpr_function(python)
        symbol = self.name
        named = {"repr": lambda _: symbol} if index == 0 and symbol else {}
        wrappers = self.closure.wrappers if index == 0 else ()
        options = {n: v for wrapper in wrappers if isinstance(wrapper, JitOptions) for n, v in wrapper.options}
        jit = triton.jit
        if function.kind == "gluon":
            from triton.experimental import gluon  # its language is large, and few kernels are in it

            jit = gluon.jit
        return jit(noinline=function.noinline or None, **named, **options)(python)

    def _apply_autotune(self, function: Any, wrapper: Autotune) -> Any:
        configs = []
        for config in wrapper.configs:
            hook = () if config.pre_hook is None else (("pre_hook", config.pre_hook),)
            options = {**self._values_of(hook), **dict(config.options)}
            configs.append(triton.Config(self._values_of(config.parameters), **options))
        pruning = self._values_of(wrapper.prune_configs_by) or None
        arguments = self._values_of(wrapper.arguments)
        return triton.autotune(configs, list(wrapper.key), prune_configs_by=pruning, **arguments)(function)

    def _values_of(self, bindings: tuple[tuple[str, Binding], ...]) -> dict[str, Any]:
        """The live values of all bindings but opaque ones."""
        return {name: self.value(binding) for name, binding in bindings if not isinstance(binding, Opaque)}

    def _module(self, name: str, members: tuple[tuple[str, Binding], ...]) -> ModuleType:
        module = ModuleType(name)
        vars(module).update({key: self.value(binding, f"{name}.{key}") for key, binding in members})
        if not members:
            vars(module)["__getattr__"] = _any_type
        return module


def _any_type(name: str) -> type:
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})


def _import_value(binding: Import) -> Any:
    name = f"{binding.module}.{binding.attribute}".rstrip(".")
    try:
        value: Any = importlib.import_module(binding.module)
        for part in filter(None, binding.attribute.split(".")):
            value = getattr(value, part)
    except (ImportError, AttributeError) as exc:
        raise SourceError(f"The kernel needs {name}, which cannot be imported here: {exc}.") from exc
    fingerprint = str(getattr(value, "cache_key", ""))
    if fingerprint and binding.fingerprint and fingerprint != binding.fingerprint and not is_of_triton(binding.module):
        raise SourceError(
            f"{name} differs from the function that the kernel used when it was compiled or kept: its package has "
            "changed, or chooses an implementation at import. Define the helper in a cell or file of your own."
        )
    return value


def register_sources(closure: Closure) -> None:
    """Register each text with `linecache`, on the lines of its file, for `inspect` and tracebacks.

    A file that still has all texts stays as it is: this process may be the user's own. Otherwise the entry has these
    texts alone, since lines of another version after a text could pass for its end.
    """
    texts: dict[str, dict[int, list[str]]] = {}
    for function in closure.functions:
        texts.setdefault(function.file, {})[function.first_line - 1] = function.text.splitlines(keepends=True)
    for name, parts in texts.items():
        lines = linecache.getlines(name)
        if not all(_join_lines(lines[start : start + len(part)]) == _join_lines(part) for start, part in parts.items()):
            lines = ["\n"] * max(start + len(part) for start, part in parts.items())
            for start, part in parts.items():
                lines[start : start + len(part)] = part
        linecache.cache[name] = (sum(map(len, lines)), None, lines, name)


def _join_lines(lines: list[str]) -> str:
    return "".join(lines).removesuffix("\n")
