"""Hooks of configs and of autotuners: what they are given, which need not be called, and how they reach a worker."""

from __future__ import annotations

import ast
import inspect
import pickle
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kernellab.gpu.ipc import CannotExport, argument_of
from kernellab.launch.arguments import ArgumentSpec, ScalarSpec
from kernellab.launch.memory import memory_of
from kernellab.source.text import parsed

if TYPE_CHECKING:
    from kernellab.measure.launches import KernelLaunch

Hook = Callable[[dict[str, Any]], Any]


@dataclass(frozen=True)
class HookCalls:
    """What is called around a launch, and what it is given beside the tensors.

    ``before`` are called with the arguments by name, and the options; ``after`` as the ``post_hook`` of an autotuner,
    also with ``exception``. ``values`` are the arguments that are no memory.
    """

    before: tuple[Callable[[dict[str, Any]], Any], ...]
    after: Callable[..., Any] | None
    values: Mapping[str, Any]
    options: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class BoundHooks:
    """The hooks of a kernel with the arguments that a bench launches it on."""

    calls: HookCalls
    arguments: Mapping[str, Any]

    def before(self) -> None:
        """Call what is to be called before a launch."""
        for hook in self.calls.before:
            hook(dict(self.arguments))

    def after(self, exception: Exception | None) -> None:
        """Call what is to be called after a launch, with what it raised."""
        if self.calls.after is not None:
            self.calls.after(dict(self.arguments), exception=exception)


class BadHook(Exception):
    """A hook that cannot be called in this process."""


def bound_hooks(calls: HookCalls, specs: Sequence[tuple[str, ArgumentSpec]], memories: Sequence[Any]) -> BoundHooks:
    """Return hooks with the arguments of a bench; ``memories`` are tensors of bytes, one per storage of ``specs``."""
    named = {
        name: calls.values.get(name) if isinstance(spec, ScalarSpec) else argument_of(spec, memories)
        for name, spec in specs
    }
    return BoundHooks(calls, {**named, **calls.options})


def loaded_hooks(data: bytes) -> HookCalls:
    """Return hooks that were pickled in the notebook's process.

    Raises:
        BadHook: they cannot be made again here.
    """
    try:
        calls: HookCalls = pickle.loads(data)
    except Exception as exc:
        raise BadHook(f"{type(exc).__name__}: {exc}") from exc
    return calls


IN_WORKER = "the hooks of the configs were called in the GPU worker, on copies of the arguments and of what they use"


def hook_calls(launch: KernelLaunch) -> HookCalls:
    """Return what is called around a launch, with the arguments that are no memory."""
    memory = memory_of(launch.arguments)
    values = {name: value for name, value in launch.arguments.items() if name not in memory}
    return HookCalls(launch.before, launch.after, values, launch.options)


def shipped_hooks(launch: KernelLaunch) -> bytes:
    """Return the hooks of a launch as bytes for another process; nothing where it has none.

    Raises:
        CannotExport: cloudpickle is not installed, or cannot take them.
    """
    if not launch.has_hooks:
        return b""
    try:
        import cloudpickle
    except ImportError as exc:
        raise CannotExport("the configs have hooks, and cloudpickle, which could take them along, is missing") from exc
    calls = hook_calls(launch)
    try:
        return bytes(cloudpickle.dumps(HookCalls(calls.before, calls.after, _portable(calls.values), calls.options)))
    except Exception as exc:
        raise CannotExport(f"the configs have hooks that cannot be taken along ({type(exc).__name__}: {exc})") from exc


def _portable(values: Mapping[str, Any]) -> dict[str, Any]:
    """Leave out what holds memory, which the bench has copies of, and functions of Triton."""
    plain = (bool, int, float, str, bytes, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}


_HARMLESS_CALLS = frozenset({"isinstance", "len", "min", "max", "int", "bool", "list", "tuple"})
_HARMLESS_NODES = (
    ast.FunctionDef, ast.arguments, ast.arg, ast.Return, ast.Assign, ast.Expr, ast.If, ast.Pass, ast.Name, ast.Constant,
    ast.Subscript, ast.Attribute, ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.List, ast.Tuple,
    ast.Call, ast.GeneratorExp, ast.comprehension, ast.operator, ast.unaryop, ast.boolop, ast.cmpop, ast.expr_context,
)  # fmt: skip


def sets_blocks_alone(hook: Hook) -> bool:
    """Tell whether all that a hook can do is to set ``block_shape`` of descriptors that it is given.

    Its effect is then in the arguments of the launch, and nothing is left to call. That goes by its text: assignments
    to names and to ``block_shape``, branches, arithmetic, and calls of a few functions that change nothing.
    """
    if not isinstance(hook, FunctionType) or hook.__name__ == "<lambda>":
        return False
    try:
        tree = parsed(textwrap.dedent(inspect.getsource(hook)))
    except (OSError, TypeError, SyntaxError):
        return False
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return False
    return all(map(_is_harmless, _executed(definition)))


def _executed(definition: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield what a call of a function executes: not its annotations."""
    yield from (node for statement in definition.body for node in ast.walk(statement))


def _is_harmless(node: ast.AST) -> bool:
    if isinstance(node, ast.Call):
        called = node.func
        return (isinstance(called, ast.Name) and called.id in _HARMLESS_CALLS) or (
            isinstance(called, ast.Attribute) and called.attr == "get"
        )
    if isinstance(node, ast.Subscript):
        return isinstance(node.ctx, ast.Load)
    if isinstance(node, ast.Attribute):
        return isinstance(node.ctx, ast.Load) or (isinstance(node.ctx, ast.Store) and node.attr == "block_shape")
    return isinstance(node, _HARMLESS_NODES)
