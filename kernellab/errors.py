"""Every error of the lab, its warnings, and values in words.

::

    KernellabError
    ├── UsageError              an option, argument or name that cannot be used; says what can
    │   ├── UnknownTarget       a target that no backend of this Triton compiles for
    │   ├── UnknownName         a kernel, version or id that the registry lacks (also a KeyError)
    │   └── LaunchError         arguments, grid or tensors that the kernel cannot be launched with
    │       └── CannotRun       a kernel that exceeds a limit of its target
    ├── SourceError             a kernel whose source or globals cannot be taken along
    ├── CompileError            Triton, LLVM or ptxas refused the kernel
    ├── EffectsError            the effects of a kernel cannot be analysed (recursion)
    ├── RunError                a launch failed while it ran
    │   ├── OutOfBounds         an access outside the memory of the kernel's arguments
    │   └── CheckFailed         an output differs from its reference, or is NaN where that is checked for
    ├── WorkerError             a worker process did not answer
    │   ├── WorkerDied          it was killed, or it exited
    │   ├── WorkerTimeout       the job took longer than its limit
    │   └── GateFailed          the processes of a gate failed, so nothing is said of the kernel
    ├── JudgeFailed             the judge failed, so nothing is said of the candidate
    └── StoreError              the database cannot be read or written, or a compiled kernel not kept

A message says what failed, on which value, what was expected, and what to do about it.
Errors of other libraries are translated where they enter, with ``raise ... from``. What goes on all the same is warned
of, at the line of the user's code that it comes from.
"""

from __future__ import annotations

import errno
import linecache
import reprlib
import sys
import textwrap
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from types import FrameType
from typing import Any

_WIDTH = 100
_PACKAGES = (
    *("torch.", "IPython.", "ipykernel.", "triton.", "kernellab."),
    *("contextlib.", "importlib.", "threading.", "functools."),
)


@dataclass(frozen=True, slots=True)
class Place:
    """A position in source that the user wrote.

    ``line`` counts from 1, ``column`` from 0; ``text`` is the source line, or None where it is not known.
    """

    file: str
    line: int
    column: int | None = None
    text: str | None = None

    def source_line(self) -> str:
        """The text of the line: as it was when it was noted, else as it is now."""
        return self.text if self.text is not None else linecache.getline(self.file, self.line).rstrip("\n")


class KernellabError(Exception):
    """The base of all errors of this package.

    ``place`` is the source line responsible, where one is known. ``detail`` is the whole foreign message
    (an MLIR diagnostic, a ptxas log), which is shown only where ``verbose`` is set.
    """

    verbose = False

    def __init__(
        self, message: str, *, place: Place | None = None, detail: str = "", kernel: str | None = None
    ) -> None:
        super().__init__(message)
        self.message = message
        self.place = place
        self.detail = detail
        self.kernel = kernel

    def __str__(self) -> str:
        """Return the message, then file and line, the source line, and a caret."""
        return "\n".join([self.message, *self._where()])

    def lines(self, *, verbose: bool = False) -> list[str]:
        """Return the lines of the message as shown: the message, file and line, the source line, and a caret."""
        shown = [f"{type(self).__name__}: {self.message}", *self._where()]
        if verbose and self.detail:
            shown += ["", *self.detail.rstrip().splitlines()]
        return shown

    def _where(self) -> list[str]:
        if self.place is None:
            return []
        place, source = self.place, self.place.source_line()
        lines, text = [f"  {place.file}, line {place.line}"], source.strip()
        if text:
            lines.append(f"    {text}")
        if text and place.column is not None:
            indent = len(source) - len(source.lstrip())
            lines.append("    " + " " * max(0, min(place.column - indent, len(text))) + "^")
        return lines

    def _render_traceback_(self) -> list[str]:
        """Let IPython show those lines in place of a traceback through the lab and Triton.

        The message is broken between words; a notebook breaks long lines anywhere.
        """
        message, *others = self.lines(verbose=self.verbose)
        wrap = textwrap.TextWrapper(_WIDTH, break_long_words=False, break_on_hyphens=False)
        broken = (wrap.fill(line) if len(line) > _WIDTH else line for line in message.splitlines())
        return ["\n".join(broken), *others]


class UsageError(KernellabError):
    """An option, argument or name that cannot be used."""


class UnknownTarget(UsageError):
    """A target that no backend of the installed Triton compiles for."""


class UnknownName(UsageError, KeyError):
    """A kernel name, version or id that the registry does not hold."""


class LaunchError(UsageError):
    """Arguments, a grid or tensors that the kernel cannot be launched with."""


class CannotRun(LaunchError):
    """A compiled kernel that exceeds a limit of its target."""


class SourceError(KernellabError):
    """A kernel whose source, or a global that it uses, cannot be sent to another process."""


class CompileError(KernellabError):
    """Triton, LLVM or the assembler refused the kernel."""


class EffectsError(KernellabError):
    """The effects of a kernel cannot be analysed."""


class RunError(KernellabError):
    """A launch failed while it ran."""


class OutOfBounds(RunError):
    """A load, store or atomic outside the memory of the kernel's arguments."""


class CheckFailed(RunError):
    """An output differs from its reference by more than its dtype allows, or is NaN where that is checked for."""


class WorkerError(KernellabError):
    """A worker process did not answer."""


class WorkerDied(WorkerError):
    """A worker process was killed, or exited, before it answered."""


class WorkerTimeout(WorkerError):
    """A job took longer than its limit; its worker was stopped."""


class GateFailed(WorkerError):
    """The processes that a gate times on were lost or have no GPU, so there is no verdict on the kernel."""


class JudgeFailed(KernellabError):
    """The judge failed on a candidate, so there is no verdict: neither accepted nor rejected."""


class StoreError(KernellabError):
    """The database cannot be read or written, or there is no room for a compiled kernel."""


NO_LAB = "The lab cannot be opened"


@contextmanager
def refused_by_system(subject: str) -> Iterator[None]:
    """Raise a `StoreError` for what the system refuses in the context, such as room on a disk, with what to do."""
    try:
        yield
    except OSError as exc:
        raise StoreError(f"{subject}: {refusal_text(exc)}") from exc


def refusal_text(exc: OSError) -> str:
    """Return the end of a message on what the system refused: its words, the file, and what to do."""
    where = f" ({exc.filename})" if exc.filename else ""
    advice = "Free space on that disk" if exc.errno in {errno.ENOSPC, errno.EDQUOT} else "Correct that"
    return f"{exc.strerror or exc}{where}. {advice}, then try again."


def timeout_text(subject: str, seconds: float, outcome: str = "did not finish") -> str:
    """Word a time limit that passed, without a full stop."""
    return f"{subject} {outcome} within {seconds:g} s"


def stopped_text(subject: str, seconds: float) -> str:
    """Word a time limit after which a process was stopped, as a sentence."""
    return f"{timeout_text(subject, seconds)} and was stopped."


def first_line(foreign: object) -> str:
    """Return the first line of what Triton, torch or the driver says, without its full stop."""
    line = next((line.strip() for line in str(foreign).splitlines() if line.strip()), "unknown failure")
    return line.removeprefix("CUDA error: ").removesuffix(", but expected one of:").rstrip(".:")


def plural(count: int, word: str) -> str:
    """Return ``1 launch`` or ``1,200 launches``."""
    ending = "" if count == 1 else "es" if word.endswith(("ch", "x")) else "s"
    return f"{count:,} {word}{ending}"


def three_digits(number: float) -> str:
    """Return a number with three significant digits at most, or as a whole number: ``4.84``, ``1,234``."""
    return f"{number:,.0f}" if number >= 99.95 else f"{number:.3g}"


def time_text(seconds: float) -> str:
    """Return a time with three digits at most: ``1.24 s``, ``312 ms``, ``41 us``."""
    scale, unit = next((pair for pair in ((1.0, "s"), (1e-3, "ms")) if seconds >= pair[0] * 0.9995), (1e-6, "us"))
    return f"{three_digits(seconds / scale)} {unit}"


def share_text(share: float) -> str:
    """Return a share as a percentage: ``4.2 %``, ``42 %``."""
    return format(share, ".1%" if share < 0.0995 else ".0%").replace("%", " %")


def choice_message(parameter: str, got: object, choices: tuple[str, ...], *, owner: str = "") -> str:
    """Return the uniform message for a value that is not among its choices; it suggests one that is spelled alike."""
    message = value_message(parameter, got, f"one of {', '.join(choices)}", owner=owner)
    close = get_close_matches(got.lower(), choices, 1, 0.75) if isinstance(got, str) else []
    return f"{message.removesuffix('.')}; did you mean {close[0]}?" if close else message


def value_message(parameter: str, got: object, expected: str, *, owner: str = "") -> str:
    """Return the uniform message for a value that is not what is expected; a long one is cut short."""
    of = f" of {owner}" if owner else ""
    return f"{parameter}{of} is {value_text(got)}; expected {expected}."


def value_text(value: object) -> str:
    """Return a value in a few words: numbers and texts as they are, others with their type."""
    kind = f"{type(value).__module__}.{type(value).__qualname__}".removeprefix("builtins.")
    if isinstance(value, int) and value.bit_length() > _WIDTH:
        return f"an integer of {value.bit_length():,} bits"
    if value is None or isinstance(value, int | float | str):
        return _shorten(repr(value))
    if isinstance(name := getattr(value, "__qualname__", None), str):
        return f"{_shorten(name)} ({kind})"
    plain = isinstance(value, list | tuple | dict | set | frozenset | bytes | complex | slice)
    return f"{_shorten(_SHORT.repr(value))} ({kind})" if plain else f"a {kind}"


class _Short(reprlib.Repr):
    """Shortens containers, and names other objects by their type: the text of a tensor reads its memory."""

    def repr_instance(self, x: Any, level: int) -> str:
        """Return an object in a few words."""
        for kind in (tuple, list, dict, set, frozenset):
            if isinstance(x, kind):
                return self.repr1(kind(x), level)
        return super().repr_instance(x, level) if isinstance(x, bytes | complex | slice) else value_text(x)


_SHORT = _Short()


def _shorten(text: str) -> str:
    return text if len(text) <= _WIDTH else f"{text[:_WIDTH]}..."


def user_frame() -> FrameType | None:
    """Return the innermost frame of the user's own code, or None."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and f"{frame.f_globals.get('__name__', '')}.".startswith(_PACKAGES):
        frame = frame.f_back
    return frame


def warn_user(message: str) -> None:
    """Warn of something, at the line of the user's code that it comes from."""
    frame = user_frame()
    if frame is None:
        warnings.warn(message, stacklevel=2)
        return
    registry = frame.f_globals.setdefault("__warningregistry__", {})
    warnings.warn_explicit(message, UserWarning, frame.f_code.co_filename, frame.f_lineno, registry=registry)
