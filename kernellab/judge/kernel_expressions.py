"""The expressions that a judge runs: operators, calls of Triton's language, and names that lead to nothing else.

Each name is a parameter, a local value, a binding that is of Triton's language, or one of the few builtins of Python
that Triton's compiler takes itself.
"""

from __future__ import annotations

import ast
import builtins
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field

from kernellab._triton.language_names import MESSAGE_FUNCTIONS, VALUE_ATTRIBUTES
from kernellab.judge.kernel_names import Meaning, NamesOfKernel, Rule

KERNEL_BUILTINS = frozenset(
    {"abs", "bool", "float", "int", "isinstance", "len", "list", "max", "min", "print", "range", "str", "tuple"}
)
STATIC_BUILTINS = KERNEL_BUILTINS | {"all", "any", "divmod", "enumerate", "reversed", "round", "sorted", "sum", "zip"}
"""The builtins of a kernel, and of a function that the compiler runs on numbers."""
TYPE_BUILTINS = frozenset(["bool", "float", "int", "list", "object", "str", "tuple"])
_STATIC_ATTRIBUTES = frozenset({"append", "bit_length"})
_FALL_THROUGH = frozenset({"getattr", "hasattr"})  # the compiler has both, where a local of the name is not set yet
_OF_THE_INTERPRETER = frozenset({"interpreter_builder", "interpreter_semantic"})
_PYTHON_NAMES = frozenset(dir(builtins))
_FORMAT_SPEC = re.compile(r"[-+<>^# 0-9.,_a-zA-Z%]{0,6}")

_OPERATIONS = (ast.BinOp, ast.UnaryOp, ast.BoolOp, ast.IfExp, ast.Tuple, ast.List, ast.Starred)
LARGEST_INTEGER = 2**64
_BITS = 64
_LONGEST_SEQUENCE = 4096


@dataclass(frozen=True, slots=True)
class SyntaxProblem:
    """A problem of a text: rule, sentence, and the line in the text, from 1."""

    rule: Rule
    detail: str
    line: int


@dataclass(slots=True)
class ExpressionCheck:
    """Checks expressions of one function; ``problems`` grows.

    ``is_static`` is for a function that the compiler runs on numbers.
    """

    names: NamesOfKernel
    is_static: bool
    problems: list[SyntaxProblem] = field(default_factory=list)
    parameters: frozenset[str] = frozenset()
    stored: dict[str, tuple[int, int]] = field(default_factory=dict)  # a local and where it is first set
    _inner: list[frozenset[str]] = field(default_factory=list)  # variables of the comprehensions around

    def add(self, rule: Rule, detail: str, node: ast.AST) -> None:
        """Add a problem at a node, once."""
        problem = SyntaxProblem(rule, detail, getattr(node, "lineno", 1))
        if problem not in self.problems:
            self.problems.append(problem)

    def add_unsupported(self, node: ast.AST) -> None:
        """Add a problem for a node of a kind that Triton's language lacks."""
        kind = "An f-string outside a message" if isinstance(node, ast.JoinedStr) else type(node).__name__
        self.add("unsupported", f"{kind} is not syntax of Triton's language.", node)

    def local_name(self, name: str, line: int) -> None:
        """Add a problem for a parameter or local name that Python or the interpreter uses itself."""
        if name.startswith(("__", "_kernellab")) or name in _FALL_THROUGH | _OF_THE_INTERPRETER:
            problem = SyntaxProblem("host_code", f"{name} is a name of Python or of the judge.", line)
            self.problems.append(problem)

    def value(self, node: ast.expr) -> None:
        """Check an expression that is used as a value."""
        match node:
            case ast.Constant(value=value):
                self._constant(node, value)
            case ast.Name() | ast.Attribute():
                if self._check_name(node).kind not in {"value", "jit", "refused"}:
                    self._no_value(node)
            case ast.Call():
                self._call(node)
            case ast.Compare(left=left, comparators=others):
                for operand in (left, *others):
                    self._check_compared_operand(operand)
            case ast.Subscript(value=value, slice=index):
                self._subscript(value, index)
            case ast.ListComp() | ast.GeneratorExp():
                self._comprehension(node)
            case _ if isinstance(node, _OPERATIONS):
                self.size(node)
                self.values(child for child in ast.iter_child_nodes(node) if isinstance(child, ast.expr))
            case _:
                self.add_unsupported(node)

    def _no_value(self, node: ast.expr) -> None:
        self.add("unsupported", f"{short_text(node)} is called in Triton's language; it is not a value.", node)

    def values(self, nodes: Iterable[ast.expr]) -> None:
        """Check several expressions."""
        for node in nodes:
            self.value(node)

    def _constant(self, node: ast.expr, value: object) -> None:
        if isinstance(value, int) and abs(value) > LARGEST_INTEGER:
            self.add("too_large", "A number has more than 64 bits.", node)
        elif isinstance(value, bytes | complex):
            self.add("unsupported", f"{short_text(node)} is not a constant of Triton's language.", node)

    def _check_compared_operand(self, node: ast.expr) -> None:
        """Check an operand of a comparison, which may be a class, as in ``x.type == tl.pointer_type``."""
        if not isinstance(node, ast.Name | ast.Attribute):
            self.value(node)
        elif self._check_name(node).kind in {"builtin", "module"}:
            self._no_value(node)

    def _subscript(self, value: ast.expr, index: ast.expr) -> None:
        if isinstance(value, ast.Name | ast.Attribute) and self._check_name(value).kind not in {"value", "refused"}:
            self.add("host_code", f"{short_text(value)}[...] would launch it, which the host does.", value)
        else:
            self.value(value)
        for part in index.elts if isinstance(index, ast.Tuple) else [index]:
            if isinstance(part, ast.Slice):
                self.values(bound for bound in (part.lower, part.upper, part.step) if bound is not None)
            else:
                self.value(part)

    def _comprehension(self, node: ast.ListComp | ast.GeneratorExp) -> None:
        depth = len(self._inner)
        for generator in node.generators:
            self.value(generator.iter)
            stored = dict(stores([generator.target]))
            for name in stored:
                self.local_name(name, generator.target.lineno)
            self.target(generator.target)
            self._inner.append(frozenset(stored))
            self.values(generator.ifs)
            if generator.is_async:
                self.add_unsupported(node)
        self.value(node.elt)
        del self._inner[depth:]

    def target(self, node: ast.expr) -> None:
        """Check what an assignment, a loop or a comprehension sets."""
        match node:
            case ast.Name():
                return
            case ast.Tuple(elts=elements) | ast.List(elts=elements):
                for element in elements:
                    self.target(element)
            case ast.Starred(value=value):
                self.target(value)
            case _:
                self.add("host_code", f"{short_text(node)} is set: a kernel sets nothing but local names.", node)

    def message(self, node: ast.expr) -> None:
        """Check a part of a message, which may be an f-string."""
        if not isinstance(node, ast.JoinedStr):
            return self.value(node)
        for part in node.values:
            if not isinstance(part, ast.FormattedValue):
                continue
            self.message(part.value)
            spec = part.format_spec
            if spec is None:
                continue
            texts = [piece.value for piece in getattr(spec, "values", ()) if isinstance(piece, ast.Constant)]
            if len(texts) != 1 or not _FORMAT_SPEC.fullmatch(str(texts[0])) or re.search(r"\d{3}", str(texts[0])):
                self.add("unsupported", "A message formats a value by more than digits and a letter.", node)
        return None

    def _call(self, node: ast.Call) -> None:
        name = self._check_callee(node.func)
        for keyword in node.keywords:
            if keyword.arg is None:
                self.add("unsupported", "** passes names that are not known.", keyword.value)
            elif keyword.arg.startswith("_"):
                self.add("host_code", f"{keyword.arg} is an argument of the compiler.", keyword.value)
            elif keyword.arg == "file":
                self.add("host_code", "file is an argument of Python's print.", keyword.value)
        for argument in (*node.args, *(keyword.value for keyword in node.keywords)):
            if name in MESSAGE_FUNCTIONS or name == "print":
                self.message(argument)
            elif name == "isinstance":
                self._class_argument(argument)
            else:
                self.value(argument)

    def _check_callee(self, node: ast.expr) -> str:
        """Check the function of a call; return its own name, ``load`` of ``tl.load``."""
        match node:
            case ast.Name(id=name) if self._is_local(name):
                self._check_name(node)
                if name not in self.parameters:
                    self.add("host_code", f"{name} is a local value, and is called.", node)
                return ""
            case ast.Name() | ast.Attribute():
                meaning = self._check_name(node)
                if meaning.kind in {"type", "module"}:
                    self.add("host_code", f"{short_text(node)} is not a function of Triton's language.", node)
                return meaning.name
            case _:
                self.add("host_code", f"{short_text(node)} is computed, and is called.", node)
                self.value(node)
                return ""

    def _class_argument(self, node: ast.expr) -> None:
        for part in node.elts if isinstance(node, ast.Tuple) else [node]:
            if isinstance(part, ast.Name | ast.Attribute):
                self._check_name(part)
            else:
                self.value(part)

    # names

    def _is_local(self, name: str) -> bool:
        return name in self.parameters or name in self.stored or any(name in names for names in self._inner)

    def _check_name(self, node: ast.Name | ast.Attribute) -> Meaning:
        """Check a name with its attributes; return its meaning."""
        root, attributes = chain_of(node)
        if root is None:
            inner: ast.expr = node
            while isinstance(inner, ast.Attribute):
                inner = inner.value
            self.value(inner)
            return self._with_attributes(Meaning("value"), node, attributes)
        if self._is_local(root.id):
            self._local(root)
            return self._with_attributes(Meaning("value"), node, attributes)
        if root.id.startswith("__"):
            self.add("host_code", f"{root.id} is private to Python.", node)
            return Meaning("refused")
        if root.id not in self.names.bindings:
            return self._builtin(root, attributes, node)
        meaning, used = self.names.meaning(root.id, attributes)
        text = ".".join((root.id, *attributes[: max(used, 1)])) if attributes and used else root.id
        if meaning.kind == "refused":
            self.add(meaning.rule, f"{text if not used else short_text(node)} {meaning.reason}.", node)
            return meaning
        rest = attributes[used:]
        if rest and meaning.kind != "value":
            self.add("host_code", f"{short_text(node)} is not of Triton's language.", node)
            return Meaning("refused")
        return self._with_attributes(meaning, node, rest)

    def _local(self, node: ast.Name) -> None:
        place = self.stored.get(node.id)
        is_inner = any(node.id in names for names in self._inner)
        if place is None or is_inner or node.id in self.parameters or node.id not in _PYTHON_NAMES:
            return
        if (node.lineno, node.col_offset) < place:
            self.add("host_code", f"{node.id} is Python's own where it is read, before the kernel sets it.", node)

    def _builtin(self, root: ast.Name, attributes: tuple[str, ...], node: ast.expr) -> Meaning:
        known = STATIC_BUILTINS if self.is_static else KERNEL_BUILTINS
        if root.id not in known:
            self.add("unknown_name", f"{root.id} is not defined in the kernel's text.", node)
            return Meaning("refused")
        if attributes:
            self.add("host_code", f"{short_text(node)} is not of Triton's language.", node)
            return Meaning("refused")
        return Meaning("python", name=root.id)

    def _with_attributes(self, meaning: Meaning, node: ast.expr, attributes: tuple[str, ...]) -> Meaning:
        allowed = VALUE_ATTRIBUTES | _STATIC_ATTRIBUTES if self.is_static else VALUE_ATTRIBUTES
        for attribute in attributes:
            if attribute not in allowed:
                self.add("host_code", f"{short_text(node)}: {attribute} is not an attribute of Triton's values.", node)
                return Meaning("refused")
        return meaning

    # sizes

    def size(self, node: ast.expr) -> None:
        """Add a problem for an expression of numbers beyond 64 bits."""
        try:
            folded_integer(node, lambda name: None if self._is_local(name) else self.names.integer(name))
        except OverflowError:
            self.add("too_large", f"{short_text(node)} has more than 64 bits, or is a long sequence.", node)


def chain_of(node: ast.expr) -> tuple[ast.Name | None, tuple[str, ...]]:
    """Return the name at the root of a chain of attributes, None where it is not a name, and the attributes."""
    attributes: list[str] = []
    while isinstance(node, ast.Attribute):
        attributes.append(node.attr)
        node = node.value
    return (node if isinstance(node, ast.Name) else None), tuple(reversed(attributes))


def stores(nodes: Iterable[ast.AST]) -> Iterator[tuple[str, tuple[int, int]]]:
    """Yield the names that statements set, in the order of the text, without variables of comprehensions."""
    for node in nodes:
        if isinstance(node, ast.ListComp | ast.GeneratorExp | ast.SetComp | ast.DictComp | ast.Lambda):
            continue
        if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            yield node.id, (node.lineno, node.col_offset)
        yield from stores(ast.iter_child_nodes(node))


def short_text(node: ast.AST) -> str:
    """Return an expression as text of at most 80 characters."""
    try:
        text = ast.unparse(node)
    except (RecursionError, ValueError):
        text = type(node).__name__
    return text if len(text) <= 80 else f"{text[:77]}..."


def folded_integer(node: ast.expr, integer: Callable[[str], int | None]) -> int | None:
    """Return the value of an expression of whole numbers, None where it is not known.

    ``integer`` returns the number that a name is bound to, or None.

    Raises:
        OverflowError: a value beyond 64 bits, or a sequence repeated beyond a few thousand elements.
    """
    match node:
        case ast.Constant(value=int(value)):
            return int(value)
        case ast.Name(id=name):
            return integer(name)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            positive = folded_integer(operand, integer)
            return None if positive is None else -positive
        case ast.BinOp(left=left, op=op, right=right):
            one, other = folded_integer(left, integer), folded_integer(right, integer)
            is_repeated = isinstance(op, ast.Mult) and (_is_sequence(left) or _is_sequence(right))
            if is_repeated and max(one or 0, other or 0) > _LONGEST_SEQUENCE:
                raise OverflowError("a long sequence")
            return None if one is None or other is None else _apply_operator(op, one, other)
    return None


def _is_sequence(node: ast.expr) -> bool:
    is_text = isinstance(node, ast.Constant) and isinstance(node.value, str | bytes)
    return is_text or isinstance(node, ast.Tuple | ast.List | ast.JoinedStr)


def _apply_operator(op: ast.operator, one: int, other: int) -> int | None:
    """Return the result of an operator; the operands have at most 65 bits each."""
    match op:
        case ast.Add():
            value = one + other
        case ast.Sub():
            value = one - other
        case ast.Mult():
            value = one * other
        case ast.FloorDiv() if other:
            value = one // other
        case ast.Pow() if other >= 0:
            _require_bits((abs(one).bit_length() - 1) * other)
            value = one**other
        case ast.LShift() if other >= 0:
            _require_bits(other if one else 0)
            value = one << other if one else 0
        case _:
            return None
    if abs(value) > LARGEST_INTEGER:
        raise OverflowError("a number beyond 64 bits")
    return value


def _require_bits(count: int) -> None:
    if count > _BITS:
        raise OverflowError("a number beyond 64 bits")
