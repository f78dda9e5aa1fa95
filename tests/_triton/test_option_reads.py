from __future__ import annotations

import copy
import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from kernellab._triton.compiling import watch_options


@dataclass(frozen=True)
class Options:
    num_warps: int = 4
    num_stages: int = 3
    debug: bool = False

    def __post_init__(self) -> None:
        assert self.num_warps > 0  # those of NVIDIA and AMD read options here, too

    def key(self) -> str:
        return str(sorted(self.__dict__.items()))


def read_by_method(options: Options) -> object:
    return options.key()


def test_a_copy_equals_its_options_in_every_field() -> None:
    watched, reads = watch_options(Options(num_warps=8), ["num_warps"])
    assert not reads
    assert (watched.num_warps, watched.num_stages, watched.debug) == (8, 3, False)
    assert vars(watched) == {"num_warps": 8, "num_stages": 3, "debug": False}
    assert isinstance(watched, Options)


def test_only_the_watched_options_count_as_read() -> None:
    watched, reads = watch_options(Options(), ["num_warps", "num_stages"])
    assert not watched.debug
    assert not hasattr(watched, "maxnreg")
    assert not reads
    assert watched.num_stages == 3
    assert reads == {"num_stages"}


@pytest.mark.parametrize("look", [hash, str, vars, dataclasses.asdict, dataclasses.replace, read_by_method])
def test_a_look_at_all_options_reads_each(look: Callable[[Any], object]) -> None:
    watched, reads = watch_options(Options(), ["num_warps", "num_stages"])
    look(watched)
    assert reads == {"num_warps", "num_stages"}


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, dataclasses.replace])
def test_options_can_be_copied_and_a_read_of_the_copy_counts(copied: Callable[[Any], Any]) -> None:
    watched, reads = watch_options(Options(num_warps=8), ["num_warps"])
    assert copied(watched).num_warps == 8
    assert reads == {"num_warps"}


def test_options_that_are_watched_at_once_count_their_own_reads() -> None:
    (first, reads_of_first), (second, reads_of_second) = (watch_options(Options(), ["num_warps"]) for _ in range(2))
    assert first.num_warps == second.num_stages + 1
    assert (reads_of_first, reads_of_second) == ({"num_warps"}, set())
