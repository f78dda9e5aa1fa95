from __future__ import annotations

import re
from pathlib import Path

import pytest

from kernellab._triton import OLDEST, launch_key, require_supported
from kernellab.cli.parser import TESTED
from kernellab.errors import UsageError

PROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.mark.parametrize("version", ["3.6.0", "3.9.0+git1", "3.10.0", "4.0"])
def test_a_triton_that_is_new_enough_is_taken(version: str) -> None:
    require_supported(version)


@pytest.mark.parametrize("version", ["3.3.0b1", "2.1.0"])
def test_an_older_one_is_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(UsageError, match=rf'is {version}; expected 3\.6 or later.*pip install -U "triton>=3.6"'):
        require_supported(version)


def test_every_place_that_names_versions_names_the_same() -> None:
    allowed = re.search(r'"triton>=3\.(\d+),<3\.(\d+)"', PROJECT.read_text(encoding="utf-8"))
    tested = re.search(r"triton 3\.(\d+)\.\d+ and 3\.(\d+)\.\d+", TESTED)
    assert allowed
    assert tested
    oldest, after_newest = map(int, allowed.groups())
    assert (3, oldest) == OLDEST
    assert tuple(map(int, tested.groups())) == (oldest, after_newest - 1)
    assert launch_key._CONVENTIONS.keys() == {f"3.{minor}" for minor in range(oldest, after_newest)}
