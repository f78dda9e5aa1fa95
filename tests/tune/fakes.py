"""A compiler and a bench that need neither Triton nor a GPU: what they answer is written down per config."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, cast

from kernellab.checking.comparison import OutputDifference
from kernellab.checking.reference import Reference
from kernellab.compile.types import Compiled, CompileJob, Resources
from kernellab.errors import KernellabError
from kernellab.ir.effects import Effects
from kernellab.ir.graph import Block, Function, Graph, Location, Operation, Region, StoredGraph
from kernellab.target import Target
from kernellab.timing.bench import measure_singly
from kernellab.timing.bench_jobs import NOT_COMPARED, LaunchTimes
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation, KernelLaunch, Launches
from kernellab.tune.device_pool import DevicePool
from kernellab.tune.options import Options
from kernellab.tune.result import Agreement, Row
from kernellab.tune.search import Exhaustive, Search
from kernellab.tune.tuner import Tuner
from tests.kernels.elementwise import add_kernel

TARGET = Target("cuda", 90, 32)
DIFFERENCE = OutputDifference("out", 3, 8, 0.5)

_GRAPH = Graph(  # a kernel that only returns
    (Function("kernel", 0, (), (), is_kernel=True, noinline=False),),
    (Operation(0, "tt.return", (), (), (), (), (), Location(), 0),),
    (),
    (Block(0, 0, (), (0,), ()),),
    (Region(0, None, (0,)),),
)


def config(block: int, warps: int = 4) -> Config:
    return Config.of({"BLOCK": block, "num_warps": warps})


def compiled(*, registers: int = 32, spill_bytes: int = 0, fits: bool = True) -> Compiled:
    why_not = None if fits else "it needs 400,000 bytes of shared memory and cuda:90 has 232,448"
    resources = Resources(registers, spill_bytes, spill_bytes, 1024, 128, 0.5, "registers", fits, why_not)
    return Compiled(
        "kernel", TARGET, (), {}, resources, 0.25, {}, Effects((), ()), StoredGraph(_GRAPH), Path(), "digest"
    )


def candidate_of(launched: Config, index: int = 0, **more: Any) -> Implementation:
    """Return a compiled config without a launch; ``more`` is what is known otherwise of the compiled kernel."""
    return Implementation(f"copy ({launched.text})", None, replace(compiled(), **more), None, launched, index)


@dataclass(slots=True)
class Clock:
    """A clock that moves only when it is told to."""

    now_s: float = 0.0

    def __call__(self) -> float:
        return self.now_s


@dataclass(slots=True)
class FakeBench:
    """Times configs as written down, with noise; an exception in place of a time is raised.

    ``groups`` gives the group of outputs of a config, 0 where none is given; each launch takes a second of ``clock``.
    ``differences`` are what the outputs of some configs differ in from a reference.
    """

    times_ms: Mapping[Config, float | BaseException]
    clock: Clock = field(default_factory=Clock)
    noise: float = 0.002
    groups: Mapping[Config, int] = field(default_factory=dict)
    differences: Mapping[Config, str] = field(default_factory=dict)
    launches: list[Config] = field(default_factory=list)
    measured: list[Config] = field(default_factory=list)
    compared: list[tuple[Config, ...]] = field(default_factory=list)
    batches: list[list[Config]] = field(default_factory=list)
    closed: bool = False
    ready: int = 0
    rng: random.Random = field(default_factory=lambda: random.Random(3))

    def get_ready(self) -> None:
        self.ready += 1

    def measure(self, candidate: Implementation, runs: int, stop_above_ms: float | None) -> LaunchTimes:
        self.measured.append(candidate.config)
        if candidate.config in self.differences:
            return LaunchTimes((), 1, self.differences[candidate.config])
        times: list[float] = []
        while len(times) < runs:
            times.append(self._launch(candidate.config))
            if stop_above_ms is not None and len(times) == 2 and min(times) > stop_above_ms:
                break
        return LaunchTimes(tuple(times), self.groups.get(candidate.config, 0))

    def measure_all(
        self, candidates: Sequence[Implementation], runs: int, stop_above_ms: float | None, loser_factor: float
    ) -> list[LaunchTimes | KernellabError]:
        self.batches.append([candidate.config for candidate in candidates])
        return measure_singly(self, candidates, runs, stop_above_ms)

    def compare(
        self, candidate: Implementation, others: Sequence[Implementation]
    ) -> list[tuple[OutputDifference, ...]]:
        self.compared.append((candidate.config, *(other.config for other in others)))
        found = []
        for other in others:
            differ = self.groups.get(candidate.config, 0) != self.groups.get(other.config, 0)
            found.append((DIFFERENCE,) if differ or self.groups.get(other.config) == NOT_COMPARED else ())
        return found

    def interleave(self, candidates: Sequence[Implementation], rounds: int) -> list[tuple[float, ...]]:
        return [tuple(self._launch(candidate.config) for _ in range(rounds)) for candidate in candidates]

    def warm(self, candidates: Sequence[Implementation], runs: int) -> list[float]:
        return [self._launch(candidate.config) / 2 for candidate in candidates]

    def close(self) -> None:
        self.closed = True

    def _launch(self, launched: Config) -> float:
        self.launches.append(launched)
        self.clock.now_s += 1.0
        answer = self.times_ms[launched]
        if isinstance(answer, BaseException):
            raise answer
        return answer * (1 + abs(self.rng.gauss(0, self.noise)))


@dataclass(slots=True)
class FakeCompiler:
    """Answers with what is written down per config, in the order given; ``refusal`` meets every config before that.

    One that ``dawdles`` has nothing to yield for as long as those who wait find something to do.
    """

    results: Mapping[Config, Compiled | KernellabError | KeyboardInterrupt] = field(default_factory=dict)
    refusal: KernellabError | None = None
    compiled: list[Config] = field(default_factory=list)
    stopped: bool = False
    dawdles: bool = False
    early_batches: int = 0

    def prepare(self, wanted: Config) -> CompileJob:
        if self.refusal is not None:
            raise self.refusal
        return wanted  # type: ignore[return-value]  # a job stands for its config

    def _made(self, source: Any) -> Any:
        try:
            return source()
        except KernellabError as exc:
            return exc

    def stream(
        self, jobs: Sequence[Any], *, from_both_ends: bool = False, idle: Callable[[], bool] | None = None
    ) -> Iterator[tuple[int, Compiled | KernellabError]]:
        try:
            for index, source in enumerate(jobs):
                while self.dawdles and idle is not None and idle():
                    self.early_batches += 1
                job = self._made(source)
                if isinstance(job, KernellabError):
                    yield index, job
                    continue
                self.compiled.append(job)
                result = self.results.get(job) or compiled()
                if isinstance(result, KeyboardInterrupt):
                    raise result
                yield index, result
        except GeneratorExit:
            self.stopped = True
            raise


class InListOrder(Options):
    """Options of a tuning that compiles configs in the order in which they are asked for."""

    compiles_longest_first = False


class FakeLaunches(Launches):
    """Launches whose job is their config itself; a refusal of the compiler is raised in place of one."""

    def __init__(self, configs: Sequence[Config], compiler: FakeCompiler, name: str, reference: str) -> None:
        super().__init__(add_kernel, (1,), (), {}, TARGET)
        self.compiler, self.label = compiler, name
        self.originals, self.listed = dict.fromkeys(configs), ()
        self.reference = Reference("it", (), reference) if reference else None

    @property
    def name(self) -> str:
        return self.label

    def of(self, config: Any, original: Any = None) -> KernelLaunch:
        return KernelLaunch(self.compiler.prepare(config), None, {}, (1, 1, 1), (), None, {})

    def original(self, config: Config) -> Any:
        return config


@dataclass(slots=True)
class FakeRecords:
    """Takes rows as the store does."""

    add: Callable[[Sequence[Row]], None] = lambda rows: None


@dataclass(frozen=True, slots=True)
class Outcome:
    """A tuning by configs in place of their indices."""

    rows: Mapping[Config, Row]
    winner: Config | None
    ties: tuple[Config, ...]
    from_cache: bool
    interrupted: bool
    agreement: Agreement | None


def tune(
    configs: Sequence[Config],
    bench: FakeBench | DevicePool | None,
    *,
    compiler: FakeCompiler | None = None,
    search: Search | None = None,
    options: Options | None = None,
    kernel: str = "copy",
    reference: str = "",
    record: Callable[[Sequence[Row]], None] = lambda rows: None,
    longest_first: bool = False,
    **more: Any,
) -> Outcome:
    """Run a tuner on fakes."""
    compiler, options = compiler or FakeCompiler(), options or Options(finals_s=1e9)
    if not longest_first:
        options = InListOrder(**{field.name: getattr(options, field.name) for field in fields(options)})
    tuning = Tuner(
        launches=FakeLaunches(configs, compiler, kernel, reference),
        options=options,
        search=search or Exhaustive(configs),
        compiler=cast(Any, compiler),
        pool=DevicePool((lambda: bench,)) if isinstance(bench, FakeBench) else bench,
        records=cast(Any, FakeRecords(record)),
        clock=bench.clock if isinstance(bench, FakeBench) else Clock(),
        **more,
    ).run()
    configs = [row.config for row in tuning.rows]
    return Outcome(
        rows=dict(zip(configs, tuning.rows, strict=True)),
        winner=None if tuning.winner is None else configs[tuning.winner],
        ties=tuple(configs[index] for index in tuning.ties),
        from_cache=tuning.from_cache,
        interrupted=tuning.is_interrupted,
        agreement=tuning.agreement,
    )
