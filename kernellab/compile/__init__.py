"""Compiling: jobs and their results, the pool and the cache, what limits a kernel on its target."""

STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "sass")  # from the source down; the last is disassembled
MLIR_STAGES = frozenset({"ttir", "ttgir"})
ASSEMBLIES = ("ptx", "amdgcn")
"""The stages of text that a backend assembles; a compiled kernel has one of them."""
DIFF_STAGES = ("source", "resources", *STAGES)
