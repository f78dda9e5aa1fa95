"""Counts the memory accesses of executed programs, and computes loaded values where addresses depend on them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np

from kernellab.explain.traffic.arithmetic import Array
from kernellab.explain.traffic.counting import (
    MAPPED_PROGRAMS,
    WARP,
    Count,
    Coverage,
    atomic_count,
    global_count,
)
from kernellab.explain.traffic.execution import AccessOperation, Execution, access_bytes, execute
from kernellab.explain.traffic.loops import BlockRuns, active_warps
from kernellab.explain.traffic.machine import Machine, UnknownOperand, UnknownValue
from kernellab.explain.traffic.memory import TAG_SHIFT, LaunchMemory, SharedMemory
from kernellab.explain.traffic.parameters import REPLACED_WORDS, TENSOR_MAP_BYTES, PtxLaunch, TensorMaps
from kernellab.explain.traffic.relevance import Relevance, destination_of, is_shared
from kernellab.ir.ptx import Address, Immediate, PtxInstruction
from kernellab.target import SECTOR_BYTES

_WORD_BYTES = 4
_LEFT_OUT = UnknownValue("what the kernel stored")

MemorySpace = Literal["global", "shared"]


@dataclass(frozen=True, slots=True)
class WarpExample:
    """One request of a warp: the byte offset of each thread from the start of the argument, None of inactive ones.

    The argument starts ``begin_bytes`` after the start of a sector.
    """

    offsets: tuple[int | None, ...]
    size_bytes: int
    sectors: int
    ideal_sectors: int
    begin_bytes: int = 0


@dataclass(slots=True)
class CountedAccess:
    """The accesses of one instruction, the one at ``position``, in one memory space.

    ``tags`` are the arguments, by the top bits of addresses.
    """

    instruction: PtxInstruction
    operation: AccessOperation
    space: MemorySpace
    size_bytes: int
    position: int
    count: Count = field(default_factory=Count)
    tags: set[int] = field(default_factory=set)
    example: WarpExample | None = None


@dataclass(slots=True)
class Trace:
    """The accesses of a launch, by the position of their instruction and their space, as its programs are run.

    ``combined_atomics`` are the positions of atomics that a warp combines into one. ``programs`` counts those that were
    run. ``coverage`` is by argument; it is empty unless all programs are run. ``unknown`` has pairs of line and reason.
    ``runs`` counts how often blocks were run, ``all_runs`` how often they would be if loops had not been cut short, and
    with ``counts_all_runs``, by all programs. With ``may_miss_longest``, a program that was not run may be longer than
    all that were.
    ``reached_warps`` counts, by the position of an access, the warps that came to it, also those with all lanes masked.
    """

    launch: PtxLaunch
    relevance: Relevance
    shared_bytes: int
    combined_atomics: frozenset[int] = frozenset()
    tracks_coverage: bool = True
    programs: int = 0
    by_instruction: dict[tuple[int, str], CountedAccess] = field(default_factory=dict)
    coverage: dict[str, Coverage] = field(default_factory=dict)
    unknown: dict[tuple[int | None, str], None] = field(default_factory=dict)
    maps: TensorMaps = field(init=False)
    shared: SharedMemory | None = None
    runs: BlockRuns = field(init=False)
    all_runs: BlockRuns | None = None
    counts_all_runs: bool = False
    may_miss_longest: bool = False
    reached_warps: dict[int, int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.runs = BlockRuns(self.launch.kernel)
        self.maps = TensorMaps(self.launch.maps)

    @property
    def memory(self) -> LaunchMemory:
        """The memory of the launch."""
        return self.launch.memory

    @property
    def accesses(self) -> tuple[CountedAccess, ...]:
        """The counted accesses in the order of the text."""
        return tuple(self.by_instruction[key] for key in sorted(self.by_instruction))

    @property
    def executed_positions(self) -> frozenset[int]:
        """The positions of instructions that accessed memory."""
        return frozenset(number for number, _ in self.by_instruction)

    @property
    def total(self) -> int:
        """How many programs the grid has."""
        return math.prod(self.launch.grid)

    @property
    def is_complete(self) -> bool:
        """Whether all programs were run to their end."""
        return self.programs == self.total and self.all_runs is None

    def rounds_of(self, block: int) -> float:
        """Return the number of runs of a block per counted run."""
        counted = float(self.runs.warps[block])
        return 1.0 if self.all_runs is None or not counted else float(self.all_runs.warps[block]) / counted

    @property
    def scale(self) -> float:
        """The runs of the whole grid per run of the programs that ``rounds_of`` knows."""
        return 1.0 if self.counts_all_runs or not self.programs else self.total / self.programs

    def start_batch(self, programs: int) -> None:
        """Start the next programs, with empty shared memory and no tensor maps of their own."""
        self.shared = SharedMemory(programs, self.shared_bytes) if self.relevance.follows_shared else None
        self.maps = TensorMaps(self.launch.maps)

    def access(self, machine: Machine, number: int, instruction: PtxInstruction, mask: Array | None) -> None:
        """Count one executed instruction, and update the registers and memory that later addresses depend on."""
        if number in self.relevance.dead:
            return
        try:
            active = machine.active_threads(instruction, mask)
            if active is None or active.any():
                self._count(Execution(machine, number, instruction, active))
            self.reached_warps[number] = self.reached_warps.get(number, 0) + int(
                active_warps(mask, machine.shape).sum()
            )
        except UnknownOperand as unknown:
            self.unknown[instruction.location.line, f"it depends on {unknown}"] = None
            machine.put_unknown(destination_of(instruction), str(unknown))

    def _count(self, execution: Execution) -> None:
        instruction = execution.instruction
        if instruction.name == "call":
            self.unknown[instruction.location.line, "what a function does that is called there is not counted"] = None
        elif instruction.name == "tensormap":
            self.maps.execute(execution.machine, instruction)
            self._count_map_update(execution)
        elif "tensor" in instruction.parts or "bulk" in instruction.parts:
            self._count_boxes(execution)
        elif instruction.name == "cp":
            self._count_async_copy(execution)
        elif "local" in instruction.parts and not is_shared(instruction):
            if instruction.name != "st":
                raise UnknownOperand("the local memory of a thread")
        else:
            addresses = execution.address(next(o for o in instruction.operands if isinstance(o, Address)))
            access = self._access_shared if is_shared(instruction) else self._access_global
            access(execution, addresses)

    # global memory

    def _access_global(self, execution: Execution, addresses: Array) -> None:
        self._count_global(execution, addresses, access_bytes(execution.instruction))
        if execution.operation != "load" and not self.relevance.follows_global:
            return
        if execution.operation != "load" and not (self.relevance.follows_stores or execution.is_needed):
            size = access_bytes(execution.instruction)
            self.memory.store(np.broadcast_to(addresses, execution.lanes.shape), execution.lanes, _LEFT_OUT, size)
        else:
            execute(execution, self.memory, addresses)

    def _count_global(self, execution: Execution, addresses: Array, size: int) -> None:
        entry = self._entry(execution, execution.operation, "global", size)
        spread, lanes, times = execution.rows(addresses)
        takes_turns = execution.operation == "atomic" and execution.number not in self.combined_atomics
        counted = atomic_count if takes_turns else global_count
        count = counted(spread, lanes, size)
        entry.count.add(count, times)
        tags = ((spread if lanes is None else spread[lanes]) >> np.uint64(TAG_SHIFT)).astype(np.int64)
        lowest, highest = int(tags.min()), int(tags.max())
        argument_tags = [lowest] if lowest == highest else np.unique(tags).tolist()
        entry.tags.update(argument_tags)
        if entry.example is None:
            entry.example = self._example_request(spread, lanes, size, argument_tags[0])
        if not self.tracks_coverage:
            return
        machine = execution.machine
        shape = (machine.shape[0], execution.common_shape(addresses)[1])
        active = execution.lanes_in(shape)
        touched, programs = (np.broadcast_to(a, shape)[active] for a in (addresses, machine.programs[:, None]))
        for tag in argument_tags:
            if len(argument_tags) > 1:
                own = (spread >> np.uint64(TAG_SHIFT)).astype(np.int64) == tag
                count = global_count(spread, own if lanes is None else lanes & own, size)
            strays = self._cover(tag, touched, programs, size, execution.operation, times * count.bytes_used)
            if len(argument_tags) == 1:
                self.memory.strays += strays

    def _cover(
        self, tag: int, addresses: Array, programs: Array, size: int, operation: AccessOperation, bytes_used: int
    ) -> int:
        """Mark the touched elements of an argument, in its order; return the number of addresses outside it.

        ``bytes_used`` are those that requests ask for, each once per request.
        """
        number = self.memory.number_of(tag)
        if number is None:
            return 0
        buffer = self.memory.buffers[number]
        places, inside = self.memory.places_in(number, addresses, size)
        strays = int(places.size - inside.sum())
        if strays:
            places, programs = places[inside], programs[inside]
        covered = self.coverage.setdefault(buffer.name, Coverage.of(buffer))
        covered.record(places, size, reads=operation != "store", writes=operation != "load")
        early = programs < MAPPED_PROGRAMS
        if early.any():
            covered.mark_map(programs[early], places[early], size, operation != "load")
        covered.read_bytes += bytes_used * (operation != "store")
        covered.written_bytes += bytes_used * (operation != "load")
        return strays

    def _example_request(self, addresses: Array, lanes: Array | None, size: int, tag: int) -> WarpExample | None:
        """Return the request of the first program that moves the most sectors."""
        number = self.memory.number_of(tag)
        if number is None:
            return None
        worst: WarpExample | None = None
        for first in range(0, addresses.shape[1], WARP):
            warp = addresses[:1, first : first + WARP]
            alive = None if lanes is None else lanes[:1, first : first + WARP]
            count = global_count(warp, alive, size)
            if count.requests and (worst is None or count.sectors > worst.sectors):
                start = self.memory.start(number)
                offsets = (int(address) - start for address in warp[0])
                active = [True] * WARP if alive is None else alive[0].tolist()
                shown = [offset if is_on else None for offset, is_on in zip(offsets, active, strict=False)]
                worst = WarpExample(tuple(shown), size, count.sectors, count.ideal_sectors, start % SECTOR_BYTES)
        return worst

    # shared memory

    def _access_shared(self, execution: Execution, addresses: Array) -> None:
        instruction, size = execution.instruction, access_bytes(execution.instruction)
        counted = execution
        if instruction.name in {"ldmatrix", "stmatrix"}:
            matrices = int(next(part for part in instruction.parts if part in {"x1", "x2", "x4"})[1:])
            leading = np.arange(execution.machine.shape[1])[None, :] % WARP < 8 * matrices
            active = leading if execution.active is None else leading & execution.active
            counted = replace(execution, active=active)
        count = counted.shared_count(addresses, size, stores=execution.operation == "store")
        self._entry(execution, execution.operation, "shared", size).count.add(count)
        if self.shared is not None:
            execute(execution, self.shared, addresses)

    def _count_async_copy(self, execution: Execution) -> None:
        """Count a copy from global to shared memory; threads with an empty source only write zeros.

        It counts as one access to global memory, with the wavefronts of its writes to shared memory.
        """
        operands, active = execution.instruction.operands, execution.active
        target, source = (execution.address(operand) for operand in operands[:2])
        assert isinstance(operands[2], Immediate)
        size, loading = operands[2].bits, active
        for left in execution.machine.values(operands[3:4]):
            loading = left != 0 if active is None else (left != 0) & active
        if loading is None or loading.any():
            self._count_global(replace(execution, active=loading), source, size)
        written = execution.shared_count(target, size, stores=True)
        count = Count(wavefronts=written.wavefronts, ideal_wavefronts=written.ideal_wavefronts)
        self._entry(execution, "load", "global", size).count.add(count)
        if self.shared is not None:
            unknown = UnknownValue("what was copied to shared memory asynchronously")
            self.shared.store(np.broadcast_to(target, execution.lanes.shape), execution.lanes, unknown, size)

    # tensor maps

    def _count_boxes(self, execution: Execution) -> None:
        machine, instruction = execution.machine, execution.instruction
        boxes = self.maps.boxes(machine, instruction, execution.active)
        into_shared = isinstance(instruction.operands[0], Address) and not instruction.operands[0].coordinates
        operation: AccessOperation = "load" if into_shared else "atomic" if "reduce" in instruction.parts else "store"
        entry = self._entry(execution, operation, "global", boxes.row_bytes)
        entry.count.add(boxes.count)
        entry.tags.update(boxes.tags)
        if self.tracks_coverage:
            for tag in boxes.tags:
                programs, used = machine.programs[boxes.programs], boxes.count.bytes_used
                self._cover(tag, boxes.units, programs, boxes.unit_bytes, operation, used)
        if operation != "load" and self.relevance.follows_global:
            self.memory.store(boxes.units, np.ones(boxes.units.shape, bool), _LEFT_OUT, boxes.unit_bytes)
        if operation == "load" and self.shared is not None:
            self.shared.mark_all_unknown("what a tensor map brought to shared memory")

    def _count_map_update(self, execution: Execution) -> None:
        """Count the shared memory accesses of ``tensormap.replace``; most fields are part of a word."""
        lanes, parts = execution.lanes, execution.instruction.parts
        warps = int(lanes.reshape(len(lanes), -1, WARP).any(axis=2).sum()) if lanes.shape[1] >= WARP else len(lanes)
        loads, stores = REPLACED_WORDS.get(parts[3], (1, 1))
        if parts[1] == "cp_fenceproxy":
            loads, stores = 1, 0
            copied = Count(warps, warps * TENSOR_MAP_BYTES // SECTOR_BYTES, warps * TENSOR_MAP_BYTES // SECTOR_BYTES)
            copied.bytes_used = warps * TENSOR_MAP_BYTES
            self._entry(execution, "atomic", "global", _WORD_BYTES).count.add(copied)
        word_counts: tuple[tuple[AccessOperation, int], ...] = (("load", loads), ("store", stores))
        for operation, words in word_counts:
            count = Count(words * warps, wavefronts=words * warps, ideal_wavefronts=words * warps)
            self._entry(execution, operation, "shared", _WORD_BYTES, key=operation).count.add(count)

    def _entry(
        self, execution: Execution, operation: AccessOperation, space: MemorySpace, size: int, key: str = ""
    ) -> CountedAccess:
        place = (execution.number, space + key)
        if place not in self.by_instruction:
            self.by_instruction[place] = CountedAccess(execution.instruction, operation, space, size, execution.number)
        return self.by_instruction[place]
