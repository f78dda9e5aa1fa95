"""What compile workers find loaded before their first kernel, and a notebook need not load: Triton's code generator."""

import triton.compiler.code_generator  # noqa: F401
