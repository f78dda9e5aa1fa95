"""Runs of configs that compare what they leave: once for each computation, within seconds and bytes.

`kernellab.tune.cpu_check` compares with the reference, `kernellab.tune.exact_check` in the algebra and
`kernellab.tune.bit_classes` by bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Generic, TypeVar

from kernellab.errors import KernellabError, OutOfBounds, WorkerTimeout
from kernellab.launch.memory import size_bytes
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import KernelLaunch, Launches
from kernellab.timing.outcome import reason_of, status_of

SECONDS_AT_MOST = 20.0
BYTES_AT_MOST = 256 << 20

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """The reason why a config left nothing to compare, and its status where the config is at fault."""

    reason: str
    status: Status | None = None


@dataclass(slots=True)
class ConfigRuns(Generic[T]):
    """Runs configs for at most ``left_s`` seconds in all; configs that compute the same share a result.

    ``run`` runs the launch of a config within some seconds and returns what is compared; ``evaluate`` makes the result
    of it, whose errors are not the config's. ``timeout_s`` limits each config, and ``clock`` returns seconds. With
    ``is_on_gpu``, compiler options count as part of the computation, and every error is the config's; on the CPU, only
    an access out of bounds is.
    """

    run: Callable[[Config, KernelLaunch, float], Any]
    launches: Launches
    timeout_s: float
    clock: Callable[[], float]
    left_s: float = SECONDS_AT_MOST
    is_on_gpu: bool = False
    evaluate: Callable[[Any], T] | None = None
    _results: dict[Any, T | UnfinishedRun] = field(default_factory=dict)

    def result(self, config: Config) -> T | UnfinishedRun | None:
        """The result of a config; None where no launch can be made of it, as its row says."""
        try:
            launch = self.launches.of(config)
        except KernellabError:
            return None
        key = config if self.is_on_gpu else computation_key(config, launch)
        if key not in self._results:
            start_s = self.clock()
            self._results[key] = self._run(config, launch)
            self.left_s -= self.clock() - start_s
        return self._results[key]

    def _run(self, config: Config, launch: KernelLaunch) -> T | UnfinishedRun:
        if self.left_s <= 0:
            return UnfinishedRun("the seconds for it were spent")
        if size_bytes(launch.arguments) > BYTES_AT_MOST:
            return UnfinishedRun(f"the arguments hold more than {BYTES_AT_MOST >> 20} MiB")
        try:
            result: Any = self.run(config, launch, min(self.timeout_s, self.left_s))
        except OutOfBounds as exc:
            return UnfinishedRun(reason_of(exc), Status.FAULT)
        except KernellabError as exc:
            if self.is_on_gpu:
                return UnfinishedRun(reason_of(exc), status_of(exc))
            return UnfinishedRun("it takes too long on the CPU" if isinstance(exc, WorkerTimeout) else reason_of(exc))
        return self.evaluate(result) if self.evaluate and not isinstance(result, UnfinishedRun) else result


def computation_key(config: Config, launch: KernelLaunch) -> Any:
    """Return a key of the values that a launch computes, which compiler options do not change."""
    plain = (bool, int, float, str, type(None))
    scalars = tuple((name, value) for name, value in launch.arguments.items() if isinstance(value, plain))
    return config.parameters, launch.grid, launch.before, scalars


def skipped_words(skipped: dict[str, int]) -> str:
    """The reasons for missing comparisons as the end of a sentence, with their counts; "" for none."""
    reasons = "; ".join(f"{count}, since {why}" for why, count in skipped.items())
    return f"; not compared: {reasons}" if reasons else ""
