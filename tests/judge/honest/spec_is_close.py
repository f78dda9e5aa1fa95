import torch

sizes = {"shown": [{"n": 500}], "hidden": [{"n": 1}, {"n": 257}]}
distributions = ("integers", "repeated", "with zeros", "with inf and nan")
nonfinite = True


def inputs(generator, n):
    x = torch.randn(n, generator=generator).round()
    return {"x": x, "y": torch.randn(n, generator=generator).round()}


def reference(x, y):
    return x >= y, torch.isnan(x) | torch.isnan(y)
