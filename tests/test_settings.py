"""What the environment may say, and what is said of what it may not."""

from __future__ import annotations

import pytest

from kernellab.errors import UsageError
from kernellab.settings import read_settings


@pytest.mark.parametrize("name", ["KERNELLAB_WORKERS", "KERNELLAB_TIMEOUT", "KERNELLAB_CACHE_MB"])
@pytest.mark.parametrize("text", ["nan", "inf", "-inf", "-1", "0", "1e999", "many"])
def test_a_number_has_to_be_positive_and_finite(name: str, text: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is '{text}'; expected a positive number\.$"):
        read_settings({name: text})


@pytest.mark.parametrize("text", ["0.5", "1.5", "1025", "1e9"])
def test_a_number_of_workers_is_whole_and_not_beyond_reason(text: str) -> None:
    with pytest.raises(
        UsageError, match=rf"^KERNELLAB_WORKERS is '{text}'; expected a whole number from 1 to 1,024\.$"
    ):
        read_settings({"KERNELLAB_WORKERS": text})


def test_a_time_limit_has_an_end() -> None:
    with pytest.raises(UsageError, match=r"^KERNELLAB_TIMEOUT is '1e8'; expected seconds, 1,000,000 at most\.$"):
        read_settings({"KERNELLAB_TIMEOUT": "1e8"})


@pytest.mark.parametrize("name", ["KERNELLAB_ISOLATE", "KERNELLAB_PROGRESS", "KERNELLAB_PREDICT"])
def test_a_switch_is_on_or_off(name: str) -> None:
    with pytest.raises(UsageError, match=rf"^{name} is 'maybe'; expected 1 or 0, yes or no, on or off, true or false"):
        read_settings({name: "maybe"})


def test_what_is_set_is_taken_and_what_is_empty_is_not_set() -> None:
    given = {"WORKERS": "3", "TIMEOUT": "0.5", "CACHE_MB": "0.5", "ISOLATE": "off", "PROGRESS": "", "TARGET": ""}
    settings = read_settings({f"KERNELLAB_{name}": text for name, text in given.items()})
    assert (settings.compile_workers, settings.timeout_s, settings.cache_bytes) == (3, 0.5, 2**19)
    assert (settings.isolate, settings.progress, settings.target) == (False, True, None)
