import torch

sizes = {"shown": [{"n": 1024}, {"n": 1000}], "hidden": [{"n": 1}, {"n": 0}, {"n": 4099}]}


def inputs(generator, n):
    return {"x": torch.randn(n, generator=generator), "y": torch.randn(n, generator=generator)}


def reference(x, y):
    return x + y
