"""Capture of a kernel: its source, helpers and values, with its decorators, as a `Closure`."""

from __future__ import annotations

import ast
import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache
from itertools import accumulate
from types import FunctionType, ModuleType
from typing import Any

import triton.language as tl
from triton.runtime import autotuner
from triton.runtime.jit import JITCallable

from kernellab._triton.class_text import ClassText, class_text
from kernellab._triton.installed import attribute_import, global_import, installed_import, is_of_triton
from kernellab._triton.interpreted import is_interpreted, require_compiled
from kernellab._triton.kernel import (
    Kernel,
    decorators_of,
    decorators_text,
    definition,
    dtype_name,
    jit_function,
    jit_kind,
    outside_names,
    scope_of,
)
from kernellab.errors import LaunchError, SourceError
from kernellab.source import (
    CELL_PREFIX,
    CONFIG_OPTIONS,
    JIT_KINDS,
    LOADED,
    Autotune,
    Binding,
    Call,
    Closure,
    ConfigText,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionKind,
    FunctionRef,
    Helper,
    Heuristics,
    Import,
    Items,
    JitOptions,
    Members,
    Opaque,
    Wrapper,
    content_keys,
    is_installed,
    is_plain,
    jsonable,
    lambda_definition,
    opaque_part,
    parse_python,
    with_functions,
)
from kernellab.source.text import CannotTake, rebuild_call, signature_values


def closure_of(kernel: Kernel, arguments: tuple[Any, ...] = ()) -> tuple[Closure, tuple[Binding, ...]]:
    """The closure of a kernel, without its autotuners and heuristics.

    ``arguments`` are values that a launch passes for constexprs; their bindings in the closure come second.

    Raises:
        SourceError: the source of the kernel or of a helper cannot be found.
    """
    function = jit_function(kernel)
    collector = Collector()
    collector.add(function, jit_kind(function))
    bound = collector.resolve(tuple(map(collector.bind_in_python, arguments)))
    return collector.closure(decorators_text(function)), bound


def decorated_closure_of(kernel: Kernel) -> Closure:
    """The closure of a kernel with its autotuners and heuristics; errors as for `closure_of`.

    A config, hook or heuristic that cannot be written down is an `Opaque` there.
    """
    function = jit_function(kernel)
    collector = Collector(loose=True)
    collector.add(function, jit_kind(function))
    wrappers = tuple(_wrappers(collector, kernel))
    collector.resolve()
    return collector.closure(decorators_text(function), wrappers)


def value_closure_of(value: Any) -> tuple[Closure, Binding] | None:
    """A non-literal value as a closure, with the binding that stands for it there; None where it cannot be captured."""
    collector = Collector()
    try:
        binding = collector.bind_in_python(value)
        collector.resolve()
    except SourceError:
        return None
    if opaque_part(binding) is not None:
        return None
    return collector.closure(), binding


def plain_bindings(arguments: tuple[Any, ...]) -> tuple[Binding, ...] | None:
    """The bindings of values; None where one of them needs functions or objects of the closure."""
    collector = Collector()
    bound = tuple(map(collector.bind_in_python, arguments))
    return None if collector.pending or collector.identities else bound


def value_key(value: Any) -> str:
    """A key by type and content, the same in every session; of a value that cannot be captured, its `repr`."""
    collector = Collector()
    binding = collector.bind_in_python(value)
    if opaque_part(binding) is not None:
        return repr(value)
    collector.resolve()
    text = json.dumps([jsonable(binding), collector.closure().digest], sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()


def require_sendable(kernel: str, named: Iterable[tuple[str, Binding]]) -> None:
    """Raise `LaunchError` for an argument that cannot be sent to another process."""
    for name, binding in named:
        if (opaque := opaque_part(binding)) is not None:
            raise LaunchError(f"{name} of {kernel} is {opaque_message(opaque)}", kernel=kernel)


def opaque_message(opaque: Opaque) -> str:
    """The rest of an error message about a value that cannot be sent."""
    return (
        f"a {opaque.type}, which cannot be sent to the process that compiles or runs the kernel"
        f"{f' ({opaque.reason})' if opaque.reason else ''}. Give it as a number, string or dtype, an Enum member, a "
        "NamedTuple or frozen dataclass of these, or a function with source."
    )


class Collector:
    """Collects the functions and classes that a kernel uses, each once.

    Python functions of files that are not installed are captured only if ``loose``: compiles do not need them.
    """

    def __init__(self, *, loose: bool = False) -> None:
        self.loose = loose
        self.indices: dict[int, int] = {}
        self.identities: dict[int, tuple[int, object]] = {}
        self._classes: dict[int, ClassText] = {}
        self._in_progress: set[int] = set()
        self.pending: list[tuple[Any, FunctionKind]] = []
        self.done: list[Function] = []
        self.labels: dict[str, str] = {}

    def add(self, owner: Any, kind: FunctionKind) -> FunctionRef:
        """The reference to a function or class, which `resolve` will capture."""
        if id(owner) not in self.indices:
            self.indices[id(owner)] = len(self.pending)
            self.pending.append((owner, kind))
        return FunctionRef(self.indices[id(owner)])

    def closure(self, decorators: str = "", wrappers: tuple[Wrapper, ...] = ()) -> Closure:
        """The collected functions, as the closure of a kernel with these decorators."""
        return Closure(tuple(self.done), decorators, tuple(sorted(self.labels.items())), wrappers)

    def resolve(self, bound: tuple[Binding, ...] = ()) -> tuple[Binding, ...]:
        """Capture all pending functions and classes; return ``bound`` with the final references.

        A class loaded from the store is merged with one of the same text in the notebook, or in another loaded kernel,
        so that their values are equal.
        """
        while len(self.done) < len(self.pending):
            owner, kind = self.pending[len(self.done)]
            self.done.append(self._function(owner, kind))
        is_loaded = {i: o.__module__ == LOADED for i, (o, kind) in enumerate(self.pending) if kind == "class"}
        if len(is_loaded) < 2 or not any(is_loaded.values()):
            return bound
        first: dict[str, int] = {}
        same = {}
        (keys,) = content_keys([self.done])
        for i in sorted(is_loaded, key=is_loaded.__getitem__):
            twin = first.setdefault(keys[i], i)
            same[i] = twin if is_loaded[i] else i

        def merge(binding: Binding) -> Binding:
            return with_functions(binding, lambda index: FunctionRef(same.get(index, index)))

        for i, function in enumerate(self.done):
            self.done[i] = replace(function, bindings=tuple((n, merge(b)) for n, b in function.bindings))
        return tuple(map(merge, bound))

    def _function(self, owner: Any, kind: FunctionKind) -> Function:
        if kind == "class":
            return self._class(self._classes[id(owner)])
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
            bindings=tuple(sorted(self._bindings(python, node, for_python=kind not in JIT_KINDS))),
        )

    def _class(self, written: ClassText) -> Function:
        file = f"{CELL_PREFIX}{written.cls.__name__}"
        while file in self.labels:
            file += "'"
        self.labels[file] = file
        node = parse_python(written.text)
        bindings = ((name, self.bind_in_python(value, name, node)) for name, value in sorted(written.names.items()))
        return Function(written.cls.__name__, "class", written.text, file, 1, False, tuple(bindings))

    def _bindings(
        self, python: Any, node: ast.FunctionDef | ast.Lambda, *, for_python: bool
    ) -> Iterator[tuple[str, Binding]]:
        bind = self.bind_in_python if for_python else self.bind
        scope = scope_of(python)
        named = outside_names(python)
        for name in sorted(named):
            if name in scope:
                binding = bind(scope[name], name, node)
                yield name, (global_import(python, name) if opaque_part(binding) is not None else None) or binding
        for name, value in signature_values(python, node, scope).items():
            if name not in named:
                binding = self.bind(value, name, node)
                if isinstance(binding, Import) and not binding.attribute and not is_of_triton(binding.module):
                    binding = Members(binding.module, ())  # annotations such as torch.Tensor import nothing in a worker
                yield name, binding

    def bind_in_python(self, value: Any, name: str = "", node: ast.AST | None = None) -> Binding:
        """The binding of a value that Python code uses: Python functions are captured, too."""
        loose, self.loose = self.loose, True
        try:
            return self.bind(value, name, node)
        finally:
            self.loose = loose

    def bind(self, value: Any, name: str = "", node: ast.AST | None = None) -> Binding:
        """The binding of ``value``, which the code ``node`` calls ``name``."""
        if isinstance(value, tl.constexpr):
            return Constexpr(self.bind_in_python(value.value, name, node))
        if (dtype := dtype_name(value)) is not None:
            return Dtype(dtype)
        if isinstance(value, JITCallable):
            return self._bind_helper(value, jit_kind(value))
        if isinstance(value, ModuleType):
            if node is None and not is_installed(value.__name__):
                return Opaque(f"module {value.__name__}", "it is not installed")
            chains = frozenset[tuple[str, ...]]() if node is None else _chains_of(node).get(name, frozenset())
            return self._bind_members(value, chains, node)
        if is_plain(value):
            return Constant(value)
        if is_interpreted(value):
            imported = installed_import(value.fn, value)
            require_compiled(None if imported else value)
            return imported or Opaque(value.__name__)
        return installed_import(value, value) or self._bind_other(value)

    def _bind_helper(self, value: Any, kind: FunctionKind) -> Binding:
        imported = installed_import(value.fn, value)
        if imported is None:
            return self.add(value, kind)
        if is_of_triton(imported.module):
            return imported
        try:
            definition(value)
        except SourceError:
            return imported  # its fingerprint shows a worker whether its own module has another function there
        return Helper(imported, self.add(value, kind))

    def _bind_members(self, module: ModuleType, chains: frozenset[tuple[str, ...]], node: ast.AST | None) -> Binding:
        is_there = is_installed(module.__name__)
        if is_there and not any(_leads_to_helper(module, chain) for chain in chains):
            return Import(module.__name__)
        bound = []
        for attribute in sorted({chain[0] for chain in chains}):
            if hasattr(module, attribute):
                value = getattr(module, attribute)
                rest = frozenset(chain[1:] for chain in chains if chain[0] == attribute and len(chain) > 1)
                is_module = isinstance(value, ModuleType)
                binding = self._bind_members(value, rest, node) if is_module else self.bind(value, attribute, node)
                is_lost = is_there and opaque_part(binding) is not None
                bound.append((attribute, Import(module.__name__, attribute) if is_lost else binding))
        return Members(module.__name__, tuple(bound))

    def _bind_other(self, value: Any) -> Binding:
        if isinstance(value, FunctionType):
            if not (self.loose or is_cell_file(value.__code__.co_filename)):
                return Opaque(type(value).__name__)
            return self.add(value, "lambda" if value.__name__ == "<lambda>" else "python")
        if id(value) in self._in_progress:
            return Opaque(_type_name(value), "it contains itself")
        self._in_progress.add(id(value))
        try:
            if not isinstance(value, type):
                return self._bind_object(value)
            if id(value) not in self.indices:
                self._classes[id(value)] = class_text(value)
            return self.add(value, "class")
        except (CannotTake, SourceError) as exc:
            return Opaque(_type_name(value), str(exc))
        finally:
            self._in_progress.discard(id(value))

    def _bind_object(self, value: Any) -> Binding:
        """A container of bindings, or the call that makes an equal value."""
        kind: Any = type(value).__name__
        if type(value) in {tuple, list}:
            return Items(kind, tuple(map(self.bind, value)))
        if type(value) in {set, frozenset}:
            return Items(kind, tuple(sorted(map(self.bind, value), key=repr)))
        if type(value) is dict:
            return Items("dict", tuple(Items("tuple", (self.bind(k), self.bind(v))) for k, v in value.items()))
        call = rebuild_call(value)
        if isinstance(call, str):
            module = getattr(value, "__module__", type(value).__module__)
            reason = f"{module} does not hold it as {call}"
            return attribute_import(module, call, value) or Opaque(_type_name(value), reason)
        identity = None
        if call.has_identity:
            identity, _ = self.identities.setdefault(id(value), (len(self.identities), value))
        state = None if call.state is None else self.bind(call.state)
        return Call(self.bind(call.function), tuple(map(self.bind, call.arguments)), state, identity)


def _type_name(value: object) -> str:
    cls = value if isinstance(value, type) else type(value)
    return f"{cls.__module__}.{cls.__qualname__}"


def is_cell_file(file: str) -> bool:
    """Whether code of this file name was typed into a notebook cell or a prompt."""
    return file.startswith(("In[", "<", CELL_PREFIX)) or "/ipykernel_" in file


def _leads_to_helper(module: ModuleType, chain: tuple[str, ...]) -> bool:
    """Whether attributes of a module lead to a jit function of a package other than Triton."""
    start: Any = module
    values = accumulate(chain, lambda value, attribute: getattr(value, attribute, None), initial=start)
    helper = next((value for value in values if isinstance(value, JITCallable)), None)
    return helper is not None and not is_of_triton(str(helper.fn.__module__))


@lru_cache(maxsize=32)
def _chains_of(tree: ast.AST) -> Mapping[str, frozenset[tuple[str, ...]]]:
    """The attributes that a text reads, by the name that they start from: ("b", "c") for ``name.b.c``."""
    chains: dict[str, set[tuple[str, ...]]] = {}
    for part in ast.walk(tree):
        attributes: tuple[str, ...] = ()
        start = part
        while isinstance(start, ast.Attribute):
            attributes, start = (start.attr, *attributes), start.value
        if attributes and isinstance(start, ast.Name):
            chains.setdefault(start.id, set()).add(attributes)
    return {name: frozenset(read) for name, read in chains.items()}


def _wrappers(collector: Collector, kernel: Kernel) -> Iterator[Wrapper]:
    """The decorators of a kernel, the outermost first, with their non-default arguments."""
    for decorator in decorators_of(kernel):
        if isinstance(decorator, autotuner.Autotuner):
            yield _autotune(collector, decorator)
        elif isinstance(decorator, autotuner.Heuristics):
            yield Heuristics(_bind_each(collector, decorator.values))
    function = jit_function(kernel)
    names = ("debug", "do_not_specialize", "do_not_specialize_on_alignment")
    yield JitOptions(tuple((name, getattr(function, name)) for name in names if getattr(function, name)))


def _autotune(collector: Collector, tuner: Any) -> Autotune:
    arguments = {
        "reset_to_zero": tuner.reset_to_zero,
        "restore_value": tuner.restore_value,
        "pre_hook": tuner.user_defined_pre_hook and tuner.pre_hook,
        "post_hook": tuner.user_defined_post_hook and tuner.post_hook,
        "cache_results": tuner.cache_results,
        "use_cuda_graph": tuner.use_cuda_graph,
        "warmup": tuner.num_warmups,
        "rep": tuner.num_reps,
    }
    pruning = {"early_config_prune": tuner.early_config_prune, "perf_model": tuner.perf_model}
    if tuner.perf_model is not None:
        pruning["top_k"] = tuner.configs_top_k
    return Autotune(
        configs=tuple(_config(collector, config) for config in tuner.configs),
        key=tuple(tuner.keys),
        arguments=_bind_each(collector, {name: value for name, value in arguments.items() if value}),
        prune_configs_by=_bind_each(collector, {name: v for name, v in pruning.items() if v is not None}),
    )


def _config(collector: Collector, config: Any) -> ConfigText:
    optional = ("maxnreg", "ir_override")  # that few configs set
    options = {name: getattr(config, name) for name in CONFIG_OPTIONS}
    return ConfigText(
        parameters=_bind_each(collector, config.kwargs),
        options=tuple((n, value) for n, value in options.items() if n not in optional or value is not None),
        pre_hook=None if config.pre_hook is None else _bind_or_opaque(collector, config.pre_hook),
    )


def _bind_each(collector: Collector, values: Mapping[str, Any]) -> tuple[tuple[str, Binding], ...]:
    return tuple((name, _bind_or_opaque(collector, value)) for name, value in values.items())


def _bind_or_opaque(collector: Collector, value: Any) -> Binding:
    """The binding of a config value, hook or heuristic; `Opaque` for a function without source."""
    if isinstance(value, FunctionType) and not is_installed(value.__module__ or ""):
        try:
            lambda_definition(value) if value.__name__ == "<lambda>" else definition(value)
        except SourceError:
            return Opaque("a function without source")
    return collector.bind(value)
