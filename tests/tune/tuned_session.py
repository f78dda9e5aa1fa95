"""A session that launches an autotuned kernel twice, and prints what it took: ``tuned_session.py STORE SIZE``."""

from __future__ import annotations

import json
import sys

import torch
import triton
import triton.language as tl

import kernellab

CONFIGS = [triton.Config({"ROWS": rows, "BLOCK": block}) for rows in (1, 2) for block in (128, 512)]


@triton.autotune(configs=CONFIGS, key=[])
@triton.jit
def add_into(x_ptr, out_ptr, n, ROWS: tl.constexpr, BLOCK: tl.constexpr):
    for row in range(ROWS):
        offsets = (tl.program_id(0) * ROWS + row) * BLOCK + tl.arange(0, BLOCK)
        mask = offsets < n
        total = tl.load(out_ptr + offsets, mask=mask) + tl.load(x_ptr + offsets, mask=mask)
        tl.store(out_ptr + offsets, total, mask=mask)


def main(store: str, size: str) -> None:
    n = int(size)
    x, out = torch.ones(n, device="cuda"), torch.full((n,), 0.5, device="cuda")
    with kernellab.Lab(store=store) as lab:
        bound = lab.bind(add_into)
        for _ in range(2):
            bound[lambda meta: (triton.cdiv(n, meta["ROWS"] * meta["BLOCK"]),)](x, out, n)
        torch.cuda.synchronize()
        trials = lab.launches.trials
        assert trials is not None
        found = {
            "has_gpu_worker": trials.worker(0).pid is not None,
            "has_compiled": any(worker.pid for worker in lab.compiler.pool.workers),
            "measurements": len(lab.kernels.store.history.measurements()),
            "config": bound.best_config.kwargs,
            "out": [out.min().item(), out.max().item()],
        }
    print(json.dumps(found))


if __name__ == "__main__":
    main(*sys.argv[1:])
