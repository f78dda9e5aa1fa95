"""Makes Triton's interpreter, in this process, the checked one.

This is the one place that assigns into Triton. It is imported in interpreter workers only: processes of their own that
are started with ``TRITON_INTERPRET=1`` and never compile. Triton patches ``triton.language`` anew for every launch and
every call of a helper; here it is patched once, for good.
"""

from __future__ import annotations

import ast
import importlib
import sys
from collections.abc import Callable, Iterator
from functools import cache
from types import SimpleNamespace
from typing import Any

import numpy as np
import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as upstream

from kernellab._triton.interpreter import reductions
from kernellab._triton.interpreter.access import CheckedBuilder
from kernellab._triton.interpreter.dtypes import numpy_dtype
from kernellab._triton.interpreter.handles import Handle

_REPLACED = {"range": "_kernellab_range", "max": "_kernellab_max", "min": "_kernellab_min"}
_CUDA_LIBRARY = "triton.language.extra.cuda.libdevice"
_LIBRARY_STUBS = "triton.language.extra.libdevice"


@cache
def checked_builder() -> CheckedBuilder:
    """Return the builder of this process, after making every interpreted function use it."""
    builder = CheckedBuilder()
    upstream.interpreter_builder = builder
    upstream.TritonSemantic = _Semantic
    upstream.interpreter_semantic = _Semantic(builder)
    upstream.TensorHandle = Handle
    upstream._get_np_dtype = numpy_dtype
    upstream._validate_np_data_size = lambda data, dtype: True
    upstream.FunctionRewriter._transform_ast = _transformed
    upstream.FunctionRewriter._find_def = _first_def
    upstream.InterpretedFunction.__call__ = _call
    for name, replacement in (("range", loop), ("max", _extreme("maximum", max)), ("min", _extreme("minimum", min))):
        setattr(upstream, _REPLACED[name], replacement)
    _patch_language(builder)
    return builder


def prepare(function: Any) -> Callable[..., Any]:
    """Return the Python function that interprets a kernel, with builtins that it imported by name made usable."""
    namespace = function.fn.__globals__
    for name, value in list(namespace.items()):
        if getattr(value, "__module__", None) == _LIBRARY_STUBS:
            namespace[name] = getattr(sys.modules[_LIBRARY_STUBS], value.__name__, value)
        elif tl.core.is_builtin(value) and not isinstance(value, type):
            namespace[name] = _with_semantic(value)
    rewritten: Callable[..., Any] = function.rewrite()
    return rewritten


def loop(*bounds: Any, **options: Any) -> Iterator[Any]:
    """Iterate as ``tl.range`` does on a GPU: over integers of 32 bits, or 64 where a bound has them."""
    for key in ("arg1", "arg2", "step"):
        if key in options:
            bounds = (*bounds, options[key])
    wide = any(isinstance(b, tl.tensor) and b.dtype.int_bitwidth == 64 for b in bounds)
    values = range(*(int(b.value) if isinstance(b, tl.constexpr) else b.__index__() for b in bounds))
    wide = wide or any(not -(2**31) <= edge < 2**31 for edge in (values.start, values.stop))
    dtype = tl.int64 if wide else tl.int32
    held = numpy_dtype(dtype)
    for value in values:
        yield tl.tensor(Handle(np.array([value], held), dtype), dtype)


def _extreme(name: str, builtin: Callable[..., Any]) -> Callable[..., Any]:
    """Return ``max`` or ``min`` as a kernel means it: of blocks, element by element."""

    def extreme(*values: Any, **options: Any) -> Any:
        if not any(isinstance(value, tl.tensor) for value in values):
            return builtin(*(_plain(value) for value in values), **options)
        result = values[0]
        for value in values[1:]:
            result = getattr(tl, name)(result, value)
        return result

    return extreme


def _plain(value: Any) -> Any:
    return value.value if isinstance(value, tl.constexpr) else value


def _patch_language(builder: CheckedBuilder) -> None:
    everything = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    scope = upstream._patch_lang(everything)
    _patch_library(builder, scope)
    tl.tensor.__index__ = _index
    tl.dtype.to_ir = lambda dtype, builder: dtype
    for language in (tl, tl.core):
        language.reduce = reductions.reduce
        language.associative_scan = reductions.associative_scan
        if hasattr(language, "map_elementwise"):
            language.map_elementwise = reductions.map_elementwise
        language.range = loop
        language.static_print = lambda *values, **options: _static_print(builder, *values)


def _patch_library(builder: CheckedBuilder, scope: Any) -> None:
    """Make the functions of libdevice callable, those of the target-independent module too, which are stubs."""
    library, stubs = importlib.import_module(_CUDA_LIBRARY), importlib.import_module(_LIBRARY_STUBS)
    upstream._patch_builtin(library, builder, scope)
    for name in vars(stubs):
        if not name.startswith("_") and hasattr(library, name):
            setattr(stubs, name, getattr(library, name))


def _static_print(builder: CheckedBuilder, *values: Any) -> None:
    """Print once, as at compile time, not once per program."""
    if builder.grid_idx == (0, 0, 0):
        builder.print_line(" ".join(str(_plain(value)) for value in values))


def _index(tensor: Any) -> int:
    return int(tensor.handle.data.item())


def _with_semantic(builtin: Callable[..., Any]) -> Callable[..., Any]:
    def call(*arguments: Any, **options: Any) -> Any:
        options.pop("_semantic", None)
        return builtin(*arguments, **options, _semantic=upstream.interpreter_semantic)

    return call


def _call(function: Any, *arguments: Any, **options: Any) -> Any:
    """Call a helper from a kernel. It takes the place of ``InterpretedFunction.__call__``."""
    return _prepared(function)(*arguments, **options)


@cache
def _prepared(function: Any) -> Callable[..., Any]:
    return prepare(function)


def _first_def(rewriter: Any, lines: list[str]) -> int:
    return next((i for i, line in enumerate(lines, start=1) if line.strip().startswith("def ")), 0)


class _Format(str):
    """The name of a format, for Triton before 3.8 also with the attribute that a ``tl.constexpr`` has."""

    __slots__ = ()

    @property
    def value(self) -> str:
        return str(self)


class _Semantic(TritonSemantic):  # type: ignore[misc]
    def dot_scaled(
        self, lhs: Any, lhs_scale: Any, lhs_format: Any, rhs: Any, rhs_scale: Any, rhs_format: Any, *rest: Any
    ) -> Any:
        formats = _Format(_plain(lhs_format)), _Format(_plain(rhs_format))
        return super().dot_scaled(lhs, lhs_scale, formats[0], rhs, rhs_scale, formats[1], *rest)


_transform_as_triton_does = upstream.FunctionRewriter._transform_ast


def _transformed(rewriter: Any, source: str) -> ast.AST:
    """Rewrite a function. Names of builtins that its module defines itself are left alone."""
    rewriter.ast_transformer = _Transformer(frozenset(_REPLACED) - rewriter.fn.__globals__.keys())
    tree: ast.AST = _transform_as_triton_does(rewriter, source)
    return tree


class _Transformer(upstream.ASTTransformer):  # type: ignore[misc]
    """Triton's rewriting of a kernel, and the builtins that mean something else in one."""

    def __init__(self, builtins: frozenset[str]) -> None:
        super().__init__()
        self.builtins = builtins

    def visit_Assign(self, node: ast.Assign) -> ast.AST:  # noqa: N802 - the name that ast looks for
        node.targets = [self.visit(target) for target in node.targets]
        convert = ast.Attribute(ast.Name("interpreter_semantic", ast.Load()), "to_tensor", ast.Load())
        node.value = ast.Call(convert, [self.visit(node.value), ast.Constant(False)], [])
        return node

    def visit_Call(self, node: ast.Call) -> ast.AST:  # noqa: N802
        self.generic_visit(node)
        if isinstance(node.func, ast.Name) and node.func.id in self.builtins:
            node.func.id = _REPLACED[node.func.id]
        return node
