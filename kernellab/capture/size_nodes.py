"""Sizes as nodes of a graph of torch.fx: each is computed from the shapes that a run finds, each guard is asked."""

from __future__ import annotations

import ast
import itertools
import math
import operator
from collections.abc import Callable, Mapping
from typing import Any

import torch
import torch.fx

from kernellab.capture.size import Size, guard_problem, names_in
from kernellab.capture.sized_recording import measured_in
from kernellab.capture.tape import Step, Tape, mapped
from kernellab.capture.tracing import ask_in_runs, is_open, require_guard_in_dynamo
from kernellab.errors import UsageError
from kernellab.source.text import OPERATORS

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


class SizeNodes:
    """The sizes of a program in its graph; each expression is computed once, where it is first needed."""

    def __init__(self, graph: torch.fx.Graph, tape: Tape, nodes: Mapping[int, torch.fx.Node]) -> None:
        self.graph = graph
        self.tape = tape
        self.known: dict[str, Any] = {}
        self.count = 0
        self.inputs = {tape.values[index].name: nodes[index] for index in tape.inputs}
        self.guards = [] if tape.sizes is None else list(tape.sizes.guards)
        self.ask()

    def made(self, step: Step, nodes: Mapping[int, torch.fx.Node]) -> None:
        """Measure what a step made whose shape depends on data, and ask the guards that hold for it."""
        for symbol, where in measured_in(self.tape, [index for index in step.results if index >= 0]).items():
            if symbol.name.isidentifier() and symbol.name not in self.known:
                size = self._node(torch.ops.aten.sym_size.int, (nodes[where.value], where.axis))
                self.known[symbol.name] = size
        self.ask()

    def ask(self) -> None:
        """Ask the guards whose symbols are known by now."""
        known = self.inputs.keys() | self.known.keys()
        ready = [guard for guard in self.guards if known.issuperset(names_in(guard.text))]
        self.guards = [guard for guard in self.guards if guard not in ready]
        for guard in ready:
            self._node(require_guard, (self._of(ast.parse(guard.text, mode="eval").body), guard.words))

    def given(self, value: Any) -> Any:
        """Return nested arguments with nodes in place of sizes."""
        return mapped(value, lambda part: self.node(part) if isinstance(part, Size) else part)

    def node(self, size: Size) -> Any:
        """Return the node of a size."""
        return self._of(ast.parse(repr(size), mode="eval").body)

    def _node(self, function: Callable[..., Any], arguments: tuple[Any, ...]) -> torch.fx.Node:
        """Add a node, under a name that no value of the program has."""
        node = self.graph.call_function(function, arguments)
        taken = {value.name for value in self.tape.values}
        self.count = next(i for i in itertools.count(self.count + 1) if f"size_{i}" not in taken)
        node.name = f"size_{self.count}"
        return node

    def _of(self, part: ast.expr) -> Any:
        if isinstance(part, ast.Constant):
            return part.value
        text = ast.unparse(part)
        if text not in self.known:
            self.known[text] = self._made(part)
        return self.known[text]

    def _made(self, part: ast.expr) -> Any:
        match part:
            case ast.BinOp(left, operation, right):
                return self._called(operation, left, right)
            case ast.UnaryOp(operation, inner):
                return self._called(operation, inner)
            case ast.Compare(left, [operation], [right]):
                return self._called(operation, left, right)
            case ast.BoolOp(operation, [first, *others]):
                found = self._of(first)
                for other in others:
                    found = self._node(_OPERATORS[type(operation)], (found, self._of(other)))
                return found
            case ast.Subscript(ast.Attribute(ast.Name(name), "shape"), ast.Constant(int(axis))):
                return self._node(torch.ops.aten.sym_size.int, (self.inputs[name], axis))
            case ast.Call(ast.Attribute(ast.Name(name), "stride"), [ast.Constant(int(axis))]):
                return self._node(torch.ops.aten.sym_stride.int, (self.inputs[name], axis))
            case ast.Call(function, arguments):
                called = _FUNCTIONS.get(ast.unparse(function))
                if called is not None:
                    return self._node(called, tuple(map(self._of, arguments)))
        raise UsageError(f"The size {ast.unparse(part)} cannot be computed in a graph.")

    def _called(self, operation: ast.AST, *parts: ast.expr) -> Any:
        return self._node(_OPERATORS[type(operation)], tuple(map(self._of, parts)))


@torch.fx.has_side_effect
def require_guard(holds: Any, words: str) -> None:
    """Raise `UsageError` where a guard does not hold; traced, each run asks for sizes that data decides."""
    if is_open(holds):
        ask_in_runs(holds, guard_problem(words))
    elif not holds:
        raise UsageError(guard_problem(words))


require_guard._torchdynamo_inline = require_guard_in_dynamo  # type: ignore[attr-defined]
