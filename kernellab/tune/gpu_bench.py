"""The bench on a GPU."""
