"""Rules on computing: units, precision, registers, grid size, waves, and launch overhead."""

from __future__ import annotations

import math
from dataclasses import replace

from kernellab.errors import plural, share_text, time_text
from kernellab.explain.causes import Cause, PerformanceFinding, count_text, lines_text, sentence
from kernellab.explain.facts import MOST_WARPS, WARP_THREADS, DotFacts, Facts, LineFacts
from kernellab.explain.memory_rules import iterations_figure, iterations_text, scale_traffic
from kernellab.explain.model import ROUND_S, Bottleneck, leaves_idle, times_of, with_measured_time

_MOST_REGISTERS, _SM_REGISTERS = 255, 1 << 16  # of a thread, of an SM
_FEW_WARPS = 8  # resident on a multiprocessor; fewer do not hide latency
_LEAST_SHARE = 0.3
_TINY_TILE = 32 * 32  # below it, addresses and masks dominate the arithmetic
_NARROW_KINDS = frozenset({"fp16", "bf16", "fp8", "int8"})


def no_tensor_cores(facts: Facts) -> PerformanceFinding | None:
    """A product of matrices is computed by ordinary multiplications and additions."""
    dots = [dot for dot in facts.dots if not dot.on_tensor_cores and dot.kind != "fp64"]
    if dots:
        worst = max(dots, key=lambda dot: dot.flops)
        lines = lines_text(dot.line for dot in dots if dot.kind == worst.kind)
        text = f"tl.dot in {lines} does not use the tensor cores: it multiplies {worst.kind} exactly. {_TF32}"
        if worst.kind != "fp32":
            text = f"tl.dot in {lines} multiplies {worst.kind} without the tensor cores. {_LARGER_TILE}"
        kinds = {"fp32": "tf32"}  # others stay
        on_cores = tuple(
            replace(dot, kind=kinds.get(dot.kind, dot.kind), on_tensor_cores=True) if dot in dots else dot
            for dot in facts.dots
        )
        fixed = _without_lines(replace(facts, dots=on_cores), {dot.line for dot in dots}, 0.06)
        left = _TRANSPOSED if worst.kind == "fp32" else _ON_CORES
        fixed, least = _with_wavefronts(fixed, _ON_CORES), _with_wavefronts(fixed, left)
        return PerformanceFinding(Cause.NO_TENSOR_CORES, worst.line, text, {"TFLOP": worst.flops / 1e12}, fixed, least)
    return _product_by_sums(facts)


# Of the wavefronts of an exact product: those of one on tensor cores, and of one whose second operand is transposed on
# its way to them, as wgmma takes tf32 by columns only. PTX ISA, "wgmma.mma_async".
_ON_CORES, _TRANSPOSED = 0.15, 0.5


def _with_wavefronts(facts: Facts, factor: float) -> Facts:
    """Return facts with ``factor`` times the wavefronts of shared memory."""
    shared = tuple(replace(access, wavefronts=access.wavefronts * factor) for access in facts.shared)
    return replace(facts, shared=shared)


_TF32 = "Use input_precision='tf32' (or 'tf32x3' for nearly full precision), or fp16 or bf16 operands."
_LARGER_TILE = "Use tiles of at least 16 x 16 x 16, and num_warps=4 or a multiple."


def _product_by_sums(facts: Facts) -> PerformanceFinding | None:
    products, times = [reduction for reduction in facts.reductions if reduction.as_product], times_of(facts)
    if not products or max(times.arithmetic, times.shared) < _LEAST_SHARE * times.longest:
        return None
    heaviest = max(products, key=lambda product: product.flops)
    lines = {product.line for product in products}
    text = (
        f"The sum of products of two broadcast tiles in {lines_text(lines)} is a matrix product without the tensor "
        "cores. Use tl.dot (tiles of at least 16)."
    )
    tensor = DotFacts(heaviest.line, "tf32", heaviest.flops, True, (64, 64, 32))
    shared = tuple(replace(e, wavefronts=e.wavefronts * 0.05) if e.line in lines else e for e in facts.shared)
    fixed = replace(facts, dots=(*facts.dots, tensor), reductions=(), shared=shared)
    fixed = _without_lines(fixed, lines, 0.06)
    return PerformanceFinding(Cause.NO_TENSOR_CORES, heaviest.line, text, {"TFLOP": heaviest.flops / 1e12}, fixed)


def _without_lines(facts: Facts, lines: set[int | None], left: float) -> Facts:
    """Return facts in which some lines keep only the share ``left`` of their instructions."""
    changed = (line.scaled_by(left) if line.line in lines else line for line in facts.lines)
    return replace(facts, lines=tuple(changed))


def wide_operands(facts: Facts) -> PerformanceFinding | None:
    """Operands of a product are converted to a wider type, for which the tensor cores are slower."""
    wide = [dot for dot in facts.dots if dot.was_narrower in _NARROW_KINDS and dot.was_narrower != dot.kind]
    if not wide:
        return None
    worst = max(wide, key=lambda dot: dot.flops)
    where = lines_text(dot.line for dot in wide if (dot.was_narrower, dot.kind) == (worst.was_narrower, worst.kind))
    sums = "int32" if worst.was_narrower == "int8" else "fp32"
    text = (
        f"{worst.was_narrower} operands of tl.dot in {where} are converted to {worst.kind}: a lower rate of the tensor "
        f"cores, and more shared memory. Drop the conversion: tl.dot accumulates in {sums} anyway."
    )
    dots = tuple(replace(d, kind=d.was_narrower, on_tensor_cores=True) if d in wide else d for d in facts.dots)
    shared = tuple(replace(access, wavefronts=access.ideal_wavefronts / 2) for access in facts.shared)
    exact = {dot.line for dot in wide if not dot.on_tensor_cores}
    fixed = _without_lines(replace(facts, dots=dots, shared=shared), exact, 0.06)
    return PerformanceFinding(Cause.WIDE_OPERANDS, worst.line, text, {"TFLOP": worst.flops / 1e12}, fixed)


def small_tiles(facts: Facts) -> PerformanceFinding | None:
    """Tiles of a product are so small that each operand is fetched many times."""
    small = [dot for dot in facts.dots if dot.on_tensor_cores and dot.tile[0] * dot.tile[1] <= 64 * 64]
    if not small:
        return None
    worst = max(small, key=lambda dot: dot.flops)
    m, n, _ = worst.tile
    times = times_of(facts)
    slowest = max(_PACED_BY_TILES, key=lambda unit: times.units[unit])
    paced, pace = times.units[slowest], f"most of the time is {slowest}"
    if m * n < _TINY_TILE and times.arithmetic > paced:
        paced, pace = times.arithmetic, "most of the time is address and mask arithmetic"
    if paced < 0.7 * times.longest or not worst.in_loop:
        return None
    most_elements = facts.programs * m * n / facts.device.multiprocessors  # with programs for all SMs
    larger = ((max(rows, m), max(columns, n)) for rows, columns in _TILES)
    wide = next((tile for tile in larger if m * n < tile[0] * tile[1] <= most_elements), None)
    if wide is None:
        return None
    factor = (1 / wide[0] + 1 / wide[1]) / (1 / m + 1 / n)
    warps = " with num_warps=8" if facts.warps < 8 else ""
    lines = lines_text(dot.line for dot in small if dot.tile == worst.tile)
    text = (
        f"The tile of tl.dot in {lines} is {m} x {n}; {pace}. A larger one, such as {wide[0]} x {wide[1]}{warps}, "
        f"loads {1 / factor:.2g}x less."
    )
    accesses = tuple(scale_traffic(access, factor) if access.in_loop else access for access in facts.accesses)
    programs = max(1, int(facts.programs * m * n / wide[0] / wide[1]))
    dots = tuple(replace(dot, tile=(*wide, dot.tile[2])) if dot in small else dot for dot in facts.dots)
    scaled = tuple(line.scaled_by(factor) for line in facts.lines)
    fixed = replace(facts, accesses=accesses, programs=programs, dots=dots, lines=scaled)
    fixed = _with_wavefronts(fixed, factor)
    figures = {"rows": float(m), "columns": float(n), "fetched by larger tiles": factor}
    return PerformanceFinding(Cause.TILES, worst.line, text, figures, fixed)


_TILES = ((128, 128), (128, 64), (64, 64))
_PACED_BY_TILES = (Bottleneck.L2, Bottleneck.LOADS, Bottleneck.LATENCY, Bottleneck.TENSOR, Bottleneck.SHARED)


# By kind of slow operation: the share of instructions that is left after its remedy, its name, the remedy.
_IN_FP32 = "Write constants and casts in fp32 (tl.float32): one fp64 operand widens all"
_BY_AXES = "a tl.constexpr, or take the two parts from two axes of the grid"
_ARITHMETIC = {
    "fp64": (0.25, "double precision", _IN_FP32),
    "pow": (0.12, "pow by libdevice", "Multiply instead, or write tl.exp2(y * tl.log2(x))"),
    "division64": (0.15, "64-bit division by a runtime value", f"Divide 32-bit integers, by {_BY_AXES}"),
    "division": (0.4, "integer division by a runtime value", f"Divide by {_BY_AXES}"),
    "precise": (0.5, "exactly rounded division or roots", "Use the approximate / and tl.sqrt where that is enough"),
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
    alike = [line for line in slow if _slow_word(line) == word]
    share, where = sum(map(_line_weight, alike)) / total, lines_text(line.line for line in alike)
    text = f"{share_text(share)} of the instructions are for {what}, in {where}. {remedy}."
    fixed = _without_lines(facts, {line.line for line in alike}, left)
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
    reductions = [r for r in facts.reductions if r.in_loop and r.accumulates and r.trips >= 8]
    waves = max(1.0, facts.programs / facts.slots)
    waiting = waves * sum(reduction.trips for reduction in reductions) * ROUND_S
    computing = sum(line.instructions for line in facts.lines if line.line in {r.line for r in reductions})
    is_much = computing > _LEAST_SHARE * sum(line.instructions for line in facts.lines)
    if not reductions or facts.dots or not (is_much or waiting > 0.25 * times_of(facts).longest):
        return None
    worst = max(reductions, key=lambda reduction: reduction.trips)
    lines = {reduction.line for reduction in reductions}
    alike = [r.line for r in reductions if (r.trips, r.knows_trips) == (worst.trips, worst.knows_trips)]
    text = (
        f"{sentence(iterations_text(worst))} reduces over all threads in {lines_text(alike)}, with a barrier each "
        "time. Accumulate the tile in the loop (acc += x), and reduce once after it."
    )
    kept = tuple(reduction for reduction in facts.reductions if reduction not in reductions)
    fixed = _without_lines(replace(facts, reductions=kept), lines, 0.1)
    return PerformanceFinding(Cause.REDUCTION, worst.line, text, iterations_figure(worst), fixed)


def register_spills(facts: Facts) -> PerformanceFinding | None:
    """A thread holds more values than it has registers, and moves the rest to and from memory."""
    times = times_of(facts)
    if not facts.spill_bytes or times.spills < 0.1 * times.longest:
        return None
    worst = max(facts.lines, key=lambda line: line.slow.get("spill", 0.0), default=None)
    where = f", mostly in line {worst.line}" if worst is not None and worst.line is not None else ""
    threads = f"more threads (num_warps={2 * facts.warps}), " if 2 * facts.warps <= MOST_WARPS else ""
    most_registers = min(_MOST_REGISTERS, _SM_REGISTERS // (WARP_THREADS * facts.warps))
    maxnreg = ", or a larger maxnreg" if (facts.registers or 0) < most_registers else ""
    text = f"Each thread spills {facts.spill_bytes:,} B of registers{where}. Use {threads}"
    text += f"a smaller block{maxnreg}." if maxnreg or not threads else "or a smaller block."
    without = tuple(replace(line, slow={k: v for k, v in line.slow.items() if k != "spill"}) for line in facts.lines)
    fixed = replace(facts, spill_bytes=0, lines=without, resident=max(1, facts.resident))
    figures = {"spilled bytes": float(facts.spill_bytes), "registers": float(facts.registers or 0)}
    return PerformanceFinding(Cause.SPILLS, None, text, figures, fixed)


def few_programs(facts: Facts) -> PerformanceFinding | None:
    """The grid has fewer programs than the device has SMs, so some SMs idle."""
    many = facts.device.multiprocessors
    times = with_measured_time(facts, times_of(facts))
    if not leaves_idle(facts) or times.largest is Bottleneck.LAUNCH:
        return None
    advice = ", or more work per launch"
    parts = (facts.accesses, facts.reductions, facts.dots)
    if facts.loop_trips > 0 or any(part.in_loop for group in parts for part in group):
        advice = ", or split the loop over programs (split-K, partial sums, one atomic per program)"
    text = (
        f"{plural(facts.programs, 'program')} for {many} SMs: {share_text(1 - facts.programs / many)} of the SMs idle. "
        f"Make the grid larger: smaller blocks{advice}."
    )
    more = many * (2 if facts.dots else 8)
    share = facts.programs / more
    fixed = replace(
        facts,
        device=replace(facts.device, launch_s=2 * facts.device.launch_s),  # a second launch adds the parts up
        programs=more,
        loop_trips=facts.loop_trips * share,
        reductions=tuple(replace(r, trips=max(1.0, r.trips * share)) for r in facts.reductions),
    )
    figures = {"programs": float(facts.programs), "SMs": float(many)}
    return PerformanceFinding(Cause.FEW_PROGRAMS, None, text, figures, fixed)


def last_wave(facts: Facts) -> PerformanceFinding | None:
    """The programs do not divide among the SMs, and in the last wave most SMs idle."""
    many, times = facts.device.multiprocessors, times_of(facts)
    own = max(times.tensor, times.arithmetic, times.shared, times.latency)
    if facts.programs <= many or own < max(times.dram, times.l2):
        return None
    waves = math.ceil(facts.programs / many)  # of one program per SM, since resident programs share its rates
    loss = 1 - facts.programs / many / waves
    if loss < 0.12:
        return None
    text = (
        f"{facts.programs:,} programs on {many} SMs take {waves} waves; the last fills "
        f"{facts.programs - (waves - 1) * many} SMs, so SMs idle {share_text(loss)} of the time. Choose blocks so that "
        f"the grid is just below a multiple of {many} or many times larger, or loop over the tiles in {many} "
        "persistent programs."
    )
    fixed = replace(facts, programs=8 * facts.programs, resident=8 * facts.resident)
    figures = {"programs": float(facts.programs), "SMs": float(many), "idle": loss}
    least = _with_halved_tiles(facts) if facts.dots else None
    return PerformanceFinding(Cause.LAST_WAVE, None, text, figures, fixed, least)


def _with_halved_tiles(facts: Facts) -> Facts:
    """Return facts with twice the programs, whose tiles of a product are half as large and load operands more often."""
    m, n, _ = max((dot.tile for dot in facts.dots), key=lambda tile: tile[0] * tile[1])
    half = (m / 2, n) if m >= n else (m, n / 2)
    factor = (1 / half[0] + 1 / half[1]) / (1 / m + 1 / n)
    loads = tuple(scale_traffic(access, factor) if access.in_loop else access for access in facts.accesses)
    dots = tuple(replace(dot, tile=(int(half[0]), int(half[1]), dot.tile[2])) for dot in facts.dots)
    fixed = replace(facts, accesses=loads, dots=dots, programs=2 * facts.programs, resident=2 * facts.resident)
    return _with_wavefronts(fixed, factor)


def small_block(facts: Facts) -> PerformanceFinding | None:
    """A block has fewer elements than threads, so that threads repeat each other's work."""
    threads = 32 * facts.warps
    tiles = [a for a in facts.accesses if a.operation != "atomic" and a.tile_bytes > a.element_bytes]
    if facts.programs < 4 * facts.slots or not tiles or facts.dots:
        return None
    largest = max(tiles, key=lambda access: access.tile_bytes / access.element_bytes)
    elements = largest.tile_bytes / largest.element_bytes
    if elements * max(1.0, largest.trips) >= 2 * threads:
        return None
    factor = max(2, int(8 * threads / elements))
    fewer = ", or fewer threads (num_warps=1)" if facts.warps > 1 else ""
    doing = "threads repeat each other's work" if elements < threads else "each thread does little"
    text = (
        f"Each of {count_text(facts.programs)} programs has {count_text(elements)} elements for {threads} threads: "
        f"{doing}. Use a larger block ({int(elements) * factor:,} elements){fewer}."
    )
    fixed = replace(
        facts,
        programs=max(1, facts.programs // factor),
        lines=tuple(line.scaled_by(max(1 / factor, 0.25)) for line in facts.lines),
    )
    figures = {"elements": elements, "threads": float(threads), "programs": float(facts.programs)}
    return PerformanceFinding(Cause.SMALL_BLOCK, largest.line, text, figures, fixed)


def masked_lanes(facts: Facts) -> PerformanceFinding | None:
    """A mask switches off most threads: the block is larger than the data."""
    moving = [a for a in facts.accesses if a.operation != "atomic" and a.tile_bytes > a.element_bytes]
    total = sum(access.bytes for access in moving)
    off = [access for access in moving if access.lanes_off > 0.45 and access.bytes > 0.2 * total]
    if not off:
        return None
    worst = max(off, key=lambda access: access.bytes)
    alike = [access for access in off if (access.lanes_off, access.tile_bytes) == (worst.lanes_off, worst.tile_bytes)]
    elements = worst.tile_bytes / worst.element_bytes
    used = elements * (1 - worst.lanes_off)
    text = (
        f"The mask of {lines_text(a.line for a in alike)} disables {share_text(worst.lanes_off)} of the lanes: "
        f"the block has {count_text(elements)} elements, about {count_text(used)} in bounds. Use a smaller block "
        "(triton.next_power_of_2 of the size, or a loop over blocks), or several rows per program."
    )
    block = 2.0 ** math.ceil(math.log2(max(1.0, used)))  # the smallest that holds what is in bounds
    fixed, least = (
        replace(
            facts,
            lines=tuple(line.scaled_by(left) for line in facts.lines),
            resident=max(facts.resident, int(facts.resident / left)),
        )
        for left in (1 - worst.lanes_off, min(1.0, block / elements))
    )
    figures = {"lanes off": worst.lanes_off, "elements": elements}
    return PerformanceFinding(Cause.MASKED, worst.line, text, figures, fixed, least)


def low_occupancy(facts: Facts) -> PerformanceFinding | None:
    """Registers or shared memory allow too few resident warps to hide latency."""
    times = times_of(facts)
    warps = facts.resident * facts.warps
    if warps > _FEW_WARPS or facts.programs < 2 * facts.slots or facts.dots or times.latency < 0.7 * times.longest:
        return None
    text = (
        f"{plural(warps, 'warp')} per SM, limited by {facts.limiter or 'the binary'}: too few to hide memory latency. "
        f"Use a smaller block{' or' if facts.stages <= 1 else ','} more num_warps"
        f"{', or fewer stages' if facts.stages > 1 else ''}."
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


COMPUTE_RULES = {
    Cause.NO_TENSOR_CORES: no_tensor_cores,
    Cause.WIDE_OPERANDS: wide_operands,
    Cause.TILES: small_tiles,
    Cause.ARITHMETIC: slow_arithmetic,
    Cause.REDUCTION: reductions_in_loops,
    Cause.SPILLS: register_spills,
    Cause.FEW_PROGRAMS: few_programs,
    Cause.LAST_WAVE: last_wave,
    Cause.SMALL_BLOCK: small_block,
    Cause.MASKED: masked_lanes,
    Cause.OCCUPANCY: low_occupancy,
    Cause.LAUNCH: launch_overhead,
}
