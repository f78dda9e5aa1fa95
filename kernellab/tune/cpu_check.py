"""Comparison of configs with a reference on the CPU, for a tuning without a GPU: once per distinct computation."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from kernellab._triton.kernel import autotune_settings
from kernellab.checking.comparison import compare
from kernellab.compile.types import Compiled
from kernellab.errors import KernellabError, OutOfBounds, WorkerTimeout
from kernellab.launch.arguments import memory_of
from kernellab.launch.memory import Copies, size_bytes
from kernellab.launch.poison import poison
from kernellab.launch.runtime import Interpret
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import KernelLaunch, Launches, accessed_arguments, call_hooks, set_to_zero
from kernellab.timing.outcome import NO_GPU, reason_of

SECONDS_AT_MOST = 20.0
BYTES_AT_MOST = 256 << 20
AGREES = f"{NO_GPU}; agrees with the reference on the CPU"

CheckedStatus = tuple[Status, str]


@dataclass(slots=True)
class CpuCheck:
    """Compares configs with the reference on copies of their arguments, for at most ``left_s`` seconds in all.

    ``timeout_s`` limits each config. ``clock`` returns seconds.
    """

    interpret: Interpret
    launches: Launches
    timeout_s: float
    left_s: float
    clock: Callable[[], float]
    compared: int = 0
    skipped: dict[str, int] = field(default_factory=dict)
    _statuses: dict[Any, CheckedStatus | str] = field(default_factory=dict)  # a text is the reason for no comparison

    def status_of(self, config: Config, compiled: Compiled) -> CheckedStatus:
        """Return the status of a config with its reason; NOT_TIMED if it cannot be checked.

        Raises:
            UsageError: the reference does not fit the outputs.
        """
        launch = self.launches.of(config)
        key = computation_key(config, launch)
        if key not in self._statuses:
            if why_not := self._skip_reason(launch):
                return self._skip(why_not)
            start_s = self.clock()
            self._statuses[key] = self._check_launch(launch, compiled)
            self.left_s -= self.clock() - start_s
        status = self._statuses[key]
        if isinstance(status, str):
            return self._skip(status)
        self.compared += 1
        return status

    @property
    def note(self) -> str:
        """The number of configs that were compared, and the reasons for the others."""
        total = self.compared + sum(self.skipped.values())
        done = "launched on the CPU, and compared with the reference"
        if not self.skipped:
            return f"All {total} configs that fit were {done}."
        reasons = "; ".join(f"{count}, since {why}" for why, count in self.skipped.items())
        return f"{self.compared} of {total} configs that fit were {done}. Not checked: {reasons}."

    def _skip(self, why: str) -> CheckedStatus:
        self.skipped[why] = self.skipped.get(why, 0) + 1
        return Status.NOT_TIMED, f"{NO_GPU}; not checked on the CPU: {why}"

    def _skip_reason(self, launch: KernelLaunch) -> str:
        if self.left_s <= 0:
            return "the seconds for it were spent"
        if size_bytes(launch.arguments) > BYTES_AT_MOST:
            return f"the arguments hold more than {BYTES_AT_MOST >> 20} MiB"
        return "its post_hook is called on a GPU alone" if launch.after is not None else ""

    def _check_launch(self, launch: KernelLaunch, compiled: Compiled) -> CheckedStatus | str:
        copies = Copies(launch.arguments, compiled.effects, "cpu")
        poisoned = poison(copies.arguments, compiled.effects, copies=True)
        set_to_zero(copies.arguments, autotune_settings(self.launches.kernel).reset_to_zero)
        try:
            call_hooks(launch, copies.arguments)
            self.interpret(launch.function, copies.everything, launch.grid, min(self.timeout_s, self.left_s))
        except WorkerTimeout:
            return "it takes too long on the CPU"
        except OutOfBounds as exc:
            return Status.FAULT, reason_of(exc)
        except KernellabError as exc:
            return reason_of(exc)
        poisoned.lift()
        written = accessed_arguments(compiled.effects, copies.behind)[0]
        memory = {**memory_of(copies.arguments), **copies.reached}
        outputs = {name: tensor for name, tensor in memory.items() if name in written}
        counted, reference = self.launches.outputs, self.launches.reference
        assert reference is not None, "without a reference, nothing is checked"
        values = {n: value for n, value in reference.of(outputs).items() if counted is None or n in counted}
        checks = compare("the reference", values, outputs, poisoned.unwritten, poisoned.fills)
        wrong = "; ".join(check.text for check in checks if not check.equal)
        return (Status.WRONG, wrong) if wrong else (Status.NOT_TIMED, AGREES)


def computation_key(config: Config, launch: KernelLaunch) -> Any:
    """Return a key of the values that a launch computes, which compiler options do not change."""
    plain = (bool, int, float, str, type(None))
    scalars = tuple((name, value) for name, value in launch.arguments.items() if isinstance(value, plain))
    return config.parameters, launch.grid, launch.before, scalars
