import torch

sizes = {"shown": [{"n": 2048}], "hidden": [{"n": 1}, {"n": 613}]}
outputs = ("out",)


def inputs(generator, n):
    x, y = torch.randn(n, generator=generator), torch.randn(n, generator=generator)
    return {"x": x, "y": y, "out": torch.empty(n)}


def reference(x, y, out):
    return x + y
