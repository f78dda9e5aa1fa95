"""The only importer of Triton's internals, and the only place that knows its versions."""

CODE_GENERATOR = "triton.compiler.code_generator"
"""What compile workers load before their first kernel, and a notebook need not."""
