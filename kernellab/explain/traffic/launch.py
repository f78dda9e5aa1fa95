"""From a compiled kernel and the arguments of a launch to its `Traffic`."""

from __future__ import annotations

from collections.abc import Sequence

from kernellab.compile.cache import Compiler
from kernellab.compile.types import Compiled, job_of
from kernellab.explain.traffic.accesses import AccessOperation, CountedAccess, MemorySpace
from kernellab.explain.traffic.counting import SECTOR_BYTES, Count
from kernellab.explain.traffic.coverage import Coverage
from kernellab.explain.traffic.memory import LaunchBuffer
from kernellab.explain.traffic.parameters import SCRATCH, RuntimeArgument, bound_arguments, flattened
from kernellab.explain.traffic.result import (
    ArgumentTraffic,
    Traffic,
    TrafficRow,
    UnknownTraffic,
)
from kernellab.explain.traffic.trace import Trace, traced
from kernellab.ir.graph import calls_of, place_of
from kernellab.ir.ptx import ptx_kernel
from kernellab.launch.calls import UserCall, checked_grid, require_launchable, variants_of
from kernellab.target import Target, limits_of, multiprocessors

_WAVEFRONT_BYTES = 128


def traffic_of(compiled: Compiled, grid: tuple[int, int, int], given: Sequence[RuntimeArgument]) -> Traffic:
    """Return the traffic of a launch; of a target without PTX, that it is unknown.

    Raises:
        UsageError: the arguments are not those that the kernel was compiled for.
    """
    if compiled.target.backend != "cuda":
        reason = f"the machine code of {compiled.target} is not followed, only that of cuda targets"
        return Traffic(compiled.kernel, str(compiled.target), grid, (), (), (UnknownTraffic(None, reason),), 0.0, 0)
    kernel = ptx_kernel(compiled.ptx)
    resources = compiled.resources
    wave = multiprocessors() * _resident_programs(compiled)
    bound = bound_arguments(kernel, given)
    trace = traced(kernel, grid, bound, shared_bytes=resources.shared_bytes, wave=wave)
    unknown = [UnknownTraffic(line, reason) for line, reason in trace.unknown]
    if resources.spill_bytes:
        reason = f"{resources.spill_bytes} bytes of registers per thread are spilled, and their traffic is not counted"
        unknown.append(UnknownTraffic(None, reason))
    return Traffic(
        kernel=compiled.kernel,
        target=str(compiled.target),
        grid=grid,
        rows=rows_of(trace),
        arguments=_arguments(trace, bound.memory.buffers),
        unknown=tuple(unknown),
        share=trace.programs / trace.total if trace.total else 1.0,
        wave_programs=wave,
        notes=_notes(trace),
    )


def _resident_programs(compiled: Compiled) -> int:
    """Return how many programs a multiprocessor holds at a time; 1 where the occupancy is not known."""
    limits, share = limits_of(compiled.target), compiled.resources.occupancy
    if limits is None or not share:
        return 1
    return max(1, round(share * limits.threads_per_multiprocessor / compiled.resources.threads))


def _notes(trace: Trace) -> tuple[str, ...]:
    notes = []
    if not trace.programs and trace.total:
        notes.append("no program was followed to its end, and counts are of what came before")
    elif trace.programs < trace.total:
        notes.append(f"{trace.programs:,} of {trace.total:,} programs were looked at, and counts are scaled")
    if trace.strays:
        notes.append(f"{trace.strays:,} elements that threads accessed lie outside all arguments")
    return tuple(notes)


_Key = tuple[int, str | None, AccessOperation, MemorySpace, str | None]


def rows_of(trace: Trace) -> tuple[TrafficRow, ...]:
    """Return a row per source line, operation, space and argument, in the order of lines."""
    groups: dict[_Key, list[CountedAccess]] = {}
    for access in trace.accesses:
        place = place_of(access.instruction.location)
        key = (place.line or 0, place.file, access.operation, access.space, _argument_of(access, trace))
        groups.setdefault(key, []).append(access)
    scale = trace.total / trace.programs if trace.programs else 1.0
    order = sorted(groups, key=lambda key: (key[1] or "", key[0], key[3], key[2], key[4] or ""))
    return tuple(_row(key, groups[key], scale) for key in order)


def _argument_of(access: CountedAccess, trace: Trace) -> str | None:
    names = sorted({trace.names.get(tag, "an unknown address") for tag in access.tags})
    return " or ".join(names) or None


def _row(key: _Key, accesses: Sequence[CountedAccess], scale: float) -> TrafficRow:
    line, file, operation, space, argument = key
    count = Count()
    for each in accesses:
        count.add(each.count)
    is_shared = space == "shared"
    moved = count.wavefronts * _WAVEFRONT_BYTES if is_shared else count.sectors * SECTOR_BYTES
    useful = (count.ideal_wavefronts, count.wavefronts) if is_shared else (count.bytes_used, moved)
    examples = [each.example for each in accesses if each.example is not None]
    location = accesses[0].instruction.location
    return TrafficRow(
        line=line or None,
        file=file,
        operation=operation,
        space=space,
        argument=argument,
        requests=round(count.requests * scale),
        sectors=round(count.sectors * scale),
        ideal_sectors=round(count.ideal_sectors * scale),
        wavefronts=round(count.wavefronts * scale),
        conflicts=round((count.wavefronts - count.ideal_wavefronts) * scale),
        bytes=round(moved * scale),
        bytes_used=round(count.bytes_used * scale),
        efficiency=useful[0] / useful[1] if useful[1] else None,
        lanes_off=count.lanes_off / max(1, count.lanes + count.lanes_off),
        instruction=", ".join(dict.fromkeys(each.instruction.opcode for each in accesses)),
        calls=tuple((each.file, each.line) for each in calls_of(place_of(location))),
        example=max(examples, key=lambda each: each.sectors, default=None),
    )


def _arguments(trace: Trace, buffers: Sequence[LaunchBuffer]) -> tuple[ArgumentTraffic, ...]:
    """Return what a launch does to each argument; nothing where not all programs were run."""
    if not trace.is_complete:
        return ()
    shown = [buffer for buffer in buffers if not buffer.name.startswith(SCRATCH) and buffer.storage_bytes]
    return tuple(_argument(each.name, trace.coverage.get(each.name, Coverage.of(each))) for each in shown)


def _argument(name: str, coverage: Coverage) -> ArgumentTraffic:
    is_read, is_written = coverage.read_bytes > 0, coverage.written_bytes > 0
    elements, never_read = coverage.untouched(writes=False)
    read = elements - never_read
    return ArgumentTraffic(
        argument=name,
        elements=elements,
        is_read=is_read,
        is_written=is_written,
        never_read=None if is_written and not is_read else never_read,
        never_written=coverage.untouched(writes=True)[1] if is_written else None,
        read_bytes=coverage.read_bytes,
        written_bytes=coverage.written_bytes,
        reads_per_element=coverage.read_bytes / (read * coverage.buffer.itemsize) if read else None,
        footprint_bytes=coverage.footprint_bytes,
        wave_bytes=sum(coverage.wave_sectors) * SECTOR_BYTES,
        waves=len(coverage.wave_sectors),
        programs=coverage.map,
    )


def launch_traffic(compiler: Compiler, call: UserCall, target: Target) -> Traffic:
    """Compile a kernel for a launch and return its traffic; of an autotuned kernel, that of the first config.

    Raises:
        LaunchError, UsageError: the arguments, options or grid do not fit the kernel.
        CompileError: the compiler refused it.
    """
    from kernellab._triton.specialize import specialize  # keeps `import kernellab` light

    grid, args = call.grid, call.args
    variant = next(variants_of(call.kernel, args, call.meta))
    special = specialize(variant.function, target, args, variant.meta)
    attributes, options = special.attributes, special.options
    job = job_of(variant.function, target, special.signature, special.constants, attributes, options)
    extents = checked_grid(grid(special.bound) if callable(grid) else grid, job.closure.name)
    require_launchable(extents, job.closure.name, target)
    given = [
        each
        for name, kind in special.signature.items()
        if kind != "constexpr"
        for each in flattened(name, kind, special.bound[name])
    ]
    return traffic_of(compiler.compile(job), extents, given)
