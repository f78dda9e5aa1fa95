"""The dataflow analysis: what every value of a kernel can be, and so what every access touches.

It is an abstract interpretation over `kernellab.ir.provenance`: a function is run on the alternatives of its
arguments, each loop until nothing changes, each callee on what this call hands it. Calls with the same
alternatives share one summary.

Control flow is followed between the blocks of a region, between functions, and through the operations that run the
block of a region: see https://mlir.llvm.org/docs/Dialects/SCFDialect/ for loops and branches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from graphlib import CycleError, TopologicalSorter
from types import MappingProxyType

from kernellab.errors import EffectsError, Place
from kernellab.ir.constants import Constants
from kernellab.ir.graph import FOR_BOUNDS, Function, Graph, Operation, reachable
from kernellab.ir.operations import FOREIGN_CODE, MEMORY, SILENT, TERMINATORS, Access, Flow, flow_of, foreign_accesses
from kernellab.ir.provenance import (
    NUMBER,
    UNDEFINED,
    Alternative,
    Alternatives,
    OpaqueAddress,
    Rules,
    address_of,
    arguments_of,
    opaque_result,
    union,
)


def certain_blocks(graph: Graph, region: int) -> frozenset[int]:
    """Return the blocks of a region that run whenever it is entered and left: that stand on every way through it."""
    blocks = graph.regions[region].blocks

    def reach(avoid: int | None = None) -> set[int]:
        seen = set() if avoid is None else {avoid}
        return set(reachable(blocks[:1], lambda block: graph.blocks[block].successors, seen))

    reached = reach()
    exits = {block for block in reached if not graph.blocks[block].successors}
    return frozenset(block for block in reached if not exits & reach(block))


def refuse_recursion(graph: Graph) -> None:
    """Raise for a module in which a function calls itself, directly or through others.

    Raises:
        EffectsError: names the functions of the cycle and the line of a call.
    """
    calls = _calls(graph)
    try:
        TopologicalSorter(calls).prepare()
    except CycleError as exc:
        path: list[str] = exc.args[1][::-1]  # each calls the next, and the last is the first again
        location = calls[path[-2]][path[-1]].location
        place = Place(location.file, location.line) if location.file and location.line else None
        kernel, words = graph.kernel.name, " -> ".join(path)
        message = f"Kernel {kernel!r} calls itself: {words}. Effects need kernels without recursion."
        raise EffectsError(message, place=place, kernel=kernel) from exc


def _calls(graph: Graph) -> dict[str, dict[str, Operation]]:
    """Return for each function a call of each function that it calls."""
    names = {function.region: function.name for function in graph.functions}
    calls: dict[str, dict[str, Operation]] = {function.name: {} for function in graph.functions}
    for operation in graph.operations:
        callee = graph.callee(operation)
        if callee is not None:
            *_, outermost = operation, *graph.owners(operation.block)
            calls[names[graph.blocks[outermost.block].region]][callee.name] = operation
    return calls


MAX_ROUNDS = 64
"""A loop of known length is followed round by round so far; a longer one that never repeats may end anywhere."""


def _for(frame: Frame, operation: Operation) -> None:
    rounds = frame.analysis.constants.rounds(operation)
    results = None if rounds is None else _rounds(frame, operation, rounds)
    if results is None:  # it may end after any round, also before the first
        start = frame.states(operation.operands[FOR_BOUNDS:])
        results = _fixed_point(operation, start, lambda current: _for_body(frame, operation, current, doubtful=True))
    frame.assign(operation, results)


def _rounds(frame: Frame, operation: Operation, rounds: int) -> list[Alternatives] | None:
    """Run a loop of known length round by round; return its results, or None where no end is in sight.

    What goes into a round decides what comes out of it, so that the rounds repeat as soon as one starts like an
    earlier one.
    """
    starts: list[list[Alternatives]] = []
    current = frame.states(operation.operands[FOR_BOUNDS:])
    while len(starts) < rounds:
        if current in starts:
            first = starts.index(current)
            return starts[first + (rounds - first) % (len(starts) - first)]
        if len(starts) == MAX_ROUNDS:
            return None
        starts.append(current)
        current = _for_body(frame, operation, current, doubtful=False)
    return current


def _fixed_point(
    operation: Operation, start: list[Alternatives], turn: Callable[[list[Alternatives]], list[Alternatives]]
) -> list[Alternatives]:
    """Return the fixed point of ``turn``, started with ``start``."""
    current = start
    while True:
        joined = [union(pair, operation.index) for pair in zip(current, turn(current), strict=True)]
        if joined == current:
            return current
        current = joined


def _for_body(frame: Frame, operation: Operation, carried: list[Alternatives], *, doubtful: bool) -> list[Alternatives]:
    start, _, step = frame.states(operation.operands[:3])
    reason = "it counts in steps of an address"
    counter = start if step == NUMBER else opaque_result([start, step], operation.index, reason)
    return frame.region(operation.regions[0], [counter, *carried], doubtful=doubtful)


def _while(frame: Frame, operation: Operation) -> None:
    before, after = operation.regions
    passed: list[Alternatives] = []

    def turn(current: list[Alternatives]) -> list[Alternatives]:
        passed[:] = frame.region(before, current)[1:]
        return frame.region(after, passed, doubtful=True)

    _fixed_point(operation, frame.states(operation.operands), turn)
    frame.assign(operation, passed)


def _if(frame: Frame, operation: Operation) -> None:
    known = frame.analysis.constants.integer(operation.operands[0])
    regions = [region for region in operation.regions if frame.analysis.graph.regions[region].blocks]
    if known is not None:
        regions = regions[:1] if known else regions[1:]
    yields = [frame.region(region, [], doubtful=known is None) for region in regions]
    for position, result in enumerate(operation.results):
        frame.state[result] = union([values[position] for values in yields if values], operation.index)


def _combine(frame: Frame, operation: Operation) -> None:
    """Run the region of a reduction or scan on two partial results per operand."""
    start, region = frame.states(operation.operands), operation.regions[0]
    results = _fixed_point(operation, start, lambda current: frame.region(region, [*current, *current]))
    frame.assign(operation, results)


def _map(frame: Frame, operation: Operation) -> None:
    """Run the region of a map; with ``pack`` n it has n arguments and n terms per operand and result."""
    operands = frame.states(operation.operands)
    region = operation.regions[0]
    count = len(frame.analysis.graph.blocks[frame.analysis.graph.regions[region].blocks[0]].arguments)
    packed = [union(operands, operation.index)] * count if count != len(operands) else operands
    terms = frame.region(region, packed)
    if len(terms) != len(operation.results):
        terms = [union(terms, operation.index)] * len(operation.results)
    frame.assign(operation, terms)


def _specialize(frame: Frame, operation: Operation) -> None:
    """Run the default warps and the partitions, with captured values as arguments."""
    default, *partitions = operation.regions
    captured = frame.states(operation.operands)
    results = frame.region(default, [])
    for partition in partitions:
        frame.region(partition, captured)
    frame.assign(operation, results)


STRUCTURED: MappingProxyType[str, Callable[[Frame, Operation], None]] = MappingProxyType(
    {
        "scf.for": _for,
        "scf.while": _while,
        "scf.if": _if,
        "tt.reduce": _combine,
        "tt.scan": _combine,
        "tt.map_elementwise": _map,
        "ttg.warp_specialize": _specialize,
    }
)
"""What runs each of these operations in the frame of a function."""


_LANEWISE = frozenset({Flow.COPY, Flow.SELECT, Flow.ADD, Flow.SUBTRACT, Flow.OFFSET, Flow.MULTIPLY, Flow.NUMBER})
_REORDERS = frozenset({"tt.trans", "tt.reshape", "tt.cat"})
"""Operations that may move elements between the halves of the last dimension, also where the shape stays."""


@dataclass(frozen=True, slots=True)
class Touch:
    """One operation that goes to memory at ``target``. ``access`` is None for an operation that is not known."""

    operation: int
    access: Access | None
    target: Alternative
    masked: bool
    conditional: bool


@dataclass(frozen=True, slots=True)
class Summary:
    """The effects of one call of a function with certain arguments."""

    results: tuple[Alternatives, ...]
    touches: tuple[Touch, ...]


@dataclass(slots=True)
class Analysis:
    """The analysis of one graph; it keeps a summary per function and arguments."""

    graph: Graph
    constants: Constants = field(init=False)
    rules: Rules = field(init=False)
    _summaries: dict[tuple[str, tuple[Alternatives, ...]], Summary] = field(default_factory=dict)
    _certain: dict[int, frozenset[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.constants = Constants(self.graph)
        self.rules = Rules(self.constants)

    def kernel(self) -> Summary:
        """Return the summary of the kernel; argument i is called i."""
        function = self.graph.kernel
        addresses = [self.graph.values[value].is_pointer for value in function.arguments]
        passed = tuple(address_of(i) if is_address else NUMBER for i, is_address in enumerate(addresses))
        return self.summary(function, passed)

    def callee(self, operation: Operation) -> Function | None:
        """Return the function that a call goes to, or None where the module does not hold its body."""
        function = self.graph.callee(operation)
        return function if function is not None and self.graph.regions[function.region].blocks else None

    def summary(self, function: Function, arguments: tuple[Alternatives, ...]) -> Summary:
        """Return the effects of calling a function with these alternatives, computed once."""
        key = (function.name, arguments)
        if key not in self._summaries:
            frame = Frame(self)
            results = frame.region(function.region, arguments)
            self._summaries[key] = Summary(tuple(results), tuple(frame.touches))
        return self._summaries[key]

    def certain(self, region: int) -> frozenset[int]:
        """Return the blocks of a region that run whenever it does, computed once."""
        if region not in self._certain:
            self._certain[region] = certain_blocks(self.graph, region)
        return self._certain[region]


@dataclass(slots=True)
class Frame:
    """One function being run: the alternatives of its values, and the touches of its operations so far.

    An operation in a loop is run several times; its touches are those of all times.
    """

    analysis: Analysis
    state: dict[int, Alternatives] = field(default_factory=dict)
    touches: dict[Touch, None] = field(default_factory=dict)
    doubts: int = 0

    def region(self, region: int, arguments: Sequence[Alternatives], *, doubtful: bool = False) -> list[Alternatives]:
        """Run the blocks of a region to their fixed point and return what leaves it, by terminator operand.

        ``doubtful`` means that the region may not be entered at all.
        """
        graph = self.analysis.graph
        blocks = graph.regions[region].blocks
        if not blocks:
            return []
        for block in blocks[1:]:
            self.state.update(dict.fromkeys(graph.blocks[block].arguments, UNDEFINED))
        self.state.update(zip(graph.blocks[blocks[0]].arguments, arguments, strict=True))
        certain = self.analysis.certain(region)
        reached = {blocks[0]}
        left: dict[int, list[Alternatives]] = {}
        changed = True
        while changed:
            changed = False
            for block in (index for index in blocks if index in reached):
                doubt = doubtful or block not in certain
                self.doubts += doubt
                for index in graph.blocks[block].operations:
                    self._operation(graph.operations[index])
                self.doubts -= doubt
                end = graph.end(graph.blocks[block])
                if end.successors:
                    changed |= self._branch(end, reached)
                elif end.name != "ub.unreachable":
                    left[block] = self.states(end.operands)
        return [union(column, -1) for column in zip(*left.values(), strict=True)]

    def _branch(self, end: Operation, reached: set[int]) -> bool:
        """Pass the operands of a branch to its possible successors; return whether any is new."""
        graph = self.analysis.graph
        first = 1 if end.name == "cf.cond_br" else 0
        condition = self.analysis.constants.integer(end.operands[0]) if first else None
        chosen = None if condition is None else int(not condition)
        changed = False
        for position, successor in enumerate(end.successors):
            arguments = graph.blocks[successor].arguments
            values = self.states(end.operands[first : first + len(arguments)])
            first += len(arguments)
            if chosen is not None and position != chosen:
                continue
            before = self.states(arguments)
            joined = [union(pair, end.index) for pair in zip(before, values, strict=True)]
            changed |= successor not in reached or joined != before
            reached.add(successor)
            self.state.update(zip(arguments, joined, strict=True))
        return changed

    def value(self, value: int) -> Alternatives:
        """Return the alternatives of a value so far; none before it is reached."""
        return self.state.get(value, UNDEFINED)

    def assign(self, operation: Operation, results: Sequence[Alternatives]) -> None:
        """Set the alternatives of the results of an operation."""
        self.state.update(zip(operation.results, results, strict=True))

    def states(self, values: Iterable[int]) -> list[Alternatives]:
        """Return the alternatives of some values so far."""
        return [self.value(value) for value in values]

    def _operation(self, operation: Operation) -> None:
        name = operation.name
        if name in TERMINATORS:
            return
        if name in STRUCTURED:
            STRUCTURED[name](self, operation)
            return
        flow = flow_of(name)
        operands = self.states(operation.operands)
        if flow is not None:
            results = self.analysis.rules.results(flow, operation, operands, self.value)
            self.assign(operation, results)
        elif name == "tt.split":
            for side, result in enumerate(operation.results):
                self.state[result] = self._half(operation.operands[0], side)
        elif name == "tt.call":
            self._call(operation, operands)
        elif name in MEMORY:
            self._memory(operation, operands)
        elif name in FOREIGN_CODE:
            self._foreign(operation, operands)
        elif name not in SILENT:
            self._unknown_operation(operation, operands)

    def _half(self, value: int, side: int) -> Alternatives:
        """Return the alternatives of one half of the last dimension; of a join, one operand."""
        graph = self.analysis.graph
        operation = graph.maker(value)
        if operation is not None and operation.name == "tt.join":
            return self.state.get(operation.operands[side], UNDEFINED)
        flow = None if operation is None else flow_of(operation.name)
        shape = graph.values[value].shape
        if operation is None or flow not in _LANEWISE or operation.name in _REORDERS:
            return self.value(value)
        if any(graph.values[operand].shape != shape for operand in operation.operands):
            return self.value(value)
        halves = [self._half(operand, side) for operand in operation.operands]
        return self.analysis.rules.results(flow, operation, halves, self.value)[0]

    # Memory

    def _memory(self, operation: Operation, operands: list[Alternatives]) -> None:
        masked = self._mask_state(operation)
        targets = operands[0] or frozenset({OpaqueAddress(operation.index, "it is undefined")})
        if masked is not None:
            self._touch(operation, MEMORY[operation.name].access, targets, masked)
        for result in operation.results:
            is_pointer = self.analysis.graph.values[result].is_pointer
            loaded = OpaqueAddress(operation.index, f"{operation.name} takes it from memory")
            self.state[result] = frozenset({loaded}) if is_pointer else NUMBER

    def _mask_state(self, operation: Operation) -> bool | None:
        """Whether a mask or bound may switch an access off; None if it always does."""
        row = MEMORY[operation.name]
        if row.clipped or operation.attribute("boundaryCheck", "array<i32>") != "array<i32>":
            return True
        if row.mask is None or len(operation.operands) <= row.mask:
            return False
        known = self.analysis.constants.integer(operation.operands[row.mask])
        if known is None:
            return True
        return None if known == 0 else False

    def _touch(self, operation: Operation, access: Access | None, targets: Iterable[Alternative], masked: bool) -> None:
        for target in targets:
            self.touches[Touch(operation.index, access, target, masked, bool(self.doubts))] = None

    # Code from outside, and operations that are not known

    def _foreign(self, operation: Operation, operands: list[Alternatives]) -> None:
        targets = {target for operand in operands for target in operand if target != ()}
        code = operation.attribute("asm_string") if operation.name == "tt.elementwise_inline_asm" else None
        for access in foreign_accesses(code, pure=operation.attribute("pure") == "true"):
            self._touch(operation, access, targets, masked=False)
        results = opaque_result(operands, operation.index, f"{operation.name} makes it from an address") or NUMBER
        self.state.update((result, results) for result in operation.results)

    def _unknown_operation(self, operation: Operation, operands: list[Alternatives]) -> None:
        arguments = arguments_of(operands)
        value = OpaqueAddress(operation.index, f"{operation.name} is not in the tables of operations", arguments)
        self._touch(operation, None, [value], masked=False)
        self.state.update((result, frozenset({value})) for result in operation.results)
        for region in operation.regions:
            for block in self.analysis.graph.regions[region].blocks[:1]:
                count = len(self.analysis.graph.blocks[block].arguments)
                self.region(region, [frozenset({value})] * count, doubtful=True)

    # Regions and calls

    def _call(self, operation: Operation, operands: list[Alternatives]) -> None:
        function = self.analysis.callee(operation)
        if function is None:
            self._unknown_operation(operation, operands)
            return
        summary = self.analysis.summary(function, tuple(operands))
        for touch in summary.touches:
            self.touches[replace(touch, conditional=True) if self.doubts else touch] = None
        results = summary.results or [UNDEFINED] * len(operation.results)
        self.assign(operation, results)
