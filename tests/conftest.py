"""What all tests share: GPU tests skip where there is none."""

from __future__ import annotations

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    marked = [item for item in items if "gpu" in item.keywords]
    if marked and not _has_gpu():
        for item in marked:
            item.add_marker(pytest.mark.skip(reason="no CUDA GPU"))


def _has_gpu() -> bool:
    import torch  # noqa: PLC0415 - takes a second, which only GPU tests should pay for

    return torch.cuda.is_available()
