"""Configs by the bits of their outputs on real values, from checked runs on the CPU.

A config that sums in another order leaves other bits. Where results must be reproducible, the winner is taken from the
largest class.
"""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from kernellab._triton.kernel import autotune_settings
from kernellab.compile.types import CompileJob
from kernellab.errors import KernellabError, plural
from kernellab.inside.equivalence import AlgebraOutcome, outcome_of_launch
from kernellab.ir.effects import Effects
from kernellab.launch.memory import size_bytes
from kernellab.launch.poison import bits_of
from kernellab.launch.runtime import Interpret
from kernellab.timing.config import Config
from kernellab.timing.launches import Launches
from kernellab.tune.cpu_check import BYTES_AT_MOST, SECONDS_AT_MOST, computation_key
from kernellab.tune.result import Row


@dataclass(slots=True)
class BitCheck:
    """Groups configs by the bits of their outputs, for at most ``left_s`` seconds in all.

    ``effects`` returns those of a compile job; ``timeout_s`` limits each config, and ``clock`` returns seconds.
    """

    interpret: Interpret
    effects: Callable[[CompileJob], Effects]
    launches: Launches
    timeout_s: float
    clock: Callable[[], float]
    left_s: float = SECONDS_AT_MOST
    note: str = ""
    _digests: dict[Any, str] = field(default_factory=dict)

    def rows_with_bits(self, rows: Mapping[Config, Row]) -> dict[Config, Row]:
        """Return rows with the class of each config in ``bits``, from "A" on; None where it did not run."""
        digests = {config: self._digest(config) for config in rows}
        names = {
            digest: class_name(place) for place, digest in enumerate(dict.fromkeys(filter(None, digests.values())))
        }
        return {config: replace(row, bits=names.get(digests[config])) for config, row in rows.items()}

    def preferred(self, rows: Mapping[Config, Row]) -> dict[Config, Row]:
        """Return the rows of the largest class, and note its size and cost; all rows where no config ran."""
        counts = Counter(row.bits for row in rows.values() if row.bits is not None)
        if not counts:
            self.note = "No outputs could be compared bit by bit, so that all configs could win."
            return dict(rows)
        name, count = counts.most_common(1)[0]
        chosen = {config: row for config, row in rows.items() if row.bits == name}
        many = "1 class" if len(counts) == 1 else f"{len(counts)} classes"
        self.note = f"{count} of {plural(len(rows), 'config')} leave the bits of class {name}, of {many} in all; "
        self.note += f"the winner is one of them. {_cost(rows, chosen)}"
        return chosen

    def _digest(self, config: Config) -> str:
        try:
            launch = self.launches.of(config)
        except KernellabError:
            return ""
        key = computation_key(config, launch)
        if key not in self._digests:
            start_s = self.clock()
            self._digests[key] = self._digest_of_run(config)
            self.left_s -= self.clock() - start_s
        return self._digests[key]

    def _digest_of_run(self, config: Config) -> str:
        launch = self.launches.of(config)
        if self.left_s <= 0 or size_bytes(launch.arguments) > BYTES_AT_MOST:
            return ""
        zeroed = autotune_settings(self.launches.kernel).reset_to_zero
        timeout_s = min(self.timeout_s, self.left_s)
        effects = self.effects(launch.job)
        try:
            outcome = outcome_of_launch(self.interpret, effects, launch, timeout_s, zeroed, algebra=False)
        except KernellabError:
            return ""
        return _digest_of(outcome, self.launches.outputs)


def class_name(place: int) -> str:
    """Return the name of a class by its place: A to Z, then A1."""
    turn, letter = divmod(place, len(string.ascii_uppercase))
    return f"{string.ascii_uppercase[letter]}{turn or ''}"


def _digest_of(outcome: AlgebraOutcome, counted: frozenset[str] | None) -> str:
    digest = hashlib.sha256()
    for name, tensor in sorted(outcome.memory.items()):
        if name in outcome.written and (counted is None or name in counted):
            digest.update(name.encode())
            digest.update(bits_of(tensor.contiguous()).numpy().tobytes())
    return digest.hexdigest()


def _cost(rows: Mapping[Config, Row], chosen: Mapping[Config, Row]) -> str:
    """The cost of the preference in words, by predicted times."""
    fastest, best = (
        min((row.ranking_ms for row in some.values() if row.ranking_ms is not None), default=None)
        for some in (rows, chosen)
    )
    if fastest is None or best is None:
        return "Without times, the cost of that is unknown."
    share = 100 * (best / fastest - 1)
    return f"That costs {share:.1f} % by predicted times." if share > 0.05 else "That costs nothing by predicted times."
