"""The C function under Triton's launcher of an NVIDIA kernel, where nothing but that function is needed.

`CudaLauncher.__call__` allocates scratch memory and passes everything on. For kernels without scratch memory the launch
function calls the C function itself, and hands it addresses, which spares that the look into each tensor.
"""

from __future__ import annotations

from enum import Enum
from typing import Any, NamedTuple

import triton


class Style(Enum):
    """How the C function takes its arguments: not at all known, one by one (3.6), or as a tuple with types (3.7 on)."""

    UNKNOWN = "unknown"
    FLAT = "flat"
    ANNOTATED = "annotated"


_STYLES = {"3.6": Style.FLAT, "3.7": Style.ANNOTATED, "3.8": Style.ANNOTATED, "3.9": Style.ANNOTATED}


class Direct(NamedTuple):
    """The C function with the arguments of it that belong to the kernel; ``launch`` is None where it does not do."""

    launch: Any = None
    cooperative: Any = None
    dependent: Any = None
    annotations: Any = None
    signature: Any = None


def style_of(driver: Any) -> Style:
    """Return the style of the installed Triton, if ``driver`` is its driver of NVIDIA GPUs."""
    kind = type(driver)
    if (kind.__module__, kind.__name__) != ("triton.backends.nvidia.driver", "CudaDriver"):
        return Style.UNKNOWN
    return _STYLES.get(".".join(triton.__version__.split(".")[:2]), Style.UNKNOWN)


def direct_launch(run: Any) -> Direct:
    """Return the C function under the launcher ``run`` of a kernel, if the kernel needs nothing else."""
    kind = type(run)
    needs_more = (
        (kind.__module__, kind.__name__) != ("triton.backends.nvidia.driver", "CudaLauncher")
        or run.global_scratch_size
        or run.profile_scratch_size
        or getattr(run, "gsan_enabled", False)
    )
    if needs_more:
        return Direct()
    annotations, signature = getattr(run, "arg_annotations", None), getattr(run, "kernel_signature", None)
    return Direct(run.launch, run.launch_cooperative_grid, run.launch_pdl, annotations, signature)
