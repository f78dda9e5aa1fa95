import torch

sizes = {
    "shown": [{"n": 300, "low": -0.5, "high": 0.5}, {"n": 300, "low": None, "high": 1}],
    "hidden": [{"n": 129, "low": 0.25, "high": None}],
}


def inputs(generator, n, low, high):
    return {"x": torch.randn(n, generator=generator), "low": low, "high": high}


def reference(x, low, high):
    return torch.clamp(x, low, high)
