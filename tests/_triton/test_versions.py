from __future__ import annotations

import pytest

from kernellab._triton import require_supported
from kernellab.errors import UsageError


@pytest.mark.parametrize("version", ["3.6.0", "3.9.0+git1", "3.10.0", "4.0"])
def test_a_triton_that_is_new_enough_is_taken(version: str) -> None:
    require_supported(version)


@pytest.mark.parametrize("version", ["3.3.0b1", "2.1.0"])
def test_an_older_one_is_refused_with_what_to_install(version: str) -> None:
    with pytest.raises(UsageError, match=rf'is {version}; expected 3\.6 or later.*pip install -U "triton>=3.6"'):
        require_supported(version)
