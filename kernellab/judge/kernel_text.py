"""A candidate's kernels as text: Triton's language, or a reason why a judge does not run them.

The text of a kernel is compiled and interpreted in the judge's processes. In the interpreter its body is Python that
is executed; in the compiler, defaults and annotations are, and helpers that compute on numbers. So each node of its
syntax tree is of a known kind: nothing but the language passes, and what is outside the text (decorators, hooks,
heuristics) is dropped.

Triton looks up the text of a function by file and line, and parses from the first ``def`` on. So each text has a file
of its own here, and begins with the ``def`` that is checked.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from dataclasses import dataclass, replace

from kernellab.judge.kernel_expressions import (
    TYPE_BUILTINS,
    ExpressionCheck,
    SyntaxProblem,
    chain_of,
    short_text,
    stores,
)
from kernellab.judge.kernel_names import RUNNABLE_KINDS, NamesOfKernel, meaning_of
from kernellab.judge.verdict import Reason
from kernellab.source import CELL_PREFIX, Binding, Closure, Function, parse_python

MOST_FUNCTIONS = 200
MOST_CHARACTERS = 1_000_000
_MOST_PROBLEMS = 100
_LINE_BREAKS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f\x85\u2028\u2029]")  # lines to str.splitlines, not to Python
_UNUSED = "def unused():\n    pass\n"
MOST_DEPTH = 150
_PLAIN_STATEMENTS = (ast.Pass, ast.Break, ast.Continue)


def problems_of_closure(closure: Closure) -> tuple[Reason, ...]:
    """Return everything in a kernel's text and bindings that a judge does not run, up to a hundred.

    Python functions, lambdas and classes count only where a kernel or a helper names them: hooks and heuristics do not
    reach the judge. The closure must be one that `kernellab.source.closure_of_json` accepts.
    """
    total = sum(len(function.text) for function in closure.functions)
    if len(closure.functions) > MOST_FUNCTIONS or total > MOST_CHARACTERS:
        detail = (
            f"{closure.name} has {len(closure.functions):,} functions with {total:,} characters; a judge reads up to "
            f"{MOST_FUNCTIONS} with {MOST_CHARACTERS:,}."
        )
        return (Reason("too_large", detail),)
    problems: list[Reason] = []
    for function in closure.functions:
        if function.kind in RUNNABLE_KINDS and len(problems) < _MOST_PROBLEMS:
            problems += [
                Reason(found.rule, found.detail, closure.label(function.file), function.first_line + found.line - 1)
                for found in _syntax_problems(function, closure)
            ]
    return tuple(problems[:_MOST_PROBLEMS])


def problem_of_constant(name: str, binding: Binding, closure: Closure) -> Reason | None:
    """Return why a judge does not pass a value of a launch for the constexpr ``name``, or None.

    Such a value is a number, a string, a dtype, a jit function, or a tuple, list or dict of these.
    """
    meaning, _ = meaning_of(binding, (), closure.functions)
    if meaning.kind in {"value", "jit", "builtin"}:
        return None
    reason = meaning.reason or "is not a value of Triton's language"
    return Reason(meaning.rule, f"{name} of {closure.name} {reason}.")


def parameter_names_of(text: str) -> frozenset[str]:
    """Return the names of the parameters of a function's text; none of a text that is not one function."""
    try:
        node = parse_python(text).body[0]
    except (SyntaxError, ValueError, IndexError, RecursionError, MemoryError):
        return frozenset()
    return frozenset(part.arg for part in ast.walk(node) if isinstance(part, ast.arg))


def clean_closure(closure: Closure) -> Closure:
    """Return a closure without problems as it is run: its kernels and helpers with the names that they use.

    Decorators are dropped; Python functions and classes that only those use give way to an empty function, so that
    indices stay. An annotation that is neither text nor a name of the language becomes None, or ``'constexpr'``. Each
    function has a file of its own, whose label is that of the user's file; lines stay.
    """
    functions, labels = [], []
    for index, function in enumerate(closure.functions):
        is_run = function.kind in RUNNABLE_KINDS
        file = f"{CELL_PREFIX}{index}-{function.name if is_run else 'unused'}"
        if is_run:
            functions.append(_clean_function(function, file, closure))
            labels.append((file, closure.label(function.file)))
        else:
            functions.append(Function("unused", "python", _UNUSED, file, 1, False, ()))
    return Closure(tuple(functions), labels=tuple(labels))


def _syntax_problems(function: Function, closure: Closure) -> list[SyntaxProblem]:
    try:
        node = _definition(function)
        if isinstance(node, SyntaxProblem):
            return [node]
        bindings = dict(function.bindings)
        check = KernelCheck(
            NamesOfKernel(bindings, closure.functions, _names_of_code(node)),
            is_static=function.kind == "constexpr_function",
        )
        check.check(node)
        check.problems += [_name_problem(name) for name in bindings if name.startswith("__")]
    except RecursionError:
        return [SyntaxProblem("too_large", f"{function.name} is nested too deeply.", 1)]
    return sorted(check.problems, key=lambda problem: problem.line)


def _name_problem(name: str) -> SyntaxProblem:
    return SyntaxProblem("host_code", f"{name} is a name of Python's own.", 1)


def _definition(function: Function) -> ast.FunctionDef | SyntaxProblem:
    """Return the syntax tree of a function, or the problem of a text that Triton might read otherwise."""
    if (found := _LINE_BREAKS.search(function.text)) is not None:
        line = function.text.count("\n", 0, found.start()) + 1
        return SyntaxProblem("unsupported", f"The text has the character {found.group()!r}.", line)
    if re.match(rf"def +{re.escape(function.name)} *\(", function.text) is None:
        return SyntaxProblem("unsupported", f"The text does not begin with def {function.name}(.", 1)
    try:
        body = parse_python(function.text).body
    except (SyntaxError, ValueError, MemoryError) as exc:
        return SyntaxProblem("unsupported", f"The text of {function.name} is not Python: {exc}.", 1)
    node = body[0]
    if len(body) != 1 or not isinstance(node, ast.FunctionDef) or node.decorator_list:
        return SyntaxProblem("unsupported", f"The text of {function.name} is not one function.", 1)
    if node.name.startswith("__"):
        return _name_problem(node.name)
    if depth_of(node) > MOST_DEPTH:
        detail = f"{function.name} has expressions or branches that are nested more than {MOST_DEPTH} deep."
        return SyntaxProblem("too_large", detail, 1)
    return node


def _parameters(node: ast.FunctionDef) -> list[ast.arg]:
    """Return the parameters of a function but ``**kwargs``."""
    arguments = [*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs]
    return arguments if node.args.vararg is None else [*arguments, node.args.vararg]


def _names_of_code(node: ast.FunctionDef) -> frozenset[str]:
    """Return the names that the body and the defaults read."""
    defaults = [default for default in (*node.args.defaults, *node.args.kw_defaults) if default is not None]
    return frozenset(
        part.id for root in (*defaults, *node.body) for part in ast.walk(root) if isinstance(part, ast.Name)
    )


def _clean_function(function: Function, file: str, closure: Closure) -> Function:
    """Return a function with plain annotations, in a file of its own, with the bindings that its text reads."""
    node = _parse_function(function.text)
    lines = function.text.encode().split(b"\n")
    annotations = (*(parameter.annotation for parameter in _parameters(node)), node.returns)
    replaced = [part for part in annotations if part is not None and not _is_plain_annotation(part, function, closure)]
    for part in sorted(replaced, key=lambda part: (part.lineno, part.col_offset), reverse=True):
        _replace(lines, part, "'constexpr'" if "constexpr" in ast.unparse(part) else "None")
    text = b"\n".join(lines).decode()
    read = {part.id for part in ast.walk(_parse_function(text)) if isinstance(part, ast.Name)}
    bindings = tuple(
        (name, binding)
        for name, binding in dict(function.bindings).items()
        if name in read and meaning_of(binding, (), closure.functions)[0].kind != "refused"
    )
    return replace(function, text=text, file=file, bindings=bindings)


def _parse_function(text: str) -> ast.FunctionDef:
    (node,) = parse_python(text).body
    assert isinstance(node, ast.FunctionDef)
    return node


def _is_plain_annotation(node: ast.expr, function: Function, closure: Closure) -> bool:
    """Whether an annotation is a text, None, or a name of the language: nothing that Python would compute."""
    if isinstance(node, ast.Constant):
        return True
    root, attributes = chain_of(node)
    if root is None:
        return False
    binding = dict(function.bindings).get(root.id)
    if binding is None:
        return root.id in TYPE_BUILTINS and not attributes
    meaning, used = meaning_of(binding, attributes, closure.functions)
    return meaning.kind in {"type", "class", "value"} and used == len(attributes)


def _replace(lines: list[bytes], node: ast.expr, text: str) -> None:
    """Replace an expression in brackets by another, on the same lines."""
    assert node.end_lineno is not None
    assert node.end_col_offset is not None
    first, last = node.lineno - 1, node.end_lineno - 1
    end = lines[last][node.end_col_offset :]
    lines[first] = lines[first][: node.col_offset] + text.encode() + (end if last == first else b"")
    if last > first:
        lines[first + 1 : last + 1] = [b""] * (last - first - 1) + [end]


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
        arguments, parameters = node.args, _parameters(node)
        if arguments.kwarg is not None:
            self.add("unsupported", f"**{arguments.kwarg.arg} takes names that are not known.", arguments.kwarg)
        if getattr(node, "type_params", None):
            self.add("unsupported", "Type parameters are not syntax of Triton's language.", node)
        for parameter in parameters:
            self.local_name(parameter.arg, parameter.lineno)
            self._annotation(parameter.annotation)
        self._annotation(node.returns)
        for default in (*arguments.defaults, *arguments.kw_defaults):
            if default is not None:
                self._default(default)
        self.parameters = frozenset(parameter.arg for parameter in parameters)

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
