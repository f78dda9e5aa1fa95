"""The syntax that a judge runs: the body of a kernel as Triton's language, without any other Python.

The interpreter executes a kernel's text as Python, and the compiler evaluates parts of it while it compiles. So each
node of its syntax tree is of a known kind, and each name leads to a parameter, a local value, a binding that is of
Triton's language, or one of the few builtins of Python that Triton's compiler takes itself.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from kernellab._triton.language_names import MESSAGE_FUNCTIONS, VALUE_ATTRIBUTES
from kernellab.judge.kernel_names import Meaning, NamesOfKernel, Rule
from kernellab.judge.kernel_sizes import LARGEST_INTEGER, folded

MOST_DEPTH = 150

KERNEL_BUILTINS = frozenset("abs bool float int isinstance len list max min print range str tuple".split())
STATIC_BUILTINS = KERNEL_BUILTINS | frozenset("all any divmod enumerate reversed round sorted sum zip".split())
"""The builtins of a kernel, and of a function that the compiler runs on numbers."""
TYPE_BUILTINS = frozenset("bool float int list object str tuple".split())
_STATIC_ATTRIBUTES = frozenset({"append", "bit_length"})
_FALL_THROUGH = frozenset({"getattr", "hasattr"})  # the compiler has both, where a local of the name is not set yet
_OF_THE_INTERPRETER = frozenset({"interpreter_builder", "interpreter_semantic"})
_PYTHON_NAMES = frozenset(dir(builtins))
_FORMAT_SPEC = re.compile(r"[-+<>^# 0-9.,_a-zA-Z%]{0,6}")

_PLAIN_STATEMENTS = (ast.Pass, ast.Break, ast.Continue)


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """What a judge does not run, and its line in the text, from 1."""

    rule: Rule
    detail: str
    line: int


def depth_of(tree: ast.AST) -> int:
    """Return how deeply the nodes of a syntax tree are nested."""
    level: list[ast.AST] = [tree]
    depth = 0
    while level:
        depth += 1
        level = [child for node in level for child in ast.iter_child_nodes(node)]
    return depth


@dataclass(slots=True)
class KernelCheck:
    """Walks one function; ``problems`` grows. ``is_static`` is for a function that the compiler runs on numbers."""

    names: NamesOfKernel
    is_static: bool
    problems: list[SyntaxProblem] = field(default_factory=list)
    _parameters: frozenset[str] = frozenset()
    _stored: dict[str, tuple[int, int]] = field(default_factory=dict)  # a local and where it is first set
    _inner: list[frozenset[str]] = field(default_factory=list)  # variables of the comprehensions around

    def check(self, node: ast.FunctionDef) -> None:
        """Check signature and body."""
        self._signature(node)
        self._stored = dict(reversed([(name, place) for name, place in _stores(node.body)]))
        for name, (line, _) in self._stored.items():
            self._local_name(name, line)
        self._block(node.body)

    def _add(self, rule: Rule, detail: str, node: ast.AST) -> None:
        problem = SyntaxProblem(rule, detail, getattr(node, "lineno", 1))
        if problem not in self.problems:
            self.problems.append(problem)

    def _unsupported(self, node: ast.AST) -> None:
        self._add("unsupported", f"{type(node).__name__} is no syntax of Triton's language.", node)

    def _local_name(self, name: str, line: int) -> None:
        if name.startswith(("__", "_kernellab")) or name in _FALL_THROUGH | _OF_THE_INTERPRETER:
            problem = SyntaxProblem("host_code", f"{name} is a name of Python or of the judge.", line)
            self.problems.append(problem)

    # the signature

    def _signature(self, node: ast.FunctionDef) -> None:
        arguments = node.args
        named = [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]
        if arguments.vararg is not None:
            named.append(arguments.vararg)
        if arguments.kwarg is not None:
            self._add("unsupported", f"**{arguments.kwarg.arg} takes names that are not known.", arguments.kwarg)
        if getattr(node, "type_params", None):
            self._add("unsupported", "Type parameters are no syntax of Triton's language.", node)
        for argument in named:
            self._local_name(argument.arg, argument.lineno)
            self._annotation(argument.annotation)
        self._annotation(node.returns)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._default(default)
        self._parameters = frozenset(argument.arg for argument in named)

    def _default(self, node: ast.expr) -> None:
        """Check what Python evaluates when it defines the function: numbers and names, no calls."""
        match node:
            case ast.Constant() | ast.Name() | ast.Attribute():
                self._value(node)
            case ast.UnaryOp(operand=operand):
                self._default(operand)
            case ast.BinOp(left=left, right=right):
                self._size(node)
                self._default(left)
                self._default(right)
            case ast.Tuple(elts=elements):
                for element in elements:
                    self._default(element)
            case _:
                self._add("host_code", f"The default {_short(node)} is computed by Python.", node)

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
                self._add("host_code", f"The annotation {_short(node)} is computed by Python.", node)

    def _annotated_name(self, node: ast.expr) -> None:
        root, attributes = chain_of(node)
        if root is None:
            self._add("host_code", f"The annotation {_short(node)} is computed by Python.", node)
        elif any(attribute.startswith("_") for attribute in (root.id, *attributes)):
            self._add("host_code", f"{_short(node)} is private to Python.", node)
        elif root.id not in self.names.bindings:
            if root.id not in TYPE_BUILTINS or attributes:
                self._add("unknown_name", f"{root.id} is not defined in the kernel's text.", node)
        elif self.names.is_loaded(root.id):
            meaning, _ = self.names.meaning(root.id, attributes)
            if meaning.kind == "refused":
                self._add(meaning.rule, f"{_short(node)} {meaning.reason}.", node)

    # statements

    def _block(self, statements: Iterable[ast.stmt]) -> None:
        for statement in statements:
            self._statement(statement)

    def _statement(self, node: ast.stmt) -> None:
        match node:
            case ast.Return(value=value):
                if value is not None:
                    self._value(value)
            case ast.Assign(targets=targets, value=value):
                self._value(value)
                for target in targets:
                    self._target(target)
            case ast.AugAssign(target=target, value=value):
                self._target(target)
                self._value(value)
            case ast.AnnAssign(target=target, annotation=annotation, value=value):
                self._annotation(annotation)
                self._target(target)
                if value is not None:
                    self._value(value)
            case ast.Expr(value=value):
                self._value(value)
            case ast.For(target=target, iter=iterated, body=body, orelse=orelse):
                self._target(target)
                self._value(iterated)
                self._block((*body, *orelse))
            case ast.While(test=test, body=body, orelse=orelse) | ast.If(test=test, body=body, orelse=orelse):
                self._value(test)
                self._block((*body, *orelse))
            case ast.With(items=items, body=body):
                for item in items:
                    self._context(item)
                self._block(body)
            case ast.Assert(test=test, msg=message):
                self._value(test)
                if message is not None:
                    self._message(message)
            case _ if not isinstance(node, _PLAIN_STATEMENTS):
                self._unsupported(node)

    def _target(self, node: ast.expr) -> None:
        match node:
            case ast.Name():
                return
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self._target(element)
            case ast.Starred(value=value):
                self._target(value)
            case _:
                self._add("host_code", f"{_short(node)} is set: a kernel sets nothing but local names.", node)

    def _context(self, item: ast.withitem) -> None:
        if not isinstance(item.context_expr, ast.Call) or not isinstance(item.optional_vars, ast.Name | None):
            self._add("unsupported", "With takes a call of Triton's language.", item.context_expr)
        self._value(item.context_expr)

    # expressions

    def _value(self, node: ast.expr) -> None:
        """Check an expression that is used as a value."""
        match node:
            case ast.Constant(value=value):
                self._constant(node, value)
            case ast.Name() | ast.Attribute():
                meaning = self._named(node)
                if meaning.kind in {"builtin", "class", "type", "module", "python"}:
                    self._add("unsupported", f"{_short(node)} is called in Triton's language, and is no value.", node)
            case ast.Call():
                self._call(node)
            case ast.BinOp(left=left, right=right):
                self._size(node)
                self._value(left)
                self._value(right)
            case ast.UnaryOp(operand=operand):
                self._value(operand)
            case ast.BoolOp(values=values):
                self._values(values)
            case ast.Compare(left=left, comparators=others):
                for operand in (left, *others):
                    self._compared(operand)
            case ast.IfExp(test=test, body=body, orelse=orelse):
                self._values((test, body, orelse))
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                self._values(elements)
            case ast.Starred(value=value):
                self._value(value)
            case ast.Subscript(value=value, slice=index):
                self._subscript(value, index)
            case ast.ListComp() | ast.GeneratorExp():
                self._comprehension(node)
            case ast.JoinedStr():
                self._add("unsupported", "An f-string stands outside a message.", node)
            case _:
                self._unsupported(node)

    def _values(self, nodes: Iterable[ast.expr]) -> None:
        for node in nodes:
            self._value(node)

    def _constant(self, node: ast.expr, value: object) -> None:
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            self._add("too_large", "A number has more than 64 bits.", node)
        elif isinstance(value, bytes | complex):
            self._add("unsupported", f"{_short(node)} is no constant of Triton's language.", node)

    def _compared(self, node: ast.expr) -> None:
        """Check an operand of a comparison, which may be a class, as in ``x.type == tl.pointer_type``."""
        if not isinstance(node, ast.Name | ast.Attribute):
            self._value(node)
        elif self._named(node).kind in {"builtin", "module"}:
            self._add("unsupported", f"{_short(node)} is called in Triton's language, and is no value.", node)

    def _subscript(self, value: ast.expr, index: ast.expr) -> None:
        if isinstance(value, ast.Name | ast.Attribute) and self._named(value).kind not in {"value", "refused"}:
            self._add("host_code", f"{_short(value)}[...] would launch it, which the host does.", value)
        else:
            self._value(value)
        for part in index.elts if isinstance(index, ast.Tuple) else [index]:
            if isinstance(part, ast.Slice):
                self._values(bound for bound in (part.lower, part.upper, part.step) if bound is not None)
            else:
                self._value(part)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> None:
        depth = len(self._inner)
        for generator in node.generators:
            self._value(generator.iter)
            stored = dict(_stores([generator.target]))
            for name in stored:
                self._local_name(name, generator.target.lineno)
            self._target(generator.target)
            self._inner.append(frozenset(stored))
            self._values(generator.ifs)
            if generator.is_async:
                self._unsupported(node)
        self._value(node.elt)
        del self._inner[depth:]

    def _message(self, node: ast.expr) -> None:
        if not isinstance(node, ast.JoinedStr):
            return self._value(node)
        for part in node.values:
            if not isinstance(part, ast.FormattedValue):
                continue
            self._message(part.value)
            spec = part.format_spec
            if spec is None:
                continue
            texts = [piece.value for piece in getattr(spec, "values", ()) if isinstance(piece, ast.Constant)]
            if len(texts) != 1 or not _FORMAT_SPEC.fullmatch(str(texts[0])) or re.search(r"\d{3}", str(texts[0])):
                self._add("unsupported", "A message formats a value by more than digits and a letter.", node)
        return None

    def _call(self, node: ast.Call) -> None:
        name = self._called(node.func)
        for keyword in node.keywords:
            if keyword.arg is None:
                self._add("unsupported", "** passes names that are not known.", keyword.value)
            elif keyword.arg.startswith("_"):
                self._add("host_code", f"{keyword.arg} is an argument of the compiler.", keyword.value)
            elif keyword.arg == "file":
                self._add("host_code", "file is an argument of Python's print.", keyword.value)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if name in MESSAGE_FUNCTIONS or name == "print":
                self._message(argument)
            elif name == "isinstance":
                self._class_argument(argument)
            else:
                self._value(argument)

    def _called(self, node: ast.expr) -> str:
        """Check the function of a call; return its own name, ``load`` of ``tl.load``."""
        match node:
            case ast.Name(id=name) if self._is_local(name):
                self._named(node)
                if name not in self._parameters:
                    self._add("host_code", f"{name} is a local value, and is called.", node)
                return ""
            case ast.Name() | ast.Attribute():
                meaning = self._named(node)
                if meaning.kind in {"type", "module"}:
                    self._add("host_code", f"{_short(node)} is not a function of Triton's language.", node)
                return meaning.name
            case _:
                self._add("host_code", f"{_short(node)} is computed, and is called.", node)
                self._value(node)
                return ""

    def _class_argument(self, node: ast.expr) -> None:
        for part in node.elts if isinstance(node, ast.Tuple) else [node]:
            if isinstance(part, ast.Name | ast.Attribute):
                self._named(part)
            else:
                self._value(part)

    # names

    def _is_local(self, name: str) -> bool:
        return name in self._parameters or name in self._stored or any(name in names for names in self._inner)

    def _named(self, node: ast.Name | ast.Attribute) -> Meaning:
        """Check a name with its attributes; return its meaning."""
        root, attributes = chain_of(node)
        value = Meaning("value")
        if root is None:
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                inner = inner.value
            self._value(inner)
            return value if self._attributes(node, attributes) else Meaning("refused")
        if self._is_local(root.id):
            self._local(root)
            return value if self._attributes(node, attributes) else Meaning("refused")
        if root.id.startswith("__"):
            self._add("host_code", f"{root.id} is private to Python.", node)
            return Meaning("refused")
        if root.id not in self.names.bindings:
            return self._builtin(root, attributes, node)
        meaning, used = self.names.meaning(root.id, attributes)
        text = ".".join((root.id, *attributes[: max(used, 1)])) if attributes and used else root.id
        if meaning.kind == "refused":
            self._add(meaning.rule, f"{text if not used else _short(node)} {meaning.reason}.", node)
            return meaning
        rest = attributes[used:]
        if rest and meaning.kind != "value":
            self._add("host_code", f"{_short(node)} is not of Triton's language.", node)
            return Meaning("refused")
        return meaning if self._attributes(node, rest) else Meaning("refused")

    def _local(self, node: ast.Name) -> None:
        place = self._stored.get(node.id)
        is_inner = any(node.id in names for names in self._inner)
        if place is None or is_inner or node.id in self._parameters or node.id not in _PYTHON_NAMES:
            return
        if (node.lineno, node.col_offset) < place:
            self._add("host_code", f"{node.id} is Python's own where it is read, before the kernel sets it.", node)

    def _builtin(self, root: ast.Name, attributes: tuple[str, ...], node: ast.expr) -> Meaning:
        known = STATIC_BUILTINS if self.is_static else KERNEL_BUILTINS
        if root.id not in known:
            self._add("unknown_name", f"{root.id} is not defined in the kernel's text.", node)
            return Meaning("refused")
        if attributes:
            self._add("host_code", f"{_short(node)} is not of Triton's language.", node)
            return Meaning("refused")
        return Meaning("python", name=root.id)

    def _attributes(self, node: ast.expr, attributes: tuple[str, ...]) -> bool:
        allowed = VALUE_ATTRIBUTES | _STATIC_ATTRIBUTES if self.is_static else VALUE_ATTRIBUTES
        for attribute in attributes:
            if attribute not in allowed:
                self._add("host_code", f"{_short(node)}: {attribute} is no attribute of Triton's values.", node)
                return False
        return True

    # sizes

    def _size(self, node: ast.BinOp) -> None:
        try:
            folded(node, self._integer)
        except OverflowError:
            self._add("too_large", f"{_short(node)} has more than 64 bits, or is a long sequence.", node)

    def _integer(self, name: str) -> int | None:
        return None if self._is_local(name) else self.names.integer(name)


def chain_of(node: ast.expr) -> tuple[ast.Name | None, tuple[str, ...]]:
    """Return the name at the root of a chain of attributes, None where it is no name, and the attributes."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node if isinstance(node, ast.Name) else None), tuple(reversed(attributes))


def _stores(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the names that statements set, in the order of the text, without variables of comprehensions."""
    for node in nodes:
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp | ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, (node.lineno, node.col_offset)
        yield from _stores(ast.iter_child_nodes(node))


def _short(node: ast.AST) -> str:
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."
