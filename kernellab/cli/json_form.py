"""The head of what ``--json`` prints, and errors as plain data; results are those of `kernellab.views.data`."""

from __future__ import annotations

from typing import Any

from kernellab import errors
from kernellab.advice import advice_in
from kernellab.views.data import selected_fields

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
    where = (
        None
        if place is None
        else {**selected_fields(place, "file", "line", "column"), "text": place.source_line() or None}
    )
    remedy = next(remedy for kind, remedy in _REMEDIES.items() if isinstance(error, kind))
    return {
        "type": type(error).__name__,
        **selected_fields(error, "message", "kernel"),
        "place": where,
        "advice": advice_in(error.message) or remedy,
        "detail": error.detail or None,
    }
