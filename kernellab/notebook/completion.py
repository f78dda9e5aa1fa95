"""Completion in the lines of the magics: options, what they take, and the names of kept kernels."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable
from typing import Any

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.getipython import get_ipython

from kernellab.export.write import KINDS
from kernellab.notebook.magics import STAGES, lab_of_shell
from kernellab.target import known_targets
from kernellab.tune.dispatch.exporting import DISPATCH_KINDS

_LINE = re.compile(r"^(?:[^'\"#]*[=(]\s*)?(?P<sigil>%%?)(?P<magic>triton\w*)\s(?P<given>.*)$", re.DOTALL)
_KERNEL_PARAMETERS = {"kernel", "left", "right"}
_CHOICES = {"--show": STAGES, ("triton_export", "--as"): tuple(dict.fromkeys((*KINDS, *DISPATCH_KINDS)))}


@context_matcher(identifier="kernellab.options")
def complete_options(context: CompletionContext) -> SimpleMatcherResult:
    """Complete what stands after a magic of the lab: its options, their values, kernels by name and version."""
    line = context.full_text.split("\n")[context.cursor_line]
    found = _LINE.match(line[: context.cursor_position])  # IPython's position is that in the line
    if found is None or (found["sigil"] == "%%" and context.cursor_line):
        return _nothing()
    words = found["given"].split(" ")
    choices = _choices(found["sigil"], found["magic"], words[:-1], words[-1])
    if choices is None:
        return _nothing()
    matching = [SimpleCompletion(choice, type="option") for choice in choices if choice.startswith(words[-1])]
    return {"completions": matching, "suppress": True, "matched_fragment": words[-1]}


def _nothing() -> SimpleMatcherResult:
    """Return a result without completions; a new one each time, since IPython writes the matched text into it."""
    return {"completions": []}


def _choices(sigil: str, magic: str, before: list[str], token: str) -> Iterable[str] | None:
    """Return what may stand at the cursor; None where that is Python, or nothing that is known."""
    if magic == "triton_target":
        return known_targets()
    parser = _parser(sigil, magic)
    if parser is None:
        return None
    options = {name: action for action in parser._actions for name in action.option_strings}
    last = options.get(before[-1]) if before else None
    if last is not None and last.nargs != 0:
        return _values(magic, last)
    if token.startswith("-"):
        return [name for name in options if name.startswith("--")]
    if any(action.dest in _KERNEL_PARAMETERS and not action.option_strings for action in parser._actions):
        return _kernel_names()
    return None


def _values(magic: str, option: argparse.Action) -> Iterable[str] | None:
    name = option.option_strings[-1]
    if name == "--target":
        return known_targets()
    known: Any = option.choices or _CHOICES.get(name) or _CHOICES.get((magic, name))
    return None if known is None else [str(choice) for choice in known]


def _parser(sigil: str, magic: str) -> argparse.ArgumentParser | None:
    shell = get_ipython()
    if shell is None:
        return None
    function = (shell.find_cell_magic if sigil == "%%" else shell.find_line_magic)(magic)
    parser = getattr(getattr(function, "__func__", function), "parser", None)
    return parser if isinstance(parser, argparse.ArgumentParser) else None


def _kernel_names() -> list[str]:
    """Return the names of the kept kernels and their versions: ``softmax``, ``softmax@2``."""
    lab = lab_of_shell()
    versions = [] if lab is None else list(lab.kernels)
    return list(dict.fromkeys(name for version in versions for name in (version.name, version.label)))
