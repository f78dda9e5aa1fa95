import torch

sizes = {"shown": [{"m": 4, "n": 16}], "hidden": [{"m": 3, "n": 5}]}


def inputs(generator, m, n):
    angle = torch.rand(n, generator=generator) * 6
    return {"x": torch.randn(m, 2 * n, generator=generator), "cos": torch.cos(angle), "sin": torch.sin(angle)}


def reference(x, cos, sin):
    a, b = x[:, ::2], x[:, 1::2]
    return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).reshape(x.shape)
