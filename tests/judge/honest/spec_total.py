import torch

sizes = {"shown": [{"n": 4096}, {"n": 1000}], "hidden": [{"n": 1}, {"n": 0}, {"n": 2503}]}


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator)}


def reference(x):
    return x.sum()
