"""The facts in which two compiled kernels differ: resources, options, arguments, machine code."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kernellab.compile.types import Compiled
from kernellab.ir.instructions import Instruction, Kind, profiles_of
from kernellab.ir.lines import stage_lines
from kernellab.views.stages import STAGE_NAMES
from kernellab.views.wording import resource_facts

_OPTIONS = ("num_ctas", "maxnreg", "enable_fp_fusion", "waves_per_eu", "matrix_instr_nonkdim")
_SHOWN = (Kind.LOAD, Kind.STORE, Kind.ASYNC_COPY, Kind.BULK_COPY, Kind.TENSOR, Kind.ATOMIC, Kind.BARRIER, Kind.SPILL)


@dataclass(frozen=True, slots=True)
class FactPair:
    """One fact of two kernels, in words; "" where one of them has none."""

    name: str
    left: str
    right: str

    @property
    def differs(self) -> bool:
        return self.left != self.right


def fact_pairs(left: Compiled, right: Compiled) -> tuple[FactPair, ...]:
    """Return the resources of both, and of all else what differs."""
    sections = [
        (_identity(left), _identity(right), False),
        (_options(left), _options(right), True),
        (_arguments(left), _arguments(right), True),
        (_resources(left), _resources(right), False),
        (_machine(left), _machine(right), True),
    ]
    return tuple(
        pair
        for one, two, only_differing in sections
        for name in dict.fromkeys([*one, *two])
        if (pair := FactPair(name, one.get(name, ""), two.get(name, ""))).differs or not only_differing
    )


def _identity(compiled: Compiled) -> Mapping[str, str]:
    options = {name: str(compiled.options.get(name, "")) for name in ("num_warps", "num_stages")}
    return {"target": str(compiled.target), **options}


def _options(compiled: Compiled) -> Mapping[str, str]:
    return {name: str(compiled.options[name]) for name in _OPTIONS if compiled.options.get(name) is not None}


def _arguments(compiled: Compiled) -> Mapping[str, str]:
    return {
        parameter.name: ", ".join(part for part in (parameter.type, parameter.specialization) if part)
        for parameter in compiled.parameters
    }


def _resources(compiled: Compiled) -> Mapping[str, str]:
    return {fact.name: f"{fact.value} {fact.detail}".strip() for fact in resource_facts(compiled.resources)}


def _machine(compiled: Compiled) -> Mapping[str, str]:
    """Return how many instructions of each notable kind the assembly has."""
    name = next((name for name in reversed(STAGE_NAMES) if name in compiled.stages), "")
    if name not in {"ptx", "amdgcn"}:
        return {}
    profiles = profiles_of(name, stage_lines(name, compiled.stages[name])).values()
    counts: Counter[str] = Counter()
    for profile in profiles:
        for instruction, count in profile.notable:
            if instruction.kind in _SHOWN:
                counts[_words(instruction)] += count
    total = sum(profile.instructions for profile in profiles)
    return {f"{name.upper()} instructions": f"{total:,}", **dict(_sorted(counts))}


def _sorted(counts: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    return ((words, f"{counts[words]:,}") for words in sorted(counts))


def _words(instruction: Instruction) -> str:
    if instruction.unit:
        return instruction.unit
    return f"{instruction.kind}, {instruction.bytes} B wide" if instruction.bytes else str(instruction.kind)
