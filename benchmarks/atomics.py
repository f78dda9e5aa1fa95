"""How long atomics take on a GPU that update few or many addresses: the constants of the model's atomics.

    python -m benchmarks.atomics

Each launch makes 2**22 updates of fp32: neighbouring threads update neighbouring addresses (coalesced), or any
(scattered). It prints the microseconds of programs of 128 and of 1024 elements, in 4 warps.
"""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from triton.testing import do_bench

UPDATES = 1 << 22
SLOTS = (1, 8, 32, 64, 128, 256, 1024, 4096, 16384, 65536, 1 << 20, 1 << 22)


@triton.jit
def coalesced(out_ptr, slots, BLOCK: tl.constexpr):
    places = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    tl.atomic_add(out_ptr + places % slots, 1.0, sem="relaxed")


@triton.jit
def scattered(out_ptr, slots, BLOCK: tl.constexpr):
    places = (tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)).to(tl.uint32)
    mixed = (places ^ (places >> 15)) * 0x2C1B3C6D
    mixed = (mixed ^ (mixed >> 12)) * 0x297A2D39
    mixed = mixed ^ (mixed >> 15)
    tl.atomic_add(out_ptr + (mixed >> 1).to(tl.int32) % slots, 1.0, sem="relaxed")


def main() -> None:
    """Print a line for each pattern and number of addresses."""
    print(f"{torch.cuda.get_device_name()}, Triton {triton.__version__}, {UPDATES:,} updates, us")
    for kernel in (coalesced, scattered):
        for slots in SLOTS:
            out = torch.zeros(max(slots, 8), device="cuda")
            times = [_microseconds(kernel, out, slots, block) for block in (128, 1024)]
            print(f"{kernel.__name__:<10}{slots:>9,}  " + "  ".join(f"{time:8.1f}" for time in times), flush=True)


def _microseconds(kernel: triton.JITFunction, out: torch.Tensor, slots: int, block: int) -> float:
    return 1e3 * float(do_bench(lambda: kernel[UPDATES // block,](out, slots, BLOCK=block), warmup=5, rep=20))


if __name__ == "__main__":
    main()
