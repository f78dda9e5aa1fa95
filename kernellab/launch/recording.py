"""Observers of launches, per thread, and the records of launches.

In the timeline of a profiler, that of torch or one that shows NVTX, a launch has a mark under the name of its kernel.
Launches of programs are marked always, and cost a microsecond for it; those that take the fast path are marked inside
`mark_all_launches` alone.

A grid function such as ``lambda meta: (triton.cdiv(count, meta["BLOCK"]),)`` names variables of a notebook, which
exist only there. So grids and references are stored with symbolic arguments: each variable is replaced by the parameter
that had its value.
"""

from __future__ import annotations

import ast
import builtins
import inspect
import re
import textwrap
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FunctionType, ModuleType
from typing import Any

from kernellab._triton.closure import decorated_closure_of
from kernellab._triton.drivers import hook_launches
from kernellab._triton.kernel import JitKernel, Kernel, definition
from kernellab.compile.types import Compiled
from kernellab.errors import LaunchError, SourceError
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import memory_of
from kernellab.launch.bound_launch import BoundLaunch
from kernellab.launch.calls import Grid3
from kernellab.launch.modes import bypass_modes
from kernellab.launch.poison import Key
from kernellab.launch.run import Run
from kernellab.launch.undo_log import UndoLog
from kernellab.launch.value_samples import ValueSample, changing_storages, samples_of_changing
from kernellab.source import Closure, lambda_definition
from kernellab.workers.forks_and_interrupts import is_fork, rlock

_MODULES = {"triton": "triton", "triton.language": "tl", "torch": "torch", "math": "math"}


Observe = Callable[[BoundLaunch], None]


class Observers:
    """The observers of each thread, in the order of their registration."""

    def __init__(self) -> None:
        self._local = threading.local()
        self._followers: tuple[tuple[Observe, Callable[[], bool]], ...] = ()

    @contextmanager
    def added(self, observe: Observe, follows: Callable[[], bool] = lambda: False) -> Iterator[None]:
        """Report the launches of this thread inside a with statement to ``observe``.

        Also of those of another thread in which ``follows`` holds: torch runs the backward pass of a GPU in such.
        """
        before, followers = self._of_thread(), self._followers
        self._local.observers = (*before, observe)
        self._followers = (*followers, (observe, follows))
        try:
            yield
        finally:
            self._local.observers = before
            self._followers = tuple(each for each in self._followers if each[0] is not observe)

    @contextmanager
    def withheld(self) -> Iterator[None]:
        """Mark the launches of this thread inside a with statement as the lab's own."""
        self._local.withheld = self.is_withheld + 1
        try:
            yield
        finally:
            self._local.withheld -= 1

    @property
    def is_withheld(self) -> int:
        """The number of nested with statements of `withheld` in this thread."""
        return getattr(self._local, "withheld", 0)

    @property
    def are_there(self) -> bool:
        """Whether this thread has any."""
        return bool(self._listening())

    def report(self, launch: BoundLaunch) -> None:
        """Report a launch to the observers of this thread."""
        for observe in self._listening():
            observe(launch)

    def _listening(self) -> tuple[Observe, ...]:
        own = self._of_thread()
        if not self._followers:
            return own
        return (*own, *(observe for observe, follows in self._followers if observe not in own and follows()))

    def _of_thread(self) -> tuple[Observe, ...]:
        return getattr(self._local, "observers", ())


@dataclass(slots=True)
class LaunchRecord:
    """The launches of one specialization of one kernel while a recorder watched.

    ``kernel`` is the jit function; ``owner`` is what was launched, decorators and all, and ``closure`` that with all
    that it captured, as it was then: None where its source is not known. ``given_grid`` is the last grid as the user
    gave it: a function, or extents. ``where`` it ran is told here if ``run`` does not tell it. ``first`` and ``last``
    are the numbers of its launches in the recorder's undo log, 0 where that keeps nothing. ``before`` samples what
    arguments of the last launch held that it, or a later launch, has read and changed.
    """

    kernel: JitKernel
    compiled: Compiled
    arguments: Mapping[str, Any]
    owner: Kernel
    grid: Grid3 | None = None
    launches: int = 0
    run: Run | None = None
    given_grid: Any = None
    closure: Closure | None = None
    where: str = "nowhere"
    first: int = 0
    last: int = 0
    before: Mapping[str, ValueSample] = field(default_factory=dict)


def record_of(launch: BoundLaunch, where: str = "nowhere") -> LaunchRecord:
    """The record of a launch that this thread is making; its count is 0, its grid not set."""
    owner = launch.kernel.launched_as
    try:
        closure = decorated_closure_of(owner)
    except SourceError:
        closure = None
    return LaunchRecord(
        launch.kernel,
        launch.compiled,
        launch.arguments,
        owner,
        given_grid=launch.given_grid,
        closure=closure,
        where=where,
        before=launch.before,
    )


def can_read(arguments: Mapping[str, Any]) -> bool:
    """Whether arguments can be read now: not those on a GPU in a fork, or while a CUDA graph captures the launch."""
    import torch  # a launch needs it anyway

    on_gpu = any(tensor.is_cuda for tensor in memory_of(arguments).values())
    return not (on_gpu and (is_fork() or torch.cuda.is_current_stream_capturing()))


@dataclass(slots=True)
class Recorder:
    """Collects launches, one record per specialization, in the order of their first launch.

    ``timeout_s`` limits each launch in a worker; with ``run`` false, launches are compiled only; with ``isolate``
    false, first launches on a GPU are not tried in the worker; with ``interpret``, none runs on a GPU.
    ``uninitialised`` names arguments whose contents count as never written on the CPU. With ``poison``, outputs are
    filled with a pattern before each launch, and ``unwritten`` holds masks of the elements that no launch wrote. With
    ``undoes``, launches can be undone by the ``undo`` log. ``follows`` tells whether launches of another thread are
    recorded, too.
    Kernels with the same code count as one: a function may make the kernel anew each time that it launches it.
    """

    timeout_s: float | None = None
    run: bool = True
    isolate: bool = True
    interpret: bool = False
    uninitialised: frozenset[str] = frozenset()
    poison: bool = False
    undoes: bool = False
    unwritten: dict[Key, Any] = field(default_factory=dict)
    undo: UndoLog = field(default_factory=UndoLog)
    follows: Callable[[], bool] = lambda: False
    records: dict[tuple[int, str], LaunchRecord] = field(default_factory=dict)
    lock: Any = field(default_factory=rlock)

    def has(self, kernel: JitKernel, compiled: Compiled) -> bool:
        """Whether a specialization of a kernel was launched or compiled before."""
        return (id(kernel.fn.__code__), compiled.digest) in self.records

    @bypass_modes()
    def keep_before(self, arguments: Mapping[str, Any], effects: Effects) -> None:
        """Save the memory that the next launch may change, so that it can be undone."""
        wanted = [number for record in self.records.values() for number in (record.first, record.last) if number]
        self.undo.begin(arguments, effects, wanted)

    def sample_earlier(self, arguments: Mapping[str, Any], effects: Effects) -> None:
        """Sample the inputs of earlier launches that the next launch may change."""
        if storages := changing_storages(arguments, effects):
            for record in self.records.values():
                read = samples_of_changing(record.arguments, record.compiled.effects, storages)
                record.before = {**read, **record.before}

    def note(self, launch: BoundLaunch, *, is_launched: bool = True) -> None:
        """Record a launch, or a compile alone."""
        with self.lock:
            key = (id(launch.kernel.fn.__code__), launch.compiled.digest)
            if key not in self.records:
                self.records[key] = record_of(launch)
            record = self.records[key]
            record.arguments, record.before = launch.arguments, launch.before
            record.given_grid = launch.given_grid or record.given_grid
            if is_launched:
                record.grid = launch.grid
            record.launches += is_launched
            record.run = launch.run or record.run
            record.last = self.undo.number
            record.first = record.first or record.last

    def last_run(self, kernel: Kernel) -> Run:
        """The run of the last launch.

        Raises:
            LaunchError: ``kernel`` launched nothing.
        """
        if not self.records:
            raise LaunchError(f"{kernel!r} launched nothing.")
        record = list(self.records.values())[-1]
        if record.run is not None:
            return record.run
        empty = ("the grid is empty: nothing was launched",)
        return Run(record.compiled.kernel, record.grid or (0, 1, 1), 0.0, {}, (), "nowhere", notes=empty)


class Switch:
    """Counts the recorders of all threads; while there is one, all launches take the slow path.

    In a thread where somebody wants to, ``send`` launches kernels in their place.
    """

    def __init__(self) -> None:
        self.slow = 0
        self._local = threading.local()
        self._lock = rlock()

    @contextmanager
    def on(self) -> Iterator[None]:
        """Send all launches the slow path inside a with statement."""
        with self._lock:
            self.slow += 1
        try:
            yield
        finally:
            with self._lock:
                self.slow -= 1

    @contextmanager
    def sending(self, send: Callable[..., Any]) -> Iterator[None]:
        """Let ``send`` make the launches of this thread inside a with statement."""
        before, self._local.send = self.send, send
        try:
            yield
        finally:
            self._local.send = before

    @property
    def send(self) -> Callable[..., Any] | None:
        """The function that makes this thread's launches from (kernel, grid, arguments, options), or None."""
        return getattr(self._local, "send", None)


_THREAD = threading.local()


@contextmanager
def mark_launch(name: str) -> Iterator[None]:
    """Mark a with statement in profiler timelines as the launch of a kernel.

    torch's own recorder in C++ is taken where there is one: unlike ``record_function`` it is no operation of torch, so
    that no tracer takes it into a graph.
    """
    is_outer = not getattr(_THREAD, "is_marked", False)
    _THREAD.is_marked = True
    try:
        with _mark(name) if is_outer else ExitStack():
            yield
    finally:
        _THREAD.is_marked = not is_outer


@contextmanager
def mark_all_launches() -> Iterator[None]:
    """Mark each launch, of any kernel and thread, in profiler timelines; launches leave the fastest path for it."""

    def enter(name: str) -> None:
        leave()  # a launch that failed never ended
        if not getattr(_THREAD, "is_marked", False):
            _THREAD.open = ExitStack()
            _THREAD.open.enter_context(_mark(name))

    def leave() -> None:
        held = getattr(_THREAD, "open", None)
        _THREAD.open = None
        if held is not None:
            held.close()

    with hook_launches(enter, leave):
        try:
            yield
        finally:
            leave()


@contextmanager
def _mark(name: str) -> Iterator[None]:
    import torch

    profiler: Any = torch._C._profiler
    cuda: Any = torch.cuda
    recorder = getattr(profiler, "_RecordFunctionFast", torch.profiler.record_function)
    with recorder(name):
        if not cuda.is_initialized():
            yield
            return
        cuda.nvtx.range_push(name)
        try:
            yield
        finally:
            cuda.nvtx.range_pop()


def symbolic_grid(grid: FunctionType, arguments: Mapping[str, Any]) -> str:
    """A grid function as the text of a lambda over the kernel's parameters, or "" if that is impossible."""
    try:
        node = _as_lambda(grid)
    except SourceError:
        return ""
    if node is None or len(node.args.args) != 1:
        return ""
    scope = inspect.getclosurevars(grid)
    named = _named_numbers(node, arguments)
    return "" if named is None else symbolic_expression(named, {**scope.globals, **scope.nonlocals}, arguments)


def symbolic_expression(node: ast.expr, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> str:
    """An expression as text with every name of ``scope`` replaced by a parameter, or "" if one has none."""
    bound = {each.arg for part in ast.walk(node) if isinstance(part, ast.Lambda) for each in part.args.args}
    replacement: dict[str, ast.expr] = {}
    for part in ast.walk(node):
        if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load) and part.id not in bound:
            symbol = part.id if part.id in arguments and part.id not in scope else _symbol_of(part.id, scope, arguments)
            if symbol is None:
                return ""
            replacement[part.id] = ast.parse(symbol, mode="eval").body
    return ast.unparse(_ReplaceNames(replacement).visit(node))


def _named_numbers(node: ast.expr, arguments: Mapping[str, Any]) -> ast.expr | None:
    """An expression with its large numbers replaced by the parameters of these values.

    What no parameter had is a number of the user's. None where several parameters had it.
    """
    sizes = {n.value for n in ast.walk(node) if isinstance(n, ast.Constant) and type(n.value) is int and n.value > 16}
    symbols = {size: _symbols_of_number(size, arguments) for size in sizes}
    if any(len(each) > 1 for each in symbols.values()):
        return None
    text = ast.unparse(node)
    for size, (name, *_) in ((size, each) for size, each in symbols.items() if each):
        text = re.sub(rf"\b{size}\b", name, text)
    return ast.parse(text, mode="eval").body


class _ReplaceNames(ast.NodeTransformer):
    def __init__(self, replacement: Mapping[str, ast.expr]) -> None:
        self.replacement = replacement

    def visit_Name(self, node: ast.Name) -> ast.expr:
        return self.replacement.get(node.id, node)


def _as_lambda(grid: FunctionType) -> ast.Lambda | None:
    """A lambda, or a function of one return statement, as a lambda."""
    if grid.__name__ == "<lambda>":
        return lambda_definition(grid)[2]
    node = ast.parse(textwrap.dedent(definition(grid)[0])).body[0]
    assert isinstance(node, ast.FunctionDef)
    body = node.body[1:] if ast.get_docstring(node) is not None else node.body
    if len(body) != 1 or not isinstance(body[0], ast.Return) or body[0].value is None:
        return None
    bare = [ast.arg(argument.arg) for argument in node.args.args]
    return ast.Lambda(ast.arguments([], bare, None, [], [], None, []), body[0].value)


def _symbol_of(name: str, scope: Mapping[str, Any], arguments: Mapping[str, Any]) -> str | None:
    """The symbol of a name: a parameter, an extent of one, or a module; None if there is none."""
    if name not in scope:
        return name if hasattr(builtins, name) else None
    value = scope[name]
    if isinstance(value, ModuleType):
        return _MODULES.get(value.__name__)
    if hasattr(value, "data_ptr"):
        return next((parameter for parameter, argument in arguments.items() if argument is value), None)
    if type(value) is not int:
        return None
    if name in arguments and type(arguments[name]) is int and arguments[name] == value:
        return name
    symbols = _symbols_of_number(value, arguments)
    return symbols[0] if len(symbols) == 1 else None


def _symbols_of_number(value: int, arguments: Mapping[str, Any]) -> list[str]:
    """The possible symbols of a number: parameters of that value, else extents. It must be unique to be used.

    A parameter that holds the stride of a tensor, which an extent may equal by chance, is one of two. The length of a
    vector is that of the rows or columns of a matrix, where one has it.
    """
    shapes = {name: tuple(getattr(argument, "shape", ())) for name, argument in arguments.items()}
    axes = {(name, axis): shape for name, shape in shapes.items() for axis, n in enumerate(shape) if n == value}
    extents = [f"{name}.shape[{axis}]" for name, axis in axes]
    parameters = [name for name, argument in arguments.items() if type(argument) is int and argument == value]
    if parameters:
        is_stride = any(
            value in argument.stride() for argument in arguments.values() if hasattr(argument, "untyped_storage")
        )
        return [*parameters, *(extents if is_stride else ())]
    meanings = {(axis, shape) for (_, axis), shape in axes.items() if len(shape) > 1}
    return extents if len(meanings) > 1 else extents[:1]
