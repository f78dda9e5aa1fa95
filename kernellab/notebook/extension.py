"""The IPython extension: magics, and completion of their options.

Results show themselves anywhere (`kernellab.errors`); where the extension is loaded, they replace their live progress.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

from IPython import get_ipython
from IPython.core.completer import CompletionContext, SimpleCompletion, SimpleMatcherResult, context_matcher
from IPython.core.error import InputRejected

from kernellab.display import HOOK
from kernellab.errors import KernellabError, warn_user
from kernellab.export import DISPATCH_KINDS, EXPORT_KINDS
from kernellab.notebook.help import MAGICS, with_help, words
from kernellab.notebook.lab_opening import LabOpening
from kernellab.notebook.magics import SHOWN, LabMagics, await_triton_cell, lab_of_shell, opening_of_shell
from kernellab.settings import is_interpreting, read_settings
from kernellab.target import known_targets
from kernellab.workers.forks_and_interrupts import Interrupted

if TYPE_CHECKING:
    from kernellab.lab import Lab
    from kernellab.store import Store

_CONFIG = ("triton.runtime.autotuner", "Config")  # by name: loading the extension loads no Triton
_LINE = re.compile(r"^(?:[^'\"#]*[=(]\s*)?(?P<sigil>%%?)(?P<magic>triton\w*)\s(?P<given>.*)$", re.DOTALL)
_KERNEL_PARAMETERS = {"kernel", "left", "right", "launch"}
_LAUNCHING = {"triton_tune", "triton_bench", "triton_why", "triton_predict"}  # they take names of the notebook, too
_HELP = {"triton", "triton_help"}
_MOST_VERSIONS = 50
_MAY_LAUNCH = re.compile(r"triton|import|%run")  # a cell that brings kernels
_CHOICES = {
    "--show": SHOWN,
    ("triton_export", "--as"): tuple(dict.fromkeys((*EXPORT_KINDS, *DISPATCH_KINDS))),
}


def load_ipython_extension(shell: Any) -> None:
    """Register the magics and their completion, and open the lab in the background.

    Raises:
        UsageError: a variable of the environment has a value that it cannot have.
    """
    read_settings()
    known = opening_of_shell()
    opening = LabOpening(partial(_open_lab, shell, None if known is None else known.lab))
    shell.register_magics(*(_with_help_option(kind(shell, opening)) for kind in MAGICS))
    if complete_options not in shell.Completer.custom_matchers:
        shell.Completer.custom_matchers.append(complete_options)
    _remove_await_transformer(shell)
    shell.input_transformers_post.append(partial(await_triton_cell, shell))
    shell.display_formatter.formatters["text/plain"].for_type_by_name(*_CONFIG, _pretty_config)
    _remove_cell_hook(shell)
    hook = _CellHook(opening, every="triton" in sys.modules)
    shell.events.register("pre_run_cell", hook)
    shell.ast_transformers.append(hook)
    opening.begin()
    if is_interpreting() or "kernellab._triton.bound" in sys.modules:  # kernels that the lab changes may be defined
        opening.lab()


def _open_lab(shell: Any, lab_of: Callable[[], Lab] | None) -> Lab:
    """Return a new lab, or that of ``lab_of``, with its workers started and its progress shown by the shell."""
    from kernellab.lab import Lab
    from kernellab.notebook.live import progress_of

    lab = Lab() if lab_of is None else lab_of()
    try:
        lab.start()  # first: workers import what they need while the rest is done here
        live = progress_of(shell)
        HOOK.on_show = live.clear_replaced
        if lab.settings.progress:
            lab.launches.report_to(live)
        _rebind_kernels(shell.user_ns, lab)
    except BaseException:
        lab.close()
        raise
    return lab


class _CellHook:
    """Waits for the lab before a cell of plain Triton, which without a GPU needs the driver of the lab.

    Cells that bring no kernels do not wait, unless ``every`` cell may launch one. Magics wait for themselves.
    IPython runs a cell whatever a hook raises, so where Ctrl-C stops the wait, the hook rejects the cell as a
    transformer of its syntax tree.
    """

    def __init__(self, opening: LabOpening, *, every: bool) -> None:
        self._opening = opening
        self._every = every
        self._interrupt: Interrupted | None = None

    def __call__(self, info: Any) -> None:
        self._interrupt = None
        cell = info.raw_cell or ""
        if cell.lstrip().startswith(("%%triton", "%triton")) or not (self._every or _MAY_LAUNCH.search(cell)):
            return
        try:
            self._opening.lab()
        except (KernellabError, ImportError) as exc:
            warn_user(f"There is no lab for this cell: {exc}")
        except Interrupted as exc:
            self._interrupt = exc

    def visit(self, tree: Any) -> Any:
        """Return the tree of a cell, unless the wait before the cell was interrupted."""
        interrupt, self._interrupt = self._interrupt, None
        if interrupt is not None:
            raise _NotRun(str(interrupt))
        return tree


class _NotRun(InputRejected):  # type: ignore[misc]
    """A cell that was interrupted while it waited for the lab."""

    _render_traceback_ = Interrupted._render_traceback_


def _with_help_option(family: LabMagics) -> LabMagics:
    """Let every magic of a family show its page for ``--help``, once Triton is imported."""
    for kind, sign in (("cell", "%%"), ("line", "%")):
        functions = family.magics[kind]
        prepare = family.opening.await_triton
        functions |= {name: with_help(sign + name, function, prepare) for name, function in functions.items()}
    return family


def _remove_await_transformer(shell: Any) -> None:
    """Remove the input transformer that awaits cells."""
    transformers = shell.input_transformers_post
    transformers[:] = [t for t in transformers if getattr(t, "func", None) is not await_triton_cell]


def _remove_cell_hook(shell: Any) -> None:
    """Remove the hook that waits for the lab."""
    for hook in [hook for hook in shell.events.callbacks["pre_run_cell"] if isinstance(hook, _CellHook)]:
        shell.events.unregister("pre_run_cell", hook)
        shell.ast_transformers[:] = [t for t in shell.ast_transformers if t is not hook]


def _rebind_kernels(namespace: Mapping[str, Any], lab: Lab) -> None:
    """Bind the kernels that ``%reload_ext`` left with a closed lab; cells would not see their launches."""
    if "kernellab._triton.bound" not in sys.modules:
        return
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
    _remove_cell_hook(shell)
    shell.display_formatter.formatters["text/plain"].pop(".".join(_CONFIG), None)
    magics = shell.magics_manager.registry.pop("TritonMagics", None)
    HOOK.on_show = None
    if magics is not None:
        magics.opening.close()


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
    if (opening := opening_of_shell()) is not None:
        opening.await_triton()
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
        return _targets()
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
    return _kept_words(lab, parser, bool([word for word in before if word and not word.startswith("-")]), token)


def _option_values(magic: str, option: argparse.Action) -> list[str] | None:
    """Return the values that an option takes; None where these are Python, numbers or paths."""
    name = option.option_strings[-1]
    if name == "--target":
        return _targets()
    if name == "--device":
        return _devices(with_target="cuda:")
    if name == "--status":
        from kernellab.registry.listing import VersionStatus  # loads the store

        return [status.split()[0] for status in VersionStatus]
    if name == "--notebook" and (lab := lab_of_shell()) is not None:
        return sorted({outline.notebook for outline in lab.kernels.outlines() if outline.notebook})
    known: Any = option.choices or _CHOICES.get(name) or _CHOICES.get((magic, name))
    return None if known is None else [str(choice) for choice in known]


def _targets() -> list[str]:
    return [*known_targets(), *_devices()]


def _devices(with_target: str = "") -> list[str]:
    """Return the devices that are known by name, of a kind of target."""
    from kernellab.explain.devices import DEVICES  # needs Triton

    return [name for name, device in DEVICES.items() if device.target.startswith(with_target)]


def _kept_words(lab: Lab, parser: argparse.ArgumentParser, has_first: bool, token: str) -> Iterable[str] | None:
    """Return kernels by name and version, and tags, as the positional arguments of a magic take them.

    Of a name with many versions, those are the newest until ``name@`` is typed.
    """
    positional = {action.dest for action in parser._actions if not action.option_strings}
    store = lab.kernels.store
    if "tags" in positional and has_first:
        return _tags(store)
    if "text" in positional:
        return dict.fromkeys((*store.overview.numbers(most=1), *_tags(store)))
    if not positional & _KERNEL_PARAMETERS:
        return None
    numbers = store.overview.numbers(token, *([] if "@" in token else [_MOST_VERSIONS]))
    labels = ([name, *(f"{name}@{number}" for number in kept)] for name, kept in numbers.items())
    return [word for words in labels for word in words]


def _tags(store: Store) -> dict[str, None]:
    return dict.fromkeys(tag for tags in store.tags().values() for tag in tags)


def _magic_parser(sigil: str, magic: str) -> argparse.ArgumentParser | None:
    shell = get_ipython()
    if shell is None:
        return None
    function = (shell.find_cell_magic if sigil == "%%" else shell.find_line_magic)(magic)
    parser = getattr(getattr(function, "__func__", function), "parser", None)
    return parser if isinstance(parser, argparse.ArgumentParser) else None
