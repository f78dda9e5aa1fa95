"""The lines of magics: options by name, without the quotes around them, and errors that say what to write."""

from __future__ import annotations

import argparse
from difflib import get_close_matches
from typing import Any

from IPython.core.error import UsageError as ShellError
from IPython.core.magic_arguments import parse_argstring

from kernellab.errors import UsageError
from kernellab.notebook.expressions import unquoted

_AS_WRITTEN = "launch"  # its words are joined again
_IN_QUOTES = "values with spaces, and launches with negative numbers, go in quotes; "


def parsed(magic: Any, label: str, line: str) -> argparse.Namespace:
    """Return the options of a magic, called ``label`` (``%triton_tune``), from its line.

    Raises:
        UsageError: an option is unknown, lacks its value or has a wrong one, or a quote is not closed.
    """
    try:
        given: argparse.Namespace = parse_argstring(magic, line)
    except ValueError as exc:
        text = f"{line.strip()!r} has a quote that is not closed"
        raise UsageError(f'{text}; write an option with spaces as --option "x + y".') from exc
    except ShellError as exc:
        raise UsageError(f"{exc}; {_hint(magic.parser, str(exc))}{label}? shows all options.") from exc
    for name, value in vars(given).items():
        if name != _AS_WRITTEN:
            setattr(given, name, _bare(value))
    return given


def _hint(parser: argparse.ArgumentParser, refusal: str) -> str:
    """Return what to do about what argparse refuses: the option that was meant, or quotes around words."""
    _, unrecognized, words = refusal.partition("unrecognized arguments: ")
    if not unrecognized:
        return ""
    options = [name for action in parser._actions for name in action.option_strings if name.startswith("--")]
    given = [word.partition("=")[0] for word in words.split() if word.startswith("--")]
    meant = [close[0] for word in given if (close := get_close_matches(word, options, 1, 0.7))]
    if meant:
        return f"did you mean {meant[0]}? "
    return "" if given else _IN_QUOTES


def _bare(value: Any) -> Any:
    if isinstance(value, list):
        return [_bare(member) for member in value]
    return unquoted(value) if isinstance(value, str) else value
