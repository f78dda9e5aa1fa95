"""The rules of the house, read off the source: who may import whom, and how large things may grow.

Each test collects all that breaks its rule and lists it. The layers are those of the table in docs/architecture.md:
a room, which is a package or module directly under kernellab/, may import the rooms of the rows below its own.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path

ROOT = Path(__file__).parents[1]
HOUSE = ROOT / "kernellab"
FILES = {path.relative_to(HOUSE).as_posix(): path for path in sorted(HOUSE.rglob("*.py"))}

# The package itself hands out names of every layer, lazily; `python -m kernellab` calls the command line.
ENTRIES = {"__init__.py", "__main__.py"}
TOP_MODULES = {"pytest_plugin", "errors", "display", "advice", "settings", "target"}
# The only rooms that may import the package itself, for what it hands out.
OUTERMOST = {"cli", "pytest_plugin"}

OWNERS_OF_INTERNALS = ("_triton/", "interpreter/")
PUBLIC_TRITON = {"triton", "triton.language", "triton.testing", "triton.tools.tensor_descriptor"}
INTERNAL_OF_TRITON = {"_C", "backends", "compiler", "knobs", "runtime", "_utils"}
ENVIRONMENT = {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


def test_every_room_has_a_layer() -> None:
    rooms = rooms_of_house()
    modules = {_room(file) for file in FILES if "/" not in file and file not in ENTRIES}
    levels = _levels()
    _nothing(
        [
            f"kernellab/{name}.py: at the top stand only {', '.join(sorted(TOP_MODULES))}"
            for name in modules - TOP_MODULES
        ]
        + [f"{room}: give it a row in the table of docs/architecture.md" for room in rooms - set(levels)]
        + [f"{room}: in the table of docs/architecture.md, and not in kernellab/" for room in set(levels) - rooms]
    )


def test_imports_point_downwards() -> None:
    levels, arrows = _levels(), arrows_between()
    upwards = {(a, b) for a, b in arrows if b != "kernellab" and levels[a] <= levels[b]}
    _nothing(
        [f"{a} imports {b}, which is not below it: {place}" for a, b in sorted(upwards) for place in arrows[a, b]]
        + [
            f"{place}: name the module instead of the package"
            for (a, b), places in arrows.items()
            if b == "kernellab" and a not in OUTERMOST
            for place in places
        ]
    )


def test_no_rooms_import_each_other() -> None:
    arrows = {(a, b): places for (a, b), places in arrows_between().items() if b != "kernellab"}
    _nothing([f"{a} and {b}: {arrows[a, b][0]}, {arrows[b, a][0]}" for a, b in arrows if a < b and (b, a) in arrows])
    order = TopologicalSorter({a: {b for start, b in arrows if start == a} for a, _ in arrows})
    try:
        order.prepare()
    except CycleError as error:
        raise AssertionError(f"rooms import each other in a circle: {' <- '.join(error.args[1])}") from None


def test_only_the_adapter_and_the_interpreter_import_triton_internals() -> None:
    _nothing(
        [
            f"{file}:{line} imports {dotted}"
            for file in FILES
            if not file.startswith(OWNERS_OF_INTERNALS)
            for line, dotted in _imports(nodes_of(file))
            if _is_internal(dotted)
        ]
    )


def test_only_settings_reads_the_environment() -> None:
    _nothing(
        [
            f"{file}:{line} uses os.{name}"
            for file in FILES
            if file != "settings.py"
            for line, name in _names_of_os(nodes_of(file))
            if name in ENVIRONMENT
        ]
    )


def test_files_and_functions_stay_small() -> None:
    lines = {file: path.read_text(encoding="utf-8").count("\n") for file, path in FILES.items()}
    functions = [
        (f"{file}:{node.lineno} {node.name}", (node.end_lineno or node.lineno) - node.lineno + 1)
        for file in FILES
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    _nothing(
        [f"{file} has {count} lines" for file, count in lines.items() if count > MAX_FILE_LINES]
        + [f"{function} has {count} lines" for function, count in functions if count > MAX_FUNCTION_LINES]
    )


def test_public_definitions_have_docstrings() -> None:
    kernels = "_triton/device_kernels.py"  # programs of the GPU, which the file's own docstring tells of
    _nothing(
        [
            f"{file}:{node.lineno} {node.name} has no docstring"
            for file in FILES
            if file != kernels
            for node in _public(tree_of(file).body)
            if not ast.get_docstring(node) and not any(ast.unparse(each) == "overload" for each in node.decorator_list)
        ]
    )


def test_no_module_rebinds_its_globals() -> None:
    _nothing(
        [
            f"{file}:{node.lineno} rebinds {', '.join(node.names)}"
            for file in FILES
            for node in nodes_of(file)
            if isinstance(node, ast.Global)
        ]
    )


def test_no_import_inside_a_function_repeats_the_top_of_its_file() -> None:
    """Such an import saves no time: the module is loaded before the function is called."""
    _nothing(
        [
            f"{file}:{line} imports {module} inside a function: import its names at the top"
            for file in FILES
            for module, line in _repeated_imports(file)
        ]
    )


def _public(body: list[ast.stmt]) -> Iterator[ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef]:
    """Yield the definitions of a module or class that have a name of their own to others, those in classes included."""
    for node in body:
        if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith("_"):
            yield node
            if isinstance(node, ast.ClassDef):
                yield from _public(node.body)


@cache
def nodes_of(file: str) -> list[ast.AST]:
    """Return all nodes of the syntax tree of a file of the package."""
    return list(ast.walk(tree_of(file)))


@cache
def tree_of(file: str) -> ast.Module:
    """Return the syntax tree of a file of the package."""
    return ast.parse(FILES[file].read_text(encoding="utf-8"))


def _nothing(violations: list[str]) -> None:
    assert not violations, "\n".join(["", *sorted(violations)])


def _levels() -> dict[str, int]:
    """Return the level of each room, 0 at the bottom, from the table under "Layers" in docs/architecture.md."""
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    section = page.partition("\n## Layers\n")[2].partition("\n## ")[0]
    rows = [row.split("|")[1] for row in section.splitlines() if row.startswith("| `")]
    levels: dict[str, int] = {}
    for level, row in enumerate(reversed(rows)):
        for room in re.findall(r"`(\w+)/?`", row):
            assert room not in levels, f"{room} has two rows in the table of docs/architecture.md"
            levels[room] = level
    return levels


def arrows_between() -> dict[tuple[str, str], list[str]]:
    """Return the places where each room imports another; the package itself counts as a room `kernellab`."""
    rooms = rooms_of_house()
    arrows: dict[tuple[str, str], list[str]] = {}
    for file in FILES:
        if file in ENTRIES:
            continue
        for line, dotted in _imports(nodes_of(file)):
            package, _, inside = dotted.partition(".")
            if package != "kernellab":
                continue
            start = inside.partition(".")[0]
            imported = start if start in rooms else "kernellab"
            if imported != _room(file):
                arrows.setdefault((_room(file), imported), []).append(f"{file}:{line} {dotted}")
    return arrows


def rooms_of_house() -> set[str]:
    """Return the packages and modules directly under kernellab/ but for its two entries."""
    return {_room(file) for file in FILES if file not in ENTRIES}


def _room(file: str) -> str:
    return file.split("/", maxsplit=1)[0].removesuffix(".py")


def _imports(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    """Yield the line and the dotted name of everything a module imports, at its top or inside functions."""
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            yield from ((node.lineno, f"{node.module}.{alias.name}") for alias in node.names)


def _repeated_imports(file: str) -> list[tuple[str, int]]:
    """Return the modules imported inside functions that the top of the file imports, too, with the lines."""
    at_top = {module for node in _loaded_at_top(tree_of(file).body) for module in _modules_of(node)}
    functions = [node for node in nodes_of(file) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lines = {line for function in functions for line in range(function.lineno, (function.end_lineno or 0) + 1)}
    inside = [node for node in nodes_of(file) if isinstance(node, ast.Import | ast.ImportFrom) and node.lineno in lines]
    return sorted((module, node.lineno) for node in inside for module in _modules_of(node) if module in at_top)


def _loaded_at_top(body: list[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield the statements that run when a module is imported, without those for type checkers alone."""
    for node in body:
        yield node
        if isinstance(node, ast.If):
            is_for_types = "TYPE_CHECKING" in ast.unparse(node.test)
            yield from _loaded_at_top(node.orelse if is_for_types else [*node.body, *node.orelse])
        elif isinstance(node, ast.Try | ast.With):
            yield from _loaded_at_top(node.body)


def _modules_of(node: ast.AST) -> set[str]:
    """Return the modules that an import names: of ``from package import module``, the module."""
    if isinstance(node, ast.Import):
        return {alias.name for alias in node.names}
    if not isinstance(node, ast.ImportFrom):
        return set()
    names = {f"{node.module}.{alias.name}" for alias in node.names}
    modules = {name for name in names if f"{name.removeprefix('kernellab.').replace('.', '/')}.py" in FILES}
    return modules if modules == names else modules | {str(node.module)}


def _is_internal(dotted: str) -> bool:
    parts = dotted.split(".")
    if parts[0] != "triton":
        return False
    module = dotted if dotted in PUBLIC_TRITON else dotted.rpartition(".")[0]
    return module not in PUBLIC_TRITON or parts[1:2] in ([name] for name in INTERNAL_OF_TRITON)


def _names_of_os(nodes: list[ast.AST]) -> Iterator[tuple[int, str]]:
    for node in nodes:
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os":
            yield node.lineno, node.attr
    yield from ((line, dotted.removeprefix("os.")) for line, dotted in _imports(nodes) if dotted.startswith("os."))
