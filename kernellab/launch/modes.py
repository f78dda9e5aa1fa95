"""Modes of torch that a user has on, such as a `TorchDispatchMode`: they see the user's operations, not the lab's."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def bypass_modes() -> Iterator[None]:
    """Hide the operations of torch inside a with statement, or of a decorated function, from the modes of the user.

    dynamo, which compiles what runs after a graph break, leaves them alone, too. Not for what calls the user's code, as
    hooks and heuristics: their operations are the user's.
    """
    import torch  # keeps `import kernellab` light

    dynamo = torch._C._dynamo.eval_frame
    callback = dynamo.set_eval_frame(None)
    try:
        with torch._C._DisableTorchDispatch(), torch._C.DisableTorchFunction():
            yield
    finally:
        dynamo.set_eval_frame(callback)
