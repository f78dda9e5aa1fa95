"""The command line: parse, call, print. Text is made for a terminal, ``--json`` for programs; no traceback shows."""

from __future__ import annotations

import json
import os
import sys
from argparse import Namespace
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from kernellab import __version__, errors
from kernellab.advice import advice_in
from kernellab.cli.parser import parse
from kernellab.cli.terminal import answers_alone, style_for, warned_in_a_line
from kernellab.errors import GateFailed, JudgeFailed, KernellabError, LaunchError, UsageError
from kernellab.views.data import selected_fields

if TYPE_CHECKING:
    from kernellab.cli.kept import Answer
    from kernellab.lab import Lab

FAILED, WRONG_CALL, NO_VERDICT, INTERRUPTED = 1, 2, 3, 130


def main(arguments: Sequence[str] | None = None, open_lab: Callable[..., Lab] | None = None) -> int:
    """Run a command; returns the exit status: 0, 1 (the kernel's fault), 2 (a wrong call), 130 (interrupted).

    `judge` returns 0 only for what is accepted, 1 for what is not, and 3 where it failed itself, as a gate does.

    ``open_lab`` makes the lab from ``target`` and ``store``; it is `kernellab.Lab` if left out.
    """
    words = list(sys.argv[1:] if arguments is None else arguments)
    try:
        args = parse(words)
        if args.command in _WITHOUT_STORE:
            return _WITHOUT_STORE[args.command](args)
        return _print(_answer(args, open_lab), args)
    except KernellabError as exc:
        return _print_error(exc, words)
    except KeyboardInterrupt:
        return _print_interrupted(words)
    except BrokenPipeError:  # whoever read the output has enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return FAILED
    except SystemExit as exc:  # --help and --version
        return exc.code if isinstance(exc.code, int) else 0
    except Exception as exc:  # noqa: BLE001 - a fault of the lab itself is an error in a sentence, too
        return _print_error(_as_lab_error(exc, words), words)


def status_of(error: KernellabError) -> int:
    """The exit status of an error: 2 for a wrong call, 1 for a kernel or its file, 3 without a verdict on it."""
    if isinstance(error, GateFailed | JudgeFailed):
        return NO_VERDICT
    is_call = isinstance(error, UsageError) and not isinstance(error, LaunchError)
    return WRONG_CALL if is_call else FAILED


def _answer(args: Namespace, open_lab: Callable[..., Lab] | None) -> Answer:
    from kernellab.cli.kept import answer_from_store  # --version needs nothing of it

    with answers_alone(), warned_in_a_line():
        if (answer := answer_from_store(args)) is not None:
            return answer
        from kernellab.cli.verbs import COMMANDS  # loads Triton and torch
        from kernellab.lab import Lab

        with (open_lab or Lab)(target=getattr(args, "target", None), store=args.store) as lab:
            _report_progress(lab)
            return COMMANDS[args.command](lab, args)


def _report_progress(lab: Lab) -> None:
    """Show on standard error how far what takes its time has come, if that is a terminal."""
    from kernellab.notebook.live import LiveProgress, terminal_display

    if sys.stderr.isatty() and lab.settings.progress:
        lab.launches.report_to(LiveProgress(terminal_display(sys.stderr)))


def _print(answer: Answer, args: Namespace) -> int:
    if args.json:
        _print_json(args.command, answer.data)
    else:
        _write(answer.text(), sys.stdout)
    sys.stdout.flush()
    return answer.status


def _write(text: str, stream: TextIO) -> None:
    """Print a text; what the encoding of the stream lacks becomes a question mark."""
    encoding = getattr(stream, "encoding", None) or "utf-8"
    print(style_for(text, stream).encode(encoding, "replace").decode(encoding), file=stream)


def _print_json(command: str | None, data: Any) -> None:
    head = {"schema": SCHEMA, "kernellab": __version__, "command": command}
    print(json.dumps({**head, **data}, indent=2 if sys.stdout.isatty() else None))


def _print_error(error: KernellabError, words: Sequence[str]) -> int:
    if "--json" in words:
        _print_json(_command(words), {"error": error_data(error)})
    else:
        _write("\n".join(error.lines(verbose="--verbose" in words)), sys.stderr)
    return status_of(error)


def _print_interrupted(words: Sequence[str]) -> int:
    if "--json" in words:
        message = {"type": "Interrupted", "message": "It was interrupted.", "kernel": None, "place": None}
        _print_json(_command(words), {"error": {**message, "advice": "Call it again.", "detail": None}})
    else:
        print("Interrupted.", file=sys.stderr)
    return INTERRUPTED


def _command(words: Sequence[str]) -> str | None:
    return next((word for word in words if not word.startswith("-")), None)


def _as_lab_error(exc: Exception, words: Sequence[str]) -> KernellabError:
    """Return an exception that is not an error of the lab as one: the file's fault where it comes from there."""
    from kernellab.cli.kernel_file import fault_of_file, trail_of

    message = f"kernellab itself failed: {type(exc).__name__}: {exc}. --verbose shows where; please report it."
    if _command(words) == "judge":
        return JudgeFailed(message, detail=trail_of(exc))
    for name in (word.partition("::")[0] for word in words):
        if name.endswith(".py") and (fault := fault_of_file(exc, Path(name))) is not None:
            return fault
    return KernellabError(message, detail=trail_of(exc))


def _demo(args: Namespace) -> int:
    from kernellab.notebook.demo import demonstrate, summary_text  # each command loads what it needs

    print(summary_text(demonstrate(Path(args.notebook), Path(args.page), sys.stdout)))
    return 0


def _lab(args: Namespace) -> int:
    from kernellab.notebook import demo

    demo.require_jupyterlab()
    notebook, is_new = demo.write_first_notebook(Path(args.path))
    print(f"{'Wrote' if is_new else 'Found'} {notebook}; opening it in JupyterLab. Ctrl-C ends it.")
    options = ["--no-browser"] if args.no_browser else []
    demo.replace_process(demo.jupyterlab_command(notebook, options))
    return 0


def _judge(args: Namespace) -> int:
    """Print verdicts as they come; nothing but an accepted candidate ends with status 0."""
    from kernellab.cli.judge import judge_answers
    from kernellab.judge import failing_as_judge

    status = 0
    with failing_as_judge(args.candidate), closing(judge_answers(args)) as answers:
        while True:
            with answers_alone(), warned_in_a_line():
                answer = next(answers, None)
            if answer is None:
                return status
            try:
                if not args.json:
                    _write(answer.text, sys.stdout)
                elif answer.line:
                    print(answer.line)
                sys.stdout.flush()
            except BrokenPipeError:  # the verdict reached no one
                os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
                return NO_VERDICT
            status = max(status, answer.status)


_WITHOUT_STORE = {"demo": _demo, "judge": _judge, "lab": _lab}


SCHEMA = 1
"""Raised when a field is renamed, removed, or means something else; not when one is added."""


_REMEDIES: dict[type[errors.KernellabError], str] = {
    errors.CannotRun: "Use smaller blocks, fewer stages or fewer warps; `compile` says what the kernel needs.",
    errors.OutOfBounds: "Mask the access, or launch a grid that fits the arguments.",
    errors.CheckFailed: "Look at the first elements that differ: which program writes them, and from what.",
    errors.WorkerTimeout: "Look for a loop that does not end; if there is none, give more time with --timeout.",
    errors.CompileError: "Change the line that `place` names; `detail` is the whole message of the compiler.",
    errors.SourceError: "Change the line that `place` names, or import what the file needs.",
    errors.LaunchError: "Compare what `arguments` returns with the parameters of the kernel.",
    errors.UnknownName: "`kernellab ls` lists what is kept.",
    errors.UsageError: "`kernellab COMMAND --help` lists what the command takes.",
    errors.GateFailed: "It says nothing of the kernel: start one worker per GPU, and compare again.",
    errors.JudgeFailed: "It says nothing of the candidate: judge it again; if it stays so, look at the specification.",
    errors.StoreError: "Name another folder with --store; what the message names was left as it is.",
    errors.KernellabError: "`detail`, where there is one, says more.",
}
"""What to do about an error whose message has no advice of a rule: that of the first class which it is."""


def error_data(error: errors.KernellabError) -> dict[str, Any]:
    """Return an error: its type, its message, its place, what to do about it, and the whole foreign message."""
    place = error.place
    where = None
    if place is not None:
        where = {**selected_fields(place, "file", "line", "column"), "text": place.source_line() or None}
    remedy = next(remedy for kind, remedy in _REMEDIES.items() if isinstance(error, kind))
    return {
        "type": type(error).__name__,
        **selected_fields(error, "message", "kernel"),
        "place": where,
        "advice": advice_in(error.message) or remedy,
        "detail": error.detail or None,
    }
