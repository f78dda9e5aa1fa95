"""Explains the time of a launch: facts, a model of time, a rule per cause of slowness, and profiles."""
