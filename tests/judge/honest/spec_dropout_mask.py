import torch

sizes = {"shown": [{"n": 1024}], "hidden": [{"n": 777}, {"n": 1}]}


def inputs(generator, n):
    keep = torch.rand(n, generator=generator) > 0.3
    return {"x": torch.randn(n, generator=generator), "keep": keep, "p": 0.3}


def reference(x, keep, p):
    return torch.where(keep, x / (1 - p), 0.0)
