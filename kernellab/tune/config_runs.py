"""Runs of configs that compare what they leave: once for each computation, within seconds and bytes.

`CpuCheck` compares with the reference on the CPU, for a tuning without a GPU, and `ExactCheck` with the first config in
the algebra. `BitCheck` compares the bits of outputs on real values: a config that sums in another order leaves others.
Where results must be reproducible, the winner is taken from the largest class of equal bits.
"""

from __future__ import annotations

import hashlib
import string
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Generic, TypeVar

from kernellab._triton.kernel import autotune_settings
from kernellab.checking.comparison import compare
from kernellab.compile.types import CompileJob
from kernellab.errors import KernellabError, OutOfBounds, WorkerTimeout, plural
from kernellab.inside.equivalence import AlgebraOutcome, compare_outcomes, outcome_of_launch
from kernellab.ir.effects import Effects
from kernellab.launch.memory import size_bytes
from kernellab.launch.poison import Poison, bits_of
from kernellab.launch.runtime import Interpret
from kernellab.store.columns import Status
from kernellab.timing.config import Config
from kernellab.timing.launches import KernelLaunch, Launches, copies_to_launch, written_memory
from kernellab.timing.outcome import NO_GPU, reason_of, status_of
from kernellab.tune.result import Row

SECONDS_AT_MOST = 20.0
BYTES_AT_MOST = 256 << 20

T = TypeVar("T")
AGREES = f"{NO_GPU}; agrees with the reference on the CPU"

CheckedStatus = tuple[Status, str]
Outputs = Mapping[str, Any]
OutputsOf = Callable[[KernelLaunch, Effects, float, Collection[str]], Outputs]
"""Runs a launch with some effects on copies of its arguments, within some seconds and with some of them zeroed first;
returns what it writes, by name. It raises `KernellabError` where the launch fails."""


@dataclass(frozen=True, slots=True)
class UnfinishedRun:
    """The reason why a config left nothing to compare, and its status where the config is at fault."""

    reason: str
    status: Status | None = None


@dataclass(slots=True)
class ConfigRuns(Generic[T]):
    """Runs configs for at most ``left_s`` seconds in all; configs that compute the same share a result.

    ``effects`` returns those of a compile job; ``timeout_s`` limits each config, and ``clock`` returns seconds. With
    ``is_on_gpu``, compiler options count as part of the computation, and every error is the config's; on the CPU, only
    an access out of bounds is. ``skipped`` counts the configs that left nothing to compare, by reason.
    """

    launches: Launches
    effects: Callable[[CompileJob], Effects]
    timeout_s: float
    clock: Callable[[], float]
    left_s: float = SECONDS_AT_MOST
    is_on_gpu: bool = False
    compared: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    _results: dict[Any, T | UnfinishedRun] = field(default_factory=dict)

    def run(self, config: Config, launch: KernelLaunch, timeout_s: float) -> Any:
        """Run the launch of a config within some seconds; return what is compared.

        Raises:
            KernellabError: the config fails.
        """
        raise NotImplementedError

    def evaluate(self, ran: Any) -> T:
        """Return the result of what `run` returned; an error is not the config's."""
        return ran  # type: ignore[no-any-return]

    @property
    def zeroed(self) -> Collection[str]:
        """The arguments that are set to zero before each launch."""
        return autotune_settings(self.launches.kernel).reset_to_zero

    def result(self, config: Config) -> T | UnfinishedRun | None:
        """The result of a config; None where no launch can be made of it, as its row says."""
        try:
            launch = self.launches.of(config)
        except KernellabError:
            return None
        key = config if self.is_on_gpu else computation_key(config, launch)
        if key not in self._results:
            start_s = self.clock()
            self._results[key] = self._result_of_launch(config, launch)
            self.left_s -= self.clock() - start_s
        return self._results[key]

    def counted_result(self, config: Config) -> T | UnfinishedRun | None:
        """The result of a config, counted as compared or as skipped."""
        result = self.result(config)
        if isinstance(result, UnfinishedRun) and result.status is None:
            self.skipped[result.reason] += 1
        elif result is not None:
            self.compared += 1
        return result

    def _result_of_launch(self, config: Config, launch: KernelLaunch) -> T | UnfinishedRun:
        if self.left_s <= 0:
            return UnfinishedRun("the seconds for it were spent")
        if size_bytes(launch.arguments) > BYTES_AT_MOST:
            return UnfinishedRun(f"the arguments hold more than {BYTES_AT_MOST >> 20} MiB")
        try:
            ran = self.run(config, launch, min(self.timeout_s, self.left_s))
        except OutOfBounds as exc:
            return UnfinishedRun(reason_of(exc), Status.FAULT)
        except KernellabError as exc:
            if self.is_on_gpu:
                return UnfinishedRun(reason_of(exc), status_of(exc))
            return UnfinishedRun("it takes too long on the CPU" if isinstance(exc, WorkerTimeout) else reason_of(exc))
        return ran if isinstance(ran, UnfinishedRun) else self.evaluate(ran)


def computation_key(config: Config, launch: KernelLaunch) -> Any:
    """Return a key of the values that a launch computes, which compiler options do not change."""
    plain = (bool, int, float, str, type(None))
    scalars = tuple((name, value) for name, value in launch.arguments.items() if isinstance(value, plain))
    return config.parameters, launch.grid, launch.before, scalars


def skipped_words(skipped: Mapping[str, int], lead: str = "; not compared: ") -> str:
    """The reasons for missing comparisons as the end of a sentence, with their counts; "" for none."""
    reasons = "; ".join(f"{count}, since {why}" for why, count in skipped.items())
    return f"{lead}{reasons}" if reasons else ""


@dataclass(slots=True)
class ExactCheck(ConfigRuns[str]):
    """Compares configs with the first one that it is given; a result has the differences in words, "" for none."""

    interpret: Interpret = field(kw_only=True)
    unmodelled: set[str] = field(default_factory=set)
    _first: tuple[Config, AlgebraOutcome] | None = None

    def excluded_rows(self, configs: Iterable[Config]) -> dict[Config, Row]:
        """The rows of the configs that are WRONG or at fault, and so need no measurement."""
        rows: dict[Config, Row] = {}
        for config in configs:
            result = self.counted_result(config)
            if isinstance(result, UnfinishedRun):
                if result.status is not None:
                    rows[config] = Row(config, result.status, result.reason)
            elif result:
                rows[config] = Row(config, Status.WRONG, result)
        return rows

    @property
    def note(self) -> str:
        """The number of configs that were compared, and the reasons for the others."""
        first = "the first" if self._first is None else self._first[0].text
        count = plural(self.compared + self.skipped.total(), "config")
        text = f"{self.compared} of {count} compared with {first} without tolerance{skipped_words(self.skipped)}"
        if self.unmodelled:
            text += f"; no proof, since the algebra does not model {', '.join(sorted(self.unmodelled))}"
        return f"{text}."

    def run(self, config: Config, launch: KernelLaunch, timeout_s: float) -> str:
        """Run a config in the algebra, and compare it with the first one."""
        outcome = outcome_of_launch(self.interpret, self.effects(launch.job), launch, timeout_s, self.zeroed)
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


@dataclass(slots=True)
class CpuCheck(ConfigRuns[CheckedStatus]):
    """Compares configs with the reference on copies of their arguments."""

    interpret: Interpret = field(kw_only=True)

    def status_of(self, config: Config) -> CheckedStatus:
        """Return the status of a config with its reason; NOT_TIMED if it cannot be checked.

        Raises:
            UsageError: the reference does not fit the outputs.
        """
        result = self.counted_result(config)
        assert result is not None, "a config that compiles has a launch"
        if not isinstance(result, UnfinishedRun):
            return result
        if result.status is None:
            return Status.NOT_TIMED, f"{NO_GPU}; not checked on the CPU: {result.reason}"
        return result.status, result.reason

    @property
    def note(self) -> str:
        """The number of configs that were compared, and the reasons for the others."""
        total = self.compared + self.skipped.total()
        done = "launched on the CPU, and compared with the reference"
        if not self.skipped:
            return f"All {total} configs that fit were {done}."
        skipped = skipped_words(self.skipped, ". Not checked: ")
        return f"{self.compared} of {total} configs that fit were {done}{skipped}."

    def run(
        self, config: Config, launch: KernelLaunch, timeout_s: float
    ) -> tuple[Mapping[str, Any], Poison] | UnfinishedRun:
        """Launch a config on the CPU; return what it wrote by name, and what its outputs were filled with."""
        if launch.after is not None:
            return UnfinishedRun("its post_hook is called on a GPU alone")
        copies, poisoned = copies_to_launch(launch, self.effects(launch.job), "cpu", zeroed=self.zeroed)
        self.interpret(launch.function, copies.everything, launch.grid, timeout_s)
        poisoned.lift()
        return written_memory(copies), poisoned

    def evaluate(self, ran: tuple[Mapping[str, Any], Poison]) -> CheckedStatus:
        """Compare outputs with the reference."""
        outputs, poisoned = ran
        counted, reference = self.launches.outputs, self.launches.reference
        assert reference is not None, "without a reference, nothing is checked"
        values = {n: value for n, value in reference.of(outputs).items() if counted is None or n in counted}
        checks = compare("the reference", values, outputs, poisoned.unwritten, poisoned.fills)
        wrong = "; ".join(check.text for check in checks if not check.equal)
        return (Status.WRONG, wrong) if wrong else (Status.NOT_TIMED, AGREES)


@dataclass(slots=True)
class BitCheck(ConfigRuns[str]):
    """Groups configs by the bits of their outputs; a result is their digest. ``outputs_of`` runs a config."""

    outputs_of: OutputsOf = field(kw_only=True)
    note: str = ""

    def rows_with_bits(self, rows: Mapping[Config, Row]) -> dict[Config, Row]:
        """The rows with the class of each config in ``bits``, from "A" on; with a reason where it left no outputs."""
        results = {config: self.result(config) for config in rows}
        digests = dict.fromkeys(result for result in results.values() if isinstance(result, str))
        names = {digest: class_name(place) for place, digest in enumerate(digests)}
        return {config: _row_with_bits(row, results[config], names) for config, row in rows.items()}

    def preferred(self, rows: Mapping[Config, Row]) -> dict[Config, Row]:
        """The rows of the largest class, with a note of its size and cost; without classes, all that did not fail."""
        counts = Counter(row.bits for row in rows.values() if row.bits is not None)
        unfinished = {c: result for c in rows if isinstance(result := self.result(c), UnfinishedRun)}
        skipped = skipped_words(Counter(result.reason for result in unfinished.values()))
        if not counts:
            self.note = f"No outputs could be compared bit by bit, so all configs could win{skipped}."
            return {c: row for c, row in rows.items() if c not in unfinished or unfinished[c].status is None}
        name, count = counts.most_common(1)[0]
        chosen = {config: row for config, row in rows.items() if row.bits == name}
        many = "1 class" if len(counts) == 1 else f"{len(counts)} classes"
        where = "on the GPU" if self.is_on_gpu else "on the CPU"
        self.note = f"{count} of {plural(len(rows), 'config')} leave the bits of class {name}, of {many} {where}"
        self.note += f"{skipped}; the winner is one of them. {self._cost(rows, chosen)}"
        return chosen

    def run(self, config: Config, launch: KernelLaunch, timeout_s: float) -> str | UnfinishedRun:
        """Return the digest of a config; on a GPU, where atomics of floats may come in any order, of two launches."""
        digest = self._digest(launch, timeout_s)
        if self.is_on_gpu and self._digest(launch, timeout_s) != digest:
            return UnfinishedRun("two launches leave different bits")
        return digest

    def _digest(self, launch: KernelLaunch, timeout_s: float) -> str:
        """A hash of the outputs of a launch that are compared."""
        outputs = self.outputs_of(launch, self.effects(launch.job), timeout_s, self.zeroed)
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
