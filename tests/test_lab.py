from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.runtime.autotuner import Autotuner
from triton.runtime.jit import JITFunction

import kernellab
from kernellab.errors import CheckFailed, LaunchError, OutOfBounds, UnknownTarget, UsageError, WorkerTimeout
from kernellab.ir.operations import Access
from kernellab.target import parse_target
from kernellab.views.cards.results import run_card
from tests import samples
from tests.alone import run_with_lab
from tests.labs import shared_lab

N = 300


def tensors() -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
    return torch.rand(N), torch.rand(N), torch.zeros(N)


def grid(meta: dict[str, Any]) -> tuple[int]:
    return (triton.cdiv(N, meta["BLOCK"]),)


def test_a_bound_kernel_is_a_triton_kernel_and_leaves_the_original_alone(lab: kernellab.Lab) -> None:
    bound = lab.bind(samples.add_kernel)
    assert isinstance(bound, JITFunction)
    assert type(samples.add_kernel) is JITFunction
    assert bound.fn is samples.add_kernel.fn
    assert lab.bind(samples.add_kernel) is bound
    assert lab.bind(bound) is bound


def test_a_bound_autotuner_is_an_autotuner_over_a_bound_kernel(lab: kernellab.Lab) -> None:
    bound = lab.bind(samples.tuned_kernel)
    assert isinstance(bound, Autotuner)
    assert isinstance(bound.fn.fn, JITFunction)
    assert bound.fn.fn is not samples.tuned_kernel.fn.fn


def test_a_bound_kernel_can_be_the_helper_of_a_plain_one(lab: kernellab.Lab) -> None:
    bound = lab.bind(samples.doubled)
    x, _, out = tensors()
    lab.run(samples.kernel_of(bound), (1,), x, out, BLOCK=256)
    torch.testing.assert_close(out[:256], 2 * x[:256])


def test_a_launch_returns_the_compiled_kernel_of_triton(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    handle = lab.bind(samples.add_kernel)[grid](x, y, out, N, BLOCK=128)
    torch.testing.assert_close(out, x + y)
    assert type(handle).__name__ == "CompiledKernel"
    assert handle.metadata.num_warps == 4
    assert handle.n_regs == lab.compile(samples.add_kernel, x, y, out, N, BLOCK=128).resources.registers
    assert "tt.store" in handle.asm["ttir"]


@pytest.mark.parametrize("shape", [grid, (3,), (3, 1), [3, 1, 1], lambda meta: (3,)])
def test_grids_of_every_form_launch(lab: kernellab.Lab, shape: Any) -> None:
    x, y, out = tensors()
    lab.bind(samples.add_kernel)[shape](x, y, out, N, BLOCK=128)
    torch.testing.assert_close(out, x + y)


@pytest.mark.parametrize(
    ("shape", "message"),
    [
        ((-1,), "cannot be negative"),
        ((1, 1, 1, 1), "one to three"),
        (("a",), "must be integers"),
        ((1.5,), "triton.cdiv"),
        (lambda meta: Exception("x" * 5000), "is a Exception; expected one to three"),
    ],
)
def test_a_grid_that_is_none_is_refused(lab: kernellab.Lab, shape: Any, message: str) -> None:
    with pytest.raises(LaunchError, match=message):
        lab.bind(samples.add_kernel)[shape](*tensors(), N, BLOCK=128)


def test_a_lab_tells_its_target_and_its_store(tmp_path: Path) -> None:
    with kernellab.Lab("cuda:80", store=tmp_path) as lab:
        assert repr(lab).startswith(f"<Lab for cuda:80, which keeps its kernels in {tmp_path}")


def test_the_workers_of_a_new_kernel_start_before_the_driver_is_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    steps = []

    def ask_driver() -> None:
        steps.append("driver")
        raise UsageError("asked")

    monkeypatch.setattr("kernellab.workers.worker.Pool.start", lambda pool: steps.append("compile workers"))
    monkeypatch.setattr("kernellab.gpu.trial.GpuTrials.start_process", lambda trials: steps.append("GPU worker"))
    monkeypatch.setattr("kernellab.lab.workspace.gpu_target_of_machine", ask_driver)
    with kernellab.Lab(store=":memory:") as lab, pytest.raises(UsageError, match="asked"):
        lab.tune(samples.tuned_kernel, grid, *tensors(), N)
    assert steps == ["compile workers", "GPU worker", "driver"]


@pytest.mark.parametrize("target", [None, "cuda:80"])
def test_a_lab_for_another_target_than_that_of_the_gpu_starts_no_worker_on_the_gpu(
    monkeypatch: pytest.MonkeyPatch, target: str | None
) -> None:
    steps = []
    monkeypatch.setattr("kernellab.gpu.trial.GpuTrials.start_process", lambda trials: steps.append("process"))
    monkeypatch.setattr("kernellab.gpu.trial.GpuTrials.prepare", lambda trials: steps.append("context"))
    monkeypatch.setattr("kernellab.lab.workspace.gpu_target_of_machine", lambda: parse_target("cuda:90"))
    with kernellab.Lab(target, store=":memory:") as lab:
        lab._start_workers_for(samples.tuned_kernel, compiling=False)
    assert steps == (["process", "context"] if target is None else [])


def test_what_tunings_need_is_imported_once_the_gpu_worker_is_ready(monkeypatch: pytest.MonkeyPatch) -> None:
    steps, is_ready = [], threading.Event()
    starting = threading.Thread(target=lambda: (is_ready.wait(60), steps.append("worker")))
    starting.start()
    monkeypatch.setattr("kernellab.workers.worker.Pool.start", lambda pool: None)
    monkeypatch.setattr("kernellab.workers.worker.Pool.wait_ready", lambda pool, timeout_s: None)
    monkeypatch.setattr("kernellab.gpu.trial.GpuTrials.prepare", lambda trials: starting)
    monkeypatch.setattr("kernellab.lab.workspace.gpu_target_of_machine", lambda: parse_target("cuda:90"))
    monkeypatch.setattr("kernellab.lab.workspace._WARM_UP_STEPS", (lambda: steps.append("imports"),))
    with kernellab.Lab(store=":memory:") as lab:
        threading.Timer(0.2, is_ready.set).start()
        lab.start(wait=True)
    assert steps == ["worker", "imports"]


@pytest.mark.parametrize("has_gpu", [False, True])
def test_the_server_of_workers_imports_the_interpreter_ahead_where_there_is_no_gpu(
    monkeypatch: pytest.MonkeyPatch, has_gpu: bool
) -> None:
    monkeypatch.setattr("kernellab.interpreter.runner.has_gpu_device", lambda: has_gpu)
    with kernellab.Lab(store=":memory:") as lab:
        assert ("kernellab.interpreter.worker" in lab._pool.server.modules) is not has_gpu
        x, y, out = tensors()
        lab.bind(samples.add_kernel)[grid](x, y, out, N, BLOCK=64)
        assert torch.equal(out, x + y)


@pytest.mark.parametrize("shape", [(2**31,), (1, 70000), (1, 1, 65536)])
def test_a_grid_that_no_gpu_launches_is_refused_without_one_too(lab: kernellab.Lab, shape: Any) -> None:
    with pytest.raises(LaunchError, match="CUDA launches at most"):
        lab.bind(samples.add_kernel)[shape](*tensors(), N, BLOCK=128)


@pytest.mark.parametrize("verb", ["traffic", "explain", "profile"])
@pytest.mark.parametrize(("shape", "message"), [(2**31, "CUDA launches at most"), (10**30, "more than 64 bits")])
def test_a_grid_that_no_gpu_launches_is_refused_where_nothing_runs(
    lab: kernellab.Lab, verb: str, shape: int, message: str
) -> None:
    with pytest.raises(LaunchError, match=message):
        getattr(lab, verb)(samples.add_kernel, shape, *tensors(), N, BLOCK=128)


@pytest.mark.parametrize("verb", ["run", "tune", "bench", "explore"])
def test_a_missing_grid_is_told_from_a_missing_argument(lab: kernellab.Lab, verb: str) -> None:
    more = {"over": {"n": [N]}} if verb == "bench" else {}
    with pytest.raises(UsageError, match=rf"The grid is missing: lab\.{verb} got a Tensor instead"):
        getattr(lab, verb)(samples.add_kernel, *tensors(), N, BLOCK=128, **more)


def test_an_empty_grid_launches_nothing_and_says_so(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    run = lab.run(samples.add_kernel, (0,), x, y, out, N, BLOCK=128)
    assert not out.any()
    assert run.notes == ("the grid is empty: nothing was launched",)


def test_an_exception_of_the_grid_function_comes_through_as_itself(lab: kernellab.Lab) -> None:
    def failing(meta: dict[str, Any]) -> tuple[int]:
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine") as caught:
        lab.bind(samples.add_kernel)[failing](*tensors(), N, BLOCK=128)
    assert not isinstance(caught.value, kernellab.KernellabError)
    assert caught.traceback[-1].name == "failing"


def test_a_run_says_which_outputs_match_its_reference(lab: kernellab.Lab) -> None:
    x, y, out = (torch.ones(64) for _ in range(3))
    run = lab.run(samples.add_kernel, (1,), x, y, out, 64, BLOCK=64, check=lambda x_ptr, y_ptr: x_ptr + y_ptr)
    assert run.matches == "out_ptr matches the expression; max error 0"
    assert run.matches in run_card(run).text()
    assert not lab.run(samples.add_kernel, (1,), x, y, out, 64, BLOCK=64).matches


def test_run_says_what_changed(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    run = lab.run(samples.add_kernel, grid, x, y, out, N, BLOCK=128)
    assert run.changed == {"x_ptr": 0, "y_ptr": 0, "out_ptr": N}
    assert (run.where, run.grid, run.findings) == ("interpreter", (3, 1, 1), ())
    assert run.seconds > 0


def test_who_watches_a_launch_is_told_of_its_end() -> None:
    told: list[tuple[str, object]] = []

    @contextmanager
    def watch(kernel: str, programs: int) -> Iterator[Callable[[object], None]]:
        told.append((kernel, programs))
        yield lambda progress: None
        told.append((kernel, "ended"))

    x, y, out = tensors()
    with shared_lab("cuda:90", ":memory:") as watched:
        watched.launches.reporter = watch
        watched.bind(samples.add_kernel)[(3, 1)](x, y, out, N, BLOCK=128)
    assert told == [("add_kernel", 3), ("add_kernel", "ended")]


def test_an_access_out_of_bounds_changes_nothing_and_the_next_launch_works(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    with pytest.raises(OutOfBounds, match="x_ptr") as caught:
        lab.run(samples.add_kernel, (4,), x, y, out, 512, BLOCK=128)
    assert caught.value.place is not None
    assert caught.value.place.source_line().strip() == "x = tl.load(x_ptr + offsets, mask=mask)"
    assert not out.any()
    lab.run(samples.add_kernel, (3,), x, y, out, N, BLOCK=128)
    torch.testing.assert_close(out, x + y)


def interrupting(kernel: str, programs: int) -> nullcontext[None]:
    """Interrupt this process soon after a launch on the CPU began."""
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    return nullcontext()


@pytest.mark.slow
def test_an_endless_launch_is_stopped_and_the_next_one_works(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    with pytest.raises(WorkerTimeout, match=r"endless_kernel .*did not finish within 1 s"):
        lab.run(samples.endless_kernel, (1,), x, timeout_s=1)
    lab.run(samples.add_kernel, (3,), x, y, out, N, BLOCK=128)
    torch.testing.assert_close(out, x + y)


@pytest.mark.slow
def test_an_interrupt_stops_a_launch_and_the_next_one_works(
    lab: kernellab.Lab, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, y, out = tensors()
    lab.run(samples.add_kernel, (3,), x, y, out, N, BLOCK=128)
    before = x.clone()
    monkeypatch.setattr(lab.launches, "reporter", interrupting)
    with pytest.raises(KeyboardInterrupt):
        lab.run(samples.endless_kernel, (1,), x)
    monkeypatch.undo()
    assert torch.equal(x, before)
    lab.run(samples.add_kernel, (3,), x, y, out, N, BLOCK=128)
    torch.testing.assert_close(out, x + y)


@pytest.mark.slow
def test_a_changed_global_constexpr_is_compiled_anew() -> None:
    @triton.jit
    def shifted(x_ptr, BLOCK: tl.constexpr):
        offsets = tl.arange(0, BLOCK)
        tl.store(x_ptr + offsets, tl.load(x_ptr + offsets) + SHIFT)

    with shared_lab(store=":memory:") as lab:
        bound, x = lab.bind(shifted), torch.zeros(16)
        globals()["SHIFT"] = tl.constexpr(1)
        bound[(1,)](x, BLOCK=16)
        globals()["SHIFT"] = tl.constexpr(10)
        handle = bound[(1,)](x, BLOCK=16)
    assert x.tolist() == [11.0] * 16
    assert "1.000000e+01" in handle.asm["ttir"]


SHIFT = tl.constexpr(0)


def test_an_autotuned_kernel_takes_the_first_config_that_fits(lab: kernellab.Lab) -> None:
    x, _, out = tensors()
    bound = lab.bind(samples.tuned_kernel)
    bound[grid](x, out, N)
    torch.testing.assert_close(out, x)
    assert bound.best_config.kwargs == {"BLOCK": 64}


@pytest.mark.slow
def test_plain_triton_runs_while_a_lab_is_open(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    lab.launches.activate()
    handle = samples.add_kernel[(3,)](x, y, out, N, BLOCK=128)
    torch.testing.assert_close(out, x + y)
    assert handle.n_regs > 0


@pytest.mark.slow
def test_too_much_shared_memory_is_refused_offline_as_on_the_device(lab: kernellab.Lab) -> None:
    x, out = torch.zeros(2**18, dtype=torch.float16), torch.zeros(2**18)
    resources = lab.compile(samples.greedy, x, out, N=128, M=1024, num_warps=8).resources
    assert not resources.fits
    assert resources.why_not is not None
    assert "cuda:90 has 232,448" in resources.why_not
    with pytest.raises(kernellab.errors.CannotRun, match="shared memory"):
        lab.run(samples.greedy, (1,), x, out, N=128, M=1024, num_warps=8)


@pytest.mark.slow
def test_clusters_larger_than_any_gpu_takes_do_not_fit(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    assert lab.compile(samples.add_kernel, x, y, out, N, BLOCK=1024, num_ctas=16).resources.fits
    assert "clusters have 32 blocks" in str(
        lab.compile(samples.add_kernel, x, y, out, N, BLOCK=1024, num_ctas=32).resources.why_not
    )
    with pytest.raises(kernellab.errors.CannotRun, match="lower num_ctas"):
        lab.run(samples.add_kernel, (3,), x, y, out, N, BLOCK=1024, num_ctas=32)


@pytest.mark.slow
def test_the_target_can_be_chosen_and_changed() -> None:
    with shared_lab("cuda:80", ":memory:") as lab:
        x, y, out = tensors()
        assert str(lab.compile(samples.add_kernel, x, y, out, N, BLOCK=64).target) == "cuda:80"
        lab.use_target("hip:gfx942")
        handle = lab.bind(samples.add_kernel)[grid](x, y, out, N, BLOCK=64)
        assert "amdgcn" in handle.asm
        torch.testing.assert_close(out, x + y)


@pytest.mark.slow
def test_labs_of_two_targets_in_one_process_keep_their_own_limits() -> None:
    x, out = torch.zeros(2**16, dtype=torch.float16), torch.zeros(2**11)
    for target, fits in (("hip:gfx942", False), ("cuda:90", True)):
        with shared_lab(target, ":memory:") as lab:
            assert lab.compile(samples.greedy, x, out, N=128, M=512, num_warps=8).resources.shared_bytes > 65_536
            if fits:
                lab.run(samples.greedy, (1,), x, out, N=128, M=512, num_warps=8)
                continue
            with pytest.raises(kernellab.errors.CannotRun, match="65,536"):
                lab.run(samples.greedy, (1,), x, out, N=128, M=512, num_warps=8)


def test_an_unknown_target_is_refused_at_once() -> None:
    with pytest.raises(UnknownTarget, match="'tpu'"):
        kernellab.Lab(target="tpu", store=":memory:")


def test_sites_say_what_and_where(lab: kernellab.Lab) -> None:
    effects = lab.effects(samples.add_kernel, *tensors(), N, BLOCK=64)
    found = {(site.argument, site.kind) for site in effects.sites}
    assert found == {("x_ptr", Access.READ), ("y_ptr", Access.READ), ("out_ptr", Access.WRITE)}
    assert all(site.masked for site in effects.sites)


def test_a_graph_can_be_drawn(lab: kernellab.Lab) -> None:
    from kernellab.views.graph import svg

    assert "<svg" in svg(lab.graph(samples.add_kernel, *tensors(), N, BLOCK=64))


@pytest.mark.slow
def test_workers_end_with_the_process_that_started_them(tmp_path: Path) -> None:
    text = (
        "import os, torch, kernellab\nfrom tests import samples\n"
        "lab = kernellab.Lab(store=':memory:')\nlab.start(wait=True)\n"
        "print(*[worker.pid for worker in lab._pool.workers], flush=True)\nos._exit(0)\n"
    )
    result = run_with_lab(text, folder=Path(__file__).parents[1])
    pids = [int(pid) for pid in result.stdout.split()]
    assert pids, result.stderr
    for pid in pids:
        _wait_until_gone(pid)


def _wait_until_gone(pid: int) -> None:
    """Wait at most a minute: a worker that still imports torch sees the closed pipe only after that."""
    status = Path(f"/proc/{pid}/status")
    for _ in range(600):
        try:
            text = status.read_text()
        except (FileNotFoundError, ProcessLookupError):  # it may end while it is read
            return
        if "State:\tZ" in text:
            return
        time.sleep(0.1)
    pytest.fail(f"process {pid} still runs")


def test_arguments_named_uninitialised_count_as_never_written(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    clean = lab.run(samples.add_kernel, grid, x, y, out, N, BLOCK=128, uninitialised=("out_ptr",))
    assert clean.findings == ()
    found = lab.run(samples.add_kernel, grid, x, y, out, N, BLOCK=128, uninitialised=("y_ptr",)).findings
    assert [(f.kind, f.argument) for f in found] == [("uninitialised_read", "y_ptr")]


def test_an_empty_grid_of_a_plain_launch_warns(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    with pytest.warns(UserWarning, match=r"add_kernel: the grid \(0, 1, 1\) is empty; nothing was launched"):
        lab.bind(samples.add_kernel)[(0,)](x, y, out, N, BLOCK=128)
    assert not out.any()


@pytest.mark.parametrize("launches", [0, 4])
def test_an_empty_grid_warns_at_the_line_of_the_launch(lab: kernellab.Lab, launches: int) -> None:
    x, y, out = tensors()
    configs = [triton.Config({"BLOCK": 128})]
    for kernel, meta in (
        (lab.bind(samples.add_kernel), {"BLOCK": 128}),
        (lab.bind(triton.autotune(configs, key=["n"])(samples.add_kernel)), {}),
    ):
        for _ in range(launches):
            kernel[(1,)](x, y, out, N, **meta)
        with pytest.warns(UserWarning, match="is empty; nothing was launched") as seen:
            kernel[(0,)](x, y, out, N, **meta)
        assert [w.filename for w in seen if "is empty" in str(w.message)] == [__file__]


def test_a_call_without_a_grid_says_how_to_launch(lab: kernellab.Lab) -> None:
    with pytest.raises(LaunchError, match=r"launch it with add_kernel\[grid\]\(\.\.\.\)"):
        lab.bind(samples.add_kernel)(*tensors(), N, BLOCK=128)


def test_a_misspelt_argument_is_pointed_at(lab: kernellab.Lab) -> None:
    with pytest.raises(LaunchError, match=r"launched without BLOCK; is BLOK a misspelling\?"):
        lab.bind(samples.add_kernel)[(3,)](*tensors(), N, BLOK=128)


def test_an_array_of_another_library_is_named(lab: kernellab.Lab) -> None:
    x, y, out = tensors()
    with pytest.raises(LaunchError, match=r"x_ptr is of type numpy\.ndarray\. Pass tensors"):
        lab.bind(samples.add_kernel)[(3,)](x.numpy(), y, out, N, BLOCK=128)


@pytest.mark.slow
def test_a_run_is_compared_with_a_reference_of_the_arguments_as_they_were(lab: kernellab.Lab) -> None:
    x, out = torch.arange(8.0), torch.zeros(8)
    given = (samples.scale_kernel, (1,), x, out, 8)
    assert lab.run(*given, BLOCK=8, check=lambda x_ptr: 3 * x_ptr + 3).changed["out_ptr"] == 8
    assert lab.run(*given, BLOCK=8, check="out_ptr").changed["out_ptr"] == 0, "what it held before is what it holds"
    with pytest.raises(CheckFailed, match=r"out_ptr of scale_kernel differs from 2 \* x_ptr: 8 of 8 elements"):
        lab.run(*given, BLOCK=8, check="2 * x_ptr")
    with pytest.raises(UsageError, match="check takes y_ptr"):
        lab.run(*given, BLOCK=8, check="y_ptr")
