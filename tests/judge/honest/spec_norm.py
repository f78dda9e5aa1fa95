import torch

sizes = {"shown": [{"n": 4096}], "hidden": [{"n": 1}, {"n": 1789}]}


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator)}


def reference(x):
    return x / torch.sqrt((x * x).sum() + 1e-6)
