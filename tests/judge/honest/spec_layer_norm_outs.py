import torch

sizes = {"shown": [{"m": 8, "n": 64}], "hidden": [{"m": 3, "n": 50}]}
distributions = ("normal", "uniform", "integers")


def inputs(generator, m, n):
    g = generator
    return {
        "x": torch.randn(m, n, generator=g),
        "weight": torch.rand(n, generator=g),
        "bias": torch.randn(n, generator=g),
    }


def reference(x, weight, bias):
    mean = x.mean(1)
    var = ((x - mean[:, None]) ** 2).mean(1)
    rstd = 1 / torch.sqrt(var + 1e-5)
    return {"y": (x - mean[:, None]) * rstd[:, None] * weight + bias, "mean": mean, "rstd": rstd}
