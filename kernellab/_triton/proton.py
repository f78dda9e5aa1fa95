"""Sessions of Proton, Triton's profiler, that sample the program counter of what this process launches on a GPU."""

from __future__ import annotations

from pathlib import Path


def start_sampling(path: Path) -> int:
    """Start a session and return its number. A process has one client of CUPTI at a time.

    Only kernels that are loaded after this have their lines told.

    Raises:
        RuntimeError: CUPTI refuses it; the text is its own.
        ImportError: this Triton was built without Proton.
    """
    from triton import profiler  # loads CUPTI

    session = profiler.start(str(path), hook="triton", backend="cupti", mode="pcsampling")
    if session is None:
        raise RuntimeError("Proton is switched off; unset TRITON_PROTON_DISABLE")
    return int(session)


def end_sampling(session: int, path: Path) -> str:
    """End a session, and return what it wrote: frames with their samples, as JSON."""
    from triton import profiler

    profiler.finalize(session)
    return path.with_suffix(".hatchet").read_text(encoding="utf-8")
