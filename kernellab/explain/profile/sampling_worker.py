"""In the worker that samples: a session of Proton around the launches that other jobs of this process make.

Proton is Triton's profiler. It samples the program counter of what this process launches on a GPU.
"""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that has begun; where it was refused, ``refused`` has CUPTI's words."""

    session: int = 0
    folder: str = ""
    refused: str = ""


def open_session(payload: object, progress: object) -> Opened:
    """Begin to sample what this process launches, which has one client of CUPTI at a time.

    Only kernels that are loaded after this have their lines told.
    """
    folder = Path(tempfile.mkdtemp(prefix="kernellab-samples-"))
    refused = "Proton is switched off; unset TRITON_PROTON_DISABLE"
    try:
        from triton import profiler  # loads CUPTI; a Triton that was built without Proton has none

        session = profiler.start(str(folder / "samples"), hook="triton", backend="cupti", mode="pcsampling")
        if session is not None:
            return Opened(int(session), str(folder))
    except (RuntimeError, ImportError, AttributeError) as exc:
        refused = f"{exc}" or type(exc).__name__
    folder.rmdir()
    return Opened(refused=refused)


def close_session(opened: Opened, progress: object) -> str:
    """End a session, and return what Proton wrote of it: frames with their samples, as JSON."""
    from triton import profiler

    folder = Path(opened.folder)
    profiler.finalize(opened.session)
    text = (folder / "samples.hatchet").read_text(encoding="utf-8")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return text
