"""The trials that a candidate must pass: which sizes, layouts and contents of its inputs, and which configs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch

from kernellab.errors import UsageError
from kernellab.judge.program import CandidateProgram
from kernellab.judge.replay import copy_of, element_count, keeps_bits
from kernellab.judge.specification import Case, Specification
from kernellab.judge.verdict import AS_SPECIFIED, Trial

SOME = 64
"""The number of elements from which on outputs or inputs say something of a candidate."""
_CONFIGS_AT_MOST = 16  # of an autotuned kernel are tried

Programs = Mapping[int, CandidateProgram]
"""The program of each case, by its number."""
IN_RING = "in a ring"
_NARROW = frozenset(
    {torch.float16, torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz}
)

Change = Callable[[torch.Size, torch.Generator], torch.Tensor]
"""Draws values of a shape, in float64."""


@dataclass(frozen=True, slots=True)
class Question:
    """One trial to make: a case, the distribution of its inputs, and the number of memory patterns to run it on.

    ``config`` is that of autotuned launches, None for the examiner's.
    """

    case: Case
    number: int
    distribution: str
    seed: int
    varied: str | None = None
    patterns: int = 1
    config: int | None = None

    def trial(self, outcome: str, device: str = "cpu", seconds: float = 0.0) -> Trial:
        """Return the record of the trial; the distribution is named with the config, where that is another one."""
        how = self.distribution if self.config is None else f"{self.distribution}, config {self.config}"
        case = self.case
        return Trial(case.sizes, case.is_hidden, how, self.seed, outcome, self.varied, device, seconds, case.layout)

    @property
    def words(self) -> str:
        """The trial in words."""
        return self.trial("").words


@dataclass(frozen=True, slots=True)
class Questions:
    """The trials of a candidate with ``programs``, on the CPU or a GPU.

    ``config`` is that of autotuned launches; the others are tried if it is the first. ``has_ring`` is whether launches
    can run in a ring in place of floats.
    """

    specification: Specification
    programs: Programs
    device: str = "cpu"
    config: int = 0
    has_ring: bool = True

    def trials(self, seed: int) -> Iterator[Question]:
        """Yield the trials: each case as specified, then the smallest with every distribution, input and config.

        Raises:
            UsageError: the specification names an unknown distribution.
        """
        for number, case in enumerate(self.specification.cases):
            if number in self.programs and not (case.is_timed and self.device == "cpu"):
                yield Question(case, number, AS_SPECIFIED, seed + number, patterns=2)
        for rank, number in enumerate(self._cheapest()):
            case = self.specification.cases[number]
            for place, distribution in enumerate(self._distributions()):
                yield Question(case, number, distribution, seed + 1000 * (rank + 1) + place)
            if self.has_ring and self._is_made_of_kernels(number):
                yield Question(case, number, IN_RING, seed + 9000 + rank)
            if rank == 0 and self.config == 0:
                for config in range(1, min(config_count(self.programs[number]), _CONFIGS_AT_MOST)):
                    yield Question(case, number, AS_SPECIFIED, seed + 7000 + config, config=config)
            if rank == 0:
                drawn = self.specification.draw(case, seed)
                for place, name in enumerate(name for name, value in drawn.items() if isinstance(value, torch.Tensor)):
                    how = self._varied_distribution() if is_floating(drawn[name]) else AS_SPECIFIED
                    yield Question(case, number, how, seed + 5000 + place, varied=name)

    def inputs(self, question: Question) -> dict[str, Any]:
        """Return the inputs of a trial by name, as the specification lays them out."""
        drawn = self.specification.draw(question.case, question.seed)
        if question.varied is None:
            return redraw(drawn, question.distribution, question.seed)
        base = self.specification.draw(question.case, question.seed + 1)
        name = question.varied
        if question.distribution == AS_SPECIFIED:
            return {**base, name: drawn[name]}
        return redraw(base, question.distribution, question.seed, only=name)

    def _distributions(self) -> tuple[str, ...]:
        asked = self.specification.distributions
        names = tuple(CHANGES) if asked is None else asked
        unknown = [name for name in names if name not in CHANGES]
        if unknown:
            raise UsageError(f"distributions names {unknown[0]!r}; expected some of {', '.join(CHANGES)}.")
        return tuple(name for name in names if name != NONFINITE or self.specification.has_nonfinite)

    def _varied_distribution(self) -> str:
        """The distribution of an input that alone is redrawn: large, or the first of the specification."""
        names = self._distributions()
        return "large" if "large" in names else next(iter(names), AS_SPECIFIED)

    def _cheapest(self) -> list[int]:
        """Return the numbers of up to two cases: the smallest shown and the smallest hidden one with some elements.

        One with a few elements says little: it is taken where there is no other. Other layouts are not among them.
        """
        counts = {}
        for number, case in enumerate(self.specification.cases):
            if number in self.programs and not case.is_timed and case.layout == AS_SPECIFIED:
                counts[number] = element_count(self.specification.draw(case, 0))
        filled = sorted((count, number) for number, count in counts.items() if count > 1)
        chosen: list[int] = []
        for is_hidden in (False, True):
            own = [(count, n) for count, n in filled if self.specification.cases[n].is_hidden is is_hidden]
            chosen += [n for _, n in [*(pair for pair in own if pair[0] >= SOME), *reversed(own)]][:1]
        return chosen

    def _is_made_of_kernels(self, number: int) -> bool:
        """Whether all that a program computes is computed by kernels, casts included."""
        return all(keeps_bits(step.operation) for step in self.programs[number].steps)


def config_count(program: CandidateProgram) -> int:
    """Return the largest number of configs among the launches of a program."""
    return max((len(step.variants) for step in program.steps), default=1)


def _normal(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def _uniform(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    return torch.rand(shape, generator=generator, dtype=torch.float64)


def _nonfinite(shape: torch.Size, generator: torch.Generator) -> torch.Tensor:
    drawn = _normal(shape, generator).flatten()
    for special in (float("inf"), float("-inf"), float("nan")):
        if drawn.numel():
            drawn[int(torch.randint(drawn.numel(), (), generator=generator))] = special
    return drawn.reshape(shape)


NONFINITE = "with inf and nan"
CHANGES: dict[str, Change] = {
    "normal": _normal,
    "uniform": lambda shape, generator: _uniform(shape, generator) * 2 - 1,
    "large": lambda shape, generator: _normal(shape, generator) * 100,
    "tiny": lambda shape, generator: _normal(shape, generator) * 1e-4,
    "subnormal": lambda shape, generator: _normal(shape, generator) * 1e-40,
    "integers": lambda shape, generator: (_normal(shape, generator) * 4).round(),
    "sorted": lambda shape, generator: _normal(shape, generator).flatten().sort().values.reshape(shape),
    "repeated": lambda shape, generator: _normal(torch.Size(), generator).expand(shape),
    "with zeros": lambda shape, generator: (torch.rand(shape, generator=generator) < 0.5) * _normal(shape, generator),
    # from 1e-10 to 1e10: few terms dominate a sum, and narrower formats overflow
    "all magnitudes": lambda shape, generator: 10 ** (_uniform(shape, generator) * 20 - 10) * _normal(shape, generator),
    NONFINITE: _nonfinite,
}


def redraw(inputs: Mapping[str, Any], distribution: str, seed: int, only: str | None = None) -> dict[str, Any]:
    """Return inputs with the contents of floating-point tensors drawn from a distribution; with ``only``, of one.

    A tensor without negative values stays so, as a variance does. Strides, offset and dtype stay. Other tensors and
    values are shared, and so is a tensor whose elements share memory.
    """
    if distribution in {AS_SPECIFIED, IN_RING}:
        return dict(inputs)
    generator = torch.Generator().manual_seed(seed)
    return {
        name: _redraw(value, distribution, generator)
        if is_floating(value) and (only is None or name == only)
        else value
        for name, value in inputs.items()
    }


def is_floating(value: Any) -> bool:
    """Whether an input is a floating-point tensor with elements, each in memory of its own."""
    if not isinstance(value, torch.Tensor) or not value.is_floating_point() or not value.numel():
        return False
    return all(step or size == 1 for size, step in zip(value.shape, value.stride(), strict=True))


def _redraw(tensor: torch.Tensor, distribution: str, generator: torch.Generator) -> torch.Tensor:
    drawn = CHANGES[distribution](tensor.shape, generator)
    if tensor.numel() > 1 and float(tensor.to(torch.float64).nan_to_num().min()) >= 0.0:
        drawn = drawn.abs()
    if tensor.dtype in _NARROW and distribution == "large":
        drawn = drawn / 8
    elif tensor.dtype in _NARROW and distribution == "all magnitudes":
        drawn = drawn.sign() * drawn.abs() ** 0.2
    return copy_of(tensor).copy_(drawn.to(tensor.dtype))
