"""What a card says of a compiled kernel: its options, the precision of its dots, its resources and occupancy."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kernellab.compile import ASSEMBLIES
from kernellab.compile.types import Compiled, Resources
from kernellab.errors import plural
from kernellab.ir.graph import Graph, Operation, place_of
from kernellab.ir.instructions import InstructionKind, profiles_of
from kernellab.ir.lines import stage_lines
from kernellab.target import BlockNeeds, OccupancyStep, Target, limits_of, occupancy, occupancy_step
from kernellab.views.elements import Fact, bytes_words, lines_words

_LOADS = frozenset({"tt.load", "tt.descriptor_load", "tt.descriptor_gather"})
_STAGES_OF_LOOP = re.compile(r"^\s*\} \{.*tt\.num_stages = (\d+)")  # at the end of a printed loop
_PIPELINED = ("ttg.async_copy_global_to_local", "ttng.async_tma_copy_global_to_local", "ttng.async_tma_gather")
_EXACT = "ieee"


def option_words(compiled: Compiled) -> list[str]:
    """Return the options that shape a launch: warps, stages where a loop is pipelined, and what differs from the usual.

    Stages that ``tl.range(num_stages=)`` sets for a loop are named with its line.
    """
    options = compiled.options
    words = [plural(options["num_warps"], "warp")] if isinstance(options.get("num_warps"), int) else []
    words += _stages_words(compiled)
    clusters = options.get("num_ctas", 1)
    if isinstance(clusters, int) and clusters > 1:
        words.append(plural(clusters, "CTA"))
    if options.get("maxnreg"):
        words.append(f"maxnreg {options['maxnreg']}")
    return words


def _stages_words(compiled: Compiled) -> list[str]:
    """Return the stages of the launch's option where a loop takes them, then those of loops with their own."""
    stages, words = compiled.options.get("num_stages"), list[str]()
    ends = stage_lines("ttir", compiled.ttir) if "ttir" in compiled.stages else ()
    own = [(end.place.line, int(match[1])) for end in ends if (match := _STAGES_OF_LOOP.search(end.text))]
    if isinstance(stages, int) and is_pipelined(compiled) and len(own) < len(list(_loading_loops(compiled.graph))):
        words.append(plural(stages, "stage"))
    for line, count in own:
        at = "" if line is None else f" in line {line}"
        instead = f" (not {stages})" if isinstance(stages, int) and stages != count else ""
        words.append(f"{plural(count, 'stage')} by tl.range{at}{instead}")
    return words


def is_pipelined(compiled: Compiled) -> bool:
    """True for a kernel with a pipelined loop: its loads are copied ahead of their use.

    On AMD, where that leaves no mark in the TTGIR, any loop with loads counts.
    """
    if next(_loading_loops(compiled.graph), None) is None:
        return False
    if compiled.target.backend != "cuda" or "ttgir" not in compiled.stages:
        return True
    return any(name in compiled.ttgir for name in _PIPELINED)


def _loading_loops(graph: Graph) -> Iterator[Operation]:
    """Yield the innermost loops around loads, each once."""
    seen = set[int]()
    for operation in graph.operations:
        if operation.name in _LOADS:
            loop = next((owner for owner in graph.owners(operation.block) if owner.name == "scf.for"), None)
            if loop is not None and loop.index not in seen:
                seen.add(loop.index)
                yield loop


def precision_words(compiled: Compiled) -> list[str]:
    """Return a sentence for each precision in which a GPU computes ``tl.dot`` of fp32, with the lines."""
    graph, lines = compiled.graph, dict[str, list[int]]()
    dots = [operation for operation in graph.operations if operation.name == "tt.dot"]
    dots = [dot for dot in dots if graph.values[dot.operands[0]].element == "f32"]
    on_tensor_cores = _tensor_core_lines(compiled) if dots else frozenset()
    for dot in dots:
        place, precision = place_of(dot.location), dot.attribute("inputPrecision", _EXACT)
        precision = precision if (place.file, place.line) in on_tensor_cores else _EXACT
        lines.setdefault(precision, []).extend([] if place.line is None else [place.line])
    return [_precision_sentence(precision, tuple(numbers), compiled.target) for precision, numbers in lines.items()]


def _tensor_core_lines(compiled: Compiled) -> frozenset[tuple[str | None, int | None]]:
    """Return the source lines with instructions of tensor cores in the machine code."""
    stage = next((name for name in ASSEMBLIES if name in compiled.stages), None)
    if stage is None:
        return frozenset()
    profiles = profiles_of(stage, stage_lines(stage, compiled.stages[stage]))
    return frozenset(key for key, profile in profiles.items() if profile.of(InstructionKind.TENSOR))


def _precision_sentence(precision: str, lines: tuple[int, ...], target: Target) -> str:
    dot = f"tl.dot of fp32{f' in {lines_words(lines)}' if lines else ''}"
    if precision == _EXACT:
        return f"{dot}: full fp32 on {target}, without tensor cores"
    if precision == "tf32":
        remedy = 'input_precision="ieee" keeps fp32, without tensor cores'
        return f"{dot}: TF32 on {target} (10 bits of mantissa); {remedy}"
    return f"{dot}: {precision.upper().replace('X', 'x')} on {target} (several products for one)"


def resource_facts(compiled: Compiled) -> tuple[Fact, ...]:
    """Return registers, spills, stack, memory on chip and occupancy; unknown ones say so.

    Spills, stack, shared and tensor memory and scalar registers are there only where a kernel has some.
    """
    resources = compiled.resources
    facts, spills, stack = _register_facts(resources), resources.spill_bytes, resources.stack_bytes
    if spills:
        facts.append(Fact("spills", bytes_words(spills), "per thread", alarm=True))
    if stack and stack != spills:
        facts.append(Fact("stack", bytes_words(stack), "per thread"))
    if resources.shared_bytes:
        facts.append(Fact("shared memory", bytes_words(resources.shared_bytes)))
    if resources.tensor_memory_columns:
        facts.append(Fact("tensor memory", plural(resources.tensor_memory_columns, "column"), "per program"))
    return (*facts, Fact("threads", f"{resources.threads:,}", "per program"), _occupancy_fact(compiled))


def _register_facts(resources: Resources) -> list[Fact]:
    if resources.registers is None:
        return [Fact("registers", "not known")]
    sums = resources.accumulation_registers
    part = f", {sums} of them accumulation registers" if sums else ""
    facts = [Fact("registers", str(resources.registers), f"per thread{part}")]
    if resources.scalar_registers is not None:
        spilled = f", {resources.scalar_spills:,} spilled" if resources.scalar_spills else ""
        facts.append(Fact("scalar registers", str(resources.scalar_registers), f"per wave{spilled}", bool(spilled)))
    return facts


def _occupancy_fact(compiled: Compiled) -> Fact:
    """Return the occupancy with what limits it, and the least change that raises it."""
    resources, limits = compiled.resources, limits_of(compiled.target)
    if resources.occupancy is None or resources.registers is None:
        has_no_limits = resources.registers is not None and resources.fits
        return Fact("occupancy", "not known", "the limits of this target are not known" if has_no_limits else "")
    value, detail = f"{resources.occupancy * 100:.3g}%", ""
    if resources.limiter and resources.occupancy < 1:
        detail = f"limited by {resources.limiter}"
        if limits is not None:
            needs = needs_of(resources)
            now, step = occupancy(limits, needs), occupancy_step(limits, needs)
            detail = f"limited by {' and '.join(now.limiters)}"
            detail += f"; {step_words(step, now.blocks, compiled.target)}" if step is not None else ""
    return Fact("occupancy", value, detail, share=resources.occupancy)


def needs_of(resources: Resources) -> BlockNeeds:
    """Return the needs of a block of a kernel on an SM: threads, registers, shared memory."""
    return BlockNeeds(
        resources.threads, resources.registers or 0, resources.shared_bytes, resources.scalar_registers or 0
    )


def step_words(step: OccupancyStep, blocks: int, target: Target) -> str:
    """Return the least change that raises the occupancy: ``8 registers fewer: one more block per SM``."""
    limits = limits_of(target)
    if step.need == "threads" and limits is not None:
        return f"num_warps={step.then // limits.warp_threads}: {step.after.share * 100:.3g}% if the registers stay"
    unit, fewer, more = "SM" if target.backend == "cuda" else "CU", step.now - step.then, step.after.blocks - blocks
    change = f"{plural(fewer, 'register')} fewer" if step.need == "registers" else f"{bytes_words(fewer)} less"
    return f"{change}: {'one more block' if more == 1 else f'{more} more blocks'} per {unit}"
