"""Hooks of configs and autotuners; they travel pickled, but for those that set block shapes alone."""

from __future__ import annotations

import ast
import inspect
import pickle
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from types import FunctionType
from typing import Any

from kernellab.gpu.ipc import argument_of
from kernellab.launch.arguments import ArgumentSpec, CannotExport, ScalarSpec
from kernellab.source.text import parse_python

Hook = Callable[[dict[str, Any]], Any]
IN_WORKER = "the hooks of the configs were called in the GPU worker, on copies of the arguments and of what they use"
_PLAIN = (bool, int, float, str, bytes, type(None))


class BadHook(Exception):
    """A hook that cannot be called in this process."""


@dataclass(frozen=True, eq=False)
class HookCalls:
    """The hooks of a launch and their arguments by name, options included.

    ``before`` are called with the arguments; ``after`` as the ``post_hook`` of an autotuner, also with ``exception``.
    Until the hooks are bound to the memory of a bench, tensors are missing among the arguments.
    """

    before: tuple[Hook, ...]
    after: Callable[..., Any] | None
    arguments: Mapping[str, Any]

    def bound(self, specs: Sequence[tuple[str, ArgumentSpec]], memories: Sequence[Any]) -> HookCalls:
        """Bind the hooks to the arguments of a bench; ``memories`` are tensors of bytes, one per storage."""
        named = {
            name: self.arguments.get(name) if isinstance(spec, ScalarSpec) else argument_of(spec, memories)
            for name, spec in specs
        }
        return replace(self, arguments={**self.arguments, **named})

    def call_before(self) -> None:
        """Call the hooks that precede a launch."""
        for hook in self.before:
            hook(dict(self.arguments))

    def call_after(self, exception: Exception | None) -> None:
        """Call the hook that follows a launch, with the exception of the launch or None."""
        if self.after is not None:
            self.after(dict(self.arguments), exception=exception)


def pickle_hooks(calls: HookCalls) -> bytes:
    """Pickle hooks for another process, with their plain arguments: functions of Triton do not pickle.

    Raises:
        CannotExport: cloudpickle is not installed, or cannot pickle them.
    """
    try:
        import cloudpickle
    except ImportError as exc:
        raise CannotExport("the configs have hooks, and cloudpickle, which could take them along, is missing") from exc
    plain = {name: value for name, value in calls.arguments.items() if isinstance(value, _PLAIN)}
    try:
        return bytes(cloudpickle.dumps(replace(calls, arguments=plain)))
    except Exception as exc:
        raise CannotExport(f"the configs have hooks that cannot be taken along ({type(exc).__name__}: {exc})") from exc


def unpickle_hooks(data: bytes) -> HookCalls:
    """Unpickle hooks of the notebook's process.

    Raises:
        BadHook: they cannot be unpickled here.
    """
    try:
        calls: HookCalls = pickle.loads(data)
    except Exception as exc:
        raise BadHook(f"{type(exc).__name__}: {exc}") from exc
    return calls


_HARMLESS_CALLS = frozenset({"isinstance", "len", "min", "max", "int", "bool", "list", "tuple"})
_HARMLESS_NODES = (
    ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.Expr, ast.If, ast.Pass, ast.Name, ast.Constant,
    ast.Subscript, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple,
    ast.Call, ast.GeneratorExp, ast.comprehension, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip


def sets_blocks_alone(hook: Hook) -> bool:
    """Whether the only effect of a hook is to set ``block_shape`` of descriptors among its arguments.

    The arguments of the launch then have that effect, and the hook need not be called. Its text decides: assignments to
    names and to ``block_shape``, branches, arithmetic, and calls of a few pure functions.
    """
    if not isinstance(hook, FunctionType) or hook.__name__ == "<lambda>":
        return False
    try:
        definition = parse_python(textwrap.dedent(inspect.getsource(hook))).body[0]
    except (OSError, TypeError, SyntaxError):
        return False
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return False
    return all(_is_harmless(node) for statement in definition.body for node in ast.walk(statement))


def _is_harmless(node: ast.AST) -> bool:
    match node:
        case ast.Call(func=ast.Name(id=name)):
            return name in _HARMLESS_CALLS
        case ast.Call(func=function):
            return isinstance(function, ast.Attribute) and function.attr == "get"
        case ast.Subscript():
            return isinstance(node.ctx, ast.Load)
        case ast.Attribute():
            return isinstance(node.ctx, ast.Load) or (isinstance(node.ctx, ast.Store) and node.attr == "block_shape")
    return isinstance(node, _HARMLESS_NODES)
