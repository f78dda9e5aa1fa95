"""Inductor's rules, beside which configs and grids are looked at."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest
import torch

from kernellab.target import parse_target
from kernellab.timing.config import Config
from kernellab.tune.workloads.blocks import rules_of

HINTS = {"inner": "INNER", "outer": "OUTER", "tiny": "OUTER_TINY", "default": "DEFAULT"}
TARGETS = ["cuda:90", "cuda:100", "hip:gfx942", "hip:gfx1100"]


@dataclass(frozen=True)
class Inductor:
    """Inductor's heuristics, which take a second to import, and the types that they take."""

    heuristics: Any
    types: Any

    @property
    def is_known(self) -> bool:
        """Whether these are the rules that the generators follow, which older versions of torch lack in part."""
        return hasattr(self.heuristics, "_enforce_reduction_config_block_minimums")

    def known(self, target: str) -> str:
        """Return a target, or in older versions of torch the one whose rules are the same."""
        return target if self.is_known else "cuda:90"

    def hint(self, name: str) -> Any:
        return getattr(self.types.ReductionHint, HINTS[name])

    def device(self, target: str) -> Any:
        rules, text = rules_of(target), parse_target(target)
        return self.types.DeviceProperties(
            type=text.backend, index=0, multi_processor_count=132, cc=text.arch, major=rules.generation,
            regs_per_multiprocessor=65536, max_threads_per_multi_processor=2048, warp_size=rules.warp_size,
        )  # fmt: skip

    @contextmanager
    def on(self, target: str = "cuda:90") -> Iterator[dict[str, Any]]:
        """Give its rules as they are in a build of torch for a target where a device is; yields what is told of it."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(torch.cuda, "is_available", lambda: True)
            if target.startswith("hip"):
                patch.setattr(torch.version, "hip", "7.0")
                patch.setitem(self.heuristics.TRITON_MAX_BLOCK, "X", 8192)
            patch.setattr(self.heuristics, "cached_autotune", lambda hints, configs, **meta: configs)
            yield {"device": self.device(target), "constants": {}, "signature": {}}


@pytest.fixture(scope="session")
def inductor() -> Inductor:
    heuristics = pytest.importorskip("torch._inductor.runtime.triton_heuristics")
    return Inductor(heuristics, pytest.importorskip("torch._inductor.runtime.hints"))


@pytest.fixture(scope="session")
def known_inductor(inductor: Inductor) -> Inductor:
    if not inductor.is_known:
        assert torch.torch_version.TorchVersion("2.13") > torch.__version__, "Inductor's rules have got other names"
        pytest.skip("this version of Inductor has other rules")
    return inductor


Told = list[tuple[Any, ...]]


def told(configs: list[Config]) -> Told:
    return [(tuple(sorted(c.parameters)), c.num_warps, c.num_stages) for c in configs]


def told_of_triton(configs: list[Any]) -> Told:
    """Return the same of `triton.Config`s, each of them once."""
    return list(dict.fromkeys((tuple(sorted(c.kwargs.items())), c.num_warps, c.num_stages) for c in configs))


def same(ours: list[Config], theirs: list[Any]) -> None:
    assert told(ours) == told_of_triton(theirs) != []


def over_hints(theirs: Callable[..., list[Any]], *hints: Mapping[str, int]) -> list[Any]:
    """Return what Inductor gives for several size hints, one after the other."""
    return [config for each in hints for config in theirs(dict(each))]
