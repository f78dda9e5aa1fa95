import torch

sizes = {"shown": [{"n": 400}], "hidden": [{"n": 3}, {"n": 129}]}
distributions = ("normal", "uniform", "tiny", "sorted", "with zeros")


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator), "y": torch.rand(n, generator=generator) + 0.5}


def reference(x, y):
    return torch.atan2(x, y), torch.pow(y, x), torch.sin(x) * torch.cos(y)
