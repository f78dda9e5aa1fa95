"""A closure as the text of one module, and the closures of several kernels as one.

In a closure each function has bindings of its own; in a module all share one namespace. Where two functions call
different things by one name, one of the names changes. All else stays as it was written, to the byte.
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

from kernellab._triton.kernel import is_installed
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
    is_name,
    parts,
    referred,
    with_functions,
)
from kernellab.source.text import literal

# What the rest of an exported module calls its own.
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
class Flat:
    """The parts of a module, in order: import statements, constants, and the text of each function by its index.

    ``needs`` are the functions that a constant is made of, ``names`` gives the global name of each function;
    ``missing`` what its code names and could not be taken along. ``imported`` are the functions that it imports, and
    what these alone use.
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
        by_module = sorted(self.imports.items(), key=lambda item: item[1])
        return [_import_line(name, definition) for name, definition in by_module]

    def functions(self, decorator: Callable[[int], str], *, kernels: bool = True) -> Iterator[str]:
        """Yield the functions with their decorators, those that others use first, and constants as they can be made.

        Function 0 comes only with ``kernels``.
        """
        entered, done, pending = set[int](), set[int](), dict(self.needs)

        def defined(index: int) -> Iterator[str]:
            entered.add(index)
            function = self.closure.functions[index]
            for needed in dict.fromkeys(i for _, binding in function.bindings for i in _written_in(binding)):
                is_needed_now = "class" in {function.kind, self.closure.functions[needed].kind}
                if is_needed_now and needed not in entered:
                    yield from defined(needed)
            if function.kind != "lambda":
                yield f"{decorator(index)}{self.texts[index]}"
            done.add(index)
            for name in [name for name, needed in pending.items() if needed <= done]:
                yield f"{name} = {self.constants[name]}"
                del pending[name]

        for index in reversed(range(0 if kernels else 1, len(self.closure.functions))):
            if index not in entered and index not in self.imported:
                yield from defined(index)

    def helpers(self) -> Iterator[str]:
        """Yield the helpers with their decorators, those that others use first."""
        return self.functions(lambda index: decorator_of(self.closure.functions[index]), kernels=False)

    def expression(self, binding: Binding) -> str:
        """Return what a binding stands for, as an expression of the module.

        Raises:
            UsageError: it is a value that only `pickle` can make again.
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

    def _named(self, name: str, definition: str, where: dict[str, str]) -> str:
        """Return the global name of a definition: ``name``, or one like it where that means something else."""
        taken = {**self.imports, **self.constants}
        for candidate in (name, *(f"{name}_{i}" for i in range(2, 1000))):
            if taken.get(candidate) == definition:
                return candidate
            if candidate not in taken and candidate not in self.reserved and candidate not in self.names.values():
                where[candidate] = definition
                return candidate
        raise AssertionError("unreachable: a thousand names are taken")

    def _import(self, name: str, binding: Import) -> str:
        return self._named(name, f"{binding.module}:{binding.attribute}", self.imports)

    def target(self, name: str, binding: Binding) -> str | None:
        """Return the global name of a binding that some function calls ``name``; None where it stayed behind."""
        match binding:
            case FunctionRef(index):
                return self.names[index]
            case Helper(imported):
                return self._import(name, imported)
            case Import():
                return self._import(name, binding)
            case Members(module, ()) if is_installed(module):
                return self._import(name, Import(module))
            case Constant() | Constexpr() | Dtype() | Items() | Call():
                chosen = self._named(name, self.expression(binding), self.constants)
                if needed := frozenset(_written_in(binding)):
                    self.needs[chosen] = needed
                return chosen
            case Opaque(type_):
                self.missing[name] = type_
        return None


def flattened(closure: Closure, reserved: frozenset[str] = RESERVED) -> Flat:
    """Return the parts of a module that holds a kernel and all that it uses; ``reserved`` are names of the rest."""
    flat = Flat(closure, reserved=reserved, imported=_imported(closure))
    flat.imports.update({"torch": "torch:", "triton": "triton:", "tl": "triton.language:"})
    if any(function.kind == "gluon" for function in closure.functions):
        flat.imports["gluon"] = "triton.experimental:gluon"
    reserved |= set(flat.imports)
    for index, function in enumerate(closure.functions):
        if index in flat.imported:
            continue
        flat.names[index] = _free(function.name, reserved | set(flat.names.values()))
    for index, function in enumerate(closure.functions):
        if index not in flat.imported:
            flat.texts[index] = _rewritten(function, flat, flat.names[index])
    return flat


def _imported(closure: Closure) -> frozenset[int]:
    """Return the helpers of installed packages in a closure, and the functions that these alone use."""
    uses = [[binding for _, binding in function.bindings] for function in closure.functions]
    everything = [{i for binding in bindings for i in referred(binding)} for bindings in uses]
    written = [{i for binding in bindings for i in _written_in(binding)} for bindings in uses]
    of_helpers = _reached(set().union(*everything) - set().union(*written), everything)
    return frozenset(of_helpers - _reached(set(range(len(uses))) - of_helpers, written))


def _reached(first: set[int], uses: Sequence[set[int]]) -> set[int]:
    """Return the indices that can be reached from some by what each uses."""
    found, pending = set(first), list(first)
    while pending:
        new = uses[pending.pop()] - found
        found |= new
        pending += new
    return found


def _written_in(binding: Binding) -> Iterator[int]:
    match binding:
        case Helper():
            return
        case FunctionRef(index):
            yield index
        case _:
            for part in parts(binding):
                yield from _written_in(part)


def _import_line(name: str, definition: str) -> str:
    """Return the statement that imports ``module:attribute`` under a name."""
    module, _, attribute = definition.partition(":")
    if "." in attribute:
        return f"import {module}\n{name} = {module}.{attribute}"
    if attribute:
        return f"from {module} import {attribute}" + ("" if attribute == name else f" as {name}")
    return f"import {module}" + ("" if module == name else f" as {name}")


def _free(name: str, taken: frozenset[str]) -> str:
    return next(c for c in (name, *(f"{name}_{i}" for i in range(2, 1000))) if c not in taken)


def decorator_of(function: Function, options: Sequence[tuple[str, object]] = ()) -> str:
    """Return the decorator of a kernel or helper in its dialect as a line, or ""; ``options`` are what it is given."""
    if function.kind in JIT_KINDS:
        jit = "@gluon.jit" if function.kind == "gluon" else "@triton.jit"
        given = [*options, *([("noinline", True)] if function.noinline else [])]
        arguments = ", ".join(f"{name}={literal(value)}" for name, value in given)
        return f"{jit}({arguments})\n" if given else f"{jit}\n"
    return "@triton.constexpr_function\n" if function.kind == "constexpr_function" else ""


def _rewritten(function: Function, flat: Flat, name: str) -> str:
    """Return the text of a function with its global names replaced by those of the module."""
    is_lambda = function.kind == "lambda"
    tree = ast.parse(f"({function.text})" if is_lambda else function.text)
    bindings = dict(function.bindings)
    quoted_annotations = _annotations(tree)
    edits: dict[Span, str] = {_span(a): repr(ast.unparse(a)) for a in quoted_annotations if _is_open(a, bindings)}
    if function.kind in JIT_KINDS:
        edits |= {_span(a): "tl.constexpr" for a in quoted_annotations if _is_constexpr_text(a)}
    for node, binding in _references(tree, bindings):
        first = _first_name(node)
        wanted = flat.target(first if isinstance(node, ast.Name) else node.attr, binding)  # type: ignore[attr-defined]
        if wanted is None:
            edits.update({_span(a): repr(ast.unparse(a)) for a in quoted_annotations if _holds(a, node)})
        elif wanted != ast.unparse(node):
            edits[_span(node)] = wanted
    text = _edited(f"({function.text})" if is_lambda else function.text, edits)
    if is_lambda:
        return text[1:-1]
    keyword = "class" if function.kind == "class" else "def"
    return re.sub(rf"\b{keyword}\s+{re.escape(function.name)}\b", f"{keyword} {name}", text, count=1)


def _references(tree: ast.AST, bindings: dict[str, Binding]) -> Iterator[tuple[ast.expr, Binding]]:
    """Yield each use of a global: a name, or a chain of attributes that leads out of modules that stay behind."""
    parents = {id(child): parent for parent in ast.walk(tree) for child in ast.iter_child_nodes(parent)}
    for node in ast.walk(tree):
        if not isinstance(node, ast.Name) or node.id not in bindings:
            continue
        binding: Binding | None = bindings[node.id]
        expression: ast.expr = node
        while isinstance(binding, Members) and binding.members:
            parent = parents.get(id(expression))
            if not isinstance(parent, ast.Attribute):
                break
            binding, expression = dict(binding.members).get(parent.attr), parent
        if binding is not None:
            yield expression, binding


def _first_name(node: ast.expr) -> str:
    while isinstance(node, ast.Attribute):
        node = node.value
    assert isinstance(node, ast.Name)
    return node.id


def _annotations(tree: ast.AST) -> list[ast.expr]:
    of_arguments = (node.annotation for node in ast.walk(tree) if isinstance(node, ast.arg))
    of_results = (node.returns for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))
    return [annotation for annotation in (*of_arguments, *of_results) if annotation is not None]


def _is_open(annotation: ast.expr, bindings: dict[str, Binding]) -> bool:
    """Tell whether an annotation names what a module does not have; as a text it is none of Python's business."""
    names = {node.id for node in ast.walk(annotation) if isinstance(node, ast.Name)}
    return not names <= {*bindings, *dir(builtins)}


def _is_constexpr_text(annotation: ast.expr) -> bool:
    """Tell whether an annotation is ``constexpr`` as a text, which Triton's own interpreter does not understand."""
    value = annotation.value if isinstance(annotation, ast.Constant) else None
    return isinstance(value, str) and value.strip().rpartition(".")[2] == "constexpr"


def _holds(outer: ast.expr, inner: ast.expr) -> bool:
    return any(node is inner for node in ast.walk(outer))


def _span(node: ast.expr) -> Span:
    return node.lineno, node.col_offset, node.end_lineno or node.lineno, node.end_col_offset or node.col_offset


def _edited(text: str, edits: dict[Span, str]) -> str:
    lines = [line.encode() for line in re.findall(r"[^\n]*\n|[^\n]+", text)]  # as `ast` divides it, and no other way
    for (line, column, end_line, end_column), new in sorted(edits.items(), reverse=True):
        before, after = lines[line - 1][:column], lines[end_line - 1][end_column:]
        lines[line - 1 : end_line] = [before + new.encode() + after]
    return b"".join(lines).decode()


def function_text(function: Callable[..., Any]) -> str:
    """Return a function of the lab as a module has it, which imports torch at its top: without annotations."""
    text = inspect.getsource(function)
    (node,) = ast.parse(text).body
    assert isinstance(node, ast.FunctionDef)
    for each in ast.walk(node.args):
        if isinstance(each, ast.arg):
            each.annotation = None
    body = "\n".join(text.splitlines()[node.body[0].lineno - 1 :])
    body = re.sub(r": Any\b| -> Any\b", "", body.replace("    import torch\n\n", ""))
    return f"def {node.name}({ast.unparse(node.args)}):\n{body}"


def merged(closures: Sequence[Closure]) -> tuple[Closure, tuple[dict[int, int], ...]]:
    """Return one closure, and for each given one where its functions went, by their indices."""
    functions, index_maps, seen = [], [], dict[str, int]()
    for keys in content_keys([closure.functions for closure in closures]):
        for key in keys:
            seen.setdefault(key, len(seen))
        index_maps.append({index: seen[key] for index, key in enumerate(keys)})
    done = set[int]()
    for closure, index_map in zip(closures, index_maps, strict=True):
        for index, function in enumerate(closure.functions):
            if index_map[index] not in done:
                done.add(index_map[index])
                bindings = tuple((name, moved(binding, index_map)) for name, binding in function.bindings)
                functions.append((index_map[index], dataclasses.replace(function, bindings=bindings)))
    return Closure(tuple(function for _, function in sorted(functions, key=lambda pair: pair[0]))), tuple(index_maps)


def appended(closure: Closure, others: Sequence[Closure]) -> tuple[Closure, tuple[dict[int, int], ...]]:
    """Return a closure with the functions of others after its own, and where those of each other went."""
    functions = list(closure.functions)
    own, *keys_of_others = content_keys([each.functions for each in (closure, *others)])
    known = {own[index]: index for index in reversed(range(len(functions)))}
    index_maps = []
    for other, keys in zip(others, keys_of_others, strict=True):
        new = [key for key in dict.fromkeys(keys) if key not in known]
        known |= {key: len(functions) + number for number, key in enumerate(new)}
        index_map = {index: known[key] for index, key in enumerate(keys)}
        for key in new:
            function = other.functions[keys.index(key)]
            bindings = tuple((name, moved(binding, index_map)) for name, binding in function.bindings)
            functions.append(dataclasses.replace(function, bindings=bindings))
        index_maps.append(index_map)
    return dataclasses.replace(closure, functions=tuple(functions)), tuple(index_maps)


def moved(binding: Binding, index_map: dict[int, int]) -> Binding:
    """Return a binding of one closure as one of the merged closure."""
    return with_functions(binding, lambda index: FunctionRef(index_map[index]))
