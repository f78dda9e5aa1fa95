"""A page per magic, from its parser, its annotations and the notebooks that use it."""

from __future__ import annotations

import argparse
import ast
import inspect
import re
import textwrap
from typing import Any, get_args, get_type_hints

from docs.pages import notebooks, reference
from kernellab.notebook.help import Magic, help_of, magics, member_of, spelling_of, summary_of
from kernellab.notebook.topics import TOPICS

_LONGEST_EXAMPLE = 45
_VERB = re.compile(r"self\.lab\.([a-z]\w*)\(")


def path_of(magic: Magic) -> str:
    """Return the path of the page of a magic; ``%triton`` has that of ``%triton_help``."""
    return f"magics/{'triton_help' if magic.label == '%triton' else magic.name}.md"


def pages() -> dict[str, str]:
    """Return the page of each magic, and one that lists them."""
    own = [magic for magic in magics() if magic.label != "%triton"]
    return {"magics/index.md": _index(), **{path_of(magic): _page(magic) for magic in own}}


def _index() -> str:
    """Return the page of what the lab can do, as ``%triton`` shows it."""
    paths = {magic.label: path_of(magic).rpartition("/")[2] for magic in magics()}
    parts = [
        "# Magics and verbs",
        "`%triton` shows this table in a notebook, `%triton_help tune` the page of a word.",
        "In the examples, `lab` is `kernellab.current_lab()`.",
    ]
    for purpose, examples in TOPICS.items():
        rows = [
            f"| {_linked(name, paths)} | {_cell(_marked(summary_of(name)))} | {_code(example)} |"
            for name, example in examples.items()
        ]
        parts += [f"## {purpose}", "\n".join(["| name | what it does | example |", "| --- | --- | --- |", *rows])]
    return "\n\n".join(parts) + "\n"


def _linked(name: str, paths: dict[str, str]) -> str:
    if name in paths:
        return f"[`{name}`]({paths[name]})"
    owner, _, own = name.partition(".")
    return reference.link(f"kernellab.lab.Lab.{own}" if owner == "lab" else _dotted(member_of(name)), name)


def _code(example: str) -> str:
    return "<br>".join(f"`{_cell(line)}`" for line in example.splitlines())


def _page(magic: Magic) -> str:
    parts = [f"# `{magic.label}`", _marked(magic.text), *_usage(magic), *_returned(magic), *_examples(magic)]
    return "\n\n".join(parts) + "\n"


def _usage(magic: Magic) -> list[str]:
    if magic.parser is None:
        return []
    return [
        "## Usage",
        "```text\n" + "\n".join(textwrap.wrap(magic.usage, 96, subsequent_indent="    ")) + "\n```",
        *_table("argument", [action for action in magic.parameters if not action.option_strings]),
        *_table("option", [action for action in magic.parameters if action.option_strings]),
    ]


def _table(kind: str, actions: list[argparse.Action]) -> list[str]:
    if not actions:
        return []
    rows = [f"| {_spelt(action)} | {_cell(_marked(help_of(action)))} |" for action in actions]
    return ["\n".join([f"| {kind} | meaning |", "| --- | --- |", *rows])]


def _spelt(action: argparse.Action) -> str:
    default = "" if action.default in {None, False, "None", ""} else f"<br>without it: `{action.default}`"
    return ", ".join(f"`{_cell(part)}`" for part in spelling_of(action).split(", ")) + default


def _names_for_annotations(function: Any) -> dict[str, Any]:
    """Return what the module of a function imports for type checkers alone."""
    names: dict[str, Any] = {}
    for node in ast.parse(inspect.getsource(inspect.getmodule(function))).body:
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            exec("\n".join(map(ast.unparse, node.body)), names)
    return names


def _returned(magic: Magic) -> list[str]:
    names = _names_for_annotations(magic.function)
    kind = get_type_hints(magic.function, localns=names).get("return", type(None))
    verbs = dict.fromkeys(_VERB.findall(inspect.getsource(magic.function)))
    links = [reference.link(f"kernellab.lab.Lab.{verb}", f"lab.{verb}") for verb in verbs]
    kinds = [each for each in get_args(kind) or (kind,) if each is not type(None)]
    returned = " or ".join(reference.link(_dotted(each), each.__name__) for each in kinds)
    parts = [f"It returns {returned}."] if returned else []
    parts += [f"From Python, {' and '.join(links)} do the same." if len(links) > 1 else ""] if links[1:] else []
    parts += [f"From Python: {links[0]}."] if len(links) == 1 else []
    return ["## What it returns", " ".join(parts)] if parts else []


def _examples(magic: Magic) -> list[str]:
    """Return the shortest cell of a notebook that uses the magic, with its output, and where else it is used."""
    used = [
        (name, cell)
        for name in notebooks.names()
        for cell in notebooks.notebook(name).cells
        if cell.cell_type == "code" and _uses(magic, cell)
    ]
    if not used:
        return []
    works = [place for place in used if _is_example(place[1])] or used
    pictured = [place for place in works if _has_picture(place[1])] or works
    name, cell = min(pictured, key=lambda place: len(place[1].source))
    others = [
        f"[{notebooks.title(other)}](../notebooks/{other}.md)" for other in dict.fromkeys(name for name, _ in used)
    ]
    return ["## Example", notebooks.slot(name, cell.id), f"In the notebooks: {', '.join(others)}."]


def _uses(magic: Magic, cell: Any) -> bool:
    return any(re.match(rf"{re.escape(magic.label)}(?!\w)", line.strip()) for line in cell.source.splitlines())


def _is_example(cell: Any) -> bool:
    is_failing = "raises-exception" in cell.metadata.get("tags", ())
    return not is_failing and bool(cell.outputs) and cell.source.count("\n") < _LONGEST_EXAMPLE


def _has_picture(cell: Any) -> bool:
    return any("text/html" in output.get("data", {}) for output in cell.outputs)


def _dotted(kind: Any) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _marked(text: str) -> str:
    """Return a text with its magics and quoted examples as code."""
    text = text.replace("``", "`")
    if "`" in text:
        return text
    text = re.sub(r"\b(\w+\[\w+\]\(\w+\))", r"`\1`", text)
    return re.sub(r": (%{1,2}\w.*?|--\w.*?)\.?$", r": `\1`.", text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
