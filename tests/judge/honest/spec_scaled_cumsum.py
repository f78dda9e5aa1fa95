import torch

allow = "torch"
sizes = {"shown": [{"m": 8, "n": 32}], "hidden": [{"m": 5, "n": 17}]}


def inputs(generator, m, n):
    return {"x": torch.randn(n, m, generator=generator).T, "scale": 0.5}


def reference(x, scale):
    return torch.cumsum(x, 1) * scale
