"""Records the values of a kernel's lines: adds calls to its parsed text, and keeps what they are given.

Only functions of a closure that was loaded for recording have these calls; others, and those of Triton's own library,
run as ever.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
import triton.language as tl

from kernellab.errors import plural
from kernellab.interpreter.faults import Line, current_line
from kernellab.interpreter.memory import CheckedMemory
from kernellab.interpreter.values import Array, Handle, plain
from kernellab.launch.recorded_values import (
    NonFinite,
    NonFiniteEvent,
    Program,
    RecordedValue,
    RecordRequest,
    ValueKind,
    steps_within,
    summary_of,
)
from kernellab.source.sites import Site, SiteKind, statements_with_sites

_BYTES_WHEN_FULL = 4096
_MOST_VALUES = 1 << 18
_MOST_POSITIONS = 1 << 9
_MOST_EVENTS = 1 << 10


@dataclass(slots=True)
class RecordingSites:
    """The sites of all functions that were loaded for recording, by number; ``files`` are those of their functions."""

    sites: list[Site] = field(default_factory=list)
    files: list[str] = field(default_factory=list)

    def add(self, site: Site, file: str) -> int:
        """Return the number of a new site."""
        self.sites.append(site)
        self.files.append(file)
        return len(self.sites) - 1


def add_record_calls(
    file: str, added_lines: int, recorded: RecordingSites, call: Callable[..., ast.expr], function: ast.FunctionDef
) -> None:
    """Add the calls that record values to a parsed function.

    ``call`` makes the call of one of `CALLS` by its name, at the place of a node and with expressions as arguments.
    """
    numbers = {
        id(statement): recorded.add(site, file) for statement, site in statements_with_sites(function, added_lines)
    }
    inserter = _Inserter(numbers, recorded.sites, added_lines, call)
    parameters = [*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs]
    names = ast.Dict([ast.Constant(p.arg) for p in parameters], [ast.Name(p.arg, ast.Load()) for p in parameters])
    place = ast.Constant(function.lineno + added_lines)
    body = [part for statement in function.body for part in inserter.expand(statement)]
    leave = _statement(call("leave_function", function))
    enter = _statement(call("enter_function", function, ast.Constant(function.name), place, names))
    function.body = [enter, ast.Try(body, [], [], [leave])]


def _statement(expression: ast.expr) -> ast.stmt:
    return ast.copy_location(ast.Expr(expression), expression)


@dataclass(slots=True)
class _Inserter:
    numbers: dict[int, int]
    sites: list[Site]
    added_lines: int
    call: Callable[..., ast.expr]

    def expand(self, statement: ast.stmt) -> list[ast.stmt]:
        """The statement with the calls before, in and after it."""
        number = self.numbers.get(id(statement))
        line = ast.Constant(statement.lineno + self.added_lines)
        before = [self._call("begin_statement", statement, ast.Constant(number), line)]
        if isinstance(statement, ast.For | ast.While):
            return [*before, *self._loop(statement, number)]
        if isinstance(statement, ast.Return) and number is not None:
            assert statement.value is not None, "a return without a value has no site"
            statement.value = self.call("record_return", statement, ast.Constant(number), statement.value)
            return [*before, statement]
        for name in ("body", "orelse"):
            if isinstance(getattr(statement, name, None), list):
                setattr(statement, name, self._block(getattr(statement, name)))
        return [*before, statement, *([] if number is None else self._names(statement, number))]

    def _block(self, statements: Iterable[ast.stmt]) -> list[ast.stmt]:
        return [part for statement in statements for part in self.expand(statement)]

    def _loop(self, loop: ast.For | ast.While, number: int | None) -> list[ast.stmt]:
        line = ast.Constant(loop.lineno + self.added_lines)
        variables = [] if number is None else self._names(loop, number)
        loop.body = [self._call("begin_iteration", loop), *variables, *self._block(loop.body)]
        loop.orelse = self._block(loop.orelse)
        return [self._call("begin_loop", loop, line), loop, self._call("end_loop", loop, line)]

    def _names(self, statement: ast.stmt, number: int) -> list[ast.stmt]:
        names = self.sites[number].names
        if not names:
            return []
        values = ast.Tuple([ast.Name(name, ast.Load()) for name in names], ast.Load())
        return [self._call("record_names", statement, ast.Constant(number), values)]

    def _call(self, name: str, place: ast.stmt, *arguments: ast.expr) -> ast.stmt:
        return _statement(self.call(name, place, *arguments))


@dataclass(slots=True)
class _Frame:
    """A running function: where it was called, the running statement, and its latest values by name."""

    function: str
    calls: tuple[int, ...]
    outer_iteration: tuple[int, ...]
    line: int = 0
    latest: dict[str, int] = field(default_factory=dict)
    begun: int = 0
    reads: tuple[int, ...] = ()
    read_arguments: tuple[str, ...] = ()
    loops: list[list[int]] = field(default_factory=list)

    @property
    def iteration(self) -> tuple[int, ...]:
        """The numbers of the loops around the running statement, outermost first."""
        return (*self.outer_iteration, *(count for _, count in self.loops))


class ValueRecorder:
    """The values of the programs that a request names; its methods are what the added calls reach."""

    def __init__(self, request: RecordRequest, recorded: RecordingSites, memory: CheckedMemory) -> None:
        self.request = request
        self.values: list[RecordedValue] = []
        self.sampled = 0
        self.left_out = 0
        self.events: dict[tuple[object, ...], NonFiniteEvent] = {}
        self._memory = memory
        self._recorded = recorded
        self._bytes = 0
        self._frames: list[_Frame] = []
        self._positions: dict[int, tuple[Handle, int]] = {}
        self._parameters: frozenset[str] = frozenset()

    @property
    def program(self) -> Program:
        """The running program."""
        return self._memory.findings.program

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on values that were thinned or left out."""
        most = self.request.tile_bytes >> 10
        sampled = f"{plural(self.sampled, 'tile')} of more than {most:,} KiB, or beyond "
        sampled += f"{self.request.total_bytes >> 20:,} MiB in total, are sampled; figures count all elements"
        left_out = f"{self.left_out:,} values beyond the first {_MOST_VALUES:,} were left out"
        return tuple(note for note, count in ((sampled, self.sampled), (left_out, self.left_out)) if count)

    # what the added calls reach

    def enter_function(self, name: str, line: int, parameters: dict[str, Any]) -> None:
        """Begin a function; the parameters of a helper are recorded, those of the kernel are its arguments."""
        if not self._frames:
            self._parameters = frozenset(parameters)
            self._positions.clear()
            self._frames.append(_Frame(name, (), ()))
            return
        caller = self._frames[-1]
        frame = _Frame(name, (*caller.calls, caller.line), caller.iteration)
        self._frames.append(frame)
        file = (current_line() or (None, 0))[0]
        for parameter, value in parameters.items():
            source = self._position_of(value)
            frame.reads = () if source is None else (source,)
            self._add_named(ValueKind.PARAMETER, parameter, value, line, file, frame)
        frame.reads = ()

    def leave_function(self) -> None:
        """End the innermost function."""
        if self._frames:
            self._frames.pop()

    def begin_statement(self, number: int | None, line: int) -> None:
        """Begin the statement of a line, and note what it reads if it has a site."""
        frame = self._frames[-1]
        frame.line, frame.begun = line, len(self.values)
        names = () if number is None else self._recorded.sites[number].reads
        frame.reads = tuple(frame.latest[name] for name in names if name in frame.latest)
        arguments = (name for name in names if name in self._parameters and name not in frame.latest)
        frame.read_arguments = tuple(arguments) if len(self._frames) == 1 else ()

    def record_names(self, number: int, values: tuple[Any, ...]) -> None:
        """Record the names that a statement has bound."""
        site, frame = self._recorded.sites[number], self._frames[-1]
        if site.kind is SiteKind.LOOP:
            frame.begun, frame.reads, frame.read_arguments = len(self.values), (), ()
        kind = ValueKind.LOOP if site.kind is SiteKind.LOOP else ValueKind.ASSIGNMENT
        for name, value in zip(site.names, values, strict=True):
            self._add_named(kind, name, value, site.line, self._recorded.files[number], frame)

    def record_return(self, number: int, value: Any) -> Any:
        """Record what a helper returns; return it."""
        if len(self._frames) > 1:
            site, frame = self._recorded.sites[number], self._frames[-1]
            parts = [*value] if isinstance(value, tuple | tl.tuple) else [value]
            for index, part in enumerate(parts):
                name = f"return[{index}]" if len(parts) > 1 else "return"
                self._add_named(ValueKind.RETURN, name, part, site.line, self._recorded.files[number], frame)
        return value

    def begin_loop(self, line: int) -> None:
        """Begin a loop."""
        self._frames[-1].loops.append([line, -1])

    def begin_iteration(self) -> None:
        """Begin the next iteration of the innermost loop."""
        self._frames[-1].loops[-1][1] += 1

    def end_loop(self, line: int) -> None:
        """End the loop of a line, and those in it that were left early."""
        loops = self._frames[-1].loops
        while loops and loops.pop()[0] != line:
            pass

    # what the builder reaches

    def add_access(self, kind: ValueKind, pointer: Handle, mask: Array | None, value: Handle) -> None:
        """Record a load, store or atomic: of a load its result, else the operand."""
        place = current_line()
        if not self._frames or place is None or not self._is_asked(place[1]):
            return
        frame = self._frames[-1]
        argument, elements = self._elements(pointer.data)
        shape = np.broadcast_shapes(pointer.data.shape, value.data.shape)
        data = np.broadcast_to(value.data, shape)
        handle = Handle(data, value.dtype)
        lanes = None if mask is None else np.broadcast_to(mask, shape)
        recorded = self._value(kind, None, handle, place, frame, mask=lanes, is_scalar=shape == (1,))
        elements = np.broadcast_to(elements, shape)
        where = elements.reshape(()) if recorded.shape == () else _thin(elements, recorded.steps)
        recorded = replace(recorded, argument=argument, elements=where)
        self._append(recorded, value if kind is ValueKind.LOAD else None)

    def add_event(
        self, kind: NonFinite, operation: str, operands: tuple[float, ...], result: float, dtype: str, lanes: int
    ) -> None:
        """Record the first NaN or infinity of an operation in the running line and iteration."""
        place = current_line()
        if not self._frames or place is None:
            return
        iteration = self._frames[-1].iteration
        key = (kind, operation, place, self.program)
        if key not in self.events and len(self.events) < _MOST_EVENTS:
            self.events[key] = NonFiniteEvent(
                kind, place[1], iteration, self.program, operation, operands, result, dtype, lanes, len(self.values)
            )

    def _is_asked(self, line: int) -> bool:
        return self.request.lines is None or line in self.request.lines

    def _position_of(self, value: Any) -> int | None:
        handle = getattr(value, "handle", None)
        known = self._positions.get(id(handle))
        return known[1] if known is not None and known[0] is handle else None

    def _add_named(self, kind: ValueKind, name: str, value: Any, line: int, file: str | None, frame: _Frame) -> None:
        value = plain(value) if not isinstance(value, tl.tensor) else value
        if isinstance(value, tuple | tl.tuple):
            for index, part in enumerate(value):
                self._add_named(kind, f"{name}[{index}]", part, line, file, frame)
            return
        handle = _handle_of(value)
        if handle is None or not self._is_asked(line):
            return
        position = self._position_of(value)
        is_in_statement = position is not None and position >= frame.begun
        if kind is ValueKind.ASSIGNMENT and is_in_statement and self.values[position or 0].name is None:
            self.values[position or 0] = replace(self.values[position or 0], name=name)  # the load that was assigned
            frame.latest[name] = position or 0
            return
        is_scalar = not isinstance(value, tl.tensor) or not value.type.is_block()
        recorded = self._value(kind, name, handle, (file or "", line), frame, is_scalar=is_scalar)
        frame.latest[name] = self._append(recorded, handle if isinstance(value, tl.tensor) else None)

    def _append(self, value: RecordedValue, handle: Handle | None) -> int:
        position = len(self.values)
        if position >= _MOST_VALUES:
            self.left_out += 1
            return position - 1
        self.values.append(value)
        if handle is not None:
            self._positions[id(handle)] = (handle, position)
            if len(self._positions) > _MOST_POSITIONS:
                del self._positions[next(iter(self._positions))]
        return position

    def _value(
        self,
        kind: ValueKind,
        name: str | None,
        handle: Handle,
        place: Line,
        frame: _Frame,
        *,
        mask: Array | None = None,
        is_scalar: bool,
    ) -> RecordedValue:
        """A value as data: thinned where it is too large, and pointers as elements of their argument."""
        argument, data = None, handle.data
        scalar = handle.dtype.scalar
        if scalar.is_ptr():
            argument, data = self._elements(data)
        steps = self._steps(data)
        whole = summary_of(data, mask) if steps else None
        thin = _thin(data, steps)
        assert thin is not None, "a value has data"
        if is_scalar:
            thin, mask = thin.reshape(()), None if mask is None else mask.reshape(())
        inner = [at for at in range(frame.begun, len(self.values)) if self._feeds(at, frame)]
        return RecordedValue(
            kind,
            frame.function,
            name,
            place[0] or None,
            place[1],
            frame.calls,
            self.program,
            frame.iteration,
            () if is_scalar else tuple(data.shape),
            _type_name(scalar),
            thin,
            steps,
            argument,
            mask=_thin(mask, steps),
            reads=tuple(dict.fromkeys([*frame.reads, *inner])),
            read_arguments=frame.read_arguments,
            whole=whole,
        )

    def _feeds(self, position: int, frame: _Frame) -> bool:
        """Whether a value of the running statement is an operand of it: a load in it, or what a call in it returned."""
        value = self.values[position]
        if value.kind is ValueKind.RETURN:
            return len(value.calls) == len(frame.calls) + 1
        return value.kind in {ValueKind.LOAD, ValueKind.ATOMIC} and value.name is None and value.calls == frame.calls

    def _steps(self, data: Array) -> tuple[int, ...]:
        most = self.request.tile_bytes if self._bytes < self.request.total_bytes else _BYTES_WHEN_FULL
        steps = steps_within(data.shape, data.itemsize, most)
        self.sampled += bool(steps)
        self._bytes += data.nbytes if not steps else most
        return steps

    def _elements(self, addresses: Array) -> tuple[str | None, Array]:
        """The argument that pointers derive from, by the first of them, and their elements in it."""
        region = self._memory.region_of(addresses)
        if region is None:
            return None, addresses.astype(np.int64)
        return region.name, region.element_indices(addresses)


def _handle_of(value: Any) -> Handle | None:
    """The block of a tensor or number; None for a dtype, a function or a descriptor."""
    if isinstance(value, tl.tensor):
        return value.handle if isinstance(value.handle, Handle) else None
    if isinstance(value, bool):
        return Handle(np.array([value]), tl.int1)
    if isinstance(value, int) and -(2**63) <= value < 2**63:
        return Handle(np.array([value], np.int64), tl.int64)
    return Handle(np.array([value], np.float64), tl.float64) if isinstance(value, float) else None


def _type_name(scalar: Any) -> str:
    """Triton's short name of a type, such as ``fp16`` or ``*fp32``."""
    return f"*{_type_name(scalar.element_ty.scalar)}" if scalar.is_ptr() else scalar.name


def _thin(data: Array | None, steps: tuple[int, ...]) -> Array | None:
    """Every ``steps``-th element along each axis, as an array of its own."""
    if data is None or not steps:
        return data
    return np.ascontiguousarray(data[tuple(slice(None, None, step) for step in steps)])


CALLS = (
    *("enter_function", "leave_function", "begin_statement", "record_names", "record_return"),
    *("begin_loop", "begin_iteration", "end_loop"),
)
