"""The syntax that a judge runs: the body of a kernel as Triton's language, without any other Python.

The interpreter executes a kernel's text as Python, and the compiler evaluates parts of it while it compiles. So each
node of its syntax tree is of a known kind; what has no meaning in Triton's language has none here.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable
from dataclasses import dataclass

from kernellab.judge.kernel_expressions import TYPE_BUILTINS, ExpressionCheck, chain_of, short_text, stores

MOST_DEPTH = 150
_PLAIN_STATEMENTS = (ast.Pass, ast.Break, ast.Continue)


def depth_of(tree: ast.AST) -> int:
    """Return the depth of a syntax tree."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


@dataclass(slots=True)
class KernelCheck(ExpressionCheck):
    """Checks one function, from its signature on."""

    def check(self, node: ast.FunctionDef) -> None:
        """Check signature and body."""
        self._signature(node)
        self.stored = dict(reversed([(name, place) for name, place in stores(node.body)]))
        for name, (line, _) in self.stored.items():
            self.local_name(name, line)
        self._block(node.body)

    def _signature(self, node: ast.FunctionDef) -> None:
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if arguments.vararg is not None:
            named.append(arguments.vararg)
        if arguments.kwarg is not None:
            self.add("unsupported", f"**{arguments.kwarg.arg} takes names that are not known.", arguments.kwarg)
        if getattr(node, "type_params", None):
            self.add("unsupported", "Type parameters are not syntax of Triton's language.", node)
        for argument in named:
            self.local_name(argument.arg, argument.lineno)
            self._annotation(argument.annotation)
        self._annotation(node.returns)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._default(default)
        self.parameters = frozenset(argument.arg for argument in named)

    def _default(self, node: ast.expr) -> None:
        """Check what Python evaluates when it defines the function: numbers and names, no calls."""
        match node:
            case ast.Constant() | ast.Name() | ast.Attribute():
                self.value(node)
            case ast.UnaryOp(operand=operand):
                self._default(operand)
            case ast.BinOp(left=left, right=right):
                self.size(node)
                self._default(left)
                self._default(right)
            case ast.Tuple(elts=elements):
                for element in elements:
                    self._default(element)
            case _:
                self.add("host_code", f"The default {short_text(node)} is computed by Python.", node)

    def _annotation(self, node: ast.expr | None) -> None:
        match node:
            case None:
                return
            case ast.Constant(value=value) if value is None or value is ... or isinstance(value, str):
                return
            case ast.Name() | ast.Attribute():
                self._annotated_name(node)
            case ast.BinOp(left=left, op=ast.BitOr(), right=right):
                self._annotation(left)
                self._annotation(right)
            case ast.Subscript(value=value, slice=index):
                self._annotation(value)
                self._annotation(index)
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self._annotation(element)
            case _:
                self.add("host_code", f"The annotation {short_text(node)} is computed by Python.", node)

    def _annotated_name(self, node: ast.expr) -> None:
        root, attributes = chain_of(node)
        if root is None:
            self.add("host_code", f"The annotation {short_text(node)} is computed by Python.", node)
        elif any(attribute.startswith("_") for attribute in (root.id, *attributes)):
            self.add("host_code", f"{short_text(node)} is private to Python.", node)
        elif root.id not in self.names.bindings:
            if root.id not in TYPE_BUILTINS or attributes:
                self.add("unknown_name", f"{root.id} is not defined in the kernel's text.", node)
        elif self.names.is_loaded(root.id):
            meaning, _ = self.names.meaning(root.id, attributes)
            if meaning.kind == "refused":
                self.add(meaning.rule, f"{short_text(node)} {meaning.reason}.", node)

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Assign() | ast.AugAssign() | ast.AnnAssign():
                self._assignment(node)
            case ast.Return(value=value) | ast.Expr(value=value):
                self._optional(value)
            case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
                self.target(target)
                self.value(iterated)
                self._block((*body, *orelse))
            case ast.While(test=test, body=body, orelse=orelse) | ast.If(test=test, body=body, orelse=orelse):
                self.value(test)
                self._block((*body, *orelse))
            case ast.With(items=items, body=body):
                for item in items:
                    self._context(item)
                self._block(body)
            case ast.Assert(test=test, msg=message):
                self.value(test)
                self.message(message or test)
            case _ if not isinstance(node, _PLAIN_STATEMENTS):
                self.add_unsupported(node)

    def _assignment(self, node: ast.Assign | ast.AugAssign | ast.AnnAssign) -> None:
        if isinstance(node, ast.AnnAssign):
            self._annotation(node.annotation)
        self._optional(node.value)
        for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
            self.target(target)

    def _optional(self, value: ast.expr | None) -> None:
        if value is not None:
            self.value(value)

    def _context(self, item: ast.withitem) -> None:
        if not isinstance(item.context_expr, ast.Call) or not isinstance(item.optional_vars, ast.Name | None):
            self.add("unsupported", "With takes a call of Triton's language.", item.context_expr)
        self.value(item.context_expr)
