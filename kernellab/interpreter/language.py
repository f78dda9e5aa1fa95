"""Patches Triton's interpreter in this process to check accesses and to follow the compiler's reading of Python.

This is the one place that assigns into Triton. `checked_builder` is called in interpreter workers only: processes that
are started with ``TRITON_INTERPRET=1`` and never compile. Triton patches ``triton.language`` anew for every launch and
every call of a helper; here it is patched once, for good.

Triton's compiler gives ``and``, ``not``, ``assert``, ``print``, ``range`` and ``max`` its own meaning: elementwise on
blocks, without short cuts. Executed as plain Python they would silently do something else, so they are rewritten into
calls of this module. For an operator with a ``tl.constexpr`` and a tensor the compiler looks at both operands; in
Python the left one decides and would wrap the tensor in another ``tl.constexpr``, which cannot be stored.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import operator
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import cache, partial, reduce
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as upstream
from triton.runtime.jit import _normalize_ty

from kernellab._triton.loading import UNWRAPPED
from kernellab.interpreter import functions
from kernellab.interpreter.access import CheckedBuilder
from kernellab.interpreter.faults import InterpretedCheckError
from kernellab.interpreter.promises import PromiseName
from kernellab.interpreter.recording import CALLS, add_record_calls
from kernellab.interpreter.values import Handle, holds_payloads, numpy_dtype, plain, reuse_types

_PREFIX = "_kernellab_"


def loop(*bounds: Any, **options: Any) -> Iterator[Any]:
    """Iterate as ``tl.range`` does on a GPU: over integers of 32 bits, or 64 where a bound has them."""
    for key in ("arg1", "arg2", "step"):
        if options.get(key) is not None:
            bounds = (*bounds, options[key])
    wide = any(isinstance(b, tl.tensor) and b.dtype.int_bitwidth == 64 for b in bounds)
    values, offsets = upstream.interpreter_builder.loop_range(*map(plain, bounds))
    wide = wide or any(not -(2**31) <= edge < 2**31 for edge in (values.start, values.stop))
    dtype = tl.int64 if wide else tl.int32
    offsets = offsets.astype(numpy_dtype(dtype))
    for value in values:
        yield tl.tensor(Handle(np.array([value], offsets.dtype) + offsets, dtype), dtype)


def extreme(name: str, of_numbers: Callable[..., Any], *values: Any, **options: Any) -> Any:
    """``max`` or ``min``: of tensors, ``tl.maximum`` or ``tl.minimum`` of one after the other."""
    if any(isinstance(value, tl.tensor) for value in values):
        return reduce(getattr(tl, name), values)
    return of_numbers(*map(plain, values), **options)


def combine(method: str, decisive: bool, *operands: Callable[[], Any]) -> Any:
    """``and`` or ``or``: only a ``decisive`` compile-time operand ends it early."""
    tensors = []
    value = None
    for operand in operands:
        value = operand()
        if isinstance(value, tl.tensor):
            tensors.append(value)
        elif bool(plain(value)) is decisive:
            return value
    return reduce(lambda one, other: getattr(one, method)(other), tensors) if tensors else value


def logical_not(operand: Any) -> Any:
    """``not``."""
    return operand.__not__() if isinstance(operand, tl.tensor) else not plain(operand)


def check_assert(condition: Any, message: Callable[[], Any] = str) -> None:
    """``assert``: of a tensor, a ``tl.device_assert``."""
    if isinstance(condition, tl.tensor):
        tl.device_assert(condition, plain(message()))
    elif not plain(condition):
        static_assert(False, message())


def static_assert(condition: Any, message: Any = "") -> None:
    """Check a condition that is known at compile time."""
    if not plain(condition):
        text = plain(message)
        raise InterpretedCheckError(f"static assertion failed: {text}" if text else "static assertion failed")


def static_print(*values: Any, **options: Any) -> None:
    """Print once, as at compile time, not once per program."""
    builder = upstream.interpreter_builder
    if builder.grid_idx == (0, 0, 0):
        builder.print_line(" ".join(str(plain(value)) for value in values))


def print_values(*values: Any) -> None:
    """``print``, which on a GPU is ``tl.device_print``."""
    builder = upstream.interpreter_builder
    items = [value.handle.data if isinstance(value, tl.tensor) else plain(value) for value in values]
    text = " ".join(str(item.item() if getattr(item, "size", 0) == 1 else item) for item in items)
    builder.print_line(f"pid {builder.grid_idx} {text}")


def check_condition(condition: Any) -> Any:
    """Return the condition of an ``if`` or ``while`` after checking that it is a scalar.

    Raises:
        TypeError: it is a block; the compiler refuses it too.
    """
    if isinstance(condition, tl.tensor):
        if plain(condition.numel) != 1:
            shape = tuple(map(plain, condition.shape))
            raise TypeError(
                f"a block of shape {shape} cannot decide a condition; use tl.where, or reduce it to a scalar"
            )
        upstream.interpreter_builder.check_decision(condition.handle)
    return condition


def is_same(one: Any, other: Any) -> bool:
    """``is``, applied to the values of constexprs as the compiler does."""
    return plain(one) is plain(other)


def record(name: str, *arguments: Any) -> Any:
    """Call the recorder of the running launch, from a kernel that was loaded for recording."""
    return getattr(upstream.interpreter_builder.recorder, name)(*arguments)


BUILTINS: dict[str, Callable[..., Any]] = {
    "range": loop,
    "max": partial(extreme, "maximum", max),
    "min": partial(extreme, "minimum", min),
    "print": print_values,
}
SYNTAX: dict[str, Callable[..., Any]] = {
    "logical_and": partial(combine, "logical_and", False),
    "logical_or": partial(combine, "logical_or", True),
    "logical_not": logical_not,
    "check_assert": check_assert,
    "check_condition": check_condition,
    "is_same": is_same,
    "plain": plain,
    **{name: partial(record, name) for name in CALLS},
}


class Transformer(upstream.ASTTransformer):  # type: ignore[misc]
    """Rewrites a kernel's Python syntax, in addition to Triton's rewriting.

    ``builtins`` are the names of `BUILTINS` that mean Python's builtins in the kernel's module; ``constants`` are the
    names of constexprs. ``prepare`` gets the function before it is rewritten.
    """

    def __init__(
        self,
        builtins: frozenset[str],
        constants: frozenset[str] = frozenset(),
        prepare: Callable[[ast.FunctionDef], None] | None = None,
    ) -> None:
        super().__init__()
        self.builtins = builtins
        self.constants = constants
        self.prepare = prepare

    def visit_Module(self, node: ast.Module) -> ast.AST:  # noqa: N802
        """Prepare the functions, then rewrite what is in them."""
        for function in node.body:
            if self.prepare is not None and isinstance(function, ast.FunctionDef):
                self.prepare(function)
        self.generic_visit(node)
        return node

    def visit_Attribute(self, node: ast.Attribute) -> ast.AST:  # noqa: N802
        """Rewrite ``.value`` of a constexpr: here the name is the constant itself."""
        self.generic_visit(node)
        is_constant = isinstance(node.value, ast.Name) and node.value.id in self.constants
        return _call_of("plain", node, node.value) if is_constant and node.attr == "value" else node

    def visit_Compare(self, node: ast.Compare) -> ast.AST:  # noqa: N802
        """Rewrite ``is`` and ``is not`` between two operands."""
        self.generic_visit(node)
        if len(node.ops) != 1 or not isinstance(node.ops[0], ast.Is | ast.IsNot):
            return node
        comparison = _call_of("is_same", node, node.left, node.comparators[0])
        return comparison if isinstance(node.ops[0], ast.Is) else _call_of("logical_not", node, comparison)

    def visit_Assign(self, node: ast.Assign) -> ast.AST:  # noqa: N802 - the names that ast looks for
        """Convert the assigned value to a tensor, as Triton does, on the right-hand side alone."""
        node.targets = [self.visit(target) for target in node.targets]
        convert = ast.Attribute(ast.Name("interpreter_semantic", ast.Load()), "to_tensor", ast.Load())
        node.value = ast.Call(convert, [self.visit(node.value), ast.Constant(False)], [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802
        """Rewrite calls of builtins."""
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self.builtins:
            node.func.id = f"{_PREFIX}{node.func.id}"
        return node

    def visit_BoolOp(self, node: ast.BoolOp) -> ast.AST:  # noqa: N802
        """Rewrite ``and`` and ``or``; operands become functions, evaluated in turn."""
        self.generic_visit(node)
        name = "logical_and" if isinstance(node.op, ast.And) else "logical_or"
        return _call_of(name, node, *map(_as_lambda, node.values))

    def visit_If(self, node: Any) -> Any:  # noqa: N802
        """Check that a condition is a scalar."""
        self.generic_visit(node)
        node.test = _call_of("check_condition", node.test, node.test)
        return node

    visit_While = visit_IfExp = visit_If  # noqa: N815

    def visit_UnaryOp(self, node: ast.UnaryOp) -> ast.AST:  # noqa: N802
        """Rewrite ``not``."""
        self.generic_visit(node)
        return _call_of("logical_not", node, node.operand) if isinstance(node.op, ast.Not) else node

    def visit_Assert(self, node: ast.Assert) -> ast.AST:  # noqa: N802
        """Rewrite ``assert``; its message is evaluated only on failure."""
        self.generic_visit(node)
        messages = [] if node.msg is None else [_as_lambda(node.msg)]
        return ast.copy_location(ast.Expr(_call_of("check_assert", node, node.test, *messages)), node)


def _call_of(name: str, node: ast.AST, *arguments: ast.expr) -> ast.expr:
    call = ast.Call(ast.Name(f"{_PREFIX}{name}", ast.Load()), list(arguments), [])
    return ast.copy_location(call, node)


def _as_lambda(expression: ast.expr) -> ast.expr:
    no_parameters = ast.arguments(posonlyargs=[], args=[], kwonlyargs=[], kw_defaults=[], defaults=[])
    return ast.copy_location(ast.Lambda(no_parameters, expression), expression)


_OPERATIONS = "add sub mul truediv floordiv mod and or xor lshift rshift lt le gt ge eq ne"


def prefer_tensor_operators() -> None:
    """Let a tensor's operator handle a constexpr on its left."""
    for name in (f"__{word}__" for word in _OPERATIONS.split()):
        setattr(tl.constexpr, name, _defer_to_tensor(getattr(tl.constexpr, name), getattr(operator, name)))


def _defer_to_tensor(original: Callable[..., Any], operation: Callable[..., Any]) -> Callable[..., Any]:
    def method(constant: Any, other: Any) -> Any:
        return operation(constant.value, other) if isinstance(other, tl.tensor) else original(constant, other)

    return method


_CUDA_LIBRARY = "triton.language.extra.cuda.libdevice"
_EXTRA = tuple(f"triton.language.extra.{name}" for name in ("cuda", "cuda.utils", "cuda.gdc", "hip", "hip.utils"))
_LIBRARY_STUBS = "triton.language.extra.libdevice"


@cache
def checked_builder() -> CheckedBuilder:
    """Return the builder of this process, used by every interpreted function."""
    builder = CheckedBuilder()
    upstream.interpreter_builder = builder
    upstream.TritonSemantic = _Semantic
    upstream.interpreter_semantic = _Semantic(builder)
    upstream.TensorHandle = Handle
    upstream._get_np_dtype = numpy_dtype
    upstream._validate_np_data_size = lambda data, dtype: True
    upstream.FunctionRewriter._transform_ast = _transform
    upstream.FunctionRewriter._find_def = _first_def_line
    upstream.InterpretedFunction.__call__ = lambda function, *values, **options: prepare(function)(*values, **options)
    upstream.InterpretedFunction.__getitem__ = _refuse_launch
    vars(upstream).update({f"{_PREFIX}{name}": function for name, function in {**BUILTINS, **SYNTAX}.items()})
    _patch_language(builder)
    return builder


def _refuse_launch(function: Any, grid: Any) -> Any:
    """Refuse ``kernel[grid]`` inside of a kernel: it would launch on the memory of the running launch."""
    raise InterpretedCheckError(f"{function.fn.__name__}[...] is launched inside of a kernel; call it")


@functions.kept_on_function
def prepare(function: Any) -> Callable[..., Any]:
    """Return the Python function that interprets a kernel; builtins imported by name are made usable."""
    namespace = function.fn.__globals__
    for name, value in list(namespace.items()):
        if getattr(value, "__module__", None) == _LIBRARY_STUBS:
            namespace[name] = getattr(sys.modules[_LIBRARY_STUBS], value.__name__, value)
        elif tl.core.is_builtin(value) and not isinstance(value, type):
            is_promise = value.__name__ in _PROMISES
            namespace[name] = partial(_promise, value.__name__) if is_promise else _add_semantic(value)
    rewritten: Callable[..., Any] = function.rewriter.rewrite_ast()  # `rewrite` keeps it for good
    return rewritten


def is_constexpr(parameter: inspect.Parameter) -> bool:
    """Whether a parameter is annotated as ``tl.constexpr``."""
    return "constexpr" in annotation_of(parameter)


def annotation_of(parameter: inspect.Parameter) -> str:
    """Return the annotation of a parameter as Triton writes it, "" without one."""
    annotation = parameter.annotation
    if annotation is inspect.Parameter.empty:
        return ""
    return str(annotation if isinstance(annotation, str) else _normalize_ty(annotation))


def _patch_language(builder: CheckedBuilder) -> None:
    everything = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    scope = upstream._patch_lang(everything)
    _patch_library(builder, scope)
    prefer_tensor_operators()
    reuse_types()
    tl.tensor.__index__, tl.tensor.__bool__ = _tensor_index, _tensor_bool
    tl.tensor.T = property(tl.trans)
    tl.dtype.to_ir = lambda dtype, builder: dtype
    for language in (tl, tl.core):
        language.reduce = functions.reduce
        language.associative_scan = functions.associative_scan
        if hasattr(language, "map_elementwise"):
            language.map_elementwise = functions.map_elementwise
        for name in _PROMISES:
            setattr(language, name, partial(_promise, name))
        language.range = loop
        language.static_assert = static_assert
        language.static_print = static_print


def _patch_library(builder: CheckedBuilder, scope: Any) -> None:
    """Make the functions of libdevice callable, and the stubs of the target-independent module."""
    for name in _EXTRA:
        with suppress(ImportError):  # of another version of Triton
            upstream._patch_builtin(importlib.import_module(name), builder, scope)
    for backend in ("cuda", "hip"):  # Triton imports these twice; this copy is not in `sys.modules`
        upstream._patch_builtin(getattr(tl.extra, backend), builder, scope)
    library, stubs = importlib.import_module(_CUDA_LIBRARY), importlib.import_module(_LIBRARY_STUBS)
    upstream._patch_builtin(library, builder, scope)
    for name in vars(stubs):
        if not name.startswith("_") and hasattr(library, name):
            setattr(stubs, name, getattr(library, name))


_PROMISES: tuple[PromiseName, ...] = ("multiple_of", "max_contiguous", "max_constancy")


def _promise(name: PromiseName, input: Any, values: Any, **ignored: Any) -> Any:
    """Check a promise such as ``tl.multiple_of``."""
    if isinstance(input, tl.tensor):
        upstream.interpreter_builder.check_promise(name, input.handle, values)
    return input


def _tensor_index(tensor: Any) -> int:
    upstream.interpreter_builder.check_decision(tensor.handle)
    return int(upstream.interpreter_builder.shared_value(tensor.handle))


def _tensor_bool(tensor: Any) -> bool:
    """The truth of a scalar; Triton's own code asks a block where it means whether there is one."""
    truth = Handle(tensor.handle.data.astype(bool), tl.int1)
    return plain(tensor.numel) != 1 or bool(upstream.interpreter_builder.shared_value(truth))


def _add_semantic(builtin: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        options.pop("_semantic", None)
        return builtin(*arguments, **options, _semantic=upstream.interpreter_semantic)

    return call


def _first_def_line(rewriter: Any, lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines, start=1) if line.strip().startswith("def ")), 0)


class _Format(str):
    """The name of a format, for Triton before 3.8 also with the attribute that a ``tl.constexpr`` has."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)


class _Semantic(TritonSemantic):  # type: ignore[misc]
    def broadcast_impl_value(self, lhs: Any, rhs: Any) -> Any:
        """Return both operands in one shape; a shortcut for equal shapes, the common case."""
        if lhs.handle.data.shape == rhs.handle.data.shape and lhs.type.is_block() and rhs.type.is_block():
            return lhs, rhs
        return super().broadcast_impl_value(lhs, rhs)

    def dot_scaled(
        self, lhs: Any, lhs_scale: Any, lhs_format: Any, rhs: Any, rhs_scale: Any, rhs_format: Any, *rest: Any
    ) -> Any:
        formats = _Format(plain(lhs_format)), _Format(plain(rhs_format))
        return super().dot_scaled(lhs, lhs_scale, formats[0], rhs, rhs_scale, formats[1], *rest)

    def atomic_max(self, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Keep the larger one of memory and a value: of payloads in the algebra, whose bit patterns order otherwise."""
        if not holds_payloads(ptr.type.scalar.element_ty):
            return super().atomic_max(ptr, val, mask, sem, scope)
        return self._extreme_payload("max", ptr, val, mask, sem, scope)

    def atomic_min(self, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        """Keep the smaller one of memory and a value; see `atomic_max`."""
        if not holds_payloads(ptr.type.scalar.element_ty):
            return super().atomic_min(ptr, val, mask, sem, scope)
        return self._extreme_payload("min", ptr, val, mask, sem, scope)

    def _extreme_payload(self, name: str, ptr: Any, val: Any, mask: Any, sem: Any, scope: Any) -> Any:
        element = ptr.type.scalar.element_ty
        if element not in {tl.float32, tl.float64}:
            raise TypeError(f"atomic_{name} not supported for dtype {element}")  # as Triton's own
        ptr, val, mask = self.atom_red_typechecking_impl(ptr, val, mask, name)
        how = getattr(upstream._ir.ATOMIC_OP, name.upper()), ptr.handle, val.handle, mask.handle
        handle = self.builder.create_atomic_rmw(*how, self._str_to_sem(sem), self._str_to_scope(scope))
        return tl.tensor(handle, val.type)


_transform_as_triton_does = upstream.FunctionRewriter._transform_ast


def _transform(rewriter: Any, source: str) -> ast.AST:
    """Rewrite a function. Builtins that its module redefines are left alone."""
    function = rewriter.fn
    parameters = inspect.signature(function).parameters.values()
    constants = {parameter.name for parameter in parameters if is_constexpr(parameter)}
    constants |= function.__globals__.get(UNWRAPPED, frozenset())
    builtins = frozenset(BUILTINS) - function.__globals__.keys()
    recorded = upstream.interpreter_builder.recorded_sites
    added = rewriter.def_file_lineno - 1
    add_calls = partial(add_record_calls, rewriter.filename, added, recorded, _call_of) if recorded else None
    rewriter.ast_transformer = Transformer(builtins, frozenset(constants), add_calls)
    tree: ast.AST = _transform_as_triton_does(rewriter, source)
    return tree
