import torch

sizes = {"shown": [{"m": 16, "n": 128}], "hidden": [{"m": 7, "n": 97}, {"m": 1, "n": 1}, {"m": 3, "n": 300}]}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator)}


def reference(x):
    return torch.softmax(x, dim=1)
