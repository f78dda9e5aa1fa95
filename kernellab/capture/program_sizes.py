"""The sizes of a program: their sources, and how its graph and its module compute them and check its guards."""

from __future__ import annotations

import ast
import dataclasses
import itertools
import math
import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

import sympy
import torch
import torch.fx

from kernellab.capture.naming import unique
from kernellab.capture.node_functions import require_guard
from kernellab.capture.size import Guard, Number, Size, Sizes, SizeSource, guard_problem, names_in, ordered_guards
from kernellab.capture.tape import READ, Step, Tape, TapeDescriptor, TensorLayout, map_nested, members_of
from kernellab.capture.tracked_tensors import Recording
from kernellab.errors import UsageError
from kernellab.source import literal
from kernellab.source.formulas import OPERATORS

_OPERATORS: dict[type[ast.AST], Callable[..., Any]] = {
    **OPERATORS,
    ast.And: operator.and_,
    ast.Or: operator.or_,
    ast.USub: operator.neg,
    ast.Not: operator.not_,
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
_FUNCTIONS: dict[str, Callable[..., Any]] = {
    "max": torch.sym_max,
    "min": torch.sym_min,
    "abs": abs,
    "float": torch.sym_float,
    "int": torch.sym_int,
    "math.ceil": math.ceil,
    "math.floor": math.floor,
    "math.trunc": math.trunc,
    "math.sqrt": torch.sym_sqrt,
}
_REQUIRE_SIZE = '''\
def require_size(holds, words):
    """Raise ValueError for sizes for which the program does not hold."""
    if not holds:
        raise ValueError(f"PROBLEM")'''

_REQUIRE = '''\
def require(NAMES):
    """Raise ValueError for inputs whose sizes or layouts are others than the program holds for."""
    for name, tensor, dtype, rank in (
KINDS
    ):
        if not isinstance(tensor, torch.Tensor):
            raise TypeError(f"{name} is a {type(tensor).__name__}; expected a tensor.")
        if (tensor.dtype, tensor.dim()) != (dtype, rank):
            raise ValueError(f"{name} is {tensor.dtype} of {tensor.dim()} axes; expected {dtype} of {rank}.")
GUARDS    for name, tensor, wanted in (
LAYOUTS
    ):
        found = (tensor.dtype, tuple(tensor.shape), tuple(tensor.stride()))
        if found != wanted:
            raise ValueError(f"{name} is {found}; the program holds for {wanted}.")'''


def measuring_values(
    recording: Recording, sizes: Sizes, steps: Sequence[Step], live: Sequence[Step], used: Iterable[int]
) -> set[int]:
    """Return the values that measure the symbols of some steps and values, and of the guards of these symbols.

    Added to them are the values whose layouts the block inspected, since Python may have decided by a size of 0 or 1,
    which has no symbol, and the results of data-dependent shape.
    """
    where = dict(sizes.sources)
    needed = _symbols_in(live, (recording.values[index].layout for index in used if index >= 0))
    conditions = [guard.condition.free_symbols for guard in sizes.guards]
    while more := set().union(*(symbols for symbols in conditions if symbols & needed)) - needed:
        needed |= more
    values = {where[symbol].value for symbol in needed if symbol in where}
    inspected = {index for index in recording.samples if recording.values[index].storage in sizes.inspected_storages}
    return values | inspected | _data_dependent_results(steps)


def values_measured_by_steps(tape: Tape, steps: Sequence[Step], wanted: Iterable[int]) -> set[int]:
    """Return the results of a run that measure sizes for some steps and values of a program."""
    if tape.sizes is None:
        return set()
    used = {index for step in steps for index in (*step.operands, *step.results)} | set(wanted)
    needed = _symbols_in(steps, (tape.values[index].layout for index in used if index >= 0))
    sources = sources_in(tape, tape.steps)
    values = {where.value for symbol, where in sources.items() if symbol in needed and symbol.name.isidentifier()}
    return values | _data_dependent_results(tape.steps)


def _data_dependent_results(steps: Iterable[Step]) -> set[int]:
    """Return the results of data-dependent shape, which numbers of the block may depend on."""
    return {index for step in steps if step.has_dynamic_shape for index in step.results if index >= 0}


def _symbols_in(steps: Iterable[Step], layouts: Iterable[TensorLayout]) -> set[Any]:
    parts: list[Any] = [(layout.shape, layout.stride, layout.offset) for layout in layouts]
    for step in steps:
        grids = [config.grid for config in step.use.tuning.configs] if step.use and step.use.tuning else []
        parts.append((step.args, dict(step.kwargs), step.use.grid if step.use else (), grids))
    return {symbol for part in members_of(parts) for symbol in _symbols(part)}


def _symbols(part: Any) -> set[Any]:
    if isinstance(part, TapeDescriptor):
        return {symbol for number in (*part.shape, *part.strides) for symbol in _symbols(number)}
    return part.expression.free_symbols if isinstance(part, Size | Number) else set()


def with_symbols(tape: Tape, sizes: Sizes, inputs: Mapping[int, int]) -> Tape:
    """Return a program with symbols named by their sources, as ``x.shape[0]``; guards of other symbols are dropped.

    ``inputs`` gives the inputs by their index in the recording.
    """
    names = {}
    for symbol, where in sizes.sources:
        if where.value in inputs:
            names[symbol] = where.text(tape.values[inputs[where.value]].name, is_input=True)
    for symbol, where in sources_in(tape, tape.steps).items():
        names.setdefault(symbol, where.text(tape.values[where.value].name, is_input=False))
    read = {s: tape.values[step.operands[0]].name for step in tape.steps if (s := number_read(step)) is not None}
    for symbol, name in read.items():
        names[symbol] = unique(f"{name}_item", {*names.values(), *(value.name for value in tape.values)})
    guards = [guard for guard in sizes.guards if guard.condition.free_symbols <= names.keys()]
    symbols = {
        s: sympy.Symbol(n, integer=s.is_integer) if s in read else sympy.Symbol(n, integer=True, positive=True)
        for s, n in names.items()
    }
    return _with_renamed_symbols(tape, guards, symbols)


def number_read(step: Step) -> Any:
    """Return the symbol of the number that a step reads from a tensor, or None."""
    recorded = step.args[-1] if step.operation == READ else None
    return recorded.expression if isinstance(recorded, Size | Number) else None


def _with_renamed_symbols(tape: Tape, guards: Sequence[Guard], symbols: Mapping[Any, Any]) -> Tape:
    """Return a program under these guards, with other symbols in both."""

    def rename(part: Any) -> Any:
        if isinstance(part, TapeDescriptor):
            return dataclasses.replace(
                part, shape=map_nested(part.shape, rename), strides=map_nested(part.strides, rename)
            )
        if isinstance(part, Number):
            return Number(part, part.expression.xreplace(symbols))
        return Size(part, part.expression.xreplace(symbols)) if isinstance(part, Size) else part

    def with_layout(layout: TensorLayout) -> TensorLayout:
        shape, stride, offset = map_nested((layout.shape, layout.stride, layout.offset), rename)
        return dataclasses.replace(layout, shape=shape, stride=stride, offset=offset)

    return dataclasses.replace(
        tape,
        values=tuple(dataclasses.replace(v, layout=with_layout(v.layout)) for v in tape.values),
        storages=map_nested(tape.storages, rename),
        steps=tuple(_with_sizes(step, rename) for step in tape.steps),
        sizes=Sizes(tuple(dataclasses.replace(g, condition=g.condition.xreplace(symbols)) for g in guards)),
    )


def _with_sizes(step: Step, change: Callable[[Any], Any]) -> Step:
    use = step.use
    if use is not None:
        use = dataclasses.replace(use, grid=map_nested(use.grid, change))
    if use is not None and use.tuning is not None:
        configs = tuple(dataclasses.replace(c, grid=map_nested(c.grid, change)) for c in use.tuning.configs)
        use = dataclasses.replace(use, tuning=dataclasses.replace(use.tuning, configs=configs))
    args, kwargs = map_nested((step.args, step.kwargs), change)
    return dataclasses.replace(step, args=args, kwargs=kwargs, use=use)


def sources_in(tape: Tape, steps: Iterable[Step]) -> dict[Any, SizeSource]:
    """Return the symbols that are sizes of the results of some steps, each with its first source."""
    sources: dict[Any, SizeSource] = {}
    for index in (index for step in steps for index in step.results if index >= 0):
        for axis, size in enumerate(tape.values[index].layout.shape):
            if isinstance(size, Size) and size.expression.is_Symbol:
                sources.setdefault(size.expression, SizeSource(index, axis))
    return sources


class _PendingGuards:
    """The guards that a run has not checked so far, and the names that it knows by then."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.known = set(tape.names(tape.inputs))
        self.guards = [] if tape.sizes is None else list(ordered_guards(tape.sizes.guards))

    def new_sources(self, step: Step) -> Iterator[tuple[str, SizeSource]]:
        """Yield new symbols that are sizes of a step's results, with their sources."""
        for symbol, where in sources_in(self.tape, [step]).items():
            if symbol.name.isidentifier() and symbol.name not in self.known:
                self.known.add(symbol.name)
                yield symbol.name, where

    def add_number(self, step: Step) -> str:
        """Return the name of the number that a step reads from a tensor, known from now on, or ""."""
        symbol = number_read(step)
        self.known |= set() if symbol is None else {symbol.name}
        return "" if symbol is None else str(symbol.name)

    def take_ready(self) -> list[Guard]:
        """Remove and return the guards with known symbols alone."""
        ready_guards = [guard for guard in self.guards if self.known.issuperset(names_in(guard.text))]
        self.guards = [guard for guard in self.guards if guard not in ready_guards]
        return ready_guards


class SizeNodes:
    """The sizes of a program in its graph; each expression is computed once, where it is first needed."""

    def __init__(self, graph: torch.fx.Graph, tape: Tape, nodes: Mapping[int, torch.fx.Node]) -> None:
        self.graph = graph
        self.tape = tape
        self.nodes = nodes
        self.known: dict[str, Any] = {}  # by their expressions
        self.count = 0
        self.inputs = {tape.values[index].name: nodes[index] for index in tape.inputs}
        self.pending = _PendingGuards(tape)
        self._add_guards()

    def measure_results(self, step: Step) -> None:
        """Measure the data-dependent sizes of a step's results, and check the guards that depend on them."""
        for name, where in self.pending.new_sources(step):
            self.known[name] = self._node(torch.ops.aten.sym_size.int, (self.nodes[where.value], where.axis))
        self._add_guards()

    def take_number(self, step: Step, node: torch.fx.Node) -> None:
        """Take the node of a read for the number that the step reads, and check the guards that depend on it."""
        if name := self.pending.add_number(step):
            self.known[name] = node
            self._add_guards()

    def _add_guards(self) -> None:
        for guard in self.pending.take_ready():
            self._node(require_guard, (self._expression_node(ast.parse(guard.text, mode="eval").body), guard.words))

    def with_nodes(self, value: Any) -> Any:
        """Return nested arguments with nodes in place of sizes."""
        return map_nested(value, lambda part: self.node(part) if isinstance(part, Size) else part)

    def node(self, size: Size | Number) -> Any:
        """Return the node of a size or a number."""
        return self._expression_node(ast.parse(repr(size), mode="eval").body)

    def _node(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> torch.fx.Node:
        """Add a node, with a name that no value of the program has."""
        node = self.graph.call_function(function, arguments)
        names = {value.name for value in self.tape.values}
        self.count = next(i for i in itertools.count(self.count + 1) if f"size_{i}" not in names)
        node.name = f"size_{self.count}"
        return node

    def _expression_node(self, part: ast.expr) -> Any:
        if isinstance(part, ast.Constant):
            return part.value
        text = ast.unparse(part)
        if text not in self.known:
            self.known[text] = self._new_node(part)
        return self.known[text]

    def _new_node(self, part: ast.expr) -> Any:
        match part:
            case ast.BinOp(left, operation, right):
                return self._operation_node(operation, left, right)
            case ast.UnaryOp(operation, inner):
                return self._operation_node(operation, inner)
            case ast.Compare(left, [operation], [right]):
                return self._operation_node(operation, left, right)
            case ast.BoolOp(operation, [first, *others]):
                node = self._expression_node(first)
                for other in others:
                    node = self._node(_OPERATORS[type(operation)], (node, self._expression_node(other)))
                return node
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), ast.Constant(int(axis))):
                return self._node(torch.ops.aten.sym_size.int, (self.inputs[name], axis))
            case ast.Call(ast.Attribute(ast.Name(name), "stride"), [ast.Constant(int(axis))]):
                return self._node(torch.ops.aten.sym_stride.int, (self.inputs[name], axis))
            case ast.Call(function, arguments):
                target = _FUNCTIONS.get(ast.unparse(function))
                if target is not None:
                    return self._node(target, tuple(map(self._expression_node, arguments)))
        raise UsageError(f"The size {ast.unparse(part)} cannot be computed in a graph.")

    def _operation_node(self, operation: ast.AST, *parts: ast.expr) -> Any:
        return self._node(_OPERATORS[type(operation)], tuple(map(self._expression_node, parts)))


def requirements(tape: Tape) -> Iterator[str]:
    """Yield the functions by which a module checks its inputs."""
    if tape.sizes is not None:
        yield _REQUIRE_SIZE.replace("PROBLEM", guard_problem("{words}"))
    layouts = tape.input_layouts
    if not layouts:
        return
    rows = [
        (f"{literal(n)}, {n}", f"torch.{layout.dtype}", layout.shape, layout.stride) for n, layout in layouts.items()
    ]
    parts = {
        "NAMES": ", ".join(layouts),
        "KINDS": "\n".join(f"        ({names}, {dtype}, {len(shape)})," for names, dtype, shape, _ in rows),
        "GUARDS": "".join(f"    {line}\n" for line in _guard_statements(_PendingGuards(tape).take_ready())),
        "LAYOUTS": "\n".join(
            f"        ({names}, ({dtype}, {shape}, {stride}))," for names, dtype, shape, stride in rows
        ),
    }
    text = _REQUIRE
    for name, part in parts.items():
        text = text.replace(name, part, 1)
    yield text


class SizeStatements:
    """Writes the statements of a module that measure data-dependent sizes, and check the guards of such sizes."""

    def __init__(self, tape: Tape) -> None:
        self.tape = tape
        self.pending = _PendingGuards(tape)
        self.pending.take_ready()  # those of the inputs, which `require` asks

    def after(self, step: Step) -> Iterator[str]:
        """Yield the statements that follow a step that measures a size or reads a number."""
        self.pending.add_number(step)
        for name, where in self.pending.new_sources(step):
            yield f"{name} = {self.tape.values[where.value].name}.shape[{where.axis}]"
        yield from _guard_statements(self.pending.take_ready())


def _guard_statements(guards: list[Guard]) -> Iterator[str]:
    return (f"require_size({guard.text}, {literal(guard.words)})" for guard in guards)
