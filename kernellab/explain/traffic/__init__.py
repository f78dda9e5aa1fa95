"""Counts the memory traffic of a launch without a GPU."""
