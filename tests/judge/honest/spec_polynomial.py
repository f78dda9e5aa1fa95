import torch

sizes = {"shown": [{"n": 700}], "hidden": [{"n": 1}, {"n": 1025}]}


def inputs(generator, n):
    return {"x": torch.rand(n, generator=generator), "a": 0.5, "b": -1.25, "c": 3}


def reference(x, a, b, c):
    return (a * x + b) * x + c
