"""The snapshot of a compiled launch: resources, instructions, traffic and predicted time, as the store keeps them."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from importlib import metadata

from kernellab._triton import VERSION
from kernellab.compile import ASSEMBLIES
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError
from kernellab.explain.code_lines import code_of, line_of, loop_of
from kernellab.explain.facts import AccessFacts, DeviceRates, unknown_sentences
from kernellab.explain.launch_facts import facts_of
from kernellab.explain.predicting import facts_to_predict
from kernellab.explain.prediction import predict_facts
from kernellab.ir.instructions import kind_counts
from kernellab.registry.launches_from_store import has_same_values, tensors_among
from kernellab.store import AccessSummary, ProductSummary, RecordedLaunch, Snapshot
from kernellab.timing.launches import Implementation

NOT_KEPT = "integers that it reads are not kept"


def snapshot_of(implementation: Implementation, device: DeviceRates, launch: RecordedLaunch | None = None) -> Snapshot:
    """The snapshot of a launch under the installed Triton.

    The traffic is counted where all integers that may decide addresses and trips are kept with the ``launch``: only
    then do launches on new arguments compare with it. Without a recorded launch, the arguments are the user's own.
    Where no time can be predicted, as for AMD's targets, ``unknown`` has the reason.
    """
    compiled = implementation.kernel
    if launch is None or keeps_integers(launch):
        facts, why_not = facts_to_predict(implementation, device)
    else:
        facts, why_not = facts_of(implementation, device), NOT_KEPT
    predicted_ms, terms, unknown = None, {}, facts.unknown
    try:
        prediction = predict_facts(facts, unknown_sentences(facts, why_not))
        predicted_ms, terms, unknown = prediction.time_ms, dict(prediction.terms), prediction.unknown
    except KernellabError as exc:
        unknown = (*unknown, exc.message)
    return replace(
        resources_snapshot(compiled),
        device=device.name,
        resident=facts.resident,
        programs_per_sm=facts.programs / max(1, device.multiprocessors),
        instructions=_instructions(compiled),
        loop_code=_loop_code(compiled),
        accesses=tuple(map(_access_summary, facts.accesses)),
        products=tuple(ProductSummary(dot.line, dot.kind, dot.unit, float(dot.flops)) for dot in facts.dots),
        wavefronts=float(sum(shared.wavefronts for shared in facts.shared)) if facts.has_traffic else None,
        predicted_ms=predicted_ms,
        terms=terms,
        unknown=unknown,
    )


def keeps_integers(launch: RecordedLaunch) -> bool:
    """Whether the values of all integer tensors are kept with a launch: the small ones, and those of equal values."""
    tensors = tensors_among(launch.arguments)
    return all(has_same_values(tensor) for tensor in tensors if "int" in tensor.dtype)


def resources_snapshot(compiled: Compiled) -> Snapshot:
    """The snapshot of a compiled kernel without its launch: its resources alone."""
    resources = compiled.resources
    return Snapshot(
        triton=VERSION,
        torch=_torch_version(),
        target=str(compiled.target),
        failure="" if resources.fits else (resources.why_not or "it does not fit the target"),
        registers=resources.registers,
        spill_bytes=resources.spill_bytes,
        shared_bytes=resources.shared_bytes,
        occupancy=resources.occupancy,
        limiter=resources.limiter,
    )


def failed_snapshot(error: KernellabError, target: str) -> Snapshot:
    """The snapshot of a launch that the installed Triton does not compile."""
    return Snapshot(VERSION, _torch_version(), target, failure=" ".join(error.message.split()))


def unknown_snapshot(error: KernellabError, target: str) -> Snapshot:
    """The snapshot of a launch that cannot be made again, so that nothing is known of it."""
    return Snapshot(VERSION, _torch_version(), target, unknown=(" ".join(error.message.split()),))


def _torch_version() -> str:
    try:
        return metadata.version("torch")
    except metadata.PackageNotFoundError:
        return ""


def _instructions(compiled: Compiled) -> dict[str, int]:
    stage = next((name for name in ASSEMBLIES if name in compiled.stages), "")
    return dict(kind_counts(stage, compiled.stages[stage])) if stage else {}


def _loop_code(compiled: Compiled) -> dict[str, int]:
    """The machine instructions by mnemonic, without modifiers: those of lines in loops; of a kernel without, all."""
    graph, machine = compiled.graph, code_of(compiled).machine
    looped = {line_of(graph, operation) for operation in graph.operations if loop_of(graph, operation) is not None}
    counts: Counter[str] = Counter()
    for line, mnemonics in machine.items():
        if line in looped or not looped:
            for mnemonic, count in mnemonics.items():
                counts[mnemonic.partition(".")[0]] += count
    return dict(counts)


def _access_summary(access: AccessFacts) -> AccessSummary:
    place = access.line, access.operation, access.argument
    moved = float(access.requests), float(access.sectors)
    return AccessSummary(*place, access.width_bytes, access.is_async, *moved)
