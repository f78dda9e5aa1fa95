"""Facts from the compiled kernel alone: the work of each source line, and how often it runs."""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab.compile.types import Compiled
from kernellab.explain.alignment import width_limits
from kernellab.explain.code_lines import LOOPS, Code, Line, line_of, loop_of
from kernellab.explain.facts import (
    WARP_THREADS,
    AccessFacts,
    AccessKind,
    AtomicFacts,
    DotFacts,
    LineFacts,
    ReductionFacts,
)
from kernellab.ir.arithmetic import dot_work
from kernellab.ir.effects import access_bytes
from kernellab.ir.graph import Graph, Operation, reachable
from kernellab.ir.instructions import InstructionKind, LineProfile
from kernellab.ir.operations import Access
from kernellab.ir.programs import CannotFollow, Grid3, Programs, Weight, axis_of, integers, scalars_of
from kernellab.target import SECTOR_BYTES

_KINDS: Mapping[Access, AccessKind] = {Access.READ: "load", Access.WRITE: "store", Access.ATOMIC: "atomic"}
_DIVISIONS = frozenset({"arith.divsi", "arith.remsi", "arith.divui", "arith.remui"})
_PRECISE = frozenset({"tt.precise_sqrt", "tt.precise_divf"})
_REORDERINGS = frozenset({"tt.trans", "tt.reshape", "ttg.convert_layout"})
_COPIES = frozenset({"tt.splat", "tt.broadcast"})
_CONVERSIONS = frozenset({"arith.extf", "tt.fp_to_fp", "arith.extsi", "arith.sitofp"})
_STAGES_OF_LOOP = re.compile(r"tt\.num_stages = (\d+)")
_UNKNOWN_TRIPS = 8.0  # of a loop with an unknown trip count
_WHOLE_KERNEL = -1  # instead of an operation, where a kernel cannot be followed


@dataclass(slots=True)
class Runs:
    """How often each operation runs, in all programs together; unknown trip counts are guesses."""

    graph: Graph
    programs: int
    counts: dict[int, float] = field(default_factory=dict)
    guess_reasons: dict[int, str] = field(default_factory=dict)

    def of(self, operation: Operation) -> float:
        """Return the runs of an operation in all programs together."""
        if operation.index in self.counts:
            return self.counts[operation.index]
        depth = sum(1 for owner in self.graph.owners(operation.block) if owner.name in LOOPS)
        return self.programs * _UNKNOWN_TRIPS**depth

    def trips(self, operation: Operation) -> float:
        """Return the average runs of an operation per program."""
        return self.of(operation) / self.programs

    def knows(self, operation: Operation) -> bool:
        """Whether the runs of an operation are counted; else its loops are assumed to run 8 times."""
        return operation.index in self.counts


def runs_of(graph: Graph, arguments: Mapping[str, Any], grid: Grid3) -> Runs:
    """Return the runs of the operations of a launch; ``arguments`` are its own by name."""
    runs = _count_runs(graph, arguments, grid, by_rounds=False)
    if runs.guess_reasons and _WHOLE_KERNEL not in runs.guess_reasons:
        again = _count_runs(graph, arguments, grid, by_rounds=True)
        again.counts = {**runs.counts, **again.counts}
        again.guess_reasons = {index: why for index, why in again.guess_reasons.items() if index not in again.counts}
        return again
    return runs


def _count_runs(graph: Graph, arguments: Mapping[str, Any], grid: Grid3, *, by_rounds: bool) -> Runs:
    runs = Runs(graph, max(1, math.prod(grid)))

    def visit(operation: Operation, weight: Weight) -> None:
        if isinstance(weight, str):
            runs.guess_reasons[operation.index] = weight
        else:
            runs.counts[operation.index] = runs.counts.get(operation.index, 0.0) + programs.runs(weight)

    programs = Programs(graph, grid, by_rounds, visit)
    try:
        programs.call(graph.kernel, scalars_of(graph, arguments), integers(1))
    except CannotFollow as exc:
        runs.guess_reasons[_WHOLE_KERNEL] = str(exc)
    for index in runs.guess_reasons:  # some of their runs may have been counted, such as the first rounds of a loop
        runs.counts.pop(index, None)
    return runs


def accesses_of(compiled: Compiled, runs: Runs, code: Code, arguments: Mapping[str, Any]) -> tuple[AccessFacts, ...]:
    """Return the accesses to global memory by line and argument, with the least possible sectors."""
    graph, accesses = compiled.graph, dict[tuple[Line, AccessKind, str], AccessFacts]()
    for site in compiled.effects.sites:
        operation = graph.operations[site.index]
        if not access_bytes(graph, operation):
            continue
        key = (line_of(graph, operation), _KINDS[site.kind], site.argument)
        access = _access_facts(compiled, operation, key, runs, code)
        if access.is_narrow:
            limits = width_limits(compiled, operation, access.possible_bytes // access.element_bytes, arguments)
            access = replace(access, limits=limits)
        accesses[key] = _sum_of_accesses(accesses.get(key), access)
    return tuple(accesses.values())


def _access_facts(
    compiled: Compiled, operation: Operation, key: tuple[Line, AccessKind, str], runs: Runs, code: Code
) -> AccessFacts:
    graph, threads, (line, kind, argument) = compiled.graph, compiled.resources.threads, key
    size, count = access_bytes(graph, operation), runs.of(operation)
    width, is_async = _narrowest_width(code.ptx.get(line), kind)
    sectors = max(size * count / SECTOR_BYTES, count)
    moved = operation.results[0] if operation.results else operation.operands[1]
    element = max(1, size // max(1, math.prod(graph.values[moved].shape)))
    return AccessFacts(
        line=line,
        operation=kind,
        argument=argument,
        bytes=size * count,
        sectors=sectors,
        ideal_sectors=sectors,
        requests=count * max(1.0, size / (WARP_THREADS * max(width, element))),
        width_bytes=width or element,
        owned_bytes=size // threads,
        trips=runs.trips(operation),
        knows_trips=runs.knows(operation),
        is_async=is_async,
        is_replicated=1 < size // element < threads,
        element_bytes=element,
        tile_bytes=float(size),
        in_loop=loop_of(graph, operation) is not None,
        axes=_grid_axes(graph, operation.operands[0]),
    )


def _grid_axes(graph: Graph, pointer: int) -> frozenset[int]:
    """Return the grid axes that an address depends on; loop-carried values are not followed."""
    values = reachable([pointer], lambda value: maker.operands if (maker := graph.maker(value)) is not None else ())
    makers = (maker for value in values if (maker := graph.maker(value)) is not None)
    return frozenset(axis_of(maker) for maker in makers if maker.name == "tt.get_program_id")


def _sum_of_accesses(before: AccessFacts | None, access: AccessFacts) -> AccessFacts:
    """Return the sum of two accesses of one line, kind and argument."""
    if before is None:
        return access
    sums = ("bytes", "sectors", "ideal_sectors", "requests", "tile_bytes")
    return replace(
        before,
        **{name: getattr(before, name) + getattr(access, name) for name in sums},
        trips=max(before.trips, access.trips),
        knows_trips=before.knows_trips and access.knows_trips,
        in_loop=before.in_loop or access.in_loop,
    )


def _narrowest_width(profile: LineProfile | None, kind: AccessKind) -> tuple[int, bool]:
    """Return the bytes per thread of a line's narrowest instruction, and whether it is asynchronous."""
    if profile is None or kind == "atomic":
        return 0, False
    if profile.count(InstructionKind.BULK_COPY):
        return 32, True
    if kind == "load" and profile.count(InstructionKind.ASYNC_COPY):
        return min(instruction.bytes for instruction, _ in profile.of(InstructionKind.ASYNC_COPY)), True
    wanted = InstructionKind.LOAD if kind == "load" else InstructionKind.STORE
    return min((instruction.bytes for instruction, _ in profile.of(wanted)), default=0), False


def dots_of(compiled: Compiled, runs: Runs, code: Code) -> tuple[DotFacts, ...]:
    """Return the matrix products of a kernel, each with its tile and how it is computed."""
    graph, dots = compiled.graph, []
    has_tensor = any(profile.count(InstructionKind.TENSOR) for profile in code.ptx.values())
    for operation in graph.operations:
        dot = dot_work(graph, operation)
        if dot is None:
            continue
        line = line_of(graph, operation)
        left, result = graph.values[operation.operands[0]], graph.values[operation.results[0]]
        profile = code.ptx.get(line)
        own = profile is not None and bool(profile.count(InstructionKind.TENSOR))
        dots.append(
            DotFacts(
                line=line,
                kind=dot.kind,
                flops=dot.flops * runs.of(operation),
                unit=_tensor_unit(code, line),
                on_tensor_cores=own or (has_tensor and dot.kind not in {"fp32", "fp64"}) or not code.ptx,
                tile=(result.shape[-2], result.shape[-1], left.shape[-1]),
                was_narrower=_narrower_kind(graph, operation),
                in_loop=loop_of(graph, operation) is not None,
            )
        )
    return tuple(dots)


def _tensor_unit(code: Code, line: Line) -> str:
    """Return ``wgmma``, ``mma``, ...: the tensor instructions of a line, else of the kernel; "" without any."""
    profiles = [code.ptx[line]] if line in code.ptx else []
    for profile in (*profiles, *code.ptx.values()):
        for instruction, _ in profile.of(InstructionKind.TENSOR):
            return instruction.unit
    return ""


def _defining_operation(graph: Graph, value: int, through: frozenset[str]) -> Operation | None:
    """Return the operation that defines a value, through operations with the names ``through``; None of an argument."""
    maker = graph.maker(value)
    while maker is not None and maker.name in through:
        maker = graph.maker(maker.operands[0])
    return maker


def _narrower_kind(graph: Graph, operation: Operation) -> str:
    """Return the element type that both operands of a dot were widened from, or ""."""
    kinds = []
    for operand in operation.operands[:2]:
        maker = _defining_operation(graph, operand, _REORDERINGS)
        if maker is None or maker.name not in _CONVERSIONS:
            return ""
        kinds.append(graph.values[maker.operands[0]].element)
    names = {"f16": "fp16", "bf16": "bf16", "i8": "int8"}
    return names.get(kinds[0], "fp8" if kinds[0].startswith("f8") else "") if kinds[0] == kinds[1] else ""


def lines_of(compiled: Compiled, runs: Runs, code: Code, warps: int) -> tuple[LineFacts, ...]:
    """Return the machine instructions of each line, counted by warp over the launch."""
    graph, line_facts = compiled.graph, []
    trips: dict[Line, float] = {}
    words: dict[Line, set[str]] = {}
    looped, guessed = set[Line](), set[Line]()
    for operation in graph.operations:
        line = line_of(graph, operation)
        if loop_of(graph, operation) is not None:
            looped.add(line)
            if not runs.knows(operation):
                guessed.add(line)
        if operation.results and operation.name not in LOOPS and operation.name != "arith.constant":
            trips[line] = max(trips.get(line, 0.0), runs.trips(operation))
        words.setdefault(line, set()).update(_expensive_words(graph, operation))
    copies = _body_copies([line for line in looped if not words.get(line)], code)
    for line, counts in code.machine.items():
        rounds = trips.get(line, 1.0)
        own_copies = copies if line in looped else 1.0
        own_runs = 1.0 if math.isinf(own_copies) else rounds / own_copies
        warp_runs = own_runs * runs.programs * warps
        slow: Counter[str] = Counter()
        for mnemonic, count in counts.items():
            if kind := _SLOW_KINDS.get(mnemonic.split(".", maxsplit=1)[0]):
                slow[kind] += count
        wait = code.waits[line]
        once = LineFacts(
            line=line,
            instructions=counts.total(),
            cycles=wait.cycles,
            spill_cycles=wait.spill_cycles,
            load_waits=wait.loads,
            atomic_waits=wait.atomics,
            spilled_bytes=code.spill_bytes.get(line, 0) * WARP_THREADS,
            slow=slow,
            words=frozenset(words.get(line, ())),
            trips=rounds,
            knows_trips=line not in guessed,
            in_loop=line in looped,
            copies=1.0 if math.isinf(own_copies) else own_copies,
        )
        line_facts.append(once.scaled_by(warp_runs))
    return tuple(line_facts)


_SLOW_KINDS = {
    **dict.fromkeys(("DADD", "DMUL", "DFMA", "DSETP", "DMNMX"), "fp64"),
    "MUFU": "special",
    **dict.fromkeys(("LDL", "STL"), "spill"),
    **dict.fromkeys(("BAR", "WARPSYNC", "SYNCS"), "barrier"),
    "SHFL": "shuffle",
    **dict.fromkeys(("F2F", "F2I", "I2F", "F2FP", "I2FP"), "conversion"),
}


def _body_copies(looped: Sequence[Line], code: Code) -> float:
    """Return the number of copies of a loop body in the machine code: ptxas and LLVM unroll some loops.

    A loop without a backward branch is unrolled completely. Else PTX has one copy of the body, and the ratio of machine
    instructions to PTX on the plain lines of loops is the number of copies.
    """
    if not code.loops:
        return math.inf
    ptx = sum(code.ptx[line].instructions for line in looped if line in code.ptx)
    machine = sum(code.machine[line].total() for line in looped if line in code.machine)
    ratio = machine / ptx if ptx else 1.0
    return float(round(ratio)) if ratio > 1.6 else 1.0


def _expensive_words(graph: Graph, operation: Operation) -> Iterator[str]:
    """Yield the expensive kinds of an operation on a tile."""
    if not operation.results:
        return
    result = graph.values[operation.results[0]]
    if not result.shape:
        return
    if result.element == "f64" and operation.name.startswith(("arith.", "math.", "tt.extern", "tt.precise")):
        yield "fp64"
    if operation.name in _DIVISIONS:
        divisor = _defining_operation(graph, operation.operands[1], _COPIES)
        if divisor is None or divisor.name != "arith.constant":  # a constant needs no division
            yield "division64" if result.element == "i64" else "division"
    if operation.name == "tt.extern_elementwise":
        name = operation.attribute("symbol").strip('"').removeprefix("__nv_")
        yield "pow" if name.startswith("pow") else f"libdevice {name}"
    if operation.name in _PRECISE:
        yield "precise"
    if operation.name.startswith("math."):
        yield operation.name.removeprefix("math.")


def reductions_of(compiled: Compiled, runs: Runs, code: Code) -> tuple[ReductionFacts, ...]:
    """Return the reductions of a kernel over tiles."""
    graph = compiled.graph
    unrolls = code.loops < sum(operation.name in LOOPS for operation in graph.operations)
    return tuple(
        ReductionFacts(
            line=line_of(graph, operation),
            trips=runs.trips(operation),
            in_loop=loop_of(graph, operation) is not None,
            as_product=operation.name == "tt.reduce" and _is_product(graph, operation),
            flops=2.0 * math.prod(graph.values[operation.operands[0]].shape) * runs.of(operation),
            accumulates=operation.name == "tt.reduce" and _accumulates(graph, operation),
            knows_trips=runs.knows(operation),
            is_unrolled=unrolls and loop_of(graph, operation) is not None,
            load_lines=_load_lines(compiled, operation.block),
        )
        for operation in graph.operations
        if operation.name in {"tt.reduce", "tt.scan"}
    )


def _load_lines(compiled: Compiled, block: int) -> frozenset[Line]:
    """Return the lines whose loads are all in a block."""
    graph, inside, outside = compiled.graph, set[Line](), set[Line]()
    for site in compiled.effects.sites:
        if site.kind is Access.READ:
            operation = graph.operations[site.index]
            (inside if operation.block == block else outside).add(line_of(graph, operation))
    return frozenset(inside - outside)


def _is_product(graph: Graph, operation: Operation) -> bool:
    """Whether a reduction sums the products of two broadcast tiles of three dimensions."""
    source = graph.values[operation.operands[0]]
    maker = _defining_operation(graph, operation.operands[0], _CONVERSIONS)
    if len(source.shape) != 3 or maker is None or maker.name != "arith.mulf":
        return False
    factors = [_defining_operation(graph, operand, _CONVERSIONS) for operand in maker.operands]
    return all(factor is not None and factor.name == "tt.broadcast" for factor in factors)


def _accumulates(graph: Graph, operation: Operation) -> bool:
    """Whether a result's only use is to be added to a loop-carried value."""
    results = set(operation.results)
    users = [operation for operation in graph.operations if results & set(operation.operands)]
    if len(users) != 1 or users[0].name not in {"arith.addf", "arith.addi", "arith.maxnumf", "arith.maximumf"}:
        return False
    other = next((operand for operand in users[0].operands if operand not in results), None)
    return other is not None and graph.maker(other) is None


def atomics_of(compiled: Compiled, runs: Runs) -> tuple[AtomicFacts, ...]:
    """Return the atomics of a kernel; the number of their addresses is mostly unknown without traffic.

    All programs update one address where it is the bare argument for all lanes.
    """
    graph, atomics = compiled.graph, list[AtomicFacts]()
    for site in compiled.effects.sites:
        operation = graph.operations[site.index]
        if site.kind is Access.ATOMIC and operation.operands:
            address = operation.operands[0]
            updates = math.prod(graph.values[address].shape) * runs.of(operation)
            while (maker := graph.maker(address)) is not None and maker.name in _COPIES:
                address = maker.operands[0]
            addresses = 1.0 if address in graph.kernel.arguments else None
            loop = loop_of(graph, operation)
            waits = loop is not None and graph.operations[loop].name == "scf.while"
            is_lock = waits and operation.name == "tt.atomic_cas"
            if is_lock and loop is not None:
                updates = runs.of(graph.operations[loop])  # each time that the loop is entered, one succeeds
            knows = runs.knows(operation) and not _has_mask(graph, operation)
            line = line_of(graph, operation)
            atomics.append(AtomicFacts(line, site.argument, updates, addresses, is_lock, knows or is_lock))
    return tuple(atomics)


def _has_mask(graph: Graph, operation: Operation) -> bool:
    """Whether an atomic has a mask that is not the constant of all lanes."""
    masks = operation.operands[2:] if operation.name == "tt.atomic_rmw" else ()
    makers = (_defining_operation(graph, mask, _COPIES) for mask in masks)
    return any(maker is None or maker.name != "arith.constant" for maker in makers)


def loop_rounds(compiled: Compiled, runs: Runs, accesses: Iterable[AccessFacts], stages: int, code: Code) -> float:
    """Return the number of waits for loads in a program's loops that its machine code does not have.

    These are one per depth of a pipeline of asynchronous loads; without machine code, also one per iteration.
    """
    graph, rounds = compiled.graph, dict[int, float]()
    loads = [access for access in accesses if access.operation == "load"]
    for site in compiled.effects.sites:
        operation = graph.operations[site.index]
        loop, line = loop_of(graph, operation), line_of(graph, operation)
        is_async = any(load.is_async for load in loads if load.line == line)
        if loop is not None and site.kind is Access.READ and (is_async or not code.machine):
            together = max(1, stages - 1) if is_async else 1
            rounds[loop] = max(rounds.get(loop, 0.0), 1.0, runs.trips(operation) / together)
    return sum(rounds.values())


def loop_stages(compiled: Compiled) -> int:
    """Return the most stages that ``tl.range`` sets for a loop, 0 without any."""
    return max(map(int, _STAGES_OF_LOOP.findall(compiled.stages.get("ttir", ""))), default=0)
