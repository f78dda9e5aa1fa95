"""Comparison of configs with the first one in the algebra, on the CPU: which compute something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.kernel import autotune_settings
from kernellab.compile.types import CompileJob
from kernellab.errors import KernellabError, OutOfBounds, WorkerTimeout, plural
from kernellab.inside.equivalence import AlgebraOutcome, compare_outcomes, outcome_of_launch
from kernellab.ir.effects import Effects
from kernellab.launch.memory import size_bytes
from kernellab.launch.runtime import Interpret
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.timing.outcome import reason_of
from kernellab.tune.cpu_check import BYTES_AT_MOST, SECONDS_AT_MOST, computation_key
from kernellab.tune.result import Row

Verdict = tuple[Status, str] | None
"""The status and reason of a config that computes something else; None for the others."""


@dataclass(slots=True)
class ExactCheck:
    """Compares configs with the first one that it is given, for at most ``left_s`` seconds in all.

    ``effects`` returns those of a compile job; ``timeout_s`` limits each config, and ``clock`` returns seconds.
    """

    interpret: Interpret
    effects: Callable[[CompileJob], Effects]
    launches: Launches
    timeout_s: float
    clock: Callable[[], float]
    left_s: float = SECONDS_AT_MOST
    compared: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    unmodelled: set[str] = field(default_factory=set)
    _first: tuple[Config, AlgebraOutcome] | None = None
    _verdicts: dict[Any, Verdict | str] = field(default_factory=dict)  # a text is the reason for no comparison

    def excluded_rows(self, configs: Iterable[Config]) -> dict[Config, Row]:
        """Return the rows of the configs that compute something else, and so need no measurement."""
        verdicts = {config: self.verdict(config) for config in configs}
        return {config: Row(config, *verdict) for config, verdict in verdicts.items() if verdict is not None}

    def verdict(self, config: Config) -> Verdict:
        """Return WRONG or FAULT with a reason, or None where the config computes the same or cannot be checked."""
        try:
            launch = self.launches.of(config)
        except KernellabError:  # the compile of it says why
            return None
        key = computation_key(config, launch)
        if key not in self._verdicts:
            start_s = self.clock()
            self._verdicts[key] = self._check(config)
            self.left_s -= self.clock() - start_s
        verdict = self._verdicts[key]
        if isinstance(verdict, str):
            self.skipped[verdict] = self.skipped.get(verdict, 0) + 1
            return None
        self.compared += 1
        return verdict

    @property
    def note(self) -> str:
        """The number of configs that were compared, and the reasons for the others."""
        total = self.compared + sum(self.skipped.values())
        first = "the first" if self._first is None else self._first[0].text
        text = f"{self.compared} of {plural(total, 'config')} compared with {first} without tolerance"
        if self.skipped:
            text += "; not compared: " + "; ".join(f"{count}, since {why}" for why, count in self.skipped.items())
        if self.unmodelled:
            text += f"; no proof, since the algebra does not model {', '.join(sorted(self.unmodelled))}"
        return f"{text}."

    def _check(self, config: Config) -> Verdict | str:
        launch = self.launches.of(config)
        if self.left_s <= 0:
            return "the seconds for it were spent"
        if size_bytes(launch.arguments) > BYTES_AT_MOST:
            return f"the arguments hold more than {BYTES_AT_MOST >> 20} MiB"
        zeroed = autotune_settings(self.launches.kernel).reset_to_zero
        timeout_s = min(self.timeout_s, self.left_s)
        try:
            outcome = outcome_of_launch(self.interpret, self.effects(launch.job), launch, timeout_s, zeroed)
        except WorkerTimeout:
            return "it takes too long on the CPU"
        except OutOfBounds as exc:
            return Status.FAULT, reason_of(exc)
        except KernellabError as exc:
            return reason_of(exc)
        self.unmodelled.update(outcome.unmodelled)
        if self._first is None:
            self._first = config, outcome
            return None
        first, expected = self._first
        result = compare_outcomes(expected, outcome, (first.text, config.text), self.launches.outputs)
        if result.equal:
            return None
        different = "; ".join(
            f"{output.name}: {output.different:,} of {plural(output.elements, 'element')}"
            for output in result.outputs
            if not output.equal
        )
        return Status.WRONG, f"computes something else than {first.text}, not only rounded otherwise: {different}"
