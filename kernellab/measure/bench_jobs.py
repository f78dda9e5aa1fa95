"""Timing on a GPU, as plain data: what a bench is set up with, what it is asked, and what it answers.

Hooks of configs and of autotuners go along, pickled: what they are given, and which need not be called at all.
"""

from __future__ import annotations

import ast
import inspect
import pickle
import textwrap
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from types import FunctionType
from typing import TYPE_CHECKING, Any

from kernellab.gpu.ipc import Memory, Tables, argument_of
from kernellab.gpu.redzones import Damage
from kernellab.launch.arguments import ArgumentSpec, CannotExport, ScalarSpec, TensorSpec, memory_of
from kernellab.measure.comparison import OutputDifference
from kernellab.source.text import parsed

if TYPE_CHECKING:
    from kernellab.measure.launches import KernelLaunch

NO_GROUP = -1
"""The group of outputs that are like none that is kept: two of these may be equal, or not."""
NOT_COMPARED = -2
"""The group of outputs that say nothing: two launches of one config differ, or there is no room to keep any."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How launches are timed: each by itself or, with ``by_graph``, as the replay of a CUDA graph that holds it.

    ``warmup_ms`` and ``rep_ms`` bound the first measurement of a kernel, None leaves its runs to the job.
    """

    by_graph: bool = False
    warmup_ms: float | None = None
    rep_ms: float | None = None


PLAIN = Manner()
"""Each launch by itself, as often as the job says."""


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """What an output is to hold: ``output`` is a view of the bench's memory, ``value`` one of the reference's.

    ``error`` is the view of its bounds, None where it has none but those that follow from ``unit``, as a `Value`. An
    element that no launch wrote counts as ``fill``, which all elements held before; None where they held different
    values.
    """

    name: str
    output: TensorSpec
    value: TensorSpec
    error: TensorSpec | None = None
    unit: float = 0.0
    fill: float | None = None


LaunchKey = tuple[str, tuple[int, int, int], tuple[tuple[str, ArgumentSpec], ...]]


@dataclass(frozen=True, slots=True)
class BenchKernel:
    """A launch of one compiled kernel: the files of Triton's handle, the arguments, the grid.

    ``hooks`` are its `HookCalls`, pickled, or empty.
    """

    files: tuple[tuple[str, str], ...]
    digest: str
    signature: tuple[tuple[str, object], ...]
    constants: tuple[tuple[int, ...], ...]
    grid: tuple[int, int, int]
    arguments: tuple[tuple[str, ArgumentSpec], ...]
    hooks: bytes = b""

    @property
    def key(self) -> LaunchKey:
        """What tells the launch from others of a bench: two configs may differ in a number that is no constexpr."""
        return self.digest, self.grid, self.arguments


@dataclass(frozen=True, eq=False)
class Setup:
    """The memory that all launches of a bench share; two setups of one name are the same.

    ``read`` are indices of memories that the kernel may read, ``outputs`` the views it may write, by name order of the
    arguments; ``zeroed`` are views that are set to zero before each launch. ``expected`` is the reference, whose values
    lie in ``references``. ``tables`` are the addresses among the arguments, which have to point into this memory.
    ``names`` are the arguments that ``outputs`` belong to; those at the places in ``left_out`` are not compared.
    """

    name: str
    device: int
    memories: tuple[Memory, ...]
    read: frozenset[int]
    outputs: tuple[TensorSpec, ...]
    zeroed: tuple[TensorSpec, ...] = ()
    expected: tuple[ExpectedOutput, ...] = ()
    references: tuple[Memory, ...] = ()
    tables: Tables = field(default_factory=Tables)
    names: tuple[str, ...] = ()
    left_out: frozenset[int] = frozenset()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Setup) and other.name == self.name

    def __hash__(self) -> int:
        return hash(self.name)


@dataclass(frozen=True, slots=True)
class Readiness:
    """What measuring on a device will need.

    Outputs of these dtypes, by torch's names for them and the bytes of an element, are to be compared. What
    ``needs_torch`` are references, hooks, CUDA graphs, memory and outputs of some kinds: see `bench_setup.needs_torch`.
    """

    device: int
    dtypes: tuple[tuple[str, int], ...]
    needs_torch: bool = False


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """For each kernel: launch once, compare the outputs, then time; until one leaves a bench that is good for no more.

    ``references`` are launches that gave the groups of outputs so far: a bench that has lost them makes them again.
    The runs of a kernel are cut short where it takes ``loser_factor`` times the best before it.
    """

    setup: Setup
    kernels: tuple[BenchKernel, ...]
    runs: int
    stop_above_ms: float | None
    references: tuple[BenchKernel, ...] = ()
    manner: Manner = PLAIN
    loser_factor: float = inf


@dataclass(frozen=True, slots=True)
class CompareJob:
    """Launch a kernel once and keep its outputs; then launch others once each, and tell how theirs differ."""

    setup: Setup
    kernel: BenchKernel
    others: tuple[BenchKernel, ...]


@dataclass(frozen=True, slots=True)
class RoundsJob:
    """Time kernels in turns; ``warm`` leaves the L2 as the launch before left it."""

    setup: Setup
    kernels: tuple[BenchKernel, ...]
    rounds: int
    warm: bool = False
    by_graph: bool = False


@dataclass(frozen=True, slots=True)
class BenchTiming:
    """The times of one kernel. ``group`` is that of its outputs, or `NO_GROUP` where they are like none that is kept,
    or `NOT_COMPARED`. ``differing`` is how its outputs differ from those of another kernel, for a `CompareJob`.

    ``fault`` and ``refusal`` are the driver's words. After a fault, the process can do nothing more on the device;
    after ``damages``, the memory of the bench is spoilt. ``difference`` says how outputs differ from the reference, in
    which case nothing was timed; ``bad_hook`` why a hook cannot be called here, ``no_room`` that copies do not fit on
    the device; ``note`` is what the user should know.
    """

    times_ms: tuple[float, ...] = ()
    group: int = 0
    fault: str = ""
    refusal: str = ""
    damages: tuple[Damage, ...] = ()
    difference: str = ""
    bad_hook: str = ""
    no_room: str = ""
    note: str = ""
    differing: tuple[OutputDifference, ...] = ()

    @property
    def is_last(self) -> bool:
        """Whether nothing more can be measured as it was asked for."""
        return bool(self.fault or self.damages or self.bad_hook or self.no_room)


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
