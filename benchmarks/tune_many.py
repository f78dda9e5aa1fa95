"""How tuning grows with its list: 10,000 configs take about ten times as long as 1,000, in every part.

The compiler and the GPU are those of the tests, which answer at once: what is left is the lab's own work, in seconds of
the processor. `whole` is a tuning of a real kernel from the call to its result, every config specialized and kept in a
store on disk, `first` how long its first config takes to be measured, and `known` the same tuning once more; `apart` is
a tuning whose configs all leave other outputs. `budget` is ``lab.tune(..., budget_s=0.01)``. The interrupt comes when
the first configs of a list are compiled; the wait for its result is one of the clock on the wall. Ratios above ten are
those of Python's collector, which goes over all objects now and then; without it they are ten.

    python -m benchmarks.tune_many
"""

from __future__ import annotations

import platform
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random as Generator
from typing import Any

import torch
import triton
from tests.tune.test_tuning import DEVICE

import kernellab
from kernellab.compile.types import Compiled
from kernellab.store import Store
from kernellab.store.columns import Status
from kernellab.timing.bench_jobs import NO_GROUP
from kernellab.timing.config import Space
from kernellab.timing.launches import Launches
from kernellab.tune.options import Options
from kernellab.tune.result import Tuning
from kernellab.tune.run_tuning import Environment, tune_launches
from kernellab.tune.search import Random
from kernellab.views.cards.tuning import tuning_card
from tests.samples import scale_kernel
from tests.tune.fakes import Config, FakeBench, FakeCompiler, tune
from tests.tune.test_records import records

COUNTS = (100, 1_000, 10_000)
RESULT = Path(__file__).parent / "results" / "tune_many.txt"


def main() -> None:
    lines = ["$ python -m benchmarks.tune_many", f"Python {platform.python_version()}, Triton {triton.__version__}"]
    lines.append(f"{'':12}{''.join(f'{count:>10,}' for count in COUNTS)}    10,000 over 1,000")
    with kernellab.Lab(store=":memory:") as lab:
        lab.start(wait=True)
        for name, work in parts(lab).items():
            seconds = [work(count) for count in COUNTS]
            shown = "".join(f"{each:>8.2f} s" for each in seconds)
            lines.append(f"{name:12}{shown}    {seconds[-1] / seconds[-2]:.1f} x")
        lines.append(f"an interrupt of 10,000 configs returned after {interrupted(lab):.2f} s")
    text = "\n".join(lines) + "\n"
    RESULT.write_text(text, encoding="utf-8")
    sys.stdout.write(text)


def parts(lab: kernellab.Lab) -> dict[str, Callable[[int], float]]:
    """Return what is measured by name, each a function from the number of configs to seconds."""
    return {
        "first": lambda count: whole(lab, count)[0],
        "whole": lambda count: whole(lab, count)[1],
        "known": lambda count: whole(lab, count)[2],
        "apart": lambda count: taken(lambda: settled(count, groups=dict.fromkeys(configs(count), NO_GROUP))),
        "budget": lambda count: taken(lambda: tune_kernel(lab, count, budget_s=0.01)),
        "timed": lambda count: taken(lambda: settled(count)),
        "untimed": lambda count: taken(lambda: tune(configs(count), None)),
        "random": lambda count: taken(lambda: drawn(count)),
        "store": kept,
        "frame": shown_by(lambda tuning: replace(tuning).frame),
        "text": shown_by(tuning_card),
        "html": shown_by(tuning_card),
    }


def taken(work: Callable[[], Any]) -> float:
    begin = time.process_time()
    work()
    return time.process_time() - begin


def configs(count: int) -> list[Config]:
    return [Config.of({"BLOCK": 64, "num_warps": 4, "num_stages": stages}) for stages in range(1, count + 1)]


@dataclass
class AnswersAtOnce(FakeCompiler):
    """A compiler without workers, which gives one result for all jobs."""

    pool: None = None
    result: Compiled | None = None

    def stream(self, jobs: Sequence[Any], **how: Any) -> Iterator[tuple[int, Any]]:
        for index, make in enumerate(jobs):
            make()
            yield index, self.result


def whole(lab: kernellab.Lab, count: int) -> tuple[float, float, float]:
    """Return the seconds until the first config of a tuning is measured, until its result is there, and once more."""
    first: list[float] = []
    begin = time.process_time()

    @contextmanager
    def watched(kernel: str) -> Iterator[Callable[[Any], None]]:
        yield lambda progress: first.append(time.process_time() - begin) if progress.measured and not first else None

    listed = [triton.Config({"BLOCK": 128}, num_stages=stages) for stages in range(1, count + 1)]
    times = {Config.from_triton(config): 10.0 - 8.0 * place / count for place, config in enumerate(listed)}
    compiler: Any = AnswersAtOnce(result=lab.compile(scale_kernel, torch.ones(100), torch.zeros(100), 100, BLOCK=128))
    with tempfile.TemporaryDirectory() as folder:
        kernels = kernellab.Lab(store=folder)
        environment = Environment(compiler, kernels.kernels, DEVICE, lambda *_: FakeBench(times), progress=watched)
        begin = time.process_time()
        x, out = torch.ones(100), torch.zeros(100)
        tuning = tune_launches(
            environment,
            Launches(lab.bind(scale_kernel), (1,), (x, out, 100), {}, environment.device.target),
            Options(listed),
        )
        assert len(tuning.frame) == count
        seconds = time.process_time() - begin
        begin = time.process_time()
        again = tune_launches(
            environment,
            Launches(lab.bind(scale_kernel), (1,), (x, out, 100), {}, environment.device.target),
            Options(listed),
        )
        assert again.from_cache
        known = time.process_time() - begin
        kernels.close()
    return first[0], seconds, known


def settled(count: int, **more: Any) -> Any:
    """Tune with times, of which one in four is better than all before it, and begin finals while configs compile."""
    listed = configs(count)
    times = {config: 10.0 - 8.0 * place / count + (place % 4) for place, config in enumerate(listed)}
    return tune(listed, FakeBench(times, **more), compiler=FakeCompiler(dawdles=True), options=Options(finals_s=1e9))


def drawn(count: int) -> None:
    search = Random(Space(BLOCK=range(count // 4), num_stages=[1, 2, 3, 4]), count, Generator(0))
    while search.ask():
        pass


def kept(count: int) -> float:
    rows = [row for row in settled(count).rows.values() if row.status is Status.OK]
    with tempfile.TemporaryDirectory() as folder:
        store = Store(Path(folder))
        begin = time.process_time()
        entries = records(store)
        for row in rows:
            entries.add([row])
        assert len(entries.latest_rows()) == len(rows)
        seconds = time.process_time() - begin
        store.close()
    return seconds


def result(count: int) -> Tuning:
    outcome = settled(count)
    rows = tuple(outcome.rows.values())
    return Tuning("scale", rows, (None,) * count, list(outcome.rows).index(outcome.winner), (), 1.0, False)


def shown_by(view: Callable[[Tuning], Any]) -> Callable[[int], float]:
    def seconds(count: int) -> float:
        tuning = result(count)
        tuning.frame  # noqa: B018 - measured by itself
        return taken(lambda: view(tuning))

    return seconds


def tune_kernel(lab: kernellab.Lab, count: int, **options: Any) -> Tuning:
    x, out = torch.ones(100), torch.zeros(100)
    listed = [triton.Config({"BLOCK": 128}, num_stages=stages) for stages in range(1, count + 1)]
    return lab.tune(scale_kernel, (1,), x, out, 100, configs=listed, **options)


def interrupted(lab: kernellab.Lab) -> float:
    """Return the seconds from an interrupt, which comes once five configs are compiled, until there is a result."""
    sent: list[float] = []

    @contextmanager
    def watched(kernel: str) -> Iterator[Callable[[Any], None]]:
        yield lambda progress: interrupt() if progress.compiled == 5 and not sent else None

    def interrupt() -> None:
        sent.append(time.perf_counter())
        signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)

    lab.launches.tuning_reporter = watched
    tune_kernel(lab, COUNTS[-1])
    return time.perf_counter() - sent[0]


if __name__ == "__main__":
    main()
