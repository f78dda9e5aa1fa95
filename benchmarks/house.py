"""How large the house is: files, lines, rooms and the imports between them, and how long lines and functions are.

Run as ``python -m benchmarks.house``. A room is a package or module directly under kernellab/; an arrow, a room that
imports another, at the top of a file or inside a function, as `tests/test_layers.py` reads them. The package itself,
which hands out names of every room, and `python -m kernellab` are no rooms.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path
from statistics import median

from tests.test_layers import FILES, arrows_between, nodes_of, rooms_of_house

RESULT = Path(__file__).parent / "results" / "house.txt"


def main() -> None:
    text = "\n".join(figures())
    print(text)
    RESULT.write_text(f"{text}\n", encoding="utf-8")


def figures() -> Iterator[str]:
    """Yield a line per figure of the package."""
    texts = {file: path.read_text(encoding="utf-8") for file, path in FILES.items()}
    lines = [line for text in texts.values() for line in text.splitlines()]
    functions = [
        (node.end_lineno or node.lineno) - node.lineno + 1
        for file in FILES
        for node in nodes_of(file)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    small = sum(text.count("\n") < 60 for text in texts.values())
    yield f"files                     {len(texts):>7,}, {small} under 60 lines"
    yield f"lines                     {len(lines):>7,}"
    yield f"rooms                     {len(rooms_of_house()):>7}"
    yield f"arrows between rooms      {sum(room != 'kernellab' for _, room in arrows_between()):>7}"
    yield f"modules at the top        {', '.join(sorted(file for file in texts if '/' not in file))}"
    yield f"median line, characters   {median(len(line) for line in lines if line.strip()):>7.0f}"
    yield f"median function, lines    {median(functions):>7.0f}"


if __name__ == "__main__":
    main()
