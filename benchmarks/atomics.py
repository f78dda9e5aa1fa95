"""How long atomics take on a GPU that update few or many addresses: the constants of the model's atomics.

    python -m benchmarks.atomics

Each launch makes 2**22 updates of fp32: neighbouring threads update neighbouring addresses (coalesced), or any
(scattered), relaxed or with the order of memory that Triton takes by default (acq_rel). It prints the microseconds of
programs of 128 and of 1024 elements, in 4 warps; then those of copies whose programs add sums to one row or two.
"""

from __future__ import annotations

from functools import partial
from itertools import product

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

UPDATES = 1 << 22
ORDERS = ("relaxed", "acq_rel")
SLOTS = (1, 8, 32, 64, 128, 256, 1024, 4096, 16384, 65536, 1 << 20, 1 << 22)


@triton.jit
def coalesced(out_ptr, slots, ORDER: tl.constexpr, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + places % slots, 1.0, sem=ORDER)


@triton.jit
def scattered(out_ptr, slots, ORDER: tl.constexpr, BLOCK: tl.constexpr):
    places = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.uint32)
    mixed = (places ^ (places >> 15)) * 0x2C1B3C6D
    mixed = (mixed ^ (mixed >> 12)) * 0x297A2D39
    mixed = mixed ^ (mixed >> 15)
    tl.atomic_add(out_ptr + (mixed >> 1).to(tl.int32) % slots, 1.0, sem=ORDER)


@triton.jit
def after_stores(
    x_ptr, out_ptr, a_ptr, b_ptr, WIDTH: tl.constexpr, ROWS: tl.constexpr, ORDER: tl.constexpr, SUMS: tl.constexpr
):
    columns, start = tl.arange(0, WIDTH), tl.program_id(0) * ROWS
    first, second = tl.zeros((WIDTH,), tl.float32), tl.zeros((WIDTH,), tl.float32)
    for row in range(ROWS):
        places = (start + row) * WIDTH + columns
        value = tl.load(x_ptr + places)
        tl.store(out_ptr + places, value * 2)
        first += value
        second += value * value
    if SUMS > 0:
        tl.atomic_add(a_ptr + columns, first, sem=ORDER)
    if SUMS > 1:
        tl.atomic_add(b_ptr + columns, second, sem=ORDER)


def print_after_stores() -> None:
    """Print microseconds of programs that copy rows and add their sums to one row or two, by rows of a program."""
    print("after stores: rows of a program, order, sums; us with 2, 4 and 8 warps")
    for width, rows in ((256, 65536), (2048, 8192)):
        x = torch.randn(rows, width, device="cuda")
        out, a, b = torch.empty_like(x), torch.zeros(width, device="cuda"), torch.zeros(width, device="cuda")
        for own, order, sums in product((4, 16, 64), ORDERS, (0, 1, 2)):
            if sums == 0 and order != ORDERS[0]:
                continue

            launch = partial(after_stores[rows // own,], x, out, a, b, width, own, order, sums)
            times = [1e3 * float(do_bench(partial(launch, num_warps=warps), warmup=5, rep=10)) for warps in (2, 4, 8)]
            row = f"{rows:>6} x {width:<5} {own:>3} {order if sums else 'none':<8}{sums}  "
            print(row + "  ".join(f"{time:8.1f}" for time in times), flush=True)


def main() -> None:
    """Print a line for each pattern and number of addresses."""
    print(f"{torch.cuda.get_device_name()}, Triton {triton.__version__}, {UPDATES:,} updates, us")
    for kernel, order, slots in product((coalesced, scattered), ORDERS, SLOTS):
        out = torch.zeros(max(slots, 8), device="cuda")
        times = [_microseconds(kernel, out, slots, order, block) for block in (128, 1024)]
        row = f"{kernel.__name__:<10} {order:<8}{slots:>9,}  "
        print(row + "  ".join(f"{time:8.1f}" for time in times), flush=True)
    print_after_stores()


def _microseconds(kernel: triton.JITFunction, out: torch.Tensor, slots: int, order: str, block: int) -> float:
    def launch() -> None:
        kernel[UPDATES // block,](out, slots, ORDER=order, BLOCK=block)

    return 1e3 * float(do_bench(launch, warmup=5, rep=20))


if __name__ == "__main__":
    main()
