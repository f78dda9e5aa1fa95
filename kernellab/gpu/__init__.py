"""Launches on a GPU: trial launches in a worker process, on copies of the arguments between redzones."""
