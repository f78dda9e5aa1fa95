"""Configs by workload: candidates for a pointwise kernel, a reduction, a product or an attention.

The rules are those of Inductor for GPUs of NVIDIA and AMD (torch/_inductor/runtime/triton_heuristics.py), and the tests
compare the two. An extent is a number of elements, or a `range` of such numbers for a kernel of many sizes; numbers are
rounded up to powers of two, which Inductor calls size hints. Matmul and attention are spaces, for a search.
"""

from kernellab.tune.workloads.blocks import MAX_BLOCK, MAX_GRID, Numel
from kernellab.tune.workloads.elementwise import pointwise
from kernellab.tune.workloads.products import attention, matmul
from kernellab.tune.workloads.reductions import Hint, persistent_reduction, reduction

__all__ = [
    "MAX_BLOCK",
    "MAX_GRID",
    "Hint",
    "Numel",
    "attention",
    "matmul",
    "persistent_reduction",
    "pointwise",
    "reduction",
]
