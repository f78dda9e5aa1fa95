import torch

sizes = {"shown": [{"n": 1000}], "hidden": [{"n": 257}, {"n": 1}]}


def inputs(generator, n):
    return {"x": torch.randint(0, 16, (n,), generator=generator, dtype=torch.int32)}


def reference(x):
    return (x[:, None] == torch.arange(16)[None, :]).sum(0).int()
