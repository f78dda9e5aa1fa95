"""What the verdict of a first flight holds for, and when a later session may rely on it.

A flight tries one launch: a kernel that stays within its arguments may leave them with a larger grid or a smaller
tensor. So a verdict counts again for launches of the same grid, sizes, layouts and numbers alone, and not at all for a
kernel whose loaded values decide what it touches.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Sequence
from dataclasses import asdict

from kernellab.compile import Compiled
from kernellab.gpu.flight import Flight, Placing
from kernellab.grid import Grid3
from kernellab.ir.data_dependence import depends_on_data
from kernellab.packed import ArgumentSpec
from kernellab.store import GoodFlight

_SCHEMA = 1


def good_flight(
    digest: str,
    device: str,
    driver: str,
    grid: Grid3,
    arguments: Sequence[tuple[str, ArgumentSpec]],
    sizes_bytes: Sequence[int],
) -> GoodFlight:
    """Return the record of a launch that went well; ``sizes_bytes`` are those of the storages, by index."""
    fields = {
        "schema": _SCHEMA,
        "grid": grid,
        "arguments": [(name, type(spec).__name__, asdict(spec)) for name, spec in arguments],
        "sizes": list(sizes_bytes),
    }
    text = json.dumps(fields, sort_keys=True, separators=(",", ":"))
    return GoodFlight(digest, device, driver, hashlib.sha256(text.encode()).hexdigest())


def is_lasting(flight: Flight, compiled: Compiled) -> bool:
    """Tell whether a clean flight says the same of every launch like it: writes were watched, and no data decides."""
    if flight.placing is Placing.ORIGINALS or compiled.effects.unknown:
        return False
    return not depends_on_data(compiled.graph)
