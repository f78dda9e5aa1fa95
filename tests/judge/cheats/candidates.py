"""All cheats: each stands for a way in which judges of kernels were fooled, or could be."""

from __future__ import annotations

from tests.judge.cheats import (
    attacks,
    forged_messages,
    host_code,
    layouts_and_tolerances,
    moved_values,
    unsafe_kernels,
    wrong_memory,
    wrong_values,
)
from tests.judge.cheats.cheat import Cheat

CANDIDATES: tuple[Cheat, ...] = (
    *wrong_values.CANDIDATES,
    *wrong_memory.CANDIDATES,
    *unsafe_kernels.CANDIDATES,
    *host_code.CANDIDATES,
    *attacks.CANDIDATES,
    *forged_messages.CANDIDATES,
    *layouts_and_tolerances.CANDIDATES,
    *moved_values.CANDIDATES,
)
