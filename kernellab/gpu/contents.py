"""A digest of the contents of GPU memory, computed there by torch.

Two launches on memory of the same contents load the same values. The digest is not cryptographic: it distinguishes
accidental differences, those of a swap or of signs among them. Each row of 65,536 words of 32 bits has two sums of its
words times random weights of 64 bits; two rows that differ have both sums in common with a chance of 2**-64.
"""

from __future__ import annotations

import contextlib
import hashlib
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

from kernellab.launch.arguments import bypass_modes

_ROW_WORDS = 1 << 16
_ROWS_AT_ONCE = 64  # whose products take 32 MiB
_WORD_BYTES = 4
_SEED = 20_240_229
MOST_BYTES = 1 << 30
"""The most bytes that are read, in about a millisecond."""


@bypass_modes()
def contents_digest(storages: Sequence[Any]) -> str | None:
    """Return the digest of the contents of some untyped storages of torch, in order.

    None if they are too large, do not begin at a word, or leave no room for the sums.
    """
    import torch  # keeps `import kernellab` light

    if sum(int(storage.nbytes()) for storage in storages) > MOST_BYTES:
        return None
    if any(storage.data_ptr() % _WORD_BYTES for storage in storages):  # memory of another library
        return None
    with contextlib.suppress(torch.OutOfMemoryError):
        return _digest(storages)
    return None


def _digest(storages: Sequence[Any]) -> str:
    digest = hashlib.sha256()
    for storage in storages:
        digest.update(str(storage.nbytes()).encode())
        for sums in _row_sums(storage):
            digest.update(sums.cpu().numpy().tobytes())
    return digest.hexdigest()


def _row_sums(storage: Any) -> list[Any]:
    """Return tensors of the sums of the rows of a storage; the last row, and the last bytes, are filled with zeros."""
    import torch  # keeps `import kernellab` light

    if storage.device.type == "cuda":
        torch.cuda.synchronize(storage.device)  # another stream may still write
    data = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    row_bytes = _ROW_WORDS * _WORD_BYTES
    whole = data.numel() // row_bytes * row_bytes
    parts = list(torch.split(data[:whole].view(torch.int32).view(-1, _ROW_WORDS), _ROWS_AT_ONCE))
    if whole < data.numel():
        last = torch.zeros(row_bytes, dtype=torch.uint8, device=storage.device)
        last[: data.numel() - whole] = data[whole:]
        parts.append(last.view(torch.int32).view(1, -1))
    return [(part * weights).sum(1) for part in parts if part.numel() for weights in _weights(str(storage.device))]


@lru_cache(maxsize=4)
def _weights(device: str) -> tuple[Any, Any]:
    import torch

    generator = torch.Generator().manual_seed(_SEED)
    drawn = torch.randint(-(2**63), 2**63 - 1, (2, _ROW_WORDS), generator=generator, dtype=torch.int64, device="cpu")
    first, second = drawn.to(device)
    return first, second
