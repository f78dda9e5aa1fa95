"""Configs by the bits of their outputs on real values: from launches on the GPU, or from runs on the CPU without one.

A config that sums in another order leaves other bits. Where results must be reproducible, the winner is taken from the
largest class.
"""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab._triton.kernel import autotune_settings
from kernellab.compile.types import CompileJob
from kernellab.errors import plural
from kernellab.inside.equivalence import outcome_of_launch
from kernellab.ir.effects import Effects
from kernellab.launch.poison import bits_of
from kernellab.launch.runtime import Interpret
from kernellab.timing.config import Config
from kernellab.timing.launches import KernelLaunch, Launches
from kernellab.tune.config_runs import ConfigRuns, UnfinishedRun, skipped_words
from kernellab.tune.result import Row

Outputs = Mapping[str, Any]
OutputsOf = Callable[[KernelLaunch, Effects, float, Collection[str]], Outputs]
"""Runs a launch with some effects on copies of its arguments, within some seconds and with some of them zeroed first;
returns what it writes, by name. It raises `KernellabError` where the launch fails."""


@dataclass(slots=True)
class BitCheck:
    """Groups configs by the bits of their outputs.

    ``outputs_of`` runs a config, on the GPU or on the CPU, and ``effects`` returns those of a compile job;
    ``timeout_s`` limits each config, and ``clock`` returns seconds.
    """

    outputs_of: OutputsOf
    effects: Callable[[CompileJob], Effects]
    launches: Launches
    timeout_s: float
    clock: Callable[[], float]
    is_on_gpu: bool = False
    note: str = ""
    _runs: ConfigRuns[str] = field(init=False)

    def __post_init__(self) -> None:
        run, launches, timeout_s, clock = self._repeated_digest, self.launches, self.timeout_s, self.clock
        self._runs = ConfigRuns(run, launches, timeout_s, clock, is_on_gpu=self.is_on_gpu)

    def rows_with_bits(self, rows: Mapping[Config, Row]) -> dict[Config, Row]:
        """The rows with the class of each config in ``bits``, from "A" on; with a reason where it left no outputs."""
        results = {config: self._runs.result(config) for config in rows}
        digests = dict.fromkeys(result for result in results.values() if isinstance(result, str))
        names = {digest: class_name(place) for place, digest in enumerate(digests)}
        return {config: _row_with_bits(row, results[config], names) for config, row in rows.items()}

    def preferred(self, rows: Mapping[Config, Row]) -> dict[Config, Row]:
        """The rows of the largest class, with a note of its size and cost; without classes, all that did not fail."""
        counts = Counter(row.bits for row in rows.values() if row.bits is not None)
        unfinished = {c: result for c in rows if isinstance(result := self._runs.result(c), UnfinishedRun)}
        skipped = Counter(result.reason for result in unfinished.values())
        if not counts:
            self.note = f"No outputs could be compared bit by bit, so all configs could win{skipped_words(skipped)}."
            return {c: row for c, row in rows.items() if c not in unfinished or unfinished[c].status is None}
        name, count = counts.most_common(1)[0]
        chosen = {config: row for config, row in rows.items() if row.bits == name}
        many = "1 class" if len(counts) == 1 else f"{len(counts)} classes"
        where = "on the GPU" if self.is_on_gpu else "on the CPU"
        self.note = f"{count} of {plural(len(rows), 'config')} leave the bits of class {name}, of {many} {where}"
        self.note += f"{skipped_words(skipped)}; the winner is one of them. {self._cost(rows, chosen)}"
        return chosen

    def _repeated_digest(self, config: Config, launch: KernelLaunch, timeout_s: float) -> str | UnfinishedRun:
        """The digest of a config; on a GPU, where atomics of floats may come in any order, that of two launches.

        Raises:
            KernellabError: the config fails.
        """
        digest = self._digest(launch, timeout_s)
        if self.is_on_gpu and self._digest(launch, timeout_s) != digest:
            return UnfinishedRun("two launches leave different bits")
        return digest

    def _digest(self, launch: KernelLaunch, timeout_s: float) -> str:
        """A hash of the outputs of a launch that are compared."""
        zeroed = autotune_settings(self.launches.kernel).reset_to_zero
        outputs = self.outputs_of(launch, self.effects(launch.job), timeout_s, zeroed)
        digest, counted = hashlib.sha256(), self.launches.outputs
        for name, tensor in sorted(outputs.items()):
            if counted is None or name in counted:
                digest.update(name.encode())
                digest.update(bits_of(tensor.cpu().contiguous()).numpy().tobytes())
        return digest.hexdigest()

    def _cost(self, rows: Mapping[Config, Row], chosen: Mapping[Config, Row]) -> str:
        """The cost of the preference in words, by measured times on a GPU and by predicted ones without."""
        fastest, best = (
            min((row.ranking_ms for row in some.values() if row.ranking_ms is not None), default=None)
            for some in (rows, chosen)
        )
        if fastest is None or best is None:
            return "Without times, the cost of that is unknown."
        share, kind = 100 * (best / fastest - 1), "measured" if self.is_on_gpu else "predicted"
        return f"That costs {f'{share:.1f} %' if share > 0.05 else 'nothing'} by {kind} times."


def outputs_on_cpu(
    interpret: Interpret, launch: KernelLaunch, effects: Effects, timeout_s: float, zeroed: Collection[str]
) -> Outputs:
    """What a launch writes in a checked run on the CPU; see `OutputsOf`."""
    outcome = outcome_of_launch(interpret, effects, launch, timeout_s, zeroed, algebra=False)
    return {name: tensor for name, tensor in outcome.memory.items() if name in outcome.written}


def class_name(place: int) -> str:
    """The name of a class by its place: A to Z, then A1."""
    turn, letter = divmod(place, len(string.ascii_uppercase))
    return f"{string.ascii_uppercase[letter]}{turn or ''}"


def _row_with_bits(row: Row, result: str | UnfinishedRun | None, names: Mapping[str, str]) -> Row:
    if isinstance(result, UnfinishedRun) and result.status is not None:
        return replace(row, bits=None, status=result.status, reason=result.reason)
    if isinstance(result, UnfinishedRun):
        return replace(row, bits=None, reason="; ".join(filter(None, (row.reason, f"bits unknown: {result.reason}"))))
    return replace(row, bits=None if result is None else names[result])
