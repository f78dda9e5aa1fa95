"""What a rewriting changed in the compiled kernel: layouts and precision of TTGIR, fused multiply-adds of PTX."""

from __future__ import annotations

import re
from collections import Counter

_COMPARED = (
    *("tt.load", "tt.store", "tt.dot", "tt.dot_scaled", "tt.reduce", "tt.scan", "tt.atomic_rmw", "tt.atomic_cas"),
    *("tt.descriptor_load", "tt.descriptor_store", "ttng.warp_group_dot", "ttng.tc_gen5_mma"),
    "ttg.async_copy_global_to_local",
)
_ALIAS = re.compile(r"^(#\w+) = (#.*)$", re.MULTILINE)
_USE = re.compile(r"#\w+(?![\w.])")
_OPERATION = re.compile(r'(?:^|= )"?([\w.]+)"?[ (<]')
# https://docs.nvidia.com/cuda/parallel-thread-execution/#floating-point-instructions-fma
_FUSED = re.compile(r"^\s*(?:@!?%\w+ )?fma\.rn\.\S*(?:f16|f16x2|bf16|bf16x2|f32|f32x2|f64)\b", re.MULTILINE)
_PRECISION = re.compile(r"inputPrecision = \w+")


def changed_operations(plain: str, copy: str) -> tuple[str, ...]:
    """The names of operations of a kernel's TTGIR that the rewritten copy does not have with the same layouts."""
    missing = _operations_of(plain) - _operations_of(copy)
    return tuple(sorted({name for name, _ in missing}))


def fused_operations(plain: str, copy: str) -> tuple[int, int] | None:
    """The numbers of fused multiply-adds in the PTX of a kernel and of its rewritten copy; None where they agree.

    A product that the copy stores is rounded, and no longer fused with the addition that uses it.
    """
    numbers = len(_FUSED.findall(plain)), len(_FUSED.findall(copy))
    return None if numbers[0] == numbers[1] else numbers


def _operations_of(ttgir: str) -> Counter[tuple[str, str]]:
    """The compared operations, with their types and precision, layouts written out."""
    aliases = dict(_ALIAS.findall(ttgir))
    operations: Counter[tuple[str, str]] = Counter()
    for line in ttgir.splitlines():
        match = _OPERATION.search(line.strip())
        if match is None or match[1] not in _COMPARED:
            continue
        types = " ".join([line.partition(" loc(")[0].rpartition(" : ")[2], *_PRECISION.findall(line)])
        operations[match[1], _USE.sub(lambda use: aliases.get(use[0], use[0]), types)] += 1
    return operations
