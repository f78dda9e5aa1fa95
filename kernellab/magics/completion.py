"""Completion of the options of ``%%triton``, and of what they take."""

from __future__ import annotations

from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from kernellab.magics.cells import STAGES, TritonMagics
from kernellab.target import known_targets


@context_matcher(identifier="kernellab.options")
def complete_options(context: CompletionContext) -> SimpleMatcherResult:
    """Complete the options of ``%%triton`` on its own line, and the targets after ``--target``."""
    words = context.full_text[: context.cursor_position].split(" ")
    if context.cursor_line or not context.full_text.startswith(("%%triton", "%triton_target")):
        return {"completions": []}
    token, before = words[-1], words[-2] if len(words) > 1 else ""
    if before in {"--target", "%triton_target"}:
        choices: tuple[str, ...] = known_targets()
    elif before == "--show":
        choices = STAGES
    elif token.startswith("-"):
        choices = _option_names()
    else:
        return {"completions": []}
    found = [SimpleCompletion(choice, type="option") for choice in choices if choice.startswith(token)]
    return {"completions": found, "suppress": True, "matched_fragment": token}


def _option_names() -> tuple[str, ...]:
    actions = TritonMagics.triton.parser._actions
    return tuple(name for action in actions for name in action.option_strings if name.startswith("--"))
