"""Configs by workload: candidates for a pointwise kernel, a reduction, a product or an attention.

The rules are those of Inductor for GPUs of NVIDIA and AMD (torch/_inductor/runtime/triton_heuristics.py), and the tests
compare the two. An extent is a number of elements, or a `range` of such numbers for a kernel of many sizes; numbers are
rounded up to powers of two, which Inductor calls size hints. Lists of configs go through `covering`, `floored` and
`reproducible`, where a kernel asks for that; `rename_blocks` is for kernels with other names of blocks, such as
``RBLOCK``. Matmul and attention are spaces, for a search.
"""

from kernellab.tune.workloads.blocks import MAX_BLOCK, MAX_GRID, Numel
from kernellab.tune.workloads.elementwise import Tile, pointwise
from kernellab.tune.workloads.given import (
    Subkernel,
    combined,
    covering,
    fixed,
    floored,
    foreach,
    given,
    rename_blocks,
    reproducible,
    template,
)
from kernellab.tune.workloads.products import attention, matmul
from kernellab.tune.workloads.reductions import (
    Hint,
    cooperative_reduction,
    mixed_order_reduction,
    persistent_reduction,
    reduction,
    split_scan,
    tiled_persistent_reduction,
    tiled_reduction,
)

__all__ = [
    "MAX_BLOCK",
    "MAX_GRID",
    "Hint",
    "Numel",
    "Subkernel",
    "Tile",
    "attention",
    "combined",
    "cooperative_reduction",
    "covering",
    "fixed",
    "floored",
    "foreach",
    "given",
    "matmul",
    "mixed_order_reduction",
    "persistent_reduction",
    "pointwise",
    "reduction",
    "rename_blocks",
    "reproducible",
    "split_scan",
    "template",
    "tiled_persistent_reduction",
    "tiled_reduction",
]
