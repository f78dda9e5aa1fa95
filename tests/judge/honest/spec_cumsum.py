import torch

sizes = {"shown": [{"n": 2048}], "hidden": [{"n": 1000}, {"n": 1}]}


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator)}


def reference(x):
    return torch.cumsum(x, 0)
