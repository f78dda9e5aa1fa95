import torch

sizes = {"shown": [{"n": 512}], "hidden": [{"n": 77}]}


def inputs(generator, n):
    return {name: torch.randn(n, generator=generator, dtype=torch.float64) for name in ("start", "end", "weight")}


def reference(start, end, weight):
    return torch.lerp(start, end, weight)
