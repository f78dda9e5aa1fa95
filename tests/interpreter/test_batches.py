"""Programs that run in batches leave and report what they do one by one; `BothWays` compares each launch."""

from __future__ import annotations

import contextlib
import importlib.util
import random
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import triton
import triton.language as tl
from triton.tools.tensor_descriptor import TensorDescriptor

from kernellab.errors import RunError
from kernellab.interpreter.language import checked_builder
from kernellab.interpreter.runner import Interpreter
from kernellab.launch.run import Run
from kernellab.workers.worker import Job
from tests.interpreter import workloads

Launch = Callable[..., Run]


def kernels_that_ran_one_by_one(payload: None, progress: object) -> frozenset[str]:
    return frozenset(function.__name__ for function in checked_builder().unbatchable)


def forget_kernels(payload: None, progress: object) -> None:
    checked_builder().unbatchable.clear()


def begin_measuring_memory(payload: None, progress: object) -> None:
    tracemalloc.start()


def most_memory(payload: None, progress: object) -> int:
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def ran_in_batches(interpreter: Interpreter, kernel: Any) -> bool:
    one_by_one = interpreter.worker.run(Job(kernels_that_ran_one_by_one, None, "the question"), 60.0)
    return kernel.fn.__name__ not in one_by_one


def floats(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(shape, generator=torch.Generator().manual_seed(seed))


@triton.jit
def tiles(a, b, c, M, N, K, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BLOCK_K: tl.constexpr, GROUP: tl.constexpr):
    """A matrix product with the order of programs of Triton's tutorial."""
    pid, rows, columns = tl.program_id(0), tl.cdiv(M, BLOCK_M), tl.cdiv(N, BLOCK_N)
    first = pid // (GROUP * columns) * GROUP
    size = min(rows - first, GROUP)
    m = (first + pid % (GROUP * columns) % size) * BLOCK_M + tl.arange(0, BLOCK_M)
    n = pid % (GROUP * columns) // size * BLOCK_N + tl.arange(0, BLOCK_N)
    total = tl.zeros((BLOCK_M, BLOCK_N), tl.float32)
    for start in range(0, K, BLOCK_K):
        k = start + tl.arange(0, BLOCK_K)
        x = tl.load(a + (m % M)[:, None] * K + k[None, :], mask=k[None, :] < K, other=0.0)
        y = tl.load(b + k[:, None] * N + (n % N)[None, :], mask=k[:, None] < K, other=0.0)
        total = tl.dot(x, y, total)
    tl.store(c + m[:, None] * N + n[None, :], total, mask=(m[:, None] < M) & (n[None, :] < N))


@triton.jit
def causal_sums(x, out, N: tl.constexpr):
    """Each program has its own number of rounds, as with a causal mask; eight have the same."""
    pid, offs = tl.program_id(0), tl.arange(0, N)
    total = tl.zeros((N,), tl.float32)
    for block in range(pid // 8 + 1):
        total += tl.load(x + block * N + offs)
    tl.store(out + pid * N + offs, total)


@triton.jit
def in_place(x, n, BLOCK: tl.constexpr):
    offs = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.store(x + offs, tl.load(x + offs, mask=offs < n) * 2 + 1, mask=offs < n)
    tl.store(x + offs, tl.load(x + offs, mask=offs < n) * 3, mask=offs < n)


@triton.jit
def tickets(counter, out, x, N: tl.constexpr):
    """Each program takes a number, and adds its part to a sum of floats, whose order decides the last bits."""
    pid, offs = tl.program_id(0), tl.arange(0, N)
    tl.store(out + pid, tl.atomic_add(counter, 1))
    tl.atomic_add(x + offs % 4, tl.load(x + 4 + pid * N + offs))


@triton.jit
def sum_and_ticket(counter, out, x, N: tl.constexpr):
    pid, offs = tl.program_id(0), tl.arange(0, N)
    tl.store(out + pid, tl.atomic_add(counter, 1))
    tl.atomic_add(counter + 1 + offs % 4, tl.load(x + pid * N + offs).to(tl.int32))


@triton.jit
def persistent(x, out, tiles_in_all, PROGRAMS: tl.constexpr, N: tl.constexpr):
    for tile in range(tl.program_id(0), tiles_in_all, PROGRAMS):
        offs = tile * N + tl.arange(0, N)
        tl.store(out + offs, tl.load(x + offs) + tile)


@triton.jit
def last_reads_the_first(x, out, N: tl.constexpr):
    """The last program reads what others have written, long after these are done."""
    pid, offs = tl.program_id(0), tl.arange(0, N)
    source = tl.where(pid == tl.num_programs(0) - 1, 0, pid) * N + offs
    values = tl.where(pid == tl.num_programs(0) - 1, tl.load(out + source), tl.load(x + source))
    tl.store(out + pid * N + offs, values + 1)


@triton.jit
def loads_tiles(tiles, out, N: tl.constexpr):
    tl.store(out + tl.program_id(0), tl.max(tiles.load([0, tl.program_id(0) % 2 * N])))


@triton.jit
def stores_tiles(tiles, out, N: tl.constexpr):
    tiles.store([0, tl.program_id(0) * N], tl.reshape(tl.arange(0, N * N), (N, N)).to(tl.float32))


def test_a_product_with_the_order_of_a_tutorial_runs_in_batches(interpreter: Interpreter, launch: Launch) -> None:
    a, b, c = floats(100, 70), floats(70, 90, seed=1), torch.zeros(100, 90)
    run = launch(tiles, (4 * 3,), a, b, c, 100, 90, 70, 32, 32, 16, 2)
    assert run.findings == ()
    assert ran_in_batches(interpreter, tiles)
    torch.testing.assert_close(c, a @ b, rtol=1e-4, atol=1e-4)


def test_programs_with_different_numbers_of_rounds_run_in_a_batch_for_each(
    interpreter: Interpreter, launch: Launch
) -> None:
    x, out = floats(4, 64), torch.zeros(32, 64)
    assert launch(causal_sums, (32,), x, out, 64).findings == ()
    assert ran_in_batches(interpreter, causal_sums)
    torch.testing.assert_close(out, x.cumsum(0).repeat_interleave(8, 0))


def test_programs_that_start_their_loops_apart_run_in_batches(interpreter: Interpreter, launch: Launch) -> None:
    x, out = floats(22, 16), torch.zeros(22, 16)
    assert launch(persistent, (4,), x, out, 22, 4, 16).findings == ()
    assert ran_in_batches(interpreter, persistent)
    assert torch.equal(out, x + torch.arange(22)[:, None])


def test_programs_may_read_and_write_their_own_elements(interpreter: Interpreter, launch: Launch) -> None:
    x = floats(1000)
    before = x.clone()
    assert launch(in_place, (8,), x, 1000, 128).findings == ()
    assert ran_in_batches(interpreter, in_place)
    assert torch.equal(x, (before * 2 + 1) * 3)


def test_atomics_keep_the_order_of_programs(interpreter: Interpreter, launch: Launch) -> None:
    counter, out = torch.zeros(5, dtype=torch.int32), torch.zeros(50, dtype=torch.int32)
    assert launch(sum_and_ticket, (50,), counter, out, floats(50 * 8), 8).findings == ()
    assert ran_in_batches(interpreter, sum_and_ticket)
    assert out.tolist() == list(range(50))


def test_reads_of_a_storage_that_atomics_change_are_reported_as_ever(launch: Launch) -> None:
    counter, out = torch.zeros(1, dtype=torch.int32), torch.zeros(50, dtype=torch.int32)
    launch(tickets, (50,), counter, out, floats(4 + 50 * 8), 8)
    assert out.tolist() == list(range(50))


def test_a_program_that_reads_what_an_early_one_wrote_is_reported(launch: Launch) -> None:
    x, out = torch.ones(5000 * 64), torch.zeros(5000 * 64)
    run = launch(last_reads_the_first, (5000,), x, out, 64)
    assert {finding.kind for finding in run.findings} == {"race"}
    assert out[-1] == 3


def test_programs_under_a_lock_run_one_by_one(interpreter: Interpreter, launch: Launch) -> None:
    dy, dw = floats(12, 32), torch.zeros(4, 32)
    locks, counts = torch.zeros(4, dtype=torch.int32), torch.zeros(4, dtype=torch.int32)
    assert launch(workloads.locked_gradients, (12,), dy, dw, locks, counts, 12, 4, 32).findings == ()
    assert not ran_in_batches(interpreter, workloads.locked_gradients)


@pytest.mark.parametrize(("kernel", "programs", "columns"), [(loads_tiles, 512, 2), (stores_tiles, 256, 256)])
def test_batches_with_descriptors_take_memory_for_a_bounded_number_of_lanes(
    interpreter: Interpreter, launch: Launch, kernel: Any, programs: int, columns: int
) -> None:
    block = 64
    base, out = floats(block, columns * block), torch.zeros(programs)
    most_of_tiles = base.view(block, columns, block).amax((0, 2))
    interpreter.worker.run(Job(begin_measuring_memory, None, "the measurement"), 60.0)
    run = launch(kernel, (programs,), TensorDescriptor.from_tensor(base, [block, block]), out, block)
    assert interpreter.worker.run(Job(most_memory, None, "the measurement"), 60.0) < 40 * 2**20
    assert run.findings == ()
    assert ran_in_batches(interpreter, kernel)
    if kernel is loads_tiles:
        assert torch.equal(out, most_of_tiles.repeat(programs // 2))
    else:
        assert torch.equal(base, torch.arange(float(block**2)).view(block, block).repeat(1, columns))


_STEPS = (
    "v = v * 0.5 + w",
    "v = tl.where(v > w, v, w - 1)",
    "v = tl.exp(-tl.abs(v))",
    "v = tl.sin(v) + tl.sqrt(tl.abs(w))",
    "v = tl.log2(tl.abs(v) + 1.5)",
    "v = v.to(tl.float16).to(tl.float32)",
    "v = (v.to(tl.bfloat16) * w.to(tl.bfloat16)).to(tl.float32)",
    "v = v - tl.max(v, 0)[None, :]",
    "v = v / (1 + tl.sum(tl.abs(v), 1))[:, None]",
    "v = v + tl.sum(v) * 0.01",
    "v = tl.trans(tl.reshape(tl.trans(v), (M, N)).reshape(N, M))",
    "v = v + tl.trans(w.T) * 0.25",
    "v = tl.dot(v, tl.trans(w), out_dtype=tl.float32) if M == N else v",
    "v = tl.dot(tl.full((M, M), 0.125, tl.float32), v)",
    "v = tl.cumsum(v, 1) * 0.1",
    "v = tl.associative_scan(v, 0, larger)",
    "v = tl.sort(v)",
    "v = tl.flip(v)",
    "v = v + tl.argmax(w, 1)[:, None]",
    "v = tl.reduce(w, 0, larger)[None, :] + v",
    "v = v * pid",
    "v = v + tl.load(y + pid)",
    "v = tl.load(y + columns) + v",
    "a, b = tl.split(tl.join(v, w))\n    v = a - b * 0.5",
    "v = tl.gather(v, tl.broadcast_to((rows + columns + pid) % N, (M, N)), 1)",
    "for i in range(pid % 3):\n        v = v * 0.5 + i",
    "for i in range(2):\n        v, w = w, v - i",
    "if pid % 2 == 0:\n        v = -v",
    "v = v + ((offs * 1103515245 + 12345) % 7)",
    "v = v + tl.rand(pid, offs)",
    "v = v + (rows // (columns % 4)).to(tl.float32) * 0",
    "tl.store(out + offs, v, mask=offs < n)\n    v = tl.load(out + offs, mask=offs < n, other=0.5) + 1",
)
_ENDS = (
    *["tl.store(out + offs, v, mask=offs < n)"] * 6,
    "tl.store(out + offs, v)",
    "tl.store(out + offs // 2, v, mask=offs < n)",
    "tl.atomic_add(out + offs % 100, v, mask=offs < n)",
    "tl.atomic_max(out + rows * N + columns, v)",
    "tl.store(out + offs + 1, v, mask=offs + 1 < n)\n    tl.store(out + offs, tl.load(out + offs, mask=offs < n))",
)


def source_of_random_kernel(seed: int) -> str:
    choose = random.Random(seed)
    steps = [*choose.choices(_STEPS, k=choose.randint(2, 7)), choose.choice(_ENDS)]
    return f"""
import triton
import triton.language as tl

@triton.jit
def larger(a, b):
    return tl.maximum(a, b) + a * 0.125

@triton.jit
def random_kernel_{seed}(x, y, out, n, M: tl.constexpr, N: tl.constexpr):
    pid = tl.program_id(0) + tl.program_id(1) * tl.num_programs(0)
    rows, columns = tl.arange(0, M)[:, None], tl.arange(0, N)[None, :]
    offs = pid * M * N + rows * N + columns
    v = tl.load(x + offs, mask=offs < n, other=0.25)
    w = tl.load(y + (offs * 7) % 1000)
    {chr(10).join(f"    {step}" for step in steps).strip()}
"""


@pytest.mark.slow
def test_random_kernels_leave_and_report_the_same_in_batches(
    interpreter: Interpreter, launch: Launch, tmp_path: Path
) -> None:
    interpreter.worker.run(Job(forget_kernels, None, "the start"), 60.0)
    batched = 0
    for seed in range(24):
        choose, file = random.Random(seed), tmp_path / f"random_kernel_{seed}.py"
        file.write_text(source_of_random_kernel(seed))
        spec = importlib.util.spec_from_file_location(file.stem, file)
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        kernel = getattr(module, file.stem)
        (m, n), grid = choose.choice([(16, 16), (4, 32), (32, 8), (1, 64)]), choose.choice([(7,), (16, 2), (40,)])
        count = m * n * grid[0] * (grid[1] if len(grid) > 1 else 1)
        x, y, out = floats(count, seed=seed), floats(1000, seed=seed + 1), torch.zeros(count)
        with contextlib.suppress(RunError):  # the same one both ways
            launch(kernel, grid, x, y, out, count - choose.choice([0, 3, m * n]), m, n, uninitialised=("out",))
        batched += ran_in_batches(interpreter, kernel)
    assert batched > 8
