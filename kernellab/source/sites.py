"""The places of a kernel's text whose values can be looked at: assignments, accesses, loops and returns."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from enum import StrEnum


class SiteKind(StrEnum):
    """The kinds of places in a kernel where values arise or go."""

    ASSIGNMENT = "assignment"
    LOOP = "loop variable"
    RETURN = "return"
    CALL = "call"


@dataclass(frozen=True, slots=True)
class Site:
    """A place that gives values to ``names``: ``()`` for a return, and for a call alone, such as a store.

    ``line`` is one of the file, ``loops`` the lines of the loops around it, outermost first, and
    ``reads`` the names that it reads, in order. ``function`` is the name of the kernel or helper.
    """

    function: str
    kind: SiteKind
    names: tuple[str, ...]
    line: int
    loops: tuple[int, ...]
    reads: tuple[str, ...]


def statements_with_sites(function: ast.FunctionDef, added_lines: int = 0) -> list[tuple[ast.stmt, Site]]:
    """The statements of a parsed function that have a site, in the order of the text.

    ``added_lines`` is what a line of the tree lacks to be one of the file.
    """
    finder = _SiteFinder(function.name, added_lines)
    for statement in function.body:
        finder.visit(statement)
    return finder.sites


class _SiteFinder(ast.NodeVisitor):
    def __init__(self, function: str, added_lines: int) -> None:
        self.function = function
        self.added_lines = added_lines
        self.loops: tuple[int, ...] = ()
        self.sites: list[tuple[ast.stmt, Site]] = []

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        """Leave functions inside functions alone: Triton has none."""

    def visit_Assign(self, node: ast.Assign) -> None:
        """Add the names of all targets."""
        self._add(node, SiteKind.ASSIGNMENT, [name for target in node.targets for name in bound_names(target)])

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        """Add the name that is updated, which is read, too."""
        self._add(node, SiteKind.ASSIGNMENT, bound_names(node.target), first_read=bound_names(node.target))

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        """Add the name of an annotated assignment with a value."""
        if node.value is not None:
            self._add(node, SiteKind.ASSIGNMENT, bound_names(node.target))

    def visit_Return(self, node: ast.Return) -> None:
        """Add a return with a value."""
        if node.value is not None:
            self._add(node, SiteKind.RETURN, [])

    def visit_Expr(self, node: ast.Expr) -> None:
        """Add a call that stands alone."""
        if isinstance(node.value, ast.Call):
            self._add(node, SiteKind.CALL, [])

    def visit_For(self, node: ast.For) -> None:
        """Add the loop variable, then what stands in the loop."""
        line, names = node.lineno + self.added_lines, tuple(bound_names(node.target))
        site = Site(self.function, SiteKind.LOOP, names, line, (*self.loops, line), read_names(node.iter))
        self.sites.append((node, site))
        self.visit_While(node)

    def visit_While(self, node: ast.For | ast.While) -> None:
        """Visit what stands in the loop."""
        outer, self.loops = self.loops, (*self.loops, node.lineno + self.added_lines)
        for statement in node.body:
            self.visit(statement)
        self.loops = outer
        for statement in node.orelse:
            self.visit(statement)

    def _add(self, node: ast.stmt, kind: SiteKind, names: list[str], first_read: list[str] | None = None) -> None:
        value = getattr(node, "value", None)
        reads = (*(first_read or ()), *(() if value is None else read_names(value)))
        walruses = (part.target.id for part in ast.walk(node) if isinstance(part, ast.NamedExpr))
        line, unique = node.lineno + self.added_lines, tuple(dict.fromkeys(reads))
        self.sites.append((node, Site(self.function, kind, (*names, *walruses), line, self.loops, unique)))


def bound_names(target: ast.expr) -> list[str]:
    """The names that a target of an assignment binds; none for elements and attributes."""
    if isinstance(target, ast.Name):
        return [target.id]
    if isinstance(target, ast.Tuple | ast.List):
        return [name for element in target.elts for name in bound_names(element)]
    return bound_names(target.value) if isinstance(target, ast.Starred) else []


def read_names(expression: ast.expr) -> tuple[str, ...]:
    """The names that an expression reads, in the order of the text and each once."""
    reads = [part for part in ast.walk(expression) if isinstance(part, ast.Name) and isinstance(part.ctx, ast.Load)]
    reads.sort(key=lambda part: (part.lineno, part.col_offset))
    return tuple(dict.fromkeys(part.id for part in reads))
