"""How large the house is: files, lines, rooms and the imports between them, and how long lines and functions are.

Run as ``python -m benchmarks.house [ROOT]``; ROOT is a checkout, this one if left out. A room is a package or module
directly under kernellab/; an arrow is one room that imports another, at the top of a file or inside a function. The
package itself, which hands out names of every room, and `python -m kernellab` are no rooms.
"""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator
from pathlib import Path
from statistics import median

RESULT = Path(__file__).parent / "results" / "house.txt"
ENTRIES = {"__init__.py", "__main__.py"}


def main() -> None:
    root = Path(sys.argv[1]) if sys.argv[1:] else Path(__file__).parents[1]
    text = "\n".join(figures(root / "kernellab"))
    print(text)
    if not sys.argv[1:]:
        RESULT.write_text(f"{text}\n", encoding="utf-8")


def figures(house: Path) -> Iterator[str]:
    """Yield a line per figure of the package in a folder."""
    texts = {path.relative_to(house).as_posix(): path.read_text(encoding="utf-8") for path in house.rglob("*.py")}
    lines = [line for text in texts.values() for line in text.splitlines()]
    trees = {file: ast.parse(text) for file, text in texts.items()}
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    rooms = {room(file) for file in texts if file not in ENTRIES}
    arrows = {pair for file, tree in trees.items() if file not in ENTRIES for pair in arrows_of(file, tree, rooms)}
    small = sum(text.count("\n") < 60 for text in texts.values())
    yield f"files                     {len(texts):>7,}, {small} under 60 lines"
    yield f"lines                     {len(lines):>7,}"
    yield f"rooms                     {len(rooms):>7}"
    yield f"arrows between rooms      {len(arrows):>7}"
    yield f"modules at the top        {', '.join(sorted(file for file in texts if '/' not in file))}"
    yield f"median line, characters   {median(len(line) for line in lines if line.strip()):>7.0f}"
    yield f"median function, lines    {median(functions):>7.0f}"


def room(file: str) -> str:
    """Return the package or module directly under kernellab/ that a file belongs to."""
    return file.partition("/")[0].removesuffix(".py")


def arrows_of(file: str, tree: ast.Module, rooms: set[str]) -> Iterator[tuple[str, str]]:
    """Yield the pairs of a file's room and each other room that it imports."""
    for node in ast.walk(tree):
        names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
        if isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        for name in names:
            package, _, inside = name.partition(".")
            imported = inside.partition(".")[0]
            if package == "kernellab" and imported in rooms and imported != room(file):
                yield room(file), imported


if __name__ == "__main__":
    main()
