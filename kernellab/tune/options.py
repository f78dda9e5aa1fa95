"""The options of a tuning: what the user asks for, and how much is measured of each config."""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from kernellab.errors import plural
from kernellab.timing.config import Config, Space
from kernellab.tune import SearchName
from kernellab.tune.search import Search

if TYPE_CHECKING:
    from kernellab.checking.reference import ReferenceFunction

SPENT = "not measured: the budget was spent"


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a tuning.

    ``configs`` is a list of `triton.Config`, or a `Space`; None takes those of the kernel's autotuner. ``timeout_s``
    limits each config on the GPU, ``budget_s`` and ``budget_configs`` the search. ``search`` may also be a `Search` of
    one's own. ``fresh`` measures again what the store knows. With a ``check``, outputs are compared with its values;
    ``outputs`` names the arguments that are compared, with these or with each other. ``executor`` compiles in place of
    the lab's own workers. ``devices`` are the GPUs that measure, the first of which holds the final; None is the
    current one. With ``exact``, configs that compute something else than the first one are wrong, by the algebra of
    `kernellab.interpreter.algebra`. With ``bitwise``, the winner is one of the configs whose outputs have equal bits.

    One request measures ``at_once`` compiled configs. A config gets no more of its ``screen_runs`` if the first two
    take ``loser_factor`` times the best median so far. Finalists are within ``finalist_factor`` of the third fastest
    (a few runs can mislead about the fastest) and within ``loser_factor`` of the fastest, at most ``max_finalists``.
    They are measured in batches of ``batch_rounds``, up to ``max_rounds`` or ``finals_s`` seconds; batches of at most
    ``early_s`` seconds may run while the last configs compile. A difference below ``tie_margin`` is a tie.
    """

    configs: Space | Sequence[Any] | None = None
    timeout_s: float = 10.0
    search: SearchName | Search = "exhaustive"
    budget_s: float | None = None
    budget_configs: int | None = None
    fresh: bool = False
    seed: int = 0
    check: ReferenceFunction | None = None
    outputs: Sequence[str] | None = None
    executor: Executor | None = None
    devices: Sequence[int] | None = None
    exact: bool = False
    bitwise: bool = False
    screen_runs: int = 4
    at_once: int = 1
    loser_factor: float = 1.25
    finalist_factor: float = 1.08
    max_finalists: int = 12
    batch_rounds: int = 12
    max_rounds: int = 72
    finals_s: float = 1.5
    early_s: float = 0.25
    tie_margin: float = 0.005
    warm_runs: int = 5
    warm_configs: tuple[Config, ...] = ()

    @property
    def spent_reason(self) -> str:
        """The reason of a config that was not measured since the budget, in seconds or configs, was spent."""
        if self.budget_configs is None:
            return SPENT
        seconds = "" if self.budget_s is None else f" and {self.budget_s:g} s"
        return f"not measured: limited to {plural(self.budget_configs, 'config')}{seconds}"

    @property
    def is_generated(self) -> bool:
        """Whether the configs are those of a `Space` or of `workloads`, not a list of `triton.Config`.

        Of generated configs, those that spill much are not measured while others are left, and where registers keep
        the device from being full, half of the block is tried too. A list of `triton.Config` is measured as it is.
        """
        configs = self.configs
        is_list = isinstance(configs, Sequence) and all(isinstance(config, Config) for config in configs)
        return isinstance(configs, Space) or is_list

    @property
    def compiles_longest_first(self) -> bool:
        """Whether slow compiles start first; a budget takes configs in the order of the list instead."""
        return self.budget_s is None and self.budget_configs is None
