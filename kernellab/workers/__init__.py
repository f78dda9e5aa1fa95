"""Processes for whatever can die, and what travels between them."""
