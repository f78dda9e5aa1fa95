"""The rules of the house, read off the source: who may import whom, and how large things may grow."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "kernellab"
FILES = {path.relative_to(ROOT).as_posix(): path for path in sorted(ROOT.rglob("*.py"))}
TREES = {name: ast.parse(path.read_text(encoding="utf-8")) for name, path in FILES.items()}

LAYERS: tuple[frozenset[str], ...] = (
    frozenset({"errors", "advice", "settings", "target"}),
    frozenset({"workers"}),
    frozenset({"ir", "source", "store"}),
    frozenset({"_triton"}),
    frozenset({"compile"}),
    frozenset({"launch", "interpreter", "gpu", "measure"}),
    frozenset({"registry"}),
    frozenset({"export"}),
    frozenset({"tune", "benchmark"}),
    frozenset({"capture", "explore"}),
    frozenset({"views"}),
    frozenset({"lab"}),
    frozenset({"notebook", "cli"}),
)
LEVEL = {module: level for level, modules in enumerate(LAYERS) for module in modules}

# Plain data that the adapter to Triton builds.
UPWARD_BY_AGREEMENT: set[tuple[str, str]] = set()

# The package itself hands out names of every layer, lazily; `python -m kernellab` calls the command line.
ENTRIES = {"__init__.py", "__main__.py"}

PUBLIC_TRITON = {"triton", "triton.language", "triton.testing", "triton.tools.tensor_descriptor"}
INTERNAL_OF_TRITON = {"_C", "backends", "compiler", "knobs", "runtime", "_utils"}

MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60


def _top(file: str) -> str:
    return file.split("/", maxsplit=1)[0].removesuffix(".py")


def _imports(tree: ast.AST) -> Iterator[str]:
    """Yield the dotted name of everything a module imports, at its top or inside functions."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, "relative imports hide the layer"
            module = node.module or ""
            yield from (f"{module}.{alias.name}" for alias in node.names)


def _module_of(dotted: str) -> str:
    """Return the module that an imported name lives in: of kernellab.ir.graph.Graph, kernellab.ir.graph."""
    parts = dotted.split(".")
    while len(parts) > 1:
        path = "/".join(parts[1:])
        if f"{path}.py" in FILES or f"{path}/__init__.py" in FILES:
            break
        parts.pop()
    return ".".join(parts)


@pytest.mark.parametrize("file", [file for file in FILES if file not in ENTRIES])
def test_every_module_has_a_layer(file: str) -> None:
    assert _top(file) in LEVEL, f"give {_top(file)} a layer, here and in docs/architecture.md"


@pytest.mark.parametrize("file", [file for file in FILES if file not in ENTRIES])
def test_imports_point_downwards(file: str) -> None:
    importer = _top(file)
    for dotted in _imports(TREES[file]):
        if dotted.split(".", maxsplit=1)[0] != "kernellab":
            continue
        module = _module_of(dotted)
        if module == "kernellab":
            assert LEVEL[importer] == len(LAYERS) - 1, f"{file} imports {dotted} from the package; name its module"
        elif (importer, module) not in UPWARD_BY_AGREEMENT:
            imported = module.split(".")[1]
            assert LEVEL[imported] <= LEVEL[importer], (
                f"{file} (L{LEVEL[importer]}) imports {module} (L{LEVEL[imported]})"
            )


@pytest.mark.parametrize("file", [file for file in FILES if not file.startswith(("_triton/", "interpreter/"))])
def test_only_the_adapter_imports_triton_internals(file: str) -> None:
    for dotted in _imports(TREES[file]):
        if dotted.split(".", maxsplit=1)[0] != "triton":
            continue
        module = dotted if dotted in PUBLIC_TRITON else dotted.rpartition(".")[0]
        assert module in PUBLIC_TRITON, f"{file} imports {dotted}"
        assert dotted.split(".")[1:2] not in ([name] for name in INTERNAL_OF_TRITON), f"{file} imports {dotted}"


@pytest.mark.parametrize("file", [file for file in FILES if file != "settings.py"])
def test_only_settings_reads_the_environment(file: str) -> None:
    used = {
        node.attr
        for node in ast.walk(TREES[file])
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id == "os"
    }
    used |= {dotted.removeprefix("os.") for dotted in _imports(TREES[file]) if dotted.startswith("os.")}
    assert not used & {"environ", "environb", "getenv", "getenvb", "putenv", "unsetenv"}


@pytest.mark.parametrize("file", FILES)
def test_files_and_functions_stay_small(file: str) -> None:
    lines = FILES[file].read_text(encoding="utf-8").count("\n")
    assert lines <= MAX_FILE_LINES
    for node in ast.walk(TREES[file]):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            assert node.end_lineno is not None
            length = node.end_lineno - node.lineno + 1
            assert length <= MAX_FUNCTION_LINES, f"{node.name} has {length} lines"


@pytest.mark.parametrize("file", FILES)
def test_no_module_rebinds_its_globals(file: str) -> None:
    assert not [node for node in ast.walk(TREES[file]) if isinstance(node, ast.Global)]
