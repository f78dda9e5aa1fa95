"""The only importer of Triton's internals, and the only place that knows its versions."""

import re

from kernellab.errors import UsageError
from kernellab.settings import restore_interpreting, set_interpreting_aside

_interpret_variable = set_interpreting_aside()  # without TRITON_INTERPRET=1 Triton's own functions are compiled ones
try:
    import triton
finally:
    restore_interpreting(_interpret_variable)

CODE_GENERATOR = "triton.compiler.code_generator"
"""Compile workers import it before their first kernel; a notebook need not."""

OLDEST = (3, 6)


def version_order(version: str) -> tuple[int, ...]:
    """The numbers in a version, by which versions are sorted: 3.10.0 follows 3.9.0."""
    return tuple(map(int, re.findall(r"\d+", version)))


def require_supported(version: str) -> None:
    """Raise `UsageError` for a Triton older than `OLDEST`, such as a fork that pip installs by another name."""
    if version_order(version)[:2] < OLDEST:
        oldest = ".".join(map(str, OLDEST))
        raise UsageError(
            f"The Triton that is installed is {version}; expected {oldest} or later. Install one: "
            f'pip install -U "triton>={oldest}". A fork (triton-xpu) takes the place of triton: remove it first.'
        )


VERSION = str(triton.__version__)
"""The installed Triton, such as ``3.9.0``."""

require_supported(VERSION)
