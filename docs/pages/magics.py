"""A page per magic, from its parser, its annotations and the notebooks that use it."""

from __future__ import annotations

import argparse
import inspect
import re
import textwrap
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, get_args, get_type_hints

from docs.pages import notebooks, reference
from kernellab.notebook.extension import MAGICS

_LONGEST_EXAMPLE = 45
_VERB = re.compile(r"self\.lab\.([a-z]\w*)\(")


@dataclass(frozen=True, slots=True)
class Magic:
    """A magic: ``%%triton`` or ``%triton_ls``, the function behind it, and its parser where it has one."""

    label: str
    function: Callable[..., Any]
    parser: argparse.ArgumentParser | None

    @property
    def name(self) -> str:
        return self.label.lstrip("%")

    @property
    def path(self) -> str:
        return f"magics/{self.name}.md"

    @property
    def text(self) -> str:
        """What it does, as its docstring says."""
        own = self.parser.description if self.parser else self.function.__doc__
        return inspect.cleandoc(own or "")


def magics() -> list[Magic]:
    """Return every magic that the extension registers, cell magics first."""
    found = []
    for kind, sign in (("cell", "%%"), ("line", "%")):
        for family in MAGICS:
            for name, attribute in family.magics[kind].items():
                function = getattr(family, attribute) if isinstance(attribute, str) else attribute
                found.append(Magic(sign + name, function, getattr(function, "parser", None)))
    return found


def pages() -> dict[str, str]:
    """Return the page of each magic, and one that lists them."""
    found = magics()
    return {"magics/index.md": _index(found), **{magic.path: _page(magic) for magic in found}}


def _index(found: list[Magic]) -> str:
    rows = [f"| [`{magic.label}`]({magic.name}.md) | {_cell(_sentence(magic.text))} |" for magic in found]
    head = [
        "# Magics",
        "",
        "`%load_ext kernellab` brings these. In a notebook, `%%triton?` shows the same options.",
        "",
    ]
    return "\n".join([*head, "| magic | what it does |", "| --- | --- |", *rows, ""])


def _page(magic: Magic) -> str:
    parts = [f"# `{magic.label}`", _marked(magic.text), *_usage(magic), *_returned(magic), *_examples(magic)]
    return "\n\n".join(parts) + "\n"


def _usage(magic: Magic) -> list[str]:
    if magic.parser is None:
        return []
    actions = [action for action in magic.parser._actions if action.help != argparse.SUPPRESS]
    usage = " ".join(magic.parser.format_usage().split()).partition("%")[2].lstrip("%")
    sign = "%" * magic.label.count("%")
    return [
        "## Usage",
        "```text\n" + "\n".join(textwrap.wrap(sign + usage, 96, subsequent_indent="    ")) + "\n```",
        *_table("argument", [action for action in actions if not action.option_strings]),
        *_table("option", [action for action in actions if action.option_strings]),
    ]


def _table(kind: str, actions: list[argparse.Action]) -> list[str]:
    if not actions:
        return []
    rows = [f"| {_spelt(action)} | {_cell(_marked((action.help or '').replace('%%', '%')))} |" for action in actions]
    return ["\n".join([f"| {kind} | meaning |", "| --- | --- |", *rows])]


def _spelt(action: argparse.Action) -> str:
    if not action.option_strings:
        many = " ..." if action.nargs in {"+", "*", argparse.REMAINDER} else ""
        return f"`{action.dest}{many}`"
    value = "" if action.nargs == 0 else f" {action.metavar or action.dest.upper()}"
    default = "" if action.default in {None, False, "None"} else f"<br>without it: `{action.default}`"
    return ", ".join(f"`{option}{value}`" for option in action.option_strings) + default


def _returned(magic: Magic) -> list[str]:
    kind = get_type_hints(magic.function).get("return", type(None))
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


def _dotted(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


def _sentence(text: str) -> str:
    """Return the first sentence, without an example that follows a colon."""
    return re.split(r": %|\.(?:\s|$)", text, maxsplit=1)[0].rstrip(".") + "."


def _marked(text: str) -> str:
    """Return a text with its magics and quoted examples as code."""
    text = text.replace("``", "`")
    if "`" in text:
        return text
    text = re.sub(r"\b(\w+\[\w+\]\(\w+\))", r"`\1`", text)
    return re.sub(r": (%{1,2}\w.*?|--\w.*?)\.?$", r": `\1`.", text)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
