"""The page of the command line, from its parser and from the schema of its JSON."""

from __future__ import annotations

import argparse
from collections.abc import Iterable, Iterator

from docs.pages.json_schema import ANSWERS, ERROR, GATE, HEAD, ROWS, JsonField
from kernellab.cli.parser import TESTED, parser

LEAD = f"""# Command line

`kernellab COMMAND`, or `python -m kernellab COMMAND`; {TESTED}. [For scripts and agents](agents.md) shows them in use,
and says what a kernel file is. Exit status: 0; 1: the kernel or its file failed, or `judge` did not accept it; 2: wrong
call; 3: `judge` itself failed; 130: interrupted.
"""
BEFORE = {
    "tune": ", after the parameters of its config",
    "bench": ", after what was swept, and with the parameters of its config",
}
JSON = """## JSON

With `--json`, each command writes one object. Every answer and every error begins with:
"""


def page() -> str:
    """Return the page."""
    parts = [LEAD]
    for name, words, command in commands():
        parts += [f"## `{name}`", f"{words[:1].upper()}{words[1:]}.", *_options(command)]
        if name in ANSWERS:
            parts += ["Its JSON has, after the head:", *_table(ANSWERS[name])]
        if name == "bench":
            parts += ["With `--against`, its JSON has instead:", *_table(GATE)]
        if name in ROWS:
            parts += [f"Each of its `rows` has{BEFORE.get(name, '')}:", *_table(ROWS[name])]
    parts += [JSON, *_table(HEAD), "### Errors", "In place of an answer, `error` is an object of:", *_table(ERROR)]
    return "\n\n".join(part.strip("\n") for part in _rows_together(parts)) + "\n"


def commands() -> Iterator[tuple[str, str, argparse.ArgumentParser]]:
    """Yield each command: its name, what it does, its parser."""
    family = next(each for each in parser()._actions if isinstance(each, argparse._SubParsersAction))
    for choice in family._choices_actions:
        yield choice.dest, choice.help or "", family.choices[choice.dest]


def _options(command: argparse.ArgumentParser) -> list[str]:
    rows = ["| argument | meaning |", "| --- | --- |"]
    for action in command._actions:
        if action.dest == "help":
            continue
        name = ", ".join(action.option_strings) or str(action.metavar or action.dest)
        value = "" if not action.option_strings or action.nargs == 0 else f" {_value(action)}"
        rows.append(f"| `{name}{value}` | {action.help or ''} |")
    return rows


def _value(action: argparse.Action) -> str:
    if action.choices:
        return f"{{{','.join(map(str, action.choices))}}}"
    return str(action.metavar or action.dest.upper())


def _table(fields: Iterable[JsonField]) -> list[str]:
    rows = (f"| `{field.name}` | {field.type} | {field.meaning} |" for field in fields)
    return ["| field | type | meaning |", "| --- | --- | --- |", *rows]


def _rows_together(parts: Iterable[str]) -> Iterator[str]:
    """Yield the parts with the rows of each table as one."""
    rows: list[str] = []
    for part in parts:
        if part.startswith("|"):
            rows.append(part)
            continue
        if rows:
            yield "\n".join(rows)
            rows = []
        yield part
    if rows:
        yield "\n".join(rows)
