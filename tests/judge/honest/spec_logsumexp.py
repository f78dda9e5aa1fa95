import torch

sizes = {"shown": [{"m": 8, "n": 256}], "hidden": [{"m": 5, "n": 201}, {"m": 1, "n": 1}]}


def inputs(generator, m, n):
    return {"x": torch.randn(m, n, generator=generator)}


def reference(x):
    return torch.logsumexp(x, dim=1)
