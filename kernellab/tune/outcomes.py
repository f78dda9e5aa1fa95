"""From what a compiler or a bench says of a config to its row."""

from __future__ import annotations

from kernellab.compile import Compiled
from kernellab.errors import CheckFailed, KernellabError, LaunchError, WorkerTimeout
from kernellab.tune.config import Config
from kernellab.tune.result import Row, Status, with_resources


def row_before(config: Config, result: Compiled | KernellabError, max_spill_bytes: int | None) -> Row:
    """Return the row of a config before it is measured. One that can run is not timed for no reason so far."""
    if isinstance(result, KernellabError):
        return Row(config, Status.COMPILE_ERROR, reason_of(result))
    resources = result.resources
    if not resources.fits:
        return with_resources(config, result, Status.CANNOT_RUN, resources.why_not or "it does not fit the target")
    if max_spill_bytes is not None and (resources.spill_bytes or 0) > max_spill_bytes:
        reason = f"it spills {resources.spill_bytes} bytes per thread"
        return with_resources(config, result, Status.PRUNED, reason)
    return with_resources(config, result, Status.NOT_TIMED)


def status_of(exc: KernellabError) -> Status:
    if isinstance(exc, WorkerTimeout):
        return Status.TIMEOUT
    if isinstance(exc, CheckFailed):
        return Status.WRONG
    return Status.CANNOT_RUN if isinstance(exc, LaunchError) else Status.FAULT


def reason_of(exc: KernellabError) -> str:
    """Return a message with its source line, in one line of text."""
    text = " ".join(exc.message.split())
    return text if exc.place is None else f"{text} (line {exc.place.line})"
