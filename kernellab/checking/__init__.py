"""Checks of outputs: references, bounds on rounding errors, comparisons, and hints on what is wrong."""
