"""Rules on computing: units, precision, registers, grid size, waves, and launch overhead."""

from __future__ import annotations

import math
from dataclasses import replace

from kernellab.errors import plural
from kernellab.explain.causes import Cause, PerformanceFinding, count_text, share_text, time_text
from kernellab.explain.facts import DotFacts, Facts, LineFacts
from kernellab.explain.memory_rules import iterations_text
from kernellab.explain.model import (
    ROUND_S,
    Bottleneck,
    last_wave_loss,
    leaves_idle,
    times_of,
    with_measured_time,
)

_FEW_WARPS = 8  # resident on a multiprocessor; fewer do not hide latency
_LEAST_SHARE = 0.3
_NARROW_KINDS = frozenset({"fp16", "bf16", "fp8", "int8"})


def no_tensor_cores(facts: Facts) -> PerformanceFinding | None:
    """A product of matrices is computed by ordinary multiplications and additions."""
    dots = [dot for dot in facts.dots if not dot.on_tensor_cores and dot.kind != "fp64"]
    times = times_of(facts)
    if dots:
        worst = max(dots, key=lambda dot: dot.flops)
        text = (
            f"tl.dot in line {worst.line} does not use the tensor cores: it multiplies {worst.kind} exactly. Use "
            "input_precision='tf32' (or 'tf32x3' for nearly full precision), or fp16 or bf16 operands."
        )
        kind = "tf32" if worst.kind == "fp32" else worst.kind
        on_cores = tuple(replace(d, kind=kind, on_tensor_cores=True) if d in dots else d for d in facts.dots)
        shared = tuple(replace(each, wavefronts=each.wavefronts * 0.15) for each in facts.shared)
        fixed = _without_lines(replace(facts, dots=on_cores, shared=shared), {dot.line for dot in dots}, 0.06)
        return PerformanceFinding(Cause.NO_TENSOR_CORES, worst.line, text, {"TFLOP": worst.flops / 1e12}, fixed)
    products = [each for each in facts.reductions if each.as_product]
    if not products or max(times.arithmetic, times.shared) < _LEAST_SHARE * times.longest:
        return None
    heaviest = max(products, key=lambda each: each.flops)
    text = (
        f"Line {heaviest.line} sums the products of two broadcast tiles: a matrix product without the tensor cores. "
        "Use tl.dot (tiles of at least 16)."
    )
    lines = {each.line for each in products}
    tensor = DotFacts(heaviest.line, "tf32", heaviest.flops, True, (64, 64, 32))
    shared = tuple(replace(e, wavefronts=e.wavefronts * 0.05) if e.line in lines else e for e in facts.shared)
    fixed = replace(facts, dots=(*facts.dots, tensor), reductions=(), shared=shared)
    fixed = _without_lines(fixed, lines, 0.06)
    return PerformanceFinding(Cause.NO_TENSOR_CORES, heaviest.line, text, {"TFLOP": heaviest.flops / 1e12}, fixed)


def _without_lines(facts: Facts, lines: set[int | None], left: float) -> Facts:
    """Return facts in which some lines keep only the share ``left`` of their instructions."""
    changed = (each.scaled_by(left) if each.line in lines else each for each in facts.lines)
    return replace(facts, lines=tuple(changed))


def wide_operands(facts: Facts) -> PerformanceFinding | None:
    """Operands of a product are converted to a wider type, for which the tensor cores are slower."""
    wide = [dot for dot in facts.dots if dot.was_narrower in _NARROW_KINDS and dot.was_narrower != dot.kind]
    if not wide:
        return None
    worst = max(wide, key=lambda dot: dot.flops)
    text = (
        f"Line {worst.line} converts {worst.was_narrower} operands to {worst.kind}: a lower rate of the tensor cores, "
        "and twice the shared memory. Drop the conversion: tl.dot accumulates in fp32 anyway."
    )
    dots = tuple(replace(d, kind=d.was_narrower, on_tensor_cores=True) if d in wide else d for d in facts.dots)
    shared = tuple(replace(each, wavefronts=each.ideal_wavefronts / 2) for each in facts.shared)
    exact = {dot.line for dot in wide if not dot.on_tensor_cores}
    fixed = _without_lines(replace(facts, dots=dots, shared=shared), exact, 0.06)
    return PerformanceFinding(Cause.WIDE_OPERANDS, worst.line, text, {"TFLOP": worst.flops / 1e12}, fixed)


# By kind of slow operation: the share of instructions that is left after its remedy, its name, the remedy.
_IN_FP32 = "Write constants and casts in fp32 (tl.float32): one fp64 operand widens all"
_BY_AXES = "a tl.constexpr, or take the two parts from two axes of the grid"
_ARITHMETIC = {
    "fp64": (0.25, "double precision", _IN_FP32),
    "pow": (0.12, "pow by libdevice", "Multiply instead, or write tl.exp2(y * tl.log2(x))"),
    "division64": (0.15, "64-bit division by a runtime value", f"Divide 32-bit integers, by {_BY_AXES}"),
    "division": (0.4, "integer division by a runtime value", f"Divide by {_BY_AXES}"),
    "precise": (
        0.5,
        "exactly rounded division or roots",
        "Use the approximate / and tl.sqrt where that is enough",
    ),
}


def slow_arithmetic(facts: Facts) -> PerformanceFinding | None:
    """One line computes most, with operations that are slow on this hardware."""
    times = times_of(facts)
    if times.arithmetic < 0.5 * times.longest:
        return None
    total = sum(_line_weight(line) for line in facts.lines)
    slow = [line for line in facts.lines if _slow_word(line) and _line_weight(line) > _LEAST_SHARE * total]
    if not slow:
        return None
    worst = max(slow, key=_line_weight)
    word = _slow_word(worst)
    left, what, remedy = _ARITHMETIC.get(word, (0.4, f"{word.removeprefix('libdevice ')} by libdevice", _CHEAPER))
    share = _line_weight(worst) / total
    text = f"Line {worst.line} executes {share_text(share)} of the instructions, for {what}. {remedy}."
    fixed = _without_lines(facts, {worst.line}, left)
    return PerformanceFinding(Cause.ARITHMETIC, worst.line, text, {"of all instructions": share}, fixed)


_CHEAPER = "Use a cheaper form: tl.exp2 and tl.log2, or a polynomial"
_FP64_WEIGHT = 4.0  # of an instruction, relative to fp32


def _line_weight(line: LineFacts) -> float:
    return line.instructions + _FP64_WEIGHT * line.slow.get("fp64", 0.0)


def _slow_word(line: LineFacts) -> str:
    known = [word for word in _ARITHMETIC if word in line.words]
    return known[0] if known else next((word for word in sorted(line.words) if word.startswith("libdevice")), "")


def reductions_in_loops(facts: Facts) -> PerformanceFinding | None:
    """A loop reduces a tile in every round, and adds the results up."""
    reductions = [each for each in facts.reductions if each.in_loop and each.accumulates and each.trips >= 8]
    waves = max(1.0, facts.programs / facts.slots)
    waiting = waves * sum(each.trips for each in reductions) * ROUND_S
    computing = sum(line.instructions for line in facts.lines if line.line in {each.line for each in reductions})
    is_much = computing > _LEAST_SHARE * sum(line.instructions for line in facts.lines)
    if not reductions or facts.dots or not (is_much or waiting > 0.25 * times_of(facts).longest):
        return None
    worst = max(reductions, key=lambda each: each.trips)
    text = (
        f"Line {worst.line} reduces over all threads in {iterations_text(worst)}, with a barrier each time. "
        "Accumulate the tile in the loop (acc += x), and reduce once after it."
    )
    lines = {each.line for each in reductions}
    kept = tuple(each for each in facts.reductions if each not in reductions)
    fixed = _without_lines(replace(facts, reductions=kept), lines, 0.1)
    return PerformanceFinding(Cause.REDUCTION, worst.line, text, {"iterations": worst.trips}, fixed)


def register_spills(facts: Facts) -> PerformanceFinding | None:
    """A thread holds more values than it has registers, and moves the rest to and from memory."""
    times = times_of(facts)
    if not facts.spill_bytes or times.spills < 0.1 * times.longest:
        return None
    worst = max(facts.lines, key=lambda line: line.slow.get("spill", 0.0), default=None)
    wider = min(32, 2 * facts.warps)
    text = (
        f"Each thread spills {facts.spill_bytes:,} B of registers"
        + (f", mostly in line {worst.line}" if worst is not None and worst.line is not None else "")
        + f". Use more threads (num_warps={wider}), a smaller block, or a larger maxnreg."
    )
    without = tuple(replace(each, slow={k: v for k, v in each.slow.items() if k != "spill"}) for each in facts.lines)
    fixed = replace(facts, spill_bytes=0, lines=without, resident=max(1, facts.resident))
    figures = {"spilled bytes": float(facts.spill_bytes), "registers": float(facts.registers or 0)}
    return PerformanceFinding(Cause.SPILLS, None, text, figures, fixed)


def few_programs(facts: Facts) -> PerformanceFinding | None:
    """The grid has fewer programs than the device has SMs, so some SMs idle."""
    many = facts.device.multiprocessors
    times = with_measured_time(facts, times_of(facts))
    if not leaves_idle(facts) or times.largest is Bottleneck.LAUNCH:
        return None
    text = (
        f"{plural(facts.programs, 'program')} for {many} SMs: {share_text(1 - facts.programs / many)} of the SMs idle. "
        "Make the grid larger: smaller blocks, or split the loop over programs (split-K, partial sums, one atomic per "
        "program)."
    )
    more = many * (2 if facts.dots else 8)
    share = facts.programs / more
    fixed = replace(
        facts,
        device=replace(facts.device, launch_s=2 * facts.device.launch_s),  # a second launch adds the parts up
        programs=more,
        loop_trips=facts.loop_trips * share,
        reductions=tuple(replace(each, trips=max(1.0, each.trips * share)) for each in facts.reductions),
    )
    figures = {"programs": float(facts.programs), "SMs": float(many)}
    return PerformanceFinding(Cause.FEW_PROGRAMS, None, text, figures, fixed)


def last_wave(facts: Facts) -> PerformanceFinding | None:
    """The programs do not divide among the SMs, and in the last wave most SMs idle."""
    loss, many = last_wave_loss(facts), facts.device.multiprocessors
    times = times_of(facts)
    own = max(times.tensor, times.arithmetic, times.shared, times.latency)
    if loss < 0.12 or own < max(times.dram, times.l2) or facts.programs <= many:
        return None
    waves = math.ceil(facts.programs / many)
    text = (
        f"{facts.programs:,} programs on {many} SMs take {waves} waves; the last fills "
        f"{facts.programs - (waves - 1) * many} SMs, so SMs idle {share_text(loss)} of the time. Choose blocks so that "
        f"the grid is just below a multiple of {many} or many times larger, or loop over the tiles in {many} "
        "persistent programs."
    )
    factor = 8
    fixed = replace(facts, programs=facts.programs * factor, resident=facts.resident * factor)
    figures = {"programs": float(facts.programs), "SMs": float(many), "idle": loss}
    return PerformanceFinding(Cause.LAST_WAVE, None, text, figures, fixed)


def small_block(facts: Facts) -> PerformanceFinding | None:
    """A block has fewer elements than threads, so that threads repeat each other's work."""
    threads = 32 * facts.warps
    tiles = [each for each in facts.accesses if each.operation != "atomic" and each.tile_bytes > each.element_bytes]
    if facts.programs < 4 * facts.slots or not tiles or facts.dots:
        return None
    largest = max(tiles, key=lambda each: each.tile_bytes / each.element_bytes)
    elements = largest.tile_bytes / largest.element_bytes
    if elements * max(1.0, largest.trips) >= 2 * threads:
        return None
    factor = max(2, int(8 * threads / elements))
    doing = "threads repeat each other's work" if elements < threads else "each thread does little"
    text = (
        f"Each of {count_text(facts.programs)} programs has {count_text(elements)} elements for {threads} threads: "
        f"{doing}. Use a larger block ({int(elements) * factor:,} elements), or fewer threads (num_warps=1)."
    )
    fixed = replace(
        facts,
        programs=max(1, facts.programs // factor),
        lines=tuple(each.scaled_by(max(1 / factor, 0.25)) for each in facts.lines),
    )
    figures = {"elements": elements, "threads": float(threads), "programs": float(facts.programs)}
    return PerformanceFinding(Cause.SMALL_BLOCK, largest.line, text, figures, fixed)


def masked_lanes(facts: Facts) -> PerformanceFinding | None:
    """A mask switches off most threads: the block is larger than the data."""
    moving = [each for each in facts.accesses if each.operation != "atomic" and each.tile_bytes > each.element_bytes]
    total = sum(each.bytes for each in moving)
    off = [each for each in moving if each.lanes_off > 0.45 and each.bytes > 0.2 * total]
    if not off:
        return None
    worst = max(off, key=lambda each: each.bytes)
    elements = worst.tile_bytes / worst.element_bytes
    used = elements * (1 - worst.lanes_off)
    text = (
        f"The mask of line {worst.line} disables {share_text(worst.lanes_off)} of the lanes: the block has "
        f"{count_text(elements)} elements, about {count_text(used)} in bounds. Use a smaller block "
        "(triton.next_power_of_2 of the size, or a loop over blocks), or several rows per program."
    )
    left = 1 - worst.lanes_off
    fixed = replace(
        facts,
        lines=tuple(each.scaled_by(left) for each in facts.lines),
        resident=max(facts.resident, int(facts.resident / left)),
    )
    figures = {"lanes off": worst.lanes_off, "elements": elements}
    return PerformanceFinding(Cause.MASKED, worst.line, text, figures, fixed)


def low_occupancy(facts: Facts) -> PerformanceFinding | None:
    """Registers or shared memory allow too few resident warps to hide latency."""
    times = times_of(facts)
    warps = facts.resident * facts.warps
    if warps > _FEW_WARPS or facts.programs < 2 * facts.slots or facts.dots or times.latency < 0.7 * times.longest:
        return None
    text = (
        f"{plural(warps, 'warp')} per SM, limited by {facts.limiter or 'the binary'}: too few to hide memory latency. "
        "Use a smaller block, more num_warps, or fewer stages."
    )
    fixed = replace(facts, resident=2 * facts.resident)
    return PerformanceFinding(Cause.OCCUPANCY, None, text, {"warps": float(warps)}, fixed)


def launch_overhead(facts: Facts) -> PerformanceFinding | None:
    """Launch overhead takes longer than the kernel."""
    times = with_measured_time(facts, times_of(facts))
    if times.largest is not Bottleneck.LAUNCH:
        return None
    text = (
        f"Launch overhead is {time_text(times.launch)} of {time_text(times.total)}. Do more per launch (a larger grid, "
        "fused kernels), or replay a CUDA graph."
    )
    fixed = replace(facts, device=replace(facts.device, launch_s=0.0))
    return PerformanceFinding(
        Cause.LAUNCH, None, text, {"us": times.total * 1e6, "us of an empty launch": times.launch * 1e6}, fixed
    )


COMPUTE_RULES = (
    no_tensor_cores,
    wide_operands,
    slow_arithmetic,
    reductions_in_loops,
    register_spills,
    few_programs,
    last_wave,
    small_block,
    masked_lanes,
    low_occupancy,
    launch_overhead,
)
