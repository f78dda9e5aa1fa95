"""Flattening: a closure as the text of one module, and the closures of several kernels as one.

In a closure each function has its own bindings; in a module all share one namespace. Where two functions use one name
for different things, one of them is renamed. The rest of the text stays byte for byte.
"""

from __future__ import annotations

import ast
import builtins
import dataclasses
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from kernellab.errors import UsageError
from kernellab.source import (
    JIT_KINDS,
    Binding,
    Call,
    Closure,
    Constant,
    Constexpr,
    Dtype,
    Function,
    FunctionRef,
    Helper,
    Import,
    Items,
    Members,
    Opaque,
    content_keys,
    is_installed,
    is_name,
    parts,
    referenced_functions,
    with_functions,
)
from kernellab.source.text import literal

# Names of the other parts of an exported module.
RESERVED = frozenset(
    {
        *("launch", "inputs", "check", "main", "reference", "summary", "random_tensor", "listed_tensor"),
        *("operator", "opcheck", "os", "sys", "META", "CONFIGS", "EXPECTED", "HEURISTICS", "INTERPRETED", "RECORD"),
        *("TensorDescriptor", "KERNEL", "DECISIONS", "CHOSEN", "config_for", "fitting"),
        *("decision_for", "decision_on", "GRIDS", "NO_GRID", "recorded_grid"),
        *(f"choose_{number}" for number in range(1, 33)),
    }
)

Span = tuple[int, int, int, int]  # line and column, from and to; columns count bytes, as in `ast`


@dataclass(slots=True)
class FlatModule:
    """The parts of a module, in order: import statements, constants, and the text of each function by its index.

    ``needs`` are the functions that a constant uses, ``names`` the global name of each function, ``missing`` the types
    of globals that cannot be exported, by name. ``imported`` are the functions that the module imports, and those that
    only they use.
    """

    closure: Closure
    imports: dict[str, str] = field(default_factory=dict)
    constants: dict[str, str] = field(default_factory=dict)
    needs: dict[str, frozenset[int]] = field(default_factory=dict)
    names: dict[int, str] = field(default_factory=dict)
    texts: dict[int, str] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)
    reserved: frozenset[str] = RESERVED
    imported: frozenset[int] = frozenset()

    def first_constants(self) -> str:
        """Return the constants that need no function, as statements."""
        return "\n".join(f"{name} = {text}" for name, text in self.constants.items() if name not in self.needs)

    def import_lines(self) -> list[str]:
        """Return the import statements, ordered by module."""
        return [_import_line(name, text) for name, text in sorted(self.imports.items(), key=lambda item: item[1])]

    def functions(self, decorator: Callable[[int], str], *, kernels: bool = True) -> Iterator[str]:
        """Yield functions with decorators, callees first, and each constant once its functions are defined.

        Function 0 comes only with ``kernels``.
        """
        visited, done, pending = set[int](), set[int](), dict(self.needs)

        def define(index: int) -> Iterator[str]:
            visited.add(index)
            function = self.closure.functions[index]
            for callee in dict.fromkeys(i for _, binding in function.bindings for i in _functions_written_out(binding)):
                is_needed_now = "class" in {function.kind, self.closure.functions[callee].kind}
                if is_needed_now and callee not in visited:
                    yield from define(callee)
            if function.kind != "lambda":
                yield f"{decorator(index)}{self.texts[index]}"
            done.add(index)
            for name in [name for name, callee in pending.items() if callee <= done]:
                yield f"{name} = {self.constants[name]}"
                del pending[name]

        for index in reversed(range(0 if kernels else 1, len(self.closure.functions))):
            if index not in visited and index not in self.imported:
                yield from define(index)

    def helpers(self) -> Iterator[str]:
        """Yield the helpers with their decorators, callees first."""
        return self.functions(lambda index: decorator_of(self.closure.functions[index]), kernels=False)

    def expression(self, binding: Binding) -> str:
        """Return the expression of a binding in the module.

        Raises:
            UsageError: the value has no expression, only a pickle.
        """
        match binding:
            case FunctionRef(index):
                return self.texts[index] if self.closure.functions[index].kind == "lambda" else self.names[index]
            case Helper(imported):
                return self.expression(imported)
            case Import(module, attribute):
                return self._import(attribute.split(".")[-1] or module.split(".")[-1], binding)
            case Constexpr(inner):
                return f"tl.constexpr({self.expression(inner)})"
            case Items(kind, members):
                inside = ", ".join(map(self.expression, members))
                return f"({inside},)" if kind == "tuple" else f"[{inside}]" if kind == "list" else f"{kind}([{inside}])"
            case Call(Import("builtins", "getattr"), (owner, Constant(name))) if is_name(name):
                return f"{self.expression(owner)}.{name}"
            case Call(function, arguments, None):
                return f"{self.expression(function)}({', '.join(map(self.expression, arguments))})"
            case Constant(value):
                return literal(value)
            case Dtype(name):
                return f'tl.dtype("{name}")'
            case _:
                raise UsageError(
                    f"{binding} cannot be written as a Python expression; use a NamedTuple or frozen dataclass."
                )

    def _global_name(self, name: str, definition: str, where: dict[str, str]) -> str:
        """Return the global name of a definition: ``name``, or one like it where that means something else."""
        definitions = {**self.imports, **self.constants}
        for candidate in (name, *(f"{name}_{i}" for i in range(2, 1000))):
            if definitions.get(candidate) == definition:
                return candidate
            if candidate not in definitions and candidate not in self.reserved and candidate not in self.names.values():
                where[candidate] = definition
                return candidate
        raise AssertionError("unreachable: a thousand names are taken")

    def _import(self, name: str, binding: Import) -> str:
        return self._global_name(name, f"{binding.module}:{binding.attribute}", self.imports)

    def target(self, name: str, binding: Binding) -> str | None:
        """Return the global name of a binding that a function calls ``name``; None where it was left behind."""
        match binding:
            case FunctionRef(index):
                return self.names[index]
            case Helper(imported=Import() as imported) | (Import() as imported):
                return self._import(name, imported)
            case Members(module, ()) if is_installed(module):
                return self._import(name, Import(module))
            case Constant() | Constexpr() | Dtype() | Items() | Call():
                chosen = self._global_name(name, self.expression(binding), self.constants)
                if needed := frozenset(_functions_written_out(binding)):
                    self.needs[chosen] = needed
                return chosen
            case Opaque(type_):
                self.missing[name] = type_
        return None


def flatten_closure(closure: Closure, reserved: frozenset[str] = RESERVED) -> FlatModule:
    """Flatten a closure into the parts of one module; ``reserved`` are names of its other parts."""
    flat = FlatModule(closure, reserved=reserved, imported=_imported_functions(closure))
    flat.imports.update({"torch": "torch:", "triton": "triton:", "tl": "triton.language:"})
    if any(function.kind == "gluon" for function in closure.functions):
        flat.imports["gluon"] = "triton.experimental:gluon"
    written = {index: f for index, f in enumerate(closure.functions) if index not in flat.imported}
    for index, function in written.items():
        used_names = {*reserved, *flat.imports, *flat.names.values()}
        candidates = (function.name, *(f"{function.name}_{i}" for i in range(2, 1000)))
        flat.names[index] = next(name for name in candidates if name not in used_names)
    for index, function in written.items():
        flat.texts[index] = _rewrite_globals(function, flat, flat.names[index])
    return flat


def _imported_functions(closure: Closure) -> frozenset[int]:
    """Return the helpers of installed packages in a closure, and the functions that only they use."""
    uses = [[binding for _, binding in function.bindings] for function in closure.functions]
    everything = [{i for binding in bindings for i in referenced_functions(binding)} for bindings in uses]
    written = [{i for binding in bindings for i in _functions_written_out(binding)} for bindings in uses]
    of_helpers = _reachable_indices(set().union(*everything) - set().union(*written), everything)
    return frozenset(of_helpers - _reachable_indices(set(range(len(uses))) - of_helpers, written))


def _reachable_indices(first: set[int], uses: Sequence[set[int]]) -> set[int]:
    reachable, pending = set(first), list(first)
    while pending:
        new = uses[pending.pop()] - reachable
        reachable |= new
        pending += new
    return reachable


def _functions_written_out(binding: Binding) -> Iterator[int]:
    match binding:
        case Helper():
            return
        case FunctionRef(index):
            yield index
        case _:
            for part in parts(binding):
                yield from _functions_written_out(part)


def _import_line(name: str, definition: str) -> str:
    module, _, attribute = definition.partition(":")
    if "." in attribute:
        return f"import {module}\n{name} = {module}.{attribute}"
    if attribute:
        return f"from {module} import {attribute}" + ("" if attribute == name else f" as {name}")
    return f"import {module}" + ("" if module == name else f" as {name}")


def decorator_of(function: Function, options: Sequence[tuple[str, object]] = ()) -> str:
    """Return the decorator line of a kernel or helper in its dialect, or ""; ``options`` are its arguments."""
    if function.kind in JIT_KINDS:
        jit = "@gluon.jit" if function.kind == "gluon" else "@triton.jit"
        all_options = [*options, *([("noinline", True)] if function.noinline else [])]
        arguments = ", ".join(f"{name}={literal(value)}" for name, value in all_options)
        return f"{jit}({arguments})\n" if all_options else f"{jit}\n"
    return "@triton.constexpr_function\n" if function.kind == "constexpr_function" else ""


def _rewrite_globals(function: Function, flat: FlatModule, name: str) -> str:
    """Return the text of a function with its global names replaced by those of the module."""
    is_lambda = function.kind == "lambda"
    tree = ast.parse(f"({function.text})" if is_lambda else function.text)
    bindings = dict(function.bindings)
    annotations = _annotations(tree)
    edits: dict[Span, str] = {_span(a): repr(ast.unparse(a)) for a in annotations if _uses_unknown_names(a, bindings)}
    if function.kind in JIT_KINDS:
        edits |= {_span(a): "tl.constexpr" for a in annotations if _is_constexpr_text(a)}
    for node, binding in _references(tree, bindings):
        wanted = flat.target(node.id if isinstance(node, ast.Name) else node.attr, binding)
        if wanted is None:
            around = (a for a in annotations if any(part is node for part in ast.walk(a)))
            edits.update({_span(a): repr(ast.unparse(a)) for a in around})
        elif wanted != ast.unparse(node):
            edits[_span(node)] = wanted
    text = _apply_edits(f"({function.text})" if is_lambda else function.text, edits)
    if is_lambda:
        return text[1:-1]
    keyword = "class" if function.kind == "class" else "def"
    return re.sub(rf"\b{keyword}\s+{re.escape(function.name)}\b", f"{keyword} {name}", text, count=1)


def _references(tree: ast.AST, bindings: dict[str, Binding]) -> Iterator[tuple[ast.Name | ast.Attribute, Binding]]:
    """Yield each use of a global: a name, or an attribute chain out of modules that are left behind."""
    parents = {id(child): parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node.id not in bindings:
            continue
        binding: Binding | None = bindings[node.id]
        expression: ast.Name | ast.Attribute = node
        while isinstance(binding, Members) and binding.members:
            parent = parents.get(id(expression))
            if not isinstance(parent, ast.Attribute):
                break
            binding, expression = dict(binding.members).get(parent.attr), parent
        if binding is not None:
            yield expression, binding


def _annotations(tree: ast.AST) -> list[ast.expr]:
    of_arguments = (node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg))
    of_results = (node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [annotation for annotation in (*of_arguments, *of_results) if annotation is not None]


def _uses_unknown_names(annotation: ast.expr, bindings: dict[str, Binding]) -> bool:
    """Whether an annotation uses names that the module lacks; it is then written as a string."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return not names <= {*bindings, *dir(builtins)}


def _is_constexpr_text(annotation: ast.expr) -> bool:
    """Whether an annotation is the string ``"constexpr"``, which Triton's own interpreter does not understand."""
    value = annotation.value if isinstance(annotation, ast.Constant) else None
    return isinstance(value, str) and value.strip().rpartition(".")[2] == "constexpr"


def _span(node: ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _apply_edits(text: str, edits: dict[Span, str]) -> str:
    lines = [line.encode() for line in re.findall(r"[^\n]*\n|[^\n]+", text)]  # splitlines() splits at more than `ast`
    for (line, column, end_line, end_column), new in sorted(edits.items(), reverse=True):
        before, after = lines[line - 1][:column], lines[end_line - 1][end_column:]
        lines[line - 1 : end_line] = [before + new.encode() + after]
    return b"".join(lines).decode()


def function_text(function: Callable[..., Any]) -> str:
    """Return the source of a function of the lab for a module that imports torch at its top, without annotations."""
    text = inspect.getsource(function)
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    for argument in ast.walk(node.args):
        if isinstance(argument, ast.arg):
            argument.annotation = None
    body = "\n".join(text.splitlines()[node.body[0].lineno - 1 :])
    body = re.sub(r": Any\b| -> Any\b", "", body.replace("    import torch\n\n", ""))
    return f"def {node.name}({ast.unparse(node.args)}):\n{body}"


def append_closures(closure: Closure, others: Sequence[Closure]) -> tuple[Closure, tuple[dict[int, int], ...]]:
    """Append the functions of other closures to one, equal ones once; return it, and a map of indices for each."""
    functions = list(closure.functions)
    own, *keys_of_others = content_keys([member.functions for member in (closure, *others)])
    known = {own[index]: index for index in reversed(range(len(functions)))}
    index_maps = []
    for other, keys in zip(others, keys_of_others, strict=True):
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known |= {key: len(functions) + number for number, key in enumerate(new)}
        index_map = {index: known[key] for index, key in enumerate(keys)}
        for key in new:
            function = other.functions[keys.index(key)]
            bindings = tuple((name, remap_functions(binding, index_map)) for name, binding in function.bindings)
            functions.append(dataclasses.replace(function, bindings=bindings))
        index_maps.append(index_map)
    return dataclasses.replace(closure, functions=tuple(functions)), tuple(index_maps)


def remap_functions(binding: Binding, index_map: dict[int, int]) -> Binding:
    """Return a binding with its function indices mapped to those of the merged closure."""
    return with_functions(binding, lambda index: FunctionRef(index_map[index]))
