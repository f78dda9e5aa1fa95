"""Launches on a GPU: observed ones, first flights in a worker process, and timing there."""
