"""Two versions of the compiler on one launch: the reasons to suspect that it became slower, and the stage they part at.

Of two snapshots, registers with other names, other orders and a few more instructions do not count. Of two compiles,
the operations of each line with their types do: not the names of values, orders and locations. Layouts count by their
definitions, not by the names that MLIR gives them.
"""

from __future__ import annotations

import math
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kernellab.compile import MLIR_STAGES, STAGES
from kernellab.compile.types import Compiled
from kernellab.explain.code_lines import own_line
from kernellab.ir.graph import main_file, short_file
from kernellab.ir.instructions import instruction_of
from kernellab.ir.lines import stage_lines
from kernellab.store import AccessSummary, ProductSummary, Snapshot

PREDICTED_MARGIN = 0.08
"""By how much the predicted time may grow: the model's own error between variants of one kernel is about as large."""

_TRAFFIC_MARGIN = 0.05  # of sectors and requests, which are counted
_WAVEFRONT_MARGIN = 0.08
_SHARED_SHARE = 0.02  # of the predicted time, that additional wavefronts of shared memory take at least
_SPILL_MARGIN = 0.1  # of what was spilled before
_SAME_CODE = 0.02  # of the instructions
_STEERING_MARGIN = 0.2
_STEERING = frozenset(
    {
        *("IMAD", "IADD3", "IADD", "VIADD", "LOP3", "ISETP", "SEL", "MOV", "CS2R", "S2R", "S2UR", "R2UR", "LEA", "SHF"),
        *("LDC", "LDCU", "BRA", "PLOP3", "PRMT", "P2R", "R2P", "NOP", "EXIT", "BSSY", "BSYNC", "IABS", "IMNMX"),
    }
)
"""Instructions that compute addresses and steer loops, without the prefix of those for uniform registers."""
_UNIT_RANKS = {"": 0, "mma": 1, "wmma": 1, "wgmma": 2, "mfma": 2, "tcgen05": 3}
_KIND_RANKS = {"fp4": 0, "fp8": 1, "int8": 1, "fp16": 2, "bf16": 2, "tf32": 3, "fp32": 4, "fp64": 5}
_ASYNC_KINDS = ("TMA", "cp.async")
_WIDTH = re.compile(r"(loads|stores), (\d+) B wide")
COMPARED_STAGES = tuple(name for name in STAGES if name != "sass")

LineOperations = Mapping[str, Mapping[str, int]]
"""The operations of a stage with their counts, by source line as a text; "" is the line of what has none."""

_ALIAS = re.compile(r"^(#[a-z_]\w*) = (.*)$", re.MULTILINE)
_NAMED = re.compile(r"#[a-z_]\w*")
_TYPES = re.compile(r" : (.*)$")
_WITHOUT_EFFECT = {"tt.return", "scf.yield", "tt.reduce.return", "tt.scan.return", "arith.constant"}


class ReasonKind(StrEnum):
    """The figure that became worse."""

    FAILURE = "failure"
    SPILLS = "spills"
    REGISTERS = "registers"
    OCCUPANCY = "occupancy"
    WIDTH = "vector width"
    REQUESTS = "memory instructions"
    SECTORS = "sectors"
    ASYNC = "asynchronous copies"
    TENSOR = "tensor instructions"
    PRECISION = "precision"
    WAVEFRONTS = "shared memory"
    PREDICTED = "predicted time"


@dataclass(frozen=True, slots=True)
class Reason:
    """One thing that became worse, in words with both figures, and the source line where there is one."""

    kind: ReasonKind
    text: str
    line: int | None = None

    def __str__(self) -> str:
        return self.text if self.line is None else f"line {self.line}: {self.text}"


def reasons_between(before: Snapshot, after: Snapshot) -> tuple[Reason, ...]:
    """The reasons to suspect the later of two snapshots; what one of them does not have is not compared."""
    if after.failure:
        return () if before.failure else (Reason(ReasonKind.FAILURE, after.failure),)
    return tuple(reason for rule in _RULES for reason in rule(before, after))


def predicted_ratio(before: Snapshot, after: Snapshot) -> float | None:
    """The predicted time after by that before; None where one is not known, or for another device."""
    if not before.predicted_ms or after.predicted_ms is None or before.device != after.device:
        return None
    return after.predicted_ms / before.predicted_ms if _same_basis(before, after) else None


def _same_basis(before: Snapshot, after: Snapshot) -> bool:
    """Whether the traffic of both is counted, or of none of them."""
    return (before.wavefronts is None) == (after.wavefronts is None)


def _spills(before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    was, now = before.spill_bytes, after.spill_bytes
    if was is not None and now is not None and now > was * (1 + _SPILL_MARGIN):
        yield Reason(ReasonKind.SPILLS, f"spills {was:,} -> {now:,} bytes per thread")


def _occupancy(before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    was, now = before.occupancy, after.occupancy
    if was is None or now is None or now >= was - 1e-9 or not _fills_sms(before, after):
        return
    words = f"occupancy {was:.0%} -> {now:.0%}"
    if after.limiter == "registers" and (before.registers or 0) < (after.registers or 0):
        registers = f"registers {before.registers} -> {after.registers} per thread"
        yield Reason(ReasonKind.REGISTERS, f"{registers}, {words}")
        return
    shared = ""
    if before.shared_bytes is not None and (after.shared_bytes or 0) > before.shared_bytes:
        shared = f", shared memory {before.shared_bytes:,} -> {after.shared_bytes:,} bytes"
    yield Reason(ReasonKind.OCCUPANCY, f"{words}, limited by {after.limiter or 'unknown'}{shared}")


def _fills_sms(before: Snapshot, after: Snapshot) -> bool:
    """Whether fewer programs of this grid are resident on an SM than before; True where it is not known."""
    programs = after.programs_per_sm
    if programs is None or before.resident is None or after.resident is None:
        return True
    needed = math.ceil(programs)
    return min(after.resident, needed) < min(before.resident, needed)


def _access_reasons(before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    for was, now in _pairs_of_accesses(before.accesses, after.accesses):
        what = f"{now.operation} of {now.argument}"
        if was.is_async and not now.is_async:
            yield Reason(ReasonKind.ASYNC, f"{what} is not an asynchronous copy any more", now.line)
        if 0 < now.width_bytes < was.width_bytes and now.requests > was.requests * (1 + _TRAFFIC_MARGIN):
            widths = f"{was.width_bytes} -> {now.width_bytes} bytes wide per thread"
            yield Reason(ReasonKind.WIDTH, f"{what} {widths}, {_times(was.requests, now.requests)} requests", now.line)
        elif now.requests > was.requests * (1 + _TRAFFIC_MARGIN) and _same_basis(before, after):
            yield Reason(ReasonKind.REQUESTS, f"{what}: {_change(was.requests, now.requests)} requests", now.line)
        if now.sectors > was.sectors * (1 + _TRAFFIC_MARGIN) and _same_basis(before, after):
            yield Reason(ReasonKind.SECTORS, f"{what}: {_change(was.sectors, now.sectors)} sectors", now.line)


def _pairs_of_accesses(
    before: Sequence[AccessSummary], after: Sequence[AccessSummary]
) -> Iterator[tuple[AccessSummary, AccessSummary]]:
    """The accesses of both sides by line and argument; where their lines differ, by argument alone."""
    by_line = {_access_key(access): access for access in before}
    if by_line.keys() != {_access_key(access) for access in after}:
        before, after = _by_argument(before), _by_argument(after)
        by_line = {_access_key(access): access for access in before}
    for access in after:
        if (was := by_line.get(_access_key(access))) is not None:
            yield was, access


def _access_key(access: AccessSummary) -> tuple[int | None, str, str]:
    return access.line, access.operation, access.argument


def _by_argument(accesses: Iterable[AccessSummary]) -> list[AccessSummary]:
    """The sums of accesses by argument, without lines."""
    groups = defaultdict[tuple[str, str], list[AccessSummary]](list)
    for access in accesses:
        groups[access.operation, access.argument].append(access)
    return [
        AccessSummary(
            None,
            *key,
            min(access.width_bytes for access in group),
            all(access.is_async for access in group),
            sum(access.requests for access in group),
            sum(access.sectors for access in group),
        )
        for key, group in groups.items()
    ]


def _product_reasons(before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    """The products of both sides compared line by line; where their lines differ, the slowest of each side."""
    known = {product.line: product for product in before.products}
    pairs = [(known.get(product.line), product) for product in after.products]
    if before.products and after.products and known.keys() != {product.line for product in after.products}:
        pairs = [(min(before.products, key=_unit_rank), min(after.products, key=_unit_rank))]
    for was, now in pairs:
        if was is not None and _unit_rank(now) < _unit_rank(was):
            words = f"product by {was.unit} -> {now.unit or 'ordinary arithmetic'}"
            yield Reason(ReasonKind.TENSOR, words, now.line)
        if was is not None and _KIND_RANKS.get(now.kind, 0) > _KIND_RANKS.get(was.kind, 9):
            yield Reason(ReasonKind.PRECISION, f"product in {was.kind} -> {now.kind}", now.line)


def _unit_rank(product: ProductSummary) -> int:
    return _UNIT_RANKS.get(product.unit, 1)


def _instruction_reasons(before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    """Kinds of instructions that are gone; of an assembly without lines, also its narrower loads and stores."""
    if not before.has_code or not after.has_code:
        return
    for kind in _ASYNC_KINDS:
        was = sum(count for name, count in before.instructions.items() if name.startswith(kind))
        now = sum(count for name, count in after.instructions.items() if name.startswith(kind))
        is_replaced = kind == "cp.async" and any(name.startswith("TMA") for name in after.instructions)
        if was and not now and not is_replaced and not any(access.is_async for access in before.accesses):
            yield Reason(ReasonKind.ASYNC, f"{was} {kind} instructions -> none")
    if not before.products:
        for unit in _UNIT_RANKS.keys() - {""}:
            if before.instructions.get(unit) and not after.instructions.get(unit):
                yield Reason(ReasonKind.TENSOR, f"{before.instructions[unit]} {unit} instructions -> none")
    if not before.accesses:
        for what in ("loads", "stores"):
            was_wide, now_wide = _mean_width(before, what), _mean_width(after, what)
            if was_wide and now_wide and now_wide < was_wide * (1 - _TRAFFIC_MARGIN):
                yield Reason(ReasonKind.WIDTH, f"{what} {was_wide:.3g} -> {now_wide:.3g} bytes wide on average")


def _mean_width(snapshot: Snapshot, what: str) -> float | None:
    """The mean width of loads or stores in bytes, by instruction; None without any."""
    widths = [
        (int(match[2]), count)
        for name, count in snapshot.instructions.items()
        if (match := _WIDTH.fullmatch(name)) and match[1] == what
    ]
    total = sum(count for _, count in widths)
    return sum(width * count for width, count in widths) / total if total else None


def _wavefronts(before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    was, now = before.wavefronts, after.wavefronts
    if was is None or now is None or now <= was * (1 + _WAVEFRONT_MARGIN):
        return
    was_ms, now_ms = before.terms.get("shared memory"), after.terms.get("shared memory")
    is_timed = was_ms is not None and now_ms is not None and after.predicted_ms is not None
    if not is_timed or (now_ms or 0.0) - (was_ms or 0.0) > _SHARED_SHARE * (after.predicted_ms or 0.0):
        yield Reason(ReasonKind.WAVEFRONTS, f"{_change(was, now)} wavefronts of shared memory")


def _slower_predictions(before: Snapshot, after: Snapshot) -> Iterator[Reason]:
    ratio = predicted_ratio(before, after)
    if ratio is not None and ratio > 1 + PREDICTED_MARGIN and not _has_same_loops(before, after):
        times = f"{(before.predicted_ms or 0) * 1e3:.3g} -> {(after.predicted_ms or 0) * 1e3:.3g} us"
        yield Reason(ReasonKind.PREDICTED, f"predicted time {times} ({ratio - 1:+.0%})")


def _has_same_loops(before: Snapshot, after: Snapshot) -> bool:
    """Whether the machine code of the loops does the same work; False where it is not known.

    Memory, floating-point and tensor instructions are the same, and of those that compute addresses and steer loops
    there are hardly more. A prediction then differs by how the model assigns instructions to lines.
    """
    was, now = Counter(before.loop_code), Counter(after.loop_code)
    if not was or now.total() > was.total() * (1 + _STEERING_MARGIN):
        return False
    changed = (was - now) + (now - was)
    work = sum(count for name, count in changed.items() if name.removeprefix("U") not in _STEERING)
    return work <= _SAME_CODE * was.total()


def _change(was: float, now: float) -> str:
    return f"{was:,.0f} -> {now:,.0f}"


def _times(was: float, now: float) -> str:
    return f"{now / was:.3g}x the" if was else f"{now:,.0f}"


_RULES: tuple[Callable[[Snapshot, Snapshot], Iterator[Reason]], ...] = (
    *(_spills, _occupancy, _access_reasons, _product_reasons, _instruction_reasons),
    *(_wavefronts, _slower_predictions),
)


@dataclass(frozen=True, slots=True)
class PartingLine:
    """A source line with other operations: the gone and the new ones, with their counts."""

    line: int | None
    gone: tuple[tuple[str, int], ...]
    new: tuple[tuple[str, int], ...]

    def __str__(self) -> str:
        where = "without a line" if self.line is None else f"line {self.line}"
        return f"{where}: {_operation_words(self.gone)} -> {_operation_words(self.new)}"


@dataclass(frozen=True, slots=True)
class Parting:
    """The first stage at which two compiles differ, with the lines; ``stage`` is "" where none of them does."""

    stage: str
    lines: tuple[PartingLine, ...] = ()


def _operation_words(operations: tuple[tuple[str, int], ...]) -> str:
    return ", ".join(f"{count} x {name}" if count > 1 else name for name, count in operations) or "nothing"


def stage_operations(compiled: Compiled) -> dict[str, LineOperations]:
    """The operations of each stage of a compiled kernel by source line."""
    file = short_file(main_file(compiled.graph))
    return {
        stage: _operations_by_line(stage, compiled.stages[stage], file)
        for stage in COMPARED_STAGES
        if stage in compiled.stages
    }


def _operations_by_line(stage: str, text: str, file: str) -> LineOperations:
    layouts = dict(_ALIAS.findall(text)) if stage in MLIR_STAGES else {}
    lines: dict[str, Counter[str]] = {}
    for line in stage_lines(stage, text):
        instruction = instruction_of(stage, line.text)
        if instruction is None or instruction.mnemonic in _WITHOUT_EFFECT:
            continue
        place = own_line(line.place, file)
        types = "".join(_types_of(line.text, layouts)) if stage in MLIR_STAGES else ""
        lines.setdefault("" if place is None else str(place), Counter())[instruction.mnemonic + types] += 1
    return {place: dict(sorted(counts.items())) for place, counts in lines.items()}


def _types_of(text: str, layouts: Mapping[str, str]) -> Iterator[str]:
    """The types at the end of an operation of MLIR, with layouts by their definitions."""
    types = _TYPES.search(text)
    if types:
        yield " : "
        yield _NAMED.sub(lambda name: layouts.get(name[0], name[0]), types[1])


def first_parting(before: Mapping[str, LineOperations], after: Mapping[str, LineOperations]) -> Parting:
    """The first of the stages that both have in which the kernel has other operations, with their lines.

    An operation that moved to another line, as its location is reported otherwise, does not count.
    """
    for stage in COMPARED_STAGES:
        if stage in before and stage in after:
            was, now = (sum(map(Counter, side[stage].values()), Counter[str]()) for side in (before, after))
            changed = (was - now).keys() | (now - was).keys()
            if changed:
                return Parting(stage, tuple(_parting_lines(before[stage], after[stage], changed)))
    return Parting("")


def _parting_lines(before: LineOperations, after: LineOperations, changed: Collection[str]) -> Iterator[PartingLine]:
    for place in sorted({*before, *after}, key=lambda text: int(text or 0)):
        was, now = (
            Counter({name: count for name, count in side.get(place, {}).items() if name in changed})
            for side in (before, after)
        )
        if was != now:
            gone, new = tuple(sorted((was - now).items())), tuple(sorted((now - was).items()))
            yield PartingLine(int(place) if place else None, gone, new)
