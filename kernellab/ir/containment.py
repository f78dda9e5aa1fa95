"""Whether loaded values within known intervals can lead an access out of the memory of its argument.

A trial launch shows what a kernel touches where loaded values decide nothing (`uses.depends_on_data`): each such
access goes to the same addresses whenever the grid, the numbers and the layouts are the same. Left are the accesses
whose address, mask or region loaded values decide. That a trial touched both ends of what these lead to is not known of
it, and is not asked: each of these accesses is shown to stay in the storage of its argument for all values within the
intervals, from the affine form of its address, and the conditions of its mask and of the regions around it. Where all
of them are shown, and the other accesses were tried, a launch with other values within the intervals touches nothing
but the storages of its arguments, and ends. Of its outputs nothing is said.

A loaded value has the interval of its tensor only if the load itself is shown to stay in the elements of that tensor;
whoever gives the intervals leaves out what the kernel may write. The lanes that a mask switches off hold what ``other``
says; without it they hold anything, so that whatever is made of them counts where the mask holds, too, and nowhere
else.

Not known, and so tried again, is what these rules do not show: loops whose end loaded values decide otherwise than
through the bounds of a ``for``, or that might take more than `MOST_ROUNDS`; assertions and assumptions about loaded
values, hints (``tl.multiple_of``) on them; calls of functions; results of atomics, hashes and the like unless they are
cut to an interval that is good (``h % n``, ``h & 63``). Tensor descriptors clip what goes through them (PTX ISA, "Tiled
Mode: Bounding Box"; https://docs.nvidia.com/cuda/parallel-thread-execution/), if no loaded value made them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from kernellab.ir.affine import (
    NOTHING,
    Condition,
    Facts,
    Form,
    HeldCondition,
    Interval,
    Known,
    Number,
    Truth,
    bounds_of,
    conditions_of,
    hull,
    limits,
)
from kernellab.ir.graph import Block, Graph, Operation
from kernellab.ir.operations import FOREIGN_CODE, MEMORY, SILENT, TERMINATORS, Access, flow_of
from kernellab.ir.programs import Grid3, axis_of, incoming
from kernellab.ir.ranges import Carried, Seen, Values, join_values
from kernellab.ir.uses import Uses, brings_data

MOST_ROUNDS = 1 << 20
"""How often the body of loops whose length loaded values decide may run, one in another multiplied."""

_MOST_PASSES = 6
_HINTS = ("tt.divisibility", "tt.contiguity", "tt.constancy")
_LONGEST = 1 << 63


@dataclass(frozen=True, slots=True)
class ArgumentMemory:
    """The memory of an argument, in bytes: ``ahead`` of the address that is passed, and from there on ``behind``.

    ``elements`` of those behind it are the elements of the tensor, each of ``item`` bytes.
    """

    ahead: int
    behind: int
    elements: int
    item: int


@dataclass(frozen=True, slots=True)
class KnownLaunch:
    """A launch: its grid, and by argument integers, memory, and intervals of integer tensors.

    The ``held`` intervals are those of all elements, their bits read as signed integers.
    """

    grid: Grid3
    numbers: Mapping[str, int]
    extents: Mapping[str, ArgumentMemory]
    held: Mapping[str, Interval]


class NotContained(Exception):
    """An access may leave its argument, or cannot be bounded; the text has reason and line."""


def deciding_loads(graph: Graph) -> frozenset[int]:
    """Return the loads whose values decide on an address, a mask or a region, by operation."""
    uses = Uses(graph)
    values = [value for operation in graph.operations for value in uses.deciding(operation)]
    leading = (graph.operations[index] for index in uses.leading_to(values))
    return frozenset(each.index for each in leading if each.name in MEMORY and each.results)


def require_contained(graph: Graph, given: KnownLaunch) -> None:
    """Return if no launch with loaded values within the given intervals leaves the memory of its arguments.

    What no loaded value decides is not looked at.

    Raises:
        NotContained: one may, or it is not known.
    """
    walk = _Walk(graph, given)
    walk.refuse_unknown()
    walk.kernel()


@dataclass(slots=True)
class _Walk:
    """One way through the kernel, for all programs and all values within the intervals.

    Accesses are only shown where ``is_final``: the passes before that find what a loop leaves as it is.
    """

    graph: Graph
    given: KnownLaunch
    values: Values = field(init=False)
    uses: Uses = field(init=False)
    loads: frozenset[int] = field(init=False)
    rounds: int = 1
    is_final: bool = True
    _decided: dict[int, bool] = field(default_factory=dict)
    _yielded: list[Seen | None] = field(default_factory=list)
    _branches: bool = False

    def __post_init__(self) -> None:
        self.values = Values(self.graph)
        self.uses = Uses(self.graph)
        self.loads = deciding_loads(self.graph)
        conditions = [each.operands[0] for each in self.graph.operations if each.name == "cf.cond_br"]
        self._branches = self._rests_on_data(self.uses.leading_to(conditions))

    def refuse_unknown(self) -> None:
        """Raise where a kernel holds what no rule covers.

        Raises:
            NotContained: it does.
        """
        for operation in self.graph.operations:
            name = operation.name
            if name == "tt.call":
                raise NotContained(f"it calls a function{_at(operation)}")
            if name in FOREIGN_CODE and operation.attribute("pure") != "true":
                raise NotContained(f"code from outside may do anything{_at(operation)}")
            is_hinted = any(key in _HINTS for key, _ in operation.attributes)
            if (is_hinted or name in _PROMISES) and self._is_decided(operation, with_own=True):
                raise NotContained(f"{name} promises something of loaded values{_at(operation)}")

    def _is_decided(self, operation: Operation, *, with_own: bool = False) -> bool:
        """Return whether loaded values decide on an access or a region: if, where, how long it runs.

        With ``with_own``, whatever the operation reads counts, and what it loads.
        """
        if with_own:
            return self._rests_on_data(self.uses.backward([operation.index]))
        if operation.index not in self._decided:
            leading = self.uses.leading_to(self.uses.deciding(operation))
            leading |= self.uses.backward([owner.index for owner in self.graph.owners(operation.block)])
            is_entered = operation.block == self.graph.regions[self.graph.kernel.region].blocks[0]
            self._decided[operation.index] = self._rests_on_data(leading) or (self._branches and not is_entered)
        return self._decided[operation.index]

    def _rests_on_data(self, operations: Iterable[int]) -> bool:
        return any(brings_data(self.graph.operations[each]) for each in operations)

    def kernel(self) -> None:
        """Run the blocks of the kernel, each after those that lead to it."""
        kernel = self.graph.kernel
        for i, (value, name) in enumerate(zip(kernel.arguments, kernel.parameters, strict=True)):
            self.values.known[value] = self._argument_value(
                i, value, name if kernel.parameters.count(name) == 1 else ""
            )
        self._blocks(self.graph.regions[kernel.region].blocks)

    def _blocks(self, blocks: tuple[int, ...]) -> None:
        waiting, ready = incoming(self.graph, blocks), [blocks[0]]
        contexts: dict[int, frozenset[Condition]] = {blocks[0]: frozenset()}
        while ready:
            block = ready.pop()
            self.values.context = contexts[block]
            end = self.block(self.graph.blocks[block])
            for successor, facts in _ways(self.values, end):
                known = conditions_of([*facts, *(HeldCondition(each) for each in contexts[block])])
                contexts[successor] = contexts.get(successor, known) & known
                waiting[successor] -= 1
                if not waiting[successor]:
                    ready.append(successor)
        if any(count > 0 for count in waiting.values()):
            raise NotContained("branches lead back to where they come from")

    def _argument_value(self, index: int, value: int, name: str) -> Known:
        if self.graph.values[value].is_pointer:
            is_plain = self.graph.values[value].pointee_bytes is not None
            return Number(Form(), base=index) if is_plain and name in self.given.extents else None
        width, number = self.values.width(value), self.given.numbers.get(name)
        if width is None or number is None:
            return None
        wrapped = (number + (1 << (width - 1))) % (1 << width) - (1 << (width - 1))
        return Number(Form((), wrapped))

    def block(self, block: Block) -> Operation:
        """Run the operations of a block; return the one that ends it."""
        for index in block.operations:
            operation = self.graph.operations[index]
            self._run(operation)
        return operation

    def _run(self, operation: Operation) -> None:
        name = operation.name
        if name in MEMORY:
            self._access(operation)
        elif name == "tt.gather":
            self._check_gather(operation)
        elif name == "tt.get_program_id":
            last = self.given.grid[axis_of(operation)] - 1
            self._set(operation, self.values.within(operation.results[0], (0, max(0, last))))
        elif name == "tt.get_num_programs":
            self._set(operation, Number(Form((), self.given.grid[axis_of(operation)])))
        elif name == "scf.if":
            self._if(operation)
        elif name == "scf.for":
            self._for(operation)
        elif name == "scf.while":
            self._while(operation)
        elif name in {"tt.reduce", "tt.scan"}:
            self._reduction_value(operation)
        elif name not in _PLAIN and (operation.regions or flow_of(name) is None):
            raise NotContained(f"{name} is not known{_at(operation)}")
        else:
            self.values.compute(operation)

    def _set(self, operation: Operation, found: Known) -> None:
        self.values.known[operation.results[0]] = found

    # Accesses

    def _access(self, operation: Operation) -> None:
        """Show that an access stays in its memory, and record the value that it loads."""
        row, operands = MEMORY[operation.name], operation.operands
        for result in operation.results:
            self.values.known[result] = None
        if self.is_final and self._is_decided(operation):
            if row.clipped:
                if self._rests_on_data(self.uses.leading_to(operands[:1])):
                    raise NotContained(f"loaded values make a descriptor{_at(operation)}")
            else:
                self._require_inside(operation)
        if operation.index in self.loads and row.access is Access.READ and not row.clipped:
            self._set(operation, self._load_interval(operation))

    def _mask(self, operation: Operation) -> Truth:
        place = MEMORY[operation.name].mask
        is_masked = place is not None and len(operation.operands) > place
        return self.values.truth(operation.operands[place or 0]) if is_masked else Truth(NOTHING)

    def _require_inside(self, operation: Operation) -> None:
        pointer = self.values.number(operation.operands[0])
        size = self.graph.values[operation.operands[0]].pointee_bytes
        if pointer is None or pointer.base is None or size is None:
            raise NotContained(f"an address is not followed{_at(operation)}")
        name = self.graph.kernel.parameters[pointer.base]
        extent, found = self.given.extents[name], self._reach(operation, pointer)
        if found is None:
            raise NotContained(f"what a mask left out leads to an address in {name}{_at(operation)}")
        if found[0] < -extent.ahead or found[1] + size > extent.behind:
            raise NotContained(f"an address may lie outside {name}{_at(operation)}")

    def _reach(self, operation: Operation, pointer: Number) -> Interval | None:
        """Return the byte interval of an access; None if masked lanes may lead there."""
        facts = [*self._mask(operation).when_true, *(HeldCondition(each) for each in self.values.context)]
        conditions = conditions_of(facts)
        if not pointer.given <= conditions:
            return None
        return bounds_of(pointer.form, self.values.ranges, conditions)

    def _load_interval(self, operation: Operation) -> Known:
        """Return the interval of a load from its tensor, if it has no other source."""
        result = operation.results[0]
        pointer, width = self.values.number(operation.operands[0]), self.values.width(result)
        size = self.graph.values[operation.operands[0]].pointee_bytes
        if pointer is None or pointer.base is None or size is None or width is None:
            return None
        name = self.graph.kernel.parameters[pointer.base]
        extent, held, reach = self.given.extents[name], self.given.held.get(name), self._reach(operation, pointer)
        steps = [*(factor for _, factor in pointer.form.terms), pointer.form.constant]
        is_whole = size == extent.item == width // 8 and not any(step % size for step in steps)
        if held is None or reach is None or not is_whole or reach[0] < 0 or reach[1] + size > extent.elements:
            return None
        mask = self._mask(operation)
        if not mask.needed:
            return self.values.within(result, held, pointer.given)
        if len(operation.operands) > 2 and not pointer.given:
            other = self.values.number(operation.operands[2])
            if other is not None and not other.given:
                return self.values.within(result, hull(held, self.values.bounds(other.form)))
        return self.values.within(result, held, mask.needed | pointer.given)

    def _check_gather(self, operation: Operation) -> None:
        """Show that indices lie within the dimension that elements are gathered along."""
        self.values.compute(operation)
        if self.is_final and self._is_decided(operation):
            index, axis = self.values.number(operation.operands[1]), int(operation.attribute("axis").split(" ")[0])
            size = self.graph.values[operation.operands[0]].shape[axis]
            low, high = (-1, size) if index is None or index.given else self.values.bounds(index.form)
            if low < 0 or high >= size:
                raise NotContained(f"an index may lie outside the tensor{_at(operation)}")

    # Regions

    def _body(self, operation: Operation, region: int, facts: Facts) -> Sequence[int]:
        """Run a region where facts hold; return what it yields."""
        before = self.values.context
        self.values.context = conditions_of([*facts, *(HeldCondition(each) for each in before)])
        end = self.block(self.graph.blocks[self.graph.regions[operation.regions[region]].blocks[0]])
        self._yielded = [self._known_interval(value) for value in end.operands]
        self.values.context = before
        return end.operands

    def _known_interval(self, value: int) -> Seen | None:
        number = self.values.number(value)
        return None if number is None else (self.values.bounds(number.form), number)

    def _if(self, operation: Operation) -> None:
        truth = self.values.truth(operation.operands[0])
        ends = list[list[Seen | None]]()
        for region, facts in enumerate((truth.when_true, truth.when_false)):
            if region < len(operation.regions) and self.graph.regions[operation.regions[region]].blocks:
                self._body(operation, region, facts)
                ends.append(self._yielded)
        for place, result in enumerate(operation.results):
            parts = [end[place] for end in ends]
            known = [part for part in parts if part is not None]
            self.values.known[result] = join_values(self.values, result, known) if len(known) == 2 else None

    def _while(self, operation: Operation) -> None:
        if self._is_decided(operation):
            raise NotContained(f"loaded values decide when a loop ends{_at(operation)}")
        for region in operation.regions:
            block = self.graph.blocks[self.graph.regions[region].blocks[0]]
            self._forget(block.arguments)
            self._body(operation, operation.regions.index(region), NOTHING)
        self._forget(operation.results)

    def _forget(self, values: Iterable[int]) -> None:
        for value in values:
            self.values.known[value] = None

    def _for(self, operation: Operation) -> None:
        """Run a loop until what it carries is described, then once more, where accesses are shown."""
        counter, facts, rounds = self._loop_counter(operation)
        self._require_short(operation, rounds)
        block = self.graph.bodies(operation)[0]
        carried, starts = block.arguments[1:], operation.operands[3:]
        guesses = [Carried(self._known_interval(start)) for start in starts]
        was_final, outer = self.is_final, self.rounds
        self.is_final, self.rounds = False, outer * rounds if self._is_decided(operation) else outer
        carries = any(guess.start is not None for guess in guesses)
        for passes in range(_MOST_PASSES + len(starts) if carries else 0):
            is_settled = True
            self.values.known[block.arguments[0]] = counter
            self._enter(carried, guesses, _turn(operation))
            self._body(operation, 0, facts)
            for guess, value, seen in zip(guesses, carried, self._yielded, strict=True):
                is_settled &= guess.holds(self.values, value, seen, may_widen=passes < _MOST_PASSES - 2)
            if is_settled:
                break
        else:  # what is not settled, or nothing, is not known
            guesses = [Carried(None) for _ in starts]
        self.is_final = was_final
        if was_final or not carries:
            self.values.known[block.arguments[0]] = counter
            self._enter(carried, guesses, _turn(operation))
            self._body(operation, 0, facts)
        self.rounds = outer
        after = _turn(operation) - len(self.graph.operations)
        self.values.ranges[after] = (0, rounds)
        self._enter(operation.results, guesses, after)

    def _enter(self, values: Sequence[int], guesses: Sequence[Carried], turn: int) -> None:
        for value, guess in zip(values, guesses, strict=True):
            self.values.known[value] = guess.number(self.values, value, turn)

    def _loop_counter(self, operation: Operation) -> tuple[Known, Facts, int]:
        """Return the counter of a loop, the facts for its body, and its greatest number of iterations."""
        low, high, step = (self.values.number(each) for each in operation.operands[:3])
        turn = _turn(operation)
        if low is None or high is None or step is None or step.form.terms or step.form.constant <= 0:
            self.values.ranges[turn] = (0, _LONGEST)
            return None, NOTHING, _LONGEST
        if any(name == "unsignedCmp" for name, _ in operation.attributes):
            raise NotContained(f"a loop counts without signs{_at(operation)}")
        size = step.form.constant
        distance = high.form.plus(low.form, -1)
        rounds = max(0, -(-self.values.bounds(distance)[1] // size))
        self.values.ranges[turn] = (0, max(0, rounds - 1))
        count = low.form.plus(Form((((turn, ()), size),)))
        inside = count.plus(high.form, -1).plus(Form((), 1)).reduced()
        facts = frozenset({HeldCondition(inside, low.given | high.given)})
        return Number(count, low.given), facts, rounds

    def _require_short(self, operation: Operation, rounds: int) -> None:
        if self._is_decided(operation) and self.rounds * rounds > MOST_ROUNDS:
            raise NotContained(f"a loop may take {self.rounds * rounds:,} rounds{_at(operation)}")

    def _reduction_value(self, operation: Operation) -> None:
        """Record the result of a reduction or scan of integers: the greatest, the least, a sum."""
        self._forget(operation.results)
        block = self.graph.bodies(operation)[0]
        number = self.values.number(operation.operands[0])
        if len(operation.operands) != 1 or len(block.operations) != 2 or number is None or number.given:
            return
        name, result = self.graph.operations[block.operations[0]].name, operation.results[0]
        low, high = self.values.bounds(number.form)
        shape = self.graph.values[operation.operands[0]].shape
        count = shape[int(operation.attribute("axis", "0").split(" ")[0])]
        found: Interval | None = None
        if name in {"arith.maxsi", "arith.minsi"} or (low >= 0 and name in {"arith.maxui", "arith.minui"}):
            found = low, high
        elif name == "arith.addi":
            found = min(low, count * low), max(high, count * high)
        width = self.values.width(result)
        if found is not None and width is not None:
            low, high = limits(width)
            fits = low <= found[0] and found[1] <= high
            self.values.known[result] = self.values.within(result, found if fits else (low, high))


_PROMISES = frozenset({"tt.assert", "llvm.intr.assume"})
_PLAIN = SILENT | TERMINATORS | FOREIGN_CODE | {"tt.map_elementwise"}


def _turn(operation: Operation) -> int:
    """Return the term that counts the iterations of a loop."""
    return -1 - operation.index


def _ways(values: Values, end: Operation) -> list[tuple[int, Facts]]:
    """Return the successors of a block, and the conditions that hold there."""
    if end.name != "cf.cond_br":
        return [(successor, NOTHING) for successor in end.successors]
    truth = values.truth(end.operands[0])
    yes, no = end.successors
    return [(yes, NOTHING), (no, NOTHING)] if yes == no else [(yes, truth.when_true), (no, truth.when_false)]


def _at(operation: Operation) -> str:
    line = operation.location.line
    return "" if line is None else f" in line {line}"
