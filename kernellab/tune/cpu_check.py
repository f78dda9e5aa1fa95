"""Comparison of configs with a reference on the CPU, for a tuning without a GPU: once per distinct computation."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.kernel import autotune_settings
from kernellab.checking.comparison import compare
from kernellab.compile.types import CompileJob
from kernellab.ir.effects import Effects
from kernellab.launch.arguments import memory_of
from kernellab.launch.memory import Copies
from kernellab.launch.poison import Poison, poison
from kernellab.launch.runtime import Interpret
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import KernelLaunch, Launches, accessed_arguments, call_hooks, set_to_zero
from kernellab.timing.outcome import NO_GPU
from kernellab.tune.config_runs import ConfigRuns, UnfinishedRun

AGREES = f"{NO_GPU}; agrees with the reference on the CPU"

CheckedStatus = tuple[Status, str]


@dataclass(slots=True)
class CpuCheck:
    """Compares configs with the reference on copies of their arguments, for at most ``left_s`` seconds in all.

    ``effects`` returns those of a compile job; ``timeout_s`` limits each config, and ``clock`` returns seconds.
    """

    interpret: Interpret
    effects: Callable[[CompileJob], Effects]
    launches: Launches
    timeout_s: float
    clock: Callable[[], float]
    left_s: float
    compared: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    _runs: ConfigRuns[CheckedStatus] = field(init=False)

    def __post_init__(self) -> None:
        run, launches, timeout_s, clock = self._run, self.launches, self.timeout_s, self.clock
        self._runs = ConfigRuns(run, launches, timeout_s, clock, self.left_s, evaluate=self._compare_outputs)

    def status_of(self, config: Config) -> CheckedStatus:
        """Return the status of a config with its reason; NOT_TIMED if it cannot be checked.

        Raises:
            UsageError: the reference does not fit the outputs.
        """
        result = self._runs.result(config)
        assert result is not None, "a config that compiles has a launch"
        if isinstance(result, UnfinishedRun) and result.status is None:
            self.skipped[result.reason] = self.skipped.get(result.reason, 0) + 1
            return Status.NOT_TIMED, f"{NO_GPU}; not checked on the CPU: {result.reason}"
        self.compared += 1
        return (result.status or Status.FAULT, result.reason) if isinstance(result, UnfinishedRun) else result

    @property
    def note(self) -> str:
        """The number of configs that were compared, and the reasons for the others."""
        total = self.compared + sum(self.skipped.values())
        done = "launched on the CPU, and compared with the reference"
        if not self.skipped:
            return f"All {total} configs that fit were {done}."
        reasons = "; ".join(f"{count}, since {why}" for why, count in self.skipped.items())
        return f"{self.compared} of {total} configs that fit were {done}. Not checked: {reasons}."

    def _run(
        self, config: Config, launch: KernelLaunch, timeout_s: float
    ) -> tuple[Mapping[str, Any], Poison] | UnfinishedRun:
        """Launch a config on the CPU; return what it wrote by name, and what its outputs were filled with."""
        if launch.after is not None:
            return UnfinishedRun("its post_hook is called on a GPU alone")
        effects = self.effects(launch.job)
        copies = Copies(launch.arguments, effects, "cpu")
        poisoned = poison(copies.arguments, effects, copies=True)
        set_to_zero(copies.arguments, autotune_settings(self.launches.kernel).reset_to_zero)
        call_hooks(launch, copies.arguments)
        self.interpret(launch.function, copies.everything, launch.grid, timeout_s)
        poisoned.lift()
        written = accessed_arguments(effects, copies.behind)[0]
        memory = {**memory_of(copies.arguments), **copies.reached}
        return {name: tensor for name, tensor in memory.items() if name in written}, poisoned

    def _compare_outputs(self, run: tuple[Mapping[str, Any], Poison]) -> CheckedStatus:
        outputs, poisoned = run
        counted, reference = self.launches.outputs, self.launches.reference
        assert reference is not None, "without a reference, nothing is checked"
        values = {n: value for n, value in reference.of(outputs).items() if counted is None or n in counted}
        checks = compare("the reference", values, outputs, poisoned.unwritten, poisoned.fills)
        wrong = "; ".join(check.text for check in checks if not check.equal)
        return (Status.WRONG, wrong) if wrong else (Status.NOT_TIMED, AGREES)
