"""Comparison of configs with the first one in the algebra, on the CPU: which compute something else."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field

from kernellab._triton.kernel import autotune_settings
from kernellab.compile.types import CompileJob
from kernellab.errors import plural
from kernellab.inside.equivalence import AlgebraOutcome, compare_outcomes, outcome_of_launch
from kernellab.ir.effects import Effects
from kernellab.launch.runtime import Interpret
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import KernelLaunch, Launches
from kernellab.tune.config_runs import ConfigRuns, UnfinishedRun, skipped_words
from kernellab.tune.result import Row


@dataclass(slots=True)
class ExactCheck:
    """Compares configs with the first one that it is given.

    ``effects`` returns those of a compile job; ``timeout_s`` limits each config, and ``clock`` returns seconds.
    """

    interpret: Interpret
    effects: Callable[[CompileJob], Effects]
    launches: Launches
    timeout_s: float
    clock: Callable[[], float]
    compared: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    unmodelled: set[str] = field(default_factory=set)
    _runs: ConfigRuns[str] = field(init=False)
    _first: tuple[Config, AlgebraOutcome] | None = None

    def __post_init__(self) -> None:
        self._runs = ConfigRuns(self._differences, self.launches, self.timeout_s, self.clock)

    def excluded_rows(self, configs: Iterable[Config]) -> dict[Config, Row]:
        """The rows of the configs that compute something else, and so need no measurement."""
        rows = {config: self._excluded_row(config) for config in configs}
        return {config: row for config, row in rows.items() if row is not None}

    @property
    def note(self) -> str:
        """The number of configs that were compared, and the reasons for the others."""
        total = self.compared + sum(self.skipped.values())
        first = "the first" if self._first is None else self._first[0].text
        text = f"{self.compared} of {plural(total, 'config')} compared with {first} without tolerance"
        text += skipped_words(self.skipped)
        if self.unmodelled:
            text += f"; no proof, since the algebra does not model {', '.join(sorted(self.unmodelled))}"
        return f"{text}."

    def _excluded_row(self, config: Config) -> Row | None:
        """The row of a config that is WRONG or at fault; None where it computes the same or cannot be compared."""
        result = self._runs.result(config)
        if result is None:
            return None
        if isinstance(result, UnfinishedRun) and result.status is None:
            self.skipped[result.reason] = self.skipped.get(result.reason, 0) + 1
            return None
        self.compared += 1
        if isinstance(result, UnfinishedRun):
            return Row(config, result.status or Status.FAULT, result.reason)
        return Row(config, Status.WRONG, result) if result else None

    def _differences(self, config: Config, launch: KernelLaunch, timeout_s: float) -> str:
        """The differences of a config from the first one in words; "" for the first one and where they are equal.

        Raises:
            KernellabError: the config fails.
        """
        zeroed = autotune_settings(self.launches.kernel).reset_to_zero
        outcome = outcome_of_launch(self.interpret, self.effects(launch.job), launch, timeout_s, zeroed)
        self.unmodelled.update(outcome.unmodelled)
        if self._first is None:
            self._first = config, outcome
            return ""
        first, expected = self._first
        result = compare_outcomes(expected, outcome, (first.text, config.text), self.launches.outputs)
        different = "; ".join(
            f"{output.name}: {output.different:,} of {plural(output.elements, 'element')}"
            for output in result.outputs
            if not output.equal
        )
        return different and f"computes something else than {first.text}, not only rounded otherwise: {different}"
