"""The IPython extension: magics, and completion of their options.

Results show themselves anywhere (`kernellab.errors`); where the extension is loaded, they replace their live progress.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from functools import partial
from typing import Any

from IPython import get_ipython
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher

from kernellab.display import HOOK
from kernellab.explain.devices import DEVICES
from kernellab.export import EXPORT_KINDS
from kernellab.lab import Lab
from kernellab.notebook.help import MAGICS, with_help, words
from kernellab.notebook.live import progress_of
from kernellab.notebook.magics import SHOWN, LabMagics, await_triton_cell, lab_of_shell
from kernellab.registry.listing import VersionStatus, search
from kernellab.target import known_targets
from kernellab.tune.dispatch.exporting import DISPATCH_KINDS

_CONFIG = ("triton.runtime.autotuner", "Config")  # by name: loading the extension loads no Triton
_LINE = re.compile(r"^(?:[^'\"#]*[=(]\s*)?(?P<sigil>%%?)(?P<magic>triton\w*)\s(?P<given>.*)$", re.DOTALL)
_KERNEL_PARAMETERS = {"kernel", "left", "right", "launch"}
_LAUNCHING = {"triton_tune", "triton_bench", "triton_why", "triton_predict"}  # they take names of the notebook, too
_HELP = {"triton", "triton_help"}
_CHOICES = {
    "--show": SHOWN,
    "--device": tuple(name for name, device in DEVICES.items() if device.target.startswith("cuda:")),
    "--status": tuple(status.split()[0] for status in VersionStatus),
    ("triton_export", "--as"): tuple(dict.fromkeys((*EXPORT_KINDS, *DISPATCH_KINDS))),
}


def load_ipython_extension(shell: Any) -> None:
    """Register the magics and their completion, and start the workers."""
    lab = lab_of_shell() or Lab()
    shell.register_magics(*(_with_help_option(kind(shell, lab)) for kind in MAGICS))
    if complete_options not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(complete_options)
    _remove_await_transformer(shell)
    shell.input_transformers_post.append(partial(await_triton_cell, shell))
    live = progress_of(shell)
    HOOK.on_show = live.clear_replaced
    shell.display_formatter.formatters["text/plain"].for_type_by_name(*_CONFIG, _pretty_config)
    if lab.settings.progress:
        lab.launches.report_to(live)
    _rebind_kernels(shell.user_ns, lab)
    lab.start()


def _with_help_option(family: LabMagics) -> LabMagics:
    """Let every magic of a family show its page for ``--help``."""
    for kind, sign in (("cell", "%%"), ("line", "%")):
        functions = family.magics[kind]
        functions |= {name: with_help(sign + name, function) for name, function in functions.items()}
    return family


def _remove_await_transformer(shell: Any) -> None:
    """Remove the input transformer that awaits cells."""
    transformers = shell.input_transformers_post
    transformers[:] = [t for t in transformers if getattr(t, "func", None) is not await_triton_cell]


def _rebind_kernels(namespace: Mapping[str, Any], lab: Lab) -> None:
    """Bind the kernels that ``%reload_ext`` left with a closed lab; cells would not see their launches."""
    from kernellab._triton.bound import bind_in_place, is_bound

    for value in list(namespace.values()):
        if is_bound(value) and value.runtime.is_closed:
            bind_in_place(value, lab.launches)
            lab.kernels.add(value)


def unload_ipython_extension(shell: Any) -> None:
    """Remove the magics and stop the workers."""
    for kind in ("cell", "line"):
        for name in (name for magics in MAGICS for name in magics.magics[kind]):
            shell.magics_manager.magics[kind].pop(name, None)
    if complete_options in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.remove(complete_options)
    _remove_await_transformer(shell)
    HOOK.on_show = None
    shell.display_formatter.formatters["text/plain"].pop(".".join(_CONFIG), None)
    magics = shell.magics_manager.registry.pop("TritonMagics", None)
    if magics is not None:
        magics.lab.close()


def _pretty_config(config: Any, printer: Any, cycle: bool) -> None:
    """Print a `triton.Config` as source text, in place of Triton's repr."""
    options = {name: value for name, value in vars(config).items() if name != "kwargs" and value is not None}
    if options.get("num_ctas") == 1:
        del options["num_ctas"]
    words = [repr(config.kwargs), *(f"{name}={getattr(v, '__name__', repr(v))}" for name, v in options.items())]
    printer.text(f"triton.Config({', '.join(words)})")


@context_matcher(identifier="kernellab.options")
def complete_options(context: CompletionContext) -> SimpleMatcherResult:
    """Complete a line after a magic of the lab: options, their values, kernels by name and version."""
    line = context.full_text.split("\n")[context.cursor_line]
    match = _LINE.match(line[: context.cursor_position])  # IPython's position is that in the line
    if match is None or (match["sigil"] == "%%" and context.cursor_line):
        return {"completions": []}
    *before, token = match["given"].split(" ")
    choices = _completions(match["sigil"], match["magic"], before, token)
    if choices is None:
        return {"completions": []}
    matching = [SimpleCompletion(choice, type="option") for choice in choices if choice.startswith(token)]
    in_python = match["magic"] in _LAUNCHING and not any(word.startswith("-") for word in (*before[-1:], token))
    return {"completions": matching, "suppress": not in_python, "matched_fragment": token}


def _completions(sigil: str, magic: str, before: list[str], token: str) -> Iterable[str] | None:
    """Return the completions at the cursor; None where it is in Python code, or where none are known."""
    if magic == "triton_target":
        return [*known_targets(), *DEVICES]
    if sigil == "%" and magic in _HELP:
        return words()
    parser = _magic_parser(sigil, magic)
    if parser is None:
        return None
    options = {name: action for action in parser._actions for name in action.option_strings}
    last = options.get(before[-1]) if before else None
    if last is not None and last.nargs != 0:
        return _option_values(magic, last)
    if token.startswith("-"):
        return [name for name in options if name.startswith("--")]
    lab = lab_of_shell()
    if lab is None:
        return None
    return _kept_words(lab, parser, bool([word for word in before if word and not word.startswith("-")]))


def _option_values(magic: str, option: argparse.Action) -> list[str] | None:
    """Return the values that an option takes; None where these are Python, numbers or paths."""
    name = option.option_strings[-1]
    if name == "--target":
        return [*known_targets(), *DEVICES]
    if name == "--notebook" and (lab := lab_of_shell()) is not None:
        return sorted({row.notebook for row in search(lab.kernels.store, every=True).rows if row.notebook})
    known: Any = option.choices or _CHOICES.get(name) or _CHOICES.get((magic, name))
    return None if known is None else [str(choice) for choice in known]


def _kept_words(lab: Lab, parser: argparse.ArgumentParser, has_first: bool) -> Iterable[str] | None:
    """Return kernels by name and version, and tags, as the positional arguments of a magic take them."""
    positional = {action.dest for action in parser._actions if not action.option_strings}
    versions = list(lab.kernels)
    kernels = dict.fromkeys(name for version in versions for name in (version.name, version.label))
    tags = dict.fromkeys(tag for tags in lab.kernels.store.tags().values() for tag in tags)
    if "tags" in positional and has_first:
        return tags
    if "text" in positional:
        return dict.fromkeys((*(version.name for version in versions), *tags))
    return kernels if positional & _KERNEL_PARAMETERS else None


def _magic_parser(sigil: str, magic: str) -> argparse.ArgumentParser | None:
    shell = get_ipython()
    if shell is None:
        return None
    function = (shell.find_cell_magic if sigil == "%%" else shell.find_line_magic)(magic)
    parser = getattr(getattr(function, "__func__", function), "parser", None)
    return parser if isinstance(parser, argparse.ArgumentParser) else None
