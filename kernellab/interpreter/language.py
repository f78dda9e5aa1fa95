"""Makes Triton's interpreter, in this process, the checked one.

This is the one place that assigns into Triton. `checked_builder` is called in interpreter workers only: processes that
are started with ``TRITON_INTERPRET=1`` and never compile. Triton patches ``triton.language`` anew for every launch and
every call of a helper; here it is patched once, for good.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import sys
from collections.abc import Callable
from contextlib import suppress
from functools import cache
from types import SimpleNamespace
from typing import Any

import triton.language as tl
from triton.language.semantic import TritonSemantic
from triton.runtime import interpreter as upstream

from kernellab._triton.loading import UNWRAPPED
from kernellab.interpreter import reductions, syntax
from kernellab.interpreter.access import CheckedBuilder
from kernellab.interpreter.arguments import is_constexpr
from kernellab.interpreter.values import Handle, numpy_dtype, reuse_types

_CUDA_LIBRARY = "triton.language.extra.cuda.libdevice"
_EXTRA = tuple(f"triton.language.extra.{name}" for name in ("cuda", "cuda.utils", "cuda.gdc", "hip", "hip.utils"))
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
    vars(upstream).update(syntax.names())
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


def _patch_language(builder: CheckedBuilder) -> None:
    everything = SimpleNamespace(__globals__={"tl": tl, "core": tl.core})
    scope = upstream._patch_lang(everything)
    _patch_library(builder, scope)
    syntax.let_tensors_decide()
    reuse_types()
    tl.tensor.__index__ = _index
    tl.dtype.to_ir = lambda dtype, builder: dtype
    for language in (tl, tl.core):
        language.reduce = reductions.reduce
        language.associative_scan = reductions.associative_scan
        if hasattr(language, "map_elementwise"):
            language.map_elementwise = reductions.map_elementwise
        language.range = syntax.loop
        language.static_assert = syntax.static_assert
        language.static_print = lambda *values, **options: _static_print(builder, *values)


def _patch_library(builder: CheckedBuilder, scope: Any) -> None:
    """Make the functions of libdevice callable, those of the target-independent module too, which are stubs."""
    for name in _EXTRA:
        with suppress(ImportError):  # of another version of Triton
            upstream._patch_builtin(importlib.import_module(name), builder, scope)
    for backend in ("cuda", "hip"):  # which Triton imports twice: this one is no module of `sys.modules`
        upstream._patch_builtin(getattr(tl.extra, backend), builder, scope)
    library, stubs = importlib.import_module(_CUDA_LIBRARY), importlib.import_module(_LIBRARY_STUBS)
    upstream._patch_builtin(library, builder, scope)
    for name in vars(stubs):
        if not name.startswith("_") and hasattr(library, name):
            setattr(stubs, name, getattr(library, name))


def _static_print(builder: CheckedBuilder, *values: Any) -> None:
    """Print once, as at compile time, not once per program."""
    if builder.grid_idx == (0, 0, 0):
        builder.print_line(" ".join(str(syntax.plain(value)) for value in values))


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
    def broadcast_impl_value(self, lhs: Any, rhs: Any) -> Any:
        """Return both operands in one shape; most have it already, which Triton finds out by a long way."""
        if lhs.handle.data.shape == rhs.handle.data.shape and lhs.type.is_block() and rhs.type.is_block():
            return lhs, rhs
        return super().broadcast_impl_value(lhs, rhs)

    def dot_scaled(
        self, lhs: Any, lhs_scale: Any, lhs_format: Any, rhs: Any, rhs_scale: Any, rhs_format: Any, *rest: Any
    ) -> Any:
        formats = _Format(syntax.plain(lhs_format)), _Format(syntax.plain(rhs_format))
        return super().dot_scaled(lhs, lhs_scale, formats[0], rhs, rhs_scale, formats[1], *rest)


_transform_as_triton_does = upstream.FunctionRewriter._transform_ast


def _transformed(rewriter: Any, source: str) -> ast.AST:
    """Rewrite a function. Names of builtins that its module defines itself are left alone."""
    function = rewriter.fn
    parameters = inspect.signature(function).parameters.values()
    constants = {parameter.name for parameter in parameters if is_constexpr(parameter)}
    constants |= function.__globals__.get(UNWRAPPED, frozenset())
    builtins = frozenset(syntax.CALLED) - function.__globals__.keys()
    rewriter.ast_transformer = syntax.Transformer(builtins, frozenset(constants))
    tree: ast.AST = _transform_as_triton_does(rewriter, source)
    return tree
