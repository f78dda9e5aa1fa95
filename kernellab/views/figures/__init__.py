"""Figures over numbers: tunings, sweeps, rooflines, and how far something has come."""
