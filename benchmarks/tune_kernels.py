"""The autotuned kernels that tuning is measured on, by name."""

from __future__ import annotations

from benchmarks.tune_products import PRODUCTS, attention, matmul
from benchmarks.tune_rows import ROWS
from benchmarks.tune_workload import Workload

WORKLOADS = {
    name: {**PRODUCTS, **ROWS}[name]
    for name in (
        *("matmul", "persistent", "split-k", "device-descriptors", "host-descriptors", "softmax", "norm-forward"),
        *(
            "norm-backward-lock",
            "norm-backward",
            "norm-in-place",
            "cross-entropy",
            "segment-sum",
            "attention",
            "gather",
        ),
    )
}
LOADED_VALUES_DECIDE = frozenset({"norm-backward-lock", "cross-entropy", "segment-sum", "gather"})
"""Those where what the kernel loads decides an address or a branch."""

__all__ = ["LOADED_VALUES_DECIDE", "WORKLOADS", "Workload", "attention", "matmul", "workload"]


def workload(name: str, device: str = "cuda", *, is_small: bool = False) -> Workload:
    """Return a workload with fresh arguments."""
    return WORKLOADS[name](device, is_small)
