"""Compiling: jobs and their results, the pool and the cache, what limits a kernel on its target."""
