"""What whoever watches a tuning is told."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, NoReturn

import pytest
import torch
import triton
import triton.language as tl

from kernellab.errors import RunError
from kernellab.explain.prediction_requests import SnapshotRequest
from kernellab.notebook.live import LiveProgress
from kernellab.target import Target
from kernellab.timing.config import Config
from kernellab.timing.launches import Implementation, Launches
from kernellab.timing.provenance import Device
from kernellab.tune.options import Options
from kernellab.tune.progress import TuningProgress, Watch
from kernellab.tune.result import Row
from kernellab.tune.run_tuning import Environment, tune_launches
from kernellab.tune.verbs import environment_of
from kernellab.workers.forks_and_interrupts import Interrupted
from kernellab.workers.worker import Job
from tests.labs import shared_lab
from tests.notebook.test_live import Bench
from tests.tune.fakes import FakeBench, FakeCompiler, compiled, config, tune

A, B, C, D = config(16), config(32), config(64), config(128)


def test_counts_only_grow_and_the_best_only_gets_better() -> None:
    seen: list[TuningProgress] = []
    bench = FakeBench({A: 3.0, B: RunError("boom"), C: 1.0})
    compiler = FakeCompiler({D: compiled(fits=False)})
    tune([A, B, C, D], bench, compiler=compiler, kernel="softmax", watch=seen.append)
    assert seen[0].stage == "start"
    assert [progress.stage for progress in seen][-2:] == ["final", "done"]
    for name in ("compiled", "measured", "failed"):
        counts = [getattr(progress, name) for progress in seen]
        assert counts == sorted(counts)
    last = seen[-1]
    assert (last.kernel, last.total, last.compiled, last.measured, last.failed) == ("softmax", 4, 4, 3, 2)
    assert last.best == C.text
    assert len(last.times_ms) == 2


def test_what_turns_out_to_differ_from_most_is_not_the_best_and_the_winner_is_at_last() -> None:
    seen: list[TuningProgress] = []
    bench = FakeBench({A: 0.1, B: 1.0, C: 1.0, D: 1.0}, noise=0.001, groups={B: 1, C: 1, D: 1})
    compiler = FakeCompiler({B: compiled(registers=64), C: compiled(registers=48)})
    outcome = tune([A, B, C, D], bench, compiler=compiler, watch=seen.append)
    final, done = seen[-2:]
    assert outcome.winner == D
    assert (final.stage, final.failed) == ("final", 0)
    assert final.best != A.text
    assert (done.best, done.best_ms, done.failed) == (D.text, outcome.rows[D].time_ms, 0)


def test_known_configs_count_as_known() -> None:
    kept: dict[Config, Row] = {}
    tune([A, B], FakeBench({A: 1.0, B: 2.0}), record=lambda rows: kept.update({row.config: row for row in rows}))
    seen: list[TuningProgress] = []
    tune([A, B, C], FakeBench({A: 1.0, B: 2.0, C: 9.0}), known=kept, watch=seen.append)
    assert (seen[-1].total, seen[-1].known, seen[-1].compiled, seen[-1].measured) == (3, 2, 1, 1)


@triton.jit
def scale(x_ptr, out_ptr, n, BLOCK: tl.constexpr):
    offsets = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(out_ptr + offsets, tl.load(x_ptr + offsets, mask=offsets < n) * 2, mask=offsets < n)


@pytest.mark.slow
def test_an_interrupt_keeps_the_best_so_far_while_progress_is_shown() -> None:
    display = Bench()
    live: LiveProgress = display.live()
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]
    first, second, third = map(Config.from_triton, configs)
    device = Device(Target("cuda", 90, 32), "NVIDIA H200", "580.1", {"device": "NVIDIA H200", "triton": "3.9.0"})
    bench = FakeBench({first: 2.0, second: 1.0, third: 3.0})

    @contextmanager
    def progress(kernel: str) -> Iterator[Watch]:
        with live.tuning(kernel) as watch:

            def told(state: TuningProgress) -> None:
                watch(state)
                display.wait(1)
                if state.measured == 2 and state.stage == "screening":
                    raise KeyboardInterrupt

            yield told

    with shared_lab(target="cuda:90", store=":memory:") as lab:
        environment = Environment(lab.compiler, lab.kernels, device, lambda *_: bench, progress=progress)
        tuning = tune_launches(
            environment,
            Launches(scale, (3,), (torch.zeros(300), torch.zeros(300), 300), {}, environment.device.target),
            Options(configs),
        )
    assert "The tuning was interrupted; this is the best so far." in tuning.notes
    assert tuning.winner is not None
    assert display.ticks == []
    assert display.display.shown[-1].text.startswith("scale: 2 of 3 configs tuned")
    assert bench.closed


@pytest.mark.slow
def test_an_interrupt_without_a_gpu_tells_what_was_not_compiled_and_of_no_best() -> None:
    @contextmanager
    def progress(kernel: str) -> Iterator[Watch]:
        def told(state: TuningProgress) -> None:
            if state.compiled == 1 and state.stage == "screening":
                raise KeyboardInterrupt

        yield told

    x = torch.zeros(300)
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128, 256)]
    with shared_lab(target="cuda:90", store=":memory:") as lab:
        lab.launches.tuning_reporter = progress
        tuning = lab.tune(scale, (3,), x, x.clone(), 300, configs=configs)
    assert "The tuning was interrupted; 2 of 3 configs were not compiled." in tuning.notes
    assert not any("best" in note for note in tuning.notes)
    assert tuning.frame.registers.notna().sum() == 1


@pytest.mark.slow
def test_an_interrupt_of_the_predictions_says_how_many_configs_have_none() -> None:
    def predict(implementations: Sequence[Implementation]) -> NoReturn:
        raise KeyboardInterrupt

    x = torch.zeros(300)
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    with shared_lab(target="cuda:90", store=":memory:") as lab:
        environment = replace(environment_of(lab.session()), predict=predict)
        launches = Launches(scale, (3,), (x, x.clone(), 300), {}, environment.device.target)
        tuning = tune_launches(environment, launches, Options(configs))
    assert "The tuning was interrupted; 2 of 2 configs have no predicted time." in tuning.notes
    assert tuning.winner is not None


@pytest.mark.slow
def test_an_interrupt_of_the_snapshot_of_the_winner_costs_no_tuning(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.zeros(300)
    configs = [triton.Config({"BLOCK": block}) for block in (64, 128)]
    with shared_lab(target="cuda:90", store=":memory:") as lab:
        run, interrupted = lab.compiler.pool.run, list[str]()

        def run_others(job: Job[Any, Any], *limits: Any, **more: Any) -> Any:
            if not isinstance(job.payload, SnapshotRequest):
                return run(job, *limits, **more)
            interrupted.append(job.subject)
            raise Interrupted(f"{job.subject} was interrupted.")

        monkeypatch.setattr(lab.compiler.pool, "run", run_others)
        tuning = lab.tune(scale, (3,), x, x.clone(), 300, configs=configs)
        assert len(interrupted) == 1
        assert tuning.is_predicted
        assert len(lab.kernels.store.overview.numbers()) == 1
