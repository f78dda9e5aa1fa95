"""The page of the errors: their tree, what raises them, what a user sees, and what to do.

Meaning and tree come from ``kernellab/errors.py``, the messages from the ``raise`` statements of the package, the
compiler's messages from ``kernellab/advice.py``; examples and remedies from ``errors.toml``, which a test runs.
"""

from __future__ import annotations

import ast
import inspect
import re
import tomllib
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import kernellab
from docs.pages.notebooks import highlighted, shown_text
from kernellab import errors
from kernellab.advice import RULES
from kernellab.errors import KernellabError

PACKAGE = Path(kernellab.__file__).parent
EXAMPLES = Path(__file__).with_name("errors.toml")
_INTERPRETER = PACKAGE / "_triton" / "interpreter"  # has exceptions of its own, by the same names


@dataclass(frozen=True, slots=True)
class Example:
    """``remedy`` is what to do. ``cell`` raises the error in a notebook, which then shows ``shown``; both may be ""."""

    remedy: str
    cell: str = ""
    shown: str = ""


def classes() -> list[type[KernellabError]]:
    """Return every error, each before those that derive from it."""
    return [KernellabError, *_below(KernellabError)]


def examples() -> dict[str, Example]:
    """Return the example and remedy of each error by name."""
    table = tomllib.loads(EXAMPLES.read_text(encoding="utf-8"))
    return {name: Example(**{key: text.strip("\n") for key, text in entry.items()}) for name, entry in table.items()}


@cache
def messages() -> dict[str, list[str]]:
    """Return the messages that the package raises, by the name of the error; a value stands as ``{its expression}``."""
    found: dict[str, list[str]] = {kind.__name__: [] for kind in classes()}
    for path in sorted(PACKAGE.rglob("*.py")):
        if not path.is_relative_to(_INTERPRETER):
            for name, text in _raised(ast.parse(path.read_text(encoding="utf-8"))):
                if name in found and text not in found[name]:
                    found[name].append(text)
    return found


def page() -> str:
    """Return the page."""
    parts = [
        "---\nhide: [navigation]\n---",
        "# Errors",
        _LEAD,
        _tree(KernellabError),
        *map(_section, classes()),
        _advice(),
    ]
    return "\n\n".join(parts) + "\n"


_LEAD = """Whatever kernellab raises derives from `kernellab.KernellabError`, and is shown as a few lines: what failed,
on which value, what was expected, what to do, and the line of the source that caused it. `--verbose` adds the whole
message of the compiler; in a program it is `error.detail`. An exception of your own Python, such as one of a grid
function, comes through as itself.

```python
try:
    lab.compile(my_kernel, x, 1000, BLOCK=1000)
except kernellab.errors.CompileError as error:
    print(error.place.line, error.detail)
```"""


def _below(kind: type[KernellabError]) -> Iterator[type[KernellabError]]:
    for child in kind.__subclasses__():
        if child.__module__ == errors.__name__:
            yield child
            yield from _below(child)


def _tree(kind: type[KernellabError], depth: int = 0) -> str:
    own = f"{'    ' * depth}- [`{kind.__name__}`](#{kind.__name__}): {_meaning(kind)}"
    children = (child for child in kind.__subclasses__() if child.__module__ == errors.__name__)
    return "\n".join([own, *(_tree(child, depth + 1) for child in children)])


def _meaning(kind: type) -> str:
    """Return the first sentence of a docstring, to be read on after a colon."""
    text = inspect.cleandoc(kind.__doc__ or "").split("\n\n")[0].replace("\n", " ")
    return re.sub(r"^(A|An|The)\b", lambda article: article[0].lower(), text)


def _section(kind: type[KernellabError]) -> str:
    name, example = kind.__name__, examples().get(kind.__name__, Example(""))
    parents = ", ".join(f"`{base.__name__}`" for base in kind.__bases__)
    parts = [f"## {name} {{ #{name} }}", f"{inspect.cleandoc(kind.__doc__ or '')}\n\nDerives from {parents}."]
    if example.cell:
        output = f'<div class="nb-output">{shown_text(example.shown, "nb-text nb-error")}</div>'
        parts.append(f'<div class="nb-cell">{highlighted(example.cell)}{output}</div>')
    if example.remedy:
        parts.append(f"**What to do.** {example.remedy}")
    parts += _messages(name)
    return "\n\n".join(parts)


def _messages(name: str) -> list[str]:
    found = messages()[name]
    if not found:
        return []
    count = "Its message" if len(found) == 1 else f"Its {len(found)} messages"
    lines = "\n".join(f"    - `` {text} ``" for text in found)
    return [f'??? quote "{count}"\n\n{lines}']


def _raised(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Yield the name and the message of each ``raise`` whose message is written there."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            kind = node.exc.func
            name = kind.attr if isinstance(kind, ast.Attribute) else getattr(kind, "id", "")
            text = _template(node.exc.args[0])
            if text:
                yield name, " ".join(text.split())


def _template(node: ast.expr) -> str:
    match node:
        case ast.Constant(value=str(text)):
            return text
        case ast.JoinedStr(values=parts):
            return "".join(map(_part, parts))
        case ast.BinOp(left=left, op=ast.Add(), right=right):
            return _template(left) + _template(right)
    return ""


def _part(node: Any) -> str:
    if isinstance(node, ast.FormattedValue):
        return "{" + _short(node.value) + "}"
    return str(node.value)


def _short(node: ast.expr) -> str:
    """Return what a placeholder stands for: the last name of its expression."""
    match node:
        case ast.Name(id=name) | ast.Attribute(attr=name) | ast.Subscript(value=ast.Name(id=name)):
            return name.strip("_")
        case ast.Call(func=ast.Attribute(attr="join"), args=[ast.Name(id=name), *_]):
            return name.strip("_")
        case ast.Call(func=ast.Name(id="type" | "len" | "str" | "repr" | "format_version"), args=[inner, *_]):
            return _short(inner)
    return "..."


def _advice() -> str:
    rows = [
        f"| {_plain(pattern)} | {_expanded(said)} | {_expanded(advice)} |" for pattern, (said, advice) in RULES.items()
    ]
    return "\n".join(
        [
            "## What the compiler says { #compiler }",
            "",
            "These messages of Triton, LLVM and ptxas are said in other words, with a line of advice; all others come",
            "through as they are, and the whole text is in `error.detail`.",
            "",
            "| the compiler says | kernellab says | what to do |",
            "| --- | --- | --- |",
            *rows,
        ]
    )


_READABLE = (
    (r"\(-?\??\\d\+\)|\(\\w\+\)|\(\\S\+\)|\(\.\*\)|\(-\?\\d\+\)|\(\\\(\[\^\)\]\*\\\)\)", "…"),
    (r"\.\*\?|-\?\\d\+|\\w\+", "…"),
    (r"\\(.)", r"\1"),
    (r"^\^", ""),
)


def _plain(pattern: str) -> str:
    """Return a pattern as a message with … for what varies."""
    shown = []
    for part in pattern.split("|"):
        text = part
        for old, new in _READABLE:
            text = re.sub(old, new, text)
        shown.append(f"`{text}`")
    return " or ".join(shown)


def _expanded(text: str) -> str:
    return (
        re.sub(r"\\\d", "…", text)
        .replace("|", "\\|")
        .replace("[:, None]", "`[:, None]`")
        .replace("[None, :]", "`[None, :]`")
    )
