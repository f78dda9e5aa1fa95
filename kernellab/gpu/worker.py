"""One trial launch: its job, its outcome, the work in the GPU worker, and the error of a failed trial.

A compiled kernel is launched on copies of its arguments between redzones. The notebook's memory is mapped only while it
is copied, so that a faulty kernel cannot write to it.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from kernellab._triton.drivers import (
    LAUNCH_ERRORS,
    compiled_from_files,
    relauncher,
    set_scratch_allocators,
    unload_with_handle,
    use_driver_without_torch,
)
from kernellab.errors import KernellabError, LaunchError, OutOfBounds, RunError, UsageError, first_line
from kernellab.gpu import driver
from kernellab.gpu.device_view import load_kernels
from kernellab.gpu.driver import DeviceBytes
from kernellab.gpu.ipc import BinaryLaunch, IpcExport, Memory, Tables, import_memory, move_tables, moves_of
from kernellab.gpu.redzones import Damage, Redzones, Span, damage_text, likely_place, likely_site, spans_of
from kernellab.ir.operations import Access
from kernellab.launch.calls import MAX_GRID, Grid3
from kernellab.launch.memory import Moves
from kernellab.source import INTEGER_OPTIONS

if TYPE_CHECKING:
    from kernellab.launch.bound_launch import BoundLaunch, LookCloser

_WIDE_ZONE_BYTES = 32 << 20
_NARROW_ZONE_BYTES = 1 << 20
_OUTPUT_CHARS = 100_000


@dataclass(frozen=True, slots=True)
class WarmUp:
    """A device that a worker prepares for, and its UUID."""

    device: int
    uuid: bytes


@dataclass(frozen=True, slots=True)
class TrialJob:
    """A trial launch of the ``kernel`` of that name, and the memory of its arguments."""

    kernel: str
    launch: BinaryLaunch
    device: int
    memories: tuple[Memory, ...]
    tables: Tables


class Ending(StrEnum):
    """The end of a trial: clean, refused without a launch, fault of the device, or memory damage."""

    CLEAN = "clean"
    REFUSED = "refused"
    FAULT = "fault"
    DAMAGE = "damage"


class Placing(StrEnum):
    """The memory of the arguments: all copied, only written ones copied, or all the notebook's own."""

    COPIES = "copies"
    WRITTEN_COPIES = "written copies"
    ORIGINALS = "originals"


@dataclass(frozen=True, slots=True)
class TrialOutcome:
    """The outcome of a trial. ``message`` is the driver's; ``output`` is the kernel's printed output."""

    ending: Ending
    placing: Placing
    message: str = ""
    damages: tuple[Damage, ...] = ()
    output: str = ""


@lru_cache(maxsize=1)
def _scratch() -> dict[str, DeviceBytes]:
    """The scratch memory of this process by kind, shared by its successive launches."""
    return {}


def _scratch_of(kind: str, size_bytes: int) -> DeviceBytes:
    """Return scratch memory of a kind, of at least ``size_bytes``; as zeros for an instrumented kernel."""
    scratch = _scratch()
    if kind not in scratch or scratch[kind].size_bytes < size_bytes:
        driver.synchronize()
        scratch[kind] = driver.allocate(size_bytes)
    return scratch[kind].zero_() if kind == "profile" else scratch[kind]


def use_device(number: int) -> None:
    """Work on a device from now on, without torch; provide scratch memory to kernels."""
    driver.use_device(number)
    use_driver_without_torch(driver.current_device, driver.capability_of)
    set_scratch_allocators(_scratch_of)


def warm_up(job: WarmUp, progress: object) -> None:
    """Make the CUDA context, so that no launch waits for it.

    Raises:
        UsageError: the number means another device in this process.
    """
    driver.use_device(job.device)
    require_same_device(job, driver.uuid_of(job.device))


def load_basic_kernels(job: WarmUp, progress: object) -> None:
    """Load Triton's driver, and the kernels of redzones and stopwatch, so that the first trial does not wait."""
    use_device(job.device)
    load_kernels()


def require_same_device(job: WarmUp, uuid: bytes) -> None:
    """Refuse to work on another device than the notebook's.

    Raises:
        UsageError: the device of that number has another UUID here.
    """
    if uuid != job.uuid:
        raise UsageError(
            f"cuda:{job.device} of this process is another GPU for its worker: CUDA_VISIBLE_DEVICES or "
            "CUDA_DEVICE_ORDER changed after the GPU was first used. Restart the session, and set them before that."
        )


def scratch_in_use() -> tuple[DeviceBytes, ...]:
    """Return the current scratch memory; a CUDA graph of a launch uses its address but does not keep it alive."""
    return tuple(_scratch().values())


def try_launch(job: TrialJob, progress: Callable[[Any], None]) -> TrialOutcome:
    """Run a trial launch and return its outcome. After a fault, this process can no longer use the device."""
    use_device(job.device)
    printed = _printed_bytes()
    placing, spans, total_bytes = _placing_of(job.memories)
    tensors, redzones = _place_arguments(job, spans, total_bytes)
    handle = handle_of(job.launch)
    moves = moves_of(job.memories, tensors)
    ending, message = _launch(handle, job.launch.grid, job.launch.arguments_on(tensors, job.tables, moves))
    unload_with_handle(handle, driver.unload)
    if ending is Ending.FAULT:
        return TrialOutcome(ending, placing, message, output=_printed_since(printed))
    damages = () if redzones is None else tuple(redzones.damages())
    if placing is Placing.ORIGINALS and ending is Ending.CLEAN and not damages:
        _write_tables_back(job, tensors, moves)
    ending = Ending.DAMAGE if damages else ending
    return TrialOutcome(ending, placing, message, damages, _printed_since(printed))


def handle_of(launch: BinaryLaunch) -> Any:
    """Return Triton's handle of a compiled kernel."""
    return compiled_from_files(dict(launch.files), launch.digest, dict(launch.signature), launch.constants)


def _launch(handle: Any, grid: Grid3, arguments: tuple[Any, ...]) -> tuple[Ending, str]:
    message = ""
    try:
        relauncher(handle, grid, arguments)()
    except LAUNCH_ERRORS as exc:
        message = str(exc)
    try:
        driver.synchronize()
    except RuntimeError as exc:
        return Ending.FAULT, str(exc)
    return (Ending.REFUSED, message) if message else (Ending.CLEAN, "")


def _write_tables_back(job: TrialJob, tensors: list[Any], moves: Moves) -> None:
    """Copy address tables that the launch changed back to the notebook's memory."""
    back = tuple((to, size_bytes, address) for address, size_bytes, to in moves)
    move_tables(job.tables, tensors, back)
    for memory, tensor in zip(job.memories, tensors, strict=True):
        if memory.holds_addresses and memory.is_mutated:
            import_memory(memory).copy_(tensor)
            driver.synchronize()


def _placing_of(memories: tuple[Memory, ...]) -> tuple[Placing, tuple[Span | None, ...], int]:
    """Return the placing that the device has room for, the spans of the copies, and their bytes with redzones."""
    free_bytes = driver.free_bytes() * 4 // 5
    for placing in Placing:
        is_all, is_some = placing is Placing.COPIES, placing is Placing.WRITTEN_COPIES
        needed = (is_all or (is_some and memory.is_mutated) or memory.holds_addresses for memory in memories)
        copied = [memory.size_bytes > 0 and is_needed for memory, is_needed in zip(memories, needed, strict=True)]
        for zone_bytes in (_WIDE_ZONE_BYTES, _NARROW_ZONE_BYTES):
            spans, total = spans_of(memories, copied, zone_bytes)
            # Wide zones are optional: they take at most a tenth of the free memory.
            limit = free_bytes // 10 if zone_bytes == _WIDE_ZONE_BYTES else free_bytes
            if total < limit or placing is Placing.ORIGINALS:
                return placing, spans, total
    raise AssertionError("unreachable")


def _place_arguments(
    job: TrialJob, spans: tuple[Span | None, ...], total_bytes: int
) -> tuple[list[Any], Redzones | None]:
    """Return the memories of a trial, those with a span as copies, and the redzones around the copies."""
    redzones = Redzones(driver.allocate(total_bytes), spans) if total_bytes else None
    tensors: list[Any] = []
    for index, memory in enumerate(job.memories):
        original = import_memory(memory)
        tensors.append(original if redzones is None else redzones.copy(index, original))
        driver.synchronize()  # an original that is copied is unmapped now
    move_tables(job.tables, tensors, moves_of(job.memories, tensors))
    if redzones is not None:
        redzones.watch_read_only(job.memories)
    return tensors, redzones


def _printed_bytes() -> int:
    status = os.fstat(1)
    return status.st_size if stat.S_ISREG(status.st_mode) else 0


def _printed_since(start: int) -> str:
    """Return the output of this process, including the kernel, in its log file since byte ``start``."""
    size = min(_printed_bytes() - start, _OUTPUT_CHARS)
    try:
        return os.pread(1, size, start).decode(errors="replace") if size > 0 else ""
    except OSError:
        return ""


# The driver's messages for bad addresses; other faults are traps and asserts of the kernel itself.
_ADDRESS_FAULTS = ("illegal memory access", "misaligned address", "address space", "invalid address space")
UNTOUCHED = "The notebook's tensors are unchanged."
_PARTLY = "It ran on the notebook's own memory, which it may have changed: there was no room for copies."


def subject_of(launch: BoundLaunch) -> str:
    """Return a launch's name in messages: kernel, constants, options and grid."""
    options = launch.compiled.options
    config = ", ".join(f"{name}={options[name]}" for name in INTEGER_OPTIONS if options.get(name) is not None)
    parameters = launch.compiled.parameters
    constants = ", ".join(f"{p.name}={p.specialization}" for p in parameters if p.type == "constexpr")
    return f"{launch.compiled.kernel} ({', '.join(filter(None, (constants, config)))}; grid {launch.grid})"


def trial_error(
    launch: BoundLaunch, look_closer: LookCloser, exported: IpcExport, outcome: TrialOutcome
) -> KernellabError:
    """Return the error of a failed trial."""
    if outcome.ending is Ending.FAULT:
        return _fault(launch, look_closer, exported, outcome)
    if outcome.ending is Ending.DAMAGE:
        return _damage(launch, exported, outcome)
    why = first_line(outcome.message)
    if any(extent > limit for extent, limit in zip(launch.grid, MAX_GRID, strict=True)):
        why = f"a grid has at most {' x '.join(map(str, MAX_GRID))} programs"
    text = f"{subject_of(launch)} was refused: {why}."
    return LaunchError(text, kernel=launch.compiled.kernel, detail=outcome.message)


def _fault(launch: BoundLaunch, look_closer: LookCloser, exported: IpcExport, outcome: TrialOutcome) -> KernellabError:
    """Return the error of a device fault, at the access found at fault, else at the likely one."""
    state = _PARTLY if outcome.placing is Placing.ORIGINALS else UNTOUCHED
    text = f"{subject_of(launch)} failed on the GPU: {first_line(outcome.message)}."
    if not any(words in outcome.message for words in _ADDRESS_FAULTS):
        said = next((f" {line.strip()}" for line in outcome.output.splitlines() if "ssertion" in line), "")
        return RunError(f"{text}{said} {state}", detail=outcome.message, kernel=launch.compiled.kernel)
    error = look_closer()
    if error is not None:
        message = f"{text} {error.message.rstrip('.')}. {state}"
        return type(error)(message, place=error.place, detail=outcome.message, kernel=launch.compiled.kernel)
    sites, null = launch.compiled.effects.sites, exported.without_memory()
    suspects = [site for site in sites if site.argument in null] or sites
    guess = f" Most likely it is an access to {likely_site(suspects).argument}." if suspects else ""
    return RunError(
        f"{text}{guess} {state}", place=likely_place(suspects), detail=outcome.message, kernel=launch.compiled.kernel
    )


def _damage(launch: BoundLaunch, exported: IpcExport, outcome: TrialOutcome) -> OutOfBounds:
    mutated = launch.compiled.effects.mutated | exported.behind.mutated
    argument, what = damage_text(outcome.damages[0], exported.names, mutated)
    writes = [site for site in launch.compiled.effects.sites if site.kind is not Access.READ]
    place = likely_place([site for site in writes if site.goes_to(argument)] or writes)
    text = f"{subject_of(launch)} wrote out of bounds: {what}. {UNTOUCHED}"
    return OutOfBounds(text, place=place, kernel=launch.compiled.kernel)
