"""Compiling: jobs and their results, the pool and the cache, what limits a kernel on its target."""

STAGES = ("ttir", "ttgir", "llir", "ptx", "amdgcn", "sass")  # from the source down; the last is disassembled
DIFF_STAGES = ("source", "resources", *STAGES)
