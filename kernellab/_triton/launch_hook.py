"""Seeing the launches of all kernels, bound or not, through the hook that Triton calls before each of them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from triton import knobs


@contextmanager
def each_launch(seen: Callable[[str], None]) -> Iterator[None]:
    """Call ``seen`` with the name of every kernel that any thread launches inside a with statement.

    Where the user has put a hook of another kind in place of Triton's chain of hooks, nothing is called.
    """
    chain: Any = knobs.runtime.launch_enter_hook

    def hook(metadata: Any) -> None:
        seen(str(metadata.get().get("name", "a kernel")))

    if not hasattr(chain, "add"):
        yield
        return
    chain.add(hook)
    try:
        yield
    finally:
        chain.remove(hook)
