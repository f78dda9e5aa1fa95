import torch

sizes = {
    "shown": [{"m": 32, "n": 32, "k": 32}],
    "hidden": [{"m": 33, "n": 17, "k": 47}, {"m": 1, "n": 1, "k": 1}],
}


def inputs(generator, m, n, k, dtype="float16"):
    a, b = torch.randn(m, k, generator=generator), torch.randn(k, n, generator=generator)
    return {"a": a.to(getattr(torch, dtype)), "b": b.to(getattr(torch, dtype))}


def reference(a, b):
    return a @ b
