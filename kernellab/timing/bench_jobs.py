"""The requests of a bench to the GPU worker and its answers, as plain data.

Hooks of configs and autotuners travel pickled, with their arguments. Those that only set block shapes stay behind.
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

from kernellab.checking.comparison import OutputDifference
from kernellab.gpu.ipc import Memory, Tables, argument_of
from kernellab.gpu.redzones import Damage
from kernellab.launch.arguments import ArgumentSpec, CannotExport, ScalarSpec, TensorSpec, memory_of
from kernellab.source.text import parse_python

if TYPE_CHECKING:
    from kernellab.timing.launches import KernelLaunch

NO_GROUP = -1
"""The group of outputs unlike all groups that are kept; two outputs of this group may differ."""
NOT_COMPARED = -2
"""The group of outputs that were not compared: two launches of a config differ, or there is no room to keep any."""


@dataclass(frozen=True, slots=True)
class Manner:
    """How launches are timed: singly or, with ``by_graph``, as the replay of a CUDA graph that holds one launch.

    ``warmup_ms`` and ``rep_ms`` limit the first measurement of a kernel; where None, the job sets its runs.
    """

    by_graph: bool = False
    warmup_ms: float | None = None
    rep_ms: float | None = None


PLAIN = Manner()
"""Each launch by itself, as often as the job asks for."""


@dataclass(frozen=True, slots=True)
class ExpectedOutput:
    """The expected value of an output: ``output`` is a view of the bench's memory, ``value`` one of the reference's.

    ``error`` is the view of its bounds, None where they follow from ``unit`` alone, as in `ExpectedValue`. An unwritten
    element counts as ``fill``, the initial value of all elements; None where the initial values differ.
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
        """The identity of the launch in a bench: two configs of one binary may differ in a plain number."""
        return self.digest, self.grid, self.arguments


@dataclass(frozen=True, eq=False)
class Setup:
    """The memory that all launches of a bench share; two setups of one name are the same.

    ``read`` are indices of memories that the kernel may read. ``outputs`` are the views it may write, ``names`` their
    arguments; those at the indices in ``left_out`` are not compared. ``zeroed`` are views that are set to zero before
    each launch. ``expected`` is the reference, with its values in ``references``. ``tables`` are the addresses among
    the arguments; they have to point into this memory.
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
    """The needs of a bench that the worker can load before the first measurement.

    ``dtypes`` are those of the outputs to compare: torch's name and the bytes of an element. References, hooks, CUDA
    graphs, and some kinds of memory and outputs need torch: see `bench_setup.needs_torch`.
    """

    device: int
    dtypes: tuple[tuple[str, int], ...]
    needs_torch: bool = False


@dataclass(frozen=True, slots=True)
class MeasureJob:
    """Launch each kernel once, compare its outputs, then time it; stop after a failure that spoils the bench.

    ``references`` are the first launches of the groups of outputs so far: a bench that has lost a group repeats its
    launch. A kernel that takes ``loser_factor`` times the best before it is timed no further.
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
    """Launch a kernel and keep its outputs; launch each of the others and report how its outputs differ."""

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
    """The times of one kernel, or its failure.

    ``group`` is the number of the group equal to its outputs, or `NO_GROUP`, or `NOT_COMPARED`. ``differing`` are the
    differences from the outputs of another kernel, for a `CompareJob`. ``fault`` and ``refusal`` are messages of the
    driver. After a fault, the device is unusable in this process; after ``damages``, so is the memory of the bench.
    With a ``difference`` from the reference, nothing was timed. ``bad_hook`` says why a hook cannot be called here,
    ``no_room`` that copies do not fit on the device; ``note`` is for the user.
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
    """The hooks of a launch and their arguments, without the tensors.

    ``before`` are called with the arguments and the options by name; ``after`` as the ``post_hook`` of an autotuner,
    also with ``exception``. ``values`` are the arguments that are no tensors.
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
        """Call the hooks that precede a launch."""
        for hook in self.calls.before:
            hook(dict(self.arguments))

    def after(self, exception: Exception | None) -> None:
        """Call the hook that follows a launch, with the exception of the launch or None."""
        if self.calls.after is not None:
            self.calls.after(dict(self.arguments), exception=exception)


class BadHook(Exception):
    """A hook that cannot be called in this process."""


def bound_hooks(calls: HookCalls, specs: Sequence[tuple[str, ArgumentSpec]], memories: Sequence[Any]) -> BoundHooks:
    """Bind hooks to the arguments of a bench; ``memories`` are tensors of bytes, one per storage of ``specs``."""
    named = {
        name: calls.values.get(name) if isinstance(spec, ScalarSpec) else argument_of(spec, memories)
        for name, spec in specs
    }
    return BoundHooks(calls, {**named, **calls.options})


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


IN_WORKER = "the hooks of the configs were called in the GPU worker, on copies of the arguments and of what they use"


def hook_calls(launch: KernelLaunch) -> HookCalls:
    """Return the hooks of a launch with its non-tensor arguments."""
    memory = memory_of(launch.arguments)
    values = {name: value for name, value in launch.arguments.items() if name not in memory}
    return HookCalls(launch.before, launch.after, values, launch.options)


def pickle_hooks(launch: KernelLaunch) -> bytes:
    """Pickle the hooks of a launch for another process; empty where it has none.

    Raises:
        CannotExport: cloudpickle is not installed, or cannot pickle them.
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
    """Keep plain values only: the bench has copies of tensors, and functions of Triton do not pickle."""
    plain = (bool, int, float, str, bytes, type(None))
    return {name: value for name, value in values.items() if isinstance(value, plain)}


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
        tree = parse_python(textwrap.dedent(inspect.getsource(hook)))
    except (OSError, TypeError, SyntaxError):
        return False
    definition = tree.body[0]
    if not isinstance(definition, ast.FunctionDef) or definition.decorator_list:
        return False
    return all(map(_is_harmless, _body_nodes(definition)))


def _body_nodes(definition: ast.FunctionDef) -> Iterator[ast.AST]:
    """Yield the nodes of a function's body, without its annotations."""
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
