import torch

sizes = {"shown": [{"m": 32, "n": 32, "k": 32}], "hidden": [{"m": 9, "n": 21, "k": 40}]}


def inputs(generator, m, n, k):
    a = torch.randint(-128, 128, (m, k), generator=generator, dtype=torch.int8)
    b = torch.randint(-128, 128, (k, n), generator=generator, dtype=torch.int8)
    return {"a": a, "b": b, "scales": torch.rand(n, generator=generator) / 64}


def reference(a, b, scales):
    return (a.int() @ b.int()).float() * scales
