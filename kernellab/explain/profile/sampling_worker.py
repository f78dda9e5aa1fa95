"""In the worker that samples: a session of Proton around the launches that other jobs of this process make."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass
from pathlib import Path

from kernellab._triton.proton import end_sampling, start_sampling


@dataclass(frozen=True, slots=True)
class Opened:
    """A session that has begun; where it was refused, ``refused`` has CUPTI's words."""

    session: int = 0
    folder: str = ""
    refused: str = ""


def open_session(payload: object, progress: object) -> Opened:
    """Begin to sample what this process launches."""
    folder = Path(tempfile.mkdtemp(prefix="kernellab-samples-"))
    try:
        return Opened(start_sampling(folder / "samples"), str(folder))
    except (RuntimeError, ImportError, AttributeError) as exc:
        folder.rmdir()
        return Opened(refused=f"{exc}" or type(exc).__name__)


def close_session(opened: Opened, progress: object) -> str:
    """End a session, and return what Proton wrote of it."""
    folder = Path(opened.folder)
    text = end_sampling(opened.session, folder / "samples")
    for path in folder.iterdir():
        path.unlink()
    folder.rmdir()
    return text
